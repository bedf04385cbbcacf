//! The embedder's handle: the control socket and the metrics of one run, and the threads that serve
//! them and keep its slowest packets.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use rustix::event::{EventfdFlags, eventfd};
use verbline_engine::Observer;
use verbline_plan::{OpensBeside, Plan};

use crate::keeper::Keeper;
use crate::listener::Listener;
use crate::metrics::settings::{self, MetricsSettings};
use crate::place::{self, NoPlace, Placed};
use crate::server::{PEERS_MAX, Server};
use crate::snapshot_cache::{LogControl, Run, Told};
use crate::trace::kept::Kept;
use crate::trace::settings::TraceSettings;

/// The place of a run's control socket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SocketChoice {
    /// In the user's folder, where `ps` finds it: `$XDG_RUNTIME_DIR/verbline`, or `/run/verbline`.
    #[default]
    Folder,
    /// At this path, where `ps` does not find it.
    At(PathBuf),
    /// No control socket.
    None,
}

/// The descriptors that serving a run adds to its sum of file descriptors
/// ([`Loader::opens`](verbline_plan::Loader::opens)): for the socket, the metrics of a plan that
/// has them, the clients of both, a capture and a trace.
pub fn opens_beside(socket: &SocketChoice) -> Vec<OpensBeside> {
    let clients = PEERS_MAX as u64;
    let metrics = OpensBeside {
        what: "the metrics, and who reads them",
        section: Some(settings::SECTION),
        descriptors: OF_LISTENER + clients,
    };
    let socket = (*socket != SocketChoice::None).then_some(OpensBeside {
        what: "the control socket, and its clients",
        section: None,
        descriptors: OF_LISTENER + clients + OF_STREAMS,
    });
    socket.into_iter().chain([metrics]).collect()
}

/// A listener, a client that is refused for lack of room, and the eventfd that stops the thread,
/// held at both ends.
const OF_LISTENER: u64 = 4;
/// The clients of a capture and of a trace, which no longer count as the listener's.
const OF_STREAMS: u64 = 2;

/// The services of a run.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The control socket.
    pub socket: SocketChoice,
    /// The metrics, as configured in the plan ([`MetricsSettings::of`]).
    pub metrics: Option<MetricsSettings>,
    /// The slowest packets, as configured in the plan ([`TraceSettings::of`]).
    pub trace: Option<TraceSettings>,
    /// The log, if clients of the control socket may change its filter.
    pub log: Option<LogControl>,
}

/// The reason why a run can't be served.
#[derive(Debug, thiserror::Error)]
pub enum OperateError {
    /// The socket at a given path.
    #[error("no control socket can be made at {}: {source}; choose another path, or clear it", path.display())]
    Socket {
        /// Its path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Of the plan's `[metrics]`.
    #[error("the metrics can't be served at {listen}: {source}; {}", listen_elsewhere(.source))]
    Metrics {
        /// The address.
        listen: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// The plan's `[trace]`: no thread is free.
    #[error(
        "the thread that keeps the slowest packets can't be started: {0}; free threads (ulimit -u), or drop `[trace]`"
    )]
    Trace(io::Error),
    /// No thread or descriptor is free.
    #[error("the thread that answers for the run can't be started: {0}; free threads or descriptors (ulimit -u, -n)")]
    Thread(io::Error),
}

fn listen_elsewhere(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::AddrInUse => "see who listens there (`ss -ltnp`), or change `metrics.listen`",
        io::ErrorKind::AddrNotAvailable => {
            "`ip addr` shows which addresses this host has (in this network namespace): change `metrics.listen`"
        }
        io::ErrorKind::PermissionDenied => {
            "a port below net.ipv4.ip_unprivileged_port_start needs CAP_NET_BIND_SERVICE: change `metrics.listen`"
        }
        _ => "change `metrics.listen`",
    }
}

/// The control socket and the metrics of one run, and the packets that it keeps. Dropping it ends
/// them.
///
/// ```no_run
/// # use verbline_engine::{Registry, Runtime};
/// # use verbline_operate::{Operate, Options};
/// # use verbline_plan::Plan;
/// # fn run(plan: &Plan, registry: &Registry) -> Result<(), Box<dyn std::error::Error>> {
/// let runtime = Runtime::build(plan, registry)?;
/// let operate = Operate::start(plan, "gateway", Options::default())?;
/// let running = runtime.start()?;
/// operate.observe(running.observer());
/// running.wait(None);
/// running.stop()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Operate {
    run: Arc<Run>,
    socket: Option<PathBuf>,
    metrics: Option<SocketAddr>,
    no_place: Option<NoPlace>,
    /// `None` if nothing is served.
    thread: Option<Serving>,
}

#[derive(Debug)]
struct Serving {
    stop: OwnedFd,
    thread: JoinHandle<()>,
}

impl Operate {
    /// Listens, and answers from now on; until [`Operate::observe`], that the run is starting. If
    /// there is no folder for the socket, or no thread, a run that was given neither path nor
    /// address goes without them ([`Operate::no_place`]).
    ///
    /// # Errors
    /// A given path or address can't be used.
    pub fn start(plan: &Plan, app: &str, options: Options) -> Result<Operate, OperateError> {
        let (mut listeners, mut no_place) = (Vec::new(), None);
        // The default socket is not essential: the run goes on without it.
        let is_spare = options.socket == SocketChoice::Folder && options.metrics.is_none();
        match options.socket {
            SocketChoice::None => {}
            SocketChoice::Folder => match place::folder().and_then(|folder| Placed::in_folder(&folder)) {
                Ok(placed) => listeners.push(Listener::Control(placed)),
                Err(why) => no_place = Some(why),
            },
            SocketChoice::At(path) => match Placed::at(&path) {
                Ok(placed) => listeners.push(Listener::Control(placed)),
                Err(source) => return Err(OperateError::Socket { path, source }),
            },
        }
        let mut metrics = None;
        if let Some(MetricsSettings { listen, .. }) = options.metrics {
            let listener = listening(listen).map_err(|source| OperateError::Metrics { listen, source })?;
            metrics = listener.local_addr().ok();
            listeners.push(Listener::Http(listener));
        }
        let mut socket = listeners.iter().find_map(|listener| match listener {
            Listener::Control(placed) => Some(placed.path.clone()),
            Listener::Http(_) => None,
        });
        let keeper = options.trace.map(Keeper::start).transpose().map_err(OperateError::Trace)?;
        let run = Arc::new(Run::new(plan, app, options.log, keeper));
        let mut thread = None;
        if !listeners.is_empty() {
            match Serving::start(Arc::clone(&run), options.metrics, listeners) {
                Ok(serving) => thread = Some(serving),
                Err(error) if is_spare => (socket, no_place) = (None, Some(no_thread(&error))),
                Err(error) => return Err(OperateError::Thread(error)),
            }
        }
        Ok(Operate { run, socket, metrics, no_place, thread })
    }

    /// Tells it that the run has started: answers now come from the run's counters.
    pub fn observe(&self, observer: Observer) {
        self.run.observe(observer);
    }

    /// The control socket.
    pub fn socket(&self) -> Option<&Path> {
        self.socket.as_deref()
    }

    /// The address of the metrics: the plan's, with the port that the system chose if the plan's is
    /// 0.
    pub fn metrics(&self) -> Option<SocketAddr> {
        self.metrics
    }

    /// The slowest packets of the last minute. `None` if the plan keeps none, or before the start
    /// of the run. After its end they are those of its last minute.
    pub fn kept(&self) -> Option<Kept> {
        self.run.kept()
    }

    /// The reason why there is no control socket, unless it was declined.
    pub fn no_place(&self) -> Option<&NoPlace> {
        self.no_place.as_ref()
    }
}

fn no_thread(error: &io::Error) -> NoPlace {
    let remedy = "free threads or descriptors (ulimit -u, -n)".to_owned();
    let why = format!("the thread that answers for the run can't be started: {error}");
    NoPlace { why, remedy, is_unset: false }
}

fn listening(listen: SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(listen)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

impl Serving {
    fn start(run: Arc<Run>, metrics: Option<MetricsSettings>, listeners: Vec<Listener>) -> io::Result<Serving> {
        let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let server = Server::new(listeners, stop.try_clone()?);
        let thread = std::thread::Builder::new()
            .name("vl-operate".into())
            .spawn(move || server.serve(&mut Told::new(&run, metrics.as_ref())))?;
        Ok(Serving { stop, thread })
    }
}

impl Drop for Operate {
    fn drop(&mut self) {
        let Some(Serving { stop, thread }) = self.thread.take() else { return };
        // The eventfd's counter is 0 or 1, and has room.
        let _ = rustix::io::write(&stop, &1u64.to_ne_bytes());
        if thread.join().is_err() {
            tracing::error!("the thread that answered for the run has panicked");
        }
    }
}
