//! What runs on which node, and what it needs: the memory behind the node authorizer.

use super::references::{self, Kind, key, text};
use crate::auth::rbac::Rule;
use serde_json::Value;
use std::collections::{HashMap, HashSet};

/// Pods, volumes, attachments, slices and ingresses, and who depends on them.
#[derive(Debug)]
pub struct Graph {
    pods: HashMap<Key, Pod>,
    /// For each object that pods need: on how many pods of which node it is needed.
    needed: HashMap<(Kind, Key), HashMap<String, usize>>,
    volumes: HashMap<String, Volume>,
    /// The volumes that need a secret.
    volumes_by_secret: HashMap<Key, HashSet<String>>,
    attachments: HashMap<String, String>,
    slices: HashMap<String, String>,
    /// The secrets of each ingress.
    ingresses: HashMap<Key, HashSet<Key>>,
    /// How many ingresses name a secret: every node serves them all.
    certificates: HashMap<Key, usize>,
    /// What all nodes may do alike.
    pub(super) rules: Vec<Rule>,
}

/// Namespace and name.
type Key = (String, String);

#[derive(Debug)]
struct Pod {
    node: String,
    needs: Vec<(Kind, Key)>,
}

#[derive(Debug)]
struct Volume {
    claim: Key,
    secrets: Vec<Key>,
}

impl Default for Graph {
    fn default() -> Self {
        Graph {
            pods: HashMap::new(),
            needed: HashMap::new(),
            volumes: HashMap::new(),
            volumes_by_secret: HashMap::new(),
            attachments: HashMap::new(),
            slices: HashMap::new(),
            ingresses: HashMap::new(),
            certificates: HashMap::new(),
            rules: crate::auth::bootstrap::node_rules(),
        }
    }
}

impl Graph {
    /// Takes in a Pod, PersistentVolume, VolumeAttachment, ResourceSlice or Ingress, new or changed. Others are
    /// ignored.
    pub fn apply(&mut self, object: &Value) {
        self.delete(object);
        let spec = &object["spec"];
        let name = api::object::name(object).to_owned();
        match text(&object["kind"]) {
            "Pod" => self.add_pod(object),
            "PersistentVolume" => self.add_volume(name, object),
            "VolumeAttachment" => insert(&mut self.attachments, name, &spec["nodeName"]),
            "ResourceSlice" => insert(&mut self.slices, name, &spec["nodeName"]),
            "Ingress" => self.add_ingress(object),
            _ => {}
        }
    }

    /// Forgets such an object; only its kind, namespace and name count.
    pub fn delete(&mut self, object: &Value) {
        let name = api::object::name(object);
        match text(&object["kind"]) {
            "Pod" => self.remove_pod(&key(object)),
            "PersistentVolume" => self.remove_volume(name),
            "VolumeAttachment" => drop(self.attachments.remove(name)),
            "ResourceSlice" => drop(self.slices.remove(name)),
            "Ingress" => self.remove_ingress(&key(object)),
            _ => {}
        }
    }

    /// Whether the pod runs on the node.
    pub(super) fn runs(&self, node: &str, namespace: &str, name: &str) -> bool {
        let pod = self.pods.get(&(namespace.to_owned(), name.to_owned()));
        pod.is_some_and(|pod| pod.node == node)
    }

    /// Whether something that runs on the node needs the object.
    pub(super) fn needs(&self, node: &str, kind: Kind, namespace: &str, name: &str) -> bool {
        let key = (kind, (namespace.to_owned(), name.to_owned()));
        self.needed.get(&key).is_some_and(|nodes| nodes.contains_key(node))
            || kind == Kind::Secret
                && self
                    .volumes_by_secret
                    .get(&key.1)
                    .is_some_and(|volumes| volumes.iter().any(|volume| self.mounts(node, volume)))
    }

    /// Whether something that runs on the node uses the volume.
    pub(super) fn mounts(&self, node: &str, volume: &str) -> bool {
        self.volumes.get(volume).is_some_and(|volume| {
            let (namespace, name) = &volume.claim;
            self.needs(node, Kind::Claim, namespace, name)
        })
    }

    /// Whether the volume is (to be) attached to the node.
    pub(super) fn attaches(&self, node: &str, attachment: &str) -> bool {
        self.attachments.get(attachment).is_some_and(|own| own == node)
    }

    /// Whether the slice is about the node.
    pub(super) fn offers(&self, node: &str, slice: &str) -> bool {
        self.slices.get(slice).is_some_and(|own| own == node)
    }

    /// Whether an ingress names the secret as the place of its certificate.
    pub(super) fn certifies(&self, namespace: &str, secret: &str) -> bool {
        self.certificates.contains_key(&(namespace.to_owned(), secret.to_owned()))
    }

    fn add_ingress(&mut self, object: &Value) {
        let key = key(object);
        let secrets: HashSet<Key> =
            references::secrets_of_ingress(object).map(|name| (key.0.clone(), name.to_owned())).collect();
        for secret in &secrets {
            *self.certificates.entry(secret.clone()).or_default() += 1;
        }
        if !secrets.is_empty() {
            self.ingresses.insert(key, secrets);
        }
    }

    fn remove_ingress(&mut self, key: &Key) {
        for secret in self.ingresses.remove(key).into_iter().flatten() {
            if let Some(count) = self.certificates.get_mut(&secret) {
                *count -= 1;
                if *count == 0 {
                    self.certificates.remove(&secret);
                }
            }
        }
    }

    fn add_pod(&mut self, object: &Value) {
        let node = text(&object["spec"]["nodeName"]).to_owned();
        if node.is_empty() {
            return;
        }
        let key = key(object);
        // A node creates mirror pods itself: they must not give it access to anything.
        let needs: Vec<(Kind, Key)> = match references::is_mirror(object) {
            true => Vec::new(),
            false => references::of_pod(object)
                .into_iter()
                .map(|(kind, name)| (kind, (key.0.clone(), name)))
                .collect(),
        };
        for need in &needs {
            let nodes = self.needed.entry(need.clone()).or_default();
            *nodes.entry(node.clone()).or_default() += 1;
        }
        self.pods.insert(key, Pod { node, needs });
    }

    fn remove_pod(&mut self, key: &Key) {
        let Some(pod) = self.pods.remove(key) else { return };
        for need in pod.needs {
            let Some(nodes) = self.needed.get_mut(&need) else { continue };
            if let Some(count) = nodes.get_mut(&pod.node) {
                *count -= 1;
                if *count == 0 {
                    nodes.remove(&pod.node);
                }
            }
            if nodes.is_empty() {
                self.needed.remove(&need);
            }
        }
    }

    fn add_volume(&mut self, name: String, object: &Value) {
        let claim = &object["spec"]["claimRef"];
        if !claim.is_object() {
            return;
        }
        let claim = (text(&claim["namespace"]).to_owned(), text(&claim["name"]).to_owned());
        let secrets = references::secrets_of_volume(object);
        for secret in &secrets {
            self.volumes_by_secret.entry(secret.clone()).or_default().insert(name.clone());
        }
        self.volumes.insert(name, Volume { claim, secrets });
    }

    fn remove_volume(&mut self, name: &str) {
        let Some(volume) = self.volumes.remove(name) else { return };
        for secret in volume.secrets {
            if let Some(volumes) = self.volumes_by_secret.get_mut(&secret) {
                volumes.remove(name);
                if volumes.is_empty() {
                    self.volumes_by_secret.remove(&secret);
                }
            }
        }
    }
}

fn insert(map: &mut HashMap<String, String>, name: String, node: &Value) {
    let node = text(node);
    if !node.is_empty() {
        map.insert(name, node.to_owned());
    }
}
