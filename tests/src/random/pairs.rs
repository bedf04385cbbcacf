//! A random plan as two: the client's lcore in one process, the server's in another one, connected
//! by the wire. Packets pass from the client to the server, and back where a stage waits for them,
//! so that the client may end first.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::draft::PairDraft;
use super::links::{LinkDraft, Via};
use super::marks::{GROUPS, PATIENT, RELIABLE, SECTION, WIRE_ADDRESS};
use super::text::{Plan, line};

/// The key in the run's section that says so, and its word for two devices with one address.
const PAIR: &str = "pair = ";
const SHARED: &str = "shared";

impl Plan<'_> {
    /// The line of the run's section, if it is for two processes.
    pub(super) fn pair_key(&mut self) {
        if let Some(shares) = self.pair().map(|pair| pair.shares_address) {
            line!(self, "{PAIR}\"{}\"", if shares { SHARED } else { "own" });
        }
    }

    /// How it is split between two processes, if it is.
    pub(super) fn pair(&self) -> Option<&PairDraft> {
        self.draft.pair.as_ref().filter(|_| self.cpus > 1)
    }

    /// How packets get from a node to another one.
    pub(super) fn via(&self, from: usize, (link, to): &(&LinkDraft, usize)) -> Via {
        self.via_between(self.lcore(from), self.lcore(*to), link)
    }

    /// How packets get from an lcore to another one, which may be in another process.
    pub(super) fn via_between(&self, near: usize, far: usize, link: &LinkDraft) -> Via {
        match link.via {
            via if self.pair().is_none() => via,
            Via::RingThenRc if near == far => Via::Rc,
            via if near == far => via,
            Via::Group => Via::Group,
            _ => Via::Address,
        }
    }
}

/// The plans of the client and the server, if the plan of this text is for two processes. `number`
/// chooses their addresses and groups: no other pair that runs has it.
pub fn sides(text: &str, number: u32) -> Option<[String; 2]> {
    let shared = text.lines().find_map(|line| line.strip_prefix(PAIR))?.contains(SHARED);
    let [high, mid, low] = [number >> 16, number >> 8, number].map(|part| part as u8);
    let first = format!("127.{}.{mid}.{low}", 0x40 | high & 0x3f);
    let second = if shared { first.clone() } else { format!("127.{}.{mid}.{low}", high & 0x3f) };
    let groups = format!("239.{}.{}.", 2 + u32::from(mid) % 250, low);
    let text = text.replace(GROUPS, &groups).replace(RELIABLE, &format!("{RELIABLE}{PATIENT}"));
    let tables: Vec<&str> = text.split("\n[").map(|table| table.trim_start_matches('[')).collect();
    let split = Split::new(&tables);
    let addresses = [first, second];
    let sides = [0, 1].map(|side| split.side(side, &tables, &addresses));
    Some(sides).filter(|sides| sides.iter().all(|side| side.contains("[stage.")))
}

/// The sides of a plan's tables.
struct Split<'a> {
    /// The side of each table that is not on both, by its name.
    of: BTreeMap<&'a str, usize>,
    /// The side of each listener, by its port number.
    listens: BTreeMap<&'a str, usize>,
}

fn name(table: &str) -> &str {
    table.split(']').next().unwrap_or_default()
}

/// The value of a key that stands at the beginning of a line.
fn value<'a>(table: &'a str, key: &str) -> Option<&'a str> {
    table.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = "))
}

/// The first quoted word.
fn word(value: &str) -> Option<&str> {
    value.split('"').nth(1)
}

impl<'a> Split<'a> {
    fn new(tables: &[&'a str]) -> Split<'a> {
        let (mut of, mut listens) = (BTreeMap::new(), BTreeMap::new());
        for table in tables {
            let lcore = value(table, "lcore").and_then(word).or_else(|| name(table).strip_prefix("lcore."));
            let Some(side) = lcore.map(|lcore| usize::from(lcore == "c1")) else { continue };
            of.insert(name(table), side);
            let port = value(table, "listen").and_then(word).and_then(|at| at.rsplit(':').next());
            port.into_iter().for_each(|port| _ = listens.insert(port, side));
            // Each region has one owner.
            let regions = value(table, "regions").map(|names| names.split('"').skip(1).step_by(2));
            for region in regions.into_iter().flatten() {
                let named = tables.iter().map(|table| name(table)).find(|name| *name == format!("region.{region}"));
                named.into_iter().for_each(|name| _ = of.insert(name, side));
            }
        }
        // Rings and injectors are where they lead; spreads, which may lead to rings, after them.
        for sort in ["ring.", "injector.", "spread."] {
            for table in tables.iter().filter(|table| name(table).starts_with(sort)) {
                let side = value(table, "to").and_then(word).and_then(|to| of.get(to).copied());
                side.into_iter().for_each(|side| _ = of.insert(name(table), side));
            }
        }
        Split { of, listens }
    }

    fn side(&self, side: usize, tables: &[&str], addresses: &[String; 2]) -> String {
        let is_here = |table: &&&str| self.of.get(name(table)).is_none_or(|of| *of == side);
        let here: Vec<&str> = tables.iter().filter(is_here).copied().collect();
        let is_used = |table: &&str| {
            let Some(pool) = name(table).strip_prefix("pool.") else { return true };
            here.iter().any(|user| value(user, "pool").and_then(word) == Some(pool))
        };
        let mut text = String::new();
        for table in here.iter().copied().filter(is_used) {
            let at = value(table, "listen").or_else(|| value(table, "connect")).and_then(word);
            let listener = at.and_then(|at| self.listens.get(at.rsplit(':').next()?)).copied();
            text += &format!("[{}\n", table.replace(WIRE_ADDRESS, &addresses[listener.unwrap_or(side)]));
            if name(table) == SECTION {
                text += &format!("side = {side}\n");
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::draw;

    // Regression: a process that others kept from its CPU for half a second lost its connections.
    #[test]
    fn reliable_ports_of_two_processes_give_their_peer_up_late() {
        let texts = (0..).map(|seed| draw(seed).text(&[0, 1], 1, 40));
        let sides = texts.filter_map(|text| sides(&text, 1)).find(|sides| sides[0].contains(RELIABLE));
        for side in sides.expect("some plan has them") {
            assert_eq!(side.matches(PATIENT).count(), side.matches(RELIABLE).count(), "{side}");
        }
    }
}
