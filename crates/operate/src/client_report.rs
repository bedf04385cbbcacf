//! A report as a client reads it.
//!
//! The report is written by its own types and read by these, since a client may be older or newer
//! than its run. A missing key is an error, not a zero; unknown keys are skipped.

use serde::{Deserialize, Serialize};

/// Counters, which have a difference.
pub(crate) trait Since {
    /// The counts since `earlier`. Values that do not count stay as they are now.
    fn since(&self, earlier: &Self) -> Self;
}

/// An entry of a list, with a key that identifies it in another list.
trait Keyed {
    fn has_key_of(&self, other: &Self) -> bool;
}

impl Since for u64 {
    fn since(&self, earlier: &u64) -> u64 {
        // Estimates (a stage's time) may be corrected downwards.
        self.saturating_sub(*earlier)
    }
}

impl<T: Since + Keyed + Clone> Since for Vec<T> {
    fn since(&self, earlier: &Vec<T>) -> Vec<T> {
        let before = |now: &T| earlier.iter().find(|before| before.has_key_of(now));
        self.iter().map(|now| before(now).map_or_else(|| now.clone(), |before| now.since(before))).collect()
    }
}

impl<T: Since + Clone> Since for Option<T> {
    fn since(&self, earlier: &Option<T>) -> Option<T> {
        match (self, earlier) {
            (Some(now), Some(before)) => Some(now.since(before)),
            (now, _) => now.clone(),
        }
    }
}

/// Declares the part of the report that a client reads, with its values and its counters. A key
/// without a type is a number.
macro_rules! seen {
    (@kind) => { u64 };
    (@kind $kind:ty) => { $kind };
    ($($(#[$doc:meta])* $name:ident $(by $($key:ident)+)? {
        $(is { $($field:ident $(: $kind:ty)?),* $(,)? })?
        $(counts { $($counter:ident $(: $counted:ty)?),* $(,)? })?
    })+) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
            #[expect(missing_docs, reason = "docs/report.schema.json and the engine's types say what each key is")]
            pub struct $name {
                $($(pub $field: seen!(@kind $($kind)?),)*)?
                $($(pub $counter: seen!(@kind $($counted)?),)*)?
            }

            impl Since for $name {
                fn since(&self, earlier: &$name) -> $name {
                    let _ = earlier;
                    $name {
                        $($($field: self.$field.clone(),)*)?
                        $($($counter: self.$counter.since(&earlier.$counter),)*)?
                    }
                }
            }

            $(impl Keyed for $name {
                fn has_key_of(&self, other: &$name) -> bool {
                    $(self.$key == other.$key)&&+
                }
            })?
        )+
    };
}

seen! {
    /// A run's report so far.
    Seen {
        is { plan: String, connections: Vec<Connection>, pools: Vec<Pool>, failures: Vec<Failure> }
        counts {
            elapsed_ns, lcores: Vec<Lcore>, stages: Vec<Stage>, ports: Vec<Port>, rings: Vec<Ring>,
            injectors: Vec<Injector>, drops: Vec<Drop>, packets: Packets,
        }
    }

    /// One lcore.
    Lcore by name {
        is { name: String, cpu, plan_cpu, policy: String, spin_ns, dwell_ns, stall_max_ns }
        counts {
            loops, busy_loops, busy_ns, idle_ns, asleep_ns, stolen_ns, sleeps, armed_in_vain, stalls, rescues,
            wakes: Vec<Wake>, wake_late: Times,
        }
    }

    /// Sleeps that one cause ended.
    Wake by cause {
        is { cause: String }
        counts { count }
    }

    /// One stage.
    Stage by name {
        is { name: String, kind: String, lcore: String, batch_max, counters: Vec<Counter> }
        counts {
            busy_ns, calls, polls, packets_in, packets_out, timed, alloc_failed, call_times: Times,
            histograms: Option<Vec<Histogram>>,
        }
    }

    /// Times that a stage measures itself. Older runs have no list of them.
    Histogram by name {
        is { name: String }
        counts { times: Times }
    }

    /// How long something took.
    Times {
        is { max_ns }
        counts { count, sum_ns, bins: Vec<TimeBin> }
    }

    /// Times of about one length.
    TimeBin by below_ns {
        is { below_ns }
        counts { count }
    }

    /// A figure of a stage's own.
    Counter {
        is { name: String, value }
    }

    /// One port.
    Port by name {
        is {
            name: String, lcore: String, device: String, transport: String, down: bool,
            down_reason: Option<String>, link_down: bool,
        }
        counts {
            rx_packets, rx_bytes, tx_packets, tx_bytes, tx_posts, rx_starved, errors: Vec<Status>,
            connections: Option<Connections>, operations: Option<Operations>,
        }
    }

    /// Completions with one error status.
    Status by status {
        is { status: String }
        counts { count }
    }

    /// The connections of a port that may have many.
    Connections {
        is { max, role: String, open }
        counts { opened, closed, failed, requests }
    }

    /// The operations of a port.
    Operations {
        is { under_way }
        counts { kinds: Vec<OperationKind> }
    }

    /// Operations of one kind.
    OperationKind by kind {
        is { kind: String }
        counts { posted, completed, failed, bytes }
    }

    /// A connection by address.
    Connection {
        is {
            port: String, role: String, address: String, peer_address: String, state: String,
            reason: Option<String>, attempts, times_connected, last_error: Option<String>, wire: Option<Incidents>,
        }
    }

    /// Faults of the packets of a connection over UDP.
    Incidents {
        counts { retransmitted }
    }

    /// One ring.
    Ring by name {
        is { name: String, producer: String, consumer: String, depth, most }
        counts { pushed, popped, full }
    }

    /// One injector.
    Injector by name {
        is { name: String, stage: String, depth, most }
        counts { pushed, popped, refused_full, refused_no_packet, refused_too_long, refused_stopped }
    }

    /// One pool.
    Pool {
        is { name: String, packets, free, cached, held }
    }

    /// Packets dropped at one place for one reason.
    Drop by place reason {
        is { place: String, reason: String }
        counts { packets }
    }

    /// All packets of all pools.
    Packets {
        is { held, holders: Vec<Holder> }
        counts { taken, returned }
    }

    /// Packets that one place holds.
    Holder {
        is { place: String, packets }
    }

    /// The reason why the run failed.
    Failure {
        is { lcore: String, stage: Option<String>, message: String }
    }
}

impl Times {
    /// The time that this share of them did not exceed, to a quarter; `None` without times.
    pub fn quantile_ns(&self, share: f64) -> Option<u64> {
        let all: u64 = self.bins.iter().map(|bin| bin.count).sum();
        let wanted = (all as f64 * share).ceil().max(1.0) as u64;
        let mut seen = 0;
        let reached = self.bins.iter().find(|bin| {
            seen += bin.count;
            seen >= wanted
        });
        reached.map(|bin| bin.below_ns.min(self.max_ns))
    }
}

impl Seen {
    /// Packets that this place holds, e.g. `ring.trades`.
    pub fn held_by(&self, place: &str) -> u64 {
        self.packets.holders.iter().find(|holder| holder.place == place).map_or(0, |holder| holder.packets)
    }
}
