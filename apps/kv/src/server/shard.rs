//! A shard: answers requests from its table, each in the request's packet.

use serde::Deserialize;
use verbline::engine::Region;
use verbline::plan::{Asked, Needs, RegionNeed, Rights, SendsNeed};
use verbline::prelude::*;

use crate::protocol::{HEADER_BYTES, Location, Opcode, Reply, Request, Status};
use crate::settings::Settings;
use crate::table::{FoundKey, KEY_BYTES_MAX, Shape, Table, TableError, VALUE_BYTES_MAX};

/// The only output.
const REPLY: OutId = OutId(0);

/// The shard's drops: messages that are not requests, and replies longer than the packet of their
/// request.
const DROPS: &[&str] = &["malformed", "reply_too_long"];
const MALFORMED: DropReason = DropReason::Stage(0);
const REPLY_TOO_LONG: DropReason = DropReason::Stage(1);

/// `params` of a shard.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Params {
    table: String,
    key_bytes: u32,
    value_bytes: u32,
}

impl Keys for Params {
    const KEYS: &'static [AppKey] = &[
        AppKey::text("table", "a region's NAME", "the region that holds its table"),
        AppKey::integer("key_bytes", 1..=KEY_BYTES_MAX as u64, "the longest key").or(16).unit("bytes"),
        AppKey::integer("value_bytes", 1..=VALUE_BYTES_MAX as u64, "the longest value").or(64).unit("bytes"),
    ];
}

/// Answers requests.
struct Shard {
    table: Table<Region>,
    region: Region,
    counters: Counters,
}

struct Counters {
    gets: Counter,
    puts: Counter,
    deletes: Counter,
    locates: Counter,
    refused: Counter,
    keys: Counter,
}

pub(super) fn register(registry: &mut Registry) {
    let spec = StageSpec {
        outputs: &["reply"],
        drops: DROPS,
        summary: "answers requests out of a table that clients may read",
        ..StageSpec::default()
    };
    registry.stage("shard", spec, |stage| {
        let params: Params = stage.raw_params().read()?;
        let refused = |error: StageError| stage.raw_params().refuse("table", error.to_string());
        let region = stage.region(&params.table).map_err(refused)?;
        let Some(shape) = Shape::fitting(region.len_bytes(), params.key_bytes, params.value_bytes) else {
            let message = format!(
                "keys of {} bytes and values of {} make no table in the {} bytes of region.{}",
                params.key_bytes,
                params.value_bytes,
                region.len_bytes(),
                region.name()
            );
            return Err(stage.raw_params().refuse("value_bytes", message).into());
        };
        let counters = Counters {
            gets: stage.counter("gets"),
            puts: stage.counter("puts"),
            deletes: stage.counter("deletes"),
            locates: stage.counter("locates"),
            refused: stage.counter("refused"),
            keys: stage.counter("keys"),
        };
        Ok(Box::new(Shard { table: Table::new(region.clone(), shape), region, counters }))
    });
    registry.needs("shard", needs).params_of::<Params>("shard", "a shard of the server");
}

/// The shard's memory per slot. Clients READ the table. A connection may have as many requests in
/// flight as the plan's `kv.window`, and each has its reply.
fn needs(asked: &Asked<'_>) -> Needs {
    let mut needs = Needs::default();
    if let Ok(params) = asked.params().read::<Params>() {
        let len = asked.region_bytes(&params.table).and_then(|bytes| usize::try_from(bytes).ok());
        if let Some(shape) = len.and_then(|len| Shape::fitting(len, params.key_bytes, params.value_bytes)) {
            needs.memory_bytes.push(("hash and lengths of each slot", Table::<Region>::memory_bytes(shape)));
        }
        let (rights, what) = (Rights::REMOTE_READ, "clients READ its table");
        needs.regions.push(RegionNeed { region: params.table, rights, what });
    }
    if let Some(settings) = asked.section("kv").and_then(|section| Settings::of(section).ok()) {
        let what = "a reply to each request, of which a connection may have `kv.window` under way";
        needs.sends.push(SendsNeed { output: "reply", at_once: settings.window.into(), what });
    }
    needs
}

impl Stage for Shard {
    fn process(&mut self, input: &mut Batch, out: &mut Outputs<'_>) {
        let len = input.len();
        for mut packet in input.drain_front(len) {
            match self.answer(&mut packet) {
                // A reply without room is counted by the port, and its client asks again.
                Ok(()) => _ = out.send(REPLY, packet),
                Err(reason) => out.drop(packet, reason),
            }
        }
        self.counters.keys.set(self.table.len() as u64);
    }
}

/// The result of a request.
enum Answer {
    Status(Status),
    Value(FoundKey),
    Location(Location),
}

impl Shard {
    /// Replaces the request in the packet by its reply.
    fn answer(&mut self, packet: &mut Packet) -> Result<(), DropReason> {
        let request = Request::read(packet.data()).ok_or(MALFORMED)?;
        let (opcode, id) = (request.opcode, request.id);
        let answer = self.apply(&request).unwrap_or_else(|error| {
            self.counters.refused.add(1);
            Answer::Status(status_of(error))
        });
        match answer {
            Answer::Status(status) => reply(packet, opcode, status, id, 0, |_| ()),
            Answer::Location(location) => reply(packet, opcode, Status::Ok, id, Location::BYTES, |value| {
                value.copy_from_slice(&location.to_bytes());
            }),
            // The entry is in this table, whose memory does not shrink.
            Answer::Value(entry) => {
                reply(packet, opcode, Status::Ok, id, entry.value_bytes, |value| _ = self.table.read(entry, value))
            }
        }
    }

    fn apply(&mut self, request: &Request<'_>) -> Result<Answer, TableError> {
        let there = |there: bool| Answer::Status(if there { Status::Ok } else { Status::NotFound });
        match request.opcode {
            Opcode::Get => {
                self.counters.gets.add(1);
                Ok(self.table.find(request.key)?.map_or(there(false), Answer::Value))
            }
            Opcode::Put => {
                self.counters.puts.add(1);
                self.table.put(request.key, request.value).map(|_| there(true))
            }
            Opcode::Delete => {
                self.counters.deletes.add(1);
                self.table.delete(request.key).map(there)
            }
            Opcode::Locate => {
                self.counters.locates.add(1);
                let table = self.region.remote(0).map_err(|_| TableError::OutOfReach)?;
                Ok(Answer::Location(Location { table, shape: self.table.shape() }))
            }
        }
    }
}

fn status_of(error: TableError) -> Status {
    match error {
        TableError::Full => Status::Full,
        // The table's shape fits its region: only lengths are refused.
        TableError::TooLong | TableError::OutOfReach => Status::TooLong,
    }
}

/// Turns the packet into a reply with a value that `fill` writes.
fn reply(
    packet: &mut Packet,
    opcode: Opcode,
    status: Status,
    id: u64,
    value_bytes: usize,
    fill: impl FnOnce(&mut [u8]),
) -> Result<(), DropReason> {
    if !packet.set_len(HEADER_BYTES + value_bytes) {
        return Err(REPLY_TOO_LONG);
    }
    let (header, value) = packet.data_mut().split_at_mut(HEADER_BYTES);
    header.copy_from_slice(&Reply::header(opcode, status, id, value_bytes as u32));
    fill(value);
    Ok(())
}
