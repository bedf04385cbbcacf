//! A CQ whose depth changes, and one on a completion vector of its own.

use std::collections::VecDeque;

use proptest::prelude::*;
use verbline_mem::Packet;
use verbline_verbs::{Completions, Context, CqError, InitSpec, Notify, Provider, Transport, WrKind};

use crate::common::{Options, PATIENCE, Side, connect, hand_back, init_spec, message, open, pair, provider, spec};

fn options() -> Options {
    Options {
        cq_depth_wc: 8,
        rx_depth_wr: 128,
        tx_depth_wr: 128,
        signal_every_wr: 1,
        packets: 512,
        ..Options::new(Transport::Rc)
    }
}

/// Two sides; b's CQ is small and a's is large.
fn small_and_large() -> (Side, Side) {
    let large = Options { cq_depth_wc: 512, ..options() };
    let mut a = Side::new("soft0", &large, 0xa);
    let mut b = Side::new("soft1", &options(), 0xb);
    connect(&mut a, &mut b, &large);
    assert_eq!(b.post_recvs(128), 128);
    (a, b)
}

/// Sends the messages of these numbers, and waits until their completions are in b's CQ: the
/// acknowledgement comes after.
fn send_numbered(a: &mut Side, numbers: std::ops::Range<u32>) {
    for number in numbers {
        a.send(&message(number, 60));
    }
    let deadline = std::time::Instant::now() + PATIENCE;
    while a.qp.sends_outstanding() > 0 {
        assert!(std::time::Instant::now() < deadline, "the messages are acknowledged");
        a.poll(|qp, freed, completion| {
            assert!(completion.is_ok(), "{completion:?}");
            hand_back(qp, freed, completion);
        });
    }
}

fn assert_numbered(packets: &[Packet], mut numbers: std::ops::Range<u32>) {
    for packet in packets {
        assert_eq!(packet.data(), message(numbers.next().unwrap(), 60));
    }
    assert_eq!(numbers.len(), 0);
}

/// The errno of a verb's refusal.
fn errno(error: &CqError) -> i32 {
    match error {
        CqError::Verb(error) => error.errno.raw(),
        other => panic!("{other}"),
    }
}

/// A new queue pair in INIT in place of a side's.
fn renew(side: &mut Side, options: &Options, tag: u16) {
    side.qp = side.pd.create_qp(&spec(options, &side.cq, tag)).unwrap();
    side.qp.to_init(&InitSpec { access: options.access, ..init_spec() }).unwrap();
}

/// Regression: each left the completions of its receives behind, and the CQ was overrun.
#[test]
fn queue_pairs_that_go_leave_nothing_in_their_cq() {
    let options = Options { rx_depth_wr: 16, ..options() };
    for is_connected in [false, true] {
        let (mut a, mut b) = (Side::new("soft0", &options, 0xa), Side::new("soft1", &options, 0xb));
        for tag in 1..b.cq.depth_wc() as u16 {
            assert_eq!(b.post_recvs(16), 16);
            if is_connected {
                connect(&mut a, &mut b, &options);
                renew(&mut a, &options, tag);
            }
            renew(&mut b, &options, tag);
        }
        connect(&mut a, &mut b, &options);
        assert_eq!(b.post_recvs(1), 1);
        send_numbered(&mut a, 0..1);
        assert_numbered(&b.receive(1), 0..1);
        let looks = |side: &mut Side| (0..2).map(|_| side.poll(hand_back)).sum::<usize>();
        assert_eq!((looks(&mut a), looks(&mut b)), (0, 0), "is_connected: {is_connected}");
        assert_eq!((a.cq.poll_errors(), b.cq.poll_errors()), (0, 0), "is_connected: {is_connected}");
    }
}

#[test]
fn a_cq_grows_with_completions_in_it_and_then_holds_more() {
    let (mut a, mut b) = small_and_large();
    let small = b.cq.depth_wc();
    assert!((8..100).contains(&small), "{small}");
    send_numbered(&mut a, 0..small);
    b.cq.resize(100).unwrap();
    let large = b.cq.depth_wc();
    assert!(large >= 100, "{large}");
    send_numbered(&mut a, small..100);
    assert_numbered(&b.receive(100), 0..100);
    b.poll(|_, _, completion| panic!("{completion:?}"));
    assert_eq!((b.cq.depth_wc(), b.cq.poll_errors()), (large, 0));
}

#[test]
fn a_cq_asked_for_less_than_is_in_it_loses_nothing() {
    let (mut a, mut b) = small_and_large();
    b.cq.resize(64).unwrap();
    let depth = b.cq.depth_wc();
    send_numbered(&mut a, 0..40);
    match (b.cq.resize(5), provider()) {
        // The software RNIC's CQ never gets smaller.
        (answer, Provider::Soft) => answer.unwrap(),
        (answer, Provider::Kernel) => {
            let error = answer.unwrap_err();
            assert_eq!(errno(&error), 22, "EINVAL: {error}");
            let id = b.cq.id();
            assert_eq!(
                error.to_string(),
                format!(
                    "ibv_resize_cq of CQ {id} on rxe1 to 5 completions: EINVAL (Invalid argument); the depth may be \
                     below the completions that are in the CQ, which polling makes fewer, or above \
                     DeviceAttr::max_cqe"
                )
            );
        }
    }
    assert_eq!(b.cq.depth_wc(), depth);
    // The depth is unchanged.
    send_numbered(&mut a, 40..depth.min(128));
    assert_numbered(&b.receive(depth.min(128) as usize), 0..depth.min(128));
    assert_eq!(b.cq.poll_errors(), 0);

    // With fewer completions in it than the requested depth, the resize succeeds.
    assert_eq!(b.post_recvs(4), 4);
    send_numbered(&mut a, 200..204);
    b.cq.resize(8).unwrap();
    assert!(b.cq.depth_wc() >= 8);
    assert_numbered(&b.receive(4), 200..204);
}

#[test]
fn a_depth_that_cannot_be_is_refused_and_the_cq_stays_as_it_was() {
    let (mut a, mut b) = small_and_large();
    send_numbered(&mut a, 0..3);
    let depth = b.cq.depth_wc();
    for asked in [0, u32::MAX, i32::MAX as u32 + 1] {
        let error = b.cq.resize(asked).unwrap_err();
        assert!(matches!(error, CqError::Depth { depth_wc, max: 0x7fff_ffff } if depth_wc == asked), "{error}");
    }
    let most = b.context.query_device().unwrap().max_cqe;
    for too_many in [most + 1, i32::MAX as u32] {
        let error = b.cq.resize(too_many).unwrap_err();
        assert_eq!(errno(&error), 22, "EINVAL: {error}");
        assert!(error.to_string().contains(&format!("to {too_many} completions: EINVAL")), "{error}");
        let error = b.context.create_cq(too_many, None).unwrap_err();
        assert_eq!(errno(&error), 22, "EINVAL: {error}");
        assert!(error.to_string().ends_with("the depth may be above DeviceAttr::max_cqe"), "{error}");
    }
    assert_eq!(b.cq.depth_wc(), depth);
    assert_numbered(&b.receive(3), 0..3);
}

/// A side whose CQ has a channel for events.
fn with_channel(context: Context, tag: u16) -> Side {
    Side::build(context, &options(), tag, true)
}

#[test]
fn an_armed_cq_that_is_resized_still_wakes() {
    let mut a = Side::new("soft0", &options(), 1);
    let mut b = with_channel(open("soft1"), 2);
    connect(&mut a, &mut b, &options());
    assert_eq!(b.post_recvs(2), 2);
    for round in 0..2 {
        let armed = b.cq.arm(Notify::Next).unwrap();
        b.cq.resize(100 << round).unwrap();
        a.send(b"wake up");
        let events = b.channel.as_mut().unwrap().wait(armed, Some(PATIENCE)).unwrap();
        assert_eq!((events, b.receive(1)[0].data()), (1, &b"wake up"[..]));
    }
}

#[test]
fn a_cq_on_any_vector_there_is_works_and_on_another_is_refused() {
    let context = open("soft1");
    let vectors = context.completion_vectors();
    assert!(vectors > 0);
    for vector in 0..vectors {
        let mut a = Side::new("soft0", &options(), 1);
        let mut b = with_channel(context.clone(), 2);
        b.cq = context.create_cq_on_vector(64, b.channel.as_ref(), vector).unwrap();
        b.qp = b.pd.create_qp(&crate::common::spec(&options(), &b.cq, 2)).unwrap();
        b.qp.to_init(&crate::common::init_spec()).unwrap();
        connect(&mut a, &mut b, &options());
        assert_eq!((b.post_recvs(1), b.cq.depth_wc() >= 64), (1, true));
        let armed = b.cq.arm(Notify::Next).unwrap();
        a.send(b"by vector");
        assert_eq!(b.channel.as_mut().unwrap().wait(armed, Some(PATIENCE)).unwrap(), 1, "vector {vector}");
        assert_eq!(b.receive(1)[0].data(), b"by vector");
    }
    for beyond in [vectors, u32::MAX] {
        let error = context.create_cq_on_vector(64, None, beyond).unwrap_err();
        assert_eq!(errno(&error), 22, "EINVAL: {error}");
        let advice = format!("a vector is below Context::completion_vectors, which is {vectors}");
        assert!(error.to_string().ends_with(&advice), "{error}");
    }
    assert_eq!(context.create_cq_on_vector(64, None, 0).unwrap().poll(&mut Completions::with_capacity(1)), 0);
}

#[test]
fn a_channel_of_another_device_is_refused_on_a_vector_too() {
    let channel = open("soft0").create_comp_channel().unwrap();
    let error = open("soft1").create_cq_on_vector(64, Some(&channel), 0).unwrap_err();
    assert!(matches!(error, CqError::ForeignChannel { .. }), "{error}");
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Send this many messages, as far as receives and the CQ have space.
    Send(u32),
    /// Poll this many times, for one completion each.
    Poll(usize),
    Resize(u32),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (1u32..30).prop_map(Step::Send),
        3 => (1usize..30).prop_map(Step::Poll),
        2 => (1u32..120).prop_map(Step::Resize),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    /// Resized at any moment, a CQ returns every completion once and in order, and is as deep as
    /// requested unless it reports otherwise.
    #[test]
    fn no_resize_loses_a_completion_or_changes_their_order(steps in prop::collection::vec(step(), 1..40)) {
        let (mut a, mut b) = small_and_large();
        let mut one = Completions::with_capacity(1);
        let (mut next, mut in_cq) = (0, VecDeque::new());
        let take = |b: &mut Side, one: &mut Completions, in_cq: &mut VecDeque<u32>| {
            for completion in &*one {
                assert_eq!((completion.is_ok(), completion.kind()), (true, WrKind::Recv));
                let packet = b.qp.recv_done(completion).unwrap();
                assert_eq!(packet.data(), message(in_cq.pop_front().expect("it was sent"), 60));
            }
        };
        for step in steps {
            match step {
                Step::Send(count) => {
                    b.post_recvs(b.qp.recv_room());
                    let room = b.cq.depth_wc() as usize - in_cq.len();
                    let count = count.min(room.min(128) as u32);
                    send_numbered(&mut a, next..next + count);
                    in_cq.extend(next..next + count);
                    next += count;
                }
                Step::Poll(polls) => {
                    for _ in 0..polls.min(in_cq.len()) {
                        prop_assert_eq!(b.cq.poll(&mut one), 1);
                        take(&mut b, &mut one, &mut in_cq);
                    }
                }
                Step::Resize(depth) => {
                    let before = b.cq.depth_wc();
                    match b.cq.resize(depth) {
                        Ok(()) => prop_assert!(b.cq.depth_wc() >= depth && b.cq.depth_wc() as usize >= in_cq.len()),
                        Err(error) => {
                            prop_assert_eq!((errno(&error), provider()), (22, Provider::Kernel));
                            prop_assert_eq!(b.cq.depth_wc(), before);
                            prop_assert!((depth as usize) < in_cq.len(), "{} with {} in it", error, in_cq.len());
                        }
                    }
                }
            }
        }
        while !in_cq.is_empty() {
            prop_assert_eq!(b.cq.poll(&mut one), 1);
            take(&mut b, &mut one, &mut in_cq);
        }
        prop_assert_eq!((b.cq.poll(&mut one), b.cq.poll_errors()), (0, 0));
    }
}

#[test]
fn a_cq_of_two_qps_grows_for_both() {
    let (mut a, mut b) = pair(&options());
    let cq_depth = b.cq.depth_wc();
    b.cq.resize(cq_depth + 1).unwrap();
    assert!(b.cq.depth_wc() > cq_depth);
    // The new QP is created on the resized CQ.
    let mut c = Side::new("soft0", &options(), 0xc);
    let spec = crate::common::spec(&options(), &b.cq, 0xd);
    let mut second = b.pd.create_qp(&spec).unwrap();
    second.to_init(&crate::common::init_spec()).unwrap();
    std::mem::swap(&mut b.qp, &mut second);
    connect(&mut c, &mut b, &options());
    assert_eq!(b.post_recvs(5), 5);
    std::mem::swap(&mut b.qp, &mut second);
    assert_eq!(b.post_recvs(5), 5);
    for number in 0..5 {
        a.send(&message(number, 60));
        c.send(&message(100 + number, 60));
    }
    let mut got = Vec::new();
    let deadline = std::time::Instant::now() + PATIENCE;
    while got.len() < 10 {
        assert!(std::time::Instant::now() < deadline, "{got:?}");
        b.poll(|qp, _, completion| {
            let owner = if completion.tag() == 0xd { &mut second } else { qp };
            got.push((completion.tag(), owner.recv_done(completion).unwrap().data()[0]));
        });
    }
    for (tag, first) in [(0xb, 0), (0xd, 100)] {
        let of_one: Vec<u8> = got.iter().filter(|(of, _)| *of == tag).map(|&(_, number)| number).collect();
        assert_eq!(of_one, [0, 1, 2, 3, 4].map(|number| number + first));
    }
}
