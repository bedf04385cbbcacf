//! Receives from a socket of a link: several runs of datagrams per system call.
//!
//! Guarantees: nothing blocks, and datagrams too long for a packet are dropped. A run is a unit
//! that the kernel delivers at once: one datagram, or several of one length and one sender, of
//! which the last may be shorter (GRO).

use crate::wire::calls;
use crate::wire::socket::{self, Control, DATAGRAM_BYTES_MAX, Link, Name};
use std::mem::{size_of, zeroed};
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

/// The most runs per system call, and so per turn: other threads may wait for the wire's lock
/// meanwhile.
const RUNS_MAX: usize = 16;
/// The most bytes of a run: the limit of a UDP datagram's length field.
const RUN_BYTES_MAX: usize = 1 << 16;
/// Datagrams per call from which on a socket is told to merge.
const STREAM_MIN: usize = 8;

/// Buffers for received runs.
pub(crate) struct Arrivals {
    bytes: Box<[u8]>,
    names: Box<[Name]>,
    controls: Box<[Control]>,
    /// Each points to its part of `bytes`.
    vectors: Box<[libc::iovec]>,
    /// Each points to its name, its vector and its control message.
    headers: Box<[libc::mmsghdr]>,
}

/// The state of a socket's receive calls.
pub(crate) struct Asking {
    /// Runs that the next call asks for.
    runs: usize,
    merging: Merging,
}

/// Whether a socket merges datagrams into runs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Merging {
    Never,
    OnceManyCome,
    /// For good: a datagram merged before the socket was told otherwise would pass for a single
    /// one.
    Now,
}

impl Asking {
    /// For a socket that never merges datagrams.
    pub(crate) fn one_by_one() -> Asking {
        Asking { runs: 1, merging: Merging::Never }
    }

    /// For a socket that merges once many come at a time.
    pub(crate) fn first() -> Asking {
        Asking { runs: 1, merging: Merging::OnceManyCome }
    }
}

// SAFETY: the pointers point to the boxes beside them, which move with them.
unsafe impl Send for Arrivals {}

impl Arrivals {
    pub(crate) fn new() -> Arrivals {
        let mut bytes: Box<[u8]> = vec![0; RUNS_MAX * RUN_BYTES_MAX].into();
        // SAFETY: integers, for which zero is a value.
        let mut names: Box<[Name]> = vec![unsafe { zeroed() }; RUNS_MAX].into();
        let mut controls: Box<[Control]> = vec![Control::segments(0); RUNS_MAX].into();
        let mut vectors: Box<[libc::iovec]> = (bytes.chunks_mut(RUN_BYTES_MAX))
            .map(|part| libc::iovec { iov_base: part.as_mut_ptr().cast(), iov_len: part.len() })
            .collect();
        let headers = (names.iter_mut().zip(vectors.iter_mut()).zip(controls.iter_mut()))
            .map(|((name, vector), control)| {
                // SAFETY: integers and pointers, for which zero is a value.
                let mut header: libc::mmsghdr = unsafe { zeroed() };
                header.msg_hdr.msg_name = std::ptr::from_mut(name).cast();
                header.msg_hdr.msg_iov = vector;
                header.msg_hdr.msg_iovlen = 1;
                header.msg_hdr.msg_control = std::ptr::from_mut(control).cast();
                header
            })
            .collect();
        Arrivals { bytes, names, controls, vectors, headers }
    }

    /// Receives from a socket of the link, as far as there is room; returns the number of runs.
    ///
    /// It asks for twice as many as came the last time: a call that gets fewer than it asked for
    /// looks once more in vain, which would slow down a lone message. Asking a lone message whether
    /// it is several would slow it down, too, so a socket merges datagrams only once many have
    /// come.
    pub(crate) fn receive(&mut self, link: &Link, socket: BorrowedFd<'_>, asking: &mut Asking) -> usize {
        debug_assert_eq!(self.vectors.len(), RUNS_MAX);
        let count = match (asking.runs, asking.merging) {
            (1, Merging::Now) => self.receive_run(socket),
            (1, _) => self.receive_datagram(socket),
            (runs, _) => self.receive_several(socket, runs),
        };
        asking.runs = (2 * count).clamp(1, RUNS_MAX);
        if count > 0 {
            link.counters.receive_calls.add(1);
            let datagrams = (0..count).map(|index| self.len(index).div_ceil(self.segment_bytes(index)).max(1));
            link.counters.received.add(datagrams.sum::<usize>() as u64);
        }
        if count >= STREAM_MIN && asking.merging == Merging::OnceManyCome {
            asking.merging = Merging::Now;
            socket::merge(socket);
        }
        count
    }

    /// Uses the call that reports least: a poller that waits for a lone message mostly finds
    /// nothing, and this call finds that soonest.
    fn receive_datagram(&mut self, socket: BorrowedFd<'_>) -> usize {
        let header = &mut self.headers[0];
        // The call reports neither of them.
        (header.msg_hdr.msg_controllen, header.msg_hdr.msg_flags) = (0, 0);
        let bytes = &mut self.bytes[..RUN_BYTES_MAX];
        // SAFETY: a name of this value, which is borrowed mutably, and its length.
        let bytes = unsafe { calls::recvfrom(socket, bytes, (&raw mut self.names[0]).cast(), size_of::<Name>()) };
        took_one(header, bytes)
    }

    /// Uses the call for one run.
    fn receive_run(&mut self, socket: BorrowedFd<'_>) -> usize {
        let header = &mut self.asked(1)[0];
        // SAFETY: as in `receive_several`, of the first header.
        let bytes = unsafe { calls::recvmsg(socket, &raw mut header.msg_hdr) };
        took_one(header, bytes)
    }

    fn receive_several(&mut self, socket: BorrowedFd<'_>, runs: usize) -> usize {
        let headers = self.asked(runs);
        // SAFETY: every header points to a name, a vector with its bytes, and a control message.
        // They are of this value, which is borrowed mutably, and as long as the headers say
        // (`new`).
        let count = unsafe { calls::recvmmsg(socket, headers) };
        // An error, as in `took_one`.
        usize::try_from(count).unwrap_or(0)
    }

    /// The first headers, each with all its room.
    fn asked(&mut self, runs: usize) -> &mut [libc::mmsghdr] {
        let headers = &mut self.headers[..runs];
        for header in &mut *headers {
            header.msg_hdr.msg_namelen = size_of::<Name>() as libc::socklen_t;
            header.msg_hdr.msg_controllen = size_of::<Control>();
        }
        headers
    }

    fn len(&self, index: usize) -> usize {
        (self.headers[index].msg_len as usize).min(RUN_BYTES_MAX)
    }

    /// The length of a run's datagrams, of which the last may be shorter.
    fn segment_bytes(&self, index: usize) -> usize {
        let header = &self.headers[index].msg_hdr;
        let is_told = header.msg_controllen >= size_of::<libc::cmsghdr>() + size_of::<libc::c_int>();
        let told = is_told.then(|| self.controls[index].segment_bytes()).flatten();
        told.unwrap_or(RUN_BYTES_MAX)
    }

    /// The sender of a run that came by the last call, and its datagrams, `None` for each that is
    /// too long.
    pub(crate) fn run(&self, index: usize) -> Option<(SocketAddr, impl Iterator<Item = Option<&[u8]>>)> {
        let from = self.names[index].address()?;
        let bytes = &self.bytes[index * RUN_BYTES_MAX..][..self.len(index)];
        let is_cut = self.headers[index].msg_hdr.msg_flags & libc::MSG_TRUNC != 0;
        let whole = move |datagram: &[u8]| !is_cut && datagram.len() <= DATAGRAM_BYTES_MAX;
        let datagrams = bytes.chunks(self.segment_bytes(index)).chain(bytes.is_empty().then_some(bytes));
        Some((from, datagrams.map(move |datagram| whole(datagram).then_some(datagram))))
    }
}

/// The number of runs after a call for one, with its bytes. An error means that nothing has come,
/// or that an earlier datagram found nobody.
fn took_one(header: &mut libc::mmsghdr, bytes: std::ffi::c_long) -> usize {
    usize::try_from(bytes).map_or(0, |bytes| {
        header.msg_len = bytes as libc::c_uint;
        1
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::run::Run;
    use crate::wire::socket::tests::pair;
    use std::net::UdpSocket;
    use verbline_roce::transport::Mtu;

    /// All arrived datagrams: each whole, with its sender.
    fn all(arrivals: &mut Arrivals, link: &Link) -> Vec<(SocketAddr, Vec<u8>)> {
        let (mut all, mut asking) = (Vec::new(), Asking::first());
        loop {
            let count = arrivals.receive(link, link.own_socket(), &mut asking);
            for (from, datagrams) in (0..count).filter_map(|index| arrivals.run(index)) {
                all.extend(datagrams.flatten().map(|datagram| (from, datagram.to_vec())));
            }
            if count == 0 {
                return all;
            }
        }
    }

    #[test]
    fn runs_arrive_as_datagrams_and_name_their_sender() {
        let [a, b] = pair([1, 2]);
        let bytes: Vec<u8> = (0..2500u32).map(|index| index as u8).collect();
        a.send(&Run { to: b.own(), traffic_class: 0, bytes: &bytes, segment_bytes: 1000 }).expect("sent");
        a.send(&Run { to: b.own(), traffic_class: 0, bytes: &bytes[..7], segment_bytes: 7 }).expect("sent");
        let got = all(&mut Arrivals::new(), &b);
        assert_eq!(got.iter().map(|(_, datagram)| datagram.len()).collect::<Vec<_>>(), [1000, 1000, 500, 7]);
        assert_eq!(got[..3].iter().flat_map(|(_, part)| part.iter().copied()).collect::<Vec<_>>(), bytes);
        assert_eq!((&*got[3].1, got[3].0), (&bytes[..7], a.own()));
        let (sent, received) = (a.counters.values(), b.counters.values());
        assert_eq!((sent.sent, received.received, sent.send_calls), (4, 4, 2));
        assert_eq!(a.path_mtu(b.own().ip()).expect("loopback"), Mtu::B4096);
        assert_eq!(a.interface_mtu(b.own().ip()).expect("loopback"), Mtu::B4096);
    }

    /// By ones, twos and so on; and the longest possible runs.
    #[test]
    fn nothing_that_comes_is_lost_however_much_is_asked_for() {
        let [a, b] = pair([5, 6]);
        let mut arrivals = Arrivals::new();
        let bytes = vec![7; 15 * 4112];
        for _ in 0..20 {
            a.send(&Run { to: b.own(), traffic_class: 0, bytes: &bytes, segment_bytes: 4112 }).expect("sent");
            a.send(&Run { to: b.own(), traffic_class: 0, bytes: &bytes[..90], segment_bytes: 80 }).expect("sent");
        }
        let lengths: Vec<_> = all(&mut arrivals, &b).iter().map(|(_, datagram)| datagram.len()).collect();
        let sent: Vec<_> = [4112; 15].into_iter().chain([80, 10]).collect();
        assert_eq!(lengths, sent.repeat(20));
        assert_eq!(a.counters.values().full, 0, "the kernel took it all");
    }

    /// A lone message is received by the call that reports least.
    #[test]
    fn a_socket_merges_what_comes_once_many_have_come_at_a_time() {
        let [a, b] = pair([9, 10]);
        let (mut arrivals, mut asking) = (Arrivals::new(), Asking::first());
        let mut runs_of = |datagrams: usize| {
            a.send(&Run { to: b.own(), traffic_class: 0, bytes: &vec![7; 50 * datagrams], segment_bytes: 50 })
                .expect("sent");
            let (before, mut runs) = (b.counters.values().received, 0);
            while b.counters.values().received < before + datagrams as u64 {
                runs += arrivals.receive(&b, b.own_socket(), &mut asking);
            }
            runs
        };
        assert_eq!(runs_of(1), 1);
        assert_eq!(runs_of(STREAM_MIN / 2), STREAM_MIN / 2, "few are no stream");
        assert_eq!(runs_of(40), 40, "each by itself: they came before the socket was told");
        assert_eq!(runs_of(40), 1);
        assert_eq!(runs_of(1), 1);
    }

    #[test]
    fn what_is_too_long_is_not_given_out() {
        let free = UdpSocket::bind("[::1]:0").expect("a port").local_addr().expect("bound");
        let link = Link::open(free).expect("just freed");
        let sender = UdpSocket::bind("[::1]:0").expect("a socket");
        sender.send_to(&vec![0; DATAGRAM_BYTES_MAX + 1], link.own()).expect("sent");
        sender.send_to(&[], link.own()).expect("sent");
        let mut arrivals = Arrivals::new();
        assert_eq!(arrivals.receive(&link, link.own_socket(), &mut Asking::first()), 1);
        let (_, datagrams) = arrivals.run(0).expect("somebody sent it");
        assert_eq!(datagrams.collect::<Vec<_>>(), [None]);
        assert_eq!(all(&mut arrivals, &link).len(), 1, "an empty one is for the transport to discard");
    }
}
