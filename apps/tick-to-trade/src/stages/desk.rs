//! The exchange's order desk: takes orders, measures their latency, and answers each with a report.

use hdrhistogram::Histogram;
use verbline::prelude::*;

use super::channels::{MALFORMED_ORDER, NO_ROOM, REPORTS};
use super::tally::{ExchangeTally, Home, Tally};
use super::wire::{ExecutionReport, TIMING_LEN_BYTES, Timing};
use crate::itch::Side;
use crate::risk::{ORDER_LEN_BYTES, OrderView};

/// The number of ticks whose times are kept: more than can be in flight.
const TAPE_TICKS: usize = 1 << 16;

/// The times of no tick. Not 0: zeroed memory gets its pages at the first write, and the lcore
/// would wait for them.
const NO_TIMES: (u64, u64) = (1, 1);

/// The desk, and the times of the ticks behind the orders.
#[derive(Debug)]
pub(super) struct Desk {
    /// Scheduled and published time of a tick, by its sequence number modulo the length.
    tape: Box<[(u64, u64)]>,
    /// One past the last tick on the tape.
    tape_end: u64,
    pub(super) tally: ExchangeTally,
    orders: verbline::engine::Counter,
    ticks: verbline::engine::Counter,
    /// The histogram during the run; the tally's has three digits.
    tick_to_trade: verbline::engine::Histogram,
    home: Home,
}

impl Desk {
    /// Memory that a desk allocates for the times of ticks, in bytes.
    pub(super) const MEMORY_BYTES: u64 = (TAPE_TICKS * size_of::<(u64, u64)>()) as u64;

    /// Allocates all memory for measuring: 1 ns to 60 s at three digits.
    pub(super) fn new(stage: &StageContext<'_>, home: &Tally) -> Result<Desk, verbline::engine::StageError> {
        Ok(Desk {
            tape: vec![NO_TIMES; TAPE_TICKS].into_boxed_slice(),
            tape_end: 0,
            tally: ExchangeTally {
                published: 0,
                dropped: [0; 2],
                dropped_both: 0,
                orders: 0,
                malformed_orders: 0,
                unknown_ticks: 0,
                unanswered: 0,
                tick_to_trade_ns: Histogram::new_with_bounds(1, 60_000_000_000, 3)?,
                steps_ns: [0; 4],
            },
            orders: stage.counter("orders"),
            ticks: stage.counter("ticks"),
            tick_to_trade: stage.histogram("tick_to_trade"),
            home: home.home(stage),
        })
    }

    /// Records when the ticks `first .. first + count` were due and when they were published.
    #[inline]
    pub(super) fn note(&mut self, first: u64, count: u64, scheduled_ns: u64, published_ns: u64) {
        for tick in first..first + count {
            self.tape[tick as usize % TAPE_TICKS] = (scheduled_ns, published_ns);
        }
        self.tape_end = first + count;
        self.ticks.add(count);
    }

    /// Takes a batch of orders. `fill` returns the quantity that the book would fill, for
    /// (instrument, side, price, quantity).
    pub(super) fn take(
        &mut self,
        orders: &mut Batch,
        out: &mut Outputs<'_>,
        mut fill: impl FnMut(u64, Side, i64, u32) -> u32,
    ) {
        let now_ns = out.fresh_ns();
        for packet in orders.drain_front(orders.len()) {
            self.take_one(packet, now_ns, out, &mut fill);
        }
    }

    /// Takes one packet, which arrived at `now_ns`.
    pub(super) fn take_one(
        &mut self,
        mut packet: Packet,
        now_ns: u64,
        out: &mut Outputs<'_>,
        mut fill: impl FnMut(u64, Side, i64, u32) -> u32,
    ) {
        let bytes = packet.data();
        let parsed = bytes.split_at_checked(ORDER_LEN_BYTES).and_then(|(order, timing)| {
            let timing: &[u8; TIMING_LEN_BYTES] = timing.try_into().ok()?;
            Some((OrderView::parse(order).ok()?, Timing::from_bytes(timing)))
        });
        let Some((order, timing)) = parsed else {
            self.tally.malformed_orders += 1;
            return out.drop(packet, MALFORMED_ORDER);
        };
        let filled = fill(order.instrument(), order.side(), order.price(), order.quantity()).min(order.quantity());
        let cancelled = order.quantity() - filled;
        let report = ExecutionReport { order_id: order.id(), side: order.side(), filled, cancelled };
        let tick = order.tick();
        self.measure(tick, timing, now_ns);
        let is_answered = match packet.fill(&report.to_bytes()) {
            true => out.send(REPORTS, packet),
            false => {
                out.drop(packet, NO_ROOM);
                false
            }
        };
        self.tally.unanswered += u64::from(!is_answered);
    }

    fn measure(&mut self, tick: u64, timing: Timing, now_ns: u64) {
        self.tally.orders += 1;
        self.orders.add(1);
        let Some((scheduled_ns, published_ns)) = times_of(&self.tape, self.tape_end, tick) else {
            self.tally.unknown_ticks += 1;
            return;
        };
        let took_ns = now_ns.saturating_sub(scheduled_ns);
        self.tally.tick_to_trade_ns.saturating_record(took_ns);
        self.tick_to_trade.record(took_ns);
        let times = [scheduled_ns, published_ns, timing.received_ns, timing.decided_ns, now_ns];
        add_steps(&mut self.tally.steps_ns, times);
    }
}

/// The times of a tick, if it is on the tape, which ends before `end`.
#[inline]
fn times_of(tape: &[(u64, u64)], end: u64, tick: u64) -> Option<(u64, u64)> {
    let is_near = tick < end && end - tick <= tape.len() as u64;
    let times = tape[tick as usize % tape.len()];
    (is_near && times != NO_TIMES).then_some(times)
}

/// Adds the time between each two consecutive times. Two of them are of the trader's clock, and may
/// have any value.
fn add_steps(sums_ns: &mut [u64; 4], times_ns: [u64; 5]) {
    for (sum, pair) in sums_ns.iter_mut().zip(times_ns.windows(2)) {
        *sum = sum.saturating_add(pair[1].saturating_sub(pair[0]));
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        let empty = Histogram::new_from(&self.tally.tick_to_trade_ns);
        let tally = ExchangeTally {
            tick_to_trade_ns: std::mem::replace(&mut self.tally.tick_to_trade_ns, empty),
            ..self.tally
        };
        self.home.leave(|all, stage| _ = all.exchanges.insert(stage, tally));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tick_that_is_not_on_the_tape_has_no_times() {
        let mut tape = [NO_TIMES; 4];
        assert_eq!(times_of(&tape, 0, 0), None);
        (5..11).for_each(|tick: u64| tape[tick as usize % 4] = (tick, tick + 1));
        let known = Vec::from_iter((0..20).filter_map(|tick| times_of(&tape, 11, tick)));
        assert_eq!(known, [(7, 8), (8, 9), (9, 10), (10, 11)]);
        assert_eq!(times_of(&tape, 11, u64::MAX), None);
        tape[2] = NO_TIMES;
        assert_eq!(times_of(&tape, 11, 10), None);
    }

    #[test]
    fn times_of_another_clock_end_no_run() {
        let mut sums = [0; 4];
        add_steps(&mut sums, [10, 30, 60, 100, 150]);
        assert_eq!(sums, [20, 30, 40, 50]);
        for _ in 0..3 {
            add_steps(&mut sums, [10, 30, u64::MAX, 0, u64::MAX]);
        }
        assert_eq!(sums, [80, u64::MAX, 40, u64::MAX]);
    }
}
