//! The live line: one line on standard error that says how far a run is and what it does, gone when it ends.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A few updates a second are enough for eyes, and cost the lcores nothing: the counters are only read.
pub(super) const PERIOD: Duration = Duration::from_millis(200);

/// The line. Hidden where standard error is not a terminal.
pub(super) struct LiveLine {
    bar: ProgressBar,
}

impl LiveLine {
    /// A line for a run of `duration`; a hidden one if the user wants quiet.
    pub(super) fn new(plan: &str, duration: Duration, quiet: bool) -> LiveLine {
        let target = if quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let bar = ProgressBar::with_draw_target(Some(duration.as_millis() as u64), target);
        if let Ok(style) = ProgressStyle::with_template("{prefix} {elapsed} [{bar:16}] {wide_msg}") {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.set_prefix(plan.to_owned());
        LiveLine { bar }
    }

    /// Shows `message` beside the progress.
    pub(super) fn show(&self, elapsed: Duration, message: String) {
        self.bar.set_position(elapsed.as_millis() as u64);
        self.bar.set_message(message);
    }

    /// Says that the run is draining.
    pub(super) fn draining(&self) {
        self.bar.set_message("draining");
        self.bar.tick();
    }

    /// Clears the line, so that the report stands alone.
    pub(super) fn clear(&self) {
        self.bar.finish_and_clear();
    }
}
