//! One snapshot on its way: what of it has come, and what is asked for.

use super::request::Request;
use super::snapshot::SnapshotName;

/// Requests of one snapshot under way at once, while every answer comes, and in order.
const WINDOW: u64 = 8;

/// How often the same part is asked for.
const TRIES: u32 = 4;

/// A snapshot that is being fetched.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fetch {
    pub(super) name: SnapshotName,
    /// The number of the next message of the snapshot.
    expected: u64,
    /// One past the last that was asked for; not before `expected`.
    asked: u64,
    /// Messages of one request.
    chunk: u16,
    /// Requests under way at most.
    window: u64,
    /// How often the next part was asked for once more.
    again: u32,
    deadline_ns: u64,
}

impl Fetch {
    pub(super) fn new(name: SnapshotName, chunk: u16, deadline_ns: u64) -> Fetch {
        Fetch { name, expected: 1, asked: 1, chunk, window: 1, again: 0, deadline_ns }
    }

    /// The next part has not come in time: it is asked for once more, and from here on one part at
    /// a time. False if that was done often enough.
    pub(super) fn ask_again(&mut self, deadline_ns: u64) -> bool {
        self.again += 1;
        (self.asked, self.window, self.deadline_ns) = (self.expected, 1, deadline_ns);
        self.again < TRIES
    }

    pub(super) fn deadline_ns(&self) -> u64 {
        self.deadline_ns
    }

    /// The next request to send. The first one opens the snapshot, and is answered alone.
    pub(super) fn next_request(&mut self) -> Option<Request> {
        if self.asked - self.expected >= self.window * u64::from(self.chunk) {
            return None;
        }
        let request = Request { session: self.name.session(), sequence: self.asked, count: self.chunk };
        self.asked += u64::from(self.chunk);
        Some(request)
    }

    /// Whether messages with these numbers are the next ones. If they are, the fetch has until
    /// `deadline_ns` for those that follow.
    pub(super) fn takes(&mut self, first: u64, count: u16, deadline_ns: u64) -> bool {
        if first != self.expected || count == 0 {
            return false;
        }
        if self.expected == 1 {
            self.window = WINDOW;
        }
        self.expected += u64::from(count);
        (self.deadline_ns, self.again) = (deadline_ns, 0);
        // The answer may be a late one, to what was asked for before it was asked for again.
        self.asked = self.asked.max(self.expected);
        if count < self.chunk {
            // No more fit into an answer, or it was the last: what follows begins elsewhere.
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
        // What does not come is asked for again, alone.
        assert!(fetch.ask_again(9) && fetch.deadline_ns() == 9);
        assert_eq!(asked(&mut fetch), [(19, 4)]);
        assert!(fetch.ask_again(10) && fetch.ask_again(11) && !fetch.ask_again(12));
    }

    #[test]
    fn answers_that_come_late_are_taken_and_what_follows_them_is_asked_for() {
        let mut fetch = Fetch::new(SnapshotName { locate: 3, number: 1 }, 10, 5);
        assert!(fetch.next_request().is_some() && fetch.takes(1, 10, 6));
        assert_eq!(std::iter::from_fn(|| fetch.next_request()).count(), 8);
        // Nothing came in time, and the next part is asked for once more; then all of it comes.
        assert!(fetch.ask_again(9));
        for part in 0..8 {
            assert!(fetch.takes(11 + 10 * part, 10, 10), "part {part}");
        }
        assert_eq!(fetch.next_request().map(|request| request.sequence), Some(91));
    }
}
