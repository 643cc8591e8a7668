//! Service: one address for many pods.
//!
//! Addresses and node ports are handed out by the server, between [`Kind::prepare`] and [`Kind::validate`]: what is
//! validated here has them.

mod addresses;
mod prepare;

use crate::field::{Errors, Field, Reason};
use crate::kind::{Kind, column, wide};
use crate::kinds::pod_spec::{fill, list_mut};
use crate::kinds::{pod_spec, rules};
use crate::object::{object_mut, set_default};
use crate::{meta, names, printing};
use k8s_openapi::api::core::v1::Service;
use serde_json::{Value, json};
use std::collections::HashSet;

const MOST_AFFINITY_SECONDS: i64 = 86_400;
const DEFAULT_AFFINITY_SECONDS: i64 = 10_800;
const SOURCE_RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";
const TOPOLOGY_MODE: &str = "service.kubernetes.io/topology-mode";
const TOPOLOGY_HINTS: &str = "service.kubernetes.io/topology-aware-hints";
const ONLY_LOAD_BALANCER: &str = "may only be used when `type` is 'LoadBalancer'";

/// The kind.
pub fn kind() -> Kind {
    Kind {
        columns: vec![
            printing::name_column(),
            column("Type", "string", |service, _| printing::text(service, "spec.type").into()),
            column("Cluster-IP", "string", |service, _| {
                let first = printing::items(service, "spec.clusterIPs").first().and_then(Value::as_str);
                first.unwrap_or(printing::NONE).into()
            }),
            column("External-IP", "string", |service, _| external_ip_cell(service).into()),
            column("Port(s)", "string", |service, _| ports_cell(service).into()),
            printing::age_column(),
            wide("Selector", "string", |service, _| {
                printing::labels(printing::at(service, "spec.selector")).into()
            }),
        ],
        create_on_update: true,
        validate_name: names::dns1035_label_name,
        default,
        prepare: prepare::prepare,
        validate,
        validate_update,
        validate_status,
        ..Kind::new::<Service>()
            .short(&["svc"])
            .in_all()
            .with_status()
            .with_subresource(
                "proxy",
                ("", "v1", "ServiceProxyOptions"),
                &["create", "delete", "get", "patch", "update"],
            )
            .selectable(&["spec.clusterIP", "spec.type"])
    }
}

/// The type of a service.
fn service_type(service: &Value) -> &str {
    printing::text(service, "spec.type")
}

/// Whether anything outside the cluster reaches it.
fn externally_accessible(service: &Value) -> bool {
    match service_type(service) {
        "LoadBalancer" | "NodePort" => true,
        "ClusterIP" => !printing::items(service, "spec.externalIPs").is_empty(),
        _ => false,
    }
}

/// Whether load balancers have to ask which nodes have a pod of it.
fn needs_health_check(service: &Value) -> bool {
    service_type(service) == "LoadBalancer"
        && printing::text(service, "spec.externalTrafficPolicy") == "Local"
}

/// Whether it has no address of its own.
fn is_headless(service: &Value) -> bool {
    matches!(printing::items(service, "spec.clusterIPs"), [only] if only == "None")
}

fn default(service: &mut Value) {
    object_mut(service, "spec");
    let spec = &mut service["spec"];
    fill(spec, "sessionAffinity", "None");
    let timeout = printing::at(spec, "sessionAffinityConfig.clientIP.timeoutSeconds").is_some();
    if spec["sessionAffinity"] == "None" {
        spec.as_object_mut().map(|spec| spec.remove("sessionAffinityConfig"));
    } else if spec["sessionAffinity"] == "ClientIP" && !timeout {
        spec["sessionAffinityConfig"] = json!({"clientIP": {"timeoutSeconds": DEFAULT_AFFINITY_SECONDS}});
    }
    fill(spec, "type", "ClusterIP");
    for port in list_mut(spec, "ports") {
        fill(port, "protocol", "TCP");
        let target = port.get("targetPort").unwrap_or(&Value::Null);
        if (target.is_null() || target == 0 || target == "") && port.get("port").is_some() {
            port["targetPort"] = port["port"].clone();
        }
    }
    let external = externally_accessible(service);
    let spec = &mut service["spec"];
    if external {
        fill(spec, "externalTrafficPolicy", "Cluster");
    }
    if matches!(spec["type"].as_str(), Some("NodePort" | "LoadBalancer" | "ClusterIP")) {
        set_default(spec, "internalTrafficPolicy", "Cluster");
    }
    if spec["type"] == "LoadBalancer" {
        set_default(spec, "allocateLoadBalancerNodePorts", true);
        let ingress = service.pointer_mut("/status/loadBalancer");
        for point in ingress.map(|balancer| list_mut(balancer, "ingress")).unwrap_or_default() {
            if !printing::text(point, "ip").is_empty() {
                set_default(point, "ipMode", "VIP");
            }
        }
    }
}

fn validate(service: &Field<'_>, errors: &mut Errors) {
    let spec = service.get("spec");
    let ty = spec.get("type");
    validate_topology_annotations(service, errors);
    let ports = spec.get("ports");
    if ports.is_empty() && !is_headless(service.value()) && ty.text() != "ExternalName" {
        ports.required(errors);
    }
    validate_type_specifics(service, errors);
    validate_ports(&ports, errors);
    meta::validate_labels(&spec.get("selector"), errors);
    validate_session_affinity(&spec, errors);
    addresses::validate(service, errors);
    for ip in spec.get("externalIPs").items() {
        let faults = names::is_legacy_ip(ip.text());
        if faults.is_empty() {
            rules::validate_endpoint_ip(&ip, errors);
        } else {
            ip.conforms(names::is_legacy_ip, errors);
        }
    }
    if ty.required(errors) {
        ty.one_of(&["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"], errors);
    }
    validate_ports_are_unique(&ports, ty.text() == "ClusterIP", errors);
    validate_load_balancer(service, errors);
    validate_traffic_policies(service, errors);
    let distribution = spec.get("trafficDistribution");
    distribution.one_of(&["PreferClose", "PreferSameNode", "PreferSameZone"], errors);
}

fn validate_topology_annotations(service: &Field<'_>, errors: &mut Errors) {
    let metadata = service.get("metadata");
    let annotations = metadata.get("annotations");
    let (mode, hints) = (annotations.key(TOPOLOGY_MODE), annotations.key(TOPOLOGY_HINTS));
    if mode.exists() && hints.exists() && mode.text() != hints.text() {
        mode.invalid(format!("must match annotations[{TOPOLOGY_HINTS}] when both are specified"), errors);
    }
}

fn validate_type_specifics(service: &Field<'_>, errors: &mut Errors) {
    let spec = service.get("spec");
    let cluster_ips = spec.get("clusterIPs");
    match spec.get("type").text() {
        ty @ ("LoadBalancer" | "NodePort") if is_headless(service.value()) => {
            for first in cluster_ips.items() {
                first.invalid(format!("may not be set to 'None' for {ty} services"), errors);
            }
        }
        "ExternalName" => {
            for name in ["clusterIPs", "ipFamilies"] {
                let field = spec.get(name);
                if !field.is_empty() {
                    field.forbidden("may not be set for ExternalName services", errors);
                }
            }
            let policy = spec.get("ipFamilyPolicy");
            if policy.exists() {
                policy.forbidden("may not be set for ExternalName services", errors);
            }
            let name = spec.get("externalName");
            // A trailing dot says that the name is complete.
            let text = name.text().strip_suffix('.').unwrap_or(name.text());
            if text.is_empty() {
                name.complain(Reason::Required, "", errors);
            }
            for fault in names::is_dns1123_subdomain(text).into_iter().filter(|_| !text.is_empty()) {
                name.invalid_value(text, fault, errors);
            }
        }
        _ => {}
    }
}

fn validate_ports(ports: &Field<'_>, errors: &mut Errors) {
    let mut seen = HashSet::new();
    for port in ports.items() {
        let name = port.get("name");
        if name.text().is_empty() {
            if ports.len() > 1 {
                name.complain(Reason::Required, "", errors);
            }
        } else {
            name.conforms(names::is_dns1123_label, errors);
            if !seen.insert(name.text().to_owned()) {
                name.duplicate(errors);
            }
        }
        rules::validate_port(&port.get("port"), errors);
        let protocol = port.get("protocol");
        if protocol.required(errors) {
            protocol.one_of(&["SCTP", "TCP", "UDP"], errors);
        }
        pod_spec::validate_port_or_name(&port.get("targetPort"), errors);
        let app_protocol = port.get("appProtocol");
        if app_protocol.exists() {
            app_protocol.conforms(names::is_qualified_name, errors);
        }
    }
}

/// No two ports share protocol and number, on the service or on the nodes.
fn validate_ports_are_unique(ports: &Field<'_>, is_cluster_ip: bool, errors: &mut Errors) {
    let (mut node_ports, mut numbers) = (HashSet::new(), HashSet::new());
    for port in ports.items() {
        let protocol = port.get("protocol").text().to_owned();
        let node_port = port.get("nodePort");
        if let Some(number) = node_port.int().filter(|&number| number != 0) {
            if is_cluster_ip {
                node_port.forbidden("may not be used when `type` is 'ClusterIP'", errors);
            }
            if !node_ports.insert((protocol.clone(), number)) {
                node_port.duplicate(errors);
            }
        }
        let number = port.get("port").int().unwrap_or(0);
        if !numbers.insert((protocol.clone(), number)) {
            let shown = json!({"protocol": protocol, "port": number});
            rules::complain_at(&port.path(), Reason::Duplicate, Some(shown), "", errors);
        }
    }
}

fn validate_session_affinity(spec: &Field<'_>, errors: &mut Errors) {
    let (affinity, config) = (spec.get("sessionAffinity"), spec.get("sessionAffinityConfig"));
    if affinity.required(errors) {
        affinity.one_of(&["ClientIP", "None"], errors);
    }
    match affinity.text() {
        "ClientIP" => {
            let client = config.get("clientIP");
            let timeout = client.get("timeoutSeconds");
            for field in [&config, &client, &timeout] {
                if !field.exists() {
                    field.complain(Reason::Required, "when session affinity type is ClientIP", errors);
                    return;
                }
            }
            if timeout.int().is_some_and(|seconds| !(1..=MOST_AFFINITY_SECONDS).contains(&seconds)) {
                let detail = format!("must be greater than 0 and less than {MOST_AFFINITY_SECONDS}");
                timeout.invalid(detail, errors);
            }
        }
        "None" if config.exists() => {
            config.forbidden("must not be set when session affinity is None", errors);
        }
        _ => {}
    }
}

fn validate_load_balancer(service: &Field<'_>, errors: &mut Errors) {
    let (spec, metadata) = (service.get("spec"), service.get("metadata"));
    let is_load_balancer = spec.get("type").text() == "LoadBalancer";
    let (ranges, annotations) = (spec.get("loadBalancerSourceRanges"), metadata.get("annotations"));
    let annotation = annotations.key(SOURCE_RANGES);
    // Space around the ranges has always been let through, and upstream writes this path with a capital.
    let path = "spec.LoadBalancerSourceRanges";
    if !ranges.is_empty() {
        if !is_load_balancer {
            rules::complain_at(path, Reason::Forbidden, None, ONLY_LOAD_BALANCER, errors);
        }
        for (index, range) in ranges.items().enumerate() {
            let range = range.text().trim();
            for fault in names::is_legacy_cidr(range) {
                let path = format!("{path}[{index}]");
                rules::complain_at(&path, Reason::Invalid, Some(range.into()), &fault, errors);
            }
        }
    } else if annotation.exists() {
        if !is_load_balancer {
            annotation.forbidden(ONLY_LOAD_BALANCER, errors);
        }
        for range in annotation.text().trim().split(',').map(str::trim).filter(|range| !range.is_empty()) {
            for fault in names::is_legacy_cidr(range) {
                annotation.invalid_value(range, fault, errors);
            }
        }
    }
    let (allocate, class) = (spec.get("allocateLoadBalancerNodePorts"), spec.get("loadBalancerClass"));
    if allocate.exists() && !is_load_balancer {
        allocate.forbidden(ONLY_LOAD_BALANCER, errors);
    } else if !allocate.exists() && is_load_balancer {
        rules::complain_at("allocateLoadBalancerNodePorts", Reason::Required, None, "", errors);
    }
    if class.exists() {
        if is_load_balancer {
            class.conforms(names::is_qualified_name, errors);
        } else {
            class.forbidden(ONLY_LOAD_BALANCER, errors);
        }
    }
}

fn validate_traffic_policies(service: &Field<'_>, errors: &mut Errors) {
    let spec = service.get("spec");
    let (external, internal) = (spec.get("externalTrafficPolicy"), spec.get("internalTrafficPolicy"));
    if externally_accessible(service.value()) {
        if external.required(errors) {
            external.one_of(&["Cluster", "Local"], errors);
        }
    } else if !external.text().is_empty() {
        external.invalid("may only be set for externally-accessible services", errors);
    }
    let health_check = spec.get("healthCheckNodePort");
    let port = health_check.int().unwrap_or(0);
    if needs_health_check(service.value()) {
        if port == 0 {
            health_check.complain(Reason::Required, "", errors);
        } else {
            rules::validate_port(&health_check, errors);
        }
    } else if port != 0 {
        health_check.invalid(
            "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'",
            errors,
        );
    }
    if matches!(spec.get("type").text(), "NodePort" | "LoadBalancer" | "ClusterIP") {
        internal.required(errors);
    }
    internal.one_of(&["Cluster", "Local"], errors);
}

fn validate_update(new: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
    addresses::validate_update(new, old, errors);
    let (spec, before) = (new.get("spec"), old.get("spec"));
    let class = spec.get("loadBalancerClass");
    let both = |ty: &str| spec.get("type").text() == ty && before.get("type").text() == ty;
    if both("LoadBalancer") && class.str() != before.get("loadBalancerClass").str() {
        class.invalid_value(class.value().clone(), "may not change once set", errors);
    }
    let port = spec.get("healthCheckNodePort");
    if needs_health_check(old.value())
        && needs_health_check(new.value())
        && port.int().unwrap_or(0) != before.get("healthCheckNodePort").int().unwrap_or(0)
    {
        port.forbidden("field is immutable", errors);
    }
}

fn validate_status(new: &Field<'_>, _: &Field<'_>, errors: &mut Errors) {
    let status = new.get("status");
    let balancer = status.get("loadBalancer");
    let ingress = balancer.get("ingress");
    if service_type(new.value()) != "LoadBalancer" && !ingress.is_empty() {
        ingress.forbidden("may only be used when `spec.type` is 'LoadBalancer'", errors);
        return;
    }
    for point in ingress.items() {
        let (ip, mode) = (point.get("ip"), point.get("ipMode"));
        let hostname = point.get("hostname");
        if !ip.text().is_empty() {
            ip.conforms(names::is_legacy_ip, errors);
            if !mode.exists() {
                mode.complain(Reason::Required, "must be specified when `ip` is set", errors);
            }
            mode.one_of(&["Proxy", "VIP"], errors);
        } else if mode.exists() {
            mode.forbidden("may not be specified when `ip` is not set", errors);
        }
        if !hostname.text().is_empty() {
            hostname.conforms(names::is_dns1123_subdomain, errors);
            if rules::parse_ip(hostname.text()).is_some() {
                hostname.invalid("must be a DNS name, not an IP address", errors);
            }
        }
    }
}

fn external_ip_cell(service: &Value) -> String {
    let given = printing::items(service, "spec.externalIPs").iter().filter_map(Value::as_str);
    let shown: Vec<&str> = match service_type(service) {
        "ClusterIP" | "NodePort" => given.collect(),
        "LoadBalancer" => {
            let mut points: Vec<&str> = printing::items(service, "status.loadBalancer.ingress")
                .iter()
                .map(|point| match printing::text(point, "ip") {
                    "" => printing::text(point, "hostname"),
                    ip => ip,
                })
                .filter(|point| !point.is_empty())
                .collect();
            points.sort_unstable();
            points.dedup();
            points.extend(given);
            if points.is_empty() { vec!["<pending>"] } else { points }
        }
        "ExternalName" => return printing::text(service, "spec.externalName").into(),
        _ => vec![printing::UNKNOWN],
    };
    printing::or_none(&shown.join(",")).into()
}

fn ports_cell(service: &Value) -> String {
    let ports: Vec<String> = printing::items(service, "spec.ports")
        .iter()
        .map(|port| {
            let (number, protocol) = (printing::int(port, "port"), printing::text(port, "protocol"));
            match printing::int(port, "nodePort") {
                0 => format!("{number}/{protocol}"),
                node_port => format!("{number}:{node_port}/{protocol}"),
            }
        })
        .collect();
    printing::or_none(&ports.join(",")).into()
}
