//! `log`: shows or changes how much a run logs.

use std::process::ExitCode;

use verbline_operate::client::open;

use super::args_operate::LogOptions;
use super::output::result;
use super::run::fail;

/// Prints the filter of the run's log, changed on request.
pub(super) fn log(options: &LogOptions) -> ExitCode {
    let told = open(options.name.as_deref()).and_then(|mut client| client.log(options.set.as_deref()));
    match told {
        Ok(filter) => result(&format!("{filter}\n"), ExitCode::SUCCESS, None),
        Err(error) => fail(&error.to_string()),
    }
}
