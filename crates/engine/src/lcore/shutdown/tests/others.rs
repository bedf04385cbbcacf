//! Peers that go on sending after a stop.

use super::*;

/// A peer sends its next message when it has the answer, for as long as the run lasts. Regression:
/// the run of a server whose clients were another process ended with packets on their way, and
/// failed.
#[test]
fn a_server_has_drained_though_the_clients_of_another_process_go_on() {
    for hears_others in [false, true] {
        let rig = Rig::new(8);
        let OnePort { mut lcore, control, qpn, port, .. } = hands_on(&rig);
        lcore.drain.hears_others = hears_others;
        let (ends, time, mut polls) = (Arc::clone(&control), rig.time.clone(), 0);
        rig.script.on_poll(move |queues| {
            polls += 1;
            time.pass(10_000_000);
            while queues.end_send(qpn, Status::SUCCESS).is_some() {}
            queues.receive(qpn, 8);
            // Longer than the drain of a second.
            if polls == 200 {
                ends.advance(Phase::Ending);
            }
        });
        lcore.run().unwrap();
        let is_drained = control.with(|progress| progress.was_drained(false));
        lcore.tear_down(|stage, said| panic!("{stage}: {said}"));
        let (sent, dropped) = (port.tx_packets.value(), port.drops.count(DropReason::Stopped));
        assert_eq!((is_drained, dropped > 50), (hears_others, hears_others), "{sent}, {dropped}");
        assert!(sent > 50, "it serves them until its drain is over: {sent}");
    }
}

/// A message comes behind the last turn. It is counted as dropped, and shows: unless its sender may
/// be another process, which goes on. Regression: a trader that stopped under a feed of another
/// process had not drained.
#[test]
fn a_message_behind_the_last_turn_shows_unless_other_processes_may_send() {
    for hears_others in [false, true] {
        let rig = Rig::new(8);
        let OnePort { mut lcore, control, qpn, port, .. } = hands_on(&rig);
        lcore.drain.hears_others = hears_others;
        let (ends, mut polls) = (Arc::clone(&control), 0);
        rig.script.on_poll(move |queues| {
            polls += 1;
            match polls {
                10 => ends.advance(Phase::Ending),
                11 => _ = queues.receive(qpn, 8),
                _ => {}
            }
        });
        lcore.run().unwrap();
        let is_drained = control.with(|progress| progress.was_drained(true));
        let dropped = lcore.state.ctx.sinks[0].stats.drops().count(DropReason::Stopped);
        let figures = (port.rx_packets.value(), dropped, is_drained);
        lcore.tear_down(|stage, said| panic!("{stage}: {said}"));
        assert_eq!(figures, (1, 1, hears_others));
    }
}
