//! Ours beside the peers:
//! `./x bench peers [--row NAME] [--rounds N] [--json] [--markdown [--from FILE]] [--html FILE]
//! [--list]`; and between processes beside bare sockets: `./x bench wire`, with the same options.
//!
//! Every contender runs in a process of its own, on the same two CPUs, one after another, round
//! after round (A B C A B C …), so that other load of the machine hits all alike; the result is the
//! ratio within one run. Peers are programs of the distribution's packages, installed here if
//! missing; code to compile against a peer's library is in `rivals/`, outside the workspace.

#![forbid(unsafe_code)]

mod args;
mod contender;
mod error;
mod group;
mod groups;
mod hops;
mod machine;
mod markdown;
mod measure;
mod observed;
mod ours;
mod page;
mod peer;
mod process;
mod row;
mod servers;
mod stores;
mod table;
mod tables;
mod wires;
mod wrap;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::Parser;

use args::{Arguments, Command};
use contender::Contender;
use error::RunError;
use group::Group;
use markdown::Results;
use measure::Measured;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let done = match &arguments.command {
        Some(Command::Ours(subject)) => ours::run(subject),
        None if arguments.list => {
            let table = arguments.table;
            print!("{}", table::list(&table.groups(), table.omitted(), wrap::columns()));
            Ok(())
        }
        None => compare(&arguments),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("peers: {error}");
            ExitCode::from(if error.is_setup() { 2 } else { 1 })
        }
    }
}

fn compare(arguments: &Arguments) -> Result<(), RunError> {
    if let Some(path) = &arguments.from {
        print!("{}", Results::stored(path)?.page(arguments.table));
        return Ok(());
    }
    let groups = arguments.table.groups();
    let chosen: Vec<&Group> = groups.iter().filter(|group| group.has(arguments.rows())).collect();
    group::check_names(&groups, arguments.rows())?;
    let contenders: Vec<&Contender> = chosen.iter().flat_map(|group| &group.contenders).collect();
    machine::provide(&contenders)?;
    let measured = measure::all(&chosen, arguments.rounds, arguments.rows(), &*interrupted()?);
    if !measured.results.is_empty() {
        show(arguments, &measured)?;
    }
    measured.whole()
}

/// Prints the rows, and which are missing.
fn show(arguments: &Arguments, measured: &Measured) -> Result<(), RunError> {
    let (results, machine) = (&measured.results, machine::describe());
    let missed = measured.missed.iter().map(|(row, why)| (*row, why.as_str()));
    let omitted: Vec<(&str, &str)> = arguments.table.omitted().iter().copied().chain(missed).collect();
    if let Some(path) = &arguments.html {
        let page = page::page(results, &machine)?;
        std::fs::write(path, page).map_err(|source| RunError::File { path: path.clone(), source })?;
        eprintln!("peers: wrote {}", path.display());
    }
    if arguments.json {
        println!("{}", table::json(results, &omitted, &machine));
    } else if arguments.markdown {
        print!("{}", Results::new(results, &omitted, &machine)?.page(arguments.table));
    } else {
        println!("{}", table::text(results, &omitted, &machine, wrap::columns()));
    }
    Ok(())
}

/// Becomes true when a person wants the rows so far. A second signal ends the process at once.
fn interrupted() -> Result<Arc<AtomicBool>, RunError> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        let ends = signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&flag));
        ends.and_then(|_| signal_hook::flag::register(signal, Arc::clone(&flag))).map_err(RunError::Signals)?;
    }
    Ok(flag)
}
