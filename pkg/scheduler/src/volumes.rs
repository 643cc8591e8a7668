//! Claims and volumes: from which nodes a pod's volumes can be reached, and which volume a claim gets that waited for its
//! first pod.

use crate::cluster::{Cluster, NodeId, key};
use crate::reasons::Reason;
use crate::rules::terms;
use crate::terms::parse;
use crate::wire;
use api::Quantity;
use api::node_selector::Term;
use api::selector::{LabelSelector, Labels};
use std::collections::{BTreeMap, BTreeSet, HashMap};

const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";
const ONE_POD: &str = "ReadWriteOncePod";

/// All that is known of storage.
#[derive(Debug, Default)]
pub(crate) struct Volumes {
    claims: HashMap<String, Claim>,
    volumes: BTreeMap<String, Volume>,
    classes: HashMap<String, StorageClass>,
    /// By node, then driver.
    limits: HashMap<String, BTreeMap<String, i64>>,
    /// Volumes promised to a claim before the API knows, by volume.
    promised: HashMap<String, String>,
}

#[derive(Debug, PartialEq, Eq)]
struct Claim {
    uid: String,
    volume: String,
    class: Option<String>,
    modes: Vec<String>,
    bytes: i64,
    is_bound: bool,
    is_lost: bool,
    is_going: bool,
    selector: Option<LabelSelector>,
    is_block: bool,
    selected_node: Option<String>,
}

#[derive(Debug)]
struct Volume {
    from: Option<Vec<Term>>,
    labels: Labels,
    bytes: i64,
    class: String,
    modes: Vec<String>,
    claim: Option<wire::ClaimRef>,
    driver: Option<String>,
    is_block: bool,
}

#[derive(Debug)]
struct StorageClass {
    waits: bool,
    provisions: bool,
}

/// What a pod's claims need of a node.
#[derive(Debug, Default)]
pub(crate) struct Needs {
    /// The volumes of claims that are bound.
    bound: Vec<String>,
    /// Claims that wait for their first pod, by key.
    waiting: Vec<String>,
    /// Claims that only one pod may use, by key.
    exclusive: Vec<String>,
}

/// What to do about a claim before its pod is bound to a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClaimAction {
    /// Give the claim this volume.
    Bind {
        /// The claim's namespace.
        namespace: String,
        /// The claim's name.
        name: String,
        /// The claim's uid.
        uid: String,
        /// The volume.
        volume: String,
    },
    /// Have a volume made that the node can reach, and wait for it.
    Provision {
        /// The claim's namespace.
        namespace: String,
        /// The claim's name.
        name: String,
        /// Whether it was asked for already.
        is_asked: bool,
    },
}

impl Volumes {
    pub(crate) fn claim_keys(&self) -> impl Iterator<Item = String> {
        self.claims.keys().cloned()
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.volumes.keys().map(String::as_str)
    }
}

impl Cluster {
    /// Takes over a claim. True if it may help pods that wait.
    pub fn set_claim(&mut self, claim: wire::Claim) -> bool {
        let spec = claim.spec;
        let bytes = |map: &wire::Map| map.get("storage").and_then(|text| text.parse::<Quantity>().ok());
        let is_block = spec.volume_mode.as_deref() == Some("Block");
        let is_bound = !spec.volume_name.is_empty()
            && (claim.status.phase == "Bound" || claim.metadata.annotations.contains_key(BIND_COMPLETED));
        self.generation += 1;
        if is_bound {
            self.volumes.promised.remove(&spec.volume_name);
        }
        let record = Claim {
            uid: claim.metadata.uid,
            class: spec.storage_class_name,
            modes: spec.access_modes,
            bytes: bytes(&spec.resources.requests).map_or(0, |quantity| quantity.value()),
            is_bound,
            is_lost: claim.status.phase == "Lost",
            is_going: claim.metadata.deletion_timestamp.is_some(),
            selector: spec.selector.as_ref().map(parse),
            is_block,
            selected_node: claim.metadata.annotations.get(SELECTED_NODE).cloned(),
            volume: spec.volume_name,
        };
        let key = key(&claim.metadata.namespace, &claim.metadata.name);
        let is_other = self.volumes.claims.get(&key) != Some(&record);
        self.volumes.claims.insert(key, record);
        is_other
    }

    /// Forgets a claim, by namespace and name.
    pub fn delete_claim(&mut self, key: &str) {
        self.generation += 1;
        self.volumes.claims.remove(key);
        self.volumes.promised.retain(|_, claim| claim != key);
    }

    /// Takes over a volume.
    pub fn set_volume(&mut self, volume: wire::PersistentVolume) {
        self.generation += 1;
        let spec = volume.spec;
        let bytes = spec.capacity.get("storage").and_then(|text| text.parse::<Quantity>().ok());
        if spec.claim_ref.is_some() {
            self.volumes.promised.remove(&volume.metadata.name);
        }
        let record = Volume {
            from: spec.node_affinity.required.as_ref().map(terms),
            labels: volume.metadata.labels.iter().collect(),
            bytes: bytes.map_or(0, |quantity| quantity.value()),
            class: spec.storage_class_name,
            modes: spec.access_modes,
            claim: spec.claim_ref,
            driver: spec.csi.map(|csi| csi.driver),
            is_block: spec.volume_mode.as_deref() == Some("Block"),
        };
        self.volumes.volumes.insert(volume.metadata.name, record);
    }

    /// Forgets a volume.
    pub fn delete_volume(&mut self, name: &str) {
        self.generation += 1;
        self.volumes.volumes.remove(name);
        self.volumes.promised.remove(name);
    }

    /// Takes over a storage class.
    pub fn set_storage_class(&mut self, class: wire::StorageClass) {
        self.generation += 1;
        let record = StorageClass {
            waits: class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer"),
            provisions: class.provisioner != NO_PROVISIONER,
        };
        self.volumes.classes.insert(class.metadata.name, record);
    }

    /// Forgets a storage class.
    pub fn delete_storage_class(&mut self, name: &str) {
        self.generation += 1;
        self.volumes.classes.remove(name);
    }

    /// Takes over what a node's drivers can do.
    pub fn set_csi_node(&mut self, node: wire::CsiNode) {
        self.generation += 1;
        let limit = |driver: wire::CsiDriver| Some((driver.name, driver.allocatable?.count?));
        let limits = node.spec.drivers.into_iter().filter_map(limit).collect();
        self.volumes.limits.insert(node.metadata.name, limits);
    }

    /// Forgets what a node's drivers can do.
    pub fn delete_csi_node(&mut self, name: &str) {
        self.generation += 1;
        self.volumes.limits.remove(name);
    }

    /// What the claims of a class need, or why no node can do.
    pub(crate) fn needs(&self, class: u32) -> Result<Option<Needs>, String> {
        let class = &self.classes[class];
        if !class.key.spec.resource_claims.is_empty() {
            // Devices are not handed out here, and a pod must not start without those that it asks for.
            return Err("cannot allocate all claims".to_owned());
        }
        if class.claims.is_empty() {
            return Ok(None);
        }
        let mut needs = Needs::default();
        let mut is_unbound = false;
        for name in &class.claims {
            let id = key(&class.key.namespace, name);
            let Some(claim) = self.volumes.claims.get(&id) else {
                let is_own = class.key.name.as_ref().is_some_and(|pod| {
                    let volumes = class.key.spec.volumes.iter().filter(|volume| volume.ephemeral.is_some());
                    volumes.into_iter().any(|volume| format!("{pod}-{}", volume.name) == *name)
                });
                return Err(if is_own {
                    format!(
                        "waiting for ephemeral volume controller to create the persistentvolumeclaim {name:?}"
                    )
                } else {
                    format!("persistentvolumeclaim {name:?} not found")
                });
            };
            if claim.is_lost {
                let volume = &claim.volume;
                return Err(format!(
                    "persistentvolumeclaim {name:?} bound to non-existent persistentvolume {volume:?}"
                ));
            }
            if claim.is_going {
                return Err(format!("persistentvolumeclaim {name:?} is being deleted"));
            }
            if claim.modes.iter().any(|mode| mode == ONE_POD) {
                needs.exclusive.push(id.clone());
            }
            let waits = claim.class.as_ref().and_then(|class| self.volumes.classes.get(class));
            if claim.is_bound {
                needs.bound.push(claim.volume.clone());
            } else if claim.volume.is_empty() && waits.is_some_and(|class| class.waits) {
                needs.waiting.push(id);
            } else {
                is_unbound = true;
            }
        }
        if is_unbound {
            return Err("pod has unbound immediate PersistentVolumeClaims".to_owned());
        }
        Ok(Some(needs))
    }

    /// Whether a node can do for the claims.
    pub(crate) fn check_volumes(&self, needs: &Needs, class: u32, node: NodeId) -> Result<(), Reason> {
        if needs.exclusive.iter().any(|claim| self.claims_in_use.contains_key(claim)) {
            return Err(Reason::ClaimInUse);
        }
        let facts = &self.nodes.list[node as usize].facts;
        if let Some(limits) = self.volumes.limits.get(&facts.name) {
            self.check_limits(limits, class, node)?;
        }
        for name in &needs.bound {
            let Some(volume) = self.volumes.volumes.get(name) else { return Err(Reason::VolumeGone) };
            if !volume.is_reachable(&facts.name, &facts.labels) {
                return Err(Reason::VolumeElsewhere);
            }
        }
        let found = self.choose(needs, node);
        if found.iter().any(|choice| matches!(choice, Choice::None)) {
            return Err(Reason::NoVolume);
        }
        Ok(())
    }

    fn check_limits(&self, limits: &BTreeMap<String, i64>, class: u32, node: NodeId) -> Result<(), Reason> {
        let volumes_of = |class: u32| {
            let class = &self.classes[class];
            let claim = |name: &String| self.volumes.claims.get(&key(&class.key.namespace, name));
            class.claims.iter().filter_map(claim).map(|claim| claim.volume.as_str())
        };
        let pods = &self.nodes.list[node as usize].pods;
        let mut names: BTreeSet<&str> =
            pods.iter().flat_map(|pod| volumes_of(self.pods[*pod].class)).collect();
        let before = names.clone();
        names.extend(volumes_of(class));
        for (driver, limit) in limits {
            let count = |names: &BTreeSet<&str>| {
                let drivers =
                    names.iter().filter_map(|name| self.volumes.volumes.get(*name)?.driver.as_ref());
                drivers.filter(|other| *other == driver).count() as i64
            };
            let after = count(&names);
            if after > *limit && after > count(&before) {
                return Err(Reason::VolumeCount);
            }
        }
        Ok(())
    }

    /// What to do about the claims of a pod that goes to a node. Volumes are promised at once.
    pub fn claim_actions(&mut self, class: u32, node: NodeId) -> Vec<ClaimAction> {
        let Ok(Some(needs)) = self.needs(class) else { return Vec::new() };
        let choices = self.choose(&needs, node);
        let node = self.nodes.list[node as usize].facts.name.clone();
        let mut actions = Vec::new();
        for (id, choice) in needs.waiting.iter().zip(choices) {
            let (namespace, name) = id.split_once('/').expect("keys are made of both");
            let (namespace, name) = (namespace.to_owned(), name.to_owned());
            let claim = &self.volumes.claims[id];
            actions.push(match choice {
                Choice::Volume(volume) => {
                    let uid = claim.uid.clone();
                    self.volumes.promised.insert(volume.clone(), id.clone());
                    ClaimAction::Bind { namespace, name, uid, volume }
                }
                Choice::Provision | Choice::None => ClaimAction::Provision {
                    namespace,
                    name,
                    is_asked: claim.selected_node.as_ref() == Some(&node),
                },
            });
        }
        actions
    }

    /// Takes promises back, after a pod could not be bound.
    pub fn unpromise(&mut self, actions: &[ClaimAction]) {
        for action in actions {
            if let ClaimAction::Bind { volume, .. } = action {
                self.volumes.promised.remove(volume);
            }
        }
    }

    fn choose(&self, needs: &Needs, node: NodeId) -> Vec<Choice> {
        let facts = &self.nodes.list[node as usize].facts;
        let mut taken: BTreeSet<&str> = BTreeSet::new();
        let mut choices = Vec::new();
        for id in &needs.waiting {
            let claim = &self.volumes.claims[id];
            let volumes = self.volumes.volumes.iter().filter(|(name, volume)| {
                !taken.contains(name.as_str())
                    && self.volumes.promised.get(*name).is_none_or(|other| other == id)
                    && volume.suits(id, claim)
                    && volume.is_reachable(&facts.name, &facts.labels)
            });
            // The smallest that will do: larger ones are for larger claims.
            let best = volumes.min_by_key(|(_, volume)| (volume.claim.is_none(), volume.bytes));
            choices.push(match best {
                Some((name, _)) => {
                    taken.insert(name);
                    Choice::Volume(name.clone())
                }
                None => {
                    let class = claim.class.as_ref().and_then(|class| self.volumes.classes.get(class));
                    let provisions = class.is_some_and(|class| class.provisions);
                    if provisions { Choice::Provision } else { Choice::None }
                }
            });
        }
        choices
    }
}

enum Choice {
    Volume(String),
    Provision,
    None,
}

impl Volume {
    fn is_reachable(&self, node: &str, labels: &Labels) -> bool {
        self.from.as_ref().is_none_or(|terms| terms.iter().any(|term| term.holds(node, labels)))
    }

    fn suits(&self, id: &str, claim: &Claim) -> bool {
        let is_free = self.claim.as_ref().is_none_or(|owner| {
            key(&owner.namespace, &owner.name) == id && (owner.uid.is_empty() || owner.uid == claim.uid)
        });
        is_free
            && claim.class.as_deref().unwrap_or("") == self.class
            && self.bytes >= claim.bytes
            && self.is_block == claim.is_block
            && claim.modes.iter().all(|mode| self.modes.contains(mode))
            && claim.selector.as_ref().is_none_or(|selector| selector.matches(&self.labels))
    }
}
