//! Why a connection did not come about, or ended.

use std::net::SocketAddr;
use std::time::Duration;

use crate::device::attr::Mtu;
use crate::device::provider::Provider;
use crate::errno::VerbError;
use crate::qp::QpError;
use crate::transport::Transport;

/// Why a connection did not come about.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ConnectionError {
    /// The kernel or the device refused.
    #[error(transparent)]
    Verb(#[from] VerbError),
    /// The QP could not be brought up.
    #[error(transparent)]
    Qp(#[from] QpError),
    /// No RDMA device has or reaches the address.
    #[error(
        "no {provider} device reaches {address}; `rdma link` and `ip addr` show which addresses devices have (soft0 \
         is 10.9.9.1, soft1 10.9.9.2)"
    )]
    Unreachable {
        /// Where devices were looked for.
        provider: Provider,
        /// What was asked.
        address: SocketAddr,
    },
    /// Nothing came back from there.
    #[error(
        "{address} does not answer: the other end is not started, no host has that address, or a firewall drops UDP \
         port {udp_port}; start it (`ss -uln` there shows the port), or look with `ping {}`",
        .address.ip()
    )]
    Unanswered {
        /// What was asked.
        address: SocketAddr,
        /// The port of the network's packets.
        udp_port: u16,
    },
    /// The packets of one end don't fit the other's interface.
    #[error(
        "the two ends of the connection with {address} have paths of different MTU ({own} here): set the same \
         MTU on both network interfaces (`ip link set dev NAME mtu BYTES`)"
    )]
    Mtu {
        /// The other end.
        address: SocketAddr,
        /// What fits here.
        own: Mtu,
    },
    /// Nobody listens there.
    #[error("nobody listens at {address}")]
    Refused {
        /// What was asked.
        address: SocketAddr,
    },
    /// Somebody else listens there, or connects from there.
    #[error("{address} is taken: another listener or connection has the port, on this address or on every one")]
    AddressInUse {
        /// What was asked.
        address: SocketAddr,
    },
    /// The listener said no.
    #[error("rejected by {address} (reason {code}){}", said(.private_data))]
    Rejected {
        /// Who.
        address: SocketAddr,
        /// The code of the InfiniBand CM; 28 is "by the application".
        code: i32,
        /// What it gave as the reason; may be followed by zeros.
        private_data: Vec<u8>,
    },
    /// No answer in time.
    #[error("{what} took longer than {after:?}")]
    TimedOut {
        /// What was waited for.
        what: &'static str,
        /// How long.
        after: Duration,
    },
    /// More private data than the message has room for.
    #[error("{len_bytes} bytes of private data; {what} has room for {max_bytes}")]
    PrivateData {
        /// Which message.
        what: &'static str,
        /// What was given.
        len_bytes: usize,
        /// The room.
        max_bytes: usize,
    },
    /// The QP is on another device than the route.
    #[error("the QP is on {qp}, the route leads over {route}; make the QP on the route's device")]
    WrongDevice {
        /// The QP's.
        qp: String,
        /// The route's.
        route: String,
    },
    /// The QP can't be the end of such a connection.
    #[error("the QP is {qp}, the connection at {address} is {connection}; make a QP of that transport")]
    WrongTransport {
        /// The QP's.
        qp: Transport,
        /// The connection's.
        connection: Transport,
        /// The address of the listener, or of the peer that asks.
        address: SocketAddr,
    },
    /// The peer went away, or said something that does not belong here.
    #[error("{what} ended with {event}")]
    Ended {
        /// What was waited for.
        what: &'static str,
        /// What came instead.
        event: String,
    },
}

/// The peer's words, if they are words.
fn said(private_data: &[u8]) -> String {
    let end = private_data.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    match std::str::from_utf8(&private_data[..end]) {
        Ok("") => String::new(),
        Ok(text) if !text.contains(char::is_control) => format!(": {text}"),
        _ => format!(": {end} bytes of private data"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rejection_says_who_and_why() {
        let address = "10.9.9.1:4420".parse().unwrap();
        let rejected = |private_data: &[u8]| {
            ConnectionError::Rejected { address, code: 28, private_data: private_data.to_vec() }.to_string()
        };
        assert_eq!(rejected(b"full\0\0"), "rejected by 10.9.9.1:4420 (reason 28): full");
        assert_eq!(rejected(&[0, 1, 2]), "rejected by 10.9.9.1:4420 (reason 28): 3 bytes of private data");
        assert_eq!(rejected(b""), "rejected by 10.9.9.1:4420 (reason 28)");
    }
}
