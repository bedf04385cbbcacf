use super::*;
use crate::rig::{Depths, Rig};
use crate::stats::counter::shared;

const PORT: u16 = 3;

fn spec(depth_packets: usize) -> CaptureSpec {
    let filter = CaptureFilter { offset_bytes: 1, bytes: vec![7] };
    CaptureSpec { points: Vec::new(), snap_bytes: 2, filter: Some(filter), depth_packets }
}

#[test]
fn what_is_posted_is_kept_and_a_buffer_of_what_is_not_serves_the_next() {
    let rig = Rig::new(16);
    let cq = rig.source().cq;
    let qp = rig.pd.create_qp(&Rig::spec(&cq, Transport::Rc, Depths { tx_wr: 8, rx_wr: 8, signal_every_wr: 1 }, 0));
    let (mut qp, counts) = (qp.unwrap(), shared::<TapCounts>());
    rig.bring_up(&mut qp);
    let points = Box::new([TapPoint { point: 5, place: TapPlace::Port(PORT), counts: Shared::clone(&counts) }]);
    let TapEnds { mut tap, mut kept, mut free } = TapEnds::new(points, &spec(2), rig.time.clock());
    let cache = rig.pool.cache(0);
    let packets: Vec<Packet> = [[0, 7, 1], [1, 7, 1], [2, 6, 1], [3, 7, 1]]
        .map(|bytes| {
            let mut packet = cache.get().unwrap();
            assert!(packet.fill(&bytes));
            packet
        })
        .into();
    let mut taken = || {
        let captured: Vec<_> = kept.pop_iter(9).collect();
        let bytes: Vec<u8> = captured.iter().map(|one| one.data()[0]).collect();
        for one in captured {
            assert_eq!((one.point, one.len_bytes, one.data().len(), one.direction), (5, 3, 2, CaptureDirection::Sent));
            assert_eq!(one.path.unwrap(), CapturePath::of(&qp));
            free.push(one.buffer).unwrap();
        }
        (bytes, counts.seen.value(), counts.lost.value())
    };
    rig.time.pass(40);
    tap.offer(PORT, &packets, &qp);
    tap.posted(PORT, 1);
    assert_eq!(taken(), (vec![0], 1, 0), "what was not posted is neither seen nor lost");
    tap.offer(PORT, &packets[1..], &qp);
    tap.posted(PORT, 3);
    assert_eq!(taken(), (vec![1, 3], 3, 0));
    tap.offer(PORT, &packets, &qp);
    tap.posted(PORT, 4);
    assert_eq!(taken(), (vec![0, 1], 6, 1), "there were two buffers");
    tap.offer(PORT + 1, &packets, &qp);
    tap.posted(PORT + 1, 4);
    assert_eq!(taken(), (vec![], 6, 1), "of another port nothing is kept");
}

#[test]
fn what_waits_for_room_in_the_send_queue_is_neither_seen_nor_lost_however_much_it_is() {
    let waiting = LOST_ROOM + 8;
    let (rig, counts) = (Rig::new(waiting as u32), shared::<TapCounts>());
    let cq = rig.source().cq;
    let qp = rig.pd.create_qp(&Rig::spec(&cq, Transport::Rc, Depths { tx_wr: 4, rx_wr: 8, signal_every_wr: 1 }, 0));
    let qp = qp.unwrap();
    let points = Box::new([TapPoint { point: 0, place: TapPlace::Port(PORT), counts: Shared::clone(&counts) }]);
    let spec = CaptureSpec { filter: None, ..spec(1) };
    let TapEnds { mut tap, kept: _kept, free: _free } = TapEnds::new(points, &spec, rig.time.clock());
    let mut packets = Batch::with_capacity(waiting);
    assert_eq!(rig.pool.cache(0).get_bulk(&mut packets, waiting), waiting);
    for _ in 0..3 {
        tap.offer(PORT, packets.as_slice(), &qp);
        tap.posted(PORT, 0);
    }
    assert_eq!((counts.seen.value(), counts.lost.value()), (0, 0));
    tap.offer(PORT, packets.as_slice(), &qp);
    tap.posted(PORT, 4);
    assert_eq!((counts.seen.value(), counts.lost.value()), (4, 3));
}

/// A stage with two outputs, the second to a ring that drops its oldest.
#[test]
fn what_a_stage_sent_is_kept_by_output_and_what_was_put_out_already_is_lost() {
    let rig = Rig::new(16);
    let (stage, other) = (shared::<StageStats>(), shared::<StageStats>());
    let counts = [shared::<TapCounts>(), shared::<TapCounts>()];
    let point = |point: usize, output| TapPoint {
        point,
        place: TapPlace::Stage { stats: Shared::clone(&stage), output },
        counts: Shared::clone(&counts[point]),
    };
    let spec = CaptureSpec { filter: None, ..spec(16) };
    let points = Box::new([point(0, None), point(1, Some(1))]);
    let TapEnds { mut tap, mut kept, free: _free } = TapEnds::new(points, &spec, rig.time.clock());
    let cache = rig.pool.cache(0);
    let mut batches = [Batch::with_capacity(4), Batch::with_capacity(2)];
    let put = |batch: &mut Batch, bytes: &[u8]| {
        for byte in bytes {
            let mut packet = cache.get().unwrap();
            assert!(packet.fill(&[*byte]));
            assert!(batch.push(packet).is_ok());
        }
    };
    put(&mut batches[0], &[1]);
    put(&mut batches[1], &[2, 3]);
    tap.calls(&stage, [(&batches[0], 0), (&batches[1], 5)].map(tap_sink).into_iter());
    put(&mut batches[0], &[4, 5]);
    // Three more packets arrive where there is room for two.
    batches[1].clear();
    put(&mut batches[1], &[7, 8]);
    let after = [(&batches[0], 0), (&batches[1], 8)].map(tap_sink);
    tap.returned(&stage, after.into_iter(), |output, sink| output.is_none_or(|output| output == sink));
    let captured: Vec<_> = kept.pop_iter(16).map(|one| (one.point, one.data()[0], one.direction)).collect();
    let within = |point, byte| (point, byte, CaptureDirection::Within);
    assert_eq!(captured, [within(0, 4), within(0, 5), within(0, 7), within(0, 8), within(1, 7), within(1, 8)]);
    assert_eq!(counts.each_ref().map(|one| (one.seen.value(), one.lost.value())), [(5, 1), (3, 1)]);

    tap.calls(&other, after.into_iter());
    tap.returned(&other, after.into_iter(), |_, _| true);
    assert_eq!(kept.pop_iter(16).count(), 0, "of another stage nothing is kept");
}

fn tap_sink((batch, displaced): (&Batch, u64)) -> TapSink<'_> {
    TapSink { batch, displaced }
}

#[test]
fn of_a_ring_what_each_of_its_lanes_gave_is_kept() {
    let rig = Rig::new(16);
    let lanes = [shared::<RingConsumerStats>(), shared(), shared()];
    let counts = shared::<TapCounts>();
    let place = TapPlace::Ring(lanes[..2].iter().map(Shared::clone).collect());
    let points = Box::new([TapPoint { point: 0, place, counts: Shared::clone(&counts) }]);
    let TapEnds { mut tap, mut kept, free: _free } = TapEnds::new(points, &spec(8), rig.time.clock());
    let cache = rig.pool.cache(0);
    let packets = [[1, 7], [2, 6], [3, 7]].map(|bytes| {
        let mut packet = cache.get().unwrap();
        assert!(packet.fill(&bytes));
        packet
    });
    for (lane, packet) in lanes.iter().zip(&packets) {
        tap.popped(lane, std::slice::from_ref(packet));
    }
    let captured: Vec<u8> = kept.pop_iter(8).map(|one| one.data()[0]).collect();
    assert_eq!((captured, counts.seen.value()), (vec![1], 1), "by the filter, and of no other ring");
}
