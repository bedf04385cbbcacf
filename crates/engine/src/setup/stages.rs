//! Makes the stages of a plan and the acceptors of its ports, with the app's factories. A stage
//! takes two steps: its kind describes it, without effects, and a run opens its files and sockets.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use verbline_mem::Pool;
use verbline_plan::{Diagnostic, Diagnostics, Lcore, Plan, Port, StageId};

use crate::api::context::StageContext;
use crate::api::opening::{Described, Opening};
use crate::api::registry::Registry;
use crate::api::stage::Stage;
use crate::connection::acceptor::{Acceptor, AcceptorContext};
use crate::errors::error::{EngineError, StageError, place};
use crate::errors::guarded::{Guarded, Vacancy};
use crate::idle::wake_set::WatchedFds;
use crate::operations::region::Region;
use crate::setup::devices::Pools;
use crate::setup::regions;
use crate::stats::clock::Clock;
use crate::stats::own_figures::OwnFigures;
use crate::waiting::fds::Fds;

pub(crate) fn count_sources(plan: &Plan, registry: &Registry) -> usize {
    let is_source =
        |stage: &&verbline_plan::Stage| registry.kind(&stage.kind).is_some_and(|kind| kind.checked.spec.source);
    plan.stages().iter().filter(is_source).count()
}

/// A stage from its factory.
pub(crate) struct MadeStage {
    pub(crate) stage: Guarded<dyn Stage>,
    pub(crate) drops: &'static [&'static str],
    pub(crate) outputs: &'static [&'static str],
    pub(crate) own: OwnFigures,
    pub(crate) fds: Option<Fds>,
    /// The ports that its factory asked for, by index in the plan.
    pub(crate) ports: Vec<u16>,
}

/// A stage, the descriptors that its lcore watches for it, and the ports whose events it gets.
pub(crate) type StageAndFds = (Guarded<dyn Stage>, Option<Fds>, Box<[u16]>);

/// The descriptors that an lcore watches for its stages; `None` if there are none.
pub(crate) fn watched_fds(lcore: &Lcore, stages: &[Option<StageAndFds>]) -> io::Result<Option<WatchedFds>> {
    let fds = lcore.stages.iter().filter_map(|id| stages[id.index()].as_ref()?.1.as_ref());
    let of_stages: Vec<BorrowedFd<'_>> = fds.map(Fds::as_fd).collect();
    (!of_stages.is_empty()).then(|| WatchedFds::new(&of_stages)).transpose()
}

/// Describes the stages, in the plan's order, without effects: an error in a parameter opens no
/// device and no file.
pub(crate) fn describe_stages<'a>(
    plan: &'a Plan,
    registry: &Registry,
    clock: &'a Clock,
    regions: &'a [Region],
) -> Result<Vec<Described<'a>>, EngineError> {
    plan.stages().iter().map(|stage| describe_stage(plan, registry, clock, regions, stage)).collect()
}

/// Opens the stages, in the plan's order. An empty stage takes the place of those that are not to
/// be opened.
pub(crate) fn open_stages(
    plan: &Plan,
    described: Vec<Described<'_>>,
    pools: &Pools,
    opens: impl Fn(StageId) -> bool,
) -> Result<Vec<MadeStage>, EngineError> {
    let memory = |stage: &verbline_plan::Stage| stage.pool.map(|pool| pools[pool].clone());
    let open = |(stage, mut described): (&verbline_plan::Stage, Described<'_>)| {
        if !opens(stage.id) {
            described.open = Box::new(|opening| Ok(Guarded::new(opening.name(), <dyn Stage>::vacant())));
        }
        open_stage(plan, stage, described, memory(stage))
    };
    plan.stages().iter().zip(described).map(open).collect()
}

fn describe_stage<'a>(
    plan: &'a Plan,
    registry: &Registry,
    clock: &'a Clock,
    regions: &'a [Region],
    stage: &'a verbline_plan::Stage,
) -> Result<Described<'a>, EngineError> {
    let Some(kind) = registry.kind(&stage.kind) else {
        return Err(EngineError::UnknownKind {
            at: place(plan, stage.span),
            stage: stage.name.clone(),
            kind: stage.kind.clone(),
        });
    };
    let context = StageContext::new(plan, stage, kind.checked.spec, clock, regions);
    let open = (kind.describe)(&context).map_err(refused(plan, stage))?;
    Ok(Described { context, open })
}

fn open_stage(
    plan: &Plan,
    stage: &verbline_plan::Stage,
    Described { context, open }: Described<'_>,
    memory: Option<Pool>,
) -> Result<MadeStage, EngineError> {
    let (drops, outputs) = (context.spec().drops, context.spec().outputs);
    let opening = Opening::new(context, memory);
    let made = open(&opening).map_err(refused(plan, stage))?;
    let (own, fds, ports) = opening.into_parts();
    Ok(MadeStage { stage: made, drops, outputs, own, fds, ports })
}

/// The unread keys in `params` of stages and of acceptors. A stage counts if its kind opens
/// nothing, or if it is open by `is_open`. All stages have been described by then: a kind may read
/// the `params` of another kind's stage.
fn unasked<'a>(
    plan: &'a Plan,
    registry: &'a Registry,
    is_open: impl Fn(StageId) -> bool + 'a,
) -> impl Iterator<Item = Diagnostic> + 'a {
    let had_its_turn = move |stage: &&verbline_plan::Stage| {
        is_open(stage.id) || registry.kind(&stage.kind).is_some_and(|kind| !kind.opens)
    };
    let of_stage = |stage: &verbline_plan::Stage| stage.params.unasked(&format!("stage kind `{}`", stage.kind));
    let of_acceptor =
        |acceptor: &verbline_plan::Acceptor| acceptor.params.unasked(&format!("acceptor `{}`", acceptor.name));
    let stages = plan.stages().iter().filter(had_its_turn).flat_map(of_stage);
    stages.chain(plan.ports().iter().filter_map(|port| port.acceptor.as_ref()).flat_map(of_acceptor))
}

/// Refuses the first key that no kind has read ([`unasked`]).
pub(crate) fn refuse_unasked(
    plan: &Plan,
    registry: &Registry,
    is_open: impl Fn(StageId) -> bool,
) -> Result<(), EngineError> {
    unasked(plan, registry, is_open).next().map_or(Ok(()), |one| Err(EngineError::Params(one)))
}

/// The kind's error, with the stage's place in the plan.
fn refused(plan: &Plan, stage: &verbline_plan::Stage) -> impl FnOnce(StageError) -> EngineError {
    let (at, name, kind) = (place(plan, stage.span), stage.name.clone(), stage.kind.clone());
    move |source| match source.downcast() {
        Ok(diagnostic) => EngineError::Params(*diagnostic),
        Err(source) => EngineError::Stage { at, stage: name, kind, source },
    }
}

/// The faults that the kinds of stages and the acceptors find in the plan. Their descriptions are
/// dropped, and never opened.
pub(crate) fn stage_faults(plan: &Plan, registry: &Registry) -> Diagnostics {
    let (clock, regions) = (Clock::new(), regions::declared(plan));
    let fault = |stage| match describe_stage(plan, registry, &clock, &regions, stage).err()? {
        EngineError::Params(diagnostic) => Some(diagnostic),
        EngineError::Stage { source, .. } => Some(stage.params.refuse("", source.to_string())),
        error => Some(stage.params.refuse("", error.to_string())),
    };
    let mut faults = Diagnostics::default();
    faults.extend(plan.stages().iter().filter_map(fault));
    let of_acceptor = |port| match make_acceptor(plan, registry, &clock, port).err()? {
        EngineError::Params(diagnostic) => Some(diagnostic),
        EngineError::Acceptor { source, .. } => Some(port.acceptor.as_ref()?.params.refuse("", source.to_string())),
        error => Some(port.acceptor.as_ref()?.params.refuse("", error.to_string())),
    };
    faults.extend(plan.ports().iter().filter_map(of_acceptor));
    // A kind that found a fault may not have read its params yet.
    if faults.is_empty() {
        faults.extend(unasked(plan, registry, |_| false));
    }
    faults
}

/// The acceptors of the plan's ports, in order; `None` for ports that accept all peers.
pub(crate) type Acceptors = Vec<Option<Guarded<dyn Acceptor>>>;

/// Makes the acceptors, before anything else, so that an error in a parameter opens no device.
pub(crate) fn make_acceptors(plan: &Plan, registry: &Registry, clock: &Clock) -> Result<Acceptors, EngineError> {
    plan.ports().iter().map(|port| make_acceptor(plan, registry, clock, port)).collect()
}

fn make_acceptor(
    plan: &Plan,
    registry: &Registry,
    clock: &Clock,
    port: &Port,
) -> Result<Option<Guarded<dyn Acceptor>>, EngineError> {
    let Some(acceptor) = &port.acceptor else { return Ok(None) };
    let refused = |source| EngineError::Acceptor {
        at: place(plan, port.span),
        port: port.name.clone(),
        acceptor: acceptor.name.clone(),
        source,
    };
    let Some(make) = registry.acceptor_factory(&acceptor.name) else {
        return Err(refused("is not registered; check the plan with the catalog of the registry that runs it".into()));
    };
    let made = make(&AcceptorContext { plan, port, acceptor, clock });
    let guarded = |made| Some(Guarded::new(&format!("acceptor `{}` of port.{}", acceptor.name, port.name), made));
    made.map(guarded).map_err(|source| match source.downcast() {
        Ok(diagnostic) => EngineError::Params(*diagnostic),
        Err(source) => refused(source),
    })
}
