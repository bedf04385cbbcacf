//! Commands of the admin queue.

use verbline::mem::Packet;
use verbline::prelude::*;
use verbline_nvme::feature::{self, QueueCount};
use verbline_nvme::identify::{self, Controller as Page, ControllerType, PAGE_BYTES, cns, optional};
use verbline_nvme::log::{self, event};
use verbline_nvme::{COMMAND_BYTES, Command, DISCOVERY_NQN, Nqn, Sgl, Status, namespace, opcode};

use crate::answering::remote;
use crate::commands::{Answer, Pending, Work};
use crate::fabrics::VERSION;
use crate::queue::{EVENTS_HELD, Queue};
use crate::stage::Target;

/// The result of a command.
pub(crate) enum AdminAnswer {
    /// Dword 0 of the response.
    Result(u64),
    /// Data for the host.
    Page(Packet),
}

/// The firmware revision: this program's version.
pub(crate) const FIRMWARE: &str = env!("CARGO_PKG_VERSION");
/// KAS: the grain of the keep-alive time-out, 100 ms.
const KEEP_ALIVE_GRAIN: u16 = 1;

impl Target {
    #[cold]
    pub(crate) fn admin(&mut self, at: u16, command: Command, capsule: Packet, out: &mut Outputs<'_>) {
        let Some(controller) = self.queues.get(at).and_then(|queue| queue.controller.clone()) else { return };
        if !controller.is_ready() {
            let status = Status::SEQUENCE_ERROR.do_not_retry();
            return self.refuse_unless_over(at, capsule, &command, status, out);
        }
        let is_discovery = controller.kind == ControllerType::Discovery;
        self.heard(at);
        let outcome = match command.opcode {
            opcode::admin::IDENTIFY => self.identify(at, &command, out),
            opcode::admin::GET_LOG_PAGE => self.log_page(at, &command, out),
            opcode::admin::KEEP_ALIVE => {
                self.keep_alive(at);
                Ok(AdminAnswer::Result(0))
            }
            opcode::admin::SET_FEATURES => self.set_features(at, &command),
            opcode::admin::GET_FEATURES => self.features(at, &command),
            opcode::admin::ASYNC_EVENT_REQUEST => return self.hold_event_request(at, command, capsule, out),
            // No command can be stopped once it has come: none is aborted.
            opcode::admin::ABORT if !is_discovery => Ok(AdminAnswer::Result(1)),
            _ => Err(Status::INVALID_OPCODE.do_not_retry()),
        };
        match outcome {
            Ok(AdminAnswer::Result(result)) => self.reply(at, &command, capsule, (result, Status::SUCCESS), None, out),
            Ok(AdminAnswer::Page(page)) => {
                let data = remote(command.sgl).map(|to| (page, to));
                self.reply(at, &command, capsule, (0, Status::SUCCESS), data, out);
            }
            Err(status) => self.refuse(at, capsule, &command, status, out),
        }
    }

    /// Allocates a packet of `len` zeros for the host.
    pub(crate) fn page(&self, at: u16, command: &Command, len: usize, out: &mut Outputs<'_>) -> Result<Packet, Status> {
        let Sgl::Keyed { .. } = command.sgl else { return Err(Status::SGL_TYPE_INVALID.do_not_retry()) };
        if command.sgl.len_bytes() != len {
            return Err(Status::SGL_DATA_LENGTH_INVALID.do_not_retry());
        }
        // Without a packet, the host should try again.
        let packet = if self.may_have_packet(at) { out.alloc() } else { None };
        let mut packet = packet.ok_or(Status::NAMESPACE_NOT_READY)?;
        if !packet.reset_to(len) {
            return Err(Status::INVALID_FIELD.do_not_retry());
        }
        packet.data_mut().fill(0);
        Ok(packet)
    }

    fn identify(&self, at: u16, command: &Command, out: &mut Outputs<'_>) -> Result<AdminAnswer, Status> {
        let mut packet = self.page(at, command, PAGE_BYTES, out)?;
        let Ok(page) = <&mut [u8; PAGE_BYTES]>::try_from(packet.data_mut()) else {
            return Err(Status::INTERNAL_ERROR);
        };
        let controller = self.queues.get(at).and_then(|queue| queue.controller.as_ref());
        let controller = controller.ok_or(Status::INTERNAL_ERROR)?;
        let is_discovery = controller.kind == ControllerType::Discovery;
        let space = || self.spaces.find(command.nsid).ok_or(Status::INVALID_NAMESPACE.do_not_retry());
        match identify::asked_by(command) {
            (cns::CONTROLLER, _) => self.identity(controller).write(page),
            (cns::NAMESPACE, _) if !is_discovery => match space() {
                Ok(space) => space.identity().write(page),
                // A valid number without a namespace: zeros.
                Err(_) if (1..=crate::settings::NSID_MAX).contains(&command.nsid) => {}
                Err(status) => return Err(status),
            },
            (cns::ACTIVE_NAMESPACES, _) if !is_discovery => {
                if command.nsid >= namespace::NSID_ALL - 1 {
                    return Err(Status::INVALID_NAMESPACE.do_not_retry());
                }
                let mut numbers: Vec<u32> = self.spaces.iter().map(|space| space.nsid).collect();
                numbers.sort_unstable();
                namespace::write_list(page, numbers.into_iter(), command.nsid);
            }
            (cns::NAMESPACE_DESCRIPTORS, _) if !is_discovery => namespace::write_descriptors(page, space()?.names()),
            // For the NVM command set: no limits beyond those of Identify Controller.
            (cns::CONTROLLER_OF_SET, 0) if !is_discovery => {}
            (cns::NAMESPACE_OF_SET, 0) if !is_discovery => drop(space()?),
            _ => return Err(Status::INVALID_FIELD.do_not_retry()),
        }
        Ok(AdminAnswer::Page(packet))
    }

    fn identity(&self, controller: &crate::controller::Controller) -> Page {
        let settings = &self.rules.settings;
        let is_discovery = controller.kind == ControllerType::Discovery;
        let in_capsule = if is_discovery { 0 } else { settings.in_capsule_bytes };
        Page {
            serial: settings.serial.clone(),
            model: settings.model.clone(),
            firmware: FIRMWARE.to_owned(),
            mdts: settings.mdts(),
            cntlid: controller.cntlid,
            version: VERSION,
            async_events: optional_events(controller.kind),
            kind: controller.kind,
            aerl: EVENTS_HELD as u8 - 1,
            elpe: crate::controller::ERRORS as u8 - 1,
            kas: KEEP_ALIVE_GRAIN,
            max_commands: settings.entries_max,
            namespaces_max: if is_discovery { 0 } else { crate::settings::NSID_MAX },
            commands: optional::COMPARE | optional::DATASET_MANAGEMENT | optional::WRITE_ZEROES | optional::VERIFY,
            // A host asks only once, and namespaces with a cache may be added later: without this
            // it would send them no Flush. A Flush costs nothing in a namespace without a cache.
            has_write_cache: !is_discovery,
            capsule_bytes: COMMAND_BYTES as u32 + in_capsule,
            subsystem: match is_discovery {
                true => Nqn::new(DISCOVERY_NQN).unwrap_or(self.rules.subsystem),
                false => self.rules.subsystem,
            },
        }
    }

    fn set_features(&mut self, at: u16, command: &Command) -> Result<AdminAnswer, Status> {
        let [dword10, value, ..] = command.cdw10;
        if dword10 >> 31 != 0 {
            return Err(Status::FEATURE_NOT_SAVEABLE.do_not_retry());
        }
        let queue = self.queues.get_mut(at).ok_or(Status::INTERNAL_ERROR)?;
        let (Some(admin), Some(controller)) = (&mut queue.admin, &queue.controller) else {
            return Err(Status::INTERNAL_ERROR);
        };
        let is_discovery = controller.kind == ControllerType::Discovery;
        match dword10 as u8 {
            feature::ASYNC_EVENTS if value & !events(controller.kind) != 0 => {
                return Err(Status::INVALID_FIELD.do_not_retry());
            }
            feature::ASYNC_EVENTS => admin.wanted = value,
            feature::KEEP_ALIVE => self.set_keep_alive(at, value),
            _ if is_discovery => return Err(Status::INVALID_FIELD.do_not_retry()),
            feature::NUMBER_OF_QUEUES => {
                let asked = QueueCount::from_dword(value);
                if asked.submission_less_one == u16::MAX || asked.completion_less_one == u16::MAX {
                    return Err(Status::INVALID_FIELD.do_not_retry());
                }
                if self.shared.has_queues(controller) {
                    return Err(Status::SEQUENCE_ERROR.do_not_retry());
                }
                let asked = asked.submission_less_one.min(asked.completion_less_one);
                let granted = asked.min(self.rules.settings.queues_max - 1);
                self.shared.grant(controller, granted + 1);
                let granted = QueueCount { submission_less_one: granted, completion_less_one: granted };
                admin.features[usize::from(feature::NUMBER_OF_QUEUES)] = granted.to_dword();
                return Ok(AdminAnswer::Result(granted.to_dword().into()));
            }
            feature::POWER_MANAGEMENT if value & feature::POWER_STATE != 0 => {
                return Err(Status::INVALID_FIELD.do_not_retry());
            }
            // Blocks that were given back read as zeros, and never fail.
            feature::ERROR_RECOVERY if value & feature::DEALLOCATED_FAIL != 0 => {
                return Err(Status::INVALID_FIELD.do_not_retry());
            }
            // There is no write cache to turn off.
            feature::VOLATILE_WRITE_CACHE => return Err(Status::FEATURE_NOT_CHANGEABLE.do_not_retry()),
            kept @ (feature::ARBITRATION
            | feature::POWER_MANAGEMENT
            | feature::TEMPERATURE_THRESHOLD
            | feature::ERROR_RECOVERY
            | feature::WRITE_ATOMICITY) => admin.features[usize::from(kept)] = value,
            _ => return Err(Status::INVALID_FIELD.do_not_retry()),
        }
        Ok(AdminAnswer::Result(0))
    }

    fn features(&self, at: u16, command: &Command) -> Result<AdminAnswer, Status> {
        let queue = self.queues.get(at).ok_or(Status::INTERNAL_ERROR)?;
        let admin = queue.admin.as_ref().ok_or(Status::INTERNAL_ERROR)?;
        let value = match command.cdw10[0] as u8 {
            feature::ASYNC_EVENTS => admin.wanted,
            feature::KEEP_ALIVE => admin.kato_ms,
            feature::VOLATILE_WRITE_CACHE => {
                self.spaces.iter().any(|space| space.store.geometry().volatile_cache).into()
            }
            kept @ (feature::ARBITRATION
            | feature::POWER_MANAGEMENT
            | feature::TEMPERATURE_THRESHOLD
            | feature::ERROR_RECOVERY
            | feature::NUMBER_OF_QUEUES
            | feature::WRITE_ATOMICITY) => admin.features[usize::from(kept)],
            _ => return Err(Status::INVALID_FIELD.do_not_retry()),
        };
        Ok(AdminAnswer::Result(value.into()))
    }

    /// Gives the features their defaults at a reset. The host keeps the number of queues that it
    /// was granted, and its keep-alive time-out.
    pub(crate) fn reset_features(&mut self, at: u16) {
        let Some(admin) = self.queues.get_mut(at).and_then(|queue| queue.admin.as_mut()) else { return };
        let granted = usize::from(feature::NUMBER_OF_QUEUES);
        (admin.wanted, admin.is_masked) = (0, false);
        admin.features.iter_mut().enumerate().filter(|(at, _)| *at != granted).for_each(|(_, value)| *value = 0);
    }

    /// Keeps an Asynchronous Event Request until an event occurs.
    fn hold_event_request(&mut self, at: u16, command: Command, capsule: Packet, out: &mut Outputs<'_>) {
        let held = |target: &Target| {
            target.queues.get(at).and_then(|queue| queue.admin.as_ref()).map(|admin| admin.held.len())
        };
        if held(self).is_none_or(|held| held >= EVENTS_HELD) {
            return self.refuse(at, capsule, &command, Status::ASYNC_EVENT_LIMIT.do_not_retry(), out);
        }
        let Some(place) = self.hold(Pending::new(at, command, capsule, Work::Event), out) else { return };
        if let Some(admin) = self.queues.get_mut(at).and_then(|queue| queue.admin.as_mut()) {
            admin.held.push(place);
        }
        self.tell_events(at, out);
    }

    /// Answers the Asynchronous Event Requests at a reset: no event will come, and the host may use
    /// their identifiers again.
    pub(crate) fn abort_event_requests(&mut self, at: u16, out: &mut Outputs<'_>) {
        let next = |target: &mut Target| target.queues.get_mut(at)?.admin.as_mut()?.held.pop();
        while let Some(place) = next(self) {
            if let Some(pending) = self.commands.take(place) {
                self.answer(place, pending, Answer::of(Status::ABORT_REQUESTED), out);
            }
        }
    }

    /// Answers a waiting Asynchronous Event Request, if there is an untold event. From then on the
    /// event is masked, until its log is read.
    pub(crate) fn tell_events(&mut self, at: u16, out: &mut Outputs<'_>) {
        let Some(admin) = self.queues.get_mut(at).and_then(|queue| queue.admin.as_mut()) else { return };
        if !admin.is_untold || admin.is_masked || admin.wanted & event::NAMESPACE_CHANGED_BIT == 0 {
            return;
        }
        let Some(place) = admin.held.pop() else { return };
        (admin.is_untold, admin.is_masked) = (false, true);
        let Some(pending) = self.commands.take(place) else { return };
        let answer = Answer { result: event::NAMESPACE_CHANGED.into(), ..Answer::of(Status::SUCCESS) };
        self.answer(place, pending, answer, out);
    }

    /// Finds namespaces that grew or shrank, to tell the hosts that want to know.
    pub(crate) fn refresh_spaces(&mut self) {
        let mut changed = std::mem::take(&mut self.untold);
        for space in self.spaces.iter_mut() {
            let before = space.store.geometry();
            let now = space.store.refresh().unwrap_or(before);
            if now != before {
                let (nsid, blocks, before) = (space.nsid, now.blocks, before.blocks);
                match blocks < before {
                    true => tracing::warn!(nsid, blocks, before, "a namespace has shrunk: its data behind is gone"),
                    false => tracing::info!(nsid, blocks, before, "a namespace has grown"),
                }
                changed.push(space.nsid);
            }
        }
        self.untold = changed;
    }

    /// Records that a namespace was changed, added or removed, and tells the hosts that want to
    /// know.
    pub(crate) fn tell_changed(&mut self, nsid: u32, out: &mut Outputs<'_>) {
        for at in self.queues.places() {
            // A discovery controller has no namespaces.
            let is_io = |queue: &&mut Queue| {
                queue.controller.as_ref().is_some_and(|controller| controller.kind == ControllerType::Io)
            };
            let queue = self.queues.get_mut(at).filter(is_io);
            let Some(admin) = queue.and_then(|queue| queue.admin.as_mut()) else { continue };
            // A list with the entry for "too many" has no other entries.
            if ![nsid, log::CHANGED_TOO_MANY].iter().any(|known| admin.changed.contains(known)) {
                match admin.changed.len() < log::CHANGED_MAX {
                    true => admin.changed.push(nsid),
                    false => admin.are_too_many = true,
                }
            }
            admin.is_untold = true;
            self.tell_events(at, out);
        }
    }
}

/// The events of a controller that are optional: OAES.
fn optional_events(kind: ControllerType) -> u32 {
    match kind {
        ControllerType::Io => event::NAMESPACE_CHANGED_BIT,
        ControllerType::Discovery => event::DISCOVERY_CHANGED_BIT,
    }
}

/// All events of a controller that its host may ask for: with a health log also its critical
/// warnings, none of which ever comes.
fn events(kind: ControllerType) -> u32 {
    let warnings = if kind == ControllerType::Io { event::CRITICAL_WARNINGS } else { 0 };
    optional_events(kind) | warnings
}
