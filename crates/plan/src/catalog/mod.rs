//! The application's part of a plan: its registered stage kinds and its own sections.

pub(crate) mod outputs;
pub(crate) mod stage_needs;

use crate::catalog::outputs::OutputOperations;
use crate::catalog::outputs::OutputPrepends;
use crate::catalog::outputs::OutputSends;
use crate::catalog::stage_needs::NeedsFn;
use crate::text::keys::AppKey;

/// The names that the application adds to the language of plans.
#[derive(Debug, Clone, Default)]
pub struct Catalog {
    /// The application's own name. A plan that says `app = "…"` must say this one; `None` takes
    /// any.
    pub app: Option<&'static str>,
    /// The stage kinds, for `use = "…"`.
    pub kinds: Vec<StageKind>,
    /// The acceptors, for `acceptor = "…"`.
    pub acceptors: Vec<&'static str>,
    /// The top-level tables that the application reads itself, e.g. `feed` for `[feed]`.
    pub sections: Vec<&'static str>,
    /// The keys of its sections and of its kinds' `params`, as far as it declares them.
    pub tables: Vec<AppTable>,
}

/// The keys of one of an app's tables.
#[derive(Debug, Clone, Copy)]
pub struct AppTable {
    /// The section, or the kind whose `params` they are.
    pub name: &'static str,
    /// Whether they are the `params` of a kind of stage.
    pub is_params: bool,
    /// Its meaning, in one line.
    pub meaning: &'static str,
    /// Its keys.
    pub keys: &'static [AppKey],
}

/// A kind of stage, as registered.
#[derive(Debug, Clone)]
pub struct StageKind {
    /// The name in `use = "…"`.
    pub name: &'static str,
    /// The app's description of the kind.
    pub spec: StageSpec,
    /// Returns the needs of a stage of this kind beyond packets; `None`: it has none worth a sum.
    pub needs: Option<NeedsFn>,
}

/// An app's description of a stage kind, given with its registration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StageSpec {
    /// The outputs that `out = { … }` must wire, by name. A stage numbers them by their places in
    /// this list.
    pub outputs: &'static [&'static str],
    /// The stage makes packets of its own accord, so no edge needs to lead to it. A source is
    /// stopped first, and the run ends when all sources are done.
    pub source: bool,
    /// The most packets that the stage keeps between two calls (reorder buffers, retransmission); a
    /// term of the pool's sum.
    pub holds_packets: u32,
    /// Bytes of the longest message that the stage sends, if its packets are longer: the rest of
    /// their data goes by RDMA. 0: a message may be as long as a packet.
    pub message_bytes_max: u32,
    /// The operations that every stage of the kind asks for, by output. Operations over any other
    /// output are refused, unless the kind's [`Needs`](crate::Needs) list them.
    pub operations: &'static [OutputOperations],
    /// The options of sends that every stage of the kind asks for, by output: the ports there must
    /// say `send_options`.
    pub sends: &'static [OutputSends],
    /// Headers that every stage of the kind prepends to packets, by output: the headroom of their
    /// pools must hold them.
    pub prepends: &'static [OutputPrepends],
    /// Timers that every stage of the kind may arm at once, beside those that depend on the plan
    /// ([`Needs::timers`](crate::Needs::timers)).
    pub timers: u32,
    /// Names for the stage's own drop reasons.
    pub drops: &'static [&'static str],
    /// One line on what the stage does.
    pub summary: &'static str,
}

impl Catalog {
    /// Looks up a kind by its name in `use = "…"`.
    pub fn kind(&self, name: &str) -> Option<&StageKind> {
        self.kinds.iter().find(|kind| kind.name == name)
    }
}
