//! Sends and operations posted from the front of a [`WorkList`], in order, as linked lists.
//!
//! Every list's last work request is signaled, besides every `signal_every`-th: so no further post
//! is needed to learn that the others are done. All of them carry the number of an op, so that one
//! call takes their completions.

use rdma_sys::ibv_send_wr;
use verbline_mem::Batch;
use verbline_softnic::qp_table::Transport;

use super::batch::Formatted;
use super::listed_wr::KnownRegion;
use super::named::{bound, is_bind, note_configured, note_responded};
use super::{INLINE, Kept, SIGNALED, SendQueue};
use crate::cq::completion::{Completion, Stale, Status};
use crate::signature::KeptSignatureKey;
use crate::wr::buffer::Buffer;
use crate::wr::connected::Connected;
use crate::wr::kept::KeptMemory;
use crate::wr::local::WorkMemory;
use crate::wr::operation::Operation;
use crate::wr::post::{PostStop, SendOutcome};
use crate::wr::post_verb::PostSend;
use crate::wr::wr_list::{WrEntry, WrList};
use crate::wr::wr_queue::{Work, WorkList, WorksDone};
use crate::wr_id::{self, WrKind};

impl SendQueue {
    /// Posts from the front until the queue is full or a work request is refused, which is then at
    /// the front.
    ///
    /// # Safety
    /// The contract of [`SendQueue::post_one`], and `kept` lives as long as the queue.
    pub(crate) unsafe fn post_works<T: Connected>(
        &mut self,
        post: PostSend,
        works: &mut WorkList<T>,
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

    /// Posts the first `want` work requests, or only those before the first that cannot be posted.
    /// There are enough slots and numbers for them.
    ///
    /// # Safety
    /// The contract of [`SendQueue::post_works`].
    unsafe fn post_list_of_works<T: Connected>(
        &mut self,
        post: PostSend,
        works: &mut WorkList<T>,
        kept: &mut KeptMemory,
        want: usize,
        outcome: &mut SendOutcome,
    ) {
        // SAFETY: from here to the end nothing but the device is called.
        let mut list = unsafe { WrList::written_of_thread() };
        let first = self.sequence.next() | wr_id::kind_bits(WrKind::Op);
        let (mut formatted, every) = (Formatted::new(self.until_signal), self.signal_every);
        // `transfers`: how many of the formatted ones, from the front, are transfers of the usual
        // kind.
        let (mut known, mut transfers, mut sges) = (KnownRegion::default(), u32::MAX, 0);
        let carries_all = self.transport == Transport::Rc;
        for (work, entry) in works.waiting().iter().flatten().zip(&mut list.entries()[..want]) {
            if !carries_all && !work.is_on_uc() {
                outcome.stop = Some(PostStop::NotOn(self.transport, "READs, atomics, fences and signature keys"));
                break;
            }
            let mut ends = false;
            let asked = if let Some(asked) = self.format_transfer(work, kept, &mut known, entry) {
                asked
            } else if let Err(stop) = self.format_work(work, kept, &mut sges, entry) {
                outcome.stop = stop;
                break;
            } else {
                transfers = transfers.min(formatted.len);
                // A bind changes the window's key, from which the window's next bind starts.
                ends = is_bind(work);
                work.is_signaled()
            };
            entry.wr.wr_id = first + u64::from(formatted.len);
            entry.wr.send_flags |= formatted.signal(asked, every);
            formatted.len += 1;
            if ends {
                break;
            }
        }
        if formatted.len > 0 {
            let last = &mut list.entries()[formatted.len as usize - 1].wr;
            last.send_flags |= SIGNALED;
            // SAFETY: the caller promises a live QP; packets and lists move into their slots below,
            // and the QP keeps regions and windows until it is gone.
            let (taken, ret) = list.post(formatted.len, |wr, bad| unsafe { post.call(wr, bad) });
            let entries = &list.entries()[..taken as usize];
            match ret {
                0 => self.until_signal = every,
                _ => self.recount(entries),
            }
            match taken <= transfers {
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
        if sges > 0 {
            // The next post must find each work request at its own entry again.
            list.altered(want);
        }
    }

    /// Removes this many WRITEs and READs from the list. The queue keeps only their flags: the QP
    /// keeps their regions.
    #[inline]
    fn keep_transfers<T: Connected>(&mut self, works: &mut WorkList<T>, taken: u32) {
        works.forget(taken as usize);
        self.mark_listed(self.sequence.next(), taken, true);
        self.listed_kept += taken;
    }

    /// Sets for the `count` slots from a position on whether they hold listed operations.
    #[inline]
    fn mark_listed(&mut self, position: u64, count: u32, are_listed: bool) {
        // Slots wrap at most once, since there are at least as many as can be outstanding.
        let (around, ahead) = self.listed.split_at_mut(self.packets.slot(position));
        let before_the_end = ahead.len().min(count as usize);
        ahead[..before_the_end].fill(are_listed);
        around[..count as usize - before_the_end].fill(are_listed);
    }

    /// Moves the work requests of these entries out of the list: packets into their slots, those of
    /// inline sends back to their pool. Returns the number of inline sends.
    #[inline]
    fn keep_works<T: Connected>(
        &mut self,
        works: &mut WorkList<T>,
        kept: &mut KeptMemory,
        entries: &[WrEntry<ibv_send_wr>],
    ) -> usize {
        let mut inlined = 0;
        for (position, entry) in (self.sequence.next()..).zip(entries) {
            let packet = match works.take_front() {
                Some(Work::Send(packet) | Work::SendWith { packet, .. }) => match entry.wr.send_flags & INLINE {
                    0 => Some(packet),
                    _ => {
                        inlined += 1;
                        drop(packet);
                        None
                    }
                },
                Some(Work::Operation { operation, .. }) => {
                    self.keep_listed(&operation, position, kept);
                    match operation.into_memory() {
                        Some(WorkMemory::List(list)) => {
                            self.keep_op(self.packets.slot(position), Kept::List(list));
                            None
                        }
                        memory => memory.and_then(WorkMemory::into_packet),
                    }
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

    /// Records that an operation was posted at this position.
    #[inline]
    fn keep_listed<T: Connected>(&mut self, operation: &Operation<T>, position: u64, kept: &mut KeptMemory) {
        let slot = self.packets.slot(position);
        self.listed[slot] = true;
        self.listed_kept += 1;
        match *operation {
            Operation::Bind { window, part, .. } => {
                if let Some(bind) = bound(window, part, kept) {
                    self.keep_op(slot, Kept::Bind(bind, Buffer::Empty));
                }
            }
            Operation::Sign { key, .. } => note_configured(key, kept),
            Operation::Respond { key, .. } => note_responded(key, position, kept),
            Operation::Transfer { .. } | Operation::Atomic { .. } | Operation::LocalInvalidate { .. } => {}
        }
    }

    /// Frees every slot up to the completion's. `each` is called for listed operations, oldest
    /// first: with a number of operations that had no memory to return, or with 1 and the
    /// operation's memory; and with whether the completion is this operation's own. Packets of
    /// sends go to `freed`, or to their pool when it is full.
    ///
    /// Operations passed to `each` are done, even if it panics.
    #[inline]
    pub(crate) fn complete_works(
        &mut self,
        completion: &Completion,
        freed: &mut Batch,
        mut each: impl FnMut(u32, Option<WorkMemory>, bool),
    ) -> Result<WorksDone, Stale> {
        let wr_id = completion.wr_id();
        let number = wr_id ^ wr_id::kind_bits(WrKind::Op);
        let age = self.sequence.age(number, self.outstanding).ok_or(Stale { wr_id })?;
        let count = self.outstanding - age;
        // Slots go round without a jump, even where numbers jump to another block.
        let oldest = self.sequence.next().wrapping_sub(self.outstanding.into());
        let mut of_operation = false;
        if self.packets_kept | self.ops_kept == 0 && self.listed_kept == self.outstanding {
            // Only operations without packets.
            self.mark_listed(oldest, count, false);
            (self.listed_kept, self.outstanding) = (age, age);
            if count > 1 {
                each(count - 1, None, false);
            }
            if count > 0 {
                each(1, None, true);
            }
            return Ok(WorksDone { count: count as usize, of_operation: count > 0 });
        }
        for ahead in 0..count {
            let position = oldest.wrapping_add(ahead.into());
            let (slot, own) = (self.packets.slot(position), ahead + 1 == count);
            let mut list = None;
            if self.ops_kept > 0 {
                // Work requests covered by a later completion succeeded; the completion's own has
                // its status.
                list = self.end_op(position, if own { completion.status() } else { Status::SUCCESS });
            }
            let packet = self.packets.at(position).take();
            self.packets_kept -= u32::from(packet.is_some());
            of_operation = self.unlist(slot);
            self.outstanding -= 1;
            if of_operation {
                each(1, packet.map(WorkMemory::Packet).or(list), own);
            } else if let Some(packet) = packet {
                drop(freed.push(packet));
            }
        }
        Ok(WorksDone { count: count as usize, of_operation })
    }

    /// Takes the scatter/gather list of the operation at this position, if it had one.
    #[cold]
    fn end_op(&mut self, position: u64, status: Status) -> Option<WorkMemory> {
        let kept = &mut self.ops[self.packets.slot(position)];
        if let Some(Kept::List(list)) = kept.take_if(|kept| matches!(kept, Kept::List(_))) {
            self.ops_kept -= 1;
            return Some(WorkMemory::List(list));
        }
        drop(self.take_op(position, status));
        None
    }
}
