//! Reads the devices' asynchronous events on a thread of its own, counts them, and notifies the
//! lcores concerned.
//!
//! The lcores of a device share its event descriptor. If each lcore slept on it, one event would
//! wake all of them, and would keep those awake that do not read it. One thread that blocks on all
//! devices costs the lcores nothing under any idle policy. It notifies an lcore by the lcore's
//! inbox and doorbell ([`crate::control::run_control`]).

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use verbline_ring::{Sleeper, Waker, doorbell};
use verbline_verbs::VerbError;
use verbline_verbs::event::{AsyncEvent, AsyncEventKind, AsyncEventSource, AsyncEvents};

use crate::control::notice::{EventMeaning, Notice, is_ordinary};
use crate::control::readable::Readable;
use crate::control::run_control::Control;
use crate::errors::guarded::{Joined, join_until, lock};
use crate::errors::stuck::Stuck;
use crate::stats::counter::Shared;
use crate::stats::counters::PortStats;
use crate::stats::report::EventReport;

/// A device whose events are watched, and its lcores.
#[derive(Debug)]
pub(crate) struct Watched {
    /// The device's own name, and its name in the plan.
    pub(crate) device: String,
    pub(crate) plan_name: String,
    /// The device's port that the plan uses.
    pub(crate) port_num: u8,
    /// A port with many connections receives from one shared queue.
    pub(crate) shares_receives: bool,
    pub(crate) events: AsyncEvents,
    pub(crate) lcores: Vec<WatchedLcore>,
}

/// An lcore that may be notified of events.
#[derive(Debug)]
pub(crate) struct WatchedLcore {
    /// Its index in the plan.
    pub(crate) index: usize,
    pub(crate) name: String,
    pub(crate) cq: Option<u64>,
    /// In the lcore's order.
    pub(crate) ports: Vec<WatchedPort>,
}

/// A port of the plan.
#[derive(Debug)]
pub(crate) struct WatchedPort {
    pub(crate) name: String,
    /// Its counters, which include the number of its QP.
    pub(crate) stats: Shared<PortStats>,
    /// It has many connections, whose QPs only its lcore knows.
    pub(crate) is_many: bool,
}

/// Events of one kind from one source.
#[derive(Debug, Default)]
struct Seen {
    ports: Vec<String>,
    lcores: Vec<String>,
    count: u64,
}

/// Counts by device, event and source.
type Counts = BTreeMap<(String, String, String), Seen>;

/// The events so far, for any thread to read.
#[derive(Clone, Debug, Default)]
pub(crate) struct EventCounts(Arc<Mutex<Counts>>);

/// The most queue pairs with an entry of their own, per device and kind of event. Later ones share
/// an entry: a port that reconnects has a new queue pair each time.
const QPS_MAX: usize = 64;
const OTHER_QPS: &str = "other QPs";

impl EventCounts {
    fn add(&self, mut key: (String, String, String), is_of_qp: bool, ports: Vec<String>, lcores: Vec<String>) {
        let mut counts = lock(&self.0);
        if is_of_qp && !counts.contains_key(&key) {
            let from = (key.0.clone(), key.1.clone(), String::new());
            let of_kind = counts.range(from..).take_while(|(known, _)| (&known.0, &known.1) == (&key.0, &key.1));
            if of_kind.count() >= QPS_MAX {
                key.2 = OTHER_QPS.to_owned();
            }
        }
        let seen = counts.entry(key).or_default();
        seen.count += 1;
        for (known, come) in [(&mut seen.ports, ports), (&mut seen.lcores, lcores)] {
            for name in come {
                if !known.contains(&name) {
                    known.push(name);
                }
            }
        }
    }

    pub(crate) fn report(&self) -> Vec<EventReport> {
        let entry = |((device, event, source), seen): (&(String, String, String), &Seen)| EventReport {
            device: device.clone(),
            event: event.clone(),
            source: source.clone(),
            ports: seen.ports.clone(),
            lcores: seen.lcores.clone(),
            count: seen.count,
        };
        lock(&self.0).iter().map(entry).collect()
    }
}

/// The thread that watches the devices.
#[derive(Debug)]
pub(crate) struct Watch {
    counts: EventCounts,
    stop: Waker,
    /// The first lcore that it may notify.
    lcore: String,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    pub(crate) fn start(devices: Vec<Watched>, control: Arc<Control>) -> io::Result<Watch> {
        let counts = EventCounts::default();
        let (stop, stopped) = doorbell()?;
        let fds = devices.iter().map(|watched| watched.events.as_fd());
        let readable = Readable::new(fds.chain([stopped.as_fd()]))?;
        let first = devices.iter().flat_map(|watched| &watched.lcores).next();
        let lcore = first.map_or_else(String::new, |lcore| lcore.name.clone());
        let watching = Watching { devices, counts: counts.clone(), control };
        let thread =
            std::thread::Builder::new().name("vl-events".into()).spawn(move || watching.watch(readable, stopped))?;
        Ok(Watch { counts, stop, lcore, thread: Some(thread) })
    }

    /// The counts, which the thread keeps updating.
    pub(crate) fn counts(&self) -> EventCounts {
        self.counts.clone()
    }

    /// Ends the thread. Returns it as stuck if it has not ended by `until`: it may be in the
    /// kernel, or write a log line to a reader that does not read.
    pub(crate) fn end(&mut self, until: Instant) -> Option<Stuck> {
        let thread = self.thread.take()?;
        let asked = Instant::now();
        // The bell is armed for the thread's whole life but an instant at its start.
        while !self.stop.ring() && !thread.is_finished() && Instant::now() < until {
            std::thread::yield_now();
        }
        match join_until(thread, Some(until)) {
            Joined::Gave(()) => None,
            Joined::Panicked(said) => {
                tracing::error!("the thread that watches the devices' events panicked: {said}");
                None
            }
            Joined::Late => Some(Stuck {
                lcore: self.lcore.clone(),
                stage: None,
                who: "the thread that reads the devices' events".to_owned(),
                place: "ending",
                since: asked.elapsed(),
            }),
        }
    }
}

impl Drop for Watch {
    /// For a run that was not stopped.
    fn drop(&mut self) {
        if let Some(stuck) = self.end(Instant::now() + DROP_LIMIT) {
            tracing::error!("{}", stuck.sentence());
        }
    }
}

/// The limit of a wait that has none given.
const DROP_LIMIT: Duration = Duration::from_secs(10);

/// How often to check whether a device is being removed whose driver raises no event.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The state of the thread.
struct Watching {
    devices: Vec<Watched>,
    counts: EventCounts,
    control: Arc<Control>,
}

/// The state of the thread, driven by a test without the thread.
#[cfg(test)]
pub(crate) struct ByHand(Watching);

#[cfg(test)]
impl ByHand {
    pub(crate) fn new(devices: Vec<Watched>, control: Arc<Control>) -> ByHand {
        ByHand(Watching { devices, counts: EventCounts::default(), control })
    }

    /// Reads the events that have come.
    pub(crate) fn look(&self) {
        self.0.devices.iter().for_each(|watched| _ = self.0.take_all(watched).unwrap());
    }
}

impl Watching {
    fn watch(self, mut readable: Readable, mut stopped: Sleeper) {
        let armed = stopped.arm();
        // The bell that ends this thread is numbered after the devices.
        let stop = self.devices.len();
        // The devices whose removal can be seen.
        let mut present: Vec<_> = self.devices.iter().filter(|watched| watched.events.shows_removal()).collect();
        // The last error of each device: an error that persists is logged once.
        let mut told = vec![String::new(); stop];
        'watching: loop {
            let timeout = (!present.is_empty()).then_some(LOOK_EVERY);
            let fd = |number: usize| self.devices.get(number).map_or(stopped.as_fd(), |it| it.events.as_fd());
            let ready = match readable.wait(timeout, fd) {
                Ok(ready) => ready,
                Err(error) => {
                    tracing::error!(%error, "the devices' events cannot be waited for any more");
                    break;
                }
            };
            for number in ready {
                if number == stop {
                    break 'watching;
                }
                let watched = &self.devices[number];
                let taken = self.take_all(watched).map_err(|error| error.to_string());
                if let Err(error) = &taken
                    && *error != told[number]
                {
                    tracing::warn!(device = %watched.device, %error, "cannot read the device's events");
                    told[number].clone_from(error);
                }
                // After an error the device is tried again: it may be about to go.
                readable.gave(number, taken.unwrap_or(false), &watched.events);
            }
            present.retain(|watched| !watched.events.is_being_removed() || self.removed(watched));
        }
        stopped.woken(armed);
    }

    /// Reads the events that have come. False if there were none.
    fn take_all(&self, watched: &Watched) -> Result<bool, VerbError> {
        let mut any = false;
        while let Some(event) = watched.events.try_next()? {
            any = true;
            self.came(watched, event);
        }
        Ok(any)
    }

    /// Counts an event, and notifies the lcores that it concerns.
    fn came(&self, watched: &Watched, event: AsyncEvent) {
        let mut concerned = watched.concerned(event.source);
        let of_many = concerned.is_empty() && matches!(event.source, AsyncEventSource::Qp(_));
        if of_many {
            concerned = watched.with_many();
        }
        let ports: Vec<_> =
            concerned.iter().flat_map(|(lcore, places)| places.iter().map(|at| lcore.port(*at))).collect();
        let lcores: Vec<_> = concerned.iter().map(|(lcore, _)| lcore.name.clone()).collect();
        let (device, kind, source) = (&watched.device, &event.kind, &event.source);
        if of_many && watched.expects(event) {
            tracing::debug!(%device, event = %kind, %source, "a connection's end");
            return;
        }
        // Events of connections that come and go share one entry, or the entries would grow without
        // end.
        let known = if of_many && !ports.is_empty() { "a connection of many".to_owned() } else { source.to_string() };
        let is_of_qp = matches!(event.source, AsyncEventSource::Qp(_));
        self.counts.add((device.clone(), kind.to_string(), known), is_of_qp, ports.clone(), lcores);
        let mut notices = Vec::new();
        for (lcore, places) in &concerned {
            let mut tell = |notice| notices.push((lcore.index, notice));
            match EventMeaning::of(event.kind) {
                EventMeaning::Nothing => {}
                EventMeaning::QpFailed => {
                    let AsyncEventSource::Qp(qpn) = event.source else { continue };
                    places.iter().for_each(|&port| tell(Notice::QpFailed { port, qpn, event: event.kind }));
                }
                EventMeaning::SqStopped => {
                    let AsyncEventSource::Qp(qpn) = event.source else { continue };
                    places.iter().for_each(|&port| tell(Notice::SqStopped { port, qpn }));
                }
                EventMeaning::PathMigrated { is_done } => {
                    let AsyncEventSource::Qp(qpn) = event.source else { continue };
                    places.iter().for_each(|&port| tell(Notice::PathMigrated { port, qpn, is_done }));
                }
                EventMeaning::CqOverrun => tell(Notice::CqOverrun),
                EventMeaning::LinkChanged { up } => tell(Notice::LinkChanged { up }),
                EventMeaning::DeviceGone => tell(Notice::DeviceGone(format!(
                    "device.{}: {} has failed or was pulled out ({}); see `dmesg`, bring it back, and start the run \
                     again",
                    watched.plan_name, watched.device, event.kind
                ))),
            }
        }
        if !notices.is_empty() {
            self.control.notify_all(notices);
        }
        // Last: the log may block.
        if is_ordinary(event.kind) {
            tracing::debug!(%device, event = %kind, %source, ?ports, "device event");
        } else {
            tracing::warn!(%device, event = %kind, %source, ?ports, "device event");
        }
    }

    /// The kernel wants the device back, and waits. False: the device need not be checked again.
    fn removed(&self, watched: &Watched) -> bool {
        let sentence = format!(
            "device.{}: {} is being removed from this machine (`rdma link del`, or its network interface went), which \
             waits until this run has ended; bring it back, and start the run again",
            watched.plan_name, watched.device
        );
        let gone = |lcore: &WatchedLcore| (lcore.index, Notice::DeviceGone(sentence.clone()));
        self.control.notify_all(watched.lcores.iter().map(gone).collect());
        tracing::warn!(device = %watched.device, "the device is being removed");
        false
    }
}

impl Watched {
    /// Whether an event of a queue pair without a port of its own only says that one of many
    /// connections is over: every queue pair on a shared receive queue raises it as it goes to ERR.
    /// The report counts connections and their ends.
    fn expects(&self, event: AsyncEvent) -> bool {
        self.shares_receives && event.kind == AsyncEventKind::QpLastWqeReached
    }

    /// The lcores that have ports with many connections, each with the indices of those ports.
    fn with_many(&self) -> Vec<(&WatchedLcore, Vec<usize>)> {
        self.lcores_with(|_, port| port.is_many)
    }

    /// The lcores that an event concerns, each with the indices of the ports concerned.
    fn concerned(&self, source: AsyncEventSource) -> Vec<(&WatchedLcore, Vec<usize>)> {
        self.lcores_with(|lcore, port| match source {
            AsyncEventSource::Qp(qpn) => port.stats.qpn.value() == u64::from(qpn),
            AsyncEventSource::Cq(id) => lcore.cq == Some(id),
            AsyncEventSource::Port(port_num) => port_num == self.port_num,
            AsyncEventSource::Device => true,
            AsyncEventSource::Srq(_) => false,
        })
    }

    fn lcores_with(&self, is: impl Fn(&WatchedLcore, &WatchedPort) -> bool) -> Vec<(&WatchedLcore, Vec<usize>)> {
        let places = |lcore: &WatchedLcore| (0..lcore.ports.len()).filter(|at| is(lcore, &lcore.ports[*at])).collect();
        let with = self.lcores.iter().map(|lcore| (lcore, places(lcore)));
        with.filter(|(_, places): &(_, Vec<usize>)| !places.is_empty()).collect()
    }
}

impl WatchedLcore {
    fn port(&self, place: usize) -> String {
        self.ports[place].name.clone()
    }
}
