//! RDMA WRITEs and READs posted as lists.

use crate::common::{Options, Side, hand_back, pair, provider};
use verbline_verbs::{
    Access, MrError, PostStop, Provider, SendOptions, SendOutcome, Transport, WrKind,
    rdma::{PeerMr, PeerSlice, Remote},
};

fn all() -> Access {
    Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE
}

fn signaled() -> SendOptions {
    SendOptions { signaled: true, ..SendOptions::default() }
}

/// Polls until everything posted is done; gives how many completions came.
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
fn crosswise(local: &PeerMr, remote: &PeerMr, count: usize) -> Vec<(PeerSlice, Remote)> {
    let parts = (0..count).map(|part| {
        let there = remote.remote(16 * (count - 1 - part) as u64);
        (local.slice(16 * part, 16).unwrap(), there)
    });
    parts.collect()
}

fn borrowed(list: &[(PeerSlice, Remote)]) -> impl Iterator<Item = (&PeerSlice, Remote)> {
    list.iter().map(|(slice, remote)| (slice, *remote))
}

fn numbered(count: usize, seed: u8) -> Vec<u8> {
    (0..16 * count).map(|at| (at / 16) as u8 ^ seed).collect()
}

fn bytes(mr: &PeerMr, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    mr.read_into(0, &mut bytes).unwrap();
    bytes
}

#[test]
fn a_list_moves_all_its_parts_and_one_in_signal_every_completes() {
    for transport in [Transport::Rc, Transport::Uc] {
        let (mut a, b) = pair(&Options::new(transport));
        let (near, far) = (a.peer_region(4096, all()), b.peer_region(4096, all()));
        let data = numbered(12, 0x40);
        near.write_from(0, &data).unwrap();
        let list = crosswise(&near, &far, 12);
        let outcome = match transport {
            Transport::Rc => a.qp.rc().unwrap().write_list(borrowed(&list), SendOptions::default()),
            _ => a.qp.uc().unwrap().write_list(borrowed(&list), SendOptions::default()),
        };
        assert_eq!(outcome, SendOutcome { posted: 12, ..SendOutcome::default() });
        assert_eq!(finish(&mut a), 3, "every fourth is signaled");
        let reversed: Vec<u8> = data.chunks(16).rev().flatten().copied().collect();
        assert_eq!(bytes(&far, data.len()), reversed);

        if transport == Transport::Rc {
            let back = a.peer_region(4096, all());
            let list = crosswise(&back, &far, 12);
            let outcome = a.qp.rc().unwrap().read_list(borrowed(&list), signaled());
            assert_eq!((outcome.posted, outcome.stop), (12, None));
            assert_eq!(finish(&mut a), 12, "all were asked for");
            assert_eq!(bytes(&back, data.len()), data);
        }
    }
}

#[test]
fn what_does_not_fit_is_told_and_can_follow() {
    let (mut a, b) = pair(&Options::new(Transport::Rc));
    let (near, far) = (a.peer_region(4096, all()), b.peer_region(4096, all()));
    let data = numbered(40, 0x15);
    near.write_from(0, &data).unwrap();
    let list = crosswise(&near, &far, 40);
    let mut done = 0;
    while done < list.len() {
        let outcome = a.qp.rc().unwrap().write_list(borrowed(&list[done..]), SendOptions::default());
        let room = 16.min(list.len() - done);
        let stop = (done + room < list.len()).then_some(PostStop::Full);
        assert_eq!((outcome.posted, outcome.stop), (room, stop));
        done += room;
        finish(&mut a);
    }
    assert_eq!(bytes(&far, data.len()), data.chunks(16).rev().flatten().copied().collect::<Vec<u8>>());
    let none = a.qp.rc().unwrap().read_list([], SendOptions::default());
    assert_eq!(none, SendOutcome::default());
}

#[test]
fn sends_writes_and_lists_share_a_queue() {
    let (mut a, mut b) = pair(&Options::new(Transport::Rc));
    let (near, far) = (a.peer_region(4096, all()), b.peer_region(4096, all()));
    assert_eq!(b.post_recvs(4), 4);
    near.write_from(0, &numbered(3, 9)).unwrap();
    let list = crosswise(&near, &far, 3);
    a.send(&[7; 500]);
    let _ = a.qp.rc().unwrap().write_list(borrowed(&list), SendOptions::default());
    a.qp.rc().unwrap().write(a.cache.get().unwrap(), far.remote(2048), SendOptions::default()).unwrap();
    let _ = a.qp.rc().unwrap().read_list(borrowed(&list[..2]), signaled());
    a.send(&[8; 500]);
    let _ = a.qp.rc().unwrap().write_list(borrowed(&list), signaled());
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
fn a_list_keeps_its_regions_until_it_is_done() {
    let (mut a, b) = pair(&Options::new(Transport::Rc));
    let far = b.peer_region(4096, all());
    let mut regions = [a.peer_region(4096, all()), a.peer_region(4096, all())];
    // Three runs of one region each: a, b, a.
    let order = [0, 0, 1, 1, 1, 0];
    let list: Vec<_> = order.iter().map(|&which| (regions[which].slice(0, 64).unwrap(), far.remote(0))).collect();
    let outcome = a.qp.rc().unwrap().read_list(borrowed(&list), signaled());
    assert_eq!((outcome.posted, outcome.stop), (6, None));
    drop(list);
    for region in &mut regions {
        assert!(matches!(region.set_access(Access::LOCAL_WRITE), Err(MrError::Shared { .. })), "work requests hold it");
    }
    finish(&mut a);
    for region in &mut regions {
        // What the device then says is its own affair: rdma_rxe of Linux 6.1 has no ibv_rereg_mr.
        match region.set_access(Access::LOCAL_WRITE) {
            Err(MrError::Shared { .. }) => panic!("nobody holds it any more"),
            Err(error) => assert_eq!(provider(), Provider::Kernel, "{error}"),
            Ok(()) => {}
        }
    }
}

#[test]
fn the_part_that_cannot_be_posted_ends_the_list() {
    let (mut a, b) = pair(&Options::new(Transport::Rc));
    let (near, far) = (a.peer_region(4096, all()), b.peer_region(4096, all()));
    // The peer's own region is no local memory of this side.
    let foreign = far.slice(0, 16).unwrap();
    let mut list = crosswise(&near, &far, 3);
    list.insert(2, (foreign, far.remote(0)));
    let outcome = a.qp.rc().unwrap().write_list(borrowed(&list), signaled());
    assert_eq!(outcome.posted, 2);
    assert!(matches!(outcome.stop, Some(PostStop::NotRegistered { .. })), "{outcome:?}");
    assert_eq!(finish(&mut a), 2);
}

#[test]
fn a_refused_access_fails_its_part_and_flushes_the_rest() {
    let (mut a, b) = pair(&Options::new(Transport::Rc));
    let (near, far) = (a.peer_region(4096, all()), b.peer_region(4096, all()));
    let mut list = crosswise(&near, &far, 4);
    list[2].1 = far.remote(4096);
    let outcome = a.qp.rc().unwrap().read_list(borrowed(&list), signaled());
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
