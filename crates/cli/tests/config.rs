//! Settings from flags, environment and file.

mod support;

use std::fs;
use std::path::Path;
use std::process::Output;

use support::{command, said};
use tempfile::TempDir;

fn run(arguments: &[&str], variables: &[(&str, &str)], dir: &Path) -> Output {
    command().args(arguments).envs(variables.iter().copied()).current_dir(dir).output().unwrap()
}

#[test]
fn show_says_where_each_value_comes_from() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("c.toml"), "[serve]\nport = 9000\n\nthreads = 3\nhost = \"a \\\"b\\\"\"\n").unwrap();
    let variables = [("LANTERN_INDEX_THREADS", "4"), ("LANTERN_INDEX_ALLOW_PLAINTEXT_BEYOND_LOOPBACK", "yes")];
    let output = run(&["config", "show", "--config", "c.toml"], &variables, dir.path());
    let text = said(&output);
    assert!(output.status.success(), "{text}");
    let line =
        |start: &str| text.lines().find(|line| line.starts_with(start)).unwrap_or_else(|| panic!("{start}: {text}"));
    assert!(line("port = 9000").ends_with("# c.toml:2"), "{text}");
    assert!(line("threads = 4").ends_with("# LANTERN_INDEX_THREADS"), "{text}");
    assert!(
        line("allow-plaintext-beyond-loopback = true").ends_with("# LANTERN_INDEX_ALLOW_PLAINTEXT_BEYOND_LOOPBACK")
    );
    assert!(line("# engine = \"bulk\"").ends_with("# default"), "{text}");
    assert!(line("# cert =").ends_with("# not set"), "{text}");

    // The output is a configuration file with the same settings.
    fs::write(dir.path().join("again.toml"), &text).unwrap();
    let again = said(&run(&["config", "show"], &[("LANTERN_INDEX_CONFIG", "again.toml")], dir.path()));
    let values = |text: &str| -> Vec<String> {
        text.lines().map(|line| line.rsplit_once(" # ").map_or(line, |(value, _)| value).trim().to_owned()).collect()
    };
    assert_eq!(values(&again), values(&text));
}

#[test]
fn check_finds_all_mistakes() {
    let dir = TempDir::new().unwrap();
    let toml = "[serve]\ncert = \"absent.pem\"\nkey = \"absent.pem\"\n";
    fs::write(dir.path().join("absent.toml"), toml).unwrap();
    fs::write(dir.path().join("wrong.toml"), "[serve]\nport = -1\nhots = \"x\"\n").unwrap();
    let cases: [(&str, &str, &[&str]); 4] = [
        ("wrong.toml", "4", &["wrong.toml:2: port", "wrong.toml:3: ", "did you mean host?"]),
        ("wrong.toml", "many", &["wrong.toml:2: port", "wrong.toml:3: ", "LANTERN_INDEX_THREADS: "]),
        (
            "absent.toml",
            "4",
            &["absent.toml:2: cert: cannot read certificate file absent.pem: No such file", "absent.toml:3: key: "],
        ),
        ("nowhere.toml", "4", &["nowhere.toml: cannot be read"]),
    ];
    for (file, threads, expected) in cases {
        for arguments in [["config", "check", "--config", file], ["serve", "--port=0", "--config", file]] {
            let output = run(&arguments, &[("LANTERN_INDEX_THREADS", threads)], dir.path());
            assert_eq!(output.status.code(), Some(64), "{arguments:?}: {}", said(&output));
            if arguments[0] == "config" {
                let text = said(&output);
                assert!(expected.iter().all(|part| text.contains(part)), "{file}: {text}");
            }
        }
    }
    let help = run(&["serve", "--config", "wrong.toml", "--help"], &[], dir.path());
    assert!(help.status.success() && said(&help).contains("--status-port"), "{}", said(&help));
    fs::write(dir.path().join("right.toml"), "[serve]\nidle-timeout = '5m'\n").unwrap();
    let output = run(&["config", "check", "--config=right.toml"], &[], dir.path());
    assert!(output.status.success() && said(&output).contains("no mistakes"), "{}", said(&output));
}

fn check(dir: &Path, toml: &str, variables: &[(&str, &str)]) -> (Option<i32>, String) {
    fs::write(dir.join("c.toml"), toml).unwrap();
    let output = run(&["config", "check", "--config", "c.toml"], variables, dir);
    (output.status.code(), said(&output))
}

#[test]
fn check_finds_every_file_that_serve_would_refuse() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("short"), "short").unwrap();
    let toml = "[serve]\ncert = 'absent1'\nkey = 'absent2'\nclient-ca = 'absent3'\ntoken-file = 'short'\n\
                ticket-key = 'absent5'\nspool-dir = 'absent6'\n\n[router]\nbuilders = 'static'\nbuilder = ['b:1/2']\n\
                ticket-key = 'short'\nbuilder-ca = 'absent7'\nbuilder-name = 'b'\ncert = 'absent8'\nkey = 'absent9'\n";
    let (code, text) = check(dir.path(), toml, &[("LANTERN_INDEX_CLIENT_CA", "absent0")]);
    assert_eq!(code, Some(64), "{text}");
    for part in [
        "  c.toml:2: cert: cannot read certificate file absent1: No such file",
        "  c.toml:3: key: cannot read private key file absent2: No such file",
        "  LANTERN_INDEX_CLIENT_CA: client-ca: cannot read certificate file absent0: No such file",
        "  c.toml:5: token-file: token file short, line 1",
        "  c.toml:6: ticket-key: cannot read ticket key absent5: No such file",
        "  c.toml:7: spool-dir: spool directory absent6 cannot be used: No such file",
        "  c.toml:12: ticket-key: ticket key short holds none, or one that is shorter",
        "  c.toml:13: builder-ca: ",
        "  c.toml:15: cert: cannot read certificate file absent8: No such file",
        "  c.toml:16: key: cannot read private key file absent9: No such file",
    ] {
        assert!(text.contains(part), "{part:?} is missing in\n{text}");
    }
    assert_eq!(text.lines().count(), 11, "{text}");
}

#[test]
fn check_finds_addresses_that_need_tls_or_authentication() {
    let dir = TempDir::new().unwrap();
    let gen_cert = run(&["gen-cert"], &[], dir.path());
    assert!(gen_cert.status.success(), "{}", said(&gen_cert));
    fs::write(dir.path().join("tokens"), "0123456789abcdef0123456789abcdef\n").unwrap();
    let tls = "host = '0.0.0.0'\ncert = 'cert.pem'\nkey = 'key.pem'\n";
    for (toml, expected) in [
        (
            "[serve]\nport = 1\nhost = '0.0.0.0'\n".to_owned(),
            "c.toml:3: host: 0.0.0.0:1 can be reached from other machines, and without a cert",
        ),
        (
            format!("[serve]\n{tls}"),
            "c.toml:2: host: 0.0.0.0:8998 can be reached from other machines, and clients are not authenticated",
        ),
        (
            "[router]\nhost = '0.0.0.0'\n".to_owned(),
            "c.toml:2: host: 0.0.0.0:8998 can be reached from other machines, and without a cert",
        ),
        ("[serve]\nhost = 'host.invalid'\n".to_owned(), "c.toml:2: host: cannot resolve host host.invalid"),
    ] {
        let (code, text) = check(dir.path(), &toml, &[]);
        assert_eq!(code, Some(64), "{toml}: {text}");
        assert!(text.contains(expected), "{toml}: {text}");
        // What `config check` rejects, the daemon rejects too.
        let daemon = toml.split(['[', ']']).nth(1).unwrap();
        let output = run(&[daemon, "--config", "c.toml"], &[], dir.path());
        assert_eq!(output.status.code(), Some(64), "{toml}: {}", said(&output));
    }
    for toml in [
        format!("[serve]\n{tls}token-file = 'tokens'\n"),
        format!("[serve]\n{tls}client-ca = 'cert.pem'\n"),
        format!("[serve]\n{tls}allow-anonymous = true\n"),
        "[serve]\nspool-dir = '.'\n".to_owned(),
    ] {
        let (code, text) = check(dir.path(), &toml, &[]);
        assert_eq!(code, Some(0), "{toml}: {text}");
    }
}

#[test]
fn check_finds_a_certificate_that_is_not_valid() {
    let dir = TempDir::new().unwrap();
    let pair = rcgen::KeyPair::generate().unwrap();
    fs::write(dir.path().join("key.pem"), pair.serialize_pem()).unwrap();
    for (from, to, expected) in [
        (2020, 2021, "c.toml:2: cert: certificate cert.pem expired "),
        (3020, 3021, "c.toml:2: cert: certificate cert.pem is not valid yet"),
    ] {
        let mut params = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(from, 1, 1);
        params.not_after = rcgen::date_time_ymd(to, 1, 1);
        fs::write(dir.path().join("cert.pem"), params.self_signed(&pair).unwrap().pem()).unwrap();
        for daemon in ["serve", "router"] {
            let (code, text) = check(dir.path(), &format!("[{daemon}]\ncert = 'cert.pem'\nkey = 'key.pem'\n"), &[]);
            assert!(code == Some(64) && text.contains(expected), "{daemon}: {text}");
        }
    }
}

#[test]
fn an_unusable_spool_directory_has_exit_code_64() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("file"), "").unwrap();
    // Not even root can create a file in /proc.
    for (spool_dir, problem) in [("absent", "No such file"), ("file", "Not a directory"), ("/proc", "/proc")] {
        // If the daemon starts nevertheless, it ends at once, since its standard input is empty.
        let start = ["serve", "--stop-at-eof", "--port=0", "--status-port=0", "--spool-dir", spool_dir];
        let output = run(&start, &[], dir.path());
        assert_eq!(output.status.code(), Some(64), "{spool_dir}: {}", said(&output));
        let (code, text) = check(dir.path(), &format!("[serve]\nspool-dir = '{spool_dir}'\n"), &[]);
        assert_eq!(code, Some(64), "{spool_dir}: {text}");
        for text in [said(&output), text] {
            assert!(text.contains(&format!("spool directory {spool_dir} cannot be used")), "{text}");
            assert!(text.contains(problem), "{text}");
        }
    }
}

#[cfg(feature = "kubernetes")]
#[test]
fn a_template_without_a_container_is_a_mistake() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("pod.json"), "{}").unwrap();
    fs::write(dir.path().join("key"), "0123456789abcdef".repeat(4)).unwrap();
    let toml = "[router]\nbuilders = 'kubernetes'\nbuilder-template = 'pod.json'\nticket-key = 'key'\nidentity = 'a'\n\
                builder-min-memory = '1GB'\nbuilder-max-memory = '2GB'\n";
    let (code, text) = check(dir.path(), toml, &[]);
    let mistake = "the builders' template pod.json has no container";
    assert_eq!(code, Some(64), "{text}");
    assert!(text.contains(&format!("  c.toml:3: builder-template: {mistake}")), "{text}");
    let output = run(&["router", "--config", "c.toml"], &[], dir.path());
    assert_eq!(output.status.code(), Some(64), "{}", said(&output));
    assert!(said(&output).contains(mistake), "{}", said(&output));
}

#[test]
fn check_finds_variables_that_are_no_settings() {
    let dir = TempDir::new().unwrap();
    let variables = [("LANTERN_INDEX_TOKEN_FLE", "x"), ("LANTERN_INDEX_ROUTER_SERVICE_HOST", "10.0.0.1")];
    let (code, text) = check(dir.path(), "", &variables);
    assert_eq!(code, Some(64), "{text}");
    assert!(
        text.contains("LANTERN_INDEX_TOKEN_FLE: ") && text.contains("did you mean LANTERN_INDEX_TOKEN_FILE?"),
        "{text}"
    );
    assert_eq!(text.lines().count(), 2, "{text}");
}

#[test]
fn addresses_of_kubernetes_services_are_no_ports() {
    let dir = TempDir::new().unwrap();
    let variables = [("LANTERN_INDEX_PORT", "tcp://10.0.0.1:8998"), ("LANTERN_INDEX_STATUS_PORT", "tcp://10.0.0.2:80")];
    let (code, text) = check(dir.path(), "", &variables);
    assert_eq!(code, Some(0), "{text}");
    let text = said(&run(&["config", "show"], &variables, dir.path()));
    let (_, serve) = text.split_once("[serve]").unwrap();
    let (serve, _) = serve.split_once("\n[").unwrap_or((serve, ""));
    assert!(serve.lines().any(|line| line.starts_with("# port = 8998") && line.ends_with("# default")), "{text}");
    let (code, text) = check(dir.path(), "", &[("LANTERN_INDEX_PORT", "many")]);
    assert!(code == Some(64) && text.contains("LANTERN_INDEX_PORT: "), "{text}");
}

#[test]
fn files_that_are_no_configuration_have_exit_code_64() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("binary"), [0xff; 64]).unwrap();
    fs::write(dir.path().join("long"), vec![b'#'; (1 << 20) + 1]).unwrap();
    fs::write(dir.path().join("deep"), format!("a = {}", "[".repeat(100_000))).unwrap();
    for file in ["binary", "long", "deep", "."] {
        let output = run(&["config", "check", "--config", file], &[], dir.path());
        assert_eq!(output.status.code(), Some(64), "{file}: {}", said(&output));
        assert!(said(&output).contains(&format!("  {file}:")), "{}", said(&output));
    }
}
