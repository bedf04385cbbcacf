//! A program under test, run as a user's shell runs it.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use verbline::plan::Lack;

use crate::notes::{SaidNote, taken_out};
use crate::turn::Turn;

/// The time after which a run counts as hung, however busy the machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// The interval at which waits look.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(5);

/// The variable with all CPUs for the tests. Each test that pins an lcore gets one of them, but a
/// plan that is only checked may name more.
const MACHINE_CPUS: &str = "VERBLINE_TEST_CPUS";

/// The number of those CPUs; 0 if `./x test` did not start this test.
pub(crate) fn machine_cpus() -> usize {
    std::env::var(MACHINE_CPUS).map_or(0, |cpus| cpus.split(',').count())
}

/// A program, and the common arguments of all its runs.
#[derive(Clone, Debug)]
pub struct Program {
    binary: PathBuf,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    taken_away: Vec<Lack>,
}

impl Program {
    /// A program from the binary that cargo built, as `env!("CARGO_BIN_EXE_…")` names it.
    pub fn new(binary: impl AsRef<Path>) -> Program {
        let binary = binary.as_ref().to_owned();
        Program { binary, arguments: Vec::new(), environment: Vec::new(), taken_away: Vec::new() }
    }

    /// The program with more arguments at the end.
    pub fn with<T: AsRef<str>>(&self, arguments: impl IntoIterator<Item = T>) -> Program {
        let mut program = self.clone();
        program.arguments.extend(arguments.into_iter().map(|argument| argument.as_ref().to_owned()));
        program
    }

    /// The program with these arguments in place of the common ones.
    pub(crate) fn instead<T: AsRef<str>>(&self, arguments: impl IntoIterator<Item = T>) -> Program {
        Program { arguments: Vec::new(), ..self.clone() }.with(arguments)
    }

    /// A check of the plan that this program runs, with the same values set.
    pub(crate) fn check_instead(&self) -> Program {
        let sets = self.arguments.windows(2).filter(|pair| pair[0] == "--set").flatten();
        let plan = self.arguments.get(1).expect("a run has a plan");
        self.instead(["check", plan.as_str()]).with(sets)
    }

    /// The same with `name` set in its environment.
    pub fn with_env(&self, name: &str, value: &str) -> Program {
        let mut program = self.clone();
        program.environment.push((name.to_owned(), value.to_owned()));
        program
    }

    /// The program without these things, which the test has taken away: it may print notes about
    /// them.
    pub fn lacking(&self, taken_away: impl IntoIterator<Item = Lack>) -> Program {
        let mut program = self.clone();
        program.taken_away.extend(taken_away);
        program
    }

    /// The things that the test has taken away.
    pub(crate) fn taken_away(&self) -> &[Lack] {
        &self.taken_away
    }

    /// A command for a start in another way.
    pub fn command(&self) -> Command {
        self.command_under(&self.binary)
    }

    /// Runs the program to its end.
    pub fn run(&self) -> Finished {
        self.run_as(&mut self.command())
    }

    /// Runs `command`, a variant of this program, to its end.
    pub fn run_as(&self, command: &mut Command) -> Finished {
        self.start_as(command).finish()
    }

    /// Runs the program to its end, with its standard output written to `file`.
    pub fn run_into(&self, file: File) -> Finished {
        self.start_with(&mut self.command(), [file.into(), Stdio::piped()]).finish()
    }

    /// Starts the program, and keeps its output for [`Started::finish`]. Programs that a test has
    /// running at the same time share its CPUs.
    pub fn start(&self) -> Started {
        self.start_as(&mut self.command())
    }

    /// Starts the program behind another, e.g. `prlimit`.
    pub fn start_behind<T: AsRef<OsStr>>(&self, wrapper: impl IntoIterator<Item = T>) -> Started {
        self.start_as(&mut self.behind(wrapper))
    }

    /// Starts the program with its standard error going to `file`, and keeps its standard output.
    pub fn start_telling(&self, file: impl Into<Stdio>) -> Started {
        self.start_with(&mut self.command(), [Stdio::piped(), file.into()])
    }

    /// Starts `command`, a variant of this program, and keeps its output.
    pub fn start_as(&self, command: &mut Command) -> Started {
        self.start_with(command, [Stdio::piped(), Stdio::piped()])
    }

    fn start_with(&self, command: &mut Command, out: [Stdio; 2]) -> Started {
        self.start_in_turn(command, out, Turn::take())
    }

    /// Starts `command` in a turn that another thread of the test has taken.
    pub(crate) fn start_in_turn(
        &self,
        command: &mut Command,
        [stdout, stderr]: [Stdio; 2],
        turn: Arc<Turn>,
    ) -> Started {
        command.stdin(Stdio::null()).stdout(stdout).stderr(stderr);
        let child = command.spawn().unwrap_or_else(|error| panic!("{command:?} did not start: {error}"));
        Started { shown: format!("{command:?}"), child, taken_away: self.taken_away.clone(), _turn: turn }
    }

    /// A command that runs the program behind another, e.g. `taskset -c 1`.
    pub fn behind<T: AsRef<OsStr>>(&self, wrapper: impl IntoIterator<Item = T>) -> Command {
        let mut command = self.shell();
        command.args(wrapper).arg(&self.binary);
        self.dress(command)
    }

    /// A command with the same arguments for another binary, e.g. a copy.
    pub fn command_under(&self, binary: impl AsRef<OsStr>) -> Command {
        let mut command = self.shell();
        command.arg(binary);
        self.dress(command)
    }

    /// Adds the arguments, and removes variables that a developer's shell sets: they must not
    /// affect a snapshot.
    fn dress(&self, mut command: Command) -> Command {
        command.args(&self.arguments).env("TERM", "xterm").env("LANG", "C.UTF-8").current_dir(crate::root());
        const SHELL: [&str; 9] = [
            "COLUMNS",
            "LINES",
            "LANGUAGE",
            "LC_ALL",
            "NO_COLOR",
            "CLICOLOR_FORCE",
            "VERBLINE_LOG",
            "VERBLINE_LOG_FORMAT",
            "JOURNAL_STREAM",
        ];
        SHELL.iter().for_each(|name| _ = command.env_remove(name));
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }

    /// A shell that starts the program as a user's shell does, whatever started the tests: no
    /// signal is ignored (as SIGHUP is under nohup) and files are made with the usual mode. It
    /// becomes the program, under the same process id.
    fn shell(&self) -> Command {
        let mut command = Command::new("env");
        command.args(["--default-signal", "sh", "-c", "umask 022; exec \"$@\"", "sh"]);
        if let Some(cpus) = std::env::var_os(MACHINE_CPUS).filter(|_| !self.runs_lcores()) {
            command.args(["taskset".as_ref(), "-c".as_ref(), cpus.as_os_str()]);
        }
        command
    }

    /// Whether the program runs lcores, which only the verb `run` does.
    fn runs_lcores(&self) -> bool {
        self.arguments.first().is_none_or(|verb| verb == "run")
    }
}

/// A running program. Dropping it kills the program.
#[derive(Debug)]
pub struct Started {
    shown: String,
    child: Child,
    taken_away: Vec<Lack>,
    _turn: Arc<Turn>,
}

impl Started {
    /// The child process, e.g. to close a pipe of it.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Sends the program a signal.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap_or_else(|error| panic!("{}: {error}", self.shown));
    }

    /// Waits until all signals sent to the program are delivered.
    pub fn await_delivery(&self) {
        self.wait_for("its signals to be delivered", || {
            let status = std::fs::read_to_string(self.proc("status")).unwrap_or_default();
            // proc(5): signals to a process wait in the mask that its threads share.
            status
                .lines()
                .find_map(|line| line.strip_prefix("ShdPnd:"))
                .is_none_or(|mask| u64::from_str_radix(mask.trim(), 16).is_ok_and(|mask| mask == 0))
        });
    }

    /// Waits until the threads of these lcores exist.
    pub fn await_lcores(&self, lcores: &[&str]) {
        self.wait_for("its lcores", || {
            let threads = std::fs::read_dir(self.proc("task")).into_iter().flatten().flatten();
            let names: Vec<String> =
                threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("comm")).ok()).collect();
            // Linux cuts a thread's name at 15 bytes.
            let is_there = |lcore: &&str| names.iter().any(|name| format!("vl-{lcore}").starts_with(name.trim()));
            lcores.iter().all(is_there)
        });
    }

    /// Waits for the program's end.
    ///
    /// # Panics
    /// If it hangs.
    pub fn finish(mut self) -> Finished {
        let (stdout, stderr) = (reader(self.child.stdout.take()), reader(self.child.stderr.take()));
        let status = self.status();
        let text = |reader: JoinHandle<Vec<u8>>| {
            String::from_utf8(reader.join().unwrap_or_default()).unwrap_or_else(|error| panic!("not UTF-8: {error}"))
        };
        let (notes, stderr) = taken_out(&text(stderr), &self.taken_away);
        Finished { shown: self.shown.clone(), status, stdout: text(stdout), stderr, notes }
    }

    /// Waits for the program's end without reading its output.
    ///
    /// # Panics
    /// If it hangs.
    pub fn status(&mut self) -> ExitStatus {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return status,
                Ok(None) if Instant::now() < deadline => std::thread::sleep(LOOK_EVERY),
                other => {
                    let _ = self.child.kill();
                    panic!("{} did not end: {other:?}", self.shown);
                }
            }
        }
    }

    /// Waits until `done` says so.
    ///
    /// # Panics
    /// If it never does.
    #[track_caller]
    pub fn wait_for(&self, what: &str, done: impl Fn() -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !done() {
            assert!(Instant::now() < deadline, "{}: waited in vain for {what}", self.shown);
            std::thread::sleep(LOOK_EVERY);
        }
    }

    pub(crate) fn proc(&self, entry: &str) -> PathBuf {
        Path::new("/proc").join(self.child.id().to_string()).join(entry)
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // Fails if the program has ended, which does no harm.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads a pipe to its end on a thread of its own, so that a full pipe doesn't stop the program.
fn reader(pipe: Option<impl Read + Send + 'static>) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            let _ = pipe.read_to_end(&mut bytes);
        }
        bytes
    })
}

/// A finished program, and its output.
#[derive(Debug)]
pub struct Finished {
    shown: String,
    /// How it ended.
    pub status: ExitStatus,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error, without the notes.
    pub stderr: String,
    /// The notes on its standard error.
    pub notes: Vec<SaidNote>,
}

impl Finished {
    /// Insists that the program exited with `code`, by itself and without a panic.
    #[track_caller]
    pub fn exited(self, code: i32) -> Finished {
        assert_eq!((self.status.code(), self.status.signal()), (Some(code), None), "{self}");
        assert!(!self.stderr.contains("panicked at"), "{self}");
        self
    }

    /// The note about this lack, if there is one.
    pub fn note(&self, lack: Lack) -> Option<&str> {
        self.notes.iter().find(|note| note.lack == lack).map(|note| note.text.as_str())
    }

    /// Its standard output, parsed: it must be one JSON document and nothing else.
    #[track_caller]
    pub fn json(&self) -> Value {
        match serde_json::from_str(&self.stdout) {
            Ok(value) => value,
            Err(error) => panic!("standard output is not one JSON document: {error}\n{self}"),
        }
    }
}

impl std::fmt::Display for Finished {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Finished { shown, status, stdout, stderr, notes } = self;
        write!(f, "{shown}\n{status}\n--- stdout\n{stdout}\n--- stderr\n{stderr}\n--- notes\n{notes:#?}")
    }
}
