//! The extension recognises the layouts of pgvector's `HnswTypeInfo`, those of releases that are not installed as well.

#[path = "../../crates/extension/src/type_info/layout.rs"]
mod layout;

use layout::{Layout, Word};

fn function(name: &str) -> Word {
    Word::Function(name.into())
}

/// The layout of a structure with these words after the first; no further word may be read.
fn form(words: &[Word]) -> Option<Layout> {
    Layout::of(|number| words[number - 1].clone())
}

#[test]
fn the_first_form_is_known_for_each_type() {
    for normalize in [function("l2_normalize"), function("halfvec_l2_normalize"), Word::Null] {
        assert_eq!(form(&[normalize, Word::Null]), Some(Layout::FIRST));
    }
    assert_eq!(form(&[function("sparsevec_l2_normalize"), Word::Unnamed]), Some(Layout::FIRST));
}

#[test]
fn a_function_that_counts_dimensions_may_come_before() {
    let types = [
        ("vector_dims", function("l2_normalize"), Word::Null),
        ("halfvec_vector_dims", function("halfvec_l2_normalize"), Word::Null),
        ("bitlength", Word::Null, Word::Null),
        ("sparsevec_vector_dims", function("sparsevec_l2_normalize"), Word::Unnamed),
    ];
    for (dims, normalize, check) in types {
        assert_eq!(form(&[function(dims), normalize, check]), Some(Layout::WITH_DIMS), "{dims}");
    }
}

#[test]
fn other_forms_are_refused() {
    let normalize = || function("sparsevec_l2_normalize");
    let dims = || function("sparsevec_vector_dims");
    let others = [
        // The known fields in another order.
        vec![normalize(), dims(), Word::Unnamed],
        vec![Word::Null, function("bitlength"), Word::Null],
        vec![Word::Unnamed, normalize(), dims()],
        vec![dims(), Word::Unnamed, normalize()],
        // Another function, or a number, between them.
        vec![dims(), function("sparsevec_l2_norm"), normalize(), Word::Unnamed],
        vec![dims(), normalize(), function("sparsevec_l2_norm"), Word::Unnamed],
        vec![Word::Other, normalize(), Word::Unnamed],
        vec![normalize(), Word::Other, Word::Unnamed],
        vec![dims(), Word::Other, normalize(), Word::Unnamed],
        vec![dims(), normalize(), Word::Other, Word::Unnamed],
    ];
    for words in others {
        assert_eq!(form(&words), None, "{words:?}");
    }
}
