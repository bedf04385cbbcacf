//! Both sides on threads of their own: content and order under load, sleeping and waking, and
//! destruction of objects while a peer is at work.
use crate::harness::*;
use rdma_sys::ibv_qp_type::*;
use rdma_sys::*;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use traffic::*;
use verbline_softnic::provider as soft;

mod traffic;

#[test]
fn two_lcores_keep_content_and_order_both_ways() {
    both_ways(20_000, |_| ());
}

/// fork(2) copies locks and guards, but not the threads that hold them. The children here call no
/// verb, and the parent's traffic goes on: no page moves away from under a device, and no thread
/// waits for one that doesn't exist.
#[test]
fn two_lcores_go_on_while_the_process_forks() {
    let mut forks = 0;
    both_ways(20_000, |is_over| {
        while forks < 20 || !is_over() {
            let child = unsafe { libc::fork() };
            if child == 0 {
                unsafe { libc::_exit(7) };
            }
            assert!(child > 0, "{}", std::io::Error::last_os_error());
            let mut status = 0;
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 7, "{status:#x}");
            forks += 1;
        }
    });
}

#[test]
fn two_lcores_sleep_and_wake_without_losing_any() {
    // Ping-pong where both sides arm, look again and block on the channel: a lost wake-up hangs it.
    const ROUNDS: u64 = 3_000;
    let (nic, other) = (Nic::open(0), Nic::open(1));
    let (a_channel, b_channel) = (Channel::new(&nic), Channel::new(&other));
    let (a_send, b_send) = (nic.cq(64), other.cq(64));
    let (a_recv, b_recv) = (nic.cq_on(64, a_channel.0), other.cq_on(64, b_channel.0));
    let (a, b) = (nic.qp(IBV_QPT_RC, &a_send, &a_recv), other.qp(IBV_QPT_RC, &b_send, &b_recv));
    connect((&a, 1), (&b, 2));
    let (a_mem, b_mem) = (nic.memory(4096), other.memory(4096));
    let next = |cq: &Cq, channel: &Channel| loop {
        if let Some(wc) = cq.poll() {
            return wc;
        }
        cq.arm(false);
        if let Some(wc) = cq.poll() {
            return wc;
        }
        assert!(channel.readable_within(20_000), "a wake-up was lost");
        channel.event();
    };
    std::thread::scope(|scope| {
        let (a, b, a_recv, b_recv, a_channel, b_channel) = (&a, &b, &a_recv, &b_recv, &a_channel, &b_channel);
        let (a_mem, b_mem) = (Shared(&a_mem), Shared(&b_mem));
        let side = move |qp: &Qp, cq: &Cq, channel: &Channel, mem: &Memory, first: bool| {
            let signal = |round: u64| if round % 32 == 31 { SIGNALED } else { 0 };
            for _ in 0..2 {
                assert_eq!(qp.recv(1, &[mem.sge(0, 64)]), 0);
            }
            let mut sent = 0;
            let mut send = || {
                let len = if sent % 3 == 0 { 64 } else { 8 };
                qp.post(&mut [Wr::send(sent, signal(sent), &[mem.sge(64, len)])]).unwrap();
                let send_cq = Cq(unsafe { (*qp.0).send_cq });
                if signal(sent) != 0 {
                    assert_eq!(send_cq.wait().status, SUCCESS);
                }
                std::mem::forget(send_cq);
                sent += 1;
            };
            if first {
                send();
            }
            for round in 0..ROUNDS {
                assert_eq!(next(cq, channel).status, SUCCESS);
                assert_eq!(qp.recv(1, &[mem.sge(0, 64)]), 0);
                if !first || round + 1 < ROUNDS {
                    send();
                }
            }
        };
        scope.spawn(move || side(a, a_recv, a_channel, a_mem.get(), true));
        scope.spawn(move || side(b, b_recv, b_channel, b_mem.get(), false));
    });
    drop((a, b));
    drop((a_recv, b_recv));
}

#[test]
fn many_senders_share_a_completion_queue() {
    const EACH: u64 = 3_000;
    const SENDERS: usize = 4;
    let (nic, other) = (Nic::open(0), Nic::open(1));
    let recv = other.cq(512);
    let unused = other.cq(16);
    let mem = other.memory(1 << 18);
    let sends: Vec<Cq> = (0..SENDERS).map(|_| nic.cq(256)).collect();
    let pairs: Vec<(Qp, Qp)> = sends
        .iter()
        .map(|send| {
            let (a, b) = (nic.qp(IBV_QPT_RC, send, send), other.qp(IBV_QPT_RC, &unused, &recv));
            connect((&a, 1), (&b, 2));
            (a, b)
        })
        .collect();
    for (index, (_, b)) in pairs.iter().enumerate() {
        for slot in 0..16 {
            assert_eq!(b.recv(slot, &[mem.sge((index * 16 + slot as usize) * ROOM, ROOM)]), 0);
        }
    }
    // They outlive the senders: the last messages may still be waiting when their threads are done.
    let sources: Vec<Memory> = sends.iter().map(|_| nic.memory(1 << 16)).collect();
    std::thread::scope(|scope| {
        for (((a, _), send), source) in pairs.iter().zip(&sends).zip(&sources) {
            let source = Shared(source);
            scope.spawn(move || send_all(a, send, source.get(), EACH));
        }
        let mut counts = [0u64; SENDERS];
        for _ in 0..EACH * SENDERS as u64 {
            let got = recv.wait();
            assert_eq!(got.status, SUCCESS);
            let index = pairs.iter().position(|(_, b)| b.num() == got.qp_num).unwrap();
            let number = counts[index];
            assert_eq!(got.wr_id, number % 16, "in order from each sender");
            let offset = (index * 16 + got.wr_id as usize) * ROOM;
            check_message(&mem, offset, number, LENS[number as usize % LENS.len()]);
            counts[index] += 1;
            assert_eq!(pairs[index].1.recv(got.wr_id, &[mem.sge(offset, ROOM)]), 0);
        }
    });
}

#[test]
fn datagram_senders_meet_in_one_receive_queue() {
    const EACH: u64 = 2_000;
    let (nic, other) = (Nic::open(0), Nic::open(1));
    let recv = other.cq(256);
    let unused = other.cq(16);
    let mem = other.memory(1 << 16);
    let target = other.qp(IBV_QPT_UD, &unused, &recv);
    target.to_init();
    target.to_rtr(0, 0);
    let next = AtomicU64::new(0);
    for slot in 0..64 {
        assert_eq!(target.recv(slot, &[mem.sge(slot as usize * 256, 256)]), 0);
    }
    let done = AtomicBool::new(false);
    let received = std::thread::scope(|scope| {
        let senders: Vec<_> = (0..3)
            .map(|_| {
                let (nic, target, next) = (&nic, &target, &next);
                scope.spawn(move || {
                    let cq = nic.cq(64);
                    let qp = nic.qp(IBV_QPT_UD, &cq, &cq);
                    qp.bring_up(0, 0);
                    let mut attr: ibv_ah_attr = unsafe { std::mem::zeroed() };
                    (attr.port_num, attr.dlid) = (1, 2);
                    let ah = unsafe { soft::ibv_create_ah(nic.pd, &mut attr) };
                    let mem = nic.memory(256);
                    for _ in 0..EACH {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        write_message(&mem, 0, number, 100);
                        mem.fill(100, &number.to_ne_bytes());
                        qp.post(&mut [Wr::send(1, SIGNALED, &[mem.sge(0, 108)]).to(ah, target.num(), QKEY)]).unwrap();
                        assert_eq!(cq.wait().status, SUCCESS);
                    }
                    unsafe { soft::ibv_destroy_ah(ah) };
                    drop(qp);
                    drop(cq);
                })
            })
            .collect();
        let (recv, mem, target, done) = (&recv, Shared(&mem), &target, &done);
        let receiver = scope.spawn(move || {
            let mut seen = std::collections::HashSet::new();
            let mut next_slot = 0;
            while let Some(got) = recv.poll().or_else(|| {
                while !done.load(Ordering::Acquire) {
                    if let Some(got) = recv.poll() {
                        return Some(got);
                    }
                    std::thread::yield_now();
                }
                recv.poll()
            }) {
                let offset = got.wr_id as usize * 256;
                assert_eq!((got.status, got.byte_len), (SUCCESS, 148));
                assert_eq!(got.wr_id, next_slot, "receives complete in the order in which they were posted");
                next_slot = (next_slot + 1) % 64;
                let number = u64::from_ne_bytes(mem.get().read(offset + 140, 8).try_into().unwrap());
                check_message(mem.get(), offset + 40, number, 100);
                assert!(seen.insert(number), "datagram {number} came twice");
                assert_eq!(target.recv(got.wr_id, &[mem.get().sge(offset, 256)]), 0);
            }
            seen.len()
        });
        senders.into_iter().for_each(|sender| sender.join().unwrap());
        done.store(true, Ordering::Release);
        receiver.join().unwrap()
    });
    assert!(received > 0 && received as u64 <= 3 * EACH);
}

#[test]
fn objects_go_away_while_a_peer_sends() {
    // The sender never stops; the receiver's region, queue pair and queue are destroyed under it.
    // Deregistered memory is unmapped at once: a late access would be a fault.
    const ROUNDS: usize = 60;
    let (nic, other) = (Nic::open(0), Nic::open(1));
    for round in 0..ROUNDS {
        let (send, recv, unused) = (nic.cq(256), other.cq(256), other.cq(16));
        let (a, b) = (nic.qp(IBV_QPT_RC, &send, &send), other.qp(IBV_QPT_RC, &unused, &recv));
        connect((&a, 1), (&b, 2));
        let source = nic.memory(8192);
        let len = 1 << 16;
        let map = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        let mr = unsafe { soft::ibv_reg_mr(other.pd, map, len, ALL_ACCESS as i32) };
        let (addr, key) = (map as u64, unsafe { (*mr).lkey });
        for slot in 0..64u64 {
            assert_eq!(b.recv(slot, &[ibv_sge { addr: addr + slot * 1024, length: 1024, lkey: key }]), 0);
        }
        let started = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (a, send, started, source) = (&a, &send, &started, Shared(&source));
            scope.spawn(move || {
                let write = ibv_wr_opcode::IBV_WR_RDMA_WRITE;
                loop {
                    let source = source.get();
                    let mut list = [
                        Wr::send(1, 0, &[source.sge(0, 64)]),
                        Wr::send(1, 0, &[source.sge(0, 1000)]),
                        Wr::new(1, write, SIGNALED, &[source.sge(0, 8000)]).remote(addr, key),
                    ];
                    if round % 2 == 0 {
                        list.rotate_left(2);
                    }
                    let result = a.post(&mut list);
                    started.store(true, Ordering::Release);
                    let failed = send.poll_all().iter().any(|wc| wc.status != SUCCESS);
                    if failed || result.is_err() {
                        break;
                    }
                }
            });
            while !started.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            let free = || unsafe {
                assert_eq!(soft::ibv_dereg_mr(mr), 0);
                assert_eq!(libc::munmap(map, len), 0);
            };
            match round % 4 {
                0 | 1 => {
                    free();
                    b.to(ibv_qp_state::IBV_QPS_ERR);
                    drop(b);
                    drop((recv, unused));
                }
                2 => {
                    drop(b);
                    drop((recv, unused));
                    free();
                }
                _ => {
                    b.to(ibv_qp_state::IBV_QPS_RESET);
                    free();
                    drop(b);
                    drop((recv, unused));
                }
            }
        });
        // The sender has failed, without a peer or access.
        assert!(matches!(a.state(), ibv_qp_state::IBV_QPS_ERR | ibv_qp_state::IBV_QPS_RTS));
        drop(a);
    }
}

#[test]
fn both_sides_move_to_err_while_they_send() {
    for round in 0..100 {
        let pair = Pair::rc();
        for slot in 0..32 {
            pair.a.recv(slot, &[pair.a_mem.sge(0, 64)]);
            pair.b.recv(slot, &[pair.b_mem.sge(0, 64)]);
        }
        std::thread::scope(|scope| {
            for (qp, mem) in [(&pair.a, Shared(&pair.a_mem)), (&pair.b, Shared(&pair.b_mem))] {
                scope.spawn(move || {
                    for index in 0..40u64 {
                        let mut sge = mem.get().sge(0, 64);
                        if index == 10 + round % 5 {
                            sge.lkey = 1;
                        }
                        if qp.post(&mut [Wr::send(index, 0, &[sge])]).is_err() {
                            break;
                        }
                    }
                });
            }
        });
        // Each posted receive completed once, with its message or flushed, on either side that
        // failed.
        for (qp, cq) in [(&pair.a, &pair.a_recv), (&pair.b, &pair.b_recv)] {
            if qp.state() == ibv_qp_state::IBV_QPS_ERR {
                let ids: Vec<u64> = cq.poll_all().iter().map(|wc| wc.wr_id).collect();
                assert_eq!(ids, (0..32).collect::<Vec<_>>());
            }
        }
        // One may still be waiting for the other, which failed first.
        assert!([&pair.a, &pair.b].iter().any(|qp| qp.state() == ibv_qp_state::IBV_QPS_ERR));
    }
}
