//! The bytes that a run sends behind its answer to a capture or a trace, until the end.

use std::io::{self, ErrorKind, Read};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// The time for the run to end a stream that is not wanted any more.
const END_PATIENCE: Duration = Duration::from_secs(1);

/// See the top of this file.
#[derive(Debug)]
pub(crate) struct Incoming {
    stream: UnixStream,
    /// Bytes received, and how many of them were taken.
    read: Vec<u8>,
    taken: usize,
}

impl Incoming {
    /// `read` has the bytes already received behind the answer.
    pub(crate) fn new(stream: UnixStream, read: Vec<u8>) -> Incoming {
        Incoming { stream, read, taken: 0 }
    }

    /// Asks the run to end the stream; the rest of it still arrives.
    pub(crate) fn end(&self) {
        // A run that is gone has ended the stream.
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// Bytes received but not taken.
    pub(crate) fn rest(&self) -> &[u8] {
        &self.read[self.taken..]
    }

    /// Takes the first bytes of the rest.
    pub(crate) fn take(&mut self, bytes: usize) {
        self.taken = (self.taken + bytes).min(self.read.len());
    }

    /// Waits for more bytes; false if none arrive within `patience`.
    pub(crate) fn wait(&mut self, patience: Duration) -> io::Result<bool> {
        self.read.drain(..self.taken);
        self.taken = 0;
        self.stream.set_read_timeout(Some(patience.max(Duration::from_millis(1))))?;
        let mut buffer = [0; 64 << 10];
        match self.stream.read(&mut buffer) {
            Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
            Ok(read) => {
                self.read.extend_from_slice(&buffer[..read]);
                Ok(true)
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => Ok(false),
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(false),
            Err(error) => Err(error),
        }
    }
}

impl Drop for Incoming {
    /// Ends the stream and waits for that: until then the run begins no other one.
    fn drop(&mut self) {
        self.end();
        let deadline = Instant::now() + END_PATIENCE;
        while let Some(left) = deadline.checked_duration_since(Instant::now())
            && self.wait(left).is_ok()
        {
            self.read.clear();
        }
    }
}
