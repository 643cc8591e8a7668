//! Rules for the spec of a PersistentVolumeClaim, which pods and stateful sets hold templates of.

use super::resources::{quantity, validate_amount};
use crate::field::{Errors, Field, Reason};
use crate::{meta, names};

/// Ways in which a volume may be attached.
pub const ACCESS_MODES: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];

/// Complains about a `PersistentVolumeClaimTemplate`: a claim with labels and annotations but no name.
pub(super) fn validate_claim_template(template: &Field<'_>, errors: &mut Errors) {
    let metadata = template.get("metadata");
    meta::validate_annotations(&metadata.get("annotations"), errors);
    meta::validate_labels(&metadata.get("labels"), errors);
    for (name, _) in metadata.entries() {
        // A time that was never set comes as null and is gone by now.
        if !matches!(name, "annotations" | "labels") {
            metadata.get(name).forbidden("cannot be set", errors);
        }
    }
    validate_claim_spec(&template.get("spec"), errors);
}

/// Complains about a `PersistentVolumeClaimSpec`.
pub fn validate_claim_spec(spec: &Field<'_>, errors: &mut Errors) {
    spec.get("accessModes").required_because("at least 1 access mode is required", errors);
    meta::validate_label_selector(&spec.get("selector"), errors);
    validate_access_modes(&spec.get("accessModes"), errors);
    let resources = spec.get("resources");
    let requests = resources.get("requests");
    let asked = requests.get("storage");
    let storage = resources.key("storage").with_value(asked.value());
    match quantity(&storage) {
        None => storage.complain(Reason::Required, "", errors),
        Some(amount) if amount.is_zero() || amount.is_negative() => {
            storage.invalid("must be greater than zero", errors);
        }
        Some(_) => validate_amount("storage", &storage, errors),
    }
    for name in ["storageClassName", "volumeAttributesClassName"] {
        let class = spec.get(name);
        if !class.text().is_empty() {
            class.conforms(names::is_dns1123_subdomain, errors);
        }
    }
    spec.get("volumeMode").one_of(&["Block", "Filesystem"], errors);
    validate_data_sources(spec, errors);
}

/// Complains about modes there are not, and about those that do not go together.
pub fn validate_access_modes(modes: &Field<'_>, errors: &mut Errors) {
    let (mut alone, mut shared) = (false, false);
    for mode in modes.items() {
        match mode.text() {
            "ReadWriteOncePod" => alone = true,
            known if ACCESS_MODES.contains(&known) => shared = true,
            _ => modes.with_value(mode.value()).not_supported(&ACCESS_MODES, errors),
        }
    }
    if alone && shared {
        modes.forbidden("may not use ReadWriteOncePod with other access modes", errors);
    }
}

fn validate_data_sources(spec: &Field<'_>, errors: &mut Errors) {
    let (source, reference) = (spec.get("dataSource"), spec.get("dataSourceRef"));
    for from in [&source, &reference] {
        if !from.exists() {
            continue;
        }
        from.get("name").required(errors);
        let (kind, group) = (from.get("kind"), from.get("apiGroup"));
        kind.required(errors);
        if !group.text().is_empty() {
            group.conforms(names::is_dns1123_subdomain, errors);
        } else if kind.text() != "PersistentVolumeClaim" {
            let detail = "must be 'PersistentVolumeClaim' when referencing the default apiGroup";
            from.invalid_value(kind.text(), detail, errors);
        }
        let namespace = from.get("namespace");
        if !namespace.text().is_empty() {
            namespace.conforms(names::is_dns1123_label, errors);
        }
    }
    if !source.exists() || !reference.exists() {
        return;
    }
    let same = ["apiGroup", "kind", "name"]
        .iter()
        .all(|name| source.get(name).value() == reference.get(name).value());
    let detail = if !reference.get("namespace").text().is_empty() {
        "may not be specified when dataSourceRef.namespace is specified"
    } else if !same {
        "must match dataSourceRef"
    } else {
        return;
    };
    spec.invalid_value(source.path(), detail, errors);
}
