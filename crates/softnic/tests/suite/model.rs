//! Generated sequences of posts, polls, modifications, destruction and creation, compared with a
//! small oracle.
//!
//! One thread, so that results are deterministic: `rnr_retry` 7 and no ACK time-out, so that
//! nothing depends on time. Four ends on two devices, for each transport, with receive queues of
//! their own and with shared ones.
mod apply;
mod oracle;
mod real;
mod steps;

use apply::apply;
use oracle::{DEPTH, Oracle};
use proptest::prelude::*;
use real::Real;
use steps::*;

fn run(transport: Transport, shared: bool, steps: &[Step]) -> Result<(), TestCaseError> {
    let mut oracle = Oracle::new(transport, shared);
    let mut real = Real::new(transport, shared);
    for end in [0, 2] {
        apply(&mut oracle, &mut real, &Step::Connect { end })?;
    }
    for step in steps {
        apply(&mut oracle, &mut real, step)?;
    }
    // In the end all due completions are there, and no others.
    for end in 0..ENDS {
        apply(&mut oracle, &mut real, &Step::PollSend { end, count: 200 })?;
        apply(&mut oracle, &mut real, &Step::PollRecv { end, count: 200 })?;
        prop_assert!(oracle.ends[end].send_due.is_empty() && oracle.ends[end].recv_due.is_empty());
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, max_shrink_iters: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn rc_does_what_the_oracle_says(steps in steps(Transport::Rc)) {
        run(Transport::Rc, false, &steps)?;
    }

    #[test]
    fn rc_with_shared_receives_does_what_the_oracle_says(steps in steps(Transport::Rc)) {
        run(Transport::Rc, true, &steps)?;
    }

    #[test]
    fn uc_does_what_the_oracle_says(steps in steps(Transport::Uc)) {
        run(Transport::Uc, false, &steps)?;
    }

    #[test]
    fn uc_with_shared_receives_does_what_the_oracle_says(steps in steps(Transport::Uc)) {
        run(Transport::Uc, true, &steps)?;
    }

    #[test]
    fn ud_does_what_the_oracle_says(steps in steps(Transport::Ud)) {
        run(Transport::Ud, false, &steps)?;
    }

    #[test]
    fn ud_with_shared_receives_does_what_the_oracle_says(steps in steps(Transport::Ud)) {
        run(Transport::Ud, true, &steps)?;
    }
}

/// Found by the sequences: the key of a WRITE that waits for a receive is void when a refused post,
/// for lack of room, makes it try again.
#[test]
fn a_post_without_room_lets_what_waits_try_again() {
    let post = |end, works: &[Work]| {
        let works = works.iter().map(|work| (*work, Flaw::None)).collect();
        Step::Post(Post { end, signal_every: 1, inline: false, to: 0, works })
    };
    let send = Work::Send { len: 0, imm: false };
    let write = Work::Write { at: 0, len: 1, imm: true, through: true };
    let steps = [
        post(1, &[Work::Bind]),
        post(0, &[write]),
        post(0, &[send; DEPTH - 1]),
        post(1, &[Work::LocalInv { beside: false }]),
        post(0, &[send]),
    ];
    run(Transport::Rc, false, &steps).unwrap();
}

/// Found by the sequences, too: the same, when a poll makes it try again.
#[test]
fn a_poll_lets_what_waits_try_again() {
    let post =
        |end, work| Step::Post(Post { end, signal_every: 1, inline: false, to: 0, works: vec![(work, Flaw::None)] });
    let steps = [
        post(1, Work::Bind),
        post(0, Work::Write { at: 0, len: 1, imm: true, through: true }),
        post(1, Work::LocalInv { beside: false }),
        Step::PollSend { end: 0, count: 1 },
    ];
    run(Transport::Rc, false, &steps).unwrap();
}
