//! The numbers of connections and transactions, and the times that a request names.

use verbline_roce::cm::{CmDiscard, Limits, MAD_BYTES, Mad, Manager, Message, PortSpace, Ready, Rejected};

use crate::cm::{LIMITS, accept, address, connect, connect_by, qpn_of, two};

/// A message may name any number, and so any place: also behind the last one, if the places are not
/// as many as a power of two.
#[test]
fn any_number_is_looked_up_whatever_the_number_of_places() {
    for connections in 1..=9 {
        let mut manager = Manager::new(Limits { connections, ..LIMITS });
        for number in 0..64 {
            let ready = Message::Ready(Ready { local_id: 7, remote_id: 1 << 31 | number });
            let mad = Mad { transaction: 7, message: ready }.to_bytes();
            assert_eq!(manager.receive(0, 0, address(1), &mad), Err(CmDiscard::NoConnection), "{connections}");
        }
        let ids = (0..connections as u32).map(|index| {
            let asked = manager.connect(0, 77, &connect_by(1, 2, qpn_of(0, index)));
            asked.expect("room").number()
        });
        let mut ids: Vec<_> = ids.collect();
        ids.dedup();
        assert_eq!(ids.len(), connections, "{ids:x?}");
    }
}

/// Also those of one manager that drew the same random number.
#[test]
fn each_connection_has_a_transaction_of_its_own() {
    let mut two = two();
    let transactions = [(0, 77), (1, 77), (2, 78)].map(|(index, random)| {
        two.client.connect(0, random, &connect_by(1, 2, qpn_of(0, index))).expect("room");
        let sent = two.client.transmit().expect("a request");
        Mad::read(&sent.mad).expect("a message").transaction
    });
    let [a, b, c] = transactions;
    assert!(a != b && b != c && a != c, "{transactions:x?}");
}

/// The passive side repeats its reply by them; the kernel's repeats it each millisecond by a 0.
#[test]
fn a_request_names_the_time_outs_and_retries_of_its_sender() {
    for (timeout, retries) in [(10, 2), (16, 15), (31, 200)] {
        let mut manager = Manager::new(Limits { timeout, retries, ..LIMITS });
        manager.connect(0, 77, &connect(1, 2)).expect("room");
        let sent = manager.transmit().expect("a request");
        let Ok(Mad { message: Message::Request(request), .. }) = Mad::read(&sent.mad) else { panic!() };
        let said = [request.local_response_timeout, request.remote_response_timeout, request.cm_retries];
        assert_eq!(said, [timeout, timeout, retries.min(15)]);
    }
}

/// Several managers share an address, and each tells its own numbers by their first bits.
#[test]
fn a_reply_for_another_manager_is_not_rejected() {
    let server = |mad: &[u8; MAD_BYTES]| {
        let mut server = Manager::new(LIMITS);
        server.listen(PortSpace::Reliable.service_of_port(4420));
        server.receive(0, 5, address(1), mad).expect("a request");
        let Some(verbline_roce::cm::Event::Requested(id, _)) = server.poll() else { panic!() };
        server.accept(0, id, &accept()).expect("requested");
        server.transmit().expect("a reply")
    };
    for (prefix, is_rejected) in [(3, true), (4, false), (2, false), (19, false)] {
        let mut asker = Manager::new(LIMITS);
        asker.number_after(3, 5);
        let id = asker.connect(0, 77, &connect(1, 2)).expect("room");
        assert_eq!(id.number() >> 27, 3);
        let reply = server(&asker.transmit().expect("a request").mad);
        let mut other = Manager::new(LIMITS);
        other.number_after(prefix, 5);
        assert_eq!(other.receive(0, 0, address(2), &reply.mad), Err(CmDiscard::NoConnection));
        let said = other.transmit().map(|sent| Mad::read(&sent.mad).expect("a message").message);
        let rejects = matches!(said, Some(Message::Reject(reject)) if reject.of == Rejected::Reply);
        assert_eq!((rejects, said.is_some()), (is_rejected, is_rejected), "{prefix}");
    }
}
