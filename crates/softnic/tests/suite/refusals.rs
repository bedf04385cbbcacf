//! Refusals of a connection, row by row: on a newly connected pair, whose first messages take the
//! general path, and on warm ones, where every kind of work request takes its fast path. All must
//! give the same answers.
use crate::harness::*;
use rdma_sys::ibv_qp_type::{IBV_QPT_RC, IBV_QPT_UC};
use rdma_sys::ibv_wc_status::*;
use rdma_sys::ibv_wr_opcode::*;
use rdma_sys::*;
use verbline_softnic::provider as soft;

/// The most inline bytes of the harness's queue pairs.
const INLINE_BYTES: usize = 128;
/// An offset where no row has data.
const WARM_UP: usize = 60_000;

/// The traffic before the row. None; all kinds of work requests, the last of which reported no
/// polled messages, so that small messages go by the ring; or a conversation, in which they go by
/// the mailbox.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Before {
    Nothing,
    All,
    Conversation,
}

const BEFORE: [Before; 3] = [Before::Nothing, Before::All, Before::Conversation];

/// Sends SENDs, WRITEs and READs of each length that has its own path, both ways, so that nothing
/// about the connection is new any more.
fn warm_up(pair: &Pair, before: Before) {
    let is_rc = unsafe { (*pair.a.0).qp_type } == IBV_QPT_RC;
    let lens: &[usize] = match before {
        Before::Nothing => &[],
        Before::All => &[8, 64, 600],
        Before::Conversation => &[600, 64, 8],
    };
    for &len in lens {
        for _ in 0..2 {
            for (from, from_mem, send, to, to_mem, recv) in [
                (&pair.a, &pair.a_mem, &pair.a_send, &pair.b, &pair.b_mem, &pair.b_recv),
                (&pair.b, &pair.b_mem, &pair.b_send, &pair.a, &pair.a_mem, &pair.a_recv),
            ] {
                let sge = from_mem.sge(WARM_UP, len);
                assert_eq!(to.recv(0, &[to_mem.sge(WARM_UP + 2000, 1000)]), 0);
                from.post(&mut [Wr::send(0, SIGNALED, &[copy_sge(&sge)])]).unwrap();
                assert_eq!((recv.wait().status, send.wait().status), (SUCCESS, SUCCESS));
                let (addr, rkey) = (to_mem.addr() + WARM_UP as u64 + 2000, to_mem.key());
                from.post(&mut [Wr::new(0, IBV_WR_RDMA_WRITE, SIGNALED, &[copy_sge(&sge)]).remote(addr, rkey)])
                    .unwrap();
                assert_eq!(send.wait().status, SUCCESS);
                if is_rc {
                    from.post(&mut [Wr::new(0, IBV_WR_RDMA_READ, SIGNALED, &[sge]).remote(addr, rkey)]).unwrap();
                    assert_eq!(send.wait().status, SUCCESS);
                }
            }
        }
    }
}

/// Runs a row on a fresh pair and on warm ones, of each transport. A UC sender isn't told of the
/// peer's faults.
fn on_fresh_and_warm(transports: &[u32], row: impl Fn(&Pair, &str)) {
    for &transport in transports {
        for before in BEFORE {
            let pair = Pair::connected(transport);
            warm_up(&pair, before);
            let transport = if transport == IBV_QPT_RC { "RC" } else { "UC" };
            row(&pair, &format!("{transport}, before: {before:?}"));
            assert!(pair.a_send.poll().is_none() && pair.b_recv.poll().is_none(), "nothing else completes");
        }
    }
}

const BOTH: [u32; 2] = [IBV_QPT_RC, IBV_QPT_UC];

/// A side's memory without the right to write.
fn read_only(nic: &Nic) -> Memory {
    nic.memory_with(4096, REMOTE_READ)
}

/// Revokes its rights, or changes them.
fn set_access(memory: &Memory, access: u32) {
    let flags = ibv_rereg_mr_flags::IBV_REREG_MR_CHANGE_ACCESS.0 as i32;
    let code = unsafe { soft::ibv_rereg_mr(memory.mr, flags, null_pd(), std::ptr::null_mut(), 0, access as i32) };
    assert_eq!(code, 0);
}

fn null_pd() -> *mut ibv_pd {
    std::ptr::null_mut()
}

/// Posts a receive at the peer, whose memory has a pattern around it.
fn post_receive(pair: &Pair, room: usize) {
    pair.b_mem.fill(0, &[0xee; 2048]);
    assert_eq!(pair.b.recv(7, &[pair.b_mem.sge(0, room)]), 0);
}

#[test]
fn a_message_a_byte_longer_than_its_receive_is_refused_and_writes_nothing_behind_it() {
    for room in [8, 40, 64, 95, 96, 97, 200, 1000] {
        on_fresh_and_warm(&[IBV_QPT_RC], |pair, place| {
            post_receive(pair, room);
            pair.a_mem.fill(0, &pattern(room + 1, 3));
            pair.a.post(&mut [Wr::send(1, 0, &[pair.a_mem.sge(0, room + 1)])]).unwrap();
            let got = pair.b_recv.wait();
            assert_eq!((got.wr_id, got.status), (7, IBV_WC_LOC_LEN_ERR), "{room} B, {place}");
            assert_eq!(pair.a_send.wait().status, IBV_WC_REM_INV_REQ_ERR, "{room} B, {place}");
            assert_eq!(pair.b_mem.read(room, 1000), [0xee; 1000], "{room} B, {place}");
        });
    }
}

/// Polls up to eight by one call.
pub(crate) fn poll_at_once(cq: &Cq) -> Vec<Wc> {
    let mut wcs = unsafe { std::mem::zeroed::<[ibv_wc; 8]>() };
    let count = unsafe { ibv_poll_cq(cq.0, 8, wcs.as_mut_ptr()) };
    wcs[..usize::try_from(count).unwrap()].iter().map(convert).collect()
}

/// Messages that are polled together take a path of their own from the second on, while each is
/// like its predecessor.
#[test]
fn of_several_that_are_polled_at_once_each_is_held_to_its_own_receive() {
    for len in [8, 40, 64, 96] {
        on_fresh_and_warm(&[IBV_QPT_RC], |pair, place| {
            pair.b_mem.fill(0, &[0xee; 2048]);
            let other = pair.other.memory(2048);
            let rooms =
                [(&pair.b_mem, 0, len), (&other, 0, len + 1), (&pair.b_mem, 200, len), (&pair.b_mem, 400, len - 1)];
            for (wr_id, (memory, at, room)) in (10..).zip(rooms) {
                assert_eq!(pair.b.recv(wr_id, &[memory.sge(at, room)]), 0);
            }
            pair.a_mem.fill(0, &pattern(len, 3));
            let mut sends: Vec<Wr> = (0..4).map(|_| Wr::send(1, 0, &[pair.a_mem.sge(0, len)])).collect();
            pair.a.post(&mut sends).unwrap();
            let got: Vec<_> = poll_at_once(&pair.b_recv).iter().map(|wc| (wc.wr_id, wc.status)).collect();
            let wanted = [(10, SUCCESS), (11, SUCCESS), (12, SUCCESS), (13, IBV_WC_LOC_LEN_ERR)];
            assert_eq!(got, wanted, "{len} B, {place}");
            for (memory, at, _) in &rooms[..3] {
                assert_eq!(memory.read(*at, len), pattern(len, 3), "{len} B, {place}");
            }
            assert_eq!(pair.b_mem.read(400 + len - 1, 100), [0xee; 100], "{len} B, {place}");
            pair.a_send.poll_all();
        });
    }
}

#[test]
fn the_longest_that_fits_arrives() {
    for room in [8, 40, 64, 95, 96, 97, 200, 1000] {
        on_fresh_and_warm(&BOTH, |pair, place| {
            post_receive(pair, room);
            pair.a_mem.fill(0, &pattern(room, 3));
            pair.a.post(&mut [Wr::send(1, SIGNALED, &[pair.a_mem.sge(0, room)])]).unwrap();
            assert_eq!((pair.a_send.wait().status, pair.b_recv.wait().status), (SUCCESS, SUCCESS), "{room} B, {place}");
            assert_eq!(pair.b_mem.read(0, room), pattern(room, 3), "{room} B, {place}");
            assert_eq!(pair.b_mem.read(room, 1000), [0xee; 1000], "{room} B, {place}");
        });
    }
}

#[test]
fn a_message_fills_the_pieces_of_its_receive_in_order() {
    for len in [8, 40, 64, 96, 200] {
        on_fresh_and_warm(&BOTH, |pair, place| {
            pair.b_mem.fill(0, &[0xee; 2048]);
            let rooms = [(0, 3), (100, len - 5), (400, 300)];
            let pieces = rooms.map(|(at, room)| pair.b_mem.sge(at, room));
            assert_eq!(pair.b.recv(7, &pieces), 0);
            let data = pattern(len, 3);
            pair.a_mem.fill(0, &data);
            pair.a.post(&mut [Wr::send(1, SIGNALED, &[pair.a_mem.sge(0, len)])]).unwrap();
            let got = pair.b_recv.wait();
            assert_eq!((got.status, got.byte_len as usize), (SUCCESS, len), "{len} B, {place}");
            assert_eq!(pair.a_send.wait().status, SUCCESS, "{len} B, {place}");
            for (at, part) in [(0, &data[..3]), (100, &data[3..len - 2]), (400, &data[len - 2..])] {
                assert_eq!(pair.b_mem.read(at, part.len()), part, "{len} B, {place}");
                assert_eq!(pair.b_mem.read(at + part.len(), 90), [0xee; 90], "{len} B, {place}");
            }
        });
    }
}

#[test]
fn a_receive_into_memory_that_may_not_be_written_is_an_error_on_both_sides() {
    for len in [8, 64, 96, 600] {
        on_fresh_and_warm(&[IBV_QPT_RC], |pair, place| {
            let memory = read_only(&pair.other);
            assert_eq!(pair.b.recv(7, &[memory.sge(0, 1000)]), 0);
            pair.a_mem.fill(0, &pattern(len, 3));
            pair.a.post(&mut [Wr::send(1, SIGNALED, &[pair.a_mem.sge(0, len)])]).unwrap();
            assert_eq!(pair.b_recv.wait().status, IBV_WC_LOC_PROT_ERR, "{len} B, {place}");
            assert_eq!(pair.a_send.wait().status, IBV_WC_REM_OP_ERR, "{len} B, {place}");
            assert_eq!(memory.read(0, len), vec![0; len], "{len} B, {place}");
        });
    }
}

/// Rights are revoked between the post of a receive and the message; or, if the bytes lie in the
/// completion until it is polled, before the poll.
#[test]
fn rights_that_were_taken_away_after_the_post_hold_for_what_comes() {
    for (len, sent_before) in [(8, false), (64, false), (600, false), (8, true), (64, true)] {
        on_fresh_and_warm(&BOTH, |pair, place| {
            // On a fresh pair a message takes the general path, and its bytes are placed at once.
            if sent_before && place.ends_with("Nothing") {
                return;
            }
            let memory = pair.other.memory(4096);
            assert_eq!(pair.b.recv(7, &[memory.sge(0, 1000)]), 0);
            pair.a_mem.fill(0, &pattern(len, 3));
            let send = || pair.a.post(&mut [Wr::send(1, 0, &[pair.a_mem.sge(0, len)])]).unwrap();
            if sent_before {
                send();
            }
            set_access(&memory, REMOTE_READ);
            if !sent_before {
                send();
            }
            let got = pair.b_recv.wait();
            assert_eq!((got.wr_id, got.status), (7, IBV_WC_LOC_PROT_ERR), "{len} B, {place}, {sent_before}");
            assert_eq!(memory.read(0, len), vec![0; len], "{len} B, {place}, {sent_before}");
            // The sender isn't told if its message was complete by then; on UC it never is.
            let heard = pair.a_send.poll().map(|wc| wc.status);
            let fails = !sent_before && place.starts_with("RC");
            assert_eq!(heard, fails.then_some(IBV_WC_REM_OP_ERR), "{len} B, {place}, {sent_before}");
        });
    }
}

/// By either handle of its domain.
#[test]
fn a_region_that_goes_after_the_post_is_an_error_on_both_sides() {
    for (len, pieces, by_parent) in [(8, 1, false), (96, 2, false), (8, 1, true), (600, 1, true)] {
        on_fresh_and_warm(&[IBV_QPT_RC], |pair, place| {
            let mut init: ibv_parent_domain_init_attr = unsafe { std::mem::zeroed() };
            init.pd = pair.other.pd;
            let parent = unsafe { soft::ibv_alloc_parent_domain(pair.other.context, &mut init) };
            let mut gone = vec![0u64; 100];
            let pd = if by_parent { parent } else { init.pd };
            let mr = unsafe { soft::ibv_reg_mr(pd, gone.as_mut_ptr().cast(), 800, LOCAL_WRITE as i32) };
            let sge = ibv_sge { addr: gone.as_ptr() as u64, length: 800, lkey: unsafe { (*mr).lkey } };
            let rooms = [pair.b_mem.sge(0, 4), sge];
            // A receive whose region stays is not lost with it.
            assert_eq!(pair.b.recv(7, &[pair.b_mem.sge(0, 1000)]), 0);
            assert_eq!(pair.b.recv(8, &rooms[2 - pieces..]), 0);
            assert_eq!(unsafe { [soft::ibv_dereg_mr(mr), soft::ibv_dealloc_pd(parent)] }, [0, 0]);
            for (sent, got) in [(SUCCESS, SUCCESS), (IBV_WC_REM_OP_ERR, IBV_WC_LOC_PROT_ERR)] {
                pair.a.post(&mut [Wr::send(1, SIGNALED, &[pair.a_mem.sge(0, len)])]).unwrap();
                let statuses = (pair.a_send.wait().status, pair.b_recv.wait().status);
                assert_eq!(statuses, (sent, got), "{len} B, {pieces}, {by_parent}, {place}");
            }
        });
    }
}

#[test]
fn a_read_into_memory_that_may_not_be_written_is_an_error() {
    for len in [8, 600] {
        on_fresh_and_warm(&[IBV_QPT_RC], |pair, place| {
            let memory = read_only(&pair.nic);
            pair.b_mem.fill(0, &pattern(len, 3));
            let read = Wr::new(1, IBV_WR_RDMA_READ, SIGNALED, &[memory.sge(0, len)]);
            pair.a.post(&mut [read.remote(pair.b_mem.addr(), pair.b_mem.key())]).unwrap();
            assert_eq!(pair.a_send.wait().status, IBV_WC_LOC_PROT_ERR, "{len} B, {place}");
            assert_eq!(memory.read(0, len), vec![0; len], "{len} B, {place}");
        });
    }
}

#[test]
fn a_write_or_a_read_that_the_peer_did_not_grant_is_an_error() {
    for (opcode, granted) in
        [(IBV_WR_RDMA_WRITE, LOCAL_WRITE | REMOTE_READ), (IBV_WR_RDMA_READ, LOCAL_WRITE | REMOTE_WRITE)]
    {
        on_fresh_and_warm(&[IBV_QPT_RC], |pair, place| {
            let memory = pair.other.memory_with(4096, granted);
            let wr = Wr::new(1, opcode, SIGNALED, &[pair.a_mem.sge(0, 600)]);
            pair.a.post(&mut [wr.remote(memory.addr(), memory.key())]).unwrap();
            assert_eq!(pair.a_send.wait().status, IBV_WC_REM_ACCESS_ERR, "{opcode}, {place}");
        });
        on_fresh_and_warm(&[IBV_QPT_RC], |pair, place| {
            let memory = pair.other.memory(4096);
            let wr = Wr::new(1, opcode, SIGNALED, &[pair.a_mem.sge(0, 600)]);
            // A byte beyond the end.
            pair.a.post(&mut [wr.remote(memory.addr() + 4096 - 599, memory.key())]).unwrap();
            assert_eq!(pair.a_send.wait().status, IBV_WC_REM_ACCESS_ERR, "{opcode}, {place}");
        });
    }
}

#[test]
fn inline_data_up_to_the_limit_goes_and_a_byte_more_is_refused_by_the_post() {
    for inline_bytes in [0, 16, 40, 64, 96, INLINE_BYTES] {
        for before in BEFORE {
            let init = |init: &mut ibv_qp_init_attr| init.cap.max_inline_data = inline_bytes as u32;
            let pair = Pair::connected_with(IBV_QPT_RC, init, |_| {});
            warm_up(&pair, before);
            let place = format!("{inline_bytes} B, before: {before:?}");
            let (addr, rkey) = (pair.b_mem.addr() + 4096, pair.b_mem.key());
            let inline =
                |opcode, len| Wr::new(1, opcode, INLINE | SIGNALED, &[pair.a_mem.sge(0, len)]).remote(addr, rkey);
            for opcode in [IBV_WR_SEND, IBV_WR_RDMA_WRITE] {
                assert_eq!(pair.b.recv(7, &[pair.b_mem.sge(0, 1000)]), 0);
                let refused = pair.a.post(&mut [inline(opcode, inline_bytes + 1)]);
                assert_eq!(refused, Err((libc::EINVAL, 0)), "{opcode}, {place}");
                assert!(pair.a_send.poll().is_none() && pair.b_recv.poll().is_none(), "{opcode}, {place}");
                if inline_bytes > 0 {
                    // Alone, and in a list in front of a refused one.
                    pair.a.post(&mut [inline(opcode, inline_bytes)]).unwrap();
                    assert_eq!(pair.b.recv(7, &[pair.b_mem.sge(0, 1000)]), 0);
                    let list = pair.a.post(&mut [inline(opcode, inline_bytes), inline(opcode, inline_bytes + 1)]);
                    assert_eq!(list, Err((libc::EINVAL, 1)), "{opcode}, {place}");
                    assert_eq!(
                        [pair.a_send.wait().status, pair.a_send.wait().status],
                        [SUCCESS; 2],
                        "{opcode}, {place}"
                    );
                }
                pair.b_recv.poll_all();
            }
        }
    }
}

#[test]
fn what_is_not_signaled_does_not_complete() {
    on_fresh_and_warm(&BOTH, |pair, place| {
        let (addr, rkey) = (pair.b_mem.addr() + 4096, pair.b_mem.key());
        for len in [8, 64, 600] {
            let sge = || [pair.a_mem.sge(0, len)];
            for _ in 0..3 {
                assert_eq!(pair.b.recv(7, &[pair.b_mem.sge(0, 1000)]), 0);
            }
            let write = |wr_id, flags| Wr::new(wr_id, IBV_WR_RDMA_WRITE, flags, &sge()).remote(addr, rkey);
            pair.a.post(&mut [Wr::send(1, 0, &sge())]).unwrap();
            pair.a.post(&mut [write(2, 0)]).unwrap();
            pair.a.post(&mut [write(3, 0), write(4, SIGNALED), write(5, 0)]).unwrap();
            pair.a.post(&mut [Wr::send(6, 0, &sge()), Wr::send(7, SIGNALED, &sge())]).unwrap();
            let completed: Vec<_> = pair.a_send.poll_all().iter().map(|wc| (wc.wr_id, wc.status)).collect();
            assert_eq!(completed, [(4, SUCCESS), (7, SUCCESS)], "{len} B, {place}");
            assert_eq!(pair.b_recv.poll_all().len(), 3, "{len} B, {place}");
        }
    });
}
