//! A snapshot being fetched: the parts received, and those requested.

use super::request::Request;
use super::snapshot::SnapshotName;

/// Requests of one snapshot in flight, while answers come and in order.
const WINDOW: u64 = 8;

/// How often the same part is requested.
const TRIES: u32 = 4;

/// A snapshot that is being fetched.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fetch {
    pub(super) name: SnapshotName,
    /// The number of the next message of the snapshot.
    expected: u64,
    /// One past the last message requested; at least `expected`.
    asked: u64,
    /// Messages per request.
    chunk: u16,
    /// The greatest number of requests in flight.
    window: u64,
    /// How often the next part was requested again.
    again: u32,
    deadline_ns: u64,
}

impl Fetch {
    pub(super) fn new(name: SnapshotName, chunk: u16, deadline_ns: u64) -> Fetch {
        Fetch { name, expected: 1, asked: 1, chunk, window: 1, again: 0, deadline_ns }
    }

    /// Requests the next part again after a time-out, and from here on one part at a time. Returns
    /// false if the tries are used up.
    pub(super) fn ask_again(&mut self, deadline_ns: u64) -> bool {
        self.again += 1;
        (self.asked, self.window, self.deadline_ns) = (self.expected, 1, deadline_ns);
        self.again < TRIES
    }

    pub(super) fn deadline_ns(&self) -> u64 {
        self.deadline_ns
    }

    /// The next request to send. The first one opens the snapshot, and is sent alone.
    pub(super) fn next_request(&mut self) -> Option<Request> {
        if self.asked - self.expected >= self.window * u64::from(self.chunk) {
            return None;
        }
        let request = Request { session: self.name.session(), sequence: self.asked, count: self.chunk };
        self.asked += u64::from(self.chunk);
        Some(request)
    }

    /// Whether messages with these numbers are the next ones. If so, `deadline_ns` becomes the
    /// deadline of those that follow.
    pub(super) fn takes(&mut self, first: u64, count: u16, deadline_ns: u64) -> bool {
        if first != self.expected || count == 0 {
            return false;
        }
        if self.expected == 1 {
            self.window = WINDOW;
        }
        self.expected += u64::from(count);
        (self.deadline_ns, self.again) = (deadline_ns, 0);
        // A late answer, to a request before the repetition, may be ahead of `asked`.
        self.asked = self.asked.max(self.expected);
        if count < self.chunk {
            // No more messages fit into an answer, or it was the last: the next part begins
            // elsewhere.
            self.chunk = count;
            self.asked = self.expected;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_is_asked_for_ahead_and_in_the_servers_portions() {
        let name = SnapshotName { locate: 3, number: 1 };
        let mut fetch = Fetch::new(name, 10, 5);
        let asked = |fetch: &mut Fetch| {
            let asked = std::iter::from_fn(|| fetch.next_request()).map(|request| (request.sequence, request.count));
            Vec::from_iter(asked)
        };
        assert_eq!(asked(&mut fetch), [(1, 10)], "the first one alone");
        assert!(!fetch.takes(2, 10, 6) && !fetch.takes(1, 0, 6) && fetch.deadline_ns() == 5);
        assert!(fetch.takes(1, 10, 6) && fetch.deadline_ns() == 6);
        assert_eq!(asked(&mut fetch), Vec::from_iter((0..8).map(|chunk| (11 + 10 * chunk, 10))));
        assert!(fetch.takes(11, 4, 7), "no more fit");
        assert_eq!(asked(&mut fetch)[..2], [(15, 4), (19, 4)]);
        assert!(!fetch.takes(21, 10, 8) && fetch.takes(15, 4, 8));
        // A part that does not come is requested again, alone.
        assert!(fetch.ask_again(9) && fetch.deadline_ns() == 9);
        assert_eq!(asked(&mut fetch), [(19, 4)]);
        assert!(fetch.ask_again(10) && fetch.ask_again(11) && !fetch.ask_again(12));
    }

    #[test]
    fn answers_that_come_late_are_taken_and_what_follows_them_is_asked_for() {
        let mut fetch = Fetch::new(SnapshotName { locate: 3, number: 1 }, 10, 5);
        assert!(fetch.next_request().is_some() && fetch.takes(1, 10, 6));
        assert_eq!(std::iter::from_fn(|| fetch.next_request()).count(), 8);
        // Nothing came in time, and the next part is requested again; then all parts come.
        assert!(fetch.ask_again(9));
        for part in 0..8 {
            assert!(fetch.takes(11 + 10 * part, 10, 10), "part {part}");
        }
        assert_eq!(fetch.next_request().map(|request| request.sequence), Some(91));
    }
}
