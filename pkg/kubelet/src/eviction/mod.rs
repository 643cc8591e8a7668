//! Pods that have to go: because the node is short of memory, disk or processes, or because they use more of the disk
//! than they may.
//!
//! ```text
//! Machine::read ──> thresholds: what is missing ──> pressure (conditions of the node, admission)
//! usage, files ──> rank: who goes ──> PodTable::fail ──> the pod's worker
//! ```
//!
//! Looked at every ten seconds, as upstream does. While nothing is missing and nobody has a limit, no file is counted.

mod rank;
mod thresholds;

pub use rank::{ContainerUse, Eviction, PodUse, choose, is_critical, over_their_limits};
pub use thresholds::{HARD, Met, Pressed, Signal, Thresholds};

use crate::image_gc::ImageGc;
use crate::local::PodTable;
use crate::node::{Machine, Pressure};
use crate::plan::Ending;
use crate::provider::Change;
use crate::shared::Shared;
use crate::worker::pod_ref;
use client::EventType;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const LOOK_EVERY: Duration = Duration::from_secs(10);
/// One that has to go is given this long before the next one is chosen.
const LONGEST_END: Duration = Duration::from_secs(30);
const LOOK_FOR_END: Duration = Duration::from_millis(200);
/// There is no time to say goodbye: as upstream.
const GRACE_S: i64 = 1;

/// What is needed to evict pods.
pub(crate) struct Evictions {
    pub shared: Arc<Shared>,
    pub table: Arc<PodTable>,
    pub node_name: String,
    pub root: PathBuf,
    pub thresholds: Thresholds,
    /// How long a condition stays after its cause is gone.
    pub stays: SignedDuration,
    pub images: Arc<ImageGc>,
}

impl Evictions {
    /// Until the token is cancelled.
    pub async fn run(self, shutdown: CancellationToken) {
        let mut pressed = Pressed::default();
        loop {
            let looked = async {
                let evicted = self.look(&mut pressed).await;
                if evicted.is_empty() {
                    tokio::time::sleep(LOOK_EVERY).await;
                } else {
                    self.until_ended(&evicted).await;
                }
            };
            tokio::select! {
                () = looked => {}
                () = shutdown.cancelled() => return,
            }
        }
    }

    /// Whom it told to go.
    async fn look(&self, pressed: &mut Pressed) -> Vec<String> {
        let mut met = self.thresholds.met(&Machine::read(&self.root));
        self.say(pressed.look(&met, Timestamp::now(), self.stays));
        let pods = self.active();
        let limited: Vec<Arc<Pod>> = pods.iter().filter(|pod| rank::has_disk_limits(pod)).cloned().collect();
        let over = over_their_limits(&self.measure(&limited, true).await);
        if !over.is_empty() {
            return over.into_iter().map(|eviction| self.evict(eviction)).collect();
        }
        if met.iter().any(|met| met.signal.is_of_disk()) {
            self.images.remove_all_unused().await;
            met = self.thresholds.met(&Machine::read(&self.root));
        }
        let Some(worst) = met.first() else { return Vec::new() };
        let message = format!("Attempting to reclaim {}", worst.signal.resource());
        self.shared.events.node(&self.node_name, EventType::Warning, "EvictionThresholdMet", message);
        let used = self.measure(&pods, worst.signal.is_of_disk()).await;
        choose(worst, used).map(|eviction| self.evict(eviction)).into_iter().collect()
    }

    fn say(&self, pressure: Pressure) {
        let before = std::mem::replace(&mut *self.shared.pressure.write(), pressure);
        if before != pressure {
            tracing::warn!(?pressure, "what the node is short of");
            self.shared.outbox.put(Change::Node);
        }
    }

    /// Pods that run, and were not told to go.
    fn active(&self) -> Vec<Arc<Pod>> {
        let mut pods = self.table.wanted();
        pods.retain(|pod| {
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
            !matches!(phase, Some("Succeeded" | "Failed"))
        });
        pods
    }

    fn evict(&self, eviction: Eviction) -> String {
        let Eviction { pod, message, for_the_node } = eviction;
        self.shared.events.warning(&pod, "Evicted", message.clone());
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let ending =
            Ending::Failed { reason: "Evicted".into(), message, grace_s: Some(GRACE_S), for_the_node };
        self.table.fail(&uid, ending);
        uid
    }

    async fn until_ended(&self, evicted: &[String]) {
        let ends = tokio::time::Instant::now() + LONGEST_END;
        let is_active = || self.table.uses_the_node(evicted);
        while is_active() && tokio::time::Instant::now() < ends {
            tokio::time::sleep(LOOK_FOR_END).await;
        }
    }

    async fn measure(&self, pods: &[Arc<Pod>], files: bool) -> Vec<PodUse> {
        let mut measured = Vec::new();
        for pod in pods {
            let mut of = PodUse { pod: pod.clone(), ..PodUse::default() };
            let reference = pod_ref(pod);
            for (name, usage) in self.shared.runtime.usage(&reference).await.unwrap_or_default() {
                let container = of.containers.entry(name).or_default();
                container.memory_bytes = usage.working_set_bytes;
                container.pids = usage.pids;
            }
            if files {
                self.count_files(&mut of).await;
            }
            measured.push(of);
        }
        measured
    }

    /// What a pod has on the disk: containers' own files and logs, and emptyDir volumes.
    async fn count_files(&self, of: &mut PodUse) {
        let Some(host) = &self.shared.host else { return };
        let reference = pod_ref(&of.pod);
        let view = self.shared.runtime.pod(&reference).await;
        for container in view.iter().flat_map(|view| &view.containers) {
            let own = self.shared.runtime.disk_usage(&container.id).await.unwrap_or_default();
            let entry = of.containers.entry(container.name.clone()).or_default();
            entry.disk_bytes += own.bytes;
            entry.inodes += own.inodes;
        }
        let logs: Vec<(String, PathBuf)> =
            of.containers.keys().map(|name| (name.clone(), host.paths.logs(&reference).join(name))).collect();
        let volumes = of.pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
        let volumes: Vec<(String, PathBuf)> = volumes
            .filter(|volume| volume.empty_dir.is_some())
            .map(|volume| {
                let dir = host.paths.volume(&reference.uid, "kubernetes.io~empty-dir", &volume.name);
                (volume.name.clone(), dir)
            })
            .collect();
        let count = |list: Vec<(String, PathBuf)>| {
            tokio::task::spawn_blocking(move || {
                list.into_iter().map(|(name, dir)| (name, count(&dir))).collect::<Vec<_>>()
            })
        };
        for (name, (bytes, inodes)) in count(logs).await.unwrap_or_default() {
            let entry = of.containers.entry(name).or_default();
            entry.disk_bytes += bytes;
            entry.inodes += inodes;
        }
        for (name, (bytes, inodes)) in count(volumes).await.unwrap_or_default() {
            of.volumes.insert(name, bytes);
            of.volume_inodes += inodes;
        }
    }
}

/// What a folder takes on the disk, and how many files are in it. What vanishes meanwhile counts for nothing.
fn count(dir: &Path) -> (u64, u64) {
    use std::os::unix::fs::MetadataExt;
    let (mut bytes, mut inodes) = (0, 0);
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let Ok(found) = entry.metadata() else { continue };
            bytes += found.blocks() * 512;
            inodes += 1;
            if found.is_dir() {
                folders.push(entry.path());
            }
        }
    }
    (bytes, inodes)
}
