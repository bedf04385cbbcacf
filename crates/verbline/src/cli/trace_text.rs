//! The results of a trace as text, in 80 columns.

use std::fmt::Write as _;

use verbline_operate::trace::kept::Kept;
use verbline_operate::trace::summary::{Meanwhile, PacketSummary, PathSummary, Summary, TurnSummary};

use super::figures::{count, duration, percent};
use super::output::{COLUMNS, labelled, wrapped};
use super::tables::table;
use super::visible::visible_name;

/// The number of ways shown.
const PATHS_MAX: usize = 20;

/// The number of packets in a report; its JSON has all.
const IN_REPORT: usize = 3;

/// The number of pauses shown.
const PAUSES_MAX: usize = 3;

/// The smallest share of a packet's or a turn's time that is shown.
const SHOWN_MIN: f64 = 0.01;

pub(super) fn text(plan: &str, summary: &Summary) -> String {
    told(plan, summary, None)
}

/// A run's kept packets and turns, each with its age.
pub(super) fn kept_text(plan: &str, kept: &Kept) -> String {
    let mut text = told(plan, &kept.found, Some(kept.now_ns));
    for pause in kept.pauses.iter().rev().take(PAUSES_MAX) {
        let length = duration(pause.to_ns.unwrap_or(kept.now_ns).saturating_sub(pause.from_ns));
        let (from, why) = (ago(pause.from_ns, kept.now_ns), "a client traced the run");
        text += &format!("{}\n", labelled("not kept", &format!("for {length}, from {from} on: {why}")));
    }
    if kept.pauses.len() > PAUSES_MAX {
        text += &format!("and {} more times not kept\n", kept.pauses.len() - PAUSES_MAX);
    }
    text
}

/// The slowest packets that a run has kept, for its report: the first few, one below the other.
pub(super) fn kept_slowest(kept: &Kept) -> String {
    let slowest = kept.found.slowest.iter().take(IN_REPORT).enumerate();
    let one = |(number, packet): (usize, &PacketSummary)| {
        slow_packet(number + 1, &format!("{}: ", ago(packet.at_ns, kept.now_ns)), packet)
    };
    slowest.map(one).collect()
}

fn told(plan: &str, summary: &Summary, now_ns: Option<u64>) -> String {
    let (packets, over) = (count(summary.packets), duration(summary.elapsed_ns));
    let part = summary.one_in.map_or(String::new(), |one_in| format!(", of which one millisecond in {one_in} is told"));
    let mut text = format!("{}: {packets} packets in {over}{part}\n\n", visible_name(plan));
    text += &paths(&summary.paths);
    if !summary.steps.is_empty() {
        let _ = writeln!(text, "{}\n", steps(summary));
    }
    let when = |at_ns: u64| now_ns.map_or(String::new(), |now_ns| format!("{}: ", ago(at_ns, now_ns)));
    for (number, packet) in summary.slowest.iter().enumerate() {
        text += &slow_packet(number + 1, &when(packet.at_ns), packet);
    }
    for turn in &summary.turns {
        text += &long_turn(&when(turn.at_ns), turn);
    }
    text += &untold(summary);
    text
}

fn ago(at_ns: u64, now_ns: u64) -> String {
    format!("{} ago", duration(now_ns.saturating_sub(at_ns)))
}

fn paths(paths: &[PathSummary]) -> String {
    if paths.is_empty() {
        return String::new();
    }
    let figures = |packets: &str, mean: &str, most: &str| format!("{packets:>9} {mean:>8} {most:>8}  ");
    let head = figures("packets", "mean", "most");
    let mut text = format!("{head}way\n");
    for one in paths.iter().take(PATHS_MAX) {
        let times = figures(&count(one.packets), &duration(one.mean_ns), &duration(one.max_ns));
        let way = match &one.path[..] {
            [] => "other ways".to_owned(),
            path => format!(
                "{} ({})",
                path.iter().map(|name| visible_name(name)).collect::<Vec<_>>().join(" > "),
                one.ended
            ),
        };
        let _ = writeln!(text, "{times}{}", wrapped(&way, COLUMNS, head.len()));
    }
    if paths.len() > PATHS_MAX {
        let _ = writeln!(text, "and {} more ways", paths.len() - PATHS_MAX);
    }
    text.push('\n');
    text
}

fn steps(summary: &Summary) -> String {
    let rows = summary.steps.iter().map(|step| {
        let name = match step.step.as_str() {
            "before" => "before it was seen, at most".to_owned(),
            name => visible_name(name),
        };
        [name, count(step.packets), duration(step.mean_ns), duration(step.max_ns), percent(step.share)]
    });
    table(["step", "packets", "mean", "most", "of all time"], 1, rows)
}

fn slow_packet(number: usize, when: &str, packet: &PacketSummary) -> String {
    let (took, waited) = (duration(packet.took_ns), duration(packet.waited_ns));
    let way = packet.path.iter().map(|name| visible_name(name)).collect::<Vec<_>>().join(" > ");
    let before = if packet.waited_ns == 0 { String::new() } else { format!(", after a wait of {waited} at most") };
    let alike = if packet.alike == 0 { String::new() } else { format!("; {} more like it", count(packet.alike)) };
    let head = format!("{when}took {took}{before}: {way} ({}){alike}", packet.ended);
    let mut text = format!("{}\n", labelled(&format!("slow {number}"), &head));
    let whole_ns = packet.took_ns + packet.waited_ns;
    for step in packet.steps.iter().filter(|step| step.took_ns as f64 >= whole_ns as f64 * SHOWN_MIN) {
        let what = match step.step.as_str() {
            "before" => format!("waited at most for lcore {} to look", visible_name(&step.lcore)),
            name => match name.strip_prefix("to ") {
                Some(next) => format!("waited on lcore {} for {}", visible_name(&step.lcore), visible_name(next)),
                None if name.starts_with("stage.") => format!("in {}", visible_name(name)),
                None => format!("in {}, for lcore {}", visible_name(name), visible_name(&step.lcore)),
            },
        };
        let meanwhile = listed(&step.meanwhile, step.took_ns);
        let meanwhile = if meanwhile.is_empty() { meanwhile } else { format!("; meanwhile {meanwhile}") };
        let line = wrapped(&format!("{what}{meanwhile}"), COLUMNS, 20);
        let _ = writeln!(text, "{:>18}  {line}", duration(step.took_ns));
    }
    text.push('\n');
    text
}

fn long_turn(when: &str, turn: &TurnSummary) -> String {
    let did = listed(&turn.did, turn.took_ns);
    let did = if did.is_empty() { "nothing that took long".to_owned() } else { did };
    let text = format!("{when}{} on lcore {}: {did}", duration(turn.took_ns), visible_name(&turn.lcore));
    format!("{}\n", labelled("turn", &text))
}

/// The longest activities in a time, without those with a small part of it.
fn listed(did: &[Meanwhile], within_ns: u64) -> String {
    let one = |one: &Meanwhile| {
        let what = match one.did.as_str() {
            "asleep" => "asleep".to_owned(),
            "stolen" => "kept from its CPU".to_owned(),
            stage => visible_name(stage),
        };
        format!("{what} {}", duration(one.ns))
    };
    let is_shown = |did: &&Meanwhile| did.ns as f64 >= within_ns as f64 * SHOWN_MIN;
    did.iter().filter(is_shown).take(4).map(one).collect::<Vec<_>>().join(", ")
}

/// Facts that the figures above do not show.
fn untold(summary: &Summary) -> String {
    let mut text = String::new();
    let lost: Vec<String> = (summary.lost_turns.iter().filter(|(_, turns)| **turns > 0))
        .map(|(lcore, turns)| format!("{} turns of lcore {}", count(*turns), visible_name(lcore)))
        .collect();
    if !lost.is_empty() {
        let why = format!("{}: more happened than could be taken", lost.join(", "));
        text += &format!("{}\n", labelled("lost", &why));
    }
    let packets = [(summary.partial, "seen only in part"), (summary.under_way, "still under way at the end")];
    let packets: Vec<String> = (packets.into_iter().filter(|(packets, _)| *packets > 0))
        .map(|(packets, what)| format!("{} packets {what}", count(packets)))
        .collect();
    if !packets.is_empty() {
        text += &format!("{}\n", labelled("left out", &packets.join(", ")));
    }
    text
}

#[cfg(test)]
mod tests {
    use verbline_operate::trace::kept::Pause;
    use verbline_operate::trace::summary::{PacketStep, StepSummary};

    use super::*;
    use crate::cli::screens::assert_shown;

    fn meanwhile(did: &str, ns: u64) -> Meanwhile {
        Meanwhile { did: did.to_owned(), ns }
    }

    fn summary() -> Summary {
        let path: Vec<String> =
            ["port.feed-a", "stage.book", "ring.orders", "stage.risk", "port.out"].map(Into::into).into();
        let step = |step: &str, lcore: &str, from_ns, took_ns, meanwhile| PacketStep {
            step: step.into(),
            lcore: lcore.into(),
            from_ns,
            took_ns,
            meanwhile,
        };
        let slow = PacketSummary {
            at_ns: 0,
            took_ns: 2_100_000,
            waited_ns: 900_000,
            path: path.clone(),
            ended: "posted".into(),
            alike: 7,
            steps: vec![
                step("before", "feed", -900_000, 900_000, vec![meanwhile("stage.book", 880_000)]),
                step("stage.book", "feed", 0, 90_000, vec![]),
                step(
                    "ring.orders",
                    "trader",
                    90_000,
                    2_000_000,
                    vec![meanwhile("stage.risk", 1_800_000), meanwhile("asleep", 90_000), meanwhile("stolen", 9)],
                ),
                step("to port.out", "trader", 2_090_000, 10_000, vec![]),
            ],
        };
        let step = |step: &str, share| StepSummary {
            step: step.into(),
            packets: 99,
            mean_ns: 1_500,
            max_ns: 2_000_000,
            share,
        };
        Summary {
            elapsed_ns: 1_250_000_000,
            one_in: None,
            events: 5_000,
            lost_turns: [("feed".to_owned(), 0), ("trader".to_owned(), 1_234)].into(),
            packets: 99,
            partial: 2,
            under_way: 1,
            paths: vec![PathSummary { path, ended: "posted".into(), packets: 99, mean_ns: 1_500, max_ns: 3_000_000 }],
            steps: vec![step("ring.orders", 0.7), step("before", 0.3)],
            slowest: vec![slow],
            turns: vec![TurnSummary {
                lcore: "trader".into(),
                at_ns: 0,
                took_ns: 1_900_000,
                did: vec![meanwhile("stolen", 1_400_000)],
            }],
            first: Vec::new(),
        }
    }

    #[test]
    fn the_document_shows_a_trace_from_the_ways_to_the_slowest() {
        let shown = text("tick-to-trade", &summary());
        assert!(shown.lines().all(|line| line.chars().count() <= COLUMNS), "{shown}");
        assert_shown(&[("trace", shown)]);
    }

    #[test]
    fn the_document_shows_what_a_run_has_kept_with_the_time_of_each() {
        let at = |seconds: u64| seconds * 1_000_000_000;
        let (mut found, now_ns) = (summary(), at(600));
        found.one_in = std::num::NonZeroU32::new(128);
        (found.elapsed_ns, found.slowest[0].at_ns, found.turns[0].at_ns) = (at(62), at(588), at(571));
        let pauses = [(at(540), at(541)), (at(550), at(552)), (at(560), at(563))].map(|(from, to)| (from, Some(to)));
        let pauses = pauses.into_iter().chain([(at(599), None)]);
        let pauses: Vec<Pause> = pauses.map(|(from_ns, to_ns)| Pause { from_ns, to_ns }).collect();
        let shown = |pauses: &[Pause]| {
            let pauses = pauses.to_vec();
            kept_text("tick-to-trade", &Kept { now_ns, last_ns: at(60), pauses, found: found.clone() })
        };
        let long = shown(&pauses);
        assert!(long.contains("not kept for 1.0s, from 1.0s ago on: a client traced the run\n"), "{long}");
        assert!(long.ends_with("and 1 more times not kept\n"), "{long}");
        assert!(long.lines().all(|line| line.chars().count() <= COLUMNS), "{long}");
        assert_shown(&[("trace --kept", shown(&pauses[2..3]))]);
    }

    #[test]
    fn a_trace_without_packets_says_so() {
        let nothing = Summary {
            packets: 0,
            partial: 0,
            under_way: 0,
            lost_turns: Default::default(),
            paths: Vec::new(),
            steps: Vec::new(),
            slowest: Vec::new(),
            turns: Vec::new(),
            ..summary()
        };
        assert_eq!(text("kv", &nothing), "kv: 0 packets in 1.2s\n\n");
        let sampled = Summary { one_in: std::num::NonZeroU32::new(32), ..nothing };
        assert_eq!(text("kv", &sampled), "kv: 0 packets in 1.2s, of which one millisecond in 32 is told\n\n");
    }
}
