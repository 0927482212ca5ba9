//! pgvector's HNSW index pages: written from a finished graph, read back, and verified.
//!
//! A [`Layout`] gives every tuple its place, a [`PageWriter`] fills any page of it, [`verify`] checks a whole file and an
//! [`IncomingVerifier`] checks pages one by one as they arrive from a builder that is not trusted. [`Linked`] is the graph in pages, for
//! searches.

mod compose;
mod datum;
mod digest;
mod draw;
mod error;
mod estimate;
mod format;
mod incoming;
mod layout;
mod linked;
mod meta;
mod neighbors;
mod page;
mod reader;
mod tid;
mod tuple;
mod verify;
mod writer;

pub use datum::{Datum, value_len};
pub use digest::RowDigest;
pub use draw::one_of_each_part;
pub use error::{LayoutError, MetaError, PageError};
pub use estimate::{Estimate, sizes};
pub use format::{NO_BLOCK, PageBytes, SEGMENT_BLOCKS};
pub use incoming::{IncomingError, IncomingSpec, IncomingVerifier, max_blocks};
pub use layout::Layout;
pub use linked::Linked;
pub use meta::{IndexMeta, MetaPage};
pub use neighbors::{BlockNeighbors, KeptNeighbors, NeighborSource};
pub use page::{Item, Items, Page, PageHeader, is_new};
pub use pgvector::{PAGE_SIZE, ValueType};
pub use reader::{FileSource, OpenError, PageSource};
pub use tid::Tid;
pub use tuple::{ElementTuple, NeighborTuple, Tuple};
pub use verify::{LayerReport, Lists, Problems, Reach, Report, Scanned, TooLarge, verify, verify_bytes, verify_within};
pub use writer::PageWriter;
