//! The Helm chart: its release builds indexes, and running builds survive an upgrade.

use std::net::SocketAddr;
use std::process::Command;
use std::thread;
use std::time::Instant;

use harness::{Direction, Proxy, Session, binary, http_get, inspect, kubernetes_release, root, wait_for};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use serde_json::json;

use crate::scene::{CREATE, KUBERNETES, PATIENCE, POSTGRES, Scene, held};

/// The time limit for `helm install --wait` and similar commands.
const LIMIT: &str = "--timeout=3m";

/// A release that is uninstalled at the end, also if the test fails.
struct Release<'a> {
    scene: &'a Scene,
}

impl<'a> Release<'a> {
    fn install(scene: &'a Scene, further: &[&str]) -> Self {
        let release = Self { scene };
        release.say("install", further);
        release
    }

    /// Runs `helm install` or `upgrade`, with settings common to all tests and further ones.
    fn say(&self, command: &str, further: &[&str]) {
        let chart = root().join("deploy/helm/lantern-index").display().to_string();
        let settings = "router.maxBuilders=3,router.idleTtl=1s,router.graceSeconds=100,router.startTimeout=60s,\
                        router.allowAnonymous=true,builder.minMemory=256MB,builder.maxMemory=1GB,\
                        builder.resources.requests.cpu=100m,builder.terminationGracePeriodSeconds=6";
        let args = "builder.args={--threads=1,--stop-at-eof}";
        self.helm(
            &[&[command, "lantern", &chart, "--wait", LIMIT, "--set", settings, "--set", args], further].concat(),
        );
    }

    fn helm(&self, arguments: &[&str]) -> String {
        let kubernetes = KUBERNETES.read().unwrap();
        kubernetes.helm(&[&["--namespace", &self.scene.namespace], arguments].concat()).unwrap()
    }

    /// Names and addresses of routers' pods that are not terminating.
    fn routers(&self) -> Vec<(String, String)> {
        let columns = "custom-columns=N:.metadata.name,I:.status.podIP,D:.metadata.deletionTimestamp";
        let arguments = ["get", "pods", "-l", "app.kubernetes.io/component=router", "--no-headers", "-o", columns];
        let text = self.scene.kubectl(&arguments);
        let words = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let here = words.filter(|words| words[2] == "<none>" && words[1] != "<none>");
        here.map(|words| (words[0].to_owned(), words[1].to_owned())).collect()
    }

    /// Waits until no router of `before` is left, and returns the new ones.
    fn replaced(&self, before: &[(String, String)]) -> Vec<(String, String)> {
        wait_for("new routers", PATIENCE, || {
            let now = self.routers();
            Ok((now.len() == 2 && now.iter().all(|router| !before.contains(router))).then_some(now))
        })
        .unwrap()
    }

    /// The answers of all routers' status ports.
    fn statuses(&self) -> Vec<String> {
        let addresses = self.routers().into_iter().map(|(_, address)| format!("{address}:8999").parse().unwrap());
        addresses.map(|address: SocketAddr| http_get(address, "/metrics").unwrap().1).collect()
    }
}

impl Drop for Release<'_> {
    fn drop(&mut self) {
        let Ok(kubernetes) = KUBERNETES.read() else { return };
        let namespace = ["--namespace", &self.scene.namespace];
        let _ = kubernetes.helm(&[&namespace[..], &["uninstall", "lantern", "--ignore-not-found"]].concat());
    }
}

/// The certificate that the chart has made, in a file for PostgreSQL.
fn trust(scene: &Scene) -> String {
    let secret = scene.kubectl(&[
        "get",
        "secret",
        "lantern-router-tls",
        "-o",
        "go-template={{index .data \"tls.crt\" | base64decode}}",
    ]);
    scene.file("chart.pem", &secret)
}

/// Makes a session use a router's pod, and verify its certificate.
pub fn attach(session: &mut Session, host: &str, port: u16, certificate: &str) {
    session
        .execute(&format!(
            "SET hnsw.external_index_host = '{host}'; SET hnsw.external_index_port = {port}; \
             SET hnsw.external_index_sslmode = 'verify-ca'; SET hnsw.external_index_sslrootcert = '{certificate}'"
        ))
        .unwrap();
}

#[test]
#[ignore = "needs Go, and minutes to build Kubernetes once: `cargo xtask test kubernetes`"]
fn eight_partitions_are_built_at_once_on_three_pods() {
    let mut scene = Scene::new("chart-partitions");
    let table = "CREATE TABLE parts (id int, v vector(100)) PARTITION BY HASH (id); \
                 DO $$ BEGIN FOR part IN 0..7 LOOP EXECUTE format('CREATE TABLE part_%s PARTITION OF parts \
                 FOR VALUES WITH (MODULUS 8, REMAINDER %s)', part, part); END LOOP; END $$; \
                 INSERT INTO parts SELECT id, v FROM items; ANALYZE parts; \
                 CREATE INDEX parts_idx ON ONLY parts USING hnsw (v vector_l2_ops)";
    scene.session.execute(table).unwrap();
    let mut sessions: Vec<Session> = (0..8).map(|_| scene.another_session()).collect();
    let mut last = scene.another_session();
    scene.kubectl(&["create", "secret", "generic", "tokens", "--from-literal=tokens=known-to-databases"]);
    let release = Release::install(&scene, &["--set", "tokens.secretName=tokens,router.allowAnonymous=false"]);
    let (certificate, routers) = (trust(&scene), release.routers());
    assert_eq!(routers.len(), 2, "{routers:?}");
    attach(&mut last, &routers[0].1, 8998, &certificate);
    let error = last.execute("CREATE INDEX ON part_0 USING hnsw (v vector_l2_ops) WITH (external = true)").unwrap_err();
    assert_eq!(error.server().sqlstate, "28000", "{error}");

    let started = Instant::now();
    let proxies = [0, 1, 2].map(|part| held(format!("{}:8998", routers[part % 2].1).parse().unwrap()));
    let threads = sessions
        .drain(..)
        .enumerate()
        .map(|(part, mut session)| {
            match proxies.get(part) {
                Some(proxy) => attach(&mut session, "127.0.0.1", proxy.port(), &certificate),
                None => attach(&mut session, &routers[part % 2].1, 8998, &certificate),
            }
            session.execute("SET hnsw.external_index_token = 'known-to-databases'").unwrap();
            thread::spawn(move || {
                let sql = format!(
                    "CREATE INDEX part_{part}_idx ON part_{part} USING hnsw (v vector_l2_ops) WITH (external = true)"
                );
                session.execute(&sql).unwrap();
                inspect(&POSTGRES, &mut session, &format!("part_{part}_idx")).unwrap();
                session.execute(&format!("ALTER INDEX parts_idx ATTACH PARTITION part_{part}_idx")).unwrap();
            })
        })
        .collect();
    let most = scene.most_pods(&proxies, threads);
    println!("eight builds on at most {most} pods took {:.2} s", started.elapsed().as_secs_f64());
    assert_eq!(most, 3, "pods at a time");
    let valid: bool = last
        .value("SELECT indisvalid FROM pg_index WHERE indexrelid = 'parts_idx'::regclass")
        .map(|valid: String| valid == "t")
        .unwrap();
    assert!(valid, "every partition has its index");
    // The router counts a build shortly after the client has its index.
    let statuses = wait_for("eight builds", PATIENCE, || {
        let statuses = release.statuses();
        let succeeded = statuses.iter().map(|text| metric(text, "lantern_index_builds_total{outcome=\"succeeded\"}"));
        Ok((succeeded.sum::<f64>() == 8.0).then_some(statuses))
    })
    .unwrap();
    let sum = |name| statuses.iter().map(|text| metric(text, name)).sum::<f64>();
    let (seconds, starts) =
        (sum("lantern_index_builder_start_seconds_sum"), sum("lantern_index_builder_start_seconds_count"));
    println!("{starts} pods were started, ready after {:.2} s in the mean", seconds / starts);
    assert!(starts >= 1.0);
    scene.wait_for_pods(0);
}

/// The value of a metric with a single line.
fn metric(text: &str, name: &str) -> f64 {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    value.unwrap_or_else(|| panic!("no {name} in\n{text}"))
}

/// Evicts a pod, as `kubectl drain` does; an error if eviction is refused.
fn evict(scene: &Scene, pod: &str) -> Result<String, String> {
    let name = pod.trim_start_matches("pod/");
    let eviction = json!({
        "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": name, "namespace": scene.namespace },
        // A dry run: only checks whether eviction would be allowed.
        "deleteOptions": { "dryRun": ["All"] },
    });
    let path = format!("/api/v1/namespaces/{}/pods/{name}/eviction", scene.namespace);
    let said = KUBERNETES.read().unwrap().create_raw(&path, &eviction.to_string());
    said.map_err(|error| error.to_string())
}

#[test]
#[ignore = "needs Go, and minutes to build Kubernetes once: `cargo xtask test kubernetes`"]
fn an_upgrade_and_a_rollback_leave_a_build_alone() {
    let scene = Scene::new("chart-upgrade");
    let mut session = scene.another_session();
    let mut inspector = scene.another_session();
    let release = Release::install(&scene, &[]);
    let certificate = trust(&scene);
    let before = release.routers();
    let router: SocketAddr = format!("{}:8998", before[0].1).parse().unwrap();
    let proxy = Proxy::start(router).unwrap();
    proxy.stop_after(Direction::ToBuilder, 200 << 10);
    attach(&mut session, "127.0.0.1", proxy.port(), &certificate);
    let building = thread::spawn(move || {
        session.execute("CREATE INDEX items_idx ON items USING hnsw (v vector_l2_ops) WITH (external = true)")
    });
    proxy.wait_until_stopped(Direction::ToBuilder).unwrap();
    assert_eq!(scene.pods().len(), 1);
    wait_for("the build to keep its pod", PATIENCE, || {
        Ok(evict(&scene, &scene.pods()[0]).err().filter(|error| error.contains("disruption budget")))
    })
    .unwrap();

    // Existing Secrets stay, and so do routers whose settings have not changed.
    release.say("upgrade", &[]);
    assert_eq!(release.routers(), before);
    release.say("upgrade", &["--set", "router.logLevel=debug"]);
    let after = release.replaced(&before);
    release.helm(&["rollback", "lantern", "2", "--wait", LIMIT]);
    let back = release.replaced(&after);
    assert!(!building.is_finished(), "the build is in the middle of its rows");
    // A new router works beside it, with a router of the last release.
    let mut other = scene.another_session();
    attach(&mut other, &back[0].1, 8998, &certificate);
    other.execute("CREATE TABLE other AS SELECT * FROM items LIMIT 500; CREATE INDEX other_idx ON other USING hnsw (v vector_l2_ops) WITH (external = true)").unwrap();
    inspect(&POSTGRES, &mut other, "other_idx").unwrap();

    proxy.reset();
    building.join().unwrap().unwrap();
    inspect(&POSTGRES, &mut inspector, "items_idx").unwrap();
    wait_for("the old router's end", PATIENCE, || {
        let gone = scene.kubectl(&["get", "pods", "--ignore-not-found", "-o", "name", &before[0].0]).is_empty();
        Ok(gone.then_some(()))
    })
    .unwrap();
    scene.wait_for_pods(0);
    release.helm(&["uninstall", "lantern", "--wait", LIMIT]);
}

#[test]
#[ignore = "needs Go, and minutes to build Kubernetes once: `cargo xtask test kubernetes`"]
fn a_changed_secret_replaces_routers_and_builders() {
    let scene = Scene::new("chart-secrets");
    scene.kubectl(&["create", "secret", "generic", "tokens", "--from-literal=tokens=the-first-of-the-tokens"]);
    let key = |digit: &str| format!("--from-literal=key={}", digit.repeat(64));
    scene.kubectl(&["create", "secret", "generic", "mine", &key("1")]);
    issue(&scene, "issued", "lantern-router.chart-secrets.svc");
    let secrets = "router.allowAnonymous=false,tokens.secretName=tokens,ticket.secretName=mine,tls.secretName=issued,\
                   router.minBuilders=1,router.idleTtl=1m";
    let release = Release::install(&scene, &["--set", secrets]);
    let made = scene.kubectl(&["get", "secrets", "-l", "app.kubernetes.io/name=lantern-index", "-o", "name"]);
    assert_eq!(made, "", "all Secrets are there already");
    scene.wait_for_pods(1);
    let (before, builder) = (release.routers(), uids(&scene));

    for (name, change) in [("tokens", "--from-literal=tokens=another-of-the-tokens"), ("mine", &key("2"))] {
        let routers = release.routers();
        scene.kubectl(&["delete", "secret", name]);
        scene.kubectl(&["create", "secret", "generic", name, change]);
        release.say("upgrade", &["--set", secrets]);
        release.replaced(&routers);
    }
    let routers = release.replaced(&before);
    wait_for("a builder with the new key", PATIENCE, || {
        Ok((scene.pods().len() == 1 && uids(&scene) != builder).then_some(()))
    })
    .unwrap();
    // The router verifies builders by the authority of their certificates.
    let mut session = scene.another_session();
    let authority =
        scene.kubectl(&["get", "secret", "issued", "-o", "go-template={{index .data \"ca.crt\" | base64decode}}"]);
    let authority = scene.file("authority.pem", &authority);
    attach(&mut session, &routers[0].1, 8998, &authority);
    session.execute("SET hnsw.external_index_token = 'another-of-the-tokens'").unwrap();
    session.execute(CREATE).unwrap();
    inspect(&POSTGRES, &mut session, "items_idx").unwrap();
}

#[test]
#[ignore = "needs Go, and minutes to build Kubernetes once: `cargo xtask test kubernetes`"]
fn a_secret_that_cert_manager_left_is_not_taken_over() {
    let scene = Scene::new("chart-left");
    issue(&scene, "lantern-router-tls", "lantern-router.chart-left.svc");
    let chart = root().join("deploy/helm/lantern-index").display().to_string();
    let settings = "--set=router.allowAnonymous=true";
    let install = ["--namespace", &scene.namespace, "install", "lantern", &chart, "--dry-run=server", settings];
    let error = KUBERNETES.read().unwrap().helm(&install).unwrap_err().to_string();
    assert!(error.contains("lantern-router-tls") && error.contains("tls.secretName"), "{error}");
    scene.kubectl(&["delete", "secret", "lantern-router-tls"]);
    KUBERNETES.read().unwrap().helm(&install).unwrap();
}

/// The uids of all builders' pods.
fn uids(scene: &Scene) -> String {
    scene.kubectl(&["get", "pods", "-l", "lantern-index/instance", "-o", "jsonpath={.items[*].metadata.uid}"])
}

/// Makes a Secret like cert-manager's: a certificate for `host`, its key, and the certificate of the issuer.
fn issue(scene: &Scene, name: &str, host: &str) {
    let (authority, key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let root = params.self_signed(&authority).unwrap();
    let leaf = CertificateParams::new(vec![host.to_owned()]).unwrap();
    let leaf = leaf.signed_by(&key, &Issuer::new(params, &authority)).unwrap();
    scene.apply(&json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name }, "type": "kubernetes.io/tls",
        "stringData": { "ca.crt": root.pem(), "tls.crt": leaf.pem(), "tls.key": key.serialize_pem() },
    }));
}

/// Renders the chart with these arguments, without a cluster.
fn template(further: &[&str]) -> anyhow::Result<String> {
    let chart = root().join("deploy/helm/lantern-index").display().to_string();
    let version = format!("--kube-version={}", kubernetes_release()?);
    KUBERNETES.read().unwrap().helm(&[&["template", "lantern", &chart, &version], further].concat())
}

/// Renders the chart with these settings.
fn render(further: &str) -> anyhow::Result<String> {
    template(&["--set", further])
}

#[test]
#[ignore = "needs Go, and minutes to build Kubernetes once: `cargo xtask test kubernetes`"]
fn nothing_is_made_or_opened_that_nobody_asked_for() {
    let error = |further| render(further).unwrap_err().to_string();
    let unknown = error("router.allowAnonymous=true");
    assert!(unknown.contains("ticket.secretName") && unknown.contains("secrets.generate"), "{unknown}");
    let open = error("secrets.generate=true");
    assert!(open.contains("tokens.secretName") && open.contains("router.allowAnonymous"), "{open}");

    let named = render("tokens.secretName=a,ticket.secretName=b,tls.secretName=c").unwrap();
    assert!(!named.contains("kind: Secret\n") && !named.contains("--allow-anonymous"), "{named}");
    assert_eq!(
        named,
        render("tokens.secretName=a,ticket.secretName=b,tls.secretName=c").unwrap(),
        "the same each time"
    );
    assert!(
        named.contains("--token-file=") && named.contains("--builder-ca=/etc/lantern-index/tls/tls.crt"),
        "{named}"
    );
    let made = render("router.allowAnonymous=true,secrets.generate=true").unwrap();
    assert_eq!(made.matches("kind: Secret\n").count(), 2, "{made}");
    assert!(made.contains("--allow-anonymous"), "{made}");

    let managed = "clientCa.secretName=a,ticket.secretName=b,tls.certManager.enabled=true,\
                   tls.certManager.issuerRef.name=ours,podMonitor.enabled=true,router.maxBuildTime=2h,\
                   router.service.loadBalancerSourceRanges={10.0.0.0/8}";
    let managed = render(managed).unwrap();
    for part in [
        "kind: Certificate\n",
        "    name: ours\n",
        "--builder-ca=/etc/lantern-index/tls/ca.crt",
        "--client-ca=/etc/lantern-index/client-ca/ca.crt",
        "--max-build-time=2h",
        "kind: PodMonitor\n",
        "    - 10.0.0.0/8\n",
    ] {
        assert!(managed.contains(part), "{part} is missing in\n{managed}");
    }
    assert!(!managed.contains("kind: Secret\n") && !managed.contains("--token-file"), "{managed}");
}

#[test]
#[ignore = "needs Go, and minutes to build Kubernetes once: `cargo xtask test kubernetes`"]
fn maintain_runs_only_if_it_is_enabled() {
    let always = "router.allowAnonymous=true,secrets.generate=true";
    assert!(!render(always).unwrap().contains("kind: CronJob\n"));
    let error = render(&format!("{always},maintain.enabled=true")).unwrap_err().to_string();
    assert!(error.contains("maintain.secretName"), "{error}");
    let text = render(&format!(
        "{always},maintain.enabled=true,maintain.secretName=databases,maintain.jobs=2,maintain.args={{--max-lag=5s}},\
         maintain.databases={{dbname=shop}}"
    ))
    .unwrap();
    let job = text.split("---\n").find(|part| part.contains("kind: CronJob\n")).unwrap();
    for part in [
        "concurrencyPolicy: Forbid\n",
        "backoffLimit: 0\n",
        "readOnlyRootFilesystem: true\n",
        "runAsNonRoot: true\n",
        "automountServiceAccountToken: false\n",
        "- secretRef: {name: databases}\n",
    ] {
        assert!(job.contains(part), "{part} is missing in\n{job}");
    }
    // The program accepts these flags.
    let flags = job.split("args:\n").nth(1).unwrap().split("envFrom:").next().unwrap();
    let flags = flags.lines().filter_map(|line| Some(line.trim().strip_prefix("- ")?.trim_matches('"')));
    let mut command = Command::new(binary().unwrap());
    command.args(flags).env("PGHOST", "/nowhere").env("PGUSER", "nobody");
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains("cannot connect to /nowhere:5432/shop"), "{said}");
}

#[test]
#[ignore = "needs Go, and minutes to build Kubernetes once: `cargo xtask test kubernetes`"]
fn builders_have_time_to_tell_their_clients_before_they_are_killed() {
    for seconds in [6, 60] {
        let settings = format!("builder.terminationGracePeriodSeconds={seconds},router.allowAnonymous=true");
        let text = render(&format!("{settings},secrets.generate=true")).unwrap();
        assert!(text.contains(&format!("\"terminationGracePeriodSeconds\": {seconds},")), "{text}");
        assert!(text.contains(&format!("\"--drain-timeout={}s\"", seconds - 5)), "{text}");
    }
}

#[test]
#[ignore = "needs Go, and minutes to build Kubernetes once: `cargo xtask test kubernetes`"]
fn the_chart_is_valid() {
    let scene = Scene::new("chart-valid");
    let chart = root().join("deploy/helm/lantern-index").display().to_string();
    let namespace = ["--namespace", &scene.namespace];
    let always = ["--set", "router.allowAnonymous=true,secrets.generate=true"];
    let redirect = ["--set", "router.mode=redirect,networkPolicy.enabled=false,podDisruptionBudget.enabled=false"];
    let balancer = "router.service.type=LoadBalancer,router.service.loadBalancerSourceRanges={10.0.0.0/8}";
    for further in [&[][..], &redirect, &["--set", balancer]] {
        KUBERNETES.read().unwrap().helm(&[&["lint", "--strict", &chart], further].concat()).unwrap();
        let manifests = template(&[&namespace[..], &always, further].concat()).unwrap();
        let said = KUBERNETES.read().unwrap().check(&scene.namespace, &manifests).unwrap();
        assert!(said.contains("deployment.apps/lantern-router created (server dry run)"), "{said}");
    }
    let maintain = "maintain.enabled=true,maintain.secretName=databases,maintain.timeZone=Etc/UTC,\
                    maintain.activeDeadlineSeconds=14400,maintain.databases={dbname=shop,service=blog}";
    let manifests = template(&[&namespace[..], &always, &["--set", maintain]].concat()).unwrap();
    let said = KUBERNETES.read().unwrap().check(&scene.namespace, &manifests).unwrap();
    for made in ["cronjob.batch/lantern-maintain created", "networkpolicy.networking.k8s.io/lantern-maintain created"] {
        assert!(said.contains(&format!("{made} (server dry run)")), "{said}");
    }
    // Addresses are no names, and builders in pods have the limits of the router.
    let issued = "tls.certManager.enabled=true,tls.certManager.issuerRef.name=issuer,tls.names={203.0.113.7,db.example},\
                  router.maxBuildTime=2h,router.idleTimeout=1h,builder.spoolSize=200Gi,serviceMonitor.enabled=true,\
                  serviceMonitor.labels.release=prometheus";
    let manifests = template(&[&always[..], &["--set", issued]].concat()).unwrap();
    let (_, names) = manifests.split_once("dnsNames:").unwrap();
    let (names, addresses) = names.split_once("ipAddresses:").unwrap();
    assert!(names.contains("- db.example") && !names.contains("203.0.113.7"), "{names}");
    assert!(addresses.trim_start().starts_with("- 203.0.113.7"), "{addresses}");
    let (_, pod) = manifests.split_once("pod.json:").unwrap();
    let (pod, _) = pod.split_once("\n---").unwrap();
    for setting in ["LANTERN_INDEX_MAX_BUILD_TIME", "LANTERN_INDEX_IDLE_TIMEOUT", "--spool-dir=/var/spool", "200Gi"] {
        assert!(pod.contains(setting), "{setting}: {pod}");
    }
    assert!(manifests.contains("release: prometheus"), "{manifests}");
    let sizes = "builder.minMemory=64GB,builder.maxMemory=32GB";
    let error = template(&[&always[..], &["--set", sizes]].concat()).unwrap_err().to_string();
    assert!(error.contains("builder.minMemory is 64GB, more than"), "{error}");
    for (wrong, word) in [
        ("router.maxBuilders=0", "maxBuilders"),
        ("router.maxBuilders=70000", "maxBuilders"),
        ("router.idleTtl=0s", "idleTtl"),
        ("builder.maxMemory=0GB", "maxMemory"),
        ("builder.spoolSize=200GB", "spoolSize"),
        ("maintain.jobs=0", "jobs"),
        ("maintain.window=nightly", "window"),
        ("maintain.every=night", "every"),
    ] {
        let error = KUBERNETES.read().unwrap().helm(&["lint", &chart, "--set", wrong]).unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
    }
}
