//! Tells the crate
//! - when it is built for a sanitizer, so that copies to and from user memory are then made by code
//!   that the sanitizer sees (see `copy.rs`);
//! - which fields older headers lack.

use std::path::{Path, PathBuf};

fn main() {
    println!("cargo:rustc-check-cfg=cfg(portable_copy)");
    println!("cargo:rerun-if-changed=build.rs");
    // Set only where rustc was given -Zsanitizer.
    if std::env::var_os("CARGO_CFG_SANITIZE").is_some() {
        println!("cargo:rustc-cfg=portable_copy");
    }
    println!("cargo:rustc-check-cfg=cfg(phys_port_cnt_ex)");
    if verbs_header().is_none_or(|header| header.contains("phys_port_cnt_ex;")) {
        println!("cargo:rustc-cfg=phys_port_cnt_ex");
    }
}

/// The header from which rdma-sys generates its bindings. If it is missing, rdma-sys has reported
/// that already.
fn verbs_header() -> Option<String> {
    let library = pkg_config::Config::new().cargo_metadata(false).env_metadata(true).probe("libibverbs").ok()?;
    let folders = library.include_paths.iter().map(PathBuf::as_path).chain([Path::new("/usr/include")]);
    let header = folders.map(|folder| folder.join("infiniband/verbs.h")).find(|header| header.exists())?;
    println!("cargo:rerun-if-changed={}", header.display());
    std::fs::read_to_string(header).ok()
}
