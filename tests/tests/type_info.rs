//! The extension recognises the layouts of pgvector's `HnswTypeInfo`, also those of releases that are not installed.

#[path = "../../crates/extension/src/type_info/layout.rs"]
mod layout;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{env, fs};

use harness::skipped_for_lack;
use layout::{Layout, Word};

fn function(name: &str) -> Word {
    Word::Function(name.into())
}

/// The layout of a structure with these words after the first one; further words must not be read.
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
        // Another function, or a number, between the known fields.
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

/// pgvector's sources: those that `cargo xtask test` has fetched, and the one that `PGVECTOR_SOURCE` names.
fn sources() -> Vec<PathBuf> {
    let own = env::current_exe().unwrap();
    // Above target/debug/deps/TEST.
    let fetched = own.ancestors().nth(3).unwrap().join("xtask");
    let entries = |dir: &Path| -> Vec<PathBuf> {
        fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
    };
    let folders = entries(&fetched).into_iter().flat_map(|folder| entries(&folder.join("files")));
    let named = env::var_os("PGVECTOR_SOURCE").map(PathBuf::from);
    folders.chain(named).filter(|folder| folder.join("src/hnsw.h").is_file()).collect()
}

/// The fields of the structure after the first, in the header's order.
fn fields(header: &str) -> Vec<String> {
    let (_, rest) = header.split_once("typedef struct HnswTypeInfo\n{").unwrap();
    let (fields, _) = rest.split_once('}').unwrap();
    let names = fields.split(';').filter(|field| !field.trim().is_empty()).map(|field| {
        let name = field.split_once("(*").map_or(field.trim(), |(_, rest)| rest);
        let name = name.split(')').next().unwrap();
        name.split_whitespace().last().unwrap().trim_start_matches('*').to_owned()
    });
    let names: Vec<String> = names.collect();
    assert_eq!(names[0], "maxDimensions");
    names[1..].to_vec()
}

/// The structures of a source file: values by field.
fn structures(text: &str) -> Vec<BTreeMap<&str, &str>> {
    let parts = text.split("static const HnswTypeInfo typeInfo = {").skip(1);
    parts
        .map(|part| {
            let (body, _) = part.split_once('}').unwrap();
            let lines = body.lines().filter_map(|line| line.trim().strip_prefix('.')?.split_once('='));
            lines.map(|(name, value)| (name.trim(), value.trim().trim_end_matches(','))).collect()
        })
        .collect()
}

#[test]
fn structures_of_fetched_releases_are_known() {
    let sources = sources();
    if sources.is_empty() {
        skipped_for_lack(
            "structures of pgvector's releases, of which no source is here: `cargo xtask test type_info` fetches some",
        );
    }
    for source in sources {
        let read = |path: &Path| fs::read_to_string(path).unwrap();
        let c = fs::read_dir(source.join("src")).unwrap().flatten().map(|entry| entry.path());
        let all: String =
            c.filter(|path| path.extension().is_some_and(|end| end == "c")).map(|path| read(&path)).collect();
        let exported = |name: &str| all.contains(&format!("PG_FUNCTION_INFO_V1({name});"));
        let fields = fields(&read(&source.join("src/hnsw.h")));
        let structures = structures(&all);
        assert!(structures.len() >= 4, "{}: {structures:?}", source.display());
        for values in structures {
            let words: Vec<Word> = fields
                .iter()
                .map(|field| match values[field.as_str()] {
                    "NULL" => Word::Null,
                    name if exported(name) => function(name),
                    _ => Word::Unnamed,
                })
                .collect();
            let place = |name: &str| 1 + fields.iter().position(|field| field == name).unwrap();
            let expected = Layout { normalize: place("normalize"), check: place("checkValue") };
            assert_eq!(form(&words), Some(expected), "{}: {values:?}", source.display());
        }
        println!("{}: {} functions", source.display(), fields.len());
    }
}
