//! What is kept with sandboxes and containers in containerd, so that everything is found again after a restart.

use super::super::{
    ContainerId, ContainerSpec, ContainerState, ContainerUser, ContainerView, ImageId, PodRef, SandboxId,
    SandboxSpec,
};
use crate::runtime::spec::User;
use containerd_client::services::v1::Container;
use jiff::Timestamp;
use ring::digest::{SHA256, digest};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;

/// Says that a container of containerd is ours, and what: `sandbox` or `container`.
pub(crate) const KIND_LABEL: &str = "minik8s.io/kind";
/// The pod of a sandbox or container.
pub(crate) const UID_LABEL: &str = "io.kubernetes.pod.uid";
/// The sandbox of a container.
pub(crate) const SANDBOX_LABEL: &str = "minik8s.io/sandbox";
/// Where a [`SandboxRecord`] or [`ContainerRecord`] is.
pub(crate) const RECORD: &str = "minik8s.io/record";
/// Where an [`Exit`] is.
pub(crate) const EXIT: &str = "minik8s.io/exit";

/// A sandbox, as it was asked for.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct SandboxRecord {
    pub(crate) pod: PodRef,
    pub(crate) spec: SandboxSpec,
}

/// A container: what a view gives back, and what is needed to stop it and to read what it writes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ContainerRecord {
    pub(crate) pod: PodRef,
    pub(crate) sandbox: SandboxId,
    pub(crate) name: String,
    pub(crate) attempt: u32,
    pub(crate) image: ImageId,
    pub(crate) image_ref: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) annotations: BTreeMap<String, String>,
    pub(crate) log_path: PathBuf,
    pub(crate) tty: bool,
    pub(crate) stdin: bool,
    pub(crate) stdin_once: bool,
    pub(crate) stop_signal: i32,
    pub(crate) cgroup: String,
    #[serde(default)]
    pub(crate) user: Option<ContainerUser>,
}

/// How a container ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Exit {
    pub(crate) started_at: Option<Timestamp>,
    pub(crate) finished_at: Timestamp,
    pub(crate) code: i32,
    pub(crate) out_of_memory: bool,
    pub(crate) message: Option<String>,
}

impl From<Exit> for ContainerState {
    fn from(exit: Exit) -> Self {
        let Exit { started_at, finished_at, code, out_of_memory, message } = exit;
        ContainerState::Exited { started_at, finished_at, code, out_of_memory, message }
    }
}

impl SandboxId {
    /// The same pod and attempt always have the same sandbox, so that a call made again takes up what is there.
    pub(crate) fn of(pod: &PodRef, attempt: u32) -> Self {
        SandboxId(hash(&format!("{}/{}/{}/{attempt}", pod.namespace, pod.name, pod.uid)))
    }
}

impl ContainerId {
    /// As [`SandboxId::of`].
    pub(crate) fn of(sandbox: &SandboxId, name: &str, attempt: u32) -> Self {
        ContainerId(hash(&format!("{}/{name}/{attempt}", sandbox.0)))
    }
}

impl ContainerRecord {
    pub(crate) fn new(
        pod: &PodRef,
        sandbox: &SandboxId,
        spec: &ContainerSpec,
        stop_signal: i32,
        cgroup: String,
        user: &User,
    ) -> Self {
        ContainerRecord {
            pod: pod.clone(),
            sandbox: sandbox.clone(),
            name: spec.name.clone(),
            attempt: spec.attempt,
            image: spec.image.clone(),
            image_ref: spec.image_ref.clone(),
            labels: spec.labels.clone(),
            annotations: spec.annotations.clone(),
            log_path: spec.log_path.clone(),
            tty: spec.tty,
            stdin: spec.stdin,
            stdin_once: spec.stdin_once,
            stop_signal,
            cgroup,
            user: Some(ContainerUser { uid: user.uid, gid: user.gid, groups: user.additional_gids.clone() }),
        }
    }

    pub(crate) fn view(self, id: &str, created_at: Timestamp, state: ContainerState) -> ContainerView {
        ContainerView {
            id: ContainerId(id.to_owned()),
            sandbox: self.sandbox,
            name: self.name,
            attempt: self.attempt,
            image: self.image,
            image_ref: self.image_ref,
            state,
            labels: self.labels,
            annotations: self.annotations,
            log_path: self.log_path,
            user: self.user,
            created_at,
        }
    }
}

/// Labels by which ours are found: `ctr` shows them, too.
pub(crate) fn labels(
    kind: &str,
    pod: &PodRef,
    sandbox: &SandboxId,
) -> std::collections::HashMap<String, String> {
    [
        (KIND_LABEL, kind),
        (UID_LABEL, pod.uid.as_str()),
        ("io.kubernetes.pod.name", pod.name.as_str()),
        ("io.kubernetes.pod.namespace", pod.namespace.as_str()),
        (SANDBOX_LABEL, sandbox.0.as_str()),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .collect()
}

/// Writes a record onto a container.
pub(crate) fn attach<T: Serialize>(container: &mut Container, record: &T) {
    attach_as(container, RECORD, record);
}

/// Writes something else onto a container.
pub(crate) fn attach_as<T: Serialize>(container: &mut Container, key: &str, record: &T) {
    let value = serde_json::to_vec(record).expect("records are plain data");
    let any = container.extensions.entry(key.to_owned()).or_default();
    any.type_url = key.to_owned();
    any.value = value;
}

/// The record on a container; nothing if it is not one of ours, or not of this kind.
pub(crate) fn read<T: DeserializeOwned>(container: &Container) -> Option<T> {
    serde_json::from_slice(&container.extensions.get(RECORD)?.value).ok()
}

/// How it ended, where that has been written down.
pub(crate) fn exit(container: &Container) -> Option<Exit> {
    serde_json::from_slice(&container.extensions.get(EXIT)?.value).ok()
}

pub(crate) fn is_sandbox(container: &Container) -> bool {
    container.labels.get(KIND_LABEL).is_some_and(|kind| kind == "sandbox")
}

/// When containerd says it was made.
pub(crate) fn created_at(container: &Container) -> Timestamp {
    container.created_at.as_ref().map_or(Timestamp::UNIX_EPOCH, |at| timestamp(at.seconds, at.nanos))
}

/// A moment as protobuf has it.
pub(crate) fn timestamp(seconds: i64, nanos: i32) -> Timestamp {
    Timestamp::new(seconds, nanos).unwrap_or(Timestamp::UNIX_EPOCH)
}

fn hash(text: &str) -> String {
    digest(&SHA256, text.as_bytes()).as_ref().iter().fold(String::new(), |mut hex, byte| {
        write!(hex, "{byte:02x}").expect("strings take everything");
        hex
    })
}
