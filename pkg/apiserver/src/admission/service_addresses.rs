//! Addresses that a service does not get from the cluster: every node leads what is sent to them to the service's pods,
//! so that whoever may choose them chooses whose traffic that is.
//!
//! ```text
//! spec.externalIPs                        nobody adds one (upstream's DenyServiceExternalIPs, unless it is switched off)
//! status.loadBalancer.ingress[].ip        who may write the status of every service: the cluster's own controllers
//! ```

use super::Request;
use crate::auth::Attributes;
use crate::error::{ApiError, Result};
use crate::server::Server;
use crate::storage::parse;
use api::printing::{items, text};
use api::{Value, object};
use std::collections::HashSet;
use std::net::IpAddr;

/// No new address for `spec.externalIPs`, as upstream's plug-in has it.
pub(super) fn deny_external_ips(request: &Request<'_>, new: &Value) -> Result<()> {
    let is_off = !request.server.config.deny_service_external_ips;
    if is_off || !request.is_for("", "services") || added(new, request.old, external_ips).is_empty() {
        return Ok(());
    }
    Err(forbidden(request, "Use of external IPs is denied by admission control."))
}

/// Nobody leads others' traffic to a service of theirs: an address of a load balancer, or an external one that a node, the
/// API or services have, is given by those who look after all services.
pub(super) fn validate(request: &Request<'_>, new: &Value) -> Result<()> {
    let is_service = request.kind.group.is_empty() && request.kind.plural == "services";
    if !is_service || !matches!(request.subresource, "" | "status") {
        return Ok(());
    }
    let balancers = added(new, request.old, balancer_ips);
    let external = added(new, request.old, external_ips);
    let external = external.into_iter().find(|text| {
        // Only where they are allowed at all.
        text.parse().is_ok_and(|address| is_taken(request.server, address))
    });
    let Some(address) = balancers.into_iter().next().or(external) else { return Ok(()) };
    let all = Attributes::resource(&request.context.user, "update", "", "services");
    let all = Attributes { subresource: "status", version: "v1", ..all };
    if request.server.auth.authorizer.read().authorize(&all).allowed {
        return Ok(());
    }
    let why = format!("{address} is given by whoever may update services/status in the whole cluster only");
    Err(forbidden(request, &why))
}

fn forbidden(request: &Request<'_>, why: &str) -> ApiError {
    ApiError::forbidden(request.kind, &request.name, why.to_owned())
}

fn external_ips(service: &Value) -> Vec<&str> {
    items(service, "spec.externalIPs").iter().filter_map(Value::as_str).collect()
}

fn balancer_ips(service: &Value) -> Vec<&str> {
    let points = items(service, "status.loadBalancer.ingress").iter();
    points.map(|point| text(point, "ip")).filter(|ip| !ip.is_empty()).collect()
}

/// Those that were not there before.
fn added<'a>(new: &'a Value, old: Option<&'a Value>, of: impl Fn(&'a Value) -> Vec<&'a str>) -> Vec<&'a str> {
    let new = of(new);
    if new.is_empty() {
        return new;
    }
    let before: HashSet<&str> = old.map(&of).unwrap_or_default().into_iter().collect();
    new.into_iter().filter(|address| !before.contains(address)).collect()
}

/// Whether an address is a node's, the API's, or in the services' ranges.
fn is_taken(server: &Server, address: IpAddr) -> bool {
    let ranges = server.config.service_cluster_ip_range;
    if ranges.first.contains(&address) || ranges.second.is_some_and(|second| second.contains(&address)) {
        return true;
    }
    let is_it = |text: &str| text.parse::<IpAddr>().is_ok_and(|other| other == address);
    let objects = |group: &str, plural: &str, namespace: Option<&str>| {
        let objects = server.registry.built_in(group, plural).objects(namespace);
        objects.into_iter().filter_map(|object| parse(object.as_json()).ok())
    };
    let is_nodes = objects("", "nodes", None)
        .any(|node| items(&node, "status.addresses").iter().any(|own| is_it(text(own, "address"))));
    is_nodes
        || objects("", "endpoints", Some("default")).filter(|it| object::name(it) == "kubernetes").any(
            |api| {
                let places = items(&api, "subsets").iter().flat_map(|subset| items(subset, "addresses"));
                places.map(|place| text(place, "ip")).any(is_it)
            },
        )
        || objects("networking.k8s.io", "servicecidrs", None).any(|cidr| {
            let ranges = items(&cidr, "spec.cidrs").iter().filter_map(Value::as_str);
            ranges
                .filter_map(|range| range.parse::<ipnet::IpNet>().ok())
                .any(|range| range.contains(&address))
        })
}
