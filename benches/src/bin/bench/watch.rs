use std::time::Duration;

use harness::beside;

use super::memory;

/// Interval of memory samples.
const PAUSE: Duration = Duration::from_millis(200);

/// Runs `work` while another thread samples the memory of the backend `pid` and its workers. Returns the result, and their peak in bytes.
pub fn during<T>(pid: u32, work: impl FnOnce() -> T) -> (T, u64) {
    let (result, [most]) = most(PAUSE, || [memory::of_backend(pid)], work);
    (result, most)
}

/// Runs `work` while another thread samples some figures. Returns the result, and the maximum of each figure.
pub fn most<T, const N: usize>(
    pause: Duration,
    look: impl Fn() -> [u64; N] + Sync,
    work: impl FnOnce() -> T,
) -> (T, [u64; N]) {
    let mut most = look();
    let look = || most.iter_mut().zip(look()).for_each(|(most, now)| *most = now.max(*most));
    let result = beside(pause, look, work);
    (result, most)
}

/// Seconds of scan, build and pages, parsed from the detail of the last INFO line: `Scan 0.10 s, build 1.20 s, pages 0.05 s.`
pub fn phases(detail: &str) -> Option<[f64; 3]> {
    let mut words = detail.split(' ');
    let mut after = |name: &str| words.by_ref().skip_while(|&word| word != name).nth(1)?.parse().ok();
    Some([after("Scan")?, after("build")?, after("pages")?])
}

#[cfg(test)]
mod tests {
    use super::phases;

    #[test]
    fn phases_are_parsed_from_the_last_info_line() {
        assert_eq!(phases("Scan 0.10 s, build 1.20 s, pages 0.05 s."), Some([0.1, 1.2, 0.05]));
        assert_eq!(phases("Scan later."), None);
    }
}
