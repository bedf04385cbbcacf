//! The form of what is said on standard error: lines for a person, JSON for a program that collects
//! logs, or entries of the journal. Texts that are no records (a note on the machine, an error at
//! the end) take the form of the log's, so that a reader of JSON meets nothing else.

pub(super) mod journal;

use std::sync::OnceLock;

use rustix::fs::fstat;
use serde_json::json;
use tracing::Level;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};

const FORMAT: &str = "VERBLINE_LOG_FORMAT";

/// What systemd tells a service whose standard error is the journal: the device and inode of that.
const JOURNAL_STREAM: &str = "JOURNAL_STREAM";

/// Chosen once, as the log begins; before that it is text.
static FORM: OnceLock<Form> = OnceLock::new();

/// How the log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Text,
    Json,
    Journal,
}

/// One thing to write.
#[derive(Debug)]
pub(super) enum Out {
    /// To standard error.
    Words(String),
    /// To the journal; `words` go to standard error if that doesn't take it.
    Entry { bytes: Vec<u8>, words: String },
}

impl Form {
    /// What the environment says, and what is wrong with that.
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
        // It is chosen once.
        (*FORM.get_or_init(|| form), fault)
    }
}

/// Whether standard error is the journal already.
fn is_journal() -> bool {
    let Ok(stat) = fstat(std::io::stderr()) else { return false };
    std::env::var(JOURNAL_STREAM).is_ok_and(|stream| stream == format!("{}:{}", stat.st_dev, stat.st_ino))
}

/// A text of the command's own in the form of the log. Its first word says how bad it is.
pub(super) fn formed(text: String) -> Out {
    let level = match &text {
        // A thread that panics says its name.
        error if error.starts_with("error") || error.starts_with("thread '") => Level::ERROR,
        warning if warning.starts_with("warning") => Level::WARN,
        _ => Level::INFO,
    };
    with_level(level, text)
}

/// The same, of a text whose level is known.
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

/// The time as each record has it.
pub(super) fn now() -> String {
    let mut time = String::new();
    // Writing into a string doesn't fail.
    let _ = SystemTime.format_time(&mut Writer::new(&mut time));
    time
}

/// Whether a line has its time and level in front: where the form has no other place for both.
pub(super) fn is_text() -> bool {
    FORM.get().is_none_or(|form| *form == Form::Text)
}
