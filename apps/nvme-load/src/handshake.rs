//! The admin queue: the handshake before the first read, in the order of the Linux host.

use verbline::engine::ConnectionId;
use verbline::mem::Packet;
use verbline::prelude::*;
use verbline_nvme::auth::{self, WRITTEN_BYTES_MAX};
use verbline_nvme::connect::{CNTLID_ANY, Connect, ConnectData, DATA_BYTES};
use verbline_nvme::discovery::{self, DiscoveryEntry};
use verbline_nvme::feature::{self, QueueCount};
use verbline_nvme::identify::{self, cns};
use verbline_nvme::log::{LogRequest, event, id};
use verbline_nvme::namespace::{self, Namespace};
use verbline_nvme::property::{self, Property};
use verbline_nvme::protection::Protection;
use verbline_nvme::{Command, DISCOVERY_NQN, Nqn, Response, Sgl, Status, opcode};

use crate::blocks::Shape;
use crate::handshake_state::{ADMIN_ENTRIES, AuthStep, Step};
use crate::oracle::Oracle;
use crate::queue::{Pending, State, Task};
use crate::settings::Guards;
use crate::stage::{ADMIN, IO, Initiator, RETRY};

/// The most blocks that the oracle keeps account of: 200 MB of memory.
const ORACLE_BLOCKS_MAX: u64 = 16 << 20;
/// The time until a host asks a busy controller again.
const RETRY_NS: u64 = 50_000_000;

/// A host identifier that is the same after a restart: the hash of its name (FNV-1a).
fn host_id(host: &Nqn) -> [u8; 16] {
    let hash = |seed: u64| {
        host.as_str().bytes().fold(seed, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3))
    };
    (u128::from(hash(0xCBF2_9CE4_8422_2325)) << 64 | u128::from(hash(0x9E37_79B9_7F4A_7C15))).to_be_bytes()
}

impl Initiator {
    /// Begins the handshake on a new connection of the admin queue.
    pub(crate) fn begin_handshake(&mut self, out: &mut Outputs<'_>) {
        self.handshake.asks_discovery = self.settings.discover && !self.handshake.is_discovered;
        self.ask(Step::Connect, out);
    }

    /// Sends the command of a step.
    fn ask(&mut self, step: Step, out: &mut Outputs<'_>) {
        self.handshake.cid = (self.handshake.cid + 1) & 0xFFF;
        let cid = self.handshake.cid;
        let page = |len: usize| self.page(len);
        let identify = |cns: u8, nsid: u32| {
            let command = Command::new(opcode::admin::IDENTIFY, cid, page(identify::PAGE_BYTES)?);
            Some(Command { nsid, ..command.with([cns.into(), 0, 0, 0, 0, 0]) })
        };
        let log = |len: u64| {
            let asked = LogRequest { id: id::DISCOVERY, retain_event: true, offset: 0, len };
            Some(Command::new(opcode::admin::GET_LOG_PAGE, cid, page(len as usize)?).with(asked.dwords()))
        };
        let cc = Property { offset: property::CC, is_wide: false };
        let nsid = self.settings.nsid;
        let command = match step {
            Step::Connect => self.connect_command(cid, 0, ADMIN_ENTRIES),
            Step::Authenticate(auth_step) => self.authentication(cid, auth_step),
            Step::Capabilities => Some(Property { offset: property::CAP, is_wide: true }.get(cid)),
            Step::Enable => Some(cc.set(cid, property::CC_USUAL.into())),
            Step::Ready => Some(Property { offset: property::CSTS, is_wide: false }.get(cid)),
            Step::Identify => identify(cns::CONTROLLER, 0),
            Step::DiscoveryHead => log(discovery::ENTRY_BYTES as u64),
            Step::DiscoveryLog => log(4 * discovery::ENTRY_BYTES as u64),
            Step::Queues => {
                let less_one = self.queues.len() as u16 - 1;
                let asked = QueueCount { submission_less_one: less_one, completion_less_one: less_one };
                Some(set_feature(cid, feature::NUMBER_OF_QUEUES, asked.to_dword()))
            }
            Step::Namespaces => identify(cns::ACTIVE_NAMESPACES, 0),
            Step::Namespace => identify(cns::NAMESPACE, nsid),
            Step::Descriptors => identify(cns::NAMESPACE_DESCRIPTORS, nsid),
            Step::Events => Some(set_feature(cid, feature::ASYNC_EVENTS, event::NAMESPACE_CHANGED_BIT)),
            Step::Leaving => Some(cc.set(cid, (property::CC_USUAL | 1 << 14).into())),
            Step::Nothing | Step::Done => None,
        };
        self.handshake.step = step;
        match command {
            Some(command) => self.send_admin(&command, out),
            None => self.fail(format!("the initiator can't ask for {step:?}")),
        }
    }

    /// The command of a step of authentication, with its message in the region.
    fn authentication(&self, cid: u16, auth_step: AuthStep) -> Option<Command> {
        if matches!(auth_step, AuthStep::Challenge | AuthStep::Verdict) {
            return self.receive_at(cid, 0);
        }
        let mut bytes = [0; WRITTEN_BYTES_MAX];
        let len = self.handshake.message.as_ref()?.write(&mut bytes);
        self.region.write_from(0, &bytes[..len]).ok()?;
        Some(auth::send(cid, self.page(len)?))
    }

    /// Takes the result of a step of authentication, and returns the next step.
    fn learn_auth_step(&mut self, auth_step: AuthStep, page: &[u8]) -> Result<Step, String> {
        let transaction = self.handshake.message.map_or(0, |message| message.transaction);
        Ok(match auth_step {
            AuthStep::Negotiate => Step::Authenticate(AuthStep::Challenge),
            AuthStep::Reply => Step::Authenticate(AuthStep::Verdict),
            AuthStep::Challenge | AuthStep::Verdict => match self.prove(auth_step, transaction, page)? {
                Some(reply) => {
                    self.handshake.message = Some(reply);
                    Step::Authenticate(AuthStep::Reply)
                }
                None => Step::Capabilities,
            },
        })
    }

    /// The region's memory for the data of an admin command.
    fn page(&self, len: usize) -> Option<Sgl> {
        let remote = self.region.remote(0).ok()?;
        Some(Sgl::Keyed { addr: remote.addr, len: len as u32, key: remote.rkey, invalidate: false })
    }

    /// The Connect of a queue with its data in the region.
    fn connect_command(&self, cid: u16, qid: u16, entries: u16) -> Option<Command> {
        self.region.write_from(0, &self.connect_data(qid)).ok()?;
        let kato_ms = if self.handshake.asks_discovery { 0 } else { self.settings.keep_alive_ms };
        let connect = Connect { qid, sqsize: entries - 1, cattr: 0, kato_ms };
        Some(connect.command(cid, self.page(DATA_BYTES)?))
    }

    fn connect_data(&self, qid: u16) -> [u8; DATA_BYTES] {
        let discovery = Nqn::new(DISCOVERY_NQN).ok().filter(|_| self.handshake.asks_discovery);
        let data = ConnectData {
            host_id: host_id(&self.host),
            cntlid: if qid == 0 { CNTLID_ANY } else { self.handshake.cntlid },
            subsystem: discovery.unwrap_or(self.subsystem),
            host: self.host,
        };
        data.to_bytes()
    }

    pub(crate) fn send_admin(&mut self, command: &Command, out: &mut Outputs<'_>) {
        let (Some(connection), Some(mut packet)) = (self.admin, out.alloc()) else {
            return self.fail("the initiator has no packet for an admin command: give its pool more".to_owned());
        };
        if packet.fill(&command.to_bytes()) {
            packet.set_connection(Some(connection));
            out.send(ADMIN, packet);
        }
    }

    /// Takes a response of the admin queue. False if the packet is not one.
    pub(crate) fn admin_answered(&mut self, from: ConnectionId, packet: &Packet, out: &mut Outputs<'_>) -> bool {
        let Ok(response) = Response::read(packet.data()) else { return false };
        if self.admin != Some(from) {
            return true;
        }
        match response.cid {
            cid if cid == self.handshake.cid && self.handshake.step != Step::Done => self.step_done(&response, out),
            _ => self.standing_answered(&response, out),
        }
        true
    }

    fn step_done(&mut self, response: &Response, out: &mut Outputs<'_>) {
        let step = self.handshake.step;
        if step == Step::Connect && response.status.is(Status::CONNECT_BUSY) {
            // Commands of the controller before this one are still in flight.
            self.handshake.timer = out.arm_timer(out.now_ns() + RETRY_NS, RETRY);
            return;
        }
        if !response.status.is_success() {
            return self.fail(format!("{step:?} ended with {}, {:#x}", response.status, response.result));
        }
        if step == Step::Leaving {
            self.handshake.is_discovered = true;
            self.admin.map(|connection| out.close(connection));
            return;
        }
        match self.learn(step, response) {
            Ok(Step::Done) => self.begin_load(out),
            Ok(next) => self.ask(next, out),
            Err(why) => self.fail(format!("{step:?}: {why}")),
        }
    }

    /// Takes the result of a step, and returns the next step.
    fn learn(&mut self, step: Step, response: &Response) -> Result<Step, String> {
        let is_discovery = self.handshake.asks_discovery;
        let mut page = [0; 4096];
        self.region.read_into(0, &mut page).map_err(|error| error.to_string())?;
        Ok(match step {
            Step::Connect => {
                self.handshake.cntlid = response.result as u16;
                if self.must_authenticate(response)? {
                    let transaction = self.next_transaction();
                    self.handshake.message = Some(Initiator::negotiation(transaction));
                    Step::Authenticate(AuthStep::Negotiate)
                } else {
                    Step::Capabilities
                }
            }
            Step::Authenticate(auth_step) => self.learn_auth_step(auth_step, &page)?,
            Step::Capabilities => {
                self.handshake.entries_max = property::entries_max(response.result);
                let entries = u32::from(self.settings.depth) + 1;
                if entries > self.handshake.entries_max && !is_discovery {
                    let most = self.handshake.entries_max;
                    return Err(format!("queues of {entries} entries; the controller has {most}: lower load.depth"));
                }
                Step::Enable
            }
            Step::Enable => Step::Ready,
            Step::Ready if response.result as u32 & property::CSTS_READY == 0 => Step::Ready,
            Step::Ready => Step::Identify,
            Step::Identify => {
                self.identified(&page)?;
                if is_discovery { Step::DiscoveryHead } else { Step::Queues }
            }
            Step::DiscoveryHead => {
                let (_, entries) = discovery::read_head(&page).ok_or("it is no discovery log")?;
                if entries == 0 {
                    return Err("the discovery log is empty".to_owned());
                }
                Step::DiscoveryLog
            }
            Step::DiscoveryLog => {
                let mut entries = page[discovery::ENTRY_BYTES..].chunks_exact(discovery::ENTRY_BYTES);
                if !entries
                    .any(|entry| DiscoveryEntry::read(entry).is_ok_and(|entry| entry.subsystem == self.subsystem))
                {
                    return Err(format!("{} is not in the discovery log", self.subsystem));
                }
                Step::Leaving
            }
            Step::Leaving => Step::Leaving,
            Step::Queues => {
                let granted = QueueCount::from_dword(response.result as u32);
                let (granted, wanted) = (usize::from(granted.submission_less_one) + 1, self.queues.len());
                if granted < wanted {
                    return Err(format!("the controller gives {granted} I/O queues; the plan has {wanted}"));
                }
                Step::Namespaces
            }
            Step::Namespaces => {
                if !namespace::read_list(&page).any(|nsid| nsid == self.settings.nsid) {
                    return Err(format!("the subsystem has no namespace {}", self.settings.nsid));
                }
                Step::Namespace
            }
            Step::Namespace => {
                self.namespace_known(&Namespace::read(&page).map_err(|error| error.to_string())?)?;
                Step::Descriptors
            }
            Step::Descriptors => {
                namespace::read_name(&page).ok_or("the namespace has no name: no EUI-64, NGUID or UUID")?;
                Step::Events
            }
            Step::Events | Step::Done | Step::Nothing => Step::Done,
        })
    }

    fn identified(&mut self, page: &[u8]) -> Result<(), String> {
        let controller = identify::Controller::read(page).map_err(|error| error.to_string())?;
        let transfer_max = 4096_u64.checked_shl(controller.mdts.into()).filter(|_| controller.mdts > 0);
        let bytes = self.settings.slot_bytes();
        if transfer_max.is_some_and(|most| bytes as u64 > most) && !self.handshake.asks_discovery {
            return Err(format!("commands of {bytes} bytes; the controller takes {}", transfer_max.unwrap_or(0)));
        }
        self.handshake.capsule_bytes = controller.capsule_bytes;
        Ok(())
    }

    /// Sets up the oracle for the blocks of the namespace, the first time.
    fn namespace_known(&mut self, namespace: &Namespace) -> Result<(), String> {
        let unit = u64::from(self.settings.block_bytes);
        let held = namespace.blocks.saturating_mul(1 << namespace.block_shift);
        let bytes = if self.settings.bytes == 0 { held } else { self.settings.bytes.min(held) };
        let units = bytes / unit;
        // The number of blocks comes from the target, which must not decide how much memory is
        // allocated.
        if units > ORACLE_BLOCKS_MAX {
            return Err(format!(
                "the namespace says that it has {units} blocks of {unit} bytes, and {ORACLE_BLOCKS_MAX} can be kept \
                 account of: write `bytes` in [load], how much of it is used"
            ));
        }
        if unit >> namespace.block_shift == 0 || units == 0 {
            let block = 1_u64 << namespace.block_shift;
            return Err(format!("reads of {unit} bytes of {bytes}, in blocks of {block}: nothing could be read"));
        }
        let (nsid, guards, block_shift) = (self.settings.nsid, self.settings.protection, namespace.block_shift);
        let protection = namespace.protection.map(|kind| Protection { kind, block_bytes: 1 << block_shift });
        match (&protection, guards) {
            (Some(_), Guards::None) => {
                return Err(format!(
                    "namespace {nsid} has protection information: write `protection = \"host\"` or `\"target\"`"
                ));
            }
            (None, Guards::Host | Guards::Target) => {
                return Err(format!("namespace {nsid} has no protection information: leave out load.protection"));
            }
            _ => {}
        }
        self.handshake.shape = Shape { len: unit as usize, block_shift, protection, guards };
        if self.oracle.as_ref().is_none_or(|oracle| oracle.len() as u64 != units) {
            self.oracle = Some(Oracle::new(units as usize));
            self.filled = 0;
        }
        Ok(())
    }

    /// Ends the handshake: the I/O queues connect.
    fn begin_load(&mut self, out: &mut Outputs<'_>) {
        self.handshake.step = Step::Done;
        self.lost_ns = None;
        self.count(|counts| counts.connected += 1);
        self.begin_standing(out);
        self.connect_queues(out);
    }

    /// Connects the I/O queues that have a connection, if there is a controller for them.
    pub(crate) fn connect_queues(&mut self, out: &mut Outputs<'_>) {
        if !self.handshake.is_done() || self.is_over() {
            return;
        }
        for index in 0..self.queues.len() {
            let queue = &mut self.queues[index];
            let Some(connection) = queue.connection.filter(|_| queue.state == State::Open) else { continue };
            let pending = Pending { task: Task::Connect, began_ns: out.now_ns(), key: None };
            let Some(cid) = queue.begin(pending) else { continue };
            queue.state = State::Connecting;
            let qid = index as u16 + 1;
            let data = self.connect_data(qid);
            let connect = Connect { qid, sqsize: self.settings.depth, cattr: 0, kato_ms: 0 };
            let command = connect.command(cid, Sgl::InCapsule { offset: 0, len: DATA_BYTES as u32 });
            let Some(mut packet) = out.alloc() else { continue };
            if packet.fill(&command.to_bytes())
                && packet.append(DATA_BYTES).map(|place| place.copy_from_slice(&data)).is_some()
            {
                packet.set_connection(Some(connection));
                out.send(IO, packet);
            } else {
                self.fail(
                    "a packet of the initiator's pool has no room for the data of Connect: 1,088 bytes".to_owned(),
                );
            }
        }
    }

    pub(crate) fn retry_due(&mut self, out: &mut Outputs<'_>) {
        if self.handshake.step == Step::Connect && !self.is_over() {
            self.ask(Step::Connect, out);
        }
    }
}

fn set_feature(cid: u16, number: u8, value: u32) -> Command {
    Command::new(opcode::admin::SET_FEATURES, cid, Sgl::NONE).with([number.into(), value, 0, 0, 0, 0])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Settings;

    #[test]
    fn a_hosts_number_is_its_own() {
        let id = |name: &str| host_id(&Settings::name(name));
        assert_eq!(id("nqn.2026-01.a:b"), id("nqn.2026-01.a:b"));
        assert_ne!(id("nqn.2026-01.a:b"), id("nqn.2026-01.a:c"));
    }
}
