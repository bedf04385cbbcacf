//! The trader's strategy: looks at changed best levels, asks the risk gate, and turns the packet
//! into the order.

use std::time::Instant;

use verbline::cli::Silence;
use verbline::plan::{Asked, Needs};
use verbline::prelude::*;

use super::settings::{self, INSTRUMENTS_MAX};
use super::tally::{Home, StrategyTally, Tally};
use super::update::{UPDATE_LEN_BYTES, Update};
use super::wire::{ExecutionReport, TIMING_LEN_BYTES, Timing};
use crate::risk::{ORDER_LEN_BYTES, OpenOrders, OrderIntent, OrderTemplate, RiskGate, Trigger};

const ORDER: OutId = OutId(0);
const DROPS: &[&str] = &["malformed", "no_room"];
const MALFORMED: DropReason = DropReason::Stage(0);
/// The packet is too short for the order.
const NO_ROOM: DropReason = DropReason::Stage(1);

/// The sender of the orders.
const FIRM: [u8; 4] = *b"VRBL";

pub(super) fn register(registry: &mut Registry, tally: &Tally) {
    let home = tally.clone();
    let spec = StageSpec {
        outputs: &["order"],
        drops: DROPS,
        summary: "trigger, risk limits, preformatted orders",
        ..StageSpec::default()
    };
    let make = move |stage: &StageContext<'_>| -> Result<Box<dyn Stage>, StageError> {
        let gate = RiskGate::new(settings::risk(stage)?);
        Ok(Box::new(Strategy {
            trigger: Trigger::new(settings::trigger(stage)?),
            gate,
            templates: vec![None; usize::from(INSTRUMENTS_MAX)].into_boxed_slice(),
            open: OpenOrders::new(),
            stopped_at: None,
            sent: stage.counter("orders"),
            tally: StrategyTally::default(),
            home: home.home(stage),
        }))
    };
    let needs =
        |_: &Asked<'_>| Needs { memory_bytes: vec![("open orders", OpenOrders::MEMORY_BYTES)], ..Needs::default() };
    registry.stage("strategy", spec, make).needs("strategy", needs);
}

struct Strategy {
    trigger: Trigger,
    gate: RiskGate,
    templates: Box<[Option<OrderTemplate>]>,
    open: OpenOrders,
    /// No order is sent from then on.
    stopped_at: Option<Instant>,
    sent: Counter,
    tally: StrategyTally,
    home: Home,
}

impl Stage for Strategy {
    fn process(&mut self, input: &mut Batch, out: &mut Outputs<'_>) {
        for packet in input.drain_front(input.len()) {
            if let Some(report) = ExecutionReport::parse(packet.data()) {
                self.settle(report);
                continue;
            }
            self.consider(packet, out);
        }
    }

    fn stop(&mut self, _: &mut Outputs<'_>) {
        self.stopped_at = Some(Instant::now());
    }

    fn awaits_packets(&self) -> bool {
        // An order that was lost gets no report.
        let is_early = |stopped_at: Instant| stopped_at.elapsed() < Silence::ANSWER_WITHIN;
        !self.open.is_empty() && self.stopped_at.is_some_and(is_early)
    }
}

impl Strategy {
    /// Looks at each update of a packet. The first order goes out in the packet itself; rare
    /// further ones wait for the next tick, since the trigger fires again only on a new edge.
    fn consider(&mut self, mut packet: Packet, out: &mut Outputs<'_>) {
        let (updates, rest) = packet.data().as_chunks::<UPDATE_LEN_BYTES>();
        if updates.is_empty() || !rest.is_empty() {
            return out.drop(packet, MALFORMED);
        }
        let now_ns = out.now_ns();
        let mut wanted = None;
        for update in updates.iter().map(Update::from_bytes) {
            self.tally.updates += 1;
            self.tally.crossed += u64::from(update.top.is_crossed());
            if self.stopped_at.is_some() {
                continue;
            }
            if update.reset {
                self.trigger.reset(update.instrument);
                // The feed may have begun anew, and the index be that of another instrument.
                if let Some(template) = self.templates.get_mut(usize::from(update.instrument)) {
                    *template = None;
                }
            }
            let Some(intent) = self.trigger.on_top(update.instrument, &update.top, now_ns) else { continue };
            self.tally.intents += 1;
            let reference = if update.last > 0 { update.last } else { update.top.mid() };
            if wanted.is_some() {
                self.tally.unsent += 1;
            } else if self.gate.check(&intent, Some(reference), now_ns).is_ok() {
                wanted = Some((update, intent));
            }
        }
        let Some((update, intent)) = wanted else { return };
        let id = self.open.open(&intent);
        let is_sent = match id.is_some_and(|id| self.write(&mut packet, &update, &intent, id, out.fresh_ns())) {
            true => out.send(ORDER, packet),
            false => {
                out.drop(packet, NO_ROOM);
                false
            }
        };
        if is_sent {
            // If the order is lost from here on, as when its port goes down, its reservation stays:
            // whether the exchange has it is unknown here.
            self.tally.orders += 1;
            self.sent.add(1);
        } else {
            // No report will come: release the gate's reservation.
            self.tally.unsent += 1;
            id.into_iter().for_each(|id| self.open.take_back(id));
            self.gate.closed(intent.instrument, intent.side, intent.quantity);
        }
    }

    /// Turns the packet into the order, with its timing behind it. Returns false if the packet is
    /// too short.
    #[inline]
    #[must_use]
    fn write(&mut self, packet: &mut Packet, update: &Update, intent: &OrderIntent, id: u64, decided_ns: u64) -> bool {
        let Some(slot) = self.templates.get_mut(usize::from(intent.instrument)) else { return false };
        let template = slot.get_or_insert_with(|| OrderTemplate::new(update.number, update.symbol, FIRM));
        let timing = Timing { received_ns: packet.timestamp(), decided_ns };
        packet.reset();
        packet.set_len(ORDER_LEN_BYTES + TIMING_LEN_BYTES)
            && template.write(intent, id, update.tick, 0, packet.data_mut()).is_some()
            && packet.data_mut().last_chunk_mut().is_some_and(|place| {
                *place = timing.to_bytes();
                true
            })
    }

    /// Settles an order by a report, or a part of it. A report that came before, or is of no order
    /// of ours, changes no position.
    fn settle(&mut self, report: ExecutionReport) {
        let quantity = u64::from(report.filled) + u64::from(report.cancelled);
        let (instrument, is_over) = match self.open.settle(report.order_id, report.side, quantity) {
            Ok(settled) => settled,
            Err(unmatched) => {
                // The first alone: the exchange must not fill the log.
                if self.tally.unmatched == 0 {
                    tracing::warn!(filled = report.filled, cancelled = report.cancelled, "{unmatched}");
                }
                self.tally.unmatched += 1;
                return;
            }
        };
        self.tally.reports += u64::from(is_over);
        if report.filled > 0 {
            self.tally.filled += 1;
            self.gate.filled(instrument, report.side, report.filled);
        }
        if report.cancelled > 0 {
            self.tally.cancelled += 1;
            self.gate.closed(instrument, report.side, report.cancelled);
        }
    }
}

impl Drop for Strategy {
    fn drop(&mut self) {
        let mut tally = std::mem::take(&mut self.tally);
        tally.risk = *self.gate.counts();
        self.home.leave(|all, stage| _ = all.strategies.insert(stage, tally));
    }
}

#[cfg(test)]
mod tests;
