//! The parts of objects that matter for placing a pod, as they come over the wire. Everything else is skipped while it
//! is parsed: a pod of 3 KB of JSON becomes some 200 bytes.
//!
//! Types here carry no behaviour. What is the same for equivalent pods is one value, [`PodSpec`], so that it can be
//! hashed and compared as a whole.

use api::taints::{TaintParts, TolerationParts};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// Text by name: labels, annotations, amounts.
pub type Map = BTreeMap<String, String>;

/// What every object has.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Meta {
    /// `metadata.name`
    pub name: String,
    /// `metadata.namespace`
    pub namespace: String,
    /// `metadata.uid`
    pub uid: String,
    /// `metadata.resourceVersion`
    pub resource_version: String,
    /// `metadata.labels`
    pub labels: Map,
    /// `metadata.annotations`
    pub annotations: Map,
    /// `metadata.deletionTimestamp`
    pub deletion_timestamp: Option<String>,
    /// `metadata.ownerReferences`
    pub owner_references: Vec<Owner>,
    /// `metadata.creationTimestamp`
    pub creation_timestamp: Option<String>,
    /// `metadata.generation`
    pub generation: i64,
}

/// Whatever is followed.
pub(crate) trait HasMeta {
    /// `metadata`
    fn meta(&self) -> &Meta;
}

macro_rules! has_meta {
    ($($kind:ty),*) => {
        $(impl HasMeta for $kind {
            fn meta(&self) -> &Meta {
                &self.metadata
            }
        })*
    };
}

has_meta!(Pod, Node, Labelled, Selecting, Claim, PersistentVolume, StorageClass, CsiNode);

/// An owner reference.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Owner {
    /// The owner's kind.
    pub kind: String,
    /// The owner's name.
    pub name: String,
    /// Whether it is the one that manages.
    pub controller: bool,
}

/// A pod.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Pod {
    /// `metadata`
    pub metadata: Meta,
    /// `spec`
    pub spec: PodSpec,
    /// `status`
    pub status: PodStatus,
}

/// What a pod asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodSpec {
    /// `spec.nodeName`: emptied before pods are compared.
    pub node_name: String,
    /// `spec.schedulerName`
    pub scheduler_name: String,
    /// `spec.containers`
    pub containers: Vec<Container>,
    /// `spec.initContainers`
    pub init_containers: Vec<Container>,
    /// `spec.overhead`
    pub overhead: Map,
    /// `spec.resources`
    pub resources: Resources,
    /// `spec.hostNetwork`
    pub host_network: bool,
    /// `spec.nodeSelector`
    pub node_selector: Map,
    /// `spec.affinity`
    pub affinity: Affinity,
    /// `spec.tolerations`
    pub tolerations: Vec<Toleration>,
    /// `spec.topologySpreadConstraints`
    pub topology_spread_constraints: Vec<SpreadConstraint>,
    /// `spec.volumes`
    pub volumes: Vec<Volume>,
    /// `spec.resourceClaims`
    pub resource_claims: Vec<Named>,
    /// `spec.schedulingGates`
    pub scheduling_gates: Vec<Named>,
    /// `spec.priority`
    pub priority: i32,
    /// `spec.preemptionPolicy`
    pub preemption_policy: Option<String>,
}

/// Something of which only the name matters.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
pub struct Named {
    /// Its name.
    pub name: String,
}

/// A container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Container {
    /// `name`: emptied before pods are compared.
    pub name: String,
    /// `image`
    pub image: String,
    /// `resources`
    pub resources: Resources,
    /// `ports`
    pub ports: Vec<Port>,
    /// `restartPolicy`
    pub restart_policy: Option<String>,
}

/// What is asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
pub struct Resources {
    /// `requests`
    pub requests: Map,
}

/// A port of a container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Port {
    /// `hostPort`
    pub host_port: u16,
    /// `hostIP`
    #[serde(rename = "hostIP")]
    pub host_ip: String,
    /// `protocol`
    pub protocol: String,
}

/// `spec.affinity`
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Affinity {
    /// `nodeAffinity`
    pub node_affinity: NodeAffinity,
    /// `podAffinity`
    pub pod_affinity: PodAffinity,
    /// `podAntiAffinity`
    pub pod_anti_affinity: PodAffinity,
}

/// `spec.affinity.nodeAffinity`
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
pub struct NodeAffinity {
    /// The terms of which one must hold.
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    pub required: Option<NodeSelector>,
    /// The terms that add to a node's score.
    #[serde(rename = "preferredDuringSchedulingIgnoredDuringExecution")]
    pub preferred: Vec<PreferredTerm>,
}

/// Terms of which one must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeSelector {
    /// The terms.
    pub node_selector_terms: Vec<NodeTerm>,
}

/// Requirements on a node that must all hold.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeTerm {
    /// On its labels.
    pub match_expressions: Vec<Expression>,
    /// On its name.
    pub match_fields: Vec<Expression>,
}

/// One requirement.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
pub struct Expression {
    /// The label or field.
    pub key: String,
    /// `In`, `NotIn`, `Exists`, `DoesNotExist`, `Gt`, `Lt`.
    pub operator: String,
    /// What it is compared with.
    pub values: Vec<String>,
}

/// A node term with its weight.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
pub struct PreferredTerm {
    /// 1 to 100.
    pub weight: i32,
    /// The term.
    pub preference: NodeTerm,
}

/// `podAffinity` and `podAntiAffinity`
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
pub struct PodAffinity {
    /// Terms that must all hold.
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    pub required: Vec<PodTerm>,
    /// Terms that add to a node's score.
    #[serde(rename = "preferredDuringSchedulingIgnoredDuringExecution")]
    pub preferred: Vec<WeightedPodTerm>,
}

/// Which pods are meant, and what "near" means.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodTerm {
    /// Which pods.
    pub label_selector: Value,
    /// In which namespaces.
    pub namespaces: Vec<String>,
    /// In which namespaces, by their labels.
    pub namespace_selector: Option<Value>,
    /// The label of nodes whose value is shared by those that are near each other.
    pub topology_key: String,
    /// Labels whose value must be the asking pod's.
    pub match_label_keys: Vec<String>,
    /// Labels whose value must not be the asking pod's.
    pub mismatch_label_keys: Vec<String>,
}

/// A pod term with its weight.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct WeightedPodTerm {
    /// 1 to 100.
    pub weight: i32,
    /// The term.
    pub pod_affinity_term: PodTerm,
}

/// A toleration.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
pub struct Toleration {
    /// The taint's key; every one if empty.
    pub key: String,
    /// `Exists` or `Equal`.
    pub operator: String,
    /// The taint's value.
    pub value: String,
    /// The taint's effect; every one if empty.
    pub effect: String,
}

impl<'a> From<&'a Toleration> for TolerationParts<'a> {
    fn from(it: &'a Toleration) -> TolerationParts<'a> {
        TolerationParts { key: &it.key, operator: &it.operator, value: &it.value, effect: &it.effect }
    }
}

/// How evenly pods must be spread.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SpreadConstraint {
    /// How uneven at most.
    pub max_skew: i32,
    /// Over the values of this label of nodes.
    pub topology_key: String,
    /// `DoNotSchedule` or `ScheduleAnyway`.
    pub when_unsatisfiable: String,
    /// Which pods are counted.
    pub label_selector: Value,
    /// Below so many domains, the emptiest counts as empty.
    pub min_domains: Option<i32>,
    /// `Honor` or `Ignore`.
    pub node_affinity_policy: Option<String>,
    /// `Honor` or `Ignore`.
    pub node_taints_policy: Option<String>,
    /// Labels whose value must be the asking pod's.
    pub match_label_keys: Vec<String>,
}

/// A volume.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Volume {
    /// Its name in the pod.
    pub name: String,
    /// A claim.
    pub persistent_volume_claim: Option<ClaimSource>,
    /// A claim that is made for the pod.
    pub ephemeral: Option<Value>,
}

/// A volume that is a claim.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ClaimSource {
    /// The claim.
    pub claim_name: String,
}

/// What has become of a pod.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodStatus {
    /// `status.phase`
    pub phase: String,
    /// `status.nominatedNodeName`
    pub nominated_node_name: String,
    /// `status.startTime`
    pub start_time: Option<String>,
    /// `status.conditions`
    pub conditions: Vec<Condition>,
    /// `status.containerStatuses`
    pub container_statuses: Vec<ContainerStatus>,
    /// `status.initContainerStatuses`
    pub init_container_statuses: Vec<ContainerStatus>,
}

/// What a container has of its node.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ContainerStatus {
    /// `name`
    pub name: String,
    /// `allocatedResources`
    pub allocated_resources: Map,
    /// `resources`: what is in force.
    pub resources: Option<Resources>,
}

/// A condition of a pod.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Condition {
    /// What it is about.
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Why, as a word.
    pub reason: String,
    /// Why, as a sentence.
    pub message: String,
}

/// A node.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Node {
    /// `metadata`
    pub metadata: Meta,
    /// `spec`
    pub spec: NodeSpec,
    /// `status`
    pub status: NodeStatus,
}

/// What is asked of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct NodeSpec {
    /// Whether it takes no new pods.
    pub unschedulable: bool,
    /// Its taints.
    pub taints: Vec<Taint>,
}

/// A taint.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Taint {
    /// Its key.
    pub key: String,
    /// Its value.
    pub value: String,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: String,
}

impl<'a> From<&'a Taint> for TaintParts<'a> {
    fn from(it: &'a Taint) -> TaintParts<'a> {
        TaintParts { key: &it.key, value: &it.value, effect: &it.effect }
    }
}

/// What a node has.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct NodeStatus {
    /// What pods may have of it.
    pub allocatable: Map,
    /// The images it holds.
    pub images: Vec<Image>,
}

/// An image on a node.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Image {
    /// Its names.
    pub names: Vec<String>,
    /// Its size.
    pub size_bytes: i64,
}

/// An object of which the labels matter: a namespace.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Labelled {
    /// `metadata`
    pub metadata: Meta,
}

/// An object that selects pods: a service, a set, a budget.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Selecting {
    /// `metadata`
    pub metadata: Meta,
    /// `spec`
    pub spec: SelectingSpec,
    /// `status`
    pub status: BudgetStatus,
}

/// How it selects.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct SelectingSpec {
    /// `spec.selector`
    pub selector: Value,
}

/// What a budget still allows.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct BudgetStatus {
    /// How many may go.
    pub disruptions_allowed: i32,
    /// Who was told to go already.
    pub disrupted_pods: BTreeMap<String, Value>,
}

/// A claim.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Claim {
    /// `metadata`
    pub metadata: Meta,
    /// `spec`
    pub spec: ClaimSpec,
    /// `status`
    pub status: Phase,
}

/// What a claim asks for.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ClaimSpec {
    /// The volume it is bound to.
    pub volume_name: String,
    /// Its class.
    pub storage_class_name: Option<String>,
    /// How it is used.
    pub access_modes: Vec<String>,
    /// How much it needs.
    pub resources: Resources,
    /// Which volumes may be taken.
    pub selector: Option<Value>,
    /// `Filesystem` or `Block`.
    pub volume_mode: Option<String>,
}

/// Where an object is in its life.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Phase {
    /// `Pending`, `Bound`, `Lost`, …
    pub phase: String,
}

/// A volume of the cluster.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct PersistentVolume {
    /// `metadata`
    pub metadata: Meta,
    /// `spec`
    pub spec: PersistentVolumeSpec,
}

/// What a volume offers.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PersistentVolumeSpec {
    /// How much.
    pub capacity: Map,
    /// Its class.
    pub storage_class_name: String,
    /// How it may be used.
    pub access_modes: Vec<String>,
    /// Who has it.
    pub claim_ref: Option<ClaimRef>,
    /// From where it can be reached.
    pub node_affinity: VolumeNodeAffinity,
    /// The driver that serves it.
    pub csi: Option<Driver>,
    /// `Filesystem` or `Block`.
    pub volume_mode: Option<String>,
}

/// Who has a volume.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct ClaimRef {
    /// The claim's namespace.
    pub namespace: String,
    /// The claim's name.
    pub name: String,
    /// The claim itself; empty where a volume is reserved for a name.
    pub uid: String,
}

/// From where a volume can be reached.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct VolumeNodeAffinity {
    /// The nodes.
    pub required: Option<NodeSelector>,
}

/// A CSI driver's name.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Driver {
    /// The name.
    pub driver: String,
}

/// A storage class.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct StorageClass {
    /// `metadata`
    pub metadata: Meta,
    /// Who makes volumes.
    pub provisioner: String,
    /// `Immediate` or `WaitForFirstConsumer`.
    pub volume_binding_mode: Option<String>,
}

/// What a node's CSI drivers can do.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct CsiNode {
    /// `metadata`
    pub metadata: Meta,
    /// `spec`
    pub spec: CsiNodeSpec,
}

/// The drivers of a node.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct CsiNodeSpec {
    /// The drivers.
    pub drivers: Vec<CsiDriver>,
}

/// A driver on a node.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct CsiDriver {
    /// Its name.
    pub name: String,
    /// How many volumes it serves at most.
    pub allocatable: Option<DriverLimit>,
}

/// How many volumes a driver serves.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct DriverLimit {
    /// At most.
    pub count: Option<i64>,
}
