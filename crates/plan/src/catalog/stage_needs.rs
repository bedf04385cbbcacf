//! The needs of one stage: the question to its kind, and the answer.

use crate::catalog::outputs::OutputOperations;
use crate::choices::Rights;
use crate::text::params::Params;

/// What a kind is asked with: what the plan says to one of its stages.
#[derive(Debug)]
pub struct Asked<'a> {
    pub(crate) params: Params,
    pub(crate) sections: &'a [(&'static str, Params)],
    /// How many connections the port has at most that each output leads to.
    pub(crate) connections: Vec<(&'static str, u32)>,
    /// The plan's regions, with their bytes.
    pub(crate) regions: &'a [(&'a str, u64)],
}

impl Asked<'_> {
    /// The stage's `params`, to be read as the factory reads them.
    pub fn params(&self) -> &Params {
        &self.params
    }

    /// A section of the plan that the application registered.
    pub fn section(&self, name: &str) -> Option<&Params> {
        self.sections.iter().find(|(known, _)| *known == name).map(|(_, params)| params)
    }

    /// How many connections the port may have that this output leads to; `None` if it leads to no
    /// port that may have many.
    pub fn connections(&self, output: &str) -> Option<u32> {
        self.connections.iter().find(|(known, _)| *known == output).map(|(_, connections)| *connections)
    }

    /// The length of a region of the plan; `None` if the plan has no such region, or doesn't say.
    pub fn region_bytes(&self, region: &str) -> Option<u64> {
        self.regions.iter().find(|(known, _)| *known == region).map(|(_, bytes)| *bytes)
    }
}

/// What one stage needs, each with what it is for.
#[derive(Debug, Clone, Default)]
pub struct Needs {
    /// Bytes of memory that it allocates, beside packets.
    pub memory_bytes: Vec<(&'static str, u64)>,
    /// Together the bytes of the longest packet that it must be able to write into a fresh one.
    /// With any the stage needs a `pool`.
    pub packet_bytes: Vec<(&'static str, u64)>,
    /// Timers that it may arm at once, beside those of its kind
    /// ([`StageSpec::timers`](crate::StageSpec::timers)).
    pub timers: Vec<(&'static str, u64)>,
    /// Operations that it asks for, beside those of its kind
    /// ([`StageSpec::operations`](crate::StageSpec::operations)).
    pub operations: Vec<OutputOperations>,
    /// File descriptors that it opens.
    pub descriptors: Vec<(&'static str, u64)>,
    /// Rights of regions.
    pub regions: Vec<RegionNeed>,
    /// What one peer may have it send at once.
    pub sends: Vec<SendsNeed>,
}

/// What a stage may send to one peer at once, by what the plan says of its peers. Where a port has
/// less room for one of its connections the plan is warned of what it drops.
#[derive(Debug, Clone, Copy)]
pub struct SendsNeed {
    /// The output that it goes over.
    pub output: &'static str,
    /// Messages.
    pub at_once: u64,
    /// What they are, and which key says so.
    pub what: &'static str,
}

/// What a stage needs of a region.
#[derive(Debug, Clone)]
pub struct RegionNeed {
    /// The region's name. If the plan has none of it, the stage's factory says so.
    pub region: String,
    /// The rights that it must have.
    pub rights: Rights,
    /// What they are for.
    pub what: &'static str,
}

/// What a kind answers. A value that it would refuse anyway needs nothing here: the stage's factory
/// says so.
pub type NeedsFn = fn(&Asked<'_>) -> Needs;
