//! Memory use of other processes.

use std::fs;
use std::path::Path;

use harness::proc_bytes;

/// Resets the peak memory of a process.
pub fn forget_peak(pid: u32) {
    // Without permission, the peak may be that of an earlier, larger build.
    let _ = fs::write(format!("/proc/{pid}/clear_refs"), "5");
}

/// The peak resident bytes of a process.
pub fn peak(pid: u32) -> u64 {
    proc_bytes(&format!("/proc/{pid}/status"), "VmHWM")
}

/// Bytes available without swapping; 0 if unknown.
pub fn available() -> usize {
    proc_bytes("/proc/meminfo", "MemAvailable") as usize
}

/// Anonymous resident bytes of a process; those of a builder are everything but its spool.
pub fn anonymous(pid: u32) -> u64 {
    proc_bytes(&format!("/proc/{pid}/status"), "RssAnon")
}

/// Bytes of the files in `dir` that a process has open, including deleted ones.
pub fn in_files(pid: u32, dir: &Path) -> u64 {
    let open = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten().map(|entry| entry.path());
    let inside = open.filter(|file| fs::read_link(file).is_ok_and(|target| target.starts_with(dir)));
    inside.filter_map(|file| fs::metadata(file).ok()).map(|file| file.len()).sum()
}

/// Bytes of a backend and its parallel workers, without PostgreSQL's shared buffers. Other shared memory, such as
/// the graph of a parallel build, counts once.
pub fn of_backend(pid: u32) -> u64 {
    let worker = format!("parallel worker for PID {pid}");
    let is_worker = |other: &u32| {
        let title = fs::read(format!("/proc/{other}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&title).contains(&worker)
    };
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let of = |pid: u32| unshared(&fs::read_to_string(format!("/proc/{pid}/smaps")).unwrap_or_default());
    of(pid) + pids.filter(is_worker).map(of).sum::<u64>()
}

/// Sums the proportional set sizes (PSS) of all mappings except shared buffers, which are an anonymous shared mapping.
fn unshared(smaps: &str) -> u64 {
    let (mut sum, mut counts) = (0, false);
    for line in smaps.lines() {
        let is_head = line.split(' ').next().is_some_and(|word| word.contains('-') && !word.ends_with(':'));
        if is_head {
            counts = !line.contains("/dev/zero") && !line.contains("/SYSV");
        } else if let Some(size) = line.strip_prefix("Pss:").filter(|_| counts) {
            sum += 1024 * size.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or_default();
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_this_process_is_read() {
        let own = std::process::id();
        assert!(peak(own) > 1 << 20);
        assert!(of_backend(own) > 1 << 20);
        assert!(anonymous(own) > 1 << 16 && anonymous(own) <= peak(own));
        assert_eq!(peak(0), 0);
    }

    #[test]
    fn available_memory_is_known() {
        assert!(available() > 0);
    }

    #[test]
    fn open_files_of_a_directory_count() {
        let scratch = harness::Scratch::new("memory-test", 0o700).unwrap();
        let file = fs::File::create(scratch.path().join("spool")).unwrap();
        file.set_len(1000).unwrap();
        fs::remove_file(scratch.path().join("spool")).unwrap();
        assert_eq!(in_files(std::process::id(), scratch.path()), 1000);
    }

    #[test]
    fn shared_buffers_do_not_count() {
        let smaps = "55d0-55d1 r-xp 0 08:01 1 /usr/lib/postgres\nSize: 8 kB\nPss:      10 kB\nPss_Dirty:   5 kB\n\
                     7f00-7f01 rw-s 0 00:01 2 /dev/zero (deleted)\nPss:     900 kB\n\
                     7f02-7f03 rw-s 0 00:19 3 /dev/shm/PostgreSQL.17\nPss:      32 kB\n";
        assert_eq!(unshared(smaps), 42 * 1024);
    }
}
