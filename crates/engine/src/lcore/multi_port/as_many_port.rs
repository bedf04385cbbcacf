//! A port with many connections as its lcore sees it. Each call goes to the method of the same
//! name.

use verbline_mem::ConnectionId;
use verbline_verbs::Completion;

use crate::api::acceptor::ConnectionPeer;
use crate::api::connection::ConnectionChange;
use crate::lcore::context::{LcoreContext, ManyPort};
use crate::lcore::multi_port::MultiPort;
use crate::lcore::operation_queue::OperationQueue;

impl ManyPort for MultiPort {
    fn index(&self) -> u16 {
        self.index
    }

    fn complete_run(&mut self, completions: &[Completion], ctx: &mut LcoreContext) -> usize {
        MultiPort::complete_run(self, completions, ctx)
    }

    fn work(&mut self, ctx: &mut LcoreContext) -> bool {
        MultiPort::work(self, ctx)
    }

    fn is_settled(&self, ctx: &LcoreContext) -> bool {
        MultiPort::is_settled(self, ctx)
    }

    fn room_to(&self, connection: ConnectionId) -> usize {
        MultiPort::room_to(self, connection)
    }

    fn operations_at(&mut self, sink: usize) -> Option<&mut OperationQueue> {
        MultiPort::operations_at(self, sink)
    }

    fn operations_room(&self, connection: ConnectionId) -> usize {
        MultiPort::operations_room(self, connection)
    }

    fn peer(&self, connection: ConnectionId) -> Option<&ConnectionPeer> {
        MultiPort::peer(self, connection)
    }

    fn close(&mut self, connection: ConnectionId) -> bool {
        MultiPort::close(self, connection)
    }

    fn take_messages(&mut self) -> bool {
        MultiPort::take_messages(self)
    }

    fn next_change(&mut self) -> Option<(ConnectionId, ConnectionChange)> {
        MultiPort::next_change(self)
    }

    fn qp_failed(&mut self, qpn: u32, event: &'static str) {
        MultiPort::qp_failed(self, qpn, event);
    }

    fn sq_stopped(&mut self, qpn: u32) {
        MultiPort::sq_stopped(self, qpn);
    }

    fn heard(&self) {
        MultiPort::heard(self);
    }

    fn tell_later(&self) {
        MultiPort::tell_later(self);
    }

    fn told_of(&mut self, connection: ConnectionId) {
        MultiPort::told_of(self, connection);
    }

    fn hand_on_early(&mut self, ctx: &mut LcoreContext) -> bool {
        MultiPort::hand_on_early(self, ctx)
    }

    fn drain(&mut self) {
        MultiPort::drain(self);
    }

    fn awaits_completion(&self) -> bool {
        MultiPort::awaits_completion(self)
    }

    fn count_stopped(&mut self) {
        MultiPort::count_stopped(self);
    }
}
