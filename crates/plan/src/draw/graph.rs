//! The graph of a plan: lcores as boxes around their ports and stages, rings between them, pools in
//! a corner.
//!
//! It is drawn from the checked file, so a broken plan has one too, with its faults marked.

use std::collections::{HashMap, HashSet};

use crate::check::Checked;
use crate::check::edges::Edge;
use crate::choices::{Destination, Pages, WhenFull, transport_word};
use crate::diag::sink::Sink;
use crate::diag::source::{Sources, Span};
use crate::ids::{Consumer, LcoreId, PortId, RingId, Target};
use crate::read::raw::RawRing;
use crate::read::reader::{Field, TableHeader};

/// The graph of a plan, written as Graphviz ([`Drawing::to_dot`]) or Mermaid
/// ([`Drawing::to_mermaid`]).
#[derive(Debug, Clone)]
pub struct Drawing {
    pub(crate) name: String,
    pub(crate) clusters: Vec<Cluster>,
    /// Pools, groups, and nodes without an lcore.
    pub(crate) loose: Vec<Node>,
    pub(crate) lines: Vec<Line>,
}

#[derive(Debug, Clone)]
pub(crate) struct Cluster {
    pub(crate) id: String,
    pub(crate) title: String,
    pub(crate) is_wrong: bool,
    pub(crate) nodes: Vec<Node>,
}

#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) id: String,
    /// Lines of text.
    pub(crate) label: Vec<String>,
    pub(crate) shape: Shape,
    pub(crate) is_wrong: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    Port,
    Stage,
    Pool,
    Group,
    Drop,
}

#[derive(Debug, Clone)]
pub(crate) struct Line {
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) label: String,
    pub(crate) style: Style,
    pub(crate) is_wrong: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    /// A hand-over within an lcore.
    Batch,
    /// Over a ring.
    Ring,
    /// Over the network, one way.
    Wire,
    /// Over the network, both ways.
    Connection,
}

impl Drawing {
    pub(crate) fn empty(name: &str) -> Self {
        Drawing { name: name.to_owned(), clusters: Vec::new(), loose: Vec::new(), lines: Vec::new() }
    }

    pub(crate) fn new(checked: &Checked<'_>, sink: &Sink) -> Self {
        let blame = Blame::new(checked, sink);
        let mut drawing = Drawing::empty(checked.raw.name.as_deref().unwrap_or("plan"));
        drawing.clusters = (0..checked.raw.lcores.len()).map(|index| lcore(checked, index, &blame)).collect();
        for (lcore, node) in placed(checked, &blame) {
            match lcore {
                Some(id) => drawing.clusters[id.index()].nodes.push(node),
                None => drawing.loose.push(node),
            }
        }
        let outputs = outputs(checked);
        drawing.pools(checked, &blame);
        drawing.regions(checked, &blame);
        drawing.batches(checked, &outputs, &blame);
        drawing.rings(checked, &outputs, &blame);
        drawing.wires(checked, &blame);
        drawing.injectors(checked, &blame);
        drawing
    }

    fn pools(&mut self, checked: &Checked<'_>, blame: &Blame<'_>) {
        for (pool, device) in checked.raw.pools.iter().zip(&checked.links.pools) {
            let size = |field: &Option<Field<u32>>| field.as_ref().map_or("?".to_owned(), |one| one.value.to_string());
            let pages = match pool.pages.value {
                Pages::Auto => "auto",
                Pages::Small4K => "4 KiB",
                Pages::Huge2M => "2 MiB",
                Pages::Huge1G => "1 GiB",
                Pages::OnDemand => "on-demand",
            };
            let device = device.map_or("?", |id| checked.raw.devices[id.index()].head.name.as_str());
            let label = vec![
                format!("pool.{}", pool.head.name),
                format!("{} x {} B", size(&pool.packets), size(&pool.data_bytes)),
                format!("{pages} pages, {device}"),
            ];
            let id = format!("pool.{}", pool.head.name);
            self.loose.push(Node { is_wrong: blame.owns(&id, &pool.head), id, label, shape: Shape::Pool });
        }
    }

    fn regions(&mut self, checked: &Checked<'_>, blame: &Blame<'_>) {
        for (region, facts) in checked.raw.regions.iter().zip(&checked.regions) {
            let bytes = region.bytes.as_ref().map_or("?".to_owned(), |bytes| bytes.value.to_string());
            let owner = facts
                .owner
                .map_or("nobody".to_owned(), |id| format!("stage.{}", checked.raw.stages[id.index()].head.name));
            let id = format!("region.{}", region.head.name);
            let label = vec![id.clone(), format!("{bytes} B"), format!("of {owner}")];
            self.loose.push(Node { is_wrong: blame.owns(&id, &region.head), id, label, shape: Shape::Pool });
        }
    }

    fn batches(&mut self, checked: &Checked<'_>, outputs: &Outputs<'_>, blame: &Blame<'_>) {
        let mut drops = HashSet::new();
        for edge in checked.edges.all() {
            let from = checked.raw.producer_name(edge.from);
            let to = match edge.hop.target {
                Target::Stage(id) => checked.raw.consumer_name(Consumer::Stage(id)),
                Target::Port(id) => checked.raw.consumer_name(Consumer::Port(id)),
                Target::Drop => self.drop_node(edge.lcore, checked, &mut drops),
                // Drawn by `rings`, as one line from end to end.
                Target::Ring(_) => continue,
                // No edge ends at a spread: it leads to one of its places.
                Target::Spread(_) => continue,
            };
            let label = label(checked, edge, outputs);
            self.lines.push(Line { from, to, label, style: Style::Batch, is_wrong: blame.has(edge.hop.span) });
        }
    }

    /// Returns the node of an lcore's explicit drops; each lcore has one.
    fn drop_node(
        &mut self,
        lcore: Option<LcoreId>,
        checked: &Checked<'_>,
        drops: &mut HashSet<Option<LcoreId>>,
    ) -> String {
        let name = lcore.map_or("?", |id| checked.raw.lcores[id.index()].head.name.as_str());
        let id = format!("drop.{name}");
        let nodes = match lcore {
            Some(id) => &mut self.clusters[id.index()].nodes,
            None => &mut self.loose,
        };
        if drops.insert(lcore) {
            nodes.push(Node { id: id.clone(), label: vec!["drop".to_owned()], shape: Shape::Drop, is_wrong: false });
        }
        id
    }

    fn rings(&mut self, checked: &Checked<'_>, outputs: &Outputs<'_>, blame: &Blame<'_>) {
        for (index, ring) in checked.raw.rings.iter().enumerate() {
            let id = format!("ring.{}", ring.head.name);
            let mut is_wrong = blame.owns(&id, &ring.head);
            let depth = ring.depth.as_ref().map_or("?".to_owned(), |depth| depth.value.to_string());
            let to = checked.links.rings[index].map(|to| checked.raw.consumer_name(to));
            let from = checked.edges.leading_to(Target::Ring(RingId::from_index(index)));
            // A ring without one of its ends is drawn as a node.
            let to = to.filter(|_| !from.is_empty());
            if to.is_none() {
                is_wrong = true;
                self.loose.push(Node {
                    id: id.clone(),
                    label: vec![id.clone(), format!("depth {depth}")],
                    shape: Shape::Drop,
                    is_wrong,
                });
            }
            for edge in from {
                let mut label = label(checked, edge, outputs);
                if !label.is_empty() {
                    label += " / ";
                }
                self.lines.push(Line {
                    from: checked.raw.producer_name(edge.from),
                    to: to.clone().unwrap_or_else(|| id.clone()),
                    label: format!("{label}{id} ({depth}{})", policy(ring)),
                    style: Style::Ring,
                    is_wrong: is_wrong || blame.has(edge.hop.span),
                });
            }
        }
    }

    fn injectors(&mut self, checked: &Checked<'_>, blame: &Blame<'_>) {
        for (raw, links) in checked.raw.injectors.iter().zip(&checked.links.injectors) {
            let id = format!("injector.{}", raw.head.name);
            let is_wrong = blame.owns(&id, &raw.head);
            let depth = raw.depth.as_ref().map_or("?".to_owned(), |depth| depth.value.to_string());
            self.lines.extend(links.to.map(|to| Line {
                from: id.clone(),
                to: format!("stage.{}", checked.raw.stages[to.index()].head.name),
                label: format!("depth {depth}"),
                style: Style::Ring,
                is_wrong,
            }));
            self.loose.push(Node { label: vec![id.clone()], id, shape: Shape::Group, is_wrong });
        }
    }

    fn wires(&mut self, checked: &Checked<'_>, blame: &Blame<'_>) {
        let mut groups = HashSet::new();
        for (index, facts) in checked.ports.iter().enumerate() {
            let port = &checked.raw.ports[index];
            let from = format!("port.{}", port.head.name);
            let word = port.transport.as_ref().map_or("?", |transport| transport_word(transport.value)).to_owned();
            let is_wrong = port.peer.as_ref().is_some_and(|peer| blame.has(peer.span));
            match facts.destination {
                // Ports with an address come below.
                Destination::None | Destination::Listen(_) | Destination::Connect(_) => {}
                Destination::Group(_) => {
                    for group in &facts.send_to {
                        let to = self.group_node(&group.to_string(), &mut groups);
                        let (from, label) = (from.clone(), word.clone());
                        self.lines.push(Line { from, to, label, style: Style::Wire, is_wrong });
                    }
                }
                Destination::Peer(peer) => {
                    let back = checked.ports[peer.index()].destination.peer() == Some(PortId::from_index(index));
                    let to = format!("port.{}", checked.raw.ports[peer.index()].head.name);
                    let style = if back { Style::Connection } else { Style::Wire };
                    if !back || index < peer.index() {
                        self.lines.push(Line { from: from.clone(), to, label: word.clone(), style, is_wrong });
                    }
                }
            }
            if let Destination::Listen(address) | Destination::Connect(address) = facts.destination {
                let is_wrong = port.address_keys().any(|(_, field)| blame.has(field.span));
                let listens = matches!(facts.destination, Destination::Listen(_));
                // A connection with both ends in this plan is drawn once, from the end that
                // connects.
                let to = match facts.across {
                    Some(_) if listens => None,
                    Some(other) => Some(format!("port.{}", checked.raw.ports[other.index()].head.name)),
                    None => Some(self.group_node(&address.to_string(), &mut groups)),
                };
                let role = if listens { "listens at" } else { "connects to" };
                let label = format!("{word} {role} {address}");
                let line = |to| Line { from: from.clone(), to, label, style: Style::Connection, is_wrong };
                self.lines.extend(to.map(line));
            }
            for group in &facts.join {
                let group = self.group_node(&group.to_string(), &mut groups);
                self.lines.push(Line {
                    from: group,
                    to: from.clone(),
                    label: word.clone(),
                    style: Style::Wire,
                    is_wrong: false,
                });
            }
        }
    }

    fn group_node(&mut self, group: &str, groups: &mut HashSet<String>) -> String {
        let id = format!("group.{group}");
        if groups.insert(id.clone()) {
            self.loose.push(Node {
                id: id.clone(),
                label: vec![group.to_owned()],
                shape: Shape::Group,
                is_wrong: false,
            });
        }
        id
    }
}

fn lcore(checked: &Checked<'_>, index: usize, blame: &Blame<'_>) -> Cluster {
    let lcore = &checked.raw.lcores[index];
    let idle = lcore.idle.value.word();
    let resolved = checked.lcores.cpus[index].map(|cpu| cpu.to_string());
    let cpu = resolved.or(lcore.cpu.as_ref().map(|cpu| cpu.value.to_string())).unwrap_or("?".to_owned());
    let name = format!("lcore.{}", lcore.head.name);
    Cluster {
        title: format!("{name}: CPU {cpu}, {idle}, burst {}", lcore.burst_packets.value),
        is_wrong: blame.owns(&name, &lcore.head),
        id: name,
        nodes: Vec::new(),
    }
}

/// The ports and stages, with their lcores if known.
fn placed(checked: &Checked<'_>, blame: &Blame<'_>) -> Vec<(Option<LcoreId>, Node)> {
    let mut nodes = Vec::new();
    for (port, links) in checked.raw.ports.iter().zip(&checked.links.ports) {
        let id = format!("port.{}", port.head.name);
        let word = port.transport.as_ref().map_or("?", |transport| transport_word(transport.value));
        let many = port.many().map_or(String::new(), |many| format!(" x {}", many.value));
        let depths = format!("{word} rx {} tx {}{many}", port.rx_key().value, port.tx_depth_wr.value);
        let is_wrong = blame.owns(&id, &port.head);
        nodes.push((links.lcore, Node { label: vec![id.clone(), depths], id, shape: Shape::Port, is_wrong }));
    }
    for (stage, links) in checked.raw.stages.iter().zip(&checked.links.stages) {
        let id = format!("stage.{}", stage.head.name);
        let kind = stage.kind.as_ref().map_or("?", |kind| kind.value.as_str());
        let is_wrong = blame.owns(&id, &stage.head);
        let label = vec![id.clone(), format!("use {kind}")];
        nodes.push((links.lcore, Node { label, id, shape: Shape::Stage, is_wrong }));
    }
    nodes
}

/// The names of outputs by the places of their targets, and of ports' `sent`. A `next` has no name.
type Outputs<'a> = HashMap<Span, &'a str>;

fn outputs<'a>(checked: &'a Checked<'_>) -> Outputs<'a> {
    let outputs = checked.raw.stages.iter().flat_map(|stage| &stage.out);
    let outputs = outputs.filter_map(|(name, _, target)| Some((target.as_ref()?.span, name.as_str())));
    let sent = checked.raw.ports.iter().filter_map(|port| Some((port.sent.as_ref()?.span, "sent")));
    outputs.chain(sent).collect()
}

/// A ring's deviations from the default policy, written after its depth.
fn policy(ring: &RawRing) -> String {
    let full = if ring.full.value == WhenFull::Refuse { "" } else { ring.full.value.word() };
    let priority = if ring.priority.value == 0 { String::new() } else { format!("priority {}", ring.priority.value) };
    [full, &priority].iter().filter(|word| !word.is_empty()).map(|word| format!(", {word}")).collect()
}

/// The output at the start of an edge, and the spread that it leads through.
fn label(checked: &Checked<'_>, edge: &Edge, outputs: &Outputs<'_>) -> String {
    let output = outputs.get(&edge.named).copied().unwrap_or_default();
    let Some(spread) = edge.through.map(|id| &checked.raw.spreads[id.index()]) else { return output.to_owned() };
    let by = spread.by.as_ref().map_or("?", |by| by.value.word());
    format!("{output} / spread.{} by {by}", spread.head.name)
}

/// The tables and places that the errors refer to.
struct Blame<'a> {
    sources: &'a Sources,
    errors: Vec<Span>,
    /// The starts of tables in the file, sorted.
    heads: Vec<u32>,
}

impl<'a> Blame<'a> {
    fn new(checked: &Checked<'_>, sink: &'a Sink) -> Self {
        let raw = &checked.raw;
        let mut heads: Vec<u32> = Vec::new();
        heads.extend(raw.devices.iter().map(|one| one.head.span.start));
        heads.extend(raw.pools.iter().map(|one| one.head.span.start));
        heads.extend(raw.regions.iter().map(|one| one.head.span.start));
        heads.extend(raw.lcores.iter().map(|one| one.head.span.start));
        heads.extend(raw.ports.iter().map(|one| one.head.span.start));
        heads.extend(raw.rings.iter().map(|one| one.head.span.start));
        heads.extend(raw.injectors.iter().map(|one| one.head.span.start));
        heads.extend(raw.spreads.iter().map(|one| one.head.span.start));
        heads.extend(raw.stages.iter().map(|one| one.head.span.start));
        heads.extend(raw.sections.iter().flatten().map(|(span, _)| span.start));
        heads.sort_unstable();
        Blame { sources: &sink.sources, errors: sink.error_spans(), heads }
    }

    fn has(&self, span: Span) -> bool {
        self.errors.contains(&span)
    }

    /// Whether an error is in the table `path`: between its header and the next one, or in a flag
    /// that sets one of its keys.
    fn owns(&self, path: &str, head: &TableHeader) -> bool {
        let next = self.heads.partition_point(|start| *start <= head.span.start);
        let end = self.heads.get(next).copied().unwrap_or(u32::MAX);
        self.errors.iter().any(|error| {
            let source = self.sources.source(*error);
            match source.is_flag {
                true => source.text.starts_with(&format!("{path}.")) || source.text.starts_with(&format!("{path}=")),
                false => error.start >= head.span.start && error.start < end,
            }
        })
    }
}
