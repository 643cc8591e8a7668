//! What the node itself gives to pods: volumes, environment, names, limits, places for logs.
//!
//! ```text
//! Pod ──> sandbox_spec   host name, cgroup, sysctls, runtime handler
//!     ──> mount          volumes under <root>/pods/<uid>/volumes
//!     ──> container_spec environment, mounts, security, limits, log path
//!     ──> clean          all of it again
//! ```
//!
//! Simulated nodes have none of this.

mod container;
mod credentials;
mod dns;
mod env;
mod expand;
mod fields;
mod files;
pub(crate) mod resources;
mod sandbox;
mod security;

pub(crate) use container::is_recursive_read_only;
pub(crate) use expand::expand;
pub(crate) use fields::{FieldContext, resource};

use crate::image_access::{ImageAccess, PullSecret};
use crate::isolation::AppArmor;
use crate::objects::Objects;
use crate::runtime::{ContainerId, HandlerFeatures, Image, PodRef};
use crate::services::Services;
use crate::volumes::{MountError, Volumes};
use crate::wake::Wake;
use k8s_openapi::api::core::v1::{Container, Pod, PodStatus};
use kube::Client;
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use files::Paths;
pub(crate) use files::make_private;

/// Where names are looked up.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Dns {
    /// The cluster's own servers.
    pub servers: Vec<String>,
    /// The cluster's domain.
    pub domain: String,
    /// The node's own configuration.
    pub resolv_conf: PathBuf,
}

/// What a node has to give, in the units of the API.
pub type Capacity = BTreeMap<String, api::Quantity>;

/// The node as its pods see it.
pub struct Host {
    /// Where things are.
    pub paths: Paths,
    /// The node's name.
    pub node_name: String,
    /// The apiserver, if there is one.
    pub client: Option<Client>,
    /// ConfigMaps and Secrets.
    pub objects: Arc<Objects>,
    /// Services, for the environment.
    pub services: Arc<Services>,
    /// Names.
    pub dns: Dns,
    /// The cgroup above the pods'.
    pub cgroup_root: String,
    /// What pods may use together.
    pub allocatable: RwLock<Capacity>,
    /// What the machine has.
    pub capacity: RwLock<Capacity>,
    /// The node's addresses.
    pub addresses: RwLock<Vec<String>>,
    /// Processes that a pod may have; 0: no limit.
    pub pod_pids_limit: i64,
    /// The volumes of pods.
    pub volumes: Volumes,
    /// The kernel's AppArmor.
    pub app_armor: AppArmor,
    /// Who may use which image.
    pub(crate) image_access: Arc<ImageAccess>,
}

/// What a container's configuration is made from.
pub(crate) struct ContainerContext<'a> {
    /// Its pod.
    pub pod: &'a Pod,
    /// Itself.
    pub container: &'a Container,
    /// Which of its name.
    pub attempt: u32,
    /// The pod's addresses.
    pub addresses: Vec<String>,
    /// Its image.
    pub image: &'a Image,
    /// What the runtime of its pod can do.
    pub features: HandlerFeatures,
}

impl Host {
    /// Mounts the volumes of a pod, or brings them up to date.
    pub(crate) async fn mount(
        &self,
        pod: &Arc<Pod>,
        wake: &Arc<Wake>,
    ) -> Result<Option<jiff::Timestamp>, MountError> {
        files::make_pod_dirs(&self.paths, pod).map_err(|error| MountError::pod(error.to_string()))?;
        self.volumes.mount(self, pod, wake).await
    }

    /// The credentials that a pod brings for an image.
    pub(crate) async fn pull_credentials(&self, pod: &Pod, reference: &str) -> Vec<PullSecret> {
        credentials::of(self, pod, reference).await
    }

    /// Where a container leaves its last words.
    pub(crate) fn message_file(&self, pod: &PodRef, name: &str, attempt: u32) -> PathBuf {
        self.paths.message_file(&pod.uid, name, attempt)
    }

    /// Makes the link that log shippers follow.
    pub(crate) fn link_log(&self, pod: &PodRef, name: &str, id: &ContainerId, log: &Path) {
        files::link_log(&self.paths, pod, name, id, log);
    }

    /// The log of a container that may be gone.
    pub(crate) fn kept_log(&self, pod: &PodRef, id: &str) -> Option<PathBuf> {
        files::kept_log(&self.paths, pod, id)
    }

    /// Removes the log of a container that is gone.
    pub(crate) fn remove_log(&self, pod: &PodRef, name: &str, attempt: u32, id: &ContainerId) {
        files::remove_log(&self.paths, pod, name, attempt, id);
    }

    /// Removes all that a pod left, but for its logs.
    pub(crate) async fn clean(&self, pod: &PodRef) -> Result<(), std::io::Error> {
        self.objects.release(&pod.uid);
        self.volumes.forget(&pod.uid);
        let dir = self.paths.pod(&pod.uid);
        tokio::task::spawn_blocking(move || crate::volumes::remove_tree(&dir)).await?
    }

    /// Removes what is left of pods whose uid is not known.
    pub(crate) async fn sweep(&self, is_known: impl Fn(&str) -> bool + Send + 'static) {
        let paths = self.paths.clone();
        let swept = tokio::task::spawn_blocking(move || files::sweep(&paths, is_known)).await;
        if let Err(error) = swept {
            tracing::warn!(%error, "remove what pods left");
        }
    }

    /// Keeps what there is to say of a pod whose containers are about to be removed: the apiserver may not know it yet.
    pub(crate) async fn keep_status(&self, pod: &PodRef, status: PodStatus) {
        let (paths, uid) = (self.paths.clone(), pod.uid.clone());
        let keep = move || files::keep_status(&paths, &uid, &status);
        let kept = tokio::task::spawn_blocking(keep).await;
        // Even so: a full disk needs what the containers have.
        if let Err(error) = kept.unwrap_or_else(|error| Err(std::io::Error::other(error))) {
            tracing::warn!(
                pod = pod.name,
                error = crate::error::chain(&error),
                "how a pod ended is not written down"
            );
        }
    }

    /// What was kept of a pod.
    pub(crate) fn kept_status(&self, pod: &PodRef) -> Option<PodStatus> {
        files::kept_status(&self.paths, &pod.uid)
    }

    /// Removes the last of a pod that nobody asks for any more: its logs, and what was kept of it.
    pub(crate) fn forget(&self, pod: &PodRef) {
        files::forget(&self.paths, pod);
    }
}
