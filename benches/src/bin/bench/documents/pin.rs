//! Pins processes to cores, by `taskset` of util-linux, which every Debian system has.

use std::path::Path;
use std::process::Command;

use anyhow::Result;
use harness::{cores, step};

/// The cores of this machine, divided among parties that would otherwise have their own machines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cores {
    /// Cores of the database and its clients.
    pub database: Vec<usize>,
    /// Cores of the builder; `None` if the machine has only one core.
    pub builder: Option<Vec<usize>>,
}

impl Cores {
    /// Gives the upper half of the cores to the builder.
    pub fn of_machine() -> Self {
        Self::of(cores())
    }

    fn of(cores: usize) -> Self {
        if cores < 2 {
            return Self { database: vec![0], builder: None };
        }
        let middle = cores.div_ceil(2);
        Self { database: (0..middle).collect(), builder: Some((middle..cores).collect()) }
    }
}

/// A command that runs on these cores only; `None` for all.
pub fn command(cores: Option<&[usize]>, program: &Path) -> Command {
    match cores {
        None => Command::new(program),
        Some(cores) => {
            let mut command = Command::new("taskset");
            command.args(["-c", &list(cores)]).arg(program);
            command
        }
    }
}

/// Restricts a process to these cores, with all its present and future threads.
pub fn process(pid: u32, cores: &[usize]) -> Result<()> {
    step::output(Command::new("taskset").args(["-a", "-c", "-p", &list(cores), &pid.to_string()])).map(drop)
}

fn list(cores: &[usize]) -> String {
    cores.iter().map(usize::to_string).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_builder_has_the_upper_half() {
        assert_eq!(Cores::of(1), Cores { database: vec![0], builder: None });
        assert_eq!(Cores::of(2), Cores { database: vec![0], builder: Some(vec![1]) });
        assert_eq!(Cores::of(5), Cores { database: vec![0, 1, 2], builder: Some(vec![3, 4]) });
        assert_eq!(list(&[3, 4]), "3,4");
    }
}
