//! The sections of a plan that the stages read, and what is refused in them.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use serde::Deserialize;
use verbline::cli::count;
use verbline::engine::{StageContext, StageError};
use verbline::plan::{Asked, Params, Target};

use crate::fast::MoexFeed;
use crate::generator::GeneratorSpec;
use crate::recovery::ServicesSpec;
use crate::risk::{RiskSpec, TriggerSpec};

/// `[feed]` of the generated feed.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ItchSettings {
    /// The same seed gives the same feed, and the same drops.
    #[serde(default = "ItchSettings::seed")]
    pub(super) seed: u64,
    /// Instruments, 1 to 9,999.
    pub(super) instruments: u16,
    /// Live orders that each book settles at.
    #[serde(default = "ItchSettings::live_orders")]
    pub(super) live_orders: u32,
    /// Messages a second; 0: as fast as the channels take them.
    pub(super) ticks_per_second: u64,
    /// Messages in each MoldUDP64 frame.
    #[serde(default = "ItchSettings::messages_per_frame")]
    pub(super) messages_per_frame: u16,
    /// Share of frames of each channel that is dropped on purpose.
    #[serde(default)]
    pub(super) drop_a: f64,
    /// Likewise.
    #[serde(default)]
    pub(super) drop_b: f64,
    /// Share of the answers to requests for messages that is dropped on purpose.
    #[serde(default)]
    pub(super) drop_answers: f64,
    /// The last messages of the feed, which can be sent again.
    #[serde(default = "ItchSettings::kept_messages")]
    pub(super) kept_messages: u32,
}

impl ItchSettings {
    fn seed() -> u64 {
        1
    }

    fn live_orders() -> u32 {
        2_000
    }

    fn messages_per_frame() -> u16 {
        1
    }

    fn kept_messages() -> u32 {
        65_536
    }

    /// What the exchange keeps to serve it.
    pub(super) fn services(&self) -> ServicesSpec {
        ServicesSpec { kept_messages: self.kept_messages, orders_max: self.generator().orders_max() }
    }

    /// What is to be generated.
    pub(super) fn generator(&self) -> GeneratorSpec {
        GeneratorSpec { seed: self.seed, instruments: self.instruments, live_orders: self.live_orders }
    }

    /// The section as it stands, if it can be read; if not, the stage's factory says why.
    pub(super) fn asked(asked: &Asked<'_>) -> Option<ItchSettings> {
        asked.section("feed")?.parse().ok()
    }

    /// Reads and checks the section.
    pub(super) fn read(stage: &StageContext<'_>) -> Result<ItchSettings, StageError> {
        let settings: ItchSettings = stage.section("feed")?;
        let feed = stage.raw_section("feed")?;
        bounds(
            feed,
            [
                ("seed", settings.seed, 0..=SEED_MAX),
                ("live_orders", settings.live_orders.into(), 1..=u64::from(GeneratorSpec::LIVE_ORDERS_MAX)),
                ("ticks_per_second", settings.ticks_per_second, 0..=1_000_000_000),
                ("kept_messages", settings.kept_messages.into(), 2..=KEPT_MESSAGES_MAX),
            ],
        )?;
        share(stage, "drop_a", settings.drop_a)?;
        share(stage, "drop_b", settings.drop_b)?;
        share(stage, "drop_answers", settings.drop_answers)?;
        if !(1..=9_999).contains(&settings.instruments) {
            return Err(feed.refuse("instruments", "the feed has 1 to 9,999 instruments").into());
        }
        if !(1..=64).contains(&settings.messages_per_frame) {
            return Err(feed.refuse("messages_per_frame", "a frame has 1 to 64 messages").into());
        }
        Ok(settings)
    }
}

/// `[feed]` of the recorded feed.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MoexSettings {
    /// The folder of the recording.
    pub(super) dir: PathBuf,
    /// How much faster than the market's clock the recording is played.
    #[serde(default = "MoexSettings::speed")]
    pub(super) speed: f64,
    /// For the drops.
    #[serde(default = "ItchSettings::seed")]
    pub(super) seed: u64,
    /// Share of datagrams of each incremental channel that is dropped on purpose.
    #[serde(default)]
    pub(super) drop_a: f64,
    /// Likewise.
    #[serde(default)]
    pub(super) drop_b: f64,
}

/// As far as every reader of JSON keeps whole numbers exactly (RFC 8259, 6).
const SEED_MAX: u64 = (1 << 53) - 1;

/// Messages that are kept to be sent again, or held behind a gap: 64 bytes each.
pub(super) const KEPT_MESSAGES_MAX: u64 = 1 << 20;

/// The recording takes six and a half minutes at 1.0.
const SPEED_MIN: f64 = 0.001;
const SPEED_MAX: f64 = 1e9;

impl MoexSettings {
    fn speed() -> f64 {
        100.0
    }

    /// The recording, if it is there; if not, the stage's factory says why.
    pub(super) fn asked(asked: &Asked<'_>) -> Option<MoexFeed> {
        let settings: MoexSettings = asked.section("feed")?.parse().ok()?;
        MoexFeed::open(&settings.dir).ok()
    }

    /// Reads and checks the section, and opens the recording that it names.
    pub(super) fn open(stage: &StageContext<'_>) -> Result<(MoexSettings, MoexFeed), StageError> {
        let settings = MoexSettings::read(stage)?;
        match MoexFeed::open(&settings.dir) {
            Ok(feed) => Ok((settings, feed)),
            Err(error) => Err(stage.raw_section("feed")?.refuse("dir", error.to_string()).into()),
        }
    }

    fn read(stage: &StageContext<'_>) -> Result<MoexSettings, StageError> {
        let settings: MoexSettings = stage.section("feed")?;
        bounds(stage.raw_section("feed")?, [("seed", settings.seed, 0..=SEED_MAX)])?;
        share(stage, "drop_a", settings.drop_a)?;
        share(stage, "drop_b", settings.drop_b)?;
        if !(SPEED_MIN..=SPEED_MAX).contains(&settings.speed) {
            let message = format!(
                "a speed of {} is not within {SPEED_MIN} to {SPEED_MAX}: 1.0 is the market's own pace",
                settings.speed
            );
            return Err(stage.raw_section("feed")?.refuse("speed", message).into());
        }
        Ok(settings)
    }
}

/// The port that an output of a stage leads to, by the number that packets received by it carry.
pub(super) fn port_of_output(stage: &StageContext<'_>, output: &str) -> Option<u16> {
    let at = stage.output(output)?.0;
    let stages = stage.plan().stages();
    let outputs = &stages.iter().find(|planned| planned.name == stage.name())?.outputs;
    match outputs.get(usize::from(at)) {
        Some(Target::Port(port)) => Some(port.index() as u16),
        _ => None,
    }
}

/// Insists that numbers of a table are within their bounds.
pub(super) fn bounds<const N: usize>(
    table: &Params,
    numbers: [(&'static str, u64, RangeInclusive<u64>); N],
) -> Result<(), StageError> {
    for (key, value, bounds) in numbers {
        if !bounds.contains(&value) {
            let (least, most) = (count(*bounds.start()), count(*bounds.end()));
            return Err(table.refuse(key, format!("{} is not within {least} to {most}", count(value))).into());
        }
    }
    Ok(())
}

fn share(stage: &StageContext<'_>, key: &str, value: f64) -> Result<(), StageError> {
    if (0.0..=1.0).contains(&value) {
        return Ok(());
    }
    Err(stage.raw_section("feed")?.refuse(key, format!("{value} is no share: 0.0 drops nothing, 1.0 all")).into())
}

/// `[trigger]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct TriggerSettings {
    /// Fires when one side of the best level outweighs the other by this share of both.
    imbalance: f64,
    /// Fires when the mid has moved this far, in the feed's price unit; 0 never.
    move_min: i64,
    /// Shares or contracts of an order.
    quantity: u32,
    /// Rest after an order, microseconds.
    cooldown_us: u64,
}

impl Default for TriggerSettings {
    fn default() -> Self {
        TriggerSettings { imbalance: 0.6, move_min: 0, quantity: 100, cooldown_us: 1_000 }
    }
}

/// `[risk]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RiskSettings {
    quantity_max: u32,
    notional_max: i64,
    collar_bps: u32,
    orders_per_second: u32,
    burst_orders: u32,
    position_max: u32,
}

impl Default for RiskSettings {
    fn default() -> Self {
        RiskSettings {
            quantity_max: 1_000,
            notional_max: i64::MAX,
            collar_bps: 500,
            orders_per_second: 10_000,
            burst_orders: 64,
            position_max: 100_000,
        }
    }
}

/// Most shares or contracts of anything, and the greatest price or notional.
const QUANTITY_MAX: u64 = 1_000_000_000;
const PRICE_MAX: u64 = i64::MAX as u64;

/// Most instruments that the trader follows.
pub const INSTRUMENTS_MAX: u16 = 1_024;

/// Reads `[trigger]`.
pub(super) fn trigger(stage: &StageContext<'_>) -> Result<TriggerSpec, StageError> {
    let settings: TriggerSettings = stage.section("trigger")?;
    if !(0.0..=2.0).contains(&settings.imbalance) {
        let message =
            format!("{} is no share: 0.6 is three fifths, anything above 1.0 never fires", settings.imbalance);
        return Err(stage.raw_section("trigger")?.refuse("imbalance", message).into());
    }
    let trigger = stage.raw_section("trigger")?;
    let Ok(move_min) = u64::try_from(settings.move_min) else {
        return Err(trigger.refuse("move_min", "a move is a distance: 1 or more, or 0, which never fires").into());
    };
    bounds(
        trigger,
        [
            ("move_min", move_min, 0..=PRICE_MAX),
            ("quantity", settings.quantity.into(), 1..=QUANTITY_MAX),
            ("cooldown_us", settings.cooldown_us, 0..=86_400_000_000),
        ],
    )?;
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
    let settings: RiskSettings = stage.section("risk")?;
    let risk = stage.raw_section("risk")?;
    let Ok(notional_max) = u64::try_from(settings.notional_max) else {
        return Err(risk.refuse("notional_max", "a notional is 1 or more").into());
    };
    bounds(
        risk,
        [
            ("quantity_max", settings.quantity_max.into(), 1..=QUANTITY_MAX),
            ("notional_max", notional_max, 1..=PRICE_MAX),
            ("collar_bps", settings.collar_bps.into(), 0..=1_000_000),
            ("orders_per_second", settings.orders_per_second.into(), 0..=1_000_000_000),
            ("burst_orders", settings.burst_orders.into(), 1..=1_000_000),
            ("position_max", settings.position_max.into(), 0..=QUANTITY_MAX),
        ],
    )?;
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
