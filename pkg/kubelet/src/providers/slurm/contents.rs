//! What a pod's containers find: environments, and the files of volumes. Pure, given the objects that it names.
//!
//! ```text
//! Pod, PodData ──> Contents { per container: env, mounts }, files and folders below the job's folder
//! ```

use super::refusal::{Refusal, is_token};
use crate::host::{FieldContext, expand, resource};
use crate::objects::Data;
use k8s_openapi::api::core::v1::{Container, DownwardAPIVolumeFile, EnvVarSource, KeyToPath, Pod, Volume};
use std::collections::BTreeMap;

const DEFAULT_MODE: u32 = 0o644;

/// The objects that a pod names, by name. One that is not here does not exist.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodData {
    /// ConfigMaps.
    pub config_maps: BTreeMap<String, Data>,
    /// Secrets.
    pub secrets: BTreeMap<String, Data>,
}

/// A file below the job's folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobFile {
    /// Where, below the job's folder.
    pub path: String,
    /// Its permissions.
    pub mode: u32,
    /// What is in it.
    pub content: Vec<u8>,
}

/// A volume in a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountedVolume {
    /// At the site: absolute, or below the job's folder.
    pub source: String,
    /// In the container.
    pub target: String,
    /// Cannot be written to.
    pub read_only: bool,
}

/// What all of them find.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Contents {
    /// The environment of each container, by name.
    pub env: BTreeMap<String, Vec<(String, String)>>,
    /// The volumes of each container, by name.
    pub mounts: BTreeMap<String, Vec<MountedVolume>>,
    /// The files of volumes.
    pub files: Vec<JobFile>,
    /// The folders of volumes.
    pub folders: Vec<String>,
}

/// The ConfigMaps and the Secrets that a pod names.
pub fn named(pod: &Pod) -> (Vec<String>, Vec<String>) {
    let (mut maps, mut secrets) = (Vec::new(), Vec::new());
    let Some(spec) = &pod.spec else { return (maps, secrets) };
    for container in spec.init_containers.iter().flatten().chain(&spec.containers) {
        for source in container.env_from.iter().flatten() {
            maps.extend(source.config_map_ref.iter().map(|source| source.name.clone()));
            secrets.extend(source.secret_ref.iter().map(|source| source.name.clone()));
        }
        for source in container.env.iter().flatten().filter_map(|variable| variable.value_from.as_ref()) {
            maps.extend(source.config_map_key_ref.iter().map(|source| source.name.clone()));
            secrets.extend(source.secret_key_ref.iter().map(|source| source.name.clone()));
        }
    }
    for volume in spec.volumes.iter().flatten().filter(|volume| !is_token(volume)) {
        maps.extend(volume.config_map.iter().map(|source| source.name.clone()));
        secrets.extend(volume.secret.iter().filter_map(|source| source.secret_name.clone()));
        for source in volume.projected.iter().flat_map(|projected| projected.sources.iter().flatten()) {
            maps.extend(source.config_map.iter().map(|source| source.name.clone()));
            secrets.extend(source.secret.iter().map(|source| source.name.clone()));
        }
    }
    for list in [&mut maps, &mut secrets] {
        list.sort();
        list.dedup();
    }
    (maps, secrets)
}

/// Works them out. `own` are variables that the node adds to every container, by the container's name.
pub fn of(
    pod: &Pod,
    data: &PodData,
    node_name: &str,
    own: impl Fn(&str) -> Vec<(String, String)>,
) -> Result<Contents, Refusal> {
    let maker = Maker { pod, data, node_name };
    let mut contents = Contents::default();
    let Some(spec) = &pod.spec else { return Ok(contents) };
    let mut sources = BTreeMap::new();
    for volume in spec.volumes.iter().flatten().filter(|volume| !is_token(volume)) {
        let missing =
            |what| Refusal { reason: "FailedMount", message: format!("volume {}: {what}", volume.name) };
        let source = maker.volume(volume, &mut contents).map_err(missing)?;
        sources.insert(volume.name.clone(), source);
    }
    for container in spec.init_containers.iter().flatten().chain(&spec.containers) {
        let failed = |what| Refusal {
            reason: "CreateContainerConfigError",
            message: format!("container {}: {what}", container.name),
        };
        let env = maker.env(container, own(&container.name)).map_err(failed)?;
        contents.env.insert(container.name.clone(), env);
        let mut mounts = Vec::new();
        for mount in container.volume_mounts.iter().flatten() {
            // The token's is left out with its volume.
            let Some(source) = sources.get(&mount.name) else { continue };
            let source = match mount.sub_path.as_deref().filter(|path| !path.is_empty()) {
                Some(below) => format!("{source}/{below}"),
                None => source.clone(),
            };
            let target = mount.mount_path.trim_end_matches('/').to_owned();
            mounts.push(MountedVolume { source, target, read_only: mount.read_only == Some(true) });
        }
        contents.mounts.insert(container.name.clone(), mounts);
    }
    Ok(contents)
}

/// A command or arguments with `$(NAME)` filled in.
pub fn expanded(texts: Option<&Vec<String>>, env: &[(String, String)]) -> Vec<String> {
    texts.into_iter().flatten().map(|text| expand(text, |name| find(env, name))).collect()
}

fn find(env: &[(String, String)], name: &str) -> Option<String> {
    env.iter().rev().find(|(known, _)| known == name).map(|(_, value)| value.clone())
}

struct Maker<'a> {
    pod: &'a Pod,
    data: &'a PodData,
    node_name: &'a str,
}

impl Maker<'_> {
    fn env(
        &self,
        container: &Container,
        own: Vec<(String, String)>,
    ) -> Result<Vec<(String, String)>, String> {
        let mut env = own;
        let set = |env: &mut Vec<(String, String)>, name: &str, value: String| match env
            .iter_mut()
            .find(|(known, _)| known == name)
        {
            Some(slot) => slot.1 = value,
            None => env.push((name.to_owned(), value)),
        };
        for source in container.env_from.iter().flatten() {
            let found = if let Some(source) = &source.config_map_ref {
                self.object(false, &source.name, source.optional)?
            } else if let Some(source) = &source.secret_ref {
                self.object(true, &source.name, source.optional)?
            } else {
                None
            };
            let prefix = source.prefix.as_deref().unwrap_or_default();
            for (key, value) in found.iter().flat_map(|object| &object.data) {
                set(&mut env, &format!("{prefix}{key}"), text(value, key)?);
            }
        }
        for variable in container.env.iter().flatten() {
            let value = match (&variable.value, &variable.value_from) {
                (_, Some(source)) => self.value_from(container, source, &variable.name)?,
                (Some(value), None) => Some(expand(value, |name| find(&env, name))),
                (None, None) => Some(String::new()),
            };
            if let Some(value) = value {
                set(&mut env, &variable.name, value);
            }
        }
        for (name, value) in &env {
            let is_first = |c: char| c.is_ascii_alphabetic() || c == '_';
            if !name.starts_with(is_first) || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
                return Err(format!("env {name:?}: a job's variables are letters, digits and _"));
            }
            // It is what the job itself is steered by.
            if name.starts_with("SLURM_") || name.starts_with("SBATCH_") {
                return Err(format!("env {name}: begins with what belongs to SLURM"));
            }
            if value.contains('\0') {
                return Err(format!("env {name}: has a NUL"));
            }
        }
        Ok(env)
    }

    fn value_from(
        &self,
        container: &Container,
        source: &EnvVarSource,
        name: &str,
    ) -> Result<Option<String>, String> {
        if let Some(field) = &source.field_ref {
            return self.field(&field.field_path).map(Some);
        }
        if let Some(selector) = &source.resource_field_ref {
            return resource(selector, container, &BTreeMap::new()).map(Some);
        }
        let (is_secret, object, key, optional) = if let Some(source) = &source.config_map_key_ref {
            (false, &source.name, &source.key, source.optional)
        } else if let Some(source) = &source.secret_key_ref {
            (true, &source.name, &source.key, source.optional)
        } else {
            return Err(format!("env {name}: its source is not supported"));
        };
        let Some(found) = self.object(is_secret, object, optional)? else { return Ok(None) };
        match found.data.get(key) {
            Some(value) => text(value, key).map(Some),
            None if optional == Some(true) => Ok(None),
            None => Err(format!("couldn't find key {key} in {} {object}", kind(is_secret))),
        }
    }

    /// What is known before a job has a place. It never has an address.
    fn field(&self, path: &str) -> Result<String, String> {
        if path.starts_with("status.") {
            return Err(format!("fieldPath {path}: a job has no address"));
        }
        FieldContext { pod: self.pod, pod_ips: &[], host_ips: &[], node_name: self.node_name }.field(path)
    }

    fn object(&self, is_secret: bool, name: &str, optional: Option<bool>) -> Result<Option<&Data>, String> {
        let list = if is_secret { &self.data.secrets } else { &self.data.config_maps };
        match list.get(name) {
            Some(found) => Ok(Some(found)),
            None if optional == Some(true) => Ok(None),
            None => Err(format!("{} \"{name}\" not found", kind(is_secret))),
        }
    }

    /// Where a volume is at the site.
    fn volume(&self, volume: &Volume, contents: &mut Contents) -> Result<String, String> {
        if let Some(host) = &volume.host_path {
            return Ok(host.path.trim_end_matches('/').to_owned());
        }
        let folder = format!("volumes/{}", volume.name);
        contents.folders.push(folder.clone());
        let mode = |mode: Option<i32>| {
            mode.and_then(|mode| u32::try_from(mode).ok()).unwrap_or(DEFAULT_MODE) & 0o777
        };
        let mut files = Vec::new();
        if let Some(source) = &volume.config_map {
            let found = self.object(false, &source.name, source.optional)?;
            files.extend(keys(found, source.items.as_ref(), source.optional, mode(source.default_mode))?);
        } else if let Some(source) = &volume.secret {
            let name = source.secret_name.as_deref().unwrap_or_default();
            let found = self.object(true, name, source.optional)?;
            files.extend(keys(found, source.items.as_ref(), source.optional, mode(source.default_mode))?);
        } else if let Some(source) = &volume.downward_api {
            files.extend(self.downward(source.items.as_ref(), mode(source.default_mode))?);
        } else if let Some(projected) = &volume.projected {
            let mode = mode(projected.default_mode);
            for source in projected.sources.iter().flatten() {
                if let Some(source) = &source.config_map {
                    let found = self.object(false, &source.name, source.optional)?;
                    files.extend(keys(found, source.items.as_ref(), source.optional, mode)?);
                }
                if let Some(source) = &source.secret {
                    let found = self.object(true, &source.name, source.optional)?;
                    files.extend(keys(found, source.items.as_ref(), source.optional, mode)?);
                }
                if let Some(source) = &source.downward_api {
                    files.extend(self.downward(source.items.as_ref(), mode)?);
                }
            }
        }
        for (path, mode, content) in files {
            if path.starts_with('/') || path.split('/').any(|part| part.is_empty() || part == "..") {
                return Err(format!("{path:?} is not a path below the volume"));
            }
            contents.files.push(JobFile { path: format!("{folder}/{path}"), mode, content });
        }
        Ok(folder)
    }

    fn downward(&self, items: Option<&Vec<DownwardAPIVolumeFile>>, mode: u32) -> Result<Vec<Keyed>, String> {
        let mut files = Vec::new();
        for item in items.into_iter().flatten() {
            let mode = item.mode.and_then(|mode| u32::try_from(mode).ok()).unwrap_or(mode);
            let value = if let Some(field) = &item.field_ref {
                self.field(&field.field_path)?
            } else if let Some(selector) = &item.resource_field_ref {
                let containers = self.pod.spec.iter().flat_map(|spec| &spec.containers);
                let name = selector.container_name.as_deref().unwrap_or_default();
                let mut named = containers.filter(|container| container.name == name);
                let container =
                    named.next().ok_or_else(|| format!("{}: no container {name:?}", item.path))?;
                resource(selector, container, &BTreeMap::new())?
            } else {
                continue;
            };
            files.push((item.path.clone(), mode, value.into_bytes()));
        }
        Ok(files)
    }
}

/// Path, mode and content.
type Keyed = (String, u32, Vec<u8>);

fn keys(
    object: Option<&Data>,
    items: Option<&Vec<KeyToPath>>,
    optional: Option<bool>,
    mode: u32,
) -> Result<Vec<Keyed>, String> {
    let Some(object) = object else { return Ok(Vec::new()) };
    let Some(items) = items.filter(|items| !items.is_empty()) else {
        return Ok(object.data.iter().map(|(key, value)| (key.clone(), mode, value.clone())).collect());
    };
    let mut files = Vec::new();
    for item in items {
        let mode = item.mode.and_then(|mode| u32::try_from(mode).ok()).unwrap_or(mode) & 0o777;
        match object.data.get(&item.key) {
            Some(value) => files.push((item.path.clone(), mode, value.clone())),
            None if optional == Some(true) => {}
            None => return Err(format!("references non-existent key: {}", item.key)),
        }
    }
    Ok(files)
}

fn text(value: &[u8], key: &str) -> Result<String, String> {
    String::from_utf8(value.to_vec()).map_err(|_| format!("key {key} is not text: mount it as a file"))
}

fn kind(is_secret: bool) -> &'static str {
    if is_secret { "secret" } else { "configmap" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn data() -> PodData {
        let object = |pairs: &[(&str, &str)]| Data {
            data: pairs.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec())).collect(),
            ..Data::default()
        };
        PodData {
            config_maps: [("cfg".to_owned(), object(&[("A", "1"), ("b.txt", "text")]))].into(),
            secrets: [("sec".to_owned(), object(&[("key", "s3cr3t")]))].into(),
        }
    }

    fn contents(spec: Value) -> Result<Contents, String> {
        let pod = json!({"metadata": {"name": "p", "namespace": "a", "labels": {"x": "y"}}, "spec": spec});
        let pod: Pod = serde_json::from_value(pod).expect("a pod");
        of(&pod, &data(), "node", |_| vec![("MINE".into(), "1".into())]).map_err(|refusal| refusal.message)
    }

    #[test]
    fn environments_come_from_where_the_pod_says() {
        let found = contents(json!({"containers": [{"name": "c", "env": [
            {"name": "PLAIN", "value": "$(MINE)-$(PLAIN)"},
            {"name": "FROM", "valueFrom": {"configMapKeyRef": {"name": "cfg", "key": "A"}}},
            {"name": "SECRET", "valueFrom": {"secretKeyRef": {"name": "sec", "key": "key"}}},
            {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "NONE", "valueFrom": {"secretKeyRef": {"name": "no", "key": "key", "optional": true}}},
        ]}]}))
        .expect("contents");
        let env: Vec<String> = found.env["c"].iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(env, ["MINE=1", "PLAIN=1-$(PLAIN)", "FROM=1", "SECRET=s3cr3t", "NAME=p"]);
        assert_eq!(expanded(Some(&vec!["$(NAME)!".into()]), &found.env["c"]), ["p!"]);
    }

    #[test]
    fn volumes_have_their_files_with_their_modes() {
        let found = contents(json!({
            "volumes": [
                {"name": "cfg", "configMap": {"name": "cfg", "items": [{"key": "b.txt", "path": "in/b", "mode": 0o400}]}},
                {"name": "sec", "secret": {"secretName": "sec", "defaultMode": 0o440}},
                {"name": "tmp", "emptyDir": {}},
                {"name": "host", "hostPath": {"path": "/scratch/"}},
            ],
            "containers": [{"name": "c", "volumeMounts": [
                {"name": "cfg", "mountPath": "/etc/cfg/", "readOnly": true},
                {"name": "sec", "mountPath": "/key", "subPath": "key"},
                {"name": "host", "mountPath": "/data"},
            ]}],
        }))
        .expect("contents");
        let files: Vec<(&str, u32)> =
            found.files.iter().map(|file| (file.path.as_str(), file.mode)).collect();
        assert_eq!(files, [("volumes/cfg/in/b", 0o400), ("volumes/sec/key", 0o440)]);
        assert_eq!(found.folders, ["volumes/cfg", "volumes/sec", "volumes/tmp"]);
        let mounts: Vec<String> =
            found.mounts["c"].iter().map(|mount| format!("{} {}", mount.source, mount.target)).collect();
        assert_eq!(mounts, ["volumes/cfg /etc/cfg", "volumes/sec/key /key", "/scratch /data"]);
    }

    #[test]
    fn what_is_missing_or_dangerous_is_said() {
        let env = |variable: Value| {
            contents(json!({"containers": [{"name": "c", "env": [variable]}]})).expect_err("refused")
        };
        assert!(env(json!({"name": "A.B", "value": "1"})).contains("letters, digits"));
        assert!(env(json!({"name": "A;id", "value": "1"})).contains("letters, digits"));
        assert!(env(json!({"name": "SLURM_CONF", "value": "/x"})).contains("belongs to SLURM"));
        assert!(
            env(json!({"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}))
                .contains("no address")
        );
        assert!(
            env(json!({"name": "A", "valueFrom": {"secretKeyRef": {"name": "no", "key": "k"}}}))
                .contains("secret \"no\" not found")
        );
        let items = json!([{"key": "A", "path": "../../x"}]);
        let volume = json!({"volumes": [{"name": "v", "configMap": {"name": "cfg", "items": items}}], "containers": []});
        assert!(contents(volume).expect_err("refused").contains("not a path"));
    }
}
