//! Memory regions: a peer's access, registration, and later changes.

use super::common::*;
use crate::check::{During, Failure, Outcome, ensure, one_of, same, same_bytes};
use crate::rig::{Access, Cap, Link, Mr, Pair, Qp, QpCap, Remote, Rereg, Rig, SideSpec, State, Status, Wr};
use crate::suite::Row;

pub(super) fn rows() -> Vec<Row> {
    let row = |rule, says, test: fn(&Rig) -> Outcome| Row::new(rule, page::POST_SEND, says, test);
    let reg = |rule, says, test: fn(&Rig) -> Outcome| Row::new(rule, page::REG_MR, says, test);
    let rereg = |rule, says, test: fn(&Rig) -> Outcome| {
        Row::new(rule, page::REREG_MR, says, test).rxe(
            "ibv_rereg_mr answered EOPNOTSUPP",
            "regions can't be re-registered",
            "rxe in Linux 6.1 has no rereg_user_mr",
        )
    };
    vec![
        row("mr/write-needs-remote-write", "RDMA WRITE into a region without REMOTE_WRITE is REM_ACCESS_ERR", |rig| {
            without(rig, Access::REMOTE_WRITE, |pair| Wr::write(1, pair.remote(0)).sge(pair.a.mr.sge(0..8)))
        }),
        row("mr/read-needs-remote-read", "RDMA READ from a region without REMOTE_READ is REM_ACCESS_ERR", |rig| {
            without(rig, Access::REMOTE_READ, |pair| Wr::read(1, pair.remote(0)).sge(pair.a.mr.sge(0..8)))
        }),
        row("mr/atomic-needs-remote-atomic", "An atomic on a region without REMOTE_ATOMIC is REM_ACCESS_ERR", |rig| {
            without(rig, Access::REMOTE_ATOMIC, |pair| Wr::fetch_add(1, pair.remote(0), 1).sge(pair.a.mr.sge(0..8)))
        })
        .needs(Cap::Atomics),
        row("mr/wrong-rkey", "An rkey that no region has is REM_ACCESS_ERR", |rig| {
            elsewhere(rig, |pair| pair.remote(0).with_rkey(pair.remote(0).rkey ^ 0x00ff_ff00))
        }),
        row("mr/one-byte-beyond", "Remote access that leaves the region by a byte is REM_ACCESS_ERR", |rig| {
            elsewhere(rig, |pair| pair.remote(pair.b.mr.len() - 7))
        }),
        row("mr/before-the-region", "Remote access that starts before the region is REM_ACCESS_ERR", |rig| {
            elsewhere(rig, |pair| Remote { addr: pair.remote(0).addr - 1, ..pair.remote(0) })
        }),
        row("mr/address-wraps", "A remote address at the end of the address space doesn't wrap into a region", |rig| {
            elsewhere(rig, |pair| Remote { addr: u64::MAX - 3, ..pair.remote(0) })
        }),
        row("mr/read-beyond", "An RDMA READ that leaves the region is REM_ACCESS_ERR", read_beyond),
        row(
            "mr/region-of-another-pd",
            "The rkey of a region of another protection domain than the peer's queue pair is REM_ACCESS_ERR",
            region_of_another_pd,
        ),
        row("mr/deregistered-rkey", "The rkey of a region that was deregistered is REM_ACCESS_ERR", deregistered_rkey),
        row(
            "mr/qp-must-allow-it",
            "Remote operations must be enabled in the peer's queue pair as well, by qp_access_flags",
            qp_must_allow_it,
        ),
        row(
            "mr/peer-does-not-notice",
            "The peer isn't aware of what is done in its memory: no completion, no event",
            peer_does_not_notice,
        ),
        reg("mr/remote-write-needs-local-write", "REMOTE_WRITE without LOCAL_WRITE is refused", |rig| {
            registration_refused(rig, Access::REMOTE_WRITE)
        }),
        reg("mr/remote-atomic-needs-local-write", "REMOTE_ATOMIC without LOCAL_WRITE is refused", |rig| {
            registration_refused(rig, Access::REMOTE_ATOMIC)
        }),
        reg("mr/any-address-any-length", "A region may start and end anywhere, not only at pages", any_address),
        reg(
            "mr/regions-may-overlap",
            "The same memory may be registered several times, each with its own access",
            overlap,
        ),
        reg("mr/keys-are-different", "Each region has its own keys", keys_are_different),
        reg("mr/relaxed-ordering-is-optional", "RELAXED_ORDERING is a wish: it is taken, or ignored", relaxed_ordering),
        reg(
            "mr/at-another-address",
            "A region can be registered to be addressed from another start (iova)",
            at_another_address,
        ),
        reg(
            "mr/on-demand",
            "A device with IBV_ODP_SUPPORT registers ON_DEMAND, and its pages come in as they are touched",
            on_demand,
        )
        .needs(Cap::OnDemand),
        reg(
            "mr/on-demand-needs-its-capability",
            "A device without IBV_ODP_SUPPORT refuses ON_DEMAND",
            on_demand_needs_its_capability,
        ),
        reg("mr/no-bytes-at-the-very-end", "A message of no bytes may be sent from a region's very end", end_of_region),
        Row::new(
            "mr/pd-with-a-region-is-busy",
            page::ALLOC_PD,
            "A protection domain with a region in it is EBUSY",
            pd_is_busy,
        ),
        Row::new(
            "mr/pd-with-a-qp-is-busy",
            page::ALLOC_PD,
            "A protection domain with a queue pair in it is EBUSY",
            pd_with_qp,
        ),
        rereg("mr/rereg-access", "A region's access can be changed", rereg_access),
        rereg("mr/rereg-translation", "A region can be moved to other memory", rereg_translation),
        rereg("mr/rereg-pd", "A region can be moved to another protection domain", rereg_pd),
    ]
}

/// Checks that `b`'s memory refuses `a`'s work request: REM_ACCESS_ERR, nothing changes, and both
/// queue pairs are in ERR.
fn is_refused(pair: &Pair, wr: Wr) -> Outcome {
    pair.a.mr.fill(0x11);
    pair.b.mr.fill(0x22);
    pair.a.qp.send(wr)?;
    same("the status", pair.a.scq.wait_one()?.status, Status::REM_ACCESS_ERR)?;
    same_bytes("the peer's memory", &pair.b.mr.take(0, 64), &[0x22; 64])?;
    same_bytes("the own memory", &pair.a.mr.take(0, 64), &[0x11; 64])?;
    pair.a.qp.expect_state(State::Err)?;
    pair.b.qp.expect_state(State::Err).during("the peer")
}

fn without(rig: &Rig, missing: Access, wr: fn(&Pair) -> Wr) -> Outcome {
    let spec = SideSpec { mr_access: Access::ALL.without(missing), ..SideSpec::default() };
    let pair = rig.pair_with(RC, spec, Link::default())?;
    is_refused(&pair, wr(&pair))
}

fn elsewhere(rig: &Rig, remote: fn(&Pair) -> Remote) -> Outcome {
    let pair = rig.pair(RC)?;
    is_refused(&pair, Wr::write(1, remote(&pair)).sge(pair.a.mr.sge(0..8)))
}

fn read_beyond(rig: &Rig) -> Outcome {
    let pair = rig.pair(RC)?;
    is_refused(&pair, Wr::read(1, pair.remote(pair.b.mr.len() - 7)).sge(pair.a.mr.sge(0..8)))
}

fn region_of_another_pd(rig: &Rig) -> Outcome {
    let pair = rig.pair(RC)?;
    let other = rig.far().other_pd()?;
    let mr = other.reg(&rig.far().memory(4096), 0..4096, Access::ALL)?;
    is_refused(&pair, Wr::write(1, mr.remote(0)).sge(pair.a.mr.sge(0..8)))
}

fn deregistered_rkey(rig: &Rig) -> Outcome {
    let pair = rig.pair(RC)?;
    let mr = rig.far().mr(4096)?;
    let remote = mr.remote(0);
    mr.deregister()?;
    is_refused(&pair, Wr::write(1, remote).sge(pair.a.mr.sge(0..8)))
}

fn qp_must_allow_it(rig: &Rig) -> Outcome {
    type Case = (Access, fn(&Pair) -> Wr);
    let cases: [Case; 3] = [
        (Access::REMOTE_WRITE, |pair| Wr::write(1, pair.remote(0))),
        (Access::REMOTE_READ, |pair| Wr::read(1, pair.remote(0))),
        (Access::REMOTE_ATOMIC, |pair| Wr::fetch_add(1, pair.remote(0), 1)),
    ];
    for (missing, wr) in cases {
        let link = Link { access: Access::ALL.without(missing), ..Link::default() };
        let pair = rig.pair_with(RC, SideSpec::default(), link)?;
        pair.a.qp.send(wr(&pair).sge(pair.a.mr.sge(0..8)))?;
        let status = pair.a.scq.wait_one()?.status;
        one_of(format_args!("without {missing:?}"), status, &[Status::REM_ACCESS_ERR, Status::REM_INV_REQ_ERR])?;
        same("the peer's memory", pair.b.mr.number(0), 0)?;
    }
    Ok(())
}

fn peer_does_not_notice(rig: &Rig) -> Outcome {
    let pair = rig.pair(RC)?;
    pair.b.recv(1)?;
    let here = pair.a.mr.sge(0..8);
    let remote = pair.remote(0);
    pair.a.qp.post_send(&[
        Wr::write(1, remote).sge(here),
        Wr::read(2, remote).sge(here),
        Wr::fetch_add(3, remote, 1).sge(here),
    ])?;
    pair.a.scq.wait_all_ok::<3>()?;
    pair.b.rcq.quiet()?;
    pair.b.scq.quiet()
}

fn registration_refused(rig: &Rig, access: Access) -> Outcome {
    let registered = rig.pd().reg(&rig.memory(4096), 0..4096, access);
    refused_with(format_args!("a region with {access:?}"), registered, libc::EINVAL)
}

fn any_address(rig: &Rig) -> Outcome {
    let pair = rig.pair(RC)?;
    let memory = rig.memory(3 * 4096);
    for range in [0..1, 1..2, 4095..4097, 17..12_000] {
        let mr = rig.pd().reg(&memory, range.clone(), Access::ALL)?;
        mr.put(mr.len() - 1, &[0x66]);
        let last = mr.len() - 1;
        pair.a.qp.send(Wr::write(1, pair.remote(0)).sge(mr.sge(last..last + 1)))?;
        pair.a.scq.wait_ok().during(format_args!("{range:?}"))?;
        same_bytes("written", &pair.b.mr.take(0, 1), &[0x66])?;
    }
    Ok(())
}

fn overlap(rig: &Rig) -> Outcome {
    let pair = rig.pair(RC)?;
    let memory = rig.far().memory(4096);
    let open = rig.far().pd().reg(&memory, 0..4096, Access::ALL)?;
    let closed = rig.far().pd().reg(&memory, 0..4096, Access::LOCAL_WRITE)?;
    pair.a.qp.send(Wr::write(1, open.remote(0)).sge(pair.a.mr.sge(0..8)))?;
    pair.a.scq.wait_ok().during("through the open one")?;
    is_refused(&pair, Wr::write(1, closed.remote(0)).sge(pair.a.mr.sge(0..8)))
}

fn keys_are_different(rig: &Rig) -> Outcome {
    let regions: Vec<Mr> = (0..8).map(|_| rig.mr(4096)).collect::<Outcome<_>>()?;
    let mut keys: Vec<u32> = regions.iter().map(Mr::rkey).collect();
    keys.sort_unstable();
    keys.dedup();
    same("different rkeys", keys.len(), 8)?;
    let mut keys: Vec<u32> = regions.iter().map(Mr::lkey).collect();
    keys.sort_unstable();
    keys.dedup();
    same("different lkeys", keys.len(), 8)
}

fn relaxed_ordering(rig: &Rig) -> Outcome {
    let spec = SideSpec { mr_access: Access::ALL | Access::RELAXED_ORDERING, ..SideSpec::default() };
    let pair = rig.pair_with(RC, spec, Link::default())?;
    pair.exchange()?;
    pair.a.qp.send(Wr::write(1, pair.remote(100)).sge(pair.a.mr.sge(0..8)))?;
    pair.a.scq.wait_ok().map(drop)
}

fn at_another_address(rig: &Rig) -> Outcome {
    let pair = rig.pair(RC)?;
    let memory = rig.far().memory(8192);
    let start = 0x7000_0000_0000;
    let mr = Mr::register_at(rig.far().pd(), &memory, start, Access::ALL)?;
    pair.a.mr.put(0, b"far away");
    let remote = Remote { addr: start + 5000, rkey: mr.rkey() };
    pair.a.qp.send(Wr::write(1, remote).sge(pair.a.mr.sge(0..8)))?;
    pair.a.scq.wait_ok()?;
    same_bytes("written", &memory.take(5000, 8), b"far away")?;
    is_refused(&pair, Wr::write(1, mr.remote(0)).sge(pair.a.mr.sge(0..8)))
}

/// Every operation that the device offers on such memory; and a write into a page that was never
/// touched.
fn on_demand(rig: &Rig) -> Outcome {
    let access = Access::ALL | Access::ON_DEMAND;
    let offers = |cap| rig.context().has(cap) && rig.far().context().has(cap);
    let (memory, at) = (rig.far().memory(1 << 22), 3 << 20);
    let untouched = rig.far().pd().reg(&memory, 0..1 << 22, access).during("registering")?;
    if offers(Cap::OnDemandWrite(RC)) {
        let pair = rig.pair(RC)?;
        pair.a.mr.put(0, b"first touch");
        pair.a.qp.send(Wr::write(1, untouched.remote(at)).sge(pair.a.mr.sge(0..11)))?;
        pair.a.scq.wait_ok().during("RDMA WRITE into a fresh page")?;
        same_bytes("written", &memory.take(at, 11), b"first touch")?;
    }
    for transport in [RC, UC, UD] {
        let spec = SideSpec { mr_access: access, ..SideSpec::default() };
        let pair = rig.pair_with(transport, spec, Link::default())?;
        if offers(Cap::OnDemandMessages(transport)) {
            pair.exchange().during(format_args!("{transport:?}, messages"))?;
        }
        if offers(Cap::OnDemandWrite(transport)) {
            pair.a.mr.put(0, b"on demand");
            pair.a.qp.send(Wr::write(1, pair.remote(64)).sge(pair.a.mr.sge(0..9)))?;
            pair.a.scq.wait_ok().during(format_args!("{transport:?}, RDMA WRITE"))?;
            pair.is_written(64, b"on demand")?;
        }
        if transport == RC && offers(Cap::OnDemandReadAtomic) {
            pair.b.mr.set_number(0, 7);
            pair.a.qp.send(Wr::fetch_add(2, pair.remote(0), 1).sge(pair.a.mr.sge(8..16)))?;
            pair.a.scq.wait_ok().during("an atomic")?;
            pair.a.qp.send(Wr::read(3, pair.remote(0)).sge(pair.a.mr.sge(16..24)))?;
            pair.a.scq.wait_ok().during("RDMA READ")?;
            same("what was there and what is", (pair.a.mr.number(8), pair.a.mr.number(16)), (7, 8))?;
        }
    }
    Ok(())
}

fn on_demand_needs_its_capability(rig: &Rig) -> Outcome {
    if rig.context().has(Cap::OnDemand) {
        return Err(Failure::Lacks("it has IBV_ODP_SUPPORT: the rule is about devices without".to_owned()));
    }
    match rig.pd().reg(&rig.memory(4096), 0..4096, Access::ALL | Access::ON_DEMAND) {
        Err(refused) => one_of("errno", refused.errno, &[libc::EOPNOTSUPP, libc::EINVAL]),
        Ok(_) => Err(Failure::new("expected a refusal, the region was registered")),
    }
}

fn end_of_region(rig: &Rig) -> Outcome {
    let pair = rig.pair(RC)?;
    // No entry: length 0 would mean 2^31.
    pair.a.qp.send(Wr::write(1, pair.remote(pair.b.mr.len())))?;
    pair.a.scq.wait_ok().map(drop)
}

fn pd_is_busy(rig: &Rig) -> Outcome {
    let pd = rig.other_pd()?;
    let mr = pd.reg(&rig.memory(4096), 0..4096, Access::NONE)?;
    refused_with("deallocating the PD of a region", pd.try_dealloc(), libc::EBUSY)?;
    mr.deregister()?;
    Ok(pd.try_dealloc()?)
}

fn pd_with_qp(rig: &Rig) -> Outcome {
    let pd = rig.other_pd()?;
    let cq = rig.cq(16)?;
    let qp = Qp::on(&pd, RC, &cq, QpCap::default())?;
    refused_with("deallocating the PD of a queue pair", pd.try_dealloc(), libc::EBUSY)?;
    qp.try_destroy()?;
    Ok(pd.try_dealloc()?)
}

fn rereg_access(rig: &Rig) -> Outcome {
    let pair = rig.pair(RC)?;
    let write = |id| Wr::write(id, pair.remote(0)).sge(pair.a.mr.sge(0..8));
    pair.a.qp.send(write(1))?;
    pair.a.scq.wait_ok()?;
    pair.b.mr.rereg(Rereg::Access(Access::LOCAL_WRITE | Access::REMOTE_READ))?;
    // The key may have changed: `remote` reads it again.
    is_refused(&pair, Wr::write(2, pair.remote(0)).sge(pair.a.mr.sge(0..8)))
}

fn rereg_translation(rig: &Rig) -> Outcome {
    let pair = rig.pair(RC)?;
    let old = pair.b.mr.addr();
    let memory = rig.far().memory(8192);
    pair.b.mr.rereg(Rereg::Translation(&memory, 0..8192))?;
    ensure(pair.b.mr.addr() != old, "the region is elsewhere")?;
    pair.a.mr.put(0, b"new home");
    pair.a.qp.send(Wr::write(1, pair.remote(4096)).sge(pair.a.mr.sge(0..8)))?;
    pair.a.scq.wait_ok()?;
    same_bytes("written", &memory.take(4096, 8), b"new home")?;
    is_refused(&pair, Wr::write(2, Remote { addr: old, ..pair.remote(0) }).sge(pair.a.mr.sge(0..8)))
}

fn rereg_pd(rig: &Rig) -> Outcome {
    let pair = rig.pair(RC)?;
    let other = rig.far().other_pd()?;
    pair.b.mr.rereg(Rereg::Pd(&other))?;
    is_refused(&pair, Wr::write(1, pair.remote(0)).sge(pair.a.mr.sge(0..8)))
}
