//! Packets of unreliable connections, one by one: those that fit no message, and the last one of a
//! message.

use verbline_roce::transport::Discard;
use verbline_roce::wire::{Bth, HEADERS_MAX_BYTES, Packet, Reth, Segment, Uc, WriteEnd};
use verbline_roce::{Completed, Data, Operation, Remote, SendRequest};

use crate::pair::{Datagram, Half, PSNS, Pair, QPNS};
use crate::reliable::{MTU, SEND};

/// A packet that `a` might have sent as its `number`-th.
fn packet(number: u32, uc: Uc, len: usize) -> Datagram {
    let (route, payload) = (Half::peer_of(0).route, vec![7; len]);
    let segment = Segment::Uc(uc);
    let packet = Packet { bth: Bth::new(QPNS[1], PSNS[0].plus(number)), segment, payload: &payload };
    let mut bytes = vec![0; len + HEADERS_MAX_BYTES];
    let len = packet.write(&mut bytes, &route, 0);
    bytes.truncate(len);
    Datagram { route, bytes }
}

fn target(half: &Half) -> Remote {
    Remote { rkey: half.remote.0, addr: half.remote.1 }
}

/// A WRITE's packets that carry more or fewer bytes than the first of them said, or than a packet
/// of that kind has.
#[test]
fn a_write_with_other_bytes_than_it_said_is_discarded() {
    let mtu = MTU as usize;
    // The bytes that it says, and its packets: whether each is the last, and its bytes.
    let rows: [(u32, &[(bool, usize)]); 7] = [
        // All of its bytes are here, and it goes on.
        (MTU, &[(false, mtu)]),
        (2 * MTU, &[(false, mtu), (false, mtu)]),
        // A packet before the last that is not full.
        (3 * MTU, &[(false, mtu), (false, mtu - 4)]),
        (3 * MTU, &[(false, mtu - 4)]),
        // The last one has fewer bytes, or more.
        (2 * MTU, &[(false, mtu), (true, mtu - 1)]),
        (MTU + 1, &[(false, mtu), (true, 2)]),
        (MTU, &[(true, mtu - 1)]),
    ];
    for (len, packets) in rows {
        let mut pair = Pair::uc();
        let Remote { addr, rkey } = target(&pair.b);
        let taken = packets.iter().enumerate().map(|(number, (is_last, bytes))| {
            let first = (number == 0).then_some(Reth { addr, rkey, len });
            let uc = Uc::Write { first, last: is_last.then_some(WriteEnd::Plain) };
            pair.b.take(0, &packet(number as u32, uc, *bytes))
        });
        let mut taken: Vec<_> = taken.collect();
        assert_eq!(taken.pop(), Some(Err(Discard::Unfitting)), "{len}: {packets:?}");
        assert!(taken.iter().all(Result::is_ok) && !pair.b.qp.is_failed(), "{len}: {packets:?}");
    }
}

/// A completion tells of all packets of a message, and a packet that is missing is counted.
#[test]
fn a_write_of_several_packets_completes_with_all_its_bytes() {
    let mut pair = Pair::uc();
    let to = target(&pair.b);
    for lost in [None, Some(1)] {
        pair.b.receive(1, 0);
        pair.a.send(1, Operation::Write(to, WriteEnd::Immediate(8)), 2 * MTU + 9);
        let mut sent = pair.a.all(0);
        assert_eq!(sent.len(), 3);
        lost.into_iter().for_each(|lost| drop(sent.remove(lost)));
        let taken: Vec<_> = sent.iter().map(|datagram| pair.b.take(0, datagram)).collect();
        let came = pair.b.completions();
        if lost.is_none() {
            let came: Vec<_> = came.iter().map(|came| (came.completed, came.bytes)).collect();
            assert_eq!(came, [(Completed::ReceiveWrite { immediate: 8 }, 2 * MTU + 9)]);
        } else {
            assert_eq!((taken.last(), came), (Some(&Err(Discard::OutOfOrder)), vec![]));
        }
        let expected = u64::from(lost.is_some());
        assert_eq!(pair.b.qp.counters().incidents().out_of_order, expected);
    }
}

/// The last packet of a message asks for an event at the receiver, if its work request did.
#[test]
fn the_last_packet_of_a_solicited_message_says_so() {
    for solicited in [false, true] {
        let mut pair = Pair::uc();
        pair.b.receive(1, 3 * MTU);
        let sges = [pair.a.sge(3 * MTU)];
        let data = Data::Memory(&sges);
        let request = SendRequest { id: 1, operation: SEND, data, signaled: true, solicited, fence: false };
        pair.a.qp.post_send(&request).expect("posted");
        let sent = pair.a.all(0);
        let said: Vec<_> = sent.iter().map(|datagram| datagram.packet().bth.solicited).collect();
        assert_eq!(said, [false, false, solicited]);
        sent.iter().for_each(|datagram| pair.b.take(0, datagram).expect("taken"));
        assert_eq!(pair.b.completions()[0].solicited, solicited);
    }
}
