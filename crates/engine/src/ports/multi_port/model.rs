//! A port with many connections against a cm thread and a device that follow a script: connections
//! come and go at any moment, and the device takes a part of a list, completes late, refuses,
//! fails, starves.
//!
//! After every turn, each counter of the port equals the oracle's. The oracle knows the cm thread's
//! messages, the stages' packets, the device's script and the polled completions, but nothing of
//! the port. Compared as well: the events and packets that stages got, the work requests posted
//! over each connection and which of them were signaled, the answers to the cm thread, and when the
//! port wants its next turn.

mod cm_thread;
mod oracle;
mod world;

use proptest::prelude::*;
use verbline_verbs::Status;

use self::oracle::Shape;
use self::world::World;
use super::changes::CLOSED_HERE;
use crate::ports::posting::STARVED_RETRY_NS;
use crate::rig::figures::{FULL, WRONG};
use crate::rig::log::errors_of;
use crate::rig::{DATA_BYTES, Depths};

/// The sinks of the model's lcore: the input of the stage that the port feeds, and the port's own.
const STAGE: usize = 0;
const PORT: usize = 1;
/// The port's place in the plan, which every received packet carries.
const PLACE: u16 = 7;

/// One step of the model.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// The lcore takes a turn.
    Turn,
    /// The lcore takes a turn; the cm thread has sent messages since it last looked for notices.
    DeafTurn,
    /// The cm thread makes a queue pair; connects one; gives one up; hears that one is over; no
    /// longer waits for one. The number picks one of those in the right state.
    Expect,
    Open(usize),
    Forget(usize),
    Close(usize),
    Force(usize),
    /// The cm thread destroys the queue pairs it got back, and reuses their places.
    Destroy,
    /// A stage hands on packets of this length.
    Offer(To, usize, usize),
    /// A stage closes a connection.
    Shut(usize),
    /// Messages arrive.
    Arrive(usize, usize, u32),
    /// The device completes the oldest sends, or flushes them.
    Done(usize, usize),
    FailSend(usize, Status),
    FailRecv(usize, Status),
    /// The device reports that a queue pair has failed.
    Event(usize),
    /// The device reports a completion twice.
    Repeat,
    /// Whether the stage keeps its packets, or drops all that it has.
    Keep(bool),
    Pass(u64),
    /// The device takes this many more work requests, and refuses others with this errno.
    TakeOnly(usize, i32),
    TakeAll,
    Drain,
}

/// The destination of a packet.
#[derive(Clone, Copy, Debug)]
enum To {
    /// A connection that exists or existed.
    One(usize),
    /// A connection of another port.
    Foreign(usize),
    Nobody,
}

fn shape() -> impl Strategy<Value = Shape> {
    let depths = (1u32..8, 1u32..20).prop_flat_map(|(tx_wr, rx_wr)| {
        (1..=tx_wr).prop_map(move |signal_every_wr| Depths { tx_wr, rx_wr, signal_every_wr })
    });
    let all = (1usize..6, any::<bool>(), 1usize..24);
    let sizes = (1usize..9, 1u32..64, 0usize..16);
    let behind = (prop::bool::weighted(0.8), 1usize..12, 1usize..9);
    (all, depths, sizes, behind, any::<[bool; 4]>()).prop_map(|(all, depths, sizes, behind, flags)| {
        let ((connections, shares, most_wr), (burst, packets, cache)) = (all, sizes);
        let ((feeds, input, pending), [any, timestamps, immediates, sends]) = (behind, flags);
        let room = [input, pending];
        Shape {
            connections,
            shares,
            sends,
            depths,
            most_wr,
            burst,
            packets,
            cache,
            feeds,
            room,
            any,
            timestamps,
            immediates,
        }
    })
}

fn step() -> impl Strategy<Value = Step> {
    let errors = [Status::LOC_LEN_ERR, Status::WR_FLUSH_ERR, Status::REM_ACCESS_ERR, Status::RETRY_EXC_ERR];
    let status = || prop::sample::select(errors.to_vec());
    let errnos = prop::sample::select(vec![FULL, WRONG]);
    let which = || 0usize..12;
    let to = prop_oneof![
        8 => which().prop_map(To::One),
        1 => which().prop_map(To::Foreign),
        4 => Just(To::Nobody),
    ];
    let device = prop_oneof![
        8 => (which(), 1usize..6, 0..=DATA_BYTES).prop_map(|(which, count, len)| Step::Arrive(which, count, len)),
        12 => (which(), 1usize..6).prop_map(|(which, count)| Step::Done(which, count)),
        1 => (which(), status()).prop_map(|(which, status)| Step::FailSend(which, status)),
        1 => (which(), status()).prop_map(|(which, status)| Step::FailRecv(which, status)),
        1 => which().prop_map(Step::Event),
        1 => Just(Step::Repeat),
        2 => (0usize..6, errnos).prop_map(|(count, errno)| Step::TakeOnly(count, errno)),
        3 => Just(Step::TakeAll),
    ];
    let cm_thread = prop_oneof![
        5 => Just(Step::Expect),
        5 => which().prop_map(Step::Open),
        1 => which().prop_map(Step::Forget),
        1 => which().prop_map(Step::Close),
        1 => which().prop_map(Step::Force),
        2 => Just(Step::Destroy),
    ];
    let stages = prop_oneof![
        16 => (to, 1usize..6, 1usize..=DATA_BYTES as usize).prop_map(|(to, count, len)| Step::Offer(to, count, len)),
        1 => which().prop_map(Step::Shut),
        4 => any::<bool>().prop_map(Step::Keep),
    ];
    let pass = prop::sample::select(vec![1, 1_000, STARVED_RETRY_NS - 1, STARVED_RETRY_NS]);
    prop_oneof![
        20 => Just(Step::Turn),
        5 => Just(Step::DeafTurn),
        24 => device,
        12 => cm_thread,
        12 => stages,
        6 => pass.prop_map(Step::Pass),
        1 => Just(Step::Drain),
    ]
}

/// Runs these steps, and compares after each turn.
fn run(shape: &Shape, steps: &[Step]) {
    let mut world = World::new(shape);
    steps.iter().for_each(|step| world.step(*step));
    world.end();
}

proptest! {
    #[test]
    fn a_port_with_many_connections_does_and_counts_what_it_should_whatever_becomes_of_them(
        shape in shape(),
        steps in prop::collection::vec(step(), 1..160),
    ) {
        run(&shape, &steps);
    }
}

/// A small shape: with a shared receive queue, or with one per connection.
fn small(shares: bool) -> Shape {
    Shape {
        connections: 2,
        shares,
        sends: true,
        depths: Depths { tx_wr: 4, rx_wr: 4, signal_every_wr: 3 },
        most_wr: 8,
        burst: 4,
        packets: 16,
        cache: 0,
        feeds: true,
        room: [8, 4],
        any: false,
        timestamps: false,
        immediates: false,
    }
}

/// Regression: it joined the packets that wait until the stages know of their connection, for ever.
#[test]
fn what_came_of_a_connection_that_is_gone_by_the_time_it_is_sorted_is_dropped() {
    use Step::{Arrive, DeafTurn, Expect, Force, Forget, Turn};
    // The first message of a queue is never found as part of a run.
    let first = [Expect, Turn, Arrive(0, 1, 9), Turn, Expect];
    let found_together = [Arrive(1, 1, 9), Arrive(0, 1, 9), Forget(0), Force(0), DeafTurn];
    let steps = [&first[..], &found_together, &[Turn]];
    run(&small(true), &steps.concat());
}

/// Regression: it was not filled again, and its peer could send nothing for ever.
#[test]
fn a_connection_whose_receives_the_device_refused_is_given_them_later() {
    use Step::{Expect, Open, Pass, TakeAll, TakeOnly, Turn};
    let opened = [Expect, Open(0), TakeOnly(0, FULL), Turn, TakeAll, Turn];
    run(&small(false), &[&opened[..], &[Pass(STARVED_RETRY_NS - 1), Turn, Pass(1), Turn]].concat());
}

/// Regression: the gauges still counted its receives and sends, and the list of connections that
/// wait for receives grew by each one that ended while it waited.
#[test]
fn nothing_of_a_connection_that_is_over_is_outstanding_or_waits() {
    use Step::{Close, Destroy, Done, Expect, FailRecv, Force, Offer, Open, Turn};
    let opened = [Expect, Open(0), Turn];
    run(&small(false), &[&opened[..], &[FailRecv(0, Status::LOC_LEN_ERR), Turn, Destroy, Turn]].concat());
    let forced = [Offer(To::One(0), 3, 9), Turn, Close(0), Turn, Force(0), Turn, Done(0, 4), Turn, Destroy];
    run(&small(true), &[&opened[..], &forced].concat());
}

/// Regression: the cm thread does not wait, and the lcore is behind; unpolled completions counted
/// as stale.
#[test]
fn what_has_come_of_a_connection_is_taken_before_it_is_released_by_force() {
    use Step::{Close, Done, Expect, Force, Offer, Open, Turn};
    let shape = Shape { burst: 2, ..small(true) };
    let opened = [Expect, Open(0), Turn, Offer(To::One(0), 4, 9), Turn];
    let behind = [Close(0), Turn, Done(0, 5), Force(0)];
    let mut world = World::new(&shape);
    [&opened[..], &behind, &[Turn; 4]].concat().into_iter().for_each(|step| world.step(step));
    assert_eq!(world.stale(), 0);
    world.end();
}

#[test]
fn a_connection_that_a_stage_closes_twice_is_closed_once() {
    use Step::{Expect, Open, Shut, Turn};
    run(&small(true), &[Expect, Open(0), Turn, Shut(0), Shut(0), Turn]);
}

/// While no poll finds the completion queue empty, nothing else takes it off the list.
#[test]
fn a_connection_that_drains_before_it_is_released_by_force_leaves_the_list_as_the_next_one_joins_it() {
    use Step::{Arrive, Close, Done, Expect, Force, Open, Turn};
    let shape = Shape { burst: 1, ..small(true) };
    let opened = [Expect, Expect, Open(0), Open(0), Turn, Turn, Close(0), Turn];
    let drains = [Arrive(1, 1, 9), Turn, Force(0), Done(0, 1), Turn];
    run(&shape, &[&opened[..], &drains, &[Close(0), Force(0), Turn, Turn]].concat());
}

/// Regression: the marker behind a queue pair's receives was taken for another's, and each
/// connection waited until it was released by force.
#[test]
fn a_port_that_sends_nothing_releases_a_queue_pair_that_has_drained() {
    use Step::{Close, Done, Expect, Open, Turn};
    let mut world = World::new(&Shape { sends: false, ..small(true) });
    [Expect, Open(0), Turn, Close(0), Turn, Done(0, 1), Turn].into_iter().for_each(|step| world.step(step));
    assert_eq!((world.stale(), world.closed()), (0, 1));
    world.end();
}

#[test]
fn what_cannot_be_sent_is_said_once_and_not_once_a_packet() {
    use Step::{Expect, Offer, Open, TakeOnly, Turn};
    let opened = [Expect, Open(0), Turn];
    let refused = |errno| {
        let offered = [Offer(To::One(0), 3, 1), TakeOnly(0, errno), Turn];
        errors_of(|| run(&small(true), &[&opened[..], &offered].concat()))
    };
    assert_eq!((refused(WRONG), refused(FULL)), (1, 0));
}

/// Regression: they were tried again every millisecond, and no log line said why no peer could
/// send.
#[test]
fn receives_that_the_device_refuses_are_told_of_once() {
    use Step::{Arrive, Expect, Open, Pass, TakeOnly, Turn};
    let refused = |shares, errno| {
        let brought = [Expect, Open(0), Turn, TakeOnly(0, errno), Arrive(0, 4, 9), Turn, Turn];
        let again = [Pass(STARVED_RETRY_NS), Turn].repeat(3);
        errors_of(|| run(&small(shares), &[&brought[..], &again].concat()))
    };
    for shares in [true, false] {
        assert_eq!((refused(shares, WRONG), refused(shares, FULL)), (1, 0), "shares: {shares}");
    }
}

/// Regression: the last was served first, so that under load one could wait for ever.
#[test]
fn queues_of_their_own_that_starve_are_served_first_come_first_served() {
    use Step::{Arrive, Expect, Keep, Open, Pass, Turn};
    let shape = Shape { packets: 4, ..small(false) };
    let opened = [Expect, Expect, Open(0), Open(1), Turn, Keep(false)];
    let starved = [Arrive(0, 2, 9), Turn, Pass(STARVED_RETRY_NS), Turn, Turn];
    run(&shape, &[&opened[..], &starved].concat());
}
