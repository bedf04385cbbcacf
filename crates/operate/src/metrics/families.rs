//! The metrics of a snapshot, each declared once: name, words, unit, and the source of its values.
//!
//! Names follow Prometheus' conventions: base units, no abbreviation, `_total` for counters (which
//! the encoding adds).

use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;
use verbline_engine::{ConnectionState, DatagramsReport, HistogramReport, Report, TimesReport, WireReport};

use crate::protocol::{Hello, State};

/// One value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Whole(u64),
    Real(f64),
    /// Times: their sum in seconds, and their bins: each bin's upper bound in seconds, and its
    /// count.
    Times(f64, Vec<(f64, u64)>),
}

/// Names and values of labels.
pub(crate) type Labels = Vec<(&'static str, String)>;

/// One metric with all its series.
#[derive(Debug)]
pub(crate) struct Family {
    pub(crate) name: &'static str,
    pub(crate) help: &'static str,
    pub(crate) unit: Option<Unit>,
    pub(crate) kind: MetricType,
    pub(crate) series: Vec<(Labels, Value)>,
}

/// All metrics of a snapshot, with series for up to `connections_max` connections.
pub(crate) fn families(hello: &Hello, report: &Report, connections_max: u32) -> Vec<Family> {
    let mut families = Families::default();
    families.run(hello, report);
    families.lcores(report);
    families.stages(report);
    families.ports(report);
    families.many(report);
    families.connections(report, connections_max as usize);
    families.rings(report);
    families.injectors(report);
    families.packets(report);
    families.wires(report);
    families.0
}

#[derive(Default)]
struct Families(Vec<Family>);

/// Labels from names and values.
macro_rules! labels {
    ($($name:ident: $value:expr),*) => { vec![$((stringify!($name), $value.to_string())),*] };
}

fn seconds(ns: u64) -> Value {
    Value::Real(ns as f64 / 1e9)
}

/// The bounds of times: from 32 ns to a second, each double the one before.
const TIME_BITS: std::ops::RangeInclusive<u32> = 5..=30;

fn times(times: &TimesReport) -> Value {
    let mut buckets: Vec<(f64, u64)> = TIME_BITS.map(|bits| ((1_u64 << bits) as f64 / 1e9, 0)).collect();
    buckets.push((f64::INFINITY, 0));
    for bin in &times.bins {
        let bits = bin.below_ns.saturating_sub(1).max(1).ilog2() + 1;
        let at = bits.saturating_sub(*TIME_BITS.start()) as usize;
        let last = buckets.len() - 1;
        buckets[at.min(last)].1 += bin.count;
    }
    Value::Times(times.sum_ns as f64 / 1e9, buckets)
}

fn flag(is_so: bool) -> Value {
    Value::Whole(is_so.into())
}

impl Families {
    fn add(
        &mut self,
        kind: MetricType,
        (name, unit): (&'static str, Option<Unit>),
        help: &'static str,
        series: impl IntoIterator<Item = (Labels, Value)>,
    ) {
        let series: Vec<_> = series.into_iter().collect();
        if !series.is_empty() {
            self.0.push(Family { name, help, unit, kind, series });
        }
    }

    fn counter(&mut self, name: &'static str, help: &'static str, series: impl IntoIterator<Item = (Labels, u64)>) {
        let series = series.into_iter().map(|(labels, count)| (labels, Value::Whole(count)));
        self.add(MetricType::Counter, (name, None), help, series);
    }

    fn bytes(&mut self, name: &'static str, help: &'static str, series: impl IntoIterator<Item = (Labels, u64)>) {
        let series = series.into_iter().map(|(labels, count)| (labels, Value::Whole(count)));
        self.add(MetricType::Counter, (name, Some(Unit::Bytes)), help, series);
    }

    fn time(&mut self, name: &'static str, help: &'static str, series: impl IntoIterator<Item = (Labels, u64)>) {
        let series = series.into_iter().map(|(labels, ns)| (labels, seconds(ns)));
        self.add(MetricType::Counter, (name, Some(Unit::Seconds)), help, series);
    }

    fn times<'a>(
        &mut self,
        name: &'static str,
        help: &'static str,
        series: impl IntoIterator<Item = (Labels, &'a TimesReport)>,
    ) {
        let series = series.into_iter().map(|(labels, of)| (labels, times(of)));
        self.add(MetricType::Histogram, (name, Some(Unit::Seconds)), help, series);
    }

    fn gauge(&mut self, name: &'static str, help: &'static str, series: impl IntoIterator<Item = (Labels, Value)>) {
        self.add(MetricType::Gauge, (name, None), help, series);
    }

    fn run(&mut self, hello: &Hello, report: &Report) {
        let labels = labels!(app: hello.app, plan: hello.plan, version: hello.version);
        self.add(MetricType::Info, ("build", None), "What runs here", [(labels, Value::Whole(1))]);
        let since = Value::Real(hello.since_unix_ms as f64 / 1e3);
        let start = ("start_time", Some(Unit::Seconds));
        self.add(MetricType::Gauge, start, "When the process began the run, since 1970", [(vec![], since)]);
        let stopping = flag(hello.state == State::Stopping);
        self.gauge("stopping", "Whether the run drains, or is over", [(vec![], stopping)]);
        let failures = Value::Whole(report.failures.len() as u64);
        self.gauge("failures", "Failures that the run ends with", [(vec![], failures)]);
        if let Some(throttled_ns) = report.throttled_ns {
            let help = "Time for which its control group's quota of CPU time kept the process from running";
            self.time("throttled", help, [(vec![], throttled_ns)]);
        }
    }

    fn lcores(&mut self, report: &Report) {
        let lcores = &report.lcores;
        let times = lcores.iter().flat_map(|lcore| {
            let times = [
                ("busy", lcore.busy_ns),
                ("idle", lcore.idle_ns),
                ("asleep", lcore.asleep_ns),
                ("stolen", lcore.stolen_ns),
            ];
            times.map(|(state, ns)| (labels!(lcore: lcore.name, state: state), ns))
        });
        self.time("lcore_time", "How lcores spent their time", times);
        let of = |value: fn(&verbline_engine::LcoreReport) -> u64| {
            lcores.iter().map(move |lcore| (labels!(lcore: lcore.name), value(lcore)))
        };
        self.counter("lcore_turns", "Turns of the loop", of(|lcore| lcore.loops));
        self.counter("lcore_busy_turns", "Turns of the loop that found work", of(|lcore| lcore.busy_loops));
        self.counter("lcore_sleeps", "Times that the lcore blocked", of(|lcore| lcore.sleeps));
        let armed = "Times that the poll after arming found something, so that the lcore did not block";
        self.counter("lcore_armed_in_vain", armed, of(|lcore| lcore.armed_in_vain));
        let wakes = lcores.iter().flat_map(|lcore| {
            lcore.wakes.iter().map(|wake| (labels!(lcore: lcore.name, cause: wake.cause), wake.count))
        });
        self.counter("lcore_wakes", "Sleeps that were ended, by cause", wakes);
        let late = lcores.iter().map(|lcore| (labels!(lcore: lcore.name), &lcore.wake_late));
        self.times("lcore_wake_late", "How late lcores awoke when a timer was due", late);
        let stalls = "Times that the lcore was kept from its CPU for 20 microseconds or longer while awake";
        self.counter("lcore_stalls", stalls, of(|lcore| lcore.stalls));
        let stall_max = lcores.iter().map(|lcore| (labels!(lcore: lcore.name), seconds(lcore.stall_max_ns)));
        let name = ("lcore_stall_max", Some(Unit::Seconds));
        self.add(MetricType::Gauge, name, "The longest of these times", stall_max);
        self.counter("lcore_rescues", "Lost wake-ups that the time-out repaired: a bug", of(|lcore| lcore.rescues));
    }

    fn stages(&mut self, report: &Report) {
        let stages = &report.stages;
        let labels = |stage: &verbline_engine::StageReport| labels!(stage: stage.name, lcore: stage.lcore);
        let packets = stages.iter().flat_map(|stage| {
            let both = [("in", stage.packets_in), ("out", stage.packets_out)];
            both.map(|(way, count)| (labels!(stage: stage.name, lcore: stage.lcore, direction: way), count))
        });
        self.counter("stage_packets", "Packets that stages were given, and that their outputs took", packets);
        let calls = stages.iter().map(|stage| (labels(stage), stage.calls));
        self.counter("stage_calls", "Calls with a batch", calls);
        let times = stages.iter().map(|stage| (labels(stage), stage.busy_ns));
        self.time("stage_time", "Time in stages, estimated from one turn in sixteen", times);
        let calls = stages.iter().map(|stage| (labels(stage), &stage.call_times));
        self.times("stage_call", "How long single calls of stages took, counted likewise", calls);
        let batches = stages.iter().map(|stage| (labels(stage), Value::Whole(stage.batch_max)));
        self.gauge("stage_batch_max_packets", "The largest batch so far", batches);
        let failed = stages.iter().map(|stage| (labels(stage), stage.alloc_failed));
        self.counter("stage_allocation_failures", "Packets asked of a pool and not had", failed);
        // A stage may set these figures itself, so that they may fall.
        let figures = stages.iter().flat_map(|stage| {
            stage.counters.iter().map(|counter| {
                (labels!(stage: stage.name, lcore: stage.lcore, name: counter.name), Value::Whole(counter.value))
            })
        });
        self.gauge("stage_figure", "The stages' own figures, by name", figures);
        let own = stages.iter().flat_map(|stage| {
            let of = |own: &HistogramReport| labels!(stage: stage.name, lcore: stage.lcore, name: own.name);
            stage.histograms.iter().map(move |own| (of(own), &own.times))
        });
        self.times("stage_own", "Times that stages measure themselves, by name", own);
    }

    fn ports(&mut self, report: &Report) {
        let ports = &report.ports;
        let labels = |port: &verbline_engine::PortReport| labels!(port: port.name, lcore: port.lcore);
        let both = |of: fn(&verbline_engine::PortReport) -> [u64; 2]| {
            let two = move |port: &verbline_engine::PortReport| {
                let [received, sent] = of(port);
                [("receive", received), ("transmit", sent)]
                    .map(|(way, count)| (labels!(port: port.name, lcore: port.lcore, direction: way), count))
            };
            ports.iter().flat_map(two)
        };
        self.counter("port_packets", "Packets of ports", both(|port| [port.rx_packets, port.tx_packets]));
        self.bytes("port", "Bytes of these packets", both(|port| [port.rx_bytes, port.tx_bytes]));
        let posts = ports.iter().map(|port| (labels(port), port.tx_posts));
        self.counter("port_posts", "Lists of work requests posted to send queues", posts);
        let starved = ports.iter().map(|port| (labels(port), port.rx_starved));
        self.counter("port_receive_starved", "Turns that could not refill the receive queue", starved);
        let lost = ports.iter().filter_map(|port| Some((labels(port), port.rx_out_of_buffer?)));
        self.counter("port_out_of_buffer", "Messages that found no receive posted", lost);
        let errors = ports.iter().flat_map(|port| {
            let of = |error: &verbline_engine::StatusReport| {
                (labels!(port: port.name, lcore: port.lcore, status: error.status), error.count)
            };
            port.errors.iter().map(of).collect::<Vec<_>>()
        });
        self.counter("port_errors", "Completions with an error, by status", errors);
        let up = ports.iter().map(|port| (labels(port), flag(!port.down)));
        self.gauge("port_up", "Whether the queue pair is not in the error state", up);
        let link = ports.iter().map(|port| (labels(port), flag(!port.link_down)));
        self.gauge("port_link_up", "Whether the link under the port is up", link);
    }

    /// The counters of ports with many connections, and of ports with operations.
    fn many(&mut self, report: &Report) {
        let many = || report.ports.iter().filter_map(|port| Some((port, port.connections.as_ref()?)));
        let open = many().map(|(port, many)| (labels!(port: port.name), Value::Whole(many.open)));
        self.gauge("port_connections", "Connections that are open", open);
        let limit = many().map(|(port, many)| (labels!(port: port.name), Value::Whole(many.max)));
        self.gauge("port_connections_limit", "Connections that may be open at once", limit);
        let opened = many().map(|(port, many)| (labels!(port: port.name), many.opened));
        self.counter("port_connections_opened", "Connections that were opened", opened);
        let ended = many().flat_map(|(port, many)| {
            let ends = [("closed", many.closed), ("failed", many.failed)];
            ends.map(|(how, count)| (labels!(port: port.name, how: how), count))
        });
        self.counter("port_connections_ended", "Connections that ended, by how", ended);
        let rejected = many().flat_map(|(port, many)| {
            let reasons = [
                ("full", many.rejected_full),
                ("acceptor", many.rejected_acceptor),
                ("device", many.rejected_device),
                ("resources", many.rejected_resources),
                ("peer", many.rejected_by_peer),
            ];
            reasons.map(|(reason, count)| (labels!(port: port.name, reason: reason), count))
        });
        self.counter("port_connections_rejected", "Connections that were rejected, by reason", rejected);
        let operations = || {
            report.ports.iter().flat_map(|port| {
                let kinds = port.operations.iter().flat_map(|operations| &operations.kinds);
                kinds.map(move |kind| (port, kind))
            })
        };
        let outcomes = operations().flat_map(|(port, kind)| {
            let outcomes = [("posted", kind.posted), ("completed", kind.completed), ("failed", kind.failed)];
            outcomes.map(|(outcome, count)| (labels!(port: port.name, kind: kind.kind, outcome: outcome), count))
        });
        self.counter("port_operations", "Operations of stages, by kind and outcome", outcomes);
        let bytes = operations().map(|(port, kind)| (labels!(port: port.name, kind: kind.kind), kind.bytes));
        self.bytes("port_operation", "Bytes of operations that were carried out", bytes);
    }

    fn connections(&mut self, report: &Report, most: usize) {
        let connections = || report.connections.iter().take(most);
        let up = connections().map(|one| {
            let labels = labels!(port: one.port, peer: one.peer_address);
            (labels, flag(one.state == ConnectionState::Connected))
        });
        self.gauge("connection_up", "Whether the connection stands", up);
        let times = connections().map(|one| (labels!(port: one.port, peer: one.peer_address), one.times_connected));
        self.counter("connection_connects", "Times that it was connected", times);
    }

    fn rings(&mut self, report: &Report) {
        let rings = &report.rings;
        let packets = rings.iter().flat_map(|ring| {
            let both = [("push", ring.pushed), ("pop", ring.popped)];
            both.map(|(way, count)| (labels!(ring: ring.name, direction: way), count))
        });
        self.counter("ring_packets", "Packets of rings", packets);
        let full = rings.iter().map(|ring| (labels!(ring: ring.name), ring.full));
        self.counter("ring_full", "Turns of producers that found no room for all that there was", full);
        let depth = rings.iter().map(|ring| (labels!(ring: ring.name), Value::Whole(ring.depth)));
        self.gauge("ring_depth_packets", "Packets that the ring holds from each lcore that fills it", depth);
        let most = rings.iter().map(|ring| (labels!(ring: ring.name), Value::Whole(ring.most)));
        self.gauge("ring_most_packets", "The most packets that were found in the ring", most);
    }

    fn injectors(&mut self, report: &Report) {
        let injectors = &report.injectors;
        let messages = injectors.iter().flat_map(|one| {
            let both = [("push", one.pushed), ("pop", one.popped)];
            both.map(|(way, count)| (labels!(injector: one.name, direction: way), count))
        });
        self.counter("injector_messages", "Messages of injectors", messages);
        let refused = injectors.iter().flat_map(|one| {
            let reasons = [
                ("full", one.refused_full),
                ("no_packet", one.refused_no_packet),
                ("too_long", one.refused_too_long),
                ("stopped", one.refused_stopped),
            ];
            reasons.map(|(reason, count)| (labels!(injector: one.name, reason: reason), count))
        });
        self.counter("injector_refused", "Messages that were refused, by reason", refused);
    }

    fn packets(&mut self, report: &Report) {
        let pools = report.pools.iter().flat_map(|pool| {
            let states = [("free", pool.free), ("cached", pool.cached), ("held", pool.held)];
            states.map(|(state, count)| (labels!(pool: pool.name, state: state), Value::Whole(count)))
        });
        self.gauge("pool_packets", "Packets of pools, by where they are", pools);
        let holders = report.packets.holders.iter();
        let held = holders.map(|holder| (labels!(place: holder.place), Value::Whole(holder.packets)));
        self.gauge("held_packets", "Packets that are out, by who holds them", held);
        let drops = report.drops.iter().map(|drop| (labels!(place: drop.place, reason: drop.reason), drop.packets));
        self.counter("dropped_packets", "Packets that were dropped, by place and reason", drops);
        let events = report
            .events
            .iter()
            .map(|event| (labels!(device: event.device, event: event.event, source: event.source), event.count));
        self.counter("device_events", "Asynchronous events of devices", events);
    }

    /// The network counters of software devices.
    fn wires(&mut self, report: &Report) {
        let wires = &report.wires;
        let both = |of: fn(&WireReport) -> [u64; 2]| {
            let two = move |wire: &WireReport| {
                let [received, sent] = of(wire);
                [("receive", received), ("transmit", sent)]
                    .map(|(way, count)| (labels!(device: wire.device, direction: way), count))
            };
            wires.iter().flat_map(two)
        };
        let datagrams = both(|wire| [wire.datagrams_received, wire.datagrams_sent]);
        self.counter("wire_datagrams", "Datagrams of software devices", datagrams);
        let shared = wires.iter().flat_map(|wire| {
            let ways = [("passed_on", wire.datagrams_passed_on), ("taken_over", wire.datagrams_taken_over)];
            ways.map(|(way, count)| (labels!(device: wire.device, way: way), count))
        });
        let help = "Datagrams that went on to another process of the address, or came from one";
        self.counter("wire_shared_datagrams", help, shared);
        let calls = both(|wire| [wire.receive_calls, wire.send_calls]);
        self.counter("wire_calls", "System calls by which they left, or that brought some", calls);
        let incidents = wires.iter().flat_map(|wire| {
            let kinds = [
                ("retransmitted", wire.incidents.retransmitted),
                ("timeout", wire.incidents.timeouts),
                ("out_of_order", wire.incidents.out_of_order),
                ("duplicate", wire.incidents.duplicates),
            ];
            kinds.map(|(kind, count)| (labels!(device: wire.device, kind: kind), count))
        });
        self.counter("wire_incidents", "What went otherwise than on a network that loses nothing", incidents);
        let naks = wires.iter().flat_map(|wire| {
            let kinds = [
                ("sequence", "receive", wire.incidents.sequence_naks_received),
                ("sequence", "transmit", wire.incidents.sequence_naks_sent),
                ("rnr", "receive", wire.incidents.rnr_naks_received),
                ("rnr", "transmit", wire.incidents.rnr_naks_sent),
                ("fatal", "receive", wire.incidents.fatal_naks_received),
                ("fatal", "transmit", wire.incidents.fatal_naks_sent),
            ];
            kinds.map(|(kind, way, count)| (labels!(device: wire.device, kind: kind, direction: way), count))
        });
        self.counter("wire_naks", "Refusals of packets, by kind", naks);
        let lost = |of: fn(&WireReport) -> &[DatagramsReport]| {
            let by_reason = move |wire: &WireReport| {
                let one = |one: &DatagramsReport| (labels!(device: wire.device, reason: one.reason), one.datagrams);
                of(wire).iter().map(one).collect::<Vec<_>>()
            };
            wires.iter().flat_map(by_reason)
        };
        let unsent = "Datagrams that the kernel did not take, by reason";
        self.counter("wire_unsent_datagrams", unsent, lost(|wire| &wire.unsent));
        let discarded = "Datagrams that came and were discarded, by reason";
        self.counter("wire_discarded_datagrams", discarded, lost(|wire| &wire.discarded));
    }
}
