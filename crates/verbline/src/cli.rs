//! The command line that every app shares: `run`, `check`, `graph`, `keys`, `devices`, `ps`,
//! `stats`, `top`, `capture` and `trace`.
//!
//! An app implements [`App`] and hands itself to [`main`]. Reports go to standard output,
//! everything else to standard error. Exit codes: 0 the command did what it should, 1 it could not,
//! or the run failed, 2 the plan or the command line is wrong, 130 a second Ctrl-C aborted a run.

mod again;
mod app;
mod args;
mod args_operate;
mod capture;
mod capture_files;
mod check;
mod console;
mod devices;
mod explain;
mod figures;
mod keys;
mod line;
mod live;
mod log;
mod log_verb;
mod measured;
mod output;
mod port_text;
mod ps;
mod rate;
mod records;
mod remedies;
mod run;
mod said;
#[cfg(test)]
mod screens;
mod signals;
mod silence;
mod stack;
mod stage_text;
mod stats;
mod stats_tables;
mod tables;
mod text;
mod times;
mod top;
mod trace;
mod trace_text;
mod visible;
mod wire_text;

use std::backtrace::{Backtrace, BacktraceStatus};
use std::panic;
use std::process::ExitCode;

use clap::FromArgMatches;

use args::{Arguments, Command};

pub use app::{App, Outcome};
pub use figures::{count, duration, percent, rate};
pub use log::{LogGuard, log_to_stderr};
pub use measured::{Latencies, Parts, served, so_far};
pub use silence::Silence;

/// Printed at the start: a run may take hours, and only its end would find standard output closed.
const CLOSED: &str = "error: standard output is closed (`>&-`), and what the command reports would be lost; \
                      give it a file, a pipe, or /dev/null";

/// Runs the command line of `app`. Returns the exit code of the process.
pub fn main(app: &dyn App) -> ExitCode {
    if let Err(too_small) = stack::raise() {
        output::message(&too_small);
        console::flush(None);
        return ExitCode::FAILURE;
    }
    // Before the threads that write to standard output and error.
    verbline_mem::share_arenas_if_limited();
    if verbline_mem::stdout_was_closed() {
        output::message(CLOSED);
        console::flush(None);
        return ExitCode::FAILURE;
    }
    let registry = check::registry(app);
    let matches = args::command(app.name(), app.about(), keys::names(&registry)).try_get_matches();
    let arguments = match matches.and_then(|matches| Arguments::from_arg_matches(&matches)) {
        Ok(arguments) => arguments,
        Err(error) => return tell(&error),
    };
    let _log = log_to_stderr();
    panic::set_hook(Box::new(tell_panic));
    verbline_engine::panic_hook_is_prompt();
    signals::survive_file_limit();
    let code = match arguments.command {
        // A run's stop has already waited for standard error as long as a stop may.
        Command::Run(options) => return run::run(app, &options),
        Command::Check(options) => check::check(app, &options),
        Command::Graph(options) => check::graph(app, &options),
        Command::Keys(options) => keys::keys(&registry, &options),
        Command::Devices(options) => devices::devices(&options),
        Command::Ps(options) => ps::ps(&options),
        Command::Stats(options) => stats::stats(&options),
        Command::Top(options) => top::top(&options),
        Command::Log(options) => log_verb::log(&options),
        Command::Capture(options) => capture::capture(&options),
        Command::Trace(options) => trace::trace(&options),
    };
    console::flush(None);
    code
}

/// Writes a panic's message like every other text: the thread may be an lcore, which must not wait
/// for a terminal.
fn tell_panic(panic: &panic::PanicHookInfo<'_>) {
    let thread = std::thread::current();
    let mut text = format!("thread '{}' {panic}", thread.name().unwrap_or("?"));
    let backtrace = Backtrace::capture();
    if backtrace.status() == BacktraceStatus::Captured {
        text += &format!("\n{backtrace}");
    }
    output::message(&text);
}

/// Prints a message of the command line's own parser: its help, its version, or an error.
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
    output::result(&text(output::is_coloured(&std::io::stdout())), code, None)
}
