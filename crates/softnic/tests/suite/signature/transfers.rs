//! Blocks that move through keys with a signature: generated, checked, removed and passed on.

use crate::harness::*;
use crate::signature::rig::*;
use rdma_sys::ibv_wc_status::*;
use rdma_sys::ibv_wr_opcode::*;
use verbline_softnic::mlx5dv::*;

const DATA: usize = 4 * 512;
const WITH: usize = 4 * 520;

/// A key of ours for memory with or without protection information, and likewise on the wire.
fn key(pair: &Pair, memory: Option<Domain>, wire: Option<Domain>) -> Mkey {
    let key = Mkey::signing(&pair.nic);
    let bytes = if memory.is_some() { WITH } else { DATA };
    let (memory_wanted, wire_wanted) = (memory, wire);
    let configure = Configure::list(&[pair.a_mem.sge(0, bytes)]);
    Configure { memory: memory_wanted, wire: wire_wanted, ..configure }.now(&pair.a, &key);
    key
}

fn run(pair: &Pair, opcode: u32, key: &Mkey) -> u32 {
    let wr = Wr::new(1, opcode, SIGNALED, &[key.sge(0, DATA)]);
    pair.a.post(&mut [wr.remote(pair.b_mem.addr(), pair.b_mem.key())]).unwrap();
    pair.a_send.poll().unwrap().status
}

#[test]
fn writes_make_strip_and_pass_protection_information_and_reads_the_other_way() {
    for (app_tag, ref_tag) in [(0xabcd, 1000), (7, u32::MAX - 1)] {
        let data = pattern(DATA, 3);
        let with = protected(&data, app_tag, ref_tag);
        let dif = Some(Domain::t10(app_tag, ref_tag));
        for (memory, wire, stored, sent) in
            [(None, dif, &data, &with), (dif, None, &with, &data), (dif, dif, &with, &with)]
        {
            let pair = pair(CONFIGURING);
            let key = key(&pair, memory, wire);
            pair.a_mem.fill(0, stored);
            assert_eq!(run(&pair, IBV_WR_RDMA_WRITE, &key), SUCCESS);
            assert_eq!(&pair.b_mem.read(0, sent.len()), sent);
            assert_eq!(pair.b_mem.read(sent.len(), 8), [0; 8]);
            pair.a_mem.fill(0, &[0; WITH]);
            assert_eq!(run(&pair, IBV_WR_RDMA_READ, &key), SUCCESS);
            assert_eq!(&pair.a_mem.read(0, stored.len()), stored);
            assert_eq!(key.error(), mkey_err_type::NO_ERR);
        }
    }
}

#[test]
fn peers_reach_the_wires_side_of_a_key() {
    let data = pattern(DATA, 5);
    let with = protected(&data, 1, 50);
    let pair = pair(CONFIGURING);
    let theirs = Mkey::signing(&pair.other);
    Configure::list(&[pair.b_mem.sge(0, DATA)]).wire(Domain::t10(1, 50)).now(&pair.b, &theirs);
    pair.b_mem.fill(0, &data);
    // Blocks 1 and 2 of the wire.
    let read = Wr::new(1, IBV_WR_RDMA_READ, SIGNALED, &[pair.a_mem.sge(0, 1040)]).remote(520, theirs.key());
    pair.a.post(&mut [read]).unwrap();
    assert_eq!(pair.a_send.poll().unwrap().status, SUCCESS);
    assert_eq!(pair.a_mem.read(0, 1040), with[520..1560]);
    let changed = protected(&pattern(1024, 77), 1, 51);
    pair.a_mem.fill(0, &changed);
    let write = Wr::new(1, IBV_WR_RDMA_WRITE, SIGNALED, &[pair.a_mem.sge(0, 1040)]).remote(520, theirs.key());
    pair.a.post(&mut [write]).unwrap();
    assert_eq!(pair.a_send.poll().unwrap().status, SUCCESS);
    assert_eq!(pair.b_mem.read(512, 1024), pattern(1024, 77));
    assert_eq!(theirs.error(), mkey_err_type::NO_ERR);
    // A faulty block is recorded when the access ends, at its place in the transfer.
    pair.a_mem.fill(525, &[0xee]);
    let write = Wr::new(1, IBV_WR_RDMA_WRITE, SIGNALED, &[pair.a_mem.sge(0, 1040)]).remote(520, theirs.key());
    pair.a.post(&mut [write]).unwrap();
    assert_eq!(pair.a_send.poll().unwrap().status, SUCCESS);
    let error = theirs.check().unwrap();
    assert_eq!((error.err_type, error.sig.offset), (mkey_err_type::BAD_GUARD, 520));
    assert_eq!(error.sig.expected_value, u64::from(crc16(&changed[520..1032])));
    assert_eq!(error.sig.actual_value, u64::from(crc16(&pair.b_mem.read(1024, 512))));
}

#[test]
fn peers_name_whole_blocks() {
    for (addr, len) in [(0, 519), (0, 521), (1, 520), (512, 520)] {
        let pair = pair(CONFIGURING);
        let theirs = Mkey::signing(&pair.other);
        Configure::list(&[pair.b_mem.sge(0, DATA)]).wire(Domain::t10(1, 50)).now(&pair.b, &theirs);
        let read = Wr::new(1, IBV_WR_RDMA_READ, SIGNALED, &[pair.a_mem.sge(0, len)]).remote(addr, theirs.key());
        pair.a.post(&mut [read]).unwrap();
        assert_eq!(pair.a_send.poll().unwrap().status, IBV_WC_REM_ACCESS_ERR, "{addr} {len}");
    }
}

#[test]
fn a_send_and_a_receive_through_keys_meet_on_the_wire() {
    let pair = pair(CONFIGURING);
    let (ours, theirs) = (Mkey::signing(&pair.nic), Mkey::signing(&pair.other));
    let wire = Domain::t10(0xabcd, 0x0123_4567);
    Configure::list(&[pair.a_mem.sge(0, 512)]).wire(wire).now(&pair.a, &ours);
    Configure::list(&[pair.b_mem.sge(0, 512)]).wire(wire).now(&pair.b, &theirs);
    for round in 0..10 {
        pair.a_mem.fill(0, &pattern(512, round));
        assert_eq!(pair.b.recv(1, &[theirs.sge(0, 512)]), 0);
        pair.a.post(&mut [Wr::send(1, SIGNALED, &[ours.sge(0, 512)])]).unwrap();
        assert_eq!(pair.a_send.poll().unwrap().status, SUCCESS);
        let got = pair.b_recv.poll().unwrap();
        assert_eq!((got.status, got.byte_len), (SUCCESS, 520), "with what protects it on the wire");
        assert_eq!(pair.b_mem.read(0, 512), pattern(512, round));
    }
    assert_eq!([&ours, &theirs].map(Mkey::error), [mkey_err_type::NO_ERR; 2]);
}

#[test]
fn a_receive_makes_what_its_memory_is_to_have() {
    let pair = pair(CONFIGURING);
    let theirs = Mkey::signing(&pair.other);
    Configure::list(&[pair.b_mem.sge(0, WITH)]).memory(Domain::t10(2, 9)).now(&pair.b, &theirs);
    let data = pattern(1024, 8);
    pair.a_mem.fill(0, &data);
    assert_eq!(pair.b.recv(1, &[theirs.sge(0, DATA)]), 0);
    pair.a.post(&mut [Wr::send(1, SIGNALED, &[pair.a_mem.sge(0, 1024)])]).unwrap();
    assert_eq!(pair.b_recv.poll().unwrap().status, SUCCESS);
    assert_eq!(pair.b_mem.read(0, 1040), protected(&data, 2, 9));
    // A message must be whole blocks.
    assert_eq!(pair.b.recv(1, &[theirs.sge(0, DATA)]), 0);
    pair.a.post(&mut [Wr::send(1, SIGNALED, &[pair.a_mem.sge(0, 1000)])]).unwrap();
    assert_eq!(pair.b_recv.poll().unwrap().status, IBV_WC_LOC_PROT_ERR);
}

#[test]
fn an_error_is_recorded_by_polling_cleared_by_checking_and_the_key_is_spent() {
    let pair = pair(CONFIGURING);
    let key = key(&pair, Some(Domain::t10(5, 0)), None);
    let data = pattern(DATA, 6);
    pair.a_mem.fill(0, &protected(&data, 5, 0));
    pair.a_mem.fill(520 * 2 + 515, &[0x77]);
    let write = |flags| {
        let wr = Wr::new(9, IBV_WR_RDMA_WRITE, flags, &[key.sge(0, DATA)]);
        pair.a.post(&mut [wr.remote(pair.b_mem.addr(), pair.b_mem.key())]).unwrap();
    };
    write(0);
    assert_eq!(key.error(), mkey_err_type::NO_ERR, "nobody has polled");
    assert!(pair.a_send.poll().is_none(), "no completion is made of it");
    assert_eq!(pair.b_mem.read(0, DATA), data, "what was wrong has moved all the same");
    write(SIGNALED);
    assert_eq!(pair.a_send.poll().unwrap().status, SUCCESS);
    let error = key.check().unwrap();
    let found = mlx5dv_sig_err { actual_value: 5, expected_value: 0x77, offset: 1040 };
    assert_eq!((error.err_type, error.sig), (mkey_err_type::BAD_APPTAG, found));
    assert_eq!(key.error(), mkey_err_type::NO_ERR, "checking has cleared it");
    // Spent, until it is configured again: to the same, or differently.
    Configure::list(&[pair.a_mem.sge(0, DATA + 32)]).now(&pair.a, &key);
    pair.a_mem.fill(520 * 2 + 515, &[5]);
    write(SIGNALED);
    assert_eq!((pair.a_send.poll().unwrap().status, key.error()), (SUCCESS, mkey_err_type::NO_ERR));
    pair.a_mem.fill(3, &[0x77]);
    write(SIGNALED);
    assert_eq!(pair.a_send.poll().unwrap().status, SUCCESS);
    assert_eq!(key.error(), mkey_err_type::BAD_GUARD, "the signature was kept");
    write(SIGNALED);
    assert_eq!(pair.a_send.poll().unwrap().status, IBV_WC_LOC_PROT_ERR);
}

#[test]
fn a_reset_takes_the_signature_away() {
    let pair = pair(CONFIGURING);
    let key = key(&pair, None, Some(Domain::crc32c()));
    let mut wr = MkeyConfigureWr::with_capacity(0);
    wr.start(key.0, 0, &mlx5dv_mkey_conf_attr { conf_flags: mkey_conf_flags::RESET_SIG_ATTR, comp_mask: 0 });
    assert_eq!(unsafe { wr.post(pair.a.0, 1, INLINE) }, 0);
    let wr = Wr::new(1, IBV_WR_RDMA_WRITE, SIGNALED, &[key.sge(3, 100)]);
    pair.a.post(&mut [wr.remote(pair.b_mem.addr(), pair.b_mem.key())]).unwrap();
    assert_eq!(pair.a_send.poll().unwrap().status, SUCCESS, "no blocks any more");
}
