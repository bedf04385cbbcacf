//! Folders for tests, as the kernel mounts its own.

use std::fs;

/// A folder as sysfs or cgroups are mounted, with these files.
pub(crate) fn mounted(files: &[(&str, &str)]) -> tempfile::TempDir {
    let mount = tempfile::tempdir().expect("a folder");
    for (file, text) in files {
        let path = mount.path().join(file);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, text).expect("a file");
    }
    mount
}
