//! What the README says of the command, the command says itself.

use std::{env, process::Command};

use crate::{nothing, read};

#[test]
fn the_table_of_engines_is_the_commands() {
    let readme = read("README.md");
    let (_, rest) =
        readme.split_once("<!-- kilit engines --markdown -->\n").expect("README.md has the marker");
    let (table, _) = rest.split_once("<!-- end -->").expect("README.md has the end marker");
    let printed = kilit(&["engines", "--markdown"]);
    assert_eq!(table.trim(), printed.trim(), "put the right-hand side between the markers in README.md");
}

#[test]
fn the_exit_codes_are_the_commands() {
    let (readme, help) = (read("README.md"), kilit(&["run", "--help"]));
    let rows: Vec<_> =
        help.lines().filter_map(exit_code).map(|(code, text)| format!("| {code} | {text} |")).collect();
    assert!(rows.len() >= 6, "the help lists {} exit codes", rows.len());
    nothing(
        rows.into_iter()
            .filter(|row| !readme.contains(row))
            .map(|row| format!("README.md lacks: {row}"))
            .collect(),
    );
}

/// A line of the list of exit codes in the help.
fn exit_code(line: &str) -> Option<(u8, &str)> {
    let (code, text) = line.trim_start().split_once("  ")?;
    Some((code.parse().ok()?, text.trim()))
}

#[track_caller]
fn kilit(args: &[&str]) -> String {
    let program = env::var_os("KILIT_BIN")
        .expect("KILIT_BIN is unset: run `cargo build -p kilit-cli` and set it to the path of `kilit`");
    let output = Command::new(&program).args(args).output();
    let output = output.unwrap_or_else(|error| panic!("KILIT_BIN is {program:?}: {error}"));
    assert!(output.status.success(), "kilit {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("it prints UTF-8")
}
