//! The page in headless Chromium, driven by ChromeDriver over its HTTP interface (WebDriver).

use super::http::{http_address, send};
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use testkit::harness::{SOON, Setup, needs, poll, text};

const VIEWS: [&str; 8] =
    ["race", "destinations", "messages", "stragglers", "quarantine", "explain", "configuration", "storm"];

/// ChromeDriver with one browser. Both end when this is dropped.
struct Browser {
    driver: Child,
    address: SocketAddr,
    session: String,
    /// Its output, which has to have a reader.
    _stdout: BufReader<ChildStdout>,
    _profile: tempfile::TempDir,
}

impl Browser {
    /// Starts a browser; `None` where it is not installed.
    fn start() -> Option<Self> {
        let (driver, chromium) = (needs::program("chromedriver")?, needs::program("chromium")?);
        // It ends at once when another program takes the port that it has chosen.
        let (driver, stdout, port) = (0..3).find_map(|_| Self::start_driver(&driver)).expect("a port");
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let profile = tempfile::tempdir().expect("a directory");
        let mut browser = Self { driver, address, session: String::new(), _stdout: stdout, _profile: profile };
        browser.open_session(&chromium);
        Some(browser)
    }

    /// Starts the driver; `None` when it ends without a port.
    fn start_driver(program: &Path) -> Option<(Child, BufReader<ChildStdout>, u16)> {
        let mut driver = Command::new(program).arg("--port=0").stdout(Stdio::piped()).spawn().expect("it starts");
        let mut stdout = BufReader::new(driver.stdout.take().expect("piped"));
        let port = stdout.by_ref().lines().map_while(Result::ok).find_map(|line| {
            line.split("on port ").nth(1)?.trim_end_matches('.').parse::<u16>().ok().filter(|port| *port > 0)
        });
        match port {
            Some(port) => Some((driver, stdout, port)),
            None => {
                driver.wait().expect("it has ended");
                None
            }
        }
    }

    fn open_session(&mut self, chromium: &Path) {
        let profile = format!("--user-data-dir={}", self._profile.path().display());
        let arguments = json!([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            // Several browsers have more than the shared memory of a container.
            "--disable-dev-shm-usage",
            "--disable-component-update",
            "--disable-sync",
            profile,
        ]);
        let options = json!({ "binary": chromium, "args": arguments });
        let wanted = json!({ "goog:loggingPrefs": { "browser": "ALL" }, "goog:chromeOptions": options });
        let wanted = json!({ "capabilities": { "alwaysMatch": wanted } });
        // On a busy machine the browser may not answer the driver in time.
        let mut tries = (0..2).map(|_| self.answer("POST", "/session", &wanted));
        let opened = tries.find(|one| one.get("error").is_none());
        let opened = opened.unwrap_or_else(|| self.ask("POST", "/session", &wanted));
        self.session = opened["sessionId"].as_str().expect("a session").to_owned();
    }

    /// Sends a command of WebDriver and returns its value.
    #[track_caller]
    fn ask(&self, method: &str, path: &str, body: &Value) -> Value {
        let value = self.answer(method, path, body);
        assert!(value.get("error").is_none(), "{path}: {value}");
        value
    }

    /// Sends a command of WebDriver and returns its value or its error.
    fn answer(&self, method: &str, path: &str, body: &Value) -> Value {
        let path = if path == "/session" { path.to_owned() } else { format!("/session/{}{path}", self.session) };
        let body = if method == "GET" { String::new() } else { body.to_string() };
        let mut stream = TcpStream::connect(self.address).expect("connected");
        // The driver itself waits a minute for its browser.
        stream.set_read_timeout(Some(2 * SOON)).expect("a limit");
        let head = format!("{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n", self.address);
        let head = format!("{head}Content-Type: application/json\r\nContent-Length: {}\r\n\r\n", body.len());
        stream.write_all(format!("{head}{body}").as_bytes()).expect("sent");
        let text = read_body(&mut BufReader::new(stream));
        let mut value: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
        value["value"].take()
    }

    fn cdp(&self, command: &str, parameters: &Value) {
        self.ask("POST", "/goog/cdp/execute", &json!({ "cmd": command, "params": parameters }));
    }

    fn appear(&self, width: u32, scheme: &str) {
        let metrics = json!({ "width": width, "height": 844, "deviceScaleFactor": 1, "mobile": false });
        self.cdp("Emulation.setDeviceMetricsOverride", &metrics);
        let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.cdp("Emulation.setEmulatedMedia", &features);
    }

    fn open(&self, url: &str) {
        // Another hash of the same page would not load it again.
        self.ask("POST", "/url", &json!({ "url": "about:blank" }));
        self.ask("POST", "/url", &json!({ "url": url }));
    }

    /// Runs a function body and returns its result.
    #[track_caller]
    fn run(&self, script: &str) -> Value {
        self.ask("POST", "/execute/sync", &json!({ "script": script, "args": [] }))
    }

    /// Waits until a function body returns true.
    #[track_caller]
    fn wait(&self, script: &str) {
        poll(script, || (self.run(script) == json!(true)).then_some(()));
    }

    /// Runs a function body that calls its last argument with a result.
    #[track_caller]
    fn run_async(&self, script: &str) -> Value {
        self.ask("POST", "/execute/async", &json!({ "script": script, "args": [] }))
    }

    /// Errors and warnings of the console since the last call.
    fn complaints(&self) -> Vec<Value> {
        let lines = self.ask("POST", "/se/log", &json!({ "type": "browser" }));
        let is_bad = |line: &&Value| line["level"] == "SEVERE" || line["level"] == "WARNING";
        lines.as_array().expect("a list").iter().filter(is_bad).cloned().collect()
    }
}

/// Reads an answer of ChromeDriver, which does not close the connection behind it.
fn read_body(stream: &mut BufReader<TcpStream>) -> String {
    let mut length = 0;
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).expect("read");
        let field = line.trim_end().to_ascii_lowercase();
        match field.strip_prefix("content-length:") {
            Some(number) => length = number.trim().parse().expect("a number"),
            None if field.is_empty() => break,
            None => {}
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).expect("read");
    String::from_utf8(body).expect("UTF-8")
}

impl Drop for Browser {
    fn drop(&mut self) {
        // It ends its browser.
        if !self.session.is_empty() && !std::thread::panicking() {
            self.ask("DELETE", "", &json!({}));
        }
        drop(self.driver.kill());
        drop(self.driver.wait());
    }
}

fn setup() -> Setup {
    Setup::new().set("http.address", "\"127.0.0.1:0\"").set("http.without_token", "\"operate\"")
}

#[test]
fn every_view_opens_wide_and_narrow_light_and_dark() {
    let Some(browser) = Browser::start() else { return };
    let server = setup().start();
    let base = format!("http://{}/", http_address(&server));
    send(&server, "ann@client.test", &["bob@example.com", "carol@example.net"]);
    for (width, scheme) in [(1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")] {
        browser.appear(width, scheme);
        for view in VIEWS {
            browser.open(&format!("{base}#{view}"));
            browser.wait("return document.querySelector('main h1') !== null");
            browser.wait("return document.getElementById('state').textContent === 'live'");
            // Tables are there, and nothing is wider than the window.
            let is_loaded = match view {
                "race" => "return document.querySelectorAll('main canvas').length === 2",
                "explain" => "return document.querySelectorAll('main input').length === 3",
                _ => "return document.querySelector('main table, main .empty') !== null",
            };
            browser.wait(is_loaded);
            let over = browser.run("return document.documentElement.scrollWidth - innerWidth");
            assert!(over.as_i64().is_some_and(|over| over <= 0), "{view} at {width}: {over} too wide");
            let error = browser.run("const e = document.querySelector('main .error'); return e && e.textContent");
            assert_eq!(error, Value::Null, "{view}");
            assert_eq!(browser.complaints(), Vec::<Value>::new(), "{view} at {width}, {scheme}");
        }
    }
    // Negative control: an error of a script is a complaint.
    browser.run("setTimeout(() => { throw new Error('deliberate') })");
    poll("the console has no error", || (!browser.complaints().is_empty()).then_some(()));
}

/// The rules of axe-core, whose licence (MPL-2.0) keeps them out of this tree: a file that .ci/setup fetches from npm.
fn accessibility_rules() -> Option<String> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(std::path::PathBuf::from);
    let target = target.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target"));
    let path = target.join("axe/node_modules/axe-core/axe.min.js");
    match std::fs::read_to_string(&path) {
        Ok(rules) => Some(rules),
        Err(error) => {
            needs::skip("axe-core", &format!("is not at {}: {error}", path.display()));
            None
        }
    }
}

#[test]
fn no_view_has_a_serious_fault_of_accessibility() {
    let (Some(rules), Some(browser)) = (accessibility_rules(), Browser::start()) else { return };
    let server = setup().start();
    let base = format!("http://{}/", http_address(&server));
    send(&server, "ann@client.test", &["bob@example.com", "carol@example.net"]);
    // Faults as `rule: places`, those that keep somebody from using the page.
    let find = "const done = arguments[arguments.length - 1]; axe.run(document, { resultTypes: ['violations'] }).then((found) => done(\
        found.violations.filter((one) => ['serious', 'critical'].includes(one.impact)).map((one) => one.id + ': ' + \
        one.nodes.slice(0, 3).map((node) => node.target.join(' ') + ' ' + node.failureSummary).join('; '))), (error) => done([String(error)]))";
    for scheme in ["light", "dark"] {
        browser.appear(1280, scheme);
        for view in VIEWS {
            browser.open(&format!("{base}#{view}"));
            browser.wait("return document.querySelector('main h1') !== null");
            browser.wait("return document.getElementById('state').textContent === 'live'");
            browser.run(&rules);
            assert_eq!(browser.run_async(find), json!([]), "{view}, {scheme}");
        }
        // One message in full.
        browser.open(&format!("{base}#messages"));
        browser.wait("return document.querySelectorAll('main tbody tr').length === 1");
        browser.run("document.querySelector('main td button').click()");
        browser.wait("return document.getElementById('dialog').open");
        browser.run(&rules);
        assert_eq!(browser.run_async(find), json!([]), "a message, {scheme}");
    }
    // Negative control: a picture without words is found.
    browser.run("document.getElementById('dialog').append(new Image())");
    assert_ne!(browser.run_async(find), json!([]));
}

#[test]
fn past_mail_is_found_and_shown_as_a_time_line() {
    let Some(browser) = Browser::start() else { return };
    let setup = setup();
    let path = setup.path("history.sqlite");
    let server = setup.set("history.path", format!("{path:?}")).start();
    let base = format!("http://{}/", http_address(&server));
    let hostile = "\"<img/src=x/onerror=window.hacked=1>\"@evil.test";
    let id = send(&server, hostile, &["bob@example.com"]);
    assert!(server.control(&["queue", "delete", &id], b"").status.success());
    // The page searches once, and a search waits for the writer of the history for two seconds at most.
    poll("the end is never in the history", || {
        text(&server.control(&["history", "status:deleted"], b"")).contains(&id).then_some(())
    });
    browser.appear(1280, "light");
    browser.open(&format!("{base}#messages?past&expression=status%3Adeleted"));
    browser.wait("return document.querySelectorAll('main tbody tr').length === 1");
    let text = browser.run("return document.querySelector('main tbody').textContent");
    assert!(text.as_str().is_some_and(|text| text.contains("<img/src=x") && text.contains("deleted")), "{text}");
    browser.run("document.querySelector('main td button').click()");
    browser.wait("return document.querySelectorAll('dialog .timeline li').length === 1");
    // A link to a message that is not in the queue any more leads to its way.
    browser.open(&format!("{base}#messages?id={id}"));
    browser.wait("return document.querySelectorAll('dialog .timeline li').length === 1");
    browser.appear(390, "dark");
    let over = browser.run("return document.documentElement.scrollWidth - innerWidth");
    assert!(over.as_i64().is_some_and(|over| over <= 0), "{over} too wide");
    assert_eq!(browser.run("return window.hacked === undefined"), json!(true));
    // The queue has answered 404 for it, which the console tells.
    let complaints = browser.complaints();
    assert!(complaints.iter().all(|one| one.to_string().contains("404")), "{complaints:?}");
}

#[test]
fn mail_is_found_held_and_explained_and_hostile_text_stays_text() {
    let Some(browser) = Browser::start() else { return };
    let server = setup().start();
    let base = format!("http://{}/", http_address(&server));
    let hostile = "\"<img/src=x/onerror=window.hacked=1>\"@evil.test";
    send(&server, hostile, &["\"<script>window.hacked=1</script>\"@example.com"]);
    send(&server, "ann@client.test", &["carol@example.net"]);
    browser.appear(1280, "light");
    browser.open(&format!("{base}#messages"));
    browser.wait("return document.querySelectorAll('main tbody tr').length === 2");
    let text = browser.run("return document.querySelector('main tbody').textContent");
    assert!(text.as_str().is_some_and(|text| text.contains("<img/src=x") && text.contains("<script>")), "{text}");
    // The header section has a subject of the same kind.
    browser.run("document.querySelector('main td button').click()");
    browser.wait("return document.getElementById('dialog').open");
    browser
        .run("[...document.querySelectorAll('dialog button')].find((b) => b.textContent === 'Header section').click()");
    browser.wait(
        "return document.querySelector('dialog pre')?.textContent.includes('<script>alert(1)</script>') === true",
    );
    browser.run("document.getElementById('dialog').close()");
    assert_eq!(browser.run("return window.hacked === undefined && document.images.length === 1"), json!(true));
    // Hold the mail to one domain: the number is asked for, then it is held.
    let search = "const s = document.querySelector('main input[type=search]'); s.value = 'to:@example.net'; s.form.requestSubmit()";
    browser.run(search);
    browser.wait("return document.querySelectorAll('main tbody tr').length === 1");
    browser.run("[...document.querySelectorAll('.selection button')].find((b) => b.textContent === 'Hold').click()");
    browser.wait("return document.getElementById('dialog').open && document.querySelector('dialog strong').textContent === '1 message with 1 recipient'");
    browser.run("document.getElementById('field-reason').value = 'a look'; document.querySelector('dialog form').requestSubmit()");
    browser.wait("return !document.getElementById('dialog').open");
    assert_eq!(server.whole_status()["queue"]["held"], 1);
    browser.wait("return document.querySelector('main tbody').textContent.includes('http: a look')");
    // A suspension and a limit of a destination, seen and ended.
    browser.open(&format!("{base}#destinations"));
    browser.wait("return [...document.querySelectorAll('main button')].some((b) => b.textContent === 'Suspend')");
    browser.run("[...document.querySelectorAll('main button')].find((b) => b.textContent === 'Suspend').click()");
    browser.wait("return document.getElementById('dialog').open && document.getElementById('field-for') !== null");
    browser.run("document.getElementById('field-reason').value = 'they move'; document.getElementById('field-for').value = '2h'; document.querySelector('dialog form').requestSubmit()");
    browser.wait("return !document.getElementById('dialog').open && document.querySelector('main').textContent.includes('suspension-1')");
    browser.run("[...document.querySelectorAll('main button')].find((b) => b.textContent === 'Limit').click()");
    browser.wait("return document.getElementById('limit-connections') !== null");
    browser.run("document.getElementById('limit-connections').value = '2'; document.querySelector('dialog form').requestSubmit()");
    browser.wait("return !document.getElementById('dialog').open");
    browser.run("[...document.querySelectorAll('main button')].find((b) => b.textContent === 'Connections').click()");
    browser.wait("return document.querySelector('dialog .empty')?.textContent === 'No connection is open.'");
    browser.run("document.getElementById('dialog').close()");
    browser.run("[...document.querySelectorAll('main button')].find((b) => b.textContent === 'Resume').click()");
    browser.wait("return !document.querySelector('main').textContent.includes('suspension-1')");
    browser.open(&format!("{base}#explain?to=carol%40example.net"));
    browser.wait("return document.querySelector('main tbody')?.textContent.includes('example.net') === true");
    assert_eq!(browser.complaints(), Vec::<Value>::new());
}
