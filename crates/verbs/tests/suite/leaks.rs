//! Creating and destroying, over and over: a leak of one round shows in every round.
//!
//! The test counts allocated bytes and blocks, mapped pages and open descriptors, over several
//! stretches of equally many rounds. A table that grows now and then grows in one stretch and not
//! in another; a leak, even of one byte per round, grows in all of them. So the stretch that grew
//! least counts, and it must not have grown.
//!
//! It runs in a process of its own, without other allocations.

use crate::common::{Options, PATIENCE, Side, bring_up, connect, hand_back, init_spec, open, pair, provider, spec};
use std::alloc::{GlobalAlloc, Layout, System};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use verbline_mem::{Batch, PeerRegion};
use verbline_verbs::connection::{ConnectOptions, Listener, resolve};
use verbline_verbs::{Access, Notify, Provider, QpSpec, SendOptions, SrqSpec, Transport, WrKind, expert::WindowKind};

/// The environment variable of the counting process.
const ALONE: &str = "VERBS_TEST_LEAKS_ALONE";
const STRETCHES: usize = 4;

static BYTES: AtomicUsize = AtomicUsize::new(0);
static BLOCKS: AtomicUsize = AtomicUsize::new(0);

struct Counting;

// SAFETY: everything is the system's allocator's; the counts are beside it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // Relaxed, all: counters, read when every other thread is done.
        BYTES.fetch_add(layout.size(), Ordering::Relaxed);
        BLOCKS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the layout is handed on to the system's allocator as it came.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        BYTES.fetch_sub(layout.size(), Ordering::Relaxed);
        BLOCKS.fetch_sub(1, Ordering::Relaxed);
        // SAFETY: address and layout are handed on to the system's allocator as they came.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn making_and_destroying_leaks_nothing() {
    if std::env::var_os(ALONE).is_none() {
        let this = std::env::current_exe().unwrap();
        let name = "leaks::making_and_destroying_leaks_nothing";
        let status = Command::new(this).args(["--exact", name, "--nocapture"]).env(ALONE, "1").status().unwrap();
        assert!(status.success(), "see above");
        return;
    }
    let subjects: [(&str, fn()); 9] = [
        ("queue pairs and regions", queue_pairs),
        ("datagrams and address handles", datagrams),
        ("shared receive queues", shared_receives),
        ("windows", windows),
        ("thread domains", thread_domains),
        ("re-registrations", reregistrations),
        ("channels", channels),
        ("connections", connections),
        ("what is left when it is dropped", left_undone),
    ];
    // An emulated guest is slow.
    let rounds = if provider() == Provider::Soft { 40 } else { 8 };
    for (name, round) in subjects {
        let grown = least_growth(round, rounds);
        assert!(grown.iter().all(|(_, grown)| *grown <= 0), "{name}: {rounds} rounds leave behind {grown:?}");
    }
}

/// The name of each counter, and its value.
type Counts = [(&'static str, usize); 4];

fn counts() -> Counts {
    [
        ("bytes", BYTES.load(Ordering::Relaxed)),
        ("blocks", BLOCKS.load(Ordering::Relaxed)),
        ("descriptors", std::fs::read_dir("/proc/self/fd").unwrap().count()),
        ("pages", mapped_pages()),
    ]
}

/// Pages of address space. AddressSanitizer reserves terabytes of it and keeps freed memory, so
/// they mean nothing there.
fn mapped_pages() -> usize {
    const SANITIZED: usize = 1 << 30;
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = statm.split(' ').next().unwrap().parse().unwrap();
    if pages > SANITIZED {
        return 0;
    }
    pages
}

/// The growth of each counter in the stretch of rounds in which it grew least. The allocator maps a
/// few pages now and then: fewer than half a page per round count as none.
fn least_growth(round: fn(), rounds: isize) -> Vec<(&'static str, isize)> {
    (0..rounds).for_each(|_| round());
    let mut least = [isize::MAX; 4];
    let mut before = counts();
    for _ in 0..STRETCHES {
        (0..rounds).for_each(|_| round());
        let now = counts();
        for (least, ((_, before), (_, now))) in least.iter_mut().zip(before.iter().zip(&now)) {
            *least = (*least).min(*now as isize - *before as isize);
        }
        before = now;
    }
    let count = |((name, _), least)| (name, if name == "pages" && least < rounds / 2 { 0 } else { least });
    before.into_iter().zip(least).map(count).collect()
}

fn queue_pairs() {
    for transport in [Transport::Rc, Transport::Uc] {
        let (mut a, mut b) = pair(&Options::new(transport));
        a.post_recvs(8);
        b.post_recvs(8);
        a.send(b"hello");
        b.receive(1);
        drop(a.peer_region(8192, Access::LOCAL_WRITE | Access::REMOTE_READ));
    }
}

fn datagrams() {
    let (mut a, mut b) = pair(&Options::new(Transport::Ud));
    b.post_recvs(2);
    a.send(b"hello");
    b.receive(1);
    let gid = b.qp.endpoint().gid;
    drop([(); 3].map(|()| a.pd.create_ah(&crate::common::to_gid(gid)).unwrap()));
}

fn shared_receives() {
    let options = Options::new(Transport::Rc);
    let (mut server, mut client) = (Side::new("soft0", &options, 0), Side::new("soft1", &options, 1));
    let mut srq = server.pd.create_srq(&SrqSpec { tag: 2, ..SrqSpec::new(Transport::Rc, 8) }).unwrap();
    server.qp = server.pd.create_qp(&QpSpec { srq: Some(&srq), ..spec(&options, &server.cq, 3) }).unwrap();
    server.qp.to_init(&init_spec()).unwrap();
    let (theirs, ours) = (client.qp.endpoint(), server.qp.endpoint());
    bring_up(&mut server, &theirs, &options);
    bring_up(&mut client, &ours, &options);
    let mut batch = Batch::with_capacity(8);
    assert_eq!(server.cache.get_bulk(&mut batch, 8), 8);
    assert_eq!(srq.post_recv(&mut batch).posted, 8);
    // One is polled, the other is not.
    client.send(b"hello");
    let received = server.wait_for(WrKind::SrqRecv, |_, _, completion| srq.recv_done(completion).unwrap().len());
    assert_eq!(received, 5);
    client.send(b"again");
    drop(server.qp);
}

fn windows() {
    for kind in [WindowKind::Type1, WindowKind::Type2] {
        let (_a, mut b) = pair(&Options::new(Transport::Rc));
        let mr = b.peer_region(4096, Access::LOCAL_WRITE | Access::MW_BIND);
        let mut window = b.pd.alloc_mw(kind).unwrap();
        let slice = mr.slice(0, 512).unwrap();
        b.qp.rc().unwrap().bind_window(&mut window, slice, Access::REMOTE_READ, SendOptions::default()).unwrap();
        b.wait_for(WrKind::Op, hand_back);
    }
}

fn thread_domains() {
    let options = Options::new(Transport::Rc);
    let mut a = Side::new("soft0", &options, 0);
    // If the device has no thread domains, the partly created objects must be freed as well.
    let spec = QpSpec { thread_domain: true, ..spec(&options, &a.cq, 1) };
    a.qp = a.pd.create_qp(&spec).unwrap();
    drop((a.pd, a.qp));
}

/// Done, or refused: no memory stays either way.
fn reregistrations() {
    let a = Side::new("soft0", &Options::new(Transport::Rc), 0);
    let other = a.context.alloc_pd().unwrap();
    let mut mr = a.peer_region(8192, Access::LOCAL_WRITE);
    let memory = |pages: usize| PeerRegion::new(crate::common::region("other", pages * 4096));
    drop((mr.replace_region(memory(4)), mr.set_pd(&other), mr.set_access(Access::NONE)));
    let clone = mr.clone();
    drop((mr.replace_region(memory(1)), clone));
}

fn channels() {
    let options = Options::new(Transport::Rc);
    let mut a = Side::build(open("soft0"), &options, 1, true);
    let mut b = Side::build(open("soft1"), &options, 2, true);
    connect(&mut a, &mut b, &options);
    b.post_recvs(1);
    let armed = b.cq.arm(Notify::Next).unwrap();
    a.send(b"hello");
    assert_eq!(b.channel.as_mut().unwrap().wait(armed, Some(PATIENCE)).unwrap(), 1);
    b.receive(1);
}

fn connections() {
    let mut listener = Listener::bind(provider(), "10.9.9.2:0".parse().unwrap(), 4).unwrap();
    let address = listener.local_addr();
    let (mut a, mut b) = (fresh("soft0"), fresh("soft1"));
    let route = resolve(provider(), address, Some("10.9.9.1:0".parse().unwrap()), PATIENCE).unwrap();
    let connecting = route.connect(&mut a.qp, &ConnectOptions::default()).unwrap();
    let request = listener.next(PATIENCE).unwrap().unwrap();
    let mut accepted = request.accept(&mut b.qp, &ConnectOptions::default()).unwrap();
    let connected = connecting.finish(&mut a.qp, PATIENCE).unwrap();
    accepted.wait_established(PATIENCE).unwrap();
    connected.disconnect(&mut a.qp).unwrap();
    assert!(accepted.wait_disconnected(PATIENCE).unwrap());
}

/// A side whose QP is in INIT, as connections accept it.
fn fresh(device: &'static str) -> Side {
    Side::new(device, &Options::new(Transport::Rc), 0)
}

/// Waiting sends, receives without a message, and completions and events that were never taken.
fn left_undone() {
    let options = Options::new(Transport::Rc);
    let mut a = Side::build(open("soft0"), &options, 1, true);
    let mut b = Side::build(open("soft1"), &options, 2, true);
    connect(&mut a, &mut b, &options);
    a.post_recvs(8);
    b.post_recvs(1);
    drop(b.cq.arm(Notify::Next).unwrap());
    a.send(b"arrives, and nobody looks");
    a.send(b"waits for a receive");
}
