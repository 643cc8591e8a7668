//! The rules for CustomResourceDefinitions themselves, in the shape that [`crate::Kind`] takes rules.

use super::structural::Structural;
use super::{COLUMN_FORMATS, COLUMN_TYPES, condition_is_true, flag, format, rules, text, texts, versions};
use crate::field::{Errors, Field, Reason};
use crate::names::{is_dns1035_label, is_dns1123_subdomain};
use crate::object::{object_mut, set_default};
use serde_json::{Value, json};

/// Fills in what was left out: singular, listKind, conversion.
pub fn default(definition: &mut Value) {
    let kind = definition.pointer("/spec/names/kind").and_then(Value::as_str).unwrap_or_default().to_owned();
    let Some(spec) = definition.get_mut("spec").filter(|spec| spec.is_object()) else { return };
    if !kind.is_empty() {
        let names = object_mut(spec, "names");
        names.entry("singular").or_insert_with(|| kind.to_lowercase().into());
        names.entry("listKind").or_insert_with(|| format!("{kind}List").into());
    }
    set_default(spec, "conversion", json!({"strategy": "None"}));
    if let Some(service) = spec.pointer_mut("/conversion/webhook/clientConfig/service") {
        set_default(service, "port", 443);
    }
}

/// Resets the status on create, keeps it on update, and notes the version that objects are now stored in.
pub fn prepare(definition: &mut Value, old: Option<&Value>) {
    let status = old.and_then(|old| old.get("status")).cloned().unwrap_or_else(|| json!({}));
    let stored = super::storage_version(definition).map(str::to_owned);
    definition["status"] = status;
    let versions = &mut definition["status"]["storedVersions"];
    if !versions.is_array() {
        *versions = json!([]);
    }
    if let (Some(stored), Some(versions)) = (stored, versions.as_array_mut())
        && !versions.iter().any(|version| version == stored.as_str())
    {
        versions.push(stored.into());
    }
}

/// Complains about a definition that cannot be served.
pub fn validate(definition: &Field<'_>, errors: &mut Errors) {
    let spec = definition.get("spec");
    let (group, names) = (spec.get("group"), spec.get("names"));
    let required_name = format!("{}.{}", names.get("plural").text(), group.text());
    let metadata = definition.get("metadata");
    if metadata.get("name").text() != required_name {
        metadata.get("name").invalid("must be spec.names.plural+\".\"+spec.group", errors);
    }
    if group.required(errors) {
        let wrong = is_dns1123_subdomain(group.text());
        if !wrong.is_empty() {
            group.invalid(wrong.join(","), errors);
        } else if !group.text().contains('.') {
            group.invalid("should be a domain with at least one dot", errors);
        }
    }
    if spec.get("scope").required(errors) {
        spec.get("scope").one_of(&["Cluster", "Namespaced"], errors);
    }
    validate_versions(&spec, errors);
    for name in ["plural", "singular", "kind", "listKind"] {
        names.get(name).required(errors);
    }
    validate_names(&names, errors);
    validate_conversion(&spec.get("conversion"), errors);
    validate_names(&definition.get("status").get("acceptedNames"), errors);
    validate_stored_versions(definition, errors);
    if spec.get("preserveUnknownFields").bool() {
        spec.get("preserveUnknownFields").invalid(
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead",
            errors,
        );
    }
    validate_approval(&metadata, group.text(), errors);
}

/// Complains about a change of what objects are stored by.
pub fn validate_update(new: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
    let (spec, old_spec) = (new.get("spec"), old.get("spec"));
    let (names, old_names) = (spec.get("names"), old_spec.get("names"));
    if condition_is_true(old.value(), "Established") {
        spec.get("scope").immutable(&old_spec.get("scope"), errors);
        names.get("kind").immutable(&old_names.get("kind"), errors);
    }
    spec.get("group").immutable(&old_spec.get("group"), errors);
    names.get("plural").immutable(&old_names.get("plural"), errors);
}

/// What the writer of a definition should know though it is accepted: formats nobody checks, rules that are not
/// evaluated.
pub fn warnings(definition: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    for (index, version) in versions(definition).enumerate() {
        if let Some(schema) = version.pointer("/schema/openAPIV3Schema") {
            let path = format!("spec.versions[{index}].schema.openAPIV3Schema");
            warn(schema, &path, &mut warnings);
        }
    }
    warnings
}

/// More warnings than this about one definition help nobody.
const MOST_WARNINGS: usize = 20;
/// The most fields by which objects of one version may be selected.
const MOST_SELECTABLE_FIELDS: usize = 8;
const APPROVED: &str = "api-approved.kubernetes.io";

fn warn(schema: &Value, path: &str, warnings: &mut Vec<String>) {
    if warnings.len() >= MOST_WARNINGS {
        return;
    }
    let format = text(schema, "format");
    if text(schema, "type") == "string" && !format.is_empty() && !format::is_known(format) {
        let warning = format!("unrecognized format {format:?}");
        if !warnings.contains(&warning) {
            warnings.push(warning);
        }
    }
    if schema.get("x-kubernetes-validations").and_then(Value::as_array).is_some_and(|rules| !rules.is_empty())
    {
        warnings.push(format!(
            "{path}.x-kubernetes-validations: CEL rules are stored but not evaluated by this server"
        ));
    }
    for (name, property) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        warn(property, &format!("{path}.properties[{name}]"), warnings);
    }
    for name in ["items", "additionalProperties", "not"] {
        if let Some(below) = schema.get(name) {
            warn(below, &format!("{path}.{name}"), warnings);
        }
    }
    for name in ["allOf", "anyOf", "oneOf"] {
        let clauses = schema.get(name).and_then(Value::as_array);
        for (index, clause) in clauses.into_iter().flatten().enumerate() {
            warn(clause, &format!("{path}.{name}[{index}]"), warnings);
        }
    }
}

fn validate_versions(spec: &Field<'_>, errors: &mut Errors) {
    let list = spec.get("versions");
    let mut names: Vec<String> = Vec::new();
    let mut stored = 0;
    let mut unique = true;
    for version in list.items() {
        let name = version.get("name");
        unique &= !names.iter().any(|seen| seen == name.text());
        names.push(name.text().to_owned());
        stored += usize::from(version.get("storage").bool());
        let wrong = is_dns1035_label(name.text());
        if !wrong.is_empty() {
            name.invalid(wrong.join(","), errors);
        }
        validate_version(&version, errors);
    }
    if !unique {
        list.invalid("must contain unique version names", errors);
    }
    if stored != 1 {
        list.invalid("must have exactly one version marked as storage version", errors);
    }
}

fn validate_version(version: &Field<'_>, errors: &mut Errors) {
    let warning = version.get("deprecationWarning");
    if let Some(text) = warning.str() {
        if !version.get("deprecated").bool() {
            warning.invalid("can only be set for deprecated versions", errors);
        } else if text.is_empty() {
            warning.invalid("must not be an empty string", errors);
        } else if text.len() > 256 {
            warning.invalid("must be <= 256 characters long", errors);
        } else if let Some((index, _)) = text.char_indices().find(|(_, c)| c.is_control()) {
            warning.invalid(
                format!("must only contain printable UTF-8 characters; non-printable character found at index {index}"),
                errors,
            );
        }
    }
    let subresources = version.get("subresources");
    let container = version.get("schema");
    let schema = container.get("openAPIV3Schema");
    if schema.exists() {
        rules::validate(&schema, subresources.get("status").exists(), errors);
    } else {
        schema.complain(Reason::Required, "", errors);
    }
    validate_scale(&subresources.get("scale"), errors);
    for column in version.get("additionalPrinterColumns").items() {
        validate_column(&column, errors);
    }
    validate_selectable_fields(&version.get("selectableFields"), &schema, errors);
}

fn validate_scale(scale: &Field<'_>, errors: &mut Errors) {
    if !scale.exists() {
        return;
    }
    for (name, under) in [("specReplicasPath", ".spec."), ("statusReplicasPath", ".status.")] {
        let path = scale.get(name);
        if path.required(errors) && is_simple_path(&path, errors) && !path.text().starts_with(under) {
            path.invalid(format!("should be a json path under {}", under.trim_end_matches('.')), errors);
        }
    }
    let selector = scale.get("labelSelectorPath");
    if !selector.text().is_empty()
        && is_simple_path(&selector, errors)
        && !selector.text().starts_with(".spec.")
        && !selector.text().starts_with(".status.")
    {
        selector.invalid("should be a json path under either .spec or .status", errors);
    }
}

fn is_simple_path(path: &Field<'_>, errors: &mut Errors) -> bool {
    let simple = path.text().starts_with('.');
    if !simple {
        path.invalid("must be a simple json path starting with .", errors);
    }
    simple
}

fn validate_column(column: &Field<'_>, errors: &mut Errors) {
    column.get("name").required(errors);
    let ty = column.get("type");
    let one_of = |list: &[&str]| format!("must be one of {}", list.join(","));
    if ty.required_because(&one_of(&COLUMN_TYPES), errors) && !COLUMN_TYPES.contains(&ty.text()) {
        ty.invalid(one_of(&COLUMN_TYPES), errors);
    }
    let format = column.get("format");
    if !format.text().is_empty() && !COLUMN_FORMATS.contains(&format.text()) {
        format.invalid(one_of(&COLUMN_FORMATS), errors);
    }
    let path = column.get("jsonPath");
    if path.required(errors) {
        is_simple_path(&path, errors);
    }
}

fn validate_selectable_fields(fields: &Field<'_>, schema: &Field<'_>, errors: &mut Errors) {
    if fields.is_empty() {
        return;
    }
    let compiled = Structural::compile(schema.value());
    let mut seen: Vec<String> = Vec::new();
    for field in fields.items() {
        let path = field.get("jsonPath");
        if !path.required(errors) {
            continue;
        }
        let steps: Vec<&str> = path.text().trim_start_matches('.').split('.').collect();
        let Some(node) = compiled.at(&steps).filter(|_| path.text().starts_with('.')) else {
            path.invalid("is an invalid path: does not refer to a valid field", errors);
            continue;
        };
        if steps[0] == "metadata" {
            path.invalid("must not point to fields in metadata", errors);
        }
        if !node.is_selectable() {
            path.invalid(
                "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.",
                errors,
            );
        }
        if seen.iter().any(|seen| seen == path.text()) {
            path.duplicate(errors);
        } else {
            seen.push(path.text().to_owned());
        }
    }
    if seen.len() > MOST_SELECTABLE_FIELDS {
        fields.too_many(MOST_SELECTABLE_FIELDS, errors);
    }
}

fn validate_names(names: &Field<'_>, errors: &mut Errors) {
    for name in ["plural", "singular"] {
        let field = names.get(name);
        let wrong = is_dns1035_label(field.text());
        if !field.text().is_empty() && !wrong.is_empty() {
            field.invalid(wrong.join(","), errors);
        }
    }
    for name in ["kind", "listKind"] {
        let field = names.get(name);
        let wrong = is_dns1035_label(&field.text().to_lowercase());
        if !field.text().is_empty() && !wrong.is_empty() {
            let detail = format!("may have mixed case, but should otherwise match: {}", wrong.join(","));
            field.invalid(detail, errors);
        }
    }
    for list in ["shortNames", "categories"] {
        for name in names.get(list).items() {
            let wrong = is_dns1035_label(name.text());
            if !wrong.is_empty() {
                name.invalid(wrong.join(","), errors);
            }
        }
    }
    let (kind, list_kind) = (names.get("kind"), names.get("listKind"));
    if !kind.text().is_empty() && kind.text() == list_kind.text() {
        list_kind.invalid("kind and listKind may not be the same", errors);
    }
}

fn validate_conversion(conversion: &Field<'_>, errors: &mut Errors) {
    if !conversion.exists() {
        return;
    }
    let strategy = conversion.get("strategy");
    if strategy.required(errors) {
        strategy.one_of(&["None", "Webhook"], errors);
    }
    let webhook = conversion.get("webhook");
    let client = webhook.get("clientConfig");
    let reviewed = webhook.get("conversionReviewVersions");
    if strategy.text() != "Webhook" {
        if webhook.exists() {
            webhook.forbidden("should not be set when strategy is not set to Webhook", errors);
        }
        return;
    }
    if !client.exists() {
        client.complain(Reason::Required, "required when strategy is set to Webhook", errors);
    } else if client.get("url").exists() == client.get("service").exists() {
        client.complain(Reason::Required, "exactly one of url or service is required", errors);
    }
    if reviewed.required(errors) {
        let accepted = |version: Field<'_>| matches!(version.text(), "v1" | "v1beta1");
        if !reviewed.items().any(accepted) {
            reviewed.invalid("must include at least one of v1, v1beta1", errors);
        }
    }
}

/// The versions that objects may be stored in are all still described.
fn validate_stored_versions(definition: &Field<'_>, errors: &mut Errors) {
    let status = definition.get("status");
    let stored = status.get("storedVersions");
    if stored.is_empty() {
        stored.invalid("must have at least one stored version", errors);
        return;
    }
    let names = texts(status.value(), "storedVersions");
    let described: Vec<(&str, bool)> = versions(definition.value())
        .map(|version| (text(version, "name"), flag(version, "storage")))
        .collect();
    for (name, _) in described.iter().filter(|(name, storage)| *storage && !names.iter().any(|n| n == name)) {
        stored.invalid(format!("must have the storage version {name}"), errors);
    }
    for version in stored.items() {
        let name = version.text();
        if !described.iter().any(|(described, _)| *described == name) {
            version.invalid(
                format!(
                    "missing from spec.versions; {name} was previously a storage version, and must remain in \
                     spec.versions until a storage migration ensures no data remains persisted in {name} and removes \
                     {name} from status.storedVersions"
                ),
                errors,
            );
        }
    }
}

/// Groups of the Kubernetes project need its word.
fn validate_approval(metadata: &Field<'_>, group: &str, errors: &mut Errors) {
    let protected = ["k8s.io", "kubernetes.io"]
        .iter()
        .any(|domain| group == *domain || group.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.')));
    if !protected {
        return;
    }
    let see = "see https://github.com/kubernetes/enhancements/pull/1111";
    let annotations = metadata.get("annotations");
    let annotation = annotations.key(APPROVED);
    let approved = annotation
        .text()
        .split_once("://")
        .is_some_and(|(scheme, rest)| !scheme.is_empty() && !rest.is_empty() && !rest.starts_with('/'));
    if annotation.text().is_empty() {
        let detail = format!("protected groups must have approval annotation {APPROVED:?}, {see}");
        annotation.complain(Reason::Required, detail, errors);
    } else if !approved && !annotation.text().starts_with("unapproved") {
        annotation.invalid(
            format!(
                "protected groups must have approval annotation {APPROVED:?} with either a URL or a reason starting \
                 with \"unapproved\", {see}"
            ),
            errors,
        );
    }
}

#[cfg(test)]
mod tests;
