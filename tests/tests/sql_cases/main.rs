//! Every SQL case of `tests/sql`, run twice: with external builds and without.

mod dump;
mod old_snapshot;

use std::sync::LazyLock;

use harness::{Builder, Cluster, compare_sql_case, sql_case_names};

static CLUSTER: LazyLock<Cluster> = LazyLock::new(|| Cluster::start().unwrap());
static BUILDER: LazyLock<Builder> = LazyLock::new(|| Builder::start().unwrap());

/// A test per file, of the same name.
macro_rules! cases {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                if let Err(error) = compare_sql_case(&CLUSTER, &BUILDER, stringify!($name)) {
                    panic!("{error:#}");
                }
            }
        )*

        #[test]
        fn no_file_is_forgotten() {
            let mut run = vec![$(stringify!($name)),*];
            run.sort_unstable();
            assert_eq!(run, sql_case_names().unwrap());
        }
    };
}

cases! {
    vector_l2 vector_ip vector_cosine vector_l1
    halfvec_l2 halfvec_ip halfvec_cosine halfvec_l1
    bit_hamming bit_jaccard
    sparsevec_l2 sparsevec_ip sparsevec_cosine sparsevec_l1
    limits_reached limits_exceeded types_refused options_refused
    nulls zero_vectors all_equal duplicates descriptors norms_inner_product glove_defaults toasted empty
    partial expression_halfvec expression_binary_quantize partitioned partitioned_one_by_one
    concurrently reindex rewrites alter_type like_including_indexes vacuum
    unlogged temporary materialized_view transactions owner tablespace
}
