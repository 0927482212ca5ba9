use super::{EF_SEARCH, Measured, NEIGHBORS};

/// The two builds side by side.
pub fn render(rows: usize, inside: &Measured, outside: &Measured) -> String {
    let mut lines = vec![line(&format!("{rows} rows"), "in the database", "external")];
    let mut add =
        |name: &str, value: &dyn Fn(&Measured) -> String| lines.push(line(name, &value(inside), &value(outside)));
    add("build, seconds", &|build| format!("{:.2}", build.cost.seconds));
    add("CPU seconds of the database", &|build| format!("{:.2}", build.cost.database));
    add("CPU seconds of the builder", &|build| format!("{:.2}", build.cost.builder));
    for (number, ef) in EF_SEARCH.iter().enumerate() {
        let value = |build: &Measured| build.recall.get(number).map_or(String::new(), |recall| format!("{recall:.4}"));
        add(&format!("recall@{NEIGHBORS}, ef_search {ef}"), &value);
    }
    add("index size", &|build| format!("{:.1} MB", build.size as f64 / 1e6));
    lines.insert(1, "-".repeat(lines[0].len()));
    lines.join("\n")
}

fn line(name: &str, inside: &str, outside: &str) -> String {
    format!("{name:<30}{inside:>18}{outside:>14}")
}

#[cfg(test)]
mod tests {
    use harness::Cost;

    use super::*;

    #[test]
    fn columns_are_aligned() {
        let cost = Cost { seconds: 6.4, ..Cost::default() };
        let build = Measured { cost, recall: vec![0.95, 0.97, 0.99], size: 13_700_000 };
        let text = render(7000, &build, &build);
        let widths: Vec<usize> = text.lines().map(str::len).collect();
        assert_eq!(widths.len(), 9);
        assert!(widths.iter().all(|&width| width == widths[0]), "{text}");
        assert!(text.contains("recall@10, ef_search 200"), "{text}");
    }
}
