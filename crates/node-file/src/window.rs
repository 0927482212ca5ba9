//! How a client reads the nodes: through a window of 10 MiB that it fills again when less than 8 KiB of it are left.
//!
//! It takes for granted that a node fits into what is left, and it looks for an error message of the server's wherever a read begins.

/// The bytes that a client holds.
pub(crate) const WINDOW: u64 = 10 << 20;
/// With fewer bytes left than this the window is filled again.
const REFILL_BELOW: u64 = 8192;

/// A client's place in the nodes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    /// Bytes of nodes in all.
    total: u64,
    /// Bytes that the client has taken from the connection.
    taken: u64,
    /// Bytes of the window that were used.
    used: u64,
}

impl Window {
    /// Before the first of `total` bytes of nodes.
    pub(crate) fn new(total: u64) -> Self {
        Self { total, taken: total.min(WINDOW), used: 0 }
    }

    /// Fills the window if the client does, before it looks at a node. Returns where in the nodes that read begins.
    pub(crate) fn refill(&mut self) -> Option<u64> {
        if self.left() >= REFILL_BELOW || self.taken == self.total {
            return None;
        }
        let begin = self.taken;
        self.taken = self.total.min(self.taken + self.used);
        self.used = 0;
        Some(begin)
    }

    /// Whether the client finds a whole node of `size` bytes.
    pub(crate) fn has(&self, size: u64) -> bool {
        // The last bytes are all there, wherever the window ends.
        self.taken == self.total || size <= self.left()
    }

    /// The client goes on behind a node.
    pub(crate) fn advance(&mut self, size: u64) {
        self.used += size;
    }

    /// As if the nodes used had been `more` bytes longer, or less than 0 shorter. `None`: they would not fit.
    pub(crate) fn shifted(self, more: i64) -> Option<Self> {
        let used = self.used.checked_add_signed(more).filter(|&used| used <= WINDOW)?;
        Some(Self { used, ..self })
    }

    fn left(&self) -> u64 {
        WINDOW.saturating_sub(self.used)
    }
}
