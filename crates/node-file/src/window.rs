//! How does a client read the nodes? Through a window of 10 MiB, which it refills when less than 8 KiB of it is left.
//!
//! It assumes that a node fits into what is left, and checks for an error message wherever a read begins.

/// The bytes of a client's window.
pub(crate) const WINDOW: u64 = 10 << 20;
/// The client refills its window when fewer bytes than this are left.
const REFILL_BELOW: u64 = 8192;

/// A client's position in the nodes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    /// Bytes of nodes in all.
    total: u64,
    /// Bytes that the client has read from the connection.
    taken: u64,
    /// Bytes of the window that belong to nodes before the position.
    used: u64,
}

impl Window {
    /// The position before the first node, of `total` bytes of nodes.
    pub(crate) fn new(total: u64) -> Self {
        Self { total, taken: total.min(WINDOW), used: 0 }
    }

    /// Refills the window if the client does so before the next node. Returns the offset in the nodes at which that read begins.
    pub(crate) fn refill(&mut self) -> Option<u64> {
        if self.left() >= REFILL_BELOW || self.taken == self.total {
            return None;
        }
        let begin = self.taken;
        self.taken = self.total.min(self.taken + self.used);
        self.used = 0;
        Some(begin)
    }

    /// Whether a whole node of `size` bytes is in the window.
    pub(crate) fn has(&self, size: u64) -> bool {
        // The last read has all remaining nodes.
        self.taken == self.total || size <= self.left()
    }

    /// Moves behind a node of `size` bytes.
    pub(crate) fn advance(&mut self, size: u64) {
        self.used += size;
    }

    /// The position if the nodes before it were `more` bytes longer (shorter if negative); `None` if they would exceed the window.
    pub(crate) fn shifted(self, more: i64) -> Option<Self> {
        let used = self.used.checked_add_signed(more).filter(|&used| used <= WINDOW)?;
        Some(Self { used, ..self })
    }

    fn left(&self) -> u64 {
        WINDOW.saturating_sub(self.used)
    }
}
