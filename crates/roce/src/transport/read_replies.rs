//! The last READs and atomics that a responder received: those to be answered, and those kept so
//! that they can be answered again.
//!
//! Guarantees: answers leave in the order of the requests. A repeated atomic is not carried out
//! again. A repeated READ is answered from the memory's present contents, and by no more bytes than
//! the original.

use crate::wire::{AtomicExtension, Psn, Reth};
use std::collections::VecDeque;

/// The request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    Read {
        reth: Reth,
        /// The number of its packets.
        packets: u32,
        /// The packets of the present answer: the first, and the one behind the last.
        range: (u32, u32),
        /// The next packet of the answer.
        next: u32,
        /// The offset in the READ's data at which the answer ends.
        until: u32,
    },
    Atomic {
        extension: AtomicExtension,
        original: u64,
    },
}

#[derive(Clone, Copy, Debug)]
struct KeptReply {
    psn: Psn,
    asked: Asked,
    /// An answer is to be sent.
    is_pending: bool,
    /// It has never been answered in full.
    is_new: bool,
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct ReadReplies {
    entries: VecDeque<KeptReply>,
    pending: usize,
}

/// The most requests that any responder keeps, as on cards.
pub(crate) const READS_MAX: u8 = 16;

/// The peer has more READs and atomics under way than allowed.
pub(crate) struct TooMany;

/// One packet of an answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reply {
    pub(crate) psn: Psn,
    pub(crate) part: Part,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Part {
    Data { addr: u64, rkey: u32, len: usize, is_first: bool, is_last: bool },
    Original(u64),
}

impl Asked {
    /// A READ whose answer has that many packets.
    pub(crate) fn read(reth: Reth, packets: u32) -> Asked {
        Asked::Read { reth, packets, range: (0, packets), next: 0, until: reth.len }
    }
}

impl ReadReplies {
    pub(crate) fn new() -> ReadReplies {
        ReadReplies { entries: VecDeque::with_capacity(usize::from(READS_MAX)), pending: 0 }
    }

    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        self.pending = 0;
    }

    /// Whether [`add`](Self::add) would take another.
    pub(crate) fn has_room(&self, limit: u8) -> bool {
        let limit = usize::from(limit.min(READS_MAX));
        // Requests never answered in full are at the end. There are more than the limit if it was
        // lowered.
        let last_to_go = self.entries.len().checked_sub(limit);
        last_to_go.is_none_or(|at| self.entries.get(at).is_some_and(|entry| !entry.is_new))
    }

    /// Adds a new request; `limit`: the most under way.
    pub(crate) fn add(&mut self, limit: u8, psn: Psn, asked: Asked) -> Result<(), TooMany> {
        while self.entries.len() >= usize::from(limit.min(READS_MAX)) {
            let oldest = self.entries.front().ok_or(TooMany)?;
            // A repeated answer that still waits is of no use to the peer any longer.
            if oldest.is_new {
                return Err(TooMany);
            }
            self.pending -= usize::from(oldest.is_pending);
            self.entries.pop_front();
        }
        self.entries.push_back(KeptReply { psn, asked, is_pending: true, is_new: true });
        self.pending += 1;
        Ok(())
    }

    /// Handles a repeated READ, perhaps of a part from one of its packets on. Returns whether it is
    /// a kept one. Numbers repeat after 2^24 packets: of two READs with a number, the later is
    /// meant.
    pub(crate) fn read_again(&mut self, psn: Psn, mtu: u32, again: &Reth) -> bool {
        let found = self.entries.iter_mut().rev().find_map(|entry| {
            let Asked::Read { reth, packets, .. } = entry.asked else { return None };
            let at = u32::try_from(psn.ahead_of(entry.psn)).ok().filter(|at| *at < packets)?;
            Some((entry, reth, packets, at))
        });
        let Some((entry, reth, packets, at)) = found else { return false };
        let skipped = at * mtu;
        let rest = Reth { addr: reth.addr.wrapping_add(u64::from(skipped)), len: reth.len - skipped, ..reth };
        if (again.addr, again.rkey) != (rest.addr, rest.rkey) || again.len > rest.len {
            return false;
        }
        let range = (at, at + again.len.div_ceil(mtu).max(1));
        entry.asked = Asked::Read { reth, packets, range, next: at, until: skipped + again.len };
        self.pending += usize::from(!entry.is_pending);
        entry.is_pending = true;
        true
    }

    /// Handles a repeated atomic. Returns whether it is a kept one.
    pub(crate) fn atomic_again(&mut self, psn: Psn, again: &AtomicExtension) -> bool {
        let same = |entry: &&mut KeptReply| {
            entry.psn == psn && matches!(entry.asked, Asked::Atomic { extension, .. } if extension == *again)
        };
        let Some(entry) = self.entries.iter_mut().rev().find(same) else { return false };
        self.pending += usize::from(!entry.is_pending);
        entry.is_pending = true;
        true
    }

    /// The next packet of the answers; it stays the next one until it is [sent](Self::sent).
    pub(crate) fn next(&self, mtu: u32) -> Option<Reply> {
        if self.pending == 0 {
            return None;
        }
        let entry = self.entries.iter().find(|entry| entry.is_pending)?;
        Some(match entry.asked {
            Asked::Read { reth, range: (begin, end), next, until, .. } => {
                let offset = next * mtu;
                let part = Part::Data {
                    addr: reth.addr.wrapping_add(u64::from(offset)),
                    rkey: reth.rkey,
                    len: (until - offset).min(mtu) as usize,
                    is_first: next == begin,
                    is_last: next + 1 == end,
                };
                Reply { psn: entry.psn.plus(next), part }
            }
            Asked::Atomic { original, .. } => Reply { psn: entry.psn, part: Part::Original(original) },
        })
    }

    /// Records that the packet of [`next`](Self::next) was sent.
    pub(crate) fn sent(&mut self) {
        let Some(entry) = self.entries.iter_mut().find(|entry| entry.is_pending) else { return };
        let is_over = match &mut entry.asked {
            Asked::Read { range: (_, end), next, .. } => {
                *next += 1;
                next == end
            }
            Asked::Atomic { .. } => true,
        };
        if is_over {
            (entry.is_pending, entry.is_new) = (false, false);
            self.pending -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::AtomicOp;

    /// Regression: numbers repeat after 2^24 packets, and a repeated READ is the last one with its
    /// number, not an old one that is still kept.
    #[test]
    fn of_two_with_one_number_the_later_is_answered_again() {
        let (psn, mut kept) = (Psn::new(7), ReadReplies::new());
        let answered = |kept: &mut ReadReplies| {
            let answered = kept.next(256).map(|reply| reply.part);
            kept.sent();
            answered
        };
        let add = |kept: &mut ReadReplies, asked| {
            assert!(kept.add(READS_MAX, psn, asked).is_ok());
            answered(kept)
        };
        let extension = AtomicExtension { addr: 8, rkey: 1, op: AtomicOp::FetchAdd(1) };
        for original in [5, 6] {
            add(&mut kept, Asked::Atomic { extension, original });
        }
        assert!(kept.atomic_again(psn, &extension));
        assert!(matches!(answered(&mut kept), Some(Part::Original(6))));
        let reads = [1, 2].map(|rkey| Reth { addr: 0, rkey, len: 9 });
        for reth in reads {
            add(&mut kept, Asked::read(reth, 1));
        }
        assert!(kept.read_again(psn, 256, &reads[1]) && !kept.read_again(psn, 256, &reads[0]));
        assert!(matches!(answered(&mut kept), Some(Part::Data { rkey: 2, .. })));
    }
}
