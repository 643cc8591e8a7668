//! Which families of addresses a service has: from what is asked for, what it had, and what the cluster has.

use super::ranges::{ServiceRanges, family_of};
use api::field::Reason;
use api::{FieldError, Value};
use serde_json::{Map, json};
use std::net::IpAddr;

const SINGLE: &str = "SingleStack";
const PREFER: &str = "PreferDualStack";
const REQUIRE: &str = "RequireDualStack";

/// Sets `ipFamilyPolicy` and `ipFamilies`, and takes away the second address of a service that no longer wants one. What
/// makes no sense by itself is left for validation to complain about.
pub fn settle(
    spec: &mut Map<String, Value>,
    old: Option<&Value>,
    ranges: &ServiceRanges,
) -> Result<(), Vec<FieldError>> {
    let old = old.map(|old| &old["spec"]).filter(|old| old["type"] != "ExternalName");
    if old.is_some_and(|old| prefers_what_it_has(spec, old)) {
        return Ok(());
    }
    let bare = spec.get("clusterIP").is_some_and(|ip| ip == "None")
        && spec.get("selector").and_then(Value::as_object).is_none_or(Map::is_empty);
    let policy = match (text(spec, "ipFamilyPolicy"), old.and_then(|old| old["ipFamilyPolicy"].as_str())) {
        (Some(policy), _) => policy.to_owned(),
        (None, Some(before)) => before.to_owned(),
        (None, None) => (if bare { REQUIRE } else { SINGLE }).to_owned(),
    };
    spec.insert("ipFamilyPolicy".into(), policy.as_str().into());
    for name in ["clusterIPs", "ipFamilies"] {
        let then = old.map(|old| texts(old.get(name))).unwrap_or_default();
        let now = texts(spec.get(name));
        if policy == SINGLE && now == then && now.len() > 1 {
            spec.insert(name.into(), json!([now[0]]));
        } else if policy != SINGLE && !now.is_empty() && now.len() < then.len() {
            return Ok(());
        }
    }
    let addresses = texts(spec.get("clusterIPs"));
    let mut families = texts(spec.get("ipFamilies"));
    let mut errors = Vec::new();
    let mut invalid = |path: String, value: Value, detail: String| {
        errors.push(FieldError { reason: Reason::Invalid, path, value: Some(value), detail });
    };
    for (count, what) in [(addresses.len(), "cluster IPs"), (families.len(), "IP families")] {
        if policy == SINGLE && count == 2 {
            let detail =
                format!("must be 'RequireDualStack' or 'PreferDualStack' when multiple {what} are specified");
            invalid("spec.ipFamilyPolicy".into(), SINGLE.into(), detail);
        }
    }
    for (index, address) in addresses.iter().enumerate().skip(families.len()) {
        let Ok(address) = address.parse::<IpAddr>() else { break };
        let family = family_of(address);
        if ranges.of(family).is_some() {
            families.push(family.to_owned());
        } else {
            let detail = format!("{family} is not configured on this cluster");
            invalid(format!("spec.clusterIPs[{index}]"), json!(addresses), detail);
        }
    }
    if bare {
        // Whoever names the addresses of such a service may name any.
        finish(spec, families, policy != SINGLE, ranges);
        return if errors.is_empty() { Ok(()) } else { Err(errors) };
    }
    if policy == REQUIRE && ranges.second.is_none() {
        let detail = "this cluster is not configured for dual-stack services".to_owned();
        invalid("spec.ipFamilyPolicy".into(), REQUIRE.into(), detail);
    }
    for (index, family) in families.iter().enumerate() {
        if matches!(family.as_str(), "IPv4" | "IPv6") && ranges.of(family).is_none() {
            let path = format!("spec.ipFamilies[{index}]");
            invalid(path, family.as_str().into(), "not configured on this cluster".to_owned());
        }
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    finish(spec, families, policy != SINGLE && ranges.second.is_some(), ranges);
    Ok(())
}

fn finish(spec: &mut Map<String, Value>, mut families: Vec<String>, both: bool, ranges: &ServiceRanges) {
    if families.is_empty() {
        families.push(family_of(ranges.first.addr()).to_owned());
    }
    if both && families.len() == 1 {
        families.push((if families[0] == "IPv4" { "IPv6" } else { "IPv4" }).to_owned());
    }
    spec.insert("ipFamilies".into(), json!(families));
}

/// A service that prefers two families gets or loses none because the cluster has changed.
fn prefers_what_it_has(spec: &Map<String, Value>, old: &Value) -> bool {
    let same = |name: &str| texts(spec.get(name)) == texts(old.get(name));
    text(spec, "ipFamilyPolicy") == Some(PREFER)
        && old["ipFamilyPolicy"] == PREFER
        && !texts(spec.get("clusterIPs")).is_empty()
        && same("clusterIPs")
        && same("ipFamilies")
}

fn text<'a>(spec: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    spec.get(name).and_then(Value::as_str)
}

fn texts(list: Option<&Value>) -> Vec<String> {
    let items = list.and_then(Value::as_array).into_iter().flatten();
    items.filter_map(|item| item.as_str().map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DUAL: &str = "10.96.0.0/12,fd00:10:96::/112";
    const ONE: &str = "10.96.0.0/12";

    fn settled(cluster: &str, spec: Value, old: Option<Value>) -> Result<String, String> {
        let mut spec = spec.as_object().expect("an object").clone();
        let old = old.map(|old| json!({"spec": old}));
        match settle(&mut spec, old.as_ref(), &cluster.parse().expect("ranges")) {
            Ok(()) => Ok(format!(
                "{} {} {}",
                text(&spec, "ipFamilyPolicy").unwrap_or("-"),
                texts(spec.get("ipFamilies")).join(","),
                texts(spec.get("clusterIPs")).join(",")
            )),
            Err(errors) => Err(errors.iter().map(|e| format!("{}: {}", e.path, e.detail)).collect()),
        }
    }

    #[test]
    fn a_new_service_has_what_it_asks_for_and_the_cluster_has() {
        let check = |cluster: &str, spec: Value, expected: Result<&str, &str>| {
            let found = settled(cluster, spec.clone(), None);
            assert_eq!(found.as_deref().map_err(String::as_str), expected, "{cluster} {spec}");
        };
        let selector = json!({"app": "web"});
        check(ONE, json!({}), Ok("SingleStack IPv4 "));
        check(DUAL, json!({}), Ok("SingleStack IPv4 "));
        check(DUAL, json!({"ipFamilies": ["IPv6"]}), Ok("SingleStack IPv6 "));
        check(DUAL, json!({"ipFamilyPolicy": PREFER}), Ok("PreferDualStack IPv4,IPv6 "));
        check(
            DUAL,
            json!({"ipFamilyPolicy": REQUIRE, "ipFamilies": ["IPv6"]}),
            Ok("RequireDualStack IPv6,IPv4 "),
        );
        check(ONE, json!({"ipFamilyPolicy": PREFER}), Ok("PreferDualStack IPv4 "));
        check(
            ONE,
            json!({"ipFamilyPolicy": REQUIRE}),
            Err("spec.ipFamilyPolicy: this cluster is not configured for dual-stack services"),
        );
        check(
            ONE,
            json!({"ipFamilies": ["IPv6"]}),
            Err("spec.ipFamilies[0]: not configured on this cluster"),
        );
        check(
            ONE,
            json!({"clusterIPs": ["fd00::1"]}),
            Err("spec.clusterIPs[0]: IPv6 is not configured on this cluster"),
        );
        check(
            DUAL,
            json!({"ipFamilies": ["IPv4", "IPv6"]}),
            Err(
                "spec.ipFamilyPolicy: must be 'RequireDualStack' or 'PreferDualStack' when multiple IP families are \
                 specified",
            ),
        );
        let addresses = json!({"ipFamilyPolicy": PREFER, "clusterIPs": ["fd00:10:96::7", "10.96.0.7"]});
        check(DUAL, addresses, Ok("PreferDualStack IPv6,IPv4 fd00:10:96::7,10.96.0.7"));
        check(DUAL, json!({"clusterIPs": ["fd00:10:96::7"]}), Ok("SingleStack IPv6 fd00:10:96::7"));
        // Without an address of its own, and without pods to find, it is for whatever somebody writes into its slices.
        let none = json!({"clusterIP": "None", "clusterIPs": ["None"]});
        check(ONE, none, Ok("RequireDualStack IPv4,IPv6 None"));
        let chosen = json!({"clusterIP": "None", "clusterIPs": ["None"], "selector": selector});
        check(DUAL, chosen, Ok("SingleStack IPv4 None"));
    }

    #[test]
    fn a_second_family_comes_and_goes_by_the_policy_alone() {
        let check = |cluster: &str, spec: Value, old: Value, expected: &str| {
            assert_eq!(settled(cluster, spec.clone(), Some(old)).as_deref(), Ok(expected), "{spec}");
        };
        let of = |policy: &str, families: &[&str], addresses: &[&str]| json!({"ipFamilyPolicy": policy, "ipFamilies": families, "clusterIPs": addresses});
        let single = of(SINGLE, &["IPv4"], &["10.96.0.7"]);
        let both = of(REQUIRE, &["IPv4", "IPv6"], &["10.96.0.7", "fd00:10:96::7"]);
        check(
            DUAL,
            of(REQUIRE, &["IPv4"], &["10.96.0.7"]),
            single.clone(),
            "RequireDualStack IPv4,IPv6 10.96.0.7",
        );
        let down = of(SINGLE, &["IPv4", "IPv6"], &["10.96.0.7", "fd00:10:96::7"]);
        check(DUAL, down, both.clone(), "SingleStack IPv4 10.96.0.7");
        // One that prefers two stays as it is when the cluster gets a second range.
        let prefers = of(PREFER, &["IPv4"], &["10.96.0.7"]);
        check(DUAL, prefers.clone(), prefers, "PreferDualStack IPv4 10.96.0.7");
        // Taking one away without saying so is left to validation.
        let less = of(REQUIRE, &["IPv4"], &["10.96.0.7"]);
        check(DUAL, less, both, "RequireDualStack IPv4 10.96.0.7");
        check(DUAL, json!({}), json!({"type": "ExternalName"}), "SingleStack IPv4 ");
    }
}
