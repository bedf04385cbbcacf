//! The log: the [`tracing`] records on standard error or in the journal, and their filter.

use std::ffi::OsStr;
use std::io;
use std::sync::OnceLock;

use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Registry, reload};

use super::console;
use super::output::{is_coloured, message};
use super::rate::RateLimit;
use super::records::{Entries, Lines};
use super::said::Form;

const LOG: &str = "VERBLINE_LOG";

/// The filter of this process's log, which may change while it runs.
static FILTER: OnceLock<reload::Handle<EnvFilter, Registry>> = OnceLock::new();

/// Dropping it writes the rest of the log, unless standard error is not read for two seconds.
#[derive(Debug)]
#[must_use = "what was logged last is written when this is dropped: keep it until the end of `main`"]
pub struct LogGuard(());

impl Drop for LogGuard {
    fn drop(&mut self) {
        console::flush(Some(console::PATIENCE));
    }
}

/// Writes the engine's warnings (a fallback taken, a port that is down) to standard error;
/// `VERBLINE_LOG=debug` shows more. `VERBLINE_LOG_FORMAT` is `text`, `json` or `journald`; the
/// default is `journald` in a service of systemd's whose standard error is the journal.
///
/// [`main`](super::main) calls this for every app. The engine reports events of a run by
/// [`tracing`], and without a subscriber they are lost: an embedder calls this, or installs a
/// subscriber of its own, which is then kept.
///
/// A thread of its own writes, so that neither an lcore nor a stop ever waits for a terminal or a
/// pipe: records without room in its queue are counted, and the count is written once the queue
/// moves again. Each place in the code writes at most ten warnings a second, and the rest as a
/// count.
pub fn log_to_stderr() -> LogGuard {
    console::start();
    let (form, fault) = Form::choose();
    if let Some(fault) = fault {
        message(&format!("warning: {fault}"));
    }
    let (filter, handle) = reload::Layer::new(usual_filter(std::env::var_os(LOG).as_deref()));
    let coloured = is_coloured(&io::stderr());
    let lines =
        || tracing_subscriber::fmt::layer().with_writer(Lines { coloured }).with_ansi(coloured).with_target(false);
    let records = match form {
        Form::Text => lines().boxed(),
        Form::Json => lines().json().flatten_event(true).with_ansi(false).boxed(),
        Form::Journal => Entries.boxed(),
    };
    // It fails on a second call, and if an embedder has a subscriber of its own: the first one is
    // kept.
    if tracing_subscriber::registry().with(filter).with(records).with(RateLimit).try_init().is_ok() {
        // Only the first handle is kept.
        let _ = FILTER.set(handle);
    }
    LogGuard(())
}

/// Returns the filter of the log, in the form of `VERBLINE_LOG`; with `wanted`, sets it first.
///
/// # Errors
/// `wanted` is no filter, or the process has a log of its own.
pub(super) fn filter(wanted: Option<&str>) -> Result<String, String> {
    let handle = FILTER.get().ok_or("the log of this process is its own program's")?;
    if let Some(wanted) = wanted {
        let filter = EnvFilter::try_new(wanted).map_err(|error| {
            format!("{wanted:?} is no filter of a log: {error}; write e.g. `debug` or `warn,verbline_engine=debug`")
        })?;
        let said = filter.to_string();
        handle.reload(filter).map_err(|error| error.to_string())?;
        tracing::info!(filter = said, "the log has another filter");
    }
    handle.with_current(EnvFilter::to_string).map_err(|error| error.to_string())
}

/// The initial filter: warnings, unless the environment has another that can be parsed.
fn usual_filter(said: Option<&OsStr>) -> EnvFilter {
    let usual = || EnvFilter::new("warn");
    let Some(said) = said else { return usual() };
    let parsed = said.to_str().ok_or_else(|| "it is not UTF-8".to_owned());
    let parsed = parsed.and_then(|said| EnvFilter::try_new(said).map_err(|error| error.to_string()));
    parsed.unwrap_or_else(|error| {
        message(&format!("warning: {LOG}={} is ignored: {error}; write e.g. `debug`", said.display()));
        usual()
    })
}
