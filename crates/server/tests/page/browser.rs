//! Chromium without a window, driven over the WebDriver protocol: JSON over HTTP.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use std::{fs, thread};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

/// A browser with one window; it ends on drop.
pub struct Browser {
    driver: Child,
    address: SocketAddr,
    session: String,
    _profile: tempfile::TempDir,
}

/// Starts chromedriver: its process and port, or `None` if it has ended.
fn driver() -> Option<(Child, u16)> {
    let mut driver = Command::new("chromedriver")
        .arg("--port=0")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap_or_else(|error| panic!("no chromedriver ({error}): `cargo xtask test unit` installs Chromium and it"));
    let mut lines = BufReader::new(driver.stdout.take().unwrap()).lines().map_while(Result::ok);
    let port = lines
        .find_map(|line| line.split_once("started successfully on port ")?.1.trim_end_matches('.').parse::<u16>().ok());
    let Some(port) = port else {
        let _ = driver.wait();
        return None;
    };
    thread::spawn(move || lines.for_each(drop));
    Some((driver, port))
}

impl Browser {
    pub fn start() -> Self {
        // chromedriver takes a free port of IPv4, and ends if that port is taken on IPv6: then try again.
        let (driver, port) = (0..5).find_map(|_| driver()).expect("chromedriver says its port");
        let profile = tempfile::tempdir().unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let mut browser = Self { driver, address, session: String::new(), _profile: profile };
        let profile = browser._profile.path().display().to_string();
        // The sandbox needs namespaces, which containers and root lack; /dev/shm is small in containers.
        let arguments = [
            "--headless=new",
            "--no-sandbox",
            "--disable-dev-shm-usage",
            "--disable-gpu",
            "--no-first-run",
            "--disable-background-networking",
            &format!("--user-data-dir={profile}"),
        ];
        let capabilities = json!({ "alwaysMatch": {
            "browserName": "chrome",
            "goog:chromeOptions": { "args": arguments },
            "goog:loggingPrefs": { "browser": "ALL" },
        } });
        let session = browser.call("POST", "/session", &json!({ "capabilities": capabilities }));
        browser.session = session["sessionId"].as_str().unwrap().to_owned();
        browser
    }

    /// Opens a page and waits until it is loaded.
    pub fn open(&self, url: &str) {
        self.command("POST", "/url", &json!({ "url": url }));
    }

    /// The value of a JavaScript expression.
    pub fn value(&self, expression: &str) -> Value {
        self.command("POST", "/execute/sync", &json!({ "script": format!("return {expression}"), "args": [] }))
    }

    /// Sets the width of the window, and light or dark colors.
    pub fn show_as(&self, width: u32, scheme: &str) {
        self.devtools(
            "Emulation.setDeviceMetricsOverride",
            &json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false }),
        );
        let feature = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.devtools("Emulation.setEmulatedMedia", &json!({ "features": feature }));
    }

    /// Saves a screenshot as PNG.
    pub fn keep_picture(&self, path: &Path) {
        let picture = self.command("GET", "/screenshot", &Value::Null);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, STANDARD.decode(picture.as_str().unwrap()).unwrap()).unwrap();
    }

    /// Errors of the page, and violations of its content security policy.
    pub fn complaints(&self) -> Vec<String> {
        let log = self.command("POST", "/se/log", &json!({ "type": "browser" }));
        log.as_array().unwrap().iter().map(|entry| entry["message"].as_str().unwrap().to_owned()).collect()
    }

    fn devtools(&self, name: &str, parameters: &Value) {
        self.command("POST", "/goog/cdp/execute", &json!({ "cmd": name, "params": parameters }));
    }

    fn command(&self, method: &str, path: &str, body: &Value) -> Value {
        self.call(method, &format!("/session/{}{path}", self.session), body)
    }

    fn call(&self, method: &str, path: &str, body: &Value) -> Value {
        let (code, answer) = self.request(method, path, body).unwrap();
        assert_eq!(code, 200, "{method} {path}: {answer}");
        answer["value"].clone()
    }

    fn request(&self, method: &str, path: &str, body: &Value) -> std::io::Result<(u16, Value)> {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let mut stream = TcpStream::connect(self.address)?;
        // The first start of Chromium may take long on a busy machine.
        stream.set_read_timeout(Some(Duration::from_secs(180)))?;
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        )?;
        let mut reader = BufReader::new(stream);
        let (mut line, mut length) = (String::new(), 0);
        reader.read_line(&mut line)?;
        let code = line.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
        while line.trim() != "" {
            line.clear();
            reader.read_line(&mut line)?;
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap_or(0);
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        Ok((code, serde_json::from_slice(&body).unwrap_or(Value::Null)))
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Ends Chromium, which would survive the end of chromedriver.
        let _ = self.request("DELETE", &format!("/session/{}", self.session), &Value::Null);
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}
