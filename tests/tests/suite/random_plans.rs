//! Random valid plans: runs a share of the seeds, and checks that the judge of a run sees planted
//! faults. `./x random-plans` runs any number.

use std::process::{Command, Output};
use std::sync::LazyLock;

use verbline::engine::{ConnectionsReport, OperationReport, OperationsReport, Report};
use verbline::prelude::Machine;
use verbline_softnic::counters::take_due_marks;
use verbline_tests::random::{draw, judge, run, run_without, with_least_pools};

/// The text in a plan whose packets go by a UDP socket.
const BY_WIRE: &str = "\naddress = ";
/// The text in a plan whose process is limited to the memory that the plan's sums allow.
const ALONE: &str = "\nalone = true";

/// Whether a plan can run in this process.
fn runs_here(text: &str) -> bool {
    !text.contains(BY_WIRE) && !text.contains(ALONE)
}

/// Looked at once, and not for each of a thousand plans.
static MACHINE: LazyLock<Machine> = LazyLock::new(Machine::detect);

fn text(seed: u64) -> String {
    with_least_pools(&draw(seed), &MACHINE).unwrap_or_else(|fault| panic!("seed {seed}: {fault}"))
}

/// Runs in a process of its own: plans by the wire give its software device an address for good.
fn program(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_random_plans")).args(words).output().unwrap()
}

#[test]
fn two_lcores_at_most_and_forty_random_plans_run_as_they_must() {
    let ran = program(&["--count", "40"]);
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success() && said.starts_with("40 plans from seed 0"), "{ran:?}");
}

/// A check that runs no plan must not pass.
#[test]
fn two_lcores_no_plan_is_not_a_plan_without_a_fault() {
    for words in [&["--count", "0"][..], &["--plan", "tests/plans/rig.toml", "--count", "0"]] {
        let refused = program(words);
        assert_eq!(refused.status.code(), Some(2), "{words:?}: {refused:?}");
    }
    let shortest = program(&["--for", "0s"]);
    assert!(String::from_utf8_lossy(&shortest.stdout).starts_with("1 plans from seed 0"), "{shortest:?}");
}

/// Regression: it drew plans for ever.
#[test]
fn two_lcores_a_word_that_no_plan_has_ends_the_search() {
    let refused = program(&["--with", "no such word", "--seed", "7"]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert_eq!(
        said.trim_end(),
        "random-plans: no plan of the 1000 seeds from 7 on has `no such word`, and 0 plans before were run; write \
         `--with` as it stands in a plan, which `--show --seed N` prints"
    );
}

#[test]
fn two_lcores_a_thousand_drafts_are_valid_plans_and_every_kind_of_link_is_among_them() {
    let texts: Vec<String> = (0..1_000).map(text).collect();
    for word in [
        "[ring.",
        "\"rc\"",
        "\"uc\"",
        "\"ud\"",
        "join = ",
        "listen = ",
        "to = \"port.",
        "holder3",
        "relay2",
        "source3",
        "fed",
        "caller",
        "by = \"key\"",
        "by = \"round-robin\"",
        "by = \"copy\"",
        "ring.in",
        "full = \"displace\"",
        "full = \"hold\"",
        "priority = 15",
        "operator",
        "[injector.i1]",
        "listener",
        "connections_max = 1",
        "server_closes = true",
        "listen_with = ",
        "placement = \"round-robin\"",
        "acceptor = \"gate\"",
        "says_place = true",
        "senders_max = ",
        "[ring.u2]",
        "meddler = ",
        "timers_max = ",
        "unsolicited_wait = ",
        "late_share = ",
        "spin_max = ",
        "path_mtu = ",
        "max_sge = 5",
        "windows = 4",
        "headroom_bytes = ",
        "writer = ",
        BY_WIRE,
        ALONE,
        "pair = \"own\"",
        "pair = \"shared\"",
    ] {
        assert!(texts.iter().filter(|text| text.contains(word)).count() >= 10, "too few plans have {word}");
    }
}

fn connections(report: &mut Report) -> &mut ConnectionsReport {
    let door = report.ports.iter_mut().find(|port| port.name == "door").expect("the plan has it");
    door.connections.as_mut().expect("it takes many")
}

fn operations(report: &mut Report) -> &mut OperationsReport {
    let port = report.ports.iter_mut().find(|port| port.name == "tops").expect("the plan has it");
    port.operations.as_mut().expect("it carries some out")
}

/// Operations of this kind, at the port that binds windows.
fn kind<'a>(report: &'a mut Report, name: &str) -> &'a mut OperationReport {
    let port = report.ports.iter_mut().find(|port| port.name == "qops").expect("the plan has it");
    let kinds = &mut port.operations.as_mut().expect("it carries some out").kinds;
    kinds.iter_mut().find(|kind| kind.kind == name).expect("some were done")
}

/// A change of a report after which something cannot be true any more.
type Tampering = fn(&mut Report);

#[test]
fn two_lcores_at_most_and_the_judge_sees_every_figure_that_is_off_by_one() {
    let tamperings: [(&str, Tampering); 19] = [
        ("taken", |report| report.packets.taken += 1),
        ("free", |report| report.pools[0].free -= 1),
        ("rescues", |report| report.lcores[0].rescues = 1),
        ("strays", |report| report.lcores[0].strays = 1),
        ("pushed", |report| report.rings.iter_mut().for_each(|ring| ring.pushed += 1)),
        ("tx_packets", |report| report.ports.iter_mut().for_each(|port| port.tx_packets += 1)),
        ("rx_packets", |report| report.ports.iter_mut().for_each(|port| port.rx_packets += 1)),
        ("packets_in", |report| report.stages[0].packets_in += 1),
        ("packets_out", |report| report.stages[0].packets_out += 1),
        ("late", |report| {
            let counters = report.stages.iter_mut().flat_map(|stage| &mut stage.counters);
            counters.filter(|counter| counter.name == "late").for_each(|counter| counter.value += 1);
        }),
        ("mixed", |report| {
            let rushed = report.stages.iter_mut().find(|stage| stage.name == "s21").expect("the plan has it");
            let timed = rushed.timed;
            let mixed = rushed.counters.iter_mut().find(|counter| counter.name == "mixed").expect("it counts them");
            mixed.value = timed + 1;
        }),
        ("popped", |report| report.injectors[0].popped += 1),
        ("opened", |report| connections(report).opened += 1),
        ("closed", |report| connections(report).closed += 1),
        ("requests", |report| connections(report).requests += 1),
        ("completed", |report| operations(report).kinds[0].completed += 1),
        ("declined", |report| operations(report).declined += 1),
        ("alloc_failed", |report| report.stages[0].alloc_failed += 1),
        ("rx_posted", |report| report.ports.iter_mut().for_each(|port| port.rx_posted += 200)),
    ];
    let words = [
        "full = \"refuse\"",
        "\"rc\"",
        "ends = true",
        "caller",
        "relay1",
        "operator",
        "visitor",
        "listen_with = ",
        "listener",
        "ring.u0",
    ];
    sees(&words, &tamperings);
}

#[test]
fn two_lcores_at_most_and_the_judge_sees_figures_of_windows_and_the_like_that_are_off_by_one() {
    let tamperings: [(&str, Tampering); 5] = [
        ("bind", |report| kind(report, "bind").completed += 1),
        ("invalidate", |report| kind(report, "invalidate").completed += 1),
        ("fd_events", |report| report.stages.iter_mut().for_each(|stage| stage.fd_events += 1)),
        ("fds_closed", |report| report.stages.iter_mut().for_each(|stage| stage.fds_closed += 1)),
        ("returned", |report| {
            let counters = report.stages.iter_mut().flat_map(|stage| &mut stage.counters);
            counters.filter(|counter| counter.name.starts_with("back_")).for_each(|counter| counter.value += 1);
        }),
    ];
    sees(&["ends = true", "lender", "words = 3", "count = 5", "watcher", "stage.wops"], &tamperings);
}

/// Holds a run of a plan that has these words to its judge, which misses each of these figures.
fn sees(words: &[&str], tamperings: &[(&str, Tampering)]) {
    // Few have them all: pools are counted only for the one that does. It runs in this process, so
    // not by the wire.
    let has_all = |seed: &u64| {
        let text = draw(*seed).text(&[0, 1], 1, 40);
        words.iter().all(|word| text.contains(word)) && runs_here(&text)
    };
    let text = text((0..).find(has_all).expect("there are some"));
    let (plan, mut report) = run(&text).unwrap();
    assert_eq!(judge(&plan, &report), Vec::<String>::new());
    // The judge does not check for late rounds if other programs kept the run from its CPUs: this
    // is the report of a run that had them.
    for lcore in &mut report.lcores {
        lcore.idle_ns += std::mem::take(&mut lcore.stolen_ns);
        lcore.idle_share += std::mem::take(&mut lcore.stolen_share);
        (lcore.stalls, lcore.stall_max_ns, lcore.queued_ns) = (0, 0, None);
    }
    let counters = report.stages.iter_mut().flat_map(|stage| &mut stage.counters);
    counters.filter(|counter| counter.name == "late").for_each(|counter| counter.value = 0);
    assert_eq!(judge(&plan, &report), Vec::<String>::new());
    for (figure, tamper) in tamperings {
        let mut report = report.clone();
        tamper(&mut report);
        assert_ne!(judge(&plan, &report), Vec::<String>::new(), "nobody misses {figure}");
    }
}

/// A limit that nothing comes near would hide a sum that is too small.
#[test]
fn two_lcores_at_most_and_a_run_has_few_more_descriptors_than_it_needs() {
    let is_one = |seed: &u64| {
        let text = draw(*seed).text(&[0, 1], 1, 40);
        let has = |word: &str| text.contains(word);
        ["ends = true", "writer = ", "listen = "].into_iter().all(has) && !has("connections_max") && runs_here(&text)
    };
    let text = text((0..).find(is_one).expect("there are some"));
    run(&text).unwrap();
    // Any other failure may be for want of a descriptor, too, and does not say so.
    let says = |fault: &String| fault.lines().next().is_some_and(|line| line.contains("Too many open files"));
    let lacking = (1..=24).find_map(|fewer| run_without(&text, fewer).err().filter(says));
    assert!(lacking.is_some(), "it has more than 24 than it needs");
}

/// A sum that no run comes near to could be wrong by as much.
#[test]
fn two_lcores_at_most_and_completion_queues_come_near_to_their_sums() {
    let is_one = |seed: &u64| {
        let text = draw(*seed).text(&[0, 1], 1, 40);
        text.contains("ends = true") && text.contains("caller") && runs_here(&text)
    };
    take_due_marks();
    let nearest = (0..).filter(is_one).take(20).find(|seed| {
        run(&text(*seed)).unwrap();
        take_due_marks().iter().any(|mark| mark.most == u64::from(mark.cqe))
    });
    assert!(nearest.is_some() || !cfg!(debug_assertions), "of no queue all work requests were due at once");
}
