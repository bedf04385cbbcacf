//! What the application brings to a plan: the stage kinds it registered and the sections that it
//! reads itself.

use crate::needs::NeedsFn;

/// What can be named in a plan because the application knows it.
#[derive(Debug, Clone, Default)]
pub struct Catalog {
    /// The application's own name. A plan that says `app = "…"` must say this one; `None` takes
    /// any.
    pub app: Option<&'static str>,
    /// The stage kinds, for `use = "…"`.
    pub kinds: Vec<StageKind>,
    /// The top-level tables that the application reads itself, e.g. `feed` for `[feed]`.
    pub sections: Vec<&'static str>,
}

/// A kind of stage, as registered.
#[derive(Debug, Clone)]
pub struct StageKind {
    /// What `use = "…"` says.
    pub name: &'static str,
    /// The outputs that `out = { … }` must wire, in the order in which the stage numbers them.
    pub outputs: &'static [&'static str],
    /// It makes packets of its own accord, so nothing needs to lead to it.
    pub source: bool,
    /// The most packets that one instance keeps between two calls; part of the sum that a pool must
    /// hold.
    pub holds_packets: u32,
    /// What a stage of it needs beyond packets; `None`: nothing worth a sum.
    pub needs: Option<NeedsFn>,
    /// One line on what it does.
    pub summary: &'static str,
}

impl Catalog {
    /// The kind of this name.
    pub fn kind(&self, name: &str) -> Option<&StageKind> {
        self.kinds.iter().find(|kind| kind.name == name)
    }
}
