//! The command as a user runs it: its output, its exit codes, and its handling of mistakes.

mod bounds;
mod feed_files;
mod memory;
mod pauses;
mod recovery;
mod replay;
mod report;
mod shown;
mod stop;

use verbline_tests::{Program, two_lcores};

/// The command.
fn app() -> Program {
    Program::new(env!("CARGO_BIN_EXE_tick-to-trade"))
}

/// A run of the generated feed for `seconds`, slow enough that a trader without its CPU for all
/// that time loses nothing. `None` where two lcores can't run.
pub(crate) fn generated(seconds: &str, sets: &[&str]) -> Option<Program> {
    let run =
        app().with(["run", "config/tick-to-trade.toml", "--for", seconds]).with(two_lcores(["exchange", "trader"])?);
    let slow = ["feed.ticks_per_second=2000", "stage.book.params.tries=32", PATIENT];
    Some(run.with(slow.iter().chain(sets).flat_map(|set| ["--set", set])))
}

/// On a busy machine, a channel's copy of a frame may come this late.
const PATIENT: &str = "stage.arbiter.params.timeout_us=60000000";
