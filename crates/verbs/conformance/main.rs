//! The conformance suite: what the manual pages of the verbs say, a row a rule, held against a device.
//!
//! What it guarantees: every row is the same code on every device, the software RNIC's or the kernel's. A row passes,
//! fails, or is lacked for a reason that the device gives itself or that is declared with the row (DIFFERENCES.md).
//!
//! ```text
//! conformance --device soft                      every row on the software RNIC
//! conformance --device rxe --json                on the kernel's rdma_rxe, for programs
//! conformance --device rxe0 --row notify/        one theme; --row may also be part of a rule's name
//! conformance --list                             what there is
//! ```
#![deny(unsafe_code)]

mod check;
mod report;
#[allow(unsafe_code)]
mod rig;
mod rows;
mod suite;

use clap::Parser;
use rig::Target;
use std::process::ExitCode;
use suite::{Ran, Row, Verdict};

/// Holds an RDMA device against the manual pages of the verbs: a row per rule.
#[derive(Parser)]
#[command(after_help = "Exit code: 0 if no row fails, 1 if one does, 2 if nothing could be run.")]
struct Options {
    /// The device: soft, rxe, or a name such as soft1 or mlx5_0
    #[arg(long, default_value = "soft")]
    device: String,
    /// Prints JSON
    #[arg(long)]
    json: bool,
    /// Only rules with this in their name; may be repeated
    #[arg(long, value_name = "RULE")]
    row: Vec<String>,
    /// Prints the rules instead of running them
    #[arg(long)]
    list: bool,
    /// Prints the declared differences between devices as a Markdown table
    #[arg(long)]
    differences: bool,
    /// Names each row on stderr before it runs
    #[arg(long, short)]
    verbose: bool,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let mut rows = rows::all();
    if options.differences {
        print!("{}", report::differences(&rows));
        return ExitCode::SUCCESS;
    }
    rows.retain(|row| options.row.is_empty() || options.row.iter().any(|part| row.rule.contains(part)));
    if rows.is_empty() {
        eprintln!("conformance: no rule has {} in its name; --list prints them", options.row.join(" or "));
        return ExitCode::from(2);
    }
    if options.list {
        print!("{}", report::list(&rows));
        return ExitCode::SUCCESS;
    }
    match Target::find(&options.device) {
        Ok(target) => run(&options, rows, &target),
        Err(error) => {
            eprintln!("conformance: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(options: &Options, rows: Vec<Row>, target: &Target) -> ExitCode {
    // A panic is a row's failure and printed as such.
    std::panic::set_hook(Box::new(|_| {}));
    let results: Vec<(Row, Ran)> = rows
        .into_iter()
        .map(|row| {
            if options.verbose {
                eprintln!("{}", row.rule);
            }
            let ran = suite::run(&row, target);
            (row, ran)
        })
        .collect();
    if options.json {
        println!("{}", report::json(target, &results));
    } else {
        print!("{}", report::text(target, &results));
    }
    let failed = results.iter().any(|(_, ran)| ran.verdict == Verdict::Fail);
    ExitCode::from(u8::from(failed))
}
