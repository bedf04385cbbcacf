//! A real browser that shows a page to a test: Debian's Chromium without a window, controlled by
//! the DevTools protocol on a pair of pipes.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use base64ct::{Base64, Encoding};
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};
use tempfile::TempDir;

/// The longest wait for a page: one that shows nothing by then has failed, however busy the
/// machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// The programs to try, in order.
const PROGRAMS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

/// A port of this machine that was free a moment ago.
///
/// # Panics
/// If no port is free.
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port is free").port()
}

/// A browser with one page. Dropping it closes the browser.
#[derive(Debug)]
pub struct Browser {
    child: Child,
    asks: ChildStdin,
    answers: BufReader<ChildStdout>,
    last_id: u64,
    session: Option<String>,
    faults: Vec<String>,
    _profile: TempDir,
}

impl Browser {
    /// Opens a page; `None` if no such browser is installed.
    pub fn open(url: &str) -> Option<Browser> {
        let program = PROGRAMS.into_iter().find(|program| Command::new(program).arg("--version").output().is_ok())?;
        let profile = tempfile::tempdir().expect("a folder for the browser's profile");
        // The browser reads commands from descriptor 3, and answers at 4.
        let mut command = Command::new("sh");
        command
            .args([
                "-c",
                "exec \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1",
                "sh",
                program,
                "--headless=new",
                "--no-sandbox",
            ])
            .args([
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--hide-scrollbars",
                "--remote-debugging-pipe",
                "--no-first-run",
            ])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg("about:blank");
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0).spawn().expect("sh starts");
        let (asks, answers) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        let answers = BufReader::new(answers);
        let mut browser =
            Browser { child, asks, answers, last_id: 0, session: None, faults: Vec::new(), _profile: profile };
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" }))["targetId"].clone();
        let attached = browser.call("Target.attachToTarget", json!({ "targetId": target, "flatten": true }));
        browser.session = attached["sessionId"].as_str().map(str::to_owned);
        browser.call("Runtime.enable", json!({}));
        browser.call("Log.enable", json!({}));
        browser.call("Page.navigate", json!({ "url": url }));
        Some(browser)
    }

    /// Opens the page of a run that serves its metrics at `port` of this machine, once the port
    /// listens, and waits for its figures.
    pub fn of_run(port: u16) -> Option<Browser> {
        let deadline = Instant::now() + PATIENCE;
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(Instant::now() < deadline, "nobody listens at port {port}");
            std::thread::sleep(Duration::from_millis(20));
        }
        let mut browser = Browser::open(&format!("http://127.0.0.1:{port}/"))?;
        browser.wait_for("document.querySelectorAll('#lcores .bar').length > 0");
        Some(browser)
    }

    /// Calls a method of the protocol.
    ///
    /// # Panics
    /// If the browser refuses the call, or is gone.
    pub fn call(&mut self, method: &str, params: Value) -> Value {
        self.last_id += 1;
        let mut ask = json!({ "id": self.last_id, "method": method, "params": params });
        if let Some(session) = &self.session {
            ask["sessionId"] = session.as_str().into();
        }
        self.asks.write_all(format!("{ask}\0").as_bytes()).expect("the browser listens");
        loop {
            let mut line = Vec::new();
            self.answers.read_until(0, &mut line).expect("the browser answers");
            assert_eq!(line.pop(), Some(0), "the browser has ended at {method}");
            let mut answer: Value = serde_json::from_slice(&line).expect("an answer is JSON");
            if answer["id"] == self.last_id {
                assert!(answer["error"].is_null(), "{method}: {answer}");
                return answer["result"].take();
            }
            match answer["method"].as_str() {
                Some("Runtime.exceptionThrown") => self.faults.push(answer["params"]["exceptionDetails"].to_string()),
                Some("Log.entryAdded") if answer["params"]["entry"]["level"] == "error" => {
                    self.faults.push(answer["params"]["entry"].to_string());
                }
                _ => {}
            }
        }
    }

    /// The value of an expression of the page's script.
    pub fn value(&mut self, expression: &str) -> Value {
        self.call("Runtime.evaluate", json!({ "expression": expression, "returnByValue": true }))["result"]["value"]
            .take()
    }

    /// Waits until an expression of the page's script is true.
    ///
    /// # Panics
    /// If it stays false for a long time.
    pub fn wait_for(&mut self, expression: &str) {
        let deadline = Instant::now() + PATIENCE;
        while self.value(expression) != true {
            assert!(Instant::now() < deadline, "not so: {expression}; {:?}", self.faults);
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Presses a key, by its name in JavaScript.
    pub fn press(&mut self, key: &str) {
        let text = if key.len() == 1 { key } else { "" };
        self.call("Input.dispatchKeyEvent", json!({ "type": "keyDown", "key": key, "text": text }));
        self.call("Input.dispatchKeyEvent", json!({ "type": "keyUp", "key": key }));
    }

    /// Sets the size of the page's window, in CSS pixels.
    pub fn resize(&mut self, width: u32, height: u32) {
        let metrics = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500 });
        self.call("Emulation.setDeviceMetricsOverride", metrics);
    }

    /// Sets the user's choice between a light and a dark screen.
    pub fn set_dark(&mut self, is_dark: bool) {
        let value = if is_dark { "dark" } else { "light" };
        let features = json!([{ "name": "prefers-color-scheme", "value": value }]);
        self.call("Emulation.setEmulatedMedia", json!({ "features": features }));
    }

    /// A screenshot of the page, as PNG.
    pub fn picture(&mut self) -> Vec<u8> {
        let picture = self.call("Page.captureScreenshot", json!({ "format": "png" }));
        Base64::decode_vec(picture["data"].as_str().expect("a picture")).expect("it is base64")
    }

    /// Errors of the page's script or its loading so far.
    pub fn faults(&self) -> &[String] {
        &self.faults
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The browser may be gone already.
        let _ = Pid::from_raw(self.child.id().cast_signed()).map(|group| kill_process_group(group, Signal::KILL));
        let _ = self.child.wait();
    }
}
