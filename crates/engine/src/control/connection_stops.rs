//! The flags that stop the threads of a run's connections.

use std::io;
use std::sync::Arc;

use crate::control::event_fd::StopFlag;

/// All flags of a run.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionStops {
    connecting: Arc<StopFlag>,
    watching: Arc<StopFlag>,
    /// One per lcore of the plan.
    lcores: Vec<Arc<StopFlag>>,
}

/// The flags that the thread of one port obeys.
#[derive(Clone, Debug)]
pub(crate) struct StopFlags {
    /// Make no more connections.
    pub(crate) connecting: Arc<StopFlag>,
    /// Stop watching connections, and keep them: their owner ends them.
    pub(crate) watching: Arc<StopFlag>,
    /// The port's lcore has ended, as the run has failed: disconnect.
    pub(crate) lcore_ended: Arc<StopFlag>,
}

impl ConnectionStops {
    /// For a plan with this many lcores. `connecting` stopped the first connection attempts.
    pub(crate) fn new(connecting: Arc<StopFlag>, lcores: usize) -> io::Result<ConnectionStops> {
        let flag = || StopFlag::new().map(Arc::new);
        let lcores = (0..lcores).map(|_| flag()).collect::<io::Result<_>>()?;
        Ok(ConnectionStops { connecting, watching: flag()?, lcores })
    }

    /// The flags for a port of the lcore at this index in the plan.
    pub(crate) fn of_lcore(&self, index: usize) -> StopFlags {
        let (connecting, watching) = (Arc::clone(&self.connecting), Arc::clone(&self.watching));
        StopFlags { connecting, watching, lcore_ended: Arc::clone(&self.lcores[index]) }
    }

    pub(crate) fn stop_connecting(&self) {
        self.connecting.raise();
    }

    pub(crate) fn stop_watching(&self) {
        self.connecting.raise();
        self.watching.raise();
    }

    /// The lcore at this index in the plan has ended.
    pub(crate) fn end_lcore(&self, index: usize) {
        self.lcores[index].raise();
    }
}
