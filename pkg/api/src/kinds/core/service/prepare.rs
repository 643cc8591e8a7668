//! What a writer of a service left out or left over: values the server handed out are kept, and go when the new type
//! has no use for them.
//!
//! A field is dropped only if it no longer applies and the writer did not change it: a change is for validation to
//! refuse.

use super::{externally_accessible, needs_health_check, service_type};
use crate::kinds::pod_spec::list_mut;
use crate::printing;
use serde_json::{Map, Value, json};
use std::collections::{HashMap, HashSet};

/// See the module.
pub(super) fn prepare(service: &mut Value, old: Option<&Value>) {
    if let Some(old) = old {
        keep_allocated(service, old);
    }
    match_cluster_ips(service, old);
    if let Some(old) = old {
        drop_what_the_type_has_no_use_for(service, old);
    }
}

fn spec_mut(service: &mut Value) -> &mut Map<String, Value> {
    crate::object::object_mut(service, "spec")
}

fn needs_cluster_ip(service: &Value) -> bool {
    service_type(service) != "ExternalName"
}

fn needs_node_ports(service: &Value) -> bool {
    matches!(service_type(service), "NodePort" | "LoadBalancer")
}

/// Whether a member of the spec is the same in both, where missing and empty are one.
fn unchanged(service: &Value, old: &Value, name: &str) -> bool {
    crate::equality::same(&json!({"value": service["spec"][name]}), &json!({"value": old["spec"][name]}))
}

fn node_ports(service: &Value) -> HashSet<i64> {
    let ports = printing::items(service, "spec.ports").iter();
    ports.map(|port| printing::int(port, "nodePort")).filter(|&port| port != 0).collect()
}

/// Writing the same manifest again must not lose the addresses and ports that it never named.
fn keep_allocated(service: &mut Value, old: &Value) {
    if needs_cluster_ip(old) && needs_cluster_ip(service) {
        if printing::text(service, "spec.clusterIP").is_empty() {
            keep(service, old, "clusterIP");
        }
        if printing::items(service, "spec.clusterIPs").is_empty() {
            keep(service, old, "clusterIPs");
        }
        for name in ["ipFamilies", "ipFamilyPolicy"] {
            if printing::at(&service["spec"], name).is_none() {
                keep(service, old, name);
            }
        }
    }
    if needs_node_ports(old) && needs_node_ports(service) {
        let (before, now) = (node_ports(old), node_ports(service));
        let used: HashSet<i64> = before.intersection(&now).copied().collect();
        let by_name: HashMap<&str, i64> = printing::items(old, "spec.ports")
            .iter()
            .map(|port| (printing::text(port, "name"), printing::int(port, "nodePort")))
            .collect();
        for port in list_mut(&mut service["spec"], "ports") {
            let kept = by_name.get(printing::text(port, "name")).copied().unwrap_or(0);
            if printing::int(port, "nodePort") == 0 && kept != 0 && !used.contains(&kept) {
                port["nodePort"] = kept.into();
            }
        }
    }
    if needs_health_check(old)
        && needs_health_check(service)
        && printing::int(service, "spec.healthCheckNodePort") == 0
    {
        keep(service, old, "healthCheckNodePort");
    }
}

fn keep(service: &mut Value, old: &Value, name: &str) {
    if let Some(value) = old["spec"].get(name) {
        spec_mut(service).insert(name.into(), value.clone());
    }
}

/// Old clients know `clusterIP` only, new ones `clusterIPs` as well.
fn match_cluster_ips(service: &mut Value, old: Option<&Value>) {
    let ip = printing::text(service, "spec.clusterIP").to_owned();
    let has_ips = !printing::items(service, "spec.clusterIPs").is_empty();
    let Some(old) = old else {
        if !ip.is_empty() && !has_ips {
            spec_mut(service).insert("clusterIPs".into(), json!([ip]));
        }
        return;
    };
    let same_ip = printing::text(old, "spec.clusterIP") == ip;
    if same_ip && !has_ips {
        keep(service, old, "clusterIPs");
    }
    if !same_ip && unchanged(service, old, "clusterIPs") {
        if ip.is_empty() {
            spec_mut(service).remove("clusterIPs");
        } else {
            spec_mut(service).insert("clusterIPs".into(), json!([ip]));
        }
    }
}

fn drop_what_the_type_has_no_use_for(service: &mut Value, old: &Value) {
    if needs_cluster_ip(old) && !needs_cluster_ip(service) {
        if unchanged(service, old, "clusterIP") && unchanged(service, old, "clusterIPs") {
            spec_mut(service).remove("clusterIP");
            spec_mut(service).remove("clusterIPs");
        }
        drop_unchanged(service, old, "ipFamilies");
        drop_unchanged(service, old, "ipFamilyPolicy");
    }
    let adds_no_node_port = node_ports(old).is_superset(&node_ports(service));
    if needs_node_ports(old) && !needs_node_ports(service) && adds_no_node_port {
        for port in list_mut(&mut service["spec"], "ports") {
            port.as_object_mut().map(|port| port.remove("nodePort"));
        }
    }
    if needs_health_check(old) && !needs_health_check(service) {
        drop_unchanged(service, old, "healthCheckNodePort");
    }
    if service_type(old) == "LoadBalancer" && service_type(service) != "LoadBalancer" {
        drop_unchanged(service, old, "allocateLoadBalancerNodePorts");
        drop_unchanged(service, old, "loadBalancerClass");
    }
    if externally_accessible(old) && !externally_accessible(service) {
        drop_unchanged(service, old, "externalTrafficPolicy");
    }
    if service_type(service) != "LoadBalancer"
        && let Some(status) = service.get_mut("status").and_then(Value::as_object_mut)
    {
        status.insert("loadBalancer".into(), json!({}));
    }
}

fn drop_unchanged(service: &mut Value, old: &Value, name: &str) {
    if unchanged(service, old, name) {
        spec_mut(service).remove(name);
    }
}
