//! Removal of a device in use: its users are told, and get everything back.
//!
//! A program of its own: it removes the software RNIC's devices for the whole process.

#[path = "suite/common.rs"]
#[allow(dead_code, unused_macros, unused_imports, unreachable_pub, reason = "the API tests use the rest")]
mod common;

use std::time::{Duration, Instant};

use common::{Options, connect, open, pair};
use verbline_verbs::{
    Transport,
    event::{AsyncEvent, AsyncEventKind, AsyncEventSource},
    expert::{fault, leaked_queue_pairs},
};

#[test]
fn a_device_that_is_pulled_out_gives_every_packet_back_and_is_there_again() {
    // Far longer than a busy machine keeps this thread from its CPU.
    let destroy_timeout = Duration::from_secs(60);
    let options = Options { rx_depth_wr: 16, destroy_timeout, ..Options::new(Transport::Rc) };
    let (mut a, mut b) = pair(&options);
    assert_eq!((a.post_recvs(16), b.post_recvs(4)), (16, 4));
    // Sends in flight: four are received, others wait for a receive, some unsignaled.
    for _ in 0..10 {
        a.send(b"under way");
    }
    let (of_a, of_b) = (a.context.async_events(), b.context.async_events());
    assert_eq!(fault::remove_device("soft0"), 1);

    let gone = AsyncEvent { kind: AsyncEventKind::DeviceFatal, source: AsyncEventSource::Device };
    assert_eq!(of_a.try_next().unwrap(), Some(gone));
    assert_eq!((of_a.try_next().unwrap(), of_b.try_next().unwrap()), (None, None), "told once, and nobody else");
    // Nothing works, and every error names EIO.
    for refused in [a.context.query_port(1).err(), a.context.alloc_pd().err()] {
        assert!(refused.as_ref().is_some_and(|error| error.errno.raw() == libc::EIO), "{refused:?}");
    }
    let error = a.qp.to_reset().unwrap_err();
    assert!(error.to_string().contains("EIO"), "{error}");

    let began = Instant::now();
    drop((a.qp, a.cq, of_a));
    assert!(began.elapsed() < destroy_timeout / 2, "the time-out of destruction is not waited for");
    a.cache.flush();
    let account = a.pool.account();
    assert_eq!((account.free, account.held), (a.pool.packets(), 0), "{account:?}");
    assert_eq!(leaked_queue_pairs(), 0);

    // The peer is in the state after losing its peer; the device can be opened again.
    drop((b.qp, b.cq, of_b));
    let (mut a, mut b) = (common::Side::new("soft0", &options, 1), common::Side::new("soft1", &options, 2));
    connect(&mut a, &mut b, &options);
    assert_eq!(b.post_recvs(1), 1);
    a.send(b"again");
    assert_eq!(b.receive(1)[0].data(), b"again");
    assert!(!open("soft0").async_events().is_being_removed());
    assert_eq!(fault::remove_device("soft7"), 0);
}
