//! What a pod uses of its cluster: found out from its spec, fetched, and told to each container that uses it.
//!
//! ```text
//! Pod ──needs──> names of ConfigMaps, Secrets ──fetch──> Found ──distribute──> RetrievedContainer, one for each
//!                                                          └──> projected volumes: contents by path
//! ```

use crate::wire::{RetrievedContainer, Submission};
use jiff::SignedDuration;
use k8s_openapi::ByteString;
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{
    ConfigMap, Container, KeyToPath, Pod, PodSpec, ProjectedVolumeSource, Secret, ServiceAccount,
    VolumeProjection,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, PostParams};
use kube::{Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

/// A token of a pod's service account ends after this, unless the pod asks for less: nobody renews it there.
const LONGEST_TOKEN: i64 = 24 * 60 * 60;
const SHORTEST_TOKEN: i64 = 600;

/// The names of what a pod uses; whether it can do without.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// ConfigMaps.
    pub config_maps: BTreeMap<String, bool>,
    /// Secrets.
    pub secrets: BTreeMap<String, bool>,
}

/// What was found of it, by name.
#[derive(Debug, Default)]
pub struct Found {
    /// ConfigMaps.
    pub config_maps: BTreeMap<String, ConfigMap>,
    /// Secrets.
    pub secrets: BTreeMap<String, Secret>,
    /// Projected volumes, by the volume's name.
    pub projected: BTreeMap<String, ConfigMap>,
}

/// Why a pod cannot be given what it uses.
#[derive(Debug, thiserror::Error)]
pub enum GatherError {
    /// An object is not there.
    #[error("{kind} {name:?} not found")]
    Missing {
        /// Its kind, as errors call it.
        kind: &'static str,
        /// Its name.
        name: String,
    },
    /// The apiserver does not give it.
    #[error("read {kind} {name:?}: {why}")]
    Api {
        /// Its kind.
        kind: &'static str,
        /// Its name.
        name: String,
        /// Why not.
        why: String,
    },
}

impl GatherError {
    /// In the apiserver's own words, where it has said some.
    fn api(kind: &'static str, name: &str, error: &kube::Error) -> GatherError {
        let why = match error {
            kube::Error::Api(status) => status.message.clone(),
            other => kubelet::error::chain(other),
        };
        GatherError::Api { kind, name: name.to_owned(), why }
    }
}

/// Which objects a pod uses.
pub fn needs(pod: &Pod) -> Needs {
    let mut needs = Needs::default();
    let Some(spec) = &pod.spec else { return needs };
    for volume in spec.volumes.iter().flatten() {
        if let Some(source) = &volume.config_map {
            note(&mut needs.config_maps, &source.name, source.optional);
        }
        if let Some(source) = &volume.secret {
            note(&mut needs.secrets, source.secret_name.as_deref().unwrap_or_default(), source.optional);
        }
        for source in volume.projected.iter().flat_map(sources) {
            if let Some(source) = &source.config_map {
                note(&mut needs.config_maps, &source.name, source.optional);
            }
            if let Some(source) = &source.secret {
                note(&mut needs.secrets, &source.name, source.optional);
            }
        }
    }
    for container in containers(spec) {
        let (config_maps, secrets) = of_environment(container);
        config_maps.into_iter().for_each(|(name, optional)| note(&mut needs.config_maps, name, optional));
        secrets.into_iter().for_each(|(name, optional)| note(&mut needs.secrets, name, optional));
    }
    needs
}

fn sources(projected: &ProjectedVolumeSource) -> impl Iterator<Item = &VolumeProjection> {
    projected.sources.iter().flatten()
}

fn note(names: &mut BTreeMap<String, bool>, name: &str, optional: Option<bool>) {
    let optional = optional.unwrap_or(false);
    if !name.is_empty() {
        names.entry(name.to_owned()).and_modify(|known| *known &= optional).or_insert(optional);
    }
}

fn containers(spec: &PodSpec) -> impl Iterator<Item = &Container> {
    spec.init_containers.iter().flatten().chain(&spec.containers)
}

type Named<'a> = Vec<(&'a str, Option<bool>)>;

/// The ConfigMaps and Secrets of a container's environment.
fn of_environment(container: &Container) -> (Named<'_>, Named<'_>) {
    let (mut config_maps, mut secrets) = (Vec::new(), Vec::new());
    for source in container.env.iter().flatten().filter_map(|variable| variable.value_from.as_ref()) {
        config_maps.extend(source.config_map_key_ref.iter().map(|key| (key.name.as_str(), key.optional)));
        secrets.extend(source.secret_key_ref.iter().map(|key| (key.name.as_str(), key.optional)));
    }
    for source in container.env_from.iter().flatten() {
        config_maps.extend(source.config_map_ref.iter().map(|from| (from.name.as_str(), from.optional)));
        secrets.extend(source.secret_ref.iter().map(|from| (from.name.as_str(), from.optional)));
    }
    (config_maps, secrets)
}

/// Fetches what a pod uses. `with_tokens`: also tokens of its service account, for which reading is not enough.
pub async fn fetch(client: &Client, pod: &Pod, with_tokens: bool) -> Result<Found, GatherError> {
    let namespace = pod.metadata.namespace.clone().unwrap_or_default();
    let needs = needs(pod);
    let mut found = Found {
        config_maps: all(client, &namespace, "configmap", &needs.config_maps).await?,
        secrets: all(client, &namespace, "secret", &needs.secrets).await?,
        projected: BTreeMap::new(),
    };
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    for (name, source) in volumes.filter_map(|volume| Some((&volume.name, volume.projected.as_ref()?))) {
        let mut files = project(pod, source, &found);
        if with_tokens {
            for (path, token) in tokens(client, &namespace, pod, source).await? {
                files.insert(path, token.into_bytes());
            }
        }
        found.projected.insert(name.clone(), as_config_map(name, &namespace, files));
    }
    Ok(found)
}

async fn all<K>(
    client: &Client,
    namespace: &str,
    kind: &'static str,
    names: &BTreeMap<String, bool>,
) -> Result<BTreeMap<String, K>, GatherError>
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned,
{
    let api: Api<K> = Api::namespaced(client.clone(), namespace);
    let mut found = BTreeMap::new();
    for (name, is_optional) in names {
        let failed = |error| GatherError::api(kind, name, &error);
        match api.get_opt(name).await.map_err(failed)? {
            Some(mut object) => {
                object.managed_fields_mut().clear();
                found.insert(name.clone(), object);
            }
            None if *is_optional => {}
            None => return Err(GatherError::Missing { kind, name: name.clone() }),
        }
    }
    Ok(found)
}

async fn tokens(
    client: &Client,
    namespace: &str,
    pod: &Pod,
    source: &ProjectedVolumeSource,
) -> Result<Vec<(String, String)>, GatherError> {
    let account = pod.spec.as_ref().and_then(|spec| spec.service_account_name.clone());
    let account = account.filter(|name| !name.is_empty()).unwrap_or_else(|| "default".to_owned());
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
    let mut made = Vec::new();
    for wanted in sources(source).filter_map(|source| source.service_account_token.as_ref()) {
        let request = TokenRequest {
            spec: TokenRequestSpec {
                audiences: wanted.audience.iter().filter(|it| !it.is_empty()).cloned().collect(),
                expiration_seconds: Some(
                    wanted.expiration_seconds.unwrap_or(LONGEST_TOKEN).clamp(SHORTEST_TOKEN, LONGEST_TOKEN),
                ),
                bound_object_ref: Some(BoundObjectReference {
                    api_version: Some("v1".into()),
                    kind: Some("Pod".into()),
                    name: pod.metadata.name.clone(),
                    uid: pod.metadata.uid.clone(),
                }),
            },
            ..TokenRequest::default()
        };
        let failed = |error| GatherError::api("token of service account", &account, &error);
        let answer = accounts
            .create_token_request(&account, &PostParams::default(), &request)
            .await
            .map_err(failed)?;
        made.push((wanted.path.clone(), answer.status.map(|status| status.token).unwrap_or_default()));
    }
    Ok(made)
}

/// The files of a projected volume, but for tokens.
fn project(pod: &Pod, source: &ProjectedVolumeSource, found: &Found) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    for source in sources(source) {
        if let Some(from) = &source.config_map
            && let Some(object) = found.config_maps.get(&from.name)
        {
            files.extend(chosen(contents_of(object), from.items.as_deref()));
        }
        if let Some(from) = &source.secret
            && let Some(object) = found.secrets.get(&from.name)
        {
            files.extend(chosen(contents_of_secret(object), from.items.as_deref()));
        }
        for file in source.downward_api.iter().flat_map(|from| from.items.iter().flatten()) {
            if let Some(text) = file.field_ref.as_ref().and_then(|field| field_of(pod, &field.field_path)) {
                files.insert(file.path.clone(), text.into_bytes());
            }
        }
    }
    files
}

/// All keys, or those that are named, each under its path.
pub fn chosen(contents: BTreeMap<String, Vec<u8>>, items: Option<&[KeyToPath]>) -> BTreeMap<String, Vec<u8>> {
    match items.filter(|items| !items.is_empty()) {
        None => contents,
        Some(items) => {
            let named =
                items.iter().filter_map(|item| Some((item.path.clone(), contents.get(&item.key)?.clone())));
            named.collect()
        }
    }
}

/// Text and bytes of a ConfigMap alike.
pub fn contents_of(object: &ConfigMap) -> BTreeMap<String, Vec<u8>> {
    let text = object.data.iter().flatten().map(|(key, text)| (key.clone(), text.clone().into_bytes()));
    let bytes = object.binary_data.iter().flatten().map(|(key, bytes)| (key.clone(), bytes.0.clone()));
    text.chain(bytes).collect()
}

/// What a Secret holds, as it came: encoded, or as text.
pub fn contents_of_secret(object: &Secret) -> BTreeMap<String, Vec<u8>> {
    let bytes = object.data.iter().flatten().map(|(key, bytes)| (key.clone(), bytes.0.clone()));
    let text =
        object.string_data.iter().flatten().map(|(key, text)| (key.clone(), text.clone().into_bytes()));
    bytes.chain(text).collect()
}

fn as_config_map(name: &str, namespace: &str, files: BTreeMap<String, Vec<u8>>) -> ConfigMap {
    let (mut data, mut binary) = (BTreeMap::new(), BTreeMap::new());
    for (path, bytes) in files {
        match String::from_utf8(bytes) {
            Ok(text) => drop(data.insert(path, text)),
            Err(error) => drop(binary.insert(path, ByteString(error.into_bytes()))),
        }
    }
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(namespace.to_owned()),
            ..ObjectMeta::default()
        },
        data: Some(data),
        binary_data: (!binary.is_empty()).then_some(binary),
        immutable: None,
    }
}

/// A field of a pod that a volume or a variable may name.
pub fn field_of(pod: &Pod, path: &str) -> Option<String> {
    let meta = &pod.metadata;
    let lines = |map: &Option<BTreeMap<String, String>>| {
        let lines: Vec<String> =
            map.iter().flatten().map(|(key, value)| format!("{key}={value:?}")).collect();
        lines.join("\n")
    };
    let named = |map: &Option<BTreeMap<String, String>>, key: &str| {
        let key = key.trim_end_matches("']");
        Some(map.as_ref().and_then(|map| map.get(key)).cloned().unwrap_or_default())
    };
    if let Some(key) = path.strip_prefix("metadata.labels['") {
        return named(&meta.labels, key);
    }
    if let Some(key) = path.strip_prefix("metadata.annotations['") {
        return named(&meta.annotations, key);
    }
    let spec = pod.spec.as_ref();
    match path {
        "metadata.name" => meta.name.clone(),
        "metadata.namespace" => meta.namespace.clone(),
        "metadata.uid" => meta.uid.clone(),
        "metadata.labels" => Some(lines(&meta.labels)),
        "metadata.annotations" => Some(lines(&meta.annotations)),
        "spec.nodeName" => spec.and_then(|spec| spec.node_name.clone()),
        "spec.serviceAccountName" => spec.and_then(|spec| spec.service_account_name.clone()),
        _ => None,
    }
}

/// Gives each container what it uses. `data_root` is where plugins of the first generation expect empty folders.
pub fn distribute(pod: &Pod, found: &Found, data_root: &str) -> Vec<RetrievedContainer> {
    let Some(spec) = &pod.spec else { return Vec::new() };
    let volumes: BTreeMap<&str, _> =
        spec.volumes.iter().flatten().map(|volume| (volume.name.as_str(), volume)).collect();
    let meta = &pod.metadata;
    let own = format!(
        "{}/{}-{}/emptyDirs",
        data_root.trim_end_matches('/'),
        meta.namespace.as_deref().unwrap_or_default(),
        meta.uid.as_deref().unwrap_or_default()
    );
    let one = |container: &Container| {
        let (from_env, secrets_from_env) = of_environment(container);
        let mut config_maps: BTreeSet<&str> = from_env.iter().map(|(name, _)| *name).collect();
        let mut secrets: BTreeSet<&str> = secrets_from_env.iter().map(|(name, _)| *name).collect();
        let (mut projected, mut empty_dirs) = (BTreeSet::new(), BTreeSet::new());
        for mount in container.volume_mounts.iter().flatten() {
            let Some(volume) = volumes.get(mount.name.as_str()) else { continue };
            config_maps.extend(volume.config_map.iter().map(|source| source.name.as_str()));
            secrets.extend(volume.secret.iter().filter_map(|source| source.secret_name.as_deref()));
            if let Some(source) = &volume.projected {
                projected.insert(volume.name.as_str());
                // Who does not know projected volumes may make them of these.
                config_maps
                    .extend(sources(source).filter_map(|it| Some(it.config_map.as_ref()?.name.as_str())));
                secrets.extend(sources(source).filter_map(|it| Some(it.secret.as_ref()?.name.as_str())));
            }
            if volume.empty_dir.is_some() {
                empty_dirs.insert(format!("{own}/{}", volume.name));
            }
        }
        RetrievedContainer {
            name: container.name.clone(),
            config_maps: config_maps
                .iter()
                .filter_map(|name| found.config_maps.get(*name).cloned())
                .collect(),
            secrets: secrets.iter().filter_map(|name| found.secrets.get(*name).cloned()).collect(),
            projected: projected.iter().filter_map(|name| found.projected.get(*name).cloned()).collect(),
            empty_dirs: empty_dirs.into_iter().collect(),
        }
    };
    containers(spec).map(one).collect()
}

impl Found {
    /// What a newer virtual node has sent along.
    pub fn of(given: &Submission) -> Found {
        fn by_name<K: Resource + Clone>(all: &[K]) -> BTreeMap<String, K> {
            all.iter()
                .map(|object| (object.meta().name.clone().unwrap_or_default(), object.clone()))
                .collect()
        }
        Found {
            config_maps: by_name(&given.configmaps),
            secrets: by_name(&given.secrets),
            projected: by_name(&given.projected),
        }
    }

    /// As a newer virtual node sends it along.
    pub fn submission(self, pod: Pod) -> Submission {
        Submission {
            pod,
            configmaps: self.config_maps.into_values().collect(),
            secrets: self.secrets.into_values().collect(),
            projected: self.projected.into_values().collect(),
            job_script_url: String::new(),
        }
    }
}

/// How long a credential lives that is handed to somebody else.
pub const HANDED_OVER: SignedDuration = SignedDuration::from_secs(3600);

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn sample() -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "ns", "uid": "u1", "labels": {"a": "b"}},
            "spec": {
                "initContainers": [{"name": "i", "envFrom": [{"secretRef": {"name": "s2", "optional": true}}]}],
                "containers": [
                    {"name": "c", "volumeMounts": [{"name": "m", "mountPath": "/m"}, {"name": "e", "mountPath": "/e"},
                        {"name": "api", "mountPath": "/api"}],
                     "env": [{"name": "X", "valueFrom": {"configMapKeyRef": {"name": "m2", "key": "k"}}}]},
                    {"name": "d", "volumeMounts": [{"name": "s", "mountPath": "/s"}]},
                ],
                "volumes": [
                    {"name": "m", "configMap": {"name": "m1"}}, {"name": "s", "secret": {"secretName": "s1"}},
                    {"name": "e", "emptyDir": {}},
                    {"name": "api", "projected": {"sources": [
                        {"configMap": {"name": "m1", "optional": true, "items": [{"key": "k", "path": "deep/k"}]}},
                        {"downwardAPI": {"items": [{"path": "ns", "fieldRef": {"fieldPath": "metadata.namespace"}},
                            {"path": "a", "fieldRef": {"fieldPath": "metadata.labels['a']"}}]}},
                    ]}},
                ],
            },
        }))
        .unwrap()
    }

    #[test]
    fn what_a_pod_uses_is_found_in_volumes_and_environment() {
        let needs = needs(&sample());
        // It is needed if any of its uses needs it.
        assert_eq!(needs.config_maps, BTreeMap::from([("m1".into(), false), ("m2".into(), false)]));
        assert_eq!(needs.secrets, BTreeMap::from([("s1".into(), false), ("s2".into(), true)]));
    }

    #[test]
    fn each_container_is_given_what_it_uses() {
        let pod = sample();
        let config_map = |name: &str| -> ConfigMap {
            serde_json::from_value(json!({"metadata": {"name": name}, "data": {"k": name, "l": "x"}}))
                .unwrap()
        };
        let secret: Secret =
            serde_json::from_value(json!({"metadata": {"name": "s1"}, "data": {"k": "eA=="}})).unwrap();
        let mut found = Found {
            config_maps: ["m1", "m2"].map(|name| (name.to_owned(), config_map(name))).into(),
            secrets: BTreeMap::from([("s1".to_owned(), secret)]),
            projected: BTreeMap::new(),
        };
        let source = pod.spec.as_ref().unwrap().volumes.as_ref().unwrap()[3].projected.clone().unwrap();
        let files = project(&pod, &source, &found);
        let expected = [("a", "b"), ("deep/k", "m1"), ("ns", "ns")];
        assert_eq!(files, expected.map(|(path, text)| (path.to_owned(), text.as_bytes().to_vec())).into());
        found.projected.insert("api".into(), as_config_map("api", "ns", files));
        let given = distribute(&pod, &found, "/data/");
        let names =
            |list: &[ConfigMap]| list.iter().map(|it| it.metadata.name.clone().unwrap()).collect::<Vec<_>>();
        assert_eq!(given.iter().map(|it| it.name.as_str()).collect::<Vec<_>>(), ["i", "c", "d"]);
        assert!(given[0].secrets.is_empty());
        assert_eq!(names(&given[1].config_maps), ["m1", "m2"]);
        assert_eq!(names(&given[1].projected), ["api"]);
        assert_eq!(given[1].empty_dirs, ["/data/ns-u1/emptyDirs/e"]);
        assert_eq!(given[2].secrets.len(), 1);
        let round = Found::of(&found.submission(pod.clone()));
        assert_eq!(distribute(&pod, &round, "/data"), given);
    }
}
