//! Runs one test program to its end: each test's time, and the tests that hung.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::build::{Built, Error};

/// The limits of every program.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    /// The longest time of one test.
    pub test: Duration,
    /// The CPUs that tests may use.
    pub cpus: Vec<usize>,
    /// Becomes true when everything is to end.
    pub interrupted: Arc<AtomicBool>,
}

/// Lines of `CRATE TARGET NAME: why it is left to --all`.
const LONG: &str = include_str!("../long-tests");

/// The long tests, which only `--all` runs, each with its reason.
pub(crate) fn long() -> impl Iterator<Item = (&'static str, &'static str)> {
    LONG.lines().filter_map(|line| line.split_once(": "))
}

/// Whether a test runs only with `--all`.
pub(crate) fn is_long(program: &Built, test: &str) -> bool {
    let name = format!("{} {test}", program.title());
    long().any(|(long, _)| long == name)
}

/// Lines of `CRATE TARGET NAME: why it takes more than five seconds`.
const SLOW: &str = include_str!("../slow-tests");

/// Why a test is slow, if there is a line that says so.
pub(crate) fn slow(name: &str) -> Option<&'static str> {
    SLOW.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

/// Whether a test waits nearly all of its time, as the reason why it is slow says. It holds no CPU
/// from others.
pub(crate) fn waits(program: &Built, test: &str) -> bool {
    slow(&format!("{} {test}", program.title())).is_some_and(|why| why.starts_with("waits "))
}

/// How a test ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Passed,
    Failed,
    Ignored,
    /// Killed because it took longer than a test may.
    Hung,
    /// Its program ended before it did.
    Died,
}

/// One test, its outcome and its time.
#[derive(Clone, Debug)]
pub(crate) struct Test {
    pub name: String,
    pub verdict: Verdict,
    pub took: Duration,
}

/// A program that has ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub program: Built,
    pub tests: Vec<Test>,
    pub took: Duration,
    /// Its output, as libtest shows it.
    pub said: String,
}

impl Ended {
    /// Adds the results of more tests of the same program.
    pub(crate) fn joined(mut self, mut other: Ended) -> Ended {
        self.tests.append(&mut other.tests);
        self.took += other.took;
        self.said += &other.said;
        self
    }

    pub(crate) fn is_passed(&self) -> bool {
        self.tests.iter().all(|test| matches!(test.verdict, Verdict::Passed | Verdict::Ignored))
    }

    /// The reasons of skipped tests, which print `skipped: why`.
    pub(crate) fn skipped(&self) -> impl Iterator<Item = &str> {
        self.said.lines().filter_map(|line| line.trim_start().strip_prefix("skipped: "))
    }
}

/// The names of a program's tests that contain one of `parts`; all names if `parts` is empty.
pub(crate) fn names(program: &Built, parts: &[String]) -> Result<Vec<String>, Error> {
    let shown = || program.executable.display().to_string();
    let output = command(program).args(["--list", "--format=terse"]).output();
    let output = output.map_err(|error| Error::Start { program: shown(), error })?;
    if !output.status.success() {
        return Err(Error::List { program: shown(), said: String::from_utf8_lossy(&output.stderr).into_owned() });
    }
    let listed = String::from_utf8_lossy(&output.stdout).into_owned();
    let names = listed.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned);
    Ok(names.filter(|name| parts.is_empty() || parts.iter().any(|part| name.contains(part.as_str()))).collect())
}

/// Runs some of a program's tests, one after another. A test that hangs is killed, and the tests
/// behind it run all the same.
pub(crate) fn run(program: Built, mut left: Vec<String>, turns: Turns, limits: &Limits) -> Result<Ended, Error> {
    let begun = Instant::now();
    let (mut tests, mut said) = (Vec::new(), String::new());
    while !left.is_empty() {
        let mut part = Part::start(&program, &left, turns, limits)?;
        part.follow(limits)?;
        let before = left.len();
        left.retain(|name| !part.tests.iter().any(|test| test.name == *name));
        said += &part.said;
        said += &String::from_utf8_lossy(&part.errors.join().unwrap_or_default());
        tests.append(&mut part.tests);
        if left.len() == before {
            // The program died before its first test, so all tests count as died.
            let died = |name: String| Test { name, verdict: Verdict::Died, took: Duration::ZERO };
            tests.extend(std::mem::take(&mut left).into_iter().map(died));
        }
    }
    Ok(Ended { program, tests, took: begun.elapsed(), said })
}

/// Whether the programs that tests start have the CPUs of their test to themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turns {
    Taken,
    None,
}

/// The command with which cargo runs a test program.
fn command(program: &Built) -> Command {
    let mut command = Command::new(&program.executable);
    command.current_dir(&program.folder).env("CARGO_MANIFEST_DIR", &program.folder);
    command.env("CARGO_PKG_NAME", &program.package).env_remove("RUST_TEST_THREADS").stdin(Stdio::null());
    command
}

/// One process of a program, with the tests that are left.
struct Part {
    child: Child,
    output: Receiver<Vec<u8>>,
    /// Standard error of the program and of the tests' children.
    errors: JoinHandle<Vec<u8>>,
    said: String,
    /// Start of the unfinished line in `said`.
    line: usize,
    /// The running test.
    running: Option<String>,
    /// Start of the running test.
    since: Instant,
    tests: Vec<Test>,
}

impl Part {
    fn start(program: &Built, tests: &[String], turns: Turns, limits: &Limits) -> Result<Part, Error> {
        let failed = |error| Error::Start { program: program.executable.display().to_string(), error };
        let mut command = command(program);
        // Programs that pin no lcore are started on all CPUs, wherever their test is.
        let cpus: Vec<String> = limits.cpus.iter().map(usize::to_string).collect();
        command.env("VERBLINE_TEST_CPUS", cpus.join(","));
        if turns == Turns::None {
            command.env("VERBLINE_TEST_WAITS", "1");
        }
        command.args(["--test-threads=1", "--show-output", "--exact"]).args(tests);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        // A process group of its own, so that the program's children end with it.
        let mut child = command.process_group(0).spawn().map_err(failed)?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let (sender, output) = channel();
        std::thread::spawn(move || read(stdout, |bytes| sender.send(bytes.to_vec()).is_ok()));
        let errors = std::thread::spawn(move || {
            let mut all = Vec::new();
            read(stderr, |bytes| {
                all.extend_from_slice(bytes);
                true
            });
            all
        });
        let since = Instant::now();
        Ok(Part { child, output, errors, said: String::new(), line: 0, running: None, since, tests: Vec::new() })
    }

    /// Reads the program's output until it ends, or hangs.
    fn follow(&mut self, limits: &Limits) -> Result<(), Error> {
        let (mut ended, mut was_over) = (false, false);
        while !ended {
            match self.output.recv_timeout(Duration::from_millis(200)) {
                Ok(bytes) => self.take(&bytes),
                // Its last words may still be on their way; a child of it may keep its output open
                // for ever.
                Err(RecvTimeoutError::Timeout) => {
                    ended = was_over;
                    was_over = matches!(self.child.try_wait(), Ok(Some(_)));
                }
                Err(RecvTimeoutError::Disconnected) => ended = true,
            }
            if limits.interrupted.load(Ordering::Relaxed) {
                self.end();
                return Err(Error::Interrupted);
            }
            if self.since.elapsed() > limits.test {
                self.verdict(Verdict::Hung);
                break;
            }
        }
        let has_failed = self.end();
        self.verdict(Verdict::Died);
        // Output of a test's children may look like a test's result; the program's exit status
        // decides.
        let is_good = |test: &Test| matches!(test.verdict, Verdict::Passed | Verdict::Ignored);
        if has_failed && self.tests.iter().all(is_good) {
            let name = "one that its program says has failed".to_owned();
            self.tests.push(Test { name, verdict: Verdict::Failed, took: Duration::ZERO });
        }
        Ok(())
    }

    /// libtest writes `test NAME ... `, runs the test, and then writes how it ended: on the same
    /// line, if the test and its children wrote nothing there.
    fn take(&mut self, bytes: &[u8]) {
        for piece in String::from_utf8_lossy(bytes).split_inclusive('\n') {
            self.said += piece;
            let line = &self.said[self.line..];
            if let Some((name, _)) = line.strip_prefix("test ").and_then(|line| line.split_once(" ... ")) {
                // `test NAME - should panic ... ok`
                self.running = Some(name.split(" - ").next().unwrap_or(name).to_owned());
            }
            if !piece.ends_with('\n') {
                continue;
            }
            match line.trim_end().rsplit(' ').next() {
                Some("ok") => self.verdict(Verdict::Passed),
                Some("FAILED") => self.verdict(Verdict::Failed),
                Some("ignored") => self.verdict(Verdict::Ignored),
                _ => {}
            }
            self.line = self.said.len();
        }
    }

    /// Notes the outcome of the running test, if there is one.
    fn verdict(&mut self, verdict: Verdict) {
        let Some(name) = self.running.take() else { return };
        self.tests.push(Test { name, verdict, took: self.since.elapsed() });
        self.since = Instant::now();
    }

    /// Kills the program and its children. Returns whether its status says that something failed.
    fn end(&mut self) -> bool {
        if let Ok(None) = self.child.try_wait() {
            // The program may just have ended by itself.
            let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        }
        self.child.wait().is_ok_and(|status| !status.success())
    }
}

/// Reads a pipe to its end, or until `take` returns false.
fn read(pipe: Option<impl Read>, mut take: impl FnMut(&[u8]) -> bool) {
    let Some(mut pipe) = pipe else { return };
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = pipe.read(&mut buffer) {
        if !take(&buffer[..count]) {
            break;
        }
    }
}
