use thiserror::Error;

use crate::{MetaError, PageError, Tid};

/// Why pages from a builder are refused.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum IncomingError {
    /// The parameters of the index are out of bounds.
    #[error(transparent)]
    Meta(#[from] MetaError),
    /// A number that the builder announced is impossible.
    #[error("{found} {what} announced, must be between {min} and {max}")]
    Announced {
        /// Elements or blocks.
        what: &'static str,
        /// The number announced.
        found: u64,
        /// The lowest possible number.
        min: u64,
        /// The highest possible number.
        max: u64,
    },
    /// A block came out of order.
    #[error("block {found} came, expected block {expected} of {blocks}")]
    Block {
        /// The block that came.
        found: u32,
        /// The next block.
        expected: u32,
        /// The number of blocks announced.
        blocks: u32,
    },
    /// The page is not a page of an HNSW index.
    #[error(transparent)]
    Page(#[from] PageError),
    /// The page breaks a rule outside its tuples.
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
    /// A tuple breaks a rule.
    #[error("{tid}: {problem}")]
    Tuple {
        /// The tuple.
        tid: Tid,
        /// What is wrong.
        problem: &'static str,
    },
    /// A slot of a neighbor list breaks a rule.
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
    /// A link leads to an element tuple that the block does not have.
    #[error("block {block}: has {elements} elements, a link leads to offset {offset}")]
    Targets {
        /// The block.
        block: u32,
        /// The number of its element tuples.
        elements: u8,
        /// The highest offset that a link leads to.
        offset: u8,
    },
    /// A count is not the one announced.
    #[error("{found} {what} came, {expected} announced")]
    Total {
        /// Blocks, elements, rows or neighbor tuples.
        what: &'static str,
        /// What came.
        found: u64,
        /// What was announced.
        expected: u64,
    },
    /// The index does not hold the rows that were sent: some are lost, repeated or altered.
    #[error("the rows in the index are not those that were sent")]
    Rows,
    /// There is not enough memory for the checks.
    #[error("out of memory while checking pages")]
    Memory,
    /// An earlier page was refused.
    #[error("an earlier page was refused")]
    Refused,
}
