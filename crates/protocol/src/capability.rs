//! The bits of `capabilities` in [`Hello`](crate::Hello) and [`Accept`](crate::Accept).

/// The client follows a [`Redirect`](crate::Redirect).
pub const REDIRECT: u64 = 1;
