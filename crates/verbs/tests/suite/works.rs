//! Sends and operations as one list, whose memory is parts of regions that the QP keeps.

use crate::common::{Options, only_soft, pair};
use verbline_mem::{PageChoice, PeerRegion, Region, RegionSpec};
use verbline_verbs::expert::{MrOptions, WindowKind};
use verbline_verbs::rdma::{Atomic, KeptRegion, Local, OnRc, Operation, Part, Remote, Span, Word, Work, WorkList};
use verbline_verbs::{Access, PostStop, Transport};

const REGION_BYTES: u64 = 4096;

/// Eight bytes at an offset, used in every way.
fn operations(region: KeptRegion, offset: u64, there: Remote) -> [Operation; 5] {
    let part = || Part { region, span: Span::new(offset, 8).unwrap() };
    let atomic = |atomic| Operation::Atomic { atomic, into: Word::Part(part()), on: OnRc };
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
    for offset in [REGION_BYTES - 7, REGION_BYTES, u64::from(u32::MAX) - 3, Span::MAX] {
        for operation in operations(region, offset, there) {
            let what = format!("{operation:?}");
            let mut works = WorkList::with_capacity(1);
            works.push(Work::plain(operation)).unwrap();
            let outcome = a.qp.rc().unwrap().post_works(&mut works);
            assert!(outcome.posted == 0 && matches!(outcome.stop, Some(PostStop::NotKept(_))), "{what}: {outcome:?}");
            assert_eq!(works.len(), 1, "it is at the front");
        }
    }
    // The last eight that there are.
    let mut works = WorkList::with_capacity(4);
    for operation in operations(region, REGION_BYTES - 8, there).into_iter().skip(1) {
        works.push(Work::plain(operation)).unwrap();
    }
    let outcome = a.qp.rc().unwrap().post_works(&mut works);
    assert_eq!((outcome.posted, outcome.stop), (4, None));
}

/// A message is no longer than the port carries, however long the region; a window is.
#[test]
fn a_part_of_more_than_4_gib_is_no_message_and_can_be_opened_by_a_window() {
    only_soft!("of kernel devices, not all have on-demand paging and windows of type 2");
    let (mut a, _b) = pair(&Options::new(Transport::Rc));
    let (pages, len_bytes) = (PageChoice::OnDemand, 5 << 30);
    let spec = RegionSpec { name: "large".into(), len_bytes, pages, lock: false };
    let memory = PeerRegion::new(Region::map(&spec).unwrap());
    let options = MrOptions { on_demand: true, ..MrOptions::default() };
    let near = a.pd.register_peer_region_with(memory, Access::LOCAL_WRITE | Access::MW_BIND, options).unwrap();
    let region = a.qp.keep_region(&near).unwrap();
    let window = a.pd.alloc_mw(WindowKind::Type2).unwrap();
    let window = a.qp.keep_window(window).unwrap();
    let there = near.remote(0);
    let mut refused = |span| {
        let mut works = WorkList::with_capacity(1);
        works.push(Work::plain(Operation::write(Local::Part(Part { region, span }), there))).unwrap();
        a.qp.rc().unwrap().post_works(&mut works).stop
    };
    for len_bytes in [(4 << 30) + 8, len_bytes as u64] {
        let stop = refused(Span::new(0, len_bytes).unwrap());
        assert!(matches!(stop, Some(PostStop::TooLong { len_bytes: is, .. }) if is as u64 == len_bytes), "{stop:?}");
    }
    let outside = Span::new(1, len_bytes as u64).unwrap();
    assert!(matches!(refused(outside), Some(PostStop::NotKept(_))));
    let part = Part { region, span: Span::new(0, len_bytes as u64).unwrap() };
    let mut works = WorkList::with_capacity(1);
    works.push(Work::plain(Operation::Bind { window, part, access: Access::REMOTE_READ })).unwrap();
    assert_eq!(a.qp.rc().unwrap().post_works(&mut works).posted, 1);
    assert!(a.qp.window_remote(window).is_some());
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
