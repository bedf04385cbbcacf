//! Only threads that take away an object of a long transfer wait for it.
use crate::harness::*;
use crate::signature::rig as signature;
use crate::windows::{bind_wr, info};
use rdma_sys::ibv_qp_type::*;
use rdma_sys::ibv_wr_opcode::*;
use rdma_sys::*;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use verbline_softnic::mlx5dv::mkey_init_attr_flags;

/// Some 150 ms at first, and 3 ms and more once the pages are there (Zen 5). Under a sanitizer,
/// which sees every byte that is copied, fewer bytes take as long.
const BYTES: usize = if cfg!(portable_copy) { 32 << 20 } else { 256 << 20 };
/// Time after which a transfer has begun, and is far from its end.
const MOMENT: Duration = Duration::from_micros(200);
/// A thread may lose its CPU for as long as a transfer takes, so the test tries again. It never
/// ends during the transfer by accident.
const TRIES: usize = 20;

#[derive(Clone, Copy)]
struct Shared<T>(T);
unsafe impl<T> Send for Shared<T> {}
impl<T: Copy> Shared<T> {
    fn get(self) -> T {
        self.0
    }
}

/// Runs `long` on another thread, and `meanwhile` a moment after that has begun. Repeats this until
/// `meanwhile` ended first.
fn ends_first(long: impl Fn(), mut meanwhile: impl FnMut()) -> bool {
    let long = Shared(&long);
    (0..TRIES).any(|_| {
        let phase = AtomicU32::new(0);
        std::thread::scope(|scope| {
            let (phase, run) = (&phase, long);
            scope.spawn(move || {
                // Release and Acquire, all: only the order matters.
                phase.store(1, Ordering::Release);
                run.get()();
                phase.store(2, Ordering::Release);
            });
            while phase.load(Ordering::Acquire) == 0 {
                std::thread::yield_now();
            }
            std::thread::sleep(MOMENT);
            meanwhile();
            phase.load(Ordering::Acquire) == 1
        })
    })
}

/// A pair with that much memory on either side.
fn pair() -> Pair {
    let mut pair = signature::pair(signature::CONFIGURING);
    (pair.a_mem, pair.b_mem) = (pair.nic.memory(BYTES), pair.other.memory(BYTES));
    pair
}

/// The keys that name the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Through {
    Regions,
    /// A window at the peer.
    Window,
    /// An indirect key of the posting side, or of its peer.
    OurKey,
    TheirKey,
}

/// The objects of a long transfer.
struct Rig {
    window: Option<Mw>,
    key: Option<signature::Mkey>,
    through: Through,
    pair: Pair,
}

impl Rig {
    fn new(through: Through) -> Rig {
        let pair = pair();
        let configured = |nic: &Nic, qp: &Qp, mem: &Memory| {
            let key = signature::Mkey::new(nic, mkey_init_attr_flags::INDIRECT, 1);
            signature::Configure::list(&[mem.sge(0, BYTES)]).now(qp, &key);
            key
        };
        let key = match through {
            Through::OurKey => Some(configured(&pair.nic, &pair.a, &pair.a_mem)),
            Through::TheirKey => Some(configured(&pair.other, &pair.b, &pair.b_mem)),
            Through::Regions | Through::Window => None,
        };
        let window = (through == Through::Window).then(|| Mw::new(&pair.other, ibv_mw_type::IBV_MW_TYPE_2));
        if let Some(window) = &window {
            let bind = bind_wr(window, window.rkey(), info(&pair.b_mem, 0, BYTES as u64, REMOTE_WRITE | REMOTE_READ));
            pair.b.post(&mut [bind]).unwrap();
            assert_eq!(pair.b_send.wait().status, SUCCESS);
        }
        Rig { window, key, through, pair }
    }

    /// The list of the posting side.
    fn ours(&self, pieces: usize) -> Vec<ibv_sge> {
        match &self.key {
            Some(key) if self.through == Through::OurKey => vec![key.sge(0, BYTES)],
            _ => sges(&self.pair.a_mem, pieces),
        }
    }

    /// Address and key of its peer.
    fn theirs(&self) -> (u64, u32) {
        let mem = &self.pair.b_mem;
        match (&self.key, &self.window) {
            (Some(key), _) if self.through == Through::TheirKey => (0, key.key()),
            (_, Some(window)) => (mem.addr(), window.rkey()),
            _ => (mem.addr(), mem.key()),
        }
    }

    fn receive(&self, pieces: usize) {
        let sges = match &self.key {
            Some(key) if self.through == Through::TheirKey => vec![key.sge(0, BYTES)],
            _ => sges(&self.pair.b_mem, pieces),
        };
        assert_eq!(self.pair.b.recv(1, &sges), 0);
    }

    fn post(&self, opcode: u32, pieces: usize) {
        let (addr, key) = self.theirs();
        let wr = Wr::new(1, opcode, SIGNALED, &self.ours(pieces));
        self.pair.a.post(&mut [wr.remote(addr, key)]).unwrap();
    }

    fn carry_out(&self, opcode: u32, pieces: usize) {
        if opcode == IBV_WR_SEND {
            self.receive(pieces);
        }
        self.post(opcode, pieces);
        assert_eq!(self.pair.a_send.wait().status, SUCCESS);
        if opcode == IBV_WR_SEND {
            assert_eq!(self.pair.b_recv.wait().status, SUCCESS);
        }
    }
}

/// All of a memory, in `pieces` pieces.
fn sges(mem: &Memory, pieces: usize) -> Vec<ibv_sge> {
    let piece = BYTES / pieces;
    (0..pieces).map(|at| mem.sge(at * piece, piece)).collect()
}

/// Every opcode through every kind of key that it can use.
fn ways() -> impl Iterator<Item = (u32, usize, Through)> {
    let opcodes = [(IBV_WR_RDMA_WRITE, 1), (IBV_WR_RDMA_READ, 4), (IBV_WR_SEND, 2)];
    opcodes.into_iter().flat_map(|(opcode, pieces)| {
        let through = [Through::Regions, Through::Window, Through::OurKey, Through::TheirKey];
        let goes = move |through: &Through| opcode != IBV_WR_SEND || *through != Through::Window;
        through.into_iter().filter(goes).map(move |through| (opcode, pieces, through))
    })
}

#[test]
fn two_lcores_destroy_what_a_long_transfer_does_not_use_while_it_lasts() {
    for (opcode, pieces, through) in ways() {
        let rig = Rig::new(through);
        let shared = Shared(&rig);
        let long = move || shared.get().carry_out(opcode, pieces);
        // On either of its devices, and in its domains.
        for nic in [&rig.pair.nic, &rig.pair.other] {
            let done = ends_first(long, || {
                let (send, recv) = (nic.cq(16), nic.cq(16));
                drop((nic.qp(IBV_QPT_RC, &send, &recv), nic.memory(4096)));
                drop((send, recv));
            });
            assert!(done, "destroying waited for a transfer of opcode {opcode} in {pieces} pieces, {through:?}");
        }
    }
}

/// The regions of a transfer exist until it ends: a thread that deregisters one waits.
#[test]
fn two_lcores_memory_of_a_long_transfer_is_deregistered_when_it_has_ended() {
    let regions = [IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_SEND]
        .into_iter()
        .flat_map(|opcode| [true, false].map(|ours| (opcode, Through::Regions, ours)));
    let others = [
        (IBV_WR_RDMA_WRITE, Through::Window, false),
        (IBV_WR_RDMA_WRITE, Through::OurKey, true),
        (IBV_WR_RDMA_READ, Through::TheirKey, false),
    ];
    for (opcode, through, ours) in regions.chain(others) {
        let lasted = (0..TRIES).any(|_| deregister_meanwhile(opcode, through, ours));
        assert!(lasted, "it never lasted long enough");
    }
}

/// Returns false if the transfer had not begun, or was over.
fn deregister_meanwhile(opcode: u32, through: Through, ours: bool) -> bool {
    let rig = Rig::new(through);
    let pair = &rig.pair;
    let (source, target) =
        if opcode == IBV_WR_RDMA_READ { (&pair.b_mem, &pair.a_mem) } else { (&pair.a_mem, &pair.b_mem) };
    source.fill(0, &vec![1; BYTES]);
    let taken = if ours { &pair.a_mem } else { &pair.b_mem };
    let (phase, shared) = (&AtomicU32::new(0), Shared(&rig));
    let (succeeded, lasts, code) = std::thread::scope(|scope| {
        let posting = scope.spawn(move || {
            let rig = shared.get();
            rig.receive(1);
            // Release and Acquire, all: only the order matters.
            phase.store(1, Ordering::Release);
            rig.post(opcode, 1);
            phase.store(2, Ordering::Release);
            rig.pair.a_send.wait().status == SUCCESS
        });
        while phase.load(Ordering::Acquire) == 0 {
            std::thread::yield_now();
        }
        std::thread::sleep(Duration::from_millis(2));
        if let Some(window) = &rig.window {
            // Otherwise its region can't be deregistered.
            pair.b.post(&mut [Wr::new(1, IBV_WR_LOCAL_INV, SIGNALED, &[]).imm(window.rkey())]).unwrap();
            assert_eq!(pair.b_send.wait().status, SUCCESS);
        }
        let lasts = phase.load(Ordering::Acquire) == 1;
        let code = unsafe { verbline_softnic::provider::ibv_dereg_mr(taken.mr) };
        // None of it is written any more, so all of it was.
        let samples: Vec<u8> = (0..BYTES).step_by(1 << 16).flat_map(|at| target.read(at, 1)).collect();
        let whole = samples.iter().all(|byte| *byte == 1);
        let succeeded = posting.join().unwrap();
        let what = format!("opcode {opcode}, {through:?}");
        assert!(whole || !succeeded, "{what}: it was deregistered in the middle of a transfer");
        (succeeded, lasts, code)
    });
    assert_eq!(code, 0);
    let Rig { window, key, pair, .. } = rig;
    drop((window, key));
    let Pair { a, b, a_send, a_recv, b_send, b_recv, a_mem, b_mem, nic, other } = pair;
    drop((a, b));
    let (mut gone, kept) = if ours { (a_mem, b_mem) } else { (b_mem, a_mem) };
    gone.mr = std::ptr::null_mut();
    drop((gone, kept, a_send, a_recv, b_send, b_recv));
    drop((nic, other));
    succeeded && lasts
}

/// A receive starts a sender that waits, on the receiver's thread; the sender's polls go on.
#[test]
fn two_lcores_a_sender_polls_while_another_thread_carries_out_its_send() {
    let pair = pair();
    let shared = Shared(&pair);
    let receive = move || assert_eq!(shared.get().b.recv(1, &[shared.get().b_mem.sge(0, BYTES)]), 0);
    let mut posted = 0;
    let done = (0..TRIES).any(|_| {
        posted += 1;
        pair.a.post(&mut [Wr::send(posted, SIGNALED, &[pair.a_mem.sge(0, BYTES)])]).unwrap();
        let phase = AtomicU32::new(0);
        let phase = &phase;
        let first = std::thread::scope(|scope| {
            scope.spawn(move || {
                // Release and Acquire, all: only the order matters.
                phase.store(1, Ordering::Release);
                receive();
                phase.store(2, Ordering::Release);
            });
            while phase.load(Ordering::Acquire) == 0 {
                std::thread::yield_now();
            }
            std::thread::sleep(Duration::from_millis(2));
            let polled = pair.a_send.poll();
            // It also posts, behind the send in progress.
            pair.a.post(&mut [Wr::send(posted, 0, &[pair.a_mem.sge(0, 8)])]).unwrap();
            phase.load(Ordering::Acquire) == 1 && polled.is_none()
        });
        assert_eq!(pair.b.recv(2, &[pair.b_mem.sge(0, 8)]), 0);
        assert_eq!(pair.a_send.wait().wr_id, posted);
        assert_eq!([pair.b_recv.wait().byte_len, pair.b_recv.wait().byte_len], [BYTES as u32, 8]);
        first
    });
    assert!(done, "a poll, or a post, waited for what another thread carries out");
}
