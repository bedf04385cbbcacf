//! The command line that every app shares: `run`, `check`, `graph`, `keys` and `devices`.
//!
//! An app implements [`App`] and hands itself to [`main`]. Reports go to standard output,
//! everything else to standard error. Exit codes: 0 the command did what it should, 1 it could not,
//! or the run failed, 2 the plan or the command line is wrong, 130 a second Ctrl-C aborted a run.

mod app;
mod args;
mod check;
mod devices;
mod explain;
mod figures;
mod idling;
mod json;
mod keys;
mod live;
mod measured;
mod output;
mod remedies;
mod run;
mod signals;
mod tables;
mod text;

use std::ffi::OsStr;
use std::process::ExitCode;

use clap::FromArgMatches;
use tracing_subscriber::EnvFilter;

use args::{Arguments, Command};

pub use app::{App, Outcome};
pub use figures::{count, duration, percent};
pub use measured::{Latencies, Parts};

/// Runs the command line of `app`, and says how the process should exit.
pub fn main(app: &dyn App) -> ExitCode {
    let matches = args::command(app.name(), app.about()).try_get_matches();
    let arguments = match matches.and_then(|matches| Arguments::from_arg_matches(&matches)) {
        Ok(arguments) => arguments,
        Err(error) => return tell(&error),
    };
    log_to_stderr();
    match arguments.command {
        Command::Run(options) => run::run(app, &options),
        Command::Check(options) => check::check(app, &options),
        Command::Graph(options) => check::graph(app, &options),
        Command::Keys(options) => keys::keys(&options),
        Command::Devices(options) => devices::devices(&options),
    }
}

/// What the command line's own parser has to say: its help, its version, or what is wrong.
fn tell(error: &clap::Error) -> ExitCode {
    let code = ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(1));
    let text = |coloured: bool| match coloured {
        true => error.render().ansi().to_string(),
        false => error.render().to_string(),
    };
    if error.use_stderr() {
        output::message(text(output::is_coloured(&std::io::stderr())).trim_end());
        return code;
    }
    output::result(&text(output::is_coloured(&std::io::stdout())), code)
}

const LOG: &str = "VERBLINE_LOG";

/// What is logged: warnings, unless the environment says otherwise in words that can be understood.
fn log_filter(said: Option<&OsStr>) -> EnvFilter {
    let usual = || EnvFilter::new("warn");
    let Some(said) = said else { return usual() };
    let parsed = said.to_str().ok_or_else(|| "it is not UTF-8".to_owned());
    let parsed = parsed.and_then(|said| EnvFilter::try_new(said).map_err(|error| error.to_string()));
    parsed.unwrap_or_else(|error| {
        output::message(&format!("warning: {LOG}={} is ignored: {error}; write e.g. `debug`", said.display()));
        usual()
    })
}

/// Has the engine's warnings (a fallback taken, a port that is down) written to standard error;
/// `VERBLINE_LOG=debug` shows more.
///
/// [`main`] does it for every app. The engine tells by [`tracing`] what happens while a run lasts,
/// and nobody hears it where no subscriber is installed: an embedder calls this, or installs one of
/// its own, which is then kept.
pub fn log_to_stderr() {
    let filter = log_filter(std::env::var_os(LOG).as_deref());
    // It fails on a second call, and where an embedder has a subscriber of its own: the first one
    // is kept.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(live::AroundTheLine)
        .with_ansi(output::is_coloured(&std::io::stderr()))
        .with_target(false)
        .try_init();
}
