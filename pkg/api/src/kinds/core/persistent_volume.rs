//! PersistentVolume: storage that outlives pods.

use crate::field::{Errors, Field, Reason};
use crate::kind::{Kind, column, wide};
use crate::kinds::pod_spec::resources::{quantity, validate_basic};
use crate::kinds::pod_spec::{
    default_volume_source, fill, round_resources, validate_access_modes, validate_node_selector,
    validate_volume_source,
};
use crate::object::set_default;
use crate::printing::{age_column, at, items, name_column, text};
use crate::{equality, names, object};
use k8s_openapi::api::core::v1::PersistentVolume;
use serde_json::{Map, Value, json};

/// Sources of a persistent volume, in the order that upstream looks at them.
const SOURCES: &[&str] = &[
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "glusterfs",
    "flocker",
    "nfs",
    "rbd",
    "quobyte",
    "cephfs",
    "iscsi",
    "cinder",
    "fc",
    "flexVolume",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "scaleIO",
    "local",
    "storageos",
    "csi",
];

pub(crate) fn kind() -> Kind {
    Kind {
        validate_name: names::dns_subdomain_name,
        default,
        prepare: |volume, old| {
            if old.is_none() {
                volume["status"] = json!({"phase": "Pending"});
            }
        },
        validate,
        validate_update,
        columns: vec![
            name_column(),
            column("Capacity", "string", |volume, _| {
                let capacity = text(volume, "spec.capacity.storage");
                if capacity.is_empty() { "0" } else { capacity }.into()
            }),
            column("Access Modes", "string", |volume, _| {
                access_modes(items(volume, "spec.accessModes")).into()
            }),
            column("Reclaim Policy", "string", |volume, _| {
                text(volume, "spec.persistentVolumeReclaimPolicy").into()
            }),
            column("Status", "string", |volume, _| phase(volume).into()),
            column("Claim", "string", |volume, _| claim(volume).into()),
            column("StorageClass", "string", |volume, _| storage_class(volume).unwrap_or_default().into()),
            column("VolumeAttributesClass", "string", |volume, _| {
                text_or_unset(volume, "spec.volumeAttributesClassName").into()
            }),
            column("Reason", "string", |volume, _| text(volume, "status.reason").into()),
            age_column(),
            wide("VolumeMode", "string", |volume, _| text_or_unset(volume, "spec.volumeMode").into()),
        ],
        ..Kind::new::<PersistentVolume>().short(&["pv"]).with_status()
    }
}

/// Modes as `RWO,ROX`.
pub(super) fn access_modes(modes: &[Value]) -> String {
    let short = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let found = short.iter().filter(|(mode, _)| modes.iter().any(|given| given == mode));
    found.map(|(_, short)| *short).collect::<Vec<_>>().join(",")
}

/// The storage class that a volume or claim names, in the annotation of old or in its spec.
pub fn storage_class(object: &Value) -> Option<&str> {
    let annotation = at(object, "metadata.annotations")
        .and_then(|annotations| annotations.get("volume.beta.kubernetes.io/storage-class"));
    annotation.or_else(|| at(object, "spec.storageClassName")).and_then(Value::as_str)
}

/// The phase, unless the object is on its way out.
pub(super) fn phase(object: &Value) -> &str {
    if object::meta(object, "deletionTimestamp").is_some() {
        "Terminating"
    } else {
        text(object, "status.phase")
    }
}

/// The text at a path, `<unset>` if there is none.
pub(super) fn text_or_unset<'a>(object: &'a Value, path: &str) -> &'a str {
    at(object, path).and_then(Value::as_str).unwrap_or("<unset>")
}

fn claim(volume: &Value) -> String {
    match at(volume, "spec.claimRef") {
        Some(claim) => format!("{}/{}", text(claim, "namespace"), text(claim, "name")),
        None => String::new(),
    }
}

fn default(volume: &mut Value) {
    object::object_mut(volume, "status");
    fill(&mut volume["status"], "phase", "Pending");
    let Some(spec) = volume.get_mut("spec").filter(|spec| spec.is_object()) else { return };
    fill(spec, "persistentVolumeReclaimPolicy", "Retain");
    set_default(spec, "volumeMode", "Filesystem");
    round_resources(spec.get_mut("capacity"));
    default_volume_source(spec);
}

fn validate(volume: &Field<'_>, errors: &mut Errors) {
    let spec = volume.get("spec");
    spec.get("accessModes").required(errors);
    validate_access_modes(&spec.get("accessModes"), errors);
    validate_capacity(&spec.get("capacity"), errors);
    let policy = spec.get("persistentVolumeReclaimPolicy");
    if !policy.text().is_empty() {
        policy.one_of(&["Delete", "Recycle", "Retain"], errors);
    }
    let affinity = spec.get("nodeAffinity");
    if affinity.exists() {
        let required = affinity.get("required");
        if required.exists() {
            validate_node_selector(&required, errors);
        } else {
            required.required_because("must specify required node constraints", errors);
        }
    }
    validate_volume_source(&spec, SOURCES, errors);
    validate_csi(&spec.get("csi"), errors);
    if spec.get("local").exists() && !affinity.exists() {
        affinity.required_because("Local volume requires node affinity", errors);
    }
    let host_path = spec.get("hostPath");
    let host_path = host_path.get("path");
    if host_path.exists() && host_path.text().chars().all(|c| c == '/') && policy.text() == "Recycle" {
        policy.forbidden("may not be 'recycle' for a hostPath mount of '/'", errors);
    }
    let class = spec.get("storageClassName");
    if !class.text().is_empty() {
        class.conforms(names::is_dns1123_subdomain, errors);
    }
    spec.get("volumeMode").one_of(&["Block", "Filesystem"], errors);
    let attributes = spec.get("volumeAttributesClassName");
    if attributes.exists() {
        if attributes.required_because("an empty string is disallowed", errors) {
            attributes.conforms(names::is_dns1123_subdomain, errors);
        }
        if !spec.get("csi").exists() {
            let detail = "has to be specified when using volumeAttributesClassName";
            spec.get("csi").required_because(detail, errors);
        }
    }
}

fn validate_capacity(capacity: &Field<'_>, errors: &mut Errors) {
    capacity.required(errors);
    if !capacity.key("storage").exists() || capacity.len() > 1 {
        capacity.not_supported(&["storage"], errors);
    }
    validate_basic(capacity, errors);
    for (_, amount) in capacity.entries() {
        if quantity(&amount).is_some_and(|amount| amount.is_zero() || amount.is_negative()) {
            amount.invalid("must be greater than zero", errors);
        }
    }
}

fn validate_csi(csi: &Field<'_>, errors: &mut Errors) {
    if !csi.exists() {
        return;
    }
    csi.get("volumeHandle").required(errors);
    for name in [
        "controllerPublishSecretRef",
        "controllerExpandSecretRef",
        "nodePublishSecretRef",
        "nodeExpandSecretRef",
    ] {
        let secret = csi.get(name);
        if !secret.exists() {
            continue;
        }
        let (name, namespace) = (secret.get("name"), secret.get("namespace"));
        if name.required(errors) {
            name.conforms(names::is_dns1123_subdomain, errors);
        }
        if namespace.required(errors) {
            namespace.conforms(names::is_dns1123_label, errors);
        }
    }
}

fn validate_update(volume: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
    let (spec, old_spec) = (volume.get("spec"), old.get("spec"));
    let source = |spec: &Field<'_>| -> Map<String, Value> {
        let members = spec.object().into_iter().flatten();
        members
            .filter(|(name, _)| SOURCES.contains(&name.as_str()))
            .map(|(n, v)| (n.clone(), v.clone()))
            .collect()
    };
    let (mut new_source, old_source) = (source(&spec), source(&old_spec));
    // A secret for growing may be given later.
    let had_secret = old_source.get("csi").is_some_and(|csi| csi.get("controllerExpandSecretRef").is_some());
    if let Some(csi) = new_source.get_mut("csi").and_then(Value::as_object_mut)
        && !had_secret
    {
        csi.remove("controllerExpandSecretRef");
    }
    if !equality::same(&new_source.into(), &old_source.into()) {
        let shown = spec.get("persistentvolumesource");
        shown.complain(Reason::Forbidden, "spec.persistentvolumesource is immutable after creation", errors);
    }
    // Upstream's paths leave `spec` out here.
    let (mode, old_mode) = (spec.get("volumeMode"), old_spec.get("volumeMode"));
    volume.get("volumeMode").with_value(mode.value()).immutable(&old_mode, errors);
    let (affinity, old_affinity) = (spec.get("nodeAffinity"), old_spec.get("nodeAffinity"));
    if old_affinity.exists() && !equality::same(affinity.value(), old_affinity.value()) {
        let detail = "field is immutable, except for updating from beta label to GA";
        volume.get("nodeAffinity").invalid_value(affinity.value().clone(), detail, errors);
    }
    let class = spec.get("volumeAttributesClassName");
    if old_spec.get("volumeAttributesClassName").exists() && !class.exists() {
        class.forbidden("update from non-nil value to nil is forbidden", errors);
    }
}
