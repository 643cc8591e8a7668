//! FlowSchema: which requests belong together.

use super::{MANDATORY, schemas, validate_conditions};
use crate::field::{Errors, Field, Reason};
use crate::kind::{Kind, column};
use crate::object::{self, object_mut};
use crate::{equality, names, printing};
use k8s_openapi::api::flowcontrol::v1::FlowSchema;
use serde_json::Value;

const VERBS: [&str; 9] =
    ["create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"];
const HIGHEST_PRECEDENCE: i64 = 10_000;

/// The kind.
pub fn kind() -> Kind {
    Kind {
        columns: vec![
            printing::name_column(),
            column("PriorityLevel", "string", |schema, _| {
                printing::text(schema, "spec.priorityLevelConfiguration.name").into()
            }),
            column("MatchingPrecedence", "string", |schema, _| {
                printing::int(schema, "spec.matchingPrecedence").into()
            }),
            column("DistinguisherMethod", "string", |schema, _| {
                printing::or_none(printing::text(schema, "spec.distinguisherMethod.type")).into()
            }),
            printing::age_column(),
            column("MissingPL", "string", |schema, _| dangling(schema).into()),
        ],
        validate_name: names::dns_subdomain_name,
        default: |schema| {
            let spec = object_mut(schema, "spec");
            if spec.get("matchingPrecedence").and_then(Value::as_i64).unwrap_or(0) == 0 {
                spec.insert("matchingPrecedence".into(), 1000.into());
            }
        },
        validate,
        validate_status: |new, _, errors| validate_conditions(new, errors),
        ..Kind::new::<FlowSchema>().with_status().with_generation()
    }
}

fn dangling(schema: &Value) -> &str {
    let conditions = printing::items(schema, "status.conditions");
    let found = conditions.iter().find(|condition| condition["type"] == "Dangling");
    found.map_or("?", |condition| printing::text(condition, "status"))
}

fn validate(schema: &Field<'_>, errors: &mut Errors) {
    let spec = schema.get("spec");
    let name = object::name(schema.value());
    let precedence = spec.get("matchingPrecedence");
    match precedence.int().unwrap_or(0) {
        ..=0 => precedence.invalid("must be a positive value", errors),
        1 if name != "exempt" => {
            precedence.invalid("only the schema named 'exempt' may have matchingPrecedence 1", errors);
        }
        number if number > HIGHEST_PRECEDENCE => {
            precedence.invalid(format!("must not be greater than {HIGHEST_PRECEDENCE}"), errors);
        }
        _ => {}
    }
    let method = spec.get("distinguisherMethod");
    if method.exists() && !matches!(method.get("type").text(), "ByNamespace" | "ByUser") {
        method.get("type").not_supported(&["ByNamespace", "ByUser"], errors);
    }
    let reference = spec.get("priorityLevelConfiguration");
    let level = reference.get("name");
    if level.required_because("must reference a priority level", errors) {
        level.conforms(names::is_dns1123_subdomain, errors);
    }
    for rule in spec.get("rules").items() {
        validate_rule(&rule, errors);
    }
    let fixed = schemas().into_iter().find(|(fixed, _)| *fixed == name && MANDATORY.contains(fixed));
    if fixed.is_some_and(|(_, fixed)| !equality::same(&fixed, spec.value())) {
        spec.invalid(format!("spec of '{name}' must equal the fixed value"), errors);
    }
}

fn validate_rule(rule: &Field<'_>, errors: &mut Errors) {
    let subjects = rule.get("subjects");
    subjects.required_because("subjects must contain at least one value", errors);
    for subject in subjects.items() {
        validate_subject(&subject, errors);
    }
    let (resources, others) = (rule.get("resourceRules"), rule.get("nonResourceRules"));
    if resources.is_empty() && others.is_empty() {
        let detail = "at least one of resourceRules and nonResourceRules has to be non-empty";
        rule.complain(Reason::Required, detail, errors);
    }
    for resource in resources.items() {
        validate_resources(&resource, errors);
    }
    for other in others.items() {
        validate_verbs(&other.get("verbs"), errors);
        let urls = other.get("nonResourceURLs");
        let is_wild = only_wildcard(
            &urls,
            "nonResourceURLs must contain at least one value",
            "non-resource URLs",
            errors,
        );
        for url in urls.items().filter(|_| !is_wild) {
            validate_url(&url, errors);
        }
    }
}

fn validate_subject(subject: &Field<'_>, errors: &mut Errors) {
    const KINDS: [(&str, &str); 3] =
        [("ServiceAccount", "serviceAccount"), ("User", "user"), ("Group", "group")];
    let kind = subject.get("kind").text();
    let Some((_, member)) = KINDS.iter().find(|(known, _)| *known == kind) else {
        return subject.get("kind").not_supported(&["Group", "ServiceAccount", "User"], errors);
    };
    for (other, name) in KINDS.iter().filter(|(other, _)| *other != kind) {
        if subject.get(name).exists() {
            subject
                .get(name)
                .forbidden(format!("{name} is forbidden when subject kind is not '{other}'"), errors);
        }
    }
    let who = subject.get(member);
    if !who.exists() {
        return who.complain(
            Reason::Required,
            format!("{member} is required when subject kind is '{kind}'"),
            errors,
        );
    }
    let name = who.get("name");
    let is_named = name.required(errors);
    if kind == "ServiceAccount" {
        if is_named && name.text() != "*" {
            name.conforms(names::is_dns1123_subdomain, errors);
        }
        let namespace = who.get("namespace");
        if namespace.required_because("must specify namespace for service account", errors) {
            namespace.conforms(names::is_dns1123_label, errors);
        }
    }
}

/// Whether the list stands for everything.
fn only_wildcard(list: &Field<'_>, missing: &str, what: &str, errors: &mut Errors) -> bool {
    list.required_because(missing, errors);
    let is_wild = list.items().any(|item| item.text() == "*");
    if is_wild && list.len() > 1 {
        list.invalid(format!("if '*' is present, must not specify other {what}"), errors);
    }
    is_wild
}

fn validate_verbs(verbs: &Field<'_>, errors: &mut Errors) {
    let is_wild = only_wildcard(verbs, "verbs must contain at least one value", "verbs", errors);
    if !is_wild && verbs.items().any(|verb| !VERBS.contains(&verb.text())) {
        verbs.not_supported(&VERBS, errors);
    }
}

fn validate_resources(rule: &Field<'_>, errors: &mut Errors) {
    validate_verbs(&rule.get("verbs"), errors);
    only_wildcard(
        &rule.get("apiGroups"),
        "resource rules must supply at least one api group",
        "api groups",
        errors,
    );
    only_wildcard(
        &rule.get("resources"),
        "resource rules must supply at least one resource",
        "resources",
        errors,
    );
    let namespaces = rule.get("namespaces");
    if namespaces.is_empty() && rule.get("clusterScope").bool() {
        return;
    }
    let missing = "resource rules that are not cluster scoped must supply at least one namespace";
    if only_wildcard(&namespaces, missing, "namespaces", errors) {
        return;
    }
    for namespace in namespaces.items() {
        for fault in names::is_dns1123_label(namespace.text()) {
            let detail = format!("each member of this list must be '*' or a DNS-1123 label; {fault}");
            namespace.invalid(detail, errors);
        }
    }
}

fn validate_url(url: &Field<'_>, errors: &mut Errors) {
    let text = url.text();
    let stars = text.matches('*').count();
    let fault = match text {
        "" => "must not be empty",
        "/" => return,
        text if !text.starts_with('/') => "must start with slash",
        text if text.contains(' ') => "must not contain white-space",
        text if text.contains("//") => "must not contain double slash",
        text if stars > 1 || (stars == 1 && !text.ends_with("/*")) => "wildcard can only do suffix matching",
        _ => return,
    };
    url.invalid(fault, errors);
}
