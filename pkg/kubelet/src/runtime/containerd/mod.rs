//! Containers by containerd, over its own API.
//!
//! ```text
//! Containerd ── gRPC ──> containerd ──> shim (one per pod) ──> runc ─┬─ pause
//!     │                                  ║ FIFOs                     └─ containers in its namespaces
//!     └─ socket ──> logger <═════════════╝
//! ```
//!
//! Nothing is remembered here that could not be read again: sandboxes and containers are containers of containerd with
//! a record on them. Their ids follow from pod, name and attempt, so a call made twice finds what the first one made.

pub(crate) mod connection;
mod container;
mod events;
mod features;
mod leftovers;
mod logger;
mod process;
mod propagation;
mod record;
mod sandbox;
mod session;
mod shims;
mod view;

use super::cgroups::{Cgroups, Version};
use super::images::{Images, Pulls};
use super::spec::Node;
use super::{
    ContainerId, ContainerSpec, ContainerView, Credentials, DiskUsage, Error, Event, ExecSpec, Handlers,
    Image, ImageId, PodRef, PodView, Progress, Pulled, Resources, Runtime, SandboxId, SandboxSpec,
    SandboxView, Session, Usage,
};
use async_trait::async_trait;
use connection::{Connection, failed};
use futures::stream::BoxStream;
use jiff::Timestamp;
use logger::Logger;
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::task::TaskTracker;

/// The pause program, for this machine.
const PAUSE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/pause"));
/// The program that writes the logs.
const LOGGER: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/logger"));

/// Where things are.
#[derive(Debug, Clone)]
pub struct Config {
    /// containerd's socket.
    pub socket: PathBuf,
    /// containerd's namespace; two that differ see nothing of each other.
    pub namespace: String,
    /// What makes file systems of layers.
    pub snapshotter: String,
    /// What must survive a reboot.
    pub root_dir: PathBuf,
    /// What need not, and must not be on a slow disk.
    pub state_dir: PathBuf,
    /// containerd's folder of registries, `certs.d`.
    pub registries_dir: PathBuf,
    /// containerd's runtimes by the handler of a RuntimeClass.
    pub handlers: BTreeMap<String, String>,
    /// The handler of pods that name no RuntimeClass.
    pub usual_handler: String,
}

/// The handler of runc.
pub const RUNC: &str = "runc";
/// The handler of our own shim.
pub const SHIM: &str = "shim";
/// What our own shim is called, so that it knows what it is.
const SHIM_PROGRAM: &str = "containerd-shim-minik8s-v1";

impl Config {
    /// The same, with our own shim for pods that name no RuntimeClass; runc stays for those that name it.
    pub fn with_shim(mut self, program: &Path) -> Self {
        self.handlers.insert(SHIM.to_owned(), program.display().to_string());
        self.usual_handler = SHIM.to_owned();
        self
    }
}

/// Makes a name for this program by which containerd finds our own shim in it.
pub fn link_shim(root_dir: &Path) -> Result<PathBuf, Error> {
    let link = root_dir.join(SHIM_PROGRAM);
    let make = || {
        let program = std::env::current_exe()?;
        std::fs::create_dir_all(root_dir)?;
        if std::fs::read_link(&link).is_ok_and(|there| there == program) {
            return Ok(());
        }
        let new = link.with_extension(uuid::Uuid::new_v4().to_string());
        std::os::unix::fs::symlink(program, &new)?;
        std::fs::rename(&new, &link)
    };
    make().map_err(|source: std::io::Error| Error::Unavailable {
        doing: format!("link {}", link.display()),
        source: source.into(),
    })?;
    let told = std::process::Command::new(&link).arg("-v").output();
    if told.is_ok_and(|told| String::from_utf8_lossy(&told.stdout).contains(SHIM_PROGRAM)) {
        return Ok(link);
    }
    let text = format!(
        "this kubelet is not part of the one program minik8s: use --pod-runtime=/path/to/{SHIM_PROGRAM}, or --pod-runtime=runc"
    );
    Err(Error::Container(text))
}

impl Default for Config {
    fn default() -> Self {
        Config {
            socket: "/run/containerd/containerd.sock".into(),
            namespace: "k8s.io".into(),
            snapshotter: "overlayfs".into(),
            root_dir: "/var/lib/kubelet/runtime".into(),
            state_dir: "/run/kubelet/runtime".into(),
            registries_dir: "/etc/containerd/certs.d".into(),
            handlers: [(RUNC.to_owned(), sandbox::RUNC.to_owned())].into(),
            usual_handler: RUNC.to_owned(),
        }
    }
}

/// Runs containers by containerd.
#[derive(Clone)]
pub struct Containerd {
    engine: Arc<Engine>,
}

struct Engine {
    config: Config,
    connection: Connection,
    images: Images,
    pulls: Pulls,
    cgroups: Cgroups,
    node: Node,
    logger: Logger,
    /// What the runtimes can do, once they were asked.
    handlers: tokio::sync::OnceCell<Handlers>,
    /// What goes on after the call that began it: the ends of sessions.
    tasks: TaskTracker,
    /// Held while it is looked and written down how a container ended: one for all whose ids begin alike.
    settling: [tokio::sync::Mutex<()>; 16],
}

impl Containerd {
    /// Lays out the folders. containerd need not run yet.
    pub fn new(config: Config) -> Result<Self, Error> {
        let lay_out = || {
            for folder in ["containers", "pause/proc", "pause/dev", "pause/sys", "pause/etc"] {
                std::fs::create_dir_all(config.root_dir.join(folder))?;
            }
            for folder in ["io", "sandboxes", "exec"] {
                std::fs::create_dir_all(config.state_dir.join(folder))?;
            }
            // What pods share is in there, open to all of their users, and so to those of the node.
            std::fs::set_permissions(&config.state_dir, std::fs::Permissions::from_mode(0o700))?;
            install(&config.root_dir.join("pause/pause"), PAUSE)?;
            install(&config.root_dir.join("logger"), LOGGER)
        };
        lay_out().map_err(|source: std::io::Error| Error::Unavailable {
            doing: format!("lay out {} and {}", config.root_dir.display(), config.state_dir.display()),
            source: source.into(),
        })?;
        let connection = Connection::new(&config.socket, &config.namespace)?;
        let images = Images::new(connection.clone(), &config.snapshotter);
        let cgroups = Cgroups::of_this_machine();
        let engine = Engine {
            pulls: Pulls::new(images.clone(), config.registries_dir.clone()),
            images,
            node: Node::of_this_process(cgroups.version() == Version::V2),
            cgroups,
            logger: Logger::new(config.root_dir.join("logger"), config.state_dir.join("logger.sock")),
            handlers: tokio::sync::OnceCell::new(),
            tasks: TaskTracker::new(),
            settling: Default::default(),
            connection,
            config,
        };
        Ok(Containerd { engine: Arc::new(engine) })
    }

    /// The control groups that it uses.
    pub fn cgroups(&self) -> &Cgroups {
        &self.engine.cgroups
    }

    /// Imports all images of an archive (OCI layout or `docker save`).
    pub async fn import(&self, archive: &Path) -> Result<Vec<Image>, Error> {
        self.engine.images.import(archive).await
    }

    /// Removes what was made for containers that were never made, because somebody was stopped in between.
    pub async fn remove_orphans(&self) {
        self.engine.remove_orphaned_roots(&[], Duration::ZERO).await;
    }

    /// Waits until what sessions left to do is done. To be called last.
    pub async fn close(&self) {
        self.engine.tasks.close();
        self.engine.tasks.wait().await;
    }
}

/// Replaces a program whole, even one that runs.
fn install(path: &Path, program: &[u8]) -> std::io::Result<()> {
    if std::fs::read(path).is_ok_and(|there| there == program) {
        return Ok(());
    }
    let new = path.with_extension(uuid::Uuid::new_v4().to_string());
    std::fs::write(&new, program)?;
    std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o755))?;
    std::fs::rename(new, path)
}

#[async_trait]
impl Runtime for Containerd {
    async fn version(&self) -> Result<String, Error> {
        let mut client = self.engine.connection.version();
        let version =
            client.version(()).await.map_err(failed("ask containerd for its version"))?.into_inner().version;
        // Debian's has its package's revision after it.
        let plain = version.split(['~', '+']).next().unwrap_or_default();
        Ok(format!("containerd://{}", plain.trim_start_matches('v')))
    }

    async fn handlers(&self) -> Handlers {
        self.engine.handlers.get_or_init(|| features::of(&self.engine.config)).await.clone()
    }

    fn events(&self) -> BoxStream<'static, Event> {
        events::stream(self.engine.clone())
    }

    async fn pods(&self) -> Result<Vec<PodView>, Error> {
        self.engine.pods().await
    }

    async fn pod(&self, pod: &PodRef) -> Result<PodView, Error> {
        self.engine.pod(pod).await
    }

    async fn start_sandbox(&self, pod: &PodRef, spec: &SandboxSpec) -> Result<SandboxView, Error> {
        self.engine.start_sandbox(pod, spec).await
    }

    async fn remove_sandbox(&self, sandbox: &SandboxId) -> Result<(), Error> {
        self.engine.remove_sandbox(sandbox).await
    }

    async fn start_container(
        &self,
        pod: &PodRef,
        sandbox: &SandboxId,
        spec: &ContainerSpec,
    ) -> Result<ContainerView, Error> {
        self.engine.start_container(pod, sandbox, spec).await
    }

    async fn stop_container(&self, container: &ContainerId, grace: Duration) -> Result<(), Error> {
        self.engine.stop_container(container, grace).await
    }

    async fn signal_container(&self, container: &ContainerId, signal: i32) -> Result<(), Error> {
        self.engine.signal(&container.0, signal, false).await
    }

    async fn remove_container(&self, container: &ContainerId) -> Result<(), Error> {
        self.engine.remove_container(&container.0).await
    }

    async fn update_container(&self, container: &ContainerId, resources: &Resources) -> Result<(), Error> {
        self.engine.update_container(container, resources).await
    }

    async fn annotate_container(
        &self,
        container: &ContainerId,
        annotations: &BTreeMap<String, String>,
    ) -> Result<(), Error> {
        self.engine.annotate_container(container, annotations).await
    }

    async fn update_sandbox(
        &self,
        sandbox: &SandboxId,
        resources: &Resources,
        annotations: &BTreeMap<String, String>,
    ) -> Result<(), Error> {
        self.engine.update_sandbox(sandbox, resources, annotations).await
    }

    async fn exec(&self, container: &ContainerId, spec: &ExecSpec) -> Result<Session, Error> {
        self.engine.clone().exec(container, spec).await
    }

    async fn attach(&self, container: &ContainerId, stdin: bool) -> Result<Session, Error> {
        self.engine.clone().attach(container, stdin).await
    }

    async fn reopen_log(&self, container: &ContainerId) -> Result<(), Error> {
        // One that has ended writes no more.
        self.engine.logger.ask_if_known(&["reopen", &container.0]).await
    }

    async fn usage(&self, pod: &PodRef) -> Result<BTreeMap<String, Usage>, Error> {
        self.engine.usage(pod, Timestamp::now()).await
    }

    async fn disk_usage(&self, container: &ContainerId) -> Result<DiskUsage, Error> {
        self.engine.disk_usage(container).await
    }

    async fn image(&self, reference: &str) -> Result<Option<Image>, Error> {
        self.engine.images.find(reference).await
    }

    async fn images(&self) -> Result<Vec<Image>, Error> {
        self.engine.images.list().await
    }

    async fn pull(
        &self,
        reference: &str,
        credentials: &[Credentials],
        progress: &(dyn Fn(Progress) + Send + Sync),
    ) -> Result<Pulled, Error> {
        self.engine.pulls.pull(reference, credentials, progress).await
    }

    async fn remove_image(&self, image: &ImageId) -> Result<(), Error> {
        self.engine.images.remove(image).await
    }

    async fn remove_leftovers(&self) -> Result<(), Error> {
        self.engine.remove_leftovers().await
    }
}
