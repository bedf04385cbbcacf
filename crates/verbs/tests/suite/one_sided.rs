//! RDMA WRITE and READ, atomics and invalidation through the typed handles.

use crate::common::{Options, Side, assert_arrived, bytes, hand_back, pair};
use verbline_verbs::{
    Access, Completion, PostStop, QpError, SendOptions, Status, Transport, WcOpcode, WrKind,
    rdma::{Buffer, Remote},
};

const ALL: Access = Access::LOCAL_WRITE;

fn all() -> Access {
    ALL | Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC
}

/// Polls both sides until the op is done; returns its memory and the result of `look` on its
/// completion.
fn finish<T>(a: &mut Side, b: &mut Side, mut look: impl FnMut(&Completion) -> T) -> (Buffer, T) {
    let deadline = std::time::Instant::now() + crate::common::PATIENCE;
    let mut done = None;
    while done.is_none() {
        assert!(std::time::Instant::now() < deadline, "the op completes");
        b.poll(hand_back);
        a.poll(|qp, freed, completion| match completion.kind() {
            WrKind::Op => done = Some((qp.op_done(completion, freed).unwrap().into_buffer(), look(completion))),
            _ => hand_back(qp, freed, completion),
        });
    }
    done.unwrap()
}

fn status(completion: &Completion) -> Status {
    completion.status()
}

#[test]
fn a_write_lands_and_the_memory_comes_back() {
    for transport in [Transport::Rc, Transport::Uc] {
        let (mut a, mut b) = pair(&Options::new(transport));
        let target = b.peer_region(4096, all());
        let packet = a.packet(b"written from a packet");
        let to = target.remote(100);
        match transport {
            Transport::Rc => a.qp.rc().unwrap().write(packet, to, SendOptions::default()).unwrap(),
            _ => a.qp.uc().unwrap().write(packet, to, SendOptions::default()).unwrap(),
        }
        let (buffer, opcode) = finish(&mut a, &mut b, Completion::opcode);
        assert_eq!(opcode, WcOpcode::RdmaWrite);
        assert_eq!(buffer.into_packet().unwrap().data(), b"written from a packet");
        assert_arrived(transport, &target, 100, b"written from a packet");
        assert_eq!(bytes(&target, 121, 8), [0; 8]);
    }
}

#[test]
fn a_write_from_peer_memory_and_inline() {
    let (mut a, mut b) = pair(&Options::new(Transport::Rc));
    let (source, target) = (a.peer_region(4096, ALL), b.peer_region(4096, all()));
    source.write_from(8, b"from a region").unwrap();
    let slice = source.slice(8, 13).unwrap();
    // The slice keeps the source registered.
    drop(source);
    a.qp.rc().unwrap().write(slice, target.remote(0), SendOptions::default()).unwrap();
    let (_, status) = finish(&mut a, &mut b, status);
    assert_eq!((status, bytes(&target, 0, 13)), (Status::SUCCESS, b"from a region".to_vec()));

    let packet = a.packet(b"inline");
    a.qp.rc().unwrap().write_inline(packet, target.remote(64), SendOptions::default()).unwrap();
    finish(&mut a, &mut b, Completion::is_ok);
    assert_eq!(bytes(&target, 64, 6), b"inline");

    let long = a.packet(&[1; 500]);
    let refused = a.qp.rc().unwrap().write_inline(long, target.remote(0), SendOptions::default()).unwrap_err();
    assert_eq!(refused.reason, PostStop::NotInline { len_bytes: 500, max_bytes: a.qp.max_inline_bytes() });
    assert_eq!(refused.buffer.into_packet().unwrap().len(), 500);
}

#[test]
fn a_write_with_immediate_takes_a_receive_that_stays_empty() {
    let (mut a, mut b) = pair(&Options::new(Transport::Rc));
    let target = b.peer_region(4096, all());
    assert_eq!(b.post_recvs(1), 1);
    let packet = a.packet(&[5; 300]);
    let options = SendOptions { imm: Some(0xfeed), ..SendOptions::default() };
    a.qp.rc().unwrap().write(packet, target.remote(0), options).unwrap();
    b.wait_for(WrKind::Recv, |qp, _, completion| {
        assert_eq!((completion.opcode(), completion.imm()), (WcOpcode::RecvRdmaWithImm, Some(0xfeed)));
        assert_eq!(qp.recv_done(completion).unwrap().len(), 0);
    });
    assert_eq!(bytes(&target, 0, 300), [5; 300]);
}

#[test]
fn a_read_fills_a_packet_or_peer_memory() {
    let (mut a, mut b) = pair(&Options::new(Transport::Rc));
    let source = b.peer_region(8192, all());
    source.write_from(1000, &[0x5a; 1500]).unwrap();
    let packet = a.packet(&[0; 1500]);
    a.qp.rc().unwrap().read(packet, source.remote(1000), SendOptions::default()).unwrap();
    let (buffer, (opcode, len)) = finish(&mut a, &mut b, |completion| (completion.opcode(), completion.byte_len()));
    assert_eq!((opcode, len), (WcOpcode::RdmaRead, 1500));
    assert_eq!(buffer.into_packet().unwrap().data(), [0x5a; 1500]);

    let into = a.peer_region(4096, ALL);
    a.qp.rc().unwrap().read(into.slice(8, 100).unwrap(), source.remote(1000), SendOptions::default()).unwrap();
    finish(&mut a, &mut b, Completion::is_ok);
    assert_eq!(bytes(&into, 8, 100), [0x5a; 100]);
}

#[test]
fn atomics_change_the_peer_and_bring_back_what_was_there() {
    let (mut a, mut b) = pair(&Options::new(Transport::Rc));
    let counter = b.peer_region(4096, all());
    counter.store_u64(16, 40).unwrap();
    let result = |buffer: Buffer| u64::from_ne_bytes(buffer.into_packet().unwrap().data().try_into().unwrap());

    let packet = a.packet(&[0; 8]);
    a.qp.rc().unwrap().fetch_add(packet, counter.remote(16), 2, SendOptions::default()).unwrap();
    let (buffer, opcode) = finish(&mut a, &mut b, Completion::opcode);
    assert_eq!((result(buffer), opcode), (40, WcOpcode::FetchAdd));
    assert_eq!(counter.load_u64(16).unwrap(), 42);

    for (compare, swap, before, after) in [(42, 7, 42, 7), (42, 9, 7, 7)] {
        let packet = a.packet(&[0; 8]);
        a.qp.rc().unwrap().compare_swap(packet, counter.remote(16), compare, swap, SendOptions::default()).unwrap();
        let (buffer, opcode) = finish(&mut a, &mut b, Completion::opcode);
        assert_eq!((result(buffer), opcode), (before, WcOpcode::CompSwap));
        assert_eq!(counter.load_u64(16).unwrap(), after);
    }

    let seven = a.packet(&[0; 7]);
    let refused = a.qp.rc().unwrap().fetch_add(seven, counter.remote(16), 1, SendOptions::default()).unwrap_err();
    assert_eq!(refused.reason, PostStop::NotEightBytes(7));
}

#[test]
fn a_peer_that_does_not_allow_it_answers_with_an_error() {
    type Try = fn(&mut Side, Remote);
    let cases: [(Access, Try); 3] = [
        (ALL | Access::REMOTE_READ, |a, at| {
            let packet = a.packet(&[1; 8]);
            a.qp.rc().unwrap().write(packet, at, SendOptions::default()).unwrap();
        }),
        (ALL | Access::REMOTE_WRITE, |a, at| {
            let packet = a.packet(&[1; 8]);
            a.qp.rc().unwrap().read(packet, at, SendOptions::default()).unwrap();
        }),
        (ALL | Access::REMOTE_READ | Access::REMOTE_WRITE, |a, at| {
            let packet = a.packet(&[1; 8]);
            a.qp.rc().unwrap().fetch_add(packet, at, 1, SendOptions::default()).unwrap();
        }),
    ];
    for (access, op) in cases {
        let (mut a, mut b) = pair(&Options::new(Transport::Rc));
        let target = b.peer_region(4096, access);
        op(&mut a, target.remote(0));
        let (buffer, status) = finish(&mut a, &mut b, status);
        assert_eq!(status, Status::REM_ACCESS_ERR);
        assert!(buffer.into_packet().is_some());
        assert_eq!(bytes(&target, 0, 8), [0; 8]);
    }
}

#[test]
fn a_key_can_be_used_only_within_its_range_and_until_its_memory_goes() {
    let (mut a, mut b) = pair(&Options::new(Transport::Rc));
    let target = b.peer_region(4096, all());
    let packet = a.packet(&[1; 100]);
    a.qp.rc().unwrap().write(packet, target.remote(4000), SendOptions::default()).unwrap();
    assert_eq!(finish(&mut a, &mut b, status).1, Status::REM_ACCESS_ERR);

    let (mut a, mut b) = pair(&Options::new(Transport::Rc));
    let gone = b.peer_region(4096, all()).remote(0);
    let packet = a.packet(&[1; 100]);
    a.qp.rc().unwrap().write(packet, gone, SendOptions::default()).unwrap();
    assert_eq!(finish(&mut a, &mut b, status).1, Status::REM_ACCESS_ERR);
}

#[test]
fn ops_and_packets_share_the_queue_and_complete_in_order() {
    let (mut a, mut b) = pair(&Options { signal_every_wr: 100, inline_bytes: 0, ..Options::new(Transport::Rc) });
    let target = b.peer_region(4096, all());
    assert_eq!(b.post_recvs(3), 3);
    for n in 0..3 {
        a.send(&[n; 100]);
    }
    let packet = a.packet(b"after three sends");
    a.qp.rc().unwrap().write(packet, target.remote(0), SendOptions::default()).unwrap();
    let mut freed = 0;
    let mut done = false;
    while !done {
        b.poll(hand_back);
        a.poll(|qp, batch, completion| {
            assert_eq!(completion.kind(), WrKind::Op, "no send was signaled");
            qp.op_done(completion, batch).unwrap();
            freed = batch.len();
            done = true;
        });
    }
    // The sends before it are done too.
    assert_eq!((freed, a.qp.sends_outstanding()), (3, 0));
    a.assert_all_free();
}

#[test]
fn memory_of_another_pd_is_refused() {
    let (mut a, b) = pair(&Options::new(Transport::Rc));
    let foreign = b.peer_region(4096, all());
    let slice = foreign.slice(0, 8).unwrap();
    let refused = a.qp.rc().unwrap().read(slice, foreign.remote(0), SendOptions::default()).unwrap_err();
    assert!(matches!(refused.reason, PostStop::NotRegistered { .. }), "{refused}");
    assert!(foreign.slice(4090, 8).is_none() && foreign.slice(usize::MAX, 8).is_none());
}

#[test]
fn a_handle_of_another_transport_is_refused() {
    let (mut a, _b) = pair(&Options::new(Transport::Uc));
    let qpn = a.qp.qpn();
    let error = a.qp.rc().unwrap_err();
    assert!(matches!(error, QpError::NotTransport { is: Transport::Uc, asked: Transport::Rc, .. }));
    assert_eq!(error.to_string(), format!("QP {qpn:#x} is UC, not RC"));
    assert!(a.qp.ud().is_err() && a.qp.uc().is_ok());
}

#[test]
fn dropping_a_qp_lets_go_of_the_memory_of_its_ops() {
    let (mut a, b) = pair(&Options::new(Transport::Rc));
    let local = a.peer_region(4096, ALL);
    // The peer's key is wrong and nobody polls: whatever the outcome, the memory is freed.
    let at = Remote { addr: 64, rkey: 0xdead };
    let slice = local.slice(0, 64).unwrap();
    a.qp.rc().unwrap().read(slice, at, SendOptions::default()).unwrap();
    drop((a.qp, b));
    local.write_from(0, &[1; 64]).unwrap();
    a.cache.flush();
    assert_eq!(a.pool.account().held, 0);
}

/// A slice ends at its region's last byte.
#[test]
fn a_slice_ends_where_its_region_ends() {
    let side = Side::new("soft0", &Options::new(Transport::Rc), 0);
    let mr = side.peer_region(4096, ALL);
    for (offset, len) in [(0, 4096), (4095, 1), (4096, 0), (1, 4095)] {
        assert_eq!(mr.slice(offset, len).unwrap().len(), len, "{len} bytes at {offset}");
    }
    for (offset, len) in
        [(0, 4097), (4095, 2), (4096, 1), (4097, 0), (1, 4096), (usize::MAX, 1), (usize::MAX, u32::MAX)]
    {
        assert!(mr.slice(offset, len).is_none(), "{len} bytes at {offset}");
    }
}
