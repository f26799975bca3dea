//! The programs that tests start.

use std::{env, path::PathBuf};

/// The `kilit` command under test: `KILIT_BIN`, which the test command sets.
///
/// # Panics
/// When it is unset: a test that needs the command must not pass without it.
pub fn kilit() -> PathBuf {
    env::var_os("KILIT_BIN").map(PathBuf::from).unwrap_or_else(|| {
        panic!("KILIT_BIN is unset: run `cargo build -p kilit-cli` and set it to the path of `kilit`")
    })
}

/// This crate's own program: `KILIT_TESTBED_BIN`, or `kilit-testbed` in the folder that cargo builds programs to.
///
/// # Panics
/// When there is none.
pub fn testbed() -> PathBuf {
    let beside = || {
        // target/debug/deps/it-0123456789abcdef -> target/debug/kilit-testbed
        let target = env::current_exe().ok()?.parent()?.parent()?.join("kilit-testbed");
        target.exists().then_some(target)
    };
    env::var_os("KILIT_TESTBED_BIN").map(PathBuf::from).or_else(beside).unwrap_or_else(|| {
        panic!(
            "there is no kilit-testbed program: run `cargo build -p kilit-testbed`, or set KILIT_TESTBED_BIN"
        )
    })
}
