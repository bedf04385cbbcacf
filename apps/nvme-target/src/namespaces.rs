//! Namespaces that come and go while hosts are connected: what the plan says now, opened beside the
//! lcores, on its way to each of them.
//!
//! Whoever reads the plan again opens what is new for every stage, and leaves it for the stages,
//! which take their parts within 100 ms. What a stage gives up comes back here, and is closed by
//! whoever reads the plan next: no lcore opens or closes anything.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use verbline::plan::Pool;

use crate::settings::{NamespaceSettings, Settings};
use crate::shared::Shared;
use crate::space::{Space, open_file};

/// Places for namespaces of a stage, those that are on their way out included.
pub(crate) const SPACES_MAX: usize = 256;

/// What a stage is to do about a namespace.
pub(crate) enum Change {
    Add(Space),
    /// The space takes its place, once nothing of it is under way.
    Remove(u32, Space),
}

/// See the top of this file.
#[derive(Default)]
pub(crate) struct Namespaces {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    settings: Option<Settings>,
    current: BTreeMap<u32, NamespaceSettings>,
    stages: BTreeMap<String, Inbox>,
    gone: Vec<Space>,
}

#[derive(Default)]
struct Inbox {
    pool: Option<Pool>,
    changes: Vec<Change>,
}

impl Namespaces {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A stage of the run, and the pool that its data comes from.
    pub(crate) fn begin(&self, stage: &str, pool: Option<&Pool>, settings: &Settings) {
        let state = &mut *self.lock();
        state.current = settings.numbered();
        state.settings = Some(settings.clone());
        state.stages.insert(stage.to_owned(), Inbox { pool: pool.cloned(), changes: Vec::new() });
    }

    /// What a stage is to do, in order; nothing while the plan is being read.
    pub(crate) fn take(&self, stage: &str) -> Vec<Change> {
        let Ok(mut state) = self.state.try_lock() else { return Vec::new() };
        state.stages.get_mut(stage).map(|inbox| std::mem::take(&mut inbox.changes)).unwrap_or_default()
    }

    /// A stage has given it up.
    pub(crate) fn leave(&self, space: Space) {
        self.lock().gone.push(space);
    }

    /// Takes what a plan that was read again says of namespaces: what is new is added, what is gone
    /// is removed. Says what; if anything can't be done, nothing is.
    pub(crate) fn renew(&self, wanted: &Settings, shared: &Shared) -> Result<String, String> {
        let state = &mut *self.lock();
        state.gone.clear();
        let Some(settings) = &state.settings else { return Err("no stage of the plan is a target".to_owned()) };
        let wanted_bytes = wanted.protection_bytes_max();
        if wanted_bytes > settings.protection_bytes_max() {
            return Err("the packets of the run have no room for its protection information: start it again".to_owned());
        }
        let wanted = wanted.numbered();
        if let Some((nsid, _)) =
            wanted.iter().find(|(nsid, how)| state.current.get(nsid).is_some_and(|now| now != *how))
        {
            return Err(format!("namespace {nsid} is another now: give it another number, or take it out first"));
        }
        let added: Vec<_> = wanted.iter().filter(|(nsid, _)| !state.current.contains_key(nsid)).collect();
        let removed: Vec<u32> = state.current.keys().filter(|nsid| !wanted.contains_key(nsid)).copied().collect();
        for (nsid, how) in &added {
            let shares = |other: &NamespaceSettings| other.memory.is_some() && other.memory == how.memory;
            if wanted.iter().any(|(other, how)| other != *nsid && shares(how)) {
                return Err(format!("namespace {nsid} is kept in a region that another one is kept in"));
            }
            how.memory.iter().for_each(|name| shared.forget_size(name));
        }
        let depth = settings.commands_max as usize;
        let mut all = Vec::new();
        for inbox in state.stages.values() {
            let mut changes = Vec::new();
            changes.extend(removed.iter().map(|nsid| Change::Remove(*nsid, Space::nothing())));
            for (nsid, how) in &added {
                let no = |error: &dyn std::fmt::Display| format!("namespace {nsid}: {error}");
                let file = open_file(**nsid, how, settings.commands_max, inbox.pool.as_ref());
                let file = file.map_err(|error| no(&error))?;
                let mut space = Space::open(**nsid, how, settings, depth, shared, file).map_err(|error| no(&error))?;
                space.is_watched = false;
                changes.push(Change::Add(space));
            }
            all.push(changes);
        }
        for (inbox, changes) in state.stages.values_mut().zip(all) {
            inbox.changes.extend(changes);
        }
        state.gone.reserve(removed.len() * state.stages.len());
        let added: Vec<u32> = added.into_iter().map(|(nsid, _)| *nsid).collect();
        state.current = wanted;
        Ok(format!("namespaces added: {added:?}; removed: {removed:?}"))
    }
}

impl std::fmt::Debug for Namespaces {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Namespaces").finish_non_exhaustive()
    }
}
