//! The shapes of the file, checked as far as one table alone allows. References are names here.
//!
//! A value with a fault is `None` or its default, so that later checks can go on; a file with a
//! fault yields no plan.

use std::time::Duration;

use crate::catalog::Catalog;
use crate::choices::{Cpu, IdlePolicy, Pages, Provider, SpreadBy, Transport, WhenFull};
pub(crate) use crate::head::Head;
use crate::limits::{
    BURST_MAX, BURST_PACKETS, CACHE_PACKETS, CONNECT_TIMEOUT, CPU_MAX, CQ_DEPTH_MAX, DATA_BYTES_MAX, DEPTH_MAX,
    DEVICES_MAX, DRAIN, DURATION_MAX, HEADROOM_BYTES, HEADROOM_BYTES_MAX, INLINE_BYTES, LCORES_MAX, LISTED_MAX,
    PACKETS_MAX, PLACES_MAX, POOLS_MAX, PORT_NUM_MAX, PRIORITY_MAX, RESOURCES_MAX, SIGNAL_EVERY_WR, SIGNATURE_KEYS_MAX,
    TIMERS_MAX, TOP_KEYS, WINDOWS_MAX,
};
use crate::outputs;
use crate::raw_region::{self, PAGES, RawRegion};
use crate::raw_shared::RawShared;
use crate::read::{Field, Key, Reader, table_of};
use crate::sink::Sink;

use crate::source::{Sources, Span};
use crate::tree::{Entry, Node, Table};
use crate::unread::Unread;

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
    pub(crate) head: Head,
    pub(crate) provider: Option<Field<Provider>>,
    pub(crate) device_name: Option<Field<String>>,
    pub(crate) port_num: Field<u32>,
    pub(crate) gid_index: Option<Field<u32>>,
}

#[derive(Debug)]
pub(crate) struct RawPool {
    pub(crate) head: Head,
    pub(crate) device: Option<Field<String>>,
    pub(crate) packets: Option<Field<u32>>,
    pub(crate) data_bytes: Option<Field<u32>>,
    pub(crate) headroom_bytes: Field<u32>,
    pub(crate) pages: Field<Pages>,
    pub(crate) cache_packets: Field<u32>,
}

#[derive(Debug)]
pub(crate) struct RawLcore {
    pub(crate) head: Head,
    pub(crate) cpu: Option<Field<Cpu>>,
    pub(crate) idle: Field<IdlePolicy>,
    pub(crate) burst_packets: Field<u32>,
    pub(crate) spin: Option<Field<Duration>>,
    pub(crate) late_share: Option<Field<f64>>,
    pub(crate) spin_max: Option<Field<Duration>>,
    pub(crate) dwell: Option<Field<Duration>>,
    pub(crate) pause: Field<bool>,
    pub(crate) drain: Duration,
    pub(crate) cq_depth_wc: Option<Field<u32>>,
}

#[derive(Debug)]
pub(crate) struct RawPort {
    pub(crate) head: Head,
    pub(crate) lcore: Option<Field<String>>,
    pub(crate) device: Option<Field<String>>,
    pub(crate) pool: Option<Field<String>>,
    pub(crate) transport: Option<Field<Transport>>,
    pub(crate) join: Vec<Field<String>>,
    pub(crate) join_key: Option<Span>,
    pub(crate) send_to: Option<Field<String>>,
    pub(crate) peer: Option<Field<String>>,
    pub(crate) listen: Option<Field<String>>,
    pub(crate) connect: Option<Field<String>>,
    /// Behind the first.
    pub(crate) connect_also: Vec<Field<String>>,
    pub(crate) connect_timeout: Field<Duration>,
    pub(crate) reconnect: Field<bool>,
    pub(crate) shared: RawShared,
    pub(crate) rx_depth_wr: Field<u32>,
    pub(crate) tx_depth_wr: Field<u32>,
    pub(crate) ops_depth_wr: Field<u32>,
    pub(crate) windows: Field<u32>,
    pub(crate) signature_keys: Field<u32>,
    pub(crate) immediates: Field<bool>,
    pub(crate) inline_bytes: Field<u32>,
    pub(crate) signal_every_wr: Field<u32>,
    pub(crate) timestamps: Field<bool>,
    pub(crate) next: Option<Field<String>>,
}

#[derive(Debug)]
pub(crate) struct RawRing {
    pub(crate) head: Head,
    pub(crate) to: Option<Field<String>>,
    pub(crate) depth: Option<Field<u32>>,
    pub(crate) full: Field<WhenFull>,
    pub(crate) priority: Field<u32>,
}

#[derive(Debug)]
pub(crate) struct RawInjector {
    pub(crate) head: Head,
    pub(crate) to: Option<Field<String>>,
    pub(crate) pool: Option<Field<String>>,
    pub(crate) depth: Option<Field<u32>>,
}

#[derive(Debug)]
pub(crate) struct RawSpread {
    pub(crate) head: Head,
    pub(crate) to: Vec<Field<String>>,
    pub(crate) by: Option<Field<SpreadBy>>,
}

#[derive(Debug)]
pub(crate) struct RawStage {
    pub(crate) head: Head,
    pub(crate) kind: Option<Field<String>>,
    pub(crate) lcore: Option<Field<String>>,
    pub(crate) pool: Option<Field<String>>,
    pub(crate) timers_max: Field<u32>,
    pub(crate) regions: Vec<Field<String>>,
    /// Output name, its place, and the target that it names.
    pub(crate) out: Vec<(String, Span, Option<Field<String>>)>,
    pub(crate) params: Option<(Span, Node)>,
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
    plan.regions = tables.read("region", RESOURCES_MAX, raw_region::read);
    plan.lcores = tables.read("lcore", LCORES_MAX, read_lcore);
    plan.ports = tables.read("port", RESOURCES_MAX, read_port);
    plan.rings = tables.read("ring", RESOURCES_MAX, read_ring);
    plan.injectors = tables.read("injector", RESOURCES_MAX, read_injector);
    plan.spreads = tables.read("spread", RESOURCES_MAX, read_spread);
    plan.stages = tables.read("stage", RESOURCES_MAX, read_stage);
    plan.unread = tables.unread;
    if plan.lcores.is_empty() && root.find("lcore").is_none() {
        sink.error("missing-key", top, "the plan has no lcore, so nothing would run")
            .help("add a table [lcore.NAME] with `cpu = \"allowed:0\"`");
    }
    plan
}

/// Every key that a plan's tables are asked for, by table (`""` is the top), each in the order in
/// which it is read.
pub(crate) fn keys() -> Vec<(&'static str, Vec<Key>)> {
    vec![
        ("", keys_of(|reader| drop(read_top(reader, &Catalog::default())))),
        ("device", keys_of(|reader| drop(read_device(Head::nobody(), reader)))),
        ("pool", keys_of(|reader| drop(read_pool(Head::nobody(), reader)))),
        ("region", keys_of(|reader| drop(raw_region::read(Head::nobody(), reader)))),
        ("lcore", keys_of(|reader| drop(read_lcore(Head::nobody(), reader)))),
        ("port", keys_of(|reader| drop(read_port(Head::nobody(), reader)))),
        ("ring", keys_of(|reader| drop(read_ring(Head::nobody(), reader)))),
        ("injector", keys_of(|reader| drop(read_injector(Head::nobody(), reader)))),
        ("spread", keys_of(|reader| drop(read_spread(Head::nobody(), reader)))),
        ("stage", keys_of(|reader| drop(read_stage(Head::nobody(), reader)))),
    ]
}

/// What a table of nothing is asked for; that it is not there is nobody's fault.
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

/// The tables of resources.
struct Tables<'a> {
    root: &'a Table,
    sink: &'a mut Sink,
    unread: Unread,
}

impl Tables<'_> {
    /// Reads every `[sort.NAME]`.
    fn read<T>(&mut self, sort: &'static str, max: usize, read: fn(Head, &mut Reader<'_>) -> T) -> Vec<T> {
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
            list.push(read(Head { name: entry.key.clone(), span: entry.key_span }, &mut reader));
            reader.finish("unknown-key", &[]);
            self.sink.table_is_read(&path, entry.key_span, before);
        }
        list
    }
}

/// A name is used in references such as `stage.NAME`, in graphs and in statistics.
fn check_name(entry: &Entry, sort: &str, sink: &mut Sink) {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if entry.key.is_empty() || entry.key.len() > 64 || !entry.key.chars().all(fits) {
        let article = if ["lcore", "injector"].contains(&sort) { "an" } else { "a" };
        sink.error("bad-name", entry.key_span, format!("`{}` can't name {article} {sort}", entry.key.escape_debug()))
            .help("use letters, digits, `_` and `-`; at most 64 of them");
    }
}

fn read_device(head: Head, reader: &mut Reader<'_>) -> RawDevice {
    RawDevice {
        head,
        provider: reader.choice("provider", &Provider::ALL.map(|one| (one.word(), one))),
        device_name: reader.optional_text("name"),
        port_num: reader.number_or("port", 1..=PORT_NUM_MAX, 1),
        gid_index: reader.optional_number("gid_index", 0..=255),
    }
}

fn read_pool(head: Head, reader: &mut Reader<'_>) -> RawPool {
    RawPool {
        head,
        device: reader.text("device", "\"NAME\", the device to register it with"),
        packets: reader.number("packets", 1..=PACKETS_MAX, "4096"),
        data_bytes: reader.number("data_bytes", 1..=DATA_BYTES_MAX, "2048"),
        headroom_bytes: reader.number_or("headroom_bytes", 0..=HEADROOM_BYTES_MAX, HEADROOM_BYTES),
        pages: reader.choice_or_first("pages", &PAGES),
        cache_packets: reader.number_or("cache_packets", 0..=PACKETS_MAX, CACHE_PACKETS),
    }
}

fn read_lcore(head: Head, reader: &mut Reader<'_>) -> RawLcore {
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
        drain: reader.duration_or("drain", DURATION_MAX, DRAIN).value,
        cq_depth_wc: reader.optional_number("cq_depth_wc", 1..=CQ_DEPTH_MAX),
    }
}

fn read_port(head: Head, reader: &mut Reader<'_>) -> RawPort {
    let transports = [("rc", Transport::Rc), ("uc", Transport::Uc), ("ud", Transport::Ud)];
    let mut port = RawPort {
        head,
        lcore: reader.text("lcore", "\"NAME\", the lcore that owns it"),
        device: reader.text("device", "\"NAME\", the device that it is on"),
        pool: reader.optional_text("pool"),
        transport: reader.choice("transport", &transports),
        join_key: reader.place("join").map(|entry| entry.key_span),
        join: reader.texts("join", LISTED_MAX),
        send_to: reader.optional_text("send_to"),
        peer: reader.optional_text("peer"),
        listen: reader.optional_text("listen"),
        connect: None,
        connect_also: reader.text_or_texts("connect", LISTED_MAX),
        connect_timeout: reader.duration_or("connect_timeout", DURATION_MAX, CONNECT_TIMEOUT),
        reconnect: reader.flag_or("reconnect", true),
        shared: RawShared::read(reader),
        rx_depth_wr: read_depth(reader, "rx_depth_wr"),
        tx_depth_wr: read_depth(reader, "tx_depth_wr"),
        ops_depth_wr: read_depth(reader, "ops_depth_wr"),
        windows: reader.number_or("windows", 0..=WINDOWS_MAX, 0),
        signature_keys: reader.number_or("signature_keys", 0..=SIGNATURE_KEYS_MAX, 0),
        immediates: reader.flag_or("immediates", false),
        inline_bytes: reader.number_or("inline_bytes", 0..=1 << 16, INLINE_BYTES),
        signal_every_wr: reader.number_or("signal_every_wr", 1..=DEPTH_MAX, SIGNAL_EVERY_WR),
        timestamps: reader.flag_or("timestamps", true),
        next: reader.optional_text("next"),
    };
    // The first stands for the port wherever one address does.
    port.connect = (!port.connect_also.is_empty()).then(|| port.connect_also.remove(0));
    port
}

/// A depth that is there but bad counts as the greatest: it is not for want of a queue that the
/// port is wrong.
fn read_depth(reader: &mut Reader<'_>, key: &'static str) -> Field<u32> {
    let depth = reader.number_or(key, 0..=DEPTH_MAX, 0);
    match reader.place(key) {
        Some(entry) if !depth.given => Field { value: DEPTH_MAX, span: entry.node.span, given: true },
        _ => depth,
    }
}

fn read_ring(head: Head, reader: &mut Reader<'_>) -> RawRing {
    RawRing {
        head,
        to: reader.text("to", "\"stage.NAME\" or \"port.NAME\", on another lcore"),
        depth: reader.number("depth", 1..=DEPTH_MAX, "1024"),
        full: reader.choice_or_first("full", &WhenFull::ALL.map(|full| (full.word(), full))),
        priority: reader.number_or("priority", 0..=PRIORITY_MAX, 0),
    }
}

fn read_injector(head: Head, reader: &mut Reader<'_>) -> RawInjector {
    RawInjector {
        head,
        to: reader.text("to", "\"stage.NAME\", the stage that gets the messages"),
        pool: reader.text("pool", "\"NAME\", the pool that messages are copied into"),
        depth: reader.number("depth", 1..=DEPTH_MAX, "1024"),
    }
}

fn read_spread(head: Head, reader: &mut Reader<'_>) -> RawSpread {
    RawSpread {
        head,
        to: reader.some_texts("to", PLACES_MAX, "[\"ring.A\", \"ring.B\"]"),
        by: reader.choice("by", &SpreadBy::ALL.map(|by| (by.word(), by))),
    }
}

fn read_stage(head: Head, reader: &mut Reader<'_>) -> RawStage {
    RawStage {
        head,
        kind: reader.text("use", "\"KIND\", one that the application registered"),
        lcore: reader.text("lcore", "\"NAME\", the lcore that runs it"),
        pool: reader.optional_text("pool"),
        timers_max: reader.number_or("timers_max", 0..=TIMERS_MAX, 0),
        regions: reader.texts("regions", LISTED_MAX),
        out: outputs::read(reader),
        params: read_params(reader),
    }
}

fn read_params(reader: &mut Reader<'_>) -> Option<(Span, Node)> {
    let entry = reader.table("params")?;
    table_of(entry, "stage.NAME.params", reader.sink)?;
    Some((entry.key_span, entry.node.clone()))
}
