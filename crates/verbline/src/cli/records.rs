//! Records of the log on their way to the thread that writes them: as lines, or as entries of the
//! journal, where each field of a record is a field of its entry (`journalctl PORT=feed_a`).

use std::fmt;
use std::io::{self, Write};

use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::{Context, Layer};

use super::console;
use super::said::{Out, journal};
use super::visible::visible;

/// Records as lines, given to the thread that writes them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lines {
    pub(super) coloured: bool,
}

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        console::put(Out::Words(visible(&String::from_utf8_lossy(bytes), self.coloured).into_owned()));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Lines {
    type Writer = Lines;

    fn make_writer(&self) -> Lines {
        *self
    }
}

/// Records as entries.
#[derive(Debug)]
pub(super) struct Entries;

impl<S: Subscriber> Layer<S> for Entries {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let Fields { message, mut named } = fields;
        let metadata = event.metadata();
        let line = metadata.line().map(|line| line.to_string());
        let code = [("CODE_FILE", metadata.file().map(str::to_owned)), ("CODE_LINE", line)];
        let words = named.iter().fold(message.clone(), |words, (name, value)| format!("{words} {name}={value}"));
        named.iter_mut().for_each(|(name, _)| *name = journal::field_name(name));
        named.extend(code.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
        named.push(("TARGET".to_owned(), metadata.target().to_owned()));
        let bytes = journal::entry(*metadata.level(), &message, &named);
        console::put(Out::Entry { bytes, words: format!("{} {words}\n", metadata.level()) });
    }
}

/// The message of a record, and its other fields.
#[derive(Default)]
struct Fields {
    message: String,
    named: Vec<(String, String)>,
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let value = visible(&format!("{value:?}"), false).into_owned();
        match field.name() {
            "message" => self.message = value,
            name => self.named.push((name.to_owned(), value)),
        }
    }
}
