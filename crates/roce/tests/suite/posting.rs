//! Work requests that can be posted, and those that are refused.

use verbline_roce::wire::{AtomicExtension, AtomicOp, Rc, Segment, SendEnd, WriteEnd};
use verbline_roce::{Data, Operation, PostError, Remote, SendRequest, Sge, Status};

use crate::pair::{DEPTH, Half, Pair, RIGHTS, statuses};

const SEND: Operation = Operation::Send(SendEnd::Plain);

fn pair() -> Pair {
    Pair::rc(Default::default(), RIGHTS)
}

/// The operations that each transport posts: the whole table.
#[test]
fn a_queue_pair_posts_what_its_transport_has() {
    let to = verbline_roce::To { route: Half::peer_of(0).route, qpn: crate::pair::QPNS[1], qkey: 1 };
    let at = Remote { addr: 0, rkey: 0 };
    let atomic = AtomicExtension { addr: 0, rkey: 0, op: AtomicOp::FetchAdd(1) };
    let rows = [
        (SEND, [true, true, false]),
        (Operation::Send(SendEnd::Immediate(1)), [true, true, false]),
        (Operation::Send(SendEnd::Invalidate(1)), [true, false, false]),
        (Operation::Write(at, WriteEnd::Plain), [true, true, false]),
        (Operation::Write(at, WriteEnd::Immediate(1)), [true, true, false]),
        (Operation::Read(at), [true, false, false]),
        (Operation::Atomic(atomic), [true, false, false]),
        (Operation::Datagram(to, WriteEnd::Plain), [false, false, true]),
        (Operation::Datagram(to, WriteEnd::Immediate(1)), [false, false, true]),
        (Operation::Local, [true, true, false]),
    ];
    for (operation, expected) in rows {
        for (mut pair, is_there) in [pair(), Pair::uc(), Pair::ud()].into_iter().zip(expected) {
            let sges = [pair.a.sge(if operation == Operation::Local { 0 } else { 8 })];
            let data = Data::Memory(&sges);
            let request = SendRequest { id: 1, operation, data, signaled: true, solicited: false, fence: false };
            let posted = pair.a.qp.post_send(&request);
            assert_eq!(posted, if is_there { Ok(()) } else { Err(PostError::Unsupported) }, "{operation:?}");
        }
    }
}

#[test]
fn what_does_not_fit_is_not_posted() {
    let mut pair = pair();
    let sges = [pair.a.sge(1); 3];
    let request = |data| SendRequest { id: 1, operation: SEND, data, signaled: true, solicited: false, fence: false };
    let post = |pair: &mut Pair, request: &SendRequest<'_>| pair.a.qp.post_send(request);
    assert_eq!(post(&mut pair, &request(Data::Memory(&sges))), Err(PostError::TooManySges { sges: 3, max: 2 }));
    assert_eq!(post(&mut pair, &request(Data::Inline(&[0; 17]))), Err(PostError::InlineTooLong { bytes: 17, max: 16 }));
    let read = SendRequest {
        operation: Operation::Read(Remote { rkey: pair.b.remote.0, addr: pair.b.remote.1 }),
        ..request(Data::Inline(&[0]))
    };
    assert_eq!(post(&mut pair, &read), Err(PostError::Unsupported));
    let long = [pair.a.sge((1 << 31) + 1)];
    let error = PostError::Length { bytes: (1 << 31) + 1, max: 1 << 31 };
    assert_eq!(post(&mut pair, &request(Data::Memory(&long))), Err(error));
    let atomic = AtomicExtension { addr: 0, rkey: 0, op: AtomicOp::FetchAdd(1) };
    let atomic = SendRequest { operation: Operation::Atomic(atomic), ..request(Data::Memory(&sges[..1])) };
    assert_eq!(post(&mut pair, &atomic), Err(PostError::Length { bytes: 1, max: 8 }));
    let local = |data| SendRequest { operation: Operation::Local, ..request(data) };
    assert_eq!(post(&mut pair, &local(Data::Memory(&sges[..1]))), Err(PostError::Length { bytes: 1, max: 0 }));
    assert_eq!(post(&mut pair, &local(Data::Inline(&[]))), Err(PostError::Unsupported));
    for _ in 0..DEPTH {
        post(&mut pair, &request(Data::Inline(b"ok"))).expect("room");
        pair.b.receive(1, 10);
    }
    assert_eq!(post(&mut pair, &request(Data::Inline(b"ok"))), Err(PostError::Full { depth: DEPTH }));
    assert_eq!(pair.b.qp.post_receive(1, &[]), Err(PostError::Full { depth: DEPTH }));
    // A slot is free when its completion was polled, and not before.
    pair.settle(0);
    assert_eq!(post(&mut pair, &request(Data::Inline(b"ok"))), Err(PostError::Full { depth: DEPTH }));
    assert_eq!(pair.b.qp.post_receive(1, &[]), Err(PostError::Full { depth: DEPTH }));
    assert!(pair.a.qp.poll().is_some() && pair.b.qp.poll().is_some());
    post(&mut pair, &request(Data::Inline(b"ok"))).expect("room");
    pair.b.receive(1, 10);
}

/// A program's answer leaves before the acknowledgement of the message, in every round.
#[test]
fn an_answer_leaves_before_the_acknowledgement() {
    let mut pair = pair();
    for id in 0..3 {
        pair.b.receive(id, 10);
        pair.a.receive(id, 10);
        pair.a.send(id, SEND, 10);
        let sent = pair.a.all(0);
        sent.iter().for_each(|datagram| pair.b.take(0, datagram).expect("taken"));
        pair.b.send(id, SEND, 10);
        let answers: Vec<_> = pair.b.all(0).iter().map(|datagram| datagram.segment()).collect();
        assert!(matches!(answers[..], [Segment::Rc(Rc::Send { .. }), Segment::Rc(Rc::Acknowledge(_))]), "{answers:?}");
        pair.settle(0);
        pair.a.completions();
        pair.b.completions();
    }
}

/// Also one whose message has come in part.
#[test]
fn a_receive_has_a_place_until_its_completion_was_polled() {
    let mut pair = pair();
    (0..DEPTH as u64).for_each(|id| pair.b.receive(id, 1000));
    pair.a.send(1, SEND, 600);
    let sent = pair.a.all(0);
    for datagram in &sent {
        pair.b.take(0, datagram).expect("taken");
        assert_eq!(pair.b.qp.post_receive(1, &[]), Err(PostError::Full { depth: DEPTH }));
    }
    assert_eq!(pair.b.completions().len(), 1);
    pair.b.receive(1, 10);
}

/// A piece of a list without a byte of the message needs no key: behind the message, and empty.
#[test]
fn pieces_without_a_byte_of_the_message_are_not_touched() {
    let mut pair = pair();
    let (nowhere, full, empty) = (Sge { addr: 1, len: 10, key: 99 }, pair.b.sge(10), Sge { addr: 1, len: 0, key: 99 });
    pair.b.qp.post_receive(1, &[full, nowhere]).expect("posted");
    let sges = [empty, pair.a.sge(10)];
    let (operation, data) = (SEND, Data::Memory(&sges));
    let request = SendRequest { id: 2, operation, data, signaled: true, solicited: false, fence: false };
    pair.a.qp.post_send(&request).expect("posted");
    pair.settle(0);
    assert_eq!(
        (statuses(&mut pair.a), statuses(&mut pair.b)),
        (vec![(2, Status::Success)], vec![(1, Status::Success)])
    );
}
