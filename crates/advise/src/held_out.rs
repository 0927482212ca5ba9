//! Which rows of the sample become queries?

use std::collections::{HashMap, HashSet};

use pgvector::HEAP_TIDS_PER_ELEMENT;

use crate::Question;
use crate::values::Values;

/// At most one of this many rows is held out, unless there are more spare rows.
const SHARE: usize = 10;
/// With fewer than one in this many of the wanted queries, recall cannot be measured.
const FEW: usize = 10;

/// Takes up to `most` rows from the end of `order` as queries, each with all its duplicates: a query with a duplicate in the graph would be
/// easier than other queries. Values with more duplicates than an element holds are left out, unless too few queries remain. Then the last
/// rows of `order` are taken, whatever their duplicates. `spare` rows are in no graph, so that all of them may be held out.
pub(crate) fn held_out(question: &Question, rows: &Values, order: &mut Vec<u32>, most: usize, spare: usize) -> Values {
    let value = |row: u32| rows.get(row as usize);
    let mut queries = Values::new(question.value_type, question.dims);
    let mut duplicates: HashMap<&[u8], usize> = HashMap::with_capacity(order.len());
    order.iter().for_each(|&row| *duplicates.entry(value(row)).or_default() += 1);
    let (mut held, mut left) = (HashSet::new(), spare.max(order.len() / SHARE));
    for &row in order.iter().rev() {
        let (value, count) = (value(row), duplicates[value(row)]);
        if held.len() < most && count <= left.min(HEAP_TIDS_PER_ELEMENT) && held.insert(value) {
            left -= count;
            queries.extend(value, [value.len()]);
        }
    }
    let wanted = most.min(spare.max(order.len() / SHARE));
    if held.len() * FEW < wanted {
        queries = Values::new(question.value_type, question.dims);
        for row in order.split_off(order.len() - wanted) {
            queries.extend(value(row), [value(row).len()]);
        }
    } else {
        order.retain(|&row| !held.contains(value(row)));
    }
    queries
}

#[cfg(test)]
mod tests {
    use pgvector::{Metric, ValueType};

    use super::held_out;
    use crate::Question;
    use crate::values::Values;

    /// What is held out of rows with these values, and what is left.
    fn out_of(numbers: impl Iterator<Item = u8>, most: usize) -> (Vec<u8>, Vec<u8>) {
        with_spare(numbers, most, 0)
    }

    fn with_spare(numbers: impl Iterator<Item = u8>, most: usize, spare: usize) -> (Vec<u8>, Vec<u8>) {
        let numbers: Vec<u8> = numbers.collect();
        let (value_type, metric) = (ValueType::Bit, Metric::Hamming);
        let question = Question { value_type, metric, dims: 8, rows: 0, target: 0.9, k: 1, own_type: false, seed: 0 };
        let mut rows = Values::new(value_type, 8);
        rows.extend(&numbers, []);
        let mut order: Vec<u32> = (0..numbers.len() as u32).collect();
        let queries = held_out(&question, &rows, &mut order, most, spare);
        let held = (0..queries.len()).map(|query| queries.get(query)[0]).collect();
        (held, order.iter().map(|&row| numbers[row as usize]).collect())
    }

    #[test]
    fn duplicates_go_with_their_query() {
        let (held, left) = out_of((0..200).map(|row| row / 2), 5);
        assert_eq!(held, [99, 98, 97, 96, 95]);
        assert_eq!(left, (0..190).map(|row| row / 2).collect::<Vec<u8>>());
    }

    #[test]
    fn at_most_a_tenth_is_held_out() {
        let (held, left) = out_of((0..200).map(|row| row / 4), 100);
        assert_eq!((held.len(), left.len()), (5, 180));
        let (held, left) = with_spare((0..200).map(|row| row / 4), 100, 60);
        assert_eq!((held.len(), left.len()), (15, 140), "more if they are in no graph");
    }

    #[test]
    fn values_of_many_rows_are_queries_only_if_too_few_others_are_left() {
        let (held, left) = out_of((0..150).map(|row| if row % 2 > 0 { 255 } else { row }), 3);
        assert_eq!((held, left.len()), (vec![148, 146, 144], 147));
        let (held, left) = out_of((0..150).map(|_| 7), 3);
        assert_eq!((held, left.len()), (vec![7; 3], 147));
    }

    #[test]
    fn below_a_tenth_of_the_wanted_queries_any_rows_are_taken() {
        // Thirty values of about a hundred rows each, then some of one row.
        let rows = |singles: u16| {
            (0..3000).map(move |row: u16| if row < 3000 - singles { row / 100 } else { row % 100 + 100 } as u8)
        };
        let (held, left) = out_of(rows(5), 100);
        assert_eq!((held.len(), left.len()), (100, 2900));
        let (held, left) = out_of(rows(10), 100);
        assert_eq!((held.len(), left.len()), (10, 2990));
    }
}
