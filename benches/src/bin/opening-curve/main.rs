//! How a running connection is affected while a thousand others open on its lcore:
//! `./x bench opening-curve [--pace-per-s N] [--write DIR] [--json]`.
//!
//! A message goes to and fro over one connection. Its round trips are shown in slots of ten
//! milliseconds, from the first of the others that opens until as long after the last one.
//! `--write` draws the picture of docs/performance.

#![forbid(unsafe_code)]

mod draw;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use verbline_benches::ours::opening::{Course, course};

/// Measures what a connection that runs notices while a thousand others open.
#[derive(Debug, Parser)]
#[command(name = "opening-curve")]
struct Arguments {
    /// Open this many a second
    #[arg(long, default_value_t = 2000, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pace_per_s: u32,

    /// Draw the picture into this folder
    #[arg(long, value_name = "DIR")]
    write: Option<PathBuf>,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    match measure(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("opening-curve: {message}");
            ExitCode::from(2)
        }
    }
}

fn measure(arguments: &Arguments) -> Result<(), String> {
    let course = course(Some(arguments.pace_per_s));
    if arguments.json {
        println!("{}", serde_json::to_string_pretty(&course).map_err(|error| error.to_string())?);
    } else {
        table(&course);
    }
    let Some(folder) = &arguments.write else { return Ok(()) };
    let path = folder.join("opening.svg");
    let svg = draw::picture(&course).map_err(|error| format!("{}: {error}", path.display()))?;
    std::fs::write(&path, svg).map_err(|error| format!("{}: {error}", path.display()))?;
    eprintln!("wrote {}", path.display());
    Ok(())
}

fn table(course: &Course) {
    println!("{} connections opened in {:.0} ms", course.opened, course.took_ns as f64 / 1e6);
    println!("{:>8} {:>12} {:>9} {:>9} {:>10}", "ms", "round trips", "p50 µs", "p99 µs", "most µs");
    for slot in &course.slots {
        let us = |ns: u64| ns as f64 / 1e3;
        println!(
            "{:>8} {:>12} {:>9.2} {:>9.2} {:>10.1}",
            slot.from_ns / 1_000_000,
            slot.trips,
            us(slot.p50_ns),
            us(slot.p99_ns),
            us(slot.max_ns)
        );
    }
}
