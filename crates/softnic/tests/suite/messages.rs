//! Messages between connected queue pairs: arrival, completion and refusal.
use crate::harness::*;
use rdma_sys::ibv_qp_type::{IBV_QPT_RC, IBV_QPT_UC};
use rdma_sys::ibv_wr_opcode::*;
use rdma_sys::*;
use std::time::{Duration, Instant};

const NOT_REFUSED: Result<(), Refused> = Ok(());

#[test]
fn every_length_arrives_whole() {
    let pair = Pair::rc();
    for len in (1..=130).chain([255, 256, 511, 512, 513, 4096, 30_000]) {
        for flags in [SIGNALED, SIGNALED | INLINE] {
            if flags & INLINE != 0 && len > 128 {
                continue;
            }
            let data = pattern(len, len as u8 ^ flags as u8);
            pair.a_mem.fill(0, &data);
            assert_eq!(pair.b.recv(7, &[pair.b_mem.sge(8, 40_000)]), 0);
            assert_eq!(pair.a.post(&mut [Wr::send(9, flags, &[pair.a_mem.sge(0, len)])]), NOT_REFUSED);
            let sent = pair.a_send.poll().expect("send completion");
            assert_eq!((sent.wr_id, sent.status, sent.opcode), (9, SUCCESS, ibv_wc_opcode::IBV_WC_SEND));
            let got = pair.b_recv.poll().expect("receive completion");
            assert_eq!((got.wr_id, got.status, got.byte_len), (7, SUCCESS, len as u32));
            assert_eq!((got.opcode, got.qp_num, got.flags), (ibv_wc_opcode::IBV_WC_RECV, pair.b.num(), 0));
            assert_eq!(pair.b_mem.read(8, len), data, "length {len}");
            assert!(pair.a_send.poll().is_none() && pair.b_recv.poll().is_none());
        }
    }
}

#[test]
fn gathers_and_scatters_across_elements() {
    let pair = Pair::rc();
    for parts in [[3usize, 17, 40, 1], [100, 200, 50, 7], [1, 1, 1, 1], [30, 2, 30, 26]] {
        let len: usize = parts.iter().sum();
        let data = pattern(len, 5);
        pair.a_mem.fill(0, &data);
        let mut offset = 0;
        let gather: Vec<ibv_sge> = parts
            .iter()
            .map(|part| {
                let sge = pair.a_mem.sge(offset, *part);
                offset += part;
                sge
            })
            .collect();
        // Once from four elements into two, once from one into four.
        for sges in [&gather[..], &[pair.a_mem.sge(0, len)]] {
            let first = len / 3 + 1;
            let into = [pair.b_mem.sge(0, first), pair.b_mem.sge(5000, len)];
            assert_eq!(pair.b.recv(1, &into), 0);
            assert_eq!(pair.a.post(&mut [Wr::send(2, 0, sges)]), NOT_REFUSED);
            assert_eq!(pair.b_recv.poll().unwrap().byte_len, len as u32);
            let got = [pair.b_mem.read(0, first), pair.b_mem.read(5000, len - first)].concat();
            assert_eq!(got, data);
        }
    }
}

#[test]
fn immediate_data_keeps_its_byte_order() {
    let pair = Pair::rc();
    for len in [0, 1, 8, 33, 40, 41, 64, 96, 97, 1000] {
        for imm in [0x0102_0304u32.to_be(), 0, u32::MAX] {
            pair.b.recv(1, &[pair.b_mem.sge(0, 1000)]);
            let list = [pair.a_mem.sge(0, len)];
            let list = if len == 0 { &[][..] } else { &list[..] };
            let wr = Wr::new(2, IBV_WR_SEND_WITH_IMM, 0, list).imm(imm);
            assert_eq!(pair.a.post(&mut [wr]), NOT_REFUSED);
            let got = pair.b_recv.poll().unwrap();
            assert_eq!((got.flags, got.imm), (ibv_wc_flags::IBV_WC_WITH_IMM.0, imm));
            assert_eq!((got.byte_len, got.qp_num), (len as u32, pair.b.num()));
        }
    }
}

/// A small message names its receive in 16 bits.
#[test]
fn receives_keep_their_order_past_65536_of_them() {
    const LIST: u64 = 32;
    let pair = Pair::rc();
    for list in 0..(1 << 16) / LIST + 2 {
        for slot in 0..LIST {
            assert_eq!(pair.b.recv(list * LIST + slot, &[pair.b_mem.sge(100 * slot as usize, 100)]), 0);
        }
        let mut wrs: Vec<Wr> = (0..LIST)
            .map(|slot| Wr::send(slot, if slot + 1 == LIST { SIGNALED } else { 0 }, &[pair.a_mem.sge(0, 48)]))
            .collect();
        assert_eq!(pair.a.post(&mut wrs), NOT_REFUSED);
        let got: Vec<u64> = pair.b_recv.poll_all().iter().map(|wc| wc.wr_id).collect();
        assert_eq!(got, (list * LIST..(list + 1) * LIST).collect::<Vec<_>>());
        assert_eq!(pair.a_send.poll_all().len(), 1);
    }
}

#[test]
fn a_list_arrives_in_order_and_only_signaled_ones_complete() {
    let pair = Pair::rc();
    let lens = [8usize, 64, 4000, 96, 97, 1, 300, 33, 32, 40, 41, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 5000];
    for (index, _) in lens.iter().enumerate() {
        assert_eq!(pair.b.recv(index as u64, &[pair.b_mem.sge(0, 8000)]), 0);
    }
    let mut list: Vec<Wr> = lens
        .iter()
        .enumerate()
        .map(|(index, len)| {
            let flags = if index % 5 == 4 { SIGNALED } else { 0 };
            Wr::send(100 + index as u64, flags, &[pair.a_mem.sge(0, *len)])
        })
        .collect();
    assert_eq!(pair.a.post(&mut list), NOT_REFUSED);
    let got: Vec<(u64, u32)> = pair.b_recv.poll_all().iter().map(|wc| (wc.wr_id, wc.byte_len)).collect();
    let expected: Vec<(u64, u32)> = lens.iter().enumerate().map(|(i, len)| (i as u64, *len as u32)).collect();
    assert_eq!(got, expected);
    let sent: Vec<u64> = pair.a_send.poll_all().iter().map(|wc| wc.wr_id).collect();
    assert_eq!(sent, [104, 109, 114, 119]);
}

#[test]
fn a_send_slot_is_free_once_a_later_completion_is_polled() {
    let pair = Pair::connected_with(IBV_QPT_RC, |init| init.cap.max_send_wr = 4, |_| {});
    for _ in 0..12 {
        pair.b.recv(1, &[pair.b_mem.sge(0, 64)]);
    }
    let send = |flags| pair.a.post(&mut [Wr::send(1, flags, &[pair.a_mem.sge(0, 64)])]);
    for flags in [0, 0, SIGNALED, 0] {
        assert_eq!(send(flags), NOT_REFUSED);
    }
    assert_eq!(send(0), Err((libc::ENOMEM, 0)), "none was polled");
    assert_eq!(pair.a_send.poll_all().len(), 1);
    for _ in 0..3 {
        assert_eq!(send(0), NOT_REFUSED, "three were freed by the third's completion");
    }
    let mut two = [Wr::send(1, 0, &[]), Wr::send(1, 0, &[])];
    assert_eq!(pair.a.post(&mut two), Err((libc::ENOMEM, 0)), "the fourth was never signaled");
    assert_eq!(pair.b_recv.poll_all().len(), 7);
}

#[test]
fn what_cannot_be_posted_is_refused() {
    let rc = Pair::rc();
    let uc = Pair::connected(IBV_QPT_UC);
    let sge = || rc.a_mem.sge(0, 8);
    let refused = |pair: &Pair, wr: Wr| assert_eq!(pair.a.post(&mut [wr]), Err((libc::EINVAL, 0)));
    refused(&rc, Wr::send(1, 0, &[sge(), sge(), sge(), sge(), sge()]));
    refused(&rc, Wr::send(1, INLINE, &[rc.a_mem.sge(0, 129)]));
    refused(&rc, Wr::send(1, INLINE, &[rc.a_mem.sge(0, 64), rc.a_mem.sge(0, 65)]));
    refused(&rc, Wr::new(1, IBV_WR_RDMA_READ, INLINE, &[sge()]));
    refused(&rc, Wr::new(1, IBV_WR_ATOMIC_FETCH_AND_ADD, 0, &[rc.a_mem.sge(0, 4)]));
    // IBV_WR_FLUSH and IBV_WR_ATOMIC_WRITE, as numbers: older headers lack them.
    for opcode in [14, 15] {
        refused(&rc, Wr::new(1, opcode, 0, &[sge()]));
    }
    for opcode in [IBV_WR_RDMA_READ, IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_TSO] {
        refused(&uc, Wr::new(1, opcode, 0, &[uc.a_mem.sge(0, 8)]));
    }
    let mut sges = [0; 5].map(|_| rc.b_mem.sge(0, 8));
    assert_eq!(rc.b.recv(1, &sges), libc::EINVAL);
    let mut wr = ibv_recv_wr { wr_id: 0, next: std::ptr::null_mut(), sg_list: sges.as_mut_ptr(), num_sge: -1 };
    let mut bad = std::ptr::null_mut();
    assert_eq!(unsafe { ibv_post_recv(rc.b.0, &mut wr, &mut bad) }, libc::EINVAL);
    assert!(std::ptr::eq(bad, &wr));
    assert!(rc.a_send.poll().is_none() && rc.b_recv.poll().is_none());
    assert_eq!(rc.a.state(), ibv_qp_state::IBV_QPS_RTS, "a refusal changes nothing");
}

#[test]
fn a_full_receive_queue_refuses_until_a_completion_is_polled() {
    let pair = Pair::connected_with(IBV_QPT_RC, |init| init.cap.max_recv_wr = 3, |_| {});
    let post = || pair.b.recv(1, &[pair.b_mem.sge(0, 64)]);
    assert_eq!([post(), post(), post(), post()], [0, 0, 0, libc::ENOMEM]);
    pair.a.post(&mut [Wr::send(1, 0, &[pair.a_mem.sge(0, 8)])]).unwrap();
    assert_eq!(post(), libc::ENOMEM, "consumed, but its completion wasn't polled");
    assert!(pair.b_recv.poll().is_some());
    assert_eq!([post(), post()], [0, libc::ENOMEM]);
}

/// Checks the effect of one faulty work request on both sides of an RC connection.
fn rc_failure(name: &str, recv: impl Fn(&Pair), wr: impl Fn(&Pair) -> Wr, sender: u32, receiver: Option<u32>) {
    let pair = Pair::rc();
    recv(&pair);
    let behind = Wr::send(3, 0, &[pair.a_mem.sge(0, 8)]);
    let mut list = [wr(&pair), behind];
    list[0].raw.wr_id = 2;
    assert_eq!(pair.a.post(&mut list), NOT_REFUSED, "{name}");
    let sent: Vec<(u64, u32)> = pair.a_send.poll_all().iter().map(|wc| (wc.wr_id, wc.status)).collect();
    assert_eq!(sent, [(2, sender), (3, FLUSHED)], "{name}: an error completes unsignaled ones too");
    assert_eq!(pair.a.state(), ibv_qp_state::IBV_QPS_ERR, "{name}");
    let got: Vec<u32> = pair.b_recv.poll_all().iter().map(|wc| wc.status).collect();
    match receiver {
        Some(status) => {
            assert_eq!(got, [status], "{name}");
            assert_eq!(pair.b.state(), ibv_qp_state::IBV_QPS_ERR, "{name}");
        }
        None => {
            assert!(got.is_empty(), "{name}: the receiver's work request stays posted");
            assert_eq!(pair.b.state(), ibv_qp_state::IBV_QPS_RTS, "{name}");
        }
    }
}

#[test]
fn errors_are_those_of_hardware() {
    use ibv_wc_status::*;
    let post = |len| move |pair: &Pair| assert_eq!(pair.b.recv(1, &[pair.b_mem.sge(0, len)]), 0);
    let send = |len| move |pair: &Pair| Wr::send(2, 0, &[pair.a_mem.sge(0, len)]);
    for len in [64, 1000] {
        rc_failure("too long", post(len - 1), send(len), IBV_WC_REM_INV_REQ_ERR, Some(IBV_WC_LOC_LEN_ERR));
        let bad_lkey = move |pair: &Pair| {
            let mut sge = pair.b_mem.sge(0, 2000);
            sge.lkey ^= 1;
            assert_eq!(pair.b.recv(1, &[sge]), 0);
        };
        rc_failure("receive key", bad_lkey, send(len), IBV_WC_REM_OP_ERR, Some(IBV_WC_LOC_PROT_ERR));
        let outside = |pair: &Pair| assert_eq!(pair.b.recv(1, &[pair.b_mem.sge((1 << 16) - 8, 2000)]), 0);
        rc_failure("receive bounds", outside, send(len), IBV_WC_REM_OP_ERR, Some(IBV_WC_LOC_PROT_ERR));
        let other_pd = |pair: &Pair| assert_eq!(pair.b.recv(1, &[pair.a_mem.sge(0, 2000)]), 0);
        rc_failure("receive domain", other_pd, send(len), IBV_WC_REM_OP_ERR, Some(IBV_WC_LOC_PROT_ERR));

        let bad_key = move |pair: &Pair| {
            let mut sge = pair.a_mem.sge(0, len);
            sge.lkey = sge.lkey.wrapping_add(1 << 8);
            Wr::send(2, 0, &[sge])
        };
        rc_failure("send key", post(2000), bad_key, IBV_WC_LOC_PROT_ERR, None);
        let outside = move |pair: &Pair| Wr::send(2, 0, &[pair.a_mem.sge((1 << 16) - len + 1, len)]);
        rc_failure("send bounds", post(2000), outside, IBV_WC_LOC_PROT_ERR, None);
    }
    let whole = |pair: &Pair| Wr::send(2, 0, &[pair.a_mem.sge(0, 0)]);
    rc_failure("length 0 is 2^31", post(2000), whole, IBV_WC_LOC_PROT_ERR, None);
    let too_long = |pair: &Pair| Wr::send(2, 0, &[pair.a_mem.sge(0, 0), pair.a_mem.sge(0, 1)]);
    rc_failure("beyond 2^31", post(2000), too_long, IBV_WC_LOC_LEN_ERR, None);
}

#[test]
fn a_region_that_goes_while_a_message_waits_in_the_ring_is_not_written() {
    let pair = Pair::rc();
    // The first message of a connection doesn't go by the ring.
    assert_eq!(pair.b.recv(0, &[pair.b_mem.sge(0, 64)]), 0);
    pair.a.post(&mut [Wr::send(0, 0, &[pair.a_mem.sge(0, 8)])]).unwrap();
    assert_eq!(pair.b_recv.poll().unwrap().status, SUCCESS);
    let gone = pair.other.memory(4096);
    assert_eq!(pair.b.recv(1, &[gone.sge(0, 64)]), 0);
    pair.a.post(&mut [Wr::send(2, SIGNALED, &[pair.a_mem.sge(0, 8)])]).unwrap();
    assert_eq!(pair.a_send.poll().unwrap().status, SUCCESS);
    drop(gone);
    assert_eq!(pair.b_recv.poll().unwrap().status, ibv_wc_status::IBV_WC_LOC_PROT_ERR);
    assert_eq!(pair.b.state(), ibv_qp_state::IBV_QPS_ERR);
}

#[test]
fn without_a_receive_rc_waits_and_the_post_delivers() {
    let pair = Pair::rc();
    let lens = [8usize, 64, 1000, 0, 96, 3000];
    for (index, len) in lens.iter().enumerate() {
        pair.a_mem.fill(0, &pattern(*len, index as u8));
        let sge = [pair.a_mem.sge(0, *len)];
        let list = if *len == 0 { &[][..] } else { &sge[..] };
        // Inline, so that the data is the work request's own while it waits.
        let flags = if *len <= 128 { SIGNALED | INLINE } else { SIGNALED };
        pair.a.post(&mut [Wr::send(index as u64, flags, list)]).unwrap();
    }
    assert!(pair.a_send.poll().is_none() && pair.b_recv.poll().is_none());
    for (index, len) in lens.iter().enumerate() {
        // Nobody polls or posts on the sender's side: the receiver's post is enough.
        assert_eq!(pair.b.recv(50 + index as u64, &[pair.b_mem.sge(0, 4000)]), 0);
        let got = pair.b_recv.poll().expect("the post delivers");
        assert_eq!((got.wr_id, got.byte_len), (50 + index as u64, *len as u32));
        if *len <= 128 {
            assert_eq!(pair.b_mem.read(0, *len), pattern(*len, index as u8));
        }
    }
    let sent: Vec<u64> = pair.a_send.poll_all().iter().map(|wc| wc.wr_id).collect();
    assert_eq!(sent, [0, 1, 2, 3, 4, 5]);
    // And the fast path is open again.
    pair.b.recv(60, &[pair.b_mem.sge(0, 64)]);
    pair.a.post(&mut [Wr::send(7, 0, &[pair.a_mem.sge(0, 8)])]).unwrap();
    assert_eq!(pair.b_recv.poll().unwrap().wr_id, 60);
}

/// Sends `count` long messages in one list, the last one signaled, and checks the receiver's
/// memory.
fn long_list(pair: &Pair, count: usize) {
    let lens: Vec<usize> = (0..count).map(|index| 97 + 900 * index).collect();
    let mut list: Vec<Wr> = (lens.iter().enumerate())
        .map(|(index, len)| {
            let sge = [pair.a_mem.sge(index, *len)];
            let flags = if index + 1 == count { SIGNALED } else { 0 };
            // Some carry immediate data, one is inline.
            match index % 3 {
                0 if *len <= 128 => Wr::send(index as u64, flags | INLINE, &sge),
                1 => Wr::new(index as u64, IBV_WR_SEND_WITH_IMM, flags, &sge).imm(7 + index as u32),
                _ => Wr::send(index as u64, flags, &sge),
            }
        })
        .collect();
    pair.a.post(&mut list).unwrap();
}

#[test]
fn a_list_of_long_messages_arrives_whole_and_waits_for_receives_in_its_middle() {
    const COUNT: usize = 40;
    let pair = Pair::rc();
    let data = pattern(40_000, 3);
    pair.a_mem.fill(0, &data);
    // Buffers of one piece, of two, and of exactly the length.
    let receive = |index: usize| {
        let len = 97 + 900 * index;
        let at = |offset, len| pair.b_mem.sge(offset, len);
        let code = match index % 3 {
            0 => pair.b.recv(index as u64, &[at(0, 40_000)]),
            1 => pair.b.recv(index as u64, &[at(0, 50), at(50, 39_000)]),
            _ => pair.b.recv(index as u64, &[at(0, len)]),
        };
        assert_eq!(code, 0);
    };
    let arrived = |index: usize| {
        let (got, len) = (pair.b_recv.poll().expect("it arrived"), 97 + 900 * index);
        assert_eq!((got.wr_id, got.status, got.byte_len), (index as u64, SUCCESS, len as u32));
        let imm = if index % 3 == 1 { (ibv_wc_flags::IBV_WC_WITH_IMM.0, 7 + index as u32) } else { (0, 0) };
        assert_eq!((got.flags, got.imm), imm);
    };
    (0..COUNT / 2).for_each(receive);
    long_list(&pair, COUNT);
    (0..COUNT / 2).for_each(arrived);
    // All went to the same place, the last over the others.
    let last = COUNT / 2 - 1;
    assert_eq!(pair.b_mem.read(0, 97 + 900 * last), data[last..][..97 + 900 * last]);
    assert!(pair.b_recv.poll().is_none() && pair.a_send.poll().is_none());
    for index in COUNT / 2..COUNT {
        receive(index);
        arrived(index);
        assert_eq!(pair.b_mem.read(0, 97 + 900 * index), data[index..][..97 + 900 * index]);
    }
    assert_eq!(pair.a_send.poll().unwrap().wr_id, COUNT as u64 - 1);
}

#[test]
fn a_receive_too_short_within_a_list_of_long_messages_fails_it_and_what_follows() {
    let pair = Pair::rc();
    for index in 0..5u64 {
        assert_eq!(pair.b.recv(index, &[pair.b_mem.sge(0, if index == 2 { 1000 } else { 4000 })]), 0);
    }
    long_list(&pair, 5);
    for (index, bytes) in [(0, 97), (1, 997)] {
        let got = pair.b_recv.poll().unwrap();
        assert_eq!((got.wr_id, got.status, got.byte_len), (index, SUCCESS, bytes));
    }
    let statuses: Vec<u32> = pair.b_recv.poll_all().iter().map(|wc| wc.status).collect();
    assert_eq!(statuses, [ibv_wc_status::IBV_WC_LOC_LEN_ERR, FLUSHED, FLUSHED]);
    let sent: Vec<(u64, u32)> = pair.a_send.poll_all().iter().map(|wc| (wc.wr_id, wc.status)).collect();
    assert_eq!(sent, [(2, ibv_wc_status::IBV_WC_REM_INV_REQ_ERR), (3, FLUSHED), (4, FLUSHED)]);
}

#[test]
fn rnr_retries_run_out() {
    // min_rnr_timer 1 is 10 µs.
    for (retries, polls) in [(0, false), (3, true), (3, false)] {
        let channel_nic = Nic::open(0);
        let channel = Channel::new(&channel_nic);
        let pair = Pair::connected_with(IBV_QPT_RC, |_| {}, |attr| attr.rnr_retry = retries);
        let armed = channel_nic.cq_on(16, channel.0);
        let qp = channel_nic.qp(IBV_QPT_RC, &armed, &armed);
        qp.to_init();
        pair.b.to(ibv_qp_state::IBV_QPS_RESET);
        pair.b.to_init();
        qp.to_rtr(pair.b.num(), 2);
        pair.b.to_rtr(qp.num(), 1);
        qp.to_rts_with(|attr| attr.rnr_retry = retries);
        armed.arm(false);
        qp.post(&mut [Wr::send(1, INLINE, &[pair.a_mem.sge(0, 8)]), Wr::send(2, 0, &[])]).unwrap();
        if polls {
            assert_eq!(armed.wait().status, ibv_wc_status::IBV_WC_RNR_RETRY_EXC_ERR);
        } else {
            // All threads sleep: the timer takes care of it.
            assert!(channel.readable_within(20_000));
            assert_eq!(channel.event(), armed.0);
            assert_eq!(armed.poll().unwrap().status, ibv_wc_status::IBV_WC_RNR_RETRY_EXC_ERR);
        }
        assert_eq!(armed.wait().status, FLUSHED);
        assert_eq!(qp.state(), ibv_qp_state::IBV_QPS_ERR);
        assert_eq!(pair.b.state(), ibv_qp_state::IBV_QPS_RTR, "the receiver didn't fail");
        drop((qp, armed));
        drop(channel);
    }
}

#[test]
fn a_peer_that_is_gone_exhausts_the_retries() {
    let in_error = |pair: &Pair| assert_eq!(pair.b.to(ibv_qp_state::IBV_QPS_ERR), 0);
    let reset = |pair: &Pair| assert_eq!(pair.b.to(ibv_qp_state::IBV_QPS_RESET), 0);
    for gone in [&in_error as &dyn Fn(&Pair), &reset] {
        let pair = Pair::rc();
        gone(&pair);
        // timeout 8 and retry_cnt 1: two times a millisecond.
        pair.a.post(&mut [Wr::send(1, 0, &[pair.a_mem.sge(0, 8)]), Wr::send(2, 0, &[])]).unwrap();
        assert_eq!(pair.a_send.wait().status, ibv_wc_status::IBV_WC_RETRY_EXC_ERR);
        assert_eq!(pair.a_send.wait().status, FLUSHED);
    }
    // Destroyed.
    let nic = Nic::open(0);
    let cq = nic.cq(16);
    let a = nic.qp(IBV_QPT_RC, &cq, &cq);
    let b = nic.qp(IBV_QPT_RC, &cq, &cq);
    a.bring_up(b.num(), 1);
    drop(b);
    a.post(&mut [Wr::send(1, 0, &[])]).unwrap();
    assert_eq!(cq.wait().status, ibv_wc_status::IBV_WC_RETRY_EXC_ERR);
}

#[test]
fn a_peer_that_comes_up_late_gets_what_waited() {
    let pair = Pair::unconnected(IBV_QPT_RC, |_| {});
    pair.a.to_init();
    pair.b.to_init();
    assert_eq!(pair.b.recv(5, &[pair.b_mem.sge(0, 64)]), 0, "INIT takes receives");
    pair.a.to_rtr(pair.b.num(), 2);
    // No ACK time-out: it waits for ever.
    pair.a.to_rts_with(|attr| attr.timeout = 0);
    pair.a.post(&mut [Wr::send(1, SIGNALED, &[pair.a_mem.sge(0, 8)])]).unwrap();
    assert!(pair.a_send.poll().is_none());
    pair.b.to_rtr(pair.a.num(), 1);
    assert_eq!(pair.b_recv.poll().unwrap().wr_id, 5);
    assert_eq!(pair.a_send.poll().unwrap().status, SUCCESS);
}

#[test]
fn a_queue_pair_takes_no_messages_from_its_peers_number_at_another_address() {
    let astray = Pair::unconnected(IBV_QPT_RC, |_| {});
    astray.a.to_init();
    astray.b.to_init();
    astray.b.to_rtr(astray.a.num(), 1);
    astray.a.to_rtr(astray.b.num(), 1);
    astray.a.to_rts();
    astray.a.post(&mut [Wr::send(1, 0, &[])]).unwrap();
    assert_eq!(astray.a_send.wait().status, ibv_wc_status::IBV_WC_RETRY_EXC_ERR);
}

#[test]
fn uc_loses_what_finds_no_receive_and_says_nothing() {
    let pair = Pair::connected(IBV_QPT_UC);
    pair.a.post(&mut [Wr::send(1, SIGNALED, &[pair.a_mem.sge(0, 8)])]).unwrap();
    assert_eq!(pair.a_send.poll().unwrap().status, SUCCESS);
    pair.b.recv(1, &[pair.b_mem.sge(0, 64)]);
    assert!(pair.b_recv.poll().is_none());
    pair.a.post(&mut [Wr::send(2, SIGNALED, &[pair.a_mem.sge(0, 8)])]).unwrap();
    assert_eq!(pair.b_recv.poll().unwrap().status, SUCCESS);
    // Too long for the receive: the receive fails, the sender isn't told.
    pair.b.recv(2, &[pair.b_mem.sge(0, 64)]);
    pair.a.post(&mut [Wr::send(3, SIGNALED, &[pair.a_mem.sge(0, 65)])]).unwrap();
    assert_eq!(pair.b_recv.poll().unwrap().status, ibv_wc_status::IBV_WC_LOC_LEN_ERR);
    assert_eq!(pair.a_send.poll_all().iter().map(|wc| wc.status).collect::<Vec<_>>(), [SUCCESS, SUCCESS]);
    assert_eq!(pair.a.state(), ibv_qp_state::IBV_QPS_RTS);
}

#[test]
fn a_queue_pair_can_be_its_own_peer() {
    let nic = Nic::open(1);
    let cq = nic.cq(64);
    let mem = nic.memory(4096);
    let qp = nic.qp(IBV_QPT_RC, &cq, &cq);
    qp.bring_up(qp.num(), 2);
    mem.fill(0, b"to myself");
    // Sent before the receive is posted: the post of the receive finds its own queue pair waiting.
    qp.post(&mut [Wr::send(1, SIGNALED, &[mem.sge(0, 9)])]).unwrap();
    assert_eq!(qp.recv(2, &[mem.sge(100, 64)]), 0);
    assert_eq!(cq.poll_all().iter().map(|wc| (wc.wr_id, wc.status)).collect::<Vec<_>>(), [(2, SUCCESS), (1, SUCCESS)]);
    assert_eq!(mem.read(100, 9), b"to myself");
}

#[test]
fn an_overrun_is_an_event_and_no_silence() {
    use ibv_event_type::*;
    let (nic, other) = (Nic::open(0), Nic::open(1));
    let (send, small) = (nic.cq(256), other.cq(4));
    let unused = other.cq(16);
    let a = nic.qp(IBV_QPT_RC, &send, &send);
    let b = other.qp(IBV_QPT_RC, &unused, &small);
    connect((&a, 1), (&b, 2));
    for _ in 0..20 {
        assert_eq!(b.recv(1, &[]), 0);
    }
    let mut delivered = 0;
    while a.state() == ibv_qp_state::IBV_QPS_RTS {
        a.post(&mut [Wr::send(1, SIGNALED, &[])]).unwrap();
        delivered += 1;
        assert!(delivered <= 20, "the queue of {} never overran", unsafe { (*small.0).cqe });
    }
    assert!(delivered > unsafe { (*small.0).cqe }, "cqe completions always fit");
    let statuses: Vec<u32> = send.poll_all().iter().map(|wc| wc.status).collect();
    assert_eq!(statuses.last(), Some(&ibv_wc_status::IBV_WC_REM_OP_ERR));
    assert_eq!(async_event(&other), Some(IBV_EVENT_CQ_ERR as u32));
    assert_eq!(async_event(&other), Some(IBV_EVENT_QP_FATAL as u32));
    assert_eq!(b.state(), ibv_qp_state::IBV_QPS_ERR);
    // The completions in the queue can be polled; then polling reports the overrun.
    let mut wc: [ibv_wc; 32] = unsafe { std::mem::zeroed() };
    assert_eq!(unsafe { ibv_poll_cq(small.0, 32, wc.as_mut_ptr()) }, delivered - 1);
    assert_eq!(unsafe { ibv_poll_cq(small.0, 32, wc.as_mut_ptr()) }, -1);
}

#[test]
fn a_lost_wait_is_bounded() {
    // A stalled sender with endless retries doesn't keep its queue pair from being destroyed.
    let begin = Instant::now();
    let pair = Pair::rc();
    pair.a.post(&mut [Wr::send(1, 0, &[])]).unwrap();
    drop(pair);
    assert!(begin.elapsed() < Duration::from_secs(5));
}
