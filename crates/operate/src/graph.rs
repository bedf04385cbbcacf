//! The plan's graph as data: its nodes and edges.

use serde_json::{Value, json};
use verbline_plan::{Consumer, Destination, Plan, Target};

/// `nodes`: each lcore's ports and stages, and the rings and spreads between them; `edges`: from
/// one node to another, by name (`stage.book`). A target `drop` is no node. An edge of kind `wire`
/// leads from a port to the port that it sends to, or to each port that has joined the group that
/// it sends to.
pub(crate) fn json(plan: &Plan) -> Value {
    let mut nodes = Vec::new();
    let mut edges = Vec::new();
    let mut edge = |from: &str, to: String, kind: &str| edges.push(json!({ "from": from, "to": to, "kind": kind }));
    for port in plan.ports() {
        let id = format!("port.{}", port.name);
        nodes.push(json!({ "id": id, "lcore": plan[port.lcore].name }));
        if let Some(next) = port.next {
            edge(&id, plan.target_name(next), "batch");
        }
        match &port.destination {
            Destination::Peer(peer) => edge(&id, format!("port.{}", plan[*peer].name), "wire"),
            Destination::Group(group) => plan
                .ports()
                .iter()
                .filter(|receiver| receiver.join.contains(group))
                .for_each(|receiver| edge(&id, format!("port.{}", receiver.name), "wire")),
            Destination::None | Destination::Listen(_) | Destination::Connect(_) => {}
        }
    }
    for stage in plan.stages() {
        let id = format!("stage.{}", stage.name);
        nodes.push(json!({ "id": id, "lcore": plan[stage.lcore].name }));
        for target in &stage.outputs {
            let kind = if let Target::Ring(_) = target { "ring" } else { "batch" };
            edge(&id, plan.target_name(*target), kind);
        }
    }
    for ring in plan.rings() {
        let id = format!("ring.{}", ring.name);
        let to = match ring.to {
            Consumer::Stage(stage) => format!("stage.{}", plan[stage].name),
            Consumer::Port(port) => format!("port.{}", plan[port].name),
        };
        edge(&id, to, "ring");
        nodes.push(json!({ "id": id, "lcore": null }));
    }
    for spread in plan.spreads() {
        let id = format!("spread.{}", spread.name);
        spread.to.iter().for_each(|target| edge(&id, plan.target_name(*target), "batch"));
        nodes.push(json!({ "id": id, "lcore": null }));
    }
    for injector in plan.injectors() {
        let id = format!("injector.{}", injector.name);
        edge(&id, format!("stage.{}", plan[injector.to].name), "ring");
        nodes.push(json!({ "id": id, "lcore": null }));
    }
    let lcores: Vec<&str> = plan.lcores().iter().map(|lcore| lcore.name.as_str()).collect();
    json!({ "lcores": lcores, "nodes": nodes, "edges": edges })
}
