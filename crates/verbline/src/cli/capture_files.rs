//! The file of a capture, or its files one after another.
//!
//! Guarantees: a file is for its user alone (mode 0600), and replaces an existing one only on
//! request; each file is whole, and begins with the capture's own head.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, BufWriter, ErrorKind, Write, stdout};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{OFlags, Stat, fcntl_getfl, fcntl_setfl, fstat};
use rustix::io::Errno;

/// How a command line names standard output.
const STDOUT: &str = "-";

/// The mode of files: for their user alone.
const MODE: u32 = 0o600;

/// The output of a capture.
pub(super) struct CaptureFiles {
    path: PathBuf,
    force: bool,
    /// The size at which a file is full, and the number of files kept.
    full_bytes: Option<u64>,
    kept: Option<u64>,
    /// The beginning of each file.
    head: Vec<u8>,
    written: VecDeque<PathBuf>,
    number: u64,
    out: Box<dyn Write>,
    out_bytes: u64,
}

impl CaptureFiles {
    /// No file is created yet. `-` is standard output.
    pub(super) fn new(path: &Path, force: bool, full_bytes: Option<u64>, kept: Option<u64>) -> Self {
        CaptureFiles {
            path: path.to_owned(),
            force,
            full_bytes,
            kept,
            head: Vec::new(),
            written: VecDeque::new(),
            number: 0,
            out: Box::new(io::sink()),
            out_bytes: 0,
        }
    }

    /// Creates the first file.
    pub(super) fn begin(&mut self) -> io::Result<()> {
        self.next_file()
    }

    /// Describes an error of the current file, or of its creation.
    pub(super) fn words(&self, error: &io::Error) -> String {
        let path = self.path();
        match error.kind() {
            ErrorKind::AlreadyExists => format!("{} is there already; take another name, or --force", path.display()),
            _ if path == Path::new(STDOUT) => format!("standard output can't be written: {error}"),
            _ => format!("{} can't be written: {error}", path.display()),
        }
    }

    /// The current file.
    fn path(&self) -> PathBuf {
        match self.full_bytes {
            Some(_) if self.path != Path::new(STDOUT) => numbered(&self.path, self.number),
            _ => self.path.clone(),
        }
    }

    /// Adds a part to the beginning of each file.
    pub(super) fn head(&mut self, block: &[u8]) -> io::Result<()> {
        self.head.extend_from_slice(block);
        self.write(block)
    }

    /// Writes a packet: to another file if this one has no room for it.
    pub(super) fn packet(&mut self, block: &[u8]) -> io::Result<()> {
        let is_full = |full: u64| self.out_bytes + block.len() as u64 > full;
        if self.full_bytes.is_some_and(is_full) && self.out_bytes > self.head.len() as u64 {
            self.out.flush()?;
            self.next_file()?;
            let head = std::mem::take(&mut self.head);
            self.write(&head)?;
            self.head = head;
        }
        self.write(block)
    }

    pub(super) fn write(&mut self, block: &[u8]) -> io::Result<()> {
        self.out_bytes += block.len() as u64;
        self.out.write_all(block)
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    fn next_file(&mut self) -> io::Result<()> {
        self.out_bytes = 0;
        if self.path == Path::new(STDOUT) {
            self.out = Box::new(BufWriter::new(stdout()));
            return Ok(());
        }
        self.number += 1;
        let path = self.path();
        self.out = Box::new(BufWriter::with_capacity(1 << 20, created(&path, self.force)?));
        // Those that are not removed need not be remembered: a capture may go on for months.
        self.written.extend(self.kept.is_some().then_some(path));
        while self.kept.is_some_and(|kept| self.written.len() as u64 > kept) {
            let removed = self.written.pop_front().map_or(Ok(()), fs::remove_file);
            // It may have been removed already.
            removed.or_else(|error| if error.kind() == ErrorKind::NotFound { Ok(()) } else { Err(error) })?;
        }
        Ok(())
    }
}

/// Makes one file. A named pipe is not waited for: meanwhile the run would lose its client.
pub(super) fn created(path: &Path, force: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).mode(MODE).create_new(!force).create(force).truncate(force);
    options.custom_flags(OFlags::NONBLOCK.bits().cast_signed());
    let file = options.open(path).map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::NXIO) => io::Error::other("it is a pipe that nobody reads; start its reader first"),
        _ => error,
    })?;
    fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
    // One that was there has had a mode of its own. A device keeps it, and so does standard output
    // under another name (`-w /dev/stdout`): the file is its shell's.
    if force && file.metadata()?.is_file() && !is_stdout(&file) {
        file.set_permissions(Permissions::from_mode(MODE))?;
    }
    Ok(file)
}

fn is_stdout(file: &File) -> bool {
    let place = |stat: Stat| (stat.st_dev, stat.st_ino);
    matches!((fstat(file), fstat(stdout())), (Ok(file), Ok(out)) if place(file) == place(out))
}

/// `dump_00001.pcapng` of `dump.pcapng`.
fn numbered(path: &Path, number: u64) -> PathBuf {
    let mut name = path.file_stem().map(OsString::from).unwrap_or_default();
    name.push(format!("_{number:05}"));
    if let Some(ending) = path.extension() {
        name.push(".");
        name.push(ending);
    }
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    // open(2) waited for a reader, and no signal ended it.
    #[test]
    fn a_pipe_that_nobody_reads_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let refused = created(&pipe, true).unwrap_err().to_string();
        assert!(refused.contains("a pipe that nobody reads"), "{refused}");
        let _reader =
            OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(&pipe).unwrap();
        let file = created(&pipe, true).unwrap();
        assert!(!fcntl_getfl(&file).unwrap().contains(OFlags::NONBLOCK), "a full pipe is waited for");
    }

    #[test]
    fn a_file_that_can_not_be_made_is_the_one_that_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let there = folder.path().join("dump_00002.pcapng");
        fs::write(&there, "precious").unwrap();
        let mut files = CaptureFiles::new(&folder.path().join("dump.pcapng"), false, Some(100), None);
        files.begin().unwrap();
        files.packet(&[0; 60]).unwrap();
        let error = files.packet(&[0; 60]).unwrap_err();
        assert_eq!(files.words(&error), format!("{} is there already; take another name, or --force", there.display()));
        assert_eq!(fs::read(&there).unwrap(), b"precious");
        let mut files = CaptureFiles::new(&folder.path().join("no/dump.pcapng"), false, Some(100), None);
        let error = files.begin().unwrap_err();
        assert!(files.words(&error).contains("no/dump_00001.pcapng can't be written: No such file"));
    }
    #[test]
    fn an_old_file_that_somebody_else_has_removed_does_not_end_the_capture() {
        let folder = tempfile::tempdir().unwrap();
        let mut files = CaptureFiles::new(&folder.path().join("dump.pcapng"), false, Some(100), Some(1));
        files.begin().unwrap();
        files.packet(&[0; 60]).unwrap();
        fs::remove_file(folder.path().join("dump_00001.pcapng")).unwrap();
        files.packet(&[0; 60]).unwrap();
        files.packet(&[0; 60]).unwrap();
        let left: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["dump_00003.pcapng"]);
    }
}
