//! What k8s-openapi's schemas do not carry: how lists, maps and structs are merged.
//!
//! The tables below say it as Kubernetes 1.35 does; [`overlay`] writes it into the definitions' JSON under
//! OpenAPI's extension names, from where it reaches [`Schema`](super::Schema), server-side apply, strategic merge
//! patches and, over OpenAPI, the patches that kubectl computes.
//!
//! Three rules need no table: a list that nobody names is atomic, the struct members `metadata`, `spec` and
//! `status` are embedded, and a member by which a list is keyed has an empty default where it is required.

use serde_json::{Map, Value, json};

/// How one member is merged.
#[derive(Clone, Copy)]
enum Fact {
    /// A list of structs, by members: for apply (`list_map`), for strategic merge patches (`strategy`), or both.
    Keyed { keys: &'static [&'static str], list_map: bool, strategy: &'static str },
    /// A list of scalars without repetition; `strategy` as above.
    Set { strategy: &'static str },
    /// A struct or map that a strategic merge patch treats so.
    Patch { strategy: &'static str },
    /// A map or struct that apply takes as one value, or does not although its type says so.
    MapType(&'static str),
    /// A struct that is there, empty, whenever its parent is (Go embeds its value, not a pointer).
    Embedded,
}

/// Elements are found by these members, in apply and (by the first of them) in strategic merge patches.
const fn merge_by(keys: &'static [&'static str]) -> Fact {
    Fact::Keyed { keys, list_map: true, strategy: "merge" }
}

/// As [`merge_by`], for elements that are unions: a patch names the members that stay.
const fn merge_by_retaining(keys: &'static [&'static str]) -> Fact {
    Fact::Keyed { keys, list_map: true, strategy: "merge,retainKeys" }
}

/// Elements are found by these members in apply only.
const fn keyed_by(keys: &'static [&'static str]) -> Fact {
    Fact::Keyed { keys, list_map: true, strategy: "" }
}

/// Elements are found by this member in strategic merge patches only.
const fn patch_by(keys: &'static [&'static str]) -> Fact {
    Fact::Keyed { keys, list_map: false, strategy: "merge" }
}

const SET: Fact = Fact::Set { strategy: "" };
const MERGED_SET: Fact = Fact::Set { strategy: "merge" };
const RETAIN_KEYS: Fact = Fact::Patch { strategy: "retainKeys" };
const REPLACE: Fact = Fact::Patch { strategy: "replace" };
const ATOMIC: Fact = Fact::MapType("atomic");
const GRANULAR: Fact = Fact::MapType("granular");
const EMBEDDED: Fact = Fact::Embedded;

/// Definition (without the prefix of its module), member, fact.
#[rustfmt::skip]
const FACTS: &[(&str, &str, Fact)] = &[
    ("admissionregistration.v1.MutatingWebhook", "matchConditions", merge_by(&["name"])),
    ("admissionregistration.v1.MutatingWebhookConfiguration", "webhooks", merge_by(&["name"])),
    ("admissionregistration.v1.ValidatingAdmissionPolicyBindingSpec", "validationActions", SET),
    ("admissionregistration.v1.ValidatingAdmissionPolicySpec", "matchConditions", merge_by(&["name"])),
    ("admissionregistration.v1.ValidatingAdmissionPolicySpec", "variables", merge_by(&["name"])),
    ("admissionregistration.v1.ValidatingAdmissionPolicyStatus", "conditions", keyed_by(&["type"])),
    ("admissionregistration.v1.ValidatingWebhook", "matchConditions", merge_by(&["name"])),
    ("admissionregistration.v1.ValidatingWebhookConfiguration", "webhooks", merge_by(&["name"])),
    ("apps.v1.DaemonSetStatus", "conditions", merge_by(&["type"])),
    ("apps.v1.DeploymentSpec", "strategy", RETAIN_KEYS),
    ("apps.v1.DeploymentStatus", "conditions", merge_by(&["type"])),
    ("apps.v1.ReplicaSetStatus", "conditions", merge_by(&["type"])),
    ("apps.v1.StatefulSetStatus", "conditions", merge_by(&["type"])),
    ("autoscaling.v2.HorizontalPodAutoscalerStatus", "conditions", merge_by(&["type"])),
    ("batch.v1.JobStatus", "conditions", patch_by(&["type"])),
    ("batch.v1.PodFailurePolicyOnExitCodesRequirement", "values", SET),
    ("batch.v1.UncountedTerminatedPods", "failed", SET),
    ("batch.v1.UncountedTerminatedPods", "succeeded", SET),
    ("certificates.v1.CertificateSigningRequestStatus", "conditions", keyed_by(&["type"])),
    ("core.v1.ComponentStatus", "conditions", merge_by(&["type"])),
    ("core.v1.Container", "env", merge_by(&["name"])),
    ("core.v1.Container", "ports", merge_by(&["containerPort", "protocol"])),
    ("core.v1.Container", "volumeDevices", merge_by(&["devicePath"])),
    ("core.v1.Container", "volumeMounts", merge_by(&["mountPath"])),
    ("core.v1.ContainerRestartRuleOnExitCodes", "values", SET),
    ("core.v1.ContainerStatus", "allocatedResourcesStatus", merge_by(&["name"])),
    ("core.v1.ContainerStatus", "volumeMounts", merge_by(&["mountPath"])),
    ("core.v1.EphemeralContainer", "env", merge_by(&["name"])),
    ("core.v1.EphemeralContainer", "ports", merge_by(&["containerPort", "protocol"])),
    ("core.v1.EphemeralContainer", "volumeDevices", merge_by(&["devicePath"])),
    ("core.v1.EphemeralContainer", "volumeMounts", merge_by(&["mountPath"])),
    ("core.v1.NamespaceStatus", "conditions", merge_by(&["type"])),
    ("core.v1.NodeSpec", "podCIDRs", MERGED_SET),
    ("core.v1.NodeStatus", "addresses", merge_by(&["type"])),
    ("core.v1.NodeStatus", "conditions", merge_by(&["type"])),
    ("core.v1.PersistentVolumeClaimStatus", "allocatedResourceStatuses", GRANULAR),
    ("core.v1.PersistentVolumeClaimStatus", "conditions", merge_by(&["type"])),
    ("core.v1.PersistentVolumeSpec", "claimRef", GRANULAR),
    ("core.v1.PodSpec", "containers", merge_by(&["name"])),
    ("core.v1.PodSpec", "ephemeralContainers", merge_by(&["name"])),
    ("core.v1.PodSpec", "hostAliases", merge_by(&["ip"])),
    ("core.v1.PodSpec", "imagePullSecrets", merge_by(&["name"])),
    ("core.v1.PodSpec", "initContainers", merge_by(&["name"])),
    ("core.v1.PodSpec", "nodeSelector", ATOMIC),
    ("core.v1.PodSpec", "resourceClaims", merge_by_retaining(&["name"])),
    ("core.v1.PodSpec", "schedulingGates", merge_by(&["name"])),
    ("core.v1.PodSpec", "topologySpreadConstraints", merge_by(&["topologyKey", "whenUnsatisfiable"])),
    ("core.v1.PodSpec", "volumes", merge_by_retaining(&["name"])),
    ("core.v1.PodStatus", "conditions", merge_by(&["type"])),
    ("core.v1.PodStatus", "hostIPs", patch_by(&["ip"])),
    ("core.v1.PodStatus", "podIPs", merge_by(&["ip"])),
    ("core.v1.PodStatus", "resourceClaimStatuses", merge_by_retaining(&["name"])),
    ("core.v1.ReplicationControllerSpec", "selector", ATOMIC),
    ("core.v1.ReplicationControllerStatus", "conditions", merge_by(&["type"])),
    ("core.v1.ResourceRequirements", "claims", keyed_by(&["name"])),
    ("core.v1.ResourceStatus", "resources", keyed_by(&["resourceID"])),
    ("core.v1.ServiceAccount", "secrets", merge_by(&["name"])),
    ("core.v1.ServiceSpec", "ports", merge_by(&["port", "protocol"])),
    ("core.v1.ServiceSpec", "selector", ATOMIC),
    ("core.v1.ServiceStatus", "conditions", merge_by(&["type"])),
    ("discovery.v1.Endpoint", "addresses", SET),
    ("flowcontrol.v1.FlowSchemaStatus", "conditions", merge_by(&["type"])),
    ("flowcontrol.v1.NonResourcePolicyRule", "nonResourceURLs", SET),
    ("flowcontrol.v1.NonResourcePolicyRule", "verbs", SET),
    ("flowcontrol.v1.PriorityLevelConfigurationStatus", "conditions", merge_by(&["type"])),
    ("flowcontrol.v1.ResourcePolicyRule", "apiGroups", SET),
    ("flowcontrol.v1.ResourcePolicyRule", "namespaces", SET),
    ("flowcontrol.v1.ResourcePolicyRule", "resources", SET),
    ("flowcontrol.v1.ResourcePolicyRule", "verbs", SET),
    ("networking.v1.ServiceCIDRStatus", "conditions", merge_by(&["type"])),
    ("node.v1.Scheduling", "nodeSelector", ATOMIC),
    ("policy.v1.PodDisruptionBudgetSpec", "selector", REPLACE),
    ("policy.v1.PodDisruptionBudgetStatus", "conditions", merge_by(&["type"])),
    ("resource.v1.AllocatedDeviceStatus", "conditions", keyed_by(&["type"])),
    ("resource.v1.ResourceClaimStatus", "devices", keyed_by(&["driver", "device", "pool", "shareID"])),
    ("resource.v1.ResourceClaimStatus", "reservedFor", merge_by(&["uid"])),
    ("storage.v1.CSIDriverSpec", "volumeLifecycleModes", SET),
    ("storage.v1.CSINodeSpec", "drivers", merge_by(&["name"])),
    ("apiextensions.v1.CustomResourceDefinitionStatus", "conditions", keyed_by(&["type"])),
    ("apiextensions.v1.JSONSchemaProps", "x-kubernetes-validations", merge_by(&["rule"])),
    ("meta.v1.ObjectMeta", "finalizers", MERGED_SET),
    ("meta.v1.ObjectMeta", "ownerReferences", merge_by(&["uid"])),
    ("apiregistration.v1.APIServiceStatus", "conditions", merge_by(&["type"])),
    ("admissionregistration.v1.MutatingWebhook", "clientConfig", EMBEDDED),
    ("admissionregistration.v1.ValidatingWebhook", "clientConfig", EMBEDDED),
    ("apps.v1.DaemonSetSpec", "template", EMBEDDED),
    ("apps.v1.DaemonSetSpec", "updateStrategy", EMBEDDED),
    ("apps.v1.DeploymentSpec", "strategy", EMBEDDED),
    ("apps.v1.DeploymentSpec", "template", EMBEDDED),
    ("apps.v1.ReplicaSetSpec", "template", EMBEDDED),
    ("apps.v1.StatefulSetSpec", "template", EMBEDDED),
    ("apps.v1.StatefulSetSpec", "updateStrategy", EMBEDDED),
    ("apps.v1.StatefulSetStatus", "availableReplicas", EMBEDDED),
    ("authentication.v1.SelfSubjectReviewStatus", "userInfo", EMBEDDED),
    ("authentication.v1.TokenReviewStatus", "user", EMBEDDED),
    ("autoscaling.v1.HorizontalPodAutoscalerSpec", "scaleTargetRef", EMBEDDED),
    ("autoscaling.v2.ContainerResourceMetricSource", "target", EMBEDDED),
    ("autoscaling.v2.ContainerResourceMetricStatus", "current", EMBEDDED),
    ("autoscaling.v2.ExternalMetricSource", "metric", EMBEDDED),
    ("autoscaling.v2.ExternalMetricSource", "target", EMBEDDED),
    ("autoscaling.v2.ExternalMetricStatus", "current", EMBEDDED),
    ("autoscaling.v2.ExternalMetricStatus", "metric", EMBEDDED),
    ("autoscaling.v2.HorizontalPodAutoscalerSpec", "scaleTargetRef", EMBEDDED),
    ("autoscaling.v2.ObjectMetricSource", "describedObject", EMBEDDED),
    ("autoscaling.v2.ObjectMetricSource", "metric", EMBEDDED),
    ("autoscaling.v2.ObjectMetricSource", "target", EMBEDDED),
    ("autoscaling.v2.ObjectMetricStatus", "current", EMBEDDED),
    ("autoscaling.v2.ObjectMetricStatus", "describedObject", EMBEDDED),
    ("autoscaling.v2.ObjectMetricStatus", "metric", EMBEDDED),
    ("autoscaling.v2.PodsMetricSource", "metric", EMBEDDED),
    ("autoscaling.v2.PodsMetricSource", "target", EMBEDDED),
    ("autoscaling.v2.PodsMetricStatus", "current", EMBEDDED),
    ("autoscaling.v2.PodsMetricStatus", "metric", EMBEDDED),
    ("autoscaling.v2.ResourceMetricSource", "target", EMBEDDED),
    ("autoscaling.v2.ResourceMetricStatus", "current", EMBEDDED),
    ("batch.v1.CronJobSpec", "jobTemplate", EMBEDDED),
    ("batch.v1.JobSpec", "template", EMBEDDED),
    ("core.v1.Binding", "target", EMBEDDED),
    ("core.v1.Container", "resources", EMBEDDED),
    ("core.v1.ContainerStatus", "lastState", EMBEDDED),
    ("core.v1.ContainerStatus", "state", EMBEDDED),
    ("core.v1.EphemeralContainer", "resources", EMBEDDED),
    ("core.v1.Event", "involvedObject", EMBEDDED),
    ("core.v1.Event", "source", EMBEDDED),
    ("core.v1.NodeDaemonEndpoints", "kubeletEndpoint", EMBEDDED),
    ("core.v1.NodeStatus", "daemonEndpoints", EMBEDDED),
    ("core.v1.NodeStatus", "nodeInfo", EMBEDDED),
    ("core.v1.PersistentVolumeClaimSpec", "resources", EMBEDDED),
    ("core.v1.PodTemplate", "template", EMBEDDED),
    ("core.v1.PreferredSchedulingTerm", "preference", EMBEDDED),
    ("core.v1.ServiceStatus", "loadBalancer", EMBEDDED),
    ("core.v1.WeightedPodAffinityTerm", "podAffinityTerm", EMBEDDED),
    ("discovery.v1.Endpoint", "conditions", EMBEDDED),
    ("events.v1.Event", "deprecatedSource", EMBEDDED),
    ("events.v1.Event", "regarding", EMBEDDED),
    ("flowcontrol.v1.FlowSchemaSpec", "priorityLevelConfiguration", EMBEDDED),
    ("flowcontrol.v1.LimitedPriorityLevelConfiguration", "limitResponse", EMBEDDED),
    ("networking.v1.HTTPIngressPath", "backend", EMBEDDED),
    ("networking.v1.IngressServiceBackend", "port", EMBEDDED),
    ("networking.v1.IngressStatus", "loadBalancer", EMBEDDED),
    ("networking.v1.NetworkPolicySpec", "podSelector", EMBEDDED),
    ("rbac.v1.ClusterRoleBinding", "roleRef", EMBEDDED),
    ("rbac.v1.RoleBinding", "roleRef", EMBEDDED),
    ("resource.v1.AllocationResult", "devices", EMBEDDED),
    ("resource.v1.ResourceClaimSpec", "devices", EMBEDDED),
    ("resource.v1.ResourceSliceSpec", "pool", EMBEDDED),
    ("storage.v1.VolumeAttachmentSpec", "source", EMBEDDED),
    ("apiextensions.v1.CustomResourceDefinitionSpec", "names", EMBEDDED),
    ("apiextensions.v1.CustomResourceDefinitionStatus", "acceptedNames", EMBEDDED),
];

/// Structs that apply takes as one value, wherever they stand.
#[rustfmt::skip]
const ATOMIC_STRUCTS: &[&str] = &[
    "admissionregistration.v1.MatchResources",
    "admissionregistration.v1.NamedRuleWithOperations",
    "admissionregistration.v1.ParamKind",
    "admissionregistration.v1.ParamRef",
    "admissionregistration.v1.Variable",
    "autoscaling.v1.CrossVersionObjectReference",
    "core.v1.ConfigMapKeySelector",
    "core.v1.EndpointAddress",
    "core.v1.EndpointPort",
    "core.v1.FileKeySelector",
    "core.v1.LocalObjectReference",
    "core.v1.NodeSelector",
    "core.v1.NodeSelectorTerm",
    "core.v1.ObjectFieldSelector",
    "core.v1.ObjectReference",
    "core.v1.ResourceFieldSelector",
    "core.v1.ScopeSelector",
    "core.v1.SecretKeySelector",
    "core.v1.SecretReference",
    "core.v1.TopologySelectorTerm",
    "core.v1.TypedLocalObjectReference",
    "discovery.v1.EndpointPort",
    "networking.v1.ServiceBackendPort",
    "rbac.v1.RoleRef",
    "rbac.v1.Subject",
    "meta.v1.LabelSelector",
    "meta.v1.OwnerReference",
    "io.k8s.apimachinery.pkg.runtime.RawExtension",
];

/// Defaults of members by which lists are keyed, other than the empty ones of required members.
const KEY_DEFAULTS: &[(&str, &str, &str)] =
    &[("core.v1.ContainerPort", "protocol", "TCP"), ("core.v1.ServicePort", "protocol", "TCP")];

/// Adds the facts to the definitions they are about. Facts about definitions that are not there are left out: the
/// kinds that would need them are not served.
pub(super) fn overlay(definitions: &mut Map<String, Value>) {
    apply_rules(definitions);
    for name in ATOMIC_STRUCTS {
        if let Some(definition) = definitions.get_mut(&full_name(name)).and_then(Value::as_object_mut) {
            definition.insert("x-kubernetes-map-type".into(), "atomic".into());
        }
    }
    for &(definition, member, fact) in FACTS {
        let Some(schema) = property(definitions, &full_name(definition), member) else { continue };
        let element = element_name(schema);
        write(schema, fact);
        if let (Fact::Keyed { keys, list_map: true, .. }, Some(element)) = (fact, element) {
            for key in keys {
                default_key(definitions, &element, key);
            }
        }
    }
    for &(definition, member, default) in KEY_DEFAULTS {
        if let Some(schema) = property(definitions, &full_name(definition), member) {
            schema.insert("default".into(), default.into());
        }
    }
}

/// The rules that need no table.
fn apply_rules(definitions: &mut Map<String, Value>) {
    for (name, definition) in definitions {
        let properties = definition.get_mut("properties").and_then(Value::as_object_mut);
        for (member, schema) in properties.into_iter().flatten() {
            let Some(schema) = schema.as_object_mut() else { continue };
            let list_of_objects = name.ends_with("List") && member == "items";
            if schema.get("type").is_some_and(|ty| ty == "array") && !list_of_objects {
                // Our own kinds say it where they are defined.
                schema.entry("x-kubernetes-list-type").or_insert_with(|| "atomic".into());
            }
            let embedded = matches!(member.as_str(), "metadata" | "spec" | "status");
            if embedded && is_reference(schema) && !name.ends_with(".CustomResourceSubresources") {
                schema.insert("default".into(), json!({}));
            }
        }
    }
}

fn write(schema: &mut Map<String, Value>, fact: Fact) {
    let mut set = |name: &str, value: Value| schema.insert(format!("x-kubernetes-{name}"), value);
    let strategy = match fact {
        Fact::Keyed { keys, list_map, strategy } => {
            if list_map {
                set("list-type", "map".into());
                set("list-map-keys", keys.into());
            }
            if !strategy.is_empty() {
                set("patch-merge-key", keys[0].into());
            }
            strategy
        }
        Fact::Set { strategy } => {
            set("list-type", "set".into());
            strategy
        }
        Fact::Patch { strategy } => strategy,
        Fact::MapType(map_type) => {
            set("map-type", map_type.into());
            ""
        }
        Fact::Embedded => {
            schema.insert("default".into(), json!({}));
            return;
        }
    };
    if !strategy.is_empty() {
        set("patch-strategy", strategy.into());
    }
}

/// Gives the member by which a list is keyed its empty default, if it is required.
fn default_key(definitions: &mut Map<String, Value>, element: &str, key: &str) {
    let required = definitions.get(element).and_then(|definition| definition["required"].as_array());
    if !required.is_some_and(|required| required.iter().any(|member| member == key)) {
        return;
    }
    if let Some(schema) = property(definitions, element, key) {
        let empty = if schema.get("type").is_some_and(|ty| ty == "integer") { json!(0) } else { json!("") };
        schema.insert("default".into(), empty);
    }
}

pub(super) fn property<'a>(
    definitions: &'a mut Map<String, Value>,
    definition: &str,
    member: &str,
) -> Option<&'a mut Map<String, Value>> {
    definitions.get_mut(definition)?.get_mut("properties")?.get_mut(member)?.as_object_mut()
}

/// The definition that a list's elements refer to.
fn element_name(schema: &Map<String, Value>) -> Option<String> {
    let items = schema.get("items")?;
    let target = items.get("$ref").or_else(|| items.get("allOf")?.get(0)?.get("$ref"))?.as_str()?;
    target.rsplit('/').next().map(str::to_owned)
}

fn is_reference(schema: &Map<String, Value>) -> bool {
    schema.contains_key("$ref") || schema.contains_key("allOf")
}

/// The name as the definitions have it: `core.v1.Pod` stands for `io.k8s.api.core.v1.Pod`.
pub(super) fn full_name(short: &str) -> String {
    let prefix = match short.split('.').next() {
        Some("io") => "",
        Some("meta") => "io.k8s.apimachinery.pkg.apis.",
        Some("apiextensions") => "io.k8s.apiextensions-apiserver.pkg.apis.",
        Some("apiregistration") => "io.k8s.kube-aggregator.pkg.apis.",
        _ => "io.k8s.api.",
    };
    format!("{prefix}{short}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::raw_definitions_of;
    use k8s_openapi::api::{
        admissionregistration::v1 as admissionregistration,
        apps::v1 as apps,
        authentication::v1 as authentication,
        autoscaling::{v1 as autoscaling_v1, v2 as autoscaling},
        batch::v1 as batch,
        certificates::v1 as certificates,
        core::v1 as core,
        discovery::v1 as discovery,
        events::v1 as events,
        flowcontrol::v1 as flowcontrol,
        networking::v1 as networking,
        node::v1 as node,
        policy::v1 as policy,
        rbac::v1 as rbac,
        resource::v1 as resource,
        storage::v1 as storage,
    };
    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1 as apiextensions;
    use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1 as apiregistration;
    use schemars::SchemaGenerator;

    macro_rules! define {
        ($($ty:ty),* $(,)?) => {
            vec![$(|generator: &mut SchemaGenerator| { generator.subschema_for::<$ty>(); }),*]
        };
    }

    /// Every type that a fact is about, reached from its kind.
    #[rustfmt::skip]
    fn all() -> Map<String, Value> {
        let types: Vec<fn(&mut SchemaGenerator)> = define![
            admissionregistration::MutatingWebhookConfiguration, admissionregistration::ValidatingAdmissionPolicy, admissionregistration::ValidatingAdmissionPolicyBinding,
            admissionregistration::ValidatingWebhookConfiguration, apiextensions::CustomResourceDefinition, apiregistration::APIService,
            apps::ControllerRevision, apps::DaemonSet, apps::Deployment,
            apps::ReplicaSet, apps::StatefulSet, authentication::SelfSubjectReview,
            authentication::TokenReview, autoscaling::HorizontalPodAutoscaler, autoscaling_v1::HorizontalPodAutoscaler,
            batch::CronJob, batch::Job, certificates::CertificateSigningRequest,
            core::Binding, core::ComponentStatus, core::Endpoints,
            core::Event, core::Namespace, core::Node,
            core::PersistentVolume, core::PersistentVolumeClaim, core::Pod,
            core::PodTemplate, core::ReplicationController, core::ResourceQuota,
            core::Service, core::ServiceAccount, discovery::EndpointSlice,
            events::Event, flowcontrol::FlowSchema, flowcontrol::PriorityLevelConfiguration,
            networking::Ingress, networking::NetworkPolicy, networking::ServiceCIDR,
            node::RuntimeClass, policy::PodDisruptionBudget, rbac::ClusterRoleBinding,
            rbac::RoleBinding, resource::ResourceClaim, resource::ResourceSlice,
            storage::CSIDriver, storage::CSINode, storage::StorageClass,
            storage::VolumeAttachment,
        ];
        raw_definitions_of(types)
    }

    #[test]
    fn every_fact_is_about_something_that_exists() {
        let mut definitions = all();
        let members = FACTS.iter().map(|&(definition, member, _)| (definition, member));
        let keys = KEY_DEFAULTS.iter().map(|&(definition, member, _)| (definition, member));
        for (definition, member) in members.chain(keys) {
            let found = property(&mut definitions, &full_name(definition), member).is_some();
            assert!(found, "{definition} has no {member}");
        }
        for name in ATOMIC_STRUCTS {
            assert!(definitions.contains_key(&full_name(name)), "there is no {name}");
        }
    }

    #[test]
    fn facts_read_as_upstreams_openapi() {
        let definitions = all();
        let check = |definition: &str, member: &str, expected: Value| {
            let mut schema = definitions[&full_name(definition)]["properties"][member].clone();
            let schema = schema.as_object_mut().expect("an object");
            schema.retain(|name, _| name.starts_with("x-kubernetes") || name == "default");
            assert_eq!(Value::Object(schema.clone()), expected, "{definition}.{member}");
        };
        check(
            "core.v1.Container",
            "ports",
            json!({"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["containerPort", "protocol"],
                "x-kubernetes-patch-merge-key": "containerPort", "x-kubernetes-patch-strategy": "merge"}),
        );
        check("core.v1.ContainerPort", "containerPort", json!({"default": 0}));
        check("core.v1.ContainerPort", "protocol", json!({"default": "TCP"}));
        check("core.v1.Container", "args", json!({"x-kubernetes-list-type": "atomic"}));
        check(
            "apps.v1.DeploymentSpec",
            "strategy",
            json!({"x-kubernetes-patch-strategy": "retainKeys", "default": {}}),
        );
        check(
            "meta.v1.ObjectMeta",
            "finalizers",
            json!({"x-kubernetes-list-type": "set", "x-kubernetes-patch-strategy": "merge"}),
        );
        check(
            "batch.v1.JobStatus",
            "conditions",
            json!({"x-kubernetes-list-type": "atomic", "x-kubernetes-patch-merge-key": "type",
                "x-kubernetes-patch-strategy": "merge"}),
        );
        check("core.v1.PersistentVolumeSpec", "claimRef", json!({"x-kubernetes-map-type": "granular"}));
        check("core.v1.Pod", "spec", json!({"default": {}}));
    }
}
