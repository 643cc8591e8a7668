//! Events about pods and the node, in upstream's words.

use client::{EventType, Recorder, node_reference};
use k8s_openapi::api::core::v1::{ObjectReference, Pod};

/// Takes events; without an apiserver they go nowhere.
#[derive(Clone, Default)]
pub struct Events {
    recorder: Option<Recorder>,
}

impl Events {
    /// To the apiserver.
    pub fn new(recorder: Option<Recorder>) -> Events {
        Events { recorder }
    }

    /// Something is not right with a pod.
    pub fn warning(&self, pod: &Pod, reason: &str, message: impl Into<String>) {
        self.send(reference(pod, None), EventType::Warning, reason, message.into());
    }

    /// All is well with a pod.
    pub fn normal(&self, pod: &Pod, reason: &str, message: impl Into<String>) {
        self.send(reference(pod, None), EventType::Normal, reason, message.into());
    }

    /// All is well with a container.
    pub fn container(&self, pod: &Pod, name: &str, reason: &str, message: impl Into<String>) {
        self.send(reference(pod, Some(name)), EventType::Normal, reason, message.into());
    }

    /// Something is not right with a container.
    pub fn container_warning(&self, pod: &Pod, name: &str, reason: &str, message: impl Into<String>) {
        self.send(reference(pod, Some(name)), EventType::Warning, reason, message.into());
    }

    /// A probe has something to say. It says so each time; the log only hears when its verdict changes.
    pub fn probe(&self, pod: &Pod, name: &str, reason: &str, message: String) {
        tracing::debug!(pod = pod.metadata.name, container = name, reason, "{message}");
        self.record(reference(pod, Some(name)), EventType::Warning, reason, message);
    }

    /// About the node itself.
    pub fn node(&self, node: &str, event_type: EventType, reason: &str, message: impl Into<String>) {
        self.send(node_reference(node), event_type, reason, message.into());
    }

    fn send(&self, about: ObjectReference, event_type: EventType, reason: &str, message: String) {
        let name = about.name.as_deref().unwrap_or_default();
        match event_type {
            EventType::Normal => tracing::debug!(object = name, reason, "{message}"),
            EventType::Warning => tracing::warn!(object = name, reason, "{message}"),
        }
        self.record(about, event_type, reason, message);
    }

    fn record(&self, about: ObjectReference, event_type: EventType, reason: &str, message: String) {
        if let Some(recorder) = &self.recorder {
            recorder.event(about, event_type, reason, message);
        }
    }
}

fn reference(pod: &Pod, container: Option<&str>) -> ObjectReference {
    let spec = pod.spec.as_ref();
    let list = |name: &str| {
        let in_init = spec.and_then(|spec| spec.init_containers.as_ref());
        let in_ephemeral = spec.and_then(|spec| spec.ephemeral_containers.as_ref());
        if in_init.is_some_and(|list| list.iter().any(|container| container.name == name)) {
            "initContainers"
        } else if in_ephemeral.is_some_and(|list| list.iter().any(|container| container.name == name)) {
            "ephemeralContainers"
        } else {
            "containers"
        }
    };
    ObjectReference {
        api_version: Some("v1".into()),
        kind: Some("Pod".into()),
        namespace: pod.metadata.namespace.clone(),
        name: pod.metadata.name.clone(),
        uid: pod.metadata.uid.clone(),
        resource_version: pod.metadata.resource_version.clone(),
        field_path: container.map(|name| format!("spec.{}{{{name}}}", list(name))),
    }
}
