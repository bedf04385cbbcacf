//! Protection information: inserted fields pass every check, changed ones fail the check that the
//! specification names, and forbidden requests are refused.

use proptest::prelude::*;
use verbline_nvme::io::ReadWrite;
use verbline_nvme::protection::{Action, Protection, ProtectionType, Tuple, Wrong, guard};
use verbline_nvme::{COMMAND_BYTES, Command, Sgl, Status, opcode};

const ALL: Action = Action {
    pract: false,
    checks_guard: true,
    checks_app_tag: true,
    checks_ref_tag: true,
    ref_tag: 0,
    app_tag: 0,
    app_mask: u16::MAX,
};

fn kinds() -> impl Strategy<Value = ProtectionType> {
    prop_oneof![Just(ProtectionType::Type1), Just(ProtectionType::Type2), Just(ProtectionType::Type3)]
}

fn actions() -> impl Strategy<Value = Action> {
    let tag = prop_oneof![Just(0), Just(u16::MAX), any::<u16>()];
    let numbers = (prop_oneof![0..3_u32, u32::MAX - 3..=u32::MAX, any::<u32>()], tag, any::<u16>());
    (any::<[bool; 4]>(), numbers).prop_map(|(set, (ref_tag, app_tag, app_mask))| {
        let [pract, checks_guard, checks_app_tag, checks_ref_tag] = set;
        Action { pract, checks_guard, checks_app_tag, checks_ref_tag, ref_tag, app_tag, app_mask }
    })
}

/// The data of blocks, and room for their protection information.
fn room(protection: Protection, data: &[u8]) -> Vec<u8> {
    let blocks = data.len() / protection.block_bytes as usize;
    let mut bytes = data.to_vec();
    bytes.resize(blocks * protection.extended_bytes() as usize, 0xEE);
    bytes
}

/// CRC-16/T10-DIF by its definition, a bit at a time.
fn guard_by_definition(data: &[u8]) -> u16 {
    data.iter().flat_map(|byte| (0..8).rev().map(move |at| u16::from(byte >> at & 1))).fold(0, |register, bit| {
        let is_out = (register >> 15) ^ bit == 1;
        register << 1 ^ if is_out { 0x8BB7 } else { 0 }
    })
}

/// The first fault of a block, in the order of the specification.
fn wrong_by_definition(kind: ProtectionType, action: Action, index: u32, data: &[u8], tuple: Tuple) -> Option<Status> {
    let is_escape = match kind {
        ProtectionType::Type1 | ProtectionType::Type2 => tuple.app_tag == 0xFFFF,
        ProtectionType::Type3 => tuple.app_tag == 0xFFFF && tuple.ref_tag == 0xFFFF_FFFF,
    };
    let step = if kind == ProtectionType::Type3 { 0 } else { index };
    let checks = [
        (action.checks_guard, tuple.guard != guard_by_definition(data), Status::GUARD_CHECK_ERROR),
        (
            action.checks_app_tag,
            tuple.app_tag & action.app_mask != action.app_tag & action.app_mask,
            Status::APPLICATION_TAG_CHECK_ERROR,
        ),
        (action.checks_ref_tag, tuple.ref_tag != action.ref_tag.wrapping_add(step), Status::REFERENCE_TAG_CHECK_ERROR),
    ];
    checks.into_iter().find(|(asked, wrong, _)| *asked && *wrong && !is_escape).map(|(_, _, status)| status)
}

proptest! {
    /// Inserted fields pass every check, and stripping them leaves the original data.
    #[test]
    fn what_is_inserted_is_right(
        kind in kinds(), action in actions(), block_bytes in prop_oneof![Just(512_u32), Just(4096)], blocks in 1..5_u32,
        first in 0..9_u32, seed in any::<u8>(),
    ) {
        let protection = Protection { kind, block_bytes };
        let data: Vec<u8> = (0..blocks * block_bytes).map(|at| (at / 7) as u8 ^ seed).collect();
        let mut bytes = room(protection, &data);
        protection.insert(action, first, &mut bytes);
        let [plain, extended] = [block_bytes as usize, block_bytes as usize + 8];
        for (index, (block, whole)) in (first..).zip(data.chunks(plain).zip(bytes.chunks(extended))) {
            let step = if kind == ProtectionType::Type3 { 0 } else { index };
            let ref_tag = action.ref_tag.wrapping_add(step);
            let tuple = Tuple { guard: guard_by_definition(block), app_tag: action.app_tag, ref_tag };
            prop_assert_eq!((&whole[..block.len()], Tuple::read(&whole[block.len()..])), (block, tuple));
        }
        let all = Action { ref_tag: action.ref_tag, app_tag: action.app_tag, ..ALL };
        prop_assert_eq!(protection.check(all, first, &bytes), Ok(()));
        prop_assert!(protection.data(&bytes).eq(data.chunks(block_bytes as usize)));
        prop_assert_eq!(protection.strip(&mut bytes), data.len());
        prop_assert_eq!(&bytes[..data.len()], &data[..]);
    }

    /// The first faulty block is found, with its first fault.
    #[test]
    fn the_first_wrong_block_is_found(
        kind in kinds(), action in actions(),
        blocks in prop::collection::vec((any::<[bool; 4]>(), any::<(u16, u16, u32)>()), 1..5),
        data in prop::collection::vec(any::<u8>(), 512),
    ) {
        let protection = Protection { kind, block_bytes: 512 };
        let mut wanted = Ok(());
        let mut bytes = Vec::new();
        for (index, ([is_right, has_tag, has_ref, is_escape], (guard, app_tag, ref_tag))) in (0..).zip(blocks) {
            let step = if kind == ProtectionType::Type3 { 0 } else { index };
            let other_ref = if is_escape { u32::MAX } else { ref_tag };
            let tuple = Tuple {
                guard: if is_right { guard_by_definition(&data) } else { guard },
                app_tag: if is_escape { u16::MAX } else if has_tag { action.app_tag } else { app_tag },
                ref_tag: if has_ref { action.ref_tag.wrapping_add(step) } else { other_ref },
            };
            prop_assert_eq!(Tuple::read(&tuple.to_bytes()), tuple);
            bytes.extend([&data[..], &tuple.to_bytes()].concat());
            if let (Ok(()), Some(status)) = (wanted, wrong_by_definition(kind, action, index, &data, tuple)) {
                wanted = Err(Wrong { index, status });
            }
        }
        prop_assert_eq!(protection.check(action, 0, &bytes), wanted);
    }

    /// No bit of a block may change.
    #[test]
    fn every_bit_of_a_block_is_guarded(bit in 0..(4096 + 8) * 8_usize, kind in kinds()) {
        let protection = Protection { kind, block_bytes: 4096 };
        let data: Vec<u8> = (0..4096_u32).map(|at| (at % 251) as u8).collect();
        let mut bytes = room(protection, &data);
        let action = Action { ref_tag: 7, app_tag: 9, ..ALL };
        protection.insert(action, 0, &mut bytes);
        bytes[bit / 8] ^= 1 << (bit % 8);
        let status = match bit / 8 {
            0..4098 => Status::GUARD_CHECK_ERROR,
            4098..4100 => Status::APPLICATION_TAG_CHECK_ERROR,
            _ => Status::REFERENCE_TAG_CHECK_ERROR,
        };
        prop_assert_eq!(protection.check(action, 0, &bytes), Err(Wrong { index: 0, status }));
    }

    #[test]
    fn an_action_is_read_as_it_was_written(action in actions(), cdw10 in any::<[u32; 6]>()) {
        let command = Command::new(opcode::io::READ, 0, Sgl::NONE).with(action.put(cdw10));
        prop_assert_eq!(Action::of(&command), action);
        prop_assert_eq!(ReadWrite::of(&command), ReadWrite::of(&command.with(cdw10)), "nothing else is touched");
        let [pract, guard, app, reference] =
            [action.pract, action.checks_guard, action.checks_app_tag, action.checks_ref_tag];
        prop_assert_eq!(Action::is_none(&command), !(pract || guard || app || reference));
    }
}

/// Block numbers wrap around, like reference tags: nothing panics.
#[test]
fn the_last_numbers_of_blocks_are_checked() {
    let protection = Protection { kind: ProtectionType::Type2, block_bytes: 512 };
    let mut bytes = room(protection, &[5; 3 * 512]);
    protection.insert(ALL, u32::MAX, &mut bytes);
    assert_eq!(protection.check(ALL, u32::MAX, &bytes), Ok(()));
    bytes[2 * 520] ^= 1;
    let wrong = Wrong { index: 1, status: Status::GUARD_CHECK_ERROR };
    assert_eq!(protection.check(ALL, u32::MAX, &bytes), Err(wrong));
}

#[test]
fn the_catalogued_guard() {
    assert_eq!(guard(b"123456789"), 0xD0DB);
    assert_eq!(guard(&[0; 4096]), 0);
}

/// A block with all ones in its application tag is not checked; of type 3 only if the reference tag
/// has all ones, too.
#[test]
fn escapes_are_not_checked() {
    let block = |tuple: Tuple| [&[1; 512][..], &tuple.to_bytes()].concat();
    let half = Tuple { ref_tag: 0, ..Tuple::DEALLOCATED };
    for kind in [ProtectionType::Type1, ProtectionType::Type2, ProtectionType::Type3] {
        let protection = Protection { kind, block_bytes: 512 };
        assert_eq!(protection.check(ALL, 0, &block(Tuple::DEALLOCATED)), Ok(()), "{kind:?}");
        assert_eq!(protection.check(ALL, 0, &block(half)).is_ok(), kind != ProtectionType::Type3, "{kind:?}");
    }
}

#[test]
fn what_may_not_be_asked_for_is_refused() {
    let ask = |kind, opcode, action: Action| {
        let dwords = ReadWrite { slba: 0x1_0000_0005, blocks: 1 }.dwords();
        let command = Command::new(opcode, 0, Sgl::NONE).with(action.put(dwords));
        Protection { kind, block_bytes: 512 }.allow(&command)
    };
    let refused = Err(Status::INVALID_PROTECTION_INFORMATION.do_not_retry());
    let (none, pract) = (Action::default(), Action { pract: true, ..Action::default() });
    let (five, six) = (Action { ref_tag: 5, ..ALL }, Action { ref_tag: 6, ..ALL });
    let cases = [
        (ProtectionType::Type1, opcode::io::READ, five, Ok(())),
        (ProtectionType::Type1, opcode::io::READ, six, refused),
        (ProtectionType::Type1, opcode::io::WRITE, six, refused),
        (ProtectionType::Type1, opcode::io::WRITE, Action { checks_ref_tag: false, ..six }, Ok(())),
        (ProtectionType::Type2, opcode::io::READ, six, Ok(())),
        (ProtectionType::Type3, opcode::io::READ, five, refused),
        (ProtectionType::Type3, opcode::io::READ, Action { checks_ref_tag: false, ..five }, Ok(())),
        (ProtectionType::Type1, opcode::io::COMPARE, pract, refused),
        (ProtectionType::Type1, opcode::io::COMPARE, five, Ok(())),
        (ProtectionType::Type2, opcode::io::VERIFY, pract, refused),
        (ProtectionType::Type2, opcode::io::VERIFY, six, Ok(())),
        (ProtectionType::Type1, opcode::io::WRITE_ZEROES, pract, Ok(())),
        (ProtectionType::Type1, opcode::io::WRITE_ZEROES, none, Ok(())),
        (ProtectionType::Type1, opcode::io::WRITE_ZEROES, five, refused),
    ];
    for (kind, opcode, action, allowed) in cases {
        assert_eq!(ask(kind, opcode, action), allowed, "{kind:?}, {opcode:#x}, {action:?}");
    }
}

/// A write of the kernel's host to a namespace of type 1, on a device that can't offload: the host
/// has the target make the guards, with the low bits of the block's number as the reference tag.
#[test]
fn a_write_of_the_kernels_host() {
    let mut bytes = [0; COMMAND_BYTES];
    bytes[..5].copy_from_slice(&[0x01, 0x40, 0x06, 0x10, 0x02]);
    bytes[39] = 0x40;
    (bytes[40], bytes[48], bytes[51], bytes[56]) = (0x10, 0x01, 0x34, 0x10);
    let command = Command::read(&bytes).expect("a command");
    let action = Action { pract: true, checks_guard: true, checks_ref_tag: true, ref_tag: 0x10, ..Action::default() };
    assert_eq!(Action::of(&command), action);
    let protection = Protection { kind: ProtectionType::Type1, block_bytes: 4096 };
    assert_eq!((protection.allow(&command), protection.wire_bytes(action, 2)), (Ok(()), 8192));
    assert_eq!(protection.wire_bytes(Action::default(), 2), 8208);
}
