//! Reliable connections over an unreliable network: every work request completes exactly once, in
//! order, with the right bytes; or in error once the network is gone for longer than the retries.

use fastrand::Rng;
use verbline_roce::Status;
use verbline_roce::transport::{Discard, Incidents, Mtu, Retries};

use crate::sim::network::Faults;
use crate::sim::world::World;
use crate::sim::{for_seeds, number};

const MTUS: [Mtu; 5] = [Mtu::B256, Mtu::B512, Mtu::B1024, Mtu::B2048, Mtu::B4096];

fn some_retries(rng: &mut Rng) -> Retries {
    Retries {
        timeout: rng.u8(6..9),
        retry_count: 7,
        rnr_retry: 7,
        reads: rng.u8(1..=16),
        window_packets: [2, 3, 8, 32, 128][rng.usize(..5)],
    }
}

/// Two to four hosts, one to four connections; the faults are drawn too.
fn world(seed: u64) -> World {
    let mut rng = Rng::with_seed(seed ^ 0x5EED);
    // In a thousand. With all of them together, seven retries in a row fail with a chance of a
    // billionth.
    let mut chance = |most: u32| if rng.bool() { 0 } else { rng.u32(..=most) };
    let faults = Faults { lost: chance(40), doubled: chance(100), changed: chance(20), late: chance(150) };
    let mut world = World::new(seed, rng.usize(2..5), faults);
    for _ in 0..rng.usize(1..4) {
        let hosts = [rng.usize(..world.hosts.len()), rng.usize(..world.hosts.len())];
        world.connect(hosts, MTUS[rng.usize(..5)], some_retries(&mut rng), rng.usize(..25));
    }
    world
}

/// Whether nothing is to be sent, waited for, or completed.
fn is_at_rest(world: &mut World) {
    world.transmit();
    assert_eq!(world.network.next_ns(), None);
    for host in &world.hosts {
        assert_eq!(host.engine.deadline_ns(), None);
    }
}

/// Incidents over all seeds, so that no test passes without faults.
#[derive(Default)]
struct Seen(Incidents, u64);

impl Seen {
    fn add(&mut self, world: &World) {
        let Seen(seen, acks_sent) = self;
        for end in &world.ends {
            let counters = *world.hosts[end.host].engine.queue_pair(end.side.qpn).expect("there").counters();
            *acks_sent += counters.acks_sent;
            let counters = counters.incidents();
            seen.retransmitted += counters.retransmitted;
            seen.duplicates += counters.duplicates;
            seen.out_of_order += counters.out_of_order;
            seen.sequence_naks_sent += counters.sequence_naks_sent;
            seen.sequence_naks_received += counters.sequence_naks_received;
            seen.rnr_naks_sent += counters.rnr_naks_sent;
            seen.rnr_naks_received += counters.rnr_naks_received;
            seen.timeouts += counters.timeouts;
            assert_eq!((counters.fatal_naks_sent, counters.fatal_naks_received), (0, 0));
        }
        assert_engines_add_up(world);
    }

    fn check(&self) {
        let Seen(seen, acks_sent) = self;
        println!("{seen:?}");
        let some = [
            seen.retransmitted,
            seen.duplicates,
            seen.out_of_order,
            *acks_sent,
            seen.sequence_naks_sent,
            seen.sequence_naks_received,
            seen.rnr_naks_sent,
            seen.rnr_naks_received,
            seen.timeouts,
        ];
        assert!(some.iter().all(|count| *count > 0) || number("ROCE_SEEDS", SEEDS) < SEEDS, "{seen:?}");
    }
}

const SEEDS: u64 = 400;

/// An engine's incidents are those of its queue pairs, and of datagrams without one.
fn assert_engines_add_up(world: &World) {
    for (at, host) in world.hosts.iter().enumerate() {
        let mut sum = vec![0; Incidents::VALUES];
        for end in world.ends.iter().filter(|end| end.host == at) {
            let of_one = host.engine.queue_pair(end.side.qpn).expect("there").counters().incidents();
            sum.iter_mut().zip(of_one.values()).for_each(|(sum, more)| *sum += more);
        }
        let (all, sum) = (host.engine.incidents(), Incidents::of_values(sum));
        for why in Discard::ALL {
            let of_none = matches!(why, Discard::Malformed | Discard::NoQueuePair);
            assert!(of_none || all.discarded(why) == sum.discarded(why), "{why:?}: {all:?}, {sum:?}");
        }
        let named = Incidents::VALUES - Discard::ALL.len();
        assert!(all.values().take(named).eq(sum.values().take(named)), "{all:?}, {sum:?}");
    }
}

#[test]
fn every_work_request_completes_once_in_order_with_the_right_bytes() {
    let seen = std::cell::RefCell::new(Seen::default());
    for_seeds(SEEDS, |seed| {
        let mut world = world(seed);
        if seed % 4 == 0 {
            // Gone for at most two of the shortest time-outs, so that enough retries are left for
            // the other faults.
            world.network.cut_ns = 50_000..50_000 + world.rng.u64(..500_000);
        }
        world.run();
        for at in 0..world.ends.len() {
            let other = world.ends[at].other;
            let (host, peer) = (world.ends[at].host, world.ends[other].host);
            let (memory, peer_memory) = (&world.hosts[host].memory, &world.hosts[peer].memory);
            let end = &mut world.ends[at];
            assert_eq!((end.to_post, end.arriving.len(), &end.side.statuses), (0, 0, &vec![]), "{:?}", end.side.posted);
            end.side.finish(memory, peer_memory);
        }
        is_at_rest(&mut world);
        seen.borrow_mut().add(&world);
    });
    seen.borrow().check();
}

#[test]
fn a_network_that_is_gone_for_longer_than_the_retries_fails_what_is_under_way() {
    for_seeds(200, |seed| {
        let mut world = world(seed);
        let from_ns = world.rng.u64(..400_000);
        world.network.cut_ns = from_ns..u64::MAX;
        // No awaited answer ever comes; work requests posted later are flushed.
        let mut steps = 0;
        world.programs();
        while world.step() {
            steps += 1;
            let is_over = world.ends.iter().all(|end| end.to_post == 0 && end.side.posted.iter().all(|p| !p.signaled));
            if is_over && world.now_ns > from_ns + 100_000_000 {
                break;
            }
            assert!(steps < 200_000, "does not end");
        }
        for end in &mut world.ends {
            if let Some((first, others)) = end.side.statuses.split_first() {
                assert_eq!(*first, Status::RetryExceeded);
                assert!(others.iter().all(|status| *status == Status::Flushed), "{others:?}");
            }
        }
        // A side without requests under way does not notice; its program ends it.
        for at in 0..world.ends.len() {
            let end = &mut world.ends[at];
            end.posts_receives = false;
            let qpn = end.side.qpn;
            world.hosts[world.ends[at].host].engine.with(qpn, |queue_pair| queue_pair.fail()).expect("there");
        }
        world.poll();
        for end in &world.ends {
            assert_eq!(end.side.receives_posted(), 0, "all receives come back");
            assert!(end.side.posted.iter().all(|posted| !posted.signaled));
        }
        is_at_rest(&mut world);
    });
}
