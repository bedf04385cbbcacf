//! Shows the progress of a run on standard error: in a terminal that can move its cursor, one line
//! that is redrawn, and removed when the run ends; elsewhere, a plain line now and then.

use std::io::{self, IsTerminal};
use std::time::Duration;

use super::console;
use super::line::Line;
use super::output::{message, moves_cursor};
use super::visible::visible_name;

/// A few updates a second are enough for eyes, and cost the lcores nothing: counters are only read.
pub(super) const PERIOD: Duration = Duration::from_millis(200);

/// The time between two plain lines in a log: a run of the usual length leaves none there.
const LOG_PERIOD: Duration = Duration::from_secs(10);

/// The time between two plain lines on a terminal, which somebody watches.
const TERMINAL_PERIOD: Duration = Duration::from_secs(2);

/// The progress display of a run.
pub(super) struct LiveLine {
    plan: String,
    length: Option<Duration>,
    kind: Kind,
}

enum Kind {
    Drawn,
    /// The time between two lines, and the elapsed time at which the next one is due.
    Plain {
        every: Duration,
        due: Duration,
    },
    Nothing,
}

impl LiveLine {
    /// The display of a run of `length`, or one without an end; nothing if the user wants quiet.
    pub(super) fn new(plan: &str, length: Option<Duration>, quiet: bool) -> LiveLine {
        let stderr = io::stderr();
        let plain = |every| Kind::Plain { every, due: every };
        let kind = match quiet {
            true => Kind::Nothing,
            false if moves_cursor(&stderr) => Kind::Drawn,
            false if stderr.is_terminal() => plain(TERMINAL_PERIOD),
            false => plain(LOG_PERIOD),
        };
        LiveLine { plan: visible_name(plan), length, kind }
    }

    /// Shows the words of `say` beside the progress, if it is time for it.
    pub(super) fn show(&mut self, elapsed: Duration, say: impl FnOnce() -> String) {
        match &mut self.kind {
            Kind::Drawn => {
                let (plan, words) = (self.plan.clone(), visible_name(&say()));
                console::show(Some(Line { plan, elapsed, length: self.length, words }));
            }
            Kind::Plain { every, due } if *due <= elapsed => {
                *due = elapsed + *every;
                message(&format!("{} {}s: {}", self.plan, elapsed.as_secs(), say()));
            }
            Kind::Plain { .. } | Kind::Nothing => {}
        }
    }

    /// Shows that the run is draining, after this time.
    pub(super) fn draining(&mut self, elapsed: Duration) {
        if let Kind::Drawn = self.kind {
            self.show(elapsed, || "draining".to_owned());
        }
    }

    /// Clears the line, so that the report stands alone.
    pub(super) fn clear(self) {
        if let Kind::Drawn = self.kind {
            console::show(None);
        }
    }
}
