//! Folders for tests, like the kernel's own mounts.

use std::fs;

/// A folder with these files, like a mount of sysfs or cgroups.
pub(crate) fn mounted(files: &[(&str, &str)]) -> tempfile::TempDir {
    let mount = tempfile::tempdir().expect("a folder");
    for (file, text) in files {
        let path = mount.path().join(file);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, text).expect("a file");
    }
    mount
}
