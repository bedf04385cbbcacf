//! RDMA WRITEs and READs of parts of a region, posted as lists.

use crate::common::{Options, Side, assert_arrived, bytes, hand_back, pair};
use verbline_verbs::rdma::{Connected, KeepSpec, KeptRegion, Operation, Part, PeerMr, Remote, Work, WorkList};
use verbline_verbs::{Access, PostStop, SendOptions, SendOutcome, Transport, WrKind};

fn all() -> Access {
    Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE
}

/// A region of a side, the only one that its queue pair keeps.
fn kept(side: &mut Side) -> PeerMr {
    let region = side.peer_region(4096, all());
    side.qp.keep_memory(&KeepSpec { regions: vec![Some(region.clone())], ..KeepSpec::default() }).unwrap();
    region
}

/// Polls until everything posted is done; returns the number of completions.
fn finish(side: &mut Side) -> usize {
    let deadline = std::time::Instant::now() + crate::common::PATIENCE;
    let mut completions = 0;
    while side.qp.sends_outstanding() > 0 {
        assert!(std::time::Instant::now() < deadline, "the list completes");
        completions += side.poll(|qp, freed, completion| {
            assert!(completion.is_ok(), "{completion:?}");
            hand_back(qp, freed, completion);
        });
    }
    completions
}

/// `count` parts of 16 bytes, each beside the peer's part of the same number, from the last to the
/// first.
fn crosswise(remote: &PeerMr, count: u32) -> Vec<(Part, Remote)> {
    let part = |at| Part { region: KeptRegion(0), span: (16 * at..16 * at + 16).into() };
    (0..count).map(|at| (part(at), remote.remote(16 * u64::from(count - 1 - at)))).collect()
}

fn list<T: Connected>(parts: &[(Part, Remote)], operation: fn(Part, Remote) -> Operation<T>) -> WorkList<T> {
    let mut works = WorkList::with_capacity(parts.len());
    for &(part, remote) in parts {
        assert!(works.push(Work::plain(operation(part, remote))).is_ok());
    }
    works
}

fn write<T: Connected>(part: Part, to: Remote) -> Operation<T> {
    Operation::write(part.into(), to)
}

fn read(part: Part, from: Remote) -> Operation {
    Operation::read(part.into(), from)
}

fn numbered(count: usize, seed: u8) -> Vec<u8> {
    (0..16 * count).map(|at| (at / 16) as u8 ^ seed).collect()
}

#[test]
fn a_list_moves_all_its_parts_and_its_last_and_one_in_signal_every_complete() {
    for transport in [Transport::Rc, Transport::Uc] {
        let (mut a, b) = pair(&Options::new(transport));
        let (near, far) = (kept(&mut a), b.peer_region(4096, all()));
        let data = numbered(13, 0x40);
        near.write_from(0, &data).unwrap();
        let parts = crosswise(&far, 13);
        let outcome = match transport {
            Transport::Rc => a.qp.rc().unwrap().post_works(&mut list(&parts, write)),
            _ => a.qp.uc().unwrap().post_works(&mut list(&parts, write)),
        };
        assert_eq!(outcome, SendOutcome { posted: 13, ..SendOutcome::default() });
        assert_eq!(finish(&mut a), 4, "every fourth is signaled, and the last");
        let reversed: Vec<u8> = data.chunks(16).rev().flatten().copied().collect();
        assert_arrived(transport, &far, 0, &reversed);

        if transport == Transport::Rc {
            near.write_from(0, &vec![0; data.len()]).unwrap();
            let outcome = a.qp.rc().unwrap().post_works(&mut list(&parts, read));
            assert_eq!((outcome.posted, outcome.stop), (13, None));
            finish(&mut a);
            assert_eq!(bytes(&near, 0, data.len()), data);
        }
    }
}

#[test]
fn what_does_not_fit_is_told_and_can_follow() {
    let (mut a, b) = pair(&Options::new(Transport::Rc));
    let (near, far) = (kept(&mut a), b.peer_region(4096, all()));
    let data = numbered(40, 0x15);
    near.write_from(0, &data).unwrap();
    let mut works = list(&crosswise(&far, 40), write);
    while !works.is_empty() {
        let room = 16.min(works.len());
        let stop = (room < works.len()).then_some(PostStop::Full);
        let outcome = a.qp.rc().unwrap().post_works(&mut works);
        assert_eq!((outcome.posted, outcome.stop), (room, stop));
        finish(&mut a);
    }
    assert_eq!(bytes(&far, 0, data.len()), data.chunks(16).rev().flatten().copied().collect::<Vec<u8>>());
    let none = a.qp.rc().unwrap().post_works(&mut works);
    assert_eq!(none, SendOutcome::default());
}

#[test]
fn sends_writes_and_lists_share_a_queue() {
    let (mut a, mut b) = pair(&Options::new(Transport::Rc));
    let (near, far) = (kept(&mut a), b.peer_region(4096, all()));
    assert_eq!(b.post_recvs(4), 4);
    near.write_from(0, &numbered(3, 9)).unwrap();
    let parts = crosswise(&far, 3);
    a.send(&[7; 500]);
    let _ = a.qp.rc().unwrap().post_works(&mut list(&parts, write));
    a.qp.rc().unwrap().write(a.cache.get().unwrap(), far.remote(2048), SendOptions::default()).unwrap();
    let _ = a.qp.rc().unwrap().post_works(&mut list(&parts[..2], read));
    a.send(&[8; 500]);
    let _ = a.qp.rc().unwrap().post_works(&mut list(&parts, write));
    assert_eq!(a.qp.sends_outstanding(), 11);
    finish(&mut a);
    let came: Vec<u8> = b.receive(2).iter().map(|packet| packet.data()[0]).collect();
    assert_eq!(came, [7, 8]);
    drop(a.qp);
    a.freed.clear();
    a.cache.flush();
    assert_eq!(a.pool.account().held, 0, "the packets came back");
}

#[test]
fn a_refused_access_fails_its_part_and_flushes_the_rest() {
    let (mut a, b) = pair(&Options { signal_every_wr: 1, ..Options::new(Transport::Rc) });
    let (_near, far) = (kept(&mut a), b.peer_region(4096, all()));
    let mut parts = crosswise(&far, 4);
    parts[2].1 = far.remote(4096);
    let outcome = a.qp.rc().unwrap().post_works(&mut list(&parts, read));
    assert_eq!(outcome.posted, 4);
    let mut statuses = Vec::new();
    let deadline = std::time::Instant::now() + crate::common::PATIENCE;
    while statuses.len() < 4 {
        assert!(std::time::Instant::now() < deadline, "{statuses:?}");
        a.poll(|qp, freed, completion| {
            assert_eq!(completion.kind(), WrKind::Op);
            statuses.push(completion.is_ok());
            hand_back(qp, freed, completion);
        });
    }
    assert_eq!(statuses, [true, true, false, false]);
    assert_eq!(a.qp.sends_outstanding(), 0);
}
