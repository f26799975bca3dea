//! Rules of the sources that no lint knows.

use crate::{crates, engine_crates, files, nothing, read, root};

const LONGEST_FILE: usize = 500;

#[test]
fn no_file_is_too_long() {
    let lines = |(path, text): (String, String)| (path, text.lines().count());
    let long = files("crates", &[".rs"]).into_iter().map(lines).filter(|(_, lines)| *lines > LONGEST_FILE);
    nothing(long.map(|(path, lines)| format!("{path} has {lines} lines; is it one thing?")).collect());
}

#[test]
fn unsafe_code_is_in_sys_modules_only() {
    let code = |line: &str| line.split("//").next().unwrap_or_default().to_owned();
    let forms = ["{", "fn", "impl", "trait", "extern"].map(|form| ["unsafe", form].join(" "));
    let is_sys = |path: &str| path.contains("/src/sys/") || path.ends_with("/src/sys.rs");
    let wrong = files("crates", &[".rs"])
        .into_iter()
        .filter(|(path, text)| {
            !is_sys(path) && text.lines().map(code).any(|line| forms.iter().any(|form| line.contains(form)))
        })
        .map(|(path, _)| format!("{path} has unsafe code; it belongs into a module `sys`"));
    nothing(wrong.collect());
}

#[test]
fn the_operating_system_is_asked_in_sys_modules_only() {
    let published = ["kilit/", "kilit-core/", "kilit-memory/", "kilit-file/", "kilit-redis/", "kilit-cli/"];
    let is_ours = |path: &str| published.iter().any(|name| path.starts_with(&format!("crates/{name}src/")));
    // Names of errors are no calls.
    let asks = |line: &str| {
        let calls = line.replace("rustix::io::Errno", "");
        ["rustix::", "nix::sys", "nix::unistd", "\"/proc/"].iter().any(|form| calls.contains(form))
    };
    let program = |text: &str| text.split("#[cfg(test)]").next().unwrap_or_default().lines().any(asks);
    let wrong = files("crates", &[".rs"])
        .into_iter()
        .filter(|(path, text)| is_ours(path) && !path.contains("/src/sys/") && program(text))
        .map(|(path, _)| {
            format!("{path} asks the operating system; a port would have to find that: move it to `sys`")
        });
    nothing(wrong.collect());
}

#[test]
fn every_crate_root_says_that_it_has_no_unsafe_code() {
    let is_root = |path: &str| {
        let program = path.split_once("/src/bin/").is_some_and(|(_, file)| !file.contains('/'));
        program || path.ends_with("/src/lib.rs") || path.ends_with("/main.rs") && path.contains("/src/")
    };
    let wrong = files("crates", &[".rs"]).into_iter().filter(|(path, text)| {
        let folder = path.split("/src/").next().expect("a crate");
        let has_sys = ["sys", "sys.rs"].iter().any(|sys| root().join(folder).join("src").join(sys).exists());
        let denied = has_sys && text.contains("#![deny(unsafe_code)]");
        is_root(path) && !denied && !text.contains("#![forbid(unsafe_code)]")
    });
    nothing(wrong.map(|(path, _)| format!("{path} does not forbid unsafe code")).collect());
}

#[test]
fn every_crate_is_of_the_workspace() {
    let mut wrong = Vec::new();
    for name in crates() {
        let manifest = read(&format!("crates/{name}/Cargo.toml"));
        for line in
            ["version", "edition", "rust-version", "license"].map(|key| format!("{key}.workspace = true"))
        {
            if !manifest.contains(&line) {
                wrong.push(format!("{name}: its manifest has no `{line}`"));
            }
        }
        if !manifest.contains("[lints]\nworkspace = true") {
            wrong.push(format!("{name}: its manifest does not take the lints of the workspace"));
        }
        if !manifest.contains(&format!("name = \"{name}\"")) {
            wrong.push(format!("{name}: the crate is not called like its folder"));
        }
    }
    nothing(wrong);
}

#[test]
fn every_engine_crate_is_registered() {
    let list = read("crates/kilit/src/engines.rs");
    let line = |name: &str| format!("{}::ENGINES,", name.replace('-', "_"));
    let wrong = engine_crates().into_iter().filter(|name| !list.contains(&line(name)));
    nothing(
        wrong
            .map(|name| format!("{name}: crates/kilit/src/engines.rs has no line `{}`", line(&name)))
            .collect(),
    );
}

/// The project speaks of itself alone.
#[test]
fn nothing_names_the_machine_it_was_written_on() {
    let paths =
        [concat!("/wo", "rk/"), concat!(".lib", "rary/"), concat!("br", "ief.md"), concat!("/ro", "ot/")];
    let mut wrong = Vec::new();
    for (file, text) in files("", &[".rs", ".md", ".toml", ".sh", ".yml", "test", "run"]) {
        for path in paths.iter().filter(|path| text.contains(**path)) {
            wrong.push(format!("{file} has `{path}` in it"));
        }
    }
    nothing(wrong);
}
