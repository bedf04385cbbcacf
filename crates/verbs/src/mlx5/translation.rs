//! Every configuration of the safe API as calls, compared with the numbers of mlx5dv.h and its
//! pages, written down again here.

use proptest::prelude::*;
use verbline_softnic::mlx5dv::{mlx5dv_mr_interleaved, mlx5dv_sig_crc, mlx5dv_sig_t10dif};

use super::emulated::{Call, Told, calls};
use super::tests::Rig;
use crate::block_signature::{BlockSignature, BlockSize, Crc, CrcKind, Domain, Escape, Mask, Seed, T10Dif, T10Guard};
use crate::memory::mr::Access;
use crate::signature::{KeyConfig, KeyLayout, KeySpec, QpSignature, Strip};
use crate::wr::post::SendOptions;
use crate::wr_id::WrKind;

const SIZES: [BlockSize; 5] = [BlockSize::B512, BlockSize::B520, BlockSize::B4048, BlockSize::B4096, BlockSize::B4160];
const CRCS: [CrcKind; 3] = [CrcKind::Crc32, CrcKind::Crc32c, CrcKind::Crc64Xp10];
const GUARDS: [T10Guard; 2] = [T10Guard::Crc, T10Guard::IpChecksum];
const SEEDS: [Seed; 2] = [Seed::Zeros, Seed::Ones];
const ESCAPES: [Escape; 3] = [Escape::Never, Escape::AppTag, Escape::AppAndRefTag];

/// A domain, by the indices of its values in the lists above, which are the header's numbers.
#[derive(Clone, Copy, Debug)]
enum Wanted {
    T10 { size: usize, guard: usize, seed: usize, app_tag: u16, ref_tag: u32, increments: bool, escape: usize },
    Crc { size: usize, kind: usize, seed: usize },
}

impl Wanted {
    fn domain(self) -> Domain {
        match self {
            Wanted::T10 { size, guard, seed, app_tag, ref_tag, increments, escape } => {
                let (guard, seed, escape) = (GUARDS[guard], SEEDS[seed], ESCAPES[escape]);
                Domain::T10Dif(
                    SIZES[size],
                    T10Dif { guard, seed, app_tag, ref_tag, ref_increments: increments, escape },
                )
            }
            Wanted::Crc { size, kind, seed } => Domain::Crc(SIZES[size], Crc { kind: CRCS[kind], seed: SEEDS[seed] }),
        }
    }

    fn told(self) -> Told {
        match self {
            Wanted::T10 { size, guard, seed, app_tag, ref_tag, increments, escape } => {
                let flags = u16::from(increments) + [0, 0b10, 0b100][escape];
                let bg = [0, 0xffff][seed];
                Told::T10Dif(size as u32, mlx5dv_sig_t10dif { bg_type: guard as u32, bg, app_tag, ref_tag, flags })
            }
            Wanted::Crc { size, kind, seed } => {
                let ones = if kind == 2 { u64::MAX } else { 0xffff_ffff };
                Told::Crc(size as u32, mlx5dv_sig_crc { type_: kind as u32, seed: [0, ones][seed] })
            }
        }
    }
}

fn wanted() -> impl Strategy<Value = Wanted> {
    let t10 = (0..5usize, 0..2usize, 0..2usize, any::<u16>(), any::<u32>(), any::<bool>(), 0..3usize);
    let t10 = t10.prop_map(|(size, guard, seed, app_tag, ref_tag, increments, escape)| Wanted::T10 {
        size,
        guard,
        seed,
        app_tag,
        ref_tag,
        increments,
        escape,
    });
    let crc = (0..5usize, 0..3usize, 0..2usize).prop_map(|(size, kind, seed)| Wanted::Crc { size, kind, seed });
    prop_oneof![t10, crc]
}

/// Both sides, at least one of them set; the check mask; and the copy mask where copying is
/// possible.
type Signature = (Option<Wanted>, Option<Wanted>, u8, Option<u8>);

fn signature() -> impl Strategy<Value = Signature> {
    let sides = prop_oneof![
        wanted().prop_map(|memory| (Some(memory), None)),
        wanted().prop_map(|wire| (None, Some(wire))),
        (wanted(), wanted()).prop_map(|(memory, wire)| (Some(memory), Some(wire))),
        wanted().prop_map(|both| (Some(both), Some(both))),
    ];
    (sides, any::<u8>(), proptest::option::of(any::<u8>()))
        .prop_map(|((memory, wire), check, copy)| (memory, wire, check, copy))
}

fn build((memory, wire, check, copy): Signature) -> (BlockSignature, Call) {
    let signature = match (memory.map(Wanted::domain), wire.map(Wanted::domain)) {
        (Some(memory), Some(wire)) => BlockSignature::on_both(memory, wire),
        (Some(memory), None) => BlockSignature::in_memory(memory),
        (None, wire) => BlockSignature::on_the_wire(wire.expect("one side at least")),
    };
    let signature = signature.checking(Mask(check));
    let copied = copy.and_then(|copy| Some((signature.copying(Mask(copy)).ok()?, copy)));
    let (flags, copy_mask) = copied.map_or((0, 0), |(_, copy)| (1, copy));
    let (mem, wire) = (memory.map(Wanted::told), wire.map(Wanted::told));
    let call = Call::SigBlock { mem, wire, flags, check_mask: check, copy_mask };
    (copied.map_or(signature, |(signature, _)| signature), call)
}

/// A layout: the repeat count, unless it is a list, and its parts by offset, length and gap.
type Layout = (Option<u32>, Vec<(usize, u32, u32)>);

fn layout() -> impl Strategy<Value = Layout> {
    let part = (0..8000usize, 1..512u32, 0..64u32);
    (proptest::option::of(1..4u32), proptest::collection::vec(part, 1..7))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_configuration_is_told_in_the_headers_numbers(
        configs in proptest::collection::vec(
            (
                proptest::option::of(0..8u32),
                proptest::option::of(layout()),
                prop_oneof![Just(None), Just(Some(None)), signature().prop_map(|signature| Some(Some(signature)))],
                any::<bool>(),
            ),
            1..8,
        ),
    ) {
        let mut rig = Rig::new(QpSignature::Keys);
        let spec = KeySpec { max_entries: 8, ..KeySpec::default() };
        let mut key = rig.pd.create_signature_key(&spec).unwrap();
        let (base, lkey) = (rig.mr.slice(0, 1).unwrap().addr(), rig.mr.slice(0, 1).unwrap().lkey());
        calls();
        for (access, layout, signature, fence) in configs {
            let (mut config, mut expected) = (KeyConfig::new(), Vec::new());
            if let Some(bits) = access {
                config = config.access(Access::from_bits(bits));
                expected.push(Call::Access(bits));
            }
            if let Some((repeat, parts)) = layout {
                let told = |&(at, len, skip): &(usize, u32, u32)| mlx5dv_mr_interleaved {
                    addr: base + at as u64, bytes_count: len, bytes_skip: skip, lkey,
                };
                config = config.layout(match repeat {
                    None => rig.list(&parts.iter().map(|&(at, len, _)| (at, len)).collect::<Vec<_>>()),
                    Some(repeat) => KeyLayout::interleaved(repeat, parts.iter().map(|&(at, len, skip_bytes)| {
                        Strip { first: rig.mr.slice(at, len).unwrap(), skip_bytes }
                    })),
                });
                expected.push(match repeat {
                    None => Call::List(parts.iter().map(|&(at, len, _)| (base + at as u64, len, lkey)).collect()),
                    Some(repeat) => Call::Interleaved(repeat, parts.iter().map(told).collect()),
                });
            }
            let resets = matches!(signature, Some(None));
            match signature {
                None => {}
                Some(None) => config = config.without_signature(),
                Some(Some(signature)) => {
                    let (signature, call) = build(signature);
                    config = config.signature(signature);
                    expected.push(call);
                }
            }
            let options = SendOptions { fence, ..SendOptions::default() };
            rig.qp.rc().unwrap().configure_key(&mut key, config, options).unwrap();
            let configure = Call::Configure {
                wr_id: rig.qp.last_posted().unwrap().wr_id(WrKind::Op),
                // IBV_SEND_FENCE, SIGNALED and INLINE.
                wr_flags: u32::from(fence) | 0b10 | 0b1000,
                mkey: key.inner.as_ptr() as usize,
                setters: expected.len() as u8,
                conf_flags: resets.into(),
            };
            let calls = calls();
            let (ends, [first, told @ .., last]) = ((Call::Start, Call::Complete), &calls[..]) else { unreachable!() };
            prop_assert_eq!((first, last), (&ends.0, &ends.1));
            prop_assert_eq!(&told[0], &configure);
            prop_assert_eq!(&told[1..], &expected[..]);
        }
    }
}
