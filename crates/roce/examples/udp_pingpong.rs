//! Two processes, no card, no rights: a reliable connection over plain UDP sockets.
//!
//!     udp_pingpong server 127.0.0.2
//!     udp_pingpong client 127.0.0.1 127.0.0.2 [COUNT] [BYTES]
//!     udp_pingpong both 127.0.0.1 127.0.0.2 [COUNT] [BYTES]
//!
//! `both` starts the other process itself. The server listens on UDP port 4791 of its address, as
//! RoCE v2 does, and echoes each message that a queue pair receives. The client connects by
//! `rdma_cm`'s messages and prints the time of half a round trip. `bare-server` and `bare-client`
//! do the same with bare datagrams, for comparison. This is no full link: one datagram a call, and
//! both sides spin. Checksums of received packets are not checked, because a socket doesn't give
//! the headers that they cover.

use std::collections::hash_map::RandomState;
use std::env;
use std::hash::{BuildHasher, Hasher};
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::process::Command;
use std::time::Instant;

use verbline_roce::cm::{Accept, Connect, Event, Limits, Manager, PortSpace, packet_of};
use verbline_roce::transport::{
    Arrival, Capacity, Icrc, Mtu, Peer, QueuePair, Receives, Receiving, Retries, Rights, Sending, Serving,
};
use verbline_roce::wire::{Addresses, AtomicOp, Psn, Qpn, ROCE_PORT, Route, SendEnd};
use verbline_roce::{
    Completed, Completion, Data, Denied, Engine, Memory, Operation, Owner, Place, Received, SendRequest, Sge, Status,
};

const SERVICE_PORT: u16 = 18515;
const DEPTH: usize = 16;
const MESSAGE_MAX: usize = 1 << 20;
type Failure = Box<dyn std::error::Error>;

/// One buffer at address 0: the front half is sent, the back half received into.
struct Buffer(Vec<u8>);

impl Memory for Buffer {
    fn read(&mut self, from: Place, out: &mut [u8]) -> Result<(), Denied> {
        let at = from.addr as usize;
        out.copy_from_slice(self.0.get(at..at + out.len()).ok_or(Denied)?);
        Ok(())
    }

    fn write(&mut self, to: Place, bytes: &[u8]) -> Result<(), Denied> {
        let at = to.addr as usize;
        self.0.get_mut(at..at + bytes.len()).ok_or(Denied)?.copy_from_slice(bytes);
        Ok(())
    }

    fn check(&mut self, _: Place, _: u64) -> Result<(), Denied> {
        Err(Denied)
    }

    fn atomic(&mut self, _: Place, _: AtomicOp) -> Result<u64, Denied> {
        Err(Denied)
    }

    fn invalidate(&mut self, _: Owner, _: u32) -> Result<(), Denied> {
        Err(Denied)
    }
}

/// A process's end: its socket, its queue pair, its connection.
struct End {
    own: IpAddr,
    socket: UdpSocket,
    begun: Instant,
    engine: Engine,
    manager: Manager,
    memory: Buffer,
    management_psn: Psn,
    buffer: Vec<u8>,
}

/// A number that nobody can guess.
fn random() -> u32 {
    RandomState::new().build_hasher().finish() as u32
}

impl End {
    fn new(own: IpAddr) -> Result<End, Failure> {
        let socket = UdpSocket::bind((own, ROCE_PORT))?;
        socket.set_nonblocking(true)?;
        Ok(End {
            own,
            socket,
            begun: Instant::now(),
            engine: Engine::new(),
            manager: Manager::new(Limits::default()),
            memory: Buffer(vec![7; 2 * MESSAGE_MAX]),
            management_psn: Psn::new(random()),
            buffer: vec![0; 1 << 16],
        })
    }

    fn now_ns(&self) -> u64 {
        self.begun.elapsed().as_nanos() as u64
    }

    fn route(&self, peer: IpAddr) -> Result<Route, Failure> {
        let addresses = Addresses::new(self.own, peer).ok_or("both addresses must be IPv4, or both IPv6")?;
        Ok(Route { addresses, source_port: ROCE_PORT, traffic_class: 0 })
    }

    /// Receives the datagrams that have come, and sends those that are due.
    fn turn(&mut self) -> Result<(), Failure> {
        let now_ns = self.now_ns();
        loop {
            match self.socket.recv_from(&mut self.buffer) {
                Ok((len, from)) => self.arrived(now_ns, len, from),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                // An earlier datagram reached a port at which nobody listened.
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.engine.advance(now_ns);
        self.manager.advance(now_ns);
        while let Some(outgoing) = self.manager.transmit() {
            let route = self.route(outgoing.to)?;
            let len = packet_of(&outgoing.mad, self.management_psn).write(&mut self.buffer, &route, 0);
            self.management_psn = self.management_psn.plus(1);
            self.send(&route, len)?;
        }
        while let Some(sent) = self.engine.transmit(now_ns, &mut self.memory, &mut self.buffer, 0) {
            self.send(&sent.route, sent.len)?;
        }
        Ok(())
    }

    fn arrived(&mut self, now_ns: u64, len: usize, from: SocketAddr) {
        let Some(addresses) = Addresses::new(from.ip(), self.own) else { return };
        let route = Route { addresses, source_port: from.port(), traffic_class: 0 };
        let arrival = Arrival { route, icrc: Icrc::Unknown };
        let datagram = &self.buffer[..len];
        if let Received::Management(management) = self.engine.receive(now_ns, arrival, datagram, &mut self.memory) {
            // The example does not count discarded messages.
            let _ = self.manager.receive(now_ns, random(), from.ip(), management.payload);
        }
    }

    fn send(&self, route: &Route, len: usize) -> Result<(), Failure> {
        match self.socket.send_to(&self.buffer[..len], (route.addresses.destination(), ROCE_PORT)) {
            // Counts as a datagram lost on the way.
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => Ok(()),
            sent => sent.map(|_| ()).map_err(Failure::from),
        }
    }

    /// Opens a queue pair of this number, connected, with receives posted.
    fn open(&mut self, qpn: Qpn, to: IpAddr, peer_qpn: Qpn, [receives, sends]: [Psn; 2]) -> Result<(), Failure> {
        let capacity = Capacity { sends: DEPTH, send_sges: 1, inline_bytes: 0, receive_sges: 1 };
        let owner = Owner { domain: 0, qpn };
        let mut queue_pair = QueuePair::new(owner, Rights::default(), capacity, Receives::Own(DEPTH));
        let peer = Peer { route: self.route(to)?, qpn: peer_qpn, psn: receives, mtu: Mtu::B1024 };
        queue_pair.receive_from(Receiving::Rc(peer, Serving::default()))?;
        queue_pair.start_sending(Sending::Rc(sends, Retries::default()))?;
        self.engine.add(queue_pair)?;
        (0..DEPTH).try_for_each(|_| self.post_receive(qpn))
    }

    fn post_receive(&mut self, qpn: Qpn) -> Result<(), Failure> {
        let sge = Sge { addr: MESSAGE_MAX as u64, len: MESSAGE_MAX as u32, key: 0 };
        Ok(self.engine.post_receive(qpn, 0, &[sge]).ok_or("no queue pair")??)
    }

    fn post_send(&mut self, qpn: Qpn, len: u32) -> Result<(), Failure> {
        let operation = Operation::Send(SendEnd::Plain);
        let data = Data::Memory(&[Sge { addr: 0, len, key: 0 }]);
        let request = SendRequest { id: 0, operation, data, signaled: true, solicited: false, fence: false };
        Ok(self.engine.post_send(qpn, &request).ok_or("no queue pair")??)
    }

    /// The next message, if one has come.
    fn message(&mut self) -> Result<Option<(Qpn, Completion)>, Failure> {
        while let Some((qpn, completion)) = self.engine.poll() {
            if completion.status != Status::Success {
                return Err(format!("a work request ended with {:?}", completion.status).into());
            }
            if matches!(completion.completed, Completed::Receive(_)) {
                self.post_receive(qpn)?;
                return Ok(Some((qpn, completion)));
            }
        }
        Ok(None)
    }
}

fn server(own: IpAddr) -> Result<(), Failure> {
    let mut end = End::new(own)?;
    end.manager.listen(PortSpace::Reliable.service_of_port(SERVICE_PORT));
    println!("listening on {own}");
    loop {
        end.turn()?;
        while let Some((qpn, message)) = end.message()? {
            end.post_send(qpn, message.bytes)?;
        }
        match end.manager.poll() {
            Some(Event::Requested(id, request)) => {
                let peer = request.ip().ok_or("the request has no addresses")?;
                let from = match peer {
                    verbline_roce::cm::IpHeader::V4 { source, .. } => source.into(),
                    verbline_roce::cm::IpHeader::V6 { source, .. } => source.into(),
                };
                let (qpn, psn) = (Qpn::new(2 + random() % 0xFF_FFF0), Psn::new(random()));
                end.open(qpn, from, request.qpn, [psn, request.starting_psn])?;
                let now_ns = end.now_ns();
                end.manager.accept(now_ns, id, &Accept::new(qpn, psn, b""))?;
            }
            Some(Event::Disconnected(_)) => {
                // Once more, so that the other side hears of it.
                return end.turn();
            }
            _ => {}
        }
    }
}

fn client(own: IpAddr, to: IpAddr, count: usize, bytes: u32) -> Result<(), Failure> {
    let mut end = End::new(own)?;
    let (qpn, psn) = (Qpn::new(2 + random() % 0xFF_FFF0), Psn::new(random()));
    let connect = Connect::new(own, to, SERVICE_PORT, qpn, psn, Mtu::B1024, b"")?;
    let id = end.manager.connect(end.now_ns(), random(), &connect)?;
    loop {
        end.turn()?;
        match end.manager.poll() {
            Some(Event::Replied(_, reply)) => {
                end.open(qpn, to, reply.qpn, [psn, reply.starting_psn])?;
                end.manager.establish(end.now_ns(), id)?;
                break;
            }
            Some(event) => return Err(format!("no connection: {event:?}").into()),
            None => {}
        }
    }
    let mut half_trips_ns = Vec::with_capacity(count);
    for _ in 0..count {
        let begun = Instant::now();
        end.post_send(qpn, bytes)?;
        while end.message()?.is_none() {
            end.turn()?;
        }
        half_trips_ns.push(begun.elapsed().as_nanos() as u64 / 2);
    }
    report("RC SEND", bytes, &mut half_trips_ns);
    println!("{:?}", end.engine.queue_pair(qpn).ok_or("no queue pair")?.counters());
    end.manager.disconnect(end.now_ns(), id)?;
    while !matches!(end.manager.poll(), Some(Event::Disconnected(_))) {
        end.turn()?;
    }
    Ok(())
}

fn report(what: &str, bytes: u32, half_trips_ns: &mut [u64]) {
    half_trips_ns.sort_unstable();
    let at = |percent: usize| half_trips_ns.get(half_trips_ns.len() * percent / 100).map_or(0, |ns| *ns);
    println!("{what}, {bytes} bytes one way: median {} ns, 99th percentile {} ns", at(50), at(99));
}

fn bare_socket(own: IpAddr) -> Result<UdpSocket, Failure> {
    let socket = UdpSocket::bind((own, ROCE_PORT))?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

fn bare_receive(socket: &UdpSocket, buffer: &mut [u8]) -> Result<(usize, SocketAddr), Failure> {
    loop {
        match socket.recv_from(buffer) {
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::ConnectionRefused) => {}
            received => return received.map_err(Failure::from),
        }
    }
}

/// Ends with an empty datagram.
fn bare_server(own: IpAddr) -> Result<(), Failure> {
    let (socket, mut buffer) = (bare_socket(own)?, vec![0; 1 << 16]);
    loop {
        let (len, from) = bare_receive(&socket, &mut buffer)?;
        if len == 0 {
            return Ok(());
        }
        socket.send_to(&buffer[..len], from)?;
    }
}

fn bare_client(own: IpAddr, to: IpAddr, count: usize, bytes: u32) -> Result<(), Failure> {
    // A RoCE packet's headers are as long.
    let (socket, mut buffer, len) = (bare_socket(own)?, vec![7; 1 << 16], bytes as usize + 16);
    let mut half_trips_ns = Vec::with_capacity(count);
    for _ in 0..count {
        let begun = Instant::now();
        socket.send_to(&buffer[..len], (to, ROCE_PORT))?;
        bare_receive(&socket, &mut buffer)?;
        half_trips_ns.push(begun.elapsed().as_nanos() as u64 / 2);
    }
    socket.send_to(&[], (to, ROCE_PORT))?;
    report("bare datagrams", bytes, &mut half_trips_ns);
    Ok(())
}

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let numbers = |rest: &[&str]| -> Result<(usize, u32), Failure> {
        let count = rest.first().map_or(Ok(10_000), |text| text.parse())?;
        let bytes = rest.get(1).map_or(Ok(64), |text| text.parse())?;
        if bytes > MESSAGE_MAX as u32 || rest.len() > 2 {
            return Err(format!("COUNT and BYTES, up to {MESSAGE_MAX}").into());
        }
        Ok((count, bytes))
    };
    match words[..] {
        ["server", own] => server(own.parse()?),
        ["client", own, to, ref rest @ ..] => {
            let (count, bytes) = numbers(rest)?;
            client(own.parse()?, to.parse()?, count, bytes)
        }
        ["both", own, to, ref rest @ ..] => {
            let (count, bytes) = numbers(rest)?;
            let mut other = Command::new(env::current_exe()?).args(["server", to]).spawn()?;
            let ended = client(own.parse()?, to.parse()?, count, bytes);
            if ended.is_err() {
                other.kill()?;
            }
            let status = other.wait()?;
            ended.and_then(|()| if status.success() { Ok(()) } else { Err(format!("the server: {status}").into()) })
        }
        ["bare-server", own] => bare_server(own.parse()?),
        ["bare-client", own, to, ref rest @ ..] => {
            let (count, bytes) = numbers(rest)?;
            bare_client(own.parse()?, to.parse()?, count, bytes)
        }
        _ => Err("usage: udp_pingpong [bare-]server ADDRESS | [bare-]client|both ADDRESS PEER [COUNT] [BYTES]".into()),
    }
}
