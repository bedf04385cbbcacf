//! Tells the crate when it is built for a sanitizer, so that copies to and from user memory are then made by code that
//! the sanitizer sees (see `copy.rs`).

fn main() {
    println!("cargo:rustc-check-cfg=cfg(portable_copy)");
    println!("cargo:rerun-if-changed=build.rs");
    // Set only where rustc was given -Zsanitizer.
    if std::env::var_os("CARGO_CFG_SANITIZE").is_some() {
        println!("cargo:rustc-cfg=portable_copy");
    }
}
