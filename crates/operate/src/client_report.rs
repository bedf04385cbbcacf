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

/// Declares the part of the report that a client reads, with its values and its counters.
macro_rules! seen {
    ($($(#[$doc:meta])* $name:ident $(by $($key:ident)+)? {
        is { $($field:ident: $kind:ty,)* }
        counts { $($counter:ident: $counted:ty,)* }
    })+) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
            #[expect(missing_docs, reason = "docs/report.schema.json and the engine's types say what each key is")]
            pub struct $name { $(pub $field: $kind,)* $(pub $counter: $counted,)* }

            impl Since for $name {
                fn since(&self, earlier: &$name) -> $name {
                    let _ = earlier;
                    $name {
                        $($field: self.$field.clone(),)*
                        $($counter: self.$counter.since(&earlier.$counter),)*
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
        is {
            plan: String,
            connections: Vec<Connection>,
            pools: Vec<Pool>,
            failures: Vec<Failure>,
        }
        counts {
            elapsed_ns: u64,
            lcores: Vec<Lcore>,
            stages: Vec<Stage>,
            ports: Vec<Port>,
            rings: Vec<Ring>,
            injectors: Vec<Injector>,
            drops: Vec<Drop>,
            packets: Packets,
        }
    }

    /// One lcore.
    Lcore by name {
        is {
            name: String,
            cpu: u64,
            plan_cpu: u64,
            policy: String,
            spin_ns: u64,
            dwell_ns: u64,
            stall_max_ns: u64,
        }
        counts {
            loops: u64,
            busy_loops: u64,
            busy_ns: u64,
            idle_ns: u64,
            asleep_ns: u64,
            stolen_ns: u64,
            sleeps: u64,
            armed_in_vain: u64,
            stalls: u64,
            rescues: u64,
            wakes: Vec<Wake>,
            wake_late: Times,
        }
    }

    /// Sleeps that one cause ended.
    Wake by cause {
        is {
            cause: String,
        }
        counts {
            count: u64,
        }
    }

    /// One stage.
    Stage by name {
        is {
            name: String,
            kind: String,
            lcore: String,
            batch_max: u64,
            counters: Vec<Counter>,
        }
        counts {
            busy_ns: u64,
            calls: u64,
            polls: u64,
            packets_in: u64,
            packets_out: u64,
            timed: u64,
            alloc_failed: u64,
            call_times: Times,
            histograms: Option<Vec<Histogram>>,
        }
    }

    /// Times that a stage measures itself. Older runs have no list of them.
    Histogram by name {
        is {
            name: String,
        }
        counts {
            times: Times,
        }
    }

    /// How long something took.
    Times {
        is {
            max_ns: u64,
        }
        counts {
            count: u64,
            sum_ns: u64,
            bins: Vec<TimeBin>,
        }
    }

    /// Times of about one length.
    TimeBin by below_ns {
        is {
            below_ns: u64,
        }
        counts {
            count: u64,
        }
    }

    /// A figure of a stage's own.
    Counter {
        is {
            name: String,
            value: u64,
        }
        counts {}
    }

    /// One port.
    Port by name {
        is {
            name: String,
            lcore: String,
            device: String,
            transport: String,
            down: bool,
            down_reason: Option<String>,
            link_down: bool,
        }
        counts {
            rx_packets: u64,
            rx_bytes: u64,
            tx_packets: u64,
            tx_bytes: u64,
            tx_posts: u64,
            rx_starved: u64,
            errors: Vec<Status>,
            connections: Option<Connections>,
            operations: Option<Operations>,
        }
    }

    /// Completions with one error status.
    Status by status {
        is {
            status: String,
        }
        counts {
            count: u64,
        }
    }

    /// The connections of a port that may have many.
    Connections {
        is {
            max: u64,
            role: String,
            open: u64,
        }
        counts {
            opened: u64,
            closed: u64,
            failed: u64,
            requests: u64,
        }
    }

    /// The operations of a port.
    Operations {
        is {
            under_way: u64,
        }
        counts {
            kinds: Vec<OperationKind>,
        }
    }

    /// Operations of one kind.
    OperationKind by kind {
        is {
            kind: String,
        }
        counts {
            posted: u64,
            completed: u64,
            failed: u64,
            bytes: u64,
        }
    }

    /// A connection by address.
    Connection {
        is {
            port: String,
            role: String,
            address: String,
            peer_address: String,
            state: String,
            reason: Option<String>,
            attempts: u64,
            times_connected: u64,
            last_error: Option<String>,
            wire: Option<Incidents>,
        }
        counts {}
    }

    /// Faults of the packets of a connection over UDP.
    Incidents {
        is {}
        counts {
            retransmitted: u64,
        }
    }

    /// One ring.
    Ring by name {
        is {
            name: String,
            producer: String,
            consumer: String,
            depth: u64,
            most: u64,
        }
        counts {
            pushed: u64,
            popped: u64,
            full: u64,
        }
    }

    /// One injector.
    Injector by name {
        is {
            name: String,
            stage: String,
            depth: u64,
            most: u64,
        }
        counts {
            pushed: u64,
            popped: u64,
            refused_full: u64,
            refused_no_packet: u64,
            refused_too_long: u64,
            refused_stopped: u64,
        }
    }

    /// One pool.
    Pool {
        is {
            name: String,
            packets: u64,
            free: u64,
            cached: u64,
            held: u64,
        }
        counts {}
    }

    /// Packets dropped at one place for one reason.
    Drop by place reason {
        is {
            place: String,
            reason: String,
        }
        counts {
            packets: u64,
        }
    }

    /// All packets of all pools.
    Packets {
        is {
            held: u64,
            holders: Vec<Holder>,
        }
        counts {
            taken: u64,
            returned: u64,
        }
    }

    /// Packets that one place holds.
    Holder {
        is {
            place: String,
            packets: u64,
        }
        counts {}
    }

    /// The reason why the run failed.
    Failure {
        is {
            lcore: String,
            stage: Option<String>,
            message: String,
        }
        counts {}
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
