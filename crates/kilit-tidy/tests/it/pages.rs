//! The pages tell the truth about the tree.

use crate::{engine_crates, files, nothing, read, root};

const ENGINE_HEADINGS: [&str; 6] =
    ["Guarantee", "Token", "Loss bound", "Settings that matter", "How it fails", "How it is tested"];

#[test]
fn every_path_on_the_pages_exists() {
    let mut wrong = Vec::new();
    for page in ["ARCHITECTURE.md", "CONTRIBUTING.md", "README.md"] {
        let text = read(page);
        let paths: Vec<_> = code_spans(&text).filter(|span| is_path(span)).collect();
        for path in paths.iter().filter(|path| !root().join(path).exists()) {
            wrong.push(format!("{page}: there is no `{path}`"));
        }
        assert!(!paths.is_empty(), "no path was found on {page}");
    }
    nothing(wrong);
}

#[test]
fn the_map_is_short_and_names_every_crate() {
    let map = read("ARCHITECTURE.md");
    assert!(map.lines().count() <= 200, "ARCHITECTURE.md has {} lines", map.lines().count());
    let missing = crate::crates().into_iter().filter(|name| !map.contains(&format!("crates/{name}")));
    nothing(missing.map(|name| format!("ARCHITECTURE.md does not tell of crates/{name}")).collect());
}

#[test]
fn every_engine_has_a_page_with_the_same_headings() {
    let mut wrong = Vec::new();
    for name in engine_crates() {
        let page = format!("docs/engines/{}.md", name.trim_start_matches("kilit-"));
        if !root().join(&page).exists() {
            wrong.push(format!("{name}: there is no {page}"));
        }
    }
    for (page, text) in files("docs/engines", &[".md"]) {
        let headings: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("## ")).collect();
        if headings != ENGINE_HEADINGS {
            wrong.push(format!("{page}: its headings are {headings:?}"));
        }
    }
    nothing(wrong);
}

#[test]
fn the_oldest_rust_is_the_same_everywhere() {
    let manifest = read("Cargo.toml");
    let version = manifest
        .lines()
        .find_map(|line| line.strip_prefix("rust-version = "))
        .expect("the workspace has a rust-version")
        .trim_matches('"');
    for page in ["README.md", "CONTRIBUTING.md"] {
        assert!(read(page).contains(&format!("Rust {version}")), "{page} does not say `Rust {version}`");
    }
}

/// What stands between backquotes within a line.
fn code_spans(text: &str) -> impl Iterator<Item = &str> {
    text.lines().flat_map(|line| line.split('`').skip(1).step_by(2))
}

/// Whether a code span is meant as a path in the repository.
fn is_path(span: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
    let at_root = span.ends_with(".md") || span.ends_with(".toml");
    let inside = !span.starts_with(['/', '-']) && !span.starts_with("target/");
    span.chars().all(plain) && inside && (at_root || span.contains('/'))
}

#[test]
fn paths_are_told_from_other_code() {
    for path in
        ["crates/kilit", "crates/kilit-core/src/deadline.rs", "docs/engines/", "Cargo.toml", ".ci/run"]
    {
        assert!(is_path(path), "{path}");
    }
    for other in
        ["file:///dir", "/var/lib", "target/release/kilit", "claim", "docs/engines/<name>.md", "lib.rs"]
    {
        assert!(!is_path(other), "{other}");
    }
    assert_eq!(code_spans("a `b/c` and `d`\n`e`").collect::<Vec<_>>(), ["b/c", "d", "e"]);
}
