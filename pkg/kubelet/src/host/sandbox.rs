//! What a pod's containers share.

use super::{Host, dns, resources};
use crate::runtime::SandboxSpec;
use crate::worker::labels;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::node::v1::RuntimeClass;
use kube::Api;

impl Host {
    /// Works it out. An error: it cannot be made.
    pub(crate) async fn sandbox_spec(&self, pod: &Pod) -> Result<SandboxSpec, String> {
        let Some(spec) = &pod.spec else { return Err("the pod has no spec".into()) };
        let is_host = spec.host_network == Some(true);
        let name = dns::kernel_name(pod, &self.dns.domain)?;
        let sysctls = spec.security_context.as_ref().and_then(|context| context.sysctls.clone());
        let mut annotations = pod.metadata.annotations.clone().unwrap_or_default();
        let grace = spec.termination_grace_period_seconds.unwrap_or(30);
        annotations.insert(labels::GRACE.into(), grace.to_string());
        let mut pod_labels = pod.metadata.labels.clone().unwrap_or_default();
        let meta = &pod.metadata;
        for (key, value) in [
            (labels::POD_NAME, &meta.name),
            (labels::POD_NAMESPACE, &meta.namespace),
            (labels::POD_UID, &meta.uid),
        ] {
            pod_labels.insert(key.into(), value.clone().unwrap_or_default());
        }
        let handler = self.handler(spec.runtime_class_name.as_deref()).await?;
        if spec.host_users == Some(false) {
            return Err(format!("RuntimeClass handler {handler:?} does not support user namespaces"));
        }
        Ok(SandboxSpec {
            attempt: 0,
            hostname: if is_host { String::new() } else { name },
            network_namespace: None,
            host_pid: spec.host_pid == Some(true),
            host_ipc: spec.host_ipc == Some(true),
            share_processes: spec.share_process_namespace == Some(true),
            cgroup_parent: resources::cgroup(pod, &self.cgroup_root),
            resources: resources::of_pod(pod, self.pod_pids_limit),
            handler,
            sysctls: sysctls.into_iter().flatten().map(|sysctl| (sysctl.name, sysctl.value)).collect(),
            labels: pod_labels,
            annotations,
        })
    }

    async fn handler(&self, class: Option<&str>) -> Result<String, String> {
        let Some(class) = class.filter(|class| !class.is_empty()) else { return Ok(String::new()) };
        let failed = |why: String| format!("failed to get sandbox runtime: {why}");
        let client = self.client.clone().ok_or_else(|| failed("no apiserver".into()))?;
        match Api::<RuntimeClass>::all(client).get(class).await {
            Ok(class) => Ok(class.handler),
            Err(kube::Error::Api(status)) if status.code == 404 => {
                Err(failed(format!("RuntimeClass \"{class}\" not found")))
            }
            Err(error) => Err(failed(error.to_string())),
        }
    }
}
