//! Checks the graph of stages and rings: it has no circle, each lcore runs its stages in
//! topological order, and every stage is fed.

use std::collections::{HashMap, HashSet};

use petgraph::algo::{tarjan_scc, toposort};
use petgraph::graph::{DiGraph, NodeIndex};

use crate::check::edges::{Edge, Edges};
use crate::check::refs::Links;
use crate::diag::sink::Sink;
use crate::diag::source::Span;
use crate::ids::{Consumer, Producer, RingId, StageId, Target};
use crate::read::raw::RawPlan;

/// The most names that are listed of a cycle.
const CYCLE_NAMES_MAX: usize = 10;

/// Stages first, then rings; weights are the places that name the edges.
type Graph = DiGraph<(), Span>;

/// All stages in topological order, or in the order of the file if there is a cycle (which is an
/// error).
pub(crate) fn check(raw: &RawPlan, links: &Links<'_>, edges: &Edges, sink: &mut Sink) -> Vec<StageId> {
    let graph = build(raw, links, edges.all());
    for group in tarjan_scc(&graph) {
        if group.len() > 1 || graph.contains_edge(group[0], group[0]) {
            report_cycle(raw, &graph, &group, sink);
        }
    }
    unreachable_stages(raw, links, edges, sink);
    let stages = raw.stages.len();
    let order = toposort(&graph, None).map(|order| order.into_iter().map(NodeIndex::index).collect());
    let order: Vec<usize> = order.unwrap_or_else(|_| (0..stages).collect());
    order.into_iter().filter(|index| *index < stages).map(StageId::from_index).collect()
}

fn build(raw: &RawPlan, links: &Links<'_>, edges: &[Edge]) -> Graph {
    let stages = raw.stages.len();
    let mut graph = Graph::with_capacity(stages + raw.rings.len(), edges.len());
    for _ in 0..stages + raw.rings.len() {
        graph.add_node(());
    }
    for edge in edges {
        let Producer::Stage(from) = edge.from else { continue };
        let to = match edge.hop.target {
            Target::Stage(id) => id.index(),
            Target::Ring(id) => stages + id.index(),
            Target::Port(_) | Target::Spread(_) | Target::Drop => continue,
        };
        graph.add_edge(NodeIndex::new(from.index()), NodeIndex::new(to), edge.hop.span);
    }
    for (index, (ring, consumer)) in raw.rings.iter().zip(&links.rings).enumerate() {
        if let (Some(Consumer::Stage(to)), Some(field)) = (consumer, &ring.to) {
            graph.add_edge(NodeIndex::new(stages + index), NodeIndex::new(to.index()), field.span);
        }
    }
    graph
}

fn report_cycle(raw: &RawPlan, graph: &Graph, group: &[NodeIndex], sink: &mut Sink) {
    let cycle = shortest_cycle(graph, group);
    let name = |node: &NodeIndex| match node.index().checked_sub(raw.stages.len()) {
        None => raw.producer_name(Producer::Stage(StageId::from_index(node.index()))),
        Some(ring) => format!("ring.{}", raw.rings[RingId::from_index(ring).index()].head.name),
    };
    let mut path: Vec<String> = cycle.iter().take(CYCLE_NAMES_MAX).map(name).collect();
    if cycle.len() > CYCLE_NAMES_MAX {
        path.push(format!("{} more", cycle.len() - CYCLE_NAMES_MAX));
    }
    path.extend(path.first().cloned());
    let spans: Vec<Span> = (0..cycle.len())
        .filter_map(|at| graph.find_edge(cycle[at], cycle[(at + 1) % cycle.len()]))
        .map(|edge| graph[edge])
        .collect();
    let Some((last, others)) = spans.split_last() else { return };
    let one = sink.error("cycle", *last, format!("packets go round in a circle: {}", path.join(" -> ")));
    one.label("closes the circle");
    for span in others {
        one.related(*span, "leads on");
    }
    let over_rings = cycle.iter().any(|node| node.index() >= raw.stages.len());
    if over_rings {
        one.note("once its rings are full neither lcore can hand anything on, and the pool stays empty");
    } else {
        one.note("stages of one lcore run once a loop, each before those that it feeds; a circle has no such order");
    }
    one.help("break it with \"drop\", or send the packet out through a port: its receive queue bounds what comes back");
}

/// A shortest cycle inside a strongly connected group, starting at its first node in the order of
/// the file.
fn shortest_cycle(graph: &Graph, group: &[NodeIndex]) -> Vec<NodeIndex> {
    let Some(start) = group.iter().copied().min() else { return Vec::new() };
    let group: HashSet<NodeIndex> = group.iter().copied().collect();
    let mut previous: HashMap<NodeIndex, NodeIndex> = HashMap::new();
    let mut queue = std::collections::VecDeque::from([start]);
    while let Some(node) = queue.pop_front() {
        if graph.contains_edge(node, start) {
            let mut path = vec![node];
            let mut at = node;
            while at != start {
                let Some(before) = previous.get(&at).copied() else { break };
                path.push(before);
                at = before;
            }
            path.reverse();
            return path;
        }
        let mut next: Vec<NodeIndex> = graph.neighbors(node).filter(|to| group.contains(to)).collect();
        next.sort();
        for to in next {
            if to != start && !previous.contains_key(&to) {
                previous.insert(to, node);
                queue.push_back(to);
            }
        }
    }
    Vec::new()
}

/// Reports stages that no edge leads to and that make no packets. Stages behind one are not
/// reported again.
fn unreachable_stages(raw: &RawPlan, links: &Links<'_>, edges: &Edges, sink: &mut Sink) {
    if links.incomplete {
        return;
    }
    for (index, (stage, resolved)) in raw.stages.iter().zip(&links.stages).enumerate() {
        let id = StageId::from_index(index);
        let is_fed = !edges.leading_to(Target::Stage(id)).is_empty()
            || !edges.rings_into(Consumer::Stage(id)).is_empty()
            || links.injectors_into(id).next().is_some();
        let Some(kind) = resolved.kind.filter(|kind| !kind.spec.source && !is_fed) else { continue };
        sink.error("unreachable-stage", stage.head.span, format!("nothing leads to stage.{}", stage.head.name))
            .note(format!("kind `{}` makes no packets of its own", kind.name))
            .help(format!(
                "write \"stage.{}\" as the `next` of a port or the `out` of a stage, or remove it",
                stage.head.name
            ));
    }
}
