//! How a stage takes namespaces that came or went, and tells hosts.

use verbline::prelude::*;
use verbline_store::Store;

use crate::namespaces::{Change, SPACES_MAX};
use crate::space::Space;
use crate::stage::Target;

impl Target {
    /// Takes what has come or gone. Hosts are told at the next look: other lcores, which look as
    /// often, have it then.
    pub(crate) fn renew_spaces(&mut self, out: &mut Outputs<'_>) {
        for nsid in std::mem::take(&mut self.untold) {
            self.tell_changed(nsid, out);
        }
        for change in self.namespaces.take(&self.name) {
            match change {
                Change::Add(space) => self.add_space(space, out),
                Change::Remove(nsid, nothing) => self.remove_space(nsid, nothing),
            }
        }
        self.close_spaces();
    }

    fn add_space(&mut self, mut space: Space, out: &Outputs<'_>) {
        let Some(spaces) = &mut self.spaces else { return };
        let nsid = space.nsid;
        out.pool().inspect(|pool| space.store.use_pool(pool));
        let free = spaces.iter().position(|space| space.nsid == 0);
        match free {
            Some(place) => spaces[place] = space,
            None if spaces.len() < SPACES_MAX => spaces.push(space),
            None => {
                return tracing::error!(nsid, "a namespace is not there: {SPACES_MAX} are, or are on their way out");
            }
        }
        let place = free.unwrap_or(spaces.len() - 1);
        self.place_of[nsid as usize] = Some(place as u16);
        self.untold.push(nsid);
        tracing::info!(nsid, "a namespace was added");
    }

    /// Nothing new goes to it from here on.
    fn remove_space(&mut self, nsid: u32, nothing: Space) {
        let Some(place) = self.place_of[nsid as usize].take() else { return };
        if let Some(space) = self.spaces.as_mut().and_then(|spaces| spaces.get_mut(usize::from(place))) {
            space.nsid = LEAVING;
        }
        self.leaving.push((place, nothing));
        self.untold.push(nsid);
        tracing::info!(nsid, "a namespace was removed");
    }

    /// Gives up those of which nothing is under way any more.
    fn close_spaces(&mut self) {
        let Some(spaces) = &mut self.spaces else { return };
        for index in (0..self.leaving.len()).rev() {
            let place = self.leaving[index].0;
            let space = &spaces[usize::from(place)];
            if space.store.under_way() == 0 && space.requests.is_empty() && !self.commands.use_space(place) {
                let (_, nothing) = self.leaving.swap_remove(index);
                self.namespaces.leave(std::mem::replace(&mut spaces[usize::from(place)], nothing));
            }
        }
    }
}

/// The number of a namespace on its way out: nobody's.
const LEAVING: u32 = u32::MAX;
