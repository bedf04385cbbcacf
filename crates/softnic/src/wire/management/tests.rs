//! A device's name, as sent to its peers.

use super::*;
use verbline_roce::cm::{MAD_BYTES, Message};
use verbline_roce::wire::{self, HEADERS_MAX_BYTES, seal};

const TERMS: Terms = Terms {
    qpn: 2,
    psn: 3,
    mtu: 3,
    responder_resources: 1,
    initiator_depth: 1,
    retry_count: 7,
    rnr_retry: 7,
    traffic_class: 0,
    srq: false,
    private_data: Vec::new(),
};

/// The next message to be sent.
fn said(by: &mut Management) -> Message {
    let mut room = [0; MAD_BYTES + HEADERS_MAX_BYTES];
    let (route, len) = by.transmit(&mut room).expect("a message");
    let len = seal(&mut room, len, &route, 0);
    Mad::read(wire::read(&room[..len]).expect("a packet").payload).expect("a message").message
}

/// A request of `own` for a connection, as a datagram.
pub(in crate::wire) fn asking(own: SocketAddr, to: (IpAddr, u16)) -> Vec<u8> {
    let mut management = Management::new(own, 1);
    let asked = management.connect(0, 1, (PortSpace::Reliable, to.into()), &TERMS, Box::new(|_| {}));
    asked.expect("room");
    let mut room = [0; MAD_BYTES + HEADERS_MAX_BYTES];
    let (route, len) = management.transmit(&mut room).expect("a message");
    let len = seal(&mut room, len, &route, 0);
    room[..len].to_vec()
}

/// Regression: every device was device 0, so a kernel took the queue pairs of two hosts for those
/// of one, and ended a connection when another had the same number.
#[test]
fn each_device_has_a_name_of_its_own_which_it_gives_up_by() {
    let (own, to) = (([10, 0, 0, 1], 4791).into(), ([10, 0, 0, 2], 4420).into());
    let mut names = [1, 1].map(|slice| {
        let mut management = Management::new(own, slice);
        let asked = management.connect(0, 1, (PortSpace::Reliable, to), &TERMS, Box::new(|_| {}));
        asked.expect("room");
        let Message::Request(request) = said(&mut management) else { panic!() };
        while let Some(due_ns) = management.deadline_ns() {
            management.advance(due_ns);
            if let Message::Reject(reject) = said(&mut management) {
                assert_eq!(reject.info, request.ca_guid);
            }
        }
        request.ca_guid
    });
    names.sort_unstable();
    assert!(names[0] != names[1] && names[0] != 0, "{names:?}");
}
