use thiserror::Error;

use crate::Tid;

/// An index parameter outside pgvector's limits.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{what} is {found}, must be between {min} and {max}")]
pub struct MetaError {
    /// The parameter.
    pub what: &'static str,
    /// Its value.
    pub found: u64,
    /// The least it may be.
    pub min: u64,
    /// The most it may be.
    pub max: u64,
}

/// Why a graph cannot be laid out on pages.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum LayoutError {
    /// The index parameters are out of bounds.
    #[error(transparent)]
    Meta(#[from] MetaError),
    /// The graph was built with another `m`.
    #[error("the graph has m = {graph}, the index m = {index}")]
    M {
        /// The `m` of the graph.
        graph: u16,
        /// The `m` of the index.
        index: u16,
    },
    /// The order leaves out or repeats an element.
    #[error("the order of {found} elements is not a permutation of the graph's {expected}")]
    Order {
        /// Entries of the order.
        found: usize,
        /// Elements of the graph.
        expected: usize,
    },
    /// A value whose length is not that of its type.
    #[error("element {element} has a value of {found} bytes, {expected} expected")]
    Value {
        /// The element.
        element: u32,
        /// The bytes of its value.
        found: usize,
        /// The bytes that its type requires.
        expected: usize,
    },
    /// A tuple larger than a page.
    #[error("a tuple of element {element} has {len} bytes, more than a page holds")]
    TooLarge {
        /// The element.
        element: u32,
        /// The bytes of the tuple.
        len: usize,
    },
    /// More pages than a relation can have.
    #[error("the index has more blocks than a relation holds")]
    TooManyBlocks,
}

/// Why a page is invalid, as far as it shows without other pages.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum PageError {
    /// The page is all zero: it was never written.
    #[error("block {block}: all zero")]
    New {
        /// The block.
        block: u32,
    },
    /// A constant field of the header, the special area or the meta page has another value.
    #[error("block {block}: {field} is {found:#x}, expected {expected:#x}")]
    Field {
        /// The block.
        block: u32,
        /// The field.
        field: &'static str,
        /// Its value.
        found: u32,
        /// The value expected.
        expected: u32,
    },
    /// The areas of the page overlap or exceed it.
    #[error("block {block}: lower {lower}, upper {upper} and special {special} do not fit together")]
    Bounds {
        /// The block.
        block: u32,
        /// End of the line pointers.
        lower: u16,
        /// Start of the tuples.
        upper: u16,
        /// Start of the special area.
        special: u16,
    },
    /// A line pointer that is not in use, not aligned or points outside the tuple area.
    #[error("{tid}: line pointer with flags {flags}, start {start}, length {len}")]
    LinePointer {
        /// The tuple.
        tid: Tid,
        /// 1 is normal.
        flags: u8,
        /// Where the tuple starts.
        start: u16,
        /// Its length.
        len: u16,
    },
    /// A tuple overlaps an earlier one.
    #[error("{tid}: overlaps another tuple")]
    Overlap {
        /// The tuple.
        tid: Tid,
    },
    /// Neither an element nor a neighbor tuple.
    #[error("{tid}: unknown tuple type {found}")]
    TupleType {
        /// The tuple.
        tid: Tid,
        /// Its type byte.
        found: u8,
    },
    /// A tuple is too short for its content.
    #[error("{tid}: tuple of {found} bytes, {expected} needed")]
    TupleLen {
        /// The tuple.
        tid: Tid,
        /// Its length.
        found: usize,
        /// The length needed.
        expected: usize,
    },
    /// A value does not have the layout of its type.
    #[error("{tid}: value with {field} {found}, expected {expected}")]
    Datum {
        /// The element tuple.
        tid: Tid,
        /// The field of the datum.
        field: &'static str,
        /// Its value.
        found: i64,
        /// The value expected.
        expected: i64,
    },
    /// A number in a value is outside its limits.
    #[error("{tid}: value with {field} {found}, must be at {bound} {limit}")]
    DatumLimit {
        /// The element tuple.
        tid: Tid,
        /// The field of the datum.
        field: &'static str,
        /// Its value.
        found: i64,
        /// `least` or `most`.
        bound: &'static str,
        /// The least or most it may be.
        limit: i64,
    },
}
