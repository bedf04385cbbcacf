//! Sends and operations posted from the front of a [`WorkList`], in order, as linked lists.
//!
//! The last of every list is signaled, besides every `signal_every`-th: what was posted is known to
//! be done without another post. All of them carry the number of an op, so that one call takes
//! their completions.

use rdma_sys::{bind_mw_t, ibv_send_wr, ibv_sge, ibv_wr_opcode, rdma_t};
use verbline_mem::{Batch, Packet};

use super::batch::Formatted;
use super::binds::{bind_ends, bound, is_bind};
use super::signed::note_posted;
use super::{INLINE, Kept, SIGNALED, SendQueue, flags};
use crate::cq::completion::{Completion, Stale, Status};
use crate::memory::window::bind_info;
use crate::qp::endpoint::Transport;
use crate::signature::{KeptSignatureKey, LISTED};
use crate::wr::buffer::Buffer;
use crate::wr::operation::{KeptMemory, KeptRegion, Local, Operation, Part};
use crate::wr::post::{PostStop, SendOptions, SendOutcome};
use crate::wr::post_verb::PostSend;
use crate::wr::sg_list::packet_sge;
use crate::wr::works::{Work, WorkList, WorksDone};
use crate::wr::wr_id::{self, WrKind};
use crate::wr::wr_list::{Entry, WrList};

impl SendQueue {
    /// Posts from the front until the queue is full, or one is refused, which is at the front then.
    ///
    /// # Safety
    /// As [`SendQueue::post_one`], and `kept` is kept for as long as the queue.
    pub(crate) unsafe fn post_works(
        &mut self,
        post: PostSend,
        works: &mut WorkList,
        kept: &mut KeptMemory,
    ) -> SendOutcome {
        let mut outcome = SendOutcome::default();
        while !works.is_empty() && outcome.stop.is_none() {
            let want = self.reserve(works.len());
            if want == 0 {
                outcome.stop = Some(PostStop::Full);
                break;
            }
            // SAFETY: the caller promises a live QP whose send queue this is, and keeps `kept`.
            unsafe { self.post_list_of_works(post, works, kept, want, &mut outcome) };
        }
        outcome
    }

    /// Posts the first `want`, for which there is room and numbers, or those before the first that
    /// can't be posted.
    ///
    /// # Safety
    /// As [`SendQueue::post_works`].
    unsafe fn post_list_of_works(
        &mut self,
        post: PostSend,
        works: &mut WorkList,
        kept: &mut KeptMemory,
        want: usize,
        outcome: &mut SendOutcome,
    ) {
        // SAFETY: from here to the end nothing but the device is called.
        let mut list = unsafe { WrList::<ibv_send_wr>::of_thread() };
        let first = self.sequence.next() | wr_id::kind_bits(WrKind::Op);
        let (mut formatted, every) = (Formatted::new(self.until_signal), self.signal_every);
        let (mut known, mut transfers) = (KnownRegion::default(), 0);
        for (work, entry) in works.waiting().iter().flatten().zip(&mut list.entries()[..want]) {
            let asked = if let Some(asked) = self.format_transfer(work, kept, &mut known, entry) {
                transfers += 1;
                asked
            } else if let Err(stop) = self.format_work(work, kept, &mut entry.wr, &mut entry.sge) {
                outcome.stop = Some(stop).filter(|stop| *stop != LISTED);
                break;
            } else {
                matches!(work, Work::Operation { options, .. } if options.signaled)
            };
            entry.wr.wr_id = first + u64::from(formatted.len);
            entry.wr.send_flags |= formatted.signal(asked, every);
            formatted.len += 1;
            // A bind changes the window's key, and the next one of it goes by that.
            if is_bind(work) {
                break;
            }
        }
        if formatted.len > 0 {
            let last = &mut list.entries()[formatted.len as usize - 1].wr;
            last.send_flags |= SIGNALED;
            // SAFETY: the caller promises a live QP; packets move into their slots below, and the
            // QP keeps regions and windows until it is gone.
            let (taken, ret) = list.post(formatted.len, |wr, bad| unsafe { post.call(wr, bad) });
            let entries = &list.entries()[..taken as usize];
            match ret {
                0 => self.until_signal = every,
                _ => self.recount(entries),
            }
            match transfers == taken {
                true => self.keep_transfers(works, taken),
                false => outcome.inlined += self.keep_works(works, kept, entries),
            }
            if ret != 0 {
                kept.keys.iter_mut().for_each(KeptSignatureKey::unlist);
            }
            self.advance(taken);
            outcome.posted += taken as usize;
            if ret != 0 {
                outcome.stop = Some(PostStop::of_device(ret));
            }
        }
        list.altered(want);
    }

    /// Takes as many WRITEs and READs out of the list, of which the queue keeps nothing but that
    /// they are there: the QP keeps their regions.
    #[inline]
    fn keep_transfers(&mut self, works: &mut WorkList, taken: u32) {
        works.forget(taken as usize);
        for position in (self.sequence.next()..).take(taken as usize) {
            self.listed[self.packets.slot(position)] = true;
        }
        self.listed_kept += taken;
    }

    /// Moves what was posted by these entries out of the list: packets into their slots, those of
    /// sends that went inline back to their pool. Gives how many the latter are.
    #[inline]
    fn keep_works(&mut self, works: &mut WorkList, kept: &mut KeptMemory, entries: &[Entry<ibv_send_wr>]) -> usize {
        let mut inlined = 0;
        for (position, entry) in (self.sequence.next()..).zip(entries) {
            let packet = match works.pop() {
                Some(Work::Send(packet)) if entry.wr.send_flags & INLINE != 0 => {
                    inlined += 1;
                    drop(packet);
                    None
                }
                Some(Work::Send(packet)) => Some(packet),
                Some(Work::Operation { operation, local, .. }) => {
                    let slot = self.packets.slot(position);
                    self.listed[slot] = true;
                    self.listed_kept += 1;
                    match operation {
                        Operation::Bind { .. } => {
                            let bind = bound(operation, &local, kept);
                            self.keep_op(slot, Kept { buffer: Buffer::Empty, bind });
                        }
                        Operation::Sign { .. } | Operation::Respond { .. } => note_posted(operation, position, kept),
                        _ => {}
                    }
                    local.into_packet()
                }
                None => None,
            };
            if packet.is_some() {
                self.packets.put(position, packet);
                self.packets_kept += 1;
            }
        }
        inlined
    }

    /// Writes all of a work request but its number and its signal, if it is what most are: a WRITE
    /// or a READ between a part of a region and the peer, over RC. Says then whether a completion
    /// was asked for.
    #[inline(always)]
    fn format_transfer(
        &self,
        work: &Work,
        kept: &KeptMemory,
        known: &mut KnownRegion,
        Entry { sge, wr }: &mut Entry<ibv_send_wr>,
    ) -> Option<bool> {
        let Work::Operation { operation, local: Local::Part(part), options } = work else { return None };
        let (opcode, remote) = match operation {
            Operation::Write { to } if options.imm.is_none() => (ibv_wr_opcode::IBV_WR_RDMA_WRITE, to),
            Operation::Read { from } => (ibv_wr_opcode::IBV_WR_RDMA_READ, from),
            _ => return None,
        };
        if self.transport != Transport::Rc || part.len > self.max_message_bytes {
            return None;
        }
        *sge = known.part(*part, kept)?;
        wr.opcode = opcode;
        wr.num_sge = (part.len > 0).into();
        wr.send_flags = flags(options);
        wr.wr.rdma = rdma_t { remote_addr: remote.addr, rkey: remote.rkey };
        Some(options.signaled)
    }

    /// Writes all of a work request but its number and its signal.
    #[inline(never)]
    fn format_work(
        &mut self,
        work: &Work,
        kept: &mut KeptMemory,
        wr: &mut ibv_send_wr,
        sge: &mut ibv_sge,
    ) -> Result<(), PostStop> {
        match work {
            Work::Send(packet) => {
                wr.send_flags = 0;
                *sge = self.part_of_packet(packet, true, wr)?;
            }
            Work::Operation { operation, local, options } => {
                self.format_operation(*operation, local, options, kept, wr, sge)?;
            }
        }
        wr.num_sge = (sge.length > 0).into();
        Ok(())
    }

    fn format_operation(
        &mut self,
        operation: Operation,
        local: &Local,
        options: &SendOptions,
        kept: &mut KeptMemory,
        wr: &mut ibv_send_wr,
        sge: &mut ibv_sge,
    ) -> Result<(), PostStop> {
        self.check_operation(operation, local, options)?;
        wr.send_flags = flags(options);
        let copies = matches!(
            operation,
            Operation::Send
                | Operation::SendWithInvalidate { .. }
                | Operation::Write { .. }
                | Operation::Respond { .. }
        );
        *sge = match local {
            Local::Empty => ibv_sge { addr: 0, length: 0, lkey: 0 },
            Local::Packet(packet) => self.part_of_packet(packet, copies, wr)?,
            Local::Part(part) => self.part_of_region(*part, kept)?,
            Local::Key(part) => self.part_of_key(*part, kept)?,
        };
        operation.write(options.imm, wr);
        if let Operation::Sign { .. } | Operation::Respond { .. } = operation {
            return self.format_signed(operation, kept, wr, sge);
        }
        if let Operation::Bind { window, access } = operation {
            let Local::Part(part) = local else { return Err(PostStop::NotKept("a window binds to a part of one")) };
            let (slice, window) = bind_ends(*part, window, kept)?;
            // Of a bind no bytes move.
            sge.length = 0;
            window.settle();
            let (mw, rkey) = (window.inner.as_ptr(), window.next_rkey());
            wr.bind_mw_tso_union.bind_mw = bind_mw_t { mw, rkey, bind_info: bind_info(&slice, access) };
        }
        Ok(())
    }

    /// The bytes of a packet, inline where that is possible and they fit.
    #[inline]
    fn part_of_packet(&mut self, packet: &Packet, copies: bool, wr: &mut ibv_send_wr) -> Result<ibv_sge, PostStop> {
        let len_bytes = packet.len();
        if len_bytes > self.max_message_bytes as usize {
            return Err(PostStop::TooLong { len_bytes, max_bytes: self.max_message_bytes });
        }
        // No bytes are no part, inline or not.
        if copies && len_bytes.wrapping_sub(1) < self.inline_bytes as usize {
            wr.send_flags |= INLINE;
            return Ok(packet_sge(packet));
        }
        if packet.pd_id() != self.pd_id {
            return Err(PostStop::NotRegistered { packet_pd: packet.pd_id(), qp_pd: self.pd_id });
        }
        Ok(packet_sge(packet))
    }

    #[inline]
    pub(super) fn part_of_region(&self, part: Part, kept: &KeptMemory) -> Result<ibv_sge, PostStop> {
        let region = kept.regions.get(usize::from(part.region.0)).ok_or(PostStop::NotKept("there is none"))?;
        let sge = region.sge(part.offset, part.len).ok_or(PostStop::NotKept("the part leaves its region"))?;
        if part.len > self.max_message_bytes {
            return Err(PostStop::TooLong { len_bytes: part.len as usize, max_bytes: self.max_message_bytes });
        }
        Ok(sge)
    }

    fn check_operation(&self, operation: Operation, local: &Local, options: &SendOptions) -> Result<(), PostStop> {
        let rc_only = match operation {
            Operation::Read { .. } => Some("RDMA READ"),
            Operation::CompareSwap { .. } | Operation::FetchAdd { .. } => Some("atomics"),
            Operation::Sign { .. } | Operation::Respond { .. } => Some("signature keys"),
            _ if options.fence => Some("fence"),
            _ => None,
        };
        match (self.transport, rc_only) {
            (Transport::Rc, _) | (Transport::Uc, None) => {}
            (transport, Some(what)) => return Err(PostStop::NotOn(transport, what)),
            (transport, None) => return Err(PostStop::NotOn(transport, "one-sided operations")),
        }
        match local.len_bytes() {
            len_bytes if operation.is_atomic() && len_bytes != 8 => Err(PostStop::NotEightBytes(len_bytes)),
            _ => Ok(()),
        }
    }

    /// Frees every slot up to the completion's: the packet of each listed operation, if it had one,
    /// goes to `each`, oldest first, with whether the completion is its own; packets of sends go to
    /// `freed`, or to their pool when it is full.
    #[inline]
    pub(crate) fn complete_works(
        &mut self,
        completion: &Completion,
        freed: &mut Batch,
        mut each: impl FnMut(Option<Packet>, bool),
    ) -> Result<WorksDone, Stale> {
        let wr_id = completion.wr_id();
        let number = wr_id ^ wr_id::kind_bits(WrKind::Op);
        let age = self.sequence.age(number, self.outstanding).ok_or(Stale { wr_id })?;
        let count = self.outstanding - age;
        // Slots go round without a jump, also where numbers jump to another block.
        let oldest = self.sequence.next().wrapping_sub(self.outstanding.into());
        let mut of_operation = false;
        if self.packets_kept | self.ops_kept == 0 && self.listed_kept == self.outstanding {
            // Nothing but operations without packets.
            for ahead in 0..count {
                self.listed[self.packets.slot(oldest.wrapping_add(ahead.into()))] = false;
                each(None, ahead + 1 == count);
            }
            (self.listed_kept, self.outstanding) = (age, age);
            return Ok(WorksDone { count: count as usize, of_operation: count > 0 });
        }
        for ahead in 0..count {
            let position = oldest.wrapping_add(ahead.into());
            let (slot, own) = (self.packets.slot(position), ahead + 1 == count);
            if self.ops_kept > 0 {
                self.take_bind(slot, if own { completion.status() } else { Status::SUCCESS });
            }
            let packet = self.packets.at(position).take();
            self.packets_kept -= u32::from(packet.is_some());
            of_operation = self.unlist(slot);
            if of_operation {
                each(packet, own);
            } else if let Some(packet) = packet {
                drop(freed.push(packet));
            }
        }
        self.outstanding -= count;
        Ok(WorksDone { count: count as usize, of_operation })
    }

    /// Ends the bind that a slot keeps, if it keeps one: what a completion covers succeeded; its
    /// own says how it ended.
    #[cold]
    fn take_bind(&mut self, slot: usize, status: Status) {
        let Some(kept) = self.ops[slot].take() else { return };
        self.ops_kept -= 1;
        if let Some(bind) = kept.bind {
            bind.done(status);
        }
    }
}

/// The region that was looked up last: the parts of a list are of one most of the time.
#[derive(Default)]
struct KnownRegion {
    region: Option<KeptRegion>,
    addr: u64,
    len_bytes: u64,
    lkey: u32,
}

impl KnownRegion {
    /// The part, if it lies within its region. The QP keeps that, so that its keys stay.
    #[inline(always)]
    fn part(&mut self, part: Part, kept: &KeptMemory) -> Option<ibv_sge> {
        if self.region != Some(part.region) {
            let region = kept.regions.get(usize::from(part.region.0))?;
            let (addr, len_bytes) = region.span();
            *self = KnownRegion { region: Some(part.region), addr, len_bytes, lkey: region.lkey() };
        }
        let fits = u64::from(part.offset) + u64::from(part.len) <= self.len_bytes;
        let addr = self.addr.wrapping_add(part.offset.into());
        fits.then_some(ibv_sge { addr, length: part.len, lkey: self.lkey })
    }
}
