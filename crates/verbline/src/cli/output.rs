//! Writes to a person or a script. A write does not panic when the reader has stopped reading.

use std::io::{self, ErrorKind, IsTerminal, Write};
use std::process::ExitCode;

/// The width that everything fits.
pub(super) const COLUMNS: usize = 80;

/// Writes a command's result to standard output. `code` is how the command then exits, unless the
/// result could not be written.
///
/// A reader that has seen enough (`… | head`) is no failure.
pub(super) fn result(text: &str, code: ExitCode) -> ExitCode {
    match written(text) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => unwritten(&error),
        _ => code,
    }
}

/// Writes a command's JSON to standard output. Half a document is none: a reader that went away is
/// a failure too.
pub(super) fn document(json: &serde_json::Value, code: ExitCode) -> ExitCode {
    match written(&format!("{json:#}\n")) {
        Err(error) => unwritten(&error),
        Ok(()) => code,
    }
}

fn written(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

fn unwritten(error: &io::Error) -> ExitCode {
    message(&format!("error: standard output cannot be written: {error}"));
    ExitCode::FAILURE
}

/// Writes a line to standard error. If that can't be written there is nobody left to tell.
pub(super) fn message(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Whether to colour what goes to `stream` (<https://no-color.org>).
pub(super) fn is_coloured(stream: &impl IsTerminal) -> bool {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    stream.is_terminal() && !is_set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// `text` in bold red, if coloured.
pub(super) fn alarming(text: &str, coloured: bool) -> String {
    if coloured { format!("\x1b[1;31m{text}\x1b[0m") } else { text.to_owned() }
}

/// Breaks `text` at spaces so that it fits `width`; every line but the first is indented by
/// `indent`, which the first has used up.
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

/// A label in the first column, the text beside it.
pub(super) fn labelled(label: &str, text: &str) -> String {
    const INDENT: usize = 9;
    format!("{label:<INDENT$}{}", wrapped(text, COLUMNS, INDENT))
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
