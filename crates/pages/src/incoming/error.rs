use thiserror::Error;

use crate::{MetaError, PageError, Tid};

/// Why pages from a builder are not taken.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum IncomingError {
    /// The parameters of the index are out of bounds.
    #[error(transparent)]
    Meta(#[from] MetaError),
    /// What the builder announced cannot be.
    #[error("{found} {what} announced, must be between {min} and {max}")]
    Announced {
        /// Elements, rows or blocks.
        what: &'static str,
        /// The number announced.
        found: u64,
        /// The least that can be.
        min: u64,
        /// The most that can be.
        max: u64,
    },
    /// Blocks come in order.
    #[error("block {found} came, expected block {expected} of {blocks}")]
    Block {
        /// The block that came.
        found: u32,
        /// The next block.
        expected: u32,
        /// All blocks.
        blocks: u32,
    },
    /// The page is not one of an HNSW index.
    #[error(transparent)]
    Page(#[from] PageError),
    /// The page as a whole is not as it must be.
    #[error("block {block}: {problem}")]
    Frame {
        /// The block.
        block: u32,
        /// What is wrong.
        problem: &'static str,
    },
    /// The meta page differs from the one expected.
    #[error("meta page: byte {at} is {found:#04x}, expected {expected:#04x}")]
    MetaPage {
        /// Where in the page.
        at: usize,
        /// The byte there.
        found: u8,
        /// The byte expected.
        expected: u8,
    },
    /// A tuple is not as it must be.
    #[error("{tid}: {problem}")]
    Tuple {
        /// The tuple.
        tid: Tid,
        /// What is wrong.
        problem: &'static str,
    },
    /// A slot of a neighbor list is not as it must be.
    #[error("element {element}, layer {layer}: neighbor {neighbor} {problem}")]
    Neighbor {
        /// The element.
        element: Tid,
        /// The layer.
        layer: u8,
        /// What the slot holds.
        neighbor: Tid,
        /// What is wrong.
        problem: &'static str,
    },
    /// Links lead to element tuples that the block does not have.
    #[error("block {block}: has {elements} elements, a link leads to offset {offset}")]
    Targets {
        /// The block.
        block: u32,
        /// Its element tuples.
        elements: u8,
        /// The highest offset that a link leads to.
        offset: u8,
    },
    /// A count is not the one announced.
    #[error("{found} {what} came, {expected} announced")]
    Total {
        /// Elements, rows or blocks.
        what: &'static str,
        /// What came.
        found: u64,
        /// What was announced.
        expected: u64,
    },
    /// The index does not hold the rows that were sent: some are lost, repeated or altered.
    #[error("the rows in the index are not those that were sent")]
    Rows,
    /// No memory for checking.
    #[error("out of memory while checking pages")]
    Memory,
    /// An earlier page was refused.
    #[error("an earlier page was refused")]
    Refused,
}
