//! Writing of listed work requests: their fields, and the addresses of their bytes.
//!
//! The most frequent ones, a WRITE or a READ of a part of a region, have a short path of their own.
//! All others are written whole ([`Request`]).

use rdma_sys::{ibv_send_wr, ibv_sge, ibv_wr_opcode};
use verbline_mem::Packet;

use super::named::{bind_of, check_blocks, note_listed};
use super::{FENCE, INLINE, SendQueue, flags_of};
use crate::signature::LISTED;
use crate::wr::buffer::NO_BYTES;
use crate::wr::connected::Connected;
use crate::wr::kept::{KeptMemory, KeptRegion};
use crate::wr::local::{Local, Part, Word};
use crate::wr::operation::{Operation, Transfer};
use crate::wr::post::PostStop;
use crate::wr::request::{Request, rdma};
use crate::wr::sg_list::{SgList, packet_sge};
use crate::wr::wr_list::WrEntry;
use crate::wr::wr_queue::Work;

/// A work request without its options: its operation, its bytes, and the flags that these need.
type Form = (Request, ibv_sge, u32);

impl SendQueue {
    /// Writes a work request of the most frequent kind, except its number and its signal: a WRITE
    /// or a READ between a part of a region and the peer. Returns whether a completion was
    /// requested; `None` for other kinds.
    #[inline(always)]
    pub(super) fn format_transfer<T: Connected>(
        &self,
        work: &Work<T>,
        kept: &KeptMemory,
        known: &mut KnownRegion,
        WrEntry { sge, wr }: &mut WrEntry<ibv_send_wr>,
    ) -> Option<bool> {
        let Work::Operation { operation, options } = work else { return None };
        let Operation::Transfer { transfer, local: Local::Part(part) } = operation else { return None };
        let (opcode, remote) = match transfer {
            Transfer::Write { to } => (ibv_wr_opcode::IBV_WR_RDMA_WRITE, to),
            Transfer::Read { from, .. } => (ibv_wr_opcode::IBV_WR_RDMA_READ, from),
            _ => return None,
        };
        *sge = known.part(*part, self.max_message_bytes, kept)?;
        // All fields that these two opcodes read.
        wr.opcode = opcode;
        wr.num_sge = (sge.length > 0).into();
        wr.send_flags = flags_of(options.solicited, options.fence.into());
        wr.wr.rdma = rdma(*remote);
        Some(options.signaled)
    }

    /// Writes all of a work request but its number and its signal. The work requests in front of it
    /// have used `sges` of the queue's entries. An error is the reason why it cannot be posted;
    /// without a reason, it can be posted after this post.
    #[inline(never)]
    pub(super) fn format_work<T: Connected>(
        &mut self,
        work: &Work<T>,
        kept: &mut KeptMemory,
        sges: &mut usize,
        entry: &mut WrEntry<ibv_send_wr>,
    ) -> Result<(), Option<PostStop>> {
        let list = work.list();
        if list.is_some_and(|list| !self.has_places(list, *sges)) {
            return Err(None);
        }
        self.format_whole(work, kept, entry).map_err(|stop| (stop != PostStop::NotKey(LISTED)).then_some(stop))?;
        if let Some(list) = list {
            *sges = self.write_list(list, *sges, &mut entry.wr);
        }
        Ok(())
    }

    /// Writes the same fields, except the entries of a scatter/gather list.
    fn format_whole<T: Connected>(
        &self,
        work: &Work<T>,
        kept: &mut KeptMemory,
        WrEntry { sge, wr }: &mut WrEntry<ibv_send_wr>,
    ) -> Result<(), PostStop> {
        let (request, part, flags) = match work {
            Work::Send(packet) => {
                let (part, inline) = self.part_of_packet(packet, true)?;
                (Request::Transfer(Transfer::Send), part, inline | self.solicited)
            }
            Work::SendWith { packet, options } => {
                let (part, inline) = self.part_of_packet(packet, !options.comes_back)?;
                let flags = flags_of(options.solicited, options.fence.into());
                (Request::Transfer(Transfer::send(options.imm)), part, inline | flags | self.solicited)
            }
            Work::Operation { operation, options } => {
                let (request, part, flags) = self.form(operation, kept)?;
                (request, part, flags | flags_of(options.solicited, options.fence.into()))
            }
        };
        *sge = part;
        // An SGE of length 0 means 2^31 bytes.
        request.write(flags, (part.length > 0).into(), wr);
        Ok(())
    }

    fn form<T: Connected>(&self, operation: &Operation<T>, kept: &mut KeptMemory) -> Result<Form, PostStop> {
        match *operation {
            Operation::Transfer { transfer, ref local } => {
                let (part, inline) = self.part_of(local, transfer.sends(), kept)?;
                let solicited = if transfer.is_received() { self.solicited } else { 0 };
                Ok((Request::Transfer(transfer.on_rc()), part, inline | solicited))
            }
            Operation::Atomic { atomic, ref into, .. } => {
                Ok((Request::Atomic(atomic), self.part_of_word(into, kept)?, 0))
            }
            Operation::Respond { key, invalidate, ref local, .. } => {
                check_blocks(key, kept)?;
                let (part, inline) = self.part_of(local, true, kept)?;
                note_listed(key, kept);
                let transfer = match invalidate {
                    Some(rkey) => Transfer::SendWithInvalidate { rkey },
                    None => Transfer::Send,
                };
                Ok((Request::Transfer(transfer), part, inline | FENCE | self.solicited))
            }
            Operation::LocalInvalidate { rkey } => Ok((Request::LocalInvalidate { rkey }, NO_BYTES, 0)),
            Operation::Bind { window, part, access } => {
                Ok((Request::Bind(bind_of(window, part, access, kept)?), NO_BYTES, 0))
            }
            Operation::Sign { key, part, ref blocks, .. } => {
                let part = self.part_of_region(part, kept)?;
                Ok((Request::Configure, self.configuration(key, part, blocks, kept)?, INLINE))
            }
        }
    }

    /// The bytes of a transfer, and its inline flag; `sends` means that they go to the peer.
    #[inline]
    fn part_of<T: Connected>(
        &self,
        local: &Local<T>,
        sends: bool,
        kept: &mut KeptMemory,
    ) -> Result<(ibv_sge, u32), PostStop> {
        match local {
            Local::Empty => Ok((NO_BYTES, 0)),
            Local::Packet(packet) => self.part_of_packet(packet, sends),
            Local::Part(part) => Ok((self.part_of_region(*part, kept)?, 0)),
            // Its entries are written after the rest of the work request.
            Local::List(list) => self.check_list(list).map(|()| (NO_BYTES, 0)),
            Local::Key(part, _) => Ok((self.part_of_key(*part, kept)?, 0)),
        }
    }

    /// Checks that a work request can have this list.
    fn check_list(&self, list: &SgList) -> Result<(), PostStop> {
        let (sges, max_sge) = (list.sges(), self.max_sge);
        if sges > max_sge as usize {
            return Err(PostStop::TooManySges { sges, max_sge });
        }
        let (len_bytes, max_bytes) = (list.len_bytes(), self.max_message_bytes);
        if len_bytes > max_bytes as usize {
            return Err(PostStop::TooLong { len_bytes, max_bytes });
        }
        match list.foreign_pd(self.pd_id) {
            Some(packet_pd) => Err(PostStop::NotRegistered { packet_pd, qp_pd: self.pd_id }),
            None => Ok(()),
        }
    }

    /// Whether the entries behind the first `used` suffice for the list, or are all that exist.
    fn has_places(&self, list: &SgList, used: usize) -> bool {
        used == 0 || list.sges() <= self.sges.len() - used
    }

    /// Writes the entries of a list behind the first `used`, and into the work request; returns how
    /// many are used then. The list was checked, and there is space for it. If the result is larger
    /// than `used`, the work request must be restored after the post
    /// ([`crate::wr::wr_list::WrList::altered`]).
    fn write_list(&mut self, list: &SgList, used: usize, wr: &mut ibv_send_wr) -> usize {
        let places = &mut self.sges[used..];
        let count = list.write_sges(places);
        if count > 0 {
            (wr.sg_list, wr.num_sge) = (places.as_mut_ptr(), count as i32);
        }
        used + count
    }

    fn part_of_word(&self, into: &Word, kept: &KeptMemory) -> Result<ibv_sge, PostStop> {
        let part = match into {
            Word::Packet(packet) => self.part_of_packet(packet, false)?.0,
            Word::Part(part) => self.part_of_region(*part, kept)?,
        };
        if part.length == 8 { Ok(part) } else { Err(PostStop::NotEightBytes(part.length as usize)) }
    }

    /// The bytes of a packet, inline if possible and short enough.
    #[inline]
    fn part_of_packet(&self, packet: &Packet, sends: bool) -> Result<(ibv_sge, u32), PostStop> {
        let len_bytes = packet.len();
        if len_bytes > self.max_message_bytes as usize {
            return Err(PostStop::TooLong { len_bytes, max_bytes: self.max_message_bytes });
        }
        if sends && len_bytes.wrapping_sub(1) < self.inline_bytes as usize {
            return Ok((packet_sge(packet), INLINE));
        }
        // An empty packet has no SGE, and so no key (`num_sge` in ibv_post_send(3)).
        if packet.pd_id() != self.pd_id && len_bytes > 0 {
            return Err(PostStop::NotRegistered { packet_pd: packet.pd_id(), qp_pd: self.pd_id });
        }
        Ok((packet_sge(packet), 0))
    }

    #[inline]
    fn part_of_region(&self, part: Part, kept: &KeptMemory) -> Result<ibv_sge, PostStop> {
        let region = kept.region(part.region).ok_or(PostStop::NotKept("there is none"))?;
        let addr = region.addr_of(part.span).ok_or(PostStop::NotKept("the part leaves its region"))?;
        let max_bytes = self.max_message_bytes;
        let length = part.span.message_len(max_bytes);
        let length = length.ok_or(PostStop::TooLong { len_bytes: part.span.len_bytes() as usize, max_bytes })?;
        Ok(ibv_sge { addr, length, lkey: region.lkey() })
    }
}

/// The last region looked up: the parts of a list are mostly of one region.
#[derive(Default)]
pub(super) struct KnownRegion {
    region: Option<KeptRegion>,
    addr: u64,
    len_bytes: u64,
    lkey: u32,
}

impl KnownRegion {
    /// The SGE of the part, if it lies within its region and a message can be so long. The QP keeps
    /// the region, so that its keys stay.
    #[inline(always)]
    fn part(&mut self, part: Part, max_bytes: u32, kept: &KeptMemory) -> Option<ibv_sge> {
        if self.region != Some(part.region) {
            let region = kept.region(part.region)?;
            let (addr, len_bytes) = region.span();
            *self = KnownRegion { region: Some(part.region), addr, len_bytes, lkey: region.lkey() };
        }
        let length = part.span.message_len(max_bytes)?;
        let (offset, addr) = (part.span.offset(), self.addr.wrapping_add(part.span.offset()));
        (offset + u64::from(length) <= self.len_bytes).then_some(ibv_sge { addr, length, lkey: self.lkey })
    }
}
