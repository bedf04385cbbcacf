//! The stages' sections of a plan, and the checks of their values.

use std::path::PathBuf;

use serde::Deserialize;
use verbline::engine::{StageContext, StageError};
use verbline::plan::{AppKey, Asked, Keys, Target};

use crate::fast::MoexFeed;
use crate::generator::GeneratorSpec;
use crate::recovery::ServicesSpec;
use crate::risk::{RiskSpec, TriggerSpec};

/// `[feed]` of a generated feed.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ItchSettings {
    pub(super) seed: u64,
    pub(super) instruments: u16,
    pub(super) live_orders: u32,
    pub(super) ticks_per_second: u64,
    pub(super) messages_per_frame: u16,
    pub(super) drop_a: f64,
    pub(super) drop_b: f64,
    pub(super) drop_answers: f64,
    pub(super) kept_messages: u32,
}

const SEED: AppKey =
    AppKey::integer("seed", 0..=SEED_MAX, "the same seed gives the same feed, and the same drops").or(1);
const DROP_A: AppKey = AppKey::share("drop_a", "of channel A's frames, dropped on purpose").or_real(0.0);
const DROP_B: AppKey = AppKey::share("drop_b", "of channel B's frames, dropped on purpose").or_real(0.0);

impl Keys for ItchSettings {
    const KEYS: &'static [AppKey] = &[
        SEED,
        AppKey::integer("instruments", 1..=9_999, "instruments of the feed"),
        AppKey::integer("live_orders", 1..=GeneratorSpec::LIVE_ORDERS_MAX as u64, "live orders that a book settles at")
            .or(2_000),
        AppKey::integer("ticks_per_second", 0..=1_000_000_000, "messages; 0: as fast as the channels take them"),
        AppKey::integer("messages_per_frame", 1..=64, "messages in each MoldUDP64 frame").or(1),
        DROP_A,
        DROP_B,
        AppKey::share("drop_answers", "of answers to requests for messages, dropped on purpose").or_real(0.0),
        AppKey::integer("kept_messages", 2..=KEPT_MESSAGES_MAX, "the last messages, which can be sent again")
            .or(65_536)
            .unit("messages"),
    ];
}

impl ItchSettings {
    /// The bounds of the services.
    pub(super) fn services(&self) -> ServicesSpec {
        ServicesSpec { kept_messages: self.kept_messages, orders_max: self.generator().orders_max() }
    }

    /// The parameters of the generator.
    pub(super) fn generator(&self) -> GeneratorSpec {
        GeneratorSpec { seed: self.seed, instruments: self.instruments, live_orders: self.live_orders }
    }

    /// The section, if it can be read; if not, the stage's factory reports why.
    pub(super) fn asked(asked: &Asked<'_>) -> Option<ItchSettings> {
        asked.section("feed")?.read().ok()
    }

    /// Reads and checks the section.
    pub(super) fn read(stage: &StageContext<'_>) -> Result<ItchSettings, StageError> {
        Ok(stage.raw_section("feed")?.read()?)
    }
}

/// `[feed]` of a recorded feed.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MoexSettings {
    pub(super) dir: PathBuf,
    pub(super) speed: f64,
    pub(super) seed: u64,
    pub(super) drop_a: f64,
    pub(super) drop_b: f64,
}

impl Keys for MoexSettings {
    const KEYS: &'static [AppKey] = &[
        AppKey::text("dir", "a folder's path", "the folder of the recording"),
        AppKey::real("speed", SPEED_MIN..=SPEED_MAX, "how much faster than the market's clock it is played")
            .or_real(100.0),
        SEED,
        DROP_A,
        DROP_B,
    ];
}

/// The greatest whole number that every reader of JSON keeps exactly (RFC 8259, 6).
const SEED_MAX: u64 = (1 << 53) - 1;

/// Messages kept to be sent again, or held behind a gap: 64 bytes each.
pub(super) const KEPT_MESSAGES_MAX: u64 = 1 << 20;

/// The recording takes six and a half minutes at 1.0.
const SPEED_MIN: f64 = 0.001;
const SPEED_MAX: f64 = 1e9;

impl MoexSettings {
    /// The recording, if it is there; if not, the stage's factory reports why.
    pub(super) fn asked(asked: &Asked<'_>) -> Option<MoexFeed> {
        let settings: MoexSettings = asked.section("feed")?.read().ok()?;
        MoexFeed::open(&settings.dir).ok()
    }

    /// Reads and checks the section, and opens its recording.
    pub(super) fn open(stage: &StageContext<'_>) -> Result<(MoexSettings, MoexFeed), StageError> {
        let settings: MoexSettings = stage.raw_section("feed")?.read()?;
        match MoexFeed::open(&settings.dir) {
            Ok(feed) => Ok((settings, feed)),
            Err(error) => Err(stage.raw_section("feed")?.refuse("dir", error.to_string()).into()),
        }
    }
}

/// The port of a stage's output, by the number on packets that it receives.
pub(super) fn port_of_output(stage: &StageContext<'_>, output: &str) -> Option<u16> {
    let at = stage.output(output)?.0;
    let stages = stage.plan().stages();
    let outputs = &stages.iter().find(|planned| planned.name == stage.name())?.outputs;
    match outputs.get(usize::from(at)) {
        Some(Target::Port(port)) => Some(port.index() as u16),
        _ => None,
    }
}

/// `[trigger]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TriggerSettings {
    imbalance: f64,
    move_min: i64,
    quantity: u32,
    cooldown_us: u64,
}

impl Keys for TriggerSettings {
    const KEYS: &'static [AppKey] = &[
        AppKey::real("imbalance", 0.0..=2.0, "fires when a side of the best level outweighs the other by this of both")
            .or_real(0.6),
        AppKey::integer("move_min", 0..=PRICE_MAX, "fires when the mid has moved this far, in price units; 0: never")
            .or(0),
        AppKey::integer("quantity", 1..=QUANTITY_MAX, "shares or contracts of an order").or(100),
        AppKey::integer("cooldown_us", 0..=86_400_000_000, "the rest after an order").or(1_000).unit("µs"),
    ];
}

/// `[risk]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RiskSettings {
    quantity_max: u32,
    notional_max: i64,
    collar_bps: u32,
    orders_per_second: u32,
    burst_orders: u32,
    position_max: u32,
}

impl Keys for RiskSettings {
    const KEYS: &'static [AppKey] = &[
        AppKey::integer("quantity_max", 1..=QUANTITY_MAX, "the most shares or contracts of an order").or(1_000),
        AppKey::integer("notional_max", 1..=PRICE_MAX, "the greatest price times quantity, in price units")
            .or(PRICE_MAX),
        AppKey::integer("collar_bps", 0..=1_000_000, "how far from the last trade, else the mid, a price may be")
            .or(500)
            .unit("bps"),
        AppKey::integer("orders_per_second", 0..=1_000_000_000, "orders, on the average").or(10_000),
        AppKey::integer("burst_orders", 1..=1_000_000, "orders at once, beyond that average").or(64),
        AppKey::integer("position_max", 0..=QUANTITY_MAX, "the most shares or contracts held, long or short")
            .or(100_000),
    ];
}

/// The greatest number of shares or contracts, and the greatest price or notional.
const QUANTITY_MAX: u64 = 1_000_000_000;
const PRICE_MAX: u64 = i64::MAX as u64;

/// The greatest number of instruments that the trader follows.
pub const INSTRUMENTS_MAX: u16 = 1_024;

/// Reads `[trigger]`.
pub(super) fn trigger(stage: &StageContext<'_>) -> Result<TriggerSpec, StageError> {
    let settings: TriggerSettings = stage.raw_section("trigger")?.read()?;
    Ok(TriggerSpec {
        instruments: INSTRUMENTS_MAX,
        imbalance_permille: (settings.imbalance * 1000.0) as u32,
        move_min: settings.move_min,
        quantity: settings.quantity,
        cooldown_ns: settings.cooldown_us * 1_000,
    })
}

/// Reads `[risk]`.
pub(super) fn risk(stage: &StageContext<'_>) -> Result<RiskSpec, StageError> {
    let settings: RiskSettings = stage.raw_section("risk")?.read()?;
    Ok(RiskSpec {
        instruments: INSTRUMENTS_MAX,
        quantity_max: settings.quantity_max,
        notional_max: settings.notional_max,
        collar_bps: settings.collar_bps,
        orders_per_second: settings.orders_per_second,
        burst_orders: settings.burst_orders,
        position_max: settings.position_max,
    })
}
