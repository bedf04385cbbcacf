//! RDMA ping-pong over a connection by IP address, in the protocol of rdma-core's `rping`; it
//! interoperates with either side.
//!
//! ```text
//!   client                                     server
//!     SEND   where the ping is    ───────────▶
//!            ping                 ◀─────────── RDMA READ
//!                                 ◀─────────── SEND   go ahead
//!     SEND   where the pong goes  ───────────▶
//!            pong                 ◀─────────── RDMA WRITE of what was read
//!                                 ◀─────────── SEND   go ahead, from the start
//! ```
//! Only the safe API of the crate is used. Run `rping --server` at one end and `rping --client -a
//! ADDRESS` at the other.
#![forbid(unsafe_code)]

mod side;

use std::error::Error;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser};
use verbline_verbs::connection::{ConnectOptions, Connection, Listener, Request, resolve};
use verbline_verbs::{Access, Context, Device, InitSpec, Provider, SendOptions};

use side::{Advert, Event, Side};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Like rping(1): the largest ping, and the smallest that holds its number.
const MAX_PING_BYTES: u32 = 64 * 1024 - 1;
const MIN_PING_BYTES: u32 = 26;

/// Time limit for each step of connecting.
const PATIENCE: Duration = Duration::from_secs(20);

/// RDMA ping-pong in the protocol of rdma-core's rping.
#[derive(Parser)]
#[command(name = "rping")]
struct Options {
    #[command(flatten)]
    role: Role,
    /// Where to listen, or whom to connect to
    #[arg(short = 'a', long, default_value_t = IpAddr::V4(Ipv4Addr::UNSPECIFIED), required_if_eq("client", "true"))]
    address: IpAddr,
    /// The port there
    #[arg(short, long, default_value_t = 7174)]
    port: u16,
    /// Pings; the client runs for ever without it, the server fails if its client leaves before
    #[arg(short = 'C', long)]
    count: Option<u32>,
    /// Length of a ping, bytes (client)
    #[arg(
        short = 'S', long, default_value_t = 64,
        value_parser = clap::value_parser!(u32).range(MIN_PING_BYTES as i64..=MAX_PING_BYTES as i64)
    )]
    size: u32,
    /// Speaks RoCE v2 over UDP from this address of the host, with no RDMA device of the kernel's
    #[arg(short, long, value_name = "ADDRESS")]
    wire: Option<IpAddr>,
    /// Prints each ping
    #[arg(short, long)]
    verbose: bool,
}

#[derive(Args)]
#[group(required = true, multiple = false)]
struct Role {
    /// Waits for one client and serves it until it leaves
    #[arg(short, long)]
    server: bool,
    /// Pings a server, and fails unless what comes back is what went out
    #[arg(short, long)]
    client: bool,
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(pings) => {
            println!("{pings} pings");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("rping: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Outcome<u32> {
    let address = SocketAddr::new(options.address, options.port);
    // A software device keeps its address while it is open.
    let wire = options.wire.map(software_device).transpose()?;
    let provider = if wire.is_some() { Provider::Soft } else { Provider::Kernel };
    if options.role.server {
        serve(provider, &mut Listener::bind(provider, address, 1)?, options)
    } else {
        ping(provider, address, options)
    }
}

/// The software device, with an address in the network.
fn software_device(address: IpAddr) -> Outcome<Context> {
    let device = Device::find(Provider::Soft, "soft0")?.open()?;
    device.set_address(address)?;
    Ok(device)
}

/// The client: sends the given number of pings. Returns their number.
fn ping(provider: Provider, server: SocketAddr, options: &Options) -> Outcome<u32> {
    let route = resolve(provider, server, None, PATIENCE)?;
    let mut side = Side::new(provider, route.device_name())?;
    let source = side.register("ping", options.size, Access::REMOTE_READ)?;
    let sink = side.register("pong", options.size, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
    let access = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
    let connecting = route.connect(&mut side.qp, &ConnectOptions { access, ..ConnectOptions::default() })?;
    side.post_receives()?;
    let mut connection = connecting.finish(&mut side.qp, PATIENCE)?;

    let mut pings = 0;
    let mut pong = vec![0; options.size as usize];
    while options.count.is_none_or(|count| pings < count) {
        let ping = text(pings, options.size);
        source.write_from(0, &ping)?;
        // The READ and the WRITE are over when the server's go-ahead arrives.
        for part in [&source, &sink] {
            side.send(Advert { at: part.remote(0), len_bytes: options.size })?;
            expect_advert(&mut side, &mut connection)?.ok_or("the server left in the middle of a ping")?;
        }
        sink.read_into(0, &mut pong)?;
        if pong != ping {
            return Err(format!("ping {pings} came back as another: {}", printable(&pong)).into());
        }
        if options.verbose {
            println!("ping data: {}", printable(&pong));
        }
        pings += 1;
    }
    connection.disconnect(&mut side.qp)?;
    Ok(pings)
}

/// The server: serves one client until it leaves. Returns the number of pings.
fn serve(provider: Provider, listener: &mut Listener, options: &Options) -> Outcome<u32> {
    let request = loop {
        if let Some(request) = listener.next(PATIENCE)? {
            break request;
        }
    };
    let mut side = Side::new(provider, request.device_name())?;
    let buffer = side.register("echo", MAX_PING_BYTES, Access::LOCAL_WRITE)?;
    let mut connection = accept(request, &mut side)?;

    let mut pings = 0;
    let signaled = SendOptions { signaled: true, ..SendOptions::default() };
    let slice = |len_bytes| {
        buffer
            .slice(0, len_bytes)
            .ok_or_else(|| format!("{len_bytes} bytes asked; at most {MAX_PING_BYTES} are served"))
    };
    while let Some(ping) = expect_advert(&mut side, &mut connection)? {
        side.qp.rc()?.read(slice(ping.len_bytes)?, ping.at, signaled)?;
        expect_moved(&mut side, &mut connection)?;
        if options.verbose {
            let mut bytes = vec![0; ping.len_bytes as usize];
            buffer.read_into(0, &mut bytes)?;
            println!("server ping data: {}", printable(&bytes));
        }
        // Any message of an advert's length means "go ahead".
        side.send(Advert::default())?;
        let pong = expect_advert(&mut side, &mut connection)?.ok_or("the client left in the middle of a ping")?;
        side.qp.rc()?.write(slice(ping.len_bytes.min(pong.len_bytes))?, pong.at, signaled)?;
        expect_moved(&mut side, &mut connection)?;
        side.send(Advert::default())?;
        pings += 1;
    }
    connection.disconnect(&mut side.qp)?;
    match options.count {
        Some(count) if pings != count => Err(format!("the client left after {pings} pings of {count}").into()),
        _ => Ok(pings),
    }
}

/// Accepts with receives posted: the client sends as soon as it has the answer.
fn accept(request: Request, side: &mut Side) -> Outcome<Connection> {
    side.qp.to_init(&InitSpec { port: request.port(), ..InitSpec::default() })?;
    side.post_receives()?;
    Ok(request.accept(&mut side.qp, &ConnectOptions::default())?)
}

/// The peer's next message; `None` once it has left.
fn expect_advert(side: &mut Side, connection: &mut Connection) -> Outcome<Option<Advert>> {
    match side.next(connection)? {
        Event::Advert(advert) => Ok(Some(advert)),
        Event::Gone => Ok(None),
        Event::Moved => Err("a READ or WRITE completed that nobody waits for".into()),
    }
}

fn expect_moved(side: &mut Side, connection: &mut Connection) -> Outcome<()> {
    match side.next(connection)? {
        Event::Moved => Ok(()),
        Event::Advert(_) => Err("the client spoke out of turn".into()),
        Event::Gone => Err("the client left in the middle of a ping".into()),
    }
}

/// The text of ping `number`: its number, letters whose start shifts by one each time, and a zero,
/// since rping's server reads the pong as text.
fn text(number: u32, size: u32) -> Vec<u8> {
    let letters = (b'A'..=b'z').cycle().skip(number as usize % usize::from(b'z' - b'A' + 1));
    let mut text: Vec<u8> = format!("rdma-ping-{number}: ").into_bytes();
    text.extend(letters.take((size as usize).saturating_sub(text.len())));
    text.truncate(size as usize - 1);
    text.push(0);
    text
}

fn printable(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    bytes[..end].escape_ascii().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(arguments: &[&str]) -> Options {
        Options::parse_from([&["rping"], arguments].concat())
    }

    fn listener() -> Listener {
        Listener::bind(Provider::Soft, "10.9.9.2:0".parse().unwrap(), 1).unwrap()
    }

    #[test]
    fn client_and_server_talk_over_software_rnics() {
        for size in [MIN_PING_BYTES, 64, MAX_PING_BYTES] {
            let mut listener = listener();
            let address = listener.local_addr();
            let client = std::thread::spawn(move || {
                ping(Provider::Soft, address, &options(&["-c", "-a", "10.9.9.2", "-C", "70", "-S", &size.to_string()]))
            });
            assert_eq!(serve(Provider::Soft, &mut listener, &options(&["-s", "-C", "70"])).unwrap(), 70);
            assert_eq!(client.join().unwrap().unwrap(), 70);
        }
    }

    #[test]
    fn a_client_that_leaves_early_is_told_of() {
        let mut listener = listener();
        let address = listener.local_addr();
        let client = std::thread::spawn(move || {
            ping(Provider::Soft, address, &options(&["-c", "-a", "10.9.9.2", "-C", "2"])).unwrap()
        });
        let error = serve(Provider::Soft, &mut listener, &options(&["-s", "-C", "3"])).unwrap_err();
        assert_eq!(error.to_string(), "the client left after 2 pings of 3");
        assert_eq!(client.join().unwrap(), 2);
    }

    #[test]
    fn a_ping_is_text_of_its_length() {
        assert_eq!(text(0, 26), b"rdma-ping-0: ABCDEFGHIJKL\0");
        assert_eq!(text(1, 26), b"rdma-ping-1: BCDEFGHIJKLM\0");
        assert_eq!(text(u32::MAX, 26).len(), 26);
    }
}
