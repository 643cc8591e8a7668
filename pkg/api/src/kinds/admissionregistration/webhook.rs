//! What webhooks of both kinds have in common.

use super::matching;
use crate::field::{Errors, Field, Reason};
use crate::kind::{Column, column};
use crate::kinds::rules;
use crate::object::{object_mut, set_default};
use crate::{meta, names, printing};
use serde_json::{Value, json};
use std::collections::HashSet;

pub(super) fn columns() -> Vec<Column> {
    let count = |configuration: &Value, _| printing::items(configuration, "webhooks").len().into();
    vec![printing::name_column(), column("Webhooks", "integer", count), printing::age_column()]
}

pub(super) fn hooks_mut(configuration: &mut Value) -> &mut [Value] {
    match configuration.get_mut("webhooks").and_then(Value::as_array_mut) {
        Some(hooks) => hooks,
        None => &mut [],
    }
}

pub(super) fn default(hook: &mut Value) {
    set_default(hook, "failurePolicy", "Fail");
    set_default(hook, "matchPolicy", "Equivalent");
    set_default(hook, "namespaceSelector", json!({}));
    set_default(hook, "objectSelector", json!({}));
    set_default(hook, "timeoutSeconds", 10);
    object_mut(hook, "clientConfig");
    if let Some(service) = hook.pointer_mut("/clientConfig/service").filter(|service| service.is_object()) {
        set_default(service, "port", 443);
    }
    matching::default_rules(hook, "rules");
}

pub(super) fn validate_all(hooks: &Field<'_>, errors: &mut Errors) {
    let mut seen = HashSet::new();
    for hook in hooks.items() {
        validate(&hook, errors);
        let name = hook.get("name");
        if !name.text().is_empty() && !seen.insert(name.text().to_owned()) {
            name.duplicate(errors);
        }
    }
}

fn validate(hook: &Field<'_>, errors: &mut Errors) {
    validate_name(&hook.get("name"), errors);
    for rule in hook.get("rules").items() {
        matching::validate_rule(&rule, errors);
    }
    hook.get("failurePolicy").one_of(&["Fail", "Ignore"], errors);
    hook.get("matchPolicy").one_of(&["Equivalent", "Exact"], errors);
    let side_effects = hook.get("sideEffects");
    if side_effects.required_because("must specify one of None, NoneOnDryRun", errors) {
        side_effects.one_of(&["None", "NoneOnDryRun"], errors);
    }
    let timeout = hook.get("timeoutSeconds");
    if timeout.int().is_some_and(|seconds| !(1..=30).contains(&seconds)) {
        timeout.invalid("the timeout value must be between 1 and 30 seconds", errors);
    }
    meta::validate_label_selector(&hook.get("namespaceSelector"), errors);
    meta::validate_label_selector(&hook.get("objectSelector"), errors);
    validate_client(&hook.get("clientConfig"), errors);
    matching::validate_conditions(&hook.get("matchConditions"), false, errors);
    let versions = hook.get("admissionReviewVersions");
    if versions.required_because("must specify one of v1, v1beta1", errors) {
        rules::validate_review_versions(&versions, errors);
    }
}

fn validate_name(name: &Field<'_>, errors: &mut Errors) {
    if !name.required(errors) {
        return;
    }
    let faults = names::is_dns1123_subdomain(name.text());
    if !faults.is_empty() {
        name.invalid(faults.join(","), errors);
    } else if name.text().split('.').count() < 3 {
        name.invalid("should be a domain with at least three segments separated by dots", errors);
    }
}

fn validate_client(client: &Field<'_>, errors: &mut Errors) {
    let (url, service) = (client.get("url"), client.get("service"));
    if url.exists() == service.exists() {
        client.complain(Reason::Required, "exactly one of url or service is required", errors);
    } else if url.exists() {
        validate_url(&url, errors);
    } else {
        validate_service(&service, errors);
    }
}

fn validate_url(url: &Field<'_>, errors: &mut Errors) {
    const FORM: &str = "; desired format: https://host[/path]";
    let (scheme, rest) = url.text().split_once("://").unwrap_or(("", url.text()));
    let (rest, fragment) = rest.split_once('#').unwrap_or((rest, ""));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let authority = rest.split('/').next().unwrap_or_default();
    let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    if scheme != "https" {
        url.invalid_value(scheme, format!("'https' is the only allowed URL scheme{FORM}"), errors);
    }
    if host.is_empty() || scheme.is_empty() {
        url.invalid_value("", format!("host must be specified{FORM}"), errors);
    }
    for (part, detail) in [
        (user, "user information is not permitted in the URL"),
        (fragment, "fragments are not permitted in the URL"),
        (query, "query parameters are not permitted in the URL"),
    ] {
        if !part.is_empty() {
            url.invalid_value(part, detail, errors);
        }
    }
}

fn validate_service(service: &Field<'_>, errors: &mut Errors) {
    service.get("name").required(errors);
    service.get("namespace").required(errors);
    let port = service.get("port");
    if !port.int().is_some_and(|port| (1..=65535).contains(&port)) {
        let number = port.int().unwrap_or(0);
        port.invalid_value(number, "port is not valid: must be between 1 and 65535, inclusive", errors);
    }
    let path = service.get("path");
    match path.text() {
        "" | "/" => return,
        "//" => return path.invalid("segment[0] may not be empty", errors),
        text if !text.starts_with('/') => path.invalid("must start with a '/'", errors),
        _ => {}
    }
    let text = path.text().get(1..).unwrap_or_default();
    for (index, step) in text.strip_suffix('/').unwrap_or(text).split('/').enumerate() {
        if step.is_empty() {
            path.invalid(format!("segment[{index}] may not be empty"), errors);
            continue;
        }
        for fault in names::is_dns1123_subdomain(step) {
            path.invalid(format!("segment[{index}]: {fault}"), errors);
        }
    }
}
