//! Fabrics commands: Connect, and the properties. The commands of authentication are in
//! `authenticate.rs`.

use verbline::mem::Packet;
use verbline::prelude::*;
use verbline_nvme::auth::AUTHENTICATION_REQUIRED;
use verbline_nvme::connect::{self, CNTLID_ANY, Connect, ConnectData, ConnectDataError};
use verbline_nvme::identify::ControllerType;
use verbline_nvme::property::{self, Property};
use verbline_nvme::{COMMAND_BYTES, Command, DISCOVERY_NQN, Response, Sgl, Status, log, opcode};

use crate::commands::Purpose;
use crate::queue::{Admin, EVENTS_HELD, Queue};
use crate::shared::Refusal;
use crate::stage::Target;

/// The NVMe version of the controllers.
pub(crate) const VERSION: u32 = property::version(1, 4, 0);

impl Target {
    #[cold]
    pub(crate) fn fabrics(&mut self, at: u16, command: Command, capsule: Packet, out: &mut Outputs<'_>) {
        let queue = self.queues.get(at);
        let is_connected = queue.is_some_and(|queue| queue.controller.is_some());
        let is_locked = queue.is_some_and(Queue::is_locked);
        let kind = command.nsid as u8;
        self.heard(at);
        let answer = match (kind, is_connected) {
            (opcode::fabrics::CONNECT, false) => return self.connect(at, command, capsule, out),
            (opcode::fabrics::CONNECT, true) | (_, false) => Err(Status::SEQUENCE_ERROR.do_not_retry()),
            (opcode::fabrics::AUTHENTICATION_SEND, true) => return self.auth_send(at, command, capsule, out),
            (opcode::fabrics::AUTHENTICATION_RECEIVE, true) => return self.auth_receive(at, command, capsule, out),
            _ if is_locked => Err(Status::AUTHENTICATION_REQUIRED.do_not_retry()),
            (opcode::fabrics::PROPERTY_GET, true) => self.property_get(at, &command),
            (opcode::fabrics::PROPERTY_SET, true) => match self.property_set(at, &command, out) {
                Ok(is_shutting_down) if is_shutting_down => return self.shut_down(at, command, capsule, out),
                done => done.map(|_| 0),
            },
            _ => Err(Status::INVALID_OPCODE.do_not_retry()),
        };
        match answer {
            Ok(result) => self.reply(at, &command, capsule, (result, Status::SUCCESS), None, out),
            Err(status) => self.refuse(at, capsule, &command, status, out),
        }
    }

    fn connect(&mut self, at: u16, command: Command, capsule: Packet, out: &mut Outputs<'_>) {
        if command.sgl.len_bytes() != connect::DATA_BYTES {
            return self.refuse(at, capsule, &command, Status::SGL_DATA_LENGTH_INVALID.do_not_retry(), out);
        }
        match command.sgl {
            Sgl::Keyed { .. } => self.fetch_for(at, command, capsule, Purpose::Connect, out),
            Sgl::InCapsule { .. } => match in_capsule(&command, &capsule) {
                Ok(data) => {
                    let (result, status) = self.connected(at, &command, ConnectData::read(data), out);
                    self.reply(at, &command, capsule, (result, status), None, out);
                }
                Err(status) => self.refuse(at, capsule, &command, status, out),
            },
        }
    }

    /// Connects a queue to a controller. Returns the result and status of the command.
    pub(crate) fn connected(
        &mut self,
        at: u16,
        command: &Command,
        data: Result<ConnectData, ConnectDataError>,
        out: &mut Outputs<'_>,
    ) -> (u64, Status) {
        let wrong = |place: u16, in_data: bool| {
            (Response::invalid_parameter(place, in_data), Status::CONNECT_INVALID_PARAMETERS.do_not_retry())
        };
        let asked = match Connect::of(command) {
            Ok(asked) => asked,
            Err(error) => return (0, error.status),
        };
        let data = match data {
            Ok(data) => data,
            Err(error) => return (error.result(), Status::CONNECT_INVALID_PARAMETERS.do_not_retry()),
        };
        let Some(queue) = self.queues.get(at).filter(|queue| queue.controller.is_none()) else {
            return (0, Status::SEQUENCE_ERROR.do_not_retry());
        };
        if asked.qid != queue.qid {
            return wrong(connect::at::QID, false);
        }
        // No more than the queue was admitted with.
        if asked.sqsize == 0 || asked.sqsize >= queue.entries {
            return wrong(connect::at::SQSIZE, false);
        }
        let kind = match data.subsystem {
            name if name == self.rules.subsystem => ControllerType::Io,
            name if name.as_str() == DISCOVERY_NQN => ControllerType::Discovery,
            _ => return wrong(connect::at::SUBNQN, true),
        };
        if kind == ControllerType::Io && !self.rules.hosts.is_empty() && !self.rules.hosts.contains(&data.host) {
            tracing::warn!(host = %data.host, "a host is refused: it is not among the plan's `hosts`");
            return (0, Status::CONNECT_INVALID_HOST.do_not_retry());
        }
        let is_admin = asked.qid == 0;
        if is_admin && data.cntlid != CNTLID_ANY {
            return wrong(connect::at::CNTLID, true);
        }
        let exchange = match kind {
            ControllerType::Io => self.exchange_with(&data.host, out.now_ns()),
            // Discovery is open to any host.
            ControllerType::Discovery => None,
        };
        let required = if exchange.is_some() { AUTHENTICATION_REQUIRED } else { 0 };
        let shared = &self.shared;
        let joined = if is_admin {
            let cntlids = self.rules.settings.cntlids();
            shared.begin(kind, data.host, data.host_id, cntlids).map(|(controller, seat)| (controller, Some(seat), 0))
        } else {
            shared.find(kind, (data.cntlid, asked.qid), &data.host, &data.host_id).and_then(|controller| {
                // Read before the queue has its place: so any later reset by another lcore ends the
                // queue.
                let resets = controller.resets();
                let seat = exchange.is_none().then(|| shared.take_seat(&controller, asked.qid)).transpose()?;
                Ok((controller, seat, resets))
            })
        };
        let (controller, seat, resets) = match joined {
            Ok(joined) => joined,
            Err(Refusal::Busy) => return (0, Status::CONNECT_BUSY),
            Err(Refusal::NoController) => return wrong(connect::at::CNTLID, true),
            Err(Refusal::NoQueue) => return wrong(connect::at::QID, false),
            Err(Refusal::NotReady) => return (0, Status::SEQUENCE_ERROR.do_not_retry()),
        };
        let cntlid = controller.cntlid;
        if let Some(queue) = self.queues.get_mut(at) {
            queue.sq_size = asked.sqsize + 1;
            queue.connect_by_ns = None;
            queue.resets = resets;
            (queue.controller, queue.seat, queue.exchange) = (Some(controller), seat, exchange);
            queue.admin = is_admin.then(|| {
                let (held, changed) = (Vec::with_capacity(EVENTS_HELD), Vec::with_capacity(log::CHANGED_MAX));
                Box::new(Admin { held, changed, ..Admin::default() })
            });
        }
        if is_admin {
            tracing::info!(host = %data.host, cntlid, ?kind, "a host is connected");
            self.counters.controllers.add(1);
            self.set_keep_alive(at, asked.kato_ms);
        }
        (u64::from(cntlid) | required, Status::SUCCESS)
    }

    /// Closes the queues whose hosts have not sent a good Connect in time: each holds a connection
    /// of the port, and entries that other hosts may need.
    pub(crate) fn end_unconnected(&mut self, out: &mut Outputs<'_>) {
        let now_ns = out.now_ns();
        for at in self.queues.places() {
            let Some(queue) = self.queues.get_mut(at).filter(|queue| queue.is_open) else { continue };
            if queue.connect_by_ns.take_if(|by_ns| *by_ns <= now_ns).is_some() {
                self.counters.never_connected.add(1);
                out.close(queue.connection);
            }
        }
    }

    fn property_get(&self, at: u16, command: &Command) -> Result<u64, Status> {
        let property = Property::of(command).map_err(|error| error.status)?;
        let queue = self.queues.get(at).filter(|queue| queue.qid == 0);
        let controller = queue.and_then(|queue| queue.controller.as_ref());
        let controller = controller.ok_or(Status::INVALID_OPCODE.do_not_retry())?;
        match (property.offset, property.is_wide) {
            (property::CAP, true) => Ok(property::cap(self.rules.settings.entries_max)),
            (property::VS, false) => Ok(VERSION.into()),
            (property::CC, false) => Ok(controller.cc().into()),
            // A reset is complete when the I/O queues of before have ended.
            (property::CSTS, false) if controller.is_disabled() && self.shared.has_queues(controller) => {
                Ok((controller.csts() | property::CSTS_READY).into())
            }
            (property::CSTS, false) => Ok(controller.csts().into()),
            _ => Err(Status::INVALID_FIELD.do_not_retry()),
        }
    }

    /// True if the write begins a shutdown of the controller, after which the command is answered.
    fn property_set(&mut self, at: u16, command: &Command, out: &mut Outputs<'_>) -> Result<bool, Status> {
        let property = Property::of(command).map_err(|error| error.status)?;
        let queue = self.queues.get(at).filter(|queue| queue.qid == 0);
        let controller = queue.and_then(|queue| queue.controller.as_ref());
        let controller = controller.ok_or(Status::INVALID_OPCODE.do_not_retry())?;
        match (property.offset, property.is_wide) {
            (property::CC, false) => {
                let (cc, resets) = (Property::value_of(command) as u32, controller.resets());
                if !property::is_possible(cc, controller.kind == ControllerType::Io) {
                    return Err(Status::INVALID_FIELD.do_not_retry());
                }
                controller.set_cc(cc);
                let is_shutting_down = controller.is_shutting_down();
                let is_reset = controller.resets() != resets;
                self.keep_alive(at);
                if is_reset {
                    self.reset_features(at);
                    self.abort_event_requests(at, out);
                    self.sweep(out);
                }
                Ok(is_shutting_down)
            }
            _ => Err(Status::INVALID_FIELD.do_not_retry()),
        }
    }
}

/// Returns the data of a capsule.
///
/// # Errors
/// The descriptor points beyond the capsule.
pub(crate) fn in_capsule<'a>(command: &Command, capsule: &'a Packet) -> Result<&'a [u8], Status> {
    let Sgl::InCapsule { offset, len } = command.sgl else {
        return Err(Status::SGL_TYPE_INVALID.do_not_retry());
    };
    let carried = &capsule.data()[COMMAND_BYTES..];
    let from = usize::try_from(offset).ok().filter(|from| *from <= carried.len());
    let from = from.ok_or(Status::SGL_OFFSET_INVALID.do_not_retry())?;
    let end = from.checked_add(len as usize).filter(|end| *end <= carried.len());
    Ok(&carried[from..end.ok_or(Status::SGL_DATA_LENGTH_INVALID.do_not_retry())?])
}
