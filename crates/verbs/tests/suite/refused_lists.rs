//! Lists that a device takes in part. After every prefix of every kind of list, the taken part is
//! with the queue pair and ends once, and the rest is with the caller, to be posted again.

use crate::common::{pool, region};
use verbline_mem::{Batch, Packet, PeerRegion, PoolCache};
use verbline_verbs::expert::SgEntry;
use verbline_verbs::rdma::{
    Atomic, KeepSpec, KeptKey, KeptRegion, KeptWindow, Local, OnRc, Operation, Part, Remote, Span, Word, Work, WorkList,
};
use verbline_verbs::scripted_device::Script;
use verbline_verbs::signature::{BlockSignature, BlockSize, Crc, CrcKind, Domain, QpSignature, Seed};
use verbline_verbs::{
    Access, CompletionQueue, Completions, Context, InitSpec, PostStop, ProtectionDomain, QpSpec, QueuePair, RtrSpec,
    RtsSpec, SendOptions, Status, Transport,
};

const PEER: Remote = Remote { addr: 4096, rkey: 7 };
const INLINE_BYTES: u32 = 16;
/// Empty, 3 bytes, and 20, which is too long for inline.
const LENS: [usize; 3] = [0, 3, 20];

/// A listed work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Sends: inline, and not.
    Short,
    Long,
    /// A WRITE of a part of a region, of a packet, and of two; an atomic.
    Part,
    Packet,
    List,
    Atomic,
    /// A work request without local memory, one with a window, and one with a signature key.
    Invalidate,
    Bind,
    Sign,
    /// A response that waits for the key's blocks.
    Respond,
}

const KINDS: [Kind; 10] = [
    Kind::Short,
    Kind::Long,
    Kind::Part,
    Kind::Packet,
    Kind::List,
    Kind::Atomic,
    Kind::Invalidate,
    Kind::Bind,
    Kind::Sign,
    Kind::Respond,
];

impl Kind {
    fn is_send(self) -> bool {
        matches!(self, Kind::Short | Kind::Long)
    }

    /// Whether memory stays with the QP until it is done.
    fn keeps_memory(self) -> bool {
        self.packets() > 0 && self != Kind::Short
    }

    /// The number of its packets.
    fn packets(self) -> usize {
        match self {
            Kind::List => 2,
            Kind::Short | Kind::Long | Kind::Packet | Kind::Atomic | Kind::Respond => 1,
            Kind::Part | Kind::Invalidate | Kind::Bind | Kind::Sign => 0,
        }
    }
}

struct Rig {
    qp: QueuePair,
    cq: CompletionQueue,
    completions: Completions,
    freed: Batch,
    script: Script,
    cache: PoolCache,
    pool: verbline_mem::Pool,
    _pd: ProtectionDomain,
    _context: Context,
}

impl Rig {
    fn new(signal_every_wr: u32) -> Rig {
        let (context, script) = Script::open().unwrap();
        let (cq, pd) = (context.create_cq(64, None).unwrap(), context.alloc_pd().unwrap());
        let spec = QpSpec {
            signature: QpSignature::Keys,
            max_inline_bytes: INLINE_BYTES,
            signal_every_wr,
            tx_depth_wr: 16,
            max_send_sge: 2,
            ..QpSpec::new(Transport::Rc, &cq)
        };
        let mut qp = pd.create_qp(&spec).unwrap();
        qp.to_init(&InitSpec::default()).unwrap();
        qp.to_rtr(&RtrSpec::connected(qp.endpoint())).unwrap();
        qp.to_rts(&RtsSpec::default()).unwrap();
        let pool = pool("lists", 64, 256, 0);
        pd.register_pool(&pool).unwrap();
        let memory = PeerRegion::new(region("lists", 4096));
        let memory = pd.register_peer_region(memory, Access::LOCAL_WRITE | Access::MW_BIND).unwrap();
        qp.keep_memory(&KeepSpec { regions: vec![Some(memory)], windows: 1, keys: 1 }).unwrap();
        Rig {
            qp,
            cq,
            completions: Completions::with_capacity(64),
            freed: Batch::with_capacity(64),
            script,
            cache: pool.cache(0),
            pool,
            _pd: pd,
            _context: context,
        }
    }

    fn packet(&self, len: usize) -> Packet {
        let mut packet = self.cache.get().unwrap();
        assert!(packet.set_len(len));
        packet
    }

    fn work(&self, kind: Kind) -> Work {
        let part = Part { region: KeptRegion(0), span: Span::from(0..64) };
        let blocks =
            BlockSignature::on_the_wire(Domain::Crc(BlockSize::B512, Crc { kind: CrcKind::Crc32c, seed: Seed::Ones }));
        Work::plain(match kind {
            Kind::Short => return Work::Send(self.packet(INLINE_BYTES as usize)),
            Kind::Long => return Work::Send(self.packet(100)),
            Kind::Part => Operation::write(Local::Part(part), PEER),
            Kind::Packet => Operation::write(Local::Packet(self.packet(100)), PEER),
            Kind::List => {
                let parts = [self.packet(20), self.packet(100)].map(SgEntry::from);
                Operation::write(Local::List(Box::new(parts.into_iter().collect())), PEER)
            }
            Kind::Atomic => Operation::Atomic {
                atomic: Atomic::FetchAdd { at: PEER, add: 1 },
                into: Word::Packet(self.packet(8)),
                on: OnRc,
            },
            Kind::Invalidate => Operation::LocalInvalidate { rkey: 9 },
            Kind::Bind => Operation::Bind { window: KeptWindow(0), part, access: Access::REMOTE_WRITE },
            Kind::Sign => {
                Operation::Sign { key: KeptKey(0), part: Part { span: Span::from(0..512), ..part }, blocks, on: OnRc }
            }
            Kind::Respond => Operation::Respond {
                key: KeptKey(0),
                invalidate: None,
                local: Local::Packet(self.packet(100)),
                on: OnRc,
            },
        })
    }

    /// Posts the list to a device that takes this many work requests and refuses the next with
    /// `errno`, then the rest to one that takes all; and ends all of them.
    fn run(&mut self, kinds: &[Kind], takes: usize, errno: i32) {
        let mut works = WorkList::with_capacity(kinds.len());
        kinds.iter().for_each(|kind| works.push(self.work(*kind)).unwrap());
        self.script.queues().take_only(takes, errno);
        let outcome = self.qp.rc().unwrap().post_works(&mut works);
        let what = format!("{kinds:?}, of which the device takes {takes}");
        let stop = outcome.stop;
        // A key with an outstanding response cannot be configured: that stops the list as well.
        let allowed =
            kinds.iter().enumerate().position(|(at, kind)| *kind == Kind::Sign && kinds[..at].contains(&Kind::Respond));
        let expected = takes.min(allowed.unwrap_or(kinds.len()));
        assert_eq!((outcome.posted, works.len()), (expected, kinds.len() - expected), "{what}: {stop:?}");
        assert_eq!(outcome.inlined, kinds[..expected].iter().filter(|kind| **kind == Kind::Short).count(), "{what}");
        match stop {
            None => assert_eq!(expected, kinds.len(), "{what}"),
            Some(PostStop::NotKey(_)) => assert_eq!(Some(expected), allowed, "{what}"),
            Some(PostStop::Full) => assert_eq!((expected, errno), (takes, libc::ENOMEM), "{what}"),
            Some(PostStop::Device(_)) => assert_eq!((expected, errno), (takes, libc::EINVAL), "{what}"),
            other => panic!("{what}: {other:?}"),
        }
        assert_eq!(self.qp.sends_outstanding(), expected, "{what}");
        // Packets of work requests with the queue pair, and of waiting ones.
        let held = kinds[..expected].iter().filter(|kind| kind.keeps_memory()).chain(&kinds[expected..]);
        let held: usize = held.map(|kind| kind.packets()).sum();
        assert_eq!(self.pool.account().held as usize, held, "{what}");
        self.script.queues().take_all();
        self.end(&kinds[..expected], &what);
        // Once these have ended the rest is taken: the refused ones have left nothing behind.
        let rest = self.qp.rc().unwrap().post_works(&mut works);
        let further = kinds[expected..]
            .iter()
            .enumerate()
            .position(|(at, kind)| *kind == Kind::Sign && kinds[expected..][..at].contains(&Kind::Respond));
        let posted = further.unwrap_or(kinds.len() - expected);
        assert_eq!((rest.posted, rest.stop.is_some()), (posted, further.is_some()), "{what}: {:?}", rest.stop);
        self.end(&kinds[expected..][..posted], &what);
        drop(works);
        assert_eq!((self.pool.account().held, self.qp.sends_outstanding()), (0, 0), "{what}");
    }

    /// Ends the taken work requests: each ends once, in order, with its memory.
    fn end(&mut self, kinds: &[Kind], what: &str) {
        let (mut ended, mut count) = (Vec::new(), 0);
        self.hear(&mut ended, &mut count);
        let left = self.qp.sends_outstanding();
        if left > 0 {
            // The last taken one was not the last of its list, and so not signaled.
            let marker = self.packet(INLINE_BYTES as usize);
            self.qp.rc().unwrap().send(marker, SendOptions::default()).unwrap();
            self.hear(&mut ended, &mut count);
        }
        let operations: Vec<bool> =
            kinds.iter().filter(|kind| !kind.is_send()).map(|kind| kind.keeps_memory()).collect();
        assert_eq!((ended, count), (operations, kinds.len() + usize::from(left > 0)), "{what}: each ends once");
    }

    fn hear(&mut self, ended: &mut Vec<bool>, count: &mut usize) {
        while self.script.queues().end_send(self.qp.qpn(), Status::SUCCESS).is_some() {}
        while self.cq.poll(&mut self.completions) > 0 {
            for completion in &self.completions {
                let done = self.qp.works_done(completion, &mut self.freed, |count, memory, _| {
                    ended.extend(std::iter::repeat_n(memory.is_some(), count as usize));
                });
                *count += done.unwrap().count;
            }
            self.completions.clear();
        }
        self.freed.clear();
    }
}

/// All lists of this length.
fn lists(len: usize) -> impl Iterator<Item = Vec<Kind>> {
    (0..KINDS.len().pow(len as u32)).map(move |mut number| {
        let mut next = || {
            let kind = KINDS[number % KINDS.len()];
            number /= KINDS.len();
            kind
        };
        (0..len).map(|_| next()).collect()
    })
}

#[test]
fn what_a_device_took_of_a_list_is_the_queue_pairs_and_the_rest_the_callers() {
    let mut runs = 0;
    for (signal_every_wr, errno) in [(1, libc::ENOMEM), (3, libc::EINVAL), (100, libc::ENOMEM)] {
        let mut rig = Rig::new(signal_every_wr);
        for kinds in (1..=3).flat_map(lists) {
            for takes in 0..=kinds.len() {
                rig.run(&kinds, takes, errno);
                runs += 1;
            }
        }
    }
    // Every list of one, two and three, refused after every prefix.
    assert_eq!(runs, 3 * (10 * 2 + 100 * 3 + 1000 * 4));
}

/// A batch of packets to send, some of them inline: empty, short and long ones.
#[test]
fn what_a_device_took_of_a_batch_is_back_or_kept_and_the_rest_still_there() {
    let mut rig = Rig::new(1);
    for number in 0..3usize.pow(4) {
        let lens = [0, 1, 2, 3].map(|at| LENS[number / 3usize.pow(at) % 3]);
        for takes in 0..=lens.len() {
            let mut batch = Batch::with_capacity(lens.len());
            lens.iter().for_each(|len| batch.push(rig.packet(*len)).unwrap());
            rig.script.queues().take_only(takes, libc::ENOMEM);
            let outcome = rig.qp.post_send(&mut batch);
            let inlined = lens[..takes].iter().filter(|len| **len <= INLINE_BYTES as usize).count();
            let what = format!("{lens:?}, of which the device takes {takes}");
            assert_eq!((outcome.posted, outcome.inlined, batch.len()), (takes, inlined, 4 - takes), "{what}");
            assert_eq!(rig.pool.account().held as usize, 4 - inlined, "{what}");
            while rig.script.queues().end_send(rig.qp.qpn(), Status::SUCCESS).is_some() {}
            while rig.cq.poll(&mut rig.completions) > 0 {
                for completion in &rig.completions {
                    assert_eq!(rig.qp.send_done(completion, &mut rig.freed).unwrap(), 1);
                }
                rig.completions.clear();
            }
            rig.freed.clear();
            drop(batch);
            assert_eq!((rig.pool.account().held, rig.qp.sends_outstanding()), (0, 0), "{what}");
        }
    }
}

/// Posts packets of these lengths, each as it is posted most quickly.
fn send(rig: &mut Rig, lens: &[usize]) -> (usize, Option<PostStop>) {
    let mut batch = Batch::with_capacity(lens.len());
    batch.push_iter(lens.iter().map(|len| rig.packet(*len)));
    let outcome = rig.qp.post_send(&mut batch);
    (outcome.posted, outcome.stop)
}

fn receive(rig: &mut Rig, count: usize) -> (usize, Option<PostStop>) {
    let mut batch = Batch::with_capacity(count);
    batch.push_iter((0..count).map(|_| rig.packet(0)));
    let outcome = rig.qp.post_recv(&mut batch);
    (outcome.posted, outcome.stop)
}

/// Once, whichever way it was posted; and a full queue is no refusal.
#[test]
fn what_a_device_refuses_is_counted() {
    let mut rig = Rig::new(4);
    let ways: [fn(&mut Rig); 8] = [
        // The first receive shows the queue its pool.
        |rig| assert_eq!(receive(rig, 1).0, 0),
        |rig| assert_eq!(receive(rig, 1).0, 0),
        |rig| assert_eq!(receive(rig, 3).0, 0),
        |rig| assert_eq!(send(rig, &[3]).0, 0),
        |rig| assert_eq!(send(rig, &[3, 3]).0, 0),
        |rig| assert_eq!(send(rig, &[20, 3]).0, 0),
        |rig| assert!(rig.qp.post_send_one(rig.packet(3)).is_err()),
        |rig| {
            let packet = rig.packet(3);
            assert!(rig.qp.rc().unwrap().write(packet, PEER, SendOptions::default()).is_err());
        },
    ];
    for (at, way) in ways.into_iter().enumerate() {
        for (errno, more) in [(libc::EINVAL, 1), (libc::ENOMEM, 0)] {
            let before = rig.qp.counters().refused;
            rig.script.queues().take_only(0, errno);
            way(&mut rig);
            assert_eq!(rig.qp.counters().refused, before + more, "way {at}, errno {errno}");
        }
    }
}

/// A refused packet is back with the caller; but if the refusal does not name it, the device may
/// have it, and it counts as posted. One packet and several, inline and not.
#[test]
fn a_packet_is_with_the_caller_or_counted_as_posted_whichever_way_it_is_refused() {
    for lens in [&[3][..], &[3, 3], &[20], &[20, 3]] {
        for names in [true, false] {
            let mut rig = Rig::new(4);
            // The first send of all goes another way: it begins a block of numbers.
            assert_eq!(send(&mut rig, &[3]), (1, None));
            rig.script.queues().name_refused(names);
            rig.script.queues().take_only(0, libc::EINVAL);
            let mut batch = Batch::with_capacity(lens.len());
            batch.push_iter(lens.iter().map(|len| rig.packet(*len)));
            let outcome = rig.qp.post_send(&mut batch);
            let (taken, copied) = match names {
                true => (0, 0),
                false => (lens.len(), lens.iter().filter(|len| **len <= INLINE_BYTES as usize).count()),
            };
            let what = format!("{lens:?}, named: {names}");
            assert_eq!((outcome.posted, outcome.inlined, batch.len()), (taken, copied, lens.len() - taken), "{what}");
            assert!(matches!(outcome.stop, Some(PostStop::Device(_))), "{what}");
            assert_eq!(rig.qp.sends_outstanding(), 1 + taken, "{what}");
            assert_eq!(rig.pool.account().held as usize, lens.len() - copied, "{what}");
        }
    }
}

/// A device may take and forget what is posted to a queue pair that is in no state for it.
#[test]
fn nothing_reaches_the_device_of_a_queue_pair_that_was_reset() {
    let mut rig = Rig::new(4);
    assert_eq!((receive(&mut rig, 2), receive(&mut rig, 1)), ((2, None), (1, None)));
    assert_eq!((send(&mut rig, &[3]), send(&mut rig, &[3, 3])), ((1, None), (2, None)));
    rig.qp.to_reset().unwrap();
    rig.script.queues().posts();
    for outcome in [receive(&mut rig, 1), receive(&mut rig, 3), send(&mut rig, &[3]), send(&mut rig, &[3, 3])] {
        assert!(matches!(outcome, (0, Some(PostStop::NotReady(_)))), "{outcome:?}");
    }
    assert_eq!(rig.script.queues().posts().len(), 0);
}

/// It can be taken when there is room.
#[test]
fn a_message_for_which_the_batch_has_no_room_stays_with_the_queue() {
    let mut rig = Rig::new(4);
    assert_eq!(receive(&mut rig, 3), (3, None));
    let mut full = Batch::with_capacity(1);
    full.push(rig.packet(0)).unwrap();
    for len in [1, 2, 3] {
        assert!(rig.script.queues().receive(rig.qp.qpn(), len));
        assert_eq!(rig.cq.poll(&mut rig.completions), 1);
        let completions = rig.completions.as_slice();
        assert_eq!((rig.qp.recv_run(completions, &mut full), full.len()), (0, 1));
        assert_eq!(rig.qp.recv_run(completions, &mut rig.freed), 1);
        assert_eq!(rig.freed.pop().unwrap().len(), len as usize);
    }
}
