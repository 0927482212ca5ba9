use harness::{Direction, Random};

/// What breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    KillBuilder,
    /// PostgreSQL ends all its processes then, and recovers.
    KillBackend,
    /// All of the server at once.
    KillServer,
    /// The others notice and end themselves.
    KillPostmaster,
    Terminate,
    Cancel,
    Cut,
    /// For a moment: nothing may come of it.
    Stall,
    /// For as long as PostgreSQL waits; in long runs only.
    Silence,
    CorruptRows,
    CorruptPages,
}

impl Fault {
    /// Those that are over soon.
    pub const QUICK: [Self; 10] = [
        Self::KillBuilder,
        Self::KillBackend,
        Self::KillServer,
        Self::KillPostmaster,
        Self::Terminate,
        Self::Cancel,
        Self::Cut,
        Self::Stall,
        Self::CorruptRows,
        Self::CorruptPages,
    ];

    /// Whether PostgreSQL recovers from its log afterwards.
    pub fn is_crash(self) -> bool {
        matches!(self, Self::KillBackend | Self::KillServer | Self::KillPostmaster)
    }

    /// Which byte stream is altered.
    pub fn corrupts(self) -> Option<Direction> {
        match self {
            Self::CorruptRows => Some(Direction::ToBuilder),
            Self::CorruptPages => Some(Direction::ToClient),
            _ => None,
        }
    }
}

/// When it breaks, as shares of what an undisturbed build takes.
#[derive(Clone, Copy, Debug)]
pub enum Moment {
    /// At a byte of a direction, where the stream stays until it broke.
    Byte(Direction, f64),
    /// Bytes from the beginning of a direction.
    Early(Direction, u64),
    /// Bytes before its end.
    Late(Direction, u64),
    /// While everything runs.
    Time(f64),
}

impl Moment {
    /// Greetings, headers and checksums are at the beginning and end, so these are drawn often.
    pub fn draw(random: &mut Random, fault: Fault) -> Self {
        let any = if random.below(2) == 0 { Direction::ToBuilder } else { Direction::ToClient };
        let direction = fault.corrupts().unwrap_or(any);
        match random.below(6) {
            0 => Self::Early(direction, random.below(1000) as u64),
            1 => Self::Late(direction, random.below(300) as u64),
            2 | 3 if fault.corrupts().is_none() => Self::Time(f64::from(random.unit()) * 1.1),
            _ => Self::Byte(direction, random.unit().into()),
        }
    }
}
