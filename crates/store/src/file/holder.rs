//! Names the process or device that holds a file, as far as /proc and /sys of this machine tell.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{major, makedev, minor};

/// Nobody is to be seen who holds it.
const UNSEEN: &str = "a process that can't be seen from here holds it (of another user, container or machine)";

/// Names the holders of a file's lock.
pub(super) fn of_file(device: u64, inode: u64) -> String {
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    let holders = lockers(&locks, device, inode);
    if holders.is_empty() { UNSEEN.to_owned() } else { held_by(&holders) }
}

/// Names the holders of a block device, of its partitions, or of the device that it is a part of.
pub(super) fn of_device(device: u64) -> String {
    let parts = parts_of(device);
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    if let Some(place) = parts.iter().find_map(|part| mounted_at(&mounts, *part)) {
        return format!("it is mounted at {place}");
    }
    let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
    let names = swaps.lines().skip(1).filter_map(|line| line.split_whitespace().next());
    if names.filter_map(|name| fs::metadata(name).ok()).any(|swap| parts.contains(&swap.rdev())) {
        return "it is used for swap".to_owned();
    }
    let folder = format!("/sys/dev/block/{}:{}/holders", major(device), minor(device));
    let above: Vec<_> = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.file_name()).collect();
    if !above.is_empty() {
        let above: Vec<_> = above.iter().map(|name| name.to_string_lossy()).collect();
        return format!("it is part of {}", above.join(", "));
    }
    let users = users_of(&parts);
    if users.is_empty() { UNSEEN.to_owned() } else { held_by(&users) }
}

/// The processes that have a lock by flock(2) on the file, as /proc/locks tells.
fn lockers(locks: &str, device: u64, inode: u64) -> Vec<u32> {
    let file = format!("{:02x}:{:02x}:{inode}", major(device), minor(device));
    let of = |is_it: &dyn Fn(&str) -> bool| -> Vec<u32> {
        let lines = locks.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        // `->` stands before those that wait.
        let held = lines.filter(|words| words.get(1) == Some(&"FLOCK") && words.get(5).is_some_and(|name| is_it(name)));
        held.filter_map(|words| words[4].parse().ok()).collect()
    };
    let exact = of(&|name| name == file);
    if !exact.is_empty() {
        return exact;
    }
    // Some file systems (btrfs, overlays) tell another device than stat(2) does.
    let suffix = format!(":{inode}");
    of(&|name| name.ends_with(&suffix))
}

/// Where a device is mounted, as /proc/self/mountinfo tells.
fn mounted_at(mounts: &str, device: u64) -> Option<String> {
    let number = format!("{}:{}", major(device), minor(device));
    let place = mounts.lines().find_map(|line| {
        let mut words = line.split(' ');
        (words.nth(2) == Some(&number)).then(|| words.nth(1)).flatten()
    })?;
    Some(place.replace("\\040", " "))
}

/// The device, and those that the kernel made of its partitions.
fn parts_of(device: u64) -> Vec<u64> {
    let folder = format!("/sys/dev/block/{}:{}", major(device), minor(device));
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let partitions = entries.filter(|entry| entry.path().join("partition").exists());
    let numbers = partitions.filter_map(|entry| fs::read_to_string(entry.path().join("dev")).ok());
    let devices = numbers.filter_map(|text| {
        let (major, minor) = text.trim().split_once(':')?;
        Some(makedev(major.parse().ok()?, minor.parse().ok()?))
    });
    std::iter::once(device).chain(devices).collect()
}

/// The processes that have one of these devices open.
fn users_of(devices: &[u64]) -> Vec<u32> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let is_user = |pid: &u32| {
        let open = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        let mut files = open.filter_map(|entry| fs::metadata(entry.path()).ok());
        files.any(|file| devices.contains(&file.rdev()))
    };
    pids.filter(is_user).collect()
}

fn held_by(pids: &[u32]) -> String {
    let name = |pid: &u32| {
        if *pid == std::process::id() {
            return format!("this process ({pid})");
        }
        match fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("comm")) {
            Ok(name) => format!("process {pid} ({})", name.trim().escape_debug()),
            Err(_) => format!("process {pid}"),
        }
    };
    let mut pids = pids.to_vec();
    pids.sort_unstable();
    pids.dedup();
    let names: Vec<String> = pids.iter().map(name).collect();
    format!("{} holds it", names.join(" and "))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCKS: &str = "\
1: FLOCK  ADVISORY  WRITE 812 fe:00:77 0 EOF
2: POSIX  ADVISORY  WRITE 813 fe:00:78 0 EOF
3: FLOCK  ADVISORY  READ  814 fe:00:79 0 EOF
4: FLOCK  ADVISORY  READ  815 fe:00:79 0 EOF
4: -> FLOCK  ADVISORY  WRITE 816 fe:00:79 0 EOF
5: FLOCK  ADVISORY  WRITE 817 00:2a:80 0 EOF
";

    #[test]
    fn those_who_lock_a_file_are_found_by_its_number() {
        let device = makedev(0xFE, 0);
        assert_eq!(lockers(LOCKS, device, 77), [812]);
        assert_eq!(lockers(LOCKS, device, 78), [0; 0], "a lock of another kind");
        assert_eq!(lockers(LOCKS, device, 79), [814, 815], "not those who wait");
        assert_eq!(lockers(LOCKS, device, 80), [817], "the file system says another device");
        assert_eq!(lockers("nonsense\n\n", device, 7), [0; 0]);
        assert_eq!(held_by(&[std::process::id()]), format!("this process ({}) holds it", std::process::id()));
    }

    #[test]
    fn a_mounted_device_is_found_by_its_number() {
        let mounts = "22 1 254:0 / / rw - ext4 /dev/vda rw\n29 22 7:3 / /mnt/a\\040disk rw - ext4 /dev/loop3 rw\n";
        assert_eq!(mounted_at(mounts, makedev(7, 3)).as_deref(), Some("/mnt/a disk"));
        assert_eq!(mounted_at(mounts, makedev(7, 4)), None);
    }
}
