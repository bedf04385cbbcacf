//! A QP that is reset and reconnected starts afresh: it receives nothing of the old connection, and
//! loses nothing of the new one.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

use crate::common::{Options, PATIENCE, Side, bring_up, hand_back, init_spec, only_soft, spec};
use verbline_verbs::{
    CompletionQueue, Endpoint, InitSpec, QpSpec, SendOptions, Transport,
    rdma::{PeerMr, Remote},
};

/// The number of reconnections of two QPs. A model proves the race itself (`verbline-sync`,
/// `tests/loom.rs`); this test exercises it through all layers above.
const ROUNDS: u64 = 4_000;

/// A barrier of two threads: the first to arrive waits for the other.
#[derive(Default)]
struct Meeting(AtomicU64);

impl Meeting {
    fn wait(&self, times: u64) {
        // AcqRel, paired with Acquire below: each thread sees what the other did before.
        self.0.fetch_add(1, Ordering::AcqRel);
        let deadline = Instant::now() + PATIENCE;
        let mut turns = 0;
        while self.0.load(Ordering::Acquire) < 2 * times {
            // Both leave at once, but the other side may need this very CPU.
            turns += 1;
            if turns > 2_000 {
                std::thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
            assert!(Instant::now() < deadline, "the other side is gone");
        }
    }
}

/// A side whose sends complete into a queue of their own: so the poll for receives polls for
/// nothing else.
struct Half {
    side: Side,
    sends: CompletionQueue,
    memory: PeerMr,
}

impl Half {
    fn new(device: &'static str, options: &Options) -> Half {
        let mut side = Side::new(device, options, 0);
        let sends = side.context.create_cq(options.cq_depth_wc, None).unwrap();
        side.qp = side.pd.create_qp(&QpSpec { send_cq: &sends, ..spec(options, &side.cq, 0) }).unwrap();
        let memory = side.peer_region(64, options.access);
        let mut half = Half { side, sends, memory };
        half.initialise(options);
        half
    }

    fn initialise(&mut self, options: &Options) {
        self.side.qp.to_init(&InitSpec { access: options.access, ..init_spec() }).unwrap();
    }

    /// Leaves the connection for a new one. Returns the new PSN.
    fn begin_again(&mut self, options: &Options) -> u32 {
        self.side.qp.to_reset().unwrap();
        self.initialise(options);
        self.side.qp.endpoint().psn
    }

    fn connect(&mut self, options: &Options, peer: Endpoint, psn: u32) {
        bring_up(&mut self.side, &Endpoint { psn, ..peer }, options);
        self.side.post_recvs(2);
    }

    /// The first message of a connection, one-sided: the receiver's queue and its mailbox stay
    /// unchanged.
    fn write_first(&mut self, transport: Transport, to: Remote) {
        let (packet, qp) = (self.side.packet(b"first"), &mut self.side.qp);
        match transport {
            Transport::Rc => qp.rc().unwrap().write(packet, to, SendOptions::default()).unwrap(),
            _ => qp.uc().unwrap().write(packet, to, SendOptions::default()).unwrap(),
        }
        self.wait_for_sends();
    }

    fn send(&mut self, bytes: &[u8]) {
        self.side.send(bytes);
        self.wait_for_sends();
    }

    fn wait_for_sends(&mut self) {
        let Side { qp, completions, freed, .. } = &mut self.side;
        let deadline = Instant::now() + PATIENCE;
        while qp.sends_outstanding() > 0 {
            assert!(Instant::now() < deadline, "the sends complete");
            self.sends.poll(completions);
            for completion in &*completions {
                hand_back(qp, freed, completion);
            }
        }
    }
}

/// The number of messages to B that never came. Each races with the poll that finds leftovers of an
/// earlier connection.
fn lost(transport: Transport) -> u64 {
    let options = Options { signal_every_wr: 1, ..Options::new(transport) };
    let (mut a, mut b) = (Half::new("soft0", &options), Half::new("soft1", &options));
    let (to_a, to_b) = (a.side.qp.endpoint(), b.side.qp.endpoint());
    let (a_memory, b_memory) = (a.memory.remote(0), b.memory.remote(0));
    let (told, begin, end) = (Meeting::default(), Meeting::default(), Meeting::default());
    let (a_psn, b_psn) = (AtomicU32::new(0), AtomicU32::new(0));
    let (posted, mut lost) = (AtomicU64::new(0), 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1..=ROUNDS {
                // Relaxed, all four: the threads meet in between.
                a_psn.store(a.begin_again(&options), Ordering::Relaxed);
                told.wait(round);
                a.connect(&options, to_b, b_psn.load(Ordering::Relaxed));
                begin.wait(2 * round - 1);
                a.write_first(transport, b_memory);
                // It means that B has polled everything, so A's next message goes through the
                // mailbox, where something stale lies.
                assert_eq!(a.side.receive(1).len(), 1);
                let mut raced = a.side.batch([b"raced".as_slice()]);
                begin.wait(2 * round);
                wait_a_little(round % 16);
                assert_eq!(a.side.qp.post_send(&mut raced).posted, 1);
                posted.store(round, Ordering::Release);
                a.wait_for_sends();
                end.wait(2 * round - 1);
                // If it came it was answered: then this one goes through the mailbox too, and is
                // left there for the next round.
                if a.side.poll(hand_back) == 1 {
                    a.send(b"stale");
                }
                end.wait(2 * round);
            }
        });
        for round in 1..=ROUNDS {
            b_psn.store(b.begin_again(&options), Ordering::Relaxed);
            told.wait(round);
            b.connect(&options, to_a, a_psn.load(Ordering::Relaxed));
            begin.wait(2 * round - 1);
            b.write_first(transport, a_memory);
            b.send(b"go on");
            begin.wait(2 * round);
            wait_a_little(round / 16 % 16);
            let came = loop {
                // Acquire pairs with A's Release: the poll that follows finds everything posted
                // before it.
                let is_posted = posted.load(Ordering::Acquire) == round;
                if b.side.poll(hand_back) == 1 {
                    break true;
                } else if is_posted {
                    break false;
                }
            };
            if came {
                b.send(b"came");
            }
            lost += u64::from(!came);
            end.wait(2 * round - 1);
            end.wait(2 * round);
        }
    });
    lost
}

/// Waits, so that each instruction of one side meets each of the other.
fn wait_a_little(turns: u64) {
    (0..turns).for_each(|_| std::hint::spin_loop());
}

#[test]
fn two_lcores_lose_nothing_that_comes_over_what_was_left() {
    only_soft!("it is about what the software RNIC keeps of a connection that is over");
    for transport in [Transport::Rc, Transport::Uc] {
        assert_eq!(lost(transport), 0, "messages lost in {ROUNDS} connections on {transport}");
    }
}
