//! Makes the stages of a plan, by the factories that the app registered.

use verbline_plan::{Diagnostics, Plan};

use crate::api::error::{EngineError, place};
use crate::api::guarded::Guarded;
use crate::api::region::Region;
use crate::api::registry::{Registry, StageContext};
use crate::api::stage::Stage;
use crate::setup::acceptors::make_acceptor;
use crate::setup::regions;
use crate::stats::clock::Clock;
use crate::stats::count::Counter;
use crate::waiting::fds::Fds;

pub(crate) fn count_sources(plan: &Plan, registry: &Registry) -> usize {
    let is_source =
        |stage: &&verbline_plan::Stage| registry.kind(&stage.kind).is_some_and(|kind| kind.checked.spec.source);
    plan.stages().iter().filter(is_source).count()
}

/// A stage as its factory made it.
pub(crate) struct MadeStage {
    pub(crate) stage: Guarded<dyn Stage>,
    pub(crate) drops: &'static [&'static str],
    pub(crate) counters: Vec<(String, Counter)>,
    pub(crate) fds: Option<Fds>,
    /// The ports that its factory asked for, by their places in the plan.
    pub(crate) ports: Vec<u16>,
}

/// Makes the stages, in the plan's order. They are made before anything else, so that an error in a
/// parameter opens no device.
pub(crate) fn make_stages(
    plan: &Plan,
    registry: &Registry,
    clock: &Clock,
    regions: &[Region],
) -> Result<Vec<MadeStage>, EngineError> {
    plan.stages().iter().map(|stage| make_stage(plan, registry, clock, regions, stage)).collect()
}

fn make_stage(
    plan: &Plan,
    registry: &Registry,
    clock: &Clock,
    regions: &[Region],
    stage: &verbline_plan::Stage,
) -> Result<MadeStage, EngineError> {
    let Some(kind) = registry.kind(&stage.kind) else {
        return Err(EngineError::UnknownKind {
            at: place(plan, stage.span),
            stage: stage.name.clone(),
            kind: stage.kind.clone(),
        });
    };
    let context = StageContext::new(plan, stage, kind.checked.spec, clock, regions);
    let made = (kind.make)(&context).map_err(|source| match source.downcast() {
        Ok(diagnostic) => EngineError::Params(*diagnostic),
        Err(source) => EngineError::Stage {
            at: place(plan, stage.span),
            stage: stage.name.clone(),
            kind: stage.kind.clone(),
            source,
        },
    })?;
    let (counters, fds, ports) = context.into_parts();
    Ok(MadeStage {
        stage: Guarded::new(&format!("stage.{}", stage.name), made),
        drops: kind.checked.spec.drops,
        counters,
        fds,
        ports,
    })
}

/// The faults that the factories of stages and acceptors find in the plan. What they make is
/// dropped.
pub(crate) fn stage_faults(plan: &Plan, registry: &Registry) -> Diagnostics {
    let (clock, regions) = (Clock::new(), regions::declared(plan));
    let fault = |stage| match make_stage(plan, registry, &clock, &regions, stage).err()? {
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
    faults
}
