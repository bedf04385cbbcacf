//! Nobody waits for a transfer through a key: neither a thread that invalidates that key, nor one
//! that configures it.

use crate::harness::*;
use crate::signature::rig::*;
use rdma_sys::ibv_wr_opcode::*;
use rdma_sys::*;
use std::sync::Barrier;
use std::sync::mpsc;
use std::time::Duration;
use verbline_softnic::mlx5dv::*;

/// Runs `what` on a thread of its own, and fails if that doesn't end in time.
fn within_seconds(seconds: u64, what: impl FnOnce() + Send + 'static) {
    let (ended, wait) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        what();
        ended.send(()).unwrap();
    });
    match wait.recv_timeout(Duration::from_secs(seconds)) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("it goes on after {seconds} s"),
        _ => thread.join().unwrap(),
    }
}

/// A key that peers may invalidate, of `nic`.
fn invalidated(nic: &Nic) -> Mkey {
    let flags = mkey_init_attr_flags::INDIRECT | mkey_init_attr_flags::REMOTE_INVALIDATE;
    Mkey::new(nic, flags, 1)
}

/// Two connected queue pairs of one domain, so that both can use their keys.
fn pair_of_one_domain() -> Pair {
    let pair = pair(CONFIGURING);
    let make = |send: &Cq, recv: &Cq| {
        let mut init = init_attr(ibv_qp_type::IBV_QPT_RC, send, recv);
        Qp(unsafe { mlx5dv_create_qp(pair.nic.pd, &mut init, CONFIGURING) })
    };
    let (a, b, b_mem) = (make(&pair.a_send, &pair.a_recv), make(&pair.b_send, &pair.b_recv), pair.nic.memory(1 << 16));
    connect((&a, 1), (&b, 1));
    Pair { a, b, b_mem, ..pair }
}

#[test]
fn a_send_may_invalidate_the_key_that_its_own_bytes_come_through() {
    within_seconds(20, || {
        let pair = pair_of_one_domain();
        let key = invalidated(&pair.nic);
        Configure::list(&[pair.a_mem.sge(0, 4096)]).now(&pair.a, &key);
        pair.a_mem.fill(0, &pattern(4096, 3));
        pair.b.recv(1, &[pair.b_mem.sge(0, 4096)]);
        let send = |wr_id| Wr::new(wr_id, IBV_WR_SEND_WITH_INV, SIGNALED, &[key.sge(0, 4096)]).imm(key.key());
        pair.a.post(&mut [send(1)]).unwrap();
        assert_eq!(pair.a_send.poll().unwrap().status, SUCCESS);
        let got = pair.b_recv.poll().unwrap();
        assert_eq!((got.status, got.byte_len, got.imm), (SUCCESS, 4096, key.key()));
        assert_eq!(pair.b_mem.read(0, 4096), pattern(4096, 3));
        // The key was invalidated.
        pair.a.post(&mut [send(2)]).unwrap();
        assert_eq!(pair.a_send.poll().unwrap().status, ibv_wc_status::IBV_WC_LOC_PROT_ERR);
    });
}

/// Each end sends through its own key and invalidates the other's. The second one may find its key
/// gone, which ends the connection, so each round has a new one.
#[test]
fn two_lcores_that_invalidate_each_others_keys_both_go_on() {
    const ROUNDS: u64 = 300;
    const LEN: usize = 1 << 15;
    within_seconds(120, || {
        for round in 0..ROUNDS {
            let pair = pair(CONFIGURING);
            let (ours, theirs) = (invalidated(&pair.nic), invalidated(&pair.other));
            for (qp, mem, key) in [(&pair.a, &pair.a_mem, &ours), (&pair.b, &pair.b_mem, &theirs)] {
                Configure::list(&[mem.sge(0, LEN)]).now(qp, key);
                qp.recv(round, &[mem.sge(LEN, LEN)]);
            }
            let barrier = Barrier::new(2);
            let side = |qp: &Qp, send: &Cq, source: ibv_sge, invalidated: u32| {
                let wr = Wr::new(round, IBV_WR_SEND_WITH_INV, SIGNALED, &[source]).imm(invalidated);
                barrier.wait();
                qp.post(&mut [wr]).unwrap();
                send.wait().status
            };
            let ends = [(&pair.a, &pair.a_send, ours.sge(0, LEN)), (&pair.b, &pair.b_send, theirs.sge(0, LEN))];
            let [a, b] = ends;
            let (their_key, our_key) = (theirs.key(), ours.key());
            let statuses = std::thread::scope(|scope| {
                let other = scope.spawn(|| side(b.0, b.1, b.2, our_key));
                [side(a.0, a.1, a.2, their_key), other.join().unwrap()]
            });
            let known = [SUCCESS, ibv_wc_status::IBV_WC_LOC_PROT_ERR];
            assert!(statuses.iter().all(|status| known.contains(status)), "{statuses:?}");
            assert!(statuses.contains(&SUCCESS), "{statuses:?}");
        }
    });
}

/// A transfer uses the key's configuration of its beginning, as a whole, however often the key is
/// configured meanwhile; and no configuration is lost.
#[test]
fn a_transfer_goes_by_one_configuration_while_another_thread_configures() {
    // ThreadSanitizer takes some 100 ns for each copied byte.
    const ROUNDS: usize = if cfg!(portable_copy) { 100 } else { 2_000 };
    const LEN: usize = 1 << 14;
    within_seconds(120, || {
        let pair = pair_of_one_domain();
        let key = Mkey::new(&pair.nic, mkey_init_attr_flags::INDIRECT, 2);
        let halves = [pair.a_mem.sge(0, LEN), pair.a_mem.sge(LEN, LEN)];
        let layout = |which: usize| Configure::list(&[copy_sge(&halves[which]), copy_sge(&halves[which])]);
        pair.a_mem.fill(0, &[[1; LEN], [2; LEN]].concat());
        layout(0).now(&pair.b, &key);
        let ends = std::sync::atomic::AtomicBool::new(false);
        let ends = &ends;
        std::thread::scope(|scope| {
            let (b, layout, key) = (&pair.b, &layout, &key);
            let (b_send, configured) = (&pair.b_send, Shared((layout, key)));
            let configuring = scope.spawn(move || {
                let (layout, key) = configured.get();
                let mut times = 0;
                // Relaxed: a lone flag.
                while !ends.load(std::sync::atomic::Ordering::Relaxed) {
                    times += 1;
                    assert_eq!(layout(times % 2).post(b, key, 7, SIGNALED), 0);
                    assert_eq!(b_send.wait().status, SUCCESS);
                }
            });
            for round in 0..ROUNDS {
                let wr = Wr::new(round as u64, IBV_WR_RDMA_WRITE, SIGNALED, &[key.sge(0, 2 * LEN)]);
                pair.a.post(&mut [wr.remote(pair.b_mem.addr(), pair.b_mem.key())]).unwrap();
                assert_eq!(pair.a_send.wait().status, SUCCESS);
                let got = pair.b_mem.read(0, 2 * LEN);
                assert!(got.iter().all(|byte| *byte == got[0]), "a mixture in round {round}");
            }
            // Relaxed: as above.
            ends.store(true, std::sync::atomic::Ordering::Relaxed);
            configuring.join().unwrap();
        });
    });
}

struct Shared<T>(T);
unsafe impl<T> Send for Shared<T> {}
impl<T: Copy> Shared<T> {
    fn get(&self) -> T {
        self.0
    }
}
