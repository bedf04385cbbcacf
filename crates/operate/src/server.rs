//! The thread that serves all clients: one poll(2) over its listeners and its clients.
//!
//! Guarantees: it waits for no client, and sleeps without clients. Each kind of listener has
//! [`PEERS_MAX`] clients at most and accepts a bounded number per second, so that clients of one
//! kind never keep out those of the other. A full listener makes room by ending the client that has
//! been idle for longest, if for a second or more; without one, the client whose request has been
//! incomplete for longest.

use std::io::ErrorKind;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::client_session::{Life, Peer, Speaks};
use crate::grant::Grant;
use crate::heap::write_heap_room;
use crate::listener::Listener;
use crate::protocol::Refusal;
use crate::snapshot_cache::Told;

/// The most clients of one listener.
pub(crate) const PEERS_MAX: usize = 16;

/// A client that has been idle for this long makes room for another.
const EVICTED_AFTER: Duration = Duration::from_secs(1);

/// A client whose request has been incomplete for this long makes room for another if none is idle.
/// The time is less than [`PEERS_MAX`] clients take to connect: they can't keep all places by
/// reconnecting.
const HALF_EVICTED_AFTER: Duration = Duration::from_millis(50);

/// The burst of new clients, and the time until one more is accepted.
const ACCEPTS_BURST: u32 = 32;
const ACCEPT_EVERY: Duration = Duration::from_millis(5);

/// The pause after a failure to accept (no free descriptor), which poll(2) would report again at
/// once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The pause after a failure of poll(2).
const POLL_PAUSE: Duration = Duration::from_millis(20);

struct Door {
    listener: Listener,
    accepts: Grant,
    closed_until: Instant,
    peers: Vec<Peer>,
}

/// The state of the thread.
pub(crate) struct Server {
    doors: Vec<Door>,
    /// Readable when the thread should end.
    stop: OwnedFd,
}

impl Server {
    pub(crate) fn new(listeners: Vec<Listener>, stop: OwnedFd) -> Server {
        let now = Instant::now();
        let door = |listener| Door {
            listener,
            accepts: Grant::new(ACCEPTS_BURST, ACCEPT_EVERY, now),
            closed_until: now,
            peers: Vec::with_capacity(PEERS_MAX),
        };
        Server { doors: listeners.into_iter().map(door).collect(), stop }
    }

    /// Serves until it is stopped.
    pub(crate) fn serve(mut self, told: &mut Told<'_>) {
        write_heap_room();
        while let Some(ready) = self.wait() {
            let now = Instant::now();
            let mut ready = ready.into_iter();
            for door in &mut self.doors {
                let asked = ready.next().unwrap_or(PollFlags::empty());
                let of_peers: Vec<PollFlags> = ready.by_ref().take(door.peers.len()).collect();
                door.serve(&of_peers, told, now);
                if !asked.is_empty() {
                    door.accept(now);
                }
            }
        }
    }

    /// Waits until there is something to do. Returns the events of each door and each of its
    /// clients, in order; `None` when it should stop.
    fn wait(&self) -> Option<Vec<PollFlags>> {
        let now = Instant::now();
        let mut fds = vec![PollFd::new(&self.stop, PollFlags::IN)];
        let mut deadline: Option<Instant> = None;
        for door in &self.doors {
            let opens_at = door.closed_until.max(door.accepts.ready_at());
            let wants = if opens_at > now { PollFlags::empty() } else { PollFlags::IN };
            fds.push(PollFd::from_borrowed_fd(door.listener.as_fd(), wants));
            let ends = door.peers.iter().map(|peer| peer.deadline(now));
            deadline = ends.chain((opens_at > now).then_some(opens_at)).chain(deadline).min();
            fds.extend(door.peers.iter().map(|peer| PollFd::from_borrowed_fd(peer.fd(), peer.wants(now))));
        }
        let timeout = deadline.and_then(|deadline| {
            // Rounded up: an early look would find nothing to do.
            Timespec::try_from(deadline.saturating_duration_since(now) + Duration::from_micros(1)).ok()
        });
        match poll(&mut fds, timeout.as_ref()) {
            // Without events, only deadlines are checked.
            Err(error) => self.rests(error).then(|| vec![PollFlags::empty(); fds.len() - 1]),
            Ok(_) if !fds[0].revents().is_empty() => None,
            Ok(_) => Some(fds[1..].iter().map(PollFd::revents).collect()),
        }
    }

    /// Pauses after a failure of poll(2), which may fail each time (a seccomp filter). Returns
    /// whether to go on: poll(2) does not tell of the end.
    fn rests(&self, error: Errno) -> bool {
        if error != Errno::INTR {
            std::thread::sleep(POLL_PAUSE);
        }
        // Nothing to read: it should not end yet.
        rustix::io::read(&self.stop, &mut [0; 8]).is_err()
    }
}

impl Door {
    fn serve(&mut self, ready: &[PollFlags], told: &mut Told<'_>, now: Instant) {
        let mut ready = ready.iter();
        self.peers.retain_mut(|peer| {
            let ready = ready.next().copied().unwrap_or(PollFlags::empty());
            peer.serve(ready, told, now) == Life::Stays
        });
    }

    fn speaks(&self) -> Speaks {
        match self.listener {
            Listener::Control(_) => Speaks::Lines,
            Listener::Http(_) => Speaks::Http,
        }
    }

    fn accept(&mut self, now: Instant) {
        while self.accepts.take(now) {
            match self.listener.accept() {
                Ok(socket) => {
                    let mut peer = match socket.forbids() {
                        Some(why) => Peer::refused(socket, self.speaks(), &why, now),
                        None if self.has_room(now) => {
                            self.peers.push(Peer::new(socket, self.speaks(), now));
                            continue;
                        }
                        None => {
                            let why = format!("{PEERS_MAX} clients are being served; ask again");
                            Peer::refused(socket, self.speaks(), &Refusal::new("busy", why), now)
                        }
                    };
                    // It gets the reason only if its socket takes that at once.
                    peer.bid_farewell(now);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => {}
                Err(error) => {
                    tracing::warn!(%error, "a client of the control socket or of the metrics can't be accepted");
                    self.closed_until = now + ACCEPT_PAUSE;
                    return;
                }
            }
        }
    }

    /// Whether there is room for one more client, if necessary in place of an idle one, or of one
    /// whose request is incomplete.
    fn has_room(&mut self, now: Instant) -> bool {
        if self.peers.len() < PEERS_MAX {
            return true;
        }
        let longest = |since: fn(&Peer) -> Option<Instant>, at_least: Duration| {
            let all = self.peers.iter().enumerate().filter_map(|(place, peer)| Some((since(peer)?, place)));
            all.min().filter(|(since, _)| *since + at_least <= now)
        };
        let idle = longest(Peer::idle_since, EVICTED_AFTER);
        let Some((_, place)) = idle.or_else(|| longest(Peer::half_since, HALF_EVICTED_AFTER)) else { return false };
        self.peers.swap_remove(place);
        true
    }
}
