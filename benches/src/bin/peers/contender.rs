//! Who takes part in a comparison: a name, the command lines, and a way to come to figures.

use std::time::Duration;

use verbline_benches::Figures;

use crate::error::RunError;
use crate::process::{Line, tail};

/// What a contender needs installed: a program, and the Debian package that has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Needs {
    /// Looked for on the path, or, when it has a slash, as a file.
    pub(crate) program: &'static str,
    /// Where it comes from.
    pub(crate) package: &'static str,
}

type Run = dyn Fn() -> Result<Figures, RunError>;

/// One that is measured.
pub(crate) struct Contender {
    /// What the progress line calls it.
    pub(crate) name: &'static str,
    /// The command lines, as a person would type them.
    pub(crate) commands: Vec<String>,
    /// What must be installed.
    pub(crate) needs: &'static [Needs],
    /// Whether it needs hugepages.
    pub(crate) hugepages: bool,
    /// Runs once and gives the figures.
    pub(crate) run: Box<Run>,
}

/// No run of ours takes longer on a machine that is not overrun.
const OURS_LIMIT: Duration = Duration::from_secs(120);

impl Contender {
    /// One of ours: this very program, as `ours SUBJECT…`.
    pub(crate) fn ours(subject: &str) -> Contender {
        let exe = std::env::current_exe().map_or_else(|_| "peers".to_owned(), |path| path.display().to_string());
        let line = Line::new("").args([exe]).args(["ours"]).args(subject.split_whitespace());
        let commands = vec![format!("peers ours {subject}")];
        let run = move || figures(&line, OURS_LIMIT);
        Contender { name: "ours", commands, needs: &[], hugepages: false, run: Box::new(run) }
    }
}

/// Runs a program of ours or of `rivals/`, whose last line of output is its figures as JSON.
pub(crate) fn figures(line: &Line, limit: Duration) -> Result<Figures, RunError> {
    let output = line.run(limit)?;
    let last = output.lines().rev().find(|line| line.starts_with('{'));
    last.and_then(|json| serde_json::from_str(json).ok()).ok_or_else(|| RunError::Unreadable {
        command: line.to_string(),
        wanted: "figures",
        output: tail(&output),
    })
}
