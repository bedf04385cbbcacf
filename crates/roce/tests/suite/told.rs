//! What managers, engines and queue pairs tell of their state, by which a carrier decides whether
//! to call them.

use std::net::Ipv4Addr;

use verbline_roce::cm::{
    CmDiscard, MAD_BYTES, MANAGEMENT_QKEY, Mad, Message, PortSpace, Reject, Rejected, packet_of, reason,
};
use verbline_roce::transport::{Arrival, Discard, Icrc, Incoming, OpenError, Receives, Receiving, Retries, Sending};
use verbline_roce::wire::{
    self, Addresses, AtomicOp, Bth, Deth, HEADERS_MAX_BYTES, Packet, Psn, Qpn, Route, Segment, Uc, WriteEnd, ip,
};
use verbline_roce::{
    Data, Denied, Engine, Management, Memory, Operation, Owner, Place, Received, SendRequest, Sge, Status,
};

use crate::cm::{connect, two};
use crate::pair::{Half, PSNS, Pair, RIGHTS, remote, statuses};
use crate::refusals::acknowledgement;
use crate::reliable::{SEND, pair};
use crate::sim::memory::Regions;
use crate::sim::world::addresses;

#[test]
fn a_manager_with_messages_says_so() {
    let mut two = two();
    assert!(!two.client.has_messages() && two.client.is_empty());
    two.client.connect(0, 77, &connect(1, 2)).expect("room");
    assert!(two.client.has_messages() && !two.client.is_empty());
    let sent = two.client.transmit().expect("a request");
    assert!(!two.client.has_messages() && !two.client.is_empty());
    // Outside of a connection, too.
    two.server.stop_listening(PortSpace::Reliable.service_of_port(4420));
    two.bring_server(&sent).expect_err("nobody listens");
    assert!(two.server.has_messages() && two.server.is_empty());
    two.server.transmit().expect("a rejection");
    assert!(!two.server.has_messages());
}

/// The port spaces of rdma_cma.h.
#[test]
fn services_have_the_numbers_of_rdma_cm() {
    let services = [PortSpace::Reliable, PortSpace::Unreliable].map(|space| space.service_of_port(0x1234));
    assert_eq!(services, [0x0106_1234, 0x013F_1234]);
}

#[test]
fn a_queue_pair_knows_whether_it_was_ever_answered() {
    let mut pair = pair();
    pair.b.receive(1, 10);
    pair.a.send(1, SEND, 10);
    assert!(!pair.a.qp.was_answered());
    let sent = pair.a.all(0);
    assert!(!pair.a.qp.was_answered());
    pair.b.take(0, &sent[0]).expect("taken");
    pair.settle(0);
    assert!(pair.a.qp.was_answered() && !pair.b.qp.was_answered());
    let mut pair = Pair::uc();
    pair.b.receive(1, 10);
    pair.a.send(1, SEND, 10);
    pair.settle(0);
    assert!(!pair.a.qp.was_answered(), "nobody answers it");
}

/// The peer has got a packet for which it says that it lacks a receive, or one before.
#[test]
fn a_nak_is_an_answer() {
    for syndrome in [0x20 | 1, 0x60] {
        let mut pair = pair();
        pair.a.send(1, SEND, 10);
        pair.a.all(0);
        pair.a.take(0, &acknowledgement(0, syndrome)).expect("taken");
        assert!(pair.a.qp.was_answered(), "{syndrome:#x}");
    }
}

/// A carrier whose packets may not pass a firewall goes by it.
#[test]
fn a_queue_pair_may_be_unheard_until_it_is_answered() {
    let mut pair = pair();
    pair.b.receive(1, 10);
    pair.a.send(1, SEND, 10);
    pair.a.all(0);
    let due_ns = pair.a.qp.deadline_ns().expect("an answer is overdue at some time");
    assert!(!pair.a.qp.may_be_unheard());
    pair.a.qp.advance(due_ns);
    assert!(pair.a.qp.may_be_unheard());
    pair.settle(due_ns);
    assert!(!pair.a.qp.may_be_unheard(), "it was answered");
}

/// Once the peer repeats its first request although it was answered. One that came twice before it
/// was answered, and any later one, show nothing.
#[test]
fn a_queue_pair_that_only_receives_may_be_unheard_when_the_first_request_is_repeated() {
    for (repeated, is_answered, may_be) in [(0, true, true), (0, false, false), (1, true, false)] {
        let mut pair = pair();
        (1..=2).for_each(|id| pair.b.receive(id, 10));
        (1..=2).for_each(|id| pair.a.send(id, SEND, 10));
        let sent = pair.a.all(0);
        sent.iter().for_each(|sent| pair.b.take(0, sent).expect("taken"));
        assert!(!is_answered || pair.b.all(0).len() == 1);
        assert_eq!(pair.b.take(0, &sent[repeated]), Err(Discard::Duplicate));
        assert_eq!(pair.b.qp.may_be_unheard(), may_be, "{repeated} {is_answered}");
        // It sends, too, and is answered.
        pair.a.receive(3, 10);
        pair.b.send(3, SEND, 10);
        pair.settle(0);
        assert!(!pair.b.qp.may_be_unheard());
    }
}

/// While no keep-alive is under way, an acknowledgement that came before is a duplicate.
#[test]
fn an_old_acknowledgement_answers_no_keep_alive_that_was_not_sent() {
    let mut pair = pair();
    pair.a.qp.keep_alive(0);
    pair.b.receive(1, 10);
    pair.a.send(1, SEND, 10);
    pair.settle(0);
    assert_eq!(pair.a.take(0, &acknowledgement(0, 0x1F)), Err(Discard::Duplicate));
}

/// No key grants nothing, and none is needed for it.
#[test]
fn no_bytes_need_no_key() {
    let mut nowhere = remote(&pair().b);
    nowhere.rkey ^= 0x55;
    for operation in [Operation::Read(nowhere), Operation::Write(nowhere, WriteEnd::Plain)] {
        let mut pair = pair();
        pair.a.send(1, operation, 0);
        pair.settle(0);
        assert_eq!(statuses(&mut pair.a), [(1, Status::Success)]);
    }
    let mut pair = Pair::uc();
    pair.b.receive(2, 10);
    pair.a.send(1, Operation::Write(nowhere, WriteEnd::Immediate(5)), 0);
    pair.settle(0);
    assert_eq!(statuses(&mut pair.b), [(2, Status::Success)]);
}

/// A report counts them by these names.
#[test]
fn each_reason_of_a_discard_has_its_name() {
    for why in Discard::ALL {
        let words = why.name().split('_').map(|word| word[..1].to_uppercase() + &word[1..]);
        assert_eq!(words.collect::<String>(), format!("{why:?}"));
    }
}

/// A carrier that sleeps while there is nothing to send goes by these.
#[test]
fn an_engine_without_anything_to_send_says_so() {
    let Pair { a, mut b } = Pair::rc(Retries::default(), RIGHTS);
    let (mut engine, mut memory, qpn) = (Engine::new(), a.memory, a.qp.qpn());
    engine.add(a.qp).expect("a free number");
    engine.with(qpn, |_| ());
    assert!(!engine.may_transmit() && !engine.owes_acknowledgement());
    let sge = Sge { addr: a.local.1, len: 10, key: a.local.0 };
    engine.post_receive(qpn, 1, &[sge]).expect("there").expect("room");
    assert!(!engine.may_transmit());
    b.send(1, SEND, 10);
    let sent = b.next(0).expect("a message");
    let arrival = Arrival { route: sent.route, icrc: Icrc::IpId(0) };
    engine.receive(0, arrival, &sent.bytes, &mut memory);
    assert!(engine.may_transmit() && engine.owes_acknowledgement());
    let mut out = [0; 256 + HEADERS_MAX_BYTES];
    engine.transmit(0, &mut memory, &mut out, 0).expect("an acknowledgement");
    assert!(engine.transmit(0, &mut memory, &mut out, 0).is_none());
    assert!(!engine.may_transmit() && !engine.owes_acknowledgement());
    // Nothing went wrong, and nothing is reported but the message.
    assert!(engine.has_news());
    assert_eq!(engine.poll().map(|(_, completion)| completion.id), Some(1));
    assert!(!engine.has_news() && engine.take_failed().is_none() && engine.take_drained().is_none());
    engine.with(qpn, |queue_pair| queue_pair.hold());
    assert!(engine.may_transmit(), "what is held may have to be asked for");
}

/// Each kind of NAK has a count of its own at either end.
#[test]
fn a_receiver_that_is_not_ready_is_counted_as_that() {
    let mut pair = pair();
    pair.a.send(1, SEND, 10);
    pair.settle(0);
    let [a, b] = [&pair.a, &pair.b].map(|half| *half.qp.counters().incidents());
    assert_eq!((b.rnr_naks_sent, b.sequence_naks_sent, b.fatal_naks_sent), (1, 0, 0));
    assert_eq!((a.rnr_naks_received, a.sequence_naks_received, a.fatal_naks_received), (1, 0, 0));
}

/// A service that is no port of rdma_cm's may have either transport of connections.
#[test]
fn any_other_service_has_the_transport_that_its_request_names() {
    for (service_type, refused) in [(0, None), (1, None), (2, Some(9)), (3, Some(9))] {
        let (mut two, mut connect) = (two(), connect(1, 2));
        (connect.request.service, connect.request.service_type) = (0x1234_5678_0000, service_type);
        two.server.listen(connect.request.service);
        two.client.connect(0, 77, &connect).expect("room");
        let sent = two.client.transmit().expect("a request");
        assert_eq!(two.bring_server(&sent).err(), refused.map(CmDiscard::Rejected), "{service_type}");
    }
}

/// Additional information has a length only if there is some.
#[test]
fn a_rejection_says_how_long_its_information_is() {
    for (info, bytes) in [(0, 0), (7, 8)] {
        let (of, reason, data) = (Rejected::Reply, reason::TIMEOUT, [0; 148]);
        let reject = Reject { local_id: 1, remote_id: 2, of, reason, info, data };
        let mad = Mad { transaction: 1, message: Message::Reject(reject) }.to_bytes();
        assert_eq!(mad[24 + 8..24 + 12], [1 << 6, bytes << 1, 0, 4]);
    }
}

/// Connection management's queue pair takes datagrams with its key.
#[test]
fn a_message_to_queue_pair_1_is_managements() {
    let (mut engine, route) = (Engine::new(), Route::new(addresses(0, 1), 1, 1));
    let mut take = |packet: Packet<'_>| {
        let mut bytes = [0; MAD_BYTES + HEADERS_MAX_BYTES];
        let len = packet.write(&mut bytes, &route, 0);
        let taken = engine.receive(0, Arrival { route, icrc: Icrc::IpId(0) }, &bytes[..len], &mut Regions::default());
        match taken {
            Received::Management(Management { payload }) => Ok(payload.to_vec()),
            Received::Discarded(why) => Err(why),
            other => panic!("{other:?}"),
        }
    };
    let mad = [7; MAD_BYTES];
    assert_eq!(take(packet_of(&mad, Psn::new(3))), Ok(mad.to_vec()));
    let bth = Bth::new(Qpn::MANAGEMENT, Psn::new(3));
    let strange = Segment::Ud(Deth { qkey: MANAGEMENT_QKEY ^ 1, source: Qpn::MANAGEMENT }, None);
    assert_eq!(take(Packet { bth, segment: strange, payload: &mad }), Err(Discard::Key));
    let connected = Segment::Uc(Uc::Send { first: true, last: Some(WriteEnd::Plain) });
    assert_eq!(take(Packet { bth, segment: connected, payload: &mad }), Err(Discard::Transport));
}

/// A receive shows how its datagram came: an IPv4 header in the last 20 of 40 bytes, whatever is
/// before it.
#[test]
fn the_header_before_a_datagram_is_told_from_a_grh() {
    let [source, destination] = [1, 2].map(|last| Ipv4Addr::new(69, 0, 0, last));
    let route = Route { traffic_class: 0xB8, ..Route::new(Addresses::V4 { source, destination }, 1, 2) };
    let before = ip::before_message(&route, 76);
    let expected = ip::BeforeV4 { source, destination, traffic_class: 0xB8, hop_limit: 64 };
    for first in [0, 0x45, 0x60, 0xFF] {
        let mut before = before;
        before[..20].fill(first);
        assert_eq!(ip::read_v4_before_message(&before), Some(expected), "{first:#x}");
    }
    // A GRH whose sender's GID has the first byte of an IPv4 header in its place: 69 is 0x45.
    let mut grh = [0; ip::BEFORE_MESSAGE_BYTES];
    grh[0] = 0x60;
    grh[8..24].copy_from_slice(&source.to_ipv6_mapped().octets());
    grh[24..].copy_from_slice(&destination.to_ipv6_mapped().octets());
    assert_eq!((grh[20], ip::read_v4_before_message(&grh)), (0x45, None));
    assert_eq!(ip::read_v4_before_message(&[0; ip::BEFORE_MESSAGE_BYTES]), None);
    let mut longer = before;
    longer[20] = 0x46;
    assert_eq!(ip::read_v4_before_message(&longer), None, "RoCE has no options");
    let [source, destination] = [1, 2].map(|last| Ipv4Addr::new(10, 0, 0, last).to_ipv6_mapped());
    let v6 = ip::before_message(&Route { addresses: Addresses::V6 { source, destination }, ..route }, 76);
    assert_eq!((v6[0], ip::read_v4_before_message(&v6)), (0x6B, None));
    assert_eq!((&v6[4..7], &v6[8..24]), (&[0, 84, 17][..], &source.octets()[..]));
}

/// A question to a silent peer leaves though there is nothing else to send, and so does one about
/// messages before a send that can't be carried out.
#[test]
fn an_engine_that_has_only_a_question_to_ask_says_so() {
    let mut out = [0; 256 + HEADERS_MAX_BYTES];
    let (mut pair, mut engine) = (pair(), Engine::new());
    let qpn = pair.a.qp.qpn();
    pair.b.receive(1, 10);
    pair.a.send(1, SEND, 10);
    pair.settle(0);
    let Half { qp, mut memory, local, .. } = pair.a;
    engine.add(qp).expect("a free number");
    engine.with(qpn, |queue_pair| queue_pair.keep_alive(0));
    assert!(!engine.may_transmit());
    for _ in 0..2 {
        let due_ns = engine.deadline_ns().expect("a check");
        engine.advance(due_ns);
        assert!(engine.may_transmit(), "a keep-alive");
        engine.transmit(due_ns, &mut memory, &mut out, 0).expect("the same");
    }
    let now_ns = engine.deadline_ns().expect("a check") - 1;
    let post = |engine: &mut Engine, id, key| {
        let sges = [Sge { addr: local.1, len: 10, key }];
        let data = Data::Memory(&sges);
        let request = SendRequest { id, operation: SEND, data, signaled: false, solicited: false, fence: false };
        engine.post_send(qpn, &request).expect("there").expect("room");
    };
    // The first of them comes after a pause; the last has no memory.
    for (id, key, asks) in [(2, local.0, true), (3, local.0, false), (4, 99, true)] {
        post(&mut engine, id, key);
        let sent = engine.transmit(now_ns, &mut memory, &mut out, 0).expect("a message, or a question");
        assert_eq!(wire::read(&out[..sent.len]).expect("a packet").bth.ack_request, asks, "{id}");
        assert!(engine.transmit(now_ns, &mut memory, &mut out, 0).is_none());
    }
}

/// A new one has to be made.
#[test]
fn a_failed_queue_pair_opens_no_more() {
    let mut half = Half::new(0, RIGHTS, Receives::Own(1));
    half.qp.fail();
    let receiving = Receiving::Uc(Half::peer_of(0));
    assert_eq!(half.qp.receive_from(receiving), Err(OpenError::Failed));
    let mut half = Half::new(0, RIGHTS, Receives::Own(1));
    half.qp.receive_from(receiving).expect("new");
    half.qp.fail();
    assert_eq!(half.qp.start_sending(Sending::Uc(PSNS[0])), Err(OpenError::Failed));
}

/// Nor does one that is open already.
#[test]
fn a_queue_pair_begins_to_receive_and_to_send_once() {
    let retries = Sending::Rc(PSNS[0], Retries::default());
    for (mut pair, sending) in
        [(pair(), retries), (Pair::uc(), Sending::Uc(PSNS[0])), (Pair::ud(), Sending::Ud(PSNS[0]))]
    {
        assert_eq!(pair.a.qp.start_sending(sending), Err(OpenError::Open));
        assert_eq!(pair.a.qp.receive_from(Receiving::Uc(Half::peer_of(0))), Err(OpenError::Open));
    }
    assert_eq!(Pair::uc().a.qp.start_sending(retries), Err(OpenError::Transport));
}

/// Memory of a provider that has neither.
struct Plain;

impl Memory for Plain {
    fn read(&mut self, _: Place, _: &mut [u8]) -> Result<(), Denied> {
        Ok(())
    }
    fn write(&mut self, _: Place, _: &[u8]) -> Result<(), Denied> {
        Ok(())
    }
    fn check(&mut self, _: Place, _: u64) -> Result<(), Denied> {
        Ok(())
    }
    fn atomic(&mut self, _: Place, _: AtomicOp) -> Result<u64, Denied> {
        Ok(0)
    }
    fn invalidate(&mut self, _: Owner, _: u32) -> Result<(), Denied> {
        Ok(())
    }
}

#[test]
fn memory_carries_out_nothing_and_has_no_shared_receives_unless_it_says_so() {
    let mut pair = Pair::uc();
    pair.a.send(1, Operation::Local, 0);
    let mut out = [0; 256 + HEADERS_MAX_BYTES];
    assert!(pair.a.qp.transmit(0, &mut Plain, &mut out, 0).is_none());
    assert_eq!(statuses(&mut pair.a), [(1, Status::LocalRefused)]);
    let mut half = Half::new(1, RIGHTS, Receives::Shared { queue: 3, completions: 2 });
    half.qp.receive_from(Receiving::Uc(Half::peer_of(1))).expect("new");
    let mut pair = Pair::uc();
    pair.a.send(1, SEND, 10);
    let sent = pair.a.next(0).expect("a message");
    let arrival = Arrival { route: sent.route, icrc: Icrc::IpId(0) };
    let incoming = Incoming::read(arrival, &sent.bytes).expect("a packet");
    assert_eq!(half.qp.receive(0, &incoming, &mut Plain), Err(Discard::NoReceive));
}
