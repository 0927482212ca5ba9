//! Alternates contestants, so that other load on the machine affects all alike.

use anyhow::Result;

/// Runs each contestant once per round; the contestant that begins changes with each round. Results are indexed by contestant, then round.
pub fn alternate<C, T>(
    rounds: usize,
    contestants: &[C],
    mut run: impl FnMut(usize, &C) -> Result<T>,
) -> Result<Vec<Vec<T>>> {
    let mut results: Vec<Vec<T>> = contestants.iter().map(|_| Vec::new()).collect();
    for round in 0..rounds {
        for turn in 0..contestants.len() {
            let contestant = (turn + round) % contestants.len();
            results[contestant].push(run(round, &contestants[contestant])?);
        }
    }
    Ok(results)
}

/// The median, or the mean of the two middle numbers; `None` without numbers.
pub fn median(numbers: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut sorted: Vec<f64> = numbers.into_iter().collect();
    sorted.sort_unstable_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    let lower = sorted[(sorted.len() - 1) / 2];
    Some((lower + upper) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_contestant_runs_once_per_round_and_each_begins_a_round() {
        let mut order = Vec::new();
        let results = alternate(3, &["a", "b", "c"], |round, name| {
            order.push(*name);
            Ok((round, *name))
        });
        assert_eq!(results.unwrap()[1], [(0, "b"), (1, "b"), (2, "b")]);
        assert_eq!(order, ["a", "b", "c", "b", "c", "a", "c", "a", "b"]);
    }

    #[test]
    fn the_median_of_an_even_count_is_the_mean_of_the_middle_two() {
        assert_eq!(median([3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median([4.0, 1.0]), Some(2.5));
        assert_eq!(median([]), None);
    }
}
