//! A pod of a cluster as a node without a cluster runs it: what came along with it becomes files and variables. Pure.
//!
//! ```text
//! ConfigMaps, Secrets, projected volumes ──> files below the pod's folder ──> host paths, read-only
//! variables from keys                    ──> variables with values
//! what would reach beyond the pod        ──> refused by name
//! ```

use crate::gather::{chosen, contents_of, contents_of_secret};
use crate::names::{is_below, is_part};
use crate::wire::RetrievedPod;
use k8s_openapi::api::core::v1::{
    ConfigMap, Container, EnvVar, HostPathVolumeSource, KeyToPath, Pod, PodSpec, Secret, Volume,
};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Kinds of volumes that need nothing of a cluster, or come along.
const VOLUMES: &[&str] = &["name", "emptyDir", "configMap", "secret", "projected", "downwardAPI"];
/// Annotations that say where a pod comes from: here it comes from nowhere else.
const SOURCE: &str = "kubernetes.io/config.";

/// A file of a volume.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct File {
    /// Below the pod's folder.
    pub path: PathBuf,
    /// What is in it.
    pub bytes: Vec<u8>,
    /// Its permissions.
    pub mode: u32,
}

/// The pod, the folders and the files that are to be there before it runs. An error: in words for its status.
pub(super) fn localize(
    given: &RetrievedPod,
    folder: &Path,
) -> Result<(Pod, Vec<PathBuf>, Vec<File>), String> {
    let mut pod = given.pod.clone();
    let things = Things::of(given);
    let spec = pod.spec.as_mut().ok_or("spec is missing")?;
    refuse(spec)?;
    let (mut folders, mut files) = (Vec::new(), Vec::new());
    for volume in spec.volumes.iter_mut().flatten() {
        if let Some((contents, mode)) = things.contents(volume)? {
            let below = PathBuf::from("volumes").join(&volume.name);
            for (path, (bytes, own)) in contents {
                if !is_below(&path) {
                    return Err(format!("volume {}: {path:?} leads out of it", volume.name));
                }
                files.push(File { path: below.join(path), bytes, mode: own.unwrap_or(mode) });
            }
            let path = folder.join(&below).display().to_string();
            let source = HostPathVolumeSource { path, type_: Some("Directory".into()) };
            *volume = Volume { name: volume.name.clone(), host_path: Some(source), ..Volume::default() };
            folders.push(below);
        }
    }
    let written: Vec<String> =
        folders.iter().filter_map(|path| Some(path.file_name()?.to_str()?.to_owned())).collect();
    for container in spec.init_containers.iter_mut().flatten().chain(&mut spec.containers) {
        // What is written here is the same for all who read it.
        for mount in
            container.volume_mounts.iter_mut().flatten().filter(|mount| written.contains(&mount.name))
        {
            mount.read_only = Some(true);
        }
        things.fill(container)?;
    }
    spec.automount_service_account_token = Some(false);
    spec.enable_service_links = Some(false);
    spec.node_name = None;
    if spec.dns_policy.as_deref().is_none_or(|policy| policy == "ClusterFirst") {
        spec.dns_policy = Some("Default".into());
    }
    pod.status = None;
    let meta = &mut pod.metadata;
    meta.managed_fields = None;
    meta.owner_references = None;
    meta.deletion_timestamp = None;
    meta.deletion_grace_period_seconds = None;
    if let Some(annotations) = &mut meta.annotations {
        annotations.retain(|key, _| !key.starts_with(SOURCE));
    }
    Ok((pod, folders, files))
}

/// What reaches beyond a pod belongs to this machine, whose owner is nobody of that cluster.
fn refuse(spec: &PodSpec) -> Result<(), String> {
    let no = |what: &str| {
        Err(format!(
            "{what} is not supported: this pod would reach beyond itself on a machine outside of its cluster"
        ))
    };
    for (is, what) in [
        (spec.host_network, "spec.hostNetwork"),
        (spec.host_pid, "spec.hostPID"),
        (spec.host_ipc, "spec.hostIPC"),
        (Some(spec.runtime_class_name.is_some()), "spec.runtimeClassName"),
        (Some(spec.resource_claims.as_ref().is_some_and(|claims| !claims.is_empty())), "spec.resourceClaims"),
    ] {
        if is == Some(true) {
            return no(what);
        }
    }
    for volume in spec.volumes.iter().flatten() {
        if !is_part(&volume.name) {
            return Err(format!("volume {:?}: this is not a name", volume.name));
        }
        let fields = serde_json::to_value(volume).unwrap_or_default();
        let kind = fields
            .as_object()
            .and_then(|fields| fields.keys().find(|key| !VOLUMES.contains(&key.as_str())).cloned());
        if let Some(kind) = kind {
            return no(&format!("volume {}: {kind}", volume.name));
        }
    }
    for container in spec.init_containers.iter().flatten().chain(&spec.containers) {
        let security = container.security_context.as_ref();
        if security.and_then(|security| security.privileged) == Some(true) {
            return no(&format!("container {}: securityContext.privileged", container.name));
        }
        if container.volume_devices.as_ref().is_some_and(|devices| !devices.is_empty()) {
            return no(&format!("container {}: volumeDevices", container.name));
        }
        let host_port =
            container.ports.iter().flatten().find_map(|port| port.host_port.filter(|port| *port > 0));
        if host_port.is_some() {
            return no(&format!("container {}: hostPort", container.name));
        }
    }
    Ok(())
}

/// All that came along, by name.
struct Things<'a> {
    config_maps: BTreeMap<&'a str, &'a ConfigMap>,
    secrets: BTreeMap<&'a str, &'a Secret>,
    projected: BTreeMap<&'a str, &'a ConfigMap>,
}

type Contents = BTreeMap<String, (Vec<u8>, Option<u32>)>;

impl<'a> Things<'a> {
    fn of(given: &'a RetrievedPod) -> Things<'a> {
        let all = || given.container.iter();
        let name = |name: &'a Option<String>| name.as_deref().unwrap_or_default();
        Things {
            config_maps: all()
                .flat_map(|it| &it.config_maps)
                .map(|it| (name(&it.metadata.name), it))
                .collect(),
            secrets: all().flat_map(|it| &it.secrets).map(|it| (name(&it.metadata.name), it)).collect(),
            projected: all().flat_map(|it| &it.projected).map(|it| (name(&it.metadata.name), it)).collect(),
        }
    }

    fn config_map(&self, name: &str, optional: Option<bool>) -> Result<BTreeMap<String, Vec<u8>>, String> {
        match self.config_maps.get(name) {
            Some(object) => Ok(contents_of(object)),
            None if optional == Some(true) => Ok(BTreeMap::new()),
            None => Err(missing("ConfigMap", name)),
        }
    }

    fn secret(&self, name: &str, optional: Option<bool>) -> Result<BTreeMap<String, Vec<u8>>, String> {
        match self.secrets.get(name) {
            Some(object) => Ok(contents_of_secret(object)),
            None if optional == Some(true) => Ok(BTreeMap::new()),
            None => Err(missing("Secret", name)),
        }
    }

    /// The files of a volume that came along, and their permissions; none: it is made here.
    fn contents(&self, volume: &Volume) -> Result<Option<(Contents, u32)>, String> {
        let mode =
            |mode: Option<i32>| mode.and_then(|mode| u32::try_from(mode).ok()).unwrap_or(0o644) & 0o777;
        if let Some(source) = &volume.config_map {
            let all = self.config_map(&source.name, source.optional)?;
            return Ok(Some((with_modes(all, source.items.as_deref()), mode(source.default_mode))));
        }
        if let Some(source) = &volume.secret {
            let all = self.secret(source.secret_name.as_deref().unwrap_or_default(), source.optional)?;
            return Ok(Some((with_modes(all, source.items.as_deref()), mode(source.default_mode))));
        }
        let Some(source) = &volume.projected else { return Ok(None) };
        if let Some(object) = self.projected.get(volume.name.as_str()) {
            return Ok(Some((with_modes(contents_of(object), None), mode(source.default_mode))));
        }
        // Who sends no projected volumes may send what they are made of. Tokens are not among that.
        let mut contents = Contents::new();
        for source in source.sources.iter().flatten() {
            if let Some(from) = &source.config_map
                && let Ok(all) = self.config_map(&from.name, from.optional)
            {
                contents.extend(with_modes(all, from.items.as_deref()));
            }
            if let Some(from) = &source.secret {
                contents.extend(with_modes(self.secret(&from.name, from.optional)?, from.items.as_deref()));
            }
        }
        Ok(Some((contents, mode(source.default_mode))))
    }

    /// Gives a container's variables their values.
    fn fill(&self, container: &mut Container) -> Result<(), String> {
        let mut env = Vec::new();
        for from in container.env_from.take().into_iter().flatten() {
            let mut all = BTreeMap::new();
            if let Some(source) = &from.config_map_ref {
                all.extend(self.config_map(&source.name, source.optional)?);
            }
            if let Some(source) = &from.secret_ref {
                all.extend(self.secret(&source.name, source.optional)?);
            }
            let prefix = from.prefix.unwrap_or_default();
            env.extend(all.into_iter().map(|(key, value)| variable(format!("{prefix}{key}"), &value)));
        }
        for mut given in container.env.take().into_iter().flatten() {
            let Some(source) = &given.value_from else {
                env.push(given);
                continue;
            };
            let (all, key, optional) = if let Some(from) = &source.config_map_key_ref {
                (self.config_map(&from.name, from.optional)?, &from.key, from.optional)
            } else if let Some(from) = &source.secret_key_ref {
                (self.secret(&from.name, from.optional)?, &from.key, from.optional)
            } else {
                // Fields of the pod are known here.
                env.push(given);
                continue;
            };
            match all.get(key) {
                Some(value) => env.push(variable(std::mem::take(&mut given.name), value)),
                None if optional == Some(true) => {}
                None => {
                    return Err(format!(
                        "container {}: variable {}: no key {key:?}",
                        container.name, given.name
                    ));
                }
            }
        }
        container.env = (!env.is_empty()).then_some(env);
        Ok(())
    }
}

fn missing(kind: &str, name: &str) -> String {
    format!("{kind} {name:?} did not come along: the API server sends it where ExportPodData is true")
}

fn variable(name: String, value: &[u8]) -> EnvVar {
    // A dollar sign in a value is none that refers to another variable.
    let value = String::from_utf8_lossy(value).replace('$', "$$");
    EnvVar { name, value: Some(value), value_from: None }
}

fn with_modes(all: BTreeMap<String, Vec<u8>>, items: Option<&[KeyToPath]>) -> Contents {
    let modes: BTreeMap<&str, Option<u32>> = items
        .into_iter()
        .flatten()
        .map(|item| {
            (item.path.as_str(), item.mode.and_then(|mode| u32::try_from(mode).ok()).map(|mode| mode & 0o777))
        })
        .collect();
    let picked = chosen(all, items);
    picked
        .into_iter()
        .map(|(path, bytes)| {
            let mode = modes.get(path.as_str()).copied().flatten();
            (path, (bytes, mode))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn given(spec: Value, container: Value) -> RetrievedPod {
        serde_json::from_value(json!({
            "pod": {"metadata": {"name": "p", "namespace": "n", "uid": "u", "annotations": {"kubernetes.io/config.source": "file"}}, "spec": spec},
            "container": [container],
        }))
        .unwrap()
    }

    #[test]
    fn what_came_along_becomes_files_and_variables() {
        let given = given(
            json!({
                "containers": [{"name": "c", "image": "i", "envFrom": [{"prefix": "P_", "configMapRef": {"name": "m"}}],
                    "env": [{"name": "S", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
                            {"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
                    "volumeMounts": [{"name": "v", "mountPath": "/v"}, {"name": "e", "mountPath": "/e"}]}],
                "volumes": [
                    {"name": "v", "configMap": {"name": "m", "items": [{"key": "a", "path": "deep/a", "mode": 0o400}]}},
                    {"name": "w", "secret": {"secretName": "s", "defaultMode": 0o600}},
                    {"name": "api", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}},
                    {"name": "e", "emptyDir": {}},
                ],
            }),
            json!({"name": "c", "configMaps": [{"metadata": {"name": "m"}, "data": {"a": "1"}}],
                "secrets": [{"metadata": {"name": "s"}, "data": {"k": "eCR5"}}],
                "projectedvolumemaps": [{"metadata": {"name": "api"}, "data": {"token": "t"}}]}),
        );
        let (pod, folders, files) = localize(&given, Path::new("/data/u")).unwrap();
        let file =
            |path: &str, text: &str, mode| File { path: path.into(), bytes: text.as_bytes().to_vec(), mode };
        assert_eq!(
            files,
            [
                file("volumes/v/deep/a", "1", 0o400),
                file("volumes/w/k", "x$y", 0o600),
                file("volumes/api/token", "t", 0o644),
            ]
        );
        assert_eq!(folders.len(), 3);
        let spec = pod.spec.unwrap();
        let volumes = spec.volumes.unwrap();
        assert_eq!(volumes[0].host_path.as_ref().unwrap().path, "/data/u/volumes/v");
        assert!(volumes[3].empty_dir.is_some());
        let container = &spec.containers[0];
        let env: Vec<_> =
            container.env.iter().flatten().map(|it| (it.name.as_str(), it.value.as_deref())).collect();
        assert_eq!(env, [("P_a", Some("1")), ("S", Some("x$$y")), ("N", None)]);
        assert_eq!(container.volume_mounts.as_ref().unwrap()[0].read_only, Some(true));
        assert_eq!(container.volume_mounts.as_ref().unwrap()[1].read_only, None);
        assert_eq!(pod.metadata.annotations.unwrap().len(), 0);
    }

    #[test]
    fn what_reaches_beyond_a_pod_is_refused_by_name() {
        let check = |spec: Value, said: &str| {
            let error = localize(&given(spec.clone(), json!({"name": "c"})), Path::new("/d")).unwrap_err();
            assert!(error.contains(said), "{spec}: {error}");
        };
        let with = |key: &str, value: Value| {
            let mut spec = json!({"containers": [{"name": "c", "image": "i"}]});
            spec[key] = value;
            spec
        };
        check(with("hostNetwork", json!(true)), "spec.hostNetwork");
        check(with("hostPID", json!(true)), "spec.hostPID");
        check(with("hostIPC", json!(true)), "spec.hostIPC");
        check(with("runtimeClassName", json!("x")), "spec.runtimeClassName");
        check(with("volumes", json!([{"name": "h", "hostPath": {"path": "/"}}])), "volume h: hostPath");
        check(
            with("volumes", json!([{"name": "h", "persistentVolumeClaim": {"claimName": "x"}}])),
            "persistentVolumeClaim",
        );
        check(json!({"containers": [{"name": "c", "securityContext": {"privileged": true}}]}), "privileged");
        check(
            json!({"containers": [{"name": "c", "ports": [{"containerPort": 1, "hostPort": 22}]}]}),
            "hostPort",
        );
        check(with("volumes", json!([{"name": "v", "configMap": {"name": "m"}}])), "ExportPodData");
    }

    #[test]
    fn no_key_leads_out_of_its_volume() {
        for path in ["../../etc/passwd", "/etc/passwd", "a/../../b", ""] {
            let spec = json!({"containers": [{"name": "c"}], "volumes":
                [{"name": "v", "configMap": {"name": "m", "items": [{"key": "k", "path": path}]}}]});
            let things =
                json!({"name": "c", "configMaps": [{"metadata": {"name": "m"}, "data": {"k": "x"}}]});
            let error = localize(&given(spec, things), Path::new("/d")).unwrap_err();
            assert!(error.contains("leads out"), "{error}");
        }
        let spec =
            json!({"containers": [{"name": "c"}], "volumes": [{"name": "v", "configMap": {"name": "m"}}]});
        let things = json!({"name": "c", "configMaps": [{"metadata": {"name": "m"}, "data": {"../x": "x"}}]});
        assert!(localize(&given(spec, things), Path::new("/d")).is_err());
        // The volume's own name becomes a part of the path as well.
        let spec =
            json!({"containers": [{"name": "c"}], "volumes": [{"name": "../v", "configMap": {"name": "m"}}]});
        let things = json!({"name": "c", "configMaps": [{"metadata": {"name": "m"}, "data": {"k": "x"}}]});
        assert!(localize(&given(spec, things), Path::new("/d")).is_err());
    }
}
