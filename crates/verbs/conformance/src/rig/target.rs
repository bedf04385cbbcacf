//! The device that the suite runs on.

use rdma_sys::{ibv_context, ibv_device};
use std::ffi::{CStr, c_int};
use std::net::{IpAddr, Ipv6Addr};
use std::path::Path;
use std::ptr::NonNull;
use std::thread;
use std::time::{Duration, Instant};
use verbline_softnic::wire::{self, AttachError, Wire};

/// The implementation of a device's control verbs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Provider {
    Kernel,
    Soft,
}

/// Calls a control verb of the provider: `verb!(provider, ibv_alloc_pd(context))`.
macro_rules! verb {
    ($provider:expr, $name:ident($($arg:expr),* $(,)?)) => {
        match $provider {
            $crate::rig::target::Provider::Kernel => rdma_sys::$name($($arg),*),
            $crate::rig::target::Provider::Soft => verbline_softnic::provider::$name($($arg),*),
        }
    };
}
pub(super) use verb;

/// The kind of device, by which known differences are declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The software RNIC of this project.
    Soft,
    /// The software RNIC, where even its own queue pairs reach each other by RoCE v2 through a UDP
    /// socket.
    SoftUdp,
    /// The kernel's rdma_rxe.
    Rxe,
    /// Any other device: no difference is known, the pages hold.
    Other,
}

/// A device, by provider and name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(super) provider: Provider,
    pub(crate) name: String,
    pub(crate) kind: Kind,
    /// The index of a required address; `None` picks the best one.
    pub(super) gid_index: Option<u8>,
    /// The device of the other end of each pair, if it is another one.
    pub(crate) far: Option<Box<Target>>,
}

/// The name of the software device by its wire.
const SOFT_UDP: &str = "soft-udp";
/// The name of the one over IPv6: a different device, so that one process can have both.
const SOFT_UDP6: &str = "soft-udp6";

impl Target {
    /// The name printed for people.
    pub(crate) fn title(&self) -> String {
        match self.kind {
            Kind::SoftUdp => format!("{} by its wire", self.name),
            Kind::Soft | Kind::Rxe | Kind::Other => self.name.clone(),
        }
    }

    /// The kinds of the devices that a row of a pair is about.
    pub(crate) fn kinds(&self) -> impl Iterator<Item = Kind> {
        std::iter::once(self.kind).chain(self.far.iter().map(|far| far.kind))
    }

    /// Finds a device. `soft` and `rxe` are the first device of that kind, `soft-udp` is `soft` by
    /// its wire, `soft-udp6` the second one by an IPv6 wire; anything else is a device's name.
    pub(crate) fn find(asked: &str) -> Result<Target, String> {
        let found = Target::among(devices_of_all(), asked)?;
        match asked {
            SOFT_UDP => found.by_its_wire(&attach),
            SOFT_UDP6 => found.by_its_wire(&attach_ipv6),
            _ => Ok(found),
        }
    }

    /// Finds a device, and another one for the other end of each pair. The wire of the first that
    /// is `soft-udp` has this address, if one is given.
    pub(crate) fn find_two(asked: &str, far: &str, address: Option<IpAddr>) -> Result<Target, String> {
        let mut address = address;
        let mut by_wire = |asked, target: Target| match (asked, address.take_if(|_| asked == SOFT_UDP)) {
            (SOFT_UDP, None) => target.by_its_wire(&attach),
            (SOFT_UDP, Some(own)) => {
                target.by_its_wire(&|device| wire::attach(device, own).map_err(|error| error.to_string()))
            }
            _ => Ok(target),
        };
        let near = by_wire(asked, Target::among(devices_of_all(), asked)?)?;
        let others = devices_of_all().filter(|target| target.name != near.name);
        let far = by_wire(far, Target::among(others, far)?)?;
        Ok(Target { far: Some(Box::new(far)), ..near })
    }

    /// The device of this name or kind among `all`.
    fn among(all: impl Iterator<Item = Target>, asked: &str) -> Result<Target, String> {
        let all: Vec<Target> = all.collect();
        let of = |kind| all.iter().filter(move |target| target.kind == kind);
        let found = match asked {
            "soft" | SOFT_UDP => of(Kind::Soft).next(),
            SOFT_UDP6 => of(Kind::Soft).nth(1),
            "rxe" => of(Kind::Rxe).next(),
            name => all.iter().find(|target| target.name == name),
        };
        found.cloned().ok_or_else(|| {
            let names: Vec<&str> = all.iter().map(|target| target.name.as_str()).collect();
            format!("no device \"{asked}\" here; there are: {}", names.join(", "))
        })
    }

    /// Connects the software device's queue pairs through a socket from now on, for the life of
    /// this process.
    fn by_its_wire(self, attach: &dyn Fn(&str) -> Attached) -> Result<Target, String> {
        let wire = match wire::of_device(&self.name) {
            Some(wire) => wire,
            None => attach(&self.name)?,
        };
        wire.carry_own();
        Ok(Target { kind: Kind::SoftUdp, gid_index: u8::try_from(wire.gid_index()).ok(), ..self })
    }

    pub(super) fn open(&self) -> Option<NonNull<ibv_context>> {
        with_list(self.provider, |list| {
            let device = list.iter().find(|&&device| name_of(self.provider, device) == self.name)?;
            // SAFETY: a device of the list, which is freed only after this.
            NonNull::new(unsafe { verb!(self.provider, ibv_open_device(*device)) })
        })
    }
}

type Attached = Result<&'static Wire, String>;

/// Gives a software device a free address of this host's loopback interface; another run of the
/// suite, or a plan, may hold others.
fn attach(device: &str) -> Attached {
    for last in 1..=32 {
        match wire::attach(device, IpAddr::from([127, 77, 0, last])) {
            Err(AttachError::Taken { .. } | AttachError::OfDevice { .. }) => {}
            attached => return attached.map_err(|error| error.to_string()),
        }
    }
    Err("UDP port 4791 of each of 127.77.0.1 to 127.77.0.32 is taken (`ss -ulnp` says by whom)".to_owned())
}

/// The same for IPv6, whose loopback interface has one address: another run of the suite soon frees
/// it.
fn attach_ipv6(device: &str) -> Attached {
    let patience = Duration::from_secs(20);
    let began = Instant::now();
    loop {
        match wire::attach(device, IpAddr::V6(Ipv6Addr::LOCALHOST)) {
            Err(AttachError::Taken { .. }) if began.elapsed() < patience => thread::sleep(Duration::from_millis(100)),
            attached => return attached.map_err(|error| error.to_string()),
        }
    }
}

fn devices_of_all() -> impl Iterator<Item = Target> {
    [Provider::Kernel, Provider::Soft].into_iter().flat_map(devices)
}

fn devices(provider: Provider) -> Vec<Target> {
    with_list(provider, |list| {
        let target = |name: String| Target { provider, kind: kind(provider, &name), name, gid_index: None, far: None };
        list.iter().map(|&device| target(name_of(provider, device))).collect()
    })
}

/// The device's kind. Only rdma_rxe has the attribute `parent`: its network device.
fn kind(provider: Provider, name: &str) -> Kind {
    match provider {
        Provider::Soft => Kind::Soft,
        Provider::Kernel if Path::new("/sys/class/infiniband").join(name).join("parent").exists() => Kind::Rxe,
        Provider::Kernel => Kind::Other,
    }
}

fn with_list<T>(provider: Provider, use_it: impl FnOnce(&[*mut ibv_device]) -> T) -> T {
    let mut count: c_int = 0;
    // SAFETY: `count` may be written.
    let list = unsafe { verb!(provider, ibv_get_device_list(&raw mut count)) };
    if list.is_null() {
        // A kernel without RDMA answers ENOSYS: there are no devices.
        return use_it(&[]);
    }
    // SAFETY: `count` devices, as the call said; alive until the list is freed.
    let result = use_it(unsafe { std::slice::from_raw_parts(list, usize::try_from(count).unwrap_or(0)) });
    // SAFETY: from ibv_get_device_list of the same provider, once.
    unsafe { verb!(provider, ibv_free_device_list(list)) };
    result
}

fn name_of(provider: Provider, device: *mut ibv_device) -> String {
    // SAFETY: a device of a live list; its name ends with a NUL.
    unsafe { CStr::from_ptr(verb!(provider, ibv_get_device_name(device))) }.to_string_lossy().into_owned()
}
