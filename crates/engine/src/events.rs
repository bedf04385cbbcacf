//! The devices' asynchronous events: counted and logged by a thread of their own.
//!
//! A device is shared by its lcores, and an event descriptor that each of them slept on would wake them all, and keep
//! awake those who don't read it. A thread that blocks on all of them costs the lcores nothing, under any idle policy.

use std::collections::BTreeMap;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use rustix::event::epoll;
use verbline_ring::{Sleeper, Waker, doorbell};
use verbline_verbs::{AsyncEventKind, AsyncEvents};

use crate::report::EventReport;

/// A device whose events are watched.
#[derive(Debug)]
pub(crate) struct Watched {
    /// The device's own name.
    pub(crate) device: String,
    pub(crate) events: AsyncEvents,
}

/// Events so far, by device and kind.
type Counts = Arc<Mutex<BTreeMap<(String, String), u64>>>;

/// The thread that watches.
#[derive(Debug)]
pub(crate) struct Watch {
    counts: Counts,
    stop: Waker,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    pub(crate) fn start(devices: Vec<Watched>) -> io::Result<Watch> {
        let counts = Counts::default();
        let (stop, bell) = doorbell()?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, bell.as_fd(), epoll::EventData::new_u64(BELL), epoll::EventFlags::IN)?;
        for (index, watched) in devices.iter().enumerate() {
            let data = epoll::EventData::new_u64(index as u64);
            epoll::add(&epoll, watched.events.as_fd(), data, epoll::EventFlags::IN)?;
        }
        let seen = Arc::clone(&counts);
        let thread =
            std::thread::Builder::new().name("vl-events".into()).spawn(move || watch(&epoll, bell, &devices, &seen))?;
        Ok(Watch { counts, stop, thread: Some(thread) })
    }

    pub(crate) fn report(&self) -> Vec<EventReport> {
        let counts = self.counts.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let entry = |((device, event), count): (&(String, String), &u64)| EventReport {
            device: device.clone(),
            event: event.clone(),
            count: *count,
        };
        counts.iter().map(entry).collect()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        // The bell is armed for all of the thread's life but an instant at its start; the thread ends in any case.
        while !self.stop.ring() && !thread.is_finished() {
            std::thread::yield_now();
        }
        if thread.join().is_err() {
            tracing::error!("the thread that watches the devices' events panicked");
        }
    }
}

const BELL: u64 = u64::MAX;
/// How often in a row a descriptor may be readable without an event before it is given up.
const EMPTY_READS_MAX: u32 = 8;

fn watch(epoll: &OwnedFd, mut bell: Sleeper, devices: &[Watched], counts: &Counts) {
    let armed = bell.arm();
    let mut empty = vec![0; devices.len()];
    let mut buffer = [MaybeUninit::uninit(); 8];
    'watching: loop {
        let ready = match epoll::wait(epoll, &mut buffer, None) {
            Ok((ready, _)) => ready,
            Err(rustix::io::Errno::INTR) => continue,
            Err(errno) => {
                tracing::error!(%errno, "the devices' events cannot be waited for any more");
                break;
            }
        };
        for event in ready.iter() {
            if event.data.u64() == BELL {
                break 'watching;
            }
            let index = event.data.u64() as usize;
            let watched = &devices[index];
            empty[index] = if take_all(watched, counts) { 0 } else { empty[index] + 1 };
            if empty[index] >= EMPTY_READS_MAX {
                // Readable, but with nothing to read, it would keep this thread spinning for ever.
                let gone = epoll::delete(epoll, watched.events.as_fd());
                tracing::warn!(device = %watched.device, ?gone, "the device's events are watched no more");
            }
        }
    }
    bell.woken(armed);
}

/// Reads what is there. False if nothing was.
fn take_all(watched: &Watched, counts: &Counts) -> bool {
    let mut any = false;
    loop {
        match watched.events.try_next() {
            Ok(Some(event)) => {
                any = true;
                let name = format!("{:?}", event.kind);
                match event.kind {
                    AsyncEventKind::CommEst | AsyncEventKind::SqDrained | AsyncEventKind::QpLastWqeReached => {}
                    _ => {
                        tracing::warn!(device = %watched.device, event = %name, source = ?event.source, "device event")
                    }
                }
                let mut counts = counts.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                *counts.entry((watched.device.clone(), name)).or_default() += 1;
            }
            Ok(None) => return any,
            Err(error) => {
                tracing::warn!(device = %watched.device, %error, "cannot read the device's events");
                return false;
            }
        }
    }
}
