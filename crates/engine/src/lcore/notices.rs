//! An lcore's handling of control notices: failed queue pairs, queue pairs to release or replace,
//! links, lost devices.

use std::io;
use std::sync::Arc;

use crate::api::stage::{PortChange, PortEvent};
use crate::connection::event::{ConnectionChange, ConnectionEvent};
use crate::control::notice::Notice;
use crate::lcore::node::Node;
use crate::lcore::poll_loop::Lcore;
use crate::ports::single_port::Health;
use crate::ports::state::LcoreState;
use crate::stats::calling::Call;
use crate::stats::down_reason::DownReason;

impl Lcore {
    /// Handles all posted notices. Returns true if one may have brought work: all but those of
    /// captures and traces. After an error the lcore cannot continue.
    #[cold]
    pub(crate) fn read_notices(&mut self) -> io::Result<bool> {
        let mut notices = std::mem::take(&mut self.notices);
        self.seen = self.control.read_notices(self.index, &mut notices);
        let is_work = notices.iter().any(|notice| !matches!(notice, Notice::Watch));
        let done = notices.drain(..).try_for_each(|notice| self.handle_notice(notice));
        self.notices = notices;
        done.map(|()| is_work)
    }

    pub(super) fn handle_notice(&mut self, notice: Notice) -> io::Result<()> {
        match notice {
            Notice::QpFailed { port, qpn, event } => {
                if let Some(port) = port.checked_sub(self.ports.len()) {
                    let LcoreState { ctx, many, .. } = &mut self.state;
                    if let Some(port) = many.get_mut(port) {
                        port.qp_failed(qpn, event.name(), &mut ctx.sinks);
                    }
                    return Ok(());
                }
                // The port may have been given a new queue pair: then this failure is of the old
                // one.
                let Some(port) = self.ports.get_mut(port).filter(|port| port.qp.qpn() == qpn) else { return Ok(()) };
                port.failed_by(event);
            }
            Notice::SqStopped { port, qpn } => self.service_stop(port, qpn),
            Notice::Change { port, change } => {
                let now_ns = self.state.ctx.time.clock().now_ns();
                self.ports.get_mut(port).into_iter().for_each(|port| port.change(Arc::clone(&change), now_ns));
            }
            Notice::PathMigrated { port, qpn, is_done } => {
                let port = self.ports.get_mut(port).filter(|port| port.qp.qpn() == qpn);
                port.into_iter().for_each(|port| port.path_migrated(is_done));
            }
            Notice::PortDown { port } => {
                self.notify_stages(port, PortChange::Down);
                self.service_reconnect(port);
            }
            Notice::Connections { port } if port < self.ports.len() => self.service_reconnect(port),
            Notice::Connections { port } => self.service_connections(port),
            Notice::Watch => self.take_watch(),
            Notice::LetGo => self.tell_late(),
            Notice::LinkChanged { up } => self.link_changed(up),
            Notice::CqOverrun => {
                self.ports.iter_mut().for_each(|port| port.go_down(Health::Down, DownReason::OVERRUN));
                return Err(io::Error::other(
                    "its completion queue has overrun (IBV_EVENT_CQ_ERR), and completions are lost; set `cq_depth_wc` \
                     higher",
                ));
            }
            Notice::DeviceGone(sentence) => {
                self.ports.iter_mut().for_each(|port| port.go_down(Health::Down, DownReason::GONE));
                return Err(io::Error::other(sentence));
            }
        }
        Ok(())
    }

    /// Resumes a queue pair that the device stopped at a block with a bad signature. Polling the
    /// completion queue records the bad block.
    #[cold]
    fn service_stop(&mut self, place: usize, qpn: u32) {
        self.take_completions();
        match place.checked_sub(self.ports.len()) {
            Some(at) => {
                let LcoreState { ctx, many, .. } = &mut self.state;
                many.get_mut(at).into_iter().for_each(|port| port.sq_stopped(qpn, ctx));
            }
            None => self.ports.get_mut(place).into_iter().for_each(|port| port.sq_stopped(qpn, &mut self.state.ctx)),
        }
        // Refused packets, and those that waited for the queue pair, go to their stages in the next
        // turn.
        self.settled = false;
    }

    /// Releases or replaces the queue pair of a port that reconnects; gives a port of datagrams its
    /// new address handles.
    fn service_reconnect(&mut self, place: usize) {
        let (Some(port), ctx) = (self.ports.get_mut(place), &mut self.state.ctx) else { return };
        if let Some(datagrams) = port.sending.as_mut().and_then(|sending| sending.datagrams.as_mut()) {
            datagrams.take_made(&mut port.qp);
            self.settled = false;
            return;
        }
        if port.service_reconnect(ctx.time.clock().now_ns(), &mut ctx.sinks) {
            self.notify_stages(place, PortChange::Up);
        }
    }

    /// Handles completions until the completion queue was empty, or as many as it can hold have
    /// come: without that bound, new completions could keep it here for ever.
    pub(super) fn take_completions(&mut self) {
        let mut left = self.wakes.depth_wc();
        while left > 0 {
            let found = self.wakes.poll(&mut self.completions);
            if found == 0 {
                break;
            }
            (self.completes)(self);
            (self.works)(self, true);
            left = left.saturating_sub(found);
        }
    }

    /// Opens and ends connections of a port, and tells the stages.
    fn service_connections(&mut self, place: usize) {
        let Some(at) = place.checked_sub(self.ports.len()).filter(|at| *at < self.state.many.len()) else { return };
        self.state.many[at].heard();
        // A release by force discards completions that were not polled: poll them all first.
        let is_emptied = self.state.many[at].has_forced();
        if is_emptied {
            self.take_completions();
        }
        // Changes left from the last turn go first, so that the number of untold changes is
        // bounded.
        let mut waits = self.tell_changes(at);
        if !waits {
            let LcoreState { ctx, many, .. } = &mut self.state;
            many[at].take_messages(is_emptied, &mut ctx.sinks);
            waits = self.tell_changes(at);
        }
        if waits {
            self.state.many[at].tell_later();
        }
        // In the next turn the stages' packets, and those that waited for a connection, are sent.
        self.settled = false;
    }

    /// Tells the stages of the changes of a port's connections. Returns true if some have to wait:
    /// packets that a connection has already received go to the stages before its next change, and
    /// a stage that a ring holds back hears nothing.
    fn tell_changes(&mut self, at: usize) -> bool {
        let port = self.state.many[at].index;
        let mut waits = self.hand_on_early(at) || self.is_any_held(port);
        while !waits && let Some((connection, change)) = self.state.many[at].next_change() {
            let event = ConnectionEvent { port, connection, change };
            self.tell_nodes(port, Call::ConnectionEvent, |node, state| node.connection_event(event, state));
            if change == ConnectionChange::Opened {
                self.state.many[at].told_of(connection);
                waits = self.hand_on_early(at);
            }
            self.make_room();
            waits |= self.is_any_held(port);
        }
        waits
    }

    fn hand_on_early(&mut self, at: usize) -> bool {
        let LcoreState { ctx, many, .. } = &mut self.state;
        many[at].hand_on_early(ctx)
    }

    /// Tells all ports of their link's change, including those with many connections.
    fn link_changed(&mut self, up: bool) {
        let change = if up { PortChange::LinkUp } else { PortChange::LinkDown };
        for place in 0..self.ports.len() + self.state.many.len() {
            let (port, stats) = match place.checked_sub(self.ports.len()) {
                None => (self.ports[place].index, &self.ports[place].stats),
                Some(at) => (self.state.many[at].index, &self.state.many[at].stats),
            };
            // A device may report a link as up more than once.
            if stats.link_down.value() != u64::from(!up) {
                stats.link_down.set((!up).into());
                self.tell_of_port(port, change);
            }
        }
    }

    fn notify_stages(&mut self, port: usize, change: PortChange) {
        if let Some(port) = self.ports.get(port).map(|port| port.index) {
            self.tell_of_port(port, change);
        }
    }

    /// Tells the stages of a port, by its place in the plan; a stage that a ring holds back hears
    /// of it once it may run.
    pub(super) fn tell_of_port(&mut self, port: u16, change: PortChange) {
        let event = PortEvent { port, change };
        // Earlier events come first.
        self.tell_late();
        for (index, node) in self.nodes.iter().enumerate() {
            if node.is_told_of(port) && node.is_held() {
                self.late.put_off(index, event);
            }
        }
        self.tell_nodes(event.port, Call::PortEvent, |node, state| node.port_event(event, state));
        self.make_room();
        // The next turn sends the stages' packets, whether or not anything else arrives.
        self.settled = false;
    }

    /// Tells the stages that may run again the events that were put off.
    pub(super) fn tell_late(&mut self) {
        while let Some((index, event)) = self.late.next(&self.nodes) {
            let node = &mut self.nodes[index];
            self.state.ctx.stats.calling.set(Call::PortEvent.of(index));
            node.port_event(event, &mut self.state);
            self.polling = self.polling.min(node.polling());
            self.state.ctx.stats.calling.clear();
            self.make_room();
            self.settled = false;
        }
    }

    /// A ring that holds back has room for a stage's packets of one turn. Packets sent between two
    /// turns therefore go on before the stage is called again.
    fn make_room(&mut self) {
        if !self.holds.is_empty() {
            (self.works)(self, true);
        }
    }

    /// Whether a ring holds back a stage that hears of this port.
    fn is_any_held(&self, port: u16) -> bool {
        self.nodes.iter().any(|node| node.is_held() && node.is_told_of(port))
    }

    /// Calls each stage that hears of a port, unless a ring holds it back.
    fn tell_nodes(&mut self, port: u16, call: Call, mut tell: impl FnMut(&mut Node, &mut LcoreState)) {
        let told = |node: &Node| node.is_told_of(port) && !node.is_held();
        for (index, node) in self.nodes.iter_mut().enumerate().filter(|(_, node)| told(node)) {
            self.state.ctx.stats.calling.set(call.of(index));
            tell(node, &mut self.state);
            self.polling = self.polling.min(node.polling());
        }
        self.state.ctx.stats.calling.clear();
    }
}
