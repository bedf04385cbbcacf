//! Messages of 64 bytes by value from one core to another, like `rivals/src/hop.rs` with other
//! crates: the time per message at full speed, and half of a round trip of one at a time. The
//! doorbell is rung after each batch, as an lcore does.

use std::hint::{black_box, spin_loop};

use verbline_ring::{Consumer, Producer, doorbell, spsc};

use super::repeated;
use crate::Figures;
use crate::pair::race;

/// A message.
type Message = [u64; 8];

const DEPTH: usize = 4096;
const BATCH: usize = 32;
const MESSAGES: usize = 1 << 21;
const TRIPS: usize = 1 << 17;

/// The time per message with both sides at full speed: `ns`.
pub fn rate() -> Figures {
    Figures::of("ns", repeated(at_full_speed))
}

/// The time of a single message, one way: `ns`.
pub fn latency() -> Figures {
    Figures::of("ns", repeated(one_at_a_time))
}

fn at_full_speed() -> f64 {
    let (mut producer, mut consumer) = spsc::<Message>(DEPTH);
    let (waker, _awake) = doorbell().expect("an eventfd");
    let near = || {
        for batch in 0..(MESSAGES / BATCH) as u64 {
            while producer.room_for(BATCH) < BATCH {
                spin_loop();
            }
            producer.push_iter(BATCH, (0..BATCH).map(|_| black_box([batch; 8])));
            waker.ring();
        }
    };
    let far = || {
        let (mut taken, mut sum) = (0, 0_u64);
        while taken < MESSAGES {
            let read = |message: Message| sum = message.iter().fold(sum, |sum, word| sum.wrapping_add(*word));
            match consumer.pop_into(BATCH, read) {
                0 => spin_loop(),
                popped => taken += popped,
            }
        }
        black_box(sum);
    };
    let [near, far] = race(near, far);
    (near + far).as_nanos() as f64 / (2 * MESSAGES) as f64
}

fn one_at_a_time() -> f64 {
    let ((mut there, mut arrived), (mut back, mut returned)) = (spsc::<Message>(DEPTH), spsc::<Message>(DEPTH));
    let [near_bell, far_bell] = [(); 2].map(|()| doorbell().expect("an eventfd"));
    let send = |producer: &mut Producer<Message>, bell: &verbline_ring::Waker, message: Message| {
        producer.push_iter(1, [message]);
        bell.ring();
    };
    let take = |consumer: &mut Consumer<Message>| loop {
        let mut found = None;
        if consumer.pop_into(1, |message| found = Some(message)) > 0 {
            break found.expect("one was popped");
        }
        spin_loop();
    };
    let near = || {
        for number in 0..TRIPS as u64 {
            send(&mut there, &far_bell.0, black_box([number; 8]));
            assert_eq!(take(&mut returned)[7], number);
        }
    };
    let far = || {
        for _ in 0..TRIPS {
            let message = take(&mut arrived);
            send(&mut back, &near_bell.0, message);
        }
    };
    let [near, _] = race(near, far);
    near.as_nanos() as f64 / (2 * TRIPS) as f64
}
