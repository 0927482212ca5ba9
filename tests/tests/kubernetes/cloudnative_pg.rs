//! The example for CloudNativePG is valid for the definitions of its resources.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use harness::{root, wait_for};
use serde_json::Value;

use crate::scene::{KUBERNETES, PATIENCE, Scene};

/// The Go module with the definitions; it is not part of any build.
const MODULE: &str = "github.com/cloudnative-pg/cloudnative-pg@v1.27.1";

#[test]
#[ignore = "needs Go, and minutes to build Kubernetes once: `cargo xtask test kubernetes`"]
fn the_example_is_accepted() {
    let scene = Scene::new("cloudnative-pg");
    let definitions = module().join("config/crd/bases");
    for kind in ["clusters", "databases"] {
        let text = fs::read_to_string(definitions.join(format!("postgresql.cnpg.io_{kind}.yaml"))).unwrap();
        let kubernetes = KUBERNETES.read().unwrap();
        // Too large for the annotation that `kubectl apply` would write.
        kubernetes.create(&text).unwrap();
        wait_for("the definition to be in force", PATIENCE, || {
            let name = format!("crd/{kind}.postgresql.cnpg.io");
            let format = "jsonpath={.status.conditions[?(@.type=='Established')].status}";
            // An error while the definition has no status yet.
            let status = kubernetes.kubectl(&["get", &name, "-o", format]);
            Ok(status.is_ok_and(|status| status.trim() == "True").then_some(()))
        })
        .unwrap();
    }
    let example = fs::read_to_string(root().join("deploy/cloudnative-pg/cluster.yaml")).unwrap();
    let check = |text: &str| KUBERNETES.read().unwrap().check(&scene.namespace, text);
    let said = check(&example).unwrap();
    for name in ["cluster.postgresql.cnpg.io/vectors", "database.postgresql.cnpg.io/vectors-app"] {
        assert!(said.contains(&format!("{name} created (server dry run)")), "{said}");
    }
    // Counter-check: the server rejects a misspelled field.
    for (right, wrong) in [
        ("    extensions:\n      - name: lantern-index", "    extension:\n      - name: lantern-index"),
        ("reference:", "ref:"),
    ] {
        assert!(example.contains(right), "{right}");
        assert!(check(&example.replace(right, wrong)).is_err(), "{wrong}");
    }
}

/// The directory of the module's files, which `go` downloads if necessary.
fn module() -> PathBuf {
    let output = Command::new("go")
        .args(["mod", "download", "-json", MODULE])
        // Run outside of a module, so that no module gets it as a requirement.
        .current_dir(env::temp_dir())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    Path::new(answer["Dir"].as_str().unwrap()).to_owned()
}
