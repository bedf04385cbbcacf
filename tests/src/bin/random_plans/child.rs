//! A process that runs plans for another: one plan a line on its standard input, one verdict a line on its output.

use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// A plan that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(60);
/// From here on a process should not grow: what is made once is made.
const SETTLED_PLANS: u64 = 100;

/// How a plan fared.
#[derive(Debug)]
pub(crate) enum Verdict {
    Good,
    Fault(String),
}

pub(crate) struct Child {
    process: std::process::Child,
    plans: ChildStdin,
    verdicts: Receiver<String>,
    judged: u64,
    settled_kib: Option<u64>,
}

impl Child {
    pub(crate) fn start() -> Result<Child, String> {
        let program = std::env::current_exe().map_err(|error| format!("which program this is: {error}"))?;
        let mut process = Command::new(program)
            .arg("--child")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("a child process did not start: {error}"))?;
        let (plans, output) = (process.stdin.take().expect("piped"), process.stdout.take().expect("piped"));
        let (sender, verdicts) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Ok(Child { process, plans, verdicts, judged: 0, settled_kib: None })
    }

    /// Runs one plan. The child is of no use after a fault, and is started again.
    pub(crate) fn judge(&mut self, text: &str) -> Result<Verdict, String> {
        let line = serde_json::to_string(text).map_err(|error| error.to_string())?;
        let handed = writeln!(self.plans, "{line}").and_then(|()| self.plans.flush());
        let fault = match (handed, self.verdicts.recv_timeout(PATIENCE)) {
            (Ok(()), Ok(verdict)) => serde_json::from_str(&verdict).map_err(|error| format!("{error}: {verdict}"))?,
            (_, Err(RecvTimeoutError::Timeout)) => Some(format!("it hangs: no end within {PATIENCE:?}")),
            (Err(_), _) | (_, Err(RecvTimeoutError::Disconnected)) => Some(match self.process.wait() {
                Ok(status) => format!("its process ended: {status}"),
                Err(error) => error.to_string(),
            }),
        };
        self.judged += 1;
        if self.judged == SETTLED_PLANS {
            self.settled_kib = self.resident_kib();
        }
        match fault {
            None => Ok(Verdict::Good),
            Some(fault) => {
                *self = Child::start()?;
                Ok(Verdict::Fault(fault))
            }
        }
    }

    /// How much larger the process is than after its first hundred plans.
    pub(crate) fn grown_kib(&self) -> Option<u64> {
        Some(self.resident_kib()?.saturating_sub(self.settled_kib?))
    }

    fn resident_kib(&self) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id())).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
        line.trim().strip_suffix("kB")?.trim().parse().ok()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // A child that has ended by itself cannot be killed, and needs not be.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The other end: runs the plans that come, until there are no more.
pub(crate) fn serve(run: impl Fn(&str) -> Result<(), String>) -> Result<(), String> {
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(|error| error.to_string())?;
        let text: String = serde_json::from_str(&line).map_err(|error| error.to_string())?;
        let fault = run(&text).err();
        let verdict = serde_json::to_string(&fault).map_err(|error| error.to_string())?;
        println!("{verdict}");
    }
    Ok(())
}
