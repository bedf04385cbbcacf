//! Models of the protocols between threads, over the very code that runs: every interleaving that
//! loom can tell apart. To run them:
//! `RUSTFLAGS="--cfg loom" cargo test --profile loom -p verbline-sync --test loom`
#![cfg(loom)]

#[path = "loom/standby.rs"]
mod standby;
#[path = "loom/waiting.rs"]
mod waiting;

use loom::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use verbline_sync::consumer::Consumer;
use verbline_sync::credit::{Attention, FLUSHING, Posted, WAITING};
use verbline_sync::lock::SpinLock;
use verbline_sync::mailbox::{Mailbox, Reader};
use verbline_sync::ring::{CqEntry, CqRing, NEXT, Overrun, SOLICITED};
use verbline_sync::seqlock_entry::{Grant, KeyEntry};

fn model(f: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    // Exhaustive up to this number of involuntary switches, enough to find this kind of bug.
    builder.preemption_bound = Some(3);
    builder.check(f);
}

/// The channel's descriptor: readable after a notification.
#[derive(Default)]
struct Eventfd {
    readable: Mutex<bool>,
    changed: Condvar,
}

impl Eventfd {
    fn write(&self) {
        *self.readable.lock().unwrap() = true;
        self.changed.notify_one();
    }
    /// Blocks; loom reports a deadlock if nobody will ever write.
    fn block(&self) {
        let mut readable = self.readable.lock().unwrap();
        while !*readable {
            readable = self.changed.wait(readable).unwrap();
        }
        *readable = false;
    }
}

/// Adds a completion of one slot or two, like `completion::push` and `fast_send_inline`.
fn produce(ring: &CqRing, value: u64, two: bool) -> Result<bool, Overrun> {
    let claim = ring.claim(1 + u32::from(two))?;
    // SAFETY, both: claimed and unpublished.
    claim.slot(claim.first).body_mut(|body| unsafe { (*body)[0] = value });
    if two {
        claim.slot(claim.first + 1).body_mut(|body| unsafe { (*body)[6] = value });
        // SAFETY: two slots were claimed.
        unsafe { claim.mark_second(claim.first) };
    }
    // SAFETY: the slots were claimed and filled.
    unsafe { claim.publish(claim.first, value as u32, two) };
    Ok(ring.fire(false))
}

/// Takes a completion and checks that it is whole.
fn take(consumer: &mut Consumer, ring: &CqRing) -> Option<u64> {
    // SAFETY: here and below, each consumer is used with the ring that it was made with.
    let entry = unsafe { consumer.next(ring) }?;
    Some(taken(consumer, ring, &entry))
}

fn taken(consumer: &mut Consumer, ring: &CqRing, entry: &CqEntry<'_>) -> u64 {
    // SAFETY, both: published, and not freed yet.
    let value = entry.first().body(|body| unsafe { (*body)[0] });
    assert_eq!(entry.tag, value as u32);
    if entry.two_slots {
        assert_eq!(entry.second().body(|body| unsafe { (*body)[6] }), value);
    }
    consumer.advance(entry.slots());
    consumer.publish_head(ring);
    value
}

struct Shared {
    ring: CqRing,
    eventfd: Eventfd,
}

fn ring(slots: usize) -> (Arc<Shared>, Consumer) {
    let (ring, consumer) = CqRing::new(slots);
    (Arc::new(Shared { ring, eventfd: Eventfd::default() }), consumer)
}

/// Arm, look again, sleep: like every event-driven consumer.
#[test]
fn an_armed_consumer_is_woken_or_finds_the_completion() {
    model(|| {
        let (shared, mut consumer) = ring(8);
        let producer = {
            let shared = shared.clone();
            thread::spawn(move || {
                if produce(&shared.ring, 7, true).unwrap() {
                    shared.eventfd.write();
                }
            })
        };
        let got = loop {
            if let Some(got) = take(&mut consumer, &shared.ring) {
                break got;
            }
            consumer.arm(&shared.ring, NEXT);
            if let Some(got) = take(&mut consumer, &shared.ring) {
                break got;
            }
            shared.eventfd.block();
        };
        assert_eq!(got, 7);
        producer.join().unwrap();
    });
}

/// Without waiting for claimed, unpublished completions, the same consumer sleeps for ever: `peek`
/// instead of `next` is the mutant.
#[test]
#[should_panic(expected = "a wake-up was lost")]
fn without_waiting_for_a_claim_a_wake_up_is_lost() {
    model(|| {
        let (shared, mut consumer) = ring(8);
        let producer = {
            let shared = shared.clone();
            thread::spawn(move || produce(&shared.ring, 7, true).unwrap())
        };
        consumer.arm(&shared.ring, NEXT);
        // SAFETY: the consumer was made with this ring.
        let found = unsafe { consumer.cursor(&shared.ring) }
            .peek()
            .map(|entry| taken(&mut consumer, &shared.ring, &entry))
            .is_some();
        let notified = producer.join().unwrap();
        assert!(found || notified, "a wake-up was lost");
    });
}

/// Writes a message into the mailbox, like `fast_send_inline::post_single`.
fn send(mailbox: &Mailbox, ring: &CqRing, value: u64) -> bool {
    // SAFETY, both: the test sends only when the mailbox is free.
    mailbox.second().body_mut(|body| unsafe { (*body)[0] = value });
    mailbox.first().body_mut(|body| unsafe { (*body)[0] = value });
    mailbox.publish(value, value as u32, true);
    ring.fire(false)
}

/// Takes the message, and checks that it is whole.
fn receive(reader: &mut Reader, mailbox: &Mailbox) -> Option<u64> {
    let entry = reader.take(mailbox)?;
    Some(received(&entry))
}

fn received(entry: &CqEntry<'_>) -> u64 {
    // SAFETY, both: published, and not acknowledged yet.
    let value = entry.first().body(|body| unsafe { (*body)[0] });
    assert_eq!(entry.tag, value as u32);
    assert_eq!(entry.second().body(|body| unsafe { (*body)[0] }), value);
    value
}

#[test]
fn an_armed_consumer_is_woken_or_finds_what_is_in_the_mailbox() {
    model(|| {
        let (shared, mut consumer) = ring(8);
        let (mailbox, mut reader) = (Arc::new(Mailbox::default()), Reader::default());
        let sender = {
            let (shared, mailbox) = (shared.clone(), mailbox.clone());
            thread::spawn(move || {
                if send(&mailbox, &shared.ring, 7) {
                    shared.eventfd.write();
                }
            })
        };
        let got = loop {
            if let Some(got) = receive(&mut reader, &mailbox) {
                break got;
            }
            consumer.arm(&shared.ring, NEXT);
            if let Some(got) = receive(&mut reader, &mailbox) {
                break got;
            }
            shared.eventfd.block();
        };
        assert_eq!(got, 7);
        sender.join().unwrap();
    });
}

/// The mutant arms and doesn't look again.
#[test]
#[should_panic(expected = "a wake-up was lost")]
fn without_looking_again_what_is_in_the_mailbox_is_missed() {
    model(|| {
        let (shared, mut consumer) = ring(8);
        let (mailbox, mut reader) = (Arc::new(Mailbox::default()), Reader::default());
        let sender = {
            let (shared, mailbox) = (shared.clone(), mailbox.clone());
            thread::spawn(move || send(&mailbox, &shared.ring, 7))
        };
        let found = receive(&mut reader, &mailbox).is_some();
        consumer.arm(&shared.ring, NEXT);
        let notified = sender.join().unwrap();
        assert!(found || notified, "a wake-up was lost");
    });
}

/// One message by the mailbox and, without knowing that it was taken, one by the ring. `ring_first`
/// is the consumer's order of looking.
fn mailbox_then_ring(ring_first: bool) {
    model(move || {
        let (shared, mut consumer) = ring(8);
        let (mailbox, mut reader) = (Arc::new(Mailbox::default()), Reader::default());
        let sender = {
            let (shared, mailbox) = (shared.clone(), mailbox.clone());
            thread::spawn(move || {
                send(&mailbox, &shared.ring, 1);
                produce(&shared.ring, 2, false).unwrap();
            })
        };
        let mut got = Vec::new();
        if ring_first {
            // SAFETY: the consumer was made with this ring.
            let next = unsafe { consumer.next(&shared.ring) };
            got.extend(receive(&mut reader, &mailbox));
            got.extend(next.map(|entry| taken(&mut consumer, &shared.ring, &entry)));
        } else {
            got.extend(receive(&mut reader, &mailbox));
            got.extend(take(&mut consumer, &shared.ring));
        }
        sender.join().unwrap();
        got.extend(receive(&mut reader, &mailbox));
        got.extend(take(&mut consumer, &shared.ring));
        assert_eq!(got, [1, 2], "messages came out of order");
    });
}

#[test]
fn looking_at_the_ring_first_keeps_the_order() {
    mailbox_then_ring(true);
}

#[test]
#[should_panic(expected = "messages came out of order")]
fn looking_at_the_mailbox_first_does_not() {
    mailbox_then_ring(false);
}

/// The answer carries the number taken; the mailbox is overwritten only then.
#[test]
fn the_mailbox_is_written_over_once_the_answer_says_so() {
    model(|| {
        let (shared, _) = ring(8);
        let (mailbox, acked) = (Arc::new(Mailbox::default()), Arc::new(AtomicU64::new(0)));
        let sender = {
            let (shared, mailbox, acked) = (shared.clone(), mailbox.clone(), acked.clone());
            thread::spawn(move || {
                send(&mailbox, &shared.ring, 1);
                // Like `Sq::all_polled`.
                while acked.load(Ordering::Acquire) != 1 {
                    thread::yield_now();
                }
                send(&mailbox, &shared.ring, 2);
            })
        };
        let mut reader = Reader::default();
        for value in [1, 2] {
            loop {
                if let Some(got) = receive(&mut reader, &mailbox) {
                    assert_eq!(got, value);
                    break;
                }
                thread::yield_now();
            }
            // Like `Rq::free_up_to`, by way of the answer.
            acked.store(value, Ordering::Release);
        }
        sender.join().unwrap();
    });
}

/// A message in the mailbox is stale once its queue pair was reset. The sender of the new
/// connection overwrites it while the consumer drops it, like `poll::Mail::take`. `after_stale` is
/// the consumer's next action.
fn stale_then_overwritten(after_stale: fn(&mut Reader, &Mailbox)) {
    const PRESENT: u32 = 2;
    model(move || {
        let (shared, _) = ring(8);
        let (mailbox, mut reader) = (Arc::new(Mailbox::default()), Reader::default());
        // Of the connection before: its tag is stale, and its slots are not read.
        mailbox.publish(1, 1, true);
        let sender = {
            let (shared, mailbox) = (shared.clone(), mailbox.clone());
            thread::spawn(move || send(&mailbox, &shared.ring, u64::from(PRESENT)))
        };
        let mut got = Vec::new();
        let mut poll = |reader: &mut Reader| {
            while reader.is_pending(&mailbox) {
                match reader.take(&mailbox) {
                    Some(entry) if entry.tag == PRESENT => got.push(received(&entry)),
                    _ => after_stale(reader, &mailbox),
                }
            }
        };
        poll(&mut reader);
        sender.join().unwrap();
        poll(&mut reader);
        assert_eq!(got, [u64::from(PRESENT)], "a message was lost");
    });
}

#[test]
fn what_is_written_over_stale_mail_is_not_taken_for_it() {
    stale_then_overwritten(|_, _| {});
}

/// The mutant marks the current message as taken, not the one that it looked at.
#[test]
#[should_panic(expected = "a message was lost")]
fn marking_what_is_there_by_then_loses_what_came_over_stale_mail() {
    stale_then_overwritten(|reader, mailbox| _ = reader.take(mailbox));
}

#[test]
fn two_producers_both_get_through_to_a_sleeping_consumer() {
    model(|| {
        let (shared, mut consumer) = ring(8);
        let producers: Vec<_> = (1..=2)
            .map(|value| {
                let shared = shared.clone();
                thread::spawn(move || {
                    if produce(&shared.ring, value, false).unwrap() {
                        shared.eventfd.write();
                    }
                })
            })
            .collect();
        let mut sum = 0;
        while sum < 3 {
            consumer.arm(&shared.ring, NEXT);
            let before = sum;
            while let Some(got) = take(&mut consumer, &shared.ring) {
                sum += got;
            }
            if sum == before {
                shared.eventfd.block();
            }
        }
        assert_eq!(sum, 3);
        producers.into_iter().for_each(|producer| producer.join().unwrap());
    });
}

#[test]
fn one_request_is_one_notification() {
    model(|| {
        let (shared, mut consumer) = ring(8);
        consumer.arm(&shared.ring, SOLICITED);
        consumer.arm(&shared.ring, NEXT);
        let fired = Arc::new(AtomicUsize::new(0));
        let producers: Vec<_> = (1..=2)
            .map(|value| {
                let (shared, fired) = (shared.clone(), fired.clone());
                thread::spawn(move || {
                    if produce(&shared.ring, value, false).unwrap() {
                        fired.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        producers.into_iter().for_each(|producer| producer.join().unwrap());
        assert_eq!(fired.load(Ordering::Relaxed), 1);
        assert_eq!(take(&mut consumer, &shared.ring).unwrap() + take(&mut consumer, &shared.ring).unwrap(), 3);
    });
}

/// A ring of four slots: the second lap may only begin behind the consumer. A refused completion is
/// refused, never torn.
#[test]
fn nothing_is_overwritten_before_it_was_taken() {
    model(|| {
        let (shared, mut consumer) = ring(4);
        let producer = {
            let shared = shared.clone();
            thread::spawn(move || {
                (1..=4).filter(|value| produce(&shared.ring, *value, value % 2 == 0).is_ok()).collect()
            })
        };
        let mut got = Vec::new();
        for _ in 0..3 {
            got.extend(take(&mut consumer, &shared.ring));
            thread::yield_now();
        }
        let sent: Vec<u64> = producer.join().unwrap();
        got.extend(std::iter::from_fn(|| take(&mut consumer, &shared.ring)));
        assert_eq!(got, sent);
    });
}

#[test]
fn a_ring_grows_under_a_producer() {
    model(|| {
        let (shared, mut consumer) = ring(2);
        let producer = {
            let shared = shared.clone();
            thread::spawn(move || (1..=2).filter(|value| produce(&shared.ring, *value, true).is_ok()).collect())
        };
        // SAFETY: made with this ring; producers use no claim after publishing it.
        unsafe { consumer.grow(&shared.ring, 4) };
        let sent: Vec<u64> = producer.join().unwrap();
        assert_eq!(sent.first(), Some(&1));
        let got: Vec<u64> = std::iter::from_fn(|| take(&mut consumer, &shared.ring)).collect();
        assert_eq!(got, sent);
    });
}

/// A sender that runs out of receives, and a receiver that posts one: one of the two delivers.
#[test]
fn a_pending_message_meets_its_receive() {
    struct Link {
        posted: Posted,
        attention: Attention,
        /// The sender's pending message, and the number of consumed receives.
        pending: SpinLock<(bool, u64)>,
        delivered: AtomicU64,
    }
    fn progress(link: &Link) {
        loop {
            let mut pending = link.pending.lock();
            if !pending.0 {
                return link.attention.lower(WAITING);
            }
            if link.posted.read() > pending.1 {
                *pending = (false, pending.1 + 1);
                link.delivered.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            let news = link.attention.raise(WAITING);
            drop(pending);
            if !news {
                return;
            }
            Attention::settle();
        }
    }
    model(|| {
        let link = Arc::new(Link {
            posted: Posted::new(),
            attention: Attention::new(),
            pending: SpinLock::new((false, 0)),
            delivered: AtomicU64::new(0),
        });
        let receiver = {
            let link = link.clone();
            thread::spawn(move || {
                if link.posted.publish(1, &link.attention) & WAITING != 0 {
                    progress(&link);
                }
            })
        };
        link.pending.lock().0 = true;
        progress(&link);
        receiver.join().unwrap();
        assert_eq!(link.delivered.load(Ordering::Relaxed), 1);
    });
}

/// A receive posted while its queue is being flushed is flushed once, by the poster or by the
/// flusher.
#[test]
fn a_receive_is_flushed_once() {
    struct Queue {
        posted: Posted,
        attention: Attention,
        head: SpinLock<u64>,
        flushed: AtomicU64,
    }
    fn flush(queue: &Queue) {
        let mut head = queue.head.lock();
        while *head < queue.posted.read() {
            *head += 1;
            queue.flushed.fetch_add(1, Ordering::Relaxed);
        }
    }
    model(|| {
        let queue = Arc::new(Queue {
            posted: Posted::new(),
            attention: Attention::new(),
            head: SpinLock::new(0),
            flushed: AtomicU64::new(0),
        });
        let poster = {
            let queue = queue.clone();
            thread::spawn(move || {
                for count in 1..=2 {
                    if queue.posted.publish(count, &queue.attention) & FLUSHING != 0 {
                        flush(&queue);
                    }
                }
            })
        };
        queue.attention.raise(FLUSHING);
        Attention::settle();
        flush(&queue);
        poster.join().unwrap();
        assert_eq!(queue.flushed.load(Ordering::Relaxed), 2);
    });
}

/// A grant with its number in every part.
fn numbered(number: u32) -> Grant {
    let wide = u64::from(number);
    Grant { pd: number, access: number, start: wide, len: wide, offset: wide, qpn: number, parent: number }
}

/// A window is bound anew, for another key and then for the first again, while another thread looks
/// the first up.
#[test]
fn a_key_stands_for_one_grant_or_for_nothing() {
    model(|| {
        const KEY: u32 = 0x101;
        let entry = Arc::new(KeyEntry::default());
        entry.set(KEY, &numbered(1));
        let binder = {
            let entry = entry.clone();
            thread::spawn(move || {
                assert!(entry.clear(KEY));
                entry.set(KEY + 1, &numbered(2));
                assert!(entry.clear(KEY + 1));
                entry.set(KEY, &numbered(3));
            })
        };
        let read = entry.read(KEY);
        assert!([None, Some(numbered(1)), Some(numbered(3))].contains(&read), "a mixture: {read:?}");
        binder.join().unwrap();
        assert_eq!(entry.read(KEY), Some(numbered(3)));
    });
}
