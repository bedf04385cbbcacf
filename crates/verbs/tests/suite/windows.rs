//! Memory windows: a peer's access, granted and revoked.

use crate::common::{Options, PATIENCE, Side, connect, hand_back, init_spec, only_soft, pair, provider};
use verbline_mem::{PageChoice, PageSize, PeerRegion, Region, RegionSpec};
use verbline_verbs::{
    Access, InitSpec, PostStop, Provider, RtsSpec, SendOptions, Status, Transport, WrKind,
    expert::{MemoryWindow, WindowKind},
    rdma::{PeerMr, Remote},
};

mod listed;

fn bindable() -> Access {
    Access::LOCAL_WRITE | Access::MW_BIND
}

/// Polls both sides until one op of `side` is done.
fn finish(side: &mut Side, other: &mut Side) -> Status {
    finish_all(side, other, 1)[0]
}

/// Like [`finish`], for several ops; their statuses in order.
fn finish_all(side: &mut Side, other: &mut Side, count: usize) -> Vec<Status> {
    let deadline = std::time::Instant::now() + PATIENCE;
    let mut ends = Vec::new();
    while ends.len() < count {
        assert!(std::time::Instant::now() < deadline, "the op completes");
        other.poll(hand_back);
        side.poll(|qp, freed, completion| {
            if completion.kind() == WrKind::Op {
                ends.push(completion.status());
            }
            hand_back(qp, freed, completion);
        });
    }
    ends
}

fn bind(b: &mut Side, a: &mut Side, window: &mut MemoryWindow, mr: &PeerMr, offset: usize, len: u32) -> Status {
    let slice = mr.slice(offset, len).unwrap();
    let access = Access::REMOTE_WRITE | Access::REMOTE_READ;
    b.qp.rc().unwrap().bind_window(window, slice, access, SendOptions::default()).unwrap();
    finish(b, a)
}

fn write(a: &mut Side, b: &mut Side, to: Remote, bytes: &[u8]) -> Status {
    let packet = a.packet(bytes);
    a.qp.rc().unwrap().write(packet, to, SendOptions::default()).unwrap();
    finish(a, b)
}

#[test]
fn a_peer_reaches_what_a_window_shows_and_no_more() {
    for kind in [WindowKind::Type1, WindowKind::Type2] {
        let (mut a, mut b) = pair(&Options::new(Transport::Rc));
        let mr = b.peer_region(4096, bindable());
        let mut window = b.pd.alloc_mw(kind).unwrap();
        assert_eq!((window.kind(), window.remote()), (kind, None));
        assert_eq!(bind(&mut b, &mut a, &mut window, &mr, 1024, 512), Status::SUCCESS);
        let remote = window.remote().unwrap();
        assert_eq!((remote.addr, remote.rkey), (mr.remote(1024).addr, window_key(&window)));
        assert_eq!(write(&mut a, &mut b, remote, b"through the window"), Status::SUCCESS);
        let mut bytes = [0; 18];
        mr.read_into(1024, &mut bytes).unwrap();
        assert_eq!(&bytes, b"through the window");
        // rdma_rxe of Linux 6.1 checks the region's bounds and not the window's.
        if provider() == Provider::Soft {
            assert_eq!(write(&mut a, &mut b, remote.offset(508), b"too far"), Status::REM_ACCESS_ERR);
        }
    }
}

fn window_key(window: &MemoryWindow) -> u32 {
    window.remote().unwrap().rkey
}

#[test]
fn binding_again_takes_the_old_key_away() {
    let (mut a, mut b) = pair(&Options::new(Transport::Rc));
    let mr = b.peer_region(4096, bindable());
    let mut window = b.pd.alloc_mw(WindowKind::Type1).unwrap();
    assert_eq!(bind(&mut b, &mut a, &mut window, &mr, 0, 64), Status::SUCCESS);
    let old = window.remote().unwrap();
    assert_eq!(bind(&mut b, &mut a, &mut window, &mr, 64, 64), Status::SUCCESS);
    let new = window.remote().unwrap();
    assert_ne!(old.rkey, new.rkey);
    assert_eq!(write(&mut a, &mut b, new, b"new"), Status::SUCCESS);
    assert_eq!(write(&mut a, &mut b, old, b"old"), Status::REM_ACCESS_ERR);
}

#[test]
fn a_type_2_key_is_taken_by_local_or_remote_invalidation() {
    for remotely in [false, true] {
        let (mut a, mut b) = pair(&Options::new(Transport::Rc));
        let mr = b.peer_region(4096, bindable());
        let mut window = b.pd.alloc_mw(WindowKind::Type2).unwrap();
        assert_eq!(bind(&mut b, &mut a, &mut window, &mr, 0, 64), Status::SUCCESS);
        let remote = window.remote().unwrap();
        assert_eq!(write(&mut a, &mut b, remote, b"before"), Status::SUCCESS);
        if remotely {
            assert_eq!(b.post_recvs(1), 1);
            let packet = a.packet(b"done with it");
            a.qp.rc().unwrap().send_with_invalidate(packet, remote.rkey, SendOptions::default()).unwrap();
            b.wait_for(WrKind::Recv, |qp, _, completion| {
                // rdma_rxe of Linux 6.1 invalidates the key without naming it.
                let told = (provider() == Provider::Soft).then_some(remote.rkey);
                assert_eq!((completion.invalidated_rkey(), completion.imm()), (told, None));
                assert_eq!(qp.recv_done(completion).unwrap().data(), b"done with it");
            });
            assert_eq!(finish(&mut a, &mut b), Status::SUCCESS);
        } else {
            b.qp.rc().unwrap().local_invalidate(remote.rkey, SendOptions::default()).unwrap();
            assert_eq!(finish(&mut b, &mut a), Status::SUCCESS);
        }
        // Bound again the window has another key, which works; the old one does not.
        assert_eq!(bind(&mut b, &mut a, &mut window, &mr, 0, 64), Status::SUCCESS);
        assert_ne!(window_key(&window), remote.rkey);
        let again = window.remote().unwrap();
        assert_eq!(write(&mut a, &mut b, again, b"again"), Status::SUCCESS);
        assert_eq!(write(&mut a, &mut b, remote, b"after"), Status::REM_ACCESS_ERR);
    }
}

#[test]
fn a_window_keeps_its_memory() {
    let (mut a, mut b) = pair(&Options::new(Transport::Rc));
    let mr = b.peer_region(4096, bindable());
    let mut window = b.pd.alloc_mw(WindowKind::Type1).unwrap();
    assert_eq!(bind(&mut b, &mut a, &mut window, &mr, 0, 64), Status::SUCCESS);
    let remote = window.remote().unwrap();
    drop(mr);
    assert_eq!(write(&mut a, &mut b, remote, b"still there"), Status::SUCCESS);
    drop(window);
    assert_eq!(write(&mut a, &mut b, remote, b"gone"), Status::REM_ACCESS_ERR);
}

/// Connects both sides again, after an error.
fn restart(a: &mut Side, b: &mut Side, options: &Options) {
    for side in [&mut *a, &mut *b] {
        side.qp.to_err().unwrap();
        side.qp.start_drain().unwrap();
        side.drain();
        side.qp.to_reset().unwrap();
        side.qp.to_init(&InitSpec { access: options.access, ..init_spec() }).unwrap();
    }
    connect(a, b, options);
}

#[test]
fn a_window_whose_bind_failed_is_as_it_was() {
    let options = Options::new(Transport::Rc);
    for kind in [WindowKind::Type1, WindowKind::Type2] {
        let (mut a, mut b) = pair(&options);
        let (mr, closed) = (b.peer_region(4096, bindable()), b.peer_region(4096, Access::LOCAL_WRITE));
        let mut window = b.pd.alloc_mw(kind).unwrap();
        if kind == WindowKind::Type1 {
            assert_eq!(bind(&mut b, &mut a, &mut window, &mr, 0, 64), Status::SUCCESS);
        }
        let before = window.remote();
        // One bind that fails, and one behind it that is flushed. Both change the handle's key, and
        // neither the window's.
        for slice in [&closed, &mr].map(|mr| mr.slice(64, 64).unwrap()) {
            let access = Access::REMOTE_WRITE;
            b.qp.rc().unwrap().bind_window(&mut window, slice, access, SendOptions::default()).unwrap();
        }
        assert_eq!(finish_all(&mut b, &mut a, 2), [Status::MW_BIND_ERR, Status::WR_FLUSH_ERR]);
        restart(&mut a, &mut b, &options);
        if let Some(remote) = before {
            assert_eq!(write(&mut a, &mut b, remote, b"as before"), Status::SUCCESS);
        }
        assert_eq!(bind(&mut b, &mut a, &mut window, &mr, 128, 64), Status::SUCCESS);
        let remote = window.remote().unwrap();
        assert_eq!(write(&mut a, &mut b, remote, b"bound again"), Status::SUCCESS);
    }
}

#[test]
fn a_region_that_does_not_allow_windows_gets_none() {
    let (mut a, mut b) = pair(&Options::new(Transport::Rc));
    let mr = b.peer_region(4096, Access::LOCAL_WRITE);
    let mut window = b.pd.alloc_mw(WindowKind::Type2).unwrap();
    let slice = mr.slice(0, 64).unwrap();
    let access = Access::REMOTE_WRITE;
    match b.qp.rc().unwrap().bind_window(&mut window, slice, access, SendOptions::default()) {
        Ok(()) => assert_eq!(finish(&mut b, &mut a), Status::MW_BIND_ERR),
        Err(refused) => assert!(matches!(refused.reason, PostStop::Device(_)), "{refused}"),
    }
}

#[test]
fn a_window_of_another_pd_is_refused() {
    let (mut a, b) = pair(&Options::new(Transport::Rc));
    let mr = a.peer_region(4096, bindable());
    let mut window = b.pd.alloc_mw(WindowKind::Type2).unwrap();
    let slice = mr.slice(0, 64).unwrap();
    let refused =
        a.qp.rc().unwrap().bind_window(&mut window, slice, Access::REMOTE_READ, SendOptions::default()).unwrap_err();
    assert!(matches!(refused.reason, PostStop::NotRegistered { .. }), "{refused}");
    assert_eq!(window.remote(), None);
}

/// A cancelled bind completes like one that was carried out, but changes nothing of the window.
#[test]
fn a_bind_that_was_cancelled_leaves_the_window_as_it_was() {
    only_soft!("of kernel devices only mlx5 cards can cancel");
    for kind in [WindowKind::Type1, WindowKind::Type2] {
        let (mut a, mut b) = pair(&Options::new(Transport::Rc));
        let (first, second) = (b.peer_region(4096, bindable()), b.peer_region(4096, bindable()));
        let mut window = b.pd.alloc_mw(kind).unwrap();
        if kind == WindowKind::Type1 {
            assert_eq!(bind(&mut b, &mut a, &mut window, &first, 0, 64), Status::SUCCESS);
        }
        let before = window.remote();
        b.qp.to_sqd(false).unwrap();
        let slice = second.slice(0, 64).unwrap();
        b.qp.rc().unwrap().bind_window(&mut window, slice, Access::REMOTE_WRITE, SendOptions::default()).unwrap();
        let number = b.qp.last_posted().unwrap();
        assert_eq!(b.qp.cancel_posted_sends([number]).unwrap(), 1);
        b.qp.resume().unwrap();
        assert_eq!(finish(&mut b, &mut a), Status::SUCCESS);
        drop(first);
        if let Some(remote) = before {
            assert_eq!(write(&mut a, &mut b, remote, b"as before"), Status::SUCCESS);
        }
        assert_eq!(bind(&mut b, &mut a, &mut window, &second, 128, 64), Status::SUCCESS);
        assert_eq!(write(&mut a, &mut b, window.remote().unwrap(), b"bound anew"), Status::SUCCESS);
    }
}

/// Whether these bytes are at an address of this process.
fn are_there(addr: u64, bytes: &[u8]) -> bool {
    let mut seen = vec![0; bytes.len()];
    let memory = std::fs::File::open("/proc/self/mem").unwrap();
    // An address without memory is an error.
    std::os::unix::fs::FileExt::read_exact_at(&memory, &mut seen, addr).is_ok() && seen == bytes
}

/// A bind waits behind a send when its QP is reset: it is not carried out, and has no completion.
/// The window is still on its first memory, which stays registered until the window is gone, or
/// known to be elsewhere.
#[test]
fn what_a_window_may_be_bound_to_stays_until_that_is_known() {
    only_soft!("a send without a receive waits for ever there, and holds back what is behind it");
    for rebinds in [false, true] {
        let options = Options { rts: RtsSpec { rnr_retry: 7, ..RtsSpec::default() }, ..Options::new(Transport::Rc) };
        let (mut a, mut b) = pair(&options);
        let pages = PageChoice::Exactly(PageSize::Small4K);
        let spec = RegionSpec { name: "first".into(), len_bytes: 4096, pages, lock: false };
        let first = Region::map(&spec).unwrap();
        let addr = first.as_ptr().addr() as u64;
        let first = PeerRegion::new(first);
        let first = b.pd.register_peer_region(first, bindable()).unwrap();
        let second = b.peer_region(4096, bindable());
        let mut window = b.pd.alloc_mw(WindowKind::Type1).unwrap();
        assert_eq!(bind(&mut b, &mut a, &mut window, &first, 0, 64), Status::SUCCESS);
        let old = window.remote().unwrap();
        b.send(b"nobody receives it");
        let slice = second.slice(0, 64).unwrap();
        b.qp.rc().unwrap().bind_window(&mut window, slice, Access::REMOTE_WRITE, SendOptions::default()).unwrap();
        for side in [&mut a, &mut b] {
            side.qp.to_reset().unwrap();
            side.qp.to_init(&InitSpec { access: options.access, ..init_spec() }).unwrap();
        }
        drop(first);
        connect(&mut a, &mut b, &options);
        assert_eq!(write(&mut a, &mut b, old, b"as before"), Status::SUCCESS);
        assert!(are_there(addr, b"as before"), "a window is on it");
        if rebinds {
            // The key that the bind would have given is refused; the one before it, which is in
            // force, is not.
            assert_eq!(bind(&mut b, &mut a, &mut window, &second, 0, 64), Status::MW_BIND_ERR);
            for side in [&mut a, &mut b] {
                side.qp.to_reset().unwrap();
                side.qp.to_init(&InitSpec { access: options.access, ..init_spec() }).unwrap();
            }
            connect(&mut a, &mut b, &options);
            assert_eq!(bind(&mut b, &mut a, &mut window, &second, 0, 64), Status::SUCCESS);
            assert_eq!(write(&mut a, &mut b, window.remote().unwrap(), b"anew"), Status::SUCCESS);
        } else {
            drop(window);
        }
        assert!(!are_there(addr, b"as before"), "nothing leads to it any more");
    }
}

#[test]
fn a_marker_behind_sends_is_done_once_the_peer_has_them_and_not_before() {
    only_soft!("no marker goes behind sends");
    let (mut a, mut b) = pair(&Options { signal_every_wr: 16, ..Options::new(Transport::Rc) });
    for times in 0..2 {
        (0..3).for_each(|_| a.send(b"unsignaled"));
        let marker = a.qp.post_end_marker().unwrap();
        for _ in 0..100 {
            assert_eq!(a.poll(hand_back), 0, "the peer has no receives");
        }
        assert!(a.qp.has_send_out(marker) && a.qp.sends_outstanding() == 4);
        assert_eq!(b.post_recvs(3), 3);
        let received = b.receive(3);
        assert!(received.iter().all(|packet| packet.data() == b"unsignaled"), "time {times}");
        let done = a.wait_for(WrKind::Send, |qp, freed, completion| {
            let covered = qp.send_done(completion, freed).unwrap();
            (completion.status(), completion.wr_id(), covered)
        });
        assert_eq!(done, (Status::SUCCESS, marker, 4));
        assert!(!a.qp.has_send_out(marker));
    }
    // It takes a place in the queue.
    (0..16).for_each(|_| a.send(b"unsignaled"));
    assert!(a.qp.post_end_marker().unwrap_err().to_string().contains("cannot be posted"));
}

/// A marker that was posted and never carried out leaves no trace in the next life of its QP.
#[test]
fn a_queue_pair_that_was_reset_has_markers_again() {
    only_soft!("no marker goes behind sends");
    let options = Options { signal_every_wr: 16, ..Options::new(Transport::Rc) };
    let (mut a, mut b) = pair(&options);
    for _ in 0..3 {
        b.qp.to_err().unwrap();
        a.send(b"nobody receives it");
        a.qp.to_err().unwrap();
        _ = a.qp.post_end_marker().unwrap();
        for side in [&mut a, &mut b] {
            side.qp.to_reset().unwrap();
            side.qp.to_init(&init_spec()).unwrap();
        }
        connect(&mut a, &mut b, &options);
        assert_eq!(b.post_recvs(1), 1);
        a.send(b"unsignaled");
        let marker = a.qp.post_end_marker().unwrap();
        assert_eq!(b.receive(1).len(), 1);
        let done = a.wait_for(WrKind::Send, |qp, freed, completion| {
            _ = qp.send_done(completion, freed).unwrap();
            (completion.status(), completion.wr_id())
        });
        assert_eq!(done, (Status::SUCCESS, marker));
    }
}

#[test]
fn only_a_connected_queue_pair_has_a_marker_behind_its_sends() {
    let (mut a, _b) = pair(&Options::new(Transport::Ud));
    assert!(a.qp.post_end_marker().unwrap_err().to_string().contains("only RC and UC of the software RNIC"));
}
