//! The packet's arithmetic, compared with a model of three numbers.
use crate::support::{pool_of, spec};
use proptest::prelude::*;
use verbline_mem::{MrBinding, Packet};

const HEADROOM: usize = 48;
const DATA: usize = 200;

#[derive(Debug, Clone)]
enum Step {
    Prepend(usize),
    Append(usize),
    TrimFront(usize),
    TrimBack(usize),
    SetLen(usize),
    Fill(usize),
    Reset,
}

fn step() -> impl Strategy<Value = Step> {
    let n = || prop_oneof![8 => 0usize..90, 2 => 0usize..300, 1 => Just(usize::MAX), 1 => Just(u32::MAX as usize + 1)];
    prop_oneof![
        n().prop_map(Step::Prepend),
        n().prop_map(Step::Append),
        n().prop_map(Step::TrimFront),
        n().prop_map(Step::TrimBack),
        n().prop_map(Step::SetLen),
        (0usize..300).prop_map(Step::Fill),
        Just(Step::Reset),
    ]
}

proptest! {
    /// A model of buffer bytes, start and length; refusals change nothing; data is always the
    /// model's slice.
    #[test]
    fn every_step_is_the_models(steps in prop::collection::vec(step(), 1..80)) {
        let pool = pool_of(spec(2, DATA as u32, HEADROOM as u32));
        let cache = pool.cache(2);
        let mut packet = cache.get().unwrap();
        let base = packet.addr() - HEADROOM as u64;
        let (mut buffer, mut start, mut len) = (vec![0u8; HEADROOM + DATA], HEADROOM, 0usize);
        for (round, step) in steps.into_iter().enumerate() {
            let mark = round as u8 + 1;
            let room = buffer.len() - start;
            let (done, fits) = match step {
                Step::Prepend(n) => {
                    let fits = n <= start;
                    if fits {
                        (start, len) = (start - n, len + n);
                        buffer[start..start + n].fill(mark);
                    }
                    (packet.prepend(n).map(|new| new.fill(mark)).is_some(), fits)
                }
                Step::Append(n) => {
                    let fits = n <= room - len;
                    if fits {
                        buffer[start + len..start + len + n].fill(mark);
                        len += n;
                    }
                    (packet.append(n).map(|new| new.fill(mark)).is_some(), fits)
                }
                Step::TrimFront(n) => {
                    let fits = n <= len;
                    if fits { (start, len) = (start + n, len - n) }
                    (packet.trim_front(n), fits)
                }
                Step::TrimBack(n) => {
                    let fits = n <= len;
                    if fits { len -= n }
                    (packet.trim_back(n), fits)
                }
                Step::SetLen(n) => {
                    let fits = n <= room;
                    if fits { len = n }
                    (packet.set_len(n), fits)
                }
                Step::Fill(n) => {
                    let fits = n <= room;
                    if fits {
                        len = n;
                        buffer[start..start + n].fill(mark);
                    }
                    (packet.fill(&vec![mark; n]), fits)
                }
                Step::Reset => {
                    packet.reset();
                    (start, len) = (HEADROOM, 0);
                    (true, true)
                }
            };
            prop_assert_eq!(done, fits);
            prop_assert_eq!((packet.headroom(), packet.len(), packet.is_empty()), (start, len, len == 0));
            prop_assert_eq!((packet.capacity(), packet.tailroom()), (buffer.len() - start, buffer.len() - start - len));
            prop_assert_eq!(packet.addr(), base + start as u64);
            prop_assert_eq!(packet.data(), &buffer[start..start + len]);
        }
    }
}

#[test]
fn a_packet_from_the_pool_is_fresh_however_it_went_back() {
    let pool = pool_of(spec(1, 100, 16));
    let cache = pool.cache(1);
    let mut batch = verbline_mem::Batch::with_capacity(1);
    for by_bulk in [false, true, true, false] {
        let mut packet = if by_bulk {
            assert_eq!(cache.get_bulk(&mut batch, 1), 1);
            batch.pop().unwrap()
        } else {
            cache.get().unwrap()
        };
        assert_eq!((packet.headroom(), packet.len(), packet.capacity(), packet.tailroom()), (16, 0, 100, 100));
        assert_eq!((packet.port(), packet.timestamp(), packet.mark()), (0, 0, 0));
        packet.set_port(7);
        packet.set_timestamp(8);
        packet.set_mark(9);
        assert_eq!((packet.port(), packet.timestamp(), packet.mark()), (7, 8, 9));
        assert!(packet.fill(b"abc") && packet.trim_front(1));
        cache.put(packet);
    }
    assert_eq!(cache.get_bulk_unreset(&mut batch, 1), 1);
    let left = &batch.as_slice()[0];
    assert_eq!((left.port(), left.timestamp(), left.mark(), left.headroom(), left.data()), (7, 8, 9, 17, &b"bc"[..]));
    batch.iter_mut().for_each(Packet::reset);
    assert_eq!((batch.as_slice()[0].len(), batch.as_slice()[0].mark()), (0, 0));
}

#[test]
fn buffers_start_on_cache_lines_and_never_overlap() {
    let pool = pool_of(spec(50, 100, 7));
    let cache = pool.cache(0);
    let mut batch = verbline_mem::Batch::with_capacity(50);
    assert_eq!(cache.get_bulk(&mut batch, 50), 50);
    let mut starts: Vec<u64> = batch.iter().map(|packet| packet.addr() - 7).collect();
    starts.sort_unstable();
    assert!(starts.iter().all(|start| start % 64 == 0));
    assert!(starts.windows(2).all(|pair| pair[1] - pair[0] >= 107));
    let end = pool.region().as_ptr().addr() + pool.region().len_bytes();
    assert!(starts[49] + 107 <= end as u64);
    for (k, packet) in batch.iter_mut().enumerate() {
        assert!(packet.fill(&[k as u8; 100]));
    }
    assert!(batch.iter().enumerate().all(|(k, packet)| packet.data() == [k as u8; 100]));
}

#[test]
fn a_packet_has_its_pools_key_once_there_is_one() {
    let pool = pool_of(spec(4, 64, 0));
    let packet = pool.cache(1).get().unwrap();
    assert_eq!((packet.lkey(), packet.pd_id(), pool.mr()), (0, 0, None));
    pool.attach_mr(MrBinding { pd_id: 5, lkey: 0x1234, keep: Box::new(()) }).unwrap();
    assert_eq!((packet.lkey(), packet.pd_id(), pool.mr()), (0x1234, 5, Some((5, 0x1234))));
    let error = pool.attach_mr(MrBinding { pd_id: 6, lkey: 1, keep: Box::new(()) }).unwrap_err();
    assert_eq!(
        error.to_string(),
        "pool `test`: already registered in protection domain 5 with lkey 0x1234; use one pool for each device"
    );
    assert_eq!((packet.lkey(), packet.pool_name()), (0x1234, "test"));
    assert_eq!(format!("{packet:?}"), r#"Packet { pool: "test", len: 0, headroom: 0, tailroom: 64, port: 0, .. }"#);
}

#[test]
fn spans_are_address_with_length_or_capacity_and_pools_have_numbers() {
    let pool = || pool_of(spec(2, DATA as u32, HEADROOM as u32));
    let (one, other) = (pool(), pool());
    let (mut packet, second, foreign) =
        (one.cache(0).get().unwrap(), one.cache(0).get().unwrap(), other.cache(0).get().unwrap());
    assert!(packet.fill(b"order") && packet.prepend(3).is_some());
    packet.data_mut()[..3].copy_from_slice(b"new");
    assert!(packet.trim_front(3) && packet.headroom_data().ends_with(b"new"));
    assert_eq!(packet.headroom_data().len(), packet.headroom());
    assert_eq!(packet.prepend(3), Some(&mut b"new".to_owned()[..]));
    packet.set_mark(7);
    assert_eq!(packet.span(), (packet.addr(), 8));
    assert_eq!(packet.buffer_addr() + packet.headroom() as u64, packet.addr());
    assert_eq!((packet.fresh_headroom(), packet.fresh_capacity()), (HEADROOM, DATA));
    assert!(!packet.reset_to(DATA + 1));
    assert_eq!((packet.len(), packet.mark()), (8, 7));
    assert!(packet.reset_to(DATA));
    assert_eq!((packet.headroom(), packet.len(), packet.mark(), packet.capacity()), (HEADROOM, DATA, 0, DATA));
    assert_eq!(packet.buffer_addr() + HEADROOM as u64, packet.addr());
    assert_eq!(packet.pool_id(), second.pool_id());
    assert!(packet.pool_id() != 0 && packet.pool_id() != foreign.pool_id());
}

#[test]
fn packets_are_got_with_a_length_or_as_they_were_left() {
    let pool = pool_of(spec(2, DATA as u32, HEADROOM as u32));
    let cache = pool.cache(2);
    let mut packet = cache.get_of_len(5).unwrap();
    assert_eq!((packet.len(), packet.headroom(), packet.capacity()), (5, HEADROOM, DATA));
    assert!(packet.prepend(8).is_some());
    packet.set_port(3);
    packet.set_timestamp(4);
    cache.put(packet);
    let packet = cache.get_unreset().unwrap();
    assert_eq!((packet.len(), packet.headroom(), packet.port(), packet.timestamp()), (13, HEADROOM - 8, 3, 4));
    cache.put(packet);
    let packet = cache.get_of_len(DATA).unwrap();
    assert_eq!((packet.len(), packet.headroom(), packet.port(), packet.timestamp()), (DATA, HEADROOM, 0, 0));
    assert!(cache.get_of_len(DATA + 1).is_none());
    let other = cache.get_unreset().unwrap();
    assert!(cache.get_of_len(0).is_none() && cache.get_unreset().is_none() && cache.get().is_none());
    assert_eq!(pool.account().held, 2);
    drop((packet, other));
    // From the free list, where their drops took them.
    assert_eq!(cache.get_of_len(7).map(|packet| packet.len()), Some(7));
}

#[test]
fn a_pools_form_resets_its_packets() {
    let pool = pool_of(spec(2, DATA as u32, HEADROOM as u32));
    let cache = pool.cache(2);
    let (form, mut packet) = (cache.get().unwrap().pool_form(), cache.get_of_len(9).unwrap());
    assert!(packet.trim_front(4));
    packet.set_mark(7);
    // SAFETY: form and packet are of one pool, made above.
    assert!(!unsafe { packet.reset_by(&form, DATA + 1) });
    assert_eq!((packet.len(), packet.headroom(), packet.mark()), (5, HEADROOM + 4, 7));
    // SAFETY: form and packet are of one pool, made above.
    assert!(unsafe { packet.reset_by(&form, DATA) });
    assert_eq!((packet.len(), packet.headroom(), packet.mark(), packet.capacity()), (DATA, HEADROOM, 0, DATA));
}

#[test]
fn a_copy_has_the_data_and_what_goes_with_it_and_its_own_room() {
    let (pool, small) = (pool_of(spec(2, 64, 16)), pool_of(spec(1, 32, 8)));
    let mut packet = pool.cache(0).get().unwrap();
    assert!(packet.fill(b"ab0123456789"));
    assert!(packet.trim_front(2));
    packet.set_port(7);
    packet.set_timestamp(11);
    packet.set_mark(13);
    packet.set_connection(verbline_mem::ConnectionId::new(7, 1, 1));
    let mut copy = small.cache(0).get().unwrap();
    assert!(copy.copy_from(&packet));
    assert_eq!((copy.data(), copy.port(), copy.timestamp(), copy.mark()), (&b"0123456789"[..], 7, 11, 13));
    assert_eq!((copy.headroom(), copy.capacity(), copy.fresh_capacity()), (8, 32, 32));
    assert_eq!(copy.connection(), packet.connection());
    assert!(copy.connection().is_some());
    assert!(packet.set_len(33));
    assert!(!copy.copy_from(&packet));
    assert_eq!((copy.len(), copy.pool_name()), (10, small.name()));
    copy.data_mut()[0] = b'x';
    assert_eq!(packet.data()[0], b'0', "memory of its own");
}

/// A handle left by an earlier holder would send a message to a stranger.
#[test]
fn a_fresh_packet_has_no_connection() {
    let pool = pool_of(spec(2, DATA as u32, HEADROOM as u32));
    let cache = pool.cache(2);
    let id = verbline_mem::ConnectionId::new(1, 2, 3);
    let mut packet = cache.get().unwrap();
    assert_eq!(packet.connection(), None);
    packet.set_connection(id);
    packet.set_port(9);
    assert!(packet.fill(b"x"));
    assert_eq!((packet.connection(), packet.port(), packet.capacity()), (id, 9, DATA));
    packet.reset();
    assert_eq!((packet.connection(), packet.fresh_capacity()), (None, DATA));
    packet.set_connection(id);
    packet.set_connection(None);
    assert_eq!(packet.connection(), None);
    for how in ["get", "of a length", "in bulk", "by its form"] {
        packet.set_connection(id);
        let form = packet.pool_form();
        if how == "by its form" {
            // SAFETY: the form is its own.
            assert!(unsafe { packet.reset_by(&form, 5) });
        } else {
            cache.put(packet);
            let mut batch = verbline_mem::Batch::with_capacity(1);
            packet = match how {
                "get" => cache.get().unwrap(),
                "of a length" => cache.get_of_len(5).unwrap(),
                _ => {
                    assert_eq!(cache.get_bulk(&mut batch, 1), 1);
                    batch.pop().unwrap()
                }
            };
        }
        assert_eq!(packet.connection(), None, "{how}");
    }
}
