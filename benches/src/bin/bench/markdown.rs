//! Markdown tables that are also readable as plain text.

/// A table; the first column is text, the others are numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    head: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new(head: impl IntoIterator<Item: Into<String>>) -> Self {
        Self { head: head.into_iter().map(Into::into).collect(), rows: Vec::new() }
    }

    /// Adds a row; missing cells are empty.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let mut cells: Vec<String> = cells.into_iter().collect();
        cells.resize(self.head.len(), String::new());
        self.rows.push(cells);
    }

    /// Renders the table without empty columns.
    pub fn render(&self) -> String {
        let used: Vec<usize> =
            (0..self.head.len()).filter(|&at| self.rows.iter().any(|row| !row[at].is_empty())).collect();
        let widths: Vec<usize> = used
            .iter()
            .map(|&at| {
                std::iter::once(&self.head).chain(&self.rows).map(|row| row[at].chars().count()).max().unwrap_or(0)
            })
            .collect();
        let line = |row: &Vec<String>| {
            let cells = used.iter().zip(&widths).enumerate().map(|(number, (&at, &width))| match number {
                0 => format!(" {:<width$} |", row[at]),
                _ => format!(" {:>width$} |", row[at]),
            });
            format!("|{}", cells.collect::<String>())
        };
        let rule = widths.iter().enumerate().map(|(number, &width)| match number {
            0 => format!("{}|", "-".repeat(width + 2)),
            _ => format!("{}:|", "-".repeat(width + 1)),
        });
        let mut lines = vec![line(&self.head), format!("|{}", rule.collect::<String>())];
        lines.extend(self.rows.iter().map(line));
        lines.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::Table;

    #[test]
    fn columns_are_aligned_and_empty_ones_left_out() {
        let mut table = Table::new(["who", "s", "nothing", "MB"]);
        table.row(["a".to_owned(), "1.5".to_owned(), String::new(), "300".to_owned()]);
        table.row(["longer".to_owned()]);
        let expected = "| who    |   s |  MB |\n|--------|----:|----:|\n| a      | 1.5 | 300 |\n| longer |     |     |";
        assert_eq!(table.render(), expected);
    }
}
