//! Rules for volumes: exactly one source each, and that source well formed.

use super::claims::validate_claim_template;
use super::env::{VOLUME_FIELDS, validate_field_ref, validate_resource_field_ref};
use crate::field::{Errors, Field, Reason};
use crate::{meta, names};
use std::collections::{BTreeMap, BTreeSet};

/// The volumes that containers may mount.
pub(super) type Volumes = BTreeMap<String, VolumeKind>;

/// What a volume can be used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum VolumeKind {
    /// A directory made for the pod.
    EmptyDir,
    /// A claim, which may be a block device.
    Claim,
    /// Anything else.
    Other,
}

/// Members that each kind of source must have.
const REQUIRED: &[(&str, &[&str])] = &[
    ("gitRepo", &["repository"]),
    ("gcePersistentDisk", &["pdName"]),
    ("awsElasticBlockStore", &["volumeID"]),
    ("secret", &["secretName"]),
    ("nfs", &["server", "path"]),
    ("iscsi", &["targetPortal", "iqn"]),
    ("glusterfs", &["endpoints", "path"]),
    ("persistentVolumeClaim", &["claimName"]),
    ("rbd", &["monitors", "image"]),
    ("cinder", &["volumeID"]),
    ("cephfs", &["monitors"]),
    ("quobyte", &["registry", "volume"]),
    ("flexVolume", &["driver"]),
    ("configMap", &["name"]),
    ("azureFile", &["secretName", "shareName"]),
    ("vsphereVolume", &["volumePath"]),
    ("photonPersistentDisk", &["pdID"]),
    ("portworxVolume", &["volumeID"]),
    ("azureDisk", &["diskName", "diskURI"]),
    ("scaleIO", &["gateway", "system", "volumeName"]),
    ("storageos", &["volumeName"]),
];

/// Sources of a pod's volume, in the order that upstream looks at them.
const POD_SOURCES: &[&str] = &[
    "emptyDir",
    "hostPath",
    "gitRepo",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "secret",
    "nfs",
    "iscsi",
    "glusterfs",
    "flocker",
    "persistentVolumeClaim",
    "rbd",
    "cinder",
    "cephfs",
    "quobyte",
    "downwardAPI",
    "fc",
    "flexVolume",
    "configMap",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "storageos",
    "projected",
    "scaleIO",
    "csi",
    "ephemeral",
    "image",
];

/// Complains about `volumes`; returns those that are well formed. `pod_name` is empty in a template.
pub(super) fn validate_volumes(volumes: &Field<'_>, pod_name: &str, errors: &mut Errors) -> Volumes {
    let mut known = Volumes::new();
    let claims_made: BTreeSet<String> = volumes
        .items()
        .filter(|volume| !pod_name.is_empty() && volume.get("ephemeral").exists())
        .map(|volume| format!("{pod_name}-{}", volume.get("name").text()))
        .collect();
    for volume in volumes.items() {
        let before = errors.as_slice().len();
        validate_volume_source(&volume, POD_SOURCES, errors);
        let name = volume.get("name");
        if volume.get("ephemeral").exists() && !pod_name.is_empty() && !name.text().is_empty() {
            let claim = format!("{pod_name}-{}", name.text());
            for fault in names::is_dns1123_subdomain(&claim) {
                name.invalid(format!("PVC name {claim:?}: {fault}"), errors);
            }
        }
        if name.required(errors) {
            name.conforms(names::is_dns1123_label, errors);
        }
        if known.contains_key(name.text()) {
            name.duplicate(errors);
        }
        if errors.as_slice().len() == before {
            known.insert(name.text().to_owned(), kind_of(&volume));
        }
        let claim = volume.get("persistentVolumeClaim");
        let claim = claim.get("claimName");
        if claims_made.contains(claim.text()) {
            claim.invalid("must not reference a PVC that gets created for an ephemeral volume", errors);
        }
    }
    known
}

/// Complains unless exactly one of the named sources is there, and about that one.
pub(crate) fn validate_volume_source(volume: &Field<'_>, sources: &[&str], errors: &mut Errors) {
    let mut found = false;
    for &name in sources {
        let source = volume.get(name);
        if !source.exists() {
            continue;
        }
        if std::mem::replace(&mut found, true) {
            source.forbidden("may not specify more than 1 volume type", errors);
            continue;
        }
        // Upstream has another name for this one in its paths.
        let renamed = volume.get("persistentDisk").with_value(source.value());
        let source = if name == "gcePersistentDisk" { renamed } else { source };
        let required = REQUIRED.iter().find(|(of, _)| *of == name).map(|(_, members)| *members);
        for member in required.unwrap_or_default() {
            source.get(member).required(errors);
        }
        validate_source_details(name, volume, &source, errors);
    }
    if !found {
        volume.complain(Reason::Required, "must specify a volume type", errors);
    }
}

/// Complains about a path that climbs.
pub(super) fn validate_no_backsteps(path: &Field<'_>, errors: &mut Errors) {
    if path.text().split('/').any(|part| part == "..") {
        path.invalid("must not contain '..'", errors);
    }
}

/// Complains about a path that leads out of where it starts.
pub(super) fn validate_descending_path(path: &Field<'_>, errors: &mut Errors) {
    if path.text().starts_with('/') {
        path.invalid("must be a relative path", errors);
    }
    validate_no_backsteps(path, errors);
}

/// Complains about a path that leads out, or that the kubelet keeps for itself.
fn validate_non_reserved_path(path: &Field<'_>, errors: &mut Errors) {
    validate_descending_path(path, errors);
    if path.text().starts_with("..") && !path.text().starts_with("../") {
        path.invalid("must not start with '..'", errors);
    }
}

fn kind_of(volume: &Field<'_>) -> VolumeKind {
    if volume.get("emptyDir").exists() {
        VolumeKind::EmptyDir
    } else if volume.get("persistentVolumeClaim").exists() || volume.get("ephemeral").exists() {
        VolumeKind::Claim
    } else {
        VolumeKind::Other
    }
}

/// What is asked of a source beyond the members it must have.
fn validate_source_details(name: &str, volume: &Field<'_>, source: &Field<'_>, errors: &mut Errors) {
    match name {
        "emptyDir" => {
            let limit = source.get("sizeLimit");
            if super::resources::quantity(&limit).is_some_and(|limit| limit.is_negative()) {
                limit.forbidden("SizeLimit field must be a valid resource quantity", errors);
            }
        }
        "hostPath" => validate_host_path(source, errors),
        "local" => {
            let path = source.get("path");
            if path.required(errors) {
                validate_no_backsteps(&path, errors);
            }
        }
        "gitRepo" => validate_descending_path(&source.get("directory"), errors),
        "gcePersistentDisk" | "awsElasticBlockStore" => {
            let partition = source.get("partition");
            if partition.int().is_some_and(|number| !(0..=255).contains(&number)) {
                partition.invalid("must be between 1 and 255, inclusive", errors);
            }
        }
        "secret" | "configMap" => validate_keys(source, errors),
        "nfs" => {
            let path = source.get("path");
            if !path.text().starts_with('/') {
                path.invalid_value(path.text(), "must be an absolute path", errors);
            }
        }
        "iscsi" => validate_iscsi(volume, source, errors),
        "flocker" => validate_flocker(source, errors),
        "downwardAPI" => {
            validate_mode(&source.get("defaultMode"), errors);
            for item in source.get("items").items() {
                // Upstream names the volume, not the item, in these.
                validate_downward_item(&source.with_value(item.value()), errors);
            }
        }
        "fc" => validate_fc(source, errors),
        "flexVolume" => validate_flex_options(&source.get("options"), errors),
        "azureDisk" => validate_azure_disk(source, errors),
        "projected" => validate_projected(source, errors),
        "csi" => validate_csi(source, errors),
        "ephemeral" => {
            let template = source.get("volumeClaimTemplate");
            if template.exists() {
                validate_claim_template(&template, errors);
            } else {
                template.required(errors);
            }
        }
        "image" => source.get("pullPolicy").required_one_of(&["Always", "IfNotPresent", "Never"], errors),
        "cinder" | "storageos" => {
            let secret = source.get("secretRef");
            if secret.exists() {
                secret.get("name").required(errors);
            }
        }
        _ => {}
    }
}

fn validate_host_path(source: &Field<'_>, errors: &mut Errors) {
    let path = source.get("path");
    if !path.required(errors) {
        return;
    }
    validate_no_backsteps(&path, errors);
    source.get("type").one_of(
        &[
            "",
            "BlockDevice",
            "CharDevice",
            "Directory",
            "DirectoryOrCreate",
            "File",
            "FileOrCreate",
            "Socket",
        ],
        errors,
    );
}

fn validate_iscsi(volume: &Field<'_>, source: &Field<'_>, errors: &mut Errors) {
    let well_formed = |name: &str| match name.get(..3) {
        Some("eui" | "naa") => {
            let digits = &name[4.min(name.len())..];
            let length = if name.starts_with("eui") { 16 } else { 32 };
            digits.len() == length && digits.bytes().all(|b| b.is_ascii_alphanumeric())
        }
        Some("iqn") => name.splitn(3, '.').count() == 3 && name.contains(':'),
        _ => false,
    };
    let iqn = source.get("iqn");
    if !iqn.text().is_empty() {
        if !["iqn", "eui", "naa"].iter().any(|prefix| iqn.text().starts_with(prefix)) {
            iqn.invalid("must be valid format starting with iqn, eui, or naa", errors);
        } else if !well_formed(iqn.text()) {
            iqn.invalid("must be valid format", errors);
        }
    }
    source.get("lun").in_range(0..=255, errors);
    let chap = source.get("chapAuthDiscovery").bool() || source.get("chapAuthSession").bool();
    let secret = source.get("secretRef");
    if chap && !secret.exists() {
        secret.required(errors);
    }
    let name = volume.get("name");
    let portal = source.get("targetPortal");
    if source.get("initiatorName").exists() && name.text().len() + 1 + portal.text().len() > 64 {
        name.invalid(
            "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is specified.",
            errors,
        );
    }
}

fn validate_flocker(source: &Field<'_>, errors: &mut Errors) {
    let (name, uuid) = (source.get("datasetName"), source.get("datasetUUID"));
    match (name.text().is_empty(), uuid.text().is_empty()) {
        (true, true) => {
            source.complain(Reason::Required, "one of datasetName and datasetUUID is required", errors)
        }
        (false, false) => {
            let detail = "datasetName and datasetUUID can not be specified simultaneously";
            source.invalid_value("resource", detail, errors);
        }
        _ => {}
    }
    if name.text().contains('/') {
        name.invalid("must not contain '/'", errors);
    }
}

fn validate_fc(source: &Field<'_>, errors: &mut Errors) {
    let (targets, ids, lun) = (source.get("targetWWNs"), source.get("wwids"), source.get("lun"));
    if targets.is_empty() && ids.is_empty() {
        targets.required_because("must specify either targetWWNs or wwids, but not both", errors);
    }
    if !targets.is_empty() && !ids.is_empty() {
        targets.invalid("targetWWNs and wwids can not be specified simultaneously", errors);
    }
    if !targets.is_empty() && lun.required_because("lun is required if targetWWNs is specified", errors) {
        lun.in_range(0..=255, errors);
    }
}

fn validate_flex_options(options: &Field<'_>, errors: &mut Errors) {
    for (key, value) in options.entries() {
        let namespace = format!(".{}", key.split('/').next().unwrap_or_default().to_ascii_lowercase());
        if namespace.ends_with(".kubernetes.io") || namespace.ends_with(".k8s.io") {
            value.invalid_value(key, "kubernetes.io and k8s.io namespaces are reserved", errors);
        }
    }
}

fn validate_azure_disk(source: &Field<'_>, errors: &mut Errors) {
    source.get("cachingMode").one_of(&["None", "ReadOnly", "ReadWrite"], errors);
    let kind = source.get("kind");
    kind.one_of(&["Dedicated", "Managed", "Shared"], errors);
    let uri = source.get("diskURI");
    if kind.text() == "Managed" && !uri.text().starts_with("/subscriptions/") {
        let supported =
            "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}";
        uri.not_supported(&[supported], errors);
    } else if kind.exists() && kind.text() != "Managed" && !uri.text().starts_with("https://") {
        uri.not_supported(
            &["https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd"],
            errors,
        );
    }
}

fn validate_csi(source: &Field<'_>, errors: &mut Errors) {
    validate_csi_driver_name(&source.get("driver"), errors);
    let secret = source.get("nodePublishSecretRef");
    if secret.exists() {
        let name = secret.get("name");
        if name.required(errors) {
            source.get("name").with_value(name.value()).conforms(names::is_dns1123_subdomain, errors);
        }
    }
}

/// Complains about the name of a CSI driver.
pub fn validate_csi_driver_name(driver: &Field<'_>, errors: &mut Errors) {
    if !driver.required(errors) {
        return;
    }
    if driver.text().len() > 63 {
        driver.too_long(63, errors);
    }
    for fault in names::is_dns1123_subdomain(&driver.text().to_ascii_lowercase()) {
        driver.invalid(fault, errors);
    }
}

fn validate_mode(mode: &Field<'_>, errors: &mut Errors) {
    if mode.int().is_some_and(|bits| !(0..=0o777).contains(&bits)) {
        mode.invalid("must be a number between 0 and 0777 (octal), both inclusive", errors);
    }
}

fn validate_keys(source: &Field<'_>, errors: &mut Errors) {
    validate_mode(&source.get("defaultMode"), errors);
    for item in source.get("items").items() {
        validate_key_to_path(&item, errors);
    }
}

fn validate_key_to_path(item: &Field<'_>, errors: &mut Errors) {
    item.get("key").required(errors);
    let path = item.get("path");
    path.required(errors);
    validate_non_reserved_path(&path, errors);
    validate_mode(&item.get("mode"), errors);
}

fn validate_downward_item(item: &Field<'_>, errors: &mut Errors) {
    let path = item.get("path");
    path.required(errors);
    validate_non_reserved_path(&path, errors);
    let (field_ref, resource_ref) = (item.get("fieldRef"), item.get("resourceFieldRef"));
    if field_ref.exists() {
        validate_field_ref(&field_ref, &VOLUME_FIELDS, errors);
        if resource_ref.exists() {
            let detail = "fieldRef and resourceFieldRef can not be specified simultaneously";
            item.invalid_value("resource", detail, errors);
        }
    } else if resource_ref.exists() {
        validate_resource_field_ref(&resource_ref, true, errors);
    } else {
        item.complain(Reason::Required, "one of fieldRef and resourceFieldRef is required", errors);
    }
    validate_mode(&item.get("mode"), errors);
}

fn validate_projected(projected: &Field<'_>, errors: &mut Errors) {
    validate_mode(&projected.get("defaultMode"), errors);
    let mut paths = BTreeSet::new();
    let mut claim_path = |path: &Field<'_>, shown: &str, errors: &mut Errors| {
        if !path.text().is_empty() && !paths.insert(path.text().to_owned()) {
            projected.invalid_value(shown, "conflicting duplicate paths", errors);
        }
    };
    for source in projected.get("sources").items() {
        for name in ["secret", "configMap"] {
            let projection = source.get(name);
            if !projection.exists() {
                continue;
            }
            let name = projection.get("name");
            name.required(errors);
            for item in projection.get("items").items() {
                validate_key_to_path(&item, errors);
                claim_path(&item.get("path"), name.text(), errors);
            }
        }
        let downward = source.get("downwardAPI");
        for item in downward.get("items").items() {
            validate_downward_item(&downward.with_value(item.value()), errors);
            let path = item.get("path");
            claim_path(&path, path.text(), errors);
        }
        validate_token_projection(projected, &source.get("serviceAccountToken"), errors);
        let bundle = source.get("clusterTrustBundle");
        if bundle.exists() {
            validate_trust_bundle(&bundle, errors);
            let path = bundle.get("path");
            claim_path(&path, path.text(), errors);
        }
        if source.len() > 1 {
            source.forbidden("may not specify more than 1 volume type per source", errors);
        }
    }
}

fn validate_token_projection(projected: &Field<'_>, token: &Field<'_>, errors: &mut Errors) {
    if !token.exists() {
        return;
    }
    let expiration = token.get("expirationSeconds");
    match expiration.int() {
        Some(..600) => expiration.invalid("may not specify a duration less than 10 minutes", errors),
        Some(seconds) if seconds > 1 << 32 => {
            expiration.invalid("may not specify a duration larger than 2^32 seconds", errors);
        }
        _ => {}
    }
    // Upstream names the volume, not the source, in these.
    let path = token.get("path");
    let path = projected.get("path").with_value(path.value());
    if path.required(errors) {
        validate_non_reserved_path(&path, errors);
    }
}

fn validate_trust_bundle(bundle: &Field<'_>, errors: &mut Errors) {
    let (name, signer, selector) =
        (bundle.get("name"), bundle.get("signerName"), bundle.get("labelSelector"));
    match (name.exists(), signer.exists()) {
        (true, true) => bundle.invalid("only one of name and signerName may be used", errors),
        (true, false) => {
            name.required_because("must be a valid object name", errors);
            if selector.exists() {
                selector.invalid("labelSelector must be unset if name is specified", errors);
            }
        }
        (false, true) => {
            signer.required_because("must be a valid signer name", errors);
            meta::validate_label_selector(&selector, errors);
        }
        (false, false) => {
            bundle.complain(Reason::Required, "either name or signerName must be specified", errors);
        }
    }
    let path = bundle.get("path");
    path.required(errors);
    validate_non_reserved_path(&path, errors);
}
