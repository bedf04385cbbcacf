//! Files and devices in use are refused, with the name of their user; a store keeps others away;
//! and the names of blocks.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use verbline_store::{FileError, FileSpec, FileStore, Identity, IdentityFrom};

const BLOCK: u32 = 4096;

fn file(folder: &TempDir, name: &str) -> std::path::PathBuf {
    let path = folder.path().join(name);
    fs::write(&path, [0; 8 * BLOCK as usize]).unwrap();
    path
}

fn spec(path: &Path, read_only: bool) -> FileSpec {
    FileSpec { read_only, ..FileSpec::new(path, BLOCK, 4) }
}

fn open(path: &Path, read_only: bool) -> FileStore {
    FileStore::open(&spec(path, read_only)).unwrap_or_else(|error| panic!("{error}"))
}

/// The user named in the refusal.
#[track_caller]
fn refused(path: &Path, read_only: bool) -> String {
    match FileStore::open(&spec(path, read_only)) {
        Err(error @ FileError::Held { .. }) => error.to_string(),
        other => panic!("not refused: {other:?}"),
    }
}

/// Another process that holds a lock of the file.
struct Locker(Child);

impl Locker {
    fn new(path: &Path, way: &str) -> Locker {
        let mut child = Command::new("flock");
        let child = child.args(["--no-fork", way]).arg(path).args(["sh", "-c", "echo locked; exec sleep 60"]);
        let mut child = child.stdout(Stdio::piped()).spawn().expect("flock of util-linux");
        let mut said = [0; 7];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut said).unwrap();
        Locker(child)
    }
}

impl Drop for Locker {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// Whether another process can lock the file.
fn is_free(path: &Path, way: &str) -> bool {
    Command::new("flock").args(["-n", way]).arg(path).arg("true").status().unwrap().success()
}

#[test]
fn a_file_that_another_process_has_is_refused_with_its_number() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(&folder, "disk");
    let writer = Locker::new(&path, "-x");
    let pid = writer.0.id();
    for read_only in [false, true] {
        let said = refused(&path, read_only);
        assert!(said.contains(&format!("process {pid}")) && said.contains("holds it"), "{said}");
    }
    drop(writer);
    let reader = Locker::new(&path, "-s");
    assert!(refused(&path, false).contains(&format!("process {}", reader.0.id())));
    drop(open(&path, true));
    drop(reader);
    drop(open(&path, false));
}

#[test]
fn a_file_is_held_as_long_as_one_of_its_stores() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(&folder, "disk");
    // One store per lcore; a link is the same file.
    let link = folder.path().join("link");
    fs::hard_link(&path, &link).unwrap();
    let (first, second) = (open(&path, false), open(&link, false));
    assert!(!is_free(&path, "-s"));
    drop(first);
    assert!(!is_free(&path, "-s"));
    drop(second);
    assert!(is_free(&path, "-x"));
    let reader = open(&path, true);
    assert!(is_free(&path, "-s") && !is_free(&path, "-x"));
    // Not by this process either: a reader must not see blocks change.
    assert!(refused(&path, false).contains("this process"));
    drop(reader);
    assert!(is_free(&path, "-x"));
}

fn identity(path: &Path) -> Identity {
    open(path, false).identity().expect("of a file")
}

#[test]
fn blocks_keep_their_name_wherever_they_go_and_share_it_with_no_others() {
    for folder in [tempfile::tempdir().ok(), tempfile::tempdir_in("/dev/shm").ok()].into_iter().flatten() {
        let path = file(&folder, "disk");
        let name = identity(&path);
        assert_eq!((name.uuid[8] >> 6, identity(&path)), (0b10, name), "the same after a restart");
        let moved = folder.path().join("moved");
        fs::rename(&path, &moved).unwrap();
        assert_eq!(identity(&moved), name);
        // Another file under the old path, and a copy.
        assert_ne!(identity(&file(&folder, "disk")).uuid, name.uuid);
        let copy = folder.path().join("copy");
        fs::copy(&moved, &copy).unwrap();
        assert_ne!(identity(&copy).uuid, name.uuid);
        assert_eq!(open(&moved, true).identity(), Some(name));
        if name.from != IdentityFrom::Kept {
            eprintln!("skipped: no extended attributes in {}", folder.path().display());
        }
    }
}

/// A file on a loop device, until it is dropped.
struct Loop(String);

impl Loop {
    /// `None`, with a message, if this user or machine can't have one.
    fn new(path: &Path) -> Option<Loop> {
        let made = Command::new("losetup").args(["--find", "--show"]).arg(path).output().ok();
        let name = made.filter(|made| made.status.success());
        let name = name.map(|made| String::from_utf8(made.stdout).unwrap().trim().to_owned());
        if name.is_none() {
            eprintln!("skipped: no loop device");
        }
        name.map(Loop)
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let deadline = Instant::now() + Duration::from_secs(10);
        let detach = || Command::new("losetup").args(["--detach", &self.0]).status().unwrap().success();
        while !detach() {
            assert!(Instant::now() < deadline, "{} is given back", self.0);
        }
    }
}

#[test]
fn a_device_that_is_mounted_or_in_use_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    fs::File::create(&path).unwrap().set_len(4 << 20).unwrap();
    let Some(device) = Loop::new(&path) else { return };
    let name = Path::new(&device.0);
    let run = |program: &str, arguments: &[&str]| {
        Command::new(program)
            .args(arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|s| s.success())
    };
    // Two stores of this process; then no other process mounts it or claims it.
    let (first, second) = (open(name, false), open(name, false));
    assert_eq!(first.identity(), second.identity());
    let place = folder.path().join("mounted");
    fs::create_dir(&place).unwrap();
    let place = place.to_str().unwrap();
    if !run("mkfs.ext4", &["-q", "-F", path.to_str().unwrap()]) {
        return eprintln!("skipped: no mkfs.ext4");
    }
    assert!(!run("mount", &[&device.0, place]), "a store has it");
    drop((first, second));
    if !run("mount", &[&device.0, place]) {
        return eprintln!("skipped: this user may not mount");
    }
    let said = refused(name, false);
    assert!(run("umount", &[place]));
    assert!(said.contains(&format!("it is mounted at {place}")), "{said}");
    drop(open(name, false));
}
