//! The needs of one stage: the question to its kind, and the answer.

use crate::catalog::outputs::OutputOperations;
use crate::choices::Rights;
use crate::text::params::Params;

/// A question to a kind: the plan's values for one of its stages.
#[derive(Debug)]
pub struct Asked<'a> {
    pub(crate) params: Params,
    pub(crate) sections: &'a [(&'static str, Params)],
    /// The most connections of the port that each output leads to.
    pub(crate) connections: Vec<(&'static str, u32)>,
    /// The plan's regions, with their bytes.
    pub(crate) regions: &'a [(&'a str, u64)],
}

impl Asked<'_> {
    /// The stage's `params`, read in the same way as by the factory.
    pub fn params(&self) -> &Params {
        &self.params
    }

    /// A section of the plan that the application registered.
    pub fn section(&self, name: &str) -> Option<&Params> {
        self.sections.iter().find(|(known, _)| *known == name).map(|(_, params)| params)
    }

    /// The most connections of the port that this output leads to; `None` if it leads to no port
    /// that may have many.
    pub fn connections(&self, output: &str) -> Option<u32> {
        self.connections.iter().find(|(known, _)| *known == output).map(|(_, connections)| *connections)
    }

    /// The length of a region of the plan; `None` if the plan has no such region, or doesn't say.
    pub fn region_bytes(&self, region: &str) -> Option<u64> {
        self.regions.iter().find(|(known, _)| *known == region).map(|(_, bytes)| *bytes)
    }
}

/// The needs of one stage, each with its purpose.
#[derive(Debug, Clone, Default)]
pub struct Needs {
    /// Bytes of memory that the stage allocates, beside packets.
    pub memory_bytes: Vec<(&'static str, u64)>,
    /// The parts of the longest packet that the stage must be able to write into a fresh one, in
    /// bytes; their sum counts. A stage with any needs a `pool`.
    pub packet_bytes: Vec<(&'static str, u64)>,
    /// Timers that the stage may arm at once, beside those of its kind
    /// ([`StageSpec::timers`](crate::StageSpec::timers)).
    pub timers: Vec<(&'static str, u64)>,
    /// Operations that the stage asks for, beside those of its kind
    /// ([`StageSpec::operations`](crate::StageSpec::operations)).
    pub operations: Vec<OutputOperations>,
    /// File descriptors that the stage has open at once. One that its lcore watches
    /// (`Opening::watch_fd`) counts twice, since the engine watches a duplicate; a stage that has
    /// any watched counts one more, for its epoll(7) instance.
    pub descriptors: Vec<(&'static str, u64)>,
    /// Rights that the stage needs of regions.
    pub regions: Vec<RegionNeed>,
    /// Sends that one peer may cause at once.
    pub sends: Vec<SendsNeed>,
}

/// Sends that one peer may cause at once, by the plan's limits on its peers. Where a port has less
/// room for one of its connections, the plan gets a warning: such sends are dropped.
#[derive(Debug, Clone, Copy)]
pub struct SendsNeed {
    /// The output of the sends.
    pub output: &'static str,
    /// Messages.
    pub at_once: u64,
    /// A description of the messages, with the key that bounds them.
    pub what: &'static str,
}

/// A stage's need of a region.
#[derive(Debug, Clone)]
pub struct RegionNeed {
    /// The region's name. If the plan has no such region, the stage's factory reports it.
    pub region: String,
    /// The rights that the region must have.
    pub rights: Rights,
    /// Their purpose.
    pub what: &'static str,
}

/// A kind's answer. A value that the kind would refuse anyway needs nothing here: the stage's
/// factory reports it.
pub type NeedsFn = fn(&Asked<'_>) -> Needs;
