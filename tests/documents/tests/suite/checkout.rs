//! A checkout in which `./x` finds everything built: its own driver, documents, plans, and the apps
//! of this build. `cargo` builds nothing there.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use tempfile::TempDir;
use verbline_tests::{Finished, Program, root};

const CARGO: &str = r#"#!/bin/bash
case "$*" in
    "build "*) ;;
    *) echo "this cargo builds nothing: $*" >&2; exit 101 ;;
esac
"#;

/// Prints the app of a plan.
const PLAN_APP: &str = r#"#!/bin/bash
sed -n 's/^app = "\(.*\)"$/\1/p' "$1"
"#;

pub(crate) struct Checkout {
    folder: TempDir,
}

impl Checkout {
    pub(crate) fn new() -> Checkout {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        for name in ["config", "docs", "examples", "tests", "README.md", "Cargo.lock", "Cargo.toml"] {
            symlink(root().join(name), at(name)).expect("a link");
        }
        fs::copy(root().join("x"), at("x")).expect("the driver");
        for made in ["bin", "target/quick", "apps"] {
            fs::create_dir_all(at(made)).expect("a folder");
        }
        for app in fs::read_dir(root().join("apps")).expect("apps/") {
            let name = app.expect("an entry of apps/").file_name();
            fs::create_dir(at("apps").join(&name)).expect("a folder");
            symlink(env!("CARGO_BIN_EXE_any-app"), at("target/quick").join(&name)).expect("a link");
        }
        for (name, text) in [("bin/cargo", CARGO), ("target/quick/plan-app", PLAN_APP)] {
            fs::write(at(name), text).expect("a script");
            fs::set_permissions(at(name), fs::Permissions::from_mode(0o755)).expect("a mode");
        }
        // The folder of release builds.
        symlink("quick", at("target/release")).expect("a link");
        Checkout { folder }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Runs a shell line in the checkout.
    pub(crate) fn run(&self, line: &str) -> Finished {
        let (path, here) = (std::env::var("PATH").unwrap_or_default(), self.path().display());
        let program = Program::new(env!("CARGO_BIN_EXE_any-app"))
            .with_env("PATH", &format!("{here}/bin:{here}/target/quick:{path}"))
            .with_env("HOME", &here.to_string());
        // The program becomes the line's $0, which the line does not use.
        let mut command = program.behind(["bash", "-c", line]);
        command.current_dir(self.path()).env_remove("CARGO_TARGET_DIR").env_remove("VERBLINE_PROFILE");
        program.run_as(&mut command)
    }
}
