//! Lcores that only solicited messages wake: other messages wait, at most for as long as the plan
//! allows, and an lcore's own completions still wake it.

use crate::common::{OUT, assert_clean, lacks_cpus, plan, registry, run, two_lcores, until};
use verbline_engine::{Next, Outputs, Registry, Report, Runtime, SendWith, Stage, StageSpec, Tick};

/// Far longer than any message takes, and far shorter than a test may take.
const WAIT: &str = "400ms";

/// A source on one lcore that sends `count` messages, one every `gap_us`, to a sleeping lcore.
fn text(solicited: bool, wait: Option<&str>, count: u64, gap_us: u64) -> String {
    let wait = wait.map_or(String::new(), |wait| format!("unsolicited_wait = \"{wait}\""));
    let rest = format!(
        r#"
        [port.out]
        lcore = "a"
        device = "nic0"
        transport = "rc"
        peer = "port.in"
        tx_depth_wr = 512
        solicited = {solicited}
        [port.in]
        lcore = "b"
        device = "nic0"
        pool = "p"
        transport = "rc"
        peer = "port.out"
        rx_depth_wr = 512
        next = "stage.sink"
        [stage.gen]
        use = "generator"
        lcore = "a"
        pool = "p"
        out = {{ out = "port.out" }}
        params = {{ count = {count}, gap_us = {gap_us} }}
        [stage.sink]
        use = "sink"
        lcore = "b"
        "#
    );
    let sleeps = "idle = \"event\"";
    two_lcores([sleeps, &format!("{sleeps}\n{wait}")], [2048, 256], &rest)
}

fn stream(solicited: bool, wait: Option<&str>, count: u64, gap_us: u64) -> Report {
    let report = run(&registry(), &text(solicited, wait, count, gap_us)).unwrap();
    assert_clean(&report);
    assert_eq!(report.stage("sink").unwrap().packets_in, count, "{report:#?}");
    report
}

fn woken(report: &Report) -> u64 {
    report.lcore("b").unwrap().woken_by("completion")
}

/// Runs a plan until completions have woken its lcore a hundred times.
#[track_caller]
fn wakes_often(registry: &Registry, text: &str) {
    let running = Runtime::build(&plan(registry, text), registry).unwrap().start().unwrap();
    until(&running, |report| woken(report) > 100);
    assert_clean(&running.stop().unwrap());
}

#[test]
fn two_lcores_of_which_one_sleeps_through_what_is_not_solicited() {
    if lacks_cpus(2) {
        return;
    }
    // Each message is a wake-up, unless it comes while the lcore is awake. All completions wake it,
    // and then solicited ones.
    for (solicited, wait) in [(false, None), (true, Some(WAIT))] {
        wakes_often(&registry(), &text(solicited, wait, 1 << 40, 2_000));
    }
    let quiet = stream(false, Some(WAIT), 300, 2_000);
    let lcore = quiet.lcore("b").unwrap();
    assert!(woken(&quiet) <= 3 && lcore.woken_by("timer") >= 1, "{lcore:#?}");
    assert_eq!(lcore.rescues, 0, "nothing was lost: {lcore:#?}");
}

/// Sends `count` numbers, one every two milliseconds, in packets that ask to wake the peer.
struct Herald {
    count: u64,
    sent: u64,
    next_ns: Tick,
}

impl Stage for Herald {
    fn poll(&mut self, out: &mut Outputs<'_>) -> Next {
        if self.sent == self.count {
            return Next::Done;
        }
        if let Some(mut packet) = out.alloc() {
            assert!(packet.fill(&self.sent.to_le_bytes()));
            assert!(out.send_with(OUT, packet, SendWith::new().solicited()));
            self.sent += 1;
        }
        self.next_ns = self.next_ns.max(out.now_ns()) + 2_000_000;
        Next::At(self.next_ns)
    }
}

/// As above, but the packets ask for it, and not their port.
#[test]
fn two_lcores_of_which_one_is_woken_by_packets_that_ask_for_it() {
    if lacks_cpus(2) {
        return;
    }
    let heralds = |count| {
        let mut registry = registry();
        let spec = StageSpec { outputs: &["out"], source: true, summary: "wakes", ..StageSpec::default() };
        registry.stage("herald", spec, move |_| Ok(Box::new(Herald { count, sent: 0, next_ns: 0 })));
        registry
    };
    let text = |keys: &str| {
        text(false, Some(WAIT), 0, 0)
            .replace("solicited = false", keys)
            .replace("use = \"generator\"", "use = \"herald\"")
            .replace("params = { count = 0, gap_us = 0 }", "")
    };
    wakes_often(&heralds(u64::MAX), &text("send_options = true"));
    let report = run(&heralds(300), &text("")).unwrap();
    assert_clean(&report);
    assert_eq!(report.stage("sink").unwrap().packets_in, 300, "{report:#?}");
    assert!(woken(&report) <= 100, "{report:#?}");
}

/// The peer has one place to receive into, and takes its time: each send completes late, and frees
/// the only place of the send queue. An lcore that only solicited messages woke would wait for each
/// completion.
#[test]
fn two_lcores_of_which_one_is_woken_by_completions_of_its_own_sends() {
    if lacks_cpus(2) {
        return;
    }
    const COUNT: u64 = 100;
    let text = text(false, None, COUNT, 0)
        .replace("[lcore.a]", &format!("[lcore.a]\nunsolicited_wait = \"{WAIT}\""))
        .replace("_depth_wr = 512", "_depth_wr = 1")
        .replace("gap_us = 0", "polite = true, patient = true")
        .replace("use = \"sink\"", "use = \"sink\"\nparams = { work_us = 3000 }");
    // Waiting for each would take longer than the run has.
    let report = run(&registry(), &text).unwrap();
    assert_clean(&report);
    assert_eq!(report.stage("sink").unwrap().packets_in, COUNT, "{report:#?}");
    assert!(report.lcore("a").unwrap().woken_by("completion") > COUNT / 4, "{report:#?}");
}
