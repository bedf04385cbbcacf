//! Programs that sleep until their completion queue wakes them, without polling meanwhile.

use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use verbline_verbs::connection::Connection;
use verbline_verbs::{ArmedCq, CompletionChannel, Notify, Status, WrKind};

use crate::common::{self, PATIENCE, Side};
use crate::other::Other;
use crate::{connect, own, side};

/// Whether an event comes within `seconds`.
fn wakes_within(channel: &CompletionChannel, seconds: i64) -> bool {
    let mut fds = [PollFd::new(channel, PollFlags::IN)];
    rustix::event::poll(&mut fds, Some(&Timespec { tv_sec: seconds, tv_nsec: 0 })) == Ok(1)
}

/// Another process in this role, and this side of a connection to it, whose completion queue is
/// armed and empty.
fn armed(role: &str) -> (Other, Side, Connection, CompletionChannel, ArmedCq) {
    let mut other = Other::start(role);
    let mut side = side(own(), true);
    let connection = connect(&mut side, other.listens(), 4);
    other.says("region");
    let channel = side.channel.take().unwrap();
    let armed = side.cq.arm(Notify::Next).unwrap();
    assert_eq!(side.cq.poll(&mut side.completions), 0);
    (other, side, connection, channel, armed)
}

#[test]
fn who_sleeps_is_woken_by_what_comes_from_elsewhere() {
    let (mut other, mut side, connection, mut channel, armed) = armed("late");
    other.tell("now");
    // Nobody polls from here on.
    assert!(wakes_within(&channel, 10), "the channel is readable");
    channel.take_events(armed).unwrap();
    assert_eq!(side.receive(1)[0].data(), b"late");
    drop(connection);
    other.ends_well();
}

/// Regression: a send posted after the completion queue was armed was due at a time unknown to the
/// wire's thread. If nothing came, the thread slept on: the send was neither repeated nor failed.
#[test]
fn what_is_posted_behind_arming_to_a_silent_peer_wakes_who_sleeps_within_the_retries() {
    let (other, mut side, connection, mut channel, armed) = armed("wait");
    // The thread falls asleep.
    std::thread::sleep(Duration::from_millis(300));
    other.stops();
    let began = Instant::now();
    // Neither is signaled. The second may be one that requests no acknowledgement itself.
    side.send(b"one");
    side.send(b"two");
    // Seven retries of a quarter of a second; the peer would be given up after ten seconds anyway.
    assert!(wakes_within(&channel, 8), "nobody is woken");
    assert!(began.elapsed() > Duration::from_secs(1), "{:?}", began.elapsed());
    channel.take_events(armed).unwrap();
    let mut sends = Vec::new();
    while sends.len() < 2 {
        assert!(began.elapsed() < Duration::from_secs(20), "{sends:?}");
        side.poll(|qp, freed, completion| {
            if completion.kind() == WrKind::Send {
                sends.push(completion.status());
            }
            common::hand_back(qp, freed, completion);
        });
    }
    assert_eq!(sends, [Status::RETRY_EXC_ERR, Status::WR_FLUSH_ERR]);
    drop(connection);
}

/// CPU time of the wire's thread, in hundredths of a second.
fn thread_ticks() -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path());
    let own = |path: &std::path::PathBuf| std::fs::read_to_string(path.join("comm")).unwrap() == "vl-wire-soft0\n";
    let stat = std::fs::read_to_string(tasks.into_iter().find(own).unwrap().join("stat")).unwrap();
    // proc_pid_stat(5): fields 14 and 15, counted behind the name.
    stat.rsplit_once(')')
        .unwrap()
        .1
        .split_whitespace()
        .skip(11)
        .take(2)
        .map(|ticks| ticks.parse::<u64>().unwrap())
        .sum()
}

/// Regression: if a program polled a message whose acknowledgement was delayed, and did no more,
/// the wire's thread took turn after turn until the next poll.
#[test]
fn who_computes_on_what_it_was_given_leaves_the_thread_asleep() {
    let mut other = Other::start("echo");
    let mut side = side(own(), false);
    let mut connection = connect(&mut side, other.listens(), 16);
    connection.wait_established(PATIENCE).unwrap();
    let before = thread_ticks();
    // One answer in four is signaled, so that its acknowledgement is awaited.
    for number in 0..8_u8 {
        side.send(&[number]);
        assert_eq!(side.receive(1)[0].data(), [number]);
        std::thread::sleep(Duration::from_millis(300));
    }
    let ticks = thread_ticks() - before;
    assert!(ticks < 10, "{ticks} hundredths of a second of 240");
    drop(connection);
    other.ends_well();
}
