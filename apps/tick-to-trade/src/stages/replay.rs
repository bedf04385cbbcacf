//! The order in which a recording is played: each datagram at its sending time, and a snapshot
//! right behind the increments that it contains, so that a receiver can compare the two.
//!
//! Increments go in the order of their sequence numbers; the lag of channel B behind A on that day
//! is not replayed.

use crate::fast::{DecodeError, Message, MoexFeed};

/// The channel of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Source {
    A,
    B,
    Snapshot,
}

/// One datagram of the recording, and its departure time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Departure {
    pub(super) source: Source,
    /// The index among the datagrams of its file.
    pub(super) index: usize,
    /// Milliseconds after the first datagram, at the market's own pace.
    pub(super) after_ms: u32,
}

/// The whole recording in order.
pub(super) fn schedule(feed: &MoexFeed) -> Result<Vec<Departure>, DecodeError> {
    let increments = increments(feed);
    let mut waiting = increments.iter().peekable();
    let mut departures = Vec::with_capacity(increments.len() + feed.snapshots.datagrams.len());
    let mut decoder = feed.decoder();
    let mut message = Message::new();
    for (index, (_, bytes)) in feed.snapshots.iter().enumerate() {
        decoder.decode(bytes, &mut message)?;
        let holds_up_to = message.last_msg_seq_num_processed;
        while let Some((_, departure)) = waiting.next_if(|(sequence, _)| *sequence <= holds_up_to) {
            departures.push(*departure);
        }
        departures.push(Departure { source: Source::Snapshot, index, after_ms: 0 });
    }
    departures.extend(waiting.map(|(_, departure)| *departure));
    Ok(in_time(departures))
}

/// The increments of both channels by sequence number, A first.
fn increments(feed: &MoexFeed) -> Vec<(u32, Departure)> {
    let mut increments: Vec<_> = [Source::A, Source::B]
        .into_iter()
        .zip(&feed.increments)
        .flat_map(|(source, recording)| {
            recording.datagrams.iter().enumerate().map(move |(index, datagram)| {
                (datagram.msg_seq_num, Departure { source, index, after_ms: datagram.sent_ms_of_day })
            })
        })
        .collect();
    increments.sort_by_key(|(sequence, departure)| (*sequence, departure.source));
    increments
}

/// Makes times relative to the first, and monotonic.
fn in_time(mut departures: Vec<Departure>) -> Vec<Departure> {
    let first_ms = departures.iter().map(|departure| departure.after_ms).find(|&ms| ms > 0).unwrap_or(0);
    let mut last_ms = 0;
    for departure in &mut departures {
        last_ms = departure.after_ms.saturating_sub(first_ms).max(last_ms);
        departure.after_ms = last_ms;
    }
    departures
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_count_from_the_first_and_never_go_back() {
        let at = |source, after_ms| Departure { source, index: 0, after_ms };
        let departures = [
            at(Source::Snapshot, 0),
            at(Source::A, 500),
            at(Source::B, 490),
            at(Source::Snapshot, 0),
            at(Source::A, 510),
        ];
        let times: Vec<_> = in_time(departures.to_vec()).iter().map(|departure| departure.after_ms).collect();
        assert_eq!(times, [0, 0, 0, 0, 10]);
    }
}
