use harness::{Direction, Random};

/// The faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    KillBuilder,
    /// PostgreSQL then ends all its processes and recovers.
    KillBackend,
    /// Kills all of the server's processes at once.
    KillServer,
    /// The other processes notice that the postmaster is gone, and end.
    KillPostmaster,
    Terminate,
    Cancel,
    Cut,
    /// The network passes nothing for a moment, which must have no effect.
    Stall,
    /// The network passes nothing until PostgreSQL gives up; in long runs only.
    Silence,
    CorruptRows,
    CorruptPages,
}

impl Fault {
    /// Faults that are over soon.
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

    /// Whether PostgreSQL replays its WAL afterwards.
    pub fn is_crash(self) -> bool {
        matches!(self, Self::KillBackend | Self::KillServer | Self::KillPostmaster)
    }

    /// The direction in which a byte is altered.
    pub fn corrupts(self) -> Option<Direction> {
        match self {
            Self::CorruptRows => Some(Direction::ToBuilder),
            Self::CorruptPages => Some(Direction::ToClient),
            _ => None,
        }
    }
}

/// When the fault occurs, relative to an undisturbed build.
#[derive(Clone, Copy, Debug)]
pub enum Moment {
    /// At this fraction of a direction's bytes; the stream is stopped there until the fault has occurred.
    Byte(Direction, f64),
    /// This many bytes after the beginning of a direction.
    Early(Direction, u64),
    /// This many bytes before the end of a direction.
    Late(Direction, u64),
    /// After this fraction of the time; no stream is stopped.
    Time(f64),
}

impl Moment {
    /// Greetings, headers and checksums are at the beginning and the end, so moments there are drawn often.
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
