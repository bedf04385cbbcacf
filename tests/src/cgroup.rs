//! A cgroup of a test's own, which limits the programs that enter it.

use std::fs;
use std::path::{Path, PathBuf};

/// A cgroup that is gone when this is dropped.
#[derive(Debug)]
pub struct Cgroup(PathBuf);

impl Cgroup {
    /// One with half a CPU. `None`: none can be made here.
    pub fn of_half_a_cpu() -> Option<Cgroup> {
        Cgroup::limited("cpu", ["cpu.cfs_quota_us", "50000"], ["cpu.max", "50000 100000"])
    }

    /// One with so much memory.
    pub fn of_memory(bytes: u64) -> Option<Cgroup> {
        let bytes = bytes.to_string();
        Cgroup::limited("memory", ["memory.limit_in_bytes", &bytes], ["memory.max", &bytes])
    }

    /// One with a limit, in whichever of the two hierarchies has the controller: the file and what
    /// is written there.
    fn limited(controller: &str, v1: [&str; 2], v2: [&str; 2]) -> Option<Cgroup> {
        let (mount, name) = (Path::new("/sys/fs/cgroup"), format!("verbline-test-{controller}-{}", std::process::id()));
        let is_v1 = mount.join(controller).join("tasks").exists();
        let (folder, [file, limit]) = if is_v1 { (mount.join(controller), v1) } else { (mount.to_owned(), v2) };
        if !is_v1 {
            fs::write(mount.join("cgroup.subtree_control"), format!("+{controller}")).ok()?;
        }
        fs::create_dir(folder.join(&name)).ok()?;
        let group = Cgroup(folder.join(&name));
        fs::write(group.0.join(file), limit).ok()?;
        Some(group)
    }

    /// A shell that enters it, and then is the program.
    pub fn entering(&self) -> [String; 4] {
        let enter = format!("echo $$ > {}/cgroup.procs && exec \"$@\"", self.0.display());
        ["sh".to_owned(), "-c".to_owned(), enter, "sh".to_owned()]
    }

    /// Its folder.
    pub fn folder(&self) -> &Path {
        &self.0
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // It is empty once its process has ended; one that stays is seen in the test's own listing
        // of cgroups.
        let _ = fs::remove_dir(&self.0);
    }
}
