//! Every kind of list, and after every prefix a device that takes no more: for now, or for good.

use verbline_plan::OperationKind;

use super::{FULL, Shape, Step, WRONG, World};

/// An item of a list: a packet to be sent, or an operation. Even lengths are parts of a region, odd
/// ones packets.
#[derive(Clone, Copy, Debug)]
enum Listed {
    Send,
    Operation(OperationKind, usize),
}

const ENTRIES: [Listed; 10] = [
    Listed::Send,
    Listed::Operation(OperationKind::Write, 64),
    Listed::Operation(OperationKind::Write, 65),
    Listed::Operation(OperationKind::Read, 65),
    Listed::Operation(OperationKind::Send, 64),
    Listed::Operation(OperationKind::FetchAdd, 65),
    Listed::Operation(OperationKind::Invalidate, 1),
    Listed::Operation(OperationKind::Bind, 1),
    Listed::Operation(OperationKind::Sign, 1),
    Listed::Operation(OperationKind::Respond, 65),
];
const LONGEST: usize = 3;

fn step(entry: Listed) -> Step {
    match entry {
        Listed::Send => Step::Send(1, 20),
        Listed::Operation(kind, len) => Step::Give(0, 1, kind, len),
    }
}

/// Work requests that the device took end, the rest is posted later, and all come back once.
#[test]
fn a_list_goes_on_behind_whatever_the_device_took_of_it() {
    let shape = Shape { tx_wr: 4, ops_wr: 6, signal_every_wr: 2, room: 8, burst: 8 };
    let mut lists = 0;
    for len in 1..=LONGEST {
        for number in 0..ENTRIES.len().pow(len as u32) {
            let entry = |at: usize| ENTRIES[number / ENTRIES.len().pow(at as u32) % ENTRIES.len()];
            for takes in 0..=len {
                for errno in [FULL, WRONG] {
                    let mut world = World::new(shape);
                    (0..len).for_each(|at| world.step(step(entry(at))));
                    let then = [Step::TakeOnly(takes, errno), Step::Turn, Step::TakeAll, Step::Turn];
                    let end = [Step::Done(len), Step::Turn, Step::Turn, Step::Done(len), Step::Turn, Step::Take(0)];
                    then.into_iter().chain(end).for_each(|step| world.step(step));
                    world.finish();
                    lists += 1;
                }
            }
        }
    }
    assert_eq!(lists, 2 * (10 * 2 + 100 * 3 + 1000 * 4));
}
