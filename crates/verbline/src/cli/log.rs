//! What [`tracing`] tells, on standard error.

use std::ffi::OsStr;
use std::io::{self, Write};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use super::console;
use super::output::{is_coloured, message};
use super::rate::RateLimit;
use super::visible::visible;

const LOG: &str = "VERBLINE_LOG";

/// What was logged is written when this is dropped, unless standard error takes nothing for two
/// seconds.
#[derive(Debug)]
#[must_use = "what was logged last is written when this is dropped: keep it until the end of `main`"]
pub struct LogGuard(());

impl Drop for LogGuard {
    fn drop(&mut self) {
        console::flush(Some(console::PATIENCE));
    }
}

/// Has the engine's warnings (a fallback taken, a port that is down) written to standard error;
/// `VERBLINE_LOG=debug` shows more.
///
/// [`main`](super::main) does it for every app. The engine tells by [`tracing`] what happens while
/// a run lasts, and nobody hears it where no subscriber is installed: an embedder calls this, or
/// installs one of its own, which is then kept.
///
/// A thread of its own writes, so that neither an lcore nor a stop ever waits for a terminal or a
/// pipe: what finds no room in its queue is counted, and told once something is taken again. Of one
/// place in the code at most ten warnings a second are written, and the rest is told as a count.
pub fn log_to_stderr() -> LogGuard {
    console::start();
    let filter = log_filter(std::env::var_os(LOG).as_deref());
    let coloured = is_coloured(&io::stderr());
    let lines =
        tracing_subscriber::fmt::layer().with_writer(Records { coloured }).with_ansi(coloured).with_target(false);
    // It fails on a second call, and where an embedder has a subscriber of its own: the first one
    // is kept.
    let _ = tracing_subscriber::registry().with(lines).with(RateLimit).with(filter).try_init();
    LogGuard(())
}

/// What is logged: warnings, unless the environment says otherwise in words that can be understood.
fn log_filter(said: Option<&OsStr>) -> EnvFilter {
    let usual = || EnvFilter::new("warn");
    let Some(said) = said else { return usual() };
    let parsed = said.to_str().ok_or_else(|| "it is not UTF-8".to_owned());
    let parsed = parsed.and_then(|said| EnvFilter::try_new(said).map_err(|error| error.to_string()));
    parsed.unwrap_or_else(|error| {
        message(&format!("warning: {LOG}={} is ignored: {error}; write e.g. `debug`", said.display()));
        usual()
    })
}

/// Gives records to the thread that writes them.
#[derive(Clone, Copy, Debug)]
struct Records {
    coloured: bool,
}

impl Write for Records {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        console::say(visible(&String::from_utf8_lossy(bytes), self.coloured).into_owned());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Records {
    type Writer = Records;

    fn make_writer(&self) -> Records {
        *self
    }
}
