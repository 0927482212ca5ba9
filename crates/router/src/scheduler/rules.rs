use std::time::Duration;

/// The operator's settings.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    /// Builders that are kept, idle or not.
    pub(crate) min_builders: usize,
    /// The most builders at a time, including those that start or stop.
    pub(crate) max_builders: usize,
    /// Builders that are kept idle besides the busy ones.
    pub(crate) spare_builders: usize,
    /// How long builders beyond these numbers may be idle.
    pub(crate) idle_ttl: Duration,
    /// How long a request waits for a builder that starts.
    pub(crate) start_timeout: Duration,
    /// The least and most memory of a builder, in bytes.
    pub(crate) memory: (u64, u64),
    /// The pause after a failed start; it doubles each time.
    pub(crate) back_off: Duration,
    /// The longest pause.
    pub(crate) back_off_most: Duration,
    /// After this many consecutive failed starts, requests are refused until the pause is over.
    pub(crate) breaker: u32,
}

impl Rules {
    /// The memory that a builder gets for a build that needs `memory`.
    pub(crate) fn clamp(&self, memory: u64) -> u64 {
        memory.max(self.memory.0).min(self.memory.1)
    }
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            min_builders: 0,
            max_builders: 4,
            spare_builders: 0,
            idle_ttl: Duration::from_secs(300),
            start_timeout: Duration::from_secs(300),
            memory: (0, u64::MAX),
            back_off: Duration::from_secs(1),
            back_off_most: Duration::from_secs(60),
            breaker: 3,
        }
    }
}
