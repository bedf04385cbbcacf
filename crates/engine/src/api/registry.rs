//! The registry of an app: its stage kinds and its acceptors, each with a factory, and the sections
//! of the plan that the app reads itself.
//!
//! ```
//! use verbline_engine::{Next, OutId, Outputs, Registry, Stage, StageSpec};
//! use verbline_mem::Batch;
//!
//! /// Sends everything back where it came from.
//! struct Echo;
//!
//! impl Stage for Echo {
//!     fn process(&mut self, input: &mut Batch, out: &mut Outputs<'_>) {
//!         out.send_batch(OutId(0), input);
//!     }
//! }
//!
//! let mut registry = Registry::new("echo");
//! let spec = StageSpec { outputs: &["back"], summary: "sends everything back", ..StageSpec::default() };
//! registry.stage("echo", spec, |_| Ok(Box::new(Echo)));
//! assert_eq!(registry.catalog().kinds[0].spec.outputs, ["back"]);
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use verbline_plan::{AppTable, Catalog, Keys, NeedsFn, Plan, StageKind, StageSpec, undeclared};

use crate::api::context::StageContext;
use crate::api::opening::{Open, Opening};
use crate::api::stage::Stage;
use crate::connection::acceptor::{Acceptor, AcceptorContext};
use crate::errors::error::StageError;
use crate::errors::guarded::{Guarded, Untaken};
use crate::stats::drop_reason::STAGE_REASONS_MAX;

type Factory = dyn Fn(&StageContext<'_>) -> Result<Open, StageError> + Send + Sync;

/// Makes the private data that a port of many connections sends to the listener with each request.
/// Called with the slot of the connection
/// ([`ConnectionId::slot`](verbline_mem::ConnectionId::slot)), on the port's connection-management
/// thread. At most [`CONNECT_PRIVATE_BYTES`](verbline_verbs::connection::CONNECT_PRIVATE_BYTES); a
/// longer request fails, and is counted.
pub type RequestData = Box<dyn FnMut(usize) -> Vec<u8> + Send>;

pub(crate) type RequestFactory = dyn Fn(&Plan, &verbline_plan::Port) -> Option<RequestData> + Send + Sync;

pub(crate) type AcceptorFactory = dyn Fn(&AcceptorContext<'_>) -> Result<Box<dyn Acceptor>, StageError> + Send + Sync;

/// The stage kinds, the acceptors and the sections of an app.
pub struct Registry {
    app: &'static str,
    kinds: BTreeMap<&'static str, Kind>,
    acceptors: BTreeMap<&'static str, Box<AcceptorFactory>>,
    requests: Vec<Box<RequestFactory>>,
    sections: Vec<&'static str>,
    tables: Vec<AppTable>,
}

pub(crate) struct Kind {
    /// The declaration that the plan is checked against.
    pub(crate) checked: StageKind,
    /// The kind has a second step that only a run takes, in which it may read `params` too.
    pub(crate) opens: bool,
    /// Describes a stage, without effects.
    pub(crate) describe: Box<Factory>,
}

impl Registry {
    /// An empty registry of the app of this name; a plan that says `app = "…"` must say this one.
    pub fn new(app: &'static str) -> Registry {
        Registry {
            app,
            kinds: BTreeMap::new(),
            acceptors: BTreeMap::new(),
            requests: Vec::new(),
            sections: Vec::new(),
            tables: Vec::new(),
        }
    }

    /// Registers a kind of stage, for `use = "name"`. The factory runs once for each stage of that
    /// kind: when the runtime is built, on the thread that builds it, and when a plan is only
    /// checked ([`Runtime::check`](crate::Runtime::check)). So it builds the stage from the plan
    /// alone, and has no effect that another process could see; a kind that opens something is
    /// registered by [`Registry::opening_stage`]. A key in `params` that the factory doesn't read
    /// ([`StageContext::params`]) is refused.
    ///
    /// # Panics
    /// If the name is taken, or the kind declares more than [`STAGE_REASONS_MAX`] drop reasons:
    /// mistakes of the app's source, not of a plan.
    pub fn stage<F>(&mut self, name: &'static str, spec: StageSpec, make: F) -> &mut Registry
    where
        F: Fn(&StageContext<'_>) -> Result<Box<dyn Stage>, StageError> + Send + Sync + 'static,
    {
        self.kind_of(name, spec, false, move |context| {
            let stage = guarded(context, make(context)?);
            Ok(Box::new(move |_: &Opening<'_>| Ok(stage)))
        })
    }

    /// Registers a kind of stage that opens something: a file, a socket, a descriptor for its lcore
    /// to watch. `describe` runs whenever another kind's factory would, and has no effects. Its
    /// result goes to `open`, which runs in [`Runtime::build`](crate::Runtime::build) alone, after
    /// all stages are described and the devices are in order. A kind without `params` says so in
    /// `describe` ([`StageContext::no_params`]), so that a check refuses them too.
    ///
    /// ```
    /// # use verbline_engine::{FdInterest, Opening, Registry, Stage, StageContext, StageSpec};
    /// # use std::net::{SocketAddr, UdpSocket};
    /// # struct Listener(UdpSocket);
    /// # impl Stage for Listener {}
    /// # let mut registry = Registry::new("doc");
    /// let describe = |stage: &StageContext<'_>| Ok(stage.params::<SocketAddr>()?);
    /// registry.opening_stage("listener", StageSpec::default(), describe, |address, opening: &Opening<'_>| {
    ///     let socket = UdpSocket::bind(address)?;
    ///     opening.watch_fd(&socket, FdInterest::Read, None)?;
    ///     Ok(Box::new(Listener(socket)))
    /// });
    /// ```
    ///
    /// # Panics
    /// Like [`Registry::stage`].
    pub fn opening_stage<D, F, O>(&mut self, name: &'static str, spec: StageSpec, describe: F, open: O) -> &mut Registry
    where
        D: 'static,
        F: Fn(&StageContext<'_>) -> Result<D, StageError> + Send + Sync + 'static,
        O: Fn(D, &Opening<'_>) -> Result<Box<dyn Stage>, StageError> + Send + Sync + 'static,
    {
        let open = Arc::new(open);
        self.kind_of(name, spec, true, move |context| {
            // A check never opens its descriptions.
            let described = Untaken::new(format!("stage.{}", context.name()), describe(context)?);
            let open = Arc::clone(&open);
            Ok(Box::new(move |opening: &Opening<'_>| {
                let described = described.take().expect("taken once: here");
                Ok(guarded(opening, open(described, opening)?))
            }))
        })
    }

    fn kind_of(
        &mut self,
        name: &'static str,
        spec: StageSpec,
        opens: bool,
        describe: impl Fn(&StageContext<'_>) -> Result<Open, StageError> + Send + Sync + 'static,
    ) -> &mut Registry {
        assert!(
            spec.drops.len() <= STAGE_REASONS_MAX,
            "stage kind `{name}` declares {} drop reasons, {STAGE_REASONS_MAX} at most",
            spec.drops.len()
        );
        let checked = StageKind { name, spec, needs: None };
        let previous = self.kinds.insert(name, Kind { checked, opens, describe: Box::new(describe) });
        assert!(previous.is_none(), "stage kind `{name}` is registered twice");
        self
    }

    /// Registers an acceptor, for `acceptor = "name"` of a port of many connections. The factory
    /// runs once for each such port, when and where those of stages do, and has no effects either.
    ///
    /// # Panics
    /// If the name is taken: a mistake of the app's source, not of a plan.
    pub fn acceptor<F>(&mut self, name: &'static str, make: F) -> &mut Registry
    where
        F: Fn(&AcceptorContext<'_>) -> Result<Box<dyn Acceptor>, StageError> + Send + Sync + 'static,
    {
        let previous = self.acceptors.insert(name, Box::new(make));
        assert!(previous.is_none(), "acceptor `{name}` is registered twice");
        self
    }

    /// Registers a source of private data for the requests of ports that make many connections,
    /// where the connections differ: a queue's number, a secret of the hour. `make` runs once for
    /// each such port when the runtime is built; with `None` the port sends its plan's
    /// `private_data`. If several are registered, the first that returns `Some` serves the port.
    pub fn requests<F>(&mut self, make: F) -> &mut Registry
    where
        F: Fn(&Plan, &verbline_plan::Port) -> Option<RequestData> + Send + Sync + 'static,
    {
        self.requests.push(Box::new(make));
        self
    }

    /// Declares the needs of a kind's stages beyond packets: memory, and a length of packets. The
    /// plan's sums count them before a factory allocates any.
    ///
    /// # Panics
    /// If no kind of this name is registered.
    pub fn needs(&mut self, name: &str, needs: NeedsFn) -> &mut Registry {
        let kind = self.kinds.get_mut(name).unwrap_or_else(|| panic!("no stage kind `{name}` is registered"));
        kind.checked.needs = Some(needs);
        self
    }

    /// Registers a top-level table of the plan that the app reads itself, e.g. `feed` for `[feed]`.
    pub fn section(&mut self, name: &'static str) -> &mut Registry {
        if !self.sections.contains(&name) {
            self.sections.push(name);
        }
        self
    }

    /// Registers a section ([`Registry::section`]) with its keys, so that `keys` explains them. If
    /// several kinds read a section, each as its own type, register each type, with a distinct
    /// `meaning`.
    ///
    /// # Panics
    /// If the keys are not exactly the fields of the type: a mistake of the app's source.
    pub fn section_of<T: Keys>(&mut self, name: &'static str, meaning: &'static str) -> &mut Registry {
        self.declare::<T>(name, false, meaning).section(name)
    }

    /// Registers the keys of the `params` of a kind of stage, so that `keys` explains them.
    ///
    /// # Panics
    /// Like [`Registry::section_of`].
    pub fn params_of<T: Keys>(&mut self, kind: &'static str, meaning: &'static str) -> &mut Registry {
        self.declare::<T>(kind, true, meaning)
    }

    fn declare<T: Keys>(&mut self, name: &'static str, is_params: bool, meaning: &'static str) -> &mut Registry {
        let undeclared = undeclared::<T>();
        assert!(undeclared.is_empty(), "`{name}`: only declared, or only read: {}", undeclared.join(", "));
        let table = AppTable { name, is_params, meaning, keys: T::KEYS };
        if !self.tables.iter().any(|known| (known.name, known.is_params, known.meaning) == (name, is_params, meaning)) {
            self.tables.push(table);
        }
        self
    }

    /// The catalog that the plan is checked against.
    pub fn catalog(&self) -> Catalog {
        let kinds = self.kinds.values().map(|kind| kind.checked.clone()).collect();
        let acceptors = self.acceptors.keys().copied().collect();
        Catalog { app: Some(self.app), kinds, acceptors, sections: self.sections.clone(), tables: self.tables.clone() }
    }

    pub(crate) fn kind(&self, name: &str) -> Option<&Kind> {
        self.kinds.get(name)
    }

    pub(crate) fn acceptor_factory(&self, name: &str) -> Option<&AcceptorFactory> {
        self.acceptors.get(name).map(|make| &**make)
    }

    pub(crate) fn request_data(&self, plan: &Plan, port: &verbline_plan::Port) -> Option<RequestData> {
        self.requests.iter().find_map(|make| make(plan, port))
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry")
            .field("app", &self.app)
            .field("kinds", &self.kinds.keys().collect::<Vec<_>>())
            .field("acceptors", &self.acceptors.keys().collect::<Vec<_>>())
            .field("sections", &self.sections)
            .finish()
    }
}

/// Guards a stage of the app, whose `Drop` may panic.
fn guarded(context: &StageContext<'_>, stage: Box<dyn Stage>) -> Guarded<dyn Stage> {
    Guarded::new(&format!("stage.{}", context.name()), stage)
}
