//! What the steps after the resolving of names want to know of injectors: whom each feeds, what the
//! plan keeps of it, and how it is drawn.

use crate::between::Injector;
use crate::checked::Checked;
use crate::graph::{Line, Node, Shape, Style};
use crate::ids::{InjectorId, PoolId, StageId};
use crate::raw::{Head, RawInjector};
use crate::refs::{InjectorLinks, Links};

impl Links<'_> {
    /// The injectors that feed a stage.
    pub(crate) fn injectors_into(&self, stage: StageId) -> impl Iterator<Item = InjectorId> {
        let into = move |(_, links): &(usize, &InjectorLinks)| links.to == Some(stage);
        self.injectors.iter().enumerate().filter(into).map(|(index, _)| InjectorId::from_index(index))
    }

    /// The injectors that take packets from a pool, with the stages that they feed.
    pub(crate) fn injectors_of(&self, pool: PoolId) -> impl Iterator<Item = (InjectorId, StageId)> {
        let of = move |(index, links): (usize, &InjectorLinks)| {
            Some((InjectorId::from_index(index), links.to?)).filter(|_| links.pool == Some(pool))
        };
        self.injectors.iter().enumerate().filter_map(of)
    }
}

impl Checked<'_> {
    pub(crate) fn injector(&self, index: usize) -> Option<Injector> {
        let (raw, links) = (&self.raw.injectors[index], &self.links.injectors[index]);
        Some(Injector {
            id: InjectorId::from_index(index),
            name: raw.head.name.clone(),
            span: raw.head.span,
            to: links.to?,
            lcore: self.links.stages[links.to?.index()].lcore?,
            pool: links.pool?,
            depth_packets: raw.depth.as_ref()?.value,
        })
    }

    /// The injectors as a picture, each with the line that leads from it; `is_wrong` says whether a
    /// table has a fault.
    pub(crate) fn drawn_injectors(&self, is_wrong: impl Fn(&str, &Head) -> bool) -> Vec<(Node, Option<Line>)> {
        let draw = |(raw, links): (&RawInjector, &InjectorLinks)| {
            let id = format!("injector.{}", raw.head.name);
            let is_wrong = is_wrong(&id, &raw.head);
            let depth = raw.depth.as_ref().map_or("?".to_owned(), |depth| depth.value.to_string());
            let line = links.to.map(|to| Line {
                from: id.clone(),
                to: format!("stage.{}", self.raw.stages[to.index()].head.name),
                label: format!("depth {depth}"),
                style: Style::Ring,
                is_wrong,
            });
            (Node { label: vec![id.clone()], id, shape: Shape::Group, is_wrong }, line)
        };
        self.raw.injectors.iter().zip(&self.links.injectors).map(draw).collect()
    }
}
