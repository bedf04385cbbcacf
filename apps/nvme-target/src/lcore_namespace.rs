//! An lcore's part of a namespace: its own store over the blocks that all lcores share; and what
//! an lcore's stores are asked for in one turn.

use std::collections::{BTreeMap, VecDeque};

use verbline::engine::signature::BlockSignature;
use verbline::engine::{Part, Region};
use verbline::prelude::*;
use verbline_nvme::io::{FORCE_UNIT_ACCESS, ReadWrite};
use verbline_nvme::namespace::{Names, Namespace};
use verbline_nvme::{Command, opcode};
use verbline_store::{
    BlockMemory, DirectIo, Fault, FileSpec, FileStore, Geometry, GeometryError, IdentityFrom, MemoryStore, NullStore,
    Request, Store,
};

use crate::layout::Layout;
use crate::port::DataPool;
use crate::settings::{NamespaceSettings, Settings};
use crate::shared::Shared;
use crate::turns::{Links, Turns};

/// A number for one life of a namespace: from the plan that adds it until the last stage gives it
/// up.
pub(crate) type TenantId = u64;

/// The blocks of a read, and the device's checks and changes to them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Signed {
    pub(crate) part: Part,
    pub(crate) signature: BlockSignature,
    /// Bytes of the blocks, without protection information.
    pub(crate) data_bytes: u32,
}

/// A namespace.
pub(crate) struct Space {
    pub(crate) nsid: u32,
    /// Its name in [`Namespaces`](crate::namespace_changes::Namespaces).
    pub(crate) tenant: TenantId,
    pub(crate) store: Box<dyn Store>,
    /// The place of its blocks, for the log.
    pub(crate) blocks: Box<str>,
    /// Hosts may only read it, whatever its store can do.
    is_read_only: bool,
    pub(crate) layout: Layout,
    /// The memory of its blocks, if RDMA operations can reach them there.
    region: Option<Region>,
    names: Names,
    /// Commands waiting to ask the store, in turn over their queues.
    pub(crate) waiting: Turns,
    /// Requests for the store.
    pub(crate) requests: VecDeque<Request>,
    /// Whether it is in the lcore's list of busy namespaces.
    pub(crate) is_busy: bool,
    /// Whether its descriptor wakes the lcore.
    pub(crate) is_watched: bool,
    /// Its file can no longer be reached, as was logged.
    pub(crate) is_broken: bool,
}

/// A region as the memory of a store.
struct RegionMemory(Region);

impl BlockMemory for RegionMemory {
    fn len_bytes(&self) -> usize {
        self.0.len_bytes()
    }

    fn read_into(&self, offset: usize, bytes: &mut [u8]) -> Result<(), Fault> {
        self.0.read_into(offset, bytes).map_err(|_| Fault::OutOfRange)
    }

    fn write_from(&self, offset: usize, bytes: &[u8]) -> Result<(), Fault> {
        self.0.write_from(offset, bytes).map_err(|_| Fault::OutOfRange)
    }
}

/// The reason why a namespace can't be opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SpaceError {
    #[error(transparent)]
    Geometry(#[from] GeometryError),
    #[error("its memory can't be written: {0}")]
    Memory(#[from] Fault),
    #[error("no target stage of the plan owns region.{0}; write `regions = [\"{0}\"]` in one")]
    NoRegion(String),
    #[error("the system gives no random bytes, of which its name is to be made: write `uuid = …`")]
    NoName,
}

impl Space {
    /// Opens the namespace for an lcore with `queues` queues. Its file, if any, is already open.
    pub(crate) fn open(
        nsid: u32,
        how: &NamespaceSettings,
        settings: &Settings,
        queues: usize,
        shared: &Shared,
        file: Option<FileStore>,
    ) -> Result<Space, SpaceError> {
        let (layout, depth) = (how.layout(), settings.commands_max as usize);
        let uuid = match (how.uuid, &how.memory, &file) {
            (Some(uuid), ..) => Some(uuid.0),
            // A region's blocks last as long as the run, and so does their UUID.
            (None, Some(region), _) => shared.uuid_of(region),
            (None, None, Some(file)) => file.identity().map(|identity| identity.uuid),
            (None, None, None) => Some(of_nothing(settings, nsid)),
        };
        let uuid = uuid.ok_or(SpaceError::NoName)?;
        let names = Names { uuid, nguid: how.nguid.map(|name| name.0), eui64: how.eui64.map(|name| name.0) };
        let own = shared.own_store(nsid, depth);
        let blocks = blocks_of(how, own.is_some());
        let (store, region) = match (&how.memory, file, own) {
            (Some(name), ..) => memory(name, &layout, depth, shared)?,
            (None, Some(file), _) => (Box::new(file) as Box<dyn Store>, None),
            (None, None, Some(store)) => (store, None),
            (None, None, None) => {
                let geometry = Geometry::of_bytes(how.null_bytes.unwrap_or_default(), how.block_bytes)?;
                (Box::new(NullStore::new(geometry, depth)) as Box<dyn Store>, None)
            }
        };
        Ok(Space {
            nsid,
            tenant: nsid.into(),
            store,
            blocks,
            is_read_only: how.read_only,
            layout,
            region,
            names,
            waiting: Turns::new(queues),
            // Requests of a turn are submitted in the same turn: no more are made than there is
            // room for.
            requests: VecDeque::with_capacity(TURN_REQUESTS.min(depth)),
            is_busy: false,
            is_watched: true,
            is_broken: false,
        })
    }

    /// Bytes that a namespace takes in a stage with this many queues, beside its blocks.
    pub(crate) fn bytes(how: &NamespaceSettings, commands_max: u32, queues: u64) -> u64 {
        let depth = u64::from(commands_max);
        let store = match (&how.file, &how.memory) {
            (Some(_), _) => <FileStore>::queue_bytes(depth.min(FILE_DEPTH_MAX.into())),
            (None, Some(_)) => MemoryStore::<RegionMemory>::queue_bytes(depth),
            (None, None) => NullStore::queue_bytes(depth),
        };
        let requests = depth.min(TURN_REQUESTS as u64) * size_of::<Request>() as u64;
        store + requests + Turns::bytes(queues)
    }

    /// Whether requests are at the store, or waiting for it.
    pub(crate) fn has_work(&self) -> bool {
        !self.waiting.is_empty() || !self.requests.is_empty() || self.store.under_way() > 0
    }

    /// Takes the next waiting command, if the store has room.
    pub(crate) fn take_turn(&mut self, links: &mut Links) -> Option<(u16, u32)> {
        if self.store.room() > self.requests.len() { self.waiting.pop(links) } else { None }
    }

    /// The blocks of a Read or Write, if an RDMA operation can reach them and the command is
    /// complete when the operation is.
    #[inline]
    pub(crate) fn direct_of(&self, command: &Command) -> Option<Part> {
        let region = self.region.as_ref().filter(|_| self.layout.is_plain(command))?;
        let must_flush =
            command.opcode == opcode::io::WRITE && is_durable(command) && self.store.geometry().volatile_cache;
        let range = ReadWrite::of(command);
        let bytes = self.store.direct(range.slba, range.blocks).filter(|_| !must_flush)?;
        region.part(bytes.start, bytes.len())
    }

    /// The blocks of a Read and the device's part in sending them, if it can check them on their
    /// way.
    #[inline]
    pub(crate) fn signed_of(&self, command: &Command) -> Option<Signed> {
        let (region, protected) = self.region.as_ref().zip(self.layout.protected)?;
        let signature = protected.signature(command)?;
        let range = ReadWrite::of(command);
        let bytes = self.store.direct(range.slba, range.blocks)?;
        let part = region.part(bytes.start, bytes.len())?;
        Some(Signed { part, signature, data_bytes: range.blocks << self.layout.block_shift })
    }

    /// Copies data of a capsule to the blocks: the only copy. False if they do not lie in memory.
    pub(crate) fn write_now(&self, range: Part, data: &[u8]) -> bool {
        self.region.as_ref().is_some_and(|region| region.write_from(range.offset(), data).is_ok())
    }

    /// The geometry of its store, as far as hosts may use it.
    pub(crate) fn geometry(&self) -> Geometry {
        let geometry = self.store.geometry();
        Geometry { read_only: geometry.read_only || self.is_read_only, ..geometry }
    }

    /// Its data of Identify.
    pub(crate) fn identity(&self) -> Namespace {
        let geometry = self.geometry();
        Namespace {
            blocks: geometry.blocks,
            block_shift: self.layout.block_shift as u8,
            is_read_only: geometry.read_only,
            nguid: self.names.nguid,
            eui64: self.names.eui64,
            protection: self.layout.protected.map(|protected| protected.format.kind),
        }
    }

    pub(crate) fn names(&self) -> &Names {
        &self.names
    }
}

/// The place of a namespace's blocks: as its plan names it, or the embedder's own store.
fn blocks_of(how: &NamespaceSettings, is_own: bool) -> Box<str> {
    match (&how.file, &how.memory) {
        (Some(path), _) => format!("file {}", path.display()).into(),
        (None, Some(region)) => format!("region.{region}").into(),
        (None, None) if is_own => "the app's own store".into(),
        (None, None) => "null_bytes".into(),
    }
}

/// Whether the command has FUA: durable before its response.
pub(crate) fn is_durable(command: &Command) -> bool {
    command.cdw10[2] & FORCE_UNIT_ACCESS != 0
}

/// Checks a namespace's file without opening it, by its metadata alone.
pub(crate) fn check_file(nsid: u32, how: &NamespaceSettings) -> Result<(), String> {
    let Some(path) = &how.file else { return Ok(()) };
    let shown = path.display();
    match std::fs::metadata(path) {
        Ok(found) if found.is_dir() => Err(format!("namespace {nsid}: {shown} is a folder")),
        Ok(_) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && how.create_bytes.is_some() => Ok(()),
        Err(error) => Err(format!("namespace {nsid}: {shown}: {error}; write `create_bytes` to have a file made")),
    }
}

/// Opens the files of namespaces for one lcore, by the namespace's number. It runs before the run,
/// so that a missing file is an error of the plan.
pub(crate) fn open_files(settings: &Settings, pool: &DataPool) -> Result<BTreeMap<u32, FileStore>, StageError> {
    let mut files = BTreeMap::new();
    for (nsid, how) in settings.numbered() {
        let opened = open_file(nsid, &how, settings.commands_max, pool);
        if let Some(store) = opened.map_err(|error| format!("namespace {nsid}: {error}"))? {
            files.insert(nsid, store);
        }
    }
    Ok(files)
}

/// Opens a namespace's file, if it has one, for one lcore.
pub(crate) fn open_file(
    nsid: u32,
    how: &NamespaceSettings,
    commands_max: u32,
    DataPool { plan: pool, memory }: &DataPool,
) -> Result<Option<FileStore>, StageError> {
    let Some(path) = &how.file else { return Ok(None) };
    let store = FileStore::open(&FileSpec {
        read_only: how.read_only,
        create_bytes: how.create_bytes,
        pools: vec![memory.clone()],
        direct: if how.page_cache || how.protection.is_some() { DirectIo::Never } else { DirectIo::Auto },
        ..FileSpec::new(path, how.layout().stored_bytes(), commands_max.min(FILE_DEPTH_MAX))
    })?;
    store.notes().iter().for_each(|note| tracing::warn!(nsid, "{note}"));
    if how.uuid.is_none() && store.identity().is_some_and(|identity| identity.from == IdentityFrom::Path) {
        tracing::warn!(nsid, "hosts know {} by its path alone: write `uuid = …` there", path.display());
    }
    let align = store.geometry().align_bytes;
    let is_aligned = |bytes: u32| bytes.is_multiple_of(align);
    if !(is_aligned(pool.headroom_bytes) && is_aligned(pool.headroom_bytes + pool.data_bytes)) {
        let path = path.display();
        return Err(format!(
            "direct I/O on {path} needs data at multiples of {align} bytes; write \
             `headroom_bytes = 0` in pool.{}, and `data_bytes` a multiple of {align}",
            pool.name
        )
        .into());
    }
    Ok(Some(store))
}

/// The most requests of a file in flight; others wait in the target.
const FILE_DEPTH_MAX: u32 = 4096;

fn memory(
    name: &str,
    layout: &Layout,
    depth: usize,
    shared: &Shared,
) -> Result<(Box<dyn Store>, Option<Region>), SpaceError> {
    let mut opened = None;
    let found = shared.memory(name, |region, is_formatted| {
        let (memory, block_bytes) = (RegionMemory(region.clone()), layout.stored_bytes());
        if !*is_formatted {
            layout.format(&memory)?;
        }
        let store = MemoryStore::new(memory, block_bytes, depth)?;
        *is_formatted = true;
        opened = Some((Box::new(store) as Box<dyn Store>, Some(region.clone())));
        Ok(())
    });
    found.unwrap_or_else(|| Err(SpaceError::NoRegion(name.to_owned())))?;
    opened.ok_or_else(|| SpaceError::NoRegion(name.to_owned()))
}

/// The UUID of a namespace that stores nothing, the same after a restart: version 8, from the
/// subsystem's name and serial number (FNV-1a) and the namespace's number.
fn of_nothing(settings: &Settings, nsid: u32) -> [u8; 16] {
    let text = settings.subsystem.bytes().chain([0]).chain(settings.serial.bytes());
    let hash =
        text.fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3));
    let mut uuid = [0; 16];
    uuid[..8].copy_from_slice(&hash.to_be_bytes());
    uuid[12..].copy_from_slice(&nsid.to_be_bytes());
    uuid[6] = uuid[6] & 0x0F | 8 << 4;
    uuid[8] = 0x80;
    uuid
}

/// Bytes requested from stores in one turn of the lcore, by all commands together: a store in
/// memory moves them at once.
const TURN_BYTES: u64 = 256 << 10;
/// The bytes that a request counts as if it moves fewer, or none.
const LEAST_BYTES: u64 = 4 << 10;
/// The most requests in a turn.
pub(crate) const TURN_REQUESTS: usize = (TURN_BYTES / LEAST_BYTES) as usize;

/// The bytes left of a turn.
#[derive(Debug, Default)]
pub(crate) struct Budget {
    turn: u64,
    pub(crate) left: u64,
}

impl Budget {
    pub(crate) fn renew(&mut self, turn: u64) {
        if self.turn != turn {
            *self = Budget { turn, left: TURN_BYTES };
        }
    }

    /// Subtracts the `bytes` of a request.
    pub(crate) fn spend(&mut self, bytes: u64) {
        self.left = self.left.saturating_sub(bytes.max(LEAST_BYTES));
    }
}
