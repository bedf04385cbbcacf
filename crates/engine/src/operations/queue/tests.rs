//! Accepted and declined operations, for one connection and for many.

use verbline_mem::ConnectionId;
use verbline_plan::Rights;
use verbline_verbs::rdma::{KeptRegion, KeyPart, Local, Part, Remote};

use super::*;
use crate::errors::guarded;
use crate::operations::declined::DeclineReason;
use crate::operations::operation::Operation;
use crate::rig::Rig;
use crate::stats::counter::shared;

const PEER: Remote = Remote { addr: 4096, rkey: 7 };

fn queue(depth: usize, many: Option<[usize; 2]>) -> (OperationQueue, Shared<StageStats>) {
    queue_of(Transport::Rc, depth, many, 0)
}

/// With this number of signature keys.
fn queue_of(
    transport: Transport,
    depth: usize,
    many: Option<[usize; 2]>,
    keys: u16,
) -> (OperationQueue, Shared<StageStats>) {
    let stage = shared::<StageStats>();
    let mut queue = OperationQueue::new(OperationsSpec {
        port: shared::<PortStats>(),
        stats: shared::<OperationStats>(),
        transport,
        sends: 4,
        depth,
        many,
        regions: Box::new([false]),
        windows: 0,
        keys,
    });
    queue.add_user(Shared::clone(&stage));
    (queue, stage)
}

impl OperationQueue {
    /// The number of operations that a connection takes now; 0 if it is not open.
    pub(crate) fn room_over(&self, connection: ConnectionId) -> usize {
        let lane = self.lane(Some(connection));
        lane.map_or(0, |lane| self.room().min(self.lane_depth - self.lanes[lane].accepted))
    }
}

fn connection(slot: u16, generation: u32) -> ConnectionId {
    ConnectionId::new(3, slot, generation).unwrap()
}

/// An operation without memory.
fn over(connection: ConnectionId) -> Operation {
    Operation::invalidate(9).over(connection)
}

#[test]
fn each_connection_takes_as_many_as_it_carries_out_at_once_and_all_as_many_as_the_port() {
    let (mut queue, stage) = queue(5, Some([2, 3]));
    let (first, second) = (connection(0, 1), connection(1, 1));
    queue.open(first);
    queue.open(second);
    assert_eq!((queue.depth(), queue.room()), (5, 5));
    assert_eq!((queue.room_over(first), queue.room_over(second)), (3, 3));
    let four = queue.accept(&stage, 0, [(); 4].map(|()| over(first))).unwrap_err();
    assert_eq!((four.reason, queue.room_over(first)), (DeclineReason::Full, 3), "all together or none");
    queue.accept(&stage, 0, [first, first, second].map(over)).unwrap();
    assert_eq!((queue.room_over(first), queue.room_over(second)), (1, 2));
    let two = queue.accept(&stage, 0, [over(first), over(first)]).unwrap_err();
    assert_eq!(two.reason, DeclineReason::Full);
    // The last one that `first` takes; then the port has one place left, and the other connection
    // two.
    queue.accept(&stage, 0, [over(first)]).unwrap();
    assert_eq!((queue.room_over(first), queue.room_over(second), queue.room()), (0, 1, 1));
    let one = queue.accept(&stage, 0, [over(first)]).unwrap_err();
    assert_eq!(one.reason, DeclineReason::Full);
    let accepted = queue.accept_each(&stage, 0, 4, |_| over(second));
    assert_eq!((accepted.count, queue.room()), (1, 0));
}

#[test]
fn what_was_taken_before_a_panic_of_the_stage_is_counted_like_any_other() {
    let (mut queue, stage) = queue(5, Some([2, 3]));
    let first = connection(0, 1);
    queue.open(first);
    for taken in 0..3 {
        let before = (queue.room(), queue.under_way(0), queue.room_over(first));
        let panicked = guarded::call(|| {
            queue.accept_each(&stage, 0, 3, |number| match number == taken {
                true => panic!("on purpose"),
                false => over(first),
            })
        });
        assert!(panicked.is_err());
        let now = (queue.room(), queue.under_way(0), queue.room_over(first));
        assert_eq!(now, (before.0 - taken, before.1 + taken, before.2 - taken), "{taken} were taken");
        assert_eq!(queue.is_fresh, taken > 0);
    }
}

#[test]
fn a_connection_takes_operations_from_its_opening_to_its_end() {
    let (mut queue, stage) = queue(4, Some([2, 4]));
    let (first, later) = (connection(0, 1), connection(0, 2));
    let takes = |queue: &mut OperationQueue, id| {
        let declined = queue.accept(&stage, 0, [over(id)]).err().map(|declined| declined.reason);
        (queue.room_over(id), declined)
    };
    let over = Some(DeclineReason::NoConnection);
    assert_eq!(takes(&mut queue, first), (0, over));
    queue.open(first);
    assert_eq!((takes(&mut queue, first), takes(&mut queue, later)), ((3, None), (0, over)));
    // The end of another connection that had this slot.
    queue.close(later);
    assert_eq!(takes(&mut queue, first), (2, None));
    queue.close(first);
    assert_eq!((takes(&mut queue, first), takes(&mut queue, connection(5, 1))), ((0, over), (0, over)));
    queue.open(later);
    assert_eq!((takes(&mut queue, first), takes(&mut queue, later)), ((0, over), (1, None)));
}

#[test]
fn what_names_memory_that_the_port_has_not_is_declined() {
    let (mut queue, stage) = queue(4, None);
    let part = |region| Part { region: KeptRegion(region), span: (0..8).into() };
    let why =
        |queue: &mut OperationQueue, operation| queue.accept(&stage, 0, [operation]).err().map(|back| back.reason);
    let foreign = Some(DeclineReason::ForeignRegion);
    assert_eq!(why(&mut queue, Operation::write(part(0), PEER)), foreign, "a region of another port");
    assert_eq!(why(&mut queue, Operation::write(part(1), PEER)), foreign, "no region of the plan");
    let bind = Operation::bind(KeptWindow(0), part(0), Rights::REMOTE_READ);
    assert_eq!(why(&mut queue, bind), Some(DeclineReason::NoWindow));
    let rig = Rig::new(1);
    let cache = rig.pool.cache(0);
    let packet = || cache.get().unwrap();
    let (key, no_key) = (KeptKey(0), Some(DeclineReason::NoKey));
    assert_eq!(why(&mut queue, Operation::respond(key, packet(), None)), no_key);
    let blocks = KeyPart { key, offset: 0, len: 512 };
    assert_eq!(why(&mut queue, Operation::write(blocks, PEER)), no_key, "none that stands for blocks");
    assert_eq!(why(&mut queue, Operation::write(packet(), PEER)), None, "a packet is known wherever it is");
    assert_eq!((queue.stats.declined.value(), queue.room()), (5, 3));
}

/// Every operation, fenced or not: on UC it is declined if the list of a UC queue pair can't hold
/// it, and listed if it can.
#[test]
fn what_uc_does_not_carry_is_declined_and_comes_back() {
    let rig = Rig::new(64);
    let cache = rig.pool.cache(0);
    let packet = || {
        let mut packet = cache.get().unwrap();
        assert!(packet.set_len(8));
        packet
    };
    let key = KeptKey(0);
    let operations = || {
        [
            (Operation::send(packet()), true),
            (Operation::send(packet()).imm(7), true),
            (Operation::send_with_invalidate(packet(), 9), true),
            (Operation::write(packet(), PEER), true),
            (Operation::write(packet(), PEER).imm(7), true),
            (Operation::invalidate(9), true),
            (Operation::write(KeyPart { key, offset: 0, len: 512 }, PEER), false),
            (Operation::read(packet(), PEER), false),
            (Operation::fetch_add(packet(), PEER, 1), false),
            (Operation::compare_swap(packet(), PEER, 1, 2), false),
            (Operation::respond(key, packet(), None), false),
        ]
    };
    for transport in [Transport::Rc, Transport::Uc] {
        let (mut queue, stage) = queue_of(transport, 32, None, 1);
        let mut listed = 0;
        for fenced in [false, true] {
            for (operation, is_on_uc) in operations() {
                let what = format!("{operation:?} on {transport}, fenced {fenced}");
                let operation = if fenced { operation.fenced() } else { operation };
                let is_carried = transport == Transport::Rc || (is_on_uc && !fenced);
                let declined = queue.accept(&stage, 0, [operation]).err().map(|back| back.reason);
                assert_eq!(declined, (!is_carried).then_some(DeclineReason::NotCarried), "{what}");
                listed += usize::from(is_carried);
                assert_eq!(queue.works.len(), listed, "{what}: what is accepted is in the list");
            }
        }
        assert_eq!(queue.stats.declined.value(), 22 - listed as u64);
    }
    assert_eq!(rig.pool.account().held, 0, "what was declined, and what was not posted, is free again");
}

/// Otherwise the stage would be polled at once, for nothing.
#[test]
fn what_takes_nothing_is_no_news_to_the_port() {
    let (mut queue, stage) = queue(4, None);
    let connection = connection(0, 1);
    assert_eq!(queue.accept_each(&stage, 0, 0, |_| over(connection)).count, 0);
    assert!(!queue.is_fresh);
    assert_eq!(queue.accept_each(&stage, 0, 2, |_| Operation::invalidate(9)).count, 2);
    assert!(queue.is_fresh);
}

#[test]
fn what_is_to_wake_the_peer_or_to_come_back_at_once_is_posted_so() {
    let (mut queue, stage) = queue(4, None);
    let plain = || Operation::write(Local::Empty, PEER);
    queue.accept(&stage, 0, [plain(), plain().signaled(), plain().solicited(), plain().fenced()]).unwrap();
    let options = std::iter::from_fn(|| queue.works.pop()).map(|work| match work {
        Work::Operation { options, .. } => (options.signaled, options.solicited, options.fence),
        Work::Send(_) | Work::SendWith { .. } => panic!("nothing was sent"),
    });
    let options: Vec<_> = options.collect();
    let (no, yes) = (false, true);
    assert_eq!(options, [(no, no, no), (yes, no, no), (no, yes, no), (no, no, yes)]);
}
