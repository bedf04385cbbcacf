//! Half a round trip over an RC connection by IP address: what perftest's `ib_send_lat` and
//! `ib_write_lat` measure, through this crate's safe API and without an engine around it. Each end
//! is a process with one thread, which polls.
//!
//! ```text
//! latency --server                              on CPU 1, say: taskset -c 1
//! latency --client -a ADDRESS --verb send       a message is sent, and sent back as it came
//! latency --client -a ADDRESS --verb write      memory is written, and the other end watches its last eight bytes
//! ```
//! The client says which verb, how long and how often.
#![forbid(unsafe_code)]

mod exchange;
mod side;

use std::error::Error;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, ValueEnum};
use verbline_verbs::Provider;
use verbline_verbs::connection::Listener;

use exchange::{Terms, Times};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// For each step of connecting, and for each message.
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
    /// Round trips (client)
    #[arg(short = 'n', long, default_value_t = 5000, value_parser = clap::value_parser!(u32).range(1..))]
    exchanges: u32,
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

fn size(text: &str) -> Result<u32, String> {
    let bytes: u32 = text.parse().map_err(|_| format!("`{text}` is not a length in bytes"))?;
    match bytes.is_multiple_of(8) && (8..=1 << 20).contains(&bytes) {
        true => Ok(bytes),
        false => Err(format!("{bytes} bytes: from 8 to {} in steps of 8 are possible", 1 << 20)),
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    let address = SocketAddr::new(options.address, options.port);
    let terms = Terms { verb: options.verb, size_bytes: options.size, exchanges: options.exchanges };
    let done = match options.role.server {
        true => Listener::bind(Provider::Kernel, address, 1)
            .map_err(Into::into)
            .and_then(|mut listener| exchange::serve(Provider::Kernel, &mut listener))
            .map(|terms| println!("{} exchanges answered", terms.exchanges)),
        false => exchange::measure(Provider::Kernel, address, terms).map(|times| show(terms, &times, options.json)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("latency: {error}");
            ExitCode::FAILURE
        }
    }
}

fn show(terms: Terms, times: &Times, json: bool) {
    let Terms { verb, size_bytes, exchanges } = terms;
    let verb = if verb == Verb::Send { "send" } else { "write" };
    let [min, p50, p99] = [0.0, 0.5, 0.99].map(|quantile| times.half_trip_us(quantile));
    match json {
        true => println!(
            "{{\"verb\":\"{verb}\",\"size_bytes\":{size_bytes},\"exchanges\":{exchanges},\
             \"half_round_trip_us\":{{\"min\":{min},\"p50\":{p50},\"p99\":{p99}}}}}"
        ),
        false => println!(
            "{verb} of {size_bytes} bytes, half a round trip: min {min} us, p50 {p50} us, p99 {p99} us; {exchanges} \
             exchanges"
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
            let terms = Terms { verb, size_bytes, exchanges: 300 };
            let client = std::thread::spawn(move || exchange::measure(Provider::Soft, address, terms).unwrap());
            assert_eq!(exchange::serve(Provider::Soft, &mut listener).unwrap(), terms);
            let times = client.join().unwrap();
            assert_eq!(times.count(), 300);
            assert!(0.0 < times.half_trip_us(0.0) && times.half_trip_us(0.0) <= times.half_trip_us(1.0));
        }
    }

    #[test]
    fn a_server_whose_client_leaves_says_so() {
        let mut listener = Listener::bind(Provider::Soft, "10.9.9.2:0".parse().unwrap(), 1).unwrap();
        let address = listener.local_addr();
        let terms = Terms { verb: Verb::Write, size_bytes: 64, exchanges: 10 };
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
