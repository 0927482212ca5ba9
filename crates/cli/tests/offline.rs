//! Commands that need neither a builder nor a database.

mod support;

use std::fs;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use support::command;
use tempfile::TempDir;

fn run(arguments: &str) -> Output {
    command().args(arguments.split_whitespace()).output().unwrap()
}

fn out(arguments: &str) -> String {
    let output = run(arguments);
    assert!(output.status.success(), "{arguments}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn estimates_depend_on_rows_type_and_m() {
    let json: Value = serde_json::from_str(&out("estimate --rows 1000000 --dims 1536 --threads 16 --json")).unwrap();
    // An element and its neighbor tuple fill a page.
    assert_eq!((json["blocks"].as_u64(), json["index_bytes"].as_u64()), (Some(1_000_001), Some(8_192_008_192)));
    let memory = json["builder_memory_bytes"].as_u64().unwrap();
    assert!((6_144_000_000..12_288_000_000).contains(&memory), "{memory}");
    // Ten million more elements add 8 to 16 bytes each.
    let backend = |rows: &str| -> u64 {
        let json = out(&format!("estimate --rows {rows} --dims 1536 --json"));
        serde_json::from_str::<Value>(&json).unwrap()["backend_memory_bytes"].as_u64().unwrap()
    };
    let more = backend("11M") - backend("1M");
    assert!((80_000_000..200_000_000).contains(&more), "{more}");
    let text = out("estimate --rows 1000000 --dims 1536");
    assert!(text.contains("memory of backend"), "{text}");
    assert!(text.contains("vector(1536)") && text.contains("7.6 GiB") && text.contains("1000001 blocks"), "{text}");
    let few: Value = serde_json::from_str(&out("estimate --rows 1000000 --dims 1536 --distinct 1 --json")).unwrap();
    assert_eq!(few["elements"].as_u64(), Some(100_000));
    for (wide, narrow) in
        [("vector -m 32", "vector"), ("vector", "halfvec"), ("halfvec", "bit"), ("vector", "sparsevec --nonzero 20")]
    {
        let bytes = |of: &str| -> u64 {
            let json = out(&format!("estimate --rows 20000 --dims 200 --json --type {of}"));
            serde_json::from_str::<Value>(&json).unwrap()["index_bytes"].as_u64().unwrap()
        };
        assert!(bytes(wide) > bytes(narrow), "{wide} {narrow}");
    }
    assert!(out("estimate --rows 0 --dims 3").contains("2 blocks"));
}

#[test]
fn estimates_take_units_and_use_the_singular() {
    for (short, long) in
        [("1M", "1000000"), ("2.5M", "2500000"), ("100k", "100000"), ("1M --distinct 1.5k", "1000000 --distinct 1500")]
    {
        let [short, long] = [short, long].map(|rows| out(&format!("estimate --dims 8 --json --rows {rows}")));
        assert_eq!(short, long);
    }
    assert!(out("estimate --rows 1M --dims 8 --threads 1").contains("  with 1 thread\n"));
    assert!(out("estimate --rows 1M --dims 8 --threads 2").contains("  with 2 threads\n"));
    assert!(out("estimate --rows 1 --dims 8").starts_with("1 row of vector(8)"));
    let cores = std::thread::available_parallelism().unwrap().get();
    let text = out("estimate --rows 1M --dims 8");
    assert!(
        text.contains(&format!("  with {cores} thread")) && text.contains(", one per core of this machine\n"),
        "{text}"
    );
    let [own, given] = ["", " --threads "].map(|flag| {
        let value = if flag.is_empty() { String::new() } else { cores.to_string() };
        out(&format!("estimate --rows 1M --dims 8 --json{flag}{value}"))
    });
    assert_eq!(own, given);
}

#[test]
fn invalid_estimates_have_exit_code_64() {
    let cases = [
        ("--rows 10 --dims 0", "0"),
        ("--rows 10 --dims 2001", "at most 2000 dimensions"),
        ("--rows -1 --dims 3", "-1"),
        ("--rows 10 --dims 3 -m 101", "101"),
        ("--rows 10 --dims 3 --distinct 11", "--distinct"),
        ("--rows 10 --dims 3 --type text", "text"),
        ("--rows 10000000000 --dims 2000", "more blocks than PostgreSQL allows"),
        ("--rows 18446744073709551615 --dims 2000", "more blocks than PostgreSQL allows"),
        ("--dims 3", "--rows"),
        ("--rows 1.5 --dims 3", "is not a whole number"),
        ("--rows 1G --dims 3", "the unit must be k, M or B"),
        ("--rows 10 --dims 3 --threads 0", "0"),
    ];
    for (arguments, text) in cases {
        let output = run(&format!("estimate {arguments}"));
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(64), "{arguments}: {said}");
        assert!(said.contains(text), "{arguments}: {said}");
    }
}

#[test]
fn cpu_prints_architecture_and_kernels() {
    let (text, kernels) = (out("cpu"), format!("kernels       {}\n", hnsw::Level::current()));
    assert!(text.contains(std::env::consts::ARCH) && text.contains(&kernels), "{text}");
}

#[test]
fn man_writes_a_page_for_each_command() {
    let dir = TempDir::new().unwrap();
    out(&format!("man {}", dir.path().join("man").display()));
    let page = |name: &str| fs::read_to_string(dir.path().join("man").join(name)).unwrap();
    let main = page("lantern-index.1");
    assert!(main.contains("Exit codes") && main.contains("arguments, settings or the files they name"), "{main}");
    assert!(main.contains("lantern\\-index\\-completions") && main.contains("lantern\\-index\\-man"), "{main}");
    let serve = page("lantern-index-serve.1");
    assert!(serve.contains("LANTERN_INDEX_STATUS_PORT") && serve.contains("configuration file"), "{serve}");
    let help = out("--help");
    let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let commands: Vec<_> =
        commands.filter_map(|line| line.split_whitespace().next()).filter(|&name| name != "help").collect();
    assert!(commands.len() > 12, "{help}");
    for command in commands {
        assert!(page(&format!("lantern-index-{command}.1")).contains("lantern\\-index"), "{command}");
    }
}

#[test]
fn help_names_every_command() {
    let help = out("--help");
    for command in [
        "serve",
        "router",
        "gen-cert",
        "token",
        "inspect",
        "estimate",
        "advise",
        "cpu",
        "status",
        "config",
        "man",
        "completions",
    ] {
        assert!(help.lines().any(|line| line.trim_start().starts_with(&format!("{command} "))), "{command}: {help}");
    }
}

#[test]
fn tokens_are_kept_as_hashes() {
    let text = out("token new db-1 --builds 2 --waiting 3 --memory 48GB --rows 2.5M");
    let indented: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("  ")).collect();
    let [secret, line, setting] = indented[..] else { panic!("{text}") };
    assert!(secret.len() == 64 && secret.chars().all(|c| c.is_ascii_hexdigit()), "{text}");
    assert_eq!(setting, "hnsw.external_index_token_file = '/etc/postgresql/builder.token'");
    // Compare with the hash of another program.
    let mut sum = Command::new("sha256sum").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    std::io::Write::write_all(&mut sum.stdin.take().unwrap(), secret.as_bytes()).unwrap();
    let sum = String::from_utf8(sum.wait_with_output().unwrap().stdout).unwrap();
    let hash = sum.split(' ').next().unwrap();
    assert_eq!(line, format!("db-1 sha256:{hash} builds=2 waiting=3 memory=48GB rows=2500000"));
    assert!(!out("token new db-1").contains(secret), "each is another one");
    for bad in ["", "a/b", "a=b", "x --builds 0", "x --rows 0", "x --memory 5", "x --waiting 0"] {
        let output = run(&format!("token new {bad}"));
        assert!(output.status.code() == Some(64) && output.stdout.is_empty(), "{bad}");
    }
    assert_eq!(run(&format!("token new {}", "x".repeat(64))).status.code(), Some(64));
}

#[test]
fn completions_of_every_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let text = out(&format!("completions {shell}"));
        assert!(text.contains("status-port") && text.contains("gen-cert"), "{shell}");
    }
    assert_eq!(run("completions tcsh").status.code(), Some(64));
}

/// A file of the sample of sentence embeddings.
fn embeddings(name: &str) -> String {
    format!("{}/../../tests/data/minilm-384/{name}.npy", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn advise_recommends_indexes_for_a_file() {
    let (base, queries) = (embeddings("base"), embeddings("query"));
    let json = out(&format!("advise {base} --queries {queries} --max-rows 3000 --rows 1M --target-recall 0.9 --json"));
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((json["rows"].as_u64(), json["tried"].as_u64()), (Some(1_000_000), Some(3000)));
    let choices = json["choices"].as_array().unwrap();
    assert!(!choices.is_empty());
    for choice in choices {
        let recall = choice["recall"].as_f64().unwrap();
        assert!((0.89..=1.0).contains(&recall), "{choice}");
        assert!(choice["index_bytes"].as_u64() > Some(100_000_000), "{choice}");
    }
    let text = out(&format!("advise {base} --max-rows 1.5k --target-recall 0.8 --metric l2 -k 5"));
    assert!(text.contains("7000 rows of vector(384)") && text.contains("recall@5 0.8"), "{text}");
    assert!(text.lines().count() > 2, "{text}");
}

#[test]
fn files_without_usable_vectors_have_exit_code_64() {
    let dir = TempDir::new().unwrap();
    let write = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        fs::write(&path, bytes).unwrap();
        path.display().to_string()
    };
    let vector = |dims: i32, values: &[f32]| {
        dims.to_le_bytes().into_iter().chain(values.iter().flat_map(|x| x.to_le_bytes())).collect::<Vec<u8>>()
    };
    let short = [vector(2, &[1.0, 2.0]), vector(2, &[3.0, 4.0])].concat();
    let uneven = [vector(2, &[1.0, 2.0]), vector(3, &[3.0, 4.0])].concat();
    let cases = [
        (write("empty.npy", b""), "no .npy, .fvecs or Parquet file"),
        (write("text.npy", b"some words that are no vectors"), "no .npy, .fvecs or Parquet file"),
        (write("short.fvecs", &short), "2 rows with values are too few for advice"),
        (write("uneven.fvecs", &uneven), "vector 1 has other dimensions than 2"),
        (write("cut.fvecs", &short[..20]), "20 bytes are no vectors of 2 dimensions"),
        (write("nan.fvecs", &vector(1, &[f32::NAN])), "infinite or no numbers"),
        ("no/such.npy".to_owned(), "No such file"),
        (format!("{} --queries {}", embeddings("base"), write("q.fvecs", &short)), "has 2 dimensions, not 384"),
        (format!("{} --target-recall 1", embeddings("base")), "between 0.5 and 0.999"),
        (format!("{} -k 0", embeddings("base")), "0"),
    ];
    for (arguments, text) in cases {
        let output = run(&format!("advise {arguments}"));
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(64), "{arguments}: {said}");
        assert!(said.contains(text), "{arguments}: {said}");
    }
}

#[test]
fn a_connection_string_without_table_is_refused_and_not_shown() {
    for dsn in ["host=db password=secret", "postgresql://me:secret@db/shop", "postgres://me:secret@db/shop"] {
        let output = command().args(["advise", dsn]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(64), "{said}");
        assert!(said.contains("Name it with --table") && !said.contains("secret"), "{said}");
    }
    // A file whose name looks like a connection string.
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("day=1.npy");
    fs::write(&path, b"some words that are no vectors").unwrap();
    let output = run(&format!("advise {}", path.display()));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no .npy, .fvecs or Parquet file"), "{output:?}");
}

#[test]
fn the_plot_shows_all_trials_and_choices() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("plot.svg");
    let arguments =
        format!("advise {} --max-rows 2000 --target-recall 0.9 --json --plot {}", embeddings("base"), path.display());
    let json: Value = serde_json::from_str(&out(&arguments)).unwrap();
    let svg = fs::read_to_string(&path).unwrap();
    let document = roxmltree::Document::parse(&svg).unwrap();
    let with = |name: &str| document.descendants().filter(|node| node.has_tag_name(name)).collect::<Vec<_>>();
    // Vectors, halfvec and bits, each by four `m` and one wider ef_construction: all are in both plots and in the legend.
    let candidates = 3 * 5;
    assert_eq!(with("polyline").len(), 3 * candidates, "{svg}");
    let texts: Vec<&str> = with("text").iter().filter_map(|node| node.text()).collect();
    assert_eq!(texts.iter().filter(|text| text.starts_with("halfvec, m ")).count(), 5, "{texts:?}");
    assert_eq!(texts.iter().filter(|text| **text == "target 0.9").count(), 2, "{texts:?}");
    let choices = json["choices"].as_array().unwrap();
    let rings = with("circle").iter().filter(|node| node.attribute("class") == Some("level")).count();
    assert_eq!(rings, 2 * choices.len(), "each choice in both diagrams");
    for (rank, choice) in (1..).zip(choices) {
        let wanted = format!(", m {}: choice {rank}, ef_search {}", choice["m"], choice["ef_search"]);
        assert!(texts.iter().any(|text| text.ends_with(&wanted)), "{wanted}: {texts:?}");
    }
    // Recall and visits both rise with ef_search, so that each curve goes to the right and upward.
    let curves = with("polyline").into_iter().filter_map(|node| {
        let points = node.attribute("points")?.split(' ').map(|point| {
            let (x, y) = point.split_once(',').unwrap();
            (x.parse::<f64>().unwrap(), y.parse::<f64>().unwrap())
        });
        let points: Vec<_> = points.collect();
        (points.len() > 2).then_some(points)
    });
    let mut slanted = 0;
    for curve in curves {
        assert!(curve.windows(2).all(|pair| pair[0].0 <= pair[1].0 && pair[0].1 >= pair[1].1), "{curve:?}");
        slanted += usize::from(curve.first().unwrap().0 < curve.last().unwrap().0);
    }
    assert!(slanted >= 10, "{svg}");
    let nowhere =
        run(&format!("advise {} --max-rows 1.5k --plot {}/no/such.svg", embeddings("base"), dir.path().display()));
    assert_eq!(nowhere.status.code(), Some(64));
    assert!(String::from_utf8_lossy(&nowhere.stdout).contains("halfvec"), "the advice is not lost: {nowhere:?}");
}
