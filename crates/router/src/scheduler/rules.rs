use std::time::Duration;

/// The operator's settings, and the memory of builders.
#[derive(Clone, Debug)]
pub struct Rules {
    /// The least number of builders to keep, idle or not.
    pub min_builders: usize,
    /// The most concurrent builders, including those that are starting or stopping.
    pub max_builders: usize,
    /// The number of idle builders to keep besides busy ones.
    pub spare_builders: usize,
    /// How long further builders may stay idle before they are stopped.
    pub idle_ttl: Duration,
    /// How long a request waits for a builder to start.
    pub start_timeout: Duration,
    /// The least and most memory of a builder, in bytes; both 0 if builders have no sizes. The router sets them from the source.
    pub memory: (u64, u64),
    /// The pause after the first failed start; it doubles with each further one.
    pub back_off: Duration,
    /// The longest pause after failed starts.
    pub back_off_most: Duration,
    /// After this many consecutive failed starts, requests are refused until the pause is over.
    pub breaker: u32,
}

impl Rules {
    /// The memory of a builder for a build that needs `memory`, in bytes.
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
