//! Makes the acceptors of a plan's ports, by the factories that the app registered.

use verbline_plan::{Plan, Port};

use crate::api::registry::Registry;
use crate::connection::acceptor::{Acceptor, AcceptorContext};
use crate::errors::error::{EngineError, place};
use crate::errors::guarded::Guarded;
use crate::stats::clock::Clock;

/// One for each port of the plan, in order; `None` where all peers come in.
pub(crate) type Acceptors = Vec<Option<Guarded<dyn Acceptor>>>;

/// They are made before anything else, so that an error in a parameter opens no device.
pub(crate) fn make_acceptors(plan: &Plan, registry: &Registry, clock: &Clock) -> Result<Acceptors, EngineError> {
    plan.ports().iter().map(|port| make_acceptor(plan, registry, clock, port)).collect()
}

pub(crate) fn make_acceptor(
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
