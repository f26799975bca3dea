//! What the pages and the sources must keep to.

#![forbid(unsafe_code)]

mod command;
mod pages;
mod sources;

use std::{
    fs,
    path::{Path, PathBuf},
};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("crates/kilit-tidy").to_owned()
}

#[track_caller]
fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Every text file below `folder` with one of these endings: its path from the root, and what is in it.
fn files(folder: &str, endings: &[&str]) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root().join(folder)).expect(folder) {
        let entry = entry.expect(folder);
        let name = entry.file_name().into_string().expect("names are UTF-8");
        let path = Path::new(folder).join(&name).to_str().expect("names are UTF-8").to_owned();
        if entry.file_type().expect("its type").is_dir() {
            if !name.starts_with("target") && name != ".git" {
                found.extend(files(&path, endings));
            }
        } else if endings.iter().any(|ending| name.ends_with(ending)) {
            let text = read(&path);
            found.push((path, text));
        }
    }
    found
}

/// The names of the crates, which are those of their folders.
fn crates() -> Vec<String> {
    let folders = fs::read_dir(root().join("crates")).expect("crates");
    let name = |entry: fs::DirEntry| entry.file_name().into_string().expect("names are UTF-8");
    folders.map(|entry| name(entry.expect("crates"))).collect()
}

/// The crates that register engines, without those that are only for kilit's own tests.
fn engine_crates() -> Vec<String> {
    let engine = |name: &String| {
        read(&format!("crates/{name}/src/lib.rs")).contains("pub static ENGINES")
            && !read(&format!("crates/{name}/Cargo.toml")).contains("publish = false")
    };
    crates()
        .into_iter()
        .filter(|name| root().join(format!("crates/{name}/src/lib.rs")).exists())
        .filter(engine)
        .collect()
}

/// Fails with all that is wrong, not only the first.
#[track_caller]
fn nothing(wrong: Vec<String>) {
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}
