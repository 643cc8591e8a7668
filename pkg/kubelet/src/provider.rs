//! The door to whatever runs whole pods: this machine ([`crate::local`]), a batch system, another cluster.
//!
//! ```text
//! sources ──> pods ── create, update, delete ──> PodProvider ── changes ──> statuses ──> apiserver
//!                          node ── describe ────────┤
//!                        server ── logs, exec, … ───┘
//! ```
//!
//! A provider is told which pods there are, runs them, and says how they are. Registration of the node, the sources of
//! pods, what is written to the apiserver and the node's API are the kubelet's, and the same for all of them.

use crate::host::Capacity;
use crate::node::{Machine, Pressure};
use crate::runtime::{Error, ExecSpec, Handlers, Image, PodRef, Session, Usage};
use async_trait::async_trait;
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use k8s_openapi::api::core::v1::{Node, Pod, PodStatus};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// What has changed.
#[derive(Debug, Clone)]
pub enum Change {
    /// A pod is so now.
    Status {
        /// As it was given.
        pod: Arc<Pod>,
        /// As it is.
        status: Box<PodStatus>,
        /// It was deleted, and nothing of it is left: its object may go.
        finished: bool,
    },
    /// Nothing is left of the pod with this uid, and nobody looks after it any more.
    Gone(String),
    /// What the node says of itself may be different.
    Node,
}

/// What a node is and has, and how it is.
#[derive(Debug, Clone)]
pub struct Described {
    /// The machine, if it is one.
    pub machine: Machine,
    /// Labels that the node is registered with beside those that it is given.
    pub labels: BTreeMap<String, String>,
    /// What there is.
    pub capacity: Capacity,
    /// What pods may use of it.
    pub allocatable: Capacity,
    /// What it is short of.
    pub pressure: Pressure,
    /// The name and version of what runs containers, such as `containerd://1.6.20`; or why it does not serve.
    pub runtime: Result<String, String>,
    /// Whether pods can be attached to the network; if not, why.
    pub network: Result<(), String>,
    /// What pods can ask for, by the handler of their RuntimeClass; empty: nobody knows.
    pub handlers: Handlers,
    /// Images.
    pub images: Vec<Image>,
}

/// What of a container's log is asked for. A provider may give more: who asked leaves out what is too much.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LogRequest {
    /// On as it grows, until nothing more will be written to it.
    pub follow: bool,
    /// Only so many lines from the end.
    pub tail_lines: Option<u64>,
}

/// A container's log, in CRI format.
pub enum Log {
    /// A file of this machine.
    File(LogFile),
    /// From elsewhere: exactly what was asked for, in pieces that need not be whole lines.
    Stream(BoxStream<'static, std::io::Result<Bytes>>),
}

/// A container's log on this machine.
pub struct LogFile {
    /// The file.
    pub path: PathBuf,
    /// Ends when nothing more will be written to it.
    pub ended: BoxFuture<'static, ()>,
}

/// A container that runs: its name and its image.
pub type Running = (String, String);

/// Runs whole pods. Calls that have no answer return at once; what comes of them is told by [`PodProvider::changes`].
#[async_trait]
pub trait PodProvider: Send + Sync + 'static {
    /// Looks after its pods until the token is cancelled. They stay as they are: the next kubelet takes them up.
    async fn run(self: Arc<Self>, shutdown: CancellationToken);
    /// Takes a pod on, or takes up one that runs already.
    fn create(&self, pod: Arc<Pod>);
    /// The object of a pod is another one now; it may say that the pod is deleted.
    fn update(&self, pod: Arc<Pod>);
    /// A pod is not wanted here any more: it ends, with its grace, and nobody asks what became of it.
    fn delete(&self, pod: Arc<Pod>);
    /// All pods that are wanted have been named once; what else is found running ends.
    fn retain(&self, uids: BTreeSet<String>);

    /// All pods, with their present statuses.
    fn list(&self) -> Vec<Arc<Pod>>;
    /// One of them.
    fn get(&self, uid: &str) -> Option<Arc<Pod>> {
        self.list().into_iter().find(|pod| pod.metadata.uid.as_deref() == Some(uid))
    }
    /// The status of one of them.
    fn status(&self, uid: &str) -> Option<PodStatus> {
        self.get(uid).and_then(|pod| pod.status.clone())
    }
    /// What changes from now on. Asked for once; of changes that nobody has taken yet the last of each pod is kept.
    fn changes(&self) -> BoxStream<'static, Change>;
    /// An error where pods are not looked after any more.
    fn health(&self) -> Result<(), String>;

    /// What the node is and has now.
    async fn describe(&self) -> Described;
    /// The node as the API has it; none: it is not there.
    async fn node_seen(&self, _node: Option<Arc<Node>>) {}

    /// The log of a container, by the id that its status has.
    async fn logs(&self, pod: &PodRef, container_id: &str, asked: LogRequest) -> Result<Log, Error>;
    /// Executes something in a container.
    async fn exec(&self, pod: &PodRef, container: &str, spec: &ExecSpec) -> Result<Session, Error>;
    /// Attaches to a container, and to its standard input if that is asked for.
    async fn attach(&self, _pod: &PodRef, _container: &str, _stdin: bool) -> Result<Session, Error> {
        Err(Error::Container("attaching is not supported on this node".into()))
    }
    /// Where ports of a pod are reached: a network namespace, or the node's own.
    async fn ports(&self, _pod: &PodRef) -> Result<Option<PathBuf>, Error> {
        Err(Error::Container("forwarding ports is not supported on this node".into()))
    }
    /// What the running containers of a pod use, by name.
    async fn usage(&self, _pod: &PodRef) -> Result<BTreeMap<String, Usage>, Error> {
        Ok(BTreeMap::new())
    }
    /// The containers that run, of each pod, whoever wanted it.
    async fn running(&self) -> Result<Vec<(PodRef, Vec<Running>)>, Error>;
}
