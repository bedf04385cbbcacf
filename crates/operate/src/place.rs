//! Control sockets: their folder, their creation, and the removal of those of dead processes.
//!
//! Guarantees: a socket has mode 0600, and listens from the moment at which it has its name; its
//! folder belongs to the user, and no other user may write to it; a socket in use is never removed,
//! not even by two runs that start at once.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::sockopt::SendTimeout;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, setsockopt, socket};
use nix::sys::time::TimeVal;
use rustix::fs::{FlockOperation, flock};
use rustix::process::geteuid;

/// The extension of a socket's name.
const ENDING: &str = "sock";

/// The time limit for finding out whether a process listens: just long enough to ask the kernel.
const LOOK: Duration = Duration::from_millis(1);

/// The time limit for another process that removes a dead socket of the same folder.
const REMOVAL: Duration = Duration::from_secs(1);

/// The most runs of one process that may listen at once.
const RUNS_MAX: u32 = 64;

/// The reason why there is no folder for control sockets.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}; {remedy}")]
pub struct NoPlace {
    /// The folder, and its fault.
    pub why: String,
    /// The remedy.
    pub remedy: String,
    /// XDG_RUNTIME_DIR is not set, as in many containers: no fault of the machine.
    pub is_unset: bool,
}

const REMEDY: &str = "set XDG_RUNTIME_DIR to a folder of your own, or say `--socket PATH` or `--no-socket`";

/// The folder of this user's control sockets: `$XDG_RUNTIME_DIR/verbline`; of root, without that
/// variable or where it names another user's folder, `/run/verbline`.
pub(crate) fn folder() -> Result<PathBuf, NoPlace> {
    let base = std::env::var_os("XDG_RUNTIME_DIR").filter(|value| !value.is_empty());
    // `su` and `sudo -E` leave the user's folder in root's environment. What root made there would
    // keep the user from having sockets.
    let is_anothers = |base: &OsString| fs::metadata(base).is_ok_and(|there| there.uid() != geteuid().as_raw());
    let is_root = geteuid().is_root();
    folder_below(base.filter(|base| !(is_root && is_anothers(base))), is_root)
}

fn folder_below(base: Option<OsString>, is_root: bool) -> Result<PathBuf, NoPlace> {
    let no = |why: &str, is_unset| NoPlace { why: why.to_owned(), remedy: REMEDY.to_owned(), is_unset };
    match base.map(PathBuf::from) {
        Some(base) if base.is_absolute() => Ok(base.join("verbline")),
        Some(base) => Err(no(&format!("XDG_RUNTIME_DIR is no absolute path: {}", base.display()), false)),
        None if is_root => Ok(PathBuf::from("/run/verbline")),
        None => Err(no("XDG_RUNTIME_DIR is not set", true)),
    }
}

/// A listening socket. Dropping it removes its file.
#[derive(Debug)]
pub(crate) struct Placed {
    pub(crate) listener: UnixListener,
    pub(crate) path: PathBuf,
    /// The file's device and inode: another process may have replaced it.
    file: (u64, u64),
}

impl Placed {
    /// Listens in the user's folder, under the process's number, and removes sockets of dead
    /// processes from the folder.
    pub(crate) fn in_folder(folder: &Path) -> Result<Placed, NoPlace> {
        let refuse = |error: io::Error| NoPlace {
            why: format!("no control socket can be made in {}: {error}", folder.display()),
            remedy: REMEDY.to_owned(),
            is_unset: false,
        };
        own_folder(folder).map_err(refuse)?;
        listed(folder).into_iter().for_each(|path| drop(clear(&path)));
        let pid = std::process::id();
        // A process of another PID namespace that shares the folder may have the same number.
        let names = (0..RUNS_MAX).map(|run| match run {
            0 => folder.join(format!("{pid}.{ENDING}")),
            run => folder.join(format!("{pid}-{run}.{ENDING}")),
        });
        for path in names {
            match Placed::at(&path) {
                Err(error) if error.kind() == ErrorKind::AddrInUse => {}
                placed => return placed.map_err(refuse),
            }
        }
        Err(refuse(io::Error::new(ErrorKind::AddrInUse, format!("process {pid} has {RUNS_MAX} of them"))))
    }

    /// Listens at `path`, in place of a socket of a dead process.
    pub(crate) fn at(path: &Path) -> io::Result<Placed> {
        // A longer path could be bound as well, but no client could connect to it.
        SocketAddr::from_pathname(path)?;
        if !clear(path)? {
            return Err(io::Error::new(ErrorKind::AddrInUse, "another run listens there"));
        }
        // The socket has another name until it listens with the right mode: the mode that bind(2)
        // gives depends on the umask. A link fails where a name exists, so that of two runs that
        // start at once one fails.
        let unready = path.with_file_name(unready_name());
        let _ = fs::remove_file(&unready);
        let listener = UnixListener::bind(&unready)?;
        let named = fs::set_permissions(&unready, Permissions::from_mode(0o600))
            .and_then(|()| listener.set_nonblocking(true))
            .and_then(|()| fs::hard_link(&unready, path))
            .and_then(|()| fs::symlink_metadata(path));
        let _ = fs::remove_file(&unready);
        let file = match named {
            Ok(file) => (file.dev(), file.ino()),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                return Err(io::Error::new(ErrorKind::AddrInUse, "another run listens there"));
            }
            Err(error) => return Err(error),
        };
        Ok(Placed { listener, path: path.to_owned(), file })
    }
}

impl Drop for Placed {
    fn drop(&mut self) {
        if fs::symlink_metadata(&self.path).is_ok_and(|now| (now.dev(), now.ino()) == self.file) {
            // If it can't be removed, the next run removes it.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// The name of a socket in the making, unique in this process. It is short: a path of a socket has
/// 107 bytes at most (unix(7)).
fn unready_name() -> String {
    static MADE: AtomicU32 = AtomicU32::new(0);
    // Relaxed: each number is given once, and orders nothing else.
    format!(".{}-{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed))
}

/// The sockets in a folder, by name.
pub(crate) fn listed(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.retain(|path| path.extension().is_some_and(|ending| ending == ENDING));
    paths.sort();
    paths
}

/// The content of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum There {
    Nothing,
    /// The socket of a dead process.
    Dead,
    Somebodys,
}

fn there(path: &Path) -> io::Result<There> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(There::Nothing),
        Err(error) => return Err(error),
        Ok(file) if !file.file_type().is_socket() => {
            return Err(io::Error::new(ErrorKind::AlreadyExists, "there is a file that is no socket"));
        }
        Ok(_) => {}
    }
    match connected(path, LOOK) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => Ok(There::Dead),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(There::Nothing),
        // A full connection queue (EAGAIN) belongs to a live process.
        _ => Ok(There::Somebodys),
    }
}

/// Removes the socket of a dead process. Returns whether the path is free; a file other than a
/// socket is an error.
pub(crate) fn clear(path: &Path) -> io::Result<bool> {
    let mut found = there(path)?;
    if found == There::Dead {
        // Another process may have removed it by now, and listen there.
        let _lock = locked(path.parent().unwrap_or(path))?;
        found = there(path)?;
        if found == There::Dead {
            fs::remove_file(path)?;
            found = There::Nothing;
        }
    }
    Ok(found == There::Nothing)
}

/// The lock of a folder, held while a dead socket is removed from it. No other process removes one
/// meanwhile, so that a name in use stays with its socket.
fn locked(folder: &Path) -> io::Result<File> {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let (file, asked) = (File::open(folder)?, Instant::now());
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(error) if error.kind() == ErrorKind::WouldBlock && asked.elapsed() < REMOVAL => {
                std::thread::sleep(LOOK);
            }
            Err(error) => {
                let message = format!("the folder of a dead socket can't be locked, to remove that: {error}");
                return Err(io::Error::new(error.kind(), message));
            }
        }
    }
}

/// Connects to the socket at `path`. A stopped process accepts no connections: once its queue is
/// full, connect(2) waits, and after `patience` the error is [`ErrorKind::WouldBlock`].
pub(crate) fn connected(path: &Path, patience: Duration) -> io::Result<UnixStream> {
    let (address, flags) = (UnixAddr::new(path)?, SockFlag::SOCK_CLOEXEC);
    let stream = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    // It bounds connect(2) too (unix_stream_connect of the kernel). A second has a million
    // microseconds.
    let (seconds, micros) = (patience.as_secs().cast_signed(), patience.subsec_micros().into());
    setsockopt(&stream, SendTimeout, &TimeVal::new(seconds, micros))?;
    loop {
        match connect(stream.as_raw_fd(), &address) {
            Ok(()) => return Ok(UnixStream::from(stream)),
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Creates the folder, or checks that the existing one is the user's own.
fn own_folder(folder: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Ok(()) => return Ok(()),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    let there = fs::symlink_metadata(folder)?;
    let refuse = |why: String| Err(io::Error::new(ErrorKind::PermissionDenied, why));
    if !there.is_dir() {
        return refuse("it is no folder".to_owned());
    }
    if there.uid() != geteuid().as_raw() {
        return refuse(format!("it belongs to user {}", there.uid()));
    }
    match there.mode() & 0o022 {
        0 => Ok(()),
        _ => refuse(format!("others may write to it (mode {:o})", there.mode() & 0o777)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_is_the_users_or_roots() {
        let below = |base: Option<&str>, is_root| folder_below(base.map(OsString::from), is_root);
        assert_eq!(below(Some("/run/user/7"), false), Ok("/run/user/7/verbline".into()));
        assert_eq!(below(Some("/run/user/0"), true), Ok("/run/user/0/verbline".into()));
        assert_eq!(below(None, true), Ok("/run/verbline".into()));
        assert!(below(None, false).unwrap_err().to_string().contains("--socket PATH"));
        let relative = below(Some("run"), false).unwrap_err();
        assert!(relative.why.contains("no absolute path: run") && !relative.is_unset, "{relative}");
        assert!(below(None, false).unwrap_err().is_unset);
    }

    #[test]
    fn a_socket_listens_as_soon_as_it_has_its_name_and_is_nobody_elses() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("verbline");
        let first = Placed::in_folder(&inner).unwrap();
        let mode = |path: &Path| fs::symlink_metadata(path).unwrap().mode() & 0o777;
        assert_eq!((mode(&first.path), mode(&inner)), (0o600, 0o700));
        assert!(UnixStream::connect(&first.path).is_ok());
        let second = Placed::in_folder(&inner).unwrap();
        assert_ne!(first.path, second.path);
        assert_eq!(listed(&inner).len(), 2, "no half-made socket is left");
        let (gone, kept) = (first.path.clone(), second.path.clone());
        drop(first);
        assert!(!gone.exists() && kept.exists());
    }

    #[test]
    fn the_socket_of_a_dead_process_is_cleared_and_that_of_a_living_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let (dead, alive) = (folder.path().join("1.sock"), folder.path().join("2.sock"));
        drop(UnixListener::bind(&dead).unwrap());
        let _listens = UnixListener::bind(&alive).unwrap();
        let placed = Placed::in_folder(folder.path()).unwrap();
        assert!(!dead.exists() && alive.exists());
        let refused = Placed::at(&alive).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::AddrInUse, "{refused}");
        // Another process's socket in its place is not removed on drop.
        fs::remove_file(&placed.path).unwrap();
        let path = placed.path.clone();
        let _other = UnixListener::bind(&path).unwrap();
        drop(placed);
        assert!(path.exists());
        let file = folder.path().join("3.sock");
        fs::write(&file, "precious").unwrap();
        assert_eq!(Placed::at(&file).unwrap_err().kind(), ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&file).unwrap(), b"precious");
    }

    /// The check for a dead socket is repeated under the folder's lock.
    #[test]
    fn a_socket_that_took_a_dead_ones_place_meanwhile_is_not_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("1.sock");
        drop(UnixListener::bind(&path).unwrap());
        let lock = locked(folder.path()).unwrap();
        let clearing = std::thread::spawn({
            let path = path.clone();
            move || clear(&path).unwrap()
        });
        std::thread::sleep(Duration::from_millis(100));
        assert!(path.exists(), "another removes it now");
        fs::remove_file(&path).unwrap();
        let _listens = UnixListener::bind(&path).unwrap();
        drop(lock);
        assert!(!clearing.join().unwrap() && path.exists());
    }

    #[test]
    fn a_socket_has_any_path_that_a_socket_may_have() {
        const PATH_BYTES_MAX: usize = 107;
        let folder = tempfile::tempdir().unwrap();
        let room = PATH_BYTES_MAX - folder.path().as_os_str().len() - 1;
        let longest = folder.path().join("n".repeat(room));
        assert_eq!(Placed::at(&longest).unwrap().path, longest);
        assert!(Placed::at(&folder.path().join("n".repeat(room + 1))).is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left");
    }

    #[test]
    fn a_socket_whose_queue_is_full_is_somebodys_and_keeps_nobody_waiting() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("1.sock");
        let _listens = UnixListener::bind(&path).unwrap();
        // Connections that have hung up wait in the queue, too.
        while connected(&path, LOOK).is_ok() {}
        let full = connected(&path, LOOK).unwrap_err();
        assert_eq!(full.kind(), ErrorKind::WouldBlock, "{full}");
        assert!(!clear(&path).unwrap() && path.exists());
    }

    #[test]
    fn a_folder_that_others_may_write_to_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), Permissions::from_mode(0o777)).unwrap();
        let refused = Placed::in_folder(folder.path()).unwrap_err();
        assert!(refused.why.contains("others may write to it (mode 777)"), "{refused}");
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(Placed::in_folder(&file).unwrap_err().why.contains("no folder"));
    }
}
