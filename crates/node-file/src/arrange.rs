use crate::NodeFileError;
use crate::window::Window;

/// Swaps nodes until each of them is whole in the client's window.
///
/// Nodes of at most 8 KiB always are. Longer ones (vectors near 2000 dimensions) are cut where only a little more than 8 KiB of
/// the window is left. Then an earlier node of the window is swapped with a later one of another size, that is of another
/// level.
///
/// # Errors
/// [`NodeFileError::TooLong`] if there is no such node.
pub(crate) fn arrange(order: &mut [u32], size: impl Fn(u32) -> u64) -> Result<(), NodeFileError> {
    let mut window = Window::new(order.iter().map(|&element| size(element)).sum());
    let mut window_start = 0;
    for at in 0..order.len() {
        if window.refill().is_some() {
            window_start = at;
        }
        if !window.has(size(order[at])) {
            window = exchange(order, window_start..at, window, &size).ok_or(NodeFileError::TooLong(size(order[at])))?;
            if window.refill().is_some() {
                window_start = at;
            }
        }
        window.advance(size(order[at]));
    }
    Ok(())
}

/// Swaps one of the nodes `before` the current one with a later one, so that the current one fits into the window, or comes
/// first in the next. Returns the window before the current node.
fn exchange(
    order: &mut [u32],
    before: std::ops::Range<usize>,
    window: Window,
    size: &impl Fn(u32) -> u64,
) -> Option<Window> {
    let at = before.end;
    let last = before.clone().next_back()?;
    let of_each_size = |places: &mut dyn Iterator<Item = usize>| {
        let mut found: Vec<(u64, usize)> = Vec::new();
        for place in places {
            let size = size(order[place]);
            if found.iter().all(|&(known, _)| known != size) {
                found.push((size, place));
            }
        }
        found
    };
    let (here, there) = (of_each_size(&mut before.rev()), of_each_size(&mut (at + 1..order.len()).take(1 << 16)));
    for (&(old, here), &(new, there)) in here.iter().flat_map(|here| there.iter().map(move |there| (here, there))) {
        let more = new as i64 - old as i64;
        // A longer one only in the last place: elsewhere it could push another node beyond the window.
        if more == 0 || (more > 0 && here != last) {
            continue;
        }
        let Some(shifted) = window.shifted(more) else { continue };
        let mut seen = shifted;
        seen.refill();
        if seen.has(size(order[at])) {
            order.swap(here, there);
            return Some(shifted);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::arrange;
    use crate::NodeFileError;
    use crate::window::{WINDOW, Window};

    /// How often the client refills its window; `None` if it does not find every node whole.
    fn reads(order: &[u32], size: impl Fn(u32) -> u64) -> Option<usize> {
        let mut window = Window::new(order.iter().map(|&element| size(element)).sum());
        let mut refills = 0;
        for &element in order {
            refills += usize::from(window.refill().is_some());
            window.has(size(element)).then_some(())?;
            window.advance(size(element));
        }
        Some(refills)
    }

    /// Sizes of nodes with `m` neighbors; about one in `m` is one level higher.
    fn sizes(value_len: u64, m: u64, salt: u64) -> impl Fn(u32) -> u64 {
        move |element| {
            let mixed = (u64::from(element) + salt).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
            let level = if mixed.is_multiple_of(m) { 1 + u64::from(mixed.is_multiple_of(m * m)) } else { 0 };
            10 + 4 + 12 * m + level * (4 + 6 * m) + value_len
        }
    }

    #[test]
    fn short_nodes_stay_where_they_are() {
        let mut order: Vec<u32> = (0..50_000).rev().collect();
        let size = sizes(6144, 16, 0);
        arrange(&mut order, &size).unwrap();
        assert!(order.is_sorted_by(|a, b| a > b));
        assert!(reads(&order, &size).unwrap() > 25);
    }

    #[test]
    fn long_nodes_are_moved_where_they_would_be_cut() {
        let mut cut = 0;
        for m in [16, 32, 64, 100] {
            for salt in 0..40 {
                let size = sizes(8000, m, salt * 50_000);
                let mut order: Vec<u32> = (0..20_000).collect();
                cut += usize::from(reads(&order, &size).is_none());
                let result = arrange(&mut order, &size);
                assert_eq!(result, Ok(()), "m {m}, {salt}");
                assert!(reads(&order, &size).is_some(), "m {m}, {salt}");
                order.sort_unstable();
                assert!(order.iter().copied().eq(0..20_000));
            }
        }
        assert!(cut > 20, "only {cut} orders would have been cut");
    }

    #[test]
    fn nodes_that_cannot_be_moved_are_refused() {
        // All have one length, and a little more than 8192 bytes of each window are left over.
        let size = (WINDOW - 8200) / 1000;
        let mut order: Vec<u32> = (0..4000).collect();
        assert_eq!(arrange(&mut order, |_| size), Err(NodeFileError::TooLong(size)));
        let mut few: Vec<u32> = (0..900).collect();
        assert_eq!(arrange(&mut few, |_| size), Ok(()), "all in the first window");
    }
}
