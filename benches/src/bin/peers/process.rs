//! Runs a program to its end: collects its output, limits its time, and shows its command line.

use std::fmt;
use std::io::{Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::error::RunError;

const LOOK_EVERY: Duration = Duration::from_millis(5);

/// A command and its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    env: Vec<(String, String)>,
    words: Vec<String>,
}

impl Line {
    /// `program arg arg`, split at blanks.
    pub(crate) fn new(text: &str) -> Line {
        Line { env: Vec::new(), words: text.split_whitespace().map(str::to_owned).collect() }
    }

    /// Adds arguments, unsplit.
    pub(crate) fn args(mut self, args: impl IntoIterator<Item = impl Into<String>>) -> Line {
        self.words.extend(args.into_iter().map(Into::into));
        self
    }

    /// Adds `NAME=VALUE` words to its environment, split at blanks.
    pub(crate) fn env(mut self, text: &str) -> Line {
        let pairs = text.split_whitespace().filter_map(|word| word.split_once('='));
        self.env.extend(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())));
        self
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.words[0]);
        command.args(&self.words[1..]).envs(self.env.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Starts the command; its output is collected from now on.
    pub(crate) fn start(&self) -> Result<Running, RunError> {
        let spawned = self.command().spawn();
        let mut child = spawned.map_err(|source| RunError::Spawn { command: self.to_string(), source })?;
        let output = Arc::new(Mutex::new(Vec::new()));
        let pipes: [Option<Box<dyn Read + Send>>; 2] =
            [child.stdout.take().map(|pipe| Box::new(pipe) as _), child.stderr.take().map(|pipe| Box::new(pipe) as _)];
        let readers = pipes.into_iter().flatten().map(|pipe| collect(pipe, Arc::clone(&output))).collect();
        Ok(Running { child, output, readers, command: self.to_string() })
    }

    /// Runs the command to a successful end within the limit. Returns its output, standard error
    /// included.
    pub(crate) fn run(&self, limit: Duration) -> Result<String, RunError> {
        self.start()?.finish(limit)
    }
}

impl std::fmt::Display for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let env = self.env.iter().map(|(name, value)| format!("{name}={value}"));
        let words: Vec<String> = env.chain(self.words.iter().cloned()).collect();
        f.write_str(&words.join(" "))
    }
}

fn collect(mut pipe: Box<dyn Read + Send>, output: Arc<Mutex<Vec<u8>>>) -> JoinHandle<()> {
    thread::spawn(move || {
        let mut chunk = [0; 4096];
        while let Ok(read @ 1..) = pipe.read(&mut chunk) {
            output.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(&chunk[..read]);
        }
    })
}

/// A running program. Dropping it kills it.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    output: Arc<Mutex<Vec<u8>>>,
    readers: Vec<JoinHandle<()>>,
    command: String,
}

impl Running {
    /// Whether it has printed this text so far.
    pub(crate) fn has_printed(&self, text: &str) -> bool {
        self.output().contains(text)
    }

    /// Whether it has ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(Some(_)))
    }

    /// Writes lines to its standard input.
    pub(crate) fn write(&mut self, text: &str) {
        if let Some(stdin) = &mut self.child.stdin {
            // `finish` detects a program that has ended.
            let _ = stdin.write_all(text.as_bytes()).and_then(|()| stdin.flush());
        }
    }

    /// Interrupts it, like Ctrl-C.
    pub(crate) fn interrupt(&self) {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            // It may have ended by itself.
            let _ = kill_process(pid, Signal::INT);
        }
    }

    /// Waits for a successful end within the limit. Returns its output.
    pub(crate) fn finish(mut self, limit: Duration) -> Result<String, RunError> {
        let status = self.wait(limit)?;
        for reader in self.readers.drain(..) {
            let _ = reader.join();
        }
        let output = self.output();
        if status.success() {
            return Ok(output);
        }
        Err(RunError::Failed { command: self.command.clone(), status: status.to_string(), output: tail(&output) })
    }

    fn wait(&mut self, limit: Duration) -> Result<ExitStatus, RunError> {
        let deadline = Instant::now() + limit;
        loop {
            let status = self.child.try_wait();
            if let Some(status) = status.map_err(|source| RunError::Spawn { command: self.command.clone(), source })? {
                return Ok(status);
            }
            if Instant::now() >= deadline {
                return Err(RunError::TimedOut { command: self.command.clone(), limit });
            }
            thread::sleep(LOOK_EVERY);
        }
    }

    fn output(&self) -> String {
        String::from_utf8_lossy(&self.output.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.has_ended() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

impl RunError {
    /// The output of `command` lacks what is `wanted`.
    pub(crate) fn unreadable(command: impl fmt::Display, wanted: &'static str, output: &str) -> RunError {
        RunError::Unreadable { command: command.to_string(), wanted, output: tail(output) }
    }
}

/// The last lines of an output, where programs report what went wrong.
pub(crate) fn tail(output: &str) -> String {
    const LINES: usize = 12;
    let lines: Vec<&str> = output.lines().collect();
    lines[lines.len().saturating_sub(LINES)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_is_collected_and_the_line_is_told() {
        let line = Line::new("sh -c").args(["echo out; echo err >&2; echo $X"]).env("X=7");
        let output = line.run(Duration::from_secs(20)).unwrap();
        for word in ["out", "err", "7"] {
            assert!(output.contains(word), "{output}");
        }
        assert_eq!(line.to_string(), "X=7 sh -c echo out; echo err >&2; echo $X");
    }

    #[test]
    fn a_failure_shows_the_last_lines_and_a_hang_is_ended() {
        let failed = Line::new("sh -c").args(["echo why; exit 3"]).run(Duration::from_secs(20)).unwrap_err();
        assert!(failed.to_string().contains("why"), "{failed}");
        let hung = Line::new("sleep 60").run(Duration::from_millis(20)).unwrap_err();
        assert!(matches!(hung, RunError::TimedOut { .. }), "{hung}");
        let absent = Line::new("/nonexistent/program").run(Duration::from_secs(1)).unwrap_err();
        assert!(matches!(absent, RunError::Spawn { .. }), "{absent}");
    }
}
