//! Checks the memory of pools and regions against the machine's hugepages, its ordinary memory, and
//! the limits of this process.

use crate::catalog::stage_needs::Needs;
use crate::check::edges::Edges;
use crate::check::refs::Links;
use crate::check::regions::RegionFacts;
use crate::choices::{Pages, Provider};
use crate::diag::sink::Sink;
use crate::diag::source::Span;
use crate::ids::{DeviceId, StageId};
use crate::machine::note::{Lack, Note};
use crate::machine::{Hugepages, Machine, MemoryGrant};
use crate::read::raw::RawPlan;
use crate::read::reader::Field;
use crate::sums::sum::{Limit, Sum};
use crate::sums::{mapped, program};

const HUGE_2M: u64 = 2 << 20;
const HUGE_1G: u64 = 1 << 30;

/// Each packet's headroom and data are rounded up to whole cache lines, as the pool lays them out.
const LINE_BYTES: u64 = 64;

/// One piece of memory that the plan needs: the packets of a pool, or a region.
struct Wanted<'a> {
    /// Its name in reports, e.g. `pool.ticks`.
    name: String,
    pages: &'a Field<Pages>,
    bytes: u64,
    /// The place of its size in the plan.
    span: Span,
    device: Option<DeviceId>,
}

/// A piece of memory with its probable pages.
struct Placed<'a> {
    wanted: &'a Wanted<'a>,
    page_bytes: u64,
    bytes: u64,
}

/// Consumers of memory beside packets and regions.
struct Beside<'a> {
    raw: &'a RawPlan,
    ways: (&'a Links<'a>, &'a Edges),
    needs: &'a [(StageId, Needs)],
    /// The entries of each lcore's completion queue.
    completions: &'a [u64],
}

impl Beside<'_> {
    /// Adds the memory of queues and of stages. Returns the greediest of each.
    fn add(&self, sum: &mut Sum) -> [program::Greediest; 2] {
        [
            program::add_queues(self.raw, self.ways, self.completions, sum),
            program::add_stages(self.raw, self.needs, sum),
        ]
    }
}

/// Returns the sums, and notes of shortcomings that the plan runs with.
pub(crate) fn check(
    raw: &RawPlan,
    ways: (&Links<'_>, &Edges),
    regions: &[RegionFacts],
    needs: &[(StageId, Needs)],
    completions: &[u64],
    machine: &Machine,
    sink: &mut Sink,
) -> (Vec<Sum>, Vec<Note>) {
    let wanted = wanted(raw, ways.0, regions);
    let (placed, mut notes) = place(&wanted, machine, sink);
    let mut sums = Vec::new();
    for (page_bytes, pages) in [(HUGE_2M, machine.huge_2m), (HUGE_1G, machine.huge_1g)] {
        let mut sum = Sum::new(format!("hugepages of {}", size(page_bytes)), "bytes", sink);
        for one in placed.iter().filter(|one| one.page_bytes == page_bytes) {
            add(&mut sum, one, "");
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
    let beside = Beside { raw, ways, needs, completions };
    sums.push(ordinary(&beside, &placed, machine, sink));
    let held = |sum: &mut Sum| {
        placed.iter().for_each(|one| add(sum, one, ""));
        program::add_mapped_metadata(raw, sum);
        beside.add(sum);
    };
    sums.extend(mapped::check(raw, held, span_of(largest(&placed)), machine, sink));
    let (locked, note) = locked(raw, &placed, machine, sink);
    sums.extend(locked);
    notes.extend(note);
    (sums, notes)
}

/// Memory of pools and regions, in the file's order. A region without an owner is not made.
fn wanted<'a>(raw: &'a RawPlan, links: &Links<'_>, regions: &[RegionFacts]) -> Vec<Wanted<'a>> {
    let pools = raw.pools.iter().zip(&links.pools).filter_map(|(pool, device)| {
        let (packets, data) = (pool.packets.as_ref()?, pool.data_bytes.as_ref()?);
        // The length of the packets, without their metadata, which is not in the region.
        let stride = (u64::from(pool.headroom_bytes.value) + u64::from(data.value)).next_multiple_of(LINE_BYTES);
        let bytes = u64::from(packets.value) * stride;
        let name = format!("pool.{}", pool.head.name);
        Some(Wanted { name, pages: &pool.pages, bytes, span: packets.span, device: *device })
    });
    let owned = raw.regions.iter().zip(regions).filter(|(_, facts)| facts.owner.is_some());
    let regions = owned.filter_map(|(region, facts)| {
        let bytes = region.bytes.as_ref()?;
        let name = format!("region.{}", region.head.name);
        let device = facts.device;
        Some(Wanted { name, pages: &region.pages, bytes: bytes.value, span: bytes.span, device })
    });
    pools.chain(regions).collect()
}

/// Assigns the free hugepages: first to memory that insists on them, then, in the order of the
/// file, to memory with `auto`. If their number is unknown, all requests are granted: the run's
/// attempt will tell.
fn place<'a>(wanted: &'a [Wanted<'a>], machine: &Machine, sink: &mut Sink) -> (Vec<Placed<'a>>, Vec<Note>) {
    let mut free = Free { pages_2m: machine.huge_2m, pages_1g: machine.huge_1g };
    let mut placed = Vec::new();
    let (mut short, mut unknown) = (Short::default(), Vec::new());
    let insists = |one: &Wanted<'_>| matches!(one.pages.value, Pages::Huge2M | Pages::Huge1G);
    let (first, then): (Vec<_>, Vec<_>) = wanted.iter().enumerate().partition(|(_, one)| insists(one));
    for (index, one) in first.into_iter().chain(then) {
        let bytes = one.bytes;
        let page_bytes = match one.pages.value {
            Pages::Small4K | Pages::OnDemand => machine.page_bytes,
            Pages::Huge2M | Pages::Huge1G => {
                let page_bytes = if one.pages.value == Pages::Huge2M { HUGE_2M } else { HUGE_1G };
                if let Taken::TooFew(left) = free.take(page_bytes, bytes) {
                    too_few(one, page_bytes, left, machine.hugepage_grant(page_bytes), sink);
                }
                page_bytes
            }
            Pages::Auto => {
                let wanted = machine.huge_default_bytes.unwrap_or(HUGE_2M);
                match free.take(wanted, bytes) {
                    Taken::All => wanted,
                    Taken::Unknown => {
                        unknown.push(one.name.clone());
                        wanted
                    }
                    Taken::TooFew(_) => {
                        short.names.push(one.name.clone());
                        short.pages = short.pages.saturating_add(bytes.div_ceil(wanted));
                        machine.page_bytes
                    }
                }
            }
        };
        let bytes = bytes.checked_next_multiple_of(page_bytes.max(1)).unwrap_or(u64::MAX);
        placed.push((index, Placed { wanted: one, page_bytes, bytes }));
    }
    placed.sort_by_key(|(index, _)| *index);
    let placed = placed.into_iter().map(|(_, one)| one).collect();
    (placed, short.note(machine, &free).into_iter().chain(uncounted(&unknown)).collect())
}

/// Memory with `auto` that gets no hugepages, and the number of pages that it needs.
#[derive(Default)]
struct Short {
    names: Vec<String>,
    pages: u64,
}

impl Short {
    fn note(&self, machine: &Machine, free: &Free) -> Option<Note> {
        if self.names.is_empty() {
            return None;
        }
        let page_bytes = machine.huge_default_bytes.unwrap_or(HUGE_2M);
        let small = size(machine.page_bytes);
        let (pages, left) = (self.pages, free.left(page_bytes));
        let Hugepages::Counted { total, free } = left else {
            let remedy = "run a kernel with CONFIG_HUGETLBFS";
            return Some(Note::hugepages(&self.names, &small, "the kernel has no hugepages", remedy));
        };
        let noun = if pages == 1 { "hugepage" } else { "hugepages" };
        let why = format!("{pages} {noun} of {} needed, {free} of {total} available", size(page_bytes));
        let wanted = total.saturating_sub(free).saturating_add(pages);
        let remedy = match machine.hugepage_grant(page_bytes) {
            None => format!("run `sysctl -w vm.nr_hugepages={wanted}` as root"),
            Some(grant) => format!("a cgroup grants no more: {} as root", grant.remedy),
        };
        Some(Note::hugepages(&self.names, &small, &why, &remedy))
    }
}

/// Notes that neither /sys nor /proc counts the hugepages.
fn uncounted(names: &[String]) -> Option<Note> {
    (!names.is_empty()).then(|| Note {
        lack: Lack::HugepageCounts,
        message: "whether hugepages are free is not known: neither /sys nor /proc is there to tell".to_owned(),
        remedy: "run `mount -t sysfs sysfs /sys` as root, or have the container mount it".to_owned(),
    })
}

struct Free {
    pages_2m: Hugepages,
    pages_1g: Hugepages,
}

/// The outcome of a request for hugepages.
enum Taken {
    All,
    Unknown,
    /// The free pages that are left; `None` if the kernel has no pages of this size.
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

fn too_few(one: &Wanted<'_>, page_bytes: u64, left: Option<u64>, grant: Option<&MemoryGrant>, sink: &mut Sink) {
    let (name, pages) = (&one.name, one.bytes.div_ceil(page_bytes));
    let message = match left {
        None => format!("this machine has no pages of {}", size(page_bytes)),
        Some(left) => {
            let (noun, verb) = (if pages == 1 { "page" } else { "pages" }, if left == 1 { "is" } else { "are" });
            format!("{name} needs {pages} {noun} of {}; {left} {verb} free for it", size(page_bytes))
        }
    };
    sink.error("too-few-hugepages", one.pages.span, message)
        .note(format!("{} bytes of {}", one.bytes, one.of()))
        .help(match grant {
            None => how_to_get(page_bytes, pages - left.unwrap_or(0).min(pages)),
            Some(grant) => format!("a cgroup grants no more: {} as root", grant.remedy),
        })
        .help("or write `pages = \"auto\"`, which falls back to 4 KiB pages");
}

impl Wanted<'_> {
    /// Whether all of it is resident from the start.
    fn is_resident(&self) -> bool {
        self.pages.value != Pages::OnDemand
    }

    fn of(&self) -> &'static str {
        if self.name.starts_with("pool.") { "packets" } else { "memory" }
    }
}

fn how_to_get(page_bytes: u64, more: u64) -> String {
    let file = format!("/sys/kernel/mm/hugepages/hugepages-{}kB/nr_hugepages", page_bytes >> 10);
    format!("as root, raise the number in {file} by {more}")
}

/// Checks the use of ordinary pages against the available memory: pools, regions, queues, the
/// stages' own allocations, and the program.
fn ordinary(beside: &Beside<'_>, placed: &[Placed<'_>], machine: &Machine, sink: &mut Sink) -> Sum {
    let mut sum = Sum::new(format!("memory on pages of {}", size(machine.page_bytes)), "bytes", sink);
    for one in placed.iter().filter(|one| one.page_bytes == machine.page_bytes && one.wanted.is_resident()) {
        add(&mut sum, one, "");
    }
    program::add_touched_metadata(beside.raw, &mut sum);
    let of_pools = sum.needed;
    let [queues, stages] = beside.add(&mut sum);
    program::add_program(beside.raw, &mut sum);
    let available = machine.available_bytes();
    sum.limit = Limit::Machine(available);
    if !sum.holds() {
        let (who, span, help) = match (queues, stages) {
            ((bytes, Some(span)), _) if bytes > of_pools.max(stages.0) => {
                ("queue pairs", span, "allow fewer connections, or make their queues shorter")
            }
            (_, (bytes, Some(span))) if bytes > of_pools => ("stages", span, "tell the stage to hold less"),
            _ => match largest(placed) {
                Some(region) if region.of() == "memory" => ("regions", region.span, "make it shorter"),
                pool => ("pools", span_of(pool), "use fewer or smaller packets"),
            },
        };
        let message = format!("the run needs {} bytes of memory", sum.needed);
        let fault = sink.error("too-much-memory", span, message).label(format!("its {who} take the most"));
        match machine.memory_grant.as_ref().filter(|grant| grant.bytes == available) {
            None => fault.note(format!("{available} bytes are available:\n{}", sum.table())).help(help),
            Some(grant) => fault
                .note(format!(
                    "{available} bytes are available, of {} that a cgroup grants:\n{}",
                    grant.limit_bytes,
                    sum.table()
                ))
                .help(help)
                .help(format!("or lift the limit: {} as root, or a larger one of the container", grant.remedy)),
        };
    }
    sum
}

/// Registration with a kernel device pins a region on any pages (ibv_reg_mr(3)). Other memory on
/// ordinary pages is locked too, if the process may.
fn locked(raw: &RawPlan, placed: &[Placed<'_>], machine: &Machine, sink: &mut Sink) -> (Option<Sum>, Option<Note>) {
    let mut sum = Sum::new("locked memory", "bytes", sink);
    let (mut pinned, mut others) = (0_u64, Vec::new());
    for one in placed.iter().filter(|one| one.wanted.is_resident()) {
        let device = one.wanted.device.map(|device| &raw.devices[device.index()]);
        let is_kernel = device
            .and_then(|device| device.provider.as_ref())
            .is_some_and(|provider| provider.value == Provider::Kernel);
        if is_kernel {
            pinned = pinned.saturating_add(one.bytes);
            add(&mut sum, one, "pinned by its device");
        } else if one.page_bytes == machine.page_bytes {
            others.push(one.wanted.name.clone());
            add(&mut sum, one, "kept from being swapped");
        }
    }
    sum.limit = machine.memlock_bytes.map_or(Limit::None, Limit::Machine);
    let limit = machine.memlock_bytes.unwrap_or(u64::MAX);
    let mut note = None;
    if pinned > limit {
        let who = if placed.iter().any(|one| one.wanted.of() == "memory") { "pools and regions" } else { "the pools" };
        let message = format!("{who} lock {} bytes, but this process may lock {limit}", sum.needed);
        sink.error("locked-memory", span_of(largest(placed)), message)
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

fn add(sum: &mut Sum, one: &Placed<'_>, how: &str) {
    sum.add(one.wanted.name.clone(), how, one.bytes, one.wanted.span);
}

fn largest<'a>(placed: &[Placed<'a>]) -> Option<&'a Wanted<'a>> {
    placed.iter().max_by_key(|one| one.bytes).map(|one| one.wanted)
}

fn span_of(one: Option<&Wanted<'_>>) -> Span {
    one.map_or(Span::new(0, 0..0), |one| one.span)
}

/// `4 KiB`, `2 MiB`, `1 GiB`.
fn size(bytes: u64) -> String {
    match bytes {
        bytes if bytes >= 1 << 30 => format!("{} GiB", bytes >> 30),
        bytes if bytes >= 1 << 20 => format!("{} MiB", bytes >> 20),
        bytes => format!("{} KiB", bytes >> 10),
    }
}
