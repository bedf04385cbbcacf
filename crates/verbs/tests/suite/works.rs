//! Sends and operations as one list, whose memory is parts of regions that the QP keeps.

use crate::common::{Options, pair};
use verbline_verbs::rdma::{KeptRegion, Local, Operation, Part, Remote, Work, WorkList};
use verbline_verbs::{Access, PostStop, SendOptions, Transport};

const REGION_BYTES: u32 = 4096;

fn part(region: KeptRegion, offset: u32, len: u32) -> Local {
    Local::Part(Part { region, offset, len })
}

/// What a device would do with a byte behind the region is no affair of its.
#[test]
fn a_part_ends_where_its_region_ends_whatever_is_done_with_it() {
    let (mut a, b) = pair(&Options::new(Transport::Rc));
    let access = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
    let (near, far) = (a.peer_region(REGION_BYTES as usize, access), b.peer_region(REGION_BYTES as usize, access));
    let region = a.qp.keep_region(&near).unwrap();
    let there: Remote = far.remote(0);
    let operations = [
        Operation::Send,
        Operation::Write { to: there },
        Operation::Read { from: there },
        Operation::FetchAdd { at: there, add: 1 },
        Operation::CompareSwap { at: there, compare: 1, swap: 2 },
    ];
    // Eight bytes each: of which one, all, and infinitely many are behind the end.
    for operation in operations {
        for offset in [REGION_BYTES - 7, REGION_BYTES, u32::MAX - 3] {
            let mut works = WorkList::with_capacity(1);
            let options = SendOptions::default();
            works.push(Work::Operation { operation, local: part(region, offset, 8), options }).unwrap();
            let outcome = a.qp.post_works(&mut works);
            assert!(
                outcome.posted == 0 && matches!(outcome.stop, Some(PostStop::NotKept(_))),
                "{operation:?} at {offset}: {outcome:?}"
            );
            assert_eq!(works.len(), 1, "it is at the front");
        }
    }
    // The last eight that there are.
    let mut works = WorkList::with_capacity(4);
    for operation in &operations[1..] {
        let (local, options) = (part(region, REGION_BYTES - 8, 8), SendOptions::default());
        works.push(Work::Operation { operation: *operation, local, options }).unwrap();
    }
    let outcome = a.qp.post_works(&mut works);
    assert_eq!((outcome.posted, outcome.stop), (4, None));
}
