//! How much memory builds may use, and how much is available.

use std::fs;
use std::path::{Component, Path};

/// Mount point of cgroup v2.
const GROUPS: &str = "/sys/fs/cgroup";

/// The default limit leaves one of this many parts of memory to the rest of the system, plus `MARGIN` for connections and page cache.
const MARGIN_DIVISOR: u64 = 8;
const MARGIN: u64 = 128 << 20;

/// The default limit in bytes: the memory of the system or, if less, the limit of the control groups around this process, minus a margin.
pub(crate) fn default_limit() -> u64 {
    let system = fs::read_to_string("/proc/meminfo").ok().and_then(|text| meminfo(&text, "MemTotal:"));
    let group = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let limits = [system, limit_of_groups(Path::new(GROUPS), &group)];
    // If the system reports nothing, there is no limit.
    limit_of(limits.into_iter().flatten().min().unwrap_or(u64::MAX))
}

/// The default limit for a machine or container with `total` bytes.
fn limit_of(total: u64) -> u64 {
    total - (total / MARGIN_DIVISOR).saturating_add(MARGIN).min(total / 2)
}

/// The least memory in bytes of a machine or container on which a builder with default settings may use `bytes` for builds.
#[must_use]
pub fn machine_for(bytes: u64) -> u64 {
    let shares = u128::from(MARGIN_DIVISOR);
    let by_share = (u128::from(bytes) + u128::from(MARGIN)) * shares / (shares - 1) + 1;
    let by_half = 2 * u128::from(bytes);
    u64::try_from(by_share.min(by_half)).unwrap_or(u64::MAX)
}

/// Bytes that are free or reclaimable, in the system or, if less, within the control groups around this process. `None` if unknown.
pub(crate) fn free() -> Option<u64> {
    let system = meminfo(&fs::read_to_string("/proc/meminfo").ok()?, "MemAvailable:")?;
    let group = fs::read_to_string("/proc/self/cgroup").ok();
    let groups = group.and_then(|text| free_in_groups(Path::new(GROUPS), own_group(&text)?));
    Some(groups.map_or(system, |groups| groups.min(system)))
}

fn meminfo(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The path of this process' cgroup v2 group, from the text of `/proc/self/cgroup`.
fn own_group(text: &str) -> Option<&Path> {
    text.lines().find_map(|line| line.strip_prefix("0::/")).map(Path::new)
}

/// The least memory left under the limits of a group and its ancestors; `None` if none has a limit.
fn free_in_groups(root: &Path, own: &Path) -> Option<u64> {
    within(own).ancestors().filter_map(|group| free_in_group(&root.join(group))).min()
}

/// The least limit of the groups in `text`, the content of `/proc/self/cgroup`, for cgroup v1 or v2; `None` if there is none.
fn limit_of_groups(root: &Path, text: &str) -> Option<u64> {
    let of = |root: &Path, own: &Path, file: &str| {
        within(own).ancestors().filter_map(|group| number(&root.join(group).join(file))).min()
    };
    // Beyond `memory.high` the kernel slows a group down until it takes less.
    let unified = |file| own_group(text).and_then(|own| of(root, own, file));
    let memory = |line: &'_ str| line.split_once(":memory:/").map(|(_, own)| own.to_owned());
    // Version 1 reports a huge number for "no limit"; the system's memory is less, so it does no harm.
    let old = text.lines().find_map(memory).and_then(|own| {
        let root = root.join("memory");
        of(&root, Path::new(&own), "memory.limit_in_bytes")
    });
    [unified("memory.max"), unified("memory.high"), old].into_iter().flatten().min()
}

/// In a container, the path of a group outside of it begins with "..": then only the root is visible.
fn within(own: &Path) -> &Path {
    if own.components().all(|part| matches!(part, Component::Normal(_))) { own } else { Path::new("") }
}

/// The number in a file; `None` for "max", no limit.
fn number(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

fn free_in_group(group: &Path) -> Option<u64> {
    let limits = ["memory.max", "memory.high"].map(|file| number(&group.join(file)));
    let (limit, used) = (limits.into_iter().flatten().min()?, number(&group.join("memory.current"))?);
    let stat = fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
    let cached = stat.lines().find_map(|line| line.strip_prefix("inactive_file ")?.parse().ok()).unwrap_or(0);
    Some(limit.saturating_sub(used.saturating_sub(cached)))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::{default_limit, free, free_in_groups, limit_of, limit_of_groups, machine_for, meminfo, own_group};

    #[test]
    fn meminfo_is_in_kilobytes() {
        let text = "MemTotal:  9 kB\nMemAvailable:    1024 kB\nBuffers: 1 kB\n";
        assert_eq!((meminfo(text, "MemAvailable:"), meminfo(text, "MemTotal:")), (Some(1 << 20), Some(9 << 10)));
        assert_eq!(meminfo("MemTotal:  9 kB\n", "MemAvailable:"), None);
        assert!(free().is_none_or(|bytes| bytes > 0));
        assert!(default_limit() > 1 << 20);
    }

    #[test]
    fn machine_for_is_the_inverse_of_the_default_limit() {
        for bytes in [0, 1, 12 << 20, 500 << 20, 7 << 30, 1 << 50] {
            let total = machine_for(bytes);
            assert!(limit_of(total) >= bytes, "{bytes}");
            assert!(total < 2 || limit_of(total - total / 1000 - 2) < bytes, "{bytes}");
        }
        assert_eq!(machine_for(u64::MAX), u64::MAX);
    }

    #[test]
    fn the_lowest_limit_of_either_cgroup_version_counts() {
        let root = tempfile::tempdir().unwrap();
        let set = |name: &str, text: &str| {
            let file = root.path().join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        };
        let limit = |text| limit_of_groups(root.path(), text);
        assert_eq!(limit("0::/a/b\n4:memory:/c\n"), None);
        set("a/b/memory.max", "max\n");
        set("a/memory.max", "5000\n");
        assert_eq!(limit("0::/a/b\n"), Some(5000));
        set("a/b/memory.high", "4000\n");
        assert_eq!(limit("0::/a/b\n"), Some(4000));
        set("memory/c/memory.limit_in_bytes", "3000\n");
        assert_eq!(limit("4:memory:/c\n0::/a/b\n"), Some(3000));
        assert_eq!(limit("4:memory:/\n0::/\n"), None);
    }

    #[test]
    fn the_group_with_least_memory_left_counts() {
        let root = tempfile::tempdir().unwrap();
        let inner = root.path().join("outer/inner");
        fs::create_dir_all(&inner).unwrap();
        let set = |group: &Path, max: &str, current: &str| {
            fs::write(group.join("memory.max"), max).unwrap();
            fs::write(group.join("memory.current"), current).unwrap();
        };
        assert_eq!(free_in_groups(root.path(), Path::new("outer/inner")), None);
        set(&inner, "max\n", "700\n");
        set(&root.path().join("outer"), "1000\n", "900\n");
        fs::write(root.path().join("outer/memory.stat"), "anon 5\ninactive_file 300\n").unwrap();
        assert_eq!(free_in_groups(root.path(), Path::new("outer/inner")), Some(400));
        fs::write(inner.join("memory.high"), "750\n").unwrap();
        assert_eq!(free_in_groups(root.path(), Path::new("outer/inner")), Some(50));
        assert_eq!(free_in_groups(root.path(), Path::new("../elsewhere")), None);
        assert_eq!(own_group("1:cpu:/x\n0::/outer/inner\n"), Some(Path::new("outer/inner")));
    }
}
