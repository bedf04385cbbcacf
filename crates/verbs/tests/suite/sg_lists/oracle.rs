//! Any parts on either side, against a model that only adds them up.

use proptest::prelude::*;
use verbline_mem::Packet;

use super::receives::receive;
use super::*;

/// The kind of a part, and its length.
type Part = (bool, usize);

fn part() -> impl Strategy<Value = Part> {
    (any::<bool>(), prop_oneof![1 => Just(0usize), 4 => 1usize..120])
}

#[derive(Clone, Copy, Debug)]
enum Verb {
    Send,
    Write,
    Read,
}

/// The parts as memory of this side, holding `content`; slices follow each other, with gaps.
fn parts_of(side: &Side, region: &PeerMr, parts: &[Part], mut content: &[u8]) -> SgList {
    let mut offset = 3;
    let entries = parts.iter().map(|&(in_packet, len)| {
        let (here, rest) = content.split_at(len);
        content = rest;
        offset += len + 5;
        if in_packet {
            return side.packet(here).into();
        }
        region.write_from(offset - len - 5, here).unwrap();
        region.slice(offset - len - 5, len as u32).unwrap().into()
    });
    entries.collect()
}

/// The content of the parts, in their order.
fn content_of(list: &SgList, region: &PeerMr, parts: &[Part]) -> Vec<u8> {
    let mut offset = 3;
    let mut content = Vec::new();
    for (entry, &(_, len)) in list.as_slice().iter().zip(parts) {
        match entry {
            SgEntry::Packet(packet) => content.extend(Packet::data(packet)),
            SgEntry::Peer(_) => content.extend(bytes(region, offset, len)),
        }
        offset += len + 5;
    }
    content
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// With any parts on either side, the bytes are those of the parts in their order; a list with
    /// more non-empty parts than requested is refused.
    #[test]
    fn bytes_go_from_parts_to_parts_in_their_order(
        max_sge in 1u32..5,
        steps in prop::collection::vec(
            (
                prop_oneof![Just(Verb::Send), Just(Verb::Write), Just(Verb::Read)],
                prop::collection::vec(part(), 0..6),
                prop::collection::vec(part(), 0..4),
            ),
            1..12,
        ),
    ) {
        let (mut a, mut b) = pair_of(Transport::Rc, max_sge, 6);
        let (near, far) = (a.peer_region(4096, all()), b.peer_region(4096, all()));
        for (number, (verb, parts, mut into)) in (0u32..).zip(steps) {
            let len: usize = parts.iter().map(|&(_, len)| len).sum();
            let data = message(number, len);
            let sges = parts.iter().filter(|&&(_, len)| len > 0).count();
            let fits = sges <= max_sge as usize;
            // The receive has space for at least the message.
            into.push((false, len));
            let zeros = vec![0; into.iter().map(|&(_, len)| len).sum()];
            let local = match verb {
                Verb::Send if fits => {
                    let received = parts_of(&b, &far, &into, &zeros);
                    b.qp.post_recv_scatter(received).unwrap();
                    parts_of(&a, &near, &parts, &data)
                }
                Verb::Send | Verb::Write => parts_of(&a, &near, &parts, &data),
                Verb::Read => {
                    far.write_from(64, &data).unwrap();
                    parts_of(&a, &near, &parts, &vec![0; len])
                }
            };
            let options = SendOptions::default();
            let posted = match verb {
                Verb::Send => a.qp.rc().unwrap().send(local, options),
                Verb::Write => a.qp.rc().unwrap().write(local, far.remote(64), options),
                Verb::Read => a.qp.rc().unwrap().read(local, far.remote(64), options),
            };
            if !fits {
                prop_assert_eq!(reason(posted).0, PostStop::TooManySges { sges, max_sge });
                continue;
            }
            posted.unwrap();
            let arrived = matches!(verb, Verb::Send).then(|| receive(&mut b));
            let (buffer, status) = finish(&mut a, &mut b);
            prop_assert_eq!(status, Status::SUCCESS);
            let local = buffer.into_list().unwrap();
            prop_assert_eq!(local.len(), parts.len());
            match (verb, arrived) {
                (Verb::Send, Some((received, byte_len, status))) => {
                    prop_assert_eq!((byte_len as usize, status), (len, Status::SUCCESS));
                    let mut got = content_of(&received, &far, &into);
                    // The slice at the end is longer than the bytes received into it.
                    prop_assert!(got.len() >= len);
                    got.truncate(len);
                    prop_assert_eq!(got, data);
                }
                (Verb::Write, _) => prop_assert_eq!(bytes(&far, 64, len), data),
                _ => prop_assert_eq!(content_of(&local, &near, &parts), data),
            }
        }
        a.assert_all_free();
        b.assert_all_free();
    }
}
