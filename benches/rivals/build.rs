//! Compiles the C program that posts and polls.

fn main() {
    println!("cargo::rerun-if-changed=verbs.c");
    cc::Build::new().file("verbs.c").opt_level(3).warnings_into_errors(true).flag("-Wextra").compile("verbs_c");
}
