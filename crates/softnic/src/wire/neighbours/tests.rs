//! Two neighbours of one address, in one process.

use super::*;
use crate::wire::counters::LinkCounters;
use crate::wire::socket::tests::address;
use std::net::SocketAddr;

/// A neighbour with an address of its own, and the number of its slice.
fn neighbour(last: u8) -> (Neighbours, u32) {
    let own = address(last);
    let slice = claim_slice(own.ip(), 0).expect("a name").expect("a slice");
    let number = slice.number;
    let link = Arc::new(Link::open(own).expect("an address that is shared"));
    (Neighbours::new(&link, slice).expect("descriptors"), number)
}

/// All datagrams that others have passed on: sender and length.
fn all(neighbours: &mut Neighbours) -> Vec<(SocketAddr, Vec<u8>)> {
    let mut all = Vec::new();
    // The first look accepts the connections.
    for _ in 0..4 {
        neighbours.look(true);
        while let Some(PassedOn { from, datagrams }) = neighbours.next() {
            all.extend(datagrams.map(|datagram| (from, datagram.to_vec())));
        }
    }
    all
}

fn sender(last: u8) -> SocketAddr {
    ([10, 1, 2, last], 4791).into()
}

#[test]
fn runs_are_passed_on_as_they_came_to_who_has_the_slice() {
    let ((mut a, _), (mut b, slice)) = (neighbour(21), neighbour(21));
    let bytes: Vec<u8> = (0..2500u32).map(|index| index as u8).collect();
    let first = bytes.chunks(1000).map(|part| a.add(0, slice, sender(1), part)).sum::<u64>();
    assert_eq!(first + a.add(0, slice, sender(2), &bytes[..7]) + a.flush(0), 0, "all of it is for somebody");
    let got = all(&mut b);
    assert_eq!(
        got.iter().map(|(from, part)| (*from, part.len())).collect::<Vec<_>>(),
        [(sender(1), 1000), (sender(1), 1000), (sender(1), 500), (sender(2), 7)]
    );
    assert_eq!(got[..3].iter().flat_map(|(_, part)| part.clone()).collect::<Vec<_>>(), bytes);
    assert_eq!((a.counters().values().passed_on, b.counters().values().taken_over), (4, 4));
}

#[test]
fn what_is_for_nobody_is_told_and_who_comes_later_has_the_slice() {
    let ((mut a, _), (b, slice)) = (neighbour(22), neighbour(22));
    drop(b);
    let now_ns = ABSENT_NS;
    assert_eq!(a.add(now_ns, slice, sender(1), &[1]) + a.add(now_ns, slice, sender(1), &[2]), 0);
    assert_eq!(a.flush(now_ns), 2);
    assert!(!a.pass(now_ns, 0, sender(1), &[1]), "the first slice is nobody's");
    let (mut b, again) = neighbour(22);
    assert_eq!(again, slice, "its name is free");
    // A missing process is not looked for at each datagram.
    assert_eq!(a.add(now_ns + 1, slice, sender(1), &[3]) + a.flush(now_ns + 1), 1);
    assert!(a.pass(2 * now_ns, slice, sender(1), &[4]));
    assert_eq!(all(&mut b), [(sender(1), vec![4])]);
    drop(b);
    // The channel leads to a process that has ended.
    assert!(!a.pass(2 * now_ns + 1, slice, sender(1), &[5]));
    let (mut b, _) = neighbour(22);
    assert!(a.pass(3 * now_ns + 1, slice, sender(1), &[6]));
    assert_eq!(all(&mut b), [(sender(1), vec![6])]);
}

#[test]
fn one_that_lags_behind_costs_what_is_for_it_and_is_counted() {
    let ((mut a, _), (mut b, slice)) = (neighbour(23), neighbour(23));
    let sent = 20_000;
    assert!((0..sent).all(|_| a.pass(0, slice, sender(1), &[7; 4096])));
    let LinkCounters { passed_on, neighbour_full, .. } = a.counters().values();
    assert!(neighbour_full > 0 && passed_on + neighbour_full == sent, "{passed_on} + {neighbour_full}");
    // A turn takes its maximum, and the rest waits.
    b.look(true);
    b.look(true);
    assert_eq!(std::iter::from_fn(|| b.next().map(drop)).count(), MESSAGES_MAX);
}

/// Regression: a process that always had more to pass on than a turn takes kept others' datagrams
/// waiting all the time.
#[test]
fn one_that_passes_on_much_keeps_no_other_waiting() {
    let ((mut a, _), (mut b, slice), (mut c, _)) = (neighbour(28), neighbour(28), neighbour(28));
    assert!([&mut a, &mut c].into_iter().all(|one| one.pass(0, slice, sender(9), &[9])));
    assert_eq!(all(&mut b).len(), 2);
    for _ in 0..2 {
        std::mem::swap(&mut a, &mut c);
        // Either may be the first to have something.
        assert!(c.pass(0, slice, sender(2), &[2]));
        assert!((0..2 * MESSAGES_MAX).all(|_| a.pass(0, slice, sender(1), &[1])));
        b.look(true);
        let first: Vec<_> = std::iter::from_fn(|| b.next().map(|came| came.from)).collect();
        assert!(first.contains(&sender(2)), "{first:?}");
        all(&mut b);
    }
}

#[test]
fn a_request_goes_to_who_listens_and_only_one_does() {
    let ((mut a, _), (mut b, _)) = (neighbour(24), neighbour(24));
    let request = |a: &mut Neighbours| {
        a.look(true);
        a.offer(0x0106_1234, sender(1), b"request")
    };
    assert!(!request(&mut a));
    b.listen(0x0106_1234).expect("nobody else does");
    let taken = a.listen(0x0106_1234).expect_err("somebody does");
    assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
    assert!(request(&mut a) && request(&mut a));
    assert_eq!(all(&mut b), vec![(sender(1), b"request".to_vec()); 2]);
    // An undecided request may come once more.
    b.stop_listening(0x0106_1234);
    assert!(b.has_leaving() && request(&mut a));
    assert_eq!(all(&mut b).len(), 1);
    b.leave();
    assert!(!request(&mut a));
    a.listen(0x0106_1234).expect("nobody does");
}

#[test]
fn a_turn_offers_only_so_many_requests() {
    let ((mut a, _), (mut b, _)) = (neighbour(25), neighbour(25));
    b.listen(1).expect("nobody else does");
    a.look(true);
    assert!((0..2 * OFFERS_MAX).all(|_| a.offer(1, sender(1), b"request")));
    assert_eq!(all(&mut b).len(), OFFERS_MAX);
    assert_eq!(a.counters().values().neighbour_full, OFFERS_MAX as u64);
}

#[test]
fn what_is_no_message_of_a_neighbour_changes_nothing() {
    let ((mut b, slice), own) = (neighbour(26), address(26).ip());
    let other = Channel::to(&name_of_slice(own, slice)).expect("a name that is taken");
    // Too short, and with datagrams of no length.
    for message in [&[1; 5][..], &[0; HEADER_BYTES + 9], &[0; HEADER_BYTES]] {
        other.send(message).expect("sent");
    }
    assert_eq!(all(&mut b), []);
    other.send(&[1; HEADER_BYTES]).expect("sent");
    assert_eq!(all(&mut b), [], "no datagrams are none");
}

/// For this thread alone, which ends after it: libc's own function would change all threads.
fn become_another_user() {
    // SAFETY: numbers alone.
    let ret = unsafe { libc::syscall(libc::SYS_setresuid, 65_534, 65_534, 65_534) };
    assert_eq!(ret, 0);
}

#[test]
fn a_process_of_another_user_neither_gets_nor_gives_anything() {
    // SAFETY: it has no arguments.
    if unsafe { libc::geteuid() } != 0 {
        return println!("skipped: becoming another user needs root");
    }
    let ((mut b, slice), own) = (neighbour(27), address(27));
    let at_slice = name_of_slice(own.ip(), slice);
    let strange = std::thread::spawn(move || {
        become_another_user();
        // The other user can't have the address, nor pass anything on.
        let shared = Link::open(own).expect_err("another user's").kind();
        let passed = Channel::to(&at_slice).expect_err("another user's").kind();
        // A slice of the other user's gets nothing.
        let slice = claim_slice(own.ip(), 0).expect("a name").expect("a slice");
        (shared, passed, slice)
    });
    let (shared, passed, theirs) = strange.join().expect("no panic");
    assert_eq!((shared, passed), (io::ErrorKind::AddrInUse, io::ErrorKind::PermissionDenied));
    assert!(!b.pass(0, theirs.number, sender(1), b"secret"));
    let seen = theirs.seat.accept().map(|accepted| accepted.map(drop));
    assert!(matches!(seen, Some(Ok(()))), "the connection is there, and empty: {seen:?}");
    // It connects all the same, without checking whom it reaches.
    assert_eq!(all(&mut b), []);
    assert_eq!(b.counters().values().foreign, 1);
}

/// Set in the process without descriptors, for this test.
const ALONE: &str = "VERBLINE_TEST_WITHOUT_DESCRIPTORS";

/// Regression: a process that connected while this one had no descriptors left kept the wire's
/// thread awake until there were some.
#[test]
fn who_connects_while_there_are_no_descriptors_is_turned_away() {
    // The limit is for the whole process.
    if std::env::var_os(ALONE).is_none() {
        let name = "wire::neighbours::tests::who_connects_while_there_are_no_descriptors_is_turned_away";
        let mut alone = std::process::Command::new(std::env::current_exe().expect("a path"));
        let alone = alone.args(["--exact", name, "--nocapture"]).env(ALONE, "1").output().expect("started");
        let said = String::from_utf8_lossy(&alone.stdout);
        assert!(
            alone.status.success() && said.contains("1 passed"),
            "{said}{}",
            String::from_utf8_lossy(&alone.stderr)
        );
        return;
    }
    let ((mut a, _), (mut b, slice)) = (neighbour(29), neighbour(29));
    assert!(a.pass(0, slice, sender(1), &[1]));
    let few = libc::rlimit { rlim_cur: 64, rlim_max: 64 };
    // SAFETY: setrlimit(2) reads the local only during the call.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const few) }, 0);
    let mut taken: Vec<_> = std::iter::from_fn(|| b.any.as_fd().try_clone_to_owned().ok()).collect();
    let mut others = Vec::new();
    for _ in 0..2 {
        b.look(true);
        assert_eq!((b.any.readable().count(), b.from.len()), (0, 0), "nobody waits any longer");
        // Another process connects, by the last descriptor.
        taken.pop();
        others.push(Channel::to(&name_of_slice(address(29).ip(), slice)).expect("a name that is taken"));
    }
    b.look(true);
    drop(taken);
    // The process that was turned away comes again.
    assert!(!a.pass(1, slice, sender(1), &[2]) && a.pass(ABSENT_NS, slice, sender(1), &[3]));
    assert_eq!(all(&mut b), [(sender(1), vec![3])]);
}
