//! PersistentVolumeClaim: a wish for storage, bound to a volume that fulfils it.

use super::persistent_volume::{access_modes, phase, storage_class, text_or_unset};
use crate::field::{Errors, Field};
use crate::kind::{Kind, column, wide};
use crate::kinds::pod_spec::resources::{quantity, validate_basic};
use crate::kinds::pod_spec::{default_claim_spec, fill, round_resources, validate_claim_spec};
use crate::printing::{age_column, at, items, name_column, text};
use crate::{equality, names, object};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use serde_json::{Value, json};

pub(crate) fn kind() -> Kind {
    Kind {
        validate_name: names::dns_subdomain_name,
        default,
        prepare,
        validate: |claim, errors| validate_claim_spec(&claim.get("spec"), errors),
        validate_update,
        validate_status,
        columns: vec![
            name_column(),
            column("Status", "string", |claim, _| phase(claim).into()),
            column("Volume", "string", |claim, _| text(claim, "spec.volumeName").into()),
            column("Capacity", "string", |claim, _| {
                let capacity = text(claim, "status.capacity.storage");
                match (text(claim, "spec.volumeName"), capacity) {
                    ("", _) => "",
                    (_, "") => "0",
                    _ => capacity,
                }
                .into()
            }),
            column("Access Modes", "string", |claim, _| {
                let bound = !text(claim, "spec.volumeName").is_empty();
                if bound { access_modes(items(claim, "status.accessModes")) } else { String::new() }.into()
            }),
            column("StorageClass", "string", |claim, _| storage_class(claim).unwrap_or_default().into()),
            column("VolumeAttributesClass", "string", |claim, _| {
                text_or_unset(claim, "spec.volumeAttributesClassName").into()
            }),
            age_column(),
            wide("VolumeMode", "string", |claim, _| text_or_unset(claim, "spec.volumeMode").into()),
        ],
        ..Kind::new::<PersistentVolumeClaim>().short(&["pvc"]).with_status()
    }
}

fn default(claim: &mut Value) {
    object::object_mut(claim, "status");
    fill(&mut claim["status"], "phase", "Pending");
    round_resources(claim.pointer_mut("/status/capacity"));
    if let Some(spec) = claim.get_mut("spec").filter(|spec| spec.is_object()) {
        default_claim_spec(spec);
    }
}

fn prepare(claim: &mut Value, old: Option<&Value>) {
    if old.is_none() {
        claim["status"] = json!({"phase": "Pending"});
    }
    let Some(spec) = claim.get_mut("spec").filter(|spec| spec.is_object()) else { return };
    // A source of old, a reference of now: within the namespace each says what the other says.
    let (source, reference) = (at(spec, "dataSource").cloned(), at(spec, "dataSourceRef").cloned());
    match (source, reference) {
        (Some(source), None) => spec["dataSourceRef"] = source,
        (None, Some(reference)) if text(&reference, "namespace").is_empty() => {
            spec["dataSource"] = reference;
            if let Some(source) = spec["dataSource"].as_object_mut() {
                source.remove("namespace");
            }
        }
        _ => {}
    }
}

fn validate_update(claim: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
    let (spec, old_spec) = (claim.get("spec"), old.get("spec"));
    let status = claim.get("status");
    let bound = status.get("phase").text() == "Bound";
    let mut expected = spec.value().clone();
    let keep_old = |expected: &mut Value, name: &str| match old_spec.object().and_then(|spec| spec.get(name))
    {
        Some(value) => expected[name] = value.clone(),
        None => {
            expected.as_object_mut().and_then(|members| members.remove(name));
        }
    };
    // What may change: the volume once, the class once, and once bound the size and the attributes.
    if old_spec.get("volumeName").text().is_empty() {
        keep_old(&mut expected, "volumeName");
    }
    if !old_spec.get("storageClassName").exists() {
        keep_old(&mut expected, "storageClassName");
    }
    let old_size = old_spec.value().pointer("/resources/requests/storage");
    if bound {
        keep_old(&mut expected, "volumeAttributesClassName");
        if let (Some(size), Some(old_size)) = (expected.pointer_mut("/resources/requests/storage"), old_size)
        {
            *size = old_size.clone();
        }
    }
    if !equality::same(&expected, old_spec.value()) {
        let detail = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";
        spec.forbidden(detail, errors);
    }
    validate_size(&spec, &old_spec, &old.get("status"), errors);
    // Upstream's paths leave `spec` out here.
    let (mode, old_mode) = (spec.get("volumeMode"), old_spec.get("volumeMode"));
    claim.get("volumeMode").with_value(mode.value()).immutable(&old_mode, errors);
    let (class, old_status) = (spec.get("volumeAttributesClassName"), old.get("status"));
    if old_status.get("currentVolumeAttributesClassName").exists() && class.text().is_empty() {
        let to = if class.exists() { "empty string" } else { "nil" };
        let detail =
            format!("update to {to} is forbidden when status.currentVolumeAttributesClassName is not nil");
        class.forbidden(detail, errors);
    }
}

/// A claim may be asked to shrink again, but not below what it has.
fn validate_size(spec: &Field<'_>, old_spec: &Field<'_>, old_status: &Field<'_>, errors: &mut Errors) {
    let size = |spec: &Field<'_>| {
        let resources = spec.get("resources");
        let requests = resources.get("requests");
        quantity(&requests.get("storage")).unwrap_or_default()
    };
    let capacity = old_status.get("capacity");
    let capacity = quantity(&capacity.get("storage")).unwrap_or_default();
    if size(spec) < size(old_spec) && size(spec) <= capacity {
        let resources = spec.get("resources");
        let requests = resources.get("requests");
        requests.get("storage").forbidden("field can not be less than status.capacity", errors);
    }
}

fn validate_status(claim: &Field<'_>, _old: &Field<'_>, errors: &mut Errors) {
    let status = claim.get("status");
    validate_basic(&status.get("capacity"), errors);
    validate_basic(&status.get("allocatedResources"), errors);
    let statuses = status.get("allocatedResourceStatuses");
    for (name, value) in statuses.entries() {
        let known = [
            "ControllerResizeInProgress",
            "ControllerResizeInfeasible",
            "NodeResizePending",
            "NodeResizeInProgress",
            "NodeResizeInfeasible",
        ];
        if !known.contains(&value.text()) {
            statuses.with_value(&name.into()).not_supported(&known, errors);
        }
    }
}
