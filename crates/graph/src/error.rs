use thiserror::Error;

/// Why parts are not a valid graph. Every variant is a defect of the engine that made them.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum GraphError {
    /// An array does not have the length that fits the number of elements.
    #[error("{what} has {found} entries, {expected} expected")]
    Length {
        /// The array.
        what: &'static str,
        /// Its length.
        found: usize,
        /// The length expected.
        expected: usize,
    },
    /// `m` is outside 2..=100.
    #[error("m is {0}, must be between 2 and 100")]
    M(u16),
    /// A level is above the cap for `m`.
    #[error("element {element} has level {level}, above the cap of {cap}")]
    Level {
        /// The element.
        element: u32,
        /// Its level.
        level: u8,
        /// See [`crate::max_level`].
        cap: u8,
    },
    /// The entry point is missing, out of range or not at the highest level.
    #[error("entry point {entry:?} is not an element of the highest level")]
    Entry {
        /// The entry point given.
        entry: Option<u32>,
    },
    /// An element has no heap TID or more than ten, or one that is not valid.
    #[error("element {element} has {count} heap TIDs or an invalid one")]
    HeapTids {
        /// The element.
        element: u32,
        /// The number of its heap TIDs.
        count: usize,
    },
    /// A neighbor list has a hole, a repeat, a self link, an unknown element or one that is not on the layer, or is not full.
    #[error("element {element}, layer {layer}: {problem}")]
    Neighbors {
        /// The element.
        element: u32,
        /// The layer.
        layer: u8,
        /// What is wrong.
        problem: &'static str,
    },
}
