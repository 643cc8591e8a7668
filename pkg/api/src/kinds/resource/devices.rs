//! What claims, classes and slices say of devices in the same words.

use crate::field::{Errors, Field, Reason};
use crate::kinds::pod_spec;
use crate::names;
use crate::object::set_default;
use serde_json::Value;
use std::collections::HashSet;

const MOST_REQUESTS: usize = 32;
const MOST_ALTERNATIVES: usize = 8;
const MOST_EXPRESSION_BYTES: usize = 10 * 1024;
const MOST_ID_BYTES: usize = 32;
pub(super) const EFFECTS: [&str; 3] = ["NoExecute", "NoSchedule", "None"];

/// Fills in how many devices each request of a claim is for.
pub(super) fn default_claim(spec: &mut Value) {
    let requests = spec.pointer_mut("/devices/requests").and_then(Value::as_array_mut);
    for request in requests.into_iter().flatten() {
        if let Some(exactly) = request.get_mut("exactly") {
            default_count(exactly);
        }
        let alternatives = request.get_mut("firstAvailable").and_then(Value::as_array_mut);
        alternatives.into_iter().flatten().for_each(default_count);
    }
}

fn default_count(request: &mut Value) {
    if request.is_object() {
        set_default(request, "allocationMode", "ExactCount");
        if request["allocationMode"] == "ExactCount" {
            set_default(request, "count", 1);
        }
    }
}

/// Complains about the spec of a claim.
pub(super) fn validate_claim(spec: &Field<'_>, errors: &mut Errors) {
    let devices = spec.get("devices");
    let requests = devices.get("requests");
    if requests.len() > MOST_REQUESTS {
        requests.too_many(MOST_REQUESTS, errors);
        return;
    }
    let mut seen = HashSet::new();
    for request in requests.items() {
        validate_request(&request, errors);
        if !seen.insert(request.get("name").text().to_owned()) {
            request.with_value(request.get("name").value()).duplicate(errors);
        }
    }
    let constraints = devices.get("constraints");
    for constraint in constraints.items() {
        validate_references(&constraint.get("requests"), &requests, errors);
        let (same, distinct) = (constraint.get("matchAttribute"), constraint.get("distinctAttribute"));
        match (same.exists(), distinct.exists()) {
            (false, true) => validate_fully_qualified(&distinct, errors),
            (true, _) => validate_fully_qualified(&same, errors),
            (false, false) => same.complain(Reason::Required, "", errors),
        }
    }
    for config in devices.get("config").items() {
        validate_references(&config.get("requests"), &requests, errors);
        validate_config(&config, errors);
    }
}

fn validate_request(request: &Field<'_>, errors: &mut Errors) {
    request.get("name").conforms(names::is_dns1123_label, errors);
    let (exactly, alternatives) = (request.get("exactly"), request.get("firstAvailable"));
    match (exactly.exists(), !alternatives.is_empty()) {
        (false, false) => {
            let detail = "exactly one of `exactly` or `firstAvailable` is required";
            request.complain(Reason::Required, detail, errors);
        }
        (true, true) => request.invalid_value(
            Value::Null,
            "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set",
            errors,
        ),
        (true, false) => validate_wanted(&exactly, errors),
        (false, true) if alternatives.len() > MOST_ALTERNATIVES => {
            alternatives.too_many(MOST_ALTERNATIVES, errors);
        }
        (false, true) => {
            for alternative in alternatives.items() {
                alternative.get("name").conforms(names::is_dns1123_label, errors);
                validate_wanted(&alternative, errors);
            }
        }
    }
}

/// Which devices, and how many.
fn validate_wanted(wanted: &Field<'_>, errors: &mut Errors) {
    let class = wanted.get("deviceClassName");
    if class.required(errors) {
        class.conforms(names::is_dns1123_subdomain, errors);
    }
    validate_selectors(&wanted.get("selectors"), errors);
    let (mode, count) = (wanted.get("allocationMode"), wanted.get("count"));
    match mode.text() {
        "All" if count.int().unwrap_or(0) != 0 => {
            count.invalid("must not be specified when allocationMode is 'All'", errors);
        }
        "ExactCount" if count.int().unwrap_or(0) <= 0 => {
            count.invalid_value(count.int().unwrap_or(0), "must be greater than zero", errors);
        }
        "All" | "ExactCount" => {}
        _ => mode.not_supported(&["All", "ExactCount"], errors),
    }
    for toleration in wanted.get("tolerations").items() {
        let (key, operator, value) =
            (toleration.get("key"), toleration.get("operator"), toleration.get("value"));
        if !key.text().is_empty() {
            key.conforms(names::is_qualified_name, errors);
        }
        match operator.text() {
            "Exists" if !value.text().is_empty() => {
                value.invalid("must be empty for operator `Exists`", errors);
            }
            "Equal" => value.conforms(names::is_label_value, errors),
            _ => operator.required_one_of(&["Equal", "Exists"], errors),
        }
        if !toleration.get("effect").text().is_empty() {
            toleration.get("effect").one_of(&EFFECTS, errors);
        }
    }
}

/// Complains about selectors of devices.
pub(super) fn validate_selectors(selectors: &Field<'_>, errors: &mut Errors) {
    for selector in selectors.items() {
        let cel = selector.get("cel");
        let expression = cel.get("expression");
        if !cel.exists() {
            cel.required(errors);
        } else if expression.required(errors) && expression.text().len() > MOST_EXPRESSION_BYTES {
            expression.too_long(MOST_EXPRESSION_BYTES, errors);
        }
    }
}

/// Complains about what a driver is told.
pub(super) fn validate_config(config: &Field<'_>, errors: &mut Errors) {
    let opaque = config.get("opaque");
    if !opaque.exists() {
        opaque.required(errors);
        return;
    }
    pod_spec::validate_csi_driver_name(&opaque.get("driver"), errors);
    let parameters = opaque.get("parameters");
    if !parameters.exists() || parameters.value().is_null() {
        parameters.required(errors);
    } else if parameters.object().is_none() {
        parameters.invalid_value("<value omitted>", "must be a valid JSON object", errors);
    }
}

/// Each is `request`, or `request/alternative`.
pub(super) fn validate_references(references: &Field<'_>, requests: &Field<'_>, errors: &mut Errors) {
    for reference in references.items() {
        validate_reference(&reference, requests, errors);
    }
}

pub(super) fn validate_reference(reference: &Field<'_>, requests: &Field<'_>, errors: &mut Errors) {
    let (name, alternative) = match reference.text().split_once('/') {
        Some((name, alternative)) => (name, Some(alternative)),
        None => (reference.text(), None),
    };
    let is_known = requests.items().any(|request| {
        let alternatives = request.get("firstAvailable");
        let mut alternatives = alternatives.items();
        request.get("name").text() == name
            && alternative.is_none_or(|name| alternatives.any(|other| other.get("name").text() == name))
    });
    if !is_known {
        let detail = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'";
        reference.invalid_value(reference.text(), detail, errors);
    }
}

/// Complains about the name of a pool: subdomains with slashes between them.
pub(super) fn validate_pool(pool: &Field<'_>, errors: &mut Errors) {
    if pool.required(errors) {
        for part in pool.text().split('/') {
            for fault in names::is_dns1123_subdomain(part) {
                pool.invalid_value(part, fault, errors);
            }
        }
    }
}

/// Complains about a name with a domain or without.
pub(super) fn validate_qualified(place: &Field<'_>, name: &str, errors: &mut Errors) {
    let id = match name.split_once('/') {
        Some((domain, id)) => {
            let domain = Value::from(domain);
            pod_spec::validate_csi_driver_name(&place.with_value(&domain), errors);
            id
        }
        None => name,
    };
    if id.len() > MOST_ID_BYTES {
        place.too_long(MOST_ID_BYTES, errors);
    }
    for fault in names::is_c_identifier(id) {
        place.invalid_value(id, fault, errors);
    }
}

fn validate_fully_qualified(name: &Field<'_>, errors: &mut Errors) {
    validate_qualified(name, name.text(), errors);
    if !name.text().contains('/') {
        name.invalid("a fully qualified name must be a domain and a name separated by a slash", errors);
    }
}
