//! Shows the progress of a run on standard error: in a terminal, one line that is redrawn, and
//! removed when the run ends; elsewhere (a log), a plain line now and then.

use std::io::{self, IsTerminal, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tracing_subscriber::fmt::MakeWriter;

use super::output::message;

/// A few updates a second are enough for eyes, and cost the lcores nothing: the counters are only
/// read.
pub(super) const PERIOD: Duration = Duration::from_millis(200);

/// Between two plain lines: a run of the usual length leaves none in a log.
const PLAIN_PERIOD: Duration = Duration::from_secs(10);

/// The line that is on the terminal now, for those who write something else there.
static DRAWN: Mutex<Option<ProgressBar>> = Mutex::new(None);

/// What a run shows while it runs.
pub(super) struct LiveLine {
    plan: String,
    kind: Kind,
}

enum Kind {
    Drawn(ProgressBar),
    /// The elapsed time at which the next line is due.
    Plain(Duration),
    Nothing,
}

impl LiveLine {
    /// For a run of `length`, or one without an end; nothing if the user wants quiet.
    pub(super) fn new(plan: &str, length: Option<Duration>, quiet: bool) -> LiveLine {
        let kind = match quiet {
            true => Kind::Nothing,
            false if io::stderr().is_terminal() => Kind::Drawn(bar(plan, length)),
            false => Kind::Plain(PLAIN_PERIOD),
        };
        LiveLine { plan: plan.to_owned(), kind }
    }

    /// Shows what `message` says beside the progress, if it is time for it.
    pub(super) fn show(&mut self, elapsed: Duration, say: impl FnOnce() -> String) {
        match &mut self.kind {
            Kind::Drawn(bar) => {
                bar.set_position(elapsed.as_millis() as u64);
                bar.set_message(say());
            }
            Kind::Plain(due) if *due <= elapsed => {
                *due = elapsed + PLAIN_PERIOD;
                message(&format!("{} {}s: {}", self.plan, elapsed.as_secs(), say()));
            }
            Kind::Plain(_) | Kind::Nothing => {}
        }
    }

    /// Says that the run is draining.
    pub(super) fn draining(&self) {
        if let Kind::Drawn(bar) = &self.kind {
            bar.set_message("draining");
            bar.tick();
        }
    }

    /// Clears the line, so that the report stands alone.
    pub(super) fn clear(self) {
        if let Kind::Drawn(bar) = &self.kind {
            bar.finish_and_clear();
            *drawn() = None;
        }
    }
}

fn bar(plan: &str, length: Option<Duration>) -> ProgressBar {
    let length_ms = length.map(|length| u64::try_from(length.as_millis()).unwrap_or(u64::MAX));
    let bar = ProgressBar::with_draw_target(length_ms, ProgressDrawTarget::stderr());
    // What has no end has no part of it done.
    let template = match length {
        Some(_) => "{prefix} {elapsed} [{bar:16}] {wide_msg}",
        None => "{prefix} {elapsed} {wide_msg}",
    };
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("=> "));
    }
    bar.set_prefix(plan.to_owned());
    *drawn() = Some(bar.clone());
    bar
}

fn drawn() -> MutexGuard<'static, Option<ProgressBar>> {
    DRAWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Standard error for the log: steps around the line that is drawn there.
#[derive(Clone, Copy, Debug)]
pub(super) struct AroundTheLine;

impl Write for AroundTheLine {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &*drawn() {
            Some(bar) => bar.suspend(|| io::stderr().write(bytes)),
            None => io::stderr().write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

impl MakeWriter<'_> for AroundTheLine {
    type Writer = AroundTheLine;

    fn make_writer(&self) -> AroundTheLine {
        *self
    }
}
