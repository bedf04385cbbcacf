//! Scatter/gather lists of operations posted as one list of work requests.

use verbline_verbs::{
    PostStop, Status, Transport,
    expert::SgList,
    rdma::{Connected, Local, OnRc, OnUc, Operation, Transfer, Work, WorkList, WorkMemory},
};

use super::{all, bytes, contents, list, pair_of, three_parts};
use crate::common::{PATIENCE, Side, hand_back, message};

/// Polls both sides until nothing of a's is outstanding; returns the memory that came back, in
/// order.
fn finish(a: &mut Side, b: &mut Side) -> Vec<Option<WorkMemory>> {
    let deadline = std::time::Instant::now() + PATIENCE;
    let mut back = Vec::new();
    while a.qp.sends_outstanding() > 0 {
        assert!(std::time::Instant::now() < deadline, "the work requests complete");
        b.poll(hand_back);
        a.poll(|qp, freed, completion| {
            assert_eq!(completion.status(), Status::SUCCESS);
            let each = |count, memory, _| back.extend((1..count).map(|_| None).chain([memory]));
            let _ = qp.works_done(completion, freed, each).unwrap();
        });
    }
    back
}

fn into_list(memory: Option<WorkMemory>) -> Box<SgList> {
    match memory {
        Some(WorkMemory::List(list)) => list,
        other => panic!("no list: {other:?}"),
    }
}

/// A WRITE and a SEND of three parts each, in one list with a packet between them: both arrive
/// whole, and each list comes back unchanged.
#[test]
fn writes_and_sends_are_gathered_from_their_parts() {
    fn post<T: Connected>(works: &mut WorkList<T>, work: Work<T>) {
        works.push(work).unwrap();
    }
    for transport in [Transport::Rc, Transport::Uc] {
        let (mut a, mut b) = pair_of(transport, 3, 1);
        let (near, far) = (a.peer_region(4096, all()), b.peer_region(4096, all()));
        assert_eq!(b.post_recvs(2), 2);
        let ((written, data), (sent, _)) = (three_parts(&a, &near), three_parts(&a, &near));
        macro_rules! posted {
            ($on:ty, $qp:ident) => {{
                let mut works = WorkList::<$on>::with_capacity(4);
                let transfer = Transfer::Write { to: far.remote(64) };
                post(&mut works, Work::plain(Operation::Transfer { transfer, local: Local::List(Box::new(written)) }));
                post(&mut works, Work::Send(a.packet(b"between")));
                let transfer = Transfer::SendWithImm { imm: 7 };
                post(&mut works, Work::plain(Operation::Transfer { transfer, local: Local::List(Box::new(sent)) }));
                a.qp.$qp().unwrap().post_works(&mut works)
            }};
        }
        let outcome = if transport == Transport::Rc { posted!(OnRc, rc) } else { posted!(OnUc, uc) };
        assert_eq!((outcome.posted, outcome.stop), (3, None));
        let came: Vec<_> = b.receive(2).iter().map(|packet| packet.data().to_vec()).collect();
        assert_eq!(came, [b"between".to_vec(), data.clone()]);
        assert_eq!(bytes(&far, 64, data.len()), data);
        for memory in finish(&mut a, &mut b) {
            let list = into_list(memory);
            assert_eq!((list.len(), list.len_bytes(), contents(&list.as_slice()[0])), (3, data.len(), &data[..42]));
        }
    }
}

/// Work requests that had lists use memory of their own in the next post, by any queue pair of the
/// thread, and nothing of an earlier list.
#[test]
fn what_is_posted_after_a_list_is_of_its_own_memory() {
    let (mut a, mut b) = pair_of(Transport::Rc, 3, 1);
    let near = a.peer_region(4096, all());
    assert_eq!(b.post_recvs(4), 4);
    let ((first, data), (second, _)) = (three_parts(&a, &near), three_parts(&a, &near));
    let lists = [first, second].map(|list| Work::plain(Operation::send(Local::List(Box::new(list)))));
    let packets = [&b"after"[..], b"the lists"].map(|text| Work::Send(a.packet(text)));
    for works in [lists, packets] {
        let mut waiting = WorkList::with_capacity(2);
        works.into_iter().for_each(|work| waiting.push(work).unwrap());
        assert_eq!(a.qp.rc().unwrap().post_works(&mut waiting).posted, 2);
    }
    let came: Vec<_> = b.receive(4).iter().map(|packet| packet.data().to_vec()).collect();
    assert_eq!(came, [data.clone(), data, b"after".to_vec(), b"the lists".to_vec()]);
    finish(&mut a, &mut b);
}

/// READs into two packets and a region each, more of them than a post has entries for: each reads
/// its own bytes.
#[test]
fn reads_are_scattered_over_their_parts_however_many_there_are() {
    let (mut a, mut b) = pair_of(Transport::Rc, 30, 1);
    let (near, far) = (a.peer_region(4096, all()), b.peer_region(4096, all()));
    let data = message(9, 4096);
    far.write_from(0, &data).unwrap();
    let room = a.qp.send_room().min(16);
    let mut works = WorkList::with_capacity(room);
    for at in 0..room {
        // Eight parts each.
        let parts = (0..8).map(|part| match part {
            0 => a.packet(&[0; 3]).into(),
            _ => near.slice(at * 64 + part * 8, 7).unwrap().into(),
        });
        let from = far.remote(at as u64 * 52);
        works.push(Work::plain(Operation::read(Local::List(Box::new(list(parts))), from))).unwrap();
    }
    let outcome = a.qp.rc().unwrap().post_works(&mut works);
    assert_eq!((outcome.posted, outcome.stop), (room, None));
    for (at, memory) in finish(&mut a, &mut b).into_iter().enumerate() {
        let expected = &data[at * 52..];
        let list = into_list(memory);
        assert_eq!(contents(&list.as_slice()[0]), &expected[..3]);
        for part in 1..8 {
            assert_eq!(bytes(&near, at * 64 + part * 8, 7), &expected[3 + (part - 1) * 7..][..7], "{at} {part}");
        }
    }
}

/// A list with more parts than the queue pair takes stays at the front, whole.
#[test]
fn a_list_of_too_many_parts_is_refused_where_it_stands() {
    let (mut a, mut b) = pair_of(Transport::Rc, 2, 1);
    let near = a.peer_region(4096, all());
    assert_eq!(b.post_recvs(1), 1);
    let (parts, _) = three_parts(&a, &near);
    let mut works = WorkList::with_capacity(4);
    works.push(Work::Send(a.packet(b"before"))).unwrap();
    works.push(Work::plain(Operation::send(Local::List(Box::new(parts))))).unwrap();
    let outcome = a.qp.rc().unwrap().post_works(&mut works);
    assert_eq!((outcome.posted, outcome.stop), (1, Some(PostStop::TooManySges { sges: 3, max_sge: 2 })));
    let Some(Work::Operation { operation, .. }) = works.pop() else { panic!("it is still there") };
    assert_eq!(into_list(operation.into_memory()).len(), 3);
    assert_eq!(b.receive(1)[0].data(), b"before");
    finish(&mut a, &mut b);

    // A list that is outstanding when its queue pair is dropped returns its packets.
    let (parts, _) = three_parts(&a, &near);
    works.push(Work::plain(Operation::send(Local::List(Box::new(list(parts.into_iter().take(2))))))).unwrap();
    assert_eq!(a.qp.rc().unwrap().post_works(&mut works).posted, 1);
    drop(works);
    let Side { qp, pool, .. } = &mut a;
    let held = pool.account().held;
    qp.to_reset().unwrap();
    assert_eq!(pool.account().held, held - 1);
}
