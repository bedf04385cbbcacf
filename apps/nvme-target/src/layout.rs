//! The layout of a namespace's blocks in its store, and their protection information on the way
//! between store and wire.
//!
//! Protection information lies behind each block's data. In memory it is as on the wire; in a file
//! its bits are inverted. So a file of zeros, or a hole in one, reads as the specification wants of
//! blocks that were never written or were deallocated: data of zeros, behind it protection
//! information of ones, which is not checked. Memory is written with these values at start.

use verbline::engine::signature::{BlockSignature, BlockSize, Domain, Escape, Mask, Seed, T10Dif, T10Guard};
use verbline::mem::Packet;
use verbline_nvme::protection::{Action, Protection, ProtectionType, Tuple, Wrong};
use verbline_nvme::{Command, Status};
use verbline_store::{BlockMemory, Fault};

/// The layout of blocks in a store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    /// The base-2 logarithm of the bytes of a block's data.
    pub(crate) block_shift: u32,
    pub(crate) protected: Option<Protected>,
}

/// Protection information, and its layout in the store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Protected {
    pub(crate) format: Protection,
    is_inverted: bool,
}

impl Layout {
    /// The layout of blocks with `block_bytes` of data, a power of two, in a file or in memory.
    pub(crate) fn new(block_bytes: u32, kind: Option<ProtectionType>, is_file: bool) -> Layout {
        let protected = |kind| Protected { format: Protection { kind, block_bytes }, is_inverted: is_file };
        Layout { block_shift: block_bytes.trailing_zeros(), protected: kind.map(protected) }
    }

    /// Bytes of a block in the store.
    pub(crate) fn stored_bytes(&self) -> u32 {
        self.protected.map_or(1 << self.block_shift, |protected| protected.format.extended_bytes())
    }

    /// The number of blocks that fit a packet of `bytes`, at least one.
    pub(crate) fn blocks_in(&self, bytes: u32) -> u32 {
        (bytes / self.stored_bytes()).max(1)
    }

    /// The bytes that `blocks` of a command take on the wire.
    pub(crate) fn wire_bytes(&self, command: &Command, blocks: u32) -> u64 {
        match &self.protected {
            Some(protected) => protected.format.wire_bytes(Action::of(command), blocks),
            None => u64::from(blocks) << self.block_shift,
        }
    }

    /// Whether blocks travel unchanged from store to wire, and unchecked.
    #[inline]
    pub(crate) fn is_plain(&self, command: &Command) -> bool {
        self.protected.is_none_or(|protected| !protected.is_inverted && Action::is_none(command))
    }

    /// Writes the content of blocks that were never written to memory, unless it is zeros alone.
    pub(crate) fn format(&self, memory: &impl BlockMemory) -> Result<(), Fault> {
        let Some(Protected { format, is_inverted: false }) = self.protected else { return Ok(()) };
        let extended = format.extended_bytes() as usize;
        let firsts = (0..memory.len_bytes() / extended).map(|block| block * extended);
        firsts.into_iter().try_for_each(|first| {
            memory.write_from(first + format.block_bytes as usize, &Tuple::DEALLOCATED.to_bytes())
        })
    }
}

impl Protected {
    /// The device's part in sending the blocks of a Read; `None` if the device can't do it: other
    /// block sizes, or checks of single bits of the application tag.
    pub(crate) fn signature(&self, command: &Command) -> Option<BlockSignature> {
        let size = match self.format.block_bytes {
            512 => BlockSize::B512,
            4096 => BlockSize::B4096,
            _ => return None,
        };
        let action = Action::of(command);
        let app_mask = match action.app_mask {
            _ if !action.checks_app_tag => Mask::NONE,
            u16::MAX => Mask::APP_TAG,
            0 => Mask::NONE,
            _ => return None,
        };
        if self.is_inverted {
            return None;
        }
        let is_third = self.format.kind == ProtectionType::Type3;
        let dif = T10Dif {
            guard: T10Guard::Crc,
            seed: Seed::Zeros,
            app_tag: action.app_tag,
            ref_tag: action.ref_tag,
            ref_increments: !is_third,
            escape: if is_third { Escape::AppAndRefTag } else { Escape::AppTag },
        };
        let of = |checks: bool, mask: Mask| if checks { mask } else { Mask::NONE };
        let check = of(action.checks_guard, Mask::GUARD).and(app_mask).and(of(action.checks_ref_tag, Mask::REF_TAG));
        let domain = Domain::T10Dif(size, dif);
        let signature = match action.pract {
            true => BlockSignature::in_memory(domain),
            // Protection information is copied along unchanged.
            false => BlockSignature::on_both(domain, domain).copying(Mask::ALL).ok()?,
        };
        Some(signature.checking(check))
    }

    /// Prepares a Write's data for the store: checks the host's protection information, or inserts
    /// it. The packet holds `blocks` blocks of the command, beginning with its block `first`.
    pub(crate) fn bring_in(
        &self,
        command: &Command,
        (first, blocks): (u32, u32),
        packet: &mut Packet,
    ) -> Result<(), Wrong> {
        let action = Action::of(command);
        if action.pract {
            if !packet.set_len(blocks as usize * self.format.extended_bytes() as usize) {
                // A piece is no longer than a packet of the stage's pool, with protection
                // information.
                return Err(Wrong { index: first, status: Status::INTERNAL_ERROR });
            }
            self.format.insert(action, first, packet.data_mut());
        } else {
            self.format.check(action, first, packet.data())?;
        }
        self.turn(packet.data_mut());
        Ok(())
    }

    /// Brings blocks from the store into their layout on the wire, and checks them. `first` is the
    /// number in the command of the first of them.
    pub(crate) fn take_out(&self, command: &Command, first: u32, packet: &mut Packet) -> Result<(), Wrong> {
        self.turn(packet.data_mut());
        self.format.check(Action::of(command), first, packet.data())
    }

    /// Removes the protection information that a Read does not send, after
    /// [`take_out`](Self::take_out).
    pub(crate) fn strip(&self, command: &Command, packet: &mut Packet) {
        if Action::of(command).pract {
            let len = self.format.strip(packet.data_mut());
            let is_shorter = packet.set_len(len);
            debug_assert!(is_shorter, "data is shorter than with what lies behind it");
        }
    }

    /// Fills the packet with blocks of zeros, as they lie in the store.
    pub(crate) fn zero(&self, command: &Command, first: u32, packet: &mut Packet) {
        let action = Action::of(command);
        packet.data_mut().fill(0);
        if action.pract {
            self.format.insert(action, first, packet.data_mut());
        }
        self.turn(packet.data_mut());
    }

    /// Converts between the layout on the wire and that in the store, in either direction.
    fn turn(&self, blocks: &mut [u8]) {
        if self.is_inverted {
            self.format.behind(blocks).for_each(|behind| behind.iter_mut().for_each(|byte| *byte = !*byte));
        }
    }
}
