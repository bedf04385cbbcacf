//! Faults shorter than the retries cost time and nothing else: a peer that pauses, and whose socket
//! has no space for packets meanwhile; and a firewall that doesn't let pass all of a peer's ports.

use std::mem::ManuallyDrop;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd};
use std::time::{Duration, Instant};

use verbline_verbs::connection::{ConnectOptions, resolve};
use verbline_verbs::rdma::Remote;
use verbline_verbs::{Access, Provider, SendOptions, Status};

use crate::common::{self, PATIENCE, message};
use crate::other::Other;
use crate::{BURST, REGION_BYTES, after_a_burst_of, connect, finish, own, side, terms};

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

/// Makes the kernel drop each datagram to this process's device that doesn't come from UDP port
/// 4791, as a firewall does that lets pass answers only.
pub(crate) fn let_pass_the_links_port_alone(own: IpAddr) {
    const KEEP: u32 = u32::MAX;
    let code = |of: u32, jt, jf, k| libc::sock_filter { code: of as u16, jt, jf, k };
    let mut program = [
        // The UDP header's first field.
        code(libc::BPF_LD | libc::BPF_H | libc::BPF_ABS, 0, 0, 0),
        code(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, 4791),
        code(libc::BPF_RET | libc::BPF_K, 0, 0, KEEP),
        code(libc::BPF_RET | libc::BPF_K, 0, 0, 0),
    ];
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    let is_links = |socket: &ManuallyDrop<UdpSocket>| {
        socket.local_addr().is_ok_and(|address| address == SocketAddr::new(own, 4791))
    };
    let open = std::fs::read_dir("/proc/self/fd").unwrap();
    let numbers: Vec<i32> = open.filter_map(|fd| fd.ok()?.file_name().to_str()?.parse().ok()).collect();
    // SAFETY: open descriptors, or closed ones by now, which are no sockets; none is closed here.
    let sockets = numbers.into_iter().map(|fd| ManuallyDrop::new(unsafe { UdpSocket::from_raw_fd(fd) }));
    let links: Vec<_> = sockets.filter(is_links).collect();
    assert_eq!(links.len(), 1, "the device has one socket of its address");
    let bytes = size_of_val(&filter) as libc::socklen_t;
    let (level, name) = (libc::SOL_SOCKET, libc::SO_ATTACH_FILTER);
    // SAFETY: locals, and their length.
    let set = unsafe { libc::setsockopt(links[0].as_raw_fd(), level, name, (&raw const filter).cast(), bytes) };
    assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
}

/// Longer than a silent peer is asked whether it is there.
const PAUSE: Duration = Duration::from_secs(24);

/// Regression: keep-alives and their answers left by the peer's socket, and such a firewall took
/// them. A connection ended that was silent from its beginning.
#[test]
fn a_connection_that_is_silent_at_first_lives_behind_such_a_firewall() {
    let mut other = Other::start("behind-a-firewall");
    let mut side = side(own(), false);
    let connection = connect(&mut side, other.listens(), BURST);
    other.says("region");
    std::thread::sleep(PAUSE);
    side.send(&message(1, 100));
    assert_eq!(side.receive(1)[0].data(), message(1, 100));
    drop(connection);
    other.ends_well();
}

#[test]
fn a_firewall_that_lets_pass_answers_only_costs_one_time_out() {
    let mut other = Other::start("behind-a-firewall");
    let mut side = side(own(), false);
    let connection = connect(&mut side, other.listens(), BURST);
    other.says("region");
    let incidents = connection.incidents().expect("it goes over UDP");
    for number in 0..3 {
        side.send(&message(number, 100));
        assert_eq!(side.receive(1)[0].data(), message(number, 100));
        assert_eq!(side.post_recvs(1), 1);
    }
    let counted = incidents.values();
    assert_eq!(counted.timeouts, 1, "{counted:?}");
    drop(connection);
    other.ends_well();
}

/// Makes the kernel refuse a system call with an `errno`.
pub(crate) fn refuse(call: libc::c_long, errno: libc::c_int) {
    let code = |of: u32, jt, jf, k| libc::sock_filter { code: of as u16, jt, jf, k };
    let mut filter = [
        // The number of the system call.
        code(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        code(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, call as u32),
        code(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | errno as u32),
        code(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: takes no pointers.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }, 0);
    let (mode, all_threads) = (libc::SECCOMP_SET_MODE_FILTER, libc::SECCOMP_FILTER_FLAG_TSYNC);
    // SAFETY: the program and its filter live through the call, which copies them.
    let set = unsafe { libc::syscall(libc::SYS_seccomp, mode, all_threads, &raw const program) };
    assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
}

/// Regression: runs were sent as such again and again, and the connection ended.
#[test]
fn where_the_kernel_takes_no_runs_each_datagram_leaves_alone() {
    let (other, _side, connection) = after_a_burst_of("burst-one-by-one");
    drop(connection);
    other.ends_well();
}

/// Regression: the socket stayed open, and took datagrams for other processes of the address that
/// nobody read.
#[test]
fn a_device_that_gets_no_thread_has_no_socket() {
    let mut other = Other::start("threadless");
    let refused = other.says("refused");
    assert!(refused.contains("can't be started") && refused.contains("ulimit -u"), "{refused}");
    other.ends_well();
}

/// Asks for an address where no thread can be made.
pub(crate) fn get_no_thread(address: IpAddr) {
    let context = common::open("soft0");
    refuse(libc::SYS_clone3, libc::EAGAIN);
    println!("refused={}", context.set_address(address).unwrap_err());
    // This one shares it with nobody.
    UdpSocket::bind((address, 4791)).unwrap();
}
