//! Get Log Page.

use std::net::IpAddr;

use verbline::prelude::*;
use verbline_nvme::discovery::{self, DiscoveryEntry};
use verbline_nvme::identify::ControllerType;
use verbline_nvme::log::{self, ERROR_ENTRY_BYTES, LogRequest, Smart, id};
use verbline_nvme::{Command, Status};

use crate::admin::{AdminAnswer, FIRMWARE};
use crate::stage::Target;

impl Target {
    pub(crate) fn log_page(
        &mut self,
        at: u16,
        command: &Command,
        out: &mut Outputs<'_>,
    ) -> Result<AdminAnswer, Status> {
        let asked = LogRequest::of(command);
        let (Ok(len), Ok(offset)) = (usize::try_from(asked.len), usize::try_from(asked.offset)) else {
            return Err(Status::INVALID_FIELD.do_not_retry());
        };
        if len > self.rules.settings.transfer_bytes_max as usize || !offset.is_multiple_of(4) {
            return Err(Status::INVALID_FIELD.do_not_retry());
        }
        let queue = self.queues.get(at).ok_or(Status::INTERNAL_ERROR)?;
        let controller = queue.controller.as_ref().ok_or(Status::INTERNAL_ERROR)?;
        let is_discovery = controller.kind == ControllerType::Discovery;
        let called = out.peer(queue.connection).map(|peer| peer.local.ip().to_canonical());
        let mut packet = self.page(at, command, len, out)?;
        let mut window = Window { bytes: packet.data_mut(), offset, end: 0 };
        match (asked.id, is_discovery) {
            (id::DISCOVERY, true) => self.discovery_log(&mut window, called),
            (id::ERROR, _) => {
                let (entries, _) = controller.errors();
                entries
                    .iter()
                    .enumerate()
                    .for_each(|(index, entry)| window.put(index * ERROR_ENTRY_BYTES, &entry.to_bytes()));
            }
            (id::SMART, false) => window.put(0, &self.smart(controller.errors().1).to_bytes()),
            (id::FIRMWARE_SLOTS, false) => window.put(0, &log::firmware_slots(FIRMWARE)),
            (id::EFFECTS, false) => {
                let mut page = [0; log::PAGE_BYTES];
                log::write_effects(&mut page);
                window.put(0, &page);
            }
            (id::CHANGED_NAMESPACES, false) => {
                let admin =
                    self.queues.get_mut(at).and_then(|queue| queue.admin.as_mut()).ok_or(Status::INTERNAL_ERROR)?;
                window.put(0, &[0; log::PAGE_BYTES]);
                if std::mem::take(&mut admin.are_too_many) {
                    admin.changed.clear();
                    admin.changed.push(log::CHANGED_TOO_MANY);
                }
                admin.changed.sort_unstable();
                admin.changed.iter().enumerate().for_each(|(index, nsid)| window.put(4 * index, &nsid.to_le_bytes()));
                // A host that asks from beyond the log's end has read nothing.
                if !asked.retain_event && offset <= window.end {
                    admin.changed.clear();
                    (admin.is_untold, admin.is_masked) = (false, false);
                }
            }
            _ => return Err(Status::INVALID_LOG_PAGE.do_not_retry()),
        }
        // No data lies beyond the log's end.
        if offset > window.end {
            return Err(Status::INVALID_FIELD.do_not_retry());
        }
        Ok(AdminAnswer::Page(packet))
    }

    /// Writes the subsystem's addresses. A listener on every address is shown with the address that
    /// this host `called`.
    fn discovery_log(&self, window: &mut Window<'_>, called: Option<IpAddr>) {
        let listeners = &self.rules.listeners;
        let mut bytes = [0; discovery::ENTRY_BYTES];
        discovery::write_head(&mut bytes, self.shared.generation, listeners.len() as u64);
        window.put(0, &bytes);
        for (index, listener) in listeners.iter().enumerate() {
            let mut address = *listener;
            called.filter(|_| listener.ip().is_unspecified()).into_iter().for_each(|ip| address.set_ip(ip));
            let entry = DiscoveryEntry {
                address,
                port_id: index as u16 + 1,
                admin_entries: 32,
                subsystem: self.rules.subsystem,
            };
            entry.write(&mut bytes);
            window.put((index + 1) * discovery::ENTRY_BYTES, &bytes);
        }
    }

    fn smart(&self, errors: u64) -> Smart {
        self.shared.tallies().iter().fold(Smart { errors, ..Smart::default() }, |sum, tally| Smart {
            reads: sum.reads + tally.reads.value(),
            writes: sum.writes + tally.writes.value(),
            read_bytes: sum.read_bytes + tally.read_bytes.value(),
            written_bytes: sum.written_bytes + tally.written_bytes.value(),
            ..sum
        })
    }
}

/// The part of a log that a host reads.
struct Window<'a> {
    bytes: &'a mut [u8],
    offset: usize,
    /// The length of the log so far.
    end: usize,
}

impl Window<'_> {
    /// Writes `part`, at offset `at` of the log, as far as it is in the window.
    fn put(&mut self, at: usize, part: &[u8]) {
        self.end = self.end.max(at + part.len());
        let from = at.max(self.offset);
        let to = (at + part.len()).min(self.offset.saturating_add(self.bytes.len()));
        if from < to {
            self.bytes[from - self.offset..to - self.offset].copy_from_slice(&part[from - at..to - at]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_shows_its_part_of_a_log() {
        let whole: Vec<u8> = (0..=255).collect();
        for (offset, len) in [(0, 256), (0, 4), (64, 64), (250, 20), (100, 0), (300, 8)] {
            let mut bytes = vec![0xEE; len];
            let mut window = Window { bytes: &mut bytes, offset, end: 0 };
            whole.chunks(48).enumerate().for_each(|(index, part)| window.put(48 * index, part));
            assert_eq!(window.end, 256);
            let shown: Vec<u8> = (offset..offset + len).map(|at| whole.get(at).copied().unwrap_or(0xEE)).collect();
            assert_eq!(bytes, shown, "{len} bytes from {offset} on");
        }
    }
}
