//! Rules that kinds of several groups share and that no upstream name covers in [`names`] or [`meta`](crate::meta).

use crate::field::{Errors, Field, FieldError, Reason};
use crate::kind::{Column, column};
use crate::{names, object};
use serde_json::Value;
use std::collections::HashSet;
use std::net::IpAddr;

/// A number that is not negative, or a percentage.
pub(crate) fn validate_int_or_percent(field: &Field<'_>, errors: &mut Errors) {
    match field.value() {
        Value::String(_) => field.conforms(names::is_percent, errors),
        _ => field.non_negative(errors),
    }
}

/// The number of an int-or-percentage; text that is neither counts as 0.
pub(crate) fn int_or_percent(field: &Field<'_>) -> i64 {
    match field.value() {
        Value::String(text) => text.strip_suffix('%').unwrap_or(text).parse().unwrap_or(0),
        other => other.as_i64().unwrap_or(0),
    }
}

/// A percentage is at most the whole.
pub(crate) fn validate_at_most_100_percent(field: &Field<'_>, errors: &mut Errors) {
    let is_percent = field.str().is_some_and(|text| names::is_percent(text).is_empty());
    if is_percent && int_or_percent(field) > 100 {
        field.invalid("must not be greater than 100%", errors);
    }
}

/// A port number; none at all counts as 0.
pub(crate) fn validate_port(field: &Field<'_>, errors: &mut Errors) {
    let port = field.int().unwrap_or(0);
    if !(1..=65535).contains(&port) {
        field.invalid_value(port, "must be between 1 and 65535, inclusive", errors);
    }
}

/// `example.com/path`.
pub(crate) fn validate_domain_prefixed_path(field: &Field<'_>, errors: &mut Errors) {
    if !field.required(errors) {
        return;
    }
    let (host, path) = field.text().split_once('/').unwrap_or_default();
    if host.is_empty() || path.is_empty() {
        field.invalid("must be a domain-prefixed path (such as \"acme.io/foo\")", errors);
        return;
    }
    for fault in names::is_dns1123_subdomain(host) {
        field.invalid_value(host, fault, errors);
    }
    if !path.bytes().all(|b| b.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&b)) {
        let fault = names::regex_error("Invalid path", r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+", &[]);
        field.invalid_value(path, fault, errors);
    }
}

/// An address that traffic may be sent to.
pub(crate) fn validate_endpoint_ip(field: &Field<'_>, errors: &mut Errors) {
    let text = field.text();
    let Some(ip) = parse_ip(text) else {
        field.invalid("must be a valid IP address", errors);
        return;
    };
    if ip.is_unspecified() {
        field.invalid(format!("may not be unspecified ({text})"), errors);
    }
    if ip.is_loopback() {
        field.invalid("may not be in the loopback range (127.0.0.0/8, ::1/128)", errors);
    }
    let (link_local, link_local_multicast) = match ip {
        IpAddr::V4(ip) => (ip.is_link_local(), ip.octets()[..3] == [224, 0, 0]),
        IpAddr::V6(ip) => (ip.is_unicast_link_local(), ip.segments()[0] & 0xff0f == 0xff02),
    };
    if link_local {
        field.invalid("may not be in the link-local range (169.254.0.0/16, fe80::/10)", errors);
    }
    if link_local_multicast {
        field.invalid("may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)", errors);
    }
}

/// An address, leading zeros ignored; an IPv4 address in IPv6 clothes is an IPv4 address.
pub(crate) fn parse_ip(text: &str) -> Option<IpAddr> {
    let without_zeros = || {
        let parts = text.split('.').map(|part| match part.trim_start_matches('0') {
            "" if !part.is_empty() => "0",
            part => part,
        });
        parts.collect::<Vec<_>>().join(".").parse().ok()
    };
    text.parse().ok().or_else(without_zeros).map(|ip: IpAddr| ip.to_canonical())
}

/// Versions of the reviews that a webhook understands: each once, and one of those that the server sends.
pub(crate) fn validate_review_versions(versions: &Field<'_>, errors: &mut Errors) {
    let mut seen = HashSet::new();
    for version in versions.items() {
        if seen.insert(version.text().to_owned()) {
            version.conforms(names::is_dns1035_label, errors);
        } else {
            version.invalid("duplicate version", errors);
        }
    }
    if !versions.items().any(|version| matches!(version.text(), "v1" | "v1beta1")) {
        versions.invalid("must include at least one of v1, v1beta1", errors);
    }
}

/// The kind and the name of another object: there, and fit for a path.
pub(crate) fn validate_kind_and_name(reference: &Field<'_>, errors: &mut Errors) {
    for name in ["kind", "name"] {
        let field = reference.get(name);
        if field.required(errors) {
            field.conforms(names::is_path_segment, errors);
        }
    }
}

/// A complaint that shows no value, since the fault is not in one value alone.
pub(crate) fn invalid_without_value(field: &Field<'_>, detail: impl Into<String>, errors: &mut Errors) {
    let (path, detail) = (field.path(), detail.into());
    errors.push(FieldError { reason: Reason::Invalid, path, value: None, detail });
}

/// When the object was made, as kinds without columns of their own show it.
pub(crate) fn created_at_column() -> Column {
    column("Created At", "date", |object, _| object::meta(object, "creationTimestamp").into())
}

/// A complaint at a path that is not the one of the data, where upstream has it so.
pub(crate) fn complain_at(
    path: &str,
    reason: Reason,
    value: Option<Value>,
    detail: &str,
    errors: &mut Errors,
) {
    errors.push(FieldError { reason, path: path.into(), value, detail: detail.into() });
}
