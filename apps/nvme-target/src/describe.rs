//! Describes a target's stages: their part of the plan, checked, and their needs. Nothing here
//! opens anything, since a check of the plan runs all of it.

use verbline::plan::{Asked, Needs, OperationKind, OutputOperations, Params, RegionNeed, Rights};
use verbline::prelude::*;

use crate::commands::Commands;
use crate::exchange::Known;
use crate::fair_share::Shares;
use crate::lcore_namespace::{Space, SpaceError, check_file};
use crate::namespace_table::Spaces;
use crate::port::{port_of, shares_of};
use crate::settings::{PAGE_BYTES, SECTION, Settings, name};
use crate::turns::{Links, Turns};

/// The output [`HOST`](crate::port::HOST) by name.
pub(crate) const HOST_NAME: &str = "host";

/// A read is a WRITE of its data, a write a READ. Responses are SENDs behind them.
pub(crate) const OPERATIONS: &[OutputOperations] =
    &[OutputOperations { output: HOST_NAME, kinds: &[OperationKind::Write, OperationKind::Read, OperationKind::Send] }];

/// The timer of the stage's looks.
pub(crate) const TIMERS: u32 = 1;

/// A stage's part of the plan, checked.
pub(crate) struct Described {
    pub(crate) settings: Settings,
    /// The hosts that must authenticate.
    pub(crate) known: Vec<Known>,
    /// The port that the stage sends to, and its number of connections.
    pub(crate) port: u16,
    pub(crate) connections: usize,
    /// Operations that the port carries out at once per connection.
    pub(crate) depth_wr: u32,
    /// Whether the port's device checks the blocks of Reads, as far as it can.
    pub(crate) device_checks: bool,
    /// The shares of the port's connections: of its operations, and of the packets of data.
    pub(crate) room: Shares,
    pub(crate) packets: Shares,
}

/// Checks a stage's part of the plan.
pub(crate) fn describe(stage: &StageContext<'_>) -> Result<Described, StageError> {
    stage.no_params()?;
    let section = stage.raw_section(SECTION)?;
    let settings = Settings::read(section)?;
    let port = port_of(stage, &settings, section)?;
    let (room, packets) = shares_of(port)?;
    settings.check_cntlids(stage.plan(), section)?;
    let plan = stage.plan();
    for (nsid, name) in settings.numbered().into_iter().filter_map(|(nsid, how)| Some((nsid, how.memory?))) {
        let region = plan.regions().iter().find(|region| region.name == name);
        let owner = region.and_then(|region| region.owner);
        let message = match region {
            None => format!("a namespace is kept in region.{name}, which the plan does not have"),
            Some(_) if owner.is_none_or(|owner| plan[owner].kind != stage.kind()) => {
                SpaceError::NoRegion(name).to_string()
            }
            Some(_) => continue,
        };
        return Err(section.refuse(&format!("namespace.{nsid}.memory"), message).into());
    }
    for (nsid, how) in settings.numbered() {
        check_file(nsid, &how).map_err(|message| section.refuse(&format!("namespace.{nsid}.file"), message))?;
    }
    Ok(Described {
        known: read_secrets(&settings, section)?,
        port: port.id.index() as u16,
        connections: port.connections.as_ref().map_or(0, |many| many.max as usize),
        depth_wr: port.ops_depth_wr,
        device_checks: settings.reads_checked_by.is_device(stage.plan()[port.device].provider),
        room,
        packets,
        settings,
    })
}

/// Returns a stage's needs: packets of its pool, each as long as a page of Identify and as a block
/// of any namespace (longer commands move as many blocks at once as fit one); memory for its
/// namespaces, beside their blocks, and for commands in flight; regions that a READ may write.
pub(crate) fn needs(asked: &Asked<'_>) -> Needs {
    let settings = asked.section(SECTION).map(Settings::read).and_then(Result::ok);
    let mut packet_bytes = vec![("a page of Identify, or a block", PAGE_BYTES)];
    let Some(settings) = settings else { return Needs { packet_bytes, ..Needs::default() } };
    if let Some(behind @ 1..) = u64::from(settings.stored_bytes_max()).checked_sub(PAGE_BYTES) {
        packet_bytes.push(("nvme.namespace.N.protection, behind the block", behind));
    }
    let written = settings.namespace.values().filter(|space| !space.read_only && space.protection.is_none());
    let what = "the blocks of a namespace, which READs write";
    // Per file: the file, its ring, and the lcore's duplicate of the ring, to watch it. The wake
    // set counts twice, too: for the stage and for the lcore.
    let files = settings.namespace.values().filter(|space| space.file.is_some()).count() as u64;
    let descriptors = vec![("files of namespaces", if files > 0 { 3 * files + 2 } else { 0 })];
    let regions = written.filter_map(|space| space.memory.clone());
    let regions = regions.map(|region| RegionNeed { region, rights: Rights::LOCAL_WRITE, what });
    let memory_bytes = memory_bytes(&settings, asked.connections(HOST_NAME).unwrap_or(0).into());
    Needs { memory_bytes, packet_bytes, descriptors, regions: regions.collect(), ..Needs::default() }
}

/// The memory of a stage with this many queues. Namespaces added later are left out: each plan that
/// is read again is checked against the memory that the machine has then.
fn memory_bytes(settings: &Settings, queues: u64) -> Vec<(&'static str, u64)> {
    let commands = u64::from(settings.commands_max);
    let spaces = settings.namespace.values().map(|how| Space::bytes(how, settings.commands_max, queues));
    let spaces = spaces.fold(Spaces::bytes(), u64::saturating_add);
    let under_way = Commands::bytes(commands) + Links::bytes(commands) + 2 * Turns::bytes(queues);
    vec![("namespaces, beside their blocks", spaces), ("commands under way", under_way)]
}

/// Reads the secrets of hosts that have one.
fn read_secrets(settings: &Settings, section: &Params) -> Result<Vec<Known>, StageError> {
    let mut known = Vec::with_capacity(settings.secrets.len());
    for (host, path) in &settings.secrets {
        let secret = nvme_load::read_secret(path)
            .map_err(|error| section.refuse("secrets", format!("the secret of {host}: {error}")))?;
        let host = name(host);
        known.push(Known { host, key: secret.key_of(&host) });
    }
    Ok(known)
}
