//! The same ends as queue pairs of the provider, with their memory.

use crate::harness::*;
use crate::model::oracle::{BUFFERS, DEPTH, FETCHES, GRH_BYTES, Key};
use crate::model::steps::*;
use rdma_sys::*;
use std::ptr::null_mut;
use verbline_softnic::provider as soft;

/// Enough for all unpolled completions, also of queue pairs that are gone.
const CQ_ENTRIES: i32 = 1024;

pub(crate) struct Real {
    transport: Transport,
    qps: [Option<Qp>; ENDS],
    pub(crate) send_cqs: [Cq; ENDS],
    pub(crate) recv_cqs: [Cq; ENDS],
    srqs: Vec<Srq>,
    /// Windows on the exposed memory, and the first key that each had.
    windows: [Option<Mw>; ENDS],
    first_keys: [Vec<u32>; ENDS],
    /// Memory to send from, to receive into, to expose to peers, and for the results of READs and
    /// atomics.
    out: [Memory; ENDS],
    into: [Memory; ENDS],
    exposed: [Memory; ENDS],
    fetched: [Memory; ENDS],
    /// From each device to each.
    ahs: [[Ah; 2]; 2],
    nics: [Nic; 2],
}

impl Real {
    pub(crate) fn new(transport: Transport, shared: bool) -> Real {
        let nics = [Nic::open(0), Nic::open(1)];
        let memory = |bytes: usize| std::array::from_fn(|end| nics[end % 2].memory(bytes));
        let cqs = || std::array::from_fn(|end| nics[end % 2].cq(CQ_ENTRIES));
        let buffers = BUFFERS as usize * BUFFER_BYTES;
        let mut real = Real {
            transport,
            qps: Default::default(),
            windows: Default::default(),
            first_keys: Default::default(),
            send_cqs: cqs(),
            recv_cqs: cqs(),
            srqs: if shared { nics.iter().map(Srq::new).collect() } else { Vec::new() },
            out: memory(buffers),
            into: memory(buffers),
            exposed: memory(EXPOSED_BYTES),
            fetched: memory(READ_BYTES * FETCHES as usize),
            ahs: std::array::from_fn(|from| std::array::from_fn(|to| Ah::new(&nics[from], to as u16 + 1))),
            nics,
        };
        (0..ENDS).for_each(|end| real.create(end));
        real
    }

    pub(crate) fn create(&mut self, end: usize) {
        self.windows[end] = None;
        let window = Mw::new(&self.nics[end % 2], ibv_mw_type::IBV_MW_TYPE_2);
        self.first_keys[end].push(window.rkey());
        self.windows[end] = Some(window);
        let qp_type = match self.transport {
            Transport::Rc => ibv_qp_type::IBV_QPT_RC,
            Transport::Uc => ibv_qp_type::IBV_QPT_UC,
            Transport::Ud => ibv_qp_type::IBV_QPT_UD,
        };
        let (send, recv) = (&self.send_cqs[end], &self.recv_cqs[end]);
        let qp = self.nics[end % 2].qp_with(qp_type, send, recv, |init| {
            (init.cap.max_send_wr, init.cap.max_recv_wr) = (DEPTH as u32, DEPTH as u32);
            init.srq = self.srqs.get(end % 2).map_or(null_mut(), |srq| srq.0);
        });
        self.qps[end] = Some(qp);
    }

    pub(crate) fn destroy(&mut self, end: usize) {
        self.qps[end] = None;
    }

    /// `None` if it was destroyed.
    pub(crate) fn qp(&self, end: usize) -> Option<&Qp> {
        self.qps[end].as_ref()
    }

    /// Its number; for a destroyed one, a number that nobody has.
    pub(crate) fn number(&self, end: usize) -> u32 {
        self.qps[end].as_ref().map_or(0xff_fff0, Qp::num)
    }

    /// INIT to RTR, connected to the end's peer as it is now.
    pub(crate) fn to_rtr(&self, end: usize) {
        let peer = end ^ 1;
        self.qps[end].as_ref().unwrap().to_rtr(self.number(peer), self.nics[peer % 2].lid);
    }

    /// The R_Key of an end's window.
    pub(crate) fn window_key(&self, end: usize, (window, binds): Key) -> u32 {
        let first = self.first_keys[end][window as usize];
        first & !0xff | first.wrapping_add(binds) & 0xff
    }

    /// Posts the list; `keys` are the ends' windows' keys.
    pub(crate) fn post_send(&self, post: &Post, first_number: u64, keys: [Key; ENDS]) -> Result<(), Refused> {
        self.windows[post.end].as_ref().unwrap().set_rkey(self.window_key(post.end, keys[post.end]));
        let works = (first_number..).zip(&post.works);
        let mut list: Vec<Wr> = works.map(|(number, (work, flaw))| self.wr(post, number, *work, *flaw, keys)).collect();
        self.qps[post.end].as_ref().unwrap().post(&mut list)
    }

    fn wr(&self, post: &Post, number: u64, work: Work, flaw: Flaw, keys: [Key; ENDS]) -> Wr {
        let (end, peer, bytes) = (post.end, post.end ^ 1, work.bytes());
        let mut sge = if work.fetches() {
            self.fetched[end].sge((number % FETCHES) as usize * READ_BYTES, bytes)
        } else {
            self.out[end].fill(buffer(number), &pattern(bytes, number as u8));
            self.out[end].sge(buffer(number), bytes)
        };
        let inline = post.inline
            && !work.fetches()
            && !matches!(work, Work::Bind | Work::LocalInv { .. })
            && bytes <= 128
            && flaw != Flaw::LocalKey;
        if flaw == Flaw::LocalKey {
            sge.lkey ^= 0x00ff_ff00;
        }
        let signal = if number.is_multiple_of(post.signal_every) { SIGNALED } else { 0 };
        let flags = signal | if inline { INLINE } else { 0 };
        let wr = Wr::new(number, opcode(work), flags, if bytes == 0 { &[] } else { std::slice::from_ref(&sge) });
        let windows = work.window_of(end).map_or(0, |of| self.window_key(of, keys[of]));
        let through = matches!(work, Work::Write { through: true, .. });
        let granted = if through { windows } else { self.exposed[peer].key() };
        let rkey = granted ^ if flaw == Flaw::RemoteKey { 0x00ff_ff00 } else { 0 };
        let remote = |at: usize| self.exposed[peer].addr() + at as u64;
        match work {
            Work::Send { .. } if self.transport == Transport::Ud => {
                wr.imm(number as u32).to(self.ahs[end % 2][post.to % 2].0, self.number(post.to), QKEY)
            }
            Work::Send { .. } => wr.imm(number as u32),
            Work::Write { at, .. } => wr.imm(number as u32).remote(remote(at), rkey),
            Work::Read { at, .. } => wr.remote(remote(at), rkey),
            Work::FetchAdd { at, add } => wr.atomic(remote(at), rkey, add, 0),
            Work::CmpSwap { at, compare, swap } => wr.atomic(remote(at), rkey, compare, swap),
            Work::SendInv { .. } | Work::LocalInv { .. } => wr.imm(windows),
            Work::Bind => self.bind(wr, end, self.window_key(end, (keys[end].0, keys[end].1 + 1))),
        }
    }

    fn bind(&self, mut wr: Wr, end: usize, rkey: u32) -> Wr {
        let (mr, addr) = (self.exposed[end].mr, self.exposed[end].addr());
        let bind_info = ibv_mw_bind_info { mr, addr, length: WINDOW_BYTES as u64, mw_access_flags: REMOTE_WRITE };
        let mw = self.windows[end].as_ref().unwrap().0;
        wr.raw.bind_mw_tso_union.bind_mw = bind_mw_t { mw, rkey, bind_info };
        wr
    }

    /// Posts the receive of that number to the queue, which is the end's own or shared.
    pub(crate) fn post_recv(&self, end: usize, queue: usize, number: u64, len: usize) -> i32 {
        let sges = [self.into[queue].sge(buffer(number), len)];
        let sges: &[ibv_sge] = if len == 0 { &[] } else { &sges };
        match self.srqs.get(end % 2) {
            Some(srq) => srq.recv(number, sges),
            None => self.qps[end].as_ref().unwrap().recv(number, sges),
        }
    }

    /// The contents of a receive's buffer.
    pub(crate) fn received(&self, queue: usize, number: u64, len: usize) -> Vec<u8> {
        let header = if self.transport == Transport::Ud { GRH_BYTES } else { 0 };
        self.into[queue].read(buffer(number) + header, len)
    }

    pub(crate) fn exposed(&self, end: usize) -> Vec<u8> {
        self.exposed[end].read(0, EXPOSED_BYTES)
    }

    pub(crate) fn fetched(&self, end: usize) -> Vec<u8> {
        self.fetched[end].read(0, READ_BYTES * FETCHES as usize)
    }
}

fn buffer(number: u64) -> usize {
    (number % BUFFERS) as usize * BUFFER_BYTES
}

fn opcode(work: Work) -> u32 {
    use ibv_wr_opcode::*;
    match work {
        Work::Send { imm: false, .. } => IBV_WR_SEND,
        Work::Send { .. } => IBV_WR_SEND_WITH_IMM,
        Work::Write { imm: false, .. } => IBV_WR_RDMA_WRITE,
        Work::Write { .. } => IBV_WR_RDMA_WRITE_WITH_IMM,
        Work::Read { .. } => IBV_WR_RDMA_READ,
        Work::FetchAdd { .. } => IBV_WR_ATOMIC_FETCH_AND_ADD,
        Work::CmpSwap { .. } => IBV_WR_ATOMIC_CMP_AND_SWP,
        Work::SendInv { .. } => IBV_WR_SEND_WITH_INV,
        Work::Bind => IBV_WR_BIND_MW,
        Work::LocalInv { .. } => IBV_WR_LOCAL_INV,
    }
}

/// The opcode in the completion of that work.
pub(crate) fn completed_opcode(work: Work) -> u32 {
    use ibv_wc_opcode::*;
    match work {
        Work::Send { .. } | Work::SendInv { .. } => IBV_WC_SEND,
        Work::Write { .. } => IBV_WC_RDMA_WRITE,
        Work::Read { .. } => IBV_WC_RDMA_READ,
        Work::FetchAdd { .. } => IBV_WC_FETCH_ADD,
        Work::CmpSwap { .. } => IBV_WC_COMP_SWAP,
        Work::Bind => IBV_WC_BIND_MW,
        Work::LocalInv { .. } => IBV_WC_LOCAL_INV,
    }
}

struct Srq(*mut ibv_srq);

impl Srq {
    fn new(nic: &Nic) -> Srq {
        let attr = ibv_srq_attr { max_wr: DEPTH as u32, max_sge: 1, srq_limit: 0 };
        let mut init = ibv_srq_init_attr { srq_context: null_mut(), attr };
        let srq = unsafe { soft::ibv_create_srq(nic.pd, &mut init) };
        assert!(!srq.is_null());
        Srq(srq)
    }

    fn recv(&self, wr_id: u64, sges: &[ibv_sge]) -> i32 {
        let mut sges: Vec<ibv_sge> = sges.iter().map(copy_sge).collect();
        let (sg_list, num_sge) = (sges.as_mut_ptr(), sges.len() as i32);
        let mut wr = ibv_recv_wr { wr_id, next: null_mut(), sg_list, num_sge };
        unsafe { ibv_post_srq_recv(self.0, &mut wr, &mut null_mut()) }
    }
}

impl Drop for Srq {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(unsafe { soft::ibv_destroy_srq(self.0) }, 0);
        }
    }
}

struct Ah(*mut ibv_ah);

impl Ah {
    fn new(nic: &Nic, lid: u16) -> Ah {
        let mut attr: ibv_ah_attr = unsafe { std::mem::zeroed() };
        (attr.dlid, attr.port_num) = (lid, 1);
        let ah = unsafe { soft::ibv_create_ah(nic.pd, &mut attr) };
        assert!(!ah.is_null());
        Ah(ah)
    }
}

impl Drop for Ah {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(unsafe { soft::ibv_destroy_ah(self.0) }, 0);
        }
    }
}
