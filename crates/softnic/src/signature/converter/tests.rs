//! Converts streams of blocks, and compares with the expected bytes, made block by block with the
//! guards' definitions.

use super::*;
use crate::signature::domain::{BlockSignature, Domain, Protection, T10};
use crate::signature::flow::Part;
use crate::signature::guard::{Guard, Sum, oracle};
use proptest::prelude::*;

const SIZES: [u64; 5] = [512, 520, 4048, 4096, 4160];

fn t10(app_tag: u16, ref_tag: u32) -> T10 {
    let guard = Guard { sum: Sum::T10Crc, from_ones: false };
    T10 { guard, app_tag, ref_tag, ref_remap: true, app_escape: false, app_ref_escape: false }
}

fn domain(t10: T10) -> Domain {
    Domain { protection: Protection::T10(t10), block_bytes: 512 }
}

/// The bytes of `data` in a domain, by definition.
fn encoded(domain: Option<Domain>, data: &[u8]) -> Vec<u8> {
    let Some(domain) = domain else { return data.to_vec() };
    let mut out = Vec::new();
    for (index, block) in data.chunks(domain.block_bytes as usize).enumerate() {
        out.extend_from_slice(block);
        match domain.protection {
            Protection::T10(t10) => {
                let ref_tag = t10.ref_tag.wrapping_add(if t10.ref_remap { index as u32 } else { 0 });
                out.extend_from_slice(&(oracle::guard(t10.guard, block) as u16).to_be_bytes());
                out.extend_from_slice(&t10.app_tag.to_be_bytes());
                out.extend_from_slice(&ref_tag.to_be_bytes());
            }
            Protection::Crc(guard) if guard.sum == Sum::Crc64Xp10 => {
                out.extend_from_slice(&oracle::guard(guard, block).to_le_bytes());
            }
            Protection::Crc(guard) => {
                out.extend_from_slice(&(oracle::guard(guard, block) as u32).to_le_bytes());
            }
        }
    }
    out
}

/// Feeds the bytes in pieces of `step`.
fn convert(flow: Flow, bytes: &[u8], step: usize) -> (Vec<u8>, Option<(BadBlock, u64)>) {
    let (mut out, mut converter, mut stages) = (Vec::new(), Converter::new(flow, 0), Stages::new());
    for piece in bytes.chunks(step) {
        let mut sink = |bytes: &[u8]| out.extend_from_slice(bytes);
        // SAFETY: a slice's bytes can be read.
        unsafe { converter.feed(&mut stages, piece.as_ptr(), piece.len(), &mut sink) };
    }
    (out, converter.fault())
}

fn pattern(bytes: usize, salt: u8) -> Vec<u8> {
    (0..bytes).map(|at| (at as u8).wrapping_mul(31).wrapping_add((at >> 8) as u8) ^ salt).collect()
}

fn any_domain() -> impl Strategy<Value = Domain> {
    let t10 = (any::<[bool; 4]>(), any::<u16>(), any::<u32>()).prop_map(|(flags, app_tag, ref_tag)| {
        let [crc, from_ones, ref_remap, _] = flags;
        let sum = if crc { Sum::T10Crc } else { Sum::IpChecksum };
        let guard = Guard { sum, from_ones };
        Protection::T10(T10 { guard, app_tag, ref_tag, ref_remap, app_escape: false, app_ref_escape: false })
    });
    let crc = (prop::sample::select(vec![Sum::Crc32, Sum::Crc32c, Sum::Crc64Xp10]), any::<bool>())
        .prop_map(|(sum, from_ones)| Protection::Crc(Guard { sum, from_ones }));
    (prop_oneof![t10, crc], prop::sample::select(SIZES.to_vec()))
        .prop_map(|(protection, block_bytes)| Domain { protection, block_bytes })
}

/// The least data that is whole blocks of both domains.
fn whole(one: Option<Domain>, other: Option<Domain>) -> u64 {
    let (a, b) = (one.map_or(8, |domain| domain.block_bytes), other.map_or(8, |domain| domain.block_bytes));
    let (mut x, mut y) = (a, b);
    while y != 0 {
        (x, y) = (y, x % y);
    }
    a / x * b
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn good_blocks_become_what_the_other_domain_says(
        memory in prop::option::of(any_domain()),
        wire in any_domain(),
        to_wire in any::<bool>(),
        step in 1usize..9000,
        salt in any::<u8>(),
    ) {
        // Copies nothing; common fields come out the same anyway.
        let signature = BlockSignature { memory, wire: Some(wire), check_mask: 0xff, copy_mask: Some(0) };
        let flow = if to_wire { Flow::to_wire(&signature) } else { Flow::to_memory(&signature) };
        let unit = whole(memory, Some(wire));
        prop_assume!(unit < 300_000);
        let data = pattern((unit * if unit < 10_000 { 3 } else { 1 }) as usize, salt);
        let (out, fault) = convert(flow, &encoded(flow.input, &data), step);
        prop_assert_eq!(fault, None);
        prop_assert!(out == encoded(flow.output, &data));
    }

    #[test]
    fn a_flipped_bit_is_found_where_it_is(
        wire in any_domain(),
        at in any::<prop::sample::Index>(),
        bit in 0u8..8,
    ) {
        let signature = BlockSignature { memory: None, wire: Some(wire), check_mask: 0xff, copy_mask: None };
        let data = pattern(3 * wire.block_bytes as usize, 7);
        let mut bytes = encoded(Some(wire), &data);
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        let (out, fault) = convert(Flow::to_memory(&signature), &bytes, 1000);
        let (fault, offset) = fault.expect("it is found");
        let total = wire.total_bytes() as usize;
        prop_assert_eq!(offset as usize, at / total * total);
        prop_assert_ne!(fault.expected, fault.actual);
        let within = at % total;
        let part = match (wire.protection, within.checked_sub(wire.block_bytes as usize)) {
            (Protection::T10(_), Some(2..4)) => Part::AppTag,
            (Protection::T10(_), Some(4..)) => Part::RefTag,
            _ => Part::Guard,
        };
        prop_assert_eq!(fault.part, part);
        prop_assert_eq!(out.len(), data.len());
    }
}

#[test]
fn each_bit_of_the_check_mask_is_a_byte_of_the_field() {
    let wire = domain(t10(0x1234, 9));
    let data = pattern(512, 1);
    for (byte, bit) in (512..520).zip((0..8).rev()) {
        let mut bytes = encoded(Some(wire), &data);
        bytes[byte] ^= 0x10;
        for mask in [0xff, 1 << bit, !(1u8 << bit), 0] {
            let signature = BlockSignature { memory: None, wire: Some(wire), check_mask: mask, copy_mask: None };
            let (_, fault) = convert(Flow::to_memory(&signature), &bytes, 512);
            assert_eq!(fault.is_some(), mask >> bit & 1 == 1, "byte {byte}, mask {mask:#04x}");
        }
    }
    let crc = Domain { protection: Protection::Crc(Guard { sum: Sum::Crc32c, from_ones: true }), block_bytes: 512 };
    let mut bytes = encoded(Some(crc), &data);
    bytes[512] ^= 1;
    for (mask, found) in [(0x10, true), (0xe0, false), (0x0f, false)] {
        let signature = BlockSignature { memory: Some(crc), wire: None, check_mask: mask, copy_mask: None };
        assert_eq!(convert(Flow::to_wire(&signature), &bytes, 99).1.is_some(), found, "{mask:#04x}");
    }
}

#[test]
fn the_first_fault_of_a_block_is_the_guard_then_the_application_tag() {
    let wire = domain(t10(0xabcd, 100));
    let signature = BlockSignature { memory: None, wire: Some(wire), check_mask: 0xff, copy_mask: None };
    let right = encoded(Some(wire), &pattern(1024, 3));
    let fault = |bytes: &[usize]| {
        let mut wrong = right.clone();
        bytes.iter().for_each(|byte| wrong[520 + byte] ^= 0xff);
        convert(Flow::to_memory(&signature), &wrong, 520).1
    };
    let (all, offset) = fault(&[0, 514, 519]).unwrap();
    assert_eq!((all.part, offset), (Part::Guard, 520));
    let (tags, _) = fault(&[514, 519]).unwrap();
    assert_eq!((tags.part, tags.expected, tags.actual), (Part::AppTag, 0x54cd, 0xabcd));
    let (reference, _) = fault(&[519]).unwrap();
    assert_eq!((reference.part, reference.expected, reference.actual), (Part::RefTag, 101 ^ 0xff, 101));
}

#[test]
fn escapes_say_which_blocks_are_not_checked() {
    for (app_escape, app_ref_escape, app, reference, checked) in [
        (false, false, 0xffff, u32::MAX, true),
        (true, false, 0xffff, 7, false),
        (true, false, 0xfffe, 7, true),
        (false, true, 0xffff, 7, true),
        (false, true, 0xffff, u32::MAX, false),
        (false, true, 0xfffe, u32::MAX, true),
    ] {
        let here = domain(T10 { app_escape, app_ref_escape, ..t10(1, 1) });
        let theirs = domain(t10(app, reference));
        let mut bytes = encoded(Some(theirs), &pattern(512, 2));
        bytes[0] ^= 1;
        let signature = BlockSignature { memory: None, wire: Some(here), check_mask: 0xff, copy_mask: None };
        let fault = convert(Flow::to_memory(&signature), &bytes, 520).1;
        assert_eq!(fault.is_some(), checked, "{app:#x} {reference:#x}");
    }
}

#[test]
fn what_both_domains_have_alike_is_copied_and_the_rest_is_made() {
    let data = pattern(512, 5);
    let (memory, wire) = (domain(t10(1, 10)), domain(t10(1, 20)));
    let mut bytes = encoded(Some(memory), &data);
    // Wrong, and unchecked.
    bytes[512] ^= 0xff;
    bytes[514] ^= 0xff;
    let with = |copy_mask| {
        let signature = BlockSignature { memory: Some(memory), wire: Some(wire), check_mask: 0, copy_mask };
        convert(Flow::to_wire(&signature), &bytes, 520).0.split_off(512)
    };
    let right = encoded(Some(wire), &data).split_off(512);
    assert_eq!(with(Some(0)), right);
    assert_eq!(with(None)[..4], bytes[512..516], "guard and application tag are copied of themselves");
    assert_eq!(with(None)[4..], right[4..], "the reference tag differs, so it is made");
    assert_eq!(with(Some(0xff)), bytes[512..]);
    assert_eq!(with(Some(0x20))[2], bytes[514], "one byte");
}
