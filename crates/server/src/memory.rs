//! How much memory builds could still take.

use std::fs;
use std::path::{Component, Path};

/// Where the system shows control groups (version 2).
const GROUPS: &str = "/sys/fs/cgroup";

/// Bytes that are free or could be freed, of the system or, if that is less, of the control groups around this process.
/// `None` where nobody says.
pub(crate) fn free() -> Option<u64> {
    let system = of_system(&fs::read_to_string("/proc/meminfo").ok()?)?;
    let group = fs::read_to_string("/proc/self/cgroup").ok();
    let groups = group.and_then(|text| of_groups(Path::new(GROUPS), own_group(&text)?));
    Some(groups.map_or(system, |groups| groups.min(system)))
}

fn of_system(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The path of this process' group, from the root of all groups.
fn own_group(text: &str) -> Option<&Path> {
    text.lines().find_map(|line| line.strip_prefix("0::/")).map(Path::new)
}

/// The least that a group and those around it have left; `None` if none has a limit.
fn of_groups(root: &Path, own: &Path) -> Option<u64> {
    // Seen from a container, a group outside of it begins with "..".
    let own = if own.components().all(|part| matches!(part, Component::Normal(_))) { own } else { Path::new("") };
    own.ancestors().filter_map(|group| of_group(&root.join(group))).min()
}

fn of_group(group: &Path) -> Option<u64> {
    let read = |name| fs::read_to_string(group.join(name)).ok();
    let number = |name| read(name)?.trim().parse::<u64>().ok();
    // "max" is no number, and no limit.
    let (limit, used) = (number("memory.max")?, number("memory.current")?);
    let stat = read("memory.stat").unwrap_or_default();
    let cached = stat.lines().find_map(|line| line.strip_prefix("inactive_file ")?.parse().ok()).unwrap_or(0);
    Some(limit.saturating_sub(used.saturating_sub(cached)))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::{free, of_groups, of_system, own_group};

    #[test]
    fn the_system_says_kilobytes() {
        assert_eq!(of_system("MemTotal:  9 kB\nMemAvailable:    1024 kB\nBuffers: 1 kB\n"), Some(1 << 20));
        assert_eq!(of_system("MemTotal:  9 kB\n"), None);
        assert!(free().is_none_or(|bytes| bytes > 0));
    }

    #[test]
    fn the_tightest_group_counts() {
        let root = tempfile::tempdir().unwrap();
        let inner = root.path().join("outer/inner");
        fs::create_dir_all(&inner).unwrap();
        let set = |group: &Path, max: &str, current: &str| {
            fs::write(group.join("memory.max"), max).unwrap();
            fs::write(group.join("memory.current"), current).unwrap();
        };
        assert_eq!(of_groups(root.path(), Path::new("outer/inner")), None);
        set(&inner, "max\n", "700\n");
        set(&root.path().join("outer"), "1000\n", "900\n");
        fs::write(root.path().join("outer/memory.stat"), "anon 5\ninactive_file 300\n").unwrap();
        assert_eq!(of_groups(root.path(), Path::new("outer/inner")), Some(400));
        assert_eq!(of_groups(root.path(), Path::new("../elsewhere")), None);
        assert_eq!(own_group("1:cpu:/x\n0::/outer/inner\n"), Some(Path::new("outer/inner")));
    }
}
