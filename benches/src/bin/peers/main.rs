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

use clap::Parser;

use args::{Arguments, Command};
use contender::Contender;
use error::RunError;
use group::Group;
use markdown::Results;

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
    let (groups, omitted) = (arguments.table.groups(), arguments.table.omitted());
    let chosen: Vec<&Group> = groups.iter().filter(|group| group.has(arguments.rows())).collect();
    group::check_names(&groups, arguments.rows())?;
    let contenders: Vec<&Contender> = chosen.iter().flat_map(|group| &group.contenders).collect();
    machine::provide(&contenders)?;
    let mut results = Vec::new();
    for group in chosen {
        results.extend(measure::measure(group, arguments.rounds, arguments.rows())?);
    }
    let machine = machine::describe();
    if let Some(path) = &arguments.html {
        let page = page::page(&results, &machine)?;
        std::fs::write(path, page).map_err(|source| RunError::File { path: path.clone(), source })?;
        eprintln!("peers: wrote {}", path.display());
    }
    if arguments.json {
        println!("{}", table::json(&results, omitted, &machine));
    } else if arguments.markdown {
        print!("{}", Results::new(&results, omitted, &machine)?.page(arguments.table));
    } else {
        println!("{}", table::text(&results, omitted, &machine, wrap::columns()));
    }
    Ok(())
}
