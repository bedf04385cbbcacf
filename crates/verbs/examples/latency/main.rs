//! Half a round trip over an RC connection by IP address: the measurement of perftest's
//! `ib_send_lat` and `ib_write_lat`, through this crate's safe API and without an engine around it.
//! Each end is a process with one thread, which polls.
//!
//! ```text
//! latency --server                              on CPU 1, say: taskset -c 1
//! latency --client -a ADDRESS --verb send       a message is sent, and sent back as it came
//! latency --client -a ADDRESS --verb write      memory is written, and the other end watches its last eight bytes
//! latency --client -a ADDRESS --rate            messages one way, 128 under way, as ib_send_bw and ib_write_bw
//! ```
//! The client chooses the verb, the message length and the number of exchanges. With `--wire
//! ADDRESS` an end speaks RoCE v2 over a UDP socket, without an RDMA device of the kernel.
#![forbid(unsafe_code)]

mod exchange;
mod rate;
mod side;

use std::error::Error;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, ValueEnum};
use verbline_verbs::connection::Listener;
use verbline_verbs::{Context, Device, Provider};

use exchange::{TIMEOUT, Terms, Times};
use rate::Rate;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Time limit for each step of connecting, and for each message.
const PATIENCE: Duration = Duration::from_secs(20);

/// Half a round trip over RC, SEND or RDMA WRITE.
#[derive(Parser)]
#[command(name = "latency")]
struct Options {
    #[command(flatten)]
    role: Role,
    /// Where to listen, or whom to connect to
    #[arg(short = 'a', long, default_value_t = IpAddr::V4(Ipv4Addr::UNSPECIFIED), required_if_eq("client", "true"))]
    address: IpAddr,
    /// The port there
    #[arg(short, long, default_value_t = 7175)]
    port: u16,
    /// What carries the bytes (client)
    #[arg(long, value_enum, default_value_t = Verb::Send)]
    verb: Verb,
    /// Length of a message, bytes, a multiple of 8 (client)
    #[arg(short, long, default_value_t = 64, value_parser = size)]
    size: u32,
    /// Round trips, or messages with `--rate` (client)
    #[arg(short = 'n', long, default_value_t = 5000, value_parser = clap::value_parser!(u32).range(1..))]
    exchanges: u32,
    /// Messages one way in lists of 16, and bytes a second, in place of round trips (client)
    #[arg(long)]
    rate: bool,
    /// How long an ACK is waited for, 4.096 us times 2 to this, eight times in all (client)
    #[arg(short = 'u', long, default_value_t = TIMEOUT, value_parser = clap::value_parser!(u8).range(1..32))]
    timeout: u8,
    /// Speaks RoCE v2 over UDP from this address of the host, with no RDMA device of the kernel's
    #[arg(long, value_name = "ADDRESS")]
    wire: Option<IpAddr>,
    /// Prints one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
#[group(required = true, multiple = false)]
struct Role {
    /// Waits for one client and answers it
    #[arg(long)]
    server: bool,
    /// Measures
    #[arg(long)]
    client: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Verb {
    Send,
    Write,
}

impl Verb {
    fn word(self) -> &'static str {
        match self {
            Verb::Send => "send",
            Verb::Write => "write",
        }
    }
}

fn size(text: &str) -> Result<u32, String> {
    let bytes: u32 = text.parse().map_err(|_| format!("`{text}` is not a length in bytes"))?;
    match bytes.is_multiple_of(8) && (8..=1 << 20).contains(&bytes) {
        true => Ok(bytes),
        false => Err(format!("{bytes} bytes: from 8 to {} in steps of 8 are possible", 1 << 20)),
    }
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("latency: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the line that reports the measurement.
fn run(options: &Options) -> Outcome<String> {
    let address = SocketAddr::new(options.address, options.port);
    // A software device keeps its address while it is open.
    let wire = options.wire.map(software_device).transpose()?;
    let provider = if wire.is_some() { Provider::Soft } else { Provider::Kernel };
    if options.role.server {
        let terms = exchange::serve(provider, &mut Listener::bind(provider, address, 1)?)?;
        return Ok(format!("{} exchanges answered", terms.exchanges));
    }
    let Options { verb, rate, size: size_bytes, exchanges, timeout, .. } = *options;
    let terms = Terms { verb, rate, size_bytes, exchanges, timeout };
    match options.rate {
        true => rate::measure(provider, address, terms.in_lists()).map(|rate| rate_line(terms, rate, options.json)),
        false => exchange::measure(provider, address, terms).map(|times| times_line(terms, &times, options.json)),
    }
}

/// The software device, with an address in the network.
fn software_device(address: IpAddr) -> Outcome<Context> {
    let device = Device::find(Provider::Soft, "soft0")?.open()?;
    device.set_address(address)?;
    Ok(device)
}

fn times_line(terms: Terms, times: &Times, json: bool) -> String {
    let Terms { size_bytes, exchanges, .. } = terms;
    let verb = terms.verb.word();
    let [min, p50, p99] = [0.0, 0.5, 0.99].map(|quantile| times.half_trip_us(quantile));
    match json {
        true => format!(
            "{{\"verb\":\"{verb}\",\"size_bytes\":{size_bytes},\"exchanges\":{exchanges},\
             \"half_round_trip_us\":{{\"min\":{min},\"p50\":{p50},\"p99\":{p99}}}}}"
        ),
        false => format!(
            "{verb} of {size_bytes} bytes, half a round trip: min {min} us, p50 {p50} us, p99 {p99} us; {exchanges} \
             exchanges"
        ),
    }
}

fn rate_line(terms: Terms, rate: Rate, json: bool) -> String {
    let (verb, size_bytes, messages) = (terms.verb.word(), terms.size_bytes, rate.messages);
    let bytes_per_s = rate.messages_per_s() * f64::from(size_bytes);
    match json {
        true => format!(
            "{{\"verb\":\"{verb}\",\"size_bytes\":{size_bytes},\"messages\":{messages},\
             \"bytes_per_s\":{bytes_per_s:.0}}}"
        ),
        false => format!(
            "{verb} of {size_bytes} bytes: {:.3} MB/s, {:.0} messages/s; {messages} messages",
            bytes_per_s / 1e6,
            rate.messages_per_s()
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_lcores_go_back_and_forth_over_software_rnics_by_both_verbs() {
        for (verb, size_bytes) in [(Verb::Send, 64), (Verb::Send, 4096), (Verb::Write, 64), (Verb::Write, 4096)] {
            let mut listener = Listener::bind(Provider::Soft, "10.9.9.2:0".parse().unwrap(), 1).unwrap();
            let address = listener.local_addr();
            let terms = Terms { verb, rate: false, size_bytes, exchanges: 300, timeout: TIMEOUT };
            let client = std::thread::spawn(move || exchange::measure(Provider::Soft, address, terms).unwrap());
            assert_eq!(exchange::serve(Provider::Soft, &mut listener).unwrap(), terms);
            let times = client.join().unwrap();
            assert_eq!(times.count(), 300);
            assert!(0.0 < times.half_trip_us(0.0) && times.half_trip_us(0.0) <= times.half_trip_us(1.0));
        }
    }

    #[test]
    fn two_lcores_move_messages_one_way_by_both_verbs() {
        for (verb, size_bytes) in [(Verb::Send, 64), (Verb::Send, 65536), (Verb::Write, 64), (Verb::Write, 65536)] {
            let mut listener = Listener::bind(Provider::Soft, "10.9.9.2:0".parse().unwrap(), 1).unwrap();
            let address = listener.local_addr();
            let terms = Terms { verb, rate: true, size_bytes, exchanges: 1000, timeout: TIMEOUT }.in_lists();
            let client = std::thread::spawn(move || rate::measure(Provider::Soft, address, terms).unwrap());
            assert_eq!(exchange::serve(Provider::Soft, &mut listener).unwrap(), terms);
            let rate = client.join().unwrap();
            assert_eq!(rate.messages, 1008, "whole lists of 16");
            assert!(rate.messages_per_s() > 0.0);
        }
    }

    #[test]
    fn a_server_whose_client_leaves_says_so() {
        let mut listener = Listener::bind(Provider::Soft, "10.9.9.2:0".parse().unwrap(), 1).unwrap();
        let address = listener.local_addr();
        let terms = Terms { verb: Verb::Write, rate: false, size_bytes: 64, exchanges: 10, timeout: TIMEOUT };
        let client = std::thread::spawn(move || exchange::leave(Provider::Soft, address, terms).unwrap());
        assert_eq!(exchange::serve(Provider::Soft, &mut listener).unwrap_err().to_string(), "the peer has left");
        client.join().unwrap();
    }

    #[test]
    fn lengths_that_cannot_be_watched_are_refused() {
        assert_eq!(size("64"), Ok(64));
        assert_eq!(size("7").unwrap_err(), "7 bytes: from 8 to 1048576 in steps of 8 are possible");
        assert_eq!(size("x").unwrap_err(), "`x` is not a length in bytes");
    }
}
