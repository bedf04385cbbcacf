//! A process that runs plans for another: one plan a line on its standard input, one verdict a line
//! on its output.

use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::left::{Left, heap_growths, leak};

/// The time after which a plan counts as hung.
const PATIENCE: Duration = Duration::from_secs(60);

/// The result of a plan.
#[derive(Debug)]
pub(crate) enum Verdict {
    Good,
    Fault(String),
}

/// A child's answer after a plan.
#[derive(Debug, Deserialize, Serialize)]
struct Answer {
    fault: Option<String>,
    left: Left,
}

pub(crate) struct Child {
    process: std::process::Child,
    plans: ChildStdin,
    answers: Receiver<String>,
    /// After each plan.
    left: Vec<Left>,
}

impl Child {
    pub(crate) fn start() -> Result<Child, String> {
        let program = std::env::current_exe().map_err(|error| format!("which program this is: {error}"))?;
        let mut process = Command::new(program)
            .arg("--child")
            // Each arena that the allocator opens as more threads run at once maps 64 MiB.
            .env("MALLOC_ARENA_MAX", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("a child process did not start: {error}"))?;
        let (plans, output) = (process.stdin.take().expect("piped"), process.stdout.take().expect("piped"));
        let (sender, answers) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Ok(Child { process, plans, answers, left: Vec::new() })
    }

    /// Runs one plan. After a fault the child is useless, and is started again.
    pub(crate) fn judge(&mut self, text: &str) -> Result<Verdict, String> {
        let line = serde_json::to_string(text).map_err(|error| error.to_string())?;
        let handed = writeln!(self.plans, "{line}").and_then(|()| self.plans.flush());
        let fault = match (handed, self.answers.recv_timeout(PATIENCE)) {
            (Ok(()), Ok(answer)) => {
                let Answer { fault, left } =
                    serde_json::from_str(&answer).map_err(|error| format!("{error}: {answer}"))?;
                self.left.push(left);
                fault
            }
            (_, Err(RecvTimeoutError::Timeout)) => Some(format!("it hangs: no end within {PATIENCE:?}")),
            (Err(_), _) | (_, Err(RecvTimeoutError::Disconnected)) => Some(match self.process.wait() {
                Ok(status) => format!("its process ended: {status}"),
                Err(error) => error.to_string(),
            }),
        };
        match fault {
            None => Ok(Verdict::Good),
            Some(fault) => {
                *self = Child::start()?;
                Ok(Verdict::Fault(fault))
            }
        }
    }

    /// The remains of its plans in the process, if they grow with every hundred plans.
    pub(crate) fn leak(&self) -> Option<String> {
        leak(&self.left)
    }

    /// The growth of its heap with each hundred plans after the first, in bytes.
    pub(crate) fn heap_growths(&self) -> Vec<u64> {
        heap_growths(&self.left)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // A child that has ended by itself cannot be killed, and needs not be.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The child's end: runs the plans that come, until there are no more, and reports its remains
/// after each.
pub(crate) fn serve(run: impl Fn(&str) -> Result<(), String>) -> Result<(), String> {
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(|error| error.to_string())?;
        let text: String = serde_json::from_str(&line).map_err(|error| error.to_string())?;
        let fault = run(&text).err();
        drop((line, text));
        let answer = Answer { fault, left: Left::now() };
        let answer = serde_json::to_string(&answer).map_err(|error| error.to_string())?;
        println!("{answer}");
    }
    Ok(())
}
