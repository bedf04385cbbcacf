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

raw_table! {
    RawDevice head {
        provider: Option<Field<Provider>> = Reader::choice("provider", &Provider::WORDS),
        device_name: Option<Field<String>> = Reader::optional_text("name"),
        port_num: Field<u32> = Reader::number_or("port", 1..=PORT_NUM_MAX, 1),
        gid_index: Option<Field<u32>> = Reader::optional_number("gid_index", 0..=255),
        address: Option<Field<String>> = Reader::optional_text("address"),
    }
}

raw_table! {
    RawPool head {
        device: Option<Field<String>> = Reader::text("device", "\"NAME\", the device to register it with"),
        packets: Option<Field<u32>> = Reader::number("packets", 1..=PACKETS_MAX, "4096"),
        data_bytes: Option<Field<u32>> = Reader::number("data_bytes", 1..=DATA_BYTES_MAX, "2048"),
        headroom_bytes: Field<u32> = Reader::number_or("headroom_bytes", 0..=HEADROOM_BYTES_MAX, HEADROOM_BYTES),
        pages: Field<Pages> = Reader::choice_or_first("pages", &PAGES),
        node: Option<Field<u32>> = Reader::optional_number("node", 0..=NODE_MAX),
        cache_packets: Field<u32> = Reader::number_or("cache_packets", 0..=PACKETS_MAX, CACHE_PACKETS),
    }
}

raw_table! {
    RawRegion head {
        device: Option<Field<String>> = Reader::text("device", "\"NAME\", the device to register it with"),
        bytes: Option<Field<u64>> = Reader::number("bytes", 1..=REGION_BYTES_MAX, "1048576"),
        pages: Field<Pages> = Reader::choice_or_first("pages", &REGION_PAGES),
        node: Option<Field<u32>> = Reader::optional_number("node", 0..=NODE_MAX),
        rights: Vec<Field<String>> = Reader::texts("rights", LISTED_MAX),
    }
}

raw_table! {
    RawLcore head {
        cpu: Option<Field<Cpu>> = Reader::cpu("cpu", CPU_MAX),
        idle: Field<IdlePolicy> = Reader::choice_or_first("idle", &IdlePolicy::WORDS),
        burst_packets: Field<u32> = Reader::number_or("burst", 1..=BURST_MAX, BURST_PACKETS),
        late_share: Option<Field<f64>> = Reader::optional_share("late_share"),
        spin_max: Option<Field<Duration>> = Reader::optional_duration("spin_max", DURATION_MAX),
        spin: Option<Field<Duration>> = Reader::optional_duration("spin", DURATION_MAX),
        dwell: Option<Field<Duration>> = Reader::optional_duration("dwell", DURATION_MAX),
        pause: Field<bool> = Reader::flag_or("pause", false),
        unsolicited_wait: Option<Field<Duration>> =
            Reader::optional_duration("unsolicited_wait", UNSOLICITED_WAIT_MAX),
        drain: Field<Duration> = Reader::duration_or("drain", DURATION_MAX, DRAIN),
        cq_depth_wc: Option<Field<u32>> = Reader::optional_number("cq_depth_wc", 1..=CQ_DEPTH_MAX),
    }
}

raw_table! {
    RawRing head {
        to: Option<Field<String>> = Reader::text("to", "\"stage.NAME\" or \"port.NAME\", on another lcore"),
        depth: Option<Field<u32>> = Reader::number("depth", 1..=DEPTH_MAX, "1024"),
        full: Field<WhenFull> = Reader::choice_or_first("full", &WhenFull::WORDS),
        priority: Field<u32> = Reader::number_or("priority", 0..=PRIORITY_MAX, 0),
    }
}

raw_table! {
    RawInjector head {
        to: Option<Field<String>> = Reader::text("to", "\"stage.NAME\", the stage that gets the messages"),
        pool: Option<Field<String>> = Reader::text("pool", "\"NAME\", the pool that messages are copied into"),
        depth: Option<Field<u32>> = Reader::number("depth", 1..=DEPTH_MAX, "1024"),
    }
}

raw_table! {
    RawSpread head {
        to: Vec<Field<String>> = Reader::some_texts("to", PLACES_MAX, "[\"ring.A\", \"ring.B\"]"),
        by: Option<Field<SpreadBy>> = Reader::choice("by", &SpreadBy::WORDS),
    }
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
    plan.devices = tables.read("device", DEVICES_MAX, RawDevice::read);
    plan.pools = tables.read("pool", POOLS_MAX, RawPool::read);
    plan.regions = tables.read("region", RESOURCES_MAX, RawRegion::read);
    plan.lcores = tables.read("lcore", LCORES_MAX, RawLcore::read);
    plan.ports = tables.read("port", RESOURCES_MAX, RawPort::read);
    plan.rings = tables.read("ring", RESOURCES_MAX, RawRing::read);
    plan.injectors = tables.read("injector", RESOURCES_MAX, RawInjector::read);
    plan.spreads = tables.read("spread", RESOURCES_MAX, RawSpread::read);
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
        ("", keys_of(|_, reader| drop(read_top(reader, &Catalog::default())))),
        ("device", keys_of(RawDevice::read)),
        ("pool", keys_of(RawPool::read)),
        ("region", keys_of(RawRegion::read)),
        ("lcore", keys_of(RawLcore::read)),
        ("port", keys_of(RawPort::read)),
        ("ring", keys_of(RawRing::read)),
        ("injector", keys_of(RawInjector::read)),
        ("spread", keys_of(RawSpread::read)),
        ("stage", keys_of(RawStage::read)),
    ]
}

/// Lists a table's keys by reading an empty table, whose faults are ignored.
pub(crate) fn keys_of<T>(read: fn(TableHeader, &mut Reader<'_>) -> T) -> Vec<Key> {
    let (table, mut sink) = (Table::default(), Sink::new(Sources::new("", "", &[])));
    let span = Span::new(0, 0..0);
    let mut reader = Reader::new(&table, "", span, &mut sink);
    read(TableHeader { name: String::new(), span }, &mut reader);
    reader.into_keys()
}

fn read_top(reader: &mut Reader<'_>, catalog: &Catalog) -> RawPlan {
    let name = reader.optional_text("name");
    if let Some(empty) = name.as_ref().filter(|name| name.value.trim().is_empty()) {
        reader
            .sink
            .error("bad-value", empty.span, "`name` is empty".to_owned())
            .help("leave it out for the file's name, or write what `ps` and reports shall call the run".to_owned());
    }
    let app = reader.optional_text("app");
    if let Some(app) = &app {
        check_app(app, catalog, reader.sink);
    }
    RawPlan { name: name.map(|field| field.value), app: app.map(|field| field.value), ..RawPlan::default() }
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
        let message = format!("`{}` can't name {}", entry.key.escape_debug(), with_article(sort));
        sink.error("bad-name", entry.key_span, message).help("use letters, digits, `_` and `-`; at most 64 of them");
    }
}

/// A sort of table in a sentence.
pub(crate) fn with_article(sort: &str) -> String {
    let article = if ["lcore", "injector"].contains(&sort) { "an" } else { "a" };
    format!("{article} {sort}")
}
