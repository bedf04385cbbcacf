//! The form of texts on standard error: lines for a person, JSON for a program that collects logs,
//! or entries of the journal. Texts that are not records (a note on the machine, an error at the
//! end) take the same form, so that a reader of JSON gets nothing else.

pub(super) mod journal;

use std::sync::OnceLock;

use rustix::fs::fstat;
use serde_json::json;
use tracing::Level;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};

const FORMAT: &str = "VERBLINE_LOG_FORMAT";

/// Set by systemd for a service whose standard error is the journal: the journal's device and
/// inode.
const JOURNAL_STREAM: &str = "JOURNAL_STREAM";

/// Chosen once, at the start of the log; before that it is text.
static FORM: OnceLock<Form> = OnceLock::new();

/// The form of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Text,
    Json,
    Journal,
}

/// A text to write.
#[derive(Debug)]
pub(super) enum Out {
    /// For standard error.
    Words(String),
    /// For the journal; `words` go to standard error if the journal does not take the entry.
    Entry { bytes: Vec<u8>, words: String },
}

impl Form {
    /// Chooses the form by the environment. Returns it, with any fault of the environment.
    pub(super) fn choose() -> (Form, Option<String>) {
        let said = std::env::var_os(FORMAT);
        let form = match said.as_ref().map(|said| said.to_string_lossy()).as_deref() {
            Some("text") => Ok(Form::Text),
            Some("json") => Ok(Form::Json),
            Some("journald") => journal::connect()
                .map(|()| Form::Journal)
                .map_err(|error| format!("the journal can't be reached: {error}; the log goes to standard error")),
            None | Some("") if is_journal() && journal::connect().is_ok() => Ok(Form::Journal),
            None | Some("") => Ok(Form::Text),
            Some(other) => Err(format!("{FORMAT}={other} is ignored; write text, json or journald")),
        };
        let (form, fault) = form.map_or_else(|fault| (Form::Text, Some(fault)), |form| (form, None));
        // The first choice stays.
        (*FORM.get_or_init(|| form), fault)
    }
}

/// Whether standard error is the journal already.
fn is_journal() -> bool {
    let Ok(stat) = fstat(std::io::stderr()) else { return false };
    std::env::var(JOURNAL_STREAM).is_ok_and(|stream| stream == format!("{}:{}", stat.st_dev, stat.st_ino))
}

/// One of the command's own texts in the form of the log. Its first word gives the level.
pub(super) fn formed(text: String) -> Out {
    let level = match &text {
        // A panicking thread begins with its name.
        error if error.starts_with("error") || error.starts_with("thread '") => Level::ERROR,
        warning if warning.starts_with("warning") => Level::WARN,
        _ => Level::INFO,
    };
    with_level(level, text)
}

/// Like [`formed`], for a text of known level.
pub(super) fn with_level(level: Level, text: String) -> Out {
    match FORM.get() {
        None | Some(Form::Text) => Out::Words(text),
        Some(Form::Json) => Out::Words(format!(
            "{}\n",
            json!({ "timestamp": now(), "level": level.as_str(), "message": text.trim_end() })
        )),
        Some(Form::Journal) => {
            let bytes = journal::entry(level, text.trim_end(), &[]);
            Out::Entry { bytes, words: text }
        }
    }
}

/// The time in the form of a record.
pub(super) fn now() -> String {
    let mut time = String::new();
    // Writing into a string can't fail.
    let _ = SystemTime.format_time(&mut Writer::new(&mut time));
    time
}

/// Whether a line begins with its time and level, since the form has no other place for them.
pub(super) fn is_text() -> bool {
    FORM.get().is_none_or(|form| *form == Form::Text)
}
