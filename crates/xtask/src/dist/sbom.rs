//! A bill of materials of what is distributed: every crate that is compiled into the program or the library, in CycloneDX 1.5.

use std::collections::{BTreeMap, BTreeSet};
use std::env::consts::ARCH;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::package;
use crate::{build, step};

/// What is distributed.
const PACKAGES: [&str; 2] = ["lantern-index", "lantern-index-extension"];

/// Writes the bill to `out`. The same sources give the same bytes.
pub fn write(out: &Path) -> Result<PathBuf> {
    let mut cargo = build::cargo(None);
    cargo.args(["metadata", "--format-version", "1", "--locked", "--all-features"]);
    // Without a platform, crates for Windows and for the web are listed too.
    cargo.args(["--filter-platform", &format!("{ARCH}-unknown-linux-gnu")]);
    let metadata: Value = serde_json::from_str(&step::output(&mut cargo)?).context("cargo metadata")?;
    let lock = fs::read_to_string(harness::root().join("Cargo.lock")).context("Cargo.lock")?;
    let bill = bill(&metadata, &checksums(&lock))?;
    let path = out.join(format!("lantern-index_{}_{}.cdx.json", env!("CARGO_PKG_VERSION"), package::architecture()?));
    let text = serde_json::to_string_pretty(&bill)? + "\n";
    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

/// The SHA-256 of each crate by name and version, from Cargo.lock.
fn checksums(lock: &str) -> BTreeMap<(String, String), String> {
    let field = |block: &str, name: &str| {
        let line = block.lines().find_map(|line| line.strip_prefix(&format!("{name} = \"")))?;
        line.strip_suffix('"').map(str::to_owned)
    };
    let of = |block: &str| Some(((field(block, "name")?, field(block, "version")?), field(block, "checksum")?));
    lock.split("[[package]]").filter_map(of).collect()
}

fn bill(metadata: &Value, checksums: &BTreeMap<(String, String), String>) -> Result<Value> {
    let list = |value: &'_ Value| value.as_array().cloned().unwrap_or_default();
    let packages: BTreeMap<String, Value> =
        list(&metadata["packages"]).into_iter().map(|package| (text(&package["id"]), package)).collect();
    let nodes: BTreeMap<String, Value> =
        list(&metadata["resolve"]["nodes"]).into_iter().map(|node| (text(&node["id"]), node)).collect();
    let named = |name: &str| packages.iter().find(|(_, package)| package["name"] == name).map(|(id, _)| id.clone());
    let mut open: Vec<String> = PACKAGES.iter().filter_map(|name| named(name)).collect();
    ensure!(open.len() == PACKAGES.len(), "cargo metadata does not know the packages {PACKAGES:?}");
    let mut depends = BTreeMap::<String, BTreeSet<String>>::new();
    while let Some(id) = open.pop() {
        if depends.contains_key(&id) {
            continue;
        }
        let normal = |dependency: &Value| list(&dependency["dep_kinds"]).iter().any(|kind| kind["kind"].is_null());
        let of: BTreeSet<String> =
            list(&nodes[&id]["deps"]).iter().filter(|dep| normal(dep)).map(|dep| text(&dep["pkg"])).collect();
        open.extend(of.iter().cloned());
        depends.insert(id, of);
    }
    let reference =
        |id: &String| format!("pkg:cargo/{}@{}", text(&packages[id]["name"]), text(&packages[id]["version"]));
    let component = |id: &String| {
        let package = &packages[id];
        let (name, version) = (text(&package["name"]), text(&package["version"]));
        let mut component = json!({
            "type": if PACKAGES.contains(&name.as_str()) { "application" } else { "library" },
            "bom-ref": reference(id), "purl": reference(id), "name": name, "version": version,
        });
        if let Some(license) = package["license"].as_str() {
            // Cargo once allowed a slash for OR.
            component["licenses"] = json!([{ "expression": license.replace('/', " OR ") }]);
        }
        if let Some(checksum) = checksums.get(&(name, version)) {
            component["hashes"] = json!([{ "alg": "SHA-256", "content": checksum }]);
        }
        component
    };
    let dependencies = depends
        .iter()
        .map(|(id, of)| json!({ "ref": reference(id), "dependsOn": of.iter().map(reference).collect::<Vec<_>>() }));
    Ok(json!({
        "bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
        "metadata": { "component": {
            "type": "application", "name": "lantern-index", "version": env!("CARGO_PKG_VERSION"),
        } },
        "components": depends.keys().map(component).collect::<Vec<_>>(),
        "dependencies": dependencies.collect::<Vec<_>>(),
    }))
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::write;

    #[test]
    fn all_that_is_shipped_is_on_the_bill() {
        let out = harness::Scratch::new("sbom", 0o700).unwrap();
        let first = std::fs::read_to_string(write(out.path()).unwrap()).unwrap();
        assert_eq!(std::fs::read_to_string(write(out.path()).unwrap()).unwrap(), first);
        let bill: Value = serde_json::from_str(&first).unwrap();
        let components = bill["components"].as_array().unwrap();
        let find = |name: &str| components.iter().find(|component| component["name"] == name);
        for name in ["lantern-index", "lantern-index-extension", "pgrx", "tokio", "rustls", "ring", "usearch"] {
            assert!(find(name).is_some(), "{name}");
        }
        // Neither tests nor crates for other systems are shipped.
        for name in ["lantern-index-tests", "proptest", "lantern-index-xtask", "windows-sys", "wasm-bindgen"] {
            assert!(find(name).is_none(), "{name}");
        }
        for component in components {
            assert!(component["licenses"][0]["expression"].is_string(), "{component}");
            let ours = component["name"].as_str().unwrap().starts_with("lantern-index");
            assert!(ours || component["hashes"][0]["content"].as_str().unwrap().len() == 64, "{component}");
        }
        assert_eq!(bill["dependencies"].as_array().unwrap().len(), components.len());
    }
}
