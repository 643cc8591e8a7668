//! What a batch job cannot be, and the pods that ask for it: refused by name, never run without it. Pure.
//!
//! ```text
//! Pod ── check(pod, site) ──> fine, or a Refusal: the reason and the message of a pod that failed
//! ```

use super::site::{ContainerRuntime, SiteConfig};
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, Volume};
use std::collections::BTreeSet;

/// Why a pod is not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// In one word.
    pub reason: &'static str,
    /// For people.
    pub message: String,
}

impl Refusal {
    /// A node of this kind cannot do it.
    pub fn unsupported(what: impl Into<String>) -> Refusal {
        Refusal { reason: "NotSupportedBySlurm", message: what.into() }
    }

    /// An annotation says something that cannot be.
    pub fn annotation(key: &str, what: &str) -> Refusal {
        Refusal { reason: "InvalidSlurmAnnotation", message: format!("metadata.annotations[{key}]: {what}") }
    }

    /// A container asks for something that cannot be.
    pub fn container(container: &Container, what: &str) -> Refusal {
        Refusal::unsupported(format!("container {}: {what}", container.name))
    }
}

/// Whether a job can be all that the pod asks for.
pub fn check(pod: &Pod, site: &SiteConfig) -> Result<(), Refusal> {
    let Some(spec) = &pod.spec else { return Err(Refusal::unsupported("spec: is missing")) };
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    if site.identity(namespace).is_none() {
        return Err(Refusal {
            reason: "NamespaceNotMapped",
            message: format!(
                "namespace {namespace} is nobody at this site: its administrator adds it to `namespaces`"
            ),
        });
    }
    of_pod(spec)?;
    for volume in spec.volumes.iter().flatten() {
        of_volume(volume, site)?;
    }
    for container in spec.init_containers.iter().flatten() {
        if container.restart_policy.is_some() {
            return Err(Refusal::container(container, "restartPolicy: sidecars are not supported in a job"));
        }
        of_container(container, site)?;
    }
    for container in &spec.containers {
        of_container(container, site)?;
    }
    Ok(())
}

fn of_pod(spec: &PodSpec) -> Result<(), Refusal> {
    let asked = [
        ("spec.hostNetwork", spec.host_network == Some(true)),
        ("spec.hostPID", spec.host_pid == Some(true)),
        ("spec.hostIPC", spec.host_ipc == Some(true)),
        ("spec.hostUsers", spec.host_users == Some(false)),
        ("spec.shareProcessNamespace", spec.share_process_namespace == Some(true)),
        ("spec.runtimeClassName", spec.runtime_class_name.is_some()),
        ("spec.hostAliases", spec.host_aliases.as_ref().is_some_and(|list| !list.is_empty())),
        ("spec.dnsConfig", spec.dns_config.is_some()),
        ("spec.hostname", spec.hostname.is_some()),
        ("spec.subdomain", spec.subdomain.is_some()),
        ("spec.setHostnameAsFQDN", spec.set_hostname_as_fqdn == Some(true)),
        ("spec.readinessGates", spec.readiness_gates.as_ref().is_some_and(|list| !list.is_empty())),
        ("spec.resourceClaims", spec.resource_claims.as_ref().is_some_and(|list| !list.is_empty())),
        ("spec.resources", spec.resources.is_some()),
        ("spec.ephemeralContainers", spec.ephemeral_containers.as_ref().is_some_and(|list| !list.is_empty())),
    ];
    if let Some((field, _)) = asked.iter().find(|(_, is_asked)| *is_asked) {
        return Err(Refusal::unsupported(format!(
            "{field}: is not supported in a job: it has no machine of its own"
        )));
    }
    let Some(security) = &spec.security_context else { return Ok(()) };
    // Of a job's user the site decides, and it is never root unless the site says so.
    let given = fields(security);
    match given.iter().find(|field| *field != "runAsNonRoot") {
        Some(field) => Err(Refusal::unsupported(format!(
            "spec.securityContext.{field}: the site decides who a job runs as"
        ))),
        None => Ok(()),
    }
}

fn of_container(container: &Container, site: &SiteConfig) -> Result<(), Refusal> {
    let probes = [
        ("livenessProbe", container.liveness_probe.is_some()),
        ("readinessProbe", container.readiness_probe.is_some()),
        ("startupProbe", container.startup_probe.is_some()),
        ("lifecycle", container.lifecycle.is_some()),
        ("volumeDevices", container.volume_devices.as_ref().is_some_and(|list| !list.is_empty())),
        ("stdin", container.stdin == Some(true)),
        ("tty", container.tty == Some(true)),
        (
            "ports.hostPort",
            container.ports.iter().flatten().any(|port| port.host_port.is_some_and(|port| port > 0)),
        ),
    ];
    if let Some((field, _)) = probes.iter().find(|(_, is_asked)| *is_asked) {
        return Err(Refusal::container(container, &format!("{field}: is not supported in a job")));
    }
    if let Some(security) = &container.security_context {
        let given = fields(security);
        let is_met =
            |field: &&String| matches!(field.as_str(), "runAsNonRoot" | "capabilities" | "privileged");
        if let Some(field) = given.iter().find(|field| !is_met(field)) {
            return Err(Refusal::container(
                container,
                &format!("securityContext.{field}: cannot be enforced in a job"),
            ));
        }
        let adds = security.capabilities.as_ref().and_then(|list| list.add.as_ref());
        if security.privileged == Some(true) || adds.is_some_and(|list| !list.is_empty()) {
            return Err(Refusal::container(container, "securityContext: a job is not privileged"));
        }
    }
    if site.containers == ContainerRuntime::None && container.command.as_ref().is_none_or(Vec::is_empty) {
        let what = "command: is missing, and this site runs no images: say which program to run";
        return Err(Refusal::container(container, what));
    }
    for mount in container.volume_mounts.iter().flatten() {
        let is_odd = mount.sub_path_expr.is_some()
            || mount.mount_propagation.as_deref().is_some_and(|way| way != "None")
            || mount.recursive_read_only.as_deref().is_some_and(|way| way != "Disabled");
        if is_odd {
            let what =
                format!("volumeMounts[{}]: only mountPath, subPath and readOnly are supported", mount.name);
            return Err(Refusal::container(container, &what));
        }
        let leads_out = |path: &str| path.split('/').any(|part| part == "..");
        let has_odd_letters =
            |path: &str| path.chars().any(|c| c.is_control() || matches!(c, ':' | ',' | '"' | '\\'));
        let sub = mount.sub_path.as_deref().unwrap_or_default();
        if !mount.mount_path.starts_with('/')
            || leads_out(&mount.mount_path)
            || leads_out(sub)
            || sub.starts_with('/')
            || has_odd_letters(&mount.mount_path)
            || has_odd_letters(sub)
        {
            return Err(Refusal::container(
                container,
                &format!("volumeMounts[{}]: not a path that can be mounted", mount.name),
            ));
        }
    }
    if site.containers == ContainerRuntime::None {
        let paths: BTreeSet<&str> = container
            .volume_mounts
            .iter()
            .flatten()
            .map(|mount| mount.mount_path.trim_end_matches('/'))
            .collect();
        let within = |path: &&&str| paths.iter().any(|other| path.starts_with(&format!("{other}/")));
        if let Some(path) = paths.iter().find(within) {
            return Err(Refusal::container(
                container,
                &format!("volumeMounts: {path} is within another volume"),
            ));
        }
    }
    Ok(())
}

fn of_volume(volume: &Volume, site: &SiteConfig) -> Result<(), Refusal> {
    let name = &volume.name;
    let refused = |what: &str| Err(Refusal::unsupported(format!("volume {name}: {what}")));
    if is_token(volume) {
        return Ok(());
    }
    if let Some(host) = &volume.host_path {
        let kind = host.type_.as_deref().unwrap_or_default();
        let is_allowed = site.host_paths.iter().any(|allowed| {
            let allowed = allowed.trim_end_matches('/');
            host.path == allowed || host.path.starts_with(&format!("{allowed}/"))
        });
        let leads_out = host.path.split('/').any(|part| part == "..");
        if !is_allowed || leads_out || host.path.chars().any(|c| c.is_control() || matches!(c, ':' | ',')) {
            return refused(&format!("hostPath {}: is not among the hostPaths of this site", host.path));
        }
        if !matches!(kind, "" | "Directory" | "File" | "DirectoryOrCreate") {
            return refused(&format!("hostPath.type {kind}: is not supported in a job"));
        }
        return Ok(());
    }
    if let Some(empty) = &volume.empty_dir {
        if empty.size_limit.is_some() || empty.medium.as_deref().is_some_and(|medium| !medium.is_empty()) {
            return refused("emptyDir: sizeLimit and medium cannot be enforced in a job");
        }
        return Ok(());
    }
    if let Some(projected) = &volume.projected {
        for source in projected.sources.iter().flatten() {
            if source.service_account_token.is_some()
                || source.cluster_trust_bundle.is_some()
                || source.pod_certificate.is_some()
            {
                return refused("projected: tokens and certificates are not given to a batch system");
            }
        }
        return Ok(());
    }
    if volume.config_map.is_some() || volume.secret.is_some() || volume.downward_api.is_some() {
        return Ok(());
    }
    refused(
        "only configMap, secret, downwardAPI, projected, emptyDir and mapped hostPath volumes reach a site",
    )
}

/// The token that every pod is given unasked. It is not handed to a batch system.
pub(super) fn is_token(volume: &Volume) -> bool {
    volume.name.starts_with("kube-api-access-") && volume.projected.is_some()
}

/// The fields that an object has.
fn fields(value: &impl serde::Serialize) -> Vec<String> {
    let value = serde_json::to_value(value).unwrap_or_default();
    value.as_object().map(|map| map.keys().cloned().collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn refused(spec: Value) -> Option<String> {
        let site = SiteConfig::parse("dataRoot: /s\nnamespaces: {a: {}}\nhostPaths: [/scratch/data]\n")
            .expect("a site");
        let mut spec = spec;
        if spec.get("containers").is_none() {
            spec["containers"] = json!([{"name": "c", "command": ["true"]}]);
        }
        let pod = json!({"metadata": {"namespace": "a", "name": "p"}, "spec": spec});
        let pod: Pod = serde_json::from_value(pod).expect("a pod");
        check(&pod, &site).err().map(|refusal| refusal.message)
    }

    fn of_c(container: Value) -> Option<String> {
        let mut container = container;
        container["name"] = json!("c");
        if container.get("command").is_none() {
            container["command"] = json!(["true"]);
        }
        refused(json!({"containers": [container]}))
    }

    #[test]
    fn a_job_is_no_machine() {
        assert_eq!(refused(json!({})), None);
        for (spec, said) in [
            (json!({"hostNetwork": true}), "spec.hostNetwork"),
            (json!({"hostPID": true}), "spec.hostPID"),
            (json!({"runtimeClassName": "kata"}), "spec.runtimeClassName"),
            (json!({"securityContext": {"runAsUser": 0}}), "spec.securityContext.runAsUser"),
            (json!({"securityContext": {"fsGroup": 5}}), "spec.securityContext.fsGroup"),
            (
                json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "x"}}]}),
                "volume v: only",
            ),
            (json!({"volumes": [{"name": "v", "hostPath": {"path": "/etc"}}]}), "hostPath /etc"),
            (json!({"volumes": [{"name": "v", "hostPath": {"path": "/scratch/data/../x"}}]}), "hostPath"),
            (json!({"volumes": [{"name": "v", "hostPath": {"path": "/scratch/database"}}]}), "hostPath"),
            (json!({"volumes": [{"name": "v", "emptyDir": {"medium": "Memory"}}]}), "emptyDir"),
            (
                json!({"volumes": [{"name": "v", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}]}),
                "tokens",
            ),
        ] {
            let message = refused(spec.clone()).unwrap_or_else(|| panic!("{spec} is refused"));
            assert!(message.contains(said), "{message}");
        }
        let fine = json!({
            "securityContext": {"runAsNonRoot": true},
            "volumes": [{"name": "a", "hostPath": {"path": "/scratch/data/x"}}, {"name": "b", "emptyDir": {}},
                {"name": "kube-api-access-x", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}],
        });
        assert_eq!(refused(fine), None);
    }

    #[test]
    fn containers_ask_for_nothing_that_a_job_cannot_give() {
        assert_eq!(
            of_c(json!({"securityContext": {"runAsNonRoot": true, "capabilities": {"drop": ["ALL"]}}})),
            None
        );
        for (container, said) in [
            (json!({"livenessProbe": {"exec": {"command": ["true"]}}}), "livenessProbe"),
            (json!({"lifecycle": {"preStop": {"exec": {"command": ["true"]}}}}), "lifecycle"),
            (json!({"tty": true}), "tty"),
            (json!({"ports": [{"containerPort": 1, "hostPort": 80}]}), "hostPort"),
            (json!({"securityContext": {"privileged": true}}), "privileged"),
            (json!({"securityContext": {"runAsUser": 0}}), "runAsUser"),
            (json!({"securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}}), "privileged"),
            (json!({"command": []}), "command: is missing"),
            (json!({"volumeMounts": [{"name": "v", "mountPath": "/a/../etc"}]}), "not a path"),
            (json!({"volumeMounts": [{"name": "v", "mountPath": "/a", "subPath": "../x"}]}), "not a path"),
            (json!({"volumeMounts": [{"name": "v", "mountPath": "/a:/b"}]}), "not a path"),
            (
                json!({"volumeMounts": [{"name": "v", "mountPath": "/a"}, {"name": "w", "mountPath": "/a/b"}]}),
                "within another",
            ),
        ] {
            let message = of_c(container.clone()).unwrap_or_else(|| panic!("{container} is refused"));
            assert!(message.contains(said), "{message}");
        }
    }

    #[test]
    fn a_namespace_that_is_nobody_runs_nothing() {
        let site = SiteConfig::parse("dataRoot: /s\nnamespaces: {a: {}}\n").expect("a site");
        let pod = json!({"metadata": {"namespace": "b"}, "spec": {"containers": []}});
        let pod: Pod = serde_json::from_value(pod).expect("a pod");
        assert_eq!(check(&pod, &site).map_err(|refusal| refusal.reason), Err("NamespaceNotMapped"));
    }
}
