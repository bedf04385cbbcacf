//! Datagrams to several groups, and answers to their senders.

use std::sync::{Arc, Mutex};

use crate::common::{OUT, assert_clean, one_lcore_with, registry, run};
use verbline_engine::{ConnectionId, Counter, Next, Outputs, Registry, Report, Stage, StageSpec};
use verbline_mem::Batch;

const CLIENTS: usize = 6;

/// Sends numbered datagrams to the groups of its port in turn, to the first by naming none.
struct Caller {
    groups: [Option<ConnectionId>; 3],
    sent: u64,
}

impl Stage for Caller {
    fn poll(&mut self, out: &mut Outputs<'_>) -> Next {
        if self.sent == 300 {
            return Next::Done;
        }
        let Some(mut packet) = out.alloc() else { return Next::Busy };
        assert!(packet.fill(&self.sent.to_le_bytes()));
        packet.set_connection(self.groups[self.sent as usize % 3]);
        assert!(out.send(OUT, packet));
        self.sent += 1;
        Next::Busy
    }
}

/// Records its packets, by port.
struct Ear(Arc<Mutex<Vec<(u16, u64)>>>);

impl Stage for Ear {
    fn process(&mut self, input: &mut Batch, _: &mut Outputs<'_>) {
        let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("a number"));
        self.0.lock().unwrap().extend(input.iter().map(|packet| (packet.port(), number(packet.data()))));
        input.clear();
    }
}

/// Runs a port that sends to three groups, in turn to those of these names (`None`: to none by
/// name). Returns the report, and the received packets.
fn call(turns: [Option<&'static str>; 3]) -> (Report, Vec<(u16, u64)>) {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let mut registry = registry();
    let spec = StageSpec { outputs: &["out"], source: true, summary: "calls", ..StageSpec::default() };
    registry.stage("caller", spec, move |context| {
        let group = |group| context.group("out", group);
        assert_eq!(group("239.7.0.9"), None);
        assert!(context.group("nowhere", "239.7.0.1").is_none() && group("239.7.0.1").is_some());
        Ok(Box::new(Caller { groups: turns.map(|name| name.and_then(group)), sent: 0 }))
    });
    let ears = Arc::clone(&heard);
    let spec = StageSpec { summary: "listens", ..StageSpec::default() };
    registry.stage("ear", spec, move |_| Ok(Box::new(Ear(Arc::clone(&ears)))));
    let ear = |group: usize| {
        format!(
            "[port.in{group}]\nlcore = \"only\"\ndevice = \"nic0\"\npool = \"p\"\ntransport = \"ud\"\n\
             rx_depth_wr = 256\n\
             join = [\"239.7.0.{group}\"]\nnext = \"stage.ear\"\n"
        )
    };
    let rest = r#"
        [port.out]
        lcore = "only"
        device = "nic0"
        transport = "ud"
        send_to = ["239.7.0.1", "239.7.0.2", "239.7.0.3"]
        tx_depth_wr = 16
        [stage.caller]
        use = "caller"
        lcore = "only"
        pool = "p"
        out = { out = "port.out" }
        [stage.ear]
        use = "ear"
        lcore = "only"
        "#;
    let text = one_lcore_with("poll", [4096, 64], &(rest.to_owned() + &ear(1) + &ear(2) + &ear(3)));
    let report = run(&registry, &text).unwrap();
    let heard = heard.lock().unwrap().clone();
    (report, heard)
}

#[test]
fn a_port_sends_to_the_group_that_each_packet_names() {
    let (report, heard) = call([None, Some("239.7.0.2"), Some("239.7.0.3")]);
    assert_clean(&report);
    assert_eq!(report.drops, []);
    for at in 0..3 {
        let port = 1 + at;
        let of_port: Vec<u64> = heard.iter().filter(|(from, _)| *from == port).map(|(_, number)| *number).collect();
        assert_eq!(of_port, (0..100).map(|n| 3 * n + u64::from(at)).collect::<Vec<_>>(), "port {port}");
    }
}

/// Regression: a group without packets of its own was reported to have lost all that were sent to
/// others.
#[test]
fn a_group_that_nothing_was_sent_to_is_no_failure() {
    let (report, heard) = call([Some("239.7.0.3"); 3]);
    assert_clean(&report);
    assert_eq!((report.failures, heard.len()), (vec![], 300));
}

/// Asks a server by its group, one question at a time, and takes the answers to its own questions.
struct Asker {
    own: u64,
    wanted: u64,
    under_way: Option<u64>,
    asked: Counter,
    answered: Counter,
    /// The turns that it waits for an answer before it asks again.
    patience: u32,
    waited: u32,
}

impl Stage for Asker {
    fn process(&mut self, input: &mut Batch, _: &mut Outputs<'_>) {
        for packet in input.drain_front(input.len()) {
            let (whose, number) = packet.data().split_at(8);
            assert_eq!(whose, self.own.to_le_bytes(), "an answer to somebody else");
            if self.under_way.is_some_and(|asked| asked.to_le_bytes() == number) {
                self.under_way = None;
                self.answered.add(1);
            }
        }
    }

    fn poll(&mut self, out: &mut Outputs<'_>) -> Next {
        if self.answered.value() == self.wanted {
            return Next::Done;
        }
        self.waited += 1;
        if self.under_way.is_none() || self.waited > self.patience {
            let Some(mut packet) = out.alloc() else { return Next::Busy };
            let number = self.answered.value();
            assert!(packet.fill(&[self.own.to_le_bytes(), number.to_le_bytes()].concat()));
            out.send(OUT, packet);
            self.asked.add(1);
            (self.under_way, self.waited) = (Some(number), 0);
        }
        Next::Busy
    }
}

/// Askers, each with as many questions as `wanted` says.
fn askers(wanted: fn(u64) -> u64, patience: u32) -> Registry {
    let mut registry = registry();
    let spec = StageSpec { outputs: &["out"], source: true, summary: "asks", ..StageSpec::default() };
    registry.stage("asker", spec, move |context| {
        let own = context.name().trim_start_matches("asker").parse()?;
        let wanted = wanted(own);
        let (asked, answered) = (context.counter("asked"), context.counter("answered"));
        Ok(Box::new(Asker { own, wanted, under_way: None, asked, answered, patience, waited: 0 }))
    });
    registry
}

/// A server that sends its packets back, and clients that know only its group. The number of places
/// selects the group, since a run beside this one would hear of it.
fn text(senders_max: usize, server: &str) -> String {
    let client = |at: usize| {
        format!(
            r#"
            [port.client{at}]
            lcore = "only"
            device = "nic0"
            pool = "p"
            transport = "ud"
            send_to = "239.7.1.{senders_max}"
            rx_depth_wr = 16
            tx_depth_wr = 16
            next = "stage.asker{at}"
            [stage.asker{at}]
            use = "asker"
            lcore = "only"
            pool = "p"
            out = {{ out = "port.client{at}" }}
            "#
        )
    };
    let server = format!(
        r#"
        [port.server]
        lcore = "only"
        device = "nic0"
        pool = "p"
        transport = "ud"
        join = ["239.7.1.{senders_max}"]
        senders_max = {senders_max}
        rx_depth_wr = 64
        tx_depth_wr = 64
        next = "stage.server"
        [stage.server]
        {server}
        lcore = "only"
        out = {{ out = "port.server" }}
        "#
    );
    one_lcore_with("poll", [8192, 128], &((0..CLIENTS).map(client).collect::<String>() + &server))
}

fn answered(report: &Report) -> Vec<[u64; 2]> {
    let of = |at: usize| report.stage(&format!("asker{at}")).unwrap();
    (0..CLIENTS).map(|at| ["asked", "answered"].map(|name| of(at).counter(name).unwrap())).collect()
}

/// The first questions wait for their address handles; none is lost.
#[test]
fn whoever_sends_a_datagram_is_answered_and_nobody_else() {
    let report = run(&askers(|_| 200, u32::MAX), &text(CLIENTS, "use = \"forward\"")).unwrap();
    assert_clean(&report);
    assert_eq!(answered(&report), [[200, 200]; CLIENTS]);
    assert_eq!(report.drops, []);
}

/// Regression: all that a port sent counted as sent to its peer, answers to others too, and the run
/// failed since the peer had received nothing.
#[test]
fn a_peer_that_asked_nothing_misses_no_answer() {
    let text = text(7, "use = \"forward\"").replace("senders_max = 7", "peer = \"port.client3\"\nsenders_max = 7");
    let report = run(&askers(|own| if own == 3 { 0 } else { 20 }, u32::MAX), &text).unwrap();
    assert_eq!((answered(&report)[3], report.port("client3").unwrap().rx_packets), ([0, 0], 0));
    assert_eq!(report.port("server").unwrap().tx_packets, 20 * (CLIENTS as u64 - 1));
    assert_clean(&report);
}

/// More senders than there are places: each has to wait for one again and again, and is answered
/// once it has it. An answer to a sender that has lost its place is dropped, and never goes to
/// another, which its asker would notice.
#[test]
fn senders_without_a_place_take_one_and_no_answer_goes_astray() {
    let report = run(&askers(|_| 50, 2_000), &text(2, "use = \"forward\"")).unwrap();
    assert_clean(&report);
    for [asked, answered] in answered(&report) {
        assert!(asked >= 50 && answered == 50, "{report:#?}");
    }
    let lost: u64 = report.drops.iter().map(|drop| drop.packets).sum();
    assert_eq!(lost, report.dropped("no_connection") + report.dropped("stopped"), "{:?}", report.drops);
}

/// The packets are kept until the run stops: by then most senders have lost their places to others.
#[test]
fn what_is_answered_too_late_is_dropped() {
    let report = run(
        &askers(|_| 1, 2_000),
        &text(1, "use = \"forward\"").replace("senders_max = 1\n", "senders_max = 1\nsend_options = true\n"),
    )
    .unwrap();
    assert_eq!(report.packets.held, 0, "{:?}", report.packets);
    let port = report.port("server").unwrap();
    let dropped = report.dropped("no_connection") + report.dropped("stopped") + report.dropped("tx_full");
    assert_eq!(port.rx_packets, port.tx_packets + dropped, "{report:#?}");
}

/// A port with one destination and no places for senders sends all answers there.
#[test]
fn a_port_without_places_sends_to_its_one_destination() {
    let text = text(9, "use = \"forward\"").replace("senders_max = 9", "peer = \"port.client3\"");
    let report = run(&once(), &text).unwrap();
    assert_clean(&report);
    let expected: Vec<_> = (0..CLIENTS).map(|at| if at == 3 { [1, CLIENTS as u64] } else { [1, 0] }).collect();
    assert_eq!(answered(&report), expected);
}

/// Regression: the run was over while answers waited for their address handles, and these answers
/// were dropped.
#[test]
fn a_run_ends_after_the_answers_that_wait_for_their_address_handles() {
    for _ in 0..20 {
        let report = run(&once(), &text(CLIENTS, "use = \"forward\"")).unwrap();
        assert_clean(&report);
        assert_eq!((answered(&report), report.drops), (vec![[1, 1]; CLIENTS], vec![]));
    }
}

/// Askers with one question each, which wait for no answer.
fn once() -> Registry {
    let mut registry = registry();
    let spec = StageSpec { outputs: &["out"], source: true, summary: "asks once", ..StageSpec::default() };
    registry.stage("asker", spec, |context| {
        let (asked, answered) = (context.counter("asked"), context.counter("answered"));
        Ok(Box::new(Once { asked, answered }))
    });
    registry
}

/// Asks once, and counts its news.
struct Once {
    asked: Counter,
    answered: Counter,
}

impl Stage for Once {
    fn process(&mut self, input: &mut Batch, _: &mut Outputs<'_>) {
        self.answered.add(input.len() as u64);
        input.clear();
    }

    fn poll(&mut self, out: &mut Outputs<'_>) -> Next {
        let Some(mut packet) = out.alloc() else { return Next::Busy };
        assert!(packet.fill(b"who is there?"));
        self.asked.add(out.send(OUT, packet).into());
        Next::Done
    }
}
