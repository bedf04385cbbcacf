//! What the data path asks of a wire.

use crate::data_path::carrier::Carrier;
use crate::data_path::errors::Errors;
use crate::data_path::poster::{Poster, Refused};
use crate::objects::guards::Pinned;
use crate::objects::qp::Qp;
use crate::queues::wr::SendWr;
use crate::wire::device_wire::Wire;
use crate::wire::queue_pair;
use std::sync::TryLockError;
use verbline_roce::transport::QueuePair;

impl Carrier for Wire {
    fn connect(&self, qp: &Qp) -> bool {
        let made = queue_pair::leads_to(qp, self)
            .and_then(|addresses| queue_pair::open(qp, addresses, self.link.own().port()));
        made.is_some_and(|made| self.lock().add(qp, made))
    }

    fn start(&self, qp: &Qp) {
        self.lock().with(qp.qpn, |made| queue_pair::start(qp, made));
    }

    fn change(&self, qp: &Qp) {
        let addresses = queue_pair::leads_to(qp, self);
        let port = self.link.own().port();
        self.lock().with(qp.qpn, |made| queue_pair::change(qp, addresses, port, made));
    }

    fn hold(&self, qp: &Qp) -> bool {
        self.lock().with(qp.qpn, QueuePair::hold).unwrap_or(true)
    }

    fn send_again(&self, qp: &Qp) {
        self.lock().with(qp.qpn, QueuePair::send_again);
        // Who polls sends what was held, and so does the thread, if nobody does.
        self.doorbell.ring();
    }

    fn fail(&self, qp: &Qp) {
        self.lock().fail(qp);
    }

    fn remove(&self, qp: &Qp) {
        self.lock().remove(qp.qpn);
    }

    fn post<'a>(&self, poster: Poster<'_>, list: SendWr<'a>, errors: &mut Errors) -> Result<(), Refused<'a>> {
        queue_pair::post(self, poster, list, errors)
    }

    /// If another thread is at it, that one does the work.
    fn poll(&self, pinned: Pinned<'_>, errors: &mut Errors) {
        match self.inner.try_lock() {
            Ok(mut inner) => inner.poll(pinned, errors),
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner().poll(pinned, errors),
            Err(TryLockError::WouldBlock) => {}
        }
    }

    fn owner_armed(&self) {
        self.doorbell.ring();
    }
}
