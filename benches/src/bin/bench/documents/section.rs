use super::super::markdown::Table;
use plot::Plot;

/// A part of a section, in the order of the report.
pub enum Part {
    Text(String),
    Table { title: String, table: Table },
    Plot { name: String, plot: Plot },
}

/// The report's section of one benchmark.
pub struct Section {
    pub title: String,
    pub parts: Vec<Part>,
}

impl Section {
    /// Begins a section. `source` cites the document: author, title, date, data set and machine.
    pub fn new(title: &str, source: &str) -> Self {
        Self { title: title.to_owned(), parts: vec![Part::Text(source.to_owned())] }
    }

    /// Adds figures of the document.
    pub fn theirs(&mut self, what: &str, table: Table) {
        self.parts.push(Part::Table { title: format!("Theirs, {what}"), table });
    }

    /// Adds figures measured here.
    pub fn ours(&mut self, what: &str, table: Table) {
        self.parts.push(Part::Table { title: format!("Ours, {what}"), table });
    }

    /// Adds a plot; `name` distinguishes its file from those of other plots.
    pub fn plot(&mut self, name: &str, plot: Plot) {
        self.parts.push(Part::Plot { name: name.to_owned(), plot });
    }

    /// Adds a paragraph, such as one about differences from the document.
    pub fn text(&mut self, paragraph: &str) {
        self.parts.push(Part::Text(paragraph.to_owned()));
    }
}
