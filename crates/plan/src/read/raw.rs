//! The shapes of the file, checked as far as each table alone allows. References are names here.
//!
//! A value with a fault is `None` or its default, so that later checks can go on. A file with a
//! fault yields no plan.

use std::collections::HashSet;
use std::time::Duration;

use crate::catalog::Catalog;
use crate::choices::{Cpu, IdlePolicy, Pages, Provider, SpreadBy, WhenFull};
use crate::diag::sink::Sink;
use crate::diag::source::{Sources, Span};
use crate::limits::{
    BURST_MAX, BURST_PACKETS, CACHE_PACKETS, CPU_MAX, CQ_DEPTH_MAX, DATA_BYTES_MAX, DEPTH_MAX, DEVICES_MAX, DRAIN,
    DURATION_MAX, HEADROOM_BYTES, HEADROOM_BYTES_MAX, LCORES_MAX, LISTED_MAX, NODE_MAX, PACKETS_MAX, PLACES_MAX,
    POOLS_MAX, PORT_NUM_MAX, PRIORITY_MAX, REGION_BYTES_MAX, RESOURCES_MAX, TOP_KEYS, UNSOLICITED_WAIT_MAX,
};
use crate::read::raw_port::RawPort;
use crate::read::raw_stage::RawStage;
use crate::read::reader::{Field, Key, Reader, TableHeader, table_of};
use crate::text::tree::{KeyValue, Node, Table};

/// The words of `pages`.
pub(crate) const PAGES: [(&str, Pages); 4] =
    [("auto", Pages::Auto), ("4KiB", Pages::Small4K), ("2MiB", Pages::Huge2M), ("1GiB", Pages::Huge1G)];

/// The words of a region's `pages`. A pool's packets are used all the time, so none of its pages
/// can be mapped on demand.
const REGION_PAGES: [(&str, Pages); 5] = {
    let [auto, small, huge, huger] = PAGES;
    [auto, small, huge, huger, ("odp", Pages::OnDemand)]
};

#[derive(Debug, Default)]
pub(crate) struct RawPlan {
    pub(crate) name: Option<String>,
    pub(crate) app: Option<String>,
    pub(crate) devices: Vec<RawDevice>,
    pub(crate) pools: Vec<RawPool>,
    pub(crate) regions: Vec<RawRegion>,
    pub(crate) lcores: Vec<RawLcore>,
    pub(crate) ports: Vec<RawPort>,
    pub(crate) rings: Vec<RawRing>,
    pub(crate) injectors: Vec<RawInjector>,
    pub(crate) spreads: Vec<RawSpread>,
    pub(crate) stages: Vec<RawStage>,
    pub(crate) unread: Unread,
    /// One for each section of the catalog, `None` where the file has none.
    pub(crate) sections: Vec<Option<(Span, Node)>>,
}

#[derive(Debug)]
pub(crate) struct RawDevice {
    pub(crate) head: TableHeader,
    pub(crate) provider: Option<Field<Provider>>,
    pub(crate) device_name: Option<Field<String>>,
    pub(crate) port_num: Field<u32>,
    pub(crate) gid_index: Option<Field<u32>>,
    pub(crate) address: Option<Field<String>>,
}

#[derive(Debug)]
pub(crate) struct RawPool {
    pub(crate) head: TableHeader,
    pub(crate) device: Option<Field<String>>,
    pub(crate) packets: Option<Field<u32>>,
    pub(crate) data_bytes: Option<Field<u32>>,
    pub(crate) headroom_bytes: Field<u32>,
    pub(crate) pages: Field<Pages>,
    pub(crate) node: Option<Field<u32>>,
    pub(crate) cache_packets: Field<u32>,
}

#[derive(Debug)]
pub(crate) struct RawRegion {
    pub(crate) head: TableHeader,
    pub(crate) device: Option<Field<String>>,
    pub(crate) bytes: Option<Field<u64>>,
    pub(crate) pages: Field<Pages>,
    pub(crate) node: Option<Field<u32>>,
    pub(crate) rights: Vec<Field<String>>,
}

#[derive(Debug)]
pub(crate) struct RawLcore {
    pub(crate) head: TableHeader,
    pub(crate) cpu: Option<Field<Cpu>>,
    pub(crate) idle: Field<IdlePolicy>,
    pub(crate) burst_packets: Field<u32>,
    pub(crate) spin: Option<Field<Duration>>,
    pub(crate) late_share: Option<Field<f64>>,
    pub(crate) spin_max: Option<Field<Duration>>,
    pub(crate) dwell: Option<Field<Duration>>,
    pub(crate) pause: Field<bool>,
    pub(crate) unsolicited_wait: Option<Field<Duration>>,
    pub(crate) drain: Duration,
    pub(crate) cq_depth_wc: Option<Field<u32>>,
}

#[derive(Debug)]
pub(crate) struct RawRing {
    pub(crate) head: TableHeader,
    pub(crate) to: Option<Field<String>>,
    pub(crate) depth: Option<Field<u32>>,
    pub(crate) full: Field<WhenFull>,
    pub(crate) priority: Field<u32>,
}

#[derive(Debug)]
pub(crate) struct RawInjector {
    pub(crate) head: TableHeader,
    pub(crate) to: Option<Field<String>>,
    pub(crate) pool: Option<Field<String>>,
    pub(crate) depth: Option<Field<u32>>,
}

#[derive(Debug)]
pub(crate) struct RawSpread {
    pub(crate) head: TableHeader,
    pub(crate) to: Vec<Field<String>>,
    pub(crate) by: Option<Field<SpreadBy>>,
}

pub(crate) fn read(root: &Table, catalog: &Catalog, sink: &mut Sink) -> RawPlan {
    let top = Span::new(0, 0..0);
    let mut reader = Reader::new(root, "", top, sink);
    let mut plan = RawPlan {
        sections: catalog.sections.iter().map(|name| section(root, name, reader.sink)).collect(),
        ..read_top(&mut reader, catalog)
    };
    let more: Vec<&'static str> = TOP_KEYS.iter().chain(&catalog.sections).copied().collect();
    reader.finish("unknown-key", &more);

    let mut tables = Tables { root, sink, unread: Unread::default() };
    plan.devices = tables.read("device", DEVICES_MAX, read_device);
    plan.pools = tables.read("pool", POOLS_MAX, read_pool);
    plan.regions = tables.read("region", RESOURCES_MAX, read_region);
    plan.lcores = tables.read("lcore", LCORES_MAX, read_lcore);
    plan.ports = tables.read("port", RESOURCES_MAX, RawPort::read);
    plan.rings = tables.read("ring", RESOURCES_MAX, read_ring);
    plan.injectors = tables.read("injector", RESOURCES_MAX, read_injector);
    plan.spreads = tables.read("spread", RESOURCES_MAX, read_spread);
    plan.stages = tables.read("stage", RESOURCES_MAX, RawStage::read);
    plan.unread = tables.unread;
    if plan.lcores.is_empty() && root.find("lcore").is_none() {
        sink.error("missing-key", top, "the plan has no lcore, so nothing would run")
            .help("add a table [lcore.NAME] with `cpu = \"allowed:0\"`");
    }
    plan
}

/// Every key that the readers of a plan's tables ask for, by table (`""` is the top), each in the
/// order of reading.
pub(crate) fn keys() -> Vec<(&'static str, Vec<Key>)> {
    vec![
        ("", keys_of(|reader| drop(read_top(reader, &Catalog::default())))),
        ("device", keys_of(|reader| drop(read_device(TableHeader::nobody(), reader)))),
        ("pool", keys_of(|reader| drop(read_pool(TableHeader::nobody(), reader)))),
        ("region", keys_of(|reader| drop(read_region(TableHeader::nobody(), reader)))),
        ("lcore", keys_of(|reader| drop(read_lcore(TableHeader::nobody(), reader)))),
        ("port", keys_of(|reader| drop(RawPort::read(TableHeader::nobody(), reader)))),
        ("ring", keys_of(|reader| drop(read_ring(TableHeader::nobody(), reader)))),
        ("injector", keys_of(|reader| drop(read_injector(TableHeader::nobody(), reader)))),
        ("spread", keys_of(|reader| drop(read_spread(TableHeader::nobody(), reader)))),
        ("stage", keys_of(|reader| drop(RawStage::read(TableHeader::nobody(), reader)))),
    ]
}

/// Lists a table's keys by reading an empty table, whose faults are ignored.
fn keys_of(read: impl FnOnce(&mut Reader<'_>)) -> Vec<Key> {
    let (table, mut sink) = (Table::default(), Sink::new(Sources::new("", "", &[])));
    let mut reader = Reader::new(&table, "", Span::new(0, 0..0), &mut sink);
    read(&mut reader);
    reader.into_keys()
}

fn read_top(reader: &mut Reader<'_>, catalog: &Catalog) -> RawPlan {
    let name = reader.optional_text("name").map(|field| field.value);
    let app = reader.optional_text("app");
    if let Some(app) = &app {
        check_app(app, catalog, reader.sink);
    }
    RawPlan { name, app: app.map(|field| field.value), ..RawPlan::default() }
}

fn check_app(app: &Field<String>, catalog: &Catalog, sink: &mut Sink) {
    if let Some(own) = catalog.app.filter(|own| *own != app.value) {
        sink.error("wrong-app", app.span, format!("this plan is for `{}`, and this is `{own}`", app.value))
            .help(format!("run it with `{}`", app.value));
    }
}

fn section(root: &Table, name: &'static str, sink: &mut Sink) -> Option<(Span, Node)> {
    let entry = root.find(name)?;
    table_of(entry, name, sink)?;
    Some((entry.key_span, entry.node.clone()))
}

/// Tables and names that the file has and that were refused as a whole, so that references to them
/// are no faults of their own.
#[derive(Debug, Default)]
pub(crate) struct Unread {
    sorts: HashSet<&'static str>,
    names: HashSet<(&'static str, String)>,
}

impl Unread {
    pub(crate) fn has(&self, sort: &'static str, name: &str) -> bool {
        self.sorts.contains(sort) || (!self.names.is_empty() && self.names.contains(&(sort, name.to_owned())))
    }

    /// Adds all tables of a sort.
    pub(crate) fn add_sort(&mut self, sort: &'static str) {
        self.sorts.insert(sort);
    }

    pub(crate) fn add(&mut self, sort: &'static str, name: &str) {
        self.names.insert((sort, name.to_owned()));
    }
}

/// The tables of resources.
struct Tables<'a> {
    root: &'a Table,
    sink: &'a mut Sink,
    unread: Unread,
}

impl Tables<'_> {
    /// Reads every `[sort.NAME]`.
    fn read<T>(&mut self, sort: &'static str, max: usize, read: fn(TableHeader, &mut Reader<'_>) -> T) -> Vec<T> {
        let Some(entry) = self.root.find(sort) else { return Vec::new() };
        let Some(table) = table_of(entry, &format!("{sort}.NAME"), self.sink) else {
            self.unread.add_sort(sort);
            return Vec::new();
        };
        if table.entries.len() > max {
            let message = format!("the plan has {} {sort}s; it may have {max}", table.entries.len());
            self.sink.error("bad-value", entry.key_span, message).help("split it into plans of their own");
            self.unread.add_sort(sort);
            return Vec::new();
        }
        let mut list = Vec::with_capacity(table.entries.len());
        for entry in &table.entries {
            let (path, before) = (format!("{sort}.{}", entry.key), self.sink.errors());
            check_name(entry, sort, self.sink);
            let Some(table) = table_of(entry, &path, self.sink) else {
                self.unread.add(sort, &entry.key);
                self.sink.table_is_read(&path, entry.key_span, before);
                continue;
            };
            let mut reader = Reader::new(table, path.as_str(), entry.key_span, self.sink);
            list.push(read(TableHeader { name: entry.key.clone(), span: entry.key_span }, &mut reader));
            reader.finish("unknown-key", &[]);
            self.sink.table_is_read(&path, entry.key_span, before);
        }
        list
    }
}

/// Checks a name, which is used in references such as `stage.NAME`, in graphs and in statistics.
fn check_name(entry: &KeyValue, sort: &str, sink: &mut Sink) {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if entry.key.is_empty() || entry.key.len() > 64 || !entry.key.chars().all(fits) {
        let article = if ["lcore", "injector"].contains(&sort) { "an" } else { "a" };
        sink.error("bad-name", entry.key_span, format!("`{}` can't name {article} {sort}", entry.key.escape_debug()))
            .help("use letters, digits, `_` and `-`; at most 64 of them");
    }
}

fn read_device(head: TableHeader, reader: &mut Reader<'_>) -> RawDevice {
    RawDevice {
        head,
        provider: reader.choice("provider", &Provider::ALL.map(|one| (one.word(), one))),
        device_name: reader.optional_text("name"),
        port_num: reader.number_or("port", 1..=PORT_NUM_MAX, 1),
        gid_index: reader.optional_number("gid_index", 0..=255),
        address: reader.optional_text("address"),
    }
}

fn read_pool(head: TableHeader, reader: &mut Reader<'_>) -> RawPool {
    RawPool {
        head,
        device: reader.text("device", "\"NAME\", the device to register it with"),
        packets: reader.number("packets", 1..=PACKETS_MAX, "4096"),
        data_bytes: reader.number("data_bytes", 1..=DATA_BYTES_MAX, "2048"),
        headroom_bytes: reader.number_or("headroom_bytes", 0..=HEADROOM_BYTES_MAX, HEADROOM_BYTES),
        pages: reader.choice_or_first("pages", &PAGES),
        node: reader.optional_number("node", 0..=NODE_MAX),
        cache_packets: reader.number_or("cache_packets", 0..=PACKETS_MAX, CACHE_PACKETS),
    }
}

fn read_region(head: TableHeader, reader: &mut Reader<'_>) -> RawRegion {
    RawRegion {
        head,
        device: reader.text("device", "\"NAME\", the device to register it with"),
        bytes: reader.number("bytes", 1..=REGION_BYTES_MAX, "1048576"),
        pages: reader.choice_or_first("pages", &REGION_PAGES),
        node: reader.optional_number("node", 0..=NODE_MAX),
        rights: reader.texts("rights", LISTED_MAX),
    }
}

fn read_lcore(head: TableHeader, reader: &mut Reader<'_>) -> RawLcore {
    let idle = [IdlePolicy::Adaptive, IdlePolicy::Poll, IdlePolicy::Event].map(|policy| (policy.word(), policy));
    RawLcore {
        head,
        cpu: reader.cpu("cpu", CPU_MAX),
        idle: reader.choice_or_first("idle", &idle),
        burst_packets: reader.number_or("burst", 1..=BURST_MAX, BURST_PACKETS),
        late_share: reader.optional_share("late_share"),
        spin_max: reader.optional_duration("spin_max", DURATION_MAX),
        spin: reader.optional_duration("spin", DURATION_MAX),
        dwell: reader.optional_duration("dwell", DURATION_MAX),
        pause: reader.flag_or("pause", false),
        unsolicited_wait: reader.optional_duration("unsolicited_wait", UNSOLICITED_WAIT_MAX),
        drain: reader.duration_or("drain", DURATION_MAX, DRAIN).value,
        cq_depth_wc: reader.optional_number("cq_depth_wc", 1..=CQ_DEPTH_MAX),
    }
}

fn read_ring(head: TableHeader, reader: &mut Reader<'_>) -> RawRing {
    RawRing {
        head,
        to: reader.text("to", "\"stage.NAME\" or \"port.NAME\", on another lcore"),
        depth: reader.number("depth", 1..=DEPTH_MAX, "1024"),
        full: reader.choice_or_first("full", &WhenFull::ALL.map(|full| (full.word(), full))),
        priority: reader.number_or("priority", 0..=PRIORITY_MAX, 0),
    }
}

fn read_injector(head: TableHeader, reader: &mut Reader<'_>) -> RawInjector {
    RawInjector {
        head,
        to: reader.text("to", "\"stage.NAME\", the stage that gets the messages"),
        pool: reader.text("pool", "\"NAME\", the pool that messages are copied into"),
        depth: reader.number("depth", 1..=DEPTH_MAX, "1024"),
    }
}

fn read_spread(head: TableHeader, reader: &mut Reader<'_>) -> RawSpread {
    RawSpread {
        head,
        to: reader.some_texts("to", PLACES_MAX, "[\"ring.A\", \"ring.B\"]"),
        by: reader.choice("by", &SpreadBy::ALL.map(|by| (by.word(), by))),
    }
}
