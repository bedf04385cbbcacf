//! A target stage's requirements on its port, and the shares of the port's connections.

use verbline::plan::{Params, Pool, Port, Target as Wired};
use verbline::prelude::*;
use verbline_nvme::COMMAND_BYTES;

use crate::fair_share::Shares;
use crate::settings::Settings;

/// The output to the hosts: responses, and operations on their memory.
pub(crate) const HOST: OutId = OutId(0);

/// Packets of data that commands may hold between two calls.
pub(crate) const DATA_PACKETS: u32 = 256;
/// The most packets of data that a command needs at once.
const COMMAND_PACKETS: u32 = 2;

/// A stage's pool, for the data of commands: its part of the plan, and its memory.
#[derive(Clone, Debug)]
pub(crate) struct DataPool {
    pub(crate) plan: Pool,
    pub(crate) memory: verbline::mem::Pool,
}

/// Finds the port that the stage sends to. It has many connections, and its receives hold whole
/// capsules.
pub(crate) fn port_of<'plan>(
    stage: &StageContext<'plan>,
    settings: &Settings,
    section: &Params,
) -> Result<&'plan Port, StageError> {
    let plan = stage.plan();
    let own = plan.stages().iter().find(|own| own.name == stage.name());
    let port = own.and_then(|own| match own.outputs[usize::from(HOST.0)] {
        Wired::Port(id) => Some(&plan[id]),
        Wired::Stage(_) | Wired::Ring(_) | Wired::Spread(_) | Wired::Drop => None,
    });
    let Some(port) = port.filter(|port| port.connections.is_some()) else {
        return Err("sends to a port with `connections_max`: write that and `listen = \"ADDRESS:PORT\"` there".into());
    };
    let capsule = COMMAND_BYTES as u32 + settings.in_capsule_bytes;
    match port.pool.map(|pool| &plan[pool]) {
        Some(pool) if pool.data_bytes < capsule => {
            let message =
                format!("a capsule has up to {capsule} bytes, and a packet of pool.{} {}", pool.name, pool.data_bytes);
            Err(section.refuse("in_capsule_bytes", message).into())
        }
        Some(pool) => check_capsules(stage, port, pool, (settings, section)).map(|()| port),
        None => Ok(port),
    }
}

/// Checks that the pool has room for the capsules of all commands, since a waiting command keeps
/// its capsule, beside the rest of the plan's sum. That sum counts the stage's packets and
/// operations twice: in the stage, and on their way to be posted.
fn check_capsules(
    stage: &StageContext<'_>,
    port: &Port,
    pool: &Pool,
    (settings, section): (&Settings, &Params),
) -> Result<(), StageError> {
    let name = format!("pool.{}", pool.name);
    let operations = port.connections.as_ref().map_or(0, |many| u64::from(many.ops_shared_wr));
    let sum = stage.plan().sums().iter().find(|sum| sum.of == name).ok_or("the plan has a sum for each pool")?;
    let others = sum.needed.saturating_sub(2 * u64::from(DATA_PACKETS) + operations);
    let has_data = stage.pool().is_some_and(|own| own.name == pool.name);
    let data = if has_data { DATA_PACKETS.into() } else { 0 };
    let needed = others + u64::from(settings.commands_max) + data;
    if needed <= u64::from(pool.packets) {
        return Ok(());
    }
    let message = format!(
        "{} commands that wait keep as many packets of {name}, which has {}: write `packets = {needed}` there, or a \
         smaller `commands_max`",
        settings.commands_max, pool.packets
    );
    Err(section.refuse("commands_max", message).into())
}

/// The shares of the port's connections: of the operations that the port carries out at once, and
/// of the packets that the stage holds.
pub(crate) fn shares_of(port: &Port) -> Result<(Shares, Shares), StageError> {
    let (name, many) = (&port.name, port.connections.as_ref());
    let (connections, operations) = many.map_or((0, 0), |many| (many.max, many.ops_shared_wr));
    // The operations of a read, the longest list.
    let least = if port.signature_keys > 0 { 3 } else { 2 };
    let room = Shares::new(operations, connections, least).filter(|_| port.ops_depth_wr >= least);
    let room = room.ok_or_else(|| {
        format!(
            "each of the {connections} connections of port.{name} is sure of {least} operations at once; write \
             `ops_depth_wr = {least}` and `ops_shared_wr = {}` there, or more, or a smaller `connections_max`",
            u64::from(least) * u64::from(connections)
        )
    })?;
    let packets = Shares::new(DATA_PACKETS, connections, COMMAND_PACKETS).ok_or_else(|| {
        format!(
            "the target holds {DATA_PACKETS} packets of data, {COMMAND_PACKETS} for each connection; write \
             `connections_max = {}` in port.{name}, and another port and stage for more",
            DATA_PACKETS / COMMAND_PACKETS
        )
    })?;
    Ok((room, packets))
}
