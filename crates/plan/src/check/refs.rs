//! Resolves names to ids. An unknown name is reported with the nearest known one.

use std::collections::HashMap;

use crate::catalog::{Catalog, StageKind};
use crate::diag::sink::Sink;
use crate::diag::source::Span;
use crate::diag::suggestions;
use crate::ids::{
    Consumer, DeviceId, InjectorId, LcoreId, PoolId, PortId, Producer, RingId, SpreadId, StageId, Target,
};
use crate::read::raw::{RawInjector, RawPlan, RawSpread, with_article};
use crate::read::raw_stage::RawStage;
use crate::read::reader::Field;
use crate::read::reader::TableHeader;

/// A sort of table that a plan can refer to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sort {
    Device,
    Pool,
    Lcore,
    Port,
    Ring,
    Spread,
    Stage,
}

impl Sort {
    pub(crate) const ALL: [Sort; 7] =
        [Sort::Device, Sort::Pool, Sort::Lcore, Sort::Port, Sort::Ring, Sort::Spread, Sort::Stage];

    /// As the file writes it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Sort::Device => "device",
            Sort::Pool => "pool",
            Sort::Lcore => "lcore",
            Sort::Port => "port",
            Sort::Ring => "ring",
            Sort::Spread => "spread",
            Sort::Stage => "stage",
        }
    }
}

/// A resolved target and the place that names it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hop {
    pub(crate) target: Target,
    pub(crate) span: Span,
}

#[derive(Debug)]
pub(crate) struct PortLinks {
    pub(crate) lcore: Option<LcoreId>,
    pub(crate) device: Option<DeviceId>,
    pub(crate) pool: Option<PoolId>,
    pub(crate) peer: Option<PortId>,
    pub(crate) listen_with: Option<PortId>,
    pub(crate) next: Option<Hop>,
    pub(crate) sent: Option<Hop>,
}

/// An injector's resolved references.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InjectorLinks {
    pub(crate) to: Option<StageId>,
    pub(crate) pool: Option<PoolId>,
}

#[derive(Debug)]
pub(crate) struct StageLinks<'a> {
    pub(crate) lcore: Option<LcoreId>,
    pub(crate) pool: Option<PoolId>,
    pub(crate) kind: Option<&'a StageKind>,
    /// In the kind's order if the kind is known and each output is wired, else in the file's.
    pub(crate) outputs: Vec<Hop>,
}

/// All resolved references of a plan, in the order of [`RawPlan`]'s lists.
#[derive(Debug)]
pub(crate) struct Links<'a> {
    pub(crate) pools: Vec<Option<DeviceId>>,
    pub(crate) ports: Vec<PortLinks>,
    pub(crate) rings: Vec<Option<Consumer>>,
    pub(crate) injectors: Vec<InjectorLinks>,
    /// The known places of each spread.
    pub(crate) spreads: Vec<Vec<Hop>>,
    pub(crate) stages: Vec<StageLinks<'a>>,
    /// Some target is unresolved, so no place can be called unreachable.
    pub(crate) incomplete: bool,
}

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

pub(crate) fn resolve<'a>(raw: &RawPlan, catalog: &'a Catalog, sink: &mut Sink) -> Links<'a> {
    let mut names = Resolver { raw, sink, incomplete: false, known: Sort::ALL.map(|sort| index(raw, sort)) };
    let pools =
        raw.pools.iter().map(|pool| names.plain(Sort::Device, &pool.device).map(DeviceId::from_index)).collect();
    let ports = raw
        .ports
        .iter()
        .map(|port| PortLinks {
            lcore: names.plain(Sort::Lcore, &port.lcore).map(LcoreId::from_index),
            device: names.plain(Sort::Device, &port.device).map(DeviceId::from_index),
            pool: names.plain(Sort::Pool, &port.pool).map(PoolId::from_index),
            peer: names.peer(&port.peer),
            listen_with: names.peer(&port.shared.listen_with),
            next: names.hop(port.next.as_ref(), &[Sort::Stage, Sort::Port, Sort::Ring], true),
            sent: names.hop(port.sent.as_ref(), &[Sort::Stage, Sort::Ring], false),
        })
        .collect();
    let rings = raw.rings.iter().map(|ring| names.consumer(&ring.to)).collect();
    let injectors = raw.injectors.iter().map(|one| names.injector(one)).collect();
    let spreads = raw.spreads.iter().map(|spread| names.places(spread)).collect();
    let stages = raw.stages.iter().map(|stage| names.stage(stage, catalog)).collect();
    let incomplete = names.incomplete;
    Links { pools, ports, rings, injectors, spreads, stages, incomplete }
}

struct Resolver<'a> {
    raw: &'a RawPlan,
    sink: &'a mut Sink,
    incomplete: bool,
    /// The places of all names, in the order of [`Sort::ALL`].
    known: [HashMap<&'a str, usize>; 7],
}

/// The names of one sort in the order of the file.
fn heads(raw: &RawPlan, sort: Sort) -> Vec<&str> {
    fn names<T>(list: &[T], head: fn(&T) -> &TableHeader) -> Vec<&str> {
        list.iter().map(|one| head(one).name.as_str()).collect()
    }
    match sort {
        Sort::Device => names(&raw.devices, |one| &one.head),
        Sort::Pool => names(&raw.pools, |one| &one.head),
        Sort::Lcore => names(&raw.lcores, |one| &one.head),
        Sort::Port => names(&raw.ports, |one| &one.head),
        Sort::Ring => names(&raw.rings, |one| &one.head),
        Sort::Spread => names(&raw.spreads, |one| &one.head),
        Sort::Stage => names(&raw.stages, |one| &one.head),
    }
}

fn index(raw: &RawPlan, sort: Sort) -> HashMap<&str, usize> {
    heads(raw, sort).into_iter().enumerate().map(|(at, name)| (name, at)).collect()
}

impl Resolver<'_> {
    fn heads(&self, sort: Sort) -> Vec<&str> {
        heads(self.raw, sort)
    }

    fn find(&self, sort: Sort, name: &str) -> Option<usize> {
        self.known[sort as usize].get(name).copied()
    }

    /// Resolves a reference to one sort by bare name, e.g. `pool = "ticks"`.
    fn plain(&mut self, sort: Sort, field: &Option<Field<String>>) -> Option<usize> {
        let field = field.as_ref()?;
        let found = self.find(sort, &field.value);
        let word = sort.word();
        if found.is_none() && !self.raw.unread.has(word, &field.value) && !self.sink.only_counts_error() {
            let other = Sort::ALL.into_iter().find(|other| self.find(*other, &field.value).is_some());
            let bare = field.value.strip_prefix(&format!("{word}.")).filter(|bare| self.find(sort, bare).is_some());
            let (code, message) = match other {
                Some(other) => (
                    "wrong-sort",
                    format!("`{}` is {}, not {}", field.value, with_article(other.word()), with_article(word)),
                ),
                None => ("dangling", format!("there is no {word} `{}`", field.value)),
            };
            let help = match bare {
                Some(bare) => format!("{} is named without `{word}.` here: write \"{bare}\"", with_article(word)),
                None => suggestions::suggest(&field.value, self.heads(sort), &format!("the {word}s are")),
            };
            self.sink.error(code, field.span, message).help(help);
        }
        found
    }

    fn peer(&mut self, field: &Option<Field<String>>) -> Option<PortId> {
        match self.prefixed(field.as_ref()?, &[Sort::Port], false)? {
            Target::Port(id) => Some(id),
            _ => None,
        }
    }

    fn consumer(&mut self, field: &Option<Field<String>>) -> Option<Consumer> {
        let found = field.as_ref().and_then(|field| self.prefixed(field, &[Sort::Stage, Sort::Port], false));
        self.incomplete |= found.is_none();
        match found? {
            Target::Stage(id) => Some(Consumer::Stage(id)),
            Target::Port(id) => Some(Consumer::Port(id)),
            Target::Ring(_) | Target::Spread(_) | Target::Drop => None,
        }
    }

    fn injector(&mut self, injector: &RawInjector) -> InjectorLinks {
        let to = injector.to.as_ref().and_then(|field| self.prefixed(field, &[Sort::Stage], false));
        self.incomplete |= to.is_none();
        let to = to.and_then(|to| if let Target::Stage(id) = to { Some(id) } else { None });
        InjectorLinks { to, pool: self.plain(Sort::Pool, &injector.pool).map(PoolId::from_index) }
    }

    /// Resolves a target of packets; absent is fine, broken is not.
    fn hop(&mut self, field: Option<&Field<String>>, allowed: &[Sort], drop: bool) -> Option<Hop> {
        let field = field?;
        let found = self.prefixed(field, allowed, drop);
        self.incomplete |= found.is_none();
        found.map(|target| Hop { target, span: field.span })
    }

    /// Resolves the target of a stage's output.
    fn output(&mut self, field: Option<&Field<String>>) -> Option<Hop> {
        self.hop(field, &[Sort::Stage, Sort::Port, Sort::Ring, Sort::Spread], true)
    }

    fn places(&mut self, spread: &RawSpread) -> Vec<Hop> {
        self.incomplete |= spread.to.is_empty();
        let place = |field| self.hop(Some(field), &[Sort::Stage, Sort::Port, Sort::Ring], false);
        spread.to.iter().filter_map(place).collect()
    }

    /// Resolves a reference by `sort.name`, or `drop`.
    fn prefixed(&mut self, field: &Field<String>, allowed: &[Sort], drop: bool) -> Option<Target> {
        if drop && field.value == "drop" {
            return Some(Target::Drop);
        }
        let (sort, name) = match field.value.split_once('.') {
            Some((word, name)) => (Sort::ALL.into_iter().find(|sort| sort.word() == word), name),
            None => (None, field.value.as_str()),
        };
        let index = sort.filter(|sort| allowed.contains(sort)).and_then(|sort| self.find(sort, name));
        match (sort, index) {
            (Some(Sort::Stage), Some(index)) => Some(Target::Stage(StageId::from_index(index))),
            (Some(Sort::Port), Some(index)) => Some(Target::Port(PortId::from_index(index))),
            (Some(Sort::Ring), Some(index)) => Some(Target::Ring(RingId::from_index(index))),
            (Some(Sort::Spread), Some(index)) => Some(Target::Spread(SpreadId::from_index(index))),
            (Some(sort), None) if self.raw.unread.has(sort.word(), name) => None,
            _ => {
                if !self.sink.only_counts_error() {
                    self.refuse_prefixed(field, sort, name, allowed, drop);
                }
                None
            }
        }
    }

    fn refuse_prefixed(&mut self, field: &Field<String>, sort: Option<Sort>, name: &str, allowed: &[Sort], drop: bool) {
        let words: Vec<String> = allowed.iter().map(|sort| format!("{}.NAME", sort.word())).collect();
        let words = words.join(", ");
        let (code, message) = match sort {
            Some(sort) if !allowed.contains(&sort) => {
                ("wrong-sort", format!("{} can't stand here: expected {words}", with_article(sort.word())))
            }
            Some(sort) => ("dangling", format!("there is no {} `{name}`", sort.word())),
            None => ("dangling", format!("`{}` names nothing", field.value)),
        };
        let mut known: Vec<String> = Vec::new();
        for sort in allowed {
            known.extend(self.heads(*sort).iter().map(|name| format!("{}.{name}", sort.word())));
        }
        let same: Vec<&str> =
            known.iter().map(String::as_str).filter(|one| one.split_once('.').unwrap().1 == name).collect();
        let help = match same.first() {
            Some(full) => format!("did you mean `{full}`?"),
            None => {
                let all = known.iter().map(String::as_str).chain(drop.then_some("drop"));
                suggestions::suggest(&field.value, all, "what can stand here:")
            }
        };
        self.sink.error(code, field.span, message).help(help);
    }

    fn stage<'a>(&mut self, stage: &RawStage, catalog: &'a Catalog) -> StageLinks<'a> {
        let kind = stage.kind.as_ref().and_then(|field| {
            let kind = catalog.kind(&field.value);
            if kind.is_none() {
                let known = catalog.kinds.iter().map(|kind| kind.name);
                let help = suggestions::suggest(&field.value, known, "the kinds that are registered are");
                self.sink.error("unknown-kind", field.span, format!("no stage kind `{}`", field.value)).help(help);
            }
            kind
        });
        StageLinks {
            lcore: self.plain(Sort::Lcore, &stage.lcore).map(LcoreId::from_index),
            pool: self.plain(Sort::Pool, &stage.pool).map(PoolId::from_index),
            kind,
            outputs: match kind {
                Some(kind) => self.outputs(stage, kind),
                None => stage.out.iter().filter_map(|(_, _, target)| self.output(target.as_ref())).collect(),
            },
        }
    }

    fn outputs(&mut self, stage: &RawStage, kind: &StageKind) -> Vec<Hop> {
        for (name, span, _) in stage.out.iter().filter(|(name, ..)| !kind.spec.outputs.contains(&name.as_str())) {
            let message = format!("kind `{}` has no output `{name}`", kind.name);
            let help = suggestions::suggest(name, kind.spec.outputs.iter().copied(), "its outputs are");
            self.sink.error("unknown-output", *span, message).help(help);
        }
        let mut hops = Vec::with_capacity(kind.spec.outputs.len());
        for output in kind.spec.outputs {
            match stage.out.iter().find(|(name, ..)| name == output) {
                Some((_, _, target)) => hops.extend(self.output(target.as_ref())),
                None => unwired(self.sink, stage, kind, output),
            }
        }
        self.incomplete |= hops.len() < kind.spec.outputs.len();
        hops
    }
}

fn unwired(sink: &mut Sink, stage: &RawStage, kind: &StageKind, output: &str) {
    let message = format!("output `{output}` of stage.{} goes nowhere", stage.head.name);
    sink.error("unwired-output", stage.head.span, message)
        .note(format!("kind `{}` has the outputs {}", kind.name, kind.spec.outputs.join(", ")))
        .help(format!("add `{output} = \"stage.NAME\"` to `out`, or `{output} = \"drop\"` to drop on purpose"));
}

impl RawPlan {
    /// `stage.NAME` or `port.NAME`.
    pub(crate) fn producer_name(&self, from: Producer) -> String {
        match from {
            Producer::Stage(id) => format!("stage.{}", self.stages[id.index()].head.name),
            Producer::Port(id) => format!("port.{}", self.ports[id.index()].head.name),
        }
    }

    pub(crate) fn consumer_name(&self, to: Consumer) -> String {
        match to {
            Consumer::Stage(id) => self.producer_name(Producer::Stage(id)),
            Consumer::Port(id) => self.producer_name(Producer::Port(id)),
        }
    }
}
