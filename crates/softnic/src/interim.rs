//! INTERIM provider: one lock around everything, no performance, so that the crates above can run while the real one is
//! being built. Whoever lands the real `provider` deletes this file.
#![allow(clippy::all, clippy::undocumented_unsafe_blocks, missing_docs, unsafe_op_in_unsafe_fn, unused_variables)]

use crate::qp_table::{self, AttrMask, State, Transport};
use rdma_sys::*;
use std::alloc::{Layout, alloc_zeroed};
use std::collections::{HashMap, VecDeque};
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr::{null_mut, copy_nonoverlapping};
use std::sync::{Mutex, MutexGuard, OnceLock};

struct Sge { addr: u64, len: usize, lkey: u32 }
struct Recv { id: u64, sges: Vec<Sge> }
struct Send { id: u64, op: u32, flags: u32, imm: u32, sges: Vec<Sge>, inline: Option<Vec<u8>>, raddr: u64, rkey: u32, dgid: [u8; 16], dlid: u16, global: bool, qpn: u32, qkey: u32, index: u64 }
struct Qp { raw: usize, num: u32, ty: Transport, state: State, attr: ibv_qp_attr, cap: ibv_qp_cap, sig_all: bool, send_cq: usize, recv_cq: usize, pd: usize, lid: u16, sq: VecDeque<Send>, rq: VecDeque<Recv>, posted: u64, freed: u64 }
struct Wc { wc: ibv_wc, frees: Option<(u32, u64)> }
struct Cq { q: VecDeque<Wc>, cap: usize, armed: u8, channel: usize }
struct Mr { addr: u64, len: u64, access: u32, pd: usize }
#[derive(Default)]
struct World { qps: HashMap<u32, Qp>, cqs: HashMap<usize, Cq>, mrs: HashMap<u32, Mr>, groups: HashMap<[u8; 16], Vec<u32>>, ready: HashMap<usize, VecDeque<usize>>, ahs: HashMap<usize, ibv_ah_attr>, pds: u32, next_qpn: u32, next_key: u32 }
unsafe impl std::marker::Send for World {}
fn world() -> MutexGuard<'static, World> {
    static W: OnceLock<Mutex<World>> = OnceLock::new();
    W.get_or_init(|| Mutex::new(World { next_qpn: 0x100, next_key: 0x1000, ..Default::default() })).lock().unwrap_or_else(|e| e.into_inner())
}
fn errno(e: c_int) { unsafe { *libc::__errno_location() = e } }
unsafe fn zeroed<T>(size: usize) -> *mut T { alloc_zeroed(Layout::from_size_align_unchecked(size, 64)) as *mut T }

const NAMES: [&CStr; 2] = [c"soft0", c"soft1"];
fn devices() -> [usize; 2] {
    static D: OnceLock<[usize; 2]> = OnceLock::new();
    *D.get_or_init(|| std::array::from_fn(|i| unsafe {
        let d: *mut ibv_device = zeroed(4096);
        for (k, b) in NAMES[i].to_bytes().iter().enumerate() { (*d).name[k] = *b as c_char; (*d).dev_name[k] = *b as c_char; }
        (*d).node_type = ibv_node_type::IBV_NODE_CA;
        d as usize
    }))
}
unsafe fn lid_of(ctx: *mut ibv_context) -> u16 { if (*ctx).device as usize == devices()[0] { 1 } else { 2 } }
pub unsafe extern "C" fn ibv_get_device_list(n: *mut c_int) -> *mut *mut ibv_device {
    let list: *mut *mut ibv_device = zeroed(64);
    for i in 0..2 { *list.add(i) = devices()[i] as *mut _; }
    if !n.is_null() { *n = 2; }
    list
}
pub unsafe extern "C" fn ibv_free_device_list(list: *mut *mut ibv_device) {}
pub unsafe extern "C" fn ibv_get_device_name(d: *mut ibv_device) -> *const c_char { (*d).name.as_ptr() }
pub unsafe extern "C" fn ibv_get_device_guid(d: *mut ibv_device) -> __be64 { 1u64.to_be() }
pub unsafe extern "C" fn ibv_get_device_index(d: *mut ibv_device) -> c_int { -1 }
pub unsafe extern "C" fn ibv_open_device(d: *mut ibv_device) -> *mut ibv_context {
    let base: *mut u8 = zeroed(4096);
    let c = base.add(320) as *mut ibv_context;
    (*c).device = d;
    (*c).abi_compat = null_mut();
    (*c).num_comp_vectors = 1;
    (*c).cmd_fd = -1;
    (*c).async_fd = libc::eventfd(0, libc::EFD_CLOEXEC);
    (*c).ops.poll_cq = Some(poll_cq);
    (*c).ops.req_notify_cq = Some(req_notify_cq);
    (*c).ops.post_send = Some(post_send);
    (*c).ops.post_recv = Some(post_recv);
    c
}
pub unsafe extern "C" fn ibv_close_device(c: *mut ibv_context) -> c_int { libc::close((*c).async_fd); 0 }
pub unsafe extern "C" fn ibv_query_device(c: *mut ibv_context, a: *mut ibv_device_attr) -> c_int {
    *a = std::mem::zeroed();
    (*a).max_mr_size = u64::MAX; (*a).page_size_cap = 0xfffff000; (*a).max_qp = 65536; (*a).max_qp_wr = 16384; (*a).max_sge = 16; (*a).max_cq = 65536; (*a).max_cqe = 1 << 20; (*a).max_mr = 65536; (*a).max_pd = 65536;
    (*a).max_mcast_grp = 8192; (*a).max_mcast_qp_attach = 1024; (*a).max_total_mcast_qp_attach = 8192; (*a).max_ah = 65536; (*a).phys_port_cnt = 1; (*a).max_pkeys = 1; (*a).max_qp_rd_atom = 128; (*a).max_qp_init_rd_atom = 128;
    0
}
pub unsafe extern "C" fn ibv_query_port(c: *mut ibv_context, p: u8, a: *mut ibv_port_attr) -> c_int {
    if p != 1 { return libc::EINVAL; }
    *a = std::mem::zeroed();
    (*a).state = ibv_port_state::IBV_PORT_ACTIVE; (*a).max_mtu = ibv_mtu::IBV_MTU_4096; (*a).active_mtu = ibv_mtu::IBV_MTU_4096; (*a).gid_tbl_len = 2; (*a).pkey_tbl_len = 1; (*a).lid = lid_of(c); (*a).max_msg_sz = 1 << 31; (*a).phys_state = 5; (*a).link_layer = 2;
    0
}
fn gid(lid: u16, index: c_int) -> [u8; 16] {
    let mut g = [0u8; 16];
    if index == 0 { g[0] = 0xfe; g[1] = 0x80; } else { g[10] = 0xff; g[11] = 0xff; g[12] = 10; g[13] = 9; g[14] = 9; }
    g[15] = lid as u8;
    g
}
pub unsafe extern "C" fn ibv_query_gid(c: *mut ibv_context, p: u8, i: c_int, g: *mut ibv_gid) -> c_int {
    if p != 1 || !(0..2).contains(&i) { errno(libc::EINVAL); return -1; }
    (*g).raw = gid(lid_of(c), i); 0
}
pub unsafe extern "C" fn ibv_query_pkey(c: *mut ibv_context, p: u8, i: c_int, k: *mut __be16) -> c_int { *k = 0xffff; 0 }
pub unsafe extern "C" fn ibv_get_pkey_index(c: *mut ibv_context, p: u8, k: __be16) -> c_int { 0 }
pub unsafe extern "C" fn ibv_alloc_pd(c: *mut ibv_context) -> *mut ibv_pd { let p: *mut ibv_pd = zeroed(256); (*p).context = c; let mut w = world(); w.pds += 1; (*p).handle = w.pds; p }
pub unsafe extern "C" fn ibv_dealloc_pd(p: *mut ibv_pd) -> c_int { 0 }
pub unsafe extern "C" fn ibv_reg_mr(pd: *mut ibv_pd, addr: *mut c_void, len: usize, access: c_int) -> *mut ibv_mr {
    let mut w = world(); w.next_key += 0x101; let key = w.next_key;
    w.mrs.insert(key, Mr { addr: addr as u64, len: len as u64, access: access as u32, pd: pd as usize });
    let m: *mut ibv_mr = zeroed(256);
    (*m).context = (*pd).context; (*m).pd = pd; (*m).addr = addr; (*m).length = len; (*m).lkey = key; (*m).rkey = key; m
}
pub unsafe extern "C" fn ibv_reg_mr_iova(pd: *mut ibv_pd, addr: *mut c_void, len: usize, iova: u64, access: c_int) -> *mut ibv_mr { ibv_reg_mr(pd, addr, len, access) }
pub unsafe extern "C" fn ibv_reg_mr_iova2(pd: *mut ibv_pd, addr: *mut c_void, len: usize, iova: u64, access: c_uint) -> *mut ibv_mr { ibv_reg_mr(pd, addr, len, access as c_int) }
pub unsafe extern "C" fn ibv_rereg_mr(mr: *mut ibv_mr, flags: c_int, pd: *mut ibv_pd, addr: *mut c_void, len: usize, access: c_int) -> c_int { ibv_rereg_mr_err_code::IBV_REREG_MR_ERR_CMD }
pub unsafe extern "C" fn ibv_dereg_mr(m: *mut ibv_mr) -> c_int { world().mrs.remove(&(*m).lkey); 0 }
pub unsafe extern "C" fn ibv_create_comp_channel(c: *mut ibv_context) -> *mut ibv_comp_channel {
    let ch: *mut ibv_comp_channel = zeroed(256); (*ch).context = c; (*ch).fd = libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_SEMAPHORE); world().ready.insert(ch as usize, VecDeque::new()); ch
}
pub unsafe extern "C" fn ibv_destroy_comp_channel(ch: *mut ibv_comp_channel) -> c_int { if (*ch).refcnt > 0 { return libc::EBUSY; } world().ready.remove(&(ch as usize)); libc::close((*ch).fd); 0 }
pub unsafe extern "C" fn ibv_create_cq(c: *mut ibv_context, cqe: c_int, ctx: *mut c_void, ch: *mut ibv_comp_channel, v: c_int) -> *mut ibv_cq {
    let q: *mut ibv_cq = zeroed(1024);
    (*q).context = c; (*q).channel = ch; (*q).cq_context = ctx; (*q).cqe = cqe;
    if !ch.is_null() { (*ch).refcnt += 1; }
    world().cqs.insert(q as usize, Cq { q: VecDeque::new(), cap: cqe as usize, armed: 0, channel: ch as usize }); q
}
pub unsafe extern "C" fn ibv_resize_cq(cq: *mut ibv_cq, cqe: c_int) -> c_int { libc::ENOSYS }
pub unsafe extern "C" fn ibv_destroy_cq(q: *mut ibv_cq) -> c_int { if !(*q).channel.is_null() { (*(*q).channel).refcnt -= 1; } let mut w = world(); w.cqs.remove(&(q as usize)); for r in w.ready.values_mut() { r.retain(|x| *x != q as usize); } 0 }
pub unsafe extern "C" fn ibv_get_cq_event(ch: *mut ibv_comp_channel, cq: *mut *mut ibv_cq, ctx: *mut *mut c_void) -> c_int {
    let mut one = 0u64;
    if libc::read((*ch).fd, &raw mut one as *mut c_void, 8) != 8 { return -1; }
    match world().ready.get_mut(&(ch as usize)).and_then(|r| r.pop_front()) {
        Some(q) => { *cq = q as *mut ibv_cq; *ctx = (**cq).cq_context; 0 }
        None => { errno(libc::EAGAIN); -1 }
    }
}
pub unsafe extern "C" fn ibv_ack_cq_events(cq: *mut ibv_cq, n: c_uint) { (*cq).comp_events_completed += n; }
pub unsafe extern "C" fn ibv_create_srq(pd: *mut ibv_pd, i: *mut ibv_srq_init_attr) -> *mut ibv_srq { errno(libc::ENOSYS); null_mut() }
pub unsafe extern "C" fn ibv_modify_srq(s: *mut ibv_srq, a: *mut ibv_srq_attr, m: c_int) -> c_int { libc::ENOSYS }
pub unsafe extern "C" fn ibv_query_srq(s: *mut ibv_srq, a: *mut ibv_srq_attr) -> c_int { libc::ENOSYS }
pub unsafe extern "C" fn ibv_destroy_srq(s: *mut ibv_srq) -> c_int { libc::ENOSYS }
pub unsafe extern "C" fn ibv_create_qp(pd: *mut ibv_pd, i: *mut ibv_qp_init_attr) -> *mut ibv_qp {
    if (*i).cap.max_inline_data > 1024 { errno(libc::EINVAL); return null_mut(); }
    let q: *mut ibv_qp = zeroed(1024);
    let mut w = world(); w.next_qpn += 1; let num = w.next_qpn;
    (*q).context = (*pd).context; (*q).qp_context = (*i).qp_context; (*q).pd = pd; (*q).send_cq = (*i).send_cq; (*q).recv_cq = (*i).recv_cq; (*q).qp_num = num; (*q).qp_type = (*i).qp_type; (*q).state = 0;
    let Some(ty) = Transport::from_raw((*i).qp_type) else { errno(libc::EINVAL); return null_mut() };
    w.qps.insert(num, Qp { raw: q as usize, num, ty, state: State::Reset, attr: std::mem::zeroed(), cap: std::ptr::read(&(*i).cap), sig_all: (*i).sq_sig_all != 0, send_cq: (*i).send_cq as usize, recv_cq: (*i).recv_cq as usize, pd: pd as usize, lid: lid_of((*pd).context), sq: VecDeque::new(), rq: VecDeque::new(), posted: 0, freed: 0 });
    q
}
pub unsafe extern "C" fn ibv_modify_qp(q: *mut ibv_qp, a: *mut ibv_qp_attr, m: c_int) -> c_int {
    let mut w = world(); let num = (*q).qp_num;
    let Some(qp) = w.qps.get_mut(&num) else { return libc::EINVAL };
    let mask = AttrMask(m as u32);
    let to = if m as u32 & 1 != 0 { match State::from_raw((*a).qp_state) { Some(s) => s, None => return libc::EINVAL } } else { qp.state };
    if qp_table::check(qp.ty, qp.state, to, mask).is_err() { return libc::EINVAL; }
    let has = |b: u32| m as u32 & b != 0;
    if has(ibv_qp_attr_mask::IBV_QP_DEST_QPN.0) { qp.attr.dest_qp_num = (*a).dest_qp_num; }
    if has(ibv_qp_attr_mask::IBV_QP_QKEY.0) { qp.attr.qkey = (*a).qkey; }
    if has(ibv_qp_attr_mask::IBV_QP_ACCESS_FLAGS.0) { qp.attr.qp_access_flags = (*a).qp_access_flags; }
    if has(ibv_qp_attr_mask::IBV_QP_PORT.0) { qp.attr.port_num = (*a).port_num; }
    qp.state = to; (*q).state = to.raw();
    if to == State::Err { flush(&mut w, num); }
    if to == State::Reset { let qp = w.qps.get_mut(&num).unwrap(); qp.sq.clear(); qp.rq.clear(); qp.posted = 0; qp.freed = 0; }
    progress(&mut w);
    0
}
pub unsafe extern "C" fn ibv_query_qp(q: *mut ibv_qp, a: *mut ibv_qp_attr, m: c_int, i: *mut ibv_qp_init_attr) -> c_int {
    let w = world(); let Some(qp) = w.qps.get(&(*q).qp_num) else { return libc::EINVAL };
    *a = std::ptr::read(&qp.attr); (*a).qp_state = qp.state.raw(); (*a).cap = std::ptr::read(&qp.cap); 0
}
pub unsafe extern "C" fn ibv_destroy_qp(q: *mut ibv_qp) -> c_int {
    let mut w = world(); let n = (*q).qp_num; w.qps.remove(&n);
    for g in w.groups.values_mut() { g.retain(|x| *x != n); }
    let (s, r) = ((*q).send_cq as usize, (*q).recv_cq as usize);
    for c in [s, r] { if let Some(c) = w.cqs.get_mut(&c) { c.q.retain(|x| x.wc.qp_num != n); } }
    0
}
pub unsafe extern "C" fn ibv_create_ah(pd: *mut ibv_pd, a: *mut ibv_ah_attr) -> *mut ibv_ah { let h: *mut ibv_ah = zeroed(256); (*h).context = (*pd).context; (*h).pd = pd; world().ahs.insert(h as usize, *a); h }
pub unsafe extern "C" fn ibv_init_ah_from_wc(c: *mut ibv_context, p: u8, wc: *mut ibv_wc, g: *mut ibv_grh, a: *mut ibv_ah_attr) -> c_int { -1 }
pub unsafe extern "C" fn ibv_create_ah_from_wc(pd: *mut ibv_pd, wc: *mut ibv_wc, g: *mut ibv_grh, p: u8) -> *mut ibv_ah { null_mut() }
pub unsafe extern "C" fn ibv_destroy_ah(h: *mut ibv_ah) -> c_int { world().ahs.remove(&(h as usize)); 0 }
pub unsafe extern "C" fn ibv_attach_mcast(q: *mut ibv_qp, g: *const ibv_gid, lid: u16) -> c_int { let mut w = world(); w.groups.entry((*g).raw).or_default().push((*q).qp_num); 0 }
pub unsafe extern "C" fn ibv_detach_mcast(q: *mut ibv_qp, g: *const ibv_gid, lid: u16) -> c_int { let mut w = world(); if let Some(v) = w.groups.get_mut(&(*g).raw) { v.retain(|x| *x != (*q).qp_num); } 0 }
pub unsafe extern "C" fn ibv_get_async_event(c: *mut ibv_context, e: *mut ibv_async_event) -> c_int { let mut one = 0u64; libc::read((*c).async_fd, &raw mut one as *mut c_void, 8); errno(libc::EAGAIN); -1 }
pub unsafe extern "C" fn ibv_ack_async_event(e: *mut ibv_async_event) {}

fn complete(w: &mut World, cq: usize, wc: ibv_wc, frees: Option<(u32, u64)>, solicited: bool) {
    let bad = wc.status != 0;
    let Some(c) = w.cqs.get_mut(&cq) else { return };
    assert!(c.q.len() < c.cap, "interim: CQ overrun");
    c.q.push_back(Wc { wc, frees });
    if c.armed == 2 || (c.armed == 1 && (solicited || bad)) {
        c.armed = 0;
        let ch = c.channel;
        if let Some(r) = w.ready.get_mut(&ch) { r.push_back(cq); let one = 1u64; unsafe { libc::write((*(ch as *mut ibv_comp_channel)).fd, &raw const one as *const c_void, 8); } }
    }
}
fn blank(id: u64, qpn: u32, status: u32) -> ibv_wc { let mut wc: ibv_wc = unsafe { std::mem::zeroed() }; wc.wr_id = id; wc.qp_num = qpn; wc.status = status; wc }
fn flush(w: &mut World, num: u32) {
    let Some(qp) = w.qps.get_mut(&num) else { return };
    let (s, r) = (qp.send_cq, qp.recv_cq);
    let sends: Vec<_> = qp.sq.drain(..).collect(); let recvs: Vec<_> = qp.rq.drain(..).collect();
    for x in sends { complete(w, s, blank(x.id, num, 5), Some((num, x.index + 1)), false); }
    for x in recvs { let mut wc = blank(x.id, num, 5); wc.opcode = 128; complete(w, r, wc, None, false); }
}
unsafe fn gather(w: &World, s: &Send, pd: usize) -> Result<Vec<u8>, u32> {
    if let Some(d) = &s.inline { return Ok(d.clone()); }
    let mut out = Vec::new();
    for g in &s.sges { check(w, g.lkey, g.addr, g.len, pd, 0)?; let at = out.len(); out.resize(at + g.len, 0); copy_nonoverlapping(g.addr as *const u8, out.as_mut_ptr().add(at), g.len); }
    Ok(out)
}
fn check(w: &World, key: u32, addr: u64, len: usize, pd: usize, need: u32) -> Result<(), u32> {
    let m = w.mrs.get(&key).ok_or(4u32)?;
    if m.pd != pd || addr < m.addr || addr + len as u64 > m.addr + m.len || m.access & need != need { return Err(4); }
    Ok(())
}
unsafe fn place(w: &World, sges: &[Sge], pd: usize, data: &[u8]) -> Result<(), u32> {
    if sges.iter().map(|g| g.len).sum::<usize>() < data.len() { return Err(1); }
    let mut at = 0;
    for g in sges { let n = g.len.min(data.len() - at); check(w, g.lkey, g.addr, n, pd, 1)?; copy_nonoverlapping(data.as_ptr().add(at), g.addr as *mut u8, n); at += n; }
    Ok(())
}
/// Delivers one message to a receive queue; `Ok(false)`: nothing posted.
unsafe fn deliver(w: &mut World, num: u32, data: &[u8], from: &Send, src: u32, opcode: u32, grh: bool) -> Result<bool, u32> {
    let Some(qp) = w.qps.get_mut(&num) else { return Err(12) };
    if !matches!(qp.state, State::Rtr | State::Rts | State::Sqd | State::Sqe) { return Err(12); }
    let Some(recv) = qp.rq.pop_front() else { return Ok(false) };
    let (pd, rcq) = (qp.pd, qp.recv_cq);
    let mut all; let bytes = if grh { all = vec![0u8; 40]; all.extend_from_slice(data); &all[..] } else { data };
    let placed = if opcode == 129 { Ok(()) } else { place(w, &recv.sges, pd, bytes) };
    let mut wc = blank(recv.id, num, placed.err().unwrap_or(0));
    wc.opcode = opcode; wc.byte_len = bytes.len() as u32; wc.src_qp = src; wc.slid = 1;
    if from.op == 1 || from.op == 3 { wc.wc_flags |= 2; wc.imm_data_invalidated_rkey_union.imm_data = from.imm; }
    if grh { wc.wc_flags |= 1; }
    complete(w, rcq, wc, None, from.flags & 4 != 0);
    if placed.is_err() { if let Some(q) = w.qps.get_mut(&num) { q.state = State::Err; } flush(w, num); return Err(9); }
    Ok(true)
}
unsafe fn execute(w: &mut World, num: u32, s: &Send) -> Result<bool, u32> {
    let (ty, dest, pd, lid) = { let q = &w.qps[&num]; (q.ty, q.attr.dest_qp_num, q.pd, q.lid) };
    if ty == Transport::Ud {
        let data = gather(w, s, pd)?;
        let targets = if s.dgid[0] == 0xff || (s.global && s.dgid[10] == 0xff && s.dgid[12] & 0xf0 == 0xe0) { w.groups.get(&s.dgid).cloned().unwrap_or_default() } else { vec![s.qpn] };
        for t in targets { if w.qps.get(&t).is_some_and(|q| q.attr.qkey == s.qkey && q.ty == Transport::Ud) { let _ = deliver(w, t, &data, s, num, 128, true); } }
        return Ok(true);
    }
    let unreliable = ty == Transport::Uc;
    match s.op {
        0 | 1 => { let data = gather(w, s, pd)?; w.mrs.get(&s.rkey).map_or(Err(10u32), |m| if s.raddr < m.addr || s.raddr + data.len() as u64 > m.addr + m.len || m.access & 2 == 0 { Err(10) } else { Ok(()) })?;
            if s.op == 1 && !deliver(w, dest, &data, s, num, 129, false)? { return Ok(false); }
            copy_nonoverlapping(data.as_ptr(), s.raddr as *mut u8, data.len()); Ok(true) }
        4 => { let n: usize = s.sges.iter().map(|g| g.len).sum(); w.mrs.get(&s.rkey).map_or(Err(10u32), |m| if s.raddr < m.addr || s.raddr + n as u64 > m.addr + m.len || m.access & 4 == 0 { Err(10) } else { Ok(()) })?;
            let d = std::slice::from_raw_parts(s.raddr as *const u8, n).to_vec(); place(w, &s.sges, pd, &d)?; Ok(true) }
        2 | 3 => { let data = gather(w, s, pd)?; match deliver(w, dest, &data, s, num, 128, false) { Ok(false) if unreliable => Ok(true), Err(_) if unreliable => Ok(true), other => other } }
        _ => Err(2),
    }
}
unsafe fn progress(w: &mut World) {
    let nums: Vec<u32> = w.qps.iter().filter(|(_, q)| !q.sq.is_empty() && q.state == State::Rts).map(|(n, _)| *n).collect();
    for num in nums { drain(w, num); }
}
unsafe fn drain(w: &mut World, num: u32) {
    loop {
        let Some(qp) = w.qps.get_mut(&num) else { return };
        if qp.state != State::Rts { return; }
        let Some(s) = qp.sq.pop_front() else { return };
        let (cq, all) = (qp.send_cq, qp.sig_all);
        match execute(w, num, &s) {
            Ok(false) => { if let Some(q) = w.qps.get_mut(&num) { q.sq.push_front(s); } return; }
            Ok(true) => if all || s.flags & 2 != 0 { let mut wc = blank(s.id, num, 0); wc.opcode = match s.op { 0 | 1 => 1, 4 => 2, _ => 0 }; complete(w, cq, wc, Some((num, s.index + 1)), false); },
            Err(status) => { complete(w, cq, blank(s.id, num, status), Some((num, s.index + 1)), false); if let Some(q) = w.qps.get_mut(&num) { q.state = State::Err; (*(q.raw as *mut ibv_qp)).state = State::Err.raw(); } flush(w, num); return; }
        }
    }
}
unsafe extern "C" fn post_send(q: *mut ibv_qp, mut wr: *mut ibv_send_wr, bad: *mut *mut ibv_send_wr) -> c_int {
    let mut w = world(); let num = (*q).qp_num;
    while !wr.is_null() {
        let qp = w.qps.get_mut(&num).unwrap();
        if matches!(qp.state, State::Reset | State::Init | State::Rtr) { *bad = wr; return libc::EINVAL; }
        if qp.posted - qp.freed >= qp.cap.max_send_wr as u64 { *bad = wr; return libc::ENOMEM; }
        let raw = std::slice::from_raw_parts(if (*wr).num_sge == 0 { std::ptr::NonNull::dangling().as_ptr() } else { (*wr).sg_list }, (*wr).num_sge as usize);
        let sges: Vec<Sge> = raw.iter().map(|g| Sge { addr: g.addr, len: g.length as usize, lkey: g.lkey }).collect();
        let total: usize = sges.iter().map(|g| g.len).sum();
        let inline = ((*wr).send_flags & 8 != 0).then(|| { let mut v = Vec::new(); for g in &sges { v.extend_from_slice(std::slice::from_raw_parts(g.addr as *const u8, g.len)); } v });
        if inline.is_some() && total > qp.cap.max_inline_data as usize { *bad = wr; return libc::EINVAL; }
        let ud = qp.ty == Transport::Ud;
        if ud && total > 4096 { *bad = wr; return libc::EINVAL; }
        let index = qp.posted; qp.posted += 1;
        let mut s = Send { id: (*wr).wr_id, op: (*wr).opcode, flags: (*wr).send_flags, imm: (*wr).imm_data_invalidated_rkey_union.imm_data, sges, inline, raddr: 0, rkey: 0, dgid: [0; 16], dlid: 0, global: false, qpn: 0, qkey: 0, index };
        if ud { let u = (*wr).wr.ud; s.qpn = u.remote_qpn; s.qkey = u.remote_qkey; if let Some(a) = w.ahs.get(&(u.ah as usize)) { s.dgid = a.grh.dgid.raw; s.global = a.is_global != 0; s.dlid = a.dlid; } } else { s.raddr = (*wr).wr.rdma.remote_addr; s.rkey = (*wr).wr.rdma.rkey; }
        let qp = w.qps.get_mut(&num).unwrap();
        if qp.state == State::Err { let cq = qp.send_cq; complete(&mut w, cq, blank(s.id, num, 5), Some((num, index + 1)), false); } else { qp.sq.push_back(s); drain(&mut w, num); }
        wr = (*wr).next;
    }
    0
}
unsafe extern "C" fn post_recv(q: *mut ibv_qp, mut wr: *mut ibv_recv_wr, bad: *mut *mut ibv_recv_wr) -> c_int {
    let mut w = world(); let num = (*q).qp_num;
    while !wr.is_null() {
        let qp = w.qps.get_mut(&num).unwrap();
        if qp.state == State::Reset { *bad = wr; return libc::EINVAL; }
        if qp.rq.len() >= qp.cap.max_recv_wr as usize { *bad = wr; return libc::ENOMEM; }
        let raw = std::slice::from_raw_parts(if (*wr).num_sge == 0 { std::ptr::NonNull::dangling().as_ptr() } else { (*wr).sg_list }, (*wr).num_sge as usize);
        let r = Recv { id: (*wr).wr_id, sges: raw.iter().map(|g| Sge { addr: g.addr, len: g.length as usize, lkey: g.lkey }).collect() };
        if qp.state == State::Err { let cq = qp.recv_cq; let mut wc = blank(r.id, num, 5); wc.opcode = 128; complete(&mut w, cq, wc, None, false); } else { qp.rq.push_back(r); }
        wr = (*wr).next;
    }
    progress(&mut w);
    0
}
unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, n: c_int, wc: *mut ibv_wc) -> c_int {
    let mut w = world();
    for i in 0..n {
        let Some(c) = w.cqs.get_mut(&(cq as usize)) else { return i };
        let Some(x) = c.q.pop_front() else { return i };
        if let Some((q, to)) = x.frees { if let Some(q) = w.qps.get_mut(&q) { q.freed = q.freed.max(to); } }
        wc.add(i as usize).write(x.wc);
    }
    n
}
unsafe extern "C" fn req_notify_cq(cq: *mut ibv_cq, solicited: c_int) -> c_int {
    let mut w = world(); let Some(c) = w.cqs.get_mut(&(cq as usize)) else { return libc::EINVAL };
    c.armed = c.armed.max(if solicited == 0 { 2 } else { 1 }); 0
}
