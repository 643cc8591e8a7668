//! Rules for what all objects share: `metadata`, labels and label selectors.
//!
//! The server calls [`validate`] and [`validate_update`] for every object; kinds use the rest for the selectors,
//! labels and conditions they hold.

use crate::field::{Errors, Field, Reason};
use crate::kind::Kind;
use crate::names;
use serde_json::Value;
use std::collections::BTreeSet;

const MOST_ANNOTATION_BYTES: usize = 256 * 1024;
const STANDARD_FINALIZERS: [&str; 3] = ["kubernetes", "orphan", "foregroundDeletion"];

/// Complains about the metadata of an object that is to be created, whose name has been generated already.
pub fn validate(object: &Field<'_>, kind: &Kind, errors: &mut Errors) {
    let metadata = object.get("metadata");
    let generate_name = metadata.get("generateName");
    if !generate_name.text().is_empty()
        && let Err(fault) = (kind.validate_name)(&mask_trailing_dash(generate_name.text()))
    {
        generate_name.invalid(fault, errors);
    }
    let name = metadata.get("name");
    if name.required_because("name or generateName is required", errors) {
        match (kind.validate_name)(name.text()) {
            Err(fault) => name.invalid(fault, errors),
            // Whatever else a kind allows, its names must fit a URL.
            Ok(()) => name.conforms(names::is_path_segment, errors),
        }
    }
    let namespace = metadata.get("namespace");
    if !kind.namespaced() {
        if !namespace.text().is_empty() {
            namespace.forbidden("not allowed on this type", errors);
        }
    } else if namespace.required(errors) {
        namespace.conforms(names::is_dns1123_label, errors);
    }
    metadata.get("generation").non_negative(errors);
    validate_common(&metadata, errors);
    validate_finalizers(&metadata.get("finalizers"), kind, errors);
}

/// Complains about a change of metadata: new, then old.
pub fn validate_update(new: &Field<'_>, old: &Field<'_>, kind: &Kind, errors: &mut Errors) {
    let (metadata, old) = (new.get("metadata"), old.get("metadata"));
    if old.get("deletionTimestamp").exists() {
        validate_no_new_finalizers(&metadata.get("finalizers"), &old.get("finalizers"), errors);
    }
    let version = metadata.get("resourceVersion");
    if version.text().is_empty() {
        version.invalid_value("", "must be specified for an update", errors);
    }
    let generation = metadata.get("generation");
    if generation.int().unwrap_or(0) < old.get("generation").int().unwrap_or(0) {
        generation.invalid_value(generation.int().unwrap_or(0), "must not be decremented", errors);
    }
    for name in
        ["name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"]
    {
        metadata.get(name).immutable(&old.get(name), errors);
    }
    validate_common(&metadata, errors);
    if kind.custom.is_none() {
        validate_finalizers_are_qualified(&metadata.get("finalizers"), errors);
    }
}

/// Complains about labels: keys and values.
pub fn validate_labels(labels: &Field<'_>, errors: &mut Errors) {
    for (key, value) in labels.entries() {
        for fault in names::is_qualified_name(key) {
            labels.invalid_value(key, fault, errors);
        }
        for fault in names::is_label_value(value.text()) {
            labels.invalid_value(value.text(), fault, errors);
        }
    }
}

/// Complains about annotations: keys, and the size of all together.
pub fn validate_annotations(annotations: &Field<'_>, errors: &mut Errors) {
    let mut bytes = 0;
    for (key, value) in annotations.entries() {
        for fault in names::is_qualified_name(&key.to_ascii_lowercase()) {
            annotations.invalid_value(key, fault, errors);
        }
        bytes += key.len() + value.text().len();
    }
    if bytes > MOST_ANNOTATION_BYTES {
        annotations.too_long(MOST_ANNOTATION_BYTES, errors);
    }
}

/// Complains about a label selector: `matchLabels` and `matchExpressions`.
pub fn validate_label_selector(selector: &Field<'_>, errors: &mut Errors) {
    validate_labels(&selector.get("matchLabels"), errors);
    for requirement in selector.get("matchExpressions").items() {
        let (values, operator) = (requirement.get("values"), requirement.get("operator"));
        match operator.text() {
            "In" | "NotIn" => {
                values.required_because("must be specified when `operator` is 'In' or 'NotIn'", errors);
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                values
                    .forbidden("may not be specified when `operator` is 'Exists' or 'DoesNotExist'", errors);
            }
            "Exists" | "DoesNotExist" => {}
            unknown => operator.invalid_value(unknown, "not a valid selector operator", errors),
        }
        requirement.get("key").conforms(names::is_qualified_name, errors);
        for value in values.items() {
            value.conforms(names::is_label_value, errors);
        }
    }
}

/// Complains about a list of `metav1.Condition`s: types once each, and each well formed.
pub fn validate_conditions(conditions: &Field<'_>, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    for condition in conditions.items() {
        let ty = condition.get("type");
        if !seen.insert(ty.text().to_owned()) {
            ty.duplicate(errors);
        }
        ty.conforms(names::is_qualified_name, errors);
        let status = condition.get("status");
        if !matches!(status.text(), "True" | "False" | "Unknown") {
            status.not_supported(&["True", "False", "Unknown"], errors);
        }
        if condition.get("observedGeneration").int().is_some_and(|generation| generation < 0) {
            condition.get("observedGeneration").invalid("must be greater than or equal to zero", errors);
        }
        condition.get("lastTransitionTime").required(errors);
        let reason = condition.get("reason");
        if reason.required(errors) {
            reason.conforms(is_condition_reason, errors);
            if reason.text().len() > 1024 {
                reason.too_long(1024, errors);
            }
        }
        if condition.get("message").text().len() > 32 * 1024 {
            condition.get("message").too_long(32 * 1024, errors);
        }
    }
}

/// A prefix of names, as if something followed its last dash.
fn mask_trailing_dash(prefix: &str) -> String {
    match prefix.strip_suffix('-') {
        Some(stem) if !stem.is_empty() => {
            let mut stem = stem.to_owned();
            stem.pop();
            stem + "a"
        }
        _ => prefix.to_owned(),
    }
}

/// What holds on create and on update alike.
fn validate_common(metadata: &Field<'_>, errors: &mut Errors) {
    validate_labels(&metadata.get("labels"), errors);
    validate_annotations(&metadata.get("annotations"), errors);
    validate_owner_references(&metadata.get("ownerReferences"), errors);
    validate_managed_fields(&metadata.get("managedFields"), errors);
}

fn validate_owner_references(references: &Field<'_>, errors: &mut Errors) {
    let mut controller: Option<String> = None;
    // Upstream names the list, not the element, in these.
    for reference in references.items() {
        let api_version = reference.get("apiVersion");
        let version = api_version.text().rsplit('/').next().unwrap_or_default();
        if version.is_empty() || api_version.text().matches('/').count() > 1 {
            references.get("apiVersion").invalid_value(
                api_version.text(),
                "version must not be empty",
                errors,
            );
        }
        for name in ["kind", "name", "uid"] {
            if reference.get(name).text().is_empty() {
                references.get(name).invalid_value("", "must not be empty", errors);
            }
        }
        if api_version.text() == "v1" && reference.get("kind").text() == "Event" {
            let detail = "/v1, Kind=Event is disallowed from being an owner";
            references.invalid_value(reference.value().clone(), detail, errors);
        }
        if reference.get("controller").bool() {
            let this = format!("{}/{}", reference.get("kind").text(), reference.get("name").text());
            match &controller {
                Some(first) => references.invalid(
                    format!("Only one reference can have Controller set to true. Found \"true\" in references for {first} and {this}"),
                    errors,
                ),
                None => controller = Some(this),
            }
        }
    }
}

fn validate_finalizers(finalizers: &Field<'_>, kind: &Kind, errors: &mut Errors) {
    let (mut orphan, mut foreground) = (false, false);
    for finalizer in finalizers.items() {
        for fault in names::is_qualified_name(finalizer.text()) {
            finalizers.invalid_value(finalizer.text(), fault, errors);
        }
        orphan |= finalizer.text() == "orphan";
        foreground |= finalizer.text() == "foregroundDeletion";
    }
    if orphan && foreground {
        finalizers.invalid("finalizer orphan and foregroundDeletion cannot be both set", errors);
    }
    if kind.custom.is_none() {
        validate_finalizers_are_qualified(finalizers, errors);
    }
}

fn validate_finalizers_are_qualified(finalizers: &Field<'_>, errors: &mut Errors) {
    for finalizer in finalizers.items() {
        validate_kube_finalizer_name(&finalizer, errors);
    }
}

/// Complains about a finalizer that is neither Kubernetes' own nor has a prefix.
pub fn validate_kube_finalizer_name(finalizer: &Field<'_>, errors: &mut Errors) {
    let name = finalizer.text();
    if !name.contains('/') && !STANDARD_FINALIZERS.contains(&name) {
        finalizer.invalid("name is neither a standard finalizer name nor is it fully qualified", errors);
    }
}

fn validate_no_new_finalizers(new: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
    let set = |field: &Field<'_>| -> BTreeSet<String> {
        field.items().map(|item| item.text().to_owned()).collect()
    };
    let added: Vec<String> = set(new).difference(&set(old)).map(|name| format!("{name:?}")).collect();
    if !added.is_empty() {
        new.forbidden(
            format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                added.join(", ")
            ),
            errors,
        );
    }
}

fn validate_managed_fields(managed_fields: &Field<'_>, errors: &mut Errors) {
    for entry in managed_fields.items() {
        let operation = entry.get("operation");
        if !matches!(operation.text(), "Apply" | "Update") {
            operation.invalid_value(operation.text(), "must be `Apply` or `Update`", errors);
        }
        let fields_type = entry.get("fieldsType");
        if !matches!(fields_type.text(), "" | "FieldsV1") {
            fields_type.invalid("must be `FieldsV1`", errors);
        }
        validate_field_manager(&entry.get("manager"), errors);
        if entry.get("subresource").text().len() > 256 {
            entry.get("subresource").too_long(256, errors);
        }
    }
}

/// Complains about the name of a field manager: too long, or not printable.
pub fn validate_field_manager(manager: &Field<'_>, errors: &mut Errors) {
    if manager.text().len() > 128 {
        manager.too_long(128, errors);
    }
    for (at, c) in manager.text().char_indices().filter(|(_, c)| c.is_control()) {
        let detail = format!("invalid character U+{:04X} (at position {at})", u32::from(c));
        manager.complain(Reason::Invalid, detail, errors);
    }
}

fn is_condition_reason(text: &str) -> Vec<String> {
    let inner = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b',' | b':');
    let well_formed = text.bytes().next().is_some_and(|b| b.is_ascii_alphabetic())
        && text.bytes().all(inner)
        && !text.ends_with([',', ':']);
    if well_formed {
        return Vec::new();
    }
    vec![names::regex_error(
        "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric characters or '_,:', and must end with an alphanumeric character or '_'",
        "[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?",
        &["my_name", "MY_NAME", "MyName", "ReasonA,ReasonB", "ReasonA:ReasonB"],
    )]
}

/// Whether two label maps or selectors are the same, where absent and empty count as one.
pub fn same_or_both_empty(a: &Value, b: &Value) -> bool {
    let empty = |value: &Value| {
        value.is_null()
            || value.as_object().is_some_and(serde_json::Map::is_empty)
            || value.as_array().is_some_and(Vec::is_empty)
    };
    a == b || empty(a) && empty(b)
}
