//! The router: marks each request with its key's hash, from which the plan's spread derives the
//! shard.

use verbline::engine::place_of_key;
use verbline::plan::Target;
use verbline::prelude::*;

use crate::protocol::{Opcode, Request};
use crate::settings::{MEANING, Settings};
use crate::table::hash;

/// The only output: a spread over the shards, or the only shard.
const SHARDS: OutId = OutId(0);

const DROPS: &[&str] = &["malformed"];
const MALFORMED: DropReason = DropReason::Stage(0);

struct Route {
    /// For each shard, a mark that the spread sends to it.
    marks: Vec<u64>,
    routed: Counter,
}

pub(super) fn register(registry: &mut Registry) {
    let spec = StageSpec {
        outputs: &["shards"],
        drops: DROPS,
        summary: "marks requests with the hash of their key",
        ..StageSpec::default()
    };
    registry.section_of::<Settings>("kv", MEANING).stage("route", spec, |stage| {
        let shards = usize::from(Settings::read(stage)?.shards);
        let (places, leads_to) = places_of(stage);
        if places != shards {
            // A client that READs the tables would look in the wrong one.
            let message =
                format!("{shards} shards, and the output `shards` of stage.{} leads to {leads_to}", stage.name());
            return Err(stage.raw_section("kv")?.refuse("shards", message).into());
        }
        let marks = (0..shards).map(|shard| mark_of(shard, shards)).collect();
        Ok(Box::new(Route { marks, routed: stage.counter("routed") }))
    });
}

/// The number of shards that the output leads to, and a text that describes them.
fn places_of(stage: &StageContext<'_>) -> (usize, String) {
    let plan = stage.plan();
    let own = plan.stages().iter().find(|own| own.name == stage.name());
    match own.map(|own| own.outputs[usize::from(SHARDS.0)]) {
        Some(Target::Spread(id)) => {
            (plan[id].to.len(), format!("the {} places of spread.{}", plan[id].to.len(), plan[id].name))
        }
        _ => (1, "1 place".to_owned()),
    }
}

/// The lowest mark that the spread sends to this shard.
fn mark_of(shard: usize, shards: usize) -> u64 {
    let mut marks = 0..;
    marks.find(|mark| place_of_key(*mark, shards) == shard).unwrap_or_default()
}

impl Route {
    /// The mark of a request; `None` if it is about a shard that does not exist.
    fn mark(&self, request: &Request<'_>) -> Option<u64> {
        match request.opcode {
            Opcode::Locate => self.marks.get(usize::from(request.shard)).copied(),
            Opcode::Get | Opcode::Put | Opcode::Delete => Some(hash(request.key)),
        }
    }
}

impl Stage for Route {
    fn process(&mut self, input: &mut Batch, out: &mut Outputs<'_>) {
        let len = input.len();
        for mut packet in input.drain_front(len) {
            match Request::read(packet.data()).and_then(|request| self.mark(&request)) {
                Some(mark) => {
                    packet.set_mark(mark);
                    self.routed.add(1);
                    // A shard that lags loses the requests without room, which its input counts;
                    // the client asks again.
                    out.send(SHARDS, packet);
                }
                None => out.drop(packet, MALFORMED),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shard_has_a_mark() {
        for shards in 1..=16 {
            for shard in 0..shards {
                assert_eq!(place_of_key(mark_of(shard, shards), shards), shard, "of {shards}");
            }
        }
    }
}
