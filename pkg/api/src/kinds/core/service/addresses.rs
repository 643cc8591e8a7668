//! The addresses of a service: `clusterIP`, `clusterIPs`, `ipFamilies` and `ipFamilyPolicy`, which say one thing
//! between them.

use super::{is_headless, service_type};
use crate::field::{Errors, Field, Reason};
use crate::kinds::rules;
use crate::names;
use serde_json::Value;
use std::collections::HashSet;
use std::net::IpAddr;

/// Complains about addresses and families. An ExternalName service has none, which is checked elsewhere.
pub(super) fn validate(service: &Field<'_>, errors: &mut Errors) {
    if service_type(service.value()) == "ExternalName" {
        return;
    }
    let spec = service.get("spec");
    let (cluster_ip, cluster_ips) = (spec.get("clusterIP"), spec.get("clusterIPs"));
    let first = cluster_ips.value().get(0).and_then(Value::as_str);
    match (cluster_ip.text(), first) {
        ("", Some(_)) => {
            cluster_ips.invalid("must be empty when `clusterIP` is not specified", errors);
        }
        ("", None) => {}
        (_, None) => cluster_ips.complain(Reason::Required, "", errors),
        (ip, Some(first)) if ip != first => {
            cluster_ips.invalid("first value must match `clusterIP`", errors);
        }
        _ => {}
    }
    let families = spec.get("ipFamilies");
    let mut seen = HashSet::new();
    for family in families.items() {
        family.one_of(&["IPv4", "IPv6"], errors);
        if !seen.insert(family.text().to_owned()) {
            family.duplicate(errors);
        }
    }
    let policies = ["PreferDualStack", "RequireDualStack", "SingleStack"];
    spec.get("ipFamilyPolicy").one_of(&policies, errors);
    if validate_ips(&cluster_ips, errors) && !is_headless(service.value()) {
        validate_families(&cluster_ips, &families, errors);
    }
}

/// Complains about the addresses one by one; returns whether it is worth looking at them together.
fn validate_ips(cluster_ips: &Field<'_>, errors: &mut Errors) -> bool {
    let mut well_formed = true;
    for (index, ip) in cluster_ips.items().enumerate() {
        if index == 0 && ip.text() == "None" {
            if cluster_ips.len() > 1 {
                cluster_ips.invalid("'None' must be the first and only value", errors);
                well_formed = false;
            }
        } else if !names::is_legacy_ip(ip.text()).is_empty() {
            ip.conforms(names::is_legacy_ip, errors);
            well_formed = false;
        }
    }
    if cluster_ips.len() > 2 {
        cluster_ips.invalid("may only hold up to 2 values", errors);
    }
    well_formed
}

fn validate_families(cluster_ips: &Field<'_>, families: &Field<'_>, errors: &mut Errors) {
    let parsed: Vec<Option<IpAddr>> = cluster_ips.items().map(|ip| rules::parse_ip(ip.text())).collect();
    let of_six = |ip: &Option<IpAddr>| ip.is_some_and(|ip| ip.is_ipv6());
    if parsed.len() > 1 && parsed.iter().any(of_six) == parsed.iter().all(of_six) {
        cluster_ips.invalid("may specify no more than one IP for each IP family", errors);
    }
    for (index, ((field, ip), family)) in cluster_ips.items().zip(&parsed).zip(families.items()).enumerate() {
        let expected = family.text();
        if matches!(expected, "IPv4" | "IPv6") && (expected == "IPv6") != of_six(ip) {
            let article = format!("expected an {expected} value as indicated by `ipFamilies[{index}]`");
            field.invalid(article, errors);
        }
    }
}

/// Complains about a change of addresses: a second family may come and go, the first stays.
pub(super) fn validate_update(new: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
    let external_name = |service: &Field<'_>| service_type(service.value()) == "ExternalName";
    let (headless, was_headless) = (is_headless(new.value()), is_headless(old.value()));
    if external_name(new) || external_name(old) || headless && was_headless {
        return;
    }
    let (spec, before) = (new.get("spec"), old.get("spec"));
    validate_list_update(&spec, &before, &CLUSTER_IPS, errors);
    if headless == was_headless {
        validate_list_update(&spec, &before, &IP_FAMILIES, errors);
    }
}

/// A list whose first element is fixed, and upstream's words about it.
struct FixedList {
    name: &'static str,
    first_unset: &'static str,
    second_released: &'static str,
    /// Whether complaints about an element name that element, not the first.
    indexed: bool,
}

const CLUSTER_IPS: FixedList = FixedList {
    name: "clusterIPs",
    first_unset: "primary clusterIP can not be unset",
    second_released: "must be set to 'SingleStack' when releasing the secondary clusterIP",
    indexed: true,
};

const IP_FAMILIES: FixedList = FixedList {
    name: "ipFamilies",
    first_unset: "primary ipFamily can not be unset",
    second_released: "must be set to 'SingleStack' when releasing the secondary ipFamily",
    indexed: false,
};

fn validate_list_update(spec: &Field<'_>, before: &Field<'_>, list: &FixedList, errors: &mut Errors) {
    let (field, old) = (spec.get(list.name), before.get(list.name));
    let texts =
        |field: &Field<'_>| -> Vec<String> { field.items().map(|item| item.text().to_owned()).collect() };
    let (now, then) = (texts(&field), texts(&old));
    let mut invalid = |index: usize, detail: &str| {
        let path = format!("{}[{index}]", field.path());
        rules::complain_at(&path, Reason::Invalid, Some(field.value().clone()), detail, errors);
    };
    if now.len() == then.len() {
        for index in (0..now.len()).filter(|&index| now[index] != then[index]) {
            invalid(if list.indexed { index } else { 0 }, "may not change once set");
        }
        return;
    }
    if now.is_empty() {
        invalid(0, list.first_unset);
    } else if !then.is_empty() && now[0] != then[0] {
        invalid(0, "may not change once set");
    }
    let policy = spec.get("ipFamilyPolicy");
    if now.len() < then.len() && now.len() == 1 && policy.text() != "SingleStack" {
        policy.invalid_value(policy.value().clone(), list.second_released, errors);
    }
}
