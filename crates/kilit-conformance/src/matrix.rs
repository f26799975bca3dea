//! The recorded matrix, case × column: what runs, and why the rest does not.
//!
//! A cell that is missing from the record, or that changed, is a failure: no engine leaves a case out silently.
//! `KILIT_RECORD=1` writes the record anew, and a diff shows what that meant.

use std::{collections::BTreeSet, fmt::Write, fs, path::Path};

use kilit_core::Descriptor;

use crate::{Column, case::block_on, suite::CASES};

const HEAD: &str = "# Which case runs on which engine, and why the others do not.\n\
                    # A test compares this with the suite; KILIT_RECORD=1 writes it anew.\n";

/// Checks the record at `path` against `columns`, and that every engine has a column.
///
/// # Panics
/// With what differs.
pub fn check(path: &Path, columns: &[Column], engines: impl Iterator<Item = &'static Descriptor>) {
    let (mut cells, mut covered) = (vec![vec![]; CASES.len()], BTreeSet::new());
    block_on(async {
        for column in columns {
            let subject = (column.set_up)().await;
            covered.insert(subject.assurance().await.engine);
            for (case, cells) in CASES.iter().zip(&mut cells) {
                cells.push((column.name, case.does_not_apply(&subject).await));
            }
        }
    });
    let without: Vec<_> =
        engines.map(|engine| engine.scheme).filter(|scheme| !covered.contains(scheme)).collect();
    assert!(without.is_empty(), "engines without a column: {without:?}");

    let now = render(&cells);
    if std::env::var_os("KILIT_RECORD").is_some_and(|set| set == "1") {
        fs::write(path, &now).expect("the record can be written");
    }
    let recorded = fs::read_to_string(path).unwrap_or_default();
    let differs = difference(&recorded, &now);
    assert!(
        differs.is_empty(),
        "the matrix differs from {}; if it is meant so, write it anew with KILIT_RECORD=1:\n{}",
        path.display(),
        differs.join("\n")
    );
}

fn render(cells: &[Vec<(&str, Option<&str>)>]) -> String {
    let mut text = HEAD.to_owned();
    for (case, cells) in CASES.iter().zip(cells) {
        let _ = writeln!(text, "\n{}", case.name);
        for (column, not) in cells {
            let cell = not.map_or("runs".to_owned(), |why| format!("n/a: {why}"));
            let _ = writeln!(text, "    {column:<18}{cell}");
        }
    }
    text
}

/// The cells that only one of two records has, with their case.
fn difference(recorded: &str, now: &str) -> Vec<String> {
    let (recorded, now) = (cells(recorded), cells(now));
    let gone = recorded.difference(&now).map(|(case, cell)| format!("- {case}: {cell}"));
    gone.chain(now.difference(&recorded).map(|(case, cell)| format!("+ {case}: {cell}"))).collect()
}

fn cells(record: &str) -> BTreeSet<(&str, &str)> {
    let mut case = "";
    let mut cells = BTreeSet::new();
    for line in record.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        match line.strip_prefix("    ") {
            Some(cell) => drop(cells.insert((case, cell))),
            None => case = line,
        }
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_cell_and_another_reason_are_seen() {
        let recorded =
            "# head\n\na::b\n    memory            runs\n    file              n/a: it has no leases\n";
        assert_eq!(difference(recorded, recorded), [""; 0]);
        let less = recorded.replace("    memory            runs\n", "");
        assert_eq!(difference(&less, recorded), ["+ a::b: memory            runs"]);
        let other = recorded.replace("no leases", "no tokens");
        assert_eq!(difference(recorded, &other).len(), 2);
        assert_eq!(difference(recorded, &recorded.replace("a::b", "a::c")).len(), 4);
    }

    #[test]
    fn every_case_has_a_name_of_its_own() {
        let names: BTreeSet<_> = CASES.iter().map(|case| case.name).collect();
        assert_eq!(names.len(), CASES.len());
    }
}
