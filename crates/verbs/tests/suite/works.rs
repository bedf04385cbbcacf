//! Sends and operations as one list, whose memory is parts of regions that the QP keeps.

use crate::common::{Options, only_soft, pair};
use verbline_verbs::rdma::{Atomic, KeptRegion, Local, Operation, Part, Remote, Word, Work, WorkList};
use verbline_verbs::{Access, PostStop, Transport};

const REGION_BYTES: u32 = 4096;

/// Eight bytes at an offset, used in every way.
fn operations(region: KeptRegion, offset: u32, there: Remote) -> [Operation; 5] {
    let part = || Part { region, offset, len: 8 };
    let atomic = |atomic| Operation::Atomic { atomic, into: Word::Part(part()) };
    [
        Operation::send(Local::Part(part())),
        Operation::write(Local::Part(part()), there),
        Operation::read(Local::Part(part()), there),
        atomic(Atomic::FetchAdd { at: there, add: 1 }),
        atomic(Atomic::CompareSwap { at: there, compare: 1, swap: 2 }),
    ]
}

/// What a device would do with a byte behind the region is no affair of its.
#[test]
fn a_part_ends_where_its_region_ends_whatever_is_done_with_it() {
    let (mut a, b) = pair(&Options::new(Transport::Rc));
    let access = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
    let (near, far) = (a.peer_region(REGION_BYTES as usize, access), b.peer_region(REGION_BYTES as usize, access));
    let region = a.qp.keep_region(&near).unwrap();
    let there: Remote = far.remote(0);
    // Of the eight bytes one, all, and infinitely many are behind the end.
    for offset in [REGION_BYTES - 7, REGION_BYTES, u32::MAX - 3] {
        for operation in operations(region, offset, there) {
            let what = format!("{operation:?}");
            let mut works = WorkList::with_capacity(1);
            works.push(Work::plain(operation)).unwrap();
            let outcome = a.qp.connected().unwrap().post_works(&mut works);
            assert!(outcome.posted == 0 && matches!(outcome.stop, Some(PostStop::NotKept(_))), "{what}: {outcome:?}");
            assert_eq!(works.len(), 1, "it is at the front");
        }
    }
    // The last eight that there are.
    let mut works = WorkList::with_capacity(4);
    for operation in operations(region, REGION_BYTES - 8, there).into_iter().skip(1) {
        works.push(Work::plain(operation)).unwrap();
    }
    let outcome = a.qp.connected().unwrap().post_works(&mut works);
    assert_eq!((outcome.posted, outcome.stop), (4, None));
}

/// They would have got the numbers of others.
#[test]
fn a_queue_pair_keeps_as_many_signature_keys_as_have_numbers_and_makes_no_more() {
    only_soft!("of kernel devices only mlx5 cards have signature offload");
    let (mut a, _b) = pair(&Options::new(Transport::Rc));
    let first = a.qp.keep_keys(2).unwrap();
    assert_ne!(first[0], first[1]);
    for asked in [65_535, 65_536, usize::MAX] {
        let error = a.qp.keep_keys(asked).unwrap_err().to_string();
        assert!(error.contains("keeps 2 signature keys") && error.contains("65536 at most"), "{error}");
    }
    let later = a.qp.keep_keys(1).unwrap();
    assert!(!first.contains(&later[0]), "those that were refused took no numbers");
}
