//! A process that runs plans for another: one plan a line on its standard input, one verdict a line
//! on its output.

use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use verbline_tests::random::{Facts, is_alone, is_side, judge_pair, sides};

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
    /// For a plan whose other part ran in another process.
    facts: Option<Facts>,
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
        // Each arena that the allocator opens as more threads run at once maps 64 MiB, which would
        // be no leak.
        Self::start_with(&[("MALLOC_ARENA_MAX", "1")])
    }

    fn start_with(settings: &[(&str, &str)]) -> Result<Child, String> {
        let program = std::env::current_exe().map_err(|error| format!("which program this is: {error}"))?;
        let mut process = Command::new(program)
            .arg("--child")
            .envs(settings.iter().copied())
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

    /// Runs one plan, in another process if it must be alone. After a fault the child is useless,
    /// and is started again.
    pub(crate) fn judge(&mut self, text: &str) -> Result<Verdict, String> {
        // No two children of this program have the same addresses.
        if let Some(sides) = sides(text, std::process::id()) {
            return Self::judge_both(&sides);
        }
        if is_alone(text) {
            return match Self::start_with(&[])?.fault(text)? {
                None => Ok(Verdict::Good),
                Some(fault) => Ok(Verdict::Fault(fault)),
            };
        }
        match self.fault(text)? {
            None => Ok(Verdict::Good),
            Some(fault) => {
                *self = Child::start()?;
                Ok(Verdict::Fault(fault))
            }
        }
    }

    fn fault(&mut self, text: &str) -> Result<Option<String>, String> {
        self.hand(text)?;
        Ok(self.outcome()?.err())
    }

    /// Hands it a plan, or a word. If it is gone, its outcome tells so.
    fn hand(&mut self, text: &str) -> Result<(), String> {
        let line = serde_json::to_string(text).map_err(|error| error.to_string())?;
        let _ = writeln!(self.plans, "{line}").and_then(|()| self.plans.flush());
        Ok(())
    }

    /// Waits for the end of a plan: its facts, or its fault.
    fn outcome(&mut self) -> Result<Result<Facts, String>, String> {
        Ok(match self.answers.recv_timeout(PATIENCE) {
            Ok(answer) => {
                let Answer { fault, facts, left } =
                    serde_json::from_str(&answer).map_err(|error| format!("{error}: {answer}"))?;
                self.left.push(left);
                fault.map_or_else(|| Ok(facts.unwrap_or_default()), Err)
            }
            Err(RecvTimeoutError::Timeout) => Err(format!("it hangs: no end within {PATIENCE:?}")),
            Err(RecvTimeoutError::Disconnected) => Err(match self.process.wait() {
                Ok(status) => format!("its process ended: {status}"),
                Err(error) => error.to_string(),
            }),
        })
    }

    /// Runs a plan's two parts in two processes. The server ends after the client.
    fn judge_both([client, server]: &[String; 2]) -> Result<Verdict, String> {
        let mut processes = [Self::start_with(&[])?, Self::start_with(&[])?];
        let [first, second] = &mut processes;
        second.hand(server)?;
        first.hand(client)?;
        let near = first.outcome()?;
        second.hand("the client has ended")?;
        let faults = match (near, second.outcome()?) {
            (Ok(near), Ok(far)) => judge_pair(&near, &far),
            (near, far) => {
                let told = |who: &str, fault: String| format!("the {who}: {fault}");
                let [near, far] = [near.err().map(|it| told("client", it)), far.err().map(|it| told("server", it))];
                near.into_iter().chain(far).collect()
            }
        };
        Ok(if faults.is_empty() { Verdict::Good } else { Verdict::Fault(faults.join("\n")) })
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
pub(crate) fn serve(run: impl Fn(&str) -> Result<Facts, String>) -> Result<(), String> {
    loop {
        // A run may read a line of its own.
        let mut line = String::new();
        if std::io::stdin().read_line(&mut line).map_err(|error| error.to_string())? == 0 {
            return Ok(());
        }
        let text: String = serde_json::from_str(&line).map_err(|error| error.to_string())?;
        let outcome = run(&text);
        let is_side = is_side(&text);
        drop((line, text));
        let left = Left::now();
        let (facts, fault) = match outcome {
            Ok(facts) => (Some(facts).filter(|_| is_side), None),
            Err(fault) => (None, Some(fault)),
        };
        let answer = Answer { fault, facts, left };
        let answer = serde_json::to_string(&answer).map_err(|error| error.to_string())?;
        println!("{answer}");
    }
}
