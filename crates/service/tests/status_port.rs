//! The status port on a busy machine: browsers, programs and unauthenticated clients.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lantern_index_service::report::Subject;
use lantern_index_service::{Activity, Readiness, Refusal, Role, StatusServer};

fn activity() -> Arc<Activity> {
    Arc::new(Activity::new(Role::Builder, "0.1.0", false).unwrap())
}

fn server() -> StatusServer {
    let activity = activity();
    activity.set_readiness(Readiness::Ready);
    StatusServer::start("127.0.0.1", 0, activity).unwrap()
}

fn get(address: SocketAddr, path: &str, accept: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nAccept: {accept}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn endpoints_answer_over_http() {
    let activity = activity();
    let server = StatusServer::start("127.0.0.1", 0, activity.clone()).unwrap();
    let at = server.local_addr();
    let get = |path| get(at, path, "*/*");
    assert!(get("/healthz").starts_with("HTTP/1.1 200"));
    assert!(get("/readyz").starts_with("HTTP/1.1 503"));
    activity.set_readiness(Readiness::Ready);
    assert!(get("/readyz").starts_with("HTTP/1.1 200"));
    activity.queue(Subject::default()).refuse(Refusal::Options, "no".to_owned());
    assert!(get("/metrics").contains("lantern_index_builds_total{outcome=\"refused\"} 1"));
    assert!(get("/status").contains("\"outcome\":\"refused\""));
    // The page has the time of its state, in milliseconds since 1970.
    assert!(get("/").contains("status_updated_at\":1"));
    assert!(get("/else").starts_with("HTTP/1.1 404"));
    drop(server);
    assert!(TcpStream::connect(at).is_err());
}

#[test]
fn the_error_for_a_port_in_use_names_the_address() {
    let server = server();
    let port = server.local_addr().port();
    let error = StatusServer::start("127.0.0.1", port, activity()).unwrap_err().to_string();
    assert!(error.contains(&format!("127.0.0.1:{port}")), "{error}");
}

#[test]
fn browsers_get_a_page_that_loads_nothing_from_elsewhere() {
    let server = server();
    let at = server.local_addr();
    let page = get(at, "/", "text/html,application/xhtml+xml,*/*;q=0.8");
    let head = page.split("\r\n\r\n").next().unwrap().to_ascii_lowercase();
    for line in ["content-type: text/html", "default-src 'none'", "frame-ancestors 'none'", "nosniff", "vary: accept"] {
        assert!(head.contains(line), "{line} is missing in {head}");
    }
    let files = ["page.css", "page.js", "page.svg"].map(|file| get(at, &format!("/{file}"), "*/*"));
    for text in files.iter().chain([&page]) {
        assert!(text.starts_with("HTTP/1.1 200"));
        let elsewhere = text.replace("http://www.w3.org/2000/svg", "");
        assert!(!elsewhere.contains("http://") && !elsewhere.contains("https://"), "{text}");
        assert!(!text.contains("innerHTML"), "texts of clients stay texts");
    }
    let mut attributes =
        page.split(" on").skip(1).map(|rest| rest.trim_start_matches(|c: char| c.is_ascii_lowercase()));
    assert!(attributes.all(|rest| !rest.starts_with('=')), "no handlers in the markup");
}

#[test]
fn programs_get_json() {
    let server = server();
    for accept in ["*/*", "application/json"] {
        let answer = get(server.local_addr(), "/", accept);
        assert!(answer.to_ascii_lowercase().contains("content-type: application/json"), "{answer}");
        assert!(answer.contains("{\"status\":0,\"status_updated_at\":"), "{answer}");
    }
    let status = get(server.local_addr(), "/status", "*/*");
    assert!(
        status.contains("{\"version\":1,\"role\":\"builder\",\"software\":\"0.1.0\",\"readiness\":\"ready\""),
        "{status}"
    );
}

#[test]
fn answers_come_while_all_cores_are_busy() {
    let server = server();
    let stop = Arc::new(AtomicBool::new(false));
    let cores = thread::available_parallelism().map_or(2, usize::from);
    let busy: Vec<_> = (0..2 * cores)
        .map(|_| {
            let stop = stop.clone();
            thread::spawn(move || while !stop.load(Ordering::Relaxed) {})
        })
        .collect();
    for _ in 0..50 {
        assert!(get(server.local_addr(), "/status", "*/*").starts_with("HTTP/1.1 200"));
    }
    stop.store(true, Ordering::Relaxed);
    busy.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn held_connections_do_not_exhaust_the_status_port() {
    let server = server();
    // At most as many as are accepted, plus the system's queue of 128.
    let held: Vec<TcpStream> = (0..150).map(|_| TcpStream::connect(server.local_addr()).unwrap()).collect();
    let sockets = || {
        let files = std::fs::read_dir("/proc/self/fd").unwrap();
        files
            .flatten()
            .filter_map(|file| std::fs::read_link(file.path()).ok())
            .filter(|to| to.to_string_lossy().starts_with("socket:"))
            .count()
    };
    // This connection is the last in the system's queue: its answer shows that the others have been accepted.
    assert!(get(server.local_addr(), "/healthz", "*/*").ends_with("ok\n"), "they keep nobody out");
    let end = Instant::now() + Duration::from_secs(30);
    while sockets() >= held.len() + 80 {
        assert!(Instant::now() < end, "{} sockets, {} of them ours", sockets(), held.len());
        thread::sleep(Duration::from_millis(50));
    }
    drop(held);
    assert!(get(server.local_addr(), "/healthz", "*/*").ends_with("ok\n"));
}
