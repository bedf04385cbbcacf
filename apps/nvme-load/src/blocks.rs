//! The blocks of one read or write on the wire: the pattern that identifies them, and behind each
//! block, where the initiator guards it, protection information.

use verbline_nvme::io::ReadWrite;
use verbline_nvme::protection::{Action, Protection, ProtectionType};

use crate::pattern::{self, Stamp};
use crate::settings::Guards;

/// The layout of a command's data on the wire.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Shape {
    /// Bytes of data.
    pub(crate) len: usize,
    /// The base-2 logarithm of the bytes of a namespace's block.
    pub(crate) block_shift: u8,
    /// The protection information of a protected namespace.
    pub(crate) protection: Option<Protection>,
    /// The side that makes and checks protection information.
    pub(crate) guards: Guards,
}

/// The fault of data that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mismatch {
    /// Protection information of another write than the last.
    Protection,
    /// Data of another write than the last.
    Data,
}

impl Shape {
    /// The protection information that the initiator makes and checks.
    fn own(&self) -> Option<Protection> {
        self.protection.filter(|_| self.guards == Guards::Host)
    }

    /// Blocks of a command.
    pub(crate) fn blocks(&self) -> u32 {
        (self.len >> self.block_shift) as u32
    }

    /// Bytes on the wire.
    pub(crate) fn wire_bytes(&self) -> usize {
        self.own().map_or(self.len, |protection| self.blocks() as usize * protection.extended_bytes() as usize)
    }

    /// Dwords 10 to 15 of the command.
    pub(crate) fn dwords(&self, stamp: Stamp) -> [u32; 6] {
        let range = ReadWrite { slba: self.slba(stamp), blocks: self.blocks() };
        match self.action(stamp) {
            Some(action) => action.put(range.dwords()),
            None => range.dwords(),
        }
    }

    fn slba(&self, stamp: Stamp) -> u64 {
        stamp.place * u64::from(self.blocks())
    }

    /// The protection action of the command: everything is checked. The application tag varies by
    /// write, so that it tells an old block from the last.
    fn action(&self, stamp: Stamp) -> Option<Action> {
        let kind = self.protection?.kind;
        Some(Action {
            pract: self.guards == Guards::Target,
            checks_guard: true,
            checks_app_tag: true,
            checks_ref_tag: kind != ProtectionType::Type3,
            ref_tag: self.slba(stamp) as u32,
            // Never all ones, which would turn the checks off.
            app_tag: (stamp.generation % u32::from(u16::MAX)) as u16,
            app_mask: u16::MAX,
        })
    }

    /// Fills a command's bytes on the wire.
    pub(crate) fn fill(&self, stamp: Stamp, bytes: &mut [u8]) {
        pattern::write(stamp, &mut bytes[..self.len]);
        if let Some((protection, action)) = self.own().zip(self.action(stamp)) {
            protection.insert(action, 0, bytes);
        }
    }

    /// Checks that the bytes read are of the last write. Moves the data within `bytes`.
    pub(crate) fn verify(&self, stamp: Stamp, bytes: &mut [u8]) -> Result<(), Mismatch> {
        if let Some((protection, action)) = self.own().zip(self.action(stamp)) {
            protection.check(action, 0, bytes).map_err(|_| Mismatch::Protection)?;
            protection.strip(bytes);
        }
        if pattern::read(&bytes[..self.len]) == Some(stamp) { Ok(()) } else { Err(Mismatch::Data) }
    }

    /// Whether the initiator checks what it reads.
    pub(crate) fn is_guarded(&self) -> bool {
        self.own().is_some()
    }
}

#[cfg(test)]
mod tests {
    use verbline_nvme::{Command, Sgl, opcode};

    use super::*;

    fn shape(kind: ProtectionType, guards: Guards) -> Shape {
        Shape { len: 2048, block_shift: 9, protection: Some(Protection { kind, block_bytes: 512 }), guards }
    }

    /// Every byte is checked, and each write has other tags, except the reference tag of type 3,
    /// which can't be checked.
    #[test]
    fn every_byte_of_what_is_read_counts() {
        let stamp = Stamp { place: 7, writer: 3, generation: 9 };
        for kind in [ProtectionType::Type1, ProtectionType::Type2, ProtectionType::Type3] {
            let shape = shape(kind, Guards::Host);
            let mut block = vec![0; shape.wire_bytes()];
            assert_eq!((block.len(), shape.blocks()), (4 * 520, 4));
            shape.fill(stamp, &mut block);
            assert_eq!(shape.verify(stamp, &mut block.clone()), Ok(()));
            for at in 0..block.len() {
                let mut changed = block.clone();
                changed[at] ^= 0x10;
                let is_unchecked = kind == ProtectionType::Type3 && at % 520 >= 516;
                let wanted = if is_unchecked { Ok(()) } else { Err(Mismatch::Protection) };
                assert_eq!(shape.verify(stamp, &mut changed), wanted, "{kind:?}, byte {at}");
            }
            let later = Stamp { generation: 10, ..stamp };
            assert_eq!(shape.verify(later, &mut block.clone()), Err(Mismatch::Protection), "another write's tags");
            let elsewhere = Stamp { place: 8, ..stamp };
            assert!(shape.verify(elsewhere, &mut block.clone()).is_err(), "another block");
            // The same application tag again, 65,535 writes later: the data differs.
            let again = Stamp { generation: 9 + 65_535, ..stamp };
            assert_eq!(shape.verify(again, &mut block), Err(Mismatch::Data));
        }
    }

    #[test]
    fn commands_say_who_guards_blocks() {
        let stamp = Stamp { place: 1 << 30, writer: 3, generation: 65_535 };
        let of = |shape: Shape| Action::of(&Command::new(opcode::io::READ, 0, Sgl::NONE).with(shape.dwords(stamp)));
        let host = of(shape(ProtectionType::Type1, Guards::Host));
        assert!(!host.pract && host.checks_guard && host.checks_app_tag && host.checks_ref_tag, "{host:?}");
        assert_eq!((host.ref_tag, host.app_tag, host.app_mask), (0, 0, u16::MAX), "the low bits of 2^32");
        let target = shape(ProtectionType::Type3, Guards::Target);
        assert!(of(target).pract && !of(target).checks_ref_tag);
        assert_eq!((target.wire_bytes(), target.is_guarded()), (2048, false));
        assert_eq!(of(Shape { protection: None, guards: Guards::None, ..target }), Action::default());
    }
}
