//! Keeps nginx, the node's file of names and the status of DNS objects in step.

use crate::flags::Config;
use crate::gateway::{Services, Sites, dns_status, render, sites};
use crate::metrics::Status;
use crate::node::This;
use crate::objects::Objects;
use crate::web::{Web, WebError, write};
use api::kinds::minik8s::dns::DNS;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Changes that come together are taken together: a reload starts new processes.
const GATHER: Duration = Duration::from_millis(50);
/// How often secrets and nginx itself are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(30);

/// Files of certificates, by secret.
type Certificates = HashMap<(String, String), (String, String)>;

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
    let mut changes = objects.changes();
    loop {
        // What was known goes on until something else is known: there is always a last good configuration.
        if objects.services.is_known() && objects.dnses.is_known() {
            let all = step(&web, ports, &client, objects, status).await;
            let this = This::find(&config.node, &objects.nodes.list());
            hosts(config, &this, &all);
            if objects.dnses.is_synced() && objects.services.is_synced() {
                statuses(&client, objects).await;
            }
        }
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = super::any_change(&mut changes) => {}
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = tokio::time::sleep(GATHER) => {}
        }
        changes.iter_mut().for_each(|changes| {
            changes.borrow_and_update();
        });
    }
}

async fn step(web: &Web, ports: (u16, u16), client: &Client, objects: &Objects, status: &Status) -> Sites {
    let (services, dnses, ingresses) =
        (objects.services.list(), objects.dnses.list(), objects.ingresses.list());
    let places = Services::new(services.iter().map(AsRef::as_ref));
    let all = sites(dnses.iter().map(AsRef::as_ref), ingresses.iter().map(AsRef::as_ref), &places);
    // A node that serves nothing needs no nginx.
    if all.hosts.is_empty() && all.default.is_none() && !web.dir().join("nginx.conf").exists() {
        return all;
    }
    let certificates = certificates(web, client, &all).await;
    let text = render(&all, web.dir(), ports, &|secret| certificates.get(secret).cloned());
    if let Err(error) = web.apply(&text).await {
        tracing::warn!(error = &error as &dyn std::error::Error, "hosts and paths are not in step");
        status.reload_failed();
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

/// The certificates of all sites, in files. A secret that cannot be read now keeps the files it has.
async fn certificates(web: &Web, client: &Client, all: &Sites) -> Certificates {
    let mut found = Certificates::new();
    for secret in all.hosts.values().filter_map(|site| site.tls.as_ref()) {
        if found.contains_key(secret) {
            continue;
        }
        let stem = web.dir().join("certificates").join(format!("{}.{}", secret.0, secret.1));
        let (certificate, key) = (stem.with_extension("crt"), stem.with_extension("key"));
        if let Err(error) = fetch(client, secret, &certificate, &key).await {
            tracing::warn!(%error, secret = %format!("{}/{}", secret.0, secret.1), "no new certificate");
        }
        if certificate.exists() && key.exists() {
            found.insert(secret.clone(), (certificate.display().to_string(), key.display().to_string()));
        }
    }
    found
}

async fn fetch(
    client: &Client,
    secret: &(String, String),
    certificate: &Path,
    key: &Path,
) -> Result<(), String> {
    let api: Api<Secret> = Api::namespaced(client.clone(), &secret.0);
    let secret = api.get(&secret.1).await.map_err(|error| error.to_string())?;
    let data = secret.data.unwrap_or_default();
    let text = |name: &str| -> Result<String, String> {
        let bytes = data.get(name).ok_or_else(|| format!("it has no {name}"))?;
        String::from_utf8(bytes.0.clone()).map_err(|_| format!("its {name} is not text"))
    };
    let store = |path: &Path, text: String| -> Result<(), WebError> {
        match std::fs::read_to_string(path).is_ok_and(|old| old == text) {
            true => Ok(()),
            false => write(path, &text),
        }
    };
    store(certificate, text("tls.crt")?).map_err(|error| error.to_string())?;
    store(key, text("tls.key")?).map_err(|error| error.to_string())
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
