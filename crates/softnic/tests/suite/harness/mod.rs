//! The base of the tests: objects of the provider with their life tied to a value, work requests in
//! one call.
//!
//! Everything goes through the C signatures, and through rdma-sys's inline functions for the data
//! path.
#![allow(dead_code, clippy::undocumented_unsafe_blocks, clippy::missing_safety_doc, unreachable_pub, missing_docs)]

use rdma_sys::*;
use std::ffi::c_int;
use std::ptr::null_mut;
use std::time::{Duration, Instant};
use verbline_softnic::provider as soft;

pub const SUCCESS: u32 = ibv_wc_status::IBV_WC_SUCCESS;
pub const FLUSHED: u32 = ibv_wc_status::IBV_WC_WR_FLUSH_ERR;
pub const SIGNALED: u32 = ibv_send_flags::IBV_SEND_SIGNALED.0;
pub const SOLICITED: u32 = ibv_send_flags::IBV_SEND_SOLICITED.0;
pub const INLINE: u32 = ibv_send_flags::IBV_SEND_INLINE.0;
pub const LOCAL_WRITE: u32 = 1;
pub const REMOTE_WRITE: u32 = 2;
pub const REMOTE_READ: u32 = 4;
pub const REMOTE_ATOMIC: u32 = 8;
pub const MW_BIND: u32 = 16;
pub const ALL_ACCESS: u32 = 31;
pub const QKEY: u32 = 0x1234;

/// An open device with a protection domain.
pub struct Nic {
    pub context: *mut ibv_context,
    pub pd: *mut ibv_pd,
    pub lid: u16,
}
unsafe impl Send for Nic {}
unsafe impl Sync for Nic {}

impl Nic {
    pub fn open(index: usize) -> Nic {
        unsafe {
            let mut count = 0;
            let list = soft::ibv_get_device_list(&mut count);
            assert_eq!(count, 2);
            let context = soft::ibv_open_device(*list.add(index));
            assert!(!context.is_null());
            soft::ibv_free_device_list(list);
            let pd = soft::ibv_alloc_pd(context);
            assert!(!pd.is_null());
            Nic { context, pd, lid: index as u16 + 1 }
        }
    }

    pub fn cq(&self, cqe: c_int) -> Cq {
        self.cq_on(cqe, null_mut())
    }

    pub fn cq_on(&self, cqe: c_int, channel: *mut ibv_comp_channel) -> Cq {
        let cq = unsafe { soft::ibv_create_cq(self.context, cqe, null_mut(), channel, 0) };
        assert!(!cq.is_null());
        Cq(cq)
    }

    pub fn memory(&self, bytes: usize) -> Memory {
        self.memory_with(bytes, ALL_ACCESS)
    }

    pub fn memory_with(&self, bytes: usize, access: u32) -> Memory {
        let mut bytes = vec![0u64; bytes.div_ceil(8)].into_boxed_slice();
        let mr = unsafe { soft::ibv_reg_mr(self.pd, bytes.as_mut_ptr().cast(), bytes.len() * 8, access as c_int) };
        assert!(!mr.is_null());
        Memory { bytes, mr }
    }

    pub fn qp(&self, qp_type: u32, send: &Cq, recv: &Cq) -> Qp {
        self.qp_with(qp_type, send, recv, |_| {})
    }

    pub fn qp_with(&self, qp_type: u32, send: &Cq, recv: &Cq, change: impl FnOnce(&mut ibv_qp_init_attr)) -> Qp {
        let mut init = init_attr(qp_type, send, recv);
        change(&mut init);
        let qp = unsafe { soft::ibv_create_qp(self.pd, &mut init) };
        assert!(!qp.is_null(), "{}", std::io::Error::last_os_error());
        Qp(qp)
    }
}

pub fn init_attr(qp_type: u32, send: &Cq, recv: &Cq) -> ibv_qp_init_attr {
    let cap = ibv_qp_cap { max_send_wr: 64, max_recv_wr: 64, max_send_sge: 4, max_recv_sge: 4, max_inline_data: 128 };
    ibv_qp_init_attr {
        qp_context: null_mut(),
        send_cq: send.0,
        recv_cq: recv.0,
        srq: null_mut(),
        cap,
        qp_type,
        sq_sig_all: 0,
    }
}

impl Drop for Nic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        unsafe {
            assert_eq!(soft::ibv_dealloc_pd(self.pd), 0);
            assert_eq!(soft::ibv_close_device(self.context), 0);
        }
    }
}

pub struct Memory {
    pub bytes: Box<[u64]>,
    pub mr: *mut ibv_mr,
}
unsafe impl Send for Memory {}

impl Memory {
    pub fn addr(&self) -> u64 {
        self.bytes.as_ptr() as u64
    }
    pub fn key(&self) -> u32 {
        unsafe { (*self.mr).lkey }
    }
    pub fn sge(&self, offset: usize, length: usize) -> ibv_sge {
        ibv_sge { addr: self.addr() + offset as u64, length: length as u32, lkey: self.key() }
    }
    pub fn fill(&self, offset: usize, data: &[u8]) {
        assert!(offset + data.len() <= self.bytes.len() * 8);
        unsafe { std::ptr::copy(data.as_ptr(), (self.addr() as *mut u8).add(offset), data.len()) }
    }
    pub fn read(&self, offset: usize, len: usize) -> Vec<u8> {
        assert!(offset + len <= self.bytes.len() * 8);
        unsafe { std::slice::from_raw_parts((self.addr() as *const u8).add(offset), len).to_vec() }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if !std::thread::panicking() && !self.mr.is_null() {
            assert_eq!(unsafe { soft::ibv_dereg_mr(self.mr) }, 0);
        }
    }
}

pub struct Cq(pub *mut ibv_cq);
unsafe impl Send for Cq {}
unsafe impl Sync for Cq {}

/// A polled completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wc {
    pub wr_id: u64,
    pub status: u32,
    pub opcode: u32,
    pub byte_len: u32,
    pub imm: u32,
    pub qp_num: u32,
    pub src_qp: u32,
    pub flags: u32,
    pub slid: u16,
}

impl Cq {
    pub fn poll(&self) -> Option<Wc> {
        let mut wc = unsafe { std::mem::zeroed::<ibv_wc>() };
        match unsafe { ibv_poll_cq(self.0, 1, &mut wc) } {
            0 => None,
            1 => Some(convert(&wc)),
            other => panic!("poll_cq gave {other}"),
        }
    }

    /// Polls until there is a completion.
    pub fn wait(&self) -> Wc {
        let start = Instant::now();
        loop {
            if let Some(wc) = self.poll() {
                return wc;
            }
            assert!(start.elapsed() < Duration::from_secs(20), "no completion");
            std::thread::yield_now();
        }
    }

    pub fn poll_all(&self) -> Vec<Wc> {
        std::iter::from_fn(|| self.poll()).collect()
    }

    pub fn arm(&self, solicited_only: bool) {
        assert_eq!(unsafe { ibv_req_notify_cq(self.0, c_int::from(solicited_only)) }, 0);
    }
}

pub fn convert(wc: &ibv_wc) -> Wc {
    Wc {
        wr_id: wc.wr_id,
        status: wc.status,
        opcode: wc.opcode,
        byte_len: wc.byte_len,
        imm: unsafe { wc.imm_data_invalidated_rkey_union.imm_data },
        qp_num: wc.qp_num,
        src_qp: wc.src_qp,
        flags: wc.wc_flags,
        slid: wc.slid,
    }
}

impl Drop for Cq {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(unsafe { soft::ibv_destroy_cq(self.0) }, 0);
        }
    }
}

/// A memory window.
pub struct Mw(pub *mut ibv_mw);

impl Mw {
    pub fn new(nic: &Nic, kind: u32) -> Mw {
        let mw = unsafe { ibv_alloc_mw(nic.pd, kind) }.expect("the table has it");
        assert!(!mw.is_null());
        Mw(mw)
    }

    pub fn rkey(&self) -> u32 {
        unsafe { (*self.0).rkey }
    }

    pub fn set_rkey(&self, rkey: u32) {
        unsafe { (*self.0).rkey = rkey };
    }
}

impl Drop for Mw {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(unsafe { ibv_dealloc_mw(self.0) }, 0);
        }
    }
}

pub struct Channel(pub *mut ibv_comp_channel);
unsafe impl Send for Channel {}
unsafe impl Sync for Channel {}

impl Channel {
    pub fn new(nic: &Nic) -> Channel {
        let channel = unsafe { soft::ibv_create_comp_channel(nic.context) };
        assert!(!channel.is_null());
        Channel(channel)
    }

    pub fn readable(&self) -> bool {
        self.readable_within(0)
    }

    pub fn readable_within(&self, ms: c_int) -> bool {
        readable(unsafe { (*self.0).fd }, ms)
    }

    /// The next event's queue; acknowledged at once.
    pub fn event(&self) -> *mut ibv_cq {
        let (mut cq, mut context) = (null_mut(), null_mut());
        assert_eq!(unsafe { soft::ibv_get_cq_event(self.0, &mut cq, &mut context) }, 0);
        unsafe { ibv_ack_cq_events(cq, 1) };
        cq
    }
}

pub fn readable(fd: c_int, ms: c_int) -> bool {
    let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    unsafe { libc::poll(&mut poll, 1, ms) == 1 }
}

impl Drop for Channel {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(unsafe { soft::ibv_destroy_comp_channel(self.0) }, 0);
        }
    }
}

pub struct Qp(pub *mut ibv_qp);
unsafe impl Send for Qp {}
unsafe impl Sync for Qp {}

/// A refused post: `errno`, and the number of work requests before `bad_wr`.
pub type Refused = (c_int, usize);

impl Qp {
    pub fn num(&self) -> u32 {
        unsafe { (*self.0).qp_num }
    }

    pub fn modify(&self, attr: &mut ibv_qp_attr, mask: ibv_qp_attr_mask) -> c_int {
        unsafe { soft::ibv_modify_qp(self.0, attr, mask.0 as c_int) }
    }

    pub fn to(&self, state: u32) -> c_int {
        let mut attr = attr(state);
        self.modify(&mut attr, ibv_qp_attr_mask::IBV_QP_STATE)
    }

    pub fn state(&self) -> u32 {
        self.query().qp_state
    }

    pub fn query(&self) -> ibv_qp_attr {
        unsafe {
            let (mut attr, mut init) = (std::mem::zeroed(), std::mem::zeroed());
            assert_eq!(soft::ibv_query_qp(self.0, &mut attr, 0, &mut init), 0);
            attr
        }
    }

    /// RESET to RTS, to the queue pair of that number and LID.
    pub fn bring_up(&self, dest: u32, lid: u16) {
        self.to_init();
        self.to_rtr(dest, lid);
        self.to_rts();
    }

    pub fn to_init(&self) {
        use ibv_qp_attr_mask as m;
        let mut attr = attr(ibv_qp_state::IBV_QPS_INIT);
        attr.port_num = 1;
        attr.qkey = QKEY;
        attr.qp_access_flags = ALL_ACCESS & !MW_BIND;
        let ud = unsafe { (*self.0).qp_type } == ibv_qp_type::IBV_QPT_UD;
        let last = if ud { m::IBV_QP_QKEY } else { m::IBV_QP_ACCESS_FLAGS };
        assert_eq!(self.modify(&mut attr, m::IBV_QP_STATE | m::IBV_QP_PKEY_INDEX | m::IBV_QP_PORT | last), 0);
    }

    /// INIT to RTR, to the queue pair of that number and LID.
    pub fn to_rtr(&self, dest: u32, lid: u16) {
        self.to_rtr_with(dest, lid, |_| {});
    }

    pub fn to_rtr_with(&self, dest: u32, lid: u16, change: impl FnOnce(&mut ibv_qp_attr)) {
        use ibv_qp_attr_mask as m;
        let mut attr = attr(ibv_qp_state::IBV_QPS_RTR);
        attr.path_mtu = ibv_mtu::IBV_MTU_4096;
        attr.dest_qp_num = dest;
        attr.ah_attr.dlid = lid;
        attr.ah_attr.port_num = 1;
        attr.max_dest_rd_atomic = 16;
        attr.min_rnr_timer = 1;
        change(&mut attr);
        let path = m::IBV_QP_AV | m::IBV_QP_PATH_MTU | m::IBV_QP_DEST_QPN | m::IBV_QP_RQ_PSN;
        let mask = match unsafe { (*self.0).qp_type } {
            ibv_qp_type::IBV_QPT_UD => m::IBV_QP_STATE,
            ibv_qp_type::IBV_QPT_UC => m::IBV_QP_STATE | path,
            _ => m::IBV_QP_STATE | path | m::IBV_QP_MAX_DEST_RD_ATOMIC | m::IBV_QP_MIN_RNR_TIMER,
        };
        assert_eq!(self.modify(&mut attr, mask), 0);
    }

    pub fn to_rts(&self) {
        self.to_rts_with(|_| {});
    }

    pub fn to_rts_with(&self, change: impl FnOnce(&mut ibv_qp_attr)) {
        use ibv_qp_attr_mask as m;
        let mut attr = attr(ibv_qp_state::IBV_QPS_RTS);
        attr.timeout = 8;
        attr.retry_cnt = 1;
        attr.rnr_retry = 7;
        attr.max_rd_atomic = 16;
        change(&mut attr);
        let mask = match unsafe { (*self.0).qp_type } {
            ibv_qp_type::IBV_QPT_RC => {
                m::IBV_QP_STATE
                    | m::IBV_QP_SQ_PSN
                    | m::IBV_QP_TIMEOUT
                    | m::IBV_QP_RETRY_CNT
                    | m::IBV_QP_RNR_RETRY
                    | m::IBV_QP_MAX_QP_RD_ATOMIC
            }
            _ => m::IBV_QP_STATE | m::IBV_QP_SQ_PSN,
        };
        assert_eq!(self.modify(&mut attr, mask), 0);
    }

    pub fn post(&self, wrs: &mut [Wr]) -> Result<(), Refused> {
        for index in 0..wrs.len() {
            let next = wrs.get_mut(index + 1).map_or(null_mut(), |next| &raw mut next.raw);
            let wr = &mut wrs[index];
            wr.raw.next = next;
            wr.raw.sg_list = wr.sges.as_mut_ptr();
            wr.raw.num_sge = wr.sges.len() as c_int;
        }
        let mut bad = null_mut();
        let first = &raw mut wrs[0].raw;
        match unsafe { ibv_post_send(self.0, first, &mut bad) } {
            0 => Ok(()),
            code => Err((code, wrs.iter().position(|wr| std::ptr::eq(&wr.raw, bad)).expect("bad_wr is one of them"))),
        }
    }

    pub fn recv(&self, wr_id: u64, sges: &[ibv_sge]) -> c_int {
        let mut sges: Vec<ibv_sge> = sges.iter().map(copy_sge).collect();
        let mut wr = ibv_recv_wr { wr_id, next: null_mut(), sg_list: sges.as_mut_ptr(), num_sge: sges.len() as c_int };
        let mut bad = null_mut();
        unsafe { ibv_post_recv(self.0, &mut wr, &mut bad) }
    }
}

impl Drop for Qp {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(unsafe { soft::ibv_destroy_qp(self.0) }, 0);
        }
    }
}

pub fn copy_sge(sge: &ibv_sge) -> ibv_sge {
    ibv_sge { addr: sge.addr, length: sge.length, lkey: sge.lkey }
}

pub fn attr(state: u32) -> ibv_qp_attr {
    let mut attr: ibv_qp_attr = unsafe { std::mem::zeroed() };
    attr.qp_state = state;
    attr
}

/// A send work request with its list.
pub struct Wr {
    pub raw: ibv_send_wr,
    pub sges: Vec<ibv_sge>,
}

impl Wr {
    pub fn new(wr_id: u64, opcode: u32, flags: u32, sges: &[ibv_sge]) -> Wr {
        let mut raw: ibv_send_wr = unsafe { std::mem::zeroed() };
        (raw.wr_id, raw.opcode, raw.send_flags) = (wr_id, opcode, flags);
        Wr { raw, sges: sges.iter().map(copy_sge).collect() }
    }
    pub fn send(wr_id: u64, flags: u32, sges: &[ibv_sge]) -> Wr {
        Wr::new(wr_id, ibv_wr_opcode::IBV_WR_SEND, flags, sges)
    }
    pub fn imm(mut self, imm: u32) -> Wr {
        self.raw.imm_data_invalidated_rkey_union.imm_data = imm;
        self
    }
    pub fn remote(mut self, remote_addr: u64, rkey: u32) -> Wr {
        self.raw.wr.rdma = rdma_t { remote_addr, rkey };
        self
    }
    pub fn atomic(mut self, remote_addr: u64, rkey: u32, compare_add: u64, swap: u64) -> Wr {
        self.raw.wr.atomic = atomic_t { remote_addr, compare_add, swap, rkey };
        self
    }
    pub fn to(mut self, ah: *mut ibv_ah, remote_qpn: u32, remote_qkey: u32) -> Wr {
        self.raw.wr.ud = ud_t { ah, remote_qpn, remote_qkey };
        self
    }
}

/// Connects two queue pairs and brings them to RTS. Each comes with the LID of its device.
pub fn connect((a, a_lid): (&Qp, u16), (b, b_lid): (&Qp, u16)) {
    connect_with((a, a_lid), (b, b_lid), |_| {});
}

/// Like [`connect`], with other attributes for the move to RTS.
pub fn connect_with((a, a_lid): (&Qp, u16), (b, b_lid): (&Qp, u16), rts: impl Fn(&mut ibv_qp_attr)) {
    a.to_init();
    b.to_init();
    a.to_rtr(b.num(), b_lid);
    b.to_rtr(a.num(), a_lid);
    a.to_rts_with(&rts);
    b.to_rts_with(&rts);
}

/// Two connected queue pairs, each with its own queues, and memory on either side.
pub struct Pair {
    pub a: Qp,
    pub b: Qp,
    pub a_send: Cq,
    pub a_recv: Cq,
    pub b_send: Cq,
    pub b_recv: Cq,
    pub a_mem: Memory,
    pub b_mem: Memory,
    pub nic: Nic,
    pub other: Nic,
}

impl Pair {
    /// RTS on both sides, soft0 to soft1.
    pub fn connected(qp_type: u32) -> Pair {
        Pair::connected_with(qp_type, |_| {}, |_| {})
    }

    pub fn connected_with(qp_type: u32, init: impl Fn(&mut ibv_qp_init_attr), rts: impl Fn(&mut ibv_qp_attr)) -> Pair {
        let pair = Pair::unconnected(qp_type, init);
        connect_with((&pair.a, 1), (&pair.b, 2), rts);
        pair
    }

    pub fn unconnected(qp_type: u32, init: impl Fn(&mut ibv_qp_init_attr)) -> Pair {
        let (nic, other) = (Nic::open(0), Nic::open(1));
        let (a_send, a_recv, b_send, b_recv) = (nic.cq(256), nic.cq(256), other.cq(256), other.cq(256));
        let a = nic.qp_with(qp_type, &a_send, &a_recv, &init);
        let b = other.qp_with(qp_type, &b_send, &b_recv, &init);
        let (a_mem, b_mem) = (nic.memory(1 << 16), other.memory(1 << 16));
        Pair { a, b, a_send, a_recv, b_send, b_recv, a_mem, b_mem, nic, other }
    }

    pub fn rc() -> Pair {
        Pair::connected(ibv_qp_type::IBV_QPT_RC)
    }
}

pub fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|index| (index as u8).wrapping_mul(31).wrapping_add(seed)).collect()
}

/// The context's next event, if there is one; acknowledged at once.
pub fn async_event(nic: &Nic) -> Option<u32> {
    unsafe {
        if !readable((*nic.context).async_fd, 0) {
            return None;
        }
        let mut event = std::mem::MaybeUninit::<ibv_async_event>::uninit();
        assert_eq!(soft::ibv_get_async_event(nic.context, event.as_mut_ptr()), 0);
        let kind = (&raw const (*event.as_ptr()).event_type).cast::<u32>().read();
        soft::ibv_ack_async_event(event.as_mut_ptr());
        Some(kind)
    }
}
