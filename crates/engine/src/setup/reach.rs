//! The ports whose events each stage gets: those that lead to it, and those that it leads to, over
//! any number of stages, rings and spreads; and those that its factory asked for by name.
//!
//! Two servers, or a client and its server, may share an lcore. Their stages index their state of a
//! connection by its slot, and another port uses the same slots: that port's events must not reach
//! them.

use verbline_plan::{Consumer, Plan, StageId, Target};

/// The indices of each stage's ports, by stage, in the plan's order. `asked`: the ports that the
/// factory of each stage asked for.
pub(crate) fn told_ports<'a>(plan: &Plan, asked: impl IntoIterator<Item = &'a [u16]>) -> Vec<Box<[u16]>> {
    let mut told = vec![vec![false; plan.ports().len()]; plan.stages().len()];
    for (told, asked) in told.iter_mut().zip(asked) {
        asked.iter().for_each(|port| told[usize::from(*port)] = true);
    }
    for stage in plan.stages() {
        let mut reached = Reached::new(plan);
        stage.outputs.iter().for_each(|target| reached.visit(plan, *target));
        for (port, is_reached) in reached.ports.into_iter().enumerate() {
            told[stage.id.index()][port] |= is_reached;
        }
    }
    for port in plan.ports() {
        let mut reached = Reached::new(plan);
        port.next.iter().chain(&port.sent).for_each(|target| reached.visit(plan, *target));
        for (stage, is_reached) in reached.stages.into_iter().enumerate() {
            told[stage][port.id.index()] |= is_reached;
        }
    }
    let places = |of: &Vec<bool>| (0..of.len()).filter(|port| of[*port]).map(|port| port as u16).collect();
    told.iter().map(places).collect()
}

/// The stages and ports that packets reach from one place.
struct Reached {
    stages: Vec<bool>,
    ports: Vec<bool>,
}

impl Reached {
    fn new(plan: &Plan) -> Reached {
        Reached { stages: vec![false; plan.stages().len()], ports: vec![false; plan.ports().len()] }
    }

    fn visit(&mut self, plan: &Plan, target: Target) {
        match target {
            Target::Drop => {}
            // Packets sent there leave the plan, or come in at the port's peer.
            Target::Port(id) => self.ports[id.index()] = true,
            Target::Stage(id) => self.visit_stage(plan, id),
            Target::Spread(id) => plan[id].to.iter().for_each(|target| self.visit(plan, *target)),
            Target::Ring(id) => match plan[id].to {
                Consumer::Stage(id) => self.visit_stage(plan, id),
                Consumer::Port(id) => self.ports[id.index()] = true,
            },
        }
    }

    fn visit_stage(&mut self, plan: &Plan, id: StageId) {
        if !std::mem::replace(&mut self.stages[id.index()], true) {
            plan[id].outputs.iter().for_each(|target| self.visit(plan, *target));
        }
    }
}
