//! The bits of `capabilities` in [`Hello`](crate::Hello) and [`Accept`](crate::Accept).

/// The client follows a [`Redirect`](crate::Redirect).
pub const REDIRECT: u64 = 1;
/// The builder can check an index: [`Check`](crate::Check) at the end of Hello. Used only if Accept repeats it.
pub const CHECK: u64 = 2;
/// The builder can advise which index to build: [`Ask`](crate::Ask) at the end of Hello. Used only if Accept repeats it.
pub const ADVISE: u64 = 4;
/// The database's pgvector can index values of the column's own type only: advice is about such indexes.
pub const OWN_TYPE: u64 = 8;
