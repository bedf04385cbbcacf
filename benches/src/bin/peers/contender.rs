//! A participant in a comparison: a name, the command lines, and a way to get figures.

use std::time::Duration;

use verbline_benches::Figures;

use crate::error::RunError;
use crate::process::Line;

/// A requirement of a contender: a program, and its Debian package.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Needs {
    /// Searched on the path, or, if it has a slash, as a file.
    pub(crate) program: &'static str,
    /// The Debian package of the program.
    pub(crate) package: &'static str,
}

type Run = dyn Fn() -> Result<Figures, RunError>;

/// A participant in a comparison.
pub(crate) struct Contender {
    /// The name in the progress line.
    pub(crate) name: &'static str,
    /// The command lines, as a person would type them.
    pub(crate) commands: Vec<String>,
    /// The programs that must be installed.
    pub(crate) needs: &'static [Needs],
    /// Whether it needs hugepages.
    pub(crate) hugepages: bool,
    /// Runs once and returns the figures.
    pub(crate) run: Box<Run>,
}

/// The limit of one of our runs on a machine that is not overloaded.
const OURS_LIMIT: Duration = Duration::from_secs(120);

impl Contender {
    /// One of ours: this program itself, as `ours SUBJECT…`.
    pub(crate) fn ours(subject: &str) -> Contender {
        let exe = std::env::current_exe().map_or_else(|_| "peers".to_owned(), |path| path.display().to_string());
        let line = Line::new("").args([exe]).args(["ours"]).args(subject.split_whitespace());
        let commands = vec![format!("peers ours {subject}")];
        let run = move || figures(&line, OURS_LIMIT);
        Contender { name: "ours", commands, needs: &[], hugepages: false, run: Box::new(run) }
    }
}

/// Runs one of our programs or one of `rivals/`, whose last line of output is its figures as JSON.
pub(crate) fn figures(line: &Line, limit: Duration) -> Result<Figures, RunError> {
    let output = line.run(limit)?;
    let last = output.lines().rev().find(|line| line.starts_with('{'));
    let figures = last.and_then(|json| serde_json::from_str(json).ok());
    figures.ok_or_else(|| RunError::unreadable(line, "figures", &output))
}
