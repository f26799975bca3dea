//! A server whose wall clock is not the machine's.

use std::{
    fs::{self, OpenOptions},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use crate::Process;

const SOURCE: &str = include_str!("../../../faults/clock_shim.c");

/// Builds the shim, and lets `command` start with it, its clock being right.
///
/// # Panics
/// With the compiler's words, when it cannot be built.
pub(super) fn preload(command: &mut Command, dir: &Path) {
    let (source, shim) = (dir.join("clock_shim.c"), dir.join("clock_shim.so"));
    if !shim.exists() {
        fs::write(&source, SOURCE).expect("a file in the server's directory");
        let mut compiler = Command::new("cc");
        compiler.args(["-O2", "-shared", "-fPIC", "-o"]).arg(&shim).arg(&source);
        Process::run(&mut compiler, Duration::from_secs(60)).expect_code(0);
        fs::write(offset_file(dir), 0_i64.to_ne_bytes()).expect("a file in the server's directory");
    }
    command.env("LD_PRELOAD", shim).env("KILIT_CLOCK_OFFSET", offset_file(dir));
}

pub(super) fn set_offset_ms(dir: &Path, ms: i64) {
    let file = OpenOptions::new().write(true).open(offset_file(dir)).expect("the shim's file");
    // In place, and all eight bytes at once: the server has the file mapped.
    file.write_all_at(&(ms * 1000).to_ne_bytes(), 0).expect("the shim's file can be written");
}

fn offset_file(dir: &Path) -> PathBuf {
    dir.join("clock-offset")
}
