//! The requests for missing messages in flight.

use super::ring::MessageRing;

/// The greatest number of requests in flight.
pub(super) const ASKS: usize = 8;

/// The parameters of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct AskSpec {
    /// Messages per request.
    pub(super) chunk: u16,
    /// The time-out of the first request; each repetition doubles it.
    pub(super) timeout_ns: u64,
    /// How often the same messages are requested.
    pub(super) tries: u32,
}

#[derive(Debug, Clone, Copy)]
struct Ask {
    first: u64,
    end: u64,
    tries: u32,
    /// When the request was sent last, plus the time-out; `None` before it is sent.
    deadline_ns: Option<u64>,
}

/// The same messages were requested as often as allowed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Exhausted;

/// Requests for the missing numbers between `next` and `end`.
pub(super) struct Asks {
    spec: AskSpec,
    under_way: [Option<Ask>; ASKS],
    /// Missing numbers before this one have come since, or are in a request.
    scan: u64,
}

impl Asks {
    pub(super) fn new(spec: AskSpec) -> Asks {
        Asks { spec, under_way: [None; ASKS], scan: 0 }
    }

    /// Drops all requests; missing numbers from `at` on are not yet requested.
    pub(super) fn restart(&mut self, at: u64) {
        (self.under_way, self.scan) = ([None; ASKS], at);
    }

    /// Updates the requests: removes the numbers that have come, and marks requests that timed out
    /// for sending again.
    pub(super) fn tend(&mut self, ring: &MessageRing, next: u64, now_ns: u64) -> Result<(), Exhausted> {
        for place in &mut self.under_way {
            let Some(ask) = place else { continue };
            let before = ask.first;
            while ask.first < ask.end && (ask.first < next || ring.has(ask.first)) {
                ask.first += 1;
            }
            if ask.first == ask.end {
                *place = None;
            } else if ask.first > before {
                // An answer holds only as many messages as fit: the rest is requested at once.
                (ask.deadline_ns, ask.tries) = (None, 0);
            } else if ask.deadline_ns.is_some_and(|deadline_ns| now_ns >= deadline_ns) {
                if ask.tries >= self.spec.tries {
                    return Err(Exhausted);
                }
                ask.deadline_ns = None;
            }
        }
        Ok(())
    }

    /// The next request to send: its first number, its message count, and whether it repeats one.
    pub(super) fn next(&mut self, ring: &MessageRing, next: u64, end: u64, now_ns: u64) -> Option<(u64, u16, bool)> {
        let waits = |place: &Option<Ask>| place.is_some_and(|ask| ask.deadline_ns.is_none());
        let at = match self.under_way.iter().position(waits) {
            Some(at) => at,
            None => {
                let free = self.under_way.iter().position(Option::is_none)?;
                let (first, end) = self.missing(ring, next, end)?;
                self.under_way[free] = Some(Ask { first, end, tries: 0, deadline_ns: None });
                free
            }
        };
        let ask = self.under_way[at].as_mut()?;
        let timeout_ns = self.spec.timeout_ns << ask.tries.min(10);
        ask.tries += 1;
        ask.deadline_ns = Some(now_ns.saturating_add(timeout_ns));
        Some((ask.first, (ask.end - ask.first) as u16, ask.tries > 1))
    }

    /// When the first request in flight times out.
    pub(super) fn deadline_ns(&self) -> Option<u64> {
        self.under_way.iter().flatten().map(|ask| ask.deadline_ns.unwrap_or(0)).min()
    }

    /// The next missing numbers that are in no request. Each number is examined once.
    fn missing(&mut self, ring: &MessageRing, next: u64, end: u64) -> Option<(u64, u64)> {
        self.scan = self.scan.max(next);
        while self.scan < end && ring.has(self.scan) {
            self.scan += 1;
        }
        let first = self.scan;
        while self.scan < end && self.scan - first < u64::from(self.spec.chunk) && !ring.has(self.scan) {
            self.scan += 1;
        }
        (self.scan > first).then_some((first, self.scan))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPEC: AskSpec = AskSpec { chunk: 4, timeout_ns: 10, tries: 2 };

    #[test]
    fn what_is_missing_is_asked_for_in_chunks_and_again_after_longer_pauses() {
        let (mut asks, mut ring) = (Asks::new(SPEC), MessageRing::new(64));
        [3, 4, 11].into_iter().for_each(|sequence| ring.put(sequence, b"x"));
        let sent = |asks: &mut Asks, ring: &MessageRing, now_ns| {
            assert_eq!(asks.tend(ring, 1, now_ns), Ok(()));
            Vec::from_iter(std::iter::from_fn(|| asks.next(ring, 1, 13, now_ns)))
        };
        let all = [(1, 2, false), (5, 4, false), (9, 2, false), (12, 1, false)];
        assert_eq!(sent(&mut asks, &ring, 0), all);
        assert_eq!((sent(&mut asks, &ring, 9), asks.deadline_ns()), (vec![], Some(10)));
        // A part has come: the rest is requested at once, as a first try.
        [1, 5, 6].into_iter().for_each(|sequence| ring.put(sequence, b"x"));
        assert_eq!(sent(&mut asks, &ring, 9), [(2, 1, false), (7, 2, false)]);
        assert_eq!(sent(&mut asks, &ring, 10), [(9, 2, true), (12, 1, true)]);
        assert_eq!(sent(&mut asks, &ring, 29), [(2, 1, true), (7, 2, true)]);
        assert_eq!(asks.tend(&ring, 1, 30), Err(Exhausted), "9 was asked for twice");
    }
}
