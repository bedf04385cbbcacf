//! The process's own limit of file descriptors, raised where a plan needs more.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use verbline_plan::Plan;

/// Raises the soft limit to the hard one, if the plan's sum says that the run needs more. That the
/// hard one suffices is proved with the plan. The limit stays: it is the process's, and another run
/// may count on it.
pub(crate) fn raise_limit(plan: &Plan) {
    let limit = getrlimit(Resource::Nofile);
    let Some(current) = limit.current.filter(|current| *current < plan.descriptors_max()) else { return };
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(errno) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%errno, current, needed = plan.descriptors_max(), "the limit of file descriptors stays");
    }
}
