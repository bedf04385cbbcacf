//! Events are counted within bounds; the thread that reads them ends, or is named.

use std::sync::mpsc;

use verbline_verbs::{Device, Provider};

use super::*;
use crate::rig::log::at_each_log;
use crate::stats::counter::shared;

#[test]
fn a_thread_that_does_not_end_is_waited_for_until_the_limit_and_named() {
    let (go, gone) = mpsc::channel::<()>();
    let (stop, sleeper) = doorbell().unwrap();
    let thread = std::thread::spawn(move || _ = gone.recv());
    let mut watch = Watch { counts: EventCounts::default(), stop, lcore: "a".to_owned(), thread: Some(thread) };
    let began = Instant::now();
    let stuck = watch.end(began + Duration::from_millis(50)).expect("it does not end");
    assert!(began.elapsed() < Duration::from_secs(10));
    assert_eq!((&*stuck.lcore, &*stuck.who), ("a", "the thread that reads the devices' events"));
    assert!(watch.end(Instant::now()).is_none(), "nobody waits for it again");
    drop((go, sleeper));
}

/// A device with one port, on one lcore, and the thread's state.
fn one_port() -> (Watched, Watching, Shared<PortStats>) {
    let context = Device::find(Provider::Soft, "soft0").unwrap().open().unwrap();
    let stats = shared::<PortStats>();
    let port = WatchedPort { name: "p".to_owned(), stats: Shared::clone(&stats), is_many: false };
    let lcore = WatchedLcore { index: 0, name: "a".to_owned(), cq: None, ports: vec![port] };
    let watched = Watched {
        device: "soft0".to_owned(),
        plan_name: "nic0".to_owned(),
        port_num: 1,
        shares_receives: false,
        events: context.async_events(),
        lcores: vec![lcore],
    };
    let control = Arc::new(Control::new(vec![doorbell().unwrap().0]));
    (watched, Watching { devices: Vec::new(), counts: EventCounts::default(), control }, stats)
}

/// Regression: while the log of an event blocked, no lcore heard of it.
#[test]
fn lcores_hear_of_an_event_before_it_is_logged() {
    let (watched, watching, _) = one_port();
    let control = Arc::clone(&watching.control);
    let heard = move |_| {
        let mut notices = Control::inbox();
        control.read_notices(0, &mut notices);
        notices.len()
    };
    let events = || {
        watching.came(&watched, AsyncEvent { kind: AsyncEventKind::DeviceFatal, source: AsyncEventSource::Device });
        watching.removed(&watched);
    };
    assert_eq!(at_each_log(heard, events), [1, 1]);
}

/// A peer that connects again and again takes the port from queue pair to queue pair.
#[test]
fn events_of_queue_pairs_that_come_and_go_take_no_more_and_more_memory() {
    let (watched, watching, stats) = one_port();
    for qpn in 1..=1_000 {
        // The event of every other queue pair comes when the port has its successor.
        stats.qpn.set(u64::from(qpn + qpn % 2));
        watching.came(&watched, AsyncEvent { kind: AsyncEventKind::CommEst, source: AsyncEventSource::Qp(qpn) });
    }
    let report = watching.counts.report();
    assert_eq!(report.iter().map(|event| event.count).sum::<u64>(), 1_000);
    assert!(report.len() <= 65, "{} entries", report.len());
    assert!(report.iter().any(|event| event.source == "QP 0x2" && event.ports == ["p"]), "{report:?}");
}
