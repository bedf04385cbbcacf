//! Keys of mlx5dv: their creation, configuration, memory and checks.

use super::common::*;
use crate::check::{Outcome, ensure, same, same_bytes};
use crate::rig::*;
use crate::suite::Row;

pub(super) fn rows() -> Vec<Row> {
    let row = |page, rule, says, test: fn(&Rig) -> Outcome| Row::new(rule, page, says, test).needs(Cap::Signatures);
    let made = |rule, says, test| row(page::CREATE_MKEY, rule, says, test);
    let set = |rule, says, test| row(page::MKEY_CONFIGURE, rule, says, test);
    vec![
        made("sig_keys/a-key-is-indirect", "A key must be made with the flag INDIRECT", must_be_indirect),
        made("sig_keys/unknown-flags-are-refused", "A flag that the device hasn't makes creation fail", unknown_flags),
        made("sig_keys/max-entries-is-a-limit", "A layout has at most max_entries entries", max_entries),
        set("sig_keys/list-gathers", "A list is a contiguous range of what it names, from 0 on", list_gathers),
        set("sig_keys/list-scatters", "What a peer writes to the key is scattered over the list", list_scatters),
        set("sig_keys/interleaved", "Entries with gaps are repeated, each round behind the skipped bytes", interleaved),
        set("sig_keys/interleaved-takes-an-entry", "A layout with gaps takes one entry more", takes_an_entry),
        set("sig_keys/zero-based", "addr is an offset: beyond the layout nothing is granted", zero_based),
        set("sig_keys/access-overrides", "A later access setter overrides the earlier", access_overrides),
        set("sig_keys/layout-overrides", "A later layout overrides the earlier", layout_overrides),
        set("sig_keys/at-once", "The key may be used by the next work request, without waiting", at_once),
        set("sig_keys/completes-as-driver1", "A signaled configuration completes as IBV_WC_DRIVER1", driver1),
        set("sig_keys/needs-inline", "Without IBV_SEND_INLINE it is refused", needs_inline),
        set("sig_keys/setters-are-counted", "As many setters as announced, no more and no fewer", counted),
        set("sig_keys/a-setter-once", "Each setter may be called once", setter_once),
        set("sig_keys/one-layout", "Not more than one layout setter may follow the builder", one_layout),
        set("sig_keys/local-inv-clears", "LOCAL_INV clears the configuration", local_inv),
        set("sig_keys/remote-inv-needs-its-flag", "Only a key made for it is invalidated by a peer", remote_inv),
        set("sig_keys/held-in-sqd", "A configuration posted in SQD is carried out in RTS, in its place", held_in_sqd),
        row(
            page::CREATE_MLX5_QP,
            "sig_keys/qp-must-configure",
            "A queue pair made without MKEY_CONFIGURE refuses to configure",
            qp_must_configure,
        ),
        row(
            page::MKEY_CHECK,
            "sig_keys/check-needs-a-signature",
            "Checking a key that was made without BLOCK_SIGNATURE is EINVAL",
            check_needs_signature,
        ),
        row(page::MKEY_CHECK, "sig_keys/check-of-a-good-key", "Checking a key without errors is NO_ERR", check_good),
    ]
}

/// A pair whose two sides may configure keys.
pub(super) fn pair(rig: &Rig, create_flags: u32) -> Outcome<Pair> {
    let extras = QpExtras { create_flags, send_ops_flags: send_ops_flags::MKEY_CONFIGURE };
    rig.pair_with(RC, SideSpec { extras, ..SideSpec::default() }, Link::default())
}

pub(super) fn plain(rig: &Rig) -> Outcome<Key> {
    Ok(Key::create(rig.pd(), mkey_init_attr_flags::INDIRECT, 3)?)
}

/// A key with a signature.
pub(super) fn signing(rig: &Rig) -> Outcome<Key> {
    Ok(Key::create(rig.pd(), mkey_init_attr_flags::INDIRECT | mkey_init_attr_flags::BLOCK_SIGNATURE, 3)?)
}

/// Configures without a completion, and announces as many setters as given.
pub(super) fn set(side: &Side, key: &Key, setters: &[Setter]) -> Outcome {
    Ok(key.configure(&side.qp, 0, 0, conf_flags(0), setters.len() as u8, setters)?)
}

pub(super) fn list(sges: &[Sge]) -> Setter {
    Setter::List(sges.to_vec())
}

/// A WRITE of a's range of the key to the start of b's memory; its status.
pub(super) fn write(pair: &Pair, sge: Sge) -> Outcome<Status> {
    pair.a.qp.send(Wr::write(1, pair.remote(0)).sge(sge))?;
    Ok(pair.a.scq.wait_one()?.status)
}

fn refused(side: &Side, key: &Key, announced: u8, setters: &[Setter]) -> Outcome {
    let errno = key.configure(&side.qp, 1, 0, conf_flags(0), announced, setters).err().map(|refused| refused.errno);
    same("errno", errno, Some(libc::EINVAL))
}

fn must_be_indirect(rig: &Rig) -> Outcome {
    let refused = Key::create(rig.pd(), mkey_init_attr_flags::BLOCK_SIGNATURE, 1).err();
    same("errno", refused.map(|refused| refused.errno), Some(libc::EINVAL))
}

fn unknown_flags(rig: &Rig) -> Outcome {
    let refused = Key::create(rig.pd(), mkey_init_attr_flags::INDIRECT | 1 << 20, 1).err();
    ensure(refused.is_some(), "a key with such a flag is refused")
}

fn max_entries(rig: &Rig) -> Outcome {
    let (pair, key) = (pair(rig, 0)?, plain(rig)?);
    let sge = pair.a.mr.sge(0..8);
    set(&pair.a, &key, &[list(&[sge; 3])])?;
    refused(&pair.a, &key, 1, &[list(&[sge; 4])])
}

fn list_gathers(rig: &Rig) -> Outcome {
    let (pair, key) = (pair(rig, 0)?, plain(rig)?);
    pair.a.mr.put(0, &pattern(4096));
    set(&pair.a, &key, &[list(&[pair.a.mr.sge(100..200), pair.a.mr.sge(1000..1100)])])?;
    same("the WRITE", write(&pair, key.sge(50, 100))?, Status::SUCCESS)?;
    let want = [pair.a.mr.take(150, 50), pair.a.mr.take(1000, 50)].concat();
    same_bytes("what arrived", &pair.b.mr.take(0, 100), &want)
}

fn list_scatters(rig: &Rig) -> Outcome {
    let (pair, key) = (pair(rig, 0)?, plain(rig)?);
    let access = Setter::Access(Access::LOCAL_WRITE | Access::REMOTE_WRITE);
    set(&pair.b, &key, &[access, list(&[pair.b.mr.sge(0..10), pair.b.mr.sge(500..600)])])?;
    pair.a.mr.put(0, &pattern(60));
    let remote = Remote { addr: 0, rkey: key.number() };
    pair.a.qp.send(Wr::write(1, remote).sge(pair.a.mr.sge(0..60)))?;
    pair.a.scq.wait_ok()?;
    same_bytes("what arrived", &[pair.b.mr.take(0, 10), pair.b.mr.take(500, 50)].concat(), &pattern(60))
}

fn interleaved(rig: &Rig) -> Outcome {
    let (pair, key) = (pair(rig, 0)?, plain(rig)?);
    pair.a.mr.put(0, &pattern(256));
    let part = |offset, bytes_count, bytes_skip| {
        let addr = pair.a.mr.addr() + offset;
        mlx5dv_mr_interleaved { addr, bytes_count, bytes_skip, lkey: pair.a.mr.lkey() }
    };
    set(&pair.a, &key, &[Setter::Interleaved(2, vec![part(0, 16, 4), part(128, 8, 0)])])?;
    same("the WRITE", write(&pair, key.sge(0, 48))?, Status::SUCCESS)?;
    let want = [(0, 16), (128, 8), (20, 16), (136, 8)].map(|(at, len)| pair.a.mr.take(at, len)).concat();
    same_bytes("what arrived", &pair.b.mr.take(0, 48), &want)
}

fn takes_an_entry(rig: &Rig) -> Outcome {
    let (pair, key) = (pair(rig, 0)?, plain(rig)?);
    refused(&pair.a, &key, 1, &[Setter::Interleaved(1, vec![mlx5dv_mr_interleaved::default(); 3])])
}

fn zero_based(rig: &Rig) -> Outcome {
    for (addr, status) in [(0, Status::SUCCESS), (1, Status::LOC_PROT_ERR)] {
        let (pair, key) = (pair(rig, 0)?, plain(rig)?);
        set(&pair.a, &key, &[list(&[pair.a.mr.sge(0..64)])])?;
        same("the WRITE", write(&pair, key.sge(addr, 64))?, status)?;
    }
    let (pair, key) = (pair(rig, 0)?, plain(rig)?);
    set(&pair.a, &key, &[list(&[pair.a.mr.sge(0..64)])])?;
    same("by the memory's own address", write(&pair, key.sge(pair.a.mr.addr(), 64))?, Status::LOC_PROT_ERR)
}

fn access_overrides(rig: &Rig) -> Outcome {
    let (pair, key) = (pair(rig, 0)?, plain(rig)?);
    let both = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    set(&pair.b, &key, &[Setter::Access(both), list(&[pair.b.mr.sge(0..64)])])?;
    set(&pair.b, &key, &[Setter::Access(Access::REMOTE_READ)])?;
    let remote = Remote { addr: 0, rkey: key.number() };
    pair.a.qp.send(Wr::read(1, remote).sge(pair.a.mr.sge(0..64)))?;
    pair.a.scq.wait_ok()?;
    pair.a.qp.send(Wr::write(2, remote).sge(pair.a.mr.sge(0..64)))?;
    same("a WRITE then", pair.a.scq.wait_one()?.status, Status::REM_ACCESS_ERR)
}

fn layout_overrides(rig: &Rig) -> Outcome {
    let (pair, key) = (pair(rig, 0)?, plain(rig)?);
    pair.a.mr.put(0, &pattern(256));
    set(&pair.a, &key, &[list(&[pair.a.mr.sge(0..64)])])?;
    set(&pair.a, &key, &[list(&[pair.a.mr.sge(100..164)])])?;
    same("the WRITE", write(&pair, key.sge(0, 64))?, Status::SUCCESS)?;
    same_bytes("what arrived", &pair.b.mr.take(0, 64), &pair.a.mr.take(100, 64))
}

fn at_once(rig: &Rig) -> Outcome {
    let (pair, key) = (pair(rig, 0)?, plain(rig)?);
    for round in 0..7 {
        pair.a.mr.put(64 * round, &pattern(64 * (round + 1))[64 * round..]);
        set(&pair.a, &key, &[list(&[pair.a.mr.sge(64 * round..64 * round + 64)])])?;
        pair.a.qp.send(Wr::write(1, pair.remote(64 * round)).sge(key.sge(0, 64)).unsignaled())?;
    }
    pair.a.qp.send(Wr::write(2, pair.remote(1024)).sge(key.sge(0, 64)))?;
    pair.a.scq.wait_ok()?;
    same_bytes("what arrived", &pair.b.mr.take(0, 448), &pattern(448))
}

fn driver1(rig: &Rig) -> Outcome {
    let (pair, key) = (pair(rig, 0)?, plain(rig)?);
    let setters = [list(&[pair.a.mr.sge(0..64)])];
    key.configure(&pair.a.qp, 77, SIGNALED, conf_flags(0), 1, &setters)?;
    let wc = pair.a.scq.wait_ok()?;
    same("wr_id and opcode", (wc.id, wc.opcode), (77, SendOp::DRIVER1))?;
    key.configure(&pair.a.qp, 78, 0, conf_flags(0), 1, &setters)?;
    pair.a.scq.quiet()
}

pub(super) const SIGNALED: u32 = rdma_sys::ibv_send_flags::IBV_SEND_SIGNALED.0;

fn needs_inline(rig: &Rig) -> Outcome {
    let (pair, key) = (pair(rig, 0)?, plain(rig)?);
    let setters = [list(&[pair.a.mr.sge(0..64)])];
    let refused = key.configure(&pair.a.qp, 1, Key::NOT_INLINE, conf_flags(0), 1, &setters).err();
    same("errno", refused.map(|refused| refused.errno), Some(libc::EINVAL))
}

fn counted(rig: &Rig) -> Outcome {
    let (pair, key) = (pair(rig, 0)?, plain(rig)?);
    let setters = [Setter::Access(Access::LOCAL_WRITE), list(&[pair.a.mr.sge(0..64)])];
    refused(&pair.a, &key, 1, &setters)?;
    refused(&pair.a, &key, 3, &setters)?;
    set(&pair.a, &key, &setters)?;
    // No setter at all configures the attributes alone.
    set(&pair.a, &key, &[])
}

fn setter_once(rig: &Rig) -> Outcome {
    let (pair, key) = (pair(rig, 0)?, plain(rig)?);
    let access = || Setter::Access(Access::LOCAL_WRITE);
    refused(&pair.a, &key, 2, &[access(), access()])
}

fn one_layout(rig: &Rig) -> Outcome {
    let (pair, key) = (pair(rig, 0)?, plain(rig)?);
    let one = mlx5dv_mr_interleaved::default();
    refused(&pair.a, &key, 2, &[list(&[pair.a.mr.sge(0..64)]), Setter::Interleaved(1, vec![one])])
}

fn local_inv(rig: &Rig) -> Outcome {
    let (pair, key) = (pair(rig, 0)?, plain(rig)?);
    set(&pair.a, &key, &[list(&[pair.a.mr.sge(0..64)])])?;
    pair.a.qp.send(Wr::local_inv(1, key.number()))?;
    same("opcode", pair.a.scq.wait_ok()?.opcode, SendOp::LOCAL_INV)?;
    set(&pair.a, &key, &[list(&[pair.a.mr.sge(0..64)])])?;
    same("configured again", write(&pair, key.sge(0, 64))?, Status::SUCCESS)?;
    pair.a.qp.send(Wr::local_inv(1, key.number()).unsignaled())?;
    same("invalidated", write(&pair, key.sge(0, 64))?, Status::LOC_PROT_ERR)
}

fn remote_inv(rig: &Rig) -> Outcome {
    for (flags, status) in [(mkey_init_attr_flags::REMOTE_INVALIDATE, Status::SUCCESS), (0, Status::REM_ACCESS_ERR)] {
        let pair = pair(rig, 0)?;
        let key = Key::create(rig.pd(), mkey_init_attr_flags::INDIRECT | flags, 1)?;
        set(&pair.b, &key, &[list(&[pair.b.mr.sge(0..64)])])?;
        pair.b.recv(1)?;
        pair.a.qp.send(Wr::send(1).invalidate(key.number()))?;
        same("the send", pair.a.scq.wait_one()?.status, status)?;
    }
    Ok(())
}

fn held_in_sqd(rig: &Rig) -> Outcome {
    let (pair, key) = (pair(rig, 0)?, plain(rig)?);
    pair.a.mr.put(0, &pattern(64));
    to_sqd(&pair.a.qp)?;
    set(&pair.a, &key, &[list(&[pair.a.mr.sge(0..64)])])?;
    pair.a.qp.send(Wr::write(1, pair.remote(0)).sge(key.sge(0, 64)))?;
    pair.a.scq.quiet()?;
    to_rts_again(&pair.a.qp)?;
    pair.a.scq.wait_ok()?;
    same_bytes("what arrived", &pair.b.mr.take(0, 64), &pattern(64))
}

fn qp_must_configure(rig: &Rig) -> Outcome {
    let (pair, key) = (rig.pair(RC)?, plain(rig)?);
    refused(&pair.a, &key, 1, &[list(&[pair.a.mr.sge(0..64)])])
}

fn check_needs_signature(rig: &Rig) -> Outcome {
    same("errno", plain(rig)?.check().err().map(|refused| refused.errno), Some(libc::EINVAL))
}

fn check_good(rig: &Rig) -> Outcome {
    same("the error", signing(rig)?.check()?.err_type, mkey_err_type::NO_ERR)
}
