//! Output to a person or a script. A write does not panic when the reader has stopped reading.

use std::io::{self, ErrorKind, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use super::console::{self, PATIENCE, PIECE_BYTES};
use super::said;
use super::signals::StopRequest;
use super::visible::visible;

/// The width of all output.
pub(super) const COLUMNS: usize = 80;

/// The time between checks whether a result is being read.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Writes a command's result to standard output. Returns the exit code: `code`, unless the result
/// could not be written.
///
/// A reader that has seen enough (`… | head`) is no failure. The result of a run is written `until`
/// its user asks for an end.
pub(super) fn result(text: &str, code: ExitCode, until: Option<&StopRequest>) -> ExitCode {
    match written(visible(text, is_coloured(&io::stdout())).into_owned(), until) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => unwritten(&error),
        _ => code,
    }
}

/// Writes a part of a command's result; more follow. Returns the exit code if no more can be
/// written. With `must_be_whole`, a reader that goes away is a failure.
pub(super) fn part(text: &str, must_be_whole: bool) -> Option<ExitCode> {
    match written(visible(text, is_coloured(&io::stdout())).into_owned(), None) {
        Ok(()) => None,
        Err(error) if error.kind() == ErrorKind::BrokenPipe && !must_be_whole => Some(ExitCode::SUCCESS),
        Err(error) => Some(unwritten(&error)),
    }
}

/// Writes a command's JSON to standard output. Half a document is useless: here a reader that goes
/// away is a failure, too.
pub(super) fn document(json: &serde_json::Value, code: ExitCode, until: Option<&StopRequest>) -> ExitCode {
    match written(format!("{json:#}\n"), until) {
        Err(error) => unwritten(&error),
        Ok(()) => code,
    }
}

fn written(text: String, until: Option<&StopRequest>) -> io::Result<()> {
    // Both outputs may be the same terminal.
    console::flush(until.map(|_| PATIENCE));
    match until {
        None => write_now(&text, &AtomicU64::new(0)),
        Some(stop) => write_until(text, stop),
    }
}

fn write_now(text: &str, pieces: &AtomicU64) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    for piece in text.as_bytes().chunks(PIECE_BYTES) {
        stdout.write_all(piece)?;
        stdout.flush()?;
        // Relaxed: it is only compared with itself.
        pieces.fetch_add(1, Ordering::Relaxed);
    }
    stdout.flush()
}

/// Writes on a thread of its own, which is abandoned if nothing is read for [`PATIENCE`]: by a
/// stopped terminal (Ctrl-S), or, once the user has asked for an end, by any reader. A reader that
/// is only slow (a pager) is waited for.
fn write_until(text: String, stop: &StopRequest) -> io::Result<()> {
    let (done, ended) = sync_channel(1);
    let pieces = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&pieces);
    thread::Builder::new().name("verbline-stdout".into()).spawn(move || _ = done.send(write_now(&text, &counted)))?;
    let (mut seen, mut since) = (0, Instant::now());
    loop {
        match ended.recv_timeout(LOOK_EVERY) {
            Ok(result) => return result,
            Err(RecvTimeoutError::Disconnected) => return Err(ErrorKind::Other.into()),
            Err(RecvTimeoutError::Timeout) => {}
        }
        // Relaxed: as above.
        let now = pieces.load(Ordering::Relaxed);
        if now != seen {
            (seen, since) = (now, Instant::now());
        } else if since.elapsed() > PATIENCE && (stop.asked() || io::stdout().is_terminal()) {
            let why = format!("nothing was taken for {PATIENCE:?}");
            return Err(io::Error::new(ErrorKind::TimedOut, why));
        }
    }
}

fn unwritten(error: &io::Error) -> ExitCode {
    message(&format!("error: standard output cannot be written: {error}"));
    ExitCode::FAILURE
}

/// Writes a line to standard error.
pub(super) fn message(text: &str) {
    console::say(format!("{}\n", visible(text, is_coloured(&io::stderr()))));
}

/// Whether to colour output to `stream` (<https://no-color.org>).
pub(super) fn is_coloured(stream: &impl IsTerminal) -> bool {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    moves_cursor(stream) && !is_set("NO_COLOR")
}

/// Whether `stream` is a terminal that understands escape sequences: TERM is set, and is not
/// `dumb`.
pub(super) fn moves_cursor(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && std::env::var_os("TERM").is_some_and(|term| !term.is_empty() && term != "dumb")
}

/// `text` in bold red, if coloured.
pub(super) fn alarming(text: &str, coloured: bool) -> String {
    if coloured { format!("\x1b[1;31m{text}\x1b[0m") } else { text.to_owned() }
}

/// Breaks `text` at spaces so that it fits `width`. Every line but the first is indented by
/// `indent`; the caller has already used that many columns of the first.
pub(super) fn wrapped(text: &str, width: usize, indent: usize) -> String {
    let mut out = String::new();
    let mut column = indent;
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if column > indent && column + 1 + length > width {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', indent));
            column = indent;
        } else if column > indent {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += length;
    }
    out
}

/// A sentence for standard error, behind `indent` columns: within [`COLUMNS`] for a person, on one
/// line for a program that collects logs.
pub(super) fn sentence(text: &str, indent: usize) -> String {
    if said::is_text() { wrapped(text, COLUMNS, indent) } else { text.to_owned() }
}

/// Writes a fault to standard error behind `head`, and its remedy below.
pub(super) fn advise(head: &str, text: &str, remedy: &str) {
    const HELP: &str = "  = help: ";
    message(&format!("{head}{}\n{HELP}{}", sentence(text, head.len()), sentence(remedy, HELP.len())));
}

/// A label in the first column, the text beside it.
pub(super) fn labelled(label: &str, text: &str) -> String {
    const INDENT: usize = 9;
    format!("{label:<INDENT$}{}", wrapped(text, COLUMNS, INDENT))
}

/// Labelled texts, and an empty line behind them; nothing, if there are none.
pub(super) fn section(texts: impl IntoIterator<Item = (&'static str, String)>) -> String {
    let lines: String = texts.into_iter().map(|(label, text)| labelled(label, &text) + "\n").collect();
    if lines.is_empty() { lines } else { lines + "\n" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wraps_at_spaces_behind_an_indent() {
        assert_eq!(wrapped("one two three four", 12, 4), "one two\n    three\n    four");
        assert_eq!(
            wrapped("a-word-that-is-too-long fits nowhere", 10, 2),
            "a-word-that-is-too-long\n  fits\n  nowhere"
        );
        assert_eq!(wrapped("", 10, 2), "");
    }
}
