//! The files of `deploy/` that run without containers.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use harness::{Builder, BuilderOptions, Cluster, PgConfig, Scratch, binary, inspect, root};
use serde_json::Value;

#[test]
fn the_demo_job_builds_an_index_externally() {
    let (cluster, builder) = (Cluster::start().unwrap(), Builder::start().unwrap());
    let mut session = cluster.database("demo_job").unwrap();
    builder.attach(&mut session).unwrap();
    let script = fs::read_to_string(root().join("deploy/demo.sql")).unwrap();
    // The job runs at each start of the services.
    for runs in 1..=2 {
        session.execute(&script).unwrap();
        // The builder builds the index, and checks it.
        builder.expect_builds(2 * runs).unwrap();
    }
    inspect(&cluster, &mut session, "demo_embedding_idx").unwrap();
    let distinct: i64 = session.value("SELECT count(DISTINCT embedding) FROM demo").unwrap();
    assert_eq!(distinct, 20_000);
}

/// Instructions of a Dockerfile, without comments, continued lines joined.
fn instructions(path: &str) -> Vec<String> {
    let text = fs::read_to_string(root().join(path)).unwrap();
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    lines.join("\n").replace("\\\n", " ").lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

#[test]
fn images_can_fetch_the_crates_that_the_lock_file_names() {
    for path in ["deploy/Dockerfile", "deploy/postgres.Dockerfile"] {
        // Rust's image has CA certificates, PostgreSQL's has not.
        let (mut has_certificates, mut builds) = (false, 0);
        for instruction in instructions(path) {
            match instruction.split_whitespace().next().unwrap() {
                "FROM" => has_certificates = instruction.contains("rust:"),
                "RUN" => {
                    has_certificates |= instruction.contains("ca-certificates");
                    let commands = instruction.split([';', '&']).map(str::trim);
                    for command in commands.filter(|command| command.starts_with("cargo ")) {
                        assert!(has_certificates, "{path}: no certificates for {command}");
                        assert!(command.contains(" --locked "), "{path}: {command}");
                        builds += 1;
                    }
                }
                _ => {}
            }
        }
        assert_eq!(builds, 1, "{path}");
    }
}

#[test]
fn scripts_of_the_package_are_shell_scripts() {
    for name in ["postinst", "prerm", "postrm"] {
        let path = root().join("deploy/debian").join(name);
        // dpkg runs an empty file without complaint.
        assert!(fs::read_to_string(&path).unwrap().starts_with("#!/bin/sh\nset -e\n"), "{name}");
        assert!(Command::new("sh").arg("-n").arg(&path).status().unwrap().success(), "{name}");
    }
}

#[test]
fn the_extension_image_has_the_labels_of_its_catalogue() {
    let file = instructions("deploy/cloudnative-pg/Dockerfile");
    let argument = |name: &str| {
        let arguments = file.iter().find_map(|line| line.strip_prefix("ARG ")?.strip_prefix(name)?.strip_prefix('='));
        arguments.unwrap().to_owned()
    };
    let (version, os) = (argument("VERSION"), argument("OS"));
    let text = file.iter().find(|line| line.starts_with("LABEL ")).unwrap();
    let text = text.replace("${VERSION}", &version).replace("${OS}", &os);
    let has = |label: &str, value: &str| assert!(text.contains(&format!("{label}=\"{value}\"")), "{label}: {text}");
    has("org.opencontainers.image.version", &version);
    has("org.opencontainers.image.licenses", "Apache-2.0");
    has("io.cloudnativepg.image.base.name", &format!("ghcr.io/cloudnative-pg/postgresql:18-minimal-{os}"));
    has("io.cloudnativepg.image.base.pgmajor", "18");
    has("io.cloudnativepg.image.base.os", &os);
    has("io.cloudnativepg.image.sql.version", &version);
    assert!(file.contains(&"FROM scratch".to_owned()) && file.contains(&"USER 65532:65532".to_owned()));
    assert_eq!(version, env!("CARGO_PKG_VERSION"));
    let control = fs::read_to_string(root().join("crates/extension/lantern_index.control")).unwrap();
    assert!(control.contains(&format!("default_version = '{version}'")));

    let folder = root().join("deploy/cloudnative-pg");
    let metadata = fs::read_to_string(folder.join("metadata.hcl")).unwrap();
    let metadata: Vec<String> =
        metadata.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    let count = |line: &str| metadata.iter().filter(|own| *own == line).count();
    for line in [
        "sql_name = \"lantern_index\"",
        "image_name = \"lantern-index-extension\"",
        "licenses = [\"Apache-2.0\"]",
        "shared_preload_libraries = [\"lantern_index\"]",
        "required_extensions = [\"pgvector\"]",
    ] {
        assert_eq!(count(line), 1, "{line}");
    }
    assert_eq!(count(&format!("sql = \"{version}\"")), 2);
    let cluster = fs::read_to_string(folder.join("cluster.yaml")).unwrap();
    assert!(cluster.contains("shared_preload_libraries: [lantern_index, vector]"));
    assert!(cluster.contains(&format!("lantern-index-extension:{version}-18-{os}")));
}

fn compose() -> Value {
    serde_yaml_ng::from_str(&fs::read_to_string(root().join("deploy/compose.yaml")).unwrap()).unwrap()
}

fn strings(list: &Value) -> Vec<&str> {
    list.as_array().into_iter().flatten().map(|value| value.as_str().unwrap()).collect()
}

/// What a service mounts: volume or file, and where.
fn mounts(service: &Value) -> Vec<(&str, &str)> {
    let parts = strings(&service["volumes"]).into_iter().map(|mount| mount.split(':').collect::<Vec<_>>());
    parts.map(|parts| (parts[0], parts[1])).collect()
}

#[test]
fn files_volumes_and_images_of_compose_exist() {
    let compose = compose();
    let services = compose["services"].as_object().unwrap();
    let declared: BTreeSet<&str> = compose["volumes"].as_object().unwrap().keys().map(String::as_str).collect();
    let (mut mounted, mut built, mut images) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for (name, service) in services {
        for (source, _) in mounts(service) {
            match source.strip_prefix("./") {
                Some(file) => assert!(root().join("deploy").join(file).is_file(), "{name}: {source}"),
                None => drop(mounted.insert(source)),
            }
        }
        let image = service["image"].as_str().unwrap();
        images.insert(image);
        if let Some(file) = service["build"]["dockerfile"].as_str() {
            assert!(root().join(file).is_file() && service["build"]["context"] == "..", "{name}: {file}");
            built.insert(image);
        }
        let conditions = service["depends_on"].as_object().into_iter().flatten();
        for (other, condition) in conditions {
            let ends = services[other]["restart"] == "no";
            let waits_for_end = condition["condition"] == "service_completed_successfully";
            assert_eq!(ends, waits_for_end, "{name} waits for {other}");
        }
        for other in strings(&service["depends_on"]) {
            assert!(services.contains_key(other), "{name} waits for {other}");
        }
        assert!(service["profiles"].is_null(), "{name} does not run by `docker compose up`");
    }
    assert_eq!(mounted, declared);
    assert_eq!(built, images);
    // A service without the key cannot pose as the builder, and one without the token cannot build.
    let who = |volume: &str| -> Vec<&str> {
        let with = services.iter().filter(|(_, service)| mounts(service).iter().any(|(source, _)| *source == volume));
        with.map(|(name, _)| name.as_str()).collect()
    };
    assert_eq!(who("key"), ["builder", "certificate"]);
    assert_eq!(who("token"), ["builder", "postgres", "token"]);
}

/// The services of compose.yaml without containers, volumes in a folder.
struct Services {
    compose: Value,
    folder: Scratch,
}

impl Services {
    fn service(&self, name: &str) -> &Value {
        &self.compose["services"][name]
    }

    /// Replaces the paths of mounts in a text by those on this machine.
    fn local(&self, service: &str, text: &str) -> String {
        let mut mounts = mounts(self.service(service));
        mounts.sort_by_key(|(_, place)| std::cmp::Reverse(place.len()));
        mounts.iter().fold(text.replace("$$", "$"), |text, (source, place)| {
            let local = match source.strip_prefix("./") {
                Some(file) => root().join("deploy").join(file),
                None => self.volume(source),
            };
            text.replace(place, local.to_str().unwrap())
        })
    }

    fn volume(&self, name: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::create_dir_all(&path).unwrap();
        path
    }

    /// Runs a program with the words of a service.
    fn run(&self, service: &str, program: &Path, words: &[&str]) -> String {
        let words = words.iter().map(|word| self.local(service, word));
        let output = Command::new(program).args(words).output().unwrap();
        assert!(output.status.success(), "{service}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }
}

#[test]
fn the_services_of_compose_work_together() {
    let services = Services { compose: compose(), folder: Scratch::new("compose", 0o755).unwrap() };
    let program = binary().unwrap();
    let sh = Path::new("/bin/sh");
    // A second run keeps the files of the first.
    let made: Vec<[String; 2]> = (0..2)
        .map(|_| {
            services.run("certificate", &program, &strings(&services.service("certificate")["command"]));
            let token = services.service("token");
            let script = strings(&token["command"])[0];
            let is_root = services.folder.path().metadata().unwrap().uid() == 0;
            let script = if is_root { script.to_owned() } else { script.replace("chown 65532:postgres", "ls") };
            assert_eq!(strings(&token["entrypoint"]), ["sh", "-euc"]);
            services.run("token", sh, &["-euc", &script]);
            let file = services.volume("token").join("token");
            let about = file.metadata().unwrap();
            assert_eq!((about.mode() & 0o777, is_root), (0o640, about.uid() == 65532));
            ["certificate/cert.pem", "token/token"]
                .map(|file| services.folder.path().join(file))
                .map(|file| fs::read_to_string(file).unwrap())
        })
        .collect();
    assert_eq!(made[0], made[1]);

    let environment = services.service("builder")["environment"].as_object().unwrap();
    let known = Command::new(&program).args(["serve", "--help"]).output().unwrap();
    let known = String::from_utf8(known.stdout).unwrap();
    for name in environment.keys() {
        assert!(known.contains(&format!("[env: {name}=")), "{name}");
    }
    let local = |value: &Value| services.local("builder", value.as_str().unwrap());
    let environment = environment.iter().map(|(name, value)| (name.clone(), local(value))).collect();
    let builder =
        Builder::start_with(&BuilderOptions { tls: false, environment, ..BuilderOptions::default() }).unwrap();

    // The entry point of PostgreSQL's image gets the settings as arguments, which everybody on the machine can read.
    let command = strings(&services.service("postgres")["command"]);
    assert_eq!(command[0], "postgres");
    let settings: String = command[1..]
        .iter()
        .map(|setting| setting.strip_prefix("--").unwrap().split_once('=').unwrap())
        .map(|(name, value)| if value == "builder" { (name, "localhost") } else { (name, value) })
        .map(|(name, value)| format!("{name} = '{}'\n", services.local("postgres", value)))
        .collect();
    assert_eq!(settings.lines().count(), 5, "{settings}");
    assert!(!settings.contains("external_index_token ="), "{settings}");
    let settings = format!("{settings}hnsw.external_index_port = {}", builder.address().port());
    let cluster = Cluster::start_with(PgConfig::require().unwrap(), &settings).unwrap();

    let demo = strings(&services.service("demo")["entrypoint"]);
    let psql = cluster.config().program(demo[0]);
    let host = format!("--host={}", cluster.dir().display());
    let said = services.run("demo", &psql, &[&demo[1..], &[&host, "--username=postgres"]].concat());
    assert!(said.contains("| ok"), "{said}");
    // The builder builds the index, and checks it.
    builder.expect_builds(2).unwrap();
    // Without the token the builder refuses.
    let mut session = cluster.session("postgres").unwrap();
    session.execute("SET hnsw.external_index_token = 'another'").unwrap();
    let error = session.execute("REINDEX INDEX demo_embedding_idx").unwrap_err().to_string();
    assert!(error.contains("token"), "{error}");
}
