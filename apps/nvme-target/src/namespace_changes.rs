//! Namespaces added and removed while hosts are connected: the state that the plan asks for, and
//! the namespaces on their way to each lcore, opened beside the lcores.
//!
//! The thread that reads the plan again opens new namespaces for every stage and leaves them here.
//! The stages take their parts within 100 ms. Namespaces that a stage gives up come back here, and
//! the next thread that reads the plan closes them: no lcore opens or closes anything.
//!
//! A number, a region or a file has one tenant at a time. A namespace that needs one of them waits
//! until every stage has given up the tenant before, which a stage does when its last use has
//! ended. The lock is held to note changes, and never while anything is opened or closed.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::lcore_namespace::{Space, TenantId, open_file};
use crate::namespace_table::SPACES_MAX;
use crate::port::DataPool;
use crate::settings::{NamespaceSettings, Settings};
use crate::shared::Shared;

/// An order to a stage about one namespace.
pub(crate) enum Change {
    Add(Space),
    Remove(u32),
}

/// See the top of this file.
#[derive(Default)]
pub(crate) struct Namespaces {
    state: Mutex<State>,
    /// Held while the plan is read again, by one thread at a time; lcores never take it.
    renewing: Mutex<()>,
}

#[derive(Default)]
struct State {
    settings: Option<Settings>,
    /// The namespaces that hosts have, or get once their places are free.
    current: BTreeMap<u32, NamespaceSettings>,
    tenants: BTreeMap<TenantId, Tenant>,
    last: TenantId,
    stages: BTreeMap<String, Inbox>,
    gone: Vec<Space>,
}

/// A namespace, and the number and blocks that it holds as long as a stage has it.
struct Tenant {
    nsid: u32,
    ground: Ground,
    /// The number of stages that have it.
    stages: usize,
    /// It was removed, and leaves.
    is_leaving: bool,
}

/// The place of a namespace's blocks.
#[derive(Clone, PartialEq, Eq)]
enum Ground {
    Region(String),
    File(PathBuf),
    Nothing,
}

struct Inbox {
    pool: DataPool,
    /// The number of queues that the stage may have.
    queues: usize,
    changes: Vec<Pending>,
}

/// A change, and the tenants that must be gone before it.
struct Pending {
    change: Change,
    after: Vec<TenantId>,
}

impl Ground {
    fn of(how: &NamespaceSettings) -> Ground {
        match (&how.memory, &how.file) {
            (Some(region), _) => Ground::Region(region.clone()),
            // Canonical, to recognise one file under two names, where the file exists.
            (None, Some(path)) => Ground::File(path.canonicalize().unwrap_or_else(|_| path.clone())),
            (None, None) => Ground::Nothing,
        }
    }

    fn conflicts(&self, other: &Ground) -> bool {
        self == other && *self != Ground::Nothing
    }
}

impl State {
    /// The tenants that hold the number or the blocks that this namespace needs.
    fn in_the_way_of(&self, nsid: u32, ground: &Ground) -> Vec<TenantId> {
        let holds = |tenant: &Tenant| tenant.nsid == nsid || tenant.ground.conflicts(ground);
        self.tenants.iter().filter(|(_, tenant)| holds(tenant)).map(|(id, _)| *id).collect()
    }

    /// Called when a stage gave up a tenant.
    fn give_up(&mut self, id: TenantId) {
        if let Some(tenant) = self.tenants.get_mut(&id) {
            tenant.stages -= 1;
            if tenant.stages == 0 {
                self.tenants.remove(&id);
            }
        }
    }
}

impl Namespaces {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets the run before.
    pub(crate) fn reset(&self) {
        *self.lock() = State::default();
    }

    /// Registers a stage of the run, with the pool of its data. The stage has all namespaces of the
    /// plan.
    pub(crate) fn begin(&self, stage: &str, pool: &DataPool, queues: usize, settings: &Settings) {
        let state = &mut *self.lock();
        state.current = settings.numbered();
        state.settings = Some(settings.clone());
        state.stages.insert(stage.to_owned(), Inbox { pool: pool.clone(), queues, changes: Vec::new() });
        let most = SPACES_MAX * state.stages.len();
        state.gone.reserve(most);
        // A tenant of the first plan has its namespace's number as its ID; later tenants follow.
        state.last = u64::from(u32::MAX);
        for (nsid, how) in settings.numbered() {
            let tenant = Tenant { nsid, ground: Ground::of(&how), stages: 0, is_leaving: false };
            state.tenants.entry(TenantId::from(nsid)).or_insert(tenant).stages += 1;
        }
    }

    /// Takes the stage's changes that are due, in order; none while another thread holds the lock.
    pub(crate) fn take(&self, stage: &str) -> Vec<Change> {
        let Ok(mut state) = self.state.try_lock() else { return Vec::new() };
        let State { stages, tenants, .. } = &mut *state;
        let Some(inbox) = stages.get_mut(stage).filter(|inbox| !inbox.changes.is_empty()) else { return Vec::new() };
        let is_due = |pending: &mut Pending| !pending.after.iter().any(|id| tenants.contains_key(id));
        inbox.changes.extract_if(.., is_due).map(|pending| pending.change).collect()
    }

    /// Takes back a namespace that a stage gives up. While another thread holds the lock it is
    /// returned, for the stage to try again.
    #[allow(
        clippy::result_large_err,
        reason = "the value goes back to its owner; a box would be allocated on an lcore"
    )]
    pub(crate) fn leave(&self, space: Space) -> Result<(), Space> {
        let Ok(mut state) = self.state.try_lock() else { return Err(space) };
        state.give_up(space.tenant);
        state.gone.push(space);
        Ok(())
    }

    /// Whether a stage still has a removed namespace whose blocks may be in a cache. It may be so
    /// while another thread holds the lock.
    pub(crate) fn are_leaving(&self) -> bool {
        let leaves = |tenant: &Tenant| tenant.is_leaving && !matches!(tenant.ground, Ground::Region(_));
        self.state.try_lock().map_or(true, |state| state.tenants.values().any(leaves))
    }

    /// Called when a stage could not open one of the plan's namespaces.
    pub(crate) fn lack(&self, nsid: u32) {
        self.lock().give_up(nsid.into());
    }

    /// Applies the namespaces of a plan that was read again: adds the new ones and removes the
    /// missing. Returns a description of the changes; if one of them fails, none is made.
    pub(crate) fn renew(&self, wanted: &Settings, shared: &Shared) -> Result<String, String> {
        self.renew_with(wanted, |nsid, how, settings, stage| {
            let no = |error: &dyn std::fmt::Display| format!("namespace {nsid}: {error}");
            // The first store in the region formats its blocks anew.
            how.memory.iter().filter(|_| stage.is_first).for_each(|name| shared.forget_format(name));
            let file = open_file(nsid, how, settings.commands_max, stage.pool).map_err(|error| no(&error))?;
            let mut space = Space::open(nsid, how, settings, stage.queues, shared, file).map_err(|error| no(&error))?;
            space.is_watched = false;
            Ok(space)
        })
    }

    fn renew_with(
        &self,
        wanted: &Settings,
        open: impl Fn(u32, &NamespaceSettings, &Settings, StageOf<'_>) -> Result<Space, String>,
    ) -> Result<String, String> {
        let _one = self.renewing.lock().unwrap_or_else(PoisonError::into_inner);
        let Asked { settings, current, pools, gone } = self.ask()?;
        // Files are closed here, outside the lock.
        drop(gone);
        let stored = wanted.stored_bytes_max();
        if let Some((_, pool, _)) = pools.iter().find(|(_, pool, _)| pool.plan.data_bytes < stored) {
            return Err(format!(
                "a block with its protection information has {stored} bytes, and a packet of pool.{} {}: end the run, \
                 and start it with `data_bytes = {stored}` there",
                pool.plan.name, pool.plan.data_bytes
            ));
        }
        let wanted = wanted.numbered();
        if let Some((nsid, _)) = wanted.iter().find(|(nsid, how)| current.get(nsid).is_some_and(|now| now != *how)) {
            return Err(format!("namespace {nsid} is another now: give it another number, or take it out first"));
        }
        let added: Vec<_> = wanted.iter().filter(|(nsid, _)| !current.contains_key(nsid)).collect();
        let removed: Vec<u32> = current.keys().filter(|nsid| !wanted.contains_key(nsid)).copied().collect();
        for (nsid, how) in &added {
            let ground = Ground::of(how);
            if how.memory.is_some() && how.protection.is_some() && self.is_taken(&ground) {
                return Err(format!(
                    "namespace {nsid} has to write its protection information into a region that another one has \
                     still: take that out first, and read the plan again when nothing of it is under way"
                ));
            }
            if let Some((other, _)) =
                wanted.iter().find(|(other, how)| other != nsid && Ground::of(how).conflicts(&ground))
            {
                return Err(format!("namespace {nsid} is kept in a region or file that namespace {other} is kept in"));
            }
        }
        let mut opened = Vec::new();
        for (stage, pool, queues) in &pools {
            let stage_of = || StageOf { pool, queues: *queues, is_first: opened.is_empty() };
            let spaces: Result<Vec<Space>, String> =
                added.iter().map(|(nsid, how)| open(**nsid, how, &settings, stage_of())).collect();
            opened.push((stage.clone(), spaces?));
        }
        let numbers: Vec<u32> = added.iter().map(|(nsid, _)| **nsid).collect();
        let grounds: Vec<Ground> = added.iter().map(|(_, how)| Ground::of(how)).collect();
        let waits = self.note(&removed, &numbers, &grounds, opened, wanted);
        if numbers.is_empty() && removed.is_empty() {
            return Ok(String::new());
        }
        let mut said = format!("namespaces added: {numbers:?}; removed: {removed:?}");
        if !waits.is_empty() {
            said += &format!("; {waits:?} come when nothing of what was there before is under way");
        }
        Ok(said)
    }

    fn is_taken(&self, ground: &Ground) -> bool {
        self.lock().tenants.values().any(|tenant| tenant.ground.conflicts(ground))
    }

    /// Copies the current state.
    fn ask(&self) -> Result<Asked, String> {
        let state = &mut *self.lock();
        let Some(settings) = state.settings.clone() else { return Err("no stage of the plan is a target".to_owned()) };
        let most = SPACES_MAX * state.stages.len();
        let gone = std::mem::replace(&mut state.gone, Vec::with_capacity(most));
        let pools = state.stages.iter().map(|(name, inbox)| (name.clone(), inbox.pool.clone(), inbox.queues)).collect();
        Ok(Asked { settings, current: state.current.clone(), pools, gone })
    }

    /// Leaves the changes for the stages. Returns the numbers of added namespaces that have to
    /// wait.
    fn note(
        &self,
        removed: &[u32],
        added: &[u32],
        grounds: &[Ground],
        opened: Vec<(String, Vec<Space>)>,
        wanted: BTreeMap<u32, NamespaceSettings>,
    ) -> Vec<u32> {
        let state = &mut *self.lock();
        let mut unused = Vec::new();
        for nsid in removed {
            let tenants = state.tenants.values_mut().filter(|tenant| tenant.nsid == *nsid);
            tenants.for_each(|tenant| tenant.is_leaving = true);
            for inbox in state.stages.values_mut() {
                // A namespace that this stage has not taken yet is withdrawn.
                let is_it =
                    |pending: &mut Pending| matches!(&pending.change, Change::Add(space) if space.nsid == *nsid);
                let before = unused.len();
                unused.extend(inbox.changes.extract_if(.., is_it));
                if unused.len() == before {
                    inbox.changes.push(Pending { change: Change::Remove(*nsid), after: Vec::new() });
                }
            }
        }
        let tenants = unused.iter().filter_map(|pending| match &pending.change {
            Change::Add(space) => Some(space.tenant),
            Change::Remove(_) => None,
        });
        tenants.collect::<Vec<_>>().into_iter().for_each(|id| state.give_up(id));
        let after: Vec<Vec<TenantId>> =
            added.iter().zip(grounds).map(|(nsid, ground)| state.in_the_way_of(*nsid, ground)).collect();
        let stages = opened.len();
        let first = state.last + 1;
        for (nsid, ground) in added.iter().zip(grounds) {
            state.last += 1;
            state.tenants.insert(state.last, Tenant { nsid: *nsid, ground: ground.clone(), stages, is_leaving: false });
        }
        for (stage, spaces) in opened {
            let Some(inbox) = state.stages.get_mut(&stage) else { continue };
            for ((mut space, after), tenant) in spaces.into_iter().zip(&after).zip(first..) {
                space.tenant = tenant;
                inbox.changes.push(Pending { change: Change::Add(space), after: after.clone() });
            }
        }
        state.current = wanted;
        let waits = added.iter().zip(&after).filter(|(_, after)| !after.is_empty());
        let waits = waits.map(|(nsid, _)| *nsid).collect();
        // The next thread that reads the plan closes the files of `unused`, outside the lock.
        state.gone.extend(unused.into_iter().filter_map(|pending| match pending.change {
            Change::Add(space) => Some(space),
            Change::Remove(_) => None,
        }));
        waits
    }
}

/// A copy of the state as a plan is read again.
struct Asked {
    settings: Settings,
    current: BTreeMap<u32, NamespaceSettings>,
    /// The stages, with their pools and numbers of queues.
    pools: Vec<(String, DataPool, usize)>,
    gone: Vec<Space>,
}

/// The stage that a namespace is opened for.
struct StageOf<'a> {
    pool: &'a DataPool,
    queues: usize,
    /// No other stage's part of the namespace has been opened yet.
    is_first: bool,
}

impl std::fmt::Debug for Namespaces {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Namespaces").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
