//! Opening a file or block device as a store: by which flags, of what size, aligned to what.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, StatxFlags};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use verbline_mem::Pool;
use verbline_mem::uring::{FileRing, RingSpec};

use super::claim::Claim;
use super::error::{FileError, system};
use super::sectors::Sectors;
use super::store::FileStore;
use crate::store::Geometry;

/// Whether the page cache is passed by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DirectIo {
    /// Where the file system can, and the blocks are large enough; else a note says why not.
    #[default]
    Auto,
    /// Or it is an error.
    Always,
    /// Through the page cache.
    Never,
}

/// A file or block device to open.
#[derive(Clone, Debug)]
pub struct FileSpec {
    /// Where it is.
    pub path: PathBuf,
    /// Bytes of a block.
    pub block_bytes: u32,
    /// Past the page cache?
    pub direct: DirectIo,
    /// Not to be changed.
    pub read_only: bool,
    /// Makes a regular file that is not there, with this length, all allocated. One that is there
    /// keeps its length.
    pub create_bytes: Option<u64>,
    /// The most requests under way.
    pub depth: u32,
    /// The pools that packets come from: their pages are pinned, and need no lookup.
    pub pools: Vec<Pool>,
}

impl FileSpec {
    /// The file as it is, with direct I/O where that is to be had.
    pub fn new(path: impl Into<PathBuf>, block_bytes: u32, depth: u32) -> FileSpec {
        let (direct, read_only, create_bytes, pools) = (DirectIo::Auto, false, None, Vec::new());
        FileSpec { path: path.into(), block_bytes, direct, read_only, create_bytes, depth, pools }
    }
}

impl FileStore<FileRing> {
    /// Opens it, for one lcore. Another lcore opens it once more. Other processes are kept from
    /// writing to it as long as one of these stores is there.
    ///
    /// # Errors
    /// The machine or the file lacks something; the error says what, and what to do.
    pub fn open(spec: &FileSpec) -> Result<FileStore, FileError> {
        let path = &spec.path;
        let geometry = |len| {
            Geometry::of_bytes(len, spec.block_bytes)
                .map_err(|source| FileError::Geometry { path: path.clone(), source })
        };
        geometry(0)?;
        if let Some(len_bytes) = spec.create_bytes {
            create(path, len_bytes, spec.block_bytes)?;
        }
        let mut notes = Vec::new();
        // Its kind before it is opened, since open(2) waits for the other end of a FIFO. Not with
        // O_NONBLOCK: the ring would then fail what it can't do at once.
        let stat = check_kind(path)?;
        if !spec.read_only {
            check_writable(path, &stat)?;
        }
        let claim = Claim::take(path, &stat, spec.read_only)?;
        if let Some(lack) = claim.lack {
            notes.push(format!("store {}: {lack}", path.display()));
        }
        let (file, align_bytes) = open_file(spec, &mut notes)?;
        let len_bytes = rustix::fs::seek(&file, rustix::fs::SeekFrom::End(0))
            .map_err(|errno| system(path, "lseek(2) to its end", errno, "name a regular file or a block device"))?;
        let geometry =
            Geometry { volatile_cache: true, read_only: spec.read_only, align_bytes, ..geometry(len_bytes)? };
        if geometry.blocks == 0 {
            return Err(FileError::Empty { path: path.clone(), len_bytes, block_bytes: spec.block_bytes });
        }
        let ring = RingSpec { depth: spec.depth, pools: spec.pools.clone() };
        let ring = FileRing::open(file, &ring).map_err(|source| FileError::Ring { path: path.clone(), source })?;
        if let Some(error) = ring.unregistered() {
            notes.push(format!(
                "store {}: its buffers are not registered ({error}), so that the kernel looks up their pages for each \
                 transfer; raise `ulimit -l`",
                path.display()
            ));
        }
        let store = FileStore::over(ring, geometry, spec.depth as usize, notes);
        Ok(store.claiming(claim).measured_by(Sectors::of(&stat)))
    }
}

/// Makes the file if it is not there; another that makes it at the same time makes the same.
fn create(path: &Path, len_bytes: u64, block_bytes: u32) -> Result<(), FileError> {
    // It would be there next time, when more is asked for, and keep its length.
    if len_bytes < block_bytes.into() && !path.exists() {
        return Err(FileError::TooShort { path: path.to_owned(), len_bytes, block_bytes });
    }
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = match rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR) {
        Ok(file) => file,
        Err(Errno::EXIST) => return Ok(()),
        Err(errno) => return Err(system(path, "open(2) to make it", errno, "check that its folder is there")),
    };
    let allocated = match rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, len_bytes) {
        // No space is set aside then; it is found when it is written.
        Err(Errno::OPNOTSUPP) => rustix::fs::ftruncate(&file, len_bytes),
        done => done,
    };
    // The folder's entry too: a flush promises the file's blocks, and not that it has a name.
    let kept = allocated.and_then(|()| rustix::fs::fsync(&file)).and_then(|()| sync_folder(path));
    kept.map_err(|errno| {
        // Half a file would be taken for the whole one next time. Whether it goes is no more news.
        let _ = rustix::fs::unlink(path);
        system(path, "fallocate(2)", errno, "free space there, or ask for less")
    })
}

/// Makes the name of a new file durable.
fn sync_folder(path: &Path) -> Result<(), Errno> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let folder = rustix::fs::open(folder, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    match rustix::fs::fsync(&folder) {
        // The file system keeps its folders otherwise.
        Err(Errno::INVAL | Errno::ROFS) => Ok(()),
        done => done,
    }
}

/// The file, opened, and what the data of packets must be aligned to.
fn open_file(spec: &FileSpec, notes: &mut Vec<String>) -> Result<(OwnedFd, u32), FileError> {
    let path = &spec.path;
    let access = if spec.read_only { OFlags::RDONLY } else { OFlags::RDWR };
    let flags = access | OFlags::CLOEXEC;
    let open = |flags| rustix::fs::open(path, flags, Mode::empty());
    let file = open(flags).map_err(|errno| system(path, "open(2)", errno, "check its name and its rights"))?;
    if spec.direct == DirectIo::Never {
        return Ok((file, 1));
    }
    let why = match open(flags | OFlags::DIRECT) {
        Err(Errno::INVAL | Errno::OPNOTSUPP) if spec.direct == DirectIo::Always => {
            return Err(FileError::NoDirectIo { path: path.clone() });
        }
        Err(Errno::INVAL | Errno::OPNOTSUPP) => "its file system has no direct I/O".to_owned(),
        Err(errno) => return Err(system(path, "open(2) with O_DIRECT", errno, "check its rights")),
        Ok(direct) => match (alignment(&direct), spec.direct) {
            (Alignment { block_bytes: least, memory_bytes }, _) if spec.block_bytes.is_multiple_of(least) => {
                return Ok((direct, memory_bytes));
            }
            (Alignment { block_bytes: least, .. }, DirectIo::Always) => {
                let block_bytes = spec.block_bytes;
                return Err(FileError::BlocksTooSmall { path: path.clone(), block_bytes, least });
            }
            (Alignment { block_bytes: least, .. }, _) => {
                let block_bytes = spec.block_bytes;
                format!(
                    "direct I/O needs blocks of a multiple of {least} bytes there, and block_bytes is {block_bytes}"
                )
            }
        },
    };
    notes.push(format!("store {}: {why}; it goes through the page cache, with a copy", path.display()));
    Ok((file, 1))
}

fn check_kind(path: &Path) -> Result<Stat, FileError> {
    let stat = rustix::fs::stat(path).map_err(|errno| system(path, "stat(2)", errno, "check its name"))?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile | FileType::BlockDevice => Ok(stat),
        FileType::Directory => Err(FileError::Kind { path: path.to_owned(), kind: "a folder".to_owned() }),
        other => Err(FileError::Kind { path: path.to_owned(), kind: format!("neither ({other:?})") }),
    }
}

/// open(2) for writing succeeds where each write would fail: on a read-only device, and on a file
/// that is longer than this process may write one.
fn check_writable(path: &Path, stat: &Stat) -> Result<(), FileError> {
    if FileType::from_raw_mode(stat.st_mode) == FileType::BlockDevice {
        return match Sectors::is_read_only(stat) {
            true => Err(FileError::ReadOnlyDevice { path: path.to_owned() }),
            false => Ok(()),
        };
    }
    let len_bytes = stat.st_size as u64;
    match getrlimit(Resource::Fsize).current {
        Some(limit_bytes) if limit_bytes < len_bytes => {
            Err(FileError::BeyondFileLimit { path: path.to_owned(), len_bytes, limit_bytes })
        }
        _ => Ok(()),
    }
}

/// The alignment that direct I/O requires.
#[derive(Clone, Copy, Debug)]
struct Alignment {
    /// Where a transfer starts in the file, and its length.
    block_bytes: u32,
    /// Where its data starts in memory.
    memory_bytes: u32,
}

/// As the kernel tells it (statx(2), STATX_DIOALIGN, Linux 6.1), else found by trying.
fn alignment(file: &OwnedFd) -> Alignment {
    match rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN) {
        Ok(stat) if stat.stx_mask & StatxFlags::DIOALIGN.bits() != 0 && stat.stx_dio_offset_align > 0 => Alignment {
            block_bytes: stat.stx_dio_offset_align,
            // More than a byte even where any would do, as it says that this is direct I/O.
            memory_bytes: stat.stx_dio_mem_align.max(2),
        },
        _ => tried_alignment(file),
    }
}

/// The least that reads are not refused with. What is a hole in the file refuses nothing, so that
/// no less than a sector is tried, and a write may still find more to be needed.
fn tried_alignment(file: &OwnedFd) -> Alignment {
    const PAGE: usize = 4096;
    let mut bytes = vec![0; 3 * PAGE];
    let first = bytes.as_ptr().align_offset(PAGE);
    let mut fits = |offset: u32, memory: u32, len: u32| {
        let start = first + memory as usize;
        let read = rustix::io::pread(file, &mut bytes[start..start + len as usize], offset.into());
        !matches!(read, Err(Errno::INVAL))
    };
    let page = PAGE as u32;
    let sizes = [512, 1024, 2048];
    let block_bytes = sizes.into_iter().find(|&least| fits(least, 0, least)).unwrap_or(page);
    let memory_bytes = sizes.into_iter().find(|&least| fits(0, least, page)).unwrap_or(page);
    Alignment { block_bytes, memory_bytes }
}
