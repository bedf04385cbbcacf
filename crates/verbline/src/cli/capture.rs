//! `capture`: the packets at a run's ports, as a file for tshark and Wireshark.

use std::io::{self, ErrorKind};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use verbline_operate::capture::blocks::{BlockKind, Blocks};
use verbline_operate::client::open;

use super::args_operate::CaptureOptions;
use super::capture_files::CaptureFiles;
use super::figures::count;
use super::output::message;
use super::run::fail;
use super::signals::caught;
use super::times::end_of;

/// The time until a signal is noticed, and until a packet is in the file.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The time for the run to send the rest after the request to end.
const END_PATIENCE: Duration = Duration::from_secs(5);

/// Captures until the count or the time is reached, a signal arrives, or the run ends.
pub(super) fn capture(options: &CaptureOptions) -> ExitCode {
    let asked = match caught() {
        Ok(asked) => asked,
        Err(error) => return fail(&format!("signals can't be caught: {error}")),
    };
    let begun = open(options.name.as_deref()).and_then(|mut client| {
        let hello = client.hello()?;
        Ok((hello, client.capture(options.ask())?))
    });
    let (hello, (head, blocks)) = match begun {
        Ok(begun) => begun,
        Err(error) => return fail(&error.to_string()),
    };
    let CaptureOptions { write, force, file_size, files, .. } = options;
    let mut files = CaptureFiles::new(write, *force, *file_size, *files);
    if let Err(error) = files.begin() {
        return fail(&files.words(&error));
    }
    message(&format!("{}: capturing at {}; Ctrl-C ends it", hello.plan, head.points.join(", ")));
    let mut taking = Taking { options, blocks, ends_at: None, packets: 0, lost: 0, has_end: false };
    match taking.all(&mut files, &asked) {
        Ok(()) => {
            let (packets, lost) = (count(taking.packets), count(taking.lost));
            message(&format!("{packets} packets captured, {lost} lost to the capture"));
            ExitCode::SUCCESS
        }
        Err(Fault::File(error)) => {
            fail(&format!("{}; {} packets were captured at most", files.words(&error), taking.packets))
        }
        Err(Fault::Run(why)) => fail(&format!("{why}; {} packets were captured", taking.packets)),
    }
}

enum Fault {
    /// A fault of the file.
    File(io::Error),
    /// A fault of the run, or of its data.
    Run(String),
}

struct Taking<'a> {
    options: &'a CaptureOptions,
    blocks: Blocks,
    /// Set when the run was asked to end the capture: the time limit for that.
    ends_at: Option<Instant>,
    packets: u64,
    lost: u64,
    /// The last counts have arrived.
    has_end: bool,
}

impl Taking<'_> {
    fn all(&mut self, files: &mut CaptureFiles, asked: &AtomicBool) -> Result<(), Fault> {
        let until = self.options.length.and_then(end_of);
        let mut flushed_at = Instant::now();
        loop {
            let now = Instant::now();
            // Where packets trickle in, no wait for one is ever in vain.
            if now.duration_since(flushed_at) >= LOOK_EVERY {
                files.flush().map_err(Fault::File)?;
                flushed_at = now;
            }
            // Relaxed: the flag publishes no data, and may be seen one look later.
            let is_enough = asked.load(Ordering::Relaxed)
                || until.is_some_and(|until| until <= now)
                || self.options.count.is_some_and(|count| self.packets >= count);
            if is_enough && self.ends_at.is_none() {
                self.blocks.end();
                self.ends_at = Some(now + END_PATIENCE);
            }
            if self.ends_at.is_some_and(|ends_at| ends_at <= now) {
                return Err(Fault::Run("the run does not end the capture".to_owned()));
            }
            let patience = until.map_or(LOOK_EVERY, |until| until.saturating_duration_since(now).min(LOOK_EVERY));
            match self.blocks.next(patience) {
                Ok(None) => {}
                Ok(Some(block)) => self.block(block.kind, &block.bytes, files).map_err(Fault::File)?,
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return self.over(files),
                Err(error) => return Err(Fault::Run(format!("the capture breaks off: {error}"))),
            }
        }
    }

    fn block(&mut self, kind: BlockKind, bytes: &[u8], files: &mut CaptureFiles) -> io::Result<()> {
        match kind {
            BlockKind::Head => files.head(bytes),
            // Packets beyond the wanted count.
            BlockKind::Packet if self.options.count.is_some_and(|count| self.packets >= count) => Ok(()),
            BlockKind::Packet => {
                self.packets += 1;
                files.packet(bytes)
            }
            BlockKind::End { lost } => {
                self.has_end = true;
                self.lost += lost;
                files.write(bytes)
            }
        }
    }

    /// Handles the end of the run's data.
    fn over(&self, files: &mut CaptureFiles) -> Result<(), Fault> {
        files.flush().map_err(Fault::File)?;
        match self.has_end {
            true => Ok(()),
            false => Err(Fault::Run("the run ended, and not in order".to_owned())),
        }
    }
}
