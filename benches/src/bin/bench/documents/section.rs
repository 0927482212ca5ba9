use super::super::markdown::Table;
use plot::Plot;

/// A part of a section, in the order of the page.
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
    /// Begins one. `source` says whose figures are reproduced: author, title, date, set and machine.
    pub fn new(title: &str, source: &str) -> Self {
        Self { title: title.to_owned(), parts: vec![Part::Text(source.to_owned())] }
    }

    /// The document's own figures.
    pub fn theirs(&mut self, what: &str, table: Table) {
        self.parts.push(Part::Table { title: format!("Theirs, {what}"), table });
    }

    /// What was measured here.
    pub fn ours(&mut self, what: &str, table: Table) {
        self.parts.push(Part::Table { title: format!("Ours, {what}"), table });
    }

    /// A plot; `name` distinguishes its file from the section's others.
    pub fn plot(&mut self, name: &str, plot: Plot) {
        self.parts.push(Part::Plot { name: name.to_owned(), plot });
    }

    /// A paragraph, as on what differs between theirs and ours.
    pub fn text(&mut self, paragraph: &str) {
        self.parts.push(Part::Text(paragraph.to_owned()));
    }
}
