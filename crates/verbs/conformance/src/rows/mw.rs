//! Memory windows and remote invalidation: BIND_MW, LOCAL_INV, SEND_WITH_INV, `ibv_bind_mw(3)`.

use super::common::*;
use crate::check::{Outcome, ensure, one_of, same, same_bytes};
use crate::rig::{Access, Cap, Link, Mr, Mw, MwType, Pair, Remote, Rig, SendOp, SideSpec, State, Status, Window, Wr};
use crate::suite::Row;

pub(super) fn rows() -> Vec<Row> {
    let one =
        |rule, says, test: fn(&Rig) -> Outcome| Row::new(rule, page::BIND_MW, says, test).needs(Cap::MemoryWindows);
    let two = |rule, says, test: fn(&Rig) -> Outcome| {
        Row::new(rule, page::POST_SEND, says, test).needs(Cap::MemoryWindowsType2)
    };
    let inv = |rule, says, test: fn(&Rig) -> Outcome| two(rule, says, test).needs(Cap::MemoryExtensions);
    vec![
        Row::new("mw/type-1-is-allocated", page::ALLOC_MW, "A type 1 window can be allocated and deallocated", |rig| {
            allocated(rig, MwType::One)
        })
        .needs(Cap::MemoryWindows),
        Row::new("mw/type-2-is-allocated", page::ALLOC_MW, "A type 2 window can be allocated and deallocated", |rig| {
            allocated(rig, MwType::Two)
        })
        .needs(Cap::MemoryWindowsType2),
        one("mw/type-1-bind-opens-the-window", "ibv_bind_mw lets a peer in by the window's R_Key", type_1_opens),
        one(
            "mw/type-1-bind-changes-the-key",
            "Each bind of type 1 gives the window another R_Key; the old one is void",
            type_1_key,
        ),
        one("mw/type-1-of-length-0-unbinds", "A bind of length 0 closes the window", type_1_unbinds),
        one(
            "mw/type-1-goes-on-from-the-handles-key",
            "After a bind that failed the handle's key is to be put back: until then no bind works, then they do",
            failed_bind_is_put_back,
        ),
        one("mw/bind-mw-is-for-type-1", "ibv_bind_mw of a type 2 window is EINVAL", bind_mw_is_for_type_1)
            .needs(Cap::MemoryWindowsType2),
        two("mw/type-2-bind-opens-the-window", "BIND_MW lets a peer in by the key that it gives", type_2_opens),
        two("mw/bounds-are-the-windows", "A window opens its range only, not the rest of the region", bounds).rxe(
            "expected REM_ACCESS_ERR, got SUCCESS",
            "a window opens all of its region",
            "rxe's check_rkey() looks at the region's bounds, also when the key is a window's",
        ),
        two("mw/access-is-the-windows", "A window opens with its own access: read-only refuses to be written", access),
        two("mw/needs-mw-bind", "A region without IBV_ACCESS_MW_BIND can't have a window", needs_mw_bind),
        two(
            "mw/can-not-give-what-the-region-lacks",
            "A window can't allow remote writing on a region without LOCAL_WRITE",
            can_not_give_more,
        ),
        two("mw/out-of-the-region", "A window that leaves its region can't be bound", out_of_the_region),
        two("mw/another-pd", "A window and its region belong to one protection domain", another_pd),
        two("mw/unbound-key-opens-nothing", "A window that was never bound lets nobody in", unbound_opens_nothing),
        inv("mw/local-inv-closes-the-window", "LOCAL_INV voids the key: who comes by it is refused", local_inv),
        inv("mw/rebound-with-a-new-key", "After LOCAL_INV the window can be bound again, with another key", rebound),
        inv(
            "mw/stale-handle-is-not-bound",
            "The handle says which key BIND_MW replaces: one whose key is not the window's is refused",
            stale_handle,
        ),
        inv(
            "mw/a-key-may-come-back",
            "The low 8 bits of a type 2 key are the program's: one that was in force before may be given again",
            key_comes_back,
        ),
        inv(
            "mw/send-with-inv-closes-the-window",
            "SEND_WITH_INV voids the receiver's key, and the receive's completion says which",
            send_with_inv,
        )
        .rxe(
            "the invalidated key in the completion: expected Some",
            "the key is invalidated, but IBV_WC_WITH_INV is not set in the completion",
            "the kernel's flag is passed on as it is: 4, which in libibverbs is IBV_WC_IP_CSUM_OK",
        ),
        inv("mw/local-inv-of-nothing-fails", "LOCAL_INV of a key that nothing has fails", local_inv_of_nothing),
        inv(
            "mw/send-with-inv-of-a-region-fails",
            "SEND_WITH_INV of a plain memory region's key fails the receive: such a key can't be invalidated",
            inv_of_a_region,
        ),
        two(
            "mw/bound-type-2-is-not-bound-again",
            "A type 2 window must be invalidated before it is bound again",
            not_bound_again,
        ),
        two(
            "mw/type-2-of-length-0-is-refused",
            "A type 2 window is closed by invalidating it: it can't be bound to nothing",
            bound_to_nothing,
        ),
        Row::new(
            "mw/region-under-a-window-is-kept",
            page::DEREG_MR,
            "A region with a window bound to it can't be deregistered",
            region_is_kept,
        )
        .needs(Cap::MemoryWindowsType2)
        .needs(Cap::MemoryExtensions),
        two(
            "mw/type-2-belongs-to-its-qp",
            "A type 2 window is open to those who come through the queue pair that bound it, and to nobody else",
            belongs_to_its_qp,
        ),
        two(
            "mw/deallocated-window-is-closed",
            "The key of a window that was deallocated lets nobody in",
            deallocated_is_closed,
        ),
    ]
}

/// An RC pair whose `b` has memory that windows can be bound to.
fn pair(rig: &Rig) -> Outcome<Pair> {
    rig.pair_with(RC, SideSpec { mr_access: Access::ALL | Access::MW_BIND, ..SideSpec::default() }, Link::default())
}

/// Bytes 1024 to 2048 of the region, for writing and reading.
fn window(mr: &Mr) -> Window {
    Window { mr: mr.clone(), range: 1024..2048, access: Access::REMOTE_WRITE | Access::REMOTE_READ }
}

fn allocated(rig: &Rig, kind: MwType) -> Outcome {
    let windows = [Mw::alloc(rig.far().pd(), kind)?, Mw::alloc(rig.far().pd(), kind)?];
    ensure(windows[0].rkey() != windows[1].rkey() || kind == MwType::One, "two windows have two keys")?;
    windows.iter().try_for_each(|mw| Ok(mw.try_dealloc()?))
}

/// A pair, and a window that `b` may bind.
fn unbound(rig: &Rig, kind: MwType) -> Outcome<(Pair, Mw)> {
    Ok((pair(rig)?, Mw::alloc(rig.far().pd(), kind)?))
}

/// A pair whose `b` has bound a type 2 window under this key.
fn bound(rig: &Rig) -> Outcome<(Pair, Mw, u32)> {
    let (pair, mw) = unbound(rig, MwType::Two)?;
    let rkey = bind_2(&pair, &mw, &window(&pair.b.mr))?;
    Ok((pair, mw, rkey))
}

/// `b` binds its type 1 window.
fn bind_1(pair: &Pair, mw: &Mw, window: &Window) -> Outcome {
    mw.bind(&pair.b.qp, 70, window)?;
    let wc = pair.b.scq.wait_ok()?;
    same("the bind's wr_id and opcode", (wc.id, wc.opcode), (70, SendOp::BIND_MW))
}

/// `b` binds its type 2 window under the next key; returns the key.
fn bind_2(pair: &Pair, mw: &Mw, window: &Window) -> Outcome<u32> {
    let rkey = mw.next_rkey();
    pair.b.qp.send(Wr::bind(71, mw, rkey, window))?;
    let wc = pair.b.scq.wait_ok()?;
    same("the bind's wr_id and opcode", (wc.id, wc.opcode), (71, SendOp::BIND_MW))?;
    mw.set_rkey(rkey);
    Ok(rkey)
}

/// Byte 1024 of `b`'s memory, by this key.
fn inside(pair: &Pair, rkey: u32) -> Remote {
    pair.remote(1024).with_rkey(rkey)
}

/// `a` writes 8 bytes there; returns the status.
fn write(pair: &Pair, remote: Remote) -> Outcome<Status> {
    pair.a.mr.put(0, b"a window");
    pair.a.qp.send(Wr::write(1, remote).sge(pair.a.mr.sge(0..8)))?;
    Ok(pair.a.scq.wait_one()?.status)
}

/// Checks that `a`'s write arrives there.
fn is_open(pair: &Pair, remote: Remote) -> Outcome {
    same("a write through the window", write(pair, remote)?, Status::SUCCESS)?;
    same_bytes("written", &pair.b.mr.take(1024, 8), b"a window")
}

/// Checks that `a`'s write there is refused.
fn is_closed(pair: &Pair, remote: Remote) -> Outcome {
    let before = pair.b.mr.take(0, pair.b.mr.len());
    same("a write through the window", write(pair, remote)?, Status::REM_ACCESS_ERR)?;
    same_bytes("the peer's memory", &pair.b.mr.take(0, pair.b.mr.len()), &before)
}

fn type_1_opens(rig: &Rig) -> Outcome {
    let (pair, mw) = unbound(rig, MwType::One)?;
    bind_1(&pair, &mw, &window(&pair.b.mr))?;
    is_open(&pair, inside(&pair, mw.rkey()))
}

fn type_1_key(rig: &Rig) -> Outcome {
    let (pair, mw) = unbound(rig, MwType::One)?;
    bind_1(&pair, &mw, &window(&pair.b.mr))?;
    let old = mw.rkey();
    bind_1(&pair, &mw, &window(&pair.b.mr))?;
    ensure(mw.rkey() != old, "the second bind gives another key")?;
    is_open(&pair, inside(&pair, mw.rkey()))?;
    is_closed(&pair, inside(&pair, old))
}

fn type_1_unbinds(rig: &Rig) -> Outcome {
    let (pair, mw) = unbound(rig, MwType::One)?;
    bind_1(&pair, &mw, &window(&pair.b.mr))?;
    is_open(&pair, inside(&pair, mw.rkey()))?;
    bind_1(&pair, &mw, &Window { range: 0..0, ..window(&pair.b.mr) })?;
    is_closed(&pair, inside(&pair, mw.rkey()))
}

fn bind_mw_is_for_type_1(rig: &Rig) -> Outcome {
    let (pair, mw) = unbound(rig, MwType::Two)?;
    refused_with("binding a type 2 window", mw.bind(&pair.b.qp, 1, &window(&pair.b.mr)), libc::EINVAL)
}

fn type_2_opens(rig: &Rig) -> Outcome {
    let (pair, _mw, rkey) = bound(rig)?;
    is_open(&pair, inside(&pair, rkey))?;
    pair.a.qp.send(Wr::read(2, inside(&pair, rkey)).sge(pair.a.mr.sge(100..108)))?;
    pair.a.scq.wait_ok()?;
    same_bytes("read", &pair.a.mr.take(100, 8), b"a window")
}

fn bounds(rig: &Rig) -> Outcome {
    for offset in [1023, 2041] {
        let (pair, _mw, rkey) = bound(rig)?;
        is_closed(&pair, pair.remote(offset).with_rkey(rkey))?;
    }
    Ok(())
}

fn access(rig: &Rig) -> Outcome {
    let (pair, mw) = unbound(rig, MwType::Two)?;
    let rkey = bind_2(&pair, &mw, &Window { access: Access::REMOTE_READ, ..window(&pair.b.mr) })?;
    pair.a.qp.send(Wr::read(2, inside(&pair, rkey)).sge(pair.a.mr.sge(100..108)))?;
    pair.a.scq.wait_ok()?;
    is_closed(&pair, inside(&pair, rkey))
}

/// Checks an impossible bind: the post refuses it, or it completes with one of the errors for that;
/// the key opens nothing.
fn can_not_bind(pair: &Pair, mw: &Mw, window: &Window) -> Outcome {
    let rkey = mw.next_rkey();
    match pair.b.qp.send(Wr::bind(1, mw, rkey, window)) {
        Err(refused) => one_of("errno", refused.errno, &[libc::EINVAL, libc::EPERM])?,
        Ok(()) => {
            let bad = [Status::MW_BIND_ERR, Status::LOC_PROT_ERR, Status::LOC_QP_OP_ERR, Status::LOC_ACCESS_ERR];
            one_of("the bind's status", pair.b.scq.wait_one()?.status, &bad)?;
        }
    }
    ensure(pair.b.qp.state()? != State::Reset, "the queue pair has a state")
}

fn needs_mw_bind(rig: &Rig) -> Outcome {
    let pair = rig.pair(RC)?;
    let mw = Mw::alloc(rig.far().pd(), MwType::Two)?;
    can_not_bind(&pair, &mw, &window(&pair.b.mr))
}

fn can_not_give_more(rig: &Rig) -> Outcome {
    let pair = pair(rig)?;
    let mr = rig.far().mr_with(4096, Access::REMOTE_READ | Access::MW_BIND)?;
    let mw = Mw::alloc(rig.far().pd(), MwType::Two)?;
    can_not_bind(&pair, &mw, &window(&mr))
}

fn out_of_the_region(rig: &Rig) -> Outcome {
    let (pair, mw) = unbound(rig, MwType::Two)?;
    let end = pair.b.mr.len();
    can_not_bind(&pair, &mw, &Window { range: end - 100..end + 1, ..window(&pair.b.mr) })
}

fn another_pd(rig: &Rig) -> Outcome {
    let pair = pair(rig)?;
    let other = rig.far().other_pd()?;
    let mw = Mw::alloc(&other, MwType::Two)?;
    can_not_bind(&pair, &mw, &window(&pair.b.mr))
}

fn unbound_opens_nothing(rig: &Rig) -> Outcome {
    let (pair, mw) = unbound(rig, MwType::Two)?;
    is_closed(&pair, inside(&pair, mw.rkey()))
}

fn invalidate(pair: &Pair, rkey: u32) -> Outcome {
    pair.b.qp.send(Wr::local_inv(72, rkey))?;
    let wc = pair.b.scq.wait_ok()?;
    same("LOCAL_INV's wr_id and opcode", (wc.id, wc.opcode), (72, SendOp::LOCAL_INV))
}

fn local_inv(rig: &Rig) -> Outcome {
    let (pair, _mw, rkey) = bound(rig)?;
    is_open(&pair, inside(&pair, rkey))?;
    invalidate(&pair, rkey)?;
    is_closed(&pair, inside(&pair, rkey))
}

fn rebound(rig: &Rig) -> Outcome {
    let (pair, mw) = unbound(rig, MwType::Two)?;
    let old = bind_2(&pair, &mw, &window(&pair.b.mr))?;
    invalidate(&pair, old)?;
    let new = bind_2(&pair, &mw, &window(&pair.b.mr))?;
    ensure(new != old, "the second key is another one")?;
    is_open(&pair, inside(&pair, new))?;
    is_closed(&pair, inside(&pair, old))
}

fn stale_handle(rig: &Rig) -> Outcome {
    let (pair, mw) = unbound(rig, MwType::Two)?;
    let first = mw.rkey();
    let bound = bind_2(&pair, &mw, &window(&pair.b.mr))?;
    invalidate(&pair, bound)?;
    mw.set_rkey(first);
    can_not_bind(&pair, &mw, &window(&pair.b.mr))
}

fn key_comes_back(rig: &Rig) -> Outcome {
    let (pair, mw) = unbound(rig, MwType::Two)?;
    let first = bind_2(&pair, &mw, &window(&pair.b.mr))?;
    invalidate(&pair, first)?;
    let second = bind_2(&pair, &mw, &window(&pair.b.mr))?;
    invalidate(&pair, second)?;
    pair.b.qp.send(Wr::bind(73, &mw, first, &window(&pair.b.mr)))?;
    pair.b.scq.wait_ok()?;
    mw.set_rkey(first);
    is_open(&pair, inside(&pair, first))?;
    is_closed(&pair, inside(&pair, second))
}

fn bound_to_nothing(rig: &Rig) -> Outcome {
    let (pair, mw) = unbound(rig, MwType::Two)?;
    can_not_bind(&pair, &mw, &Window { range: 0..0, ..window(&pair.b.mr) })
}

fn failed_bind_is_put_back(rig: &Rig) -> Outcome {
    let mw = Mw::alloc(rig.far().pd(), MwType::One)?;
    let fails = |range| {
        let pair = pair(rig)?;
        mw.bind(&pair.b.qp, 70, &Window { range, ..window(&pair.b.mr) })?;
        same("the bind's status", pair.b.scq.wait_one()?.status, Status::MW_BIND_ERR)
    };
    let good = mw.rkey();
    fails(1024..1 << 30)?;
    ensure(mw.rkey() != good, "the post has changed the handle's key")?;
    fails(1024..2048)?;
    mw.set_rkey(good);
    let pair = pair(rig)?;
    bind_1(&pair, &mw, &window(&pair.b.mr))?;
    is_open(&pair, inside(&pair, mw.rkey()))
}

fn send_with_inv(rig: &Rig) -> Outcome {
    let (pair, _mw, rkey) = bound(rig)?;
    is_open(&pair, inside(&pair, rkey))?;
    let wc = deliver(&pair, small(&pair, 1).invalidate(rkey))?;
    is_closed(&pair, inside(&pair, rkey))?;
    same("the invalidated key in the completion", wc.invalidated_rkey, Some(rkey))
}

fn local_inv_of_nothing(rig: &Rig) -> Outcome {
    let pair = pair(rig)?;
    let nobodys = pair.b.mr.rkey() ^ 0x00ff_ff00;
    never_works(&pair, Wr::local_inv(1, nobodys), &[Status::MW_BIND_ERR, Status::LOC_QP_OP_ERR, Status::LOC_PROT_ERR])
}

fn inv_of_a_region(rig: &Rig) -> Outcome {
    let pair = pair(rig)?;
    pair.b.recv(1)?;
    pair.a.qp.send(small(&pair, 2).invalidate(pair.b.mr.rkey()))?;
    ensure(!pair.b.rcq.wait_one()?.ok(), "the receive fails")?;
    pair.b.qp.expect_state(State::Err)
}

fn deallocated_is_closed(rig: &Rig) -> Outcome {
    let (pair, mw, rkey) = bound(rig)?;
    is_open(&pair, inside(&pair, rkey))?;
    mw.try_dealloc()?;
    is_closed(&pair, inside(&pair, rkey))
}

fn belongs_to_its_qp(rig: &Rig) -> Outcome {
    let (own, other) = (pair(rig)?, pair(rig)?);
    let mw = Mw::alloc(rig.far().pd(), MwType::Two)?;
    let rkey = bind_2(&own, &mw, &window(&own.b.mr))?;
    is_open(&own, inside(&own, rkey))?;
    is_closed(&other, inside(&own, rkey))
}

fn not_bound_again(rig: &Rig) -> Outcome {
    let (pair, mw) = unbound(rig, MwType::Two)?;
    bind_2(&pair, &mw, &window(&pair.b.mr))?;
    can_not_bind(&pair, &mw, &window(&pair.b.mr))
}

fn region_is_kept(rig: &Rig) -> Outcome {
    let pair = pair(rig)?;
    let mr = rig.far().mr_with(4096, Access::ALL | Access::MW_BIND)?;
    let mw = Mw::alloc(rig.far().pd(), MwType::Two)?;
    let rkey = bind_2(&pair, &mw, &window(&mr))?;
    ensure(mr.deregister().is_err(), "deregistering is refused")?;
    is_through(&pair, &mr, rkey)?;
    invalidate(&pair, rkey)?;
    Ok(mr.deregister()?)
}

/// Checks that `a` writes through the window of a region other than `b`'s usual one.
fn is_through(pair: &Pair, mr: &Mr, rkey: u32) -> Outcome {
    same("a write through the window", write(pair, mr.remote(1024).with_rkey(rkey))?, Status::SUCCESS)?;
    same_bytes("written", &mr.take(1024, 8), b"a window")
}
