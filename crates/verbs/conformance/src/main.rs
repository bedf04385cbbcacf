//! The conformance suite: checks a device against the manual pages of the verbs, one row per rule.
//!
//! It guarantees that every row is the same code on every device, the software RNIC's or the
//! kernel's. A row passes, fails, or is lacked, for a reason that the device reports or that is
//! declared with the row (DIFFERENCES.md). PAGES.md goes through the pages by statement.
//!
//! ```text
//! conformance --device soft                      every row on the software RNIC
//! conformance --device rxe --json                on the kernel's rdma_rxe, for programs
//! conformance --device rxe0 --row notify/        one theme; --row may also be part of a rule's name
//! conformance --device rxe0 --far soft-udp       pairs with an end on each
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
use std::net::IpAddr;
use std::process::ExitCode;
use suite::{Ran, Row, Verdict};

/// Holds an RDMA device against the manual pages of the verbs: a row per rule.
#[derive(Parser)]
#[command(after_help = "Exit code: 0 if no row fails, 1 if one does, 2 if nothing could be run.")]
struct Options {
    /// The device: soft, soft-udp, soft-udp6, rxe, or a name such as soft1 or mlx5_0
    #[arg(long, default_value = "soft")]
    device: String,
    /// The device of the other end of each pair of queue pairs, if it is another
    /// one; soft-udp for a software device that is reached by its wire
    #[arg(long, value_name = "DEVICE")]
    far: Option<String>,
    /// The address of the wire of the first soft-udp; one of 127.77.0.0/24 without
    #[arg(long, requires = "far")]
    address: Option<IpAddr>,
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
    if !options.row.is_empty() {
        let names: Vec<String> = rows.iter().map(|row| row.rule.clone()).collect();
        rows.retain(|row| options.row.iter().any(|asked| selects(asked, &row.rule, &names)));
    }
    if rows.is_empty() {
        eprintln!("conformance: no rule has {} in its name; --list prints them", options.row.join(" or "));
        return ExitCode::from(2);
    }
    if options.list {
        print!("{}", report::list(&rows));
        return ExitCode::SUCCESS;
    }
    let found = match &options.far {
        Some(far) => Target::find_two(&options.device, far, options.address),
        None => Target::find(&options.device),
    };
    match found {
        Ok(target) => run(&options, rows, &target),
        Err(error) => {
            eprintln!("conformance: {error}");
            ExitCode::from(2)
        }
    }
}

/// Whether `asked` selects this rule: the whole name of a rule selects only that one; other text
/// selects the rules whose names contain it.
fn selects(asked: &str, rule: &str, names: &[String]) -> bool {
    if names.iter().any(|name| name == asked) { rule == asked } else { rule.contains(asked) }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Also limits the suite's size and time.
    #[test]
    fn the_software_rnic_conforms() {
        conforms("soft", 20);
    }

    /// Through a socket, packet by packet.
    #[test]
    fn the_software_rnic_conforms_by_its_wire() {
        conforms("soft-udp", 120);
    }

    #[test]
    fn the_software_rnic_conforms_by_a_wire_of_ipv6() {
        conforms("soft-udp6", 120);
    }

    /// Regression: a datagram to the device's own address stayed in the process.
    #[test]
    fn datagrams_of_the_software_rnic_go_by_its_wire() {
        let target = Target::find("soft-udp").expect("the software device is always there");
        let row = rows::all().into_iter().find(|row| row.rule == "opcodes/ud-send").expect("a row of that name");
        let wire = verbline_softnic::wire::of_device(&target.name).expect("it was given one");
        let before = wire.link_counters().received;
        assert_eq!(suite::run(&row, &target).verdict, Verdict::Pass);
        assert!(wire.link_counters().received > before, "it came through the socket");
    }

    /// Checks that no row fails, and fewer than `lacking_max` are lacked, each with a reason.
    fn conforms(device: &str, lacking_max: usize) {
        let target = Target::find(device).expect("the software device is always there");
        let rows = rows::all();
        assert!(rows.len() >= 120, "{} rows", rows.len());
        let ran: Vec<(Row, Ran)> = rows.into_iter().map(|row| (row.clone(), suite::run(&row, &target))).collect();
        let failed: Vec<_> = ran.iter().filter(|(_, ran)| ran.verdict == Verdict::Fail).cloned().collect();
        assert!(failed.is_empty(), "{}", report::text(&target, &failed));
        let lacking = ran.iter().filter(|(_, ran)| ran.verdict == Verdict::Lacks);
        assert!(lacking.clone().all(|(_, ran)| !ran.reason.is_empty()));
        assert!(lacking.count() < lacking_max, "{}", report::text(&target, &ran));
    }

    #[test]
    fn a_whole_name_selects_one_rule_and_a_part_selects_many() {
        let names = ["a/send".to_owned(), "a/send-imm".to_owned()];
        assert!(selects("a/send", "a/send", &names) && !selects("a/send", "a/send-imm", &names));
        assert!(selects("send", "a/send", &names) && selects("send", "a/send-imm", &names));
    }
}
