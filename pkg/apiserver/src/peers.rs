//! The apiservers of one control plane: who they are, and the endpoints of the service that they are reached by.
//!
//! On the embedded store there is one, and its address is written once. On etcd there may be several: each renews a
//! lease of its own, and each writes into `default/kubernetes` the addresses of all whose lease is alive.

use crate::context::Context;
use crate::error::{ApiError, Result};
use crate::registry::Resource;
use crate::server::Server;
use crate::storage::{Change, parse};
use crate::verbs::create;
use api::{Value, object};
use http::StatusCode;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const NAMESPACE: &str = "kube-system";
const LABEL: &str = "apiserver.kubernetes.io/identity";
const RENEW_INTERVAL: Duration = Duration::from_secs(10);
/// A lease that was not renewed for this long belongs to a server that is gone.
const LEASE_SECONDS: i64 = 60;

/// Writes this server's address into the endpoints; with etcd, beside those of its peers.
pub async fn announce(server: &Server) -> Result<()> {
    let Some(own) = server.config.advertised_address(server.address) else { return Ok(()) };
    let mut addresses = vec![own];
    if server.config.etcd.is_some() {
        renew(server, own).await?;
        server.catch_up().await?;
        addresses.extend(live_peers(server)?);
    }
    addresses.sort();
    addresses.dedup();
    write_endpoints(server, &addresses).await
}

/// Keeps the lease and the endpoints until shutdown, and leaves them without this server.
pub async fn keep(server: Arc<Server>, shutdown: CancellationToken) {
    let (Some(own), true) = (server.config.advertised_address(server.address), server.config.etcd.is_some())
    else {
        return;
    };
    loop {
        tokio::select! {
            () = tokio::time::sleep(RENEW_INTERVAL) => {}
            () = shutdown.cancelled() => break,
        }
        if let Err(error) = announce(&server).await {
            tracing::warn!(error = error.message, "cannot renew this server's lease");
        }
    }
    if let Err(error) = retire(&server, own).await {
        tracing::warn!(error = error.message, "cannot take this server out of the endpoints");
    }
}

fn lease_name(server: &Server, own: IpAddr) -> String {
    format!("apiserver-{}-{}", own.to_string().replace([':', '.'], "-"), server.address.port())
}

async fn renew(server: &Server, own: IpAddr) -> Result<()> {
    let now = Timestamp::now();
    let leases = server.registry.built_in("coordination.k8s.io", "leases");
    let name = lease_name(server, own);
    let spec = json!({
        "holderIdentity": own.to_string(), "leaseDurationSeconds": LEASE_SECONDS,
        "renewTime": now.strftime("%Y-%m-%dT%H:%M:%S.000000Z").to_string(),
    });
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {LABEL: "kube-apiserver"}}, "spec": spec,
    });
    let set = |current: &Value| {
        let mut next = current.clone();
        next["spec"] = spec.clone();
        Ok(Change::Put(Box::new(next), Vec::new()))
    };
    create_or(server, &leases, NAMESPACE, lease, set).await
}

async fn retire(server: &Server, own: IpAddr) -> Result<()> {
    let leases = server.registry.built_in("coordination.k8s.io", "leases");
    server
        .modify(&leases, NAMESPACE, &lease_name(server, own), false, |_| Ok(Change::Remove(Vec::new())))
        .await?;
    server.catch_up().await?;
    let mut left = live_peers(server)?;
    left.sort();
    left.dedup();
    // The last one leaves its address: whoever starts next is likely to have it again.
    if left.is_empty() { Ok(()) } else { write_endpoints(server, &left).await }
}

fn live_peers(server: &Server) -> Result<Vec<IpAddr>> {
    let leases = server.registry.built_in("coordination.k8s.io", "leases");
    let since = Timestamp::now() - SignedDuration::from_secs(LEASE_SECONDS);
    let mut addresses = Vec::new();
    for lease in leases.objects(Some(NAMESPACE)).iter().filter(|lease| lease.labels().get(LABEL).is_some()) {
        let lease = parse(lease.as_json())?;
        let renewed: Option<Timestamp> =
            lease["spec"]["renewTime"].as_str().and_then(|time| time.parse().ok());
        if renewed.is_some_and(|renewed| renewed > since) {
            addresses
                .extend(lease["spec"]["holderIdentity"].as_str().and_then(|ip| ip.parse::<IpAddr>().ok()));
        }
    }
    Ok(addresses)
}

async fn write_endpoints(server: &Server, addresses: &[IpAddr]) -> Result<()> {
    let port = json!({"name": "https", "port": server.address.port(), "protocol": "TCP"});
    let ips: Vec<Value> = addresses.iter().map(|ip| json!({"ip": ip.to_string()})).collect();
    let endpoints = json!({
        "apiVersion": "v1", "kind": "Endpoints",
        "metadata": {"name": "kubernetes", "namespace": "default", "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}},
        "subsets": [{"addresses": ips, "ports": [port]}],
    });
    let ready: Vec<Value> = addresses
        .iter()
        .map(|ip| json!({"addresses": [ip.to_string()], "conditions": {"ready": true}}))
        .collect();
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"name": "kubernetes", "namespace": "default", "labels": {"kubernetes.io/service-name": "kubernetes"}},
        "addressType": if addresses.iter().all(IpAddr::is_ipv4) { "IPv4" } else { "IPv6" },
        "endpoints": ready, "ports": [port],
    });
    for (resource, wanted, members) in [
        (server.registry.built_in("", "endpoints"), endpoints, &["subsets"][..]),
        (server.registry.built_in("discovery.k8s.io", "endpointslices"), slice, &["endpoints", "ports"][..]),
    ] {
        let set = |current: &Value| {
            let mut next = current.clone();
            for member in members {
                next[*member] = wanted[*member].clone();
            }
            Ok(if next == *current { Change::Keep } else { Change::Put(Box::new(next), Vec::new()) })
        };
        create_or(server, &resource, "default", wanted.clone(), set).await?;
    }
    Ok(())
}

/// Changes the object as `change` says, or creates it where there is none.
pub(crate) async fn create_or(
    server: &Server,
    resource: &Resource,
    namespace: &str,
    wanted: Value,
    change: impl FnMut(&Value) -> Result<Change>,
) -> Result<()> {
    let name = object::name(&wanted).to_owned();
    match server.modify(resource, namespace, &name, false, change).await {
        Err(ApiError { code: StatusCode::NOT_FOUND, .. }) => {
            let context = Context::internal(Timestamp::now());
            create::create(server, resource, wanted, namespace, &context).await.map(|_| ())
        }
        other => other.map(|_| ()),
    }
}
