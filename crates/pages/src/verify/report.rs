use std::collections::BTreeMap;
use std::{fmt, io};

use pgvector::ValueType;

use crate::{MetaPage, PAGE_SIZE};

/// The most problems of a kind that are kept as text.
const KEPT: usize = 50;

/// Problems of one kind: all are counted, and the texts of fifty kept. Inserts may cause passing problems while the
/// pages are read one after another; lasting ones have other causes, and their texts replace those of passing ones.
#[derive(Clone, Debug, Default)]
pub struct Problems {
    first: Vec<String>,
    lasting: u64,
    passing: u64,
}

impl Problems {
    /// The number of problems.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.lasting + self.passing
    }

    /// The number of problems that inserts cannot have caused.
    #[must_use]
    pub fn lasting(&self) -> u64 {
        self.lasting
    }

    /// The texts of the first fifty problems, passing ones last.
    #[must_use]
    pub fn first(&self) -> &[String] {
        &self.first
    }

    pub(super) fn push(&mut self, problem: fmt::Arguments<'_>) {
        if let Ok(at @ ..KEPT) = usize::try_from(self.lasting) {
            self.first.truncate(KEPT - 1);
            self.first.insert(at, problem.to_string());
        }
        self.lasting += 1;
    }

    /// Adds a problem that an insert causes if it happens between two reads of pages.
    pub(super) fn push_passing(&mut self, problem: fmt::Arguments<'_>) {
        if self.first.len() < KEPT {
            self.first.push(problem.to_string());
        }
        self.passing += 1;
    }

    /// Adds a page that cannot be read.
    pub fn add_unreadable(&mut self, block: u32, error: &io::Error) {
        self.push(format_args!("block {block}: cannot be read: {error}"));
    }

    /// Adds the problems found in a later part of the index.
    pub(super) fn append(&mut self, other: Self) {
        let kept = |lasting| usize::try_from(lasting).map_or(KEPT, |count| count.min(KEPT));
        let (at, mut lasting) = (kept(self.lasting), other.first);
        let passing = lasting.split_off(kept(other.lasting));
        self.first.splice(at..at, lasting);
        self.first.extend(passing);
        self.first.truncate(KEPT);
        self.lasting += other.lasting;
        self.passing += other.passing;
    }

    pub(super) fn add(&mut self, when: bool, problem: fmt::Arguments<'_>) {
        if when {
            self.push(problem);
        }
    }
}

/// One layer of the graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerReport {
    /// The layer.
    pub layer: u8,
    /// Live elements on it.
    pub elements: u64,
    /// Live elements that can be reached from the entry point by the links of this layer.
    pub reachable: u64,
    /// Links between live elements on it.
    pub links: u64,
}

/// What [`crate::verify`] found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Blocks of the index, the meta page among them.
    pub blocks: u32,
    /// The meta page, if there is one.
    pub meta: Option<MetaPage>,
    /// The type of the values, given or recognised.
    pub value_type: Option<ValueType>,
    /// Elements in use.
    pub live: u64,
    /// Slots left by VACUUM for inserts to take.
    pub deleted: u64,
    /// Rows: heap TIDs of live elements.
    pub heap_tids: u64,
    /// Rows that share an element with an earlier row, as their values are equal.
    pub duplicates: u64,
    /// Neighbor tuples.
    pub neighbor_tuples: u64,
    /// Neighbor tuples on another page than their element.
    pub neighbors_elsewhere: u64,
    /// Live elements with unused slots at layer 0: VACUUM searches for their neighbors again.
    pub not_full: u64,
    /// From the entry point's layer down to 0.
    pub layers: Vec<LayerReport>,
    /// Live elements by level.
    pub levels: BTreeMap<u8, u64>,
    /// Elements by the version byte of their tuple.
    pub versions: BTreeMap<u8, u64>,
    /// Mean number of pages that the neighbors of a layer-0 list are on.
    pub mean_pages: f64,
    /// Unused bytes of the data pages.
    pub free_bytes: u64,
    /// Problems that make pgvector misbehave.
    pub errors: Problems,
    /// Problems that are legal, but unusual or harmful.
    pub warnings: Problems,
}

impl Report {
    /// Whether no error was found.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        self.errors.count() == 0
    }
}

/// Text for users, in several lines.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = u64::from(self.blocks) * PAGE_SIZE as u64;
        writeln!(f, "blocks      {} ({} KiB, {} bytes free)", self.blocks, size / 1024, self.free_bytes)?;
        if let Some(meta) = &self.meta {
            let value_type = self.value_type.map_or("?", ValueType::name);
            writeln!(
                f,
                "index       {value_type}({}), m = {}, ef_construction = {}, insert page {}",
                meta.dims, meta.m, meta.ef_construction, meta.insert_page
            )?;
            match meta.entry.is_valid() {
                true => writeln!(f, "entry point {} on level {}", meta.entry, meta.entry_level)?,
                false => writeln!(f, "entry point none")?,
            }
        }
        writeln!(
            f,
            "elements    {} live, {} deleted, {} rows of which {} share an element",
            self.live, self.deleted, self.heap_tids, self.duplicates
        )?;
        writeln!(
            f,
            "neighbors   {} tuples, {} on another page than their element; {} layer-0 lists not full; {:.1} pages per layer-0 list",
            self.neighbor_tuples, self.neighbors_elsewhere, self.not_full, self.mean_pages
        )?;
        writeln!(f, "levels      {}", list(&self.levels))?;
        writeln!(f, "versions    {}", list(&self.versions))?;
        for LayerReport { layer, elements, reachable, links } in &self.layers {
            let mean = *links as f64 / (*elements).max(1) as f64;
            writeln!(f, "layer {layer:<5} {elements} elements, {reachable} reachable, {mean:.1} links each")?;
        }
        for (kind, problems) in [("warning", &self.warnings), ("error", &self.errors)] {
            for problem in problems.first() {
                writeln!(f, "{kind:<11} {problem}")?;
            }
            let more = problems.count() - problems.first().len() as u64;
            if more > 0 {
                writeln!(f, "{kind:<11} … and {more} more")?;
            }
        }
        write!(f, "result      {} errors, {} warnings", self.errors.count(), self.warnings.count())
    }
}

fn list(counts: &BTreeMap<u8, u64>) -> String {
    if counts.is_empty() {
        return "none".to_owned();
    }
    counts.iter().map(|(key, count)| format!("{key}: {count}")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::{KEPT, Problems};

    #[test]
    fn passing_problems_crowd_out_no_others() {
        let mut problems = Problems::default();
        (0..KEPT).for_each(|at| problems.push_passing(format_args!("new {at}")));
        problems.push(format_args!("a"));
        problems.push_passing(format_args!("new again"));
        problems.push(format_args!("b"));
        assert_eq!((problems.count(), problems.lasting(), problems.first().len()), (53, 2, KEPT));
        assert_eq!(problems.first()[..3], ["a", "b", "new 0"]);
        (0..KEPT).for_each(|at| problems.push(format_args!("more {at}")));
        assert_eq!(problems.first().len(), KEPT);
        assert_eq!((problems.first()[1].as_str(), problems.first()[KEPT - 1].as_str()), ("b", "more 47"));
    }

    #[test]
    fn parts_are_appended_as_if_they_were_one() {
        // Lasting and passing problems of two parts, fewer and more than are kept.
        for counts in
            [[(1, 2), (2, 1)], [(KEPT, 3), (2, 2)], [(0, KEPT), (1, 1)], [(20, 20), (60, 9)], [(0, 0), (3, 4)]]
        {
            let (mut whole, mut parts) = (Problems::default(), Problems::default());
            for (part, (lasting, passing)) in counts.into_iter().enumerate() {
                let mut next = Problems::default();
                for problems in [&mut whole, &mut next] {
                    (0..lasting).for_each(|at| problems.push(format_args!("part {part}: {at}")));
                    (0..passing).for_each(|at| problems.push_passing(format_args!("part {part}: new {at}")));
                }
                parts.append(next);
            }
            let of = |problems: &Problems| (problems.count(), problems.lasting(), problems.first().to_vec());
            assert_eq!(of(&parts), of(&whole), "{counts:?}");
        }
    }
}
