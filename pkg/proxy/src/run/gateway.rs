//! Keeps nginx, the node's file of names and the status of DNS objects in step.

use super::secrets::Secrets;
use crate::flags::Config;
use crate::gateway::{Services, Sites, dns_status, render, sites};
use crate::metrics::Status;
use crate::node::This;
use crate::objects::Objects;
use crate::web::Web;
use api::kinds::minik8s::dns::DNS;
use client::Key;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use std::collections::BTreeSet;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Changes that come together are taken together: a reload starts new processes.
const GATHER: Duration = Duration::from_millis(50);
/// How often nginx itself is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(30);

/// Until shutdown.
pub async fn keep(
    web: Option<Web>,
    client: Client,
    config: &Config,
    objects: &Objects,
    status: &Status,
    shutdown: &CancellationToken,
) {
    let (Some(web), Some(ports)) = (web, config.gateway_ports) else { return };
    let mut secrets = Secrets::new(client.clone(), shutdown.clone());
    let mut changes = objects.gateway_changes();
    objects.settled().await;
    loop {
        // What was known goes on until something else is known: there is always a last good configuration.
        let known = objects.services.is_known() && (objects.dnses.is_known() || is_foreign(&client).await);
        if known {
            let all = step(&web, ports, &mut secrets, objects, status).await;
            let this = This::find(&config.node, &objects.nodes.list());
            hosts(config, &this, &all);
            if objects.dnses.is_synced() && objects.services.is_synced() {
                statuses(&client, objects).await;
            }
        }
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = super::any_change(&mut changes) => {}
            () = secrets.changed() => {}
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = tokio::time::sleep(GATHER) => {}
        }
        changes.iter_mut().for_each(|changes| changes.mark_unchanged());
    }
}

/// Whether the cluster is somebody else's, which has no DNS objects.
async fn is_foreign(client: &Client) -> bool {
    let answer = client.list_api_group_resources("minik8s.io/v1").await;
    matches!(answer, Err(kube::Error::Api(status)) if status.code == 404)
}

async fn step(
    web: &Web,
    ports: (u16, u16),
    secrets: &mut Secrets,
    objects: &Objects,
    status: &Status,
) -> Sites {
    let (services, dnses, ingresses) =
        (objects.services.list(), objects.dnses.list(), objects.ingresses.list());
    let places = Services::new(services.iter().map(AsRef::as_ref));
    let all = sites(dnses.iter().map(AsRef::as_ref), ingresses.iter().map(AsRef::as_ref), &places);
    // A node that serves nothing needs no nginx.
    if all.hosts.is_empty() && all.default.is_none() && !web.dir().join("nginx.conf").exists() {
        return all;
    }
    let named = all.hosts.values().filter_map(|site| site.tls.as_ref());
    let wanted: BTreeSet<Key> = named.map(|(namespace, name)| Key::new(namespace, name)).collect();
    secrets.follow(&wanted);
    let files = secrets.files(web, &wanted).await;
    let text = render(&all, web.dir(), ports, &|(namespace, name)| {
        let (certificate, key) = files.get(&Key::new(namespace, name))?;
        Some((certificate.display().to_string(), key.display().to_string()))
    });
    match web.apply(&text).await {
        Ok(()) => secrets.sweep(web, &text),
        Err(error) => {
            tracing::warn!(error = &error as &dyn std::error::Error, "hosts and paths are not in step");
            status.reload_failed();
        }
    }
    all
}

fn hosts(config: &Config, this: &This, all: &Sites) {
    let Some(path) = &config.hosts_file else { return };
    let names: Vec<String> = all.names().cloned().collect();
    let address = this.address(false).or(this.address(true));
    if let Err(error) = crate::hosts::update(path, address, &names) {
        tracing::warn!(%error, path = %path.display(), "hosts of DNS objects are not found on this node");
    }
}

/// Every node says the same, so only the first one writes.
async fn statuses(client: &Client, objects: &Objects) {
    let services = objects.services.list();
    let places = Services::new(services.iter().map(AsRef::as_ref));
    for dns in objects.dnses.list() {
        let status = dns_status(&dns, &places, Time(jiff::Timestamp::now()));
        if status == dns.status {
            continue;
        }
        let (Some(namespace), Some(name)) = (&dns.metadata.namespace, &dns.metadata.name) else { continue };
        let api: Api<DNS> = Api::namespaced(client.clone(), namespace);
        // With the version that it was made from: whoever was faster is not overwritten.
        let patch = json!({"metadata": {"resourceVersion": dns.metadata.resource_version}, "status": status});
        if let Err(error) = api.patch_status(name, &PatchParams::default(), &Patch::Merge(&patch)).await {
            tracing::debug!(%error, namespace, name, "the status of a DNS object was not written");
        }
    }
}
