//! Makes the stages of a plan, by the factories that the app registered.

use verbline_plan::{Diagnostics, Plan};

use crate::api::error::{EngineError, place};
use crate::api::registry::{Registry, StageContext};
use crate::api::stage::Stage;
use crate::stats::clock::Clock;
use crate::stats::count::Counter;

pub(crate) fn count_sources(plan: &Plan, registry: &Registry) -> usize {
    let is_source =
        |stage: &&verbline_plan::Stage| registry.kind(&stage.kind).is_some_and(|kind| kind.checked.spec.source);
    plan.stages().iter().filter(is_source).count()
}

/// A stage as its factory made it.
pub(crate) struct MadeStage {
    pub(crate) stage: Box<dyn Stage>,
    pub(crate) drops: &'static [&'static str],
    pub(crate) counters: Vec<(String, Counter)>,
}

/// Makes the stages, in the plan's order. They are made before anything else, so that an error in a
/// parameter opens no device.
pub(crate) fn make_stages(plan: &Plan, registry: &Registry, clock: &Clock) -> Result<Vec<MadeStage>, EngineError> {
    plan.stages().iter().map(|stage| make_stage(plan, registry, clock, stage)).collect()
}

fn make_stage(
    plan: &Plan,
    registry: &Registry,
    clock: &Clock,
    stage: &verbline_plan::Stage,
) -> Result<MadeStage, EngineError> {
    let Some(kind) = registry.kind(&stage.kind) else {
        return Err(EngineError::UnknownKind {
            at: place(plan, stage.span),
            stage: stage.name.clone(),
            kind: stage.kind.clone(),
        });
    };
    let context = StageContext::new(plan, stage, kind.checked.spec, clock);
    let made = (kind.make)(&context).map_err(|source| match source.downcast() {
        Ok(diagnostic) => EngineError::Params(*diagnostic),
        Err(source) => EngineError::Stage {
            at: place(plan, stage.span),
            stage: stage.name.clone(),
            kind: stage.kind.clone(),
            source,
        },
    })?;
    Ok(MadeStage { stage: made, drops: kind.checked.spec.drops, counters: context.into_counters() })
}

/// The faults that the stages' factories find in the plan. The stages themselves are dropped.
pub(crate) fn stage_faults(plan: &Plan, registry: &Registry) -> Diagnostics {
    let clock = Clock::new();
    let fault = |stage| match make_stage(plan, registry, &clock, stage).err()? {
        EngineError::Params(diagnostic) => Some(diagnostic),
        EngineError::Stage { source, .. } => Some(stage.params.refuse("", source.to_string())),
        error => Some(stage.params.refuse("", error.to_string())),
    };
    let mut faults = Diagnostics::default();
    faults.extend(plan.stages().iter().filter_map(fault));
    faults
}
