//! CustomResourceDefinition: a kind that users bring themselves.
//!
//! What is checked here is the definition around the schemas; the schemas themselves are another module's.

use crate::field::{Errors, Field, Reason};
use crate::kind::Kind;
use crate::kinds::pod_spec::fill;
use crate::kinds::rules;
use crate::object::{object_mut, set_default};
use crate::{crd, equality};
use crate::{names, object, printing};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Value, json};
use std::collections::HashSet;

const APPROVAL: &str = "api-approved.kubernetes.io";
const COLUMN_TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];
const COLUMN_FORMATS: [&str; 8] =
    ["byte", "date", "date-time", "double", "float", "int32", "int64", "password"];

/// The kind.
pub fn kind() -> Kind {
    Kind {
        categories: vec!["api-extensions".into()],
        columns: vec![printing::name_column(), rules::created_at_column()],
        unconditional_update: false,
        // What the creator gave is replaced by `prepare`, whose word counts.
        status_on_create: true,
        validate_name: names::dns_subdomain_name,
        default,
        prepare,
        validate,
        warnings: crd::warnings,
        validate_update,
        validate_status: |new, _, errors| {
            validate_names(&new.get("status").get("acceptedNames"), errors);
        },
        ..Kind::new::<CustomResourceDefinition>().short(&["crd", "crds"]).with_status().with_generation()
    }
}

fn default(definition: &mut Value) {
    object_mut(definition, "spec");
    let spec = &mut definition["spec"];
    object_mut(spec, "names");
    let names = &mut spec["names"];
    let kind = printing::text(names, "kind").to_owned();
    fill(names, "singular", kind.to_lowercase());
    if !kind.is_empty() {
        fill(names, "listKind", format!("{kind}List"));
    }
    set_default(spec, "conversion", json!({"strategy": "None"}));
    if let Some(service) = definition.pointer_mut("/spec/conversion/webhook/clientConfig/service") {
        set_default(service, "port", 443);
    }
    if printing::items(definition, "status.storedVersions").is_empty()
        && let Some(version) = storage_version(definition)
    {
        object_mut(definition, "status").insert("storedVersions".into(), json!([version]));
    }
}

/// The version under which objects are stored.
fn storage_version(definition: &Value) -> Option<String> {
    let versions = printing::items(definition, "spec.versions").iter();
    let storage = versions.into_iter().find(|version| version["storage"] == true)?;
    Some(printing::text(storage, "name").to_owned())
}

/// Remembers every version that objects have ever been stored in.
fn prepare(definition: &mut Value, old: Option<&Value>) {
    let mut status = match old {
        Some(old) => printing::at(old, "status").cloned().unwrap_or_else(|| json!({})),
        None => json!({"conditions": [], "acceptedNames": {"plural": "", "kind": ""}}),
    };
    let mut stored = printing::items(&status, "storedVersions").to_vec();
    if let Some(version) = storage_version(definition).filter(|version| !stored.iter().any(|v| v == version))
    {
        stored.push(version.into());
    }
    if let Some(status) = status.as_object_mut() {
        status.insert("storedVersions".into(), stored.into());
    }
    definition["status"] = status;
}

fn validate(definition: &Field<'_>, errors: &mut Errors) {
    let (spec, metadata) = (definition.get("spec"), definition.get("metadata"));
    let (group, given) = (spec.get("group"), spec.get("names"));
    let name = metadata.get("name");
    if object::name(definition.value()) != format!("{}.{}", given.get("plural").text(), group.text()) {
        name.invalid(r#"must be spec.names.plural+"."+spec.group"#, errors);
    }
    if group.required(errors) {
        let faults = names::is_dns1123_subdomain(group.text());
        if !faults.is_empty() {
            group.invalid(faults.join(","), errors);
        } else if !group.text().contains('.') {
            group.invalid("should be a domain with at least one dot", errors);
        }
    }
    let scope = spec.get("scope");
    if scope.required(errors) {
        scope.one_of(&["Cluster", "Namespaced"], errors);
    }
    validate_versions(&spec, errors);
    crd::validate_schemas(&spec, errors);
    for name in ["plural", "singular", "kind", "listKind"] {
        given.get(name).required(errors);
    }
    validate_names(&given, errors);
    validate_conversion(&spec.get("conversion"), errors);
    validate_names(&definition.get("status").get("acceptedNames"), errors);
    validate_stored_versions(definition, errors);
    validate_approval(definition, errors);
    let preserve = spec.get("preserveUnknownFields");
    if preserve.bool() {
        let detail = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
        preserve.invalid(detail, errors);
    }
}

fn validate_versions(spec: &Field<'_>, errors: &mut Errors) {
    let versions = spec.get("versions");
    let mut seen = HashSet::new();
    let (mut stored, mut unique) = (0, true);
    for version in versions.items() {
        let (name, schema) = (version.get("name"), version.get("schema"));
        if !schema.get("openAPIV3Schema").exists() {
            schema.get("openAPIV3Schema").complain(Reason::Required, "", errors);
        }
        stored += usize::from(version.get("storage").bool());
        unique &= seen.insert(name.text().to_owned());
        let faults = names::is_dns1035_label(name.text());
        if !faults.is_empty() {
            name.invalid_value(name.text(), faults.join(","), errors);
        }
        validate_deprecation_warning(&version, errors);
    }
    for (name, check) in [
        ("subresources", validate_subresources as fn(&Field<'_>, &mut Errors)),
        ("additionalPrinterColumns", validate_columns),
    ] {
        for_each_version(spec, name, check, errors);
    }
    if !unique {
        versions.invalid("must contain unique version names", errors);
    }
    if stored != 1 {
        let detail = "must have exactly one version marked as storage version";
        versions.invalid_value(versions.value().clone(), detail, errors);
    }
}

/// Checks a member of every version, or once, as if it stood in the spec, where all versions have the same: so
/// upstream sees it.
fn for_each_version(spec: &Field<'_>, name: &str, check: fn(&Field<'_>, &mut Errors), errors: &mut Errors) {
    let versions = printing::items(spec.value(), "versions");
    let nothing = Value::Null;
    let member = |version: &'_ Value| version.get(name).unwrap_or(&nothing).clone();
    let Some(first) = versions.first().map(member) else { return };
    if versions.iter().all(|version| equality::same(&member(version), &first)) {
        check(&spec.get(name).with_value(&first), errors);
    } else {
        for version in spec.get("versions").items() {
            check(&version.get(name), errors);
        }
    }
}

fn validate_deprecation_warning(version: &Field<'_>, errors: &mut Errors) {
    let warning = version.get("deprecationWarning");
    if !warning.exists() {
        return;
    }
    let text = warning.text();
    if !version.get("deprecated").bool() {
        warning.invalid("can only be set for deprecated versions", errors);
        return;
    }
    if text.len() > 256 {
        warning.invalid("must be <= 256 characters long", errors);
    }
    if text.is_empty() {
        warning.invalid("must not be an empty string", errors);
    }
    if let Some((at, _)) = text.char_indices().find(|(_, c)| c.is_control()) {
        let detail = format!(
            "must only contain printable UTF-8 characters; non-printable character found at index {at}"
        );
        warning.invalid(detail, errors);
    }
}

fn validate_subresources(subresources: &Field<'_>, errors: &mut Errors) {
    let scale = subresources.get("scale");
    if !scale.exists() {
        return;
    }
    for (name, parents, detail) in [
        ("specReplicasPath", [".spec."].as_slice(), "should be a json path under .spec"),
        ("statusReplicasPath", &[".status."], "should be a json path under .status"),
        ("labelSelectorPath", &[".spec.", ".status."], "should be a json path under either .spec or .status"),
    ] {
        let path = scale.get(name);
        if path.text().is_empty() {
            if name != "labelSelectorPath" {
                path.complain(Reason::Required, "", errors);
            }
        } else if !path.text().starts_with('.') {
            path.invalid("must be a simple json path starting with .", errors);
        } else if !parents.iter().any(|parent| path.text().starts_with(parent)) {
            path.invalid(detail, errors);
        }
    }
}

fn validate_columns(columns: &Field<'_>, errors: &mut Errors) {
    let one_of = |allowed: &[&str]| format!("must be one of {}", allowed.join(","));
    for column in columns.items() {
        let (ty, format) = (column.get("type"), column.get("format"));
        column.get("name").required(errors);
        if ty.required_because(&one_of(&COLUMN_TYPES), errors) && !COLUMN_TYPES.contains(&ty.text()) {
            ty.invalid(one_of(&COLUMN_TYPES), errors);
        }
        if !format.text().is_empty() && !COLUMN_FORMATS.contains(&format.text()) {
            format.invalid(one_of(&COLUMN_FORMATS), errors);
        }
        let given = column.get("jsonPath");
        let path = column.get("JSONPath").with_value(given.value());
        if path.required(errors) && !path.text().starts_with('.') {
            path.invalid("must be a simple json path starting with .", errors);
        }
    }
}

/// Names, whether wished for or accepted.
fn validate_names(given: &Field<'_>, errors: &mut Errors) {
    for name in ["plural", "singular"] {
        validate_label(&given.get(name), "", errors);
    }
    for name in ["kind", "listKind"] {
        validate_label(&given.get(name), "may have mixed case, but should otherwise match: ", errors);
    }
    for name in ["shortNames", "categories"] {
        for item in given.get(name).items() {
            validate_label(&item, "", errors);
        }
    }
    let (kind, list_kind) = (given.get("kind"), given.get("listKind"));
    if !kind.text().is_empty() && kind.text() == list_kind.text() {
        list_kind.invalid("kind and listKind may not be the same", errors);
    }
}

/// A label, in mixed case where a lead says so.
fn validate_label(field: &Field<'_>, lead: &str, errors: &mut Errors) {
    let text = if lead.is_empty() { field.text().to_owned() } else { field.text().to_lowercase() };
    let faults = names::is_dns1035_label(&text);
    if !text.is_empty() && !faults.is_empty() {
        field.invalid(format!("{lead}{}", faults.join(",")), errors);
    }
}

fn validate_conversion(conversion: &Field<'_>, errors: &mut Errors) {
    let (strategy, webhook) = (conversion.get("strategy"), conversion.get("webhook"));
    if strategy.required(errors) {
        strategy.one_of(&["None", "Webhook"], errors);
    }
    // Upstream's internal form has these two beside the strategy.
    let (client, versions) = (webhook.get("clientConfig"), webhook.get("conversionReviewVersions"));
    let client = conversion.get("webhookClientConfig").with_value(client.value());
    let versions = conversion.get("conversionReviewVersions").with_value(versions.value());
    if strategy.text() != "Webhook" {
        let detail = "should not be set when strategy is not set to Webhook";
        if client.exists() {
            client.forbidden(detail, errors);
        }
        if !versions.is_empty() {
            versions.forbidden(detail, errors);
        }
        return;
    }
    if !client.exists() {
        client.complain(Reason::Required, "required when strategy is set to Webhook", errors);
    } else if client.get("url").exists() == client.get("service").exists() {
        client.complain(Reason::Required, "exactly one of url or service is required", errors);
    } else if client.get("service").exists() {
        let service = client.get("service");
        for name in ["name", "namespace"] {
            service.get(name).required_because(&format!("service {name} is required"), errors);
        }
        rules::validate_port(&service.get("port"), errors);
    } else if !client.get("url").text().starts_with("https://") {
        let url = client.get("url");
        url.invalid("'https' is the only allowed URL scheme; desired format: https://host[/path]", errors);
    }
    if versions.required(errors) {
        rules::validate_review_versions(&versions, errors);
    }
}

/// What objects have been stored in must stay, until no object is.
fn validate_stored_versions(definition: &Field<'_>, errors: &mut Errors) {
    let status = definition.get("status");
    let stored = status.get("storedVersions");
    if stored.is_empty() {
        stored.invalid_value(stored.value().clone(), "must have at least one stored version", errors);
        return;
    }
    let spec = definition.get("spec");
    let versions = spec.get("versions");
    let listed = |name: &str| stored.items().any(|version| version.text() == name);
    for version in versions.items().filter(|version| version.get("storage").bool()) {
        let name = version.get("name").text().to_owned();
        if !listed(&name) {
            stored.invalid(format!("must have the storage version {name}"), errors);
        }
    }
    for version in stored.items() {
        let name = version.text();
        if !versions.items().any(|other| other.get("name").text() == name) {
            let detail = format!(
                "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in {name} and removes {name} from status.storedVersions"
            );
            version.invalid(detail, errors);
        }
    }
}

/// Kubernetes' own groups are not for everybody.
fn validate_approval(definition: &Field<'_>, errors: &mut Errors) {
    let (spec, metadata) = (definition.get("spec"), definition.get("metadata"));
    let group = spec.get("group");
    let is_of = |domain: &str| {
        group.text() == domain || group.text().strip_suffix(domain).is_some_and(|rest| rest.ends_with('.'))
    };
    if !is_of("k8s.io") && !is_of("kubernetes.io") {
        return;
    }
    let annotations = metadata.get("annotations");
    let approval = annotations.key(APPROVAL);
    let see = "see https://github.com/kubernetes/enhancements/pull/1111";
    let is_url = approval.text().split_once("://").is_some_and(|(scheme, rest)| {
        !scheme.is_empty() && !rest.split('/').next().unwrap_or_default().is_empty()
    });
    if approval.text().is_empty() {
        let detail = format!("protected groups must have approval annotation {APPROVAL:?}, {see}");
        approval.complain(Reason::Required, detail, errors);
    } else if !approval.text().starts_with("unapproved") && !is_url {
        let detail = format!(
            "protected groups must have approval annotation {APPROVAL:?} with either a URL or a reason starting with \"unapproved\", {see}"
        );
        approval.invalid(detail, errors);
    }
}

fn validate_update(new: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
    let (spec, before) = (new.get("spec"), old.get("spec"));
    let (given, given_before) = (spec.get("names"), before.get("names"));
    if object::condition_is(old.value(), "Established", "True") {
        spec.get("scope").immutable(&before.get("scope"), errors);
        given.get("kind").immutable(&given_before.get("kind"), errors);
    }
    spec.get("group").immutable(&before.get("group"), errors);
    given.get("plural").immutable(&given_before.get("plural"), errors);
}
