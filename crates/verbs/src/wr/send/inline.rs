//! The usual case: packets that all go inline, posted alone or as one list, with as few writes as
//! possible.

use verbline_mem::{Batch, Packet};

use super::signal::{for_each_signaled, signal};
use super::{INLINE, SIGNALED, SendQueue};
use crate::wr::post::{PostStop, Unposted};
use crate::wr::post_verb::PostSend;
use crate::wr::wr_list::{LONGEST, WrEntry, WrList, for_each};

impl SendQueue {
    /// Whether [`SendQueue::post_one`] can post this packet: the usual case.
    #[inline(always)]
    pub(crate) fn takes_one(&self, packet: &Packet) -> bool {
        let fits = self.outstanding < self.usual_depth && self.sequence.has_next();
        // One compare for both limits: an empty message has no SGE.
        fits && (packet.len() as u32).wrapping_sub(1) < self.one_inline_bytes
    }

    /// Posts a packet inline. A list of one takes twice as many instructions.
    ///
    /// # Safety
    /// `post` is for the live QP of this send queue, and [`SendQueue::takes_one`] returned true.
    #[inline(always)]
    pub(crate) unsafe fn post_one(&mut self, post: PostSend, packet: Packet) -> Result<(), Unposted> {
        let (addr, len) = packet.span();
        // SAFETY: from here to the end nothing but the device is called.
        let mut list = unsafe { WrList::inline_of_thread() };
        let lone = list.lone();
        (lone.sge.addr, lone.sge.length) = (addr, len as u32);
        lone.wr.wr_id = self.sequence.next();
        self.until_signal -= 1;
        let signaled = self.until_signal == 0;
        if signaled {
            lone.wr.send_flags = INLINE | SIGNALED;
            self.until_signal = self.signal_every;
        }
        // SAFETY: the caller's word; inline data is copied during the call.
        let refusal = list.post_lone(|wr, bad| unsafe { post.call(wr, bad) });
        if signaled {
            list.lone().wr.send_flags = INLINE;
        }
        if let Some((taken, ret)) = refusal {
            return Err(self.one_refused(signaled, packet, taken, ret));
        }
        self.advance(1);
        drop(packet);
        Ok(())
    }

    /// Returns a packet that the device refused to the caller, unless the device took it all the
    /// same.
    #[cold]
    fn one_refused(&mut self, signaled: bool, packet: Packet, taken: u32, ret: i32) -> Unposted {
        let stop = PostStop::of_device(ret);
        if taken == 0 {
            // Restores the value from before the post.
            self.until_signal = if signaled { 1 } else { self.until_signal + 1 };
            return Unposted { packet: Some(packet), stop };
        }
        self.advance(1);
        Unposted { packet: None, stop }
    }

    /// Posts all of the batch inline as one list, in the usual case, and returns how many the
    /// device took and its result. In any other case returns `None` and does nothing.
    ///
    /// # Safety
    /// The contract of [`SendQueue::post_one`].
    #[inline]
    pub(crate) unsafe fn post_all(&mut self, post: PostSend, batch: &mut Batch) -> Option<(u32, i32)> {
        let packets = batch.as_slice();
        let would_be = u64::from(self.outstanding) + packets.len() as u64;
        let fits = would_be <= self.usual_depth.into() && self.sequence.has(packets.len());
        if !fits || !(1..=LONGEST).contains(&packets.len()) {
            return None;
        }
        // SAFETY: from here to the end nothing but the device is called.
        let mut list = unsafe { WrList::inline_of_thread() };
        let entries = list.entries();
        let (inline_bytes, mut wr_id) = (self.one_inline_bytes, self.sequence.next());
        let written = for_each(packets, entries, |packet, WrEntry { sge, wr }| {
            let (addr, len) = packet.span();
            (sge.addr, sge.length) = (addr, len as u32);
            wr.wr_id = wr_id;
            wr_id += 1;
            (len as u32).wrapping_sub(1) < inline_bytes
        });
        if !written {
            return None;
        }
        let (count, first, every) = (packets.len(), self.until_signal, self.signal_every);
        let until_signal = signal(&mut entries[..count], first, every);
        // SAFETY: the caller's word; inline data is copied during the call.
        let (taken, ret) = list.post(count as u32, |wr, bad| unsafe { post.call(wr, bad) });
        self.advance(taken);
        let entries = list.entries();
        if ret == 0 {
            self.until_signal = until_signal;
            batch.clear();
        } else {
            self.recount(&entries[..taken as usize]);
            drop(batch.drain_front(taken as usize));
        }
        for_each_signaled(&mut entries[..count], first, every, |flags| *flags = INLINE);
        Some((taken, ret))
    }
}
