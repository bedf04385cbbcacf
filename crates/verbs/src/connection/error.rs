//! Why a connection was not established, or ended.

use std::net::SocketAddr;
use std::time::Duration;

use verbline_softnic::qp_table::Transport;

use crate::device::attr::Mtu;
use crate::device::provider::Provider;
use crate::errno::VerbError;
use crate::qp::QpError;

/// Why a connection was not established, or ended.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ConnectionError {
    /// The kernel or the device refused.
    #[error(transparent)]
    Verb(#[from] VerbError),
    /// The QP could not be brought to RTS.
    #[error(transparent)]
    Qp(#[from] QpError),
    /// No RDMA device has or reaches the address.
    #[error(
        "no {provider} device reaches {address}; `rdma link` and `ip addr` show which addresses devices have (soft0 \
         is 10.9.9.1, soft1 10.9.9.2)"
    )]
    Unreachable {
        /// The provider searched.
        provider: Provider,
        /// The requested address.
        address: SocketAddr,
    },
    /// Nothing came back from the address.
    #[error(
        "{address} does not answer: the other end is not started, no host has that address, or a firewall drops UDP \
         port {udp_port}; start it (`ss -uln` there shows the port), or look with `ping {}`",
        .address.ip()
    )]
    Unanswered {
        /// The requested address.
        address: SocketAddr,
        /// The UDP port of the network's packets.
        udp_port: u16,
    },
    /// The packets of one end do not fit the other's interface.
    #[error(
        "the two ends of the connection with {address} have paths of different MTU ({own} here): set the same \
         MTU on both network interfaces (`ip link set dev NAME mtu BYTES`)"
    )]
    Mtu {
        /// The other end.
        address: SocketAddr,
        /// The MTU of this end's interface.
        own: Mtu,
    },
    /// Nobody listens there.
    #[error("nobody listens at {address}")]
    Refused {
        /// The requested address.
        address: SocketAddr,
    },
    /// Another program listens at the address, or connects from it.
    #[error("{address} is taken: another listener or connection has the port, on this address or on every one")]
    AddressInUse {
        /// The requested address.
        address: SocketAddr,
    },
    /// The listener rejected the request.
    #[error("rejected by {address} (reason {code}){}", said(.private_data))]
    Rejected {
        /// The listener.
        address: SocketAddr,
        /// The reason code of the InfiniBand CM; 28 is "by the application".
        code: i32,
        /// The listener's reason; may be followed by zeros.
        private_data: Vec<u8>,
    },
    /// No answer in time.
    #[error("{what} took longer than {after:?}")]
    TimedOut {
        /// The awaited event.
        what: &'static str,
        /// The time limit.
        after: Duration,
    },
    /// More private data than the message holds.
    #[error("{len_bytes} bytes of private data; {what} has room for {max_bytes}")]
    PrivateData {
        /// The message.
        what: &'static str,
        /// The length given.
        len_bytes: usize,
        /// The message's limit.
        max_bytes: usize,
    },
    /// The QP and the route are on different devices.
    #[error("the QP is on {qp}, the route leads over {route}; make the QP on the route's device")]
    WrongDevice {
        /// The QP's device.
        qp: String,
        /// The route's device.
        route: String,
    },
    /// The QP cannot be an end of such a connection.
    #[error("the QP is {qp}, the connection at {address} is {connection}; make a QP of that transport")]
    WrongTransport {
        /// The QP's transport.
        qp: Transport,
        /// The connection's transport.
        connection: Transport,
        /// The address of the listener, or of the requesting peer.
        address: SocketAddr,
    },
    /// The peer went away, or sent an unexpected event.
    #[error("{what} ended with {event}")]
    Ended {
        /// The awaited event.
        what: &'static str,
        /// The event that came instead.
        event: String,
    },
}

/// The peer's reason, if it is text.
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
