//! Tables, for people and for pages of documentation.

/// Rows of equal length, the first of them the head.
#[derive(Debug, Default)]
pub(crate) struct Table(Vec<Vec<String>>);

impl Table {
    pub(crate) fn new(head: &[&str]) -> Self {
        Self(vec![head.iter().map(|&text| text.to_owned()).collect()])
    }

    pub(crate) fn push(&mut self, row: Vec<String>) {
        self.0.push(row);
    }

    /// With columns aligned by spaces.
    pub(crate) fn text(&self) -> String {
        self.lines(|cells| cells.join("  ").trim_end().to_owned(), None)
    }

    /// As Markdown.
    pub(crate) fn markdown(&self) -> String {
        self.lines(|cells| format!("| {} |", cells.join(" | ")), Some('-'))
    }

    fn lines(&self, line: impl Fn(&[String]) -> String, rule: Option<char>) -> String {
        let columns = self.0[0].len();
        let width = |column: usize| self.0.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<_> = (0..columns).map(width).collect();
        let pad = |row: &Vec<String>| -> Vec<String> {
            row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:width$}")).collect()
        };
        let mut lines: Vec<_> = self.0.iter().map(|row| line(&pad(row))).collect();
        if let Some(rule) = rule {
            let dashes: Vec<_> = widths.iter().map(|&width| rule.to_string().repeat(width)).collect();
            lines.insert(1, line(&dashes));
        }
        lines.join("\n") + "\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms() {
        let mut table = Table::new(&["a", "long head"]);
        table.push(vec!["wide cell".into(), "x".into()]);
        assert_eq!(table.text(), "a          long head\nwide cell  x\n");
        assert_eq!(
            table.markdown(),
            "| a         | long head |\n| --------- | --------- |\n| wide cell | x         |\n"
        );
    }
}
