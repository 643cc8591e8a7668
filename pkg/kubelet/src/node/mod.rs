//! This machine as a Node of the cluster: registered, described, alive.
//!
//! ```text
//! PodProvider::describe ──> status(facts, before, now) ──> patched when it changes, or every five minutes
//! Lease, every ten seconds, whatever happens
//! watch of the own Node ──> pod ranges, labels
//! ```

mod claim;
mod lease;
mod leave;
mod machine;
mod register;
mod status;

pub(crate) use claim::{Claimant, Taken};
pub use leave::{GIVEN_BACK, Holder, give_back, holder, leave_behind};
pub use machine::Machine;
pub use status::{Facts, Pressure, amounts, node_status};

use crate::events::Events;
use crate::provider::PodProvider;
use client::{EventType, Informers};
use futures::StreamExt;
use ipnet::IpNet;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, NodeStatus, Taint};
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::watcher;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

/// How often the machine is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// How often a status is written that says nothing new.
const REPORT_EVERY: Duration = Duration::from_secs(5 * 60);
const RETRY: Duration = Duration::from_secs(1);
/// How soon an apiserver is asked again that did not register the node: at the start of a cluster it is not there yet.
const REGISTER_AGAIN: Duration = Duration::from_millis(200);

/// How the node presents itself.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Its name.
    pub name: String,
    /// Its addresses, best first.
    pub addresses: Vec<String>,
    /// Its host name.
    pub hostname: String,
    /// Labels of its own.
    pub labels: BTreeMap<String, String>,
    /// Taints that it begins with.
    pub taints: Vec<Taint>,
    /// Where its API is served; 0: nowhere.
    pub port: u16,
    /// Ranges of pod addresses that it is given by flag.
    pub pod_cidrs: Vec<IpNet>,
}

/// Keeps the node in the API as it is.
pub(crate) struct NodeAgent {
    pub settings: Settings,
    pub client: Client,
    pub informers: Informers,
    pub provider: Arc<dyn PodProvider>,
    pub events: Events,
    pub node: watch::Sender<Option<Arc<Node>>>,
    /// Told when there is something else to say.
    pub changed: Arc<Notify>,
    /// Which kubelet this is.
    pub claimant: Claimant,
    /// Whether the Node is this kubelet's: then pods may be run for it.
    pub claimed: watch::Sender<bool>,
    /// Cancelled when another kubelet has it.
    pub taken: CancellationToken,
}

impl NodeAgent {
    /// Until the token is cancelled.
    pub async fn run(self, shutdown: CancellationToken) {
        let name = &self.settings.name;
        let work = async {
            self.claimant.wait(&self.client, name, false).await?;
            self.claimed.send_replace(true);
            let lease = lease::run(self.client.clone(), name, &self.claimant, self.node.subscribe());
            tokio::select! {
                () = self.keep() => Ok(()),
                () = self.follow() => Ok(()),
                taken = lease => Err(taken),
            }
        };
        tokio::select! {
            ended = work => if let Err(Taken { by }) = ended {
                let advice = "give one of both machines another name (kubeadm reset, kubeadm join --node-name)";
                tracing::error!(node = name, by, "another kubelet has this node, and this one ends: {advice}");
                self.taken.cancel();
            },
            () = shutdown.cancelled() => {}
        }
    }

    /// Follows the own Node: its pod ranges and labels are decided elsewhere.
    async fn follow(&self) {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let config = watcher::Config::default().fields(&format!("metadata.name={}", self.settings.name));
        let stream = self.informers.events(nodes, &config);
        let mut stream = std::pin::pin!(stream);
        // Before it is registered it is in no list.
        let mut is_listed = true;
        while let Some(event) = stream.next().await {
            match event {
                watcher::Event::Apply(node) | watcher::Event::InitApply(node) => {
                    is_listed = true;
                    if self.seen(node).await {
                        self.changed.notify_one();
                    }
                }
                watcher::Event::Delete(_) => self.gone().await,
                watcher::Event::Init => is_listed = self.node.borrow().is_none(),
                // It went while nobody told us.
                watcher::Event::InitDone if !is_listed => self.gone().await,
                watcher::Event::InitDone => {}
            }
        }
    }

    /// Somebody has deleted it, and means it: a kubelet registers its node when it starts, and then no more.
    async fn gone(&self) {
        if self.node.send_replace(None).is_some() {
            let advice =
                "kubeadm reset takes this machine out of it; a kubelet that is started anew registers again";
            tracing::warn!(
                node = self.settings.name,
                "this node was deleted from the cluster, its pods end: {advice}"
            );
        }
        self.provider.node_seen(None).await;
        self.changed.notify_one();
    }

    /// The node is so in the API; whether it was not there before.
    async fn seen(&self, mut node: Node) -> bool {
        node.metadata.managed_fields = None;
        let node = Arc::new(node);
        let was_gone = self.node.send_replace(Some(node.clone())).is_none();
        self.provider.node_seen(Some(node)).await;
        was_gone
    }

    /// Registers the node and keeps its status, as long as it is there.
    async fn keep(&self) {
        self.register().await;
        let mut written: Option<(NodeStatus, tokio::time::Instant)> = None;
        loop {
            if self.node.borrow().is_none() {
                written = None;
                self.changed.notified().await;
                continue;
            }
            let facts = self.facts().await;
            let before = self.node.borrow().as_ref().and_then(|node| node.status.clone()).unwrap_or_default();
            let status = node_status(&facts, &before, Timestamp::now());
            let is_old = written.as_ref().is_none_or(|(_, at)| at.elapsed() > REPORT_EVERY);
            // What others have written over it (that nothing is heard of this node, say) is not so either.
            let is_new = written.as_ref().is_none_or(|(last, _)| status::differ(last, &status))
                || status::conditions_differ(&before, &status);
            if is_old || is_new {
                self.tell_ready(&before, &status);
                match self.write(&status).await {
                    Ok(()) => written = Some((status, tokio::time::Instant::now())),
                    Err(error) => {
                        tracing::warn!(error = crate::error::chain(&error), "write the status of this node");
                        if matches!(&error, kube::Error::Api(status) if status.code == 404) {
                            self.gone().await;
                        }
                        tokio::time::sleep(RETRY).await;
                        continue;
                    }
                }
            }
            tokio::select! {
                () = tokio::time::sleep(LOOK_EVERY) => {}
                () = self.changed.notified() => {}
            }
        }
    }

    /// Asks until the node is registered, by what is known of it at first: its status is written next.
    async fn register(&self) {
        let facts = self.facts().await;
        let mut refused = String::new();
        loop {
            match register::register(&self.client, &self.settings, &facts).await {
                Ok(node) => {
                    self.seen(node).await;
                    let name = &self.settings.name;
                    self.events.node(name, EventType::Normal, "Starting", "Starting kubelet.");
                    return;
                }
                Err(error) => {
                    let why = crate::error::chain(&error);
                    if why != refused {
                        tracing::warn!(error = why, "register this node");
                        refused = why;
                    }
                    tokio::time::sleep(REGISTER_AGAIN).await;
                }
            }
        }
    }

    fn tell_ready(&self, before: &NodeStatus, now: &NodeStatus) {
        let ready = |status: &NodeStatus| {
            let list = status.conditions.iter().flatten().find(|condition| condition.type_ == "Ready");
            list.map(|condition| condition.status.clone())
        };
        let name = &self.settings.name;
        let (was, is) = (ready(before), ready(now));
        if was != is {
            let (reason, what) = match is.as_deref() {
                Some("True") => ("NodeReady", "NodeReady"),
                _ => ("NodeNotReady", "NodeNotReady"),
            };
            let message = format!("Node {name} status is now: {what}");
            self.events.node(name, EventType::Normal, reason, message);
        }
    }

    async fn write(&self, status: &NodeStatus) -> Result<(), kube::Error> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let patch = status::patch(status);
        let node = nodes
            .patch_status(&self.settings.name, &PatchParams::default(), &Patch::Strategic(patch))
            .await?;
        self.seen(node).await;
        Ok(())
    }

    async fn facts(&self) -> Facts {
        Facts { settings: self.settings.clone(), now: self.provider.describe().await }
    }
}
