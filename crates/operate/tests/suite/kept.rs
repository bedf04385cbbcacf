//! The slowest packets, which a run keeps itself: their choice, their expiry, and their fate while
//! a client traces the run.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use verbline_engine::Injector;
use verbline_operate::client::{Client, ClientError};
use verbline_operate::trace::kept::Kept;
use verbline_operate::trace::summary::PacketSummary;
use verbline_operate::{TraceAsk, TraceSettings};

use crate::common::{NAP, Served, load, plan};

const PATIENCE: Duration = Duration::from_secs(60);
const NAP_NS: u64 = NAP.as_nanos() as u64;

/// A stage that sleeps over its packets, while others wait.
const NAPS: &str = "\n[injector.hand]\nto = \"stage.nap\"\npool = \"packets\"\ndepth = 8\n\
                    [stage.nap]\nuse = \"nap\"\nlcore = \"main\"\n";

fn napping(table: &str) -> (Served, Injector) {
    let (mut served, runtime) = Served::starting(&format!("{NAPS}{table}"));
    let hand = runtime.injector("hand").unwrap();
    served.run(runtime);
    (served, hand)
}

fn asked(served: &Served) -> Result<Kept, ClientError> {
    Client::connect(&served.socket()).and_then(|mut client| client.kept())
}

/// The kept packets, as soon as `is_it` holds.
fn until(served: &Served, what: &str, mut is_it: impl FnMut(&Kept) -> bool) -> Kept {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let last = match asked(served) {
            Ok(kept) if is_it(&kept) => return kept,
            other => other,
        };
        assert!(Instant::now() < deadline, "{what} never comes: {last:#?}");
        std::thread::sleep(Duration::from_millis(30));
    }
}

fn at_most_ns(packet: &PacketSummary) -> u64 {
    packet.took_ns + packet.waited_ns
}

/// Whether a packet was in the stage that naps.
fn was_in_nap(packet: &PacketSummary) -> bool {
    packet.steps.iter().any(|step| step.step == "stage.nap" && step.took_ns >= NAP_NS)
}

/// Whether a packet waited while its lcore was in that stage.
fn waited_for_nap(packet: &PacketSummary) -> bool {
    let meanwhile = packet.steps.iter().filter(|step| step.step != "stage.nap").flat_map(|step| &step.meanwhile);
    meanwhile.into_iter().any(|did| did.did == "stage.nap" && did.ns >= NAP_NS / 2)
}

#[test]
fn the_slowest_packets_are_kept_with_their_way_and_what_the_lcore_did_meanwhile() {
    let (served, hand) = napping("[trace]\nslowest = 4\none_in = 1\n");
    until(&served, "a packet", |kept| kept.found.packets > 100);
    let kept = until(&served, "a slow packet, and one that waited for it", |kept| {
        hand.try_push(b"knock").unwrap();
        let slowest = &kept.found.slowest;
        slowest.iter().any(was_in_nap) && slowest.iter().any(waited_for_nap)
    });
    let found = &kept.found;
    assert_eq!((found.slowest.len(), found.turns.len(), kept.last_ns), (4, 4, 60_000_000_000));
    assert!(found.slowest.is_sorted_by(|one, next| at_most_ns(one) >= at_most_ns(next)), "{found:#?}");
    assert!(found.turns[0].did.iter().any(|did| did.did == "stage.nap"), "{:#?}", found.turns);
    let napped = found.slowest.iter().find(|packet| was_in_nap(packet)).unwrap();
    assert_eq!((&napped.path[..], &*napped.ended), (&["injector.hand".into(), "stage.nap".into()][..], "ends there"));
    for packet in &found.slowest {
        let sum: u64 = packet.steps.iter().map(|step| step.took_ns).sum();
        assert_eq!(sum, at_most_ns(packet), "the parts are the whole: {packet:?}");
        assert!(packet.at_ns <= kept.now_ns);
    }
    assert!(kept.pauses.is_empty() && found.lost_turns["main"] == 0, "{kept:#?}");
    served.assert_undisturbed();
}

/// With one millisecond in a hundred recorded, hardly a packet is seen. The millisecond in which
/// the lcore comes late is recorded, but not the cause of the delay.
#[test]
fn an_lcore_that_comes_late_is_seen_though_little_is_recorded() {
    let (served, hand) = napping("[trace]\none_in = 100\n");
    let kept = until(&served, "a packet that waited", |kept| {
        hand.try_push(b"knock").unwrap();
        kept.found.slowest.iter().any(|packet| packet.waited_ns >= NAP_NS / 2)
    });
    assert_eq!(kept.found.one_in.map(u32::from), Some(100));
    served.assert_undisturbed();
}

#[test]
fn what_is_older_than_the_last_time_is_forgotten() {
    let (served, hand) = napping("[trace]\nlast_s = 1\none_in = 1\n");
    let has_napped = |kept: &Kept| kept.found.slowest.iter().any(was_in_nap);
    until(&served, "a packet", |kept| kept.found.packets > 100);
    hand.try_push(b"knock").unwrap();
    let kept = until(&served, "the slow packet", has_napped);
    let at_ns = kept.found.slowest.iter().find(|packet| was_in_nap(packet)).unwrap().at_ns;
    let kept = until(&served, "its end", |kept| !has_napped(kept));
    assert!(kept.now_ns - at_ns >= kept.last_ns, "after {} ns", kept.now_ns - at_ns);
    assert!(kept.found.packets > 100 && kept.found.elapsed_ns < 2_000_000_000, "{kept:#?}");
    served.assert_undisturbed();
}

#[test]
fn a_trace_of_a_client_goes_first_and_the_time_is_told_in_which_nothing_was_kept() {
    let served = Served::new("\n[trace]\none_in = 1\n");
    until(&served, "a packet", |kept| kept.found.packets > 100);
    let trace = || Client::connect(&served.socket()).unwrap().trace(TraceAsk::default());
    let (head, mut events) = trace().unwrap();
    assert_eq!(head.one_in, None, "it is the client's");
    let mut came = 0;
    while came < 1_000 {
        events.take(PATIENCE, |_, _| came += 1).unwrap();
    }
    let paused = asked(&served).unwrap();
    let [pause] = &paused.pauses[..] else { panic!("{:?}", paused.pauses) };
    assert!(pause.to_ns.is_none() && paused.now_ns > pause.from_ns, "{pause:?}");
    assert!(paused.found.packets > 100, "what was kept before is there");
    match trace() {
        Err(ClientError::Refused(why)) => assert_eq!(why.code, "busy"),
        other => panic!("{other:?}"),
    }
    drop(events);
    let kept = until(&served, "an end", |kept| kept.pauses[0].to_ns.is_some_and(|to_ns| kept.now_ns > to_ns));
    let before = kept.found.packets;
    let kept = until(&served, "another packet", |kept| kept.found.packets > before + 100);
    assert_eq!(kept.found.lost_turns["main"], 0);
    served.assert_undisturbed();
}

#[test]
fn clients_that_take_nothing_end_and_the_run_keeps_on() {
    let served = Served::new("\n[trace]\none_in = 1\nslowest = 100\n");
    until(&served, "many packets", |kept| kept.found.slowest.len() == 100);
    let (_, stalled) = Client::connect(&served.socket()).unwrap().trace(TraceAsk::default()).unwrap();
    let mut deaf = UnixStream::connect(served.socket()).unwrap();
    deaf.write_all(&b"{\"verbline\":1,\"ask\":\"kept\"}\n".repeat(100)).unwrap();
    let is_over = |kept: &Kept| kept.pauses.last().is_some_and(|pause| pause.to_ns.is_some());
    let kept = until(&served, "the end of the trace that nobody takes", is_over);
    let before = kept.found.packets;
    until(&served, "another packet", |kept| kept.found.packets > before);
    drop((stalled, deaf));
    served.assert_undisturbed();
}

#[test]
fn behind_the_end_of_a_run_its_last_minute_is_told() {
    let (mut served, hand) = napping("[trace]\none_in = 1\n");
    until(&served, "a packet", |kept| kept.found.packets > 100);
    hand.try_push(b"knock").unwrap();
    served.running.take().unwrap().stop().unwrap();
    let kept = served.operate.kept().unwrap();
    assert!(kept.found.slowest.iter().any(was_in_nap) && kept.pauses.is_empty(), "{kept:#?}");
    assert_eq!(asked(&served).unwrap().found, kept.found);
}

#[test]
fn a_run_keeps_nothing_unless_its_plan_says_so() {
    let (mut served, runtime) = Served::starting("\n[trace]\n");
    let refused = |served: &Served| match asked(served) {
        Err(ClientError::Refused(why)) => why,
        other => panic!("{other:?}"),
    };
    assert_eq!((refused(&served).code.as_str(), served.operate.kept()), ("starting", None));
    served.run(runtime);
    served.assert_undisturbed();
    let served = Served::new("");
    let why = refused(&served);
    assert!(why.code == "invalid" && why.message.contains("no [trace]"), "{why:?}");
    assert_eq!(served.operate.kept(), None);
    served.assert_undisturbed();
    assert_eq!(TraceSettings::of(&plan("")).unwrap(), None);
    let settings = TraceSettings::of(&plan("\n[trace]\n")).unwrap().unwrap();
    assert_eq!((settings.slowest, settings.last.as_secs(), settings.one_in.get()), (10, 60, 128));
    for (faulty, says) in [
        ("slowest = 0", "1 to 100"),
        ("slowest = 101", "1 to 100"),
        ("last_s = 3601", "1 to 3600"),
        ("one_in = 0", "1 to 1000"),
        ("packets = 3", "packets"),
    ] {
        let fault = load(&format!("\n[trace]\n{faulty}\n")).unwrap_err().render(false);
        assert!(fault.contains(says), "{faulty}: {fault}");
    }
}
