//! Sleeping on a CQ: no wake-up is lost, none is left unacknowledged, and sleeping requires arming.

use std::os::fd::AsFd;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use verbline_verbs::{
    Completions, CqError, Notify, Provider, SendOptions, Transport,
    event::{AsyncEventKind, AsyncEventSource},
};

use crate::common::{Options, PATIENCE, Side, connect, hand_back, open, pair, provider};

fn sleeping_pair(options: &Options) -> (Side, Side) {
    let mut a = Side::build(open("soft0"), options, 1, true);
    let mut b = Side::build(open("soft1"), options, 2, true);
    connect(&mut a, &mut b, options);
    (a, b)
}

/// Arm, poll again, sleep: the whole protocol. Returns the number of completions after the wake-up.
fn sleep_until_work(side: &mut Side, notify: Notify, timeout: Option<Duration>) -> u32 {
    let armed = side.cq.arm(notify).unwrap();
    if side.poll(hand_back) > 0 {
        armed.disarm();
        return 0;
    }
    side.channel.as_mut().unwrap().wait(armed, timeout).unwrap()
}

fn readable(side: &Side) -> bool {
    let channel = side.channel.as_ref().unwrap();
    let mut fds = [PollFd::new(channel, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() == 1
}

#[test]
fn an_armed_cq_wakes_its_sleeper_across_threads() {
    let options = Options { rx_depth_wr: 16, ..Options::new(Transport::Rc) };
    let (mut a, mut b) = sleeping_pair(&options);
    const MESSAGES: u32 = 200;
    let (say, hear) = mpsc::channel();
    let receiver = std::thread::spawn(move || {
        let mut got = 0;
        while got < MESSAGES {
            b.post_recvs(b.qp.recv_room());
            say.send(()).unwrap();
            let armed = b.cq.arm(Notify::Next).unwrap();
            let mut found = 0;
            b.poll(|qp, _, completion| {
                assert_eq!(qp.recv_done(completion).unwrap().len(), 100);
                found += 1;
            });
            if found > 0 {
                got += found;
                armed.disarm();
                continue;
            }
            let events = b.channel.as_mut().unwrap().wait(armed, Some(PATIENCE)).unwrap();
            assert!(events > 0, "a wake-up was lost after {got} messages");
        }
        got
    });
    hear.recv().unwrap();
    let mut sent = 0;
    while sent < MESSAGES {
        let mut batch = a.batch([&[sent as u8; 100][..]]);
        if a.qp.post_send(&mut batch).posted == 1 {
            sent += 1;
        }
        a.poll(hand_back);
        if sent % 10 == 0 {
            // Long enough for the receiver to fall asleep sometimes.
            std::thread::sleep(Duration::from_micros(200));
        }
    }
    while !receiver.is_finished() {
        a.poll(hand_back);
        std::thread::yield_now();
    }
    assert_eq!(receiver.join().unwrap(), MESSAGES);
}

#[test]
fn no_event_without_a_completion_and_one_for_many() {
    let (mut a, mut b) = sleeping_pair(&Options::new(Transport::Rc));
    assert_eq!(b.post_recvs(4), 4);
    let armed = b.cq.arm(Notify::Next).unwrap();
    assert!(!readable(&b));
    for _ in 0..3 {
        a.send(b"x");
    }
    while !readable(&b) {
        std::thread::yield_now();
    }
    assert_eq!(b.channel.as_mut().unwrap().take_events(armed).unwrap(), 1);
    assert!(!readable(&b));
    assert_eq!(b.receive(3).len(), 3);
}

#[test]
fn waiting_ends_when_the_time_is_over() {
    let (_a, mut b) = sleeping_pair(&Options::new(Transport::Rc));
    let start = Instant::now();
    assert_eq!(sleep_until_work(&mut b, Notify::Next, Some(Duration::from_millis(20))), 0);
    assert!(start.elapsed() >= Duration::from_millis(20));
}

#[test]
fn what_came_before_the_arm_is_found_by_polling_once_more() {
    let (mut a, mut b) = sleeping_pair(&Options::new(Transport::Rc));
    assert_eq!(b.post_recvs(2), 2);
    a.send(b"before");
    // The completion may come only after the CQ is armed; then it makes an event. Either way it is
    // found without a time-out.
    let events = sleep_until_work(&mut b, Notify::Next, Some(PATIENCE));
    if events > 0 {
        assert_eq!(b.receive(1)[0].data(), b"before");
    }
    assert_eq!(b.qp.recvs_outstanding(), 1);
}

#[test]
fn a_solicited_only_sleeper_sleeps_through_the_rest() {
    let (mut a, mut b) = sleeping_pair(&Options::new(Transport::Rc));
    assert_eq!(b.post_recvs(4), 4);
    let armed = b.cq.arm(Notify::Solicited).unwrap();
    a.send(b"quiet");
    assert_eq!(b.receive(1)[0].data(), b"quiet");
    assert!(!readable(&b));
    let mut batch = a.batch([&b"loud"[..]]);
    let solicited = SendOptions { solicited: true, ..SendOptions::default() };
    assert_eq!(a.qp.post_send_with(&mut batch, |_, _| solicited).posted, 1);
    assert_eq!(b.channel.as_mut().unwrap().wait(armed, Some(PATIENCE)).unwrap(), 1);
    assert_eq!(b.receive(1)[0].data(), b"loud");
}

#[test]
fn several_cqs_share_a_channel_and_each_is_acknowledged() {
    let options = Options::new(Transport::Rc);
    let (mut a, mut b) = sleeping_pair(&options);
    let context = b.context.clone();
    let mut second = context.create_cq(64, b.channel.as_ref()).unwrap();
    let mut qp = b.pd.create_qp(&crate::common::spec(&options, &second, 7)).unwrap();
    qp.to_init(&crate::common::init_spec()).unwrap();
    let armed = b.cq.arm(Notify::Next).unwrap().and(second.arm(Notify::Next).unwrap());
    assert_eq!(armed.cqs(), 2);
    // A flushed receive completes into the second; a message into the first.
    let mut batch = verbline_mem::Batch::with_capacity(1);
    b.cache.get_bulk(&mut batch, 1);
    assert_eq!(qp.post_recv(&mut batch).posted, 1);
    qp.to_err().unwrap();
    assert_eq!(b.post_recvs(1), 1);
    a.send(b"first");
    let channel = b.channel.as_mut().unwrap();
    let mut events = channel.wait(armed, Some(PATIENCE)).unwrap();
    while events < 2 {
        // Only the other event remains: both CQs were armed before their completions came.
        let again = second.arm(Notify::Next).unwrap();
        events += channel.wait(again, Some(PATIENCE)).unwrap();
    }
    assert_eq!(b.receive(1)[0].data(), b"first");
    // All events are acknowledged: destroying waits for none.
    drop((qp, second));
    drop(b);
}

/// A round of acknowledgements has places for sixteen CQs; each CQ here has two events.
#[test]
fn any_number_of_events_of_any_number_of_cqs_is_acknowledged_by_one_drain() {
    let options = Options::new(Transport::Rc);
    for cqs in [1, 2, 16, 17, 40] {
        let (_a, mut b) = sleeping_pair(&options);
        let context = b.context.clone();
        let mut sides: Vec<_> = (0..cqs).map(|_| context.create_cq(64, b.channel.as_ref()).unwrap()).collect();
        for _ in 0..2 {
            for cq in &mut sides {
                cq.arm(Notify::Next).unwrap().disarm();
                // A flushed receive completes into it.
                let mut qp = b.pd.create_qp(&crate::common::spec(&options, cq, 7)).unwrap();
                qp.to_init(&crate::common::init_spec()).unwrap();
                let mut batch = b.batch([&b""[..]]);
                assert_eq!(qp.post_recv(&mut batch).posted, 1);
                qp.to_err().unwrap();
                let (mut completions, deadline) = (Completions::with_capacity(4), Instant::now() + PATIENCE);
                while cq.poll(&mut completions) == 0 {
                    assert!(Instant::now() < deadline, "the receive is flushed");
                }
            }
        }
        let armed = b.cq.arm(Notify::Next).unwrap();
        assert_eq!(b.channel.as_mut().unwrap().take_events(armed).unwrap(), 2 * cqs);
        let (done, wait) = mpsc::channel();
        std::thread::spawn(move || {
            drop(sides);
            done.send(()).unwrap();
        });
        wait.recv_timeout(PATIENCE).expect("destroying a CQ does not wait for events that were read");
    }
}

#[test]
fn destroying_with_an_event_unread_does_not_hang() {
    let (mut a, mut b) = sleeping_pair(&Options::new(Transport::Rc));
    assert_eq!(b.post_recvs(1), 1);
    b.cq.arm(Notify::Next).unwrap().disarm();
    a.send(b"unread");
    while !readable(&b) {
        std::thread::yield_now();
    }
    let (done, wait) = mpsc::channel();
    std::thread::spawn(move || {
        drop(b);
        done.send(()).unwrap();
    });
    wait.recv_timeout(PATIENCE).expect("destroying does not wait for events that nobody read");
}

#[test]
fn a_cq_without_a_channel_may_be_asked_and_gives_no_right_to_sleep() {
    let (mut a, mut b) = pair(&Options::new(Transport::Rc));
    for notify in [Notify::Next, Notify::Solicited] {
        a.cq.request_notify(notify).unwrap();
        let error = a.cq.arm(notify).unwrap_err();
        assert!(matches!(error, CqError::NoChannel { .. }), "{error}");
    }
    // No event is delivered, and nothing is lost.
    assert_eq!(b.post_recvs(1), 1);
    a.send(b"asked");
    assert_eq!(b.receive(1).len(), 1);
    let other = open("soft1").create_comp_channel().unwrap();
    let error = a.context.create_cq(8, Some(&other)).unwrap_err();
    let (theirs, ours) = (crate::common::device("soft1"), crate::common::device("soft0"));
    assert!(error.to_string().contains(&format!("is of {theirs}, the CQ of {ours}")), "{error}");
}

#[test]
fn an_overrun_cq_is_reported_as_an_event_of_that_cq() {
    let options = Options { cq_depth_wc: 4, rx_depth_wr: 64, ..Options::new(Transport::Rc) };
    let (mut a, mut b) = pair(&options);
    let depth = b.cq.depth_wc() as usize;
    assert_eq!(b.post_recvs(depth + 8), depth + 8);
    let events = b.context.async_events();
    assert_eq!(events.try_next().unwrap(), None);
    let mut left = depth + 8;
    let deadline = Instant::now() + PATIENCE;
    let event = loop {
        if left > 0 {
            let mut batch = a.batch([&b"x"[..]]);
            left -= a.qp.post_send(&mut batch).posted;
        }
        a.poll(hand_back);
        if let Some(event) = events.try_next().unwrap() {
            break event;
        }
        assert!(Instant::now() < deadline, "the overrun is reported");
        // A thread that polls or the device's own thread does its work; nudge it without polling
        // b's CQ.
        let mut fds = [PollFd::from_borrowed_fd(events.as_fd(), PollFlags::IN)];
        poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 1_000_000 })).unwrap();
    };
    assert_eq!((event.kind, event.source), (AsyncEventKind::CqErr, AsyncEventSource::Cq(b.cq.id())));
}

#[test]
fn draining_raises_sq_drained_for_that_qp() {
    let (mut a, mut b) = pair(&Options { signal_every_wr: 1, ..Options::new(Transport::Rc) });
    assert_eq!(b.post_recvs(2), 2);
    a.send(b"before");
    b.receive(1);
    let deadline = Instant::now() + PATIENCE;
    // rdma_rxe of Linux 6.1 raises no event if the last acknowledgement comes while the QP drains:
    // it checks whether everything is acknowledged before counting that one.
    while provider() == Provider::Kernel && a.qp.sends_outstanding() > 0 {
        assert!(Instant::now() < deadline, "the send is acknowledged");
        a.poll(hand_back);
    }
    a.qp.to_sqd(true).unwrap();
    let events = a.context.async_events();
    let event = loop {
        a.poll(hand_back);
        match events.try_next().unwrap() {
            Some(event) => break event,
            None => assert!(Instant::now() < deadline, "the SQ drains"),
        }
    };
    assert_eq!((event.kind, event.source), (AsyncEventKind::SqDrained, AsyncEventSource::Qp(a.qp.qpn())));
    // Held back until resumed.
    a.send(b"held");
    b.poll(|_, _, completion| panic!("{completion:?}"));
    a.qp.resume().unwrap();
    a.send(b"after");
    let _ = b.post_recvs(2);
    let got = b.receive(2);
    assert_eq!((got[0].data(), got[1].data()), (&b"held"[..], &b"after"[..]));
}
