//! Messages between connected queue pairs: what arrives, what completes, what is refused.
#![allow(clippy::undocumented_unsafe_blocks)]

mod harness;
use harness::*;
use rdma_sys::*;

#[test]
fn every_length_arrives_whole() {
    let pair = Pair::rc();
    for len in (1..=130).chain([255, 256, 511, 512, 513, 4096, 30_000]) {
        let data = pattern(len, len as u8);
        pair.a_mem.fill(0, &data);
        assert_eq!(pair.b.recv(7, &[pair.b_mem.sge(8, 40_000)]), 0);
        pair.a.post(&mut [Wr::send(9, SIGNALED, &[pair.a_mem.sge(0, len)])]).unwrap();
        let sent = pair.a_send.poll().expect("send completion");
        assert_eq!((sent.wr_id, sent.status, sent.opcode), (9, SUCCESS, ibv_wc_opcode::IBV_WC_SEND));
        let got = pair.b_recv.poll().expect("receive completion");
        assert_eq!((got.wr_id, got.status, got.byte_len), (7, SUCCESS, len as u32));
        assert_eq!((got.opcode, got.qp_num), (ibv_wc_opcode::IBV_WC_RECV, pair.b.num()));
        assert_eq!(pair.b_mem.read(8, len), data, "length {len}");
        assert!(pair.a_send.poll().is_none() && pair.b_recv.poll().is_none());
    }
}
