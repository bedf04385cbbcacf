//! Every way of posting to a send queue, in any order, to a device that takes a part of it.
//!
//! An oracle knows the packets, their options and what the device was told to take, and nothing of
//! the queue. After every step it says what the device has seen (which flags, which of them were
//! signaled), what was refused and why, and whose packets are where.

use std::collections::VecDeque;

use proptest::prelude::*;
use verbline_mem::{PageChoice, PeerRegion, Region, RegionSpec};

use super::*;
use crate::memory::mr::Access;
use crate::memory::span::Span;
use crate::wr::buffer::Given;
use crate::wr::kept::KeptRegion;
use crate::wr::local::Part;
use crate::wr::request::Request;

/// More than two lists.
const DEPTH: u32 = 140;
const MAX_BYTES: usize = 100;
/// None, inline, the longest inline, one more, the longest message, one more.
const LENS: [usize; 6] = [0, 9, 16, 17, MAX_BYTES, MAX_BYTES + 1];
const THERE: Remote = Remote { addr: 4096, rkey: 7 };

#[derive(Clone, Debug)]
enum Step {
    /// Posts packets of these lengths, each with its options or all without. The last field is
    /// the number that the device accepts.
    Send(Vec<(usize, Asked)>, bool, usize),
    /// The same as one list, with operations among them.
    Works(Vec<(Kind, Asked)>, usize),
    /// An operation by itself, which the device takes or refuses.
    Alone(Asked, bool),
    /// One of the signaled work requests completes.
    Done(usize),
    Reclaim,
}

#[derive(Clone, Copy, Debug, Default)]
struct Asked {
    imm: bool,
    solicited: bool,
    fence: bool,
    signaled: bool,
    comes_back: bool,
    /// The packet's pool is registered nowhere.
    foreign: bool,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Send(usize),
    SendWith(usize),
    /// A WRITE without bytes; one of a part of a region, by its number; and a SEND of one.
    Nothing,
    Part(u16, u32),
    SendPart(u16, u32),
    /// A response, which waits for blocks.
    Respond,
}

impl Asked {
    fn options(self) -> SendOptions {
        let Asked { imm, solicited, fence, signaled, comes_back, foreign: _ } = self;
        SendOptions { imm: imm.then_some(5), solicited, fence, signaled, comes_back, ..SendOptions::default() }
    }

    fn flags(self) -> u32 {
        flags_of(self.solicited, self.fence)
    }
}

/// What the device sees but the signal, and whether a completion was asked for; the packet that the
/// queue keeps.
struct Expected {
    flags: u32,
    opcode: u32,
    len: Option<u32>,
    /// Where its bytes are, and the key; the key of those that go inline means nothing.
    at: Option<(u64, u32)>,
    asked: bool,
    kept: Option<u64>,
}

/// What the device has.
struct Out {
    wr_id: u64,
    is_signaled: bool,
    kept: Option<u64>,
    is_listed: bool,
}

struct World {
    queue: SendQueue,
    fake: Box<Fake>,
    pools: [Pool; 2],
    kept: KeptMemory,
    solicited: u32,
    every: u32,
    /// Work requests since the last signaled one.
    quiet: u32,
    out: VecDeque<Out>,
}

impl World {
    fn new(every: u32, solicited: bool) -> World {
        let mut queue = SendQueue::new(SendQueueSpec { solicited, ..spec(DEPTH, every) });
        queue.set_max_message_bytes(MAX_BYTES as u32);
        queue.set_open(true);
        let map = RegionSpec { name: "model".into(), len_bytes: 4096, pages: PageChoice::Auto, lock: false };
        let pd = fake_device::soft_with(|_| ()).alloc_pd().unwrap();
        let key = KeptSignatureKey::new(pd.create_signature_key(&KeySpec::default()).unwrap());
        let regions = [(); 2].map(|()| {
            let memory = PeerRegion::new(Region::map(&map).unwrap());
            Some(pd.register_peer_region(memory, Access::LOCAL_WRITE).unwrap())
        });
        World {
            queue,
            fake: Fake::new(),
            pools: [fake_device::pool(256), fake_device::unregistered_pool(256)],
            kept: KeptMemory { keys: vec![key], regions: regions.into(), ..KeptMemory::default() },
            solicited: if solicited { SOLICITED } else { 0 },
            every,
            quiet: 0,
            out: VecDeque::new(),
        }
    }

    fn packet(&self, len: usize, asked: Asked) -> Packet {
        batch(&self.pools[usize::from(asked.foreign)], &[len]).pop().unwrap()
    }

    fn post(&mut self) -> PostSend {
        // SAFETY: the fake's QP is alive, as long as the world.
        unsafe { PostSend::of(self.fake.qp()) }
    }

    /// A SEND of a packet; or why it cannot be posted.
    fn send(&self, packet: &Packet, asked: Asked) -> Result<Expected, PostStop> {
        let (len_bytes, kept) = (packet.len(), Some(packet.addr()));
        if len_bytes > MAX_BYTES {
            return Err(PostStop::TooLong { len_bytes, max_bytes: MAX_BYTES as u32 });
        }
        let is_copied = len_bytes <= 16 && !asked.comes_back;
        if !is_copied && asked.foreign && len_bytes > 0 {
            return Err(PostStop::NotRegistered { packet_pd: 0, qp_pd: PD });
        }
        let opcode = if asked.imm { ibv_wr_opcode::IBV_WR_SEND_WITH_IMM } else { ibv_wr_opcode::IBV_WR_SEND };
        let flags = asked.flags() | self.solicited | if is_copied { INLINE } else { 0 };
        let len = (len_bytes > 0).then_some(len_bytes as u32);
        let at = len.map(|_| (packet.addr(), packet.lkey()));
        Ok(Expected { flags, opcode, len, at, asked: asked.signaled, kept: kept.filter(|_| !is_copied) })
    }

    /// The device has taken these, whose last is signaled in any case if it is the end of a list.
    fn took(&mut self, expected: Vec<Expected>, end: Option<usize>, is_listed: bool) {
        let posted = std::mem::take(&mut self.fake.posted);
        assert_eq!(posted.len(), expected.len());
        for (place, (expected, seen)) in expected.into_iter().zip(posted).enumerate() {
            let Expected { flags, opcode, len, at, asked, kept } = expected;
            self.quiet += 1;
            let is_signaled = asked || self.quiet == self.every || end == Some(place + 1);
            let known =
                |at: Option<(u64, u32)>| at.map(|(addr, lkey)| (addr, if flags & INLINE == 0 { lkey } else { 0 }));
            let flags = flags | if is_signaled { SIGNALED } else { 0 };
            assert_eq!((seen.flags, seen.opcode, seen.len, known(seen.at)), (flags, opcode, len, known(at)), "{place}");
            self.quiet = if is_signaled { 0 } else { self.quiet };
            self.out.push_back(Out { wr_id: seen.wr_id, is_signaled, kept, is_listed });
        }
    }

    /// Why not all of `wanted` are posted, the first `good` of which can be.
    fn stop(&mut self, wanted: usize, good: usize, bad: Option<PostStop>, takes: usize) -> Option<PostStop> {
        let room = DEPTH as usize - self.out.len();
        self.fake.takes = takes;
        if takes < good.min(room) || wanted > room && room <= good { Some(PostStop::Full) } else { bad }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Send(asked, with_options, takes) => self.send_batch(asked, with_options, takes),
            Step::Works(asked, takes) => self.post_works(asked, takes),
            Step::Alone(asked, takes) => self.post_alone(asked, takes),
            Step::Done(which) => self.end(which),
            Step::Reclaim => {
                assert_eq!(self.queue.reclaim() as usize, self.out.len());
                self.out.clear();
                self.quiet = 0;
            }
        }
        self.check();
    }

    fn send_batch(&mut self, asked: Vec<(usize, Asked)>, with_options: bool, takes: usize) {
        let plain =
            |asked: Asked| if with_options { asked } else { Asked { foreign: asked.foreign, ..Asked::default() } };
        let asked: Vec<_> = asked.into_iter().map(|(len, asked)| (len, plain(asked))).collect();
        let mut packets = Batch::with_capacity(asked.len());
        packets.push_iter(asked.iter().map(|(len, asked)| self.packet(*len, *asked)));
        let addrs: Vec<u64> = packets.iter().map(Packet::addr).collect();
        let (mut expected, mut bad) = (Vec::new(), None);
        for (packet, (_, asked)) in packets.iter().zip(&asked) {
            match self.send(packet, *asked) {
                Ok(one) => expected.push(one),
                Err(stop) => {
                    bad = Some(stop);
                    break;
                }
            }
        }
        let stop = self.stop(addrs.len(), expected.len(), bad, takes);
        expected.truncate(takes.min(DEPTH as usize - self.out.len()));
        let options = |at: usize, _: &Packet| asked[at].1.options();
        let verb = self.post();
        let outcome = match with_options {
            // SAFETY: the fake's QP is alive, and `queue` is the one that posts to it.
            true => unsafe { self.queue.post_batch(verb, &mut packets, Some(options)) },
            false => post(&mut self.queue, &mut self.fake, &mut packets),
        };
        let inlined = expected.iter().filter(|one| one.kept.is_none()).count();
        assert_eq!(outcome, SendOutcome { posted: expected.len(), inlined, stop });
        assert_eq!(packets.iter().map(Packet::addr).collect::<Vec<_>>(), addrs[expected.len()..]);
        self.took(expected, None, false);
    }

    fn post_works(&mut self, asked: Vec<(Kind, Asked)>, takes: usize) {
        let mut works = WorkList::with_capacity(asked.len());
        let (mut expected, mut bad) = (Vec::new(), None);
        for (kind, asked) in asked {
            let (work, one) = self.work(kind, asked);
            works.push(work).unwrap();
            match one {
                Ok(one) if bad.is_none() => expected.push(one),
                Ok(_) => {}
                Err(stop) => bad = bad.or(Some(stop)),
            }
        }
        let (wanted, room) = (works.len(), DEPTH as usize - self.out.len());
        let stop = self.stop(wanted, expected.len(), bad, takes);
        let end = expected.len().min(room);
        expected.truncate(takes.min(room));
        let verb = self.post();
        // SAFETY: the fake's QP is alive, `queue` posts to it, and `kept` lives as long.
        let outcome = unsafe { self.queue.post_works(verb, &mut works, &mut self.kept) };
        assert_eq!((outcome.posted, outcome.stop), (expected.len(), stop));
        assert_eq!(outcome.inlined, expected.iter().filter(|one| one.flags & INLINE != 0).count());
        assert_eq!(works.len(), wanted - expected.len());
        while works.pop().is_some() {}
        assert_eq!((works.sends(), works.send_bytes()), (0, 0));
        self.took(expected, Some(end), true);
    }

    fn work(&self, kind: Kind, asked: Asked) -> (Work, Result<Expected, PostStop>) {
        let plain = Asked::default();
        let part = |region, len| Local::Part(Part { region: KeptRegion(region), span: Span::from(8..8 + len) });
        let (operation, opcode, (region, bytes), more) = match kind {
            Kind::Send(len) | Kind::SendWith(len) => {
                let asked = if let Kind::Send(_) = kind { Asked { foreign: asked.foreign, ..plain } } else { asked };
                let packet = self.packet(len, asked);
                let mut expected = self.send(&packet, asked);
                if let Ok(Expected { flags, kept, .. }) = &mut expected
                    && len == 0
                {
                    // In a list, an empty packet stays with the queue.
                    (*flags, *kept) = (*flags & !INLINE, Some(packet.addr()));
                }
                let work = match kind {
                    Kind::Send(_) => Work::Send(packet),
                    _ => Work::SendWith { packet, options: asked.options() },
                };
                return (work, expected);
            }
            Kind::Nothing => (Operation::write(Local::Empty, THERE), ibv_wr_opcode::IBV_WR_RDMA_WRITE, (0, 0), 0),
            Kind::Part(of, len) => {
                (Operation::write(part(of, len), THERE), ibv_wr_opcode::IBV_WR_RDMA_WRITE, (of, len), 0)
            }
            Kind::SendPart(of, len) => {
                (Operation::send(part(of, len)), ibv_wr_opcode::IBV_WR_SEND, (of, len), self.solicited)
            }
            Kind::Respond => {
                let respond = Operation::Respond { key: KeptKey(0), invalidate: None, local: Local::Empty, on: OnRc };
                (respond, ibv_wr_opcode::IBV_WR_SEND, (0, 0), FENCE | self.solicited)
            }
        };
        let region = self.kept.region(KeptRegion(region)).unwrap();
        let expected = Expected {
            at: (bytes > 0).then(|| (region.span().0 + 8, region.lkey())),
            flags: asked.flags() | more,
            opcode,
            len: (bytes > 0).then_some(bytes),
            asked: asked.signaled,
            kept: None,
        };
        let Asked { solicited, fence, signaled, .. } = asked;
        (Work::Operation { operation, options: WorkOptions { solicited, fence, signaled } }, Ok(expected))
    }

    fn post_alone(&mut self, asked: Asked, takes: bool) {
        self.fake.takes = takes.into();
        let (request, given) = (Request::Transfer(Transfer::write(THERE, None)), Given::Used(Buffer::Empty));
        let verb = self.post();
        // SAFETY: the fake's QP is alive, and `queue` is the one that posts to it.
        let posted = unsafe { self.queue.post_op(verb, request, &given, &asked.options()) };
        if !takes || self.out.len() == DEPTH as usize {
            return assert_eq!((posted, self.fake.posted.len()), (Err(PostStop::Full), 0));
        }
        self.queue.keep_op(posted.unwrap(), Kept::Memory(Buffer::Empty));
        let opcode = ibv_wr_opcode::IBV_WR_RDMA_WRITE;
        self.took(
            vec![Expected { flags: asked.flags(), opcode, len: None, at: None, asked: true, kept: None }],
            None,
            false,
        );
    }

    fn end(&mut self, which: usize) {
        let signaled: Vec<_> = (0..self.out.len()).filter(|at| self.out[*at].is_signaled).collect();
        let Some(&at) = signaled.get(which % signaled.len().max(1)) else { return };
        let done: Vec<_> = self.out.drain(..=at).collect();
        let (last, mut freed) = (done.last().unwrap(), Batch::with_capacity(DEPTH as usize));
        let completions = fake_device::completions(&[(last.wr_id, 0, 0)]);
        let completion = &completions.as_slice()[0];
        let count = match crate::wr_id::kind(last.wr_id) {
            WrKind::Op if last.is_listed => {
                self.queue.complete_works(completion, &mut freed, |_, _, _| ()).map(|done| done.count)
            }
            WrKind::Op => self.queue.complete_op(completion, &mut freed).map(|_| done.len()),
            _ => self.queue.complete(completion, &mut freed),
        };
        assert_eq!(count.unwrap(), done.len());
        let kept: Vec<u64> = done.iter().filter_map(|out| out.kept).collect();
        assert_eq!(freed.iter().map(Packet::addr).collect::<Vec<_>>(), kept);
    }

    fn check(&self) {
        assert_eq!(self.queue.outstanding() as usize, self.out.len());
        let held = self.out.iter().filter_map(|out| out.kept).count();
        assert_eq!(self.pools.iter().map(|pool| pool.account().held as usize).sum::<usize>(), held);
        assert_eq!(self.queue.packets_kept as usize, held);
        let ops = self.queue.ops.iter().filter(|kept| kept.is_some()).count();
        let listed = self.queue.listed.iter().filter(|listed| **listed).count();
        assert_eq!((self.queue.ops_kept as usize, self.queue.listed_kept as usize), (ops, listed));
        assert!(!self.out.is_empty() || ops + listed == 0);
    }
}

fn asked() -> impl Strategy<Value = Asked> {
    let rare = || prop::bool::weighted(0.1);
    let rest = (any::<[bool; 4]>(), rare(), rare());
    rest.prop_map(|([imm, solicited, fence, comes_back], signaled, foreign)| Asked {
        imm,
        solicited,
        fence,
        signaled,
        comes_back,
        foreign,
    })
}

fn step() -> impl Strategy<Value = Step> {
    // Mostly what goes inline, as it mostly is.
    let len = || prop_oneof![9 => Just(9usize), 6 => prop::sample::select(LENS.to_vec())];
    let kind = prop_oneof![
        2 => len().prop_map(Kind::Send),
        2 => len().prop_map(Kind::SendWith),
        1 => Just(Kind::Nothing),
        4 => (0u16..2, 0u32..9).prop_map(|(region, len)| Kind::Part(region, len)),
        1 => (0u16..2, 0u32..9).prop_map(|(region, len)| Kind::SendPart(region, len)),
        1 => Just(Kind::Respond),
    ];
    let works = prop::collection::vec((kind, asked()), 1..9);
    let takes = || prop_oneof![3 => Just(usize::MAX), 1 => 0usize..8];
    let packets = |most| prop::collection::vec((len(), asked()), 1..most);
    // More than one list, and none that cannot be posted.
    let long = prop::collection::vec((Just(9), asked().prop_map(|asked| Asked { foreign: false, ..asked })), 60..80);
    prop_oneof![
        4 => (packets(2), any::<bool>(), takes()).prop_map(|(asked, with, takes)| Step::Send(asked, with, takes)),
        4 => (packets(9), any::<bool>(), takes()).prop_map(|(asked, with, takes)| Step::Send(asked, with, takes)),
        2 => (long, any::<bool>()).prop_map(|(asked, with)| Step::Send(asked, with, usize::MAX)),
        4 => (works, takes()).prop_map(|(asked, takes)| Step::Works(asked, takes)),
        2 => (asked(), any::<bool>()).prop_map(|(asked, takes)| Step::Alone(asked, takes)),
        6 => any::<usize>().prop_map(Step::Done),
        1 => Just(Step::Reclaim),
    ]
}

proptest! {
    #[test]
    fn the_device_sees_what_was_asked_for_whichever_way_it_was_posted(
        every in 1u32..12,
        solicited in any::<bool>(),
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let mut world = World::new(every, solicited);
        steps.into_iter().for_each(|step| world.step(step));
        world.step(Step::Reclaim);
    }
}
