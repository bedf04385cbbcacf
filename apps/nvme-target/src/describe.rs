//! How a target's stages are described: what the plan says to them, checked, and what they need of
//! it. Nothing here opens anything, since a check does all of it.

use verbline::plan::{Asked, Needs, OperationKind, OutputOperations, Params, RegionNeed, Rights, Target as Wired};
use verbline::prelude::*;
use verbline_nvme::COMMAND_BYTES;

use crate::exchange::Known;
use crate::secrets::read_secrets;
use crate::settings::{SECTION, Settings};
use crate::space::check_file;

/// To the hosts: responses, and operations on their memory.
pub(crate) const HOST: OutId = OutId(0);
/// The same by name.
pub(crate) const HOST_NAME: &str = "host";

/// A read is a WRITE of its data, a write a READ, and responses are SENDs behind them.
pub(crate) const OPERATIONS: &[OutputOperations] =
    &[OutputOperations { output: HOST_NAME, kinds: &[OperationKind::Write, OperationKind::Read, OperationKind::Send] }];

/// The timer by which the stage looks after its queues.
pub(crate) const TIMERS: u32 = 1;

/// What the plan says to a stage, checked.
pub(crate) struct Described {
    pub(crate) settings: Settings,
    /// The hosts that have to prove who they are.
    pub(crate) known: Vec<Known>,
    /// The port that it sends to, and how many connections that has.
    pub(crate) port: u16,
    pub(crate) connections: usize,
}

/// Checks what the plan says to a stage.
pub(crate) fn describe(stage: &StageContext<'_>) -> Result<Described, StageError> {
    let section = stage.raw_section(SECTION)?;
    let settings = Settings::read(section)?;
    let (port, connections) = connections_of(stage, &settings, section)?;
    settings.check_cntlids(stage.plan(), section)?;
    for name in settings.namespace.values().filter_map(|space| space.memory.as_ref()) {
        if !stage.plan().regions().iter().any(|region| region.name == *name) {
            let message = format!("a namespace is kept in region.{name}, which the plan does not have");
            return Err(section.refuse("namespace", message).into());
        }
    }
    for (nsid, how) in settings.numbered() {
        check_file(nsid, &how).map_err(|message| section.refuse(&format!("namespace.{nsid}.file"), message))?;
    }
    Ok(Described { known: read_secrets(&settings, section)?, settings, port, connections })
}

/// What a stage needs of the plan: packets of its pool that hold the data of any command, a timer
/// for each host's keep-alive, and memory that a READ may write.
pub(crate) fn needs(asked: &Asked<'_>) -> Needs {
    let settings = asked.section(SECTION).map(Settings::read).and_then(Result::ok);
    let bytes = settings.as_ref().map_or(0, |settings| settings.transfer_bytes_max);
    let mut packet_bytes = vec![("nvme.transfer_bytes_max", bytes.into())];
    let timers = vec![("keep-alive of hosts", asked.connections(HOST_NAME).unwrap_or(0).into())];
    let Some(settings) = settings else { return Needs { packet_bytes, timers, ..Needs::default() } };
    if let Some(bytes) = settings.protection_bytes_max() {
        packet_bytes.push(("nvme.namespace.N.protection, behind the blocks", bytes));
    }
    let written = settings.namespace.values().filter(|space| !space.read_only && space.protection.is_none());
    let what = "the blocks of a namespace, which READs write";
    // A file, its ring, and the ring once more, as the lcore watches it; the wake set of the stage,
    // as the stage and the lcore have it.
    let files = settings.namespace.values().filter(|space| space.file.is_some()).count() as u64;
    let descriptors = vec![("files of namespaces", if files > 0 { 3 * files + 2 } else { 0 })];
    let regions = written.filter_map(|space| space.memory.clone());
    let regions = regions.map(|region| RegionNeed { region, rights: Rights::LOCAL_WRITE, what });
    Needs { packet_bytes, timers, descriptors, regions: regions.collect(), ..Needs::default() }
}

/// The port that the stage sends to, whose receives hold capsules, and how many connections it has.
fn connections_of(stage: &StageContext<'_>, settings: &Settings, section: &Params) -> Result<(u16, usize), StageError> {
    let plan = stage.plan();
    let own = plan.stages().iter().find(|own| own.name == stage.name());
    let port = own.and_then(|own| match own.outputs[usize::from(HOST.0)] {
        Wired::Port(id) => Some(&plan[id]),
        Wired::Stage(_) | Wired::Ring(_) | Wired::Spread(_) | Wired::Drop => None,
    });
    let Some((port, many)) = port.and_then(|port| Some((port, port.connections.as_ref()?))) else {
        return Err("sends to a port with `connections_max`: write that and `listen = \"ADDRESS:PORT\"` there".into());
    };
    let capsule = COMMAND_BYTES as u32 + settings.in_capsule_bytes;
    match port.pool.map(|pool| &plan[pool]) {
        Some(pool) if pool.data_bytes < capsule => {
            let message =
                format!("a capsule has up to {capsule} bytes, and a packet of pool.{} {}", pool.name, pool.data_bytes);
            Err(section.refuse("in_capsule_bytes", message).into())
        }
        _ => Ok((port.id.index() as u16, many.max as usize)),
    }
}
