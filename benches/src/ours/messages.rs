//! Messages over an RC connection between two cores: round trips, and full rate.

use std::time::{Duration, Instant};

use clap::ValueEnum;
use verbline::mem::{Batch, BoundCache, Packet, PoolCache};
use verbline::verbs::QueuePair;
use verbline::verbs::rdma::{KeepSpec, KeptRegion, Operation, Part, Remote, Span, Work, WorkList};

use super::endpoint::Endpoint;
use super::rc::{Side, Spec, pair};
use super::repeated;
use crate::Figures;
use crate::pair::race;

/// Messages posted as one list.
pub(super) const BURST: usize = 32;

/// The greatest number of bytes in one list. A sender with short lists has its packets in its
/// core's own cache, since the packets given back are the next that it takes. 64 KiB in lists of 32
/// are 2 MiB, more than the L2 cache of most CPUs.
const LIST_BYTES: usize = 256 << 10;

/// The number of messages of this length in one list.
fn burst(bytes: u32) -> usize {
    (LIST_BYTES / bytes as usize).clamp(1, BURST)
}

/// Receives of a ping-pong, and how many are posted again at once.
pub(super) const DEPTH: usize = 64;
const REPOST: usize = 16;

/// SENDs of `bytes` there and back, one at a time: `ns` one way.
pub fn one_way(bytes: u32) -> Figures {
    const TRIPS: u64 = 50_000;
    let ns = repeated(|| {
        let [near, far] = pair(&Spec { depth_wr: DEPTH as u32, ..Spec::new(bytes) });
        let near = || ping(&mut Endpoint::with_receives(near, DEPTH), bytes as usize, TRIPS);
        let [near_took, _] = race(near, || pong(far, TRIPS));
        near_took.as_nanos() as f64 / (2 * TRIPS) as f64
    });
    Figures::of("ns", ns)
}

/// Starts each exchange, and checks the reply.
pub(super) fn ping(side: &mut Endpoint, bytes: usize, trips: u64) {
    for number in 0..trips {
        side.send(bytes, |packet| packet.data_mut()[..8].copy_from_slice(&number.to_le_bytes()));
        let check = |_: &mut QueuePair, cache: &BoundCache, packet: Packet| {
            assert_eq!((packet.len(), &packet.data()[..8]), (bytes, &number.to_le_bytes()[..]));
            cache.put(packet);
        };
        while side.poll(REPOST, check) == 0 {}
    }
}

/// Sends every message back unchanged.
pub(super) fn pong(side: Side, trips: u64) {
    let mut side = Endpoint::with_receives(side, DEPTH);
    let mut answered = 0;
    while answered < trips {
        let messages = side.poll(REPOST, |qp, _, packet| assert!(qp.post_send_one(packet).is_ok(), "there is room"));
        answered += messages as u64;
    }
}

/// SENDs of `bytes` in one direction, posted in lists of 32 or of 256 KiB, whichever is less:
/// `messages_per_s`, `bytes_per_s`.
pub fn send_rate(bytes: u32) -> Figures {
    let messages: u64 = if bytes <= 128 { 1 << 19 } else { (1 << 30) / u64::from(bytes) };
    let messages = messages.min(1 << 19) / BURST as u64 * BURST as u64;
    let seconds = repeated(|| {
        // The depth of UCX's FIFO.
        let depth_wr = if bytes < 4096 { 512 } else { 64 };
        let [near, far] = pair(&Spec { depth_wr, signal_every_wr: burst(bytes) as u32, ..Spec::new(bytes) });
        let [near, far] = race(|| send_all(near, bytes, messages), || receive_all(far, bytes, messages));
        near.max(far).as_secs_f64()
    });
    rates(messages as f64 / seconds, bytes)
}

fn send_all(mut side: Side, bytes: u32, messages: u64) {
    let cache = side.cache.take().expect("bound once").bind();
    let burst = burst(bytes);
    let mut batch = Batch::with_capacity(burst);
    let (mut made, mut done) = (0, 0);
    while done < messages {
        if batch.is_empty() && made < messages {
            cache.get_bulk(&mut batch, burst);
            for packet in &mut batch {
                // The receiver checks the length.
                let _fits = packet.set_len(bytes as usize);
                packet.data_mut()[..8].copy_from_slice(&made.to_le_bytes());
                made += 1;
            }
        }
        let _ = side.qps[0].post_send(&mut batch);
        done += side.poll(&cache, |_, _| {}).sent as u64;
    }
}

fn receive_all(mut side: Side, bytes: u32, messages: u64) {
    let cache = side.cache.take().expect("bound once").bind();
    side.fill(&cache);
    let mut next = 0u64;
    while next < messages {
        side.poll(&cache, |_, messages| {
            for packet in messages {
                assert_eq!((packet.len(), &packet.data()[..8]), (bytes as usize, &next.to_le_bytes()[..]));
                next += 1;
            }
        });
    }
}

/// SENDs of `bytes` in lists of 256 KiB into twice as many receives, posted, received and posted
/// again by one thread: their cost while the buffers of both ends stay in a core's L2 cache, beside
/// [`one_sided_rate`], which uses one thread, too. `messages_per_s`, `bytes_per_s`.
pub fn send_rate_on_one_core(bytes: u32) -> Figures {
    let burst = burst(bytes);
    let depth_wr = 2 * burst as u32;
    let signal_every_wr = burst as u32;
    let spec = Spec { depth_wr, signal_every_wr, repost: burst, ..Spec::new(bytes) };
    let lists = (1usize << 30) / bytes as usize / burst;
    let [mut near, mut far] = pair(&spec);
    let _pinned = crate::pair::pin(crate::pair::cpus()[0]);
    let [near_cache, far_cache] = [&mut near, &mut far].map(|side| side.cache.take().expect("bound once").bind());
    far.fill(&far_cache);
    let mut batch = Batch::with_capacity(burst);
    let seconds = repeated(|| {
        let began = Instant::now();
        for _ in 0..lists {
            near_cache.get_bulk_of_len(&mut batch, burst, bytes as usize);
            assert_eq!(near.qps[0].post_send(&mut batch).posted, burst);
            let mut came = 0;
            while came < burst {
                came += far.poll(&far_cache, |_, _| {}).messages;
            }
            near.poll(&near_cache, |_, _| {});
        }
        began.elapsed().as_secs_f64()
    });
    rates((lists * burst) as f64 / seconds, bytes)
}

/// A one-sided verb.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OneSided {
    /// RDMA WRITE.
    Write,
    /// RDMA READ.
    Read,
}

/// RDMA WRITEs or READs of `bytes`, in lists of 32, between one region on each side; the other core
/// does nothing for it. In one thread, as its peer's test counts only the initiator:
/// `messages_per_s`, `bytes_per_s`.
pub fn one_sided_rate(verb: OneSided, bytes: u32) -> Figures {
    let count = ((1u64 << 30) / u64::from(bytes)).min(1 << 18) / BURST as u64 * BURST as u64;
    let [mut near, far] = pair(&Spec { depth_wr: 64, ..Spec::new(64) });
    let (local, remote) = (near.peer_region(bytes as usize), far.peer_region(bytes as usize));
    remote.write_from(0, &[0x5a; 8]).expect("within the region");
    local.write_from(0, &[0xa5; 8]).expect("within the region");
    let cache = near.cache.take().expect("bound once").bind();
    let _pinned = crate::pair::pin(crate::pair::cpus()[0]);
    let regions = vec![Some(local.clone())];
    near.qps[0].keep_memory(&KeepSpec { regions, ..KeepSpec::default() }).expect("a region of its own");
    let seconds = repeated(|| one_sided(&mut near, &cache, verb, count, bytes, remote.remote(0)).as_secs_f64());
    let (mut at_near, mut at_far) = ([0; 8], [0; 8]);
    local.read_into(0, &mut at_near).expect("within the region");
    remote.read_into(0, &mut at_far).expect("within the region");
    assert_eq!(at_near, at_far, "what was transferred is there");
    rates(count as f64 / seconds, bytes)
}

pub(super) fn one_sided(
    side: &mut Side,
    cache: &PoolCache,
    verb: OneSided,
    count: u64,
    bytes: u32,
    to: Remote,
) -> Duration {
    let local = Part { region: KeptRegion(0), span: Span::from(0..bytes) };
    let operation = || match verb {
        OneSided::Write => Operation::write(local.into(), to),
        OneSided::Read => Operation::read(local.into(), to),
    };
    let mut works = WorkList::with_capacity(BURST);
    let began = Instant::now();
    let (mut posted, mut done) = (0, 0);
    while done < count {
        let qp = &mut side.qps[0];
        let room = (qp.send_room() as u64).min(count - posted).min(BURST as u64);
        for _ in 0..room {
            works.push(Work::plain(operation())).expect("a list of 32");
        }
        let outcome = qp.rc().expect("an RC queue pair").post_works(&mut works);
        assert_eq!(outcome.posted as u64, room, "there is room");
        posted += room;
        done += side.poll(cache, |_, _| {}).sent as u64;
    }
    began.elapsed()
}

pub(super) fn rates(messages_per_s: f64, bytes: u32) -> Figures {
    Figures::of("messages_per_s", messages_per_s).and("bytes_per_s", messages_per_s * f64::from(bytes))
}

/// Receives in the shared queue, for any number of queue pairs.
pub(super) const SHARED_DEPTH_WR: u32 = 512;

/// `queue_pairs` connections used in turn on one core, a list of 32 messages of 64 bytes each: `ns`
/// per message, sent, received, and both queues filled again. Each queue pair has 64 receives of
/// its own.
pub fn over_queue_pairs(queue_pairs: u16) -> Figures {
    let [near, mut far] = pair(&Spec { queue_pairs, depth_wr: 64, ..Spec::new(64) });
    let cache = far.cache.take().expect("bound once").bind();
    far.fill(&cache);
    in_turn(near, || far.poll(&cache, |_, _| {}).messages)
}

/// Like [`over_queue_pairs`], with 512 receives that all queue pairs of the receiver share: an SRQ.
pub fn over_shared_receives(queue_pairs: u16) -> Figures {
    let spec = Spec { queue_pairs, depth_wr: 64, shared_depth_wr: SHARED_DEPTH_WR, ..Spec::new(64) };
    let [near, mut far] = pair(&spec);
    let cache = far.cache.take().expect("bound once").bind();
    far.fill_shared(&cache, SHARED_DEPTH_WR as usize);
    in_turn(near, || far.poll_shared(&cache))
}

/// Sends by each queue pair in turn; `receive` polls the other side and returns the number of
/// messages received.
fn in_turn(mut near: Side, mut receive: impl FnMut() -> usize) -> Figures {
    const LISTS: usize = 8_192;
    let _pinned = crate::pair::pin(crate::pair::cpus()[0]);
    let cache = near.cache.take().expect("bound once").bind();
    let queue_pairs = near.qps.len();
    let mut batch = Batch::with_capacity(BURST);
    let ns = repeated(|| {
        let began = Instant::now();
        for list in 0..LISTS {
            cache.get_bulk_of_len(&mut batch, BURST, 64);
            assert_eq!(near.qps[list % queue_pairs].post_send(&mut batch).posted, BURST);
            let mut came = 0;
            while came < BURST {
                came += receive();
            }
            near.poll(&cache, |_, _| {});
        }
        began.elapsed().as_nanos() as f64 / (LISTS * BURST) as f64
    });
    Figures::of("ns", ns)
}
