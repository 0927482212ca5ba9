//! Which choices are useful, and which is best.

use crate::{Choice, Question};

/// A larger `ef_construction` slows builds and inserts: it must reduce the bytes read to at most this share.
const WIDER_IS_WORTH: f64 = 0.9;

/// The choices that reach the target, ascending by bytes read per query, without choices that another one of the same type beats in both
/// bytes read and index size. If none reaches the target, the three of the highest recall.
pub(crate) fn best_first(question: &Question, mut choices: Vec<Choice>) -> Vec<Choice> {
    // A rounding error must not leave a choice out.
    let reaches = |choice: &Choice| choice.recall >= question.target - 1e-6;
    if !choices.iter().any(reaches) {
        choices.sort_by(|a, b| b.recall.total_cmp(&a.recall).then(a.read_bytes.total_cmp(&b.read_bytes)));
        choices.truncate(3);
        return choices;
    }
    choices.retain(reaches);
    let all = choices.clone();
    choices.retain(|choice| !all.iter().any(|other| beats(other, choice)));
    choices.sort_by(|a, b| a.read_bytes.total_cmp(&b.read_bytes));
    choices
}

fn beats(one: &Choice, other: &Choice) -> bool {
    if one == other || one.value_type != other.value_type {
        return false;
    }
    let read = if one.ef_construction > other.ef_construction {
        one.read_bytes <= WIDER_IS_WORTH * other.read_bytes
    } else if one.ef_construction < other.ef_construction {
        WIDER_IS_WORTH * one.read_bytes < other.read_bytes
    } else {
        one.read_bytes <= other.read_bytes
    };
    read && one.index_bytes <= other.index_bytes
}

#[cfg(test)]
mod tests {
    use pgvector::Metric;
    use pgvector::ValueType;

    use super::best_first;
    use crate::{Choice, Question};

    const QUESTION: Question = Question {
        value_type: ValueType::Vector,
        metric: Metric::L2,
        dims: 8,
        rows: 1000,
        target: 0.9,
        k: 10,
        own_type: false,
        seed: 0,
    };

    fn choice(value_type: ValueType, m: u16, ef_construction: u16, recall: f64, index: u64, read: f64) -> Choice {
        Choice {
            value_type,
            m,
            ef_construction,
            ef_search: 40,
            reranked: 0,
            recall,
            visited: 100.0,
            index_bytes: index,
            cached_bytes: index,
            read_bytes: read,
            build_seconds: 1.0,
            builder_memory_bytes: 1,
        }
    }

    #[test]
    fn choices_that_another_of_their_type_beats_are_left_out() {
        use ValueType::{HalfVec, Vector};
        let ranked = best_first(
            &QUESTION,
            vec![
                choice(Vector, 8, 64, 0.95, 90, 80.0),
                choice(Vector, 16, 64, 0.95, 100, 50.0),
                choice(Vector, 16, 128, 0.95, 100, 48.0),
                choice(Vector, 32, 64, 0.95, 130, 51.0),
                choice(HalfVec, 16, 64, 0.95, 60, 30.0),
                choice(HalfVec, 16, 128, 0.95, 60, 20.0),
                choice(HalfVec, 32, 64, 0.85, 80, 10.0),
            ],
        );
        let left: Vec<_> = ranked.iter().map(|c| (c.value_type, c.m, c.ef_construction)).collect();
        assert_eq!(left, [(HalfVec, 16, 128), (Vector, 16, 64), (Vector, 8, 64)]);
    }

    #[test]
    fn if_none_reaches_the_target_the_highest_recall_comes_first() {
        let choices = [0.5, 0.8, 0.7, 0.6].map(|recall| choice(ValueType::Bit, 16, 64, recall, 1, 1.0));
        let ranked = best_first(&QUESTION, choices.to_vec());
        assert_eq!(ranked.iter().map(|c| c.recall).collect::<Vec<_>>(), [0.8, 0.7, 0.6]);
    }
}
