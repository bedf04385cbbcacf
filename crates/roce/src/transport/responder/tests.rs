//! The longest message.

use super::*;
use crate::memory::Sge;
use crate::transport::configuration::Receives;
use crate::transport::unreliable::tests::Endless;
use crate::wire::Qpn;

/// A message of exactly 2^31 bytes is received, and one byte more is refused, before it is written.
#[test]
fn a_message_of_more_than_2_to_the_31_bytes_is_refused() {
    let mtu = 4096;
    for (before, is_taken) in [(TOO_LONG_BYTES - u64::from(mtu), true), (TOO_LONG_BYTES, false)] {
        let mut inbox = Inbox::new(Receives::Own(1), 2);
        let sge = Sge { addr: 0, len: u32::MAX, key: 1 };
        inbox.post(7, &[sge, sge]).expect("room");
        let owner = Owner { domain: 1, qpn: Qpn::new(2) };
        let mut responder = Responder::new(Psn::new(5), mtu, Serving::default());
        responder.message = Underway::Send { received: before };
        let (mut counters, mut memory) = (Counters::default(), Endless);
        let mut cx =
            Serve { owner, rights: Rights::default(), inbox: &mut inbox, memory: &mut memory, counters: &mut counters };
        let last = Rc::Send { first: false, last: Some(SendEnd::Plain) };
        let taken = responder.request(&mut cx, &Bth::new(owner.qpn, Psn::new(5)), last, &[0; 4096]);
        let refused = matches!(taken, Err(Halt::Refuse(Refusal { code: Syndrome::NAK_INVALID_REQUEST, .. })));
        assert_eq!((taken.is_ok(), refused), (is_taken, !is_taken), "{before}");
        let bytes = inbox.poll().map(|completion| completion.bytes);
        assert_eq!(bytes, is_taken.then_some(1 << 31), "{before}");
    }
}

/// A WRITE and a READ of exactly 2^31 bytes are taken, and one of one byte more is refused.
#[test]
fn a_request_for_more_than_2_to_the_31_bytes_is_refused() {
    let owner = Owner { domain: 1, qpn: Qpn::new(2) };
    let rights = Rights { write: true, read: true, atomic: false };
    for (len, is_taken) in [(1 << 31, true), (1 << 31 | 1, false)] {
        let reth = Reth { addr: 0, rkey: 1, len };
        let write = Rc::Write { first: Some(reth), last: None };
        for (request, payload) in [(write, &[0; 4096][..]), (Rc::ReadRequest(reth), &[])] {
            let (mut inbox, mut counters, mut memory) = (Inbox::new(Receives::Own(1), 1), Counters::default(), Endless);
            let mut responder = Responder::new(Psn::new(5), 4096, Serving::default());
            let mut cx = Serve { owner, rights, inbox: &mut inbox, memory: &mut memory, counters: &mut counters };
            let taken = responder.request(&mut cx, &Bth::new(owner.qpn, Psn::new(5)), request, payload);
            let refused = matches!(taken, Err(Halt::Refuse(Refusal { code: Syndrome::NAK_INVALID_REQUEST, .. })));
            assert_eq!((taken.is_ok(), refused), (is_taken, !is_taken), "{request:?}");
        }
    }
}
