//! Notification and asynchronous events.
use crate::harness::*;
use rdma_sys::*;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use verbline_softnic::provider as soft;

/// A connected pair whose receiving side has a channel.
struct Rig {
    a: Qp,
    b: Qp,
    _send: Cq,
    recv: Cq,
    channel: Channel,
    mem: Memory,
    nic: Nic,
}

fn rig() -> Rig {
    let nic = Nic::open(0);
    let channel = Channel::new(&nic);
    let (send, recv) = (nic.cq(256), nic.cq_on(256, channel.0));
    let a = nic.qp(ibv_qp_type::IBV_QPT_RC, &send, &send);
    let b = nic.qp(ibv_qp_type::IBV_QPT_RC, &recv, &recv);
    connect((&a, 1), (&b, 1));
    let mem = nic.memory(4096);
    for _ in 0..64 {
        b.recv(1, &[mem.sge(0, 4096)]);
    }
    Rig { a, b, _send: send, recv, channel, mem, nic }
}

impl Rig {
    fn send(&self, flags: u32, len: usize) {
        self.a.post(&mut [Wr::send(1, flags, &[self.mem.sge(0, len)])]).unwrap();
    }
    fn fired(&self) -> bool {
        let fired = self.channel.readable();
        if fired {
            assert_eq!(self.channel.event(), self.recv.0);
            assert!(!self.channel.readable(), "one event a request");
        }
        fired
    }
}

#[test]
fn one_event_for_the_next_completion_after_the_request() {
    let rig = rig();
    for len in [8, 64, 1000] {
        rig.send(0, len);
        assert!(!rig.fired(), "not armed");
        rig.recv.arm(false);
        assert!(!rig.fired(), "nothing for completions already there");
        rig.send(0, len);
        assert!(rig.fired());
        rig.send(0, len);
        assert!(!rig.fired(), "a request is good for one event");
        rig.recv.arm(false);
        rig.recv.arm(false);
        rig.send(0, len);
        rig.send(0, len);
        assert!(rig.fired(), "a pending request absorbs the same");
        assert_eq!(rig.recv.poll_all().len(), 5);
        assert!(!rig.fired());
    }
}

#[test]
fn polling_does_not_disarm() {
    let rig = rig();
    rig.send(0, 8);
    rig.recv.arm(false);
    assert_eq!(rig.recv.poll_all().len(), 1, "there before the request");
    assert!(rig.recv.poll().is_none() && !rig.fired());
    rig.send(0, 8);
    assert!(rig.fired(), "re-arming or polling in between isn't needed");
}

#[test]
fn solicited_only_wakes_for_solicited_and_for_errors() {
    let rig = rig();
    rig.recv.arm(true);
    for len in [8, 64, 1000] {
        rig.send(0, len);
        assert!(!rig.fired());
        rig.send(SOLICITED, len);
        assert!(rig.fired());
        rig.recv.arm(true);
    }
    // A list wakes if one of it is solicited, wherever that is.
    for len in [8, 64, 1000] {
        for (flags, fires) in [([0, 0, 0], false), ([SOLICITED, 0, 0], true), ([0, SOLICITED, 0], true)] {
            let mut list = flags.map(|flags| Wr::send(1, flags, &[rig.mem.sge(0, len)]));
            rig.recv.arm(true);
            rig.a.post(&mut list).unwrap();
            assert_eq!(rig.fired(), fires, "{len} B, {flags:?}");
        }
    }
    rig.recv.arm(true);
    // `NEXT` takes precedence, in either order of arming.
    rig.recv.arm(false);
    rig.send(0, 8);
    assert!(rig.fired());
    rig.recv.arm(false);
    rig.recv.arm(true);
    rig.send(0, 8);
    assert!(rig.fired());
    // Any unsuccessful completion counts as solicited: here a flushed receive.
    rig.recv.arm(true);
    rig.send(0, 8);
    assert!(!rig.fired());
    assert_eq!(rig.b.to(ibv_qp_state::IBV_QPS_ERR), 0);
    assert!(rig.fired());
}

#[test]
fn send_completions_notify_too() {
    let nic = Nic::open(0);
    let channel = Channel::new(&nic);
    let cq = nic.cq_on(64, channel.0);
    let qp = nic.qp(ibv_qp_type::IBV_QPT_UC, &cq, &cq);
    qp.to_init();
    qp.to_rtr(qp.num(), 1);
    qp.to_rts();
    cq.arm(true);
    qp.post(&mut [Wr::send(1, SIGNALED | SOLICITED, &[])]).unwrap();
    assert!(!channel.readable(), "a send completion isn't a solicited one");
    cq.arm(false);
    qp.post(&mut [Wr::send(1, 0, &[])]).unwrap();
    assert!(!channel.readable(), "unsignaled: no completion");
    qp.post(&mut [Wr::send(1, SIGNALED, &[])]).unwrap();
    assert!(channel.readable());
    channel.event();
}

#[test]
fn a_batch_is_one_event() {
    let rig = rig();
    rig.recv.arm(true);
    let mut list: Vec<Wr> =
        (0..20).map(|i| Wr::send(i, if i == 3 { SOLICITED } else { 0 }, &[rig.mem.sge(0, 64)])).collect();
    rig.a.post(&mut list).unwrap();
    assert!(rig.fired());
    assert_eq!(rig.recv.poll_all().len(), 20);
}

#[test]
fn a_channel_serves_several_queues_in_order() {
    let rig = rig();
    let second = rig.nic.cq_on(16, rig.channel.0);
    let qp = rig.nic.qp(ibv_qp_type::IBV_QPT_UC, &second, &second);
    qp.to_init();
    qp.to_rtr(qp.num(), 1);
    qp.to_rts();
    second.arm(false);
    rig.recv.arm(false);
    qp.post(&mut [Wr::send(1, SIGNALED, &[])]).unwrap();
    rig.send(0, 8);
    assert!(rig.channel.readable());
    assert_eq!([rig.channel.event(), rig.channel.event()], [second.0, rig.recv.0]);
    assert!(!rig.channel.readable());
    drop(qp);
    drop(second);
}

#[test]
fn a_blocked_get_is_woken_and_a_nonblocking_one_says_again() {
    let rig = rig();
    let fd = unsafe { (*rig.channel.0).fd };
    unsafe { libc::fcntl(fd, libc::F_SETFL, libc::O_NONBLOCK) };
    let (mut cq, mut context) = (null_mut(), null_mut());
    assert_eq!(unsafe { soft::ibv_get_cq_event(rig.channel.0, &mut cq, &mut context) }, -1);
    assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EAGAIN));
    unsafe { libc::fcntl(fd, libc::F_SETFL, 0) };
    rig.recv.arm(false);
    let woken = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let channel = &rig.channel;
        scope.spawn(|| {
            channel.event();
            woken.store(true, Ordering::SeqCst);
        });
        std::thread::sleep(Duration::from_millis(20));
        assert!(!woken.load(Ordering::SeqCst));
        rig.send(0, 8);
    });
    assert!(woken.load(Ordering::SeqCst));
}

#[test]
fn destroying_waits_for_acknowledgements() {
    let nic = Nic::open(0);
    let channel = Channel::new(&nic);
    let cq = nic.cq_on(16, channel.0);
    let qp = nic.qp(ibv_qp_type::IBV_QPT_UC, &cq, &cq);
    qp.to_init();
    qp.to_rtr(qp.num(), 1);
    qp.to_rts();
    for _ in 0..2 {
        cq.arm(false);
        qp.post(&mut [Wr::send(1, SIGNALED, &[])]).unwrap();
    }
    assert_eq!(unsafe { soft::ibv_destroy_cq(cq.0) }, libc::EBUSY);
    drop(qp);
    assert_eq!(unsafe { soft::ibv_destroy_comp_channel(channel.0) }, libc::EBUSY);
    // One event is taken and not acknowledged, one is never taken.
    let (mut got, mut context) = (null_mut(), null_mut());
    assert_eq!(unsafe { soft::ibv_get_cq_event(channel.0, &mut got, &mut context) }, 0);
    assert_eq!(got, cq.0);
    let destroyed = AtomicBool::new(false);
    let raw = cq.0 as usize;
    std::thread::scope(|scope| {
        let (cq, destroyed) = (cq, &destroyed);
        scope.spawn(move || {
            drop(cq);
            destroyed.store(true, Ordering::SeqCst);
        });
        std::thread::sleep(Duration::from_millis(30));
        assert!(!destroyed.load(Ordering::SeqCst));
        // libibverbs' own function works on our object.
        unsafe { ibv_ack_cq_events(raw as *mut ibv_cq, 1) };
    });
    assert!(destroyed.load(Ordering::SeqCst));
    assert!(!channel.readable(), "the event of the destroyed queue is gone");
}

#[test]
fn communication_established_is_said_once() {
    let pair = Pair::unconnected(ibv_qp_type::IBV_QPT_RC, |_| {});
    pair.a.to_init();
    pair.b.to_init();
    pair.b.recv(1, &[]);
    pair.b.recv(2, &[]);
    pair.a.to_rtr(pair.b.num(), 2);
    pair.b.to_rtr(pair.a.num(), 1);
    pair.a.to_rts();
    assert_eq!(async_event(&pair.other), None);
    pair.a.post(&mut [Wr::send(1, 0, &[]), Wr::send(2, 0, &[])]).unwrap();
    assert_eq!(async_event(&pair.other), Some(ibv_event_type::IBV_EVENT_COMM_EST as u32));
    assert_eq!((async_event(&pair.other), async_event(&pair.nic)), (None, None));
    assert_eq!(pair.b_recv.poll_all().len(), 2);
}

#[test]
fn asynchronous_events_of_a_destroyed_object_are_gone() {
    let pair = Pair::rc();
    let mut sqd = attr(ibv_qp_state::IBV_QPS_SQD);
    sqd.en_sqd_async_notify = 1;
    let mask = ibv_qp_attr_mask::IBV_QP_STATE | ibv_qp_attr_mask::IBV_QP_EN_SQD_ASYNC_NOTIFY;
    assert_eq!(pair.a.modify(&mut sqd, mask), 0);
    assert!(readable(unsafe { (*pair.nic.context).async_fd }, 0));
    let Pair { a, nic, a_mem, a_send, a_recv, .. } = pair;
    drop(a);
    assert_eq!(async_event(&nic), None);
    drop((a_mem, a_send, a_recv));
}

/// Safe code can have the descriptor, and may try to empty the count behind it, or to fill it up.
#[test]
fn nobody_takes_away_what_a_sleeper_waits_for() {
    let rig = rig();
    rig.recv.arm(false);
    rig.send(0, 8);
    assert_eq!(rig.b.to(ibv_qp_state::IBV_QPS_ERR), 0);
    assert!(verbline_softnic::fault::break_queue_pair(rig.a.num()));
    let descriptors = unsafe { [(*rig.channel.0).fd, (*rig.nic.context).async_fd] };
    for fd in descriptors {
        let mut count = u64::MAX - 1;
        assert!(readable(fd, 0));
        assert_eq!(unsafe { libc::write(fd, (&raw const count).cast(), 8) }, -1, "it was filled");
        assert_eq!(unsafe { libc::read(fd, (&raw mut count).cast(), 8) }, -1, "it was drained");
        assert!(readable(fd, 0));
    }
    assert!(rig.fired());
    assert!(async_event(&rig.nic).is_some() && async_event(&rig.nic).is_none());
    assert!(descriptors.iter().all(|fd| !readable(*fd, 0)));
}
