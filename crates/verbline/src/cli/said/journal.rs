//! Entries of systemd's journal, each a datagram (systemd's "Native Journal Protocol"): lines
//! `NAME=value`, and a value with line breaks as its name, its length in eight bytes, and itself.

use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::OnceLock;

use tracing::Level;

const JOURNAL: &str = "/run/systemd/journal/socket";

static SOCKET: OnceLock<UnixDatagram> = OnceLock::new();

/// Finds the journal.
pub(super) fn connect() -> io::Result<()> {
    if SOCKET.get().is_none() {
        // A second socket that came first is as good.
        let _ = SOCKET.set(connected(Path::new(JOURNAL))?);
    }
    Ok(())
}

fn connected(path: &Path) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    socket.connect(path)?;
    // No thread waits for a journal that is behind.
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Sends an entry. Returns whether the journal has taken it.
pub(crate) fn send(entry: &[u8]) -> bool {
    SOCKET.get().is_some_and(|socket| socket.send(entry).is_ok())
}

/// An entry of these fields; their names must be valid for the journal.
pub(crate) fn entry(level: Level, message: &str, fields: &[(String, String)]) -> Vec<u8> {
    let priority = match level {
        Level::ERROR => "3",
        Level::WARN => "4",
        Level::INFO => "6",
        _ => "7",
    };
    let mut bytes = Vec::new();
    put(&mut bytes, "PRIORITY", priority);
    put(&mut bytes, "SYSLOG_IDENTIFIER", &identifier());
    put(&mut bytes, "MESSAGE", message);
    for (name, value) in fields {
        put(&mut bytes, name, value);
    }
    bytes
}

fn put(bytes: &mut Vec<u8>, name: &str, value: &str) {
    bytes.extend_from_slice(name.as_bytes());
    if value.contains('\n') {
        bytes.push(b'\n');
        bytes.extend_from_slice(&(value.len() as u64).to_le_bytes());
    } else {
        bytes.push(b'=');
    }
    bytes.extend_from_slice(value.as_bytes());
    bytes.push(b'\n');
}

/// The program's name.
fn identifier() -> String {
    let program = std::env::args_os().next().unwrap_or_default();
    Path::new(&program).file_name().map_or_else(|| "verbline".to_owned(), |name| name.to_string_lossy().into_owned())
}

/// A field's name as the journal accepts it: capitals, digits and `_`, which can't come first.
pub(crate) fn field_name(name: &str) -> String {
    let letter = |letter: char| if letter.is_ascii_alphanumeric() { letter.to_ascii_uppercase() } else { '_' };
    name.chars().map(letter).collect::<String>().trim_start_matches('_').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_has_the_fields_that_it_was_given() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        assert!(connected(&path).is_err(), "nobody is there");
        let journal = UnixDatagram::bind(&path).unwrap();
        let fields = [("PORT".to_owned(), "feed_a".to_owned()), ("WHY".to_owned(), "two\nlines".to_owned())];
        connected(&path).unwrap().send(&entry(Level::WARN, "the port is down", &fields)).unwrap();
        let mut bytes = [0; 512];
        let len_bytes = journal.recv(&mut bytes).unwrap();
        let taken = &bytes[..len_bytes];
        let (lines, long) = taken.split_at(taken.windows(4).position(|bytes| bytes == b"WHY\n").unwrap());
        let lines = std::str::from_utf8(lines).unwrap();
        assert!(lines.starts_with("PRIORITY=4\nSYSLOG_IDENTIFIER="), "{lines}");
        assert!(lines.ends_with("\nMESSAGE=the port is down\nPORT=feed_a\n"), "{lines}");
        assert_eq!(long, b"WHY\n\x09\0\0\0\0\0\0\0two\nlines\n");
    }

    #[test]
    fn names_of_fields_are_as_the_journal_takes_them() {
        for (name, taken) in [("port", "PORT"), ("r#type", "R_TYPE"), ("_own", "OWN"), ("peer.addr", "PEER_ADDR")] {
            assert_eq!(field_name(name), taken);
        }
    }
}
