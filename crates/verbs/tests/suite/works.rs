//! Sends and operations as one list, whose memory is parts of regions that the QP keeps.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use crate::common::{Options, PATIENCE, only_soft, pair};
use verbline_mem::{PageChoice, PeerRegion, Region, RegionSpec};
use verbline_verbs::expert::MrOptions;
use verbline_verbs::rdma::{
    Atomic, KeepSpec, KeptRegion, KeptWindow, Local, OnRc, Operation, Part, Remote, Span, Word, Work, WorkList,
    WorkOptions,
};
use verbline_verbs::{Access, PostStop, QpError, Transport};

const REGION_BYTES: u64 = 4096;

/// Operations on eight bytes at an offset, one of each kind.
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

/// It does not matter what a device would do with a byte behind the region.
#[test]
fn a_part_ends_where_its_region_ends_whatever_is_done_with_it() {
    let (mut a, b) = pair(&Options::new(Transport::Rc));
    let access = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
    let (near, far) = (a.peer_region(REGION_BYTES as usize, access), b.peer_region(REGION_BYTES as usize, access));
    a.qp.keep_memory(&KeepSpec { regions: vec![None, Some(near)], ..KeepSpec::default() }).unwrap();
    let (region, there) = (KeptRegion(1), far.remote(0));
    // A number without a region, and one beyond the last.
    for region in [KeptRegion(0), KeptRegion(2)] {
        let mut works = WorkList::with_capacity(1);
        works.push(Work::plain(Operation::write(Part { region, span: Span::from(0..8) }.into(), there))).unwrap();
        let outcome = a.qp.rc().unwrap().post_works(&mut works);
        assert!(outcome.posted == 0 && matches!(outcome.stop, Some(PostStop::NotKept(_))), "{outcome:?}");
    }
    // One, all, and far more than the eight bytes are behind the end.
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
    // The last eight bytes.
    let mut works = WorkList::with_capacity(4);
    for operation in operations(region, REGION_BYTES - 8, there).into_iter().skip(1) {
        works.push(Work::plain(operation)).unwrap();
    }
    let outcome = a.qp.rc().unwrap().post_works(&mut works);
    assert_eq!((outcome.posted, outcome.stop), (4, None));
}

/// A message cannot exceed the port's limit, however long the region; a window can.
#[test]
fn a_part_of_more_than_4_gib_is_no_message_and_can_be_opened_by_a_window() {
    only_soft!("of kernel devices, not all have on-demand paging and windows of type 2");
    let (mut a, _b) = pair(&Options::new(Transport::Rc));
    let (pages, len_bytes) = (PageChoice::OnDemand, 5 << 30);
    let spec = RegionSpec { name: "large".into(), len_bytes, pages, lock: false };
    let memory = PeerRegion::new(Region::map(&spec).unwrap());
    let options = MrOptions { on_demand: true, ..MrOptions::default() };
    let near = a.pd.register_peer_region_with(memory, Access::LOCAL_WRITE | Access::MW_BIND, options).unwrap();
    let there = near.remote(0);
    a.qp.keep_memory(&KeepSpec { regions: vec![Some(near)], windows: 1, keys: 0 }).unwrap();
    let (region, window) = (KeptRegion(0), KeptWindow(0));
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

/// For callers that learn the transport only at run time.
#[test]
fn a_queue_pair_of_uc_posts_what_it_carries_and_stops_at_the_rest() {
    let (mut a, b) = pair(&Options::new(Transport::Uc));
    let (near, far) = (a.peer_region(64, Access::LOCAL_WRITE), b.peer_region(64, Access::LOCAL_WRITE));
    a.qp.keep_memory(&KeepSpec { regions: vec![Some(near)], ..KeepSpec::default() }).unwrap();
    let (part, there) = (Part { region: KeptRegion(0), span: Span::from(0..8) }, far.remote(0));
    let fenced = WorkOptions { fence: true, ..WorkOptions::default() };
    let add = Operation::Atomic { atomic: Atomic::FetchAdd { at: there, add: 1 }, into: part.into(), on: OnRc };
    for refused in [
        Work::plain(Operation::read(part.into(), there)),
        Work::plain(add),
        Work::Operation { operation: Operation::send(Local::Empty), options: fenced },
    ] {
        let mut works = WorkList::with_capacity(3);
        works.push(Work::plain(Operation::write(part.into(), there))).unwrap();
        works.push(refused).unwrap();
        let outcome = a.qp.post_works(&mut works);
        assert_eq!((outcome.posted, works.len()), (1, 1));
        assert!(matches!(outcome.stop, Some(PostStop::NotOn(Transport::Uc, _))), "{outcome:?}");
    }
    let (mut ud, _) = pair(&Options::new(Transport::Ud));
    let stop = ud.qp.post_works(&mut WorkList::with_capacity(1)).stop;
    assert!(matches!(stop, Some(PostStop::NotOn(Transport::Ud, _))), "{stop:?}");
}

/// If the caller's function panics, no operation is reported twice: neither those already reported,
/// nor the rest.
#[test]
fn operations_that_a_caller_was_told_of_are_done_also_when_it_panics() {
    // Operations without packets are reported together, except the completion's own.
    for (packets, expected) in [(0, vec![2]), (3, vec![1, 1, 1])] {
        let (mut a, b) = pair(&Options::new(Transport::Rc));
        let far = b.peer_region(64, Access::LOCAL_WRITE | Access::REMOTE_WRITE);
        let mut works = WorkList::with_capacity(3);
        for number in 0..3 {
            let local = if number < packets { Local::Packet(a.packet(b"eight by")) } else { Local::Empty };
            works.push(Work::plain(Operation::write(local, far.remote(0)))).unwrap();
        }
        assert_eq!(a.qp.post_works(&mut works).posted, 3);
        let (mut told, deadline) = (Vec::new(), Instant::now() + PATIENCE);
        while told.is_empty() {
            assert!(Instant::now() < deadline, "the operations are done");
            a.poll(|qp, freed, completion| {
                let mut take = |panics: bool| {
                    catch_unwind(AssertUnwindSafe(|| {
                        qp.works_done(completion, freed, |count, _, _| {
                            told.push(count);
                            assert!(!panics, "the caller's own");
                        })
                    }))
                };
                assert!(take(true).is_err());
                assert_eq!(take(false).unwrap().is_ok(), packets > 0);
                assert!(take(false).unwrap().is_err(), "it was taken");
            });
        }
        assert_eq!((told, a.qp.is_drained()), (expected, true));
        a.assert_all_free();
    }
}

#[test]
fn a_queue_pair_keeps_no_more_than_there_are_numbers() {
    let (mut a, _b) = pair(&Options::new(Transport::Rc));
    let regions = |count| KeepSpec { regions: vec![None; count], ..KeepSpec::default() };
    a.qp.keep_memory(&regions(40_000)).unwrap();
    let error = a.qp.keep_memory(&regions(25_536)).unwrap_err();
    assert!(matches!(error, QpError::KeptNumbers { what: "regions", has: 40_000, asked: 25_536, .. }), "{error}");
    assert!(error.to_string().ends_with("keeps 40000 regions, and 25536 more have no numbers: 65535 have"), "{error}");
    a.qp.keep_memory(&regions(25_535)).unwrap();
    let windows = |windows| KeepSpec { windows, ..KeepSpec::default() };
    a.qp.keep_memory(&windows(1)).unwrap();
    let error = a.qp.keep_memory(&windows(u16::MAX)).unwrap_err();
    assert!(matches!(error, QpError::KeptNumbers { what: "windows", has: 1, asked: 65_535, .. }), "{error}");
}
