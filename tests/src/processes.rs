use std::collections::{HashMap, HashSet};
use std::fs;
use std::num::NonZero;
use std::thread::available_parallelism;

/// The number of CPU cores available.
pub fn cores() -> usize {
    available_parallelism().map_or(1, NonZero::get)
}

/// CPU seconds used so far by a process, its descendants, and children that it has waited for.
pub fn cpu_seconds(pid: u32) -> f64 {
    let processes: HashMap<u32, Stat> = all().collect();
    let mut ticks = 0;
    for (&member, stat) in &processes {
        let mut ancestor = Some(member);
        while let Some(current) = ancestor
            && current != pid
        {
            ancestor = processes.get(&current).map(|stat| stat.parent).filter(|&parent| parent > 1);
        }
        if ancestor == Some(pid) {
            ticks += stat.ticks;
        }
    }
    ticks as f64 / rustix::param::clock_ticks_per_second() as f64
}

/// CPU seconds of a thread by its folder, such as `/proc/thread-self`; `None` if it has ended, or if the kernel does not count them.
pub fn thread_cpu_seconds(thread: &str) -> Option<f64> {
    let text = fs::read_to_string(format!("{thread}/schedstat")).ok()?;
    let nanoseconds: u64 = text.split(' ').next()?.parse().ok()?;
    Some(nanoseconds as f64 / 1e9)
}

/// Resident memory of a process in bytes.
pub fn resident_bytes(pid: u32) -> u64 {
    proc_bytes(&format!("/proc/{pid}/status"), "VmRSS")
}

/// The bytes of a field in kB of a file in `/proc`, such as `MemTotal` of `/proc/meminfo`; 0 if it is not there.
pub fn proc_bytes(path: &str, field: &str) -> u64 {
    let text = fs::read_to_string(path).unwrap_or_default();
    let value = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':')?.trim().strip_suffix(" kB"));
    value.and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) * 1024
}

/// The children of a process.
pub fn children(parent: u32) -> Vec<u32> {
    all().filter(|(_, stat)| stat.parent == parent).map(|(pid, _)| pid).collect()
}

/// The processes that were started with `name=value` in their environment.
pub fn with_variable(name: &str, value: &str) -> Vec<u32> {
    let wanted = format!("{name}={value}").into_bytes();
    let has = |pid: &u32| {
        let variables = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        variables.split(|&byte| byte == 0).any(|variable| variable == wanted)
    };
    all().map(|(pid, _)| pid).filter(has).collect()
}

/// Whether a process exists and any of its threads is no zombie. The first thread of a process that exits may be a zombie while others still
/// end, and with them the process's memory.
pub fn is_running(pid: u32) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let states = threads.filter_map(|thread| fs::read_to_string(thread.path().join("stat")).ok());
    states
        .filter_map(|text| text.rsplit_once(") ").map(|(_, rest)| !rest.starts_with(['Z', 'X'])))
        .any(|is_running| is_running)
}

/// The number of a process' open sockets; 0 if it is gone.
pub fn open_sockets(pid: u32) -> usize {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let targets = entries.filter_map(|entry| fs::read_link(entry.path()).ok());
    targets.filter(|target| target.to_string_lossy().starts_with("socket:")).count()
}

/// The number of a process' open descriptors; 0 if it is gone.
pub fn open_files(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten().count()
}

/// The number of a process' connections to a port of 127.0.0.1.
pub fn connections_to(pid: u32, port: u16) -> usize {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let targets = entries.filter_map(|entry| Some(fs::read_link(entry.path()).ok()?.to_string_lossy().into_owned()));
    let sockets: HashSet<String> =
        targets.filter_map(|target| Some(target.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned())).collect();
    let table = fs::read_to_string(format!("/proc/{pid}/net/tcp")).unwrap_or_default();
    let there = format!("0100007F:{port:04X}");
    // Columns: number, local address, remote address, state, queues, timers, retransmissions, account, timeout, inode.
    let rows = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let has =
        |row: &Vec<&str>| row.get(2) == Some(&there.as_str()) && row.get(9).is_some_and(|&it| sockets.contains(it));
    rows.filter(has).count()
}

fn all() -> impl Iterator<Item = (u32, Stat)> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid| Some((pid, Stat::read(pid)?)))
}

struct Stat {
    parent: u32,
    /// User and system time of the process and of the children that it has waited for, in clock ticks.
    ticks: u64,
}

impl Stat {
    fn read(pid: u32) -> Option<Self> {
        let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The command's name, in parentheses, may contain any characters. After it: state, parent, ...
        let fields: Vec<&str> = text.rsplit_once(") ")?.1.split(' ').collect();
        let ticks = fields.get(11..15)?.iter().filter_map(|field| field.parse::<u64>().ok()).sum();
        Some(Self { parent: fields.get(1)?.parse().ok()?, ticks })
    }
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;
    use std::time::Duration;

    use super::*;
    use crate::wait_for;

    #[test]
    fn counts_connections_to_a_port() {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let own = std::process::id();
        assert_eq!(connections_to(own, port), 0);
        let _streams = [0; 2].map(|_| std::net::TcpStream::connect(("127.0.0.1", port)).unwrap());
        let _accepted = listener.accept().unwrap();
        assert_eq!(connections_to(own, port), 2);
    }

    #[test]
    fn counts_our_own_time_and_memory() {
        let own = std::process::id();
        let before = cpu_seconds(own);
        wait_for("CPU time to be counted", Duration::from_secs(60), || {
            black_box((0..1_000_000u64).fold(0, |sum, number| black_box(sum ^ number)));
            Ok((cpu_seconds(own) >= before + 0.05).then_some(()))
        })
        .unwrap();
        assert!(resident_bytes(own) > 100_000);
    }
}
