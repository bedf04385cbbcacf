//! The counters of the connections of a port that may have many.

use std::sync::{Arc, Mutex};

use serde::Serialize;

use crate::stats::counter::{Count, counted};

counted! {
    /// The connections of a port that may have many.
    ConnectionsReport {
        /// How many it may have at once.
        max: u64,
        /// `listens` or `connects`.
        role: &'static str,
        /// Why the last of them that was not made was not: a rejection has the listener's words.
        last_error: Option<String>,
    }

    /// The lcore's counters of them.
    ConnectionsStats {
        /// Connections that a stage was told of as opened.
        opened,
        /// Those of them that ended because the peer left or a stage closed them.
        closed,
        /// Those of them whose queue pair failed.
        failed,
        /// Those that are neither: open, or closing with completions still to come.
        open,
        /// The most that were open at once.
        open_max,
    }
    private {}

    /// The counters of the cm thread that makes them.
    CmThreadStats {
        /// Requests of peers, and own attempts to connect.
        requests,
        /// Requests that were rejected since all places were taken.
        rejected_full,
        /// Requests that the port's acceptor rejected.
        rejected_acceptor,
        /// Requests that came by another device.
        rejected_device,
        /// Requests for which no queue pair could be made.
        rejected_resources,
        /// Peers that were accepted and went away, or stayed silent, before they were connected; of
        /// a port that connects, attempts that failed. Also those whose handshake was under way as
        /// the run ended.
        unanswered,
        /// Of a port that connects: those of these attempts that the listener rejected.
        rejected_by_peer,
        /// Of a port that connects to several addresses: attempts at another address than that
        /// whose turn it was, since that had failed.
        failed_over,
        /// Connections that were made over UDP: by a software device's address.
        over_udp,
        /// Queue pairs whose completions did not come within a second of their end.
        forced,
    }
    private {}
}

impl ConnectionsReport {
    /// The rejections of peers by this end: the reason as a clause, and how many. Only those that
    /// happened.
    pub fn rejections(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
        let reasons = [
            ("by its acceptor", self.rejected_acceptor),
            ("since all places were taken", self.rejected_full),
            ("since they came by another device", self.rejected_device),
            ("since no queue pair could be made", self.rejected_resources),
        ];
        reasons.into_iter().filter(|(_, times)| *times > 0)
    }
}

/// The reason of the last failed attempt: written by the cm thread, read by any thread.
pub(crate) type LastError = Arc<Mutex<Option<String>>>;
