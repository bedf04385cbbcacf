//! A fake target made of the test's own queue pairs: it has one block, and answers a load as the
//! test says.

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use verbline::mem::Batch;
use verbline::verbs::connection::{ConnectOptions, Listener};
use verbline::verbs::rdma::Remote;
use verbline::verbs::{Access, Provider, QpSpec, SendOptions, Transport};
use verbline_nvme::cm;
use verbline_nvme::feature::{self, QueueCount};
use verbline_nvme::identify::{Controller, ControllerType, PAGE_BYTES, cns, optional};
use verbline_nvme::namespace::{self, Names, Namespace};
use verbline_nvme::property;
use verbline_nvme::{COMMAND_BYTES, Command, Nqn, Response, Sgl, Status, opcode};

use super::{ENTRIES, Host, Queue, SUBSYSTEM};

/// Bytes of its block.
pub(crate) const BLOCK: usize = 4096;

/// The faults of the fake target.
#[derive(Clone, Copy)]
pub(crate) struct Lies {
    /// The part of the block that a Read sends, by the number of Reads since the last write, this
    /// one included.
    pub(crate) sends: fn(u32) -> Range<usize>,
    /// These commands fail, on any queue.
    pub(crate) refuses: &'static [u8],
    /// These commands of the admin queue get no answer.
    pub(crate) ignores: &'static [u8],
}

/// The requests that it received.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Asked {
    pub(crate) event_requests: u32,
    pub(crate) keep_alives: u32,
    pub(crate) connections: u32,
}

/// A fake target serving on a thread of its own.
pub(crate) struct Serving {
    is_over: Arc<AtomicBool>,
    is_deaf: Arc<AtomicBool>,
    asked: Arc<Mutex<Asked>>,
    thread: JoinHandle<()>,
}

struct Liar {
    host: Host,
    lies: Lies,
    /// The numbers of its queues.
    qids: Vec<u16>,
    block: Vec<u8>,
    /// Reads since the last write.
    reads: u32,
    asked: Arc<Mutex<Asked>>,
}

impl Serving {
    /// Serves at this port until its end.
    pub(crate) fn begin(port: u16, lies: Lies) -> Serving {
        let address = SocketAddr::from(([10, 9, 9, 1], port));
        let mut listener = Listener::bind(Provider::Soft, address, 8).expect("it listens");
        let is_over = Arc::new(AtomicBool::new(false));
        let is_deaf = Arc::new(AtomicBool::new(false));
        let asked = Arc::new(Mutex::new(Asked::default()));
        let (ends, pauses, notes) = (Arc::clone(&is_over), Arc::clone(&is_deaf), Arc::clone(&asked));
        let thread = std::thread::spawn(move || {
            let host = Host::at(port, 1);
            let (qids, block) = (Vec::new(), vec![0; BLOCK]);
            let mut liar = Liar { host, lies, qids, block, reads: 0, asked: notes };
            while !ends.load(Ordering::Relaxed) {
                if !pauses.load(Ordering::Relaxed) {
                    liar.turn(&mut listener);
                }
                // The thread may share its CPU.
                std::thread::yield_now();
            }
        });
        Serving { is_over, is_deaf, asked, thread }
    }

    /// Takes no more commands.
    pub(crate) fn go_deaf(&self) {
        self.is_deaf.store(true, Ordering::Relaxed);
    }

    /// The requests so far.
    pub(crate) fn asked(&self) -> Asked {
        *self.asked.lock().expect("it serves")
    }

    pub(crate) fn end(self) -> Asked {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().expect("it served");
        *self.asked.lock().expect("it served")
    }
}

impl Liar {
    fn turn(&mut self, listener: &mut Listener) {
        if let Some(request) = listener.next(Duration::ZERO).expect("it listens") {
            let asked = cm::Request::read(request.private_data()).expect("it is said");
            let depth = u32::from(ENTRIES) * 4;
            let tag = self.qids.len() as u16 + 1;
            let spec = QpSpec {
                tx_depth_wr: depth,
                rx_depth_wr: depth,
                signal_every_wr: 1,
                tag,
                ..QpSpec::new(Transport::Rc, &self.host.cq)
            };
            let mut qp = self.host.pd.create_qp(&spec).expect("a queue pair");
            let access = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
            let connection = request.accept(&mut qp, &ConnectOptions { access, ..ConnectOptions::default() });
            let mut batch = Batch::with_capacity(depth as usize);
            self.host.cache.get_bulk(&mut batch, depth as usize);
            assert!(qp.post_recv(&mut batch).posted > 0);
            let connection = connection.expect("it is accepted");
            self.host.queues.push(Queue { tag, qp, connection, got: Vec::new(), is_deaf: false });
            self.asked.lock().expect("nobody panics with it").connections += 1;
            self.qids.push(asked.qid);
        }
        self.host.poll();
        for queue in 0..self.qids.len() {
            for capsule in std::mem::take(&mut self.host.queues[queue].got) {
                let command = Command::read(&capsule).expect("a command");
                self.answer(queue, &command, &capsule[COMMAND_BYTES..]);
            }
        }
    }

    fn answer(&mut self, queue: usize, command: &Command, data: &[u8]) {
        let is_admin = self.qids[queue] == 0;
        let mut result = 0;
        let mut status = Status::SUCCESS;
        {
            let mut asked = self.asked.lock().expect("nobody panics with it");
            asked.event_requests += u32::from(is_admin && command.opcode == opcode::admin::ASYNC_EVENT_REQUEST);
            asked.keep_alives += u32::from(is_admin && command.opcode == opcode::admin::KEEP_ALIVE);
        }
        match (command.opcode, is_admin) {
            (refused, _) if self.lies.refuses.contains(&refused) => {
                status = Status::INVALID_OPCODE.do_not_retry();
            }
            (ignored, true) if self.lies.ignores.contains(&ignored) => return,
            // An event request waits for ever.
            (opcode::admin::ASYNC_EVENT_REQUEST, true) => return,
            (opcode::fabrics::OPCODE, _) => result = fabrics(command),
            (opcode::admin::IDENTIFY, true) => self.write(queue, command, &page(command.cdw10[0] as u8)),
            (opcode::admin::SET_FEATURES, true) if command.cdw10[0] as u8 == feature::NUMBER_OF_QUEUES => {
                let one = QueueCount { submission_less_one: 0, completion_less_one: 0 };
                result = one.to_dword().into();
            }
            (opcode::io::WRITE, false) => (self.block, self.reads) = (data.to_vec(), 0),
            (opcode::io::READ, false) => {
                self.reads += 1;
                let part = (self.lies.sends)(self.reads);
                let bytes = self.block[part.clone()].to_vec();
                self.write_at(queue, command, part.start as u64, &bytes);
            }
            _ => {}
        }
        let response = Response { result, sq_head: 0, sq_id: self.qids[queue], cid: command.cid, status };
        self.host.send(queue, &response.to_bytes());
    }

    fn write(&mut self, queue: usize, command: &Command, bytes: &[u8]) {
        self.write_at(queue, command, 0, bytes);
    }

    /// Writes into the memory of a command, at `offset`.
    fn write_at(&mut self, queue: usize, command: &Command, offset: u64, bytes: &[u8]) {
        let Sgl::Keyed { addr, key, .. } = command.sgl else { panic!("{command:?} has memory") };
        if bytes.is_empty() {
            return;
        }
        let mut packet = self.host.cache.get().expect("a packet");
        assert!(packet.fill(bytes));
        let to = Remote { addr: addr + offset, rkey: key };
        let qp = &mut self.host.queues[queue].qp;
        assert!(qp.rc().expect("it is RC").write(packet, to, SendOptions::default()).is_ok());
    }
}

/// The result of Connect and of the properties.
fn fabrics(command: &Command) -> u64 {
    match (command.nsid as u8, command.cdw10[1]) {
        (opcode::fabrics::CONNECT, _) => 1,
        (opcode::fabrics::PROPERTY_GET, property::CAP) => property::cap(128),
        (opcode::fabrics::PROPERTY_GET, property::CSTS) => property::CSTS_READY.into(),
        _ => 0,
    }
}

/// A page of Identify.
fn page(asked: u8) -> [u8; PAGE_BYTES] {
    let mut page = [0; PAGE_BYTES];
    match asked {
        cns::CONTROLLER => Controller {
            serial: "LIAR".to_owned(),
            model: "LIAR".to_owned(),
            firmware: "1".to_owned(),
            mdts: 0,
            cntlid: 1,
            version: property::version(1, 4, 0),
            async_events: 0,
            kind: ControllerType::Io,
            aerl: 3,
            elpe: 0,
            kas: 1,
            max_commands: 128,
            namespaces_max: 1,
            commands: optional::COMPARE,
            has_write_cache: true,
            capsule_bytes: (COMMAND_BYTES + BLOCK) as u32,
            subsystem: Nqn::new(SUBSYSTEM).expect("a name"),
        }
        .write(&mut page),
        cns::ACTIVE_NAMESPACES => namespace::write_list(&mut page, [1].into_iter(), 0),
        cns::NAMESPACE => {
            let (nguid, eui64, protection) = (None, None, None);
            Namespace { blocks: 1, block_shift: 12, is_read_only: false, nguid, eui64, protection }.write(&mut page);
        }
        _ => namespace::write_descriptors(&mut page, &Names { uuid: [7; 16], nguid: None, eui64: None }),
    }
    page
}
