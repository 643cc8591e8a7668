//! A provider of pods, as kubelets have them, behind the protocol.
//!
//! ```text
//! create ──> Adapt ──> files, pods/<uid>.json ──> PodProvider: the local node, SLURM
//!                              └── a restart takes all of them up again
//! ```
//!
//! A pod is acknowledged when it is on disk. It knows nothing of what runs it.

use super::localize::File;
use super::{LogStream, Site, SiteError};
use crate::names::{PodName, is_part};
use crate::wire::{Accelerator, Generation, LogOptions, PodState, Pong, Resources, RetrievedPod};
use async_trait::async_trait;
use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    ContainerState, ContainerStateTerminated, ContainerStateWaiting, ContainerStatus, Pod, PodStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kubelet::provider::{Change, PodProvider};
use kubelet::server::{LogQuery, Since, container_log};
use parking_lot::Mutex;
use pki::file::{Mode, write};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{ErrorKind, Result};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// What a pod gets beside its grace to end.
const END: Duration = Duration::from_secs(60);
const DEFAULT_GRACE: i64 = 30;
/// The exit code of a container that could not be started.
const NEVER_RAN: i32 = 128;

/// What a provider needs of a pod that came from another cluster.
pub(super) struct Adapted {
    /// The pod, as the provider gets it.
    pub pod: Pod,
    /// Folders of its volumes, below its own.
    pub folders: Vec<PathBuf>,
    /// Files in them.
    pub files: Vec<File>,
    /// What came along, where the provider asks for it later.
    pub given: Option<RetrievedPod>,
}

/// Makes of a pod what a provider runs.
pub(super) trait Adapt: Send + Sync + 'static {
    /// `folder` is where its volumes are. An error is a refusal, in words for its status.
    fn adapt(&self, given: RetrievedPod, folder: &Path) -> std::result::Result<Adapted, String>;
    /// A pod is about to be given to the provider.
    fn begins(&self, _kept: &Kept) {}
    /// Nothing is left of it.
    fn ends(&self, _uid: &str) {}
}

/// A pod on disk.
#[derive(serde::Serialize, serde::Deserialize)]
pub(super) struct Kept {
    /// As the provider gets it.
    pub pod: Pod,
    /// What came along, as it came.
    #[serde(default)]
    pub given: Value,
}

/// The site.
pub struct ProvidedSite {
    provider: Arc<dyn PodProvider>,
    adapt: Box<dyn Adapt>,
    folder: PathBuf,
    /// Pods as they run here.
    pods: Mutex<BTreeMap<String, Arc<Pod>>>,
    /// Those of which nothing is left.
    ended: Mutex<BTreeSet<String>>,
    changed: Notify,
}

impl ProvidedSite {
    /// Takes up what is kept in the folder, on this provider.
    pub(super) fn new(
        provider: Arc<dyn PodProvider>,
        adapt: Box<dyn Adapt>,
        folder: &Path,
    ) -> Result<Arc<ProvidedSite>> {
        for part in ["pods", "volumes"] {
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder.join(part))?;
        }
        let mut pods = BTreeMap::new();
        for entry in std::fs::read_dir(folder.join("pods"))? {
            let path = entry?.path();
            if path.extension().is_none_or(|extension| extension != "json") {
                continue;
            }
            match serde_json::from_slice::<Kept>(&std::fs::read(&path)?) {
                Ok(kept) => {
                    adapt.begins(&kept);
                    let uid = kept.pod.metadata.uid.clone().filter(|uid| is_part(uid));
                    pods.extend(uid.map(|uid| (uid, Arc::new(kept.pod))));
                }
                Err(error) => {
                    tracing::error!(file = %path.display(), %error, "this file cannot be read, its pod is forgotten")
                }
            }
        }
        for pod in pods.values() {
            provider.create(pod.clone());
        }
        provider.retain(pods.keys().cloned().collect());
        let site = ProvidedSite {
            provider,
            adapt,
            folder: folder.to_owned(),
            pods: Mutex::new(pods),
            ended: Mutex::default(),
            changed: Notify::new(),
        };
        Ok(Arc::new(site))
    }

    /// Follows its pods until shutdown.
    pub async fn run(self: Arc<Self>, shutdown: CancellationToken) {
        let mut changes = self.provider.changes();
        let follow = async {
            while let Some(change) = changes.next().await {
                match change {
                    Change::Status { pod, finished: true, .. } => {
                        // It was deleted and nothing of it is left.
                        self.has_ended(&pod.metadata.uid.clone().unwrap_or_default());
                        self.provider.delete(pod);
                    }
                    Change::Gone(uid) => self.has_ended(&uid),
                    _ => {}
                }
                self.changed.notify_waiters();
            }
        };
        tokio::select! {
            () = follow => {}
            () = self.provider.clone().run(shutdown.clone()) => {}
        }
    }

    /// Whoever waits for its end is told. Nobody does once it is forgotten.
    fn has_ended(&self, uid: &str) {
        if self.pods.lock().contains_key(uid) {
            self.ended.lock().insert(uid.to_owned());
        }
    }

    fn file(&self, uid: &str) -> PathBuf {
        self.folder.join("pods").join(format!("{uid}.json"))
    }

    /// Writes the files of a pod's volumes. They are made anew, since what is there may be half of them.
    fn lay_out(&self, uid: &str, folders: &[PathBuf], files: &[File]) -> Result<()> {
        let root = self.volumes(uid);
        remove(&root)?;
        std::fs::DirBuilder::new().mode(0o700).create(&root)?;
        let open =
            |path: &Path| std::fs::DirBuilder::new().recursive(true).mode(0o755).create(root.join(path));
        for folder in folders {
            open(folder)?;
        }
        for file in files {
            open(file.path.parent().unwrap_or(Path::new("")))?;
            let mut options = std::fs::OpenOptions::new();
            let mut made =
                options.write(true).create_new(true).mode(file.mode).open(root.join(&file.path))?;
            std::io::Write::write_all(&mut made, &file.bytes)?;
        }
        Ok(())
    }

    fn volumes(&self, uid: &str) -> PathBuf {
        self.folder.join("volumes").join(uid)
    }

    fn own(&self, name: &PodName) -> Option<Arc<Pod>> {
        self.pods.lock().get(&name.uid).cloned()
    }
}

fn remove(folder: &Path) -> Result<()> {
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn not_kept(error: &dyn std::error::Error) -> SiteError {
    tracing::error!(error = kubelet::error::chain(error), "keep a pod");
    SiteError::Busy("the pod cannot be kept on disk: see the log of the plugin".into())
}

#[async_trait]
impl Site for ProvidedSite {
    async fn create(&self, name: &PodName, given: RetrievedPod) -> std::result::Result<String, SiteError> {
        if self.own(name).is_some() {
            return Ok(name.uid.clone());
        }
        let adapted = self.adapt.adapt(given, &self.volumes(&name.uid)).map_err(SiteError::Refused)?;
        self.lay_out(&name.uid, &adapted.folders, &adapted.files).map_err(|error| not_kept(&error))?;
        let given = adapted.given.map(|given| given.encode(Generation::Objects)).unwrap_or_default();
        let kept = Kept { pod: adapted.pod, given };
        let text = serde_json::to_vec(&kept).map_err(|error| not_kept(&error))?;
        write(&self.file(&name.uid), &text, Mode::Secret).map_err(|error| not_kept(&error))?;
        self.adapt.begins(&kept);
        let pod = Arc::new(kept.pod);
        if self.pods.lock().insert(name.uid.clone(), pod.clone()).is_none() {
            self.ended.lock().remove(&name.uid);
            self.provider.create(pod);
        }
        Ok(name.uid.clone())
    }

    async fn delete(&self, name: &PodName) -> std::result::Result<(), SiteError> {
        let Some(pod) = self.own(name) else {
            return Err(SiteError::Unknown(format!("pod {:?} is not known", name.name)));
        };
        let mut ending = (*pod).clone();
        let grace = ending
            .spec
            .as_ref()
            .and_then(|spec| spec.termination_grace_period_seconds)
            .unwrap_or(DEFAULT_GRACE);
        ending.metadata.deletion_timestamp = Some(Time(Timestamp::now()));
        ending.metadata.deletion_grace_period_seconds = Some(grace);
        self.provider.update(Arc::new(ending));
        let is_over = async {
            loop {
                let changed = self.changed.notified();
                if self.ended.lock().contains(&name.uid) {
                    return;
                }
                changed.await;
            }
        };
        let patience = END + Duration::from_secs(u64::try_from(grace).unwrap_or(0));
        if tokio::time::timeout(patience, is_over).await.is_err() {
            return Err(SiteError::Busy(format!("pod {:?} has not ended yet", name.name)));
        }
        remove(&self.volumes(&name.uid)).map_err(|error| not_kept(&error))?;
        let _ = std::fs::remove_file(self.file(&name.uid));
        self.adapt.ends(&name.uid);
        self.pods.lock().remove(&name.uid);
        self.ended.lock().remove(&name.uid);
        Ok(())
    }

    fn state(&self, name: &PodName) -> Option<PodState> {
        let pod = self.own(name)?;
        let status = self.provider.status(&name.uid);
        Some(state(&pod, status.unwrap_or_default()))
    }

    fn states(&self) -> Vec<PodState> {
        let pods: Vec<Arc<Pod>> = self.pods.lock().values().cloned().collect();
        let all = pods.iter().map(|pod| {
            let status = self.provider.status(pod.metadata.uid.as_deref().unwrap_or_default());
            state(pod, status.unwrap_or_default())
        });
        all.collect()
    }

    async fn logs(
        &self,
        name: &PodName,
        container: &str,
        options: &LogOptions,
    ) -> std::result::Result<LogStream, SiteError> {
        let range = options.range().map_err(|error| SiteError::Refused(error.to_string()))?;
        let unknown = || SiteError::Unknown(format!("pod {:?} is not known", name.name));
        let pod = self.provider.get(&name.uid).ok_or_else(unknown)?;
        let query = LogQuery {
            follow: options.follow,
            previous: options.previous,
            timestamps: options.timestamps,
            tail_lines: range.tail,
            limit_bytes: range.bytes,
            since: match (range.since_time, range.since_seconds) {
                (Some(time), _) => Some(Since::Time(time)),
                (None, Some(seconds)) => Some(Since::Seconds(i64::try_from(seconds).unwrap_or(i64::MAX))),
                (None, None) => None,
            },
            stream: None,
        };
        let log = container_log(&self.provider, &pod, container, query).await;
        log.map(|log| log.boxed()).map_err(|(code, why)| match code.as_u16() {
            404 => SiteError::Unknown(why),
            500.. => SiteError::Busy(why),
            _ => SiteError::Refused(why),
        })
    }

    async fn size(&self) -> Option<Pong> {
        let described = self.provider.describe().await;
        let amount =
            |name: &str| described.allocatable.get(name).map(ToString::to_string).unwrap_or_default();
        // What is named by somebody's domain is a device.
        let devices = described.allocatable.iter().filter(|(name, _)| name.contains('/'));
        let accelerators = devices
            .map(|(name, amount)| Accelerator { resource: name.clone(), available: amount.to_string() });
        let resources = Resources {
            cpu: amount("cpu"),
            memory: amount("memory"),
            pods: amount("pods"),
            accelerators: accelerators.collect(),
        };
        Some(Pong { status: "OK".into(), resources: Some(resources), taints: None })
    }
}

/// As it is told over the wire, where only containers have a state: of a pod that failed as a whole each says why.
fn state(pod: &Pod, status: PodStatus) -> PodState {
    let meta = &pod.metadata;
    let uid = meta.uid.clone().unwrap_or_default();
    let mut containers = status.container_statuses.unwrap_or_default();
    let has_failed = status.phase.as_deref() == Some("Failed");
    let has_ended = |it: &ContainerStatus| it.state.as_ref().is_some_and(|state| state.terminated.is_some());
    let names: Vec<String> =
        pod.spec.iter().flat_map(|spec| &spec.containers).map(|it| it.name.clone()).collect();
    for name in names {
        let known = containers.iter().position(|it| it.name == name);
        let at = known.unwrap_or_else(|| {
            containers.push(ContainerStatus { name, ..ContainerStatus::default() });
            containers.len() - 1
        });
        let container = &mut containers[at];
        if has_failed && !has_ended(container) {
            let why = ContainerStateTerminated {
                exit_code: NEVER_RAN,
                reason: status.reason.clone(),
                message: status.message.clone(),
                ..ContainerStateTerminated::default()
            };
            container.state = Some(ContainerState { terminated: Some(why), ..ContainerState::default() });
        } else if container.state.is_none() {
            let reason = status.reason.clone().or(Some("ContainerCreating".into()));
            let why = ContainerStateWaiting { reason, message: status.message.clone() };
            container.state = Some(ContainerState { waiting: Some(why), ..ContainerState::default() });
        }
    }
    PodState {
        name: meta.name.clone().unwrap_or_default(),
        namespace: meta.namespace.clone().unwrap_or_default(),
        job: uid.clone(),
        uid,
        containers,
        init_containers: status.init_container_statuses.unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_pod_that_failed_as_a_whole_says_why_in_its_containers() {
        let pod = serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "n", "uid": "u"},
            "spec": {"containers": [{"name": "a"}, {"name": "b"}]}}))
        .unwrap();
        let check = |status: Value, expected: Value| {
            let told = json!(state(&pod, serde_json::from_value(status).unwrap()));
            let states: Vec<Value> =
                told["containers"].as_array().unwrap().iter().map(|it| it["state"].clone()).collect();
            assert_eq!(json!(states), expected);
        };
        let failed =
            json!({"terminated": {"exitCode": 128, "reason": "Refused", "message": "no such partition"}});
        let ended = json!({"terminated": {"exitCode": 3}});
        check(
            json!({"phase": "Failed", "reason": "Refused", "message": "no such partition",
                "containerStatuses": [{"name": "a", "state": ended}]}),
            json!([ended, failed]),
        );
        let waits = json!({"waiting": {"reason": "ContainerCreating"}});
        check(json!({}), json!([waits, waits]));
    }
}
