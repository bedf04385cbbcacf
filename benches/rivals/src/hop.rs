//! The common choices of a Rust program for messages of 64 bytes between cores: a queue of
//! crossbeam's, the Disruptor with one producer, and iceoryx2's publish-subscribe within a process.
//!
//! Each is used in the fastest way of its documentation: both sides spin, the Disruptor publishes
//! and polls in batches of 32, iceoryx2 loans its samples and may not drop any. `rate` is the time
//! per message with both sides at full speed; `latency` half of the round trip of a message, one at
//! a time.

use std::hint::{black_box, spin_loop};
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_queue::ArrayQueue;
use disruptor::{BusySpin, Polling, Producer};
use iceoryx2::prelude::*;

/// A message.
type Message = [u64; 8];

const DEPTH: usize = 4096;
const BATCH: usize = 32;
const MESSAGES: usize = 1 << 21;
const TRIPS: usize = 1 << 17;

/// Runs per measurement; the median counts.
const REPEATS: usize = 5;

/// Prints `ns` of a library: by `rate` or by `latency`.
pub(crate) fn run(library: &str, what: &str) {
    let once: fn() -> f64 = match (library, what) {
        ("crossbeam", "rate") => crossbeam_rate,
        ("crossbeam", "latency") => crossbeam_latency,
        ("disruptor", "rate") => disruptor_rate,
        ("disruptor", "latency") => disruptor_latency,
        ("iceoryx2", "rate") => iceoryx2_rate,
        ("iceoryx2", "latency") => iceoryx2_latency,
        _ => panic!("no hop of {library} by {what}"),
    };
    set_log_level(LogLevel::Error);
    let mut times: Vec<f64> = (0..REPEATS).map(|_| once()).collect();
    times.sort_by(f64::total_cmp);
    println!("{{\"ns\":{:.3}}}", times[REPEATS / 2]);
}

/// Runs both sides from one starting line, each pinned to a CPU of its own. Returns the time that
/// each took.
fn race(
    near: impl FnOnce(&Barrier) -> Duration + Send,
    far: impl FnOnce(&Barrier) -> Duration + Send,
) -> [Duration; 2] {
    let cpus = core_affinity::get_core_ids().expect("the kernel names its CPUs");
    assert!(cpus.len() >= 2, "a hop between cores needs two CPUs");
    let start = Barrier::new(2);
    let pin = |cpu: usize| assert!(core_affinity::set_for_current(cpus[cpu]), "cannot pin a thread");
    thread::scope(|scope| {
        let far = scope.spawn(|| {
            pin(1);
            far(&start)
        });
        let near = scope.spawn(|| {
            pin(0);
            near(&start)
        });
        [near, far].map(|side| side.join().expect("neither side panics"))
    })
}

fn timed(start: &Barrier, side: impl FnOnce()) -> Duration {
    start.wait();
    let began = Instant::now();
    side();
    began.elapsed()
}

/// The mean time of both sides, per message.
fn a_message([near, far]: [Duration; 2]) -> f64 {
    (near + far).as_nanos() as f64 / (2 * MESSAGES) as f64
}

/// Half of the time of a round trip.
fn one_way([near, _]: [Duration; 2]) -> f64 {
    near.as_nanos() as f64 / (2 * TRIPS) as f64
}

fn read(message: &Message, sum: &mut u64) {
    *sum = message.iter().fold(*sum, |sum, word| sum.wrapping_add(*word));
}

fn crossbeam_rate() -> f64 {
    let queue = ArrayQueue::<Message>::new(DEPTH);
    let near = |start: &Barrier| {
        timed(start, || {
            for number in 0..MESSAGES as u64 {
                let mut message = black_box([number; 8]);
                while let Err(back) = queue.push(message) {
                    message = back;
                    spin_loop();
                }
            }
        })
    };
    let far = |start: &Barrier| {
        timed(start, || {
            let (mut taken, mut sum) = (0, 0);
            while taken < MESSAGES {
                match queue.pop() {
                    Some(message) => {
                        read(&message, &mut sum);
                        taken += 1;
                    }
                    None => spin_loop(),
                }
            }
            black_box(sum);
        })
    };
    a_message(race(near, far))
}

fn crossbeam_latency() -> f64 {
    let [there, back] = [(); 2].map(|()| ArrayQueue::<Message>::new(DEPTH));
    let take = |queue: &ArrayQueue<Message>| loop {
        if let Some(message) = queue.pop() {
            break message;
        }
        spin_loop();
    };
    let near = |start: &Barrier| {
        timed(start, || {
            for number in 0..TRIPS as u64 {
                there.push(black_box([number; 8])).expect("one is under way");
                assert_eq!(take(&back)[7], number);
            }
        })
    };
    let far = |start: &Barrier| {
        timed(start, || {
            for _ in 0..TRIPS {
                back.push(take(&there)).expect("one is under way");
            }
        })
    };
    one_way(race(near, far))
}

fn disruptor_rate() -> f64 {
    let (mut poller, builder) = disruptor::build_single_producer(DEPTH, || [0_u64; 8], BusySpin).new_event_poller();
    let mut producer = builder.build();
    let near = move |start: &Barrier| {
        timed(start, || {
            for batch in 0..(MESSAGES / BATCH) as u64 {
                producer.batch_publish(BATCH, |events| {
                    for event in events {
                        *event = black_box([batch; 8]);
                    }
                });
            }
        })
    };
    let far = move |start: &Barrier| {
        timed(start, || {
            let (mut taken, mut sum) = (0, 0);
            while taken < MESSAGES {
                match poller.poll() {
                    Ok(mut events) => {
                        for event in &mut events {
                            read(event, &mut sum);
                            taken += 1;
                        }
                    }
                    Err(Polling::NoEvents) => spin_loop(),
                    Err(Polling::Shutdown) => break,
                }
            }
            assert_eq!(taken, MESSAGES);
            black_box(sum);
        })
    };
    a_message(race(near, far))
}

fn disruptor_latency() -> f64 {
    let pair = || {
        let (poller, builder) = disruptor::build_single_producer(DEPTH, || [0_u64; 8], BusySpin).new_event_poller();
        (builder.build(), poller)
    };
    let ((mut there, mut arrived), (mut back, mut returned)) = (pair(), pair());
    let near = move |start: &Barrier| {
        timed(start, || {
            for number in 0..TRIPS as u64 {
                there.publish(|event| *event = black_box([number; 8]));
                let mut last = None;
                while last.is_none() {
                    match returned.poll() {
                        Ok(mut events) => last = (&mut events).last().map(|event| event[7]),
                        Err(_) => spin_loop(),
                    }
                }
                assert_eq!(last, Some(number));
            }
        })
    };
    let far = move |start: &Barrier| {
        timed(start, || {
            let mut taken = 0;
            while taken < TRIPS {
                match arrived.poll() {
                    Ok(mut events) => {
                        for event in &mut events {
                            back.publish(|slot| *slot = *event);
                            taken += 1;
                        }
                    }
                    Err(_) => spin_loop(),
                }
            }
        })
    };
    one_way(race(near, far))
}

type Service = iceoryx2::service::local::Service;

/// Opens a service. Each side makes its own ends, which stay on its thread.
fn service(
    node: &Node<Service>,
    name: &str,
) -> iceoryx2::service::port_factory::publish_subscribe::PortFactory<Service, Message, ()> {
    let name: ServiceName = name.try_into().expect("a name");
    node.service_builder(&name)
        .publish_subscribe::<Message>()
        .enable_safe_overflow(false)
        .subscriber_max_buffer_size(DEPTH)
        .open_or_create()
        .expect("a service")
}

type Sender = iceoryx2::port::publisher::Publisher<Service, Message, ()>;
type Receiver = iceoryx2::port::subscriber::Subscriber<Service, Message, ()>;

fn sender(node: &Node<Service>, name: &str) -> Sender {
    let factory = service(node, name);
    let builder = factory.publisher_builder().backpressure_strategy(BackpressureStrategy::RetryUntilDelivered);
    builder.create().expect("a publisher")
}

fn receiver(node: &Node<Service>, name: &str) -> Receiver {
    service(node, name).subscriber_builder().create().expect("a subscriber")
}

fn send(sender: &Sender, message: Message) {
    let sample = sender.loan_uninit().expect("a sample").write_payload(message);
    sample.send().expect("it is delivered");
}

fn node() -> Node<Service> {
    NodeBuilder::new().create::<Service>().expect("a node")
}

fn iceoryx2_rate() -> f64 {
    let near = |start: &Barrier| {
        let node = node();
        let sender = sender(&node, "hop");
        start.wait();
        timed(start, || {
            for number in 0..MESSAGES as u64 {
                send(&sender, black_box([number; 8]));
            }
        })
    };
    let far = |start: &Barrier| {
        let node = node();
        let receiver = receiver(&node, "hop");
        start.wait();
        timed(start, || {
            let (mut taken, mut sum) = (0, 0);
            while taken < MESSAGES {
                match receiver.receive().expect("a connection") {
                    Some(sample) => {
                        read(&sample, &mut sum);
                        taken += 1;
                    }
                    None => spin_loop(),
                }
            }
            black_box(sum);
        })
    };
    a_message(race(near, far))
}

fn iceoryx2_latency() -> f64 {
    let take = |receiver: &Receiver| loop {
        if let Some(sample) = receiver.receive().expect("a connection") {
            break *sample;
        }
        spin_loop();
    };
    let near = |start: &Barrier| {
        let node = node();
        let (there, back) = (sender(&node, "there"), receiver(&node, "back"));
        start.wait();
        timed(start, || {
            for number in 0..TRIPS as u64 {
                send(&there, black_box([number; 8]));
                assert_eq!(take(&back)[7], number);
            }
        })
    };
    let far = |start: &Barrier| {
        let node = node();
        let (there, back) = (receiver(&node, "there"), sender(&node, "back"));
        start.wait();
        timed(start, || {
            for _ in 0..TRIPS {
                let message = take(&there);
                send(&back, message);
            }
        })
    };
    one_way(race(near, far))
}
