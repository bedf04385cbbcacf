//! The plans of a target and of its hosts, each a process of its own: the plans of `tests/plans`,
//! on software devices that reach one another by an address.

use std::fs;
use std::path::{Path, PathBuf};

/// The namespaces: of the undisturbed host, of the blocks that move from one number to the other,
/// and of the killed hosts.
pub(super) const KEPT: u32 = 1;
pub(super) const MOVING: [u32; 2] = [2, 9];
pub(super) const IN_MEMORY: u32 = 4;
pub(super) const IN_FILE: u32 = 7;

/// The plans' folder, and the addresses of the target and its hosts.
pub(super) struct Plans {
    folder: PathBuf,
    /// The first three numbers of all addresses, chosen so that two soaks on one machine don't
    /// meet.
    network: String,
}

impl Plans {
    /// Writes the plans, with the moving blocks under the first number.
    pub(super) fn new(folder: &Path) -> Result<Plans, String> {
        let own = std::process::id();
        let plans =
            Plans { folder: folder.to_owned(), network: format!("127.{}.{}", 100 + own % 100, own / 100 % 250) };
        plans.write("host.toml", &plans.host()?)?;
        plans.move_to(MOVING[0])?;
        Ok(plans)
    }

    /// Writes the target's plan with the moving blocks under this number.
    pub(super) fn move_to(&self, nsid: u32) -> Result<(), String> {
        self.write("target.toml", &self.target(nsid)?)
    }

    /// The arguments of the target.
    pub(super) fn of_target(&self) -> Vec<String> {
        vec!["run".to_owned(), self.path("target.toml"), "--json".to_owned()]
    }

    /// The arguments of a host: its place among the addresses, its namespace, and the bytes of a
    /// command.
    pub(super) fn of_host(&self, place: usize, nsid: u32, block_bytes: u32) -> Vec<String> {
        let sets = [
            format!("device.nic0.address={}.{}", self.network, place + 2),
            format!("load.nsid={nsid}"),
            format!("load.block_bytes={block_bytes}"),
            // On a busy machine the target may be kept from its CPU for seconds.
            "lcore.load.drain=20s".to_owned(),
        ];
        let run = ["run".to_owned(), self.path("host.toml"), "--json".to_owned()];
        run.into_iter().chain(sets.into_iter().flat_map(|set| ["--set".to_owned(), set])).collect()
    }

    fn path(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    fn write(&self, name: &str, text: &str) -> Result<(), String> {
        fs::write(self.folder.join(name), text).map_err(|error| format!("{}: {error}", self.path(name)))
    }

    /// The target's plan. It has less room for operations than its hosts' commands take, so some
    /// wait.
    fn target(&self, moving: u32) -> Result<String, String> {
        let namespaces = format!(
            "[nvme.namespace.{moving}]\nmemory = \"moving\"\nblock_bytes = 512\n\n\
             [nvme.namespace.{IN_MEMORY}]\nmemory = \"more\"\nblock_bytes = 4096\n\n\
             [nvme.namespace.{IN_FILE}]\nfile = {:?}\ncreate_bytes = 16_777_216\npage_cache = true\n\n[device.nic0]",
            self.folder.join("blocks")
        );
        let region = |name, bytes| {
            format!("\n[region.{name}]\ndevice = \"nic0\"\nbytes = {bytes}\nrights = [\"local-write\"]\n")
        };
        let text = self.shipped("nvme-target.toml", 1)?;
        let text = replaced(&text, "[device.nic0]", &namespaces)?;
        let text = replaced(&text, "regions = [\"disk\"]", "regions = [\"disk\", \"moving\", \"more\"]")?;
        let text = replaced(&text, "ops_shared_wr = 512", "ops_shared_wr = 192")?;
        Ok(text + &region("moving", 4_194_304) + &region("more", 8_388_608))
    }

    fn host(&self) -> Result<String, String> {
        let text = self.shipped("nvme-load.toml", 2)?;
        // Each slot has room for a command of 64 KiB, too.
        replaced(&text, "bytes = 1_048_576", "bytes = 16_777_216")
    }

    /// A plan of `tests/plans`, on a software device with this address.
    fn shipped(&self, name: &str, address: u8) -> Result<String, String> {
        let path = verbline_tests::root().join("tests/plans").join(name);
        let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let device = format!("provider = \"soft\"\naddress = \"{}.{address}\"", self.network);
        let text = replaced(&text, "provider = \"kernel\"\nname = \"rxe0\"", &device)?;
        replaced(&text, "10.9.9.2:4420", &format!("{}.1:4420", self.network))
    }
}

/// The text with `from` replaced by `to`. It must contain `from`.
fn replaced(text: &str, from: &str, to: &str) -> Result<String, String> {
    match text.contains(from) {
        true => Ok(text.replace(from, to)),
        false => Err(format!("a plan of tests/plans has no `{from}` any more")),
    }
}
