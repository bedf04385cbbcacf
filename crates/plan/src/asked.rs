//! What a stage kind is asked about one of its stages, and what it answers.

use crate::params::Params;

/// What a kind is asked with: what the plan says to one of its stages.
#[derive(Debug)]
pub struct Asked<'a> {
    pub(crate) params: Params,
    pub(crate) sections: &'a [(&'static str, Params)],
}

impl Asked<'_> {
    /// The stage's `params`.
    pub fn params(&self) -> &Params {
        &self.params
    }

    /// A section of the plan that the application registered.
    pub fn section(&self, name: &str) -> Option<&Params> {
        self.sections.iter().find(|(known, _)| *known == name).map(|(_, params)| params)
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
}

/// What a kind answers. A value that it would refuse anyway needs nothing here: the stage's factory
/// says so.
pub type NeedsFn = fn(&Asked<'_>) -> Needs;
