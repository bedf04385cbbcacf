//! Checks the pools' memory against the machine's hugepages, its ordinary memory, and the limit of
//! locked memory.

use crate::choices::{Pages, Provider};
use crate::diag::Sink;
use crate::ids::{PoolId, StageId};
use crate::machine::{Hugepages, Machine};
use crate::needs::Needs;
use crate::note::{Lack, Note};
use crate::raw::{RawPlan, RawPool};
use crate::refs::Links;
use crate::source::Span;
use crate::sums::{Limit, Sum};

const HUGE_2M: u64 = 2 << 20;
const HUGE_1G: u64 = 1 << 30;

/// Each packet's headroom and data are rounded up to whole cache lines, as the pool lays them out.
const LINE_BYTES: u64 = 64;

/// One pool's region, on the pages that it will probably be on.
struct Region {
    pool: PoolId,
    page_bytes: u64,
    bytes: u64,
}

/// The sums, and what the machine lacks without stopping the plan.
pub(crate) fn check(
    raw: &RawPlan,
    links: &Links<'_>,
    needs: &[(StageId, Needs)],
    machine: &Machine,
    sink: &mut Sink,
) -> (Vec<Sum>, Vec<Note>) {
    let (regions, mut notes) = place(raw, machine, sink);
    let mut sums = Vec::new();
    for (page_bytes, pages) in [(HUGE_2M, machine.huge_2m), (HUGE_1G, machine.huge_1g)] {
        let mut sum = Sum::new(format!("hugepages of {}", size(page_bytes)), "bytes");
        for region in regions.iter().filter(|region| region.page_bytes == page_bytes) {
            add(&mut sum, raw, region, "", sink);
        }
        sum.limit = match pages {
            Hugepages::Unknown => Limit::None,
            Hugepages::Absent => Limit::Machine(0),
            Hugepages::Counted { free, .. } => Limit::Machine(free.saturating_mul(page_bytes)),
        };
        if !sum.terms.is_empty() {
            sums.push(sum);
        }
    }
    sums.extend(ordinary(raw, &regions, needs, machine, sink));
    let (locked, note) = locked(raw, links, &regions, machine, sink);
    sums.extend(locked);
    notes.extend(note);
    (sums, notes)
}

/// Gives out the free hugepages: first to the pools that insist, then, in the order of the file, to
/// those that would like some. Where nobody counts them each has what it asks for: the attempt will
/// tell.
fn place(raw: &RawPlan, machine: &Machine, sink: &mut Sink) -> (Vec<Region>, Vec<Note>) {
    let mut free = Free { pages_2m: machine.huge_2m, pages_1g: machine.huge_1g };
    let mut regions = Vec::new();
    let (mut short, mut unknown) = (Short::default(), Vec::new());
    let insists = |pool: &RawPool| matches!(pool.pages.value, Pages::Huge2M | Pages::Huge1G);
    let (first, then): (Vec<_>, Vec<_>) = raw.pools.iter().enumerate().partition(|(_, pool)| insists(pool));
    for (index, pool) in first.into_iter().chain(then) {
        let Some(bytes) = region_bytes(pool) else { continue };
        let page_bytes = match pool.pages.value {
            Pages::Small4K => machine.page_bytes,
            Pages::Huge2M | Pages::Huge1G => {
                let page_bytes = if pool.pages.value == Pages::Huge2M { HUGE_2M } else { HUGE_1G };
                if let Taken::TooFew(left) = free.take(page_bytes, bytes) {
                    too_few(pool, page_bytes, bytes, left, sink);
                }
                page_bytes
            }
            Pages::Auto => {
                let wanted = machine.huge_default_bytes.unwrap_or(HUGE_2M);
                match free.take(wanted, bytes) {
                    Taken::All => wanted,
                    Taken::Unknown => {
                        unknown.push(pool.head.name.clone());
                        wanted
                    }
                    Taken::TooFew(_) => {
                        short.pools.push(pool.head.name.clone());
                        short.pages = short.pages.saturating_add(bytes.div_ceil(wanted));
                        machine.page_bytes
                    }
                }
            }
        };
        let bytes = bytes.checked_next_multiple_of(page_bytes.max(1)).unwrap_or(u64::MAX);
        regions.push(Region { pool: PoolId::from_index(index), page_bytes, bytes });
    }
    regions.sort_by_key(|region| region.pool);
    (regions, short.note(machine, &free).into_iter().chain(uncounted(&unknown)).collect())
}

/// The pools that would like hugepages and will have none, and how many pages they would take.
#[derive(Default)]
struct Short {
    pools: Vec<String>,
    pages: u64,
}

impl Short {
    fn note(&self, machine: &Machine, free: &Free) -> Option<Note> {
        if self.pools.is_empty() {
            return None;
        }
        let page_bytes = machine.huge_default_bytes.unwrap_or(HUGE_2M);
        let small = size(machine.page_bytes);
        let (pages, left) = (self.pages, free.left(page_bytes));
        let Hugepages::Counted { total, free } = left else {
            let remedy = "run a kernel with CONFIG_HUGETLBFS";
            return Some(Note::hugepages(&self.pools, &small, "the kernel has no hugepages", remedy));
        };
        let noun = if pages == 1 { "hugepage" } else { "hugepages" };
        let why = format!("{pages} {noun} of {} needed, {free} of {total} available", size(page_bytes));
        let wanted = total.saturating_sub(free).saturating_add(pages);
        let remedy = format!("run `sysctl -w vm.nr_hugepages={wanted}` as root");
        Some(Note::hugepages(&self.pools, &small, &why, &remedy))
    }
}

/// Where neither /sys nor /proc counts the hugepages.
fn uncounted(pools: &[String]) -> Option<Note> {
    (!pools.is_empty()).then(|| Note {
        lack: Lack::HugepageCounts,
        message: "whether hugepages are free is not known: neither /sys nor /proc is there to tell".to_owned(),
        remedy: "run `mount -t sysfs sysfs /sys` as root, or have the container mount it".to_owned(),
    })
}

struct Free {
    pages_2m: Hugepages,
    pages_1g: Hugepages,
}

/// What came of an attempt to have some hugepages.
enum Taken {
    All,
    Unknown,
    /// So many are left; `None` if there are no pages of this size at all.
    TooFew(Option<u64>),
}

impl Free {
    fn left(&self, page_bytes: u64) -> Hugepages {
        match page_bytes {
            HUGE_2M => self.pages_2m,
            HUGE_1G => self.pages_1g,
            _ => Hugepages::Absent,
        }
    }

    /// Takes the pages for `bytes`.
    fn take(&mut self, page_bytes: u64, bytes: u64) -> Taken {
        let (total, free) = match self.left(page_bytes) {
            Hugepages::Absent => return Taken::TooFew(None),
            Hugepages::Unknown => return Taken::Unknown,
            Hugepages::Counted { total, free } => (total, free),
        };
        let Some(free) = free.checked_sub(bytes.div_ceil(page_bytes)) else { return Taken::TooFew(Some(free)) };
        let left = if page_bytes == HUGE_2M { &mut self.pages_2m } else { &mut self.pages_1g };
        *left = Hugepages::Counted { total, free };
        Taken::All
    }
}

/// What the packets need. The pool's own metadata is not in the region.
fn region_bytes(pool: &RawPool) -> Option<u64> {
    let (packets, data) = (pool.packets.as_ref()?, pool.data_bytes.as_ref()?);
    let stride = (u64::from(pool.headroom_bytes.value) + u64::from(data.value)).next_multiple_of(LINE_BYTES);
    Some(u64::from(packets.value) * stride)
}

fn too_few(pool: &RawPool, page_bytes: u64, bytes: u64, left: Option<u64>, sink: &mut Sink) {
    let pages = bytes.div_ceil(page_bytes);
    let name = &pool.head.name;
    let message = match left {
        None => format!("this machine has no pages of {}", size(page_bytes)),
        Some(left) => format!("pool.{name} needs {pages} pages of {}; {left} are free for it", size(page_bytes)),
    };
    sink.error("too-few-hugepages", pool.pages.span, message)
        .note(format!("{bytes} bytes of packets"))
        .help(how_to_get(page_bytes, pages - left.unwrap_or(0).min(pages)))
        .help("or write `pages = \"auto\"`, which falls back to 4 KiB pages");
}

fn how_to_get(page_bytes: u64, more: u64) -> String {
    let file = format!("/sys/kernel/mm/hugepages/hugepages-{}kB/nr_hugepages", page_bytes >> 10);
    format!("as root, raise the number in {file} by {more}")
}

/// What is on ordinary pages must fit the memory that is available: pools, and what stages allocate
/// for themselves.
fn ordinary(
    raw: &RawPlan,
    regions: &[Region],
    needs: &[(StageId, Needs)],
    machine: &Machine,
    sink: &mut Sink,
) -> Option<Sum> {
    let mut sum = Sum::new(format!("memory on pages of {}", size(machine.page_bytes)), "bytes");
    for region in regions.iter().filter(|region| region.page_bytes == machine.page_bytes) {
        add(&mut sum, raw, region, "", sink);
    }
    let of_pools = sum.needed;
    let mut greediest = (0, None);
    for (id, needs) in needs {
        let head = &raw.stages[id.index()].head;
        for (what, bytes) in &needs.memory_bytes {
            sum.add(&sink.sources, format!("stage.{}", head.name), what, *bytes, head.span);
        }
        let bytes = needs.memory_bytes.iter().fold(0, |sum: u64, (_, bytes)| sum.saturating_add(*bytes));
        greediest = greediest.max((bytes, Some(head.span)));
    }
    sum.limit = Limit::Machine(machine.memory_bytes);
    if !sum.holds() {
        let (who, span, help) = match greediest {
            (bytes, Some(span)) if bytes > of_pools => ("stages", span, "tell the stage to hold less"),
            _ => ("pools", largest(raw, regions), "use fewer or smaller packets"),
        };
        sink.error("too-much-memory", span, format!("the {who} need {} bytes of memory", sum.needed))
            .label("the largest")
            .note(format!("{} bytes are available:\n{}", machine.memory_bytes, sum.table()))
            .help(help);
    }
    Some(sum).filter(|sum| !sum.terms.is_empty())
}

/// Registration with a kernel device pins a region whatever its pages (ibv_reg_mr(3)); on ordinary
/// pages the others are locked too, if they may.
fn locked(
    raw: &RawPlan,
    links: &Links<'_>,
    regions: &[Region],
    machine: &Machine,
    sink: &mut Sink,
) -> (Option<Sum>, Option<Note>) {
    let mut sum = Sum::new("locked memory", "bytes");
    let (mut pinned, mut others) = (0_u64, Vec::new());
    for region in regions {
        let device = links.pools[region.pool.index()].map(|device| &raw.devices[device.index()]);
        let is_kernel = device
            .and_then(|device| device.provider.as_ref())
            .is_some_and(|provider| provider.value == Provider::Kernel);
        if is_kernel {
            pinned = pinned.saturating_add(region.bytes);
            add(&mut sum, raw, region, "pinned by its device", sink);
        } else if region.page_bytes == machine.page_bytes {
            others.push(raw.pools[region.pool.index()].head.name.clone());
            add(&mut sum, raw, region, "kept from being swapped", sink);
        }
    }
    sum.limit = machine.memlock_bytes.map_or(Limit::None, Limit::Machine);
    let limit = machine.memlock_bytes.unwrap_or(u64::MAX);
    let mut note = None;
    if pinned > limit {
        let message = format!("the pools lock {} bytes, but this process may lock {limit}", sum.needed);
        sink.error("locked-memory", largest(raw, regions), message)
            .label("the largest")
            .note(format!("RLIMIT_MEMLOCK bounds it:\n{}", sum.table()))
            .help("raise it (`ulimit -l unlimited`, LimitMEMLOCK= of a systemd unit), or grant CAP_IPC_LOCK");
    } else if !sum.holds() {
        let why = format!("{} bytes are to be locked, and this process may lock {limit}", sum.needed);
        let remedy = "raise that: `ulimit -l unlimited`, or LimitMEMLOCK=infinity in a systemd unit";
        note = Some(Note::locked_memory(&others, &why, remedy));
    }
    (Some(sum).filter(|sum| !sum.terms.is_empty()), note)
}

fn add(sum: &mut Sum, raw: &RawPlan, region: &Region, how: &str, sink: &Sink) {
    let pool = &raw.pools[region.pool.index()];
    let span = pool.packets.as_ref().map_or(pool.head.span, |packets| packets.span);
    sum.add(&sink.sources, format!("pool.{}", pool.head.name), how, region.bytes, span);
}

fn largest(raw: &RawPlan, regions: &[Region]) -> Span {
    let largest = regions.iter().max_by_key(|region| region.bytes);
    largest.map_or(Span::new(0, 0..0), |region| {
        let pool = &raw.pools[region.pool.index()];
        pool.packets.as_ref().map_or(pool.head.span, |packets| packets.span)
    })
}

/// `4 KiB`, `2 MiB`, `1 GiB`.
fn size(bytes: u64) -> String {
    match bytes {
        bytes if bytes >= 1 << 30 => format!("{} GiB", bytes >> 30),
        bytes if bytes >= 1 << 20 => format!("{} MiB", bytes >> 20),
        bytes => format!("{} KiB", bytes >> 10),
    }
}
