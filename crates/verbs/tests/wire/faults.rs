//! Faults shorter than the retries cost time and nothing else: a peer that pauses, and whose socket
//! has no space for packets meanwhile.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Instant;

use verbline_verbs::connection::{ConnectOptions, resolve};
use verbline_verbs::rdma::Remote;
use verbline_verbs::{Access, Provider, SendOptions, Status};

use crate::common::{self, PATIENCE, message};
use crate::other::Other;
use crate::{REGION_BYTES, finish, own, side, terms};

/// A second per retry, seven retries: they are not over before the peer goes on.
const TIMEOUT: u8 = 18;
/// More than any receive buffer holds.
const FLOOD: usize = 20_000;
const WRITTEN_BYTES: u32 = 64 << 10;

/// Fills the peer's receive buffer with datagrams that are not packets.
fn flood(to: SocketAddr) {
    let stranger = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    for _ in 0..FLOOD {
        stranger.send_to(&[0xee; 1000], to).unwrap();
    }
}

#[test]
fn a_peer_that_stands_still_with_a_full_socket_loses_nothing_for_less_than_the_retries() {
    let mut other = Other::start("echo");
    let mut side = side(own(), false);
    let at = other.listens();
    let route = resolve(Provider::Soft, at, None, PATIENCE).unwrap();
    let options = ConnectOptions { private_data: b"hello".to_vec(), timeout: Some(TIMEOUT), ..terms() };
    let connecting = route.connect(&mut side.qp, &options).unwrap();
    assert_eq!(side.post_recvs(1), 1);
    let connection = connecting.finish(&mut side.qp, PATIENCE).unwrap();
    let place = other.says("region");
    let (addr, rkey) = place.split_once(' ').unwrap();
    let there = Remote { addr: addr.parse().unwrap(), rkey: rkey.parse().unwrap() };
    let local = side.peer_region(REGION_BYTES, Access::LOCAL_WRITE);
    let written = message(9, WRITTEN_BYTES as usize);
    local.write_from(0, &written).unwrap();

    other.stops();
    flood(SocketAddr::new(at.ip(), 4791));
    let all = local.slice(0, WRITTEN_BYTES).unwrap();
    side.qp.rc().unwrap().write(all, there, SendOptions::default()).unwrap();
    let (incidents, began) = (connection.incidents().expect("it goes over UDP"), Instant::now());
    while incidents.values().timeouts == 0 {
        assert!(began.elapsed() < PATIENCE, "{:?}", incidents.values());
        side.poll(common::hand_back);
    }
    other.goes_on();
    assert_eq!(finish(&mut side), Status::SUCCESS);
    assert!(incidents.values().retransmitted > 0, "{:?}", incidents.values());

    let back = local.slice(WRITTEN_BYTES as usize, WRITTEN_BYTES).unwrap();
    side.qp.rc().unwrap().read(back, there, SendOptions::default()).unwrap();
    assert_eq!(finish(&mut side), Status::SUCCESS);
    let mut read = vec![0; WRITTEN_BYTES as usize];
    local.read_into(WRITTEN_BYTES as usize, &mut read).unwrap();
    assert!(read == written, "what was written is there");
    drop(connection);
    other.ends_well();
}
