use pgvector::{Metric, ValueType};

use crate::ProtocolError;

/// Types in the order of their numbers on the wire, from 1.
const VALUE_TYPES: [ValueType; 4] = [ValueType::Vector, ValueType::HalfVec, ValueType::Bit, ValueType::SparseVec];

/// Metrics in the order of their numbers on the wire, from 1. Values come normalised with [`Metric::Cosine`].
const METRICS: [Metric; 6] =
    [Metric::L2, Metric::InnerProduct, Metric::Cosine, Metric::L1, Metric::Hamming, Metric::Jaccard];

pub(crate) fn value_type(number: u8) -> Result<ValueType, ProtocolError> {
    item(&VALUE_TYPES, number).ok_or(ProtocolError::ValueType(number))
}

pub(crate) fn metric(number: u8) -> Result<Metric, ProtocolError> {
    item(&METRICS, number).ok_or(ProtocolError::Metric(number))
}

/// The number of a type or metric: its place in the list, from 1.
fn number<T: PartialEq>(list: &[T], wanted: T) -> u8 {
    list.iter().take_while(|item| **item != wanted).count() as u8 + 1
}

pub(crate) fn value_type_number(value_type: ValueType) -> u8 {
    number(&VALUE_TYPES, value_type)
}

pub(crate) fn metric_number(metric: Metric) -> u8 {
    number(&METRICS, metric)
}

fn item<T: Copy>(list: &[T], number: u8) -> Option<T> {
    list.get(usize::from(number).checked_sub(1)?).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_go_both_ways() {
        let types: Vec<_> = (0..=u8::MAX).filter_map(|n| value_type(n).ok()).map(value_type_number).collect();
        let metrics: Vec<_> = (0..=u8::MAX).filter_map(|n| metric(n).ok()).map(metric_number).collect();
        assert_eq!((types, metrics), (vec![1, 2, 3, 4], vec![1, 2, 3, 4, 5, 6]));
        assert_eq!((value_type_number(ValueType::SparseVec), metric_number(Metric::Jaccard)), (4, 6));
    }
}
