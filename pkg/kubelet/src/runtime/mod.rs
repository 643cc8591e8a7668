//! The door to whatever runs containers on this node: containerd, or a simulation.
//!
//! ```text
//! plan_pod ──> actions ──> Runtime ──> sandbox (pause) ─┬─ container
//!     ▲                       │                         └─ container
//!     └──── PodView <── events ┘
//! ```
//!
//! A runtime does as it is told and says what it sees; it decides nothing. Every call may be made again after a crash
//! with the same arguments and has the same result: what exists already is taken up, what is gone already is no error.
//! All that is needed to find a pod again after a restart is kept with its sandbox and containers.

pub mod cgroups;
pub mod containerd;
pub mod cri_log;
pub mod images;
mod spec;

pub(crate) use images::{normalize as normalize_image, repository as image_repository};

use async_trait::async_trait;
use futures::stream::BoxStream;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};

/// Which pod something belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PodRef {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid (of a static pod: the hash of its file, as upstream).
    pub uid: String,
}

/// The runtime's name of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SandboxId(pub String);

/// The runtime's name of a container.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ContainerId(pub String);

/// The runtime's name of an image's contents: the digest of its configuration, `sha256:…`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ImageId(pub String);

/// What a pod's containers share.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SandboxSpec {
    /// How often this pod's sandbox has been made before.
    pub attempt: u32,
    /// The host name in it; empty: the node's.
    pub hostname: String,
    /// The network namespace to join; `None` is the node's own.
    pub network_namespace: Option<PathBuf>,
    /// Shares the node's process numbers.
    pub host_pid: bool,
    /// Shares the node's System V IPC.
    pub host_ipc: bool,
    /// One process namespace for all containers.
    pub share_processes: bool,
    /// The cgroup that the pod's containers are made in, such as `/kubepods/burstable/pod<uid>`.
    pub cgroup_parent: String,
    /// Limits of all containers together.
    pub resources: Resources,
    /// The runtime to use, by the handler of the RuntimeClass; empty: runc.
    pub handler: String,
    /// Kernel parameters of its namespaces.
    pub sysctls: BTreeMap<String, String>,
    /// Kept with it and given back in its view.
    pub labels: BTreeMap<String, String>,
    /// Kept with it and given back in its view.
    pub annotations: BTreeMap<String, String>,
}

/// What a container is.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ContainerSpec {
    /// Its name in the pod.
    pub name: String,
    /// How often a container of this name has been made in this pod before.
    pub attempt: u32,
    /// The image, as found by [`Runtime::image`] or [`Runtime::pull`].
    pub image: ImageId,
    /// The image as the pod names it; given back in its view.
    pub image_ref: String,
    /// Replaces the image's entrypoint unless empty.
    pub command: Vec<String>,
    /// Replaces the image's arguments unless empty (or unless `command` is given).
    pub args: Vec<String>,
    /// Where it starts; empty: where the image says.
    pub working_dir: String,
    /// Added to the image's environment.
    pub env: Vec<(String, String)>,
    /// Files and folders of the node in it.
    pub mounts: Vec<Mount>,
    /// Devices of the node in it.
    pub devices: Vec<PathBuf>,
    /// What it may do.
    pub security: Security,
    /// What it may use.
    pub resources: Resources,
    /// With a terminal.
    pub tty: bool,
    /// Keeps its standard input open for those who attach.
    pub stdin: bool,
    /// Closes its standard input when the first who attached is done.
    pub stdin_once: bool,
    /// Where what it writes goes, in the CRI format.
    pub log_path: PathBuf,
    /// Kept with it and given back in its view.
    pub labels: BTreeMap<String, String>,
    /// Kept with it and given back in its view.
    pub annotations: BTreeMap<String, String>,
}

/// A file or folder of the node in a container.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mount {
    /// On the node.
    pub host_path: PathBuf,
    /// In the container.
    pub container_path: PathBuf,
    /// Cannot be written to.
    pub read_only: bool,
    /// Nor can what is mounted below it.
    pub recursive_read_only: bool,
    /// Whether mounts made later cross.
    pub propagation: Propagation,
}

/// Whether mounts made later cross between node and container.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Propagation {
    /// Neither way.
    #[default]
    None,
    /// From the node into the container.
    HostToContainer,
    /// Both ways.
    Bidirectional,
}

/// What a container may do.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Security {
    /// Everything.
    pub privileged: bool,
    /// Its user; `None`: the image's.
    pub user: Option<i64>,
    /// Its group; `None`: the image's.
    pub group: Option<i64>,
    /// Refuses to run as user 0, whoever says so.
    pub must_be_non_root: bool,
    /// Further groups, `fsGroup` among them.
    pub supplemental_groups: Vec<i64>,
    /// The groups that the image gives to the user are not added.
    pub only_these_groups: bool,
    /// Capabilities added to the default ones (`ALL`: every one).
    pub add_capabilities: Vec<String>,
    /// Capabilities taken away (`ALL`: every one, before adding).
    pub drop_capabilities: Vec<String>,
    /// Its root cannot be written to.
    pub read_only_root: bool,
    /// May not gain privileges by set-uid programs.
    pub no_new_privileges: bool,
    /// Which system calls it may make.
    pub seccomp: Seccomp,
    /// The AppArmor profile that confines it.
    pub app_armor: Option<String>,
    /// Nothing of `/proc` is hidden.
    pub unmasked_proc: bool,
}

/// Which system calls a container may make.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Seccomp {
    /// All.
    #[default]
    Unconfined,
    /// Those that containers ordinarily need.
    RuntimeDefault,
    /// Those of a profile in a file of the node.
    Localhost(PathBuf),
}

/// What a container, or a whole pod, may use. Zero: no limit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resources {
    /// Relative weight, as in cgroup v1 (2 to 262144).
    pub cpu_shares: u64,
    /// Microseconds of CPU per period.
    pub cpu_quota_us: i64,
    /// The period.
    pub cpu_period_us: u64,
    /// Bytes.
    pub memory_limit_bytes: i64,
    /// Processes.
    pub pids_limit: i64,
    /// Who is killed first when memory runs out (-1000 to 1000).
    pub oom_score_adj: Option<i32>,
    /// Kernel parameters of cgroup v2, by file name.
    pub unified: BTreeMap<String, String>,
}

/// A pod as the runtime sees it. Newest attempts last.
#[derive(Debug, Clone, PartialEq)]
pub struct PodView {
    /// Which.
    pub pod: PodRef,
    /// Its sandboxes.
    pub sandboxes: Vec<SandboxView>,
    /// Its containers, of every kind.
    pub containers: Vec<ContainerView>,
}

/// A sandbox as the runtime sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct SandboxView {
    /// Which.
    pub id: SandboxId,
    /// As it was asked for.
    pub spec: SandboxSpec,
    /// Its pause process, while that runs.
    pub pid: Option<u32>,
    /// When it was made.
    pub created_at: Timestamp,
}

/// A container as the runtime sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct ContainerView {
    /// Which.
    pub id: ContainerId,
    /// The sandbox it is in.
    pub sandbox: SandboxId,
    /// Its name in the pod.
    pub name: String,
    /// How often a container of this name has been made in this pod before.
    pub attempt: u32,
    /// Its image.
    pub image: ImageId,
    /// Its image as the pod names it.
    pub image_ref: String,
    /// What it does now.
    pub state: ContainerState,
    /// As given when it was made.
    pub labels: BTreeMap<String, String>,
    /// As given when it was made.
    pub annotations: BTreeMap<String, String>,
    /// Where what it writes goes.
    pub log_path: PathBuf,
    /// Who its first process runs as at first; none: nobody knows.
    pub user: Option<ContainerUser>,
    /// When it was made.
    pub created_at: Timestamp,
}

impl PodView {
    /// The sandboxes to be removed with the pod: those that are there, and those that only a container tells of, which was
    /// made while its sandbox went.
    pub fn all_sandboxes(&self) -> BTreeSet<&SandboxId> {
        let theirs = self.containers.iter().map(|container| &container.sandbox);
        self.sandboxes.iter().map(|sandbox| &sandbox.id).chain(theirs).collect()
    }

    /// Whether there is nothing of it.
    pub fn is_empty(&self) -> bool {
        self.sandboxes.is_empty() && self.containers.is_empty()
    }
}

/// Who the first process of a container runs as at first, in numbers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerUser {
    /// The user.
    pub uid: u32,
    /// The user's first group.
    pub gid: u32,
    /// All groups.
    pub groups: Vec<u32>,
}

/// What can be had of the runtime behind a handler.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HandlerFeatures {
    /// Mounts that cannot be written to, nor can what is mounted below them.
    pub recursive_read_only_mounts: bool,
    /// Users of a pod that are nobody outside.
    pub user_namespaces: bool,
}

/// The handlers of RuntimeClasses; the empty one is for pods that name none.
pub type Handlers = BTreeMap<String, HandlerFeatures>;

/// What a container does now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContainerState {
    /// Made, never started.
    Created,
    /// Runs.
    Running {
        /// Since.
        started_at: Timestamp,
        /// Its first process.
        pid: u32,
    },
    /// Has ended.
    Exited {
        /// When it had started, if it ever did.
        started_at: Option<Timestamp>,
        /// When.
        finished_at: Timestamp,
        /// What it returned; 128 + n: killed by signal n.
        code: i32,
        /// It used more memory than it may.
        out_of_memory: bool,
        /// Why it could not be started, where that is why it ended.
        message: Option<String>,
    },
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Something about this pod is not as it was: look at [`Runtime::pod`].
    Changed(PodRef),
    /// Images came or went.
    Images,
    /// Events may have been lost (the runtime was away): look at everything.
    Lost,
}

/// An image on this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// Which.
    pub id: ImageId,
    /// Names with a tag.
    pub tags: Vec<String>,
    /// Names with a digest.
    pub digests: Vec<String>,
    /// What it takes on disk.
    pub size_bytes: u64,
    /// The user that it says to run as, if it says a number.
    pub user: Option<i64>,
    /// The user that it says to run as, if it says a name.
    pub user_name: Option<String>,
    /// It stays however full the disk is.
    pub is_pinned: bool,
}

/// An image that was fetched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pulled {
    /// It.
    pub image: Image,
    /// Which of the credentials the registry took; none: it gives the image to everybody.
    pub by: Option<usize>,
}

/// How far a pull is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Bytes that have come.
    pub done_bytes: u64,
    /// Bytes that there are, as far as is known.
    pub total_bytes: u64,
}

/// Who to be for a registry.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Credentials {
    /// The user's name.
    pub username: String,
    /// The password or token.
    pub password: String,
}

/// What runs in a container besides its own process, or what somebody attached to.
pub struct Session {
    /// Its standard input, if it was asked for. It ends when this is shut down or dropped.
    pub stdin: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    /// Its standard output; a terminal's whole output.
    pub stdout: Option<Box<dyn AsyncRead + Send + Unpin>>,
    /// Its standard error; none with a terminal.
    pub stderr: Option<Box<dyn AsyncRead + Send + Unpin>>,
    /// Resizes the terminal: columns, rows. Sending never blocks for long.
    pub resize: tokio::sync::mpsc::Sender<(u16, u16)>,
    /// How it ended. Dropping it before ends what was executed, but not what was attached to.
    pub exit: futures::future::BoxFuture<'static, Result<i32, Error>>,
}

/// How to execute something.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExecSpec {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// With a terminal.
    pub tty: bool,
    /// Wants to write to it.
    pub stdin: bool,
    /// Wants to read its output.
    pub stdout: bool,
    /// Wants to read its errors.
    pub stderr: bool,
}

/// What a container uses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// When this was so.
    pub at: Timestamp,
    /// CPU time since it started.
    pub cpu_ns: u64,
    /// Memory, all of it.
    pub memory_bytes: u64,
    /// Memory that cannot be given back easily: what limits and evictions go by.
    pub working_set_bytes: u64,
    /// Anonymous memory.
    pub rss_bytes: u64,
    /// Processes and threads.
    pub pids: u64,
}

/// What something takes on the disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DiskUsage {
    /// Bytes.
    pub bytes: u64,
    /// Files.
    pub inodes: u64,
}

/// Why the runtime did not do as asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The image is not on this node (or not in the registry).
    #[error("{0}")]
    ImageNotFound(String),
    /// The registry refused.
    #[error("{0}")]
    ImageRefused(String),
    /// The container cannot be made or started as it is asked for.
    #[error("{0}")]
    Container(String),
    /// No such container or sandbox.
    #[error("{0} not found")]
    NotFound(String),
    /// The runtime cannot serve now.
    #[error("{doing}")]
    Unavailable {
        /// What was being done.
        doing: String,
        /// Why it failed.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// Runs containers.
#[async_trait]
pub trait Runtime: Send + Sync + 'static {
    /// Its name and version, such as `containerd://1.6.20`. An error: it does not serve.
    async fn version(&self) -> Result<String, Error>;
    /// What its handlers can do. Always the same.
    async fn handlers(&self) -> Handlers {
        Handlers::new()
    }
    /// What happens from now on. Begins with [`Event::Lost`], and goes on by itself when the runtime was away.
    fn events(&self) -> BoxStream<'static, Event>;
    /// All pods of ours.
    async fn pods(&self) -> Result<Vec<PodView>, Error>;
    /// One pod; empty lists if there is nothing of it.
    async fn pod(&self, pod: &PodRef) -> Result<PodView, Error>;

    /// Makes and starts a sandbox.
    async fn start_sandbox(&self, pod: &PodRef, spec: &SandboxSpec) -> Result<SandboxView, Error>;
    /// Kills it and all containers in it, and forgets them and their file systems.
    async fn remove_sandbox(&self, sandbox: &SandboxId) -> Result<(), Error>;
    /// Makes and starts a container in a sandbox. If it was made but its process does not start, the error says why and
    /// the container stays, as one that ended with code 128 and that message.
    async fn start_container(
        &self,
        pod: &PodRef,
        sandbox: &SandboxId,
        spec: &ContainerSpec,
    ) -> Result<ContainerView, Error>;
    /// Sends its stop signal, waits until it has ended or the grace is over, then kills it. Answers when it has ended.
    async fn stop_container(&self, container: &ContainerId, grace: Duration) -> Result<(), Error>;
    /// Sends it a signal.
    async fn signal_container(&self, container: &ContainerId, signal: i32) -> Result<(), Error>;
    /// Forgets an ended container and its file system (not its log).
    async fn remove_container(&self, container: &ContainerId) -> Result<(), Error>;
    /// Changes what it may use.
    async fn update_container(&self, container: &ContainerId, resources: &Resources) -> Result<(), Error>;
    /// Keeps these annotations with a container, beside those that it was made with.
    async fn annotate_container(
        &self,
        _container: &ContainerId,
        _annotations: &BTreeMap<String, String>,
    ) -> Result<(), Error> {
        Ok(())
    }
    /// Changes what all containers of a sandbox may use together, and keeps these annotations with it, too.
    async fn update_sandbox(
        &self,
        _sandbox: &SandboxId,
        _resources: &Resources,
        _annotations: &BTreeMap<String, String>,
    ) -> Result<(), Error> {
        Ok(())
    }

    /// Executes something in it.
    async fn exec(&self, container: &ContainerId, spec: &ExecSpec) -> Result<Session, Error>;
    /// Attaches to it: what it writes from now on, and, if that is asked for, its standard input, if it has one.
    async fn attach(&self, container: &ContainerId, stdin: bool) -> Result<Session, Error>;
    /// Opens the log file again, after it was moved away.
    async fn reopen_log(&self, container: &ContainerId) -> Result<(), Error>;
    /// What the containers of a pod use, by name.
    async fn usage(&self, pod: &PodRef) -> Result<BTreeMap<String, Usage>, Error>;

    /// What a container's own files take on the disk, without its log and volumes.
    async fn disk_usage(&self, _container: &ContainerId) -> Result<DiskUsage, Error> {
        Ok(DiskUsage::default())
    }

    /// The image that a pod's reference means, if it is here.
    async fn image(&self, reference: &str) -> Result<Option<Image>, Error>;
    /// All images.
    async fn images(&self) -> Result<Vec<Image>, Error>;
    /// Fetches an image, trying the credentials in order and then none; pulls of one reference join.
    async fn pull(
        &self,
        reference: &str,
        credentials: &[Credentials],
        progress: &(dyn Fn(Progress) + Send + Sync),
    ) -> Result<Pulled, Error>;
    /// Removes an image and its contents.
    async fn remove_image(&self, image: &ImageId) -> Result<(), Error>;

    /// Removes what calls that were never finished left behind, and that belongs to no container or sandbox.
    async fn remove_leftovers(&self) -> Result<(), Error> {
        Ok(())
    }
}
