//! The exchange of the generated feed: publishes MoldUDP64 frames of ITCH messages on schedule,
//! fills orders against the feed's book, sends messages again, and makes snapshots.

use verbline::plan::{Asked, Needs};
use verbline::prelude::*;

use super::channels::{DROPS, Drops, NO_ROOM, announce, has_room};
use super::desk::Desk;
use super::pacer::Pacer;
use super::services::Desks;
use super::settings::ItchSettings;
use super::tally::{Home, OriginTally, Tally};
use crate::book::{BookImage, ImageOrder, Level};
use crate::generator::{Generator, LiveOrder};
use crate::itch::{MESSAGE_LEN_BYTES_MAX, Side};
use crate::mold::{self, Session};

/// Frames per turn: few, so that orders don't wait for a late feed to catch up.
const FRAMES_PER_TURN: usize = 16;

pub(super) fn register(registry: &mut Registry, tally: &Tally) {
    let home = tally.clone();
    let spec = StageSpec {
        outputs: &["a", "b", "reports", "again", "snapshots"],
        source: true,
        drops: DROPS,
        summary: "publishes generated ITCH on channels A and B, takes orders, serves requests",
        ..StageSpec::default()
    };
    // A check builds no books.
    let describe = |stage: &StageContext<'_>| {
        stage.no_params()?;
        ItchSettings::read(stage)
    };
    registry.opening_stage("itch-exchange", spec, describe, move |settings, stage| {
        Ok(Box::new(ItchExchange {
            generator: Generator::new(settings.generator()).in_session(drawn_session()),
            drops: Drops::new([settings.drop_a, settings.drop_b, settings.drop_answers], settings.seed),
            pacer: Pacer::new(settings.ticks_per_second as f64),
            desk: Desk::new(stage, &home)?,
            desks: Desks::new(stage, settings.services()),
            home: home.home(stage),
            messages_per_frame: settings.messages_per_frame,
        }))
    });
    registry.needs("itch-exchange", needs);
}

/// A session name of this run, by which a trader sees that the exchange has restarted. It never
/// begins like a snapshot's.
fn drawn_session() -> Session {
    std::array::from_fn(|at| if at == 0 { b'V' } else { fastrand::alphanumeric() as u8 })
}

/// The memory for the books and the desk, and the packet size for a frame of at least one message.
fn needs(asked: &Asked<'_>) -> Needs {
    let settings = ItchSettings::asked(asked);
    let books = settings.as_ref().map_or(0, |settings| settings.generator().memory_bytes());
    let services = settings.as_ref().map_or(0, |settings| settings.services().memory_bytes());
    Needs {
        memory_bytes: vec![
            ("live_orders of each book", books),
            ("kept_messages and snapshots", services),
            ("times of ticks", Desk::MEMORY_BYTES),
        ],
        packet_bytes: vec![
            ("MoldUDP64 header", mold::HEADER_LEN_BYTES as u64),
            ("header of a message", mold::BLOCK_HEADER_LEN_BYTES as u64),
            ("longest message", MESSAGE_LEN_BYTES_MAX as u64),
        ],
        ..Needs::default()
    }
}

struct ItchExchange {
    generator: Generator,
    drops: Drops,
    pacer: Pacer,
    desk: Desk,
    desks: Desks,
    messages_per_frame: u16,
    home: Home,
}

impl Stage for ItchExchange {
    fn process(&mut self, input: &mut Batch, out: &mut Outputs<'_>) {
        let now_ns = out.fresh_ns();
        let generator = &self.generator;
        for packet in input.drain_front(input.len()) {
            match self.desks.asked(&packet) {
                Some(asked) => self.desks.serve(asked, packet, generator, &mut self.drops, out),
                None => self.desk.take_one(packet, now_ns, out, |locate, side, price, quantity| {
                    fill(generator, locate, side, price, quantity)
                }),
            }
        }
    }

    fn poll(&mut self, out: &mut Outputs<'_>) -> Next {
        for _ in 0..FRAMES_PER_TURN {
            let now_ns = out.fresh_ns();
            let due_ns = self.pacer.due_ns(now_ns);
            if due_ns > now_ns {
                return Next::At(due_ns);
            }
            if !self.publish(due_ns, out) {
                break;
            }
        }
        Next::Busy
    }

    fn stop(&mut self, out: &mut Outputs<'_>) {
        let mut bytes = [0; mold::HEADER_LEN_BYTES];
        // Fails only without room for a header, which there is.
        if let Ok(writer) = mold::Writer::new(&mut bytes, self.generator.session(), self.generator.sequence()) {
            writer.finish_session();
            announce(&bytes, out);
        }
    }
}

impl ItchExchange {
    /// Publishes the next frame on both channels. Returns false if there are no packets or no room
    /// for it now.
    fn publish(&mut self, due_ns: u64, out: &mut Outputs<'_>) -> bool {
        if !has_room(out) {
            return false;
        }
        let (Some(mut frame), Some(mut copy)) = (out.alloc(), out.alloc()) else { return false };
        let whole = frame.set_len(frame.capacity());
        debug_assert!(whole, "a packet holds its capacity");
        // A frame of one message fits every packet that the plan's check accepts (`needs`).
        let Ok(written) = self.generator.write_frame(self.messages_per_frame, due_ns, frame.data_mut()) else {
            out.drop(frame, NO_ROOM);
            return false;
        };
        let messages = u64::from(written.count);
        // The frame was written in this packet, and the copy is of the same pool, so both fit. If
        // not, these messages are gone all the same, and cannot be sent again.
        if !frame.set_len(written.len_bytes) || !copy.fill(frame.data()) {
            out.drop(frame, NO_ROOM);
            self.desk.tally.published += messages;
            return false;
        }
        self.desk.note(written.sequence, messages, due_ns, out.fresh_ns());
        self.desks.keep(frame.data());
        let tally = &mut self.desk.tally;
        let sent = [self.drops.send(0, frame, messages, tally, out), self.drops.send(1, copy, messages, tally, out)];
        tally.published += messages;
        tally.dropped_both += if sent == [false; 2] { messages } else { 0 };
        self.pacer.depart(messages);
        true
    }
}

/// The quantity of an order at `price` that the other side's best level would fill; the book stays
/// unchanged.
fn fill(generator: &Generator, locate: u64, side: Side, price: i64, quantity: u32) -> u32 {
    let Ok(locate) = u16::try_from(locate) else { return 0 };
    let Some(best) = generator.truth(locate, side.opposite()).next() else { return 0 };
    let crosses = match side {
        Side::Buy => i64::from(best.price_e4) <= price,
        Side::Sell => i64::from(best.price_e4) >= price,
    };
    if crosses { u32::try_from(best.shares).unwrap_or(u32::MAX).min(quantity) } else { 0 }
}

/// Images of the exchange's own books, to compare the trader's with.
fn images(generator: &Generator) -> Vec<BookImage> {
    let image = |locate| {
        let order = |LiveOrder { reference, side, price_e4, shares }| {
            let sells = side == Side::Sell;
            ImageOrder { reference, sells, price_e4, shares }
        };
        let mut orders: Vec<_> = generator.orders(locate).map(order).collect();
        orders.sort_unstable();
        let levels = [Side::Buy, Side::Sell].map(|side| {
            let levels = generator.truth(locate, side);
            levels.map(|level| Level { price_e4: level.price_e4, orders: level.orders, shares: level.shares }).collect()
        });
        Some(BookImage { locate, symbol: generator.symbol(locate)?, orders, levels })
    };
    (1..=generator.instruments()).filter_map(image).collect()
}

impl Drop for ItchExchange {
    fn drop(&mut self) {
        let origin = OriginTally {
            services: self.desks.counts(),
            skipped_ns: self.pacer.skipped_ns(),
            next_sequence: self.generator.sequence(),
            // Without a message there are no books to compare.
            books: if self.generator.sequence() > 1 { images(&self.generator) } else { Vec::new() },
        };
        self.home.leave(|all, stage| _ = all.origins.insert(stage, origin));
    }
}
