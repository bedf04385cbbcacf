//! A stage's adoption of namespaces that were added or removed, and its notices to hosts.

use verbline::prelude::*;
use verbline_store::{Fault, Request};

use crate::lcore_namespace::Space;
use crate::namespace_changes::Change;
use crate::namespace_table::{Left, Use};
use crate::stage::Target;

/// The bit of a request's tag that makes it the last flush of the namespace at the place behind it:
/// no command's place has it.
const LAST_FLUSH: u64 = 1 << 63;

/// The use that ends with a request of this tag, if it is the last flush of a namespace.
pub(crate) fn last_flush_of(tag: u64) -> Option<Use> {
    (tag & LAST_FLUSH != 0).then_some(Use::of_done(tag as u16))
}

impl Target {
    /// Opens the namespaces of the plan, once. Hosts do not see one that can't be opened.
    pub(crate) fn open_spaces(&mut self) {
        let Some(mut files) = self.files.take() else { return };
        let settings = &self.rules.settings;
        for (nsid, how) in settings.numbered() {
            let file = files.remove(&nsid);
            let opened = Space::open(nsid, &how, settings, self.queues.len(), &self.shared, file);
            let added = opened
                .map_err(|error| error.to_string())
                .and_then(|space| self.spaces.add(space).map_err(|_| "its number is taken".to_owned()));
            if let Err(error) = added {
                tracing::error!(nsid, error, "a namespace is not there");
                self.namespaces.lack(nsid);
            }
        }
    }

    /// Adopts added and removed namespaces. Hosts are told at the next look: by then other lcores,
    /// whose looks are as frequent, have adopted them, too.
    pub(crate) fn renew_spaces(&mut self, out: &mut Outputs<'_>) {
        for nsid in std::mem::take(&mut self.untold) {
            self.tell_changed(nsid, out);
        }
        for change in self.namespaces.take(&self.name) {
            match change {
                Change::Add(space) => self.add_space(space),
                Change::Remove(nsid) => self.remove_space(nsid),
            }
        }
        self.close_spaces();
    }

    fn add_space(&mut self, space: Space) {
        let nsid = space.nsid;
        match self.spaces.add(space) {
            Ok(()) => {
                self.untold.push(nsid);
                tracing::info!(nsid, "a namespace was added");
            }
            Err(space) => {
                tracing::error!(nsid, "a namespace is not there: its number is taken");
                self.leaving.push(space);
            }
        }
    }

    /// Takes the namespace from hosts: no new command reaches it.
    fn remove_space(&mut self, nsid: u32) {
        if self.spaces.remove(nsid) {
            self.untold.push(nsid);
            tracing::info!(nsid, "a namespace was removed");
        }
    }

    /// Flushes removed namespaces whose last use has ended, and gives them up.
    fn close_spaces(&mut self) {
        while let Some(left) = self.spaces.take_left() {
            match left {
                Left::Cached(of) => {
                    let request = Request::flush(LAST_FLUSH | u64::from(of.place()));
                    self.spaces.get_mut(&of).requests.push_back(request);
                    self.spaces.make_busy(of.into_place());
                }
                Left::Done(space) => self.leaving.push(space),
            }
        }
        while let Some(space) = self.leaving.pop() {
            if let Err(space) = self.namespaces.leave(space) {
                return self.leaving.push(space);
            }
        }
    }

    /// Gives up a removed namespace, whose last flush is done.
    pub(crate) fn flushed_at_last(&mut self, of: Use, result: Result<(), Fault>) {
        let Space { nsid, blocks, .. } = self.spaces.get(&of);
        if let Err(fault) = result {
            tracing::error!(nsid, %blocks, "a namespace that was removed can't be flushed: {fault}");
        }
        self.spaces.give_back(of);
        self.close_spaces();
    }
}
