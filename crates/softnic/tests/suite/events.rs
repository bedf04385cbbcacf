//! Notification and asynchronous events.
use crate::harness::*;
use rdma_sys::*;

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
fn a_channel_serves_several_queues_in_order() {
    let rig = rig();
    let second = rig.nic.cq_on(16, rig.channel.0);
    let qp = rig.nic.qp(ibv_qp_type::IBV_QPT_UC, &second, &second);
    qp.bring_up(qp.num(), 1);
    second.arm(false);
    rig.recv.arm(false);
    qp.post(&mut [Wr::send(1, SIGNALED, &[])]).unwrap();
    rig.send(0, 8);
    assert!(rig.channel.readable());
    assert_eq!([rig.channel.event(), rig.channel.event()], [second.0, rig.recv.0]);
    assert!(!rig.channel.readable());
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
