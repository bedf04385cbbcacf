//! Blocks that move through keys with a signature: fields generated, checked, stripped and copied.

use super::common::*;
use super::sig_keys::{SIGNALED, list, pair, set, signing, write};
use crate::check::{Failure, Outcome, ensure, same, same_bytes};
use crate::rig::*;
use crate::suite::Row;

pub(super) fn rows() -> Vec<Row> {
    let row = |page, rule: &str, says: &str, test: fn(&Rig) -> Outcome| {
        Row::new(rule, page, says, test).needs(Cap::Signatures)
    };
    let sig = |rule, says, test| row(page::SIG_BLOCK, rule, says, test);
    let check = |rule, says, test| row(page::MKEY_CHECK, rule, says, test);
    let mut rows: Vec<Row> = [
        ("512", block_size::B512, 512),
        ("520", block_size::B520, 520),
        ("4048", block_size::B4048, 4048),
        ("4096", block_size::B4096, 4096),
        ("4160", block_size::B4160, 4160),
    ]
    .into_iter()
    .map(|(name, raw, bytes)| {
        let says = format!("Blocks of {name} bytes get T10-DIF on the wire, and lose it on the way back");
        let test = move |rig: &Rig| round_trip(rig, Blocks::T10(raw, dif(1, 2)), bytes, 8);
        Row::new(format!("sig_transfers/blocks-of-{name}"), page::SIG_BLOCK, says, test).needs(Cap::Signatures)
    })
    .collect();
    rows.extend([("crc32", crc_type::CRC32), ("crc32c", crc_type::CRC32C), ("crc64-xp10", crc_type::CRC64_XP10)].map(
        |(name, type_)| {
            let says = format!("{name}, from either seed, guards blocks on the wire");
            let test = move |rig: &Rig| crc(rig, type_);
            Row::new(format!("sig_transfers/{name}"), page::SIG_BLOCK, says, test).needs(Cap::Signatures)
        },
    ));
    rows.extend([
        sig("sig_transfers/t10-fields", "Guard, application tag and counting reference tag lie behind a block", fields),
        sig("sig_transfers/ip-checksum", "The guard may be the IP checksum, from either seed", ip_checksum),
        sig("sig_transfers/memory-is-stripped", "What memory carries is checked and taken away", stripped),
        sig("sig_transfers/receive-generates", "A receive makes what its memory is to carry", receive_generates),
        sig("sig_transfers/peer-reads-the-wire", "A peer that reads the key gets what the wire carries", peer_reads),
        sig("sig_transfers/peer-writes-the-wire", "What a peer writes is checked and taken away", peer_writes),
        sig("sig_transfers/app-escape", "With APP_ESCAPE a block of tag 0xffff isn't checked", app_escape),
        sig("sig_transfers/app-ref-escape", "With APP_REF_ESCAPE it takes both tags", app_ref_escape),
        sig("sig_transfers/check-mask", "A bit of check_mask is a byte of the field that is checked", check_mask),
        sig("sig_transfers/copy-mask", "A bit of copy_mask is a byte that is copied unchecked", copy_mask),
        sig("sig_transfers/copy-needs-alike", "A copy mask needs the same structure on both sides", copy_needs_alike),
        sig("sig_transfers/seeds", "No other seed than 0 and all ones is taken", seeds),
        sig("sig_transfers/needs-the-flag", "A key made without BLOCK_SIGNATURE takes none", needs_flag),
        sig("sig_transfers/reset", "RESET_SIG_ATTR takes the signature away; without it, it is kept", reset),
        check("sig_transfers/error-tells", "An error tells its kind, both values and its block", error_tells),
        check("sig_transfers/order-of-errors", "Of one block the guard comes first, then app tag, then ref tag", order),
        check("sig_transfers/first-error-is-kept", "The first error is kept until it is queried", first_is_kept),
        check("sig_transfers/transfer-succeeds", "A transfer with an error completes with success", succeeds),
        check("sig_transfers/recorded-by-polling", "An error is there once the CQ was polled", by_polling),
        check("sig_transfers/checking-clears", "Checking clears the error", clears),
        check("sig_transfers/configured-anew", "After an error the key must be configured again", anew),
    ]);
    rows
}

pub(super) fn dif(app_tag: u16, ref_tag: u32) -> mlx5dv_sig_t10dif {
    let flags = t10dif_flags::REF_REMAP;
    mlx5dv_sig_t10dif { bg_type: t10dif_bg_type::CRC, bg: 0, app_tag, ref_tag, flags }
}

pub(super) fn t10(app_tag: u16, ref_tag: u32) -> Blocks {
    Blocks::T10(block_size::B512, dif(app_tag, ref_tag))
}

pub(super) fn memory(blocks: Blocks) -> Setter {
    Setter::SigBlock(SigBlock { memory: Some(blocks), check_mask: 0xff, ..SigBlock::default() })
}

fn wire(blocks: Blocks) -> Setter {
    Setter::SigBlock(SigBlock { wire: Some(blocks), check_mask: 0xff, ..SigBlock::default() })
}

fn access() -> Setter {
    Setter::Access(Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ)
}

/// CRC-16/T10-DIF, a bit at a time.
pub(super) fn crc16(data: &[u8]) -> u16 {
    data.iter().fold(0u16, |crc, byte| {
        (0..8).fold(crc ^ u16::from(*byte) << 8, |crc, _| crc << 1 ^ if crc & 0x8000 != 0 { 0x8bb7 } else { 0 })
    })
}

/// A block of 512 with T10-DIF behind it.
pub(super) fn protected(data: &[u8], app_tag: u16, ref_tag: u32) -> Vec<u8> {
    [data, &crc16(data).to_be_bytes(), &app_tag.to_be_bytes(), &ref_tag.to_be_bytes()].concat()
}

fn no_error(key: &Key) -> Outcome {
    same("the key's error", key.check()?.err_type, mkey_err_type::NO_ERR)
}

/// READ from b's memory through the key into a's.
fn read(pair: &Pair, sge: Sge) -> Outcome<Status> {
    pair.a.qp.send(Wr::read(1, pair.remote(0)).sge(sge))?;
    Ok(pair.a.scq.wait_one()?.status)
}

fn round_trip(rig: &Rig, blocks: Blocks, bytes: usize, field: usize) -> Outcome {
    let (pair, key) = (pair(rig, 0)?, signing(rig)?);
    pair.a.mr.put(0, &pattern(2 * bytes));
    set(&pair.a, &key, &[access(), list(&[pair.a.mr.sge(0..2 * bytes)]), wire(blocks)])?;
    same("the WRITE", write(&pair, key.sge(0, 2 * bytes as u32))?, Status::SUCCESS)?;
    same_bytes("block 0", &pair.b.mr.take(0, bytes), &pattern(2 * bytes)[..bytes])?;
    same_bytes("block 1", &pair.b.mr.take(bytes + field, bytes), &pattern(2 * bytes)[bytes..])?;
    ensure(pair.b.mr.take(bytes, field) != vec![0; field], "there is something behind a block")?;
    pair.a.mr.fill(0);
    same("the READ", read(&pair, key.sge(0, 2 * bytes as u32))?, Status::SUCCESS)?;
    same_bytes("what came back", &pair.a.mr.take(0, 2 * bytes), &pattern(2 * bytes))?;
    no_error(&key)?;
    pair.b.mr.put(bytes + field + 1, &[!pattern(2 * bytes)[bytes + 1]]);
    same("a READ of what is wrong", read(&pair, key.sge(0, 2 * bytes as u32))?, Status::SUCCESS)?;
    let error = key.check()?;
    same("the error's kind", error.err_type, mkey_err_type::BAD_GUARD)?;
    same("its block", error.sig.offset, (bytes + field) as u64)
}

fn crc(rig: &Rig, type_: u32) -> Outcome {
    let wide = type_ == crc_type::CRC64_XP10;
    for seed in [0, if wide { u64::MAX } else { u64::from(u32::MAX) }] {
        let blocks = Blocks::Crc(block_size::B512, mlx5dv_sig_crc { type_, seed });
        round_trip(rig, blocks, 512, if wide { 8 } else { 4 })?;
    }
    Ok(())
}

fn fields(rig: &Rig) -> Outcome {
    let (pair, key) = (pair(rig, 0)?, signing(rig)?);
    let data = pattern(1024);
    pair.a.mr.put(0, &data);
    set(&pair.a, &key, &[list(&[pair.a.mr.sge(0..1024)]), wire(t10(0xabcd, u32::MAX))])?;
    same("the WRITE", write(&pair, key.sge(0, 1024))?, Status::SUCCESS)?;
    let want = [protected(&data[..512], 0xabcd, u32::MAX), protected(&data[512..], 0xabcd, 0)].concat();
    same_bytes("the wire", &pair.b.mr.take(0, 1040), &want)
}

fn ip_checksum(rig: &Rig) -> Outcome {
    for bg in [0, 0xffff] {
        let dif = mlx5dv_sig_t10dif { bg_type: t10dif_bg_type::CSUM, bg, ..dif(1, 1) };
        round_trip(rig, Blocks::T10(block_size::B512, dif), 512, 8)?;
    }
    Ok(())
}

fn stripped(rig: &Rig) -> Outcome {
    let (pair, key) = (pair(rig, 0)?, signing(rig)?);
    let data = pattern(512);
    pair.a.mr.put(0, &protected(&data, 3, 4));
    set(&pair.a, &key, &[list(&[pair.a.mr.sge(0..520)]), memory(t10(3, 4))])?;
    same("the WRITE", write(&pair, key.sge(0, 512))?, Status::SUCCESS)?;
    same_bytes("the wire", &pair.b.mr.take(0, 520), &[&data[..], &[0; 8]].concat())?;
    no_error(&key)
}

fn receive_generates(rig: &Rig) -> Outcome {
    let (pair, key) = (pair(rig, 0)?, signing(rig)?);
    set(&pair.b, &key, &[access(), list(&[pair.b.mr.sge(0..520)]), memory(t10(5, 6))])?;
    pair.b.qp.recv(Recv::new(1).sge(key.sge(0, 512)))?;
    pair.a.mr.put(0, &pattern(512));
    pair.a.qp.send(Wr::send(1).sge(pair.a.mr.sge(0..512)))?;
    pair.b.rcq.wait_ok()?;
    same_bytes("memory", &pair.b.mr.take(0, 520), &protected(&pattern(512), 5, 6))
}

fn peer_reads(rig: &Rig) -> Outcome {
    let (pair, key) = (pair(rig, 0)?, signing(rig)?);
    pair.b.mr.put(0, &pattern(512));
    set(&pair.b, &key, &[access(), list(&[pair.b.mr.sge(0..512)]), wire(t10(7, 8))])?;
    pair.a.qp.send(Wr::read(1, Remote { addr: 0, rkey: key.number() }).sge(pair.a.mr.sge(0..520)))?;
    pair.a.scq.wait_ok()?;
    same_bytes("what was read", &pair.a.mr.take(0, 520), &protected(&pattern(512), 7, 8))
}

fn peer_writes(rig: &Rig) -> Outcome {
    let (pair, key) = (pair(rig, 0)?, signing(rig)?);
    set(&pair.b, &key, &[access(), list(&[pair.b.mr.sge(0..512)]), wire(t10(7, 8))])?;
    let remote = Remote { addr: 0, rkey: key.number() };
    pair.a.mr.put(0, &protected(&pattern(512), 7, 8));
    pair.a.qp.send(Wr::write(1, remote).sge(pair.a.mr.sge(0..520)))?;
    pair.a.scq.wait_ok()?;
    same_bytes("memory", &pair.b.mr.take(0, 512), &pattern(512))?;
    no_error(&key)?;
    pair.a.mr.put(519, &[9]);
    pair.a.qp.send(Wr::write(2, remote).sge(pair.a.mr.sge(0..520)))?;
    pair.a.scq.wait_ok()?;
    same("the error's kind", key.check()?.err_type, mkey_err_type::BAD_REFTAG)
}

/// Sends a block with these tags and a wrong guard through a key with these flags; returns the kind
/// of error.
fn escaped(rig: &Rig, flags: u16, app_tag: u16, ref_tag: u32) -> Outcome<u32> {
    let (pair, key) = (pair(rig, 0)?, signing(rig)?);
    let mut block = protected(&pattern(512), app_tag, ref_tag);
    block[0] ^= 1;
    pair.a.mr.put(0, &block);
    let dif = mlx5dv_sig_t10dif { flags, ..dif(1, 1) };
    set(&pair.a, &key, &[list(&[pair.a.mr.sge(0..520)]), memory(Blocks::T10(block_size::B512, dif))])?;
    same("the WRITE", write(&pair, key.sge(0, 512))?, Status::SUCCESS)?;
    Ok(key.check()?.err_type)
}

fn app_escape(rig: &Rig) -> Outcome {
    let flags = t10dif_flags::APP_ESCAPE;
    same("tag 0xffff", escaped(rig, flags, 0xffff, 5)?, mkey_err_type::NO_ERR)?;
    same("another", escaped(rig, flags, 0xfffe, 5)?, mkey_err_type::BAD_GUARD)?;
    same("without the flag", escaped(rig, 0, 0xffff, 5)?, mkey_err_type::BAD_GUARD)
}

fn app_ref_escape(rig: &Rig) -> Outcome {
    let flags = t10dif_flags::APP_REF_ESCAPE;
    same("both", escaped(rig, flags, 0xffff, u32::MAX)?, mkey_err_type::NO_ERR)?;
    same("the application tag alone", escaped(rig, flags, 0xffff, 5)?, mkey_err_type::BAD_GUARD)
}

/// Sends a block with these bytes of its field changed, checked by this mask; returns the kind of
/// error.
fn masked(rig: &Rig, check_mask: u8, bytes: &[usize]) -> Outcome<mlx5dv_mkey_err> {
    let (pair, key) = (pair(rig, 0)?, signing(rig)?);
    let mut block = protected(&pattern(512), 0x1111, 0x2222_2222);
    bytes.iter().for_each(|&byte| block[512 + byte] ^= 0x40);
    pair.a.mr.put(0, &block);
    let dif = dif(0x1111, 0x2222_2222);
    let block = SigBlock { memory: Some(Blocks::T10(block_size::B512, dif)), check_mask, ..SigBlock::default() };
    set(&pair.a, &key, &[list(&[pair.a.mr.sge(0..520)]), Setter::SigBlock(block)])?;
    same("the WRITE", write(&pair, key.sge(0, 512))?, Status::SUCCESS)?;
    Ok(key.check()?)
}

fn check_mask(rig: &Rig) -> Outcome {
    for byte in 0..8 {
        let bit = 0x80 >> byte;
        let kind = match byte {
            0 | 1 => mkey_err_type::BAD_GUARD,
            2 | 3 => mkey_err_type::BAD_APPTAG,
            _ => mkey_err_type::BAD_REFTAG,
        };
        same(format!("byte {byte}, checked"), masked(rig, bit, &[byte])?.err_type, kind)?;
        same(format!("byte {byte}, not"), masked(rig, !bit, &[byte])?.err_type, mkey_err_type::NO_ERR)?;
    }
    Ok(())
}

fn copy_mask(rig: &Rig) -> Outcome {
    let (pair, key) = (pair(rig, 0)?, signing(rig)?);
    pair.a.mr.put(0, &protected(&pattern(512), 0x7777, 9));
    let (memory, wire) = (Some(t10(1, 1)), Some(t10(2, 2)));
    let block = SigBlock { memory, wire, check_mask: 0, copy_mask: Some(0x20) };
    set(&pair.a, &key, &[list(&[pair.a.mr.sge(0..520)]), Setter::SigBlock(block)])?;
    same("the WRITE", write(&pair, key.sge(0, 512))?, Status::SUCCESS)?;
    same_bytes("the wire", &pair.b.mr.take(0, 520), &protected(&pattern(512), 0x7702, 2))
}

fn refused(side: &Side, key: &Key, block: SigBlock) -> Outcome {
    let setters = [Setter::SigBlock(block)];
    let errno = key.configure(&side.qp, 1, 0, conf_flags(0), 1, &setters).err().map(|refused| refused.errno);
    same("errno", errno, Some(libc::EINVAL))
}

fn copy_needs_alike(rig: &Rig) -> Outcome {
    let (pair, key) = (pair(rig, 0)?, signing(rig)?);
    let other = Blocks::T10(block_size::B4096, dif(1, 1));
    for wire in [None, Some(other)] {
        refused(&pair.a, &key, SigBlock { memory: Some(t10(1, 1)), wire, check_mask: 0, copy_mask: Some(1) })?;
    }
    Ok(())
}

fn seeds(rig: &Rig) -> Outcome {
    let (pair, key) = (pair(rig, 0)?, signing(rig)?);
    let crc = |type_, seed| Blocks::Crc(block_size::B512, mlx5dv_sig_crc { type_, seed });
    let odd_dif = Blocks::T10(block_size::B512, mlx5dv_sig_t10dif { bg: 1, ..dif(1, 1) });
    for memory in [crc(crc_type::CRC32, 1), crc(crc_type::CRC32C, u64::MAX), crc(crc_type::CRC64_XP10, 1), odd_dif] {
        refused(&pair.a, &key, SigBlock { memory: Some(memory), ..SigBlock::default() })?;
    }
    Ok(())
}

fn needs_flag(rig: &Rig) -> Outcome {
    let (pair, key) = (pair(rig, 0)?, super::sig_keys::plain(rig)?);
    refused(&pair.a, &key, SigBlock { memory: Some(t10(1, 1)), ..SigBlock::default() })
}

fn reset(rig: &Rig) -> Outcome {
    let (pair, key) = (pair(rig, 0)?, signing(rig)?);
    set(&pair.a, &key, &[list(&[pair.a.mr.sge(0..512)]), wire(t10(1, 1))])?;
    set(&pair.a, &key, &[list(&[pair.a.mr.sge(0..512)])])?;
    same("kept", write(&pair, key.sge(0, 512))?, Status::SUCCESS)?;
    same_bytes("the tags", &pair.b.mr.take(514, 6), &[0, 1, 0, 0, 0, 1])?;
    pair.b.mr.fill(0);
    key.configure(&pair.a.qp, 1, 0, conf_flags(mkey_conf_flags::RESET_SIG_ATTR), 0, &[])?;
    same("reset", write(&pair, key.sge(0, 512))?, Status::SUCCESS)?;
    same_bytes("the tags", &pair.b.mr.take(514, 6), &[0; 6])
}

fn error_tells(rig: &Rig) -> Outcome {
    let error = masked(rig, 0xff, &[7])?;
    let want = (mkey_err_type::BAD_REFTAG, 0x2222_2262, 0x2222_2222, 0);
    same("the error", (error.err_type, error.sig.expected_value, error.sig.actual_value, error.sig.offset), want)
}

fn order(rig: &Rig) -> Outcome {
    same("all", masked(rig, 0xff, &[0, 2, 4])?.err_type, mkey_err_type::BAD_GUARD)?;
    same("the tags", masked(rig, 0xff, &[2, 4])?.err_type, mkey_err_type::BAD_APPTAG)?;
    same("the last", masked(rig, 0xff, &[4])?.err_type, mkey_err_type::BAD_REFTAG)
}

/// A key whose blocks are all bad: each has wrong tags of its own.
fn faulty(rig: &Rig) -> Outcome<(Pair, Key)> {
    let (pair, key) = (pair(rig, 0)?, signing(rig)?);
    for block in 0..3 {
        pair.a.mr.put(520 * block, &protected(&pattern(512), 100 + block as u16, block as u32));
    }
    set(&pair.a, &key, &[list(&[pair.a.mr.sge(0..1560)]), memory(t10(1, 0))])?;
    Ok((pair, key))
}

fn first_is_kept(rig: &Rig) -> Outcome {
    let (pair, key) = faulty(rig)?;
    same("the first WRITE", write(&pair, key.sge(512, 1024))?, Status::SUCCESS)?;
    same("the second", write(&pair, key.sge(0, 512))?, Status::SUCCESS)?;
    let error = key.check()?;
    same("the error", (error.sig.expected_value, error.sig.offset), (101, 0))
}

fn succeeds(rig: &Rig) -> Outcome {
    let (pair, key) = faulty(rig)?;
    same("the WRITE", write(&pair, key.sge(0, 512))?, Status::SUCCESS)?;
    same_bytes("its data", &pair.b.mr.take(0, 512), &pattern(512))?;
    pair.a.qp.expect_state(State::Rts)
}

fn by_polling(rig: &Rig) -> Outcome {
    let (pair, key) = faulty(rig)?;
    pair.a.qp.send(Wr::write(1, pair.remote(0)).sge(key.sge(0, 512)).unsignaled())?;
    no_error(&key)?;
    let polled = pair.a.scq.poll_to_0()?;
    if !polled.is_empty() {
        return Err(Failure::new(format!("expected no completion, got {polled:?}")));
    }
    same("the error's kind", key.check()?.err_type, mkey_err_type::BAD_APPTAG)
}

fn clears(rig: &Rig) -> Outcome {
    let (pair, key) = faulty(rig)?;
    same("the WRITE", write(&pair, key.sge(0, 512))?, Status::SUCCESS)?;
    same("the first check", key.check()?.err_type, mkey_err_type::BAD_APPTAG)?;
    no_error(&key)
}

fn anew(rig: &Rig) -> Outcome {
    let (pair, key) = faulty(rig)?;
    same("the WRITE", write(&pair, key.sge(0, 512))?, Status::SUCCESS)?;
    same("the check", key.check()?.err_type, mkey_err_type::BAD_APPTAG)?;
    key.configure(&pair.a.qp, 1, SIGNALED, conf_flags(0), 0, &[])?;
    pair.a.scq.wait_ok()?;
    same("the WRITE after that", write(&pair, key.sge(1024, 512))?, Status::SUCCESS)?;
    let error = key.check()?;
    same("its error", (error.err_type, error.sig.expected_value), (mkey_err_type::BAD_APPTAG, 102))
}
