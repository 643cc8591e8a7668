//! Keeps nginx, the node's file of names, and what is said of DNS objects and ingresses, in step.
//!
//! ```text
//! objects ──> Seen ──> nginx, hosts, events
//!              └── the newest ──> statuses   at their own pace: a node that is cut off still serves
//! ```

use super::complaints::Complaints;
use super::secrets::Secrets;
use crate::flags::Config;
use crate::gateway::{
    Classes, Listen, Reserved, Services, Sites, dns_status, dns_troubles, ingress_points, ingress_troubles,
    render,
};
use crate::metrics::Status;
use crate::node::{This, addresses, has_ipv6};
use crate::objects::Objects;
use crate::web::{Web, WebError};
use api::kinds::minik8s::dns::DNS;
use client::{Key, reference};
use k8s_openapi::api::networking::v1::Ingress;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::api::{Patch, PatchParams};
use kube::core::NamespaceResourceScope;
use kube::{Api, Client};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Changes that come together are taken together: a reload starts new processes.
const GATHER: Duration = Duration::from_millis(50);
/// How often nginx itself is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(30);
/// How soon it is tried again what did not work: somebody else may have had a port.
const RETRY: Duration = Duration::from_secs(5);

/// Until shutdown.
pub async fn keep(
    web: Option<Web>,
    client: Client,
    mut complaints: Complaints,
    config: &Config,
    objects: &Objects,
    status: &Status,
    shutdown: &CancellationToken,
) {
    let (Some(web), Some(ports)) = (web, config.gateway_ports) else { return };
    let mut secrets = Secrets::new(client.clone(), shutdown.clone());
    let mut changes = objects.gateway_changes();
    let (newest, told) = watch::channel(None);
    let telling = shutdown.run_until_cancelled(tell(&client, objects, told));
    let serving = async {
        objects.settled().await;
        let mut foreign = false;
        loop {
            let mut pause = LOOK_EVERY;
            web.trim_log();
            if is_known(&client, objects, &mut foreign).await {
                let seen = Arc::new(Seen::now(config, objects));
                let listen = Listen { http: ports.0, https: ports.1, ipv6: has_ipv6() };
                let served = step(&web, listen, &mut secrets, &seen).await;
                if let Err(error) = &served {
                    tracing::warn!(
                        error = error as &dyn std::error::Error,
                        "hosts and paths are not in step"
                    );
                    status.reload_failed();
                    pause = RETRY;
                }
                complaints.tell_of_node(&config.node, served.err().map(|error| error.to_string()));
                let this = This::find(&config.node, &objects.nodes.list());
                hosts(config, &this, &seen);
                match this.first && objects.ingresses.is_synced() && objects.services.is_synced() {
                    true => complain(&mut complaints, &secrets, &seen, objects),
                    false => complaints.be_silent(),
                }
                newest.send_replace(Some(seen));
            }
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = super::any_change(&mut changes) => {}
                () = secrets.changed() => {}
                () = web.ended() => {}
                () = tokio::time::sleep(pause) => {}
            }
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = tokio::time::sleep(GATHER) => {}
            }
            changes.iter_mut().for_each(|changes| changes.mark_unchanged());
        }
    };
    tokio::join!(serving, telling);
}

/// What there is at one moment.
struct Seen {
    services: Services,
    sites: Sites,
    classes: Classes,
    reserved: Reserved,
}

impl Seen {
    fn now(config: &Config, objects: &Objects) -> Seen {
        let services = objects.services.list();
        let services =
            Services::new(services.iter().map(AsRef::as_ref), |service| objects.slices_of(service));
        let classes = objects.own_classes();
        Seen {
            sites: objects.sites(&classes, &services),
            services,
            classes,
            reserved: objects.reserved(&config.cluster_domain),
        }
    }
}

/// Whether all is known that hosts and paths are made of. What was known goes on until then: a configuration that misses
/// some of it would take away what the last good one serves, and its certificates.
///
/// That a cluster is foreign is asked only until it is known: a node that is cut off gets no answer.
async fn is_known(client: &Client, objects: &Objects, foreign: &mut bool) -> bool {
    let of_everybody = objects.services.is_known()
        && objects.slices.is_known()
        && objects.ingresses.is_known()
        && objects.classes.is_known();
    if of_everybody && !objects.dnses.is_known() && !*foreign {
        *foreign = is_foreign(client).await;
    }
    of_everybody && (objects.dnses.is_known() || *foreign)
}

/// Whether the cluster is somebody else's, which has no DNS objects.
async fn is_foreign(client: &Client) -> bool {
    let answer = client.list_api_group_resources("minik8s.io/v1").await;
    matches!(answer, Err(kube::Error::Api(status)) if status.code == 404)
}

async fn step(web: &Web, listen: Listen, secrets: &mut Secrets, seen: &Seen) -> Result<(), WebError> {
    let all = &seen.sites;
    let named = all.hosts.values().filter_map(|site| site.tls.as_ref());
    let wanted: BTreeSet<Key> = named.map(|(namespace, name)| Key::new(namespace, name)).collect();
    secrets.follow(&wanted);
    // A node that serves nothing needs no nginx and no keys, and somebody else may want its ports.
    if all.hosts.is_empty() {
        web.retire().await?;
        secrets.sweep(web, "");
        return Ok(());
    }
    let files = secrets.files(web, &wanted).await;
    let text = render(all, web.dir(), listen, &|(namespace, name)| {
        let (certificate, key) = files.get(&Key::new(namespace, name))?;
        Some((certificate.display().to_string(), key.display().to_string()))
    });
    web.apply(&text).await?;
    secrets.sweep(web, &text);
    Ok(())
}

fn hosts(config: &Config, this: &This, seen: &Seen) {
    let Some(path) = &config.hosts_file else { return };
    // A file of names knows nothing of all names below another.
    let names = seen.sites.names(&seen.reserved);
    let names: Vec<String> = names.filter(|name| !name.starts_with('*')).cloned().collect();
    let address = this.address(false).or(this.address(true));
    if let Err(error) = crate::hosts::update(path, address, &names) {
        tracing::warn!(%error, path = %path.display(), "hosts of DNS objects are not found on this node");
    }
}

fn complain(complaints: &mut Complaints, secrets: &Secrets, seen: &Seen, objects: &Objects) {
    let Seen { services, sites, classes, reserved } = seen;
    let (dnses, ingresses) = (objects.dnses.list(), objects.ingresses.list());
    let of_dnses = dnses.iter().map(|dns| {
        let troubles = dns_troubles(dns, services, sites, reserved);
        (reference(dns.as_ref()), troubles.into_iter().collect())
    });
    let ours = ingresses.iter().filter(|ingress| classes.have(ingress));
    let of_ingresses = ours.map(|ingress| {
        let namespace = ingress.metadata.namespace.as_deref().unwrap_or_default();
        let certificate = |name: &str| secrets.trouble(&Key::new(namespace, name));
        (reference(ingress.as_ref()), ingress_troubles(ingress, services, sites, reserved, certificate))
    });
    complaints.tell(of_dnses.chain(of_ingresses));
}

/// Writes statuses for as long as something new is seen.
async fn tell(client: &Client, objects: &Objects, mut newest: watch::Receiver<Option<Arc<Seen>>>) {
    while newest.changed().await.is_ok() {
        let Some(seen) = newest.borrow_and_update().clone() else { continue };
        if let Err(error) = statuses(client, &seen, objects).await {
            tracing::debug!(%error, "statuses are written when the apiserver is reached again");
        }
    }
}

/// Ends with the first that does not reach the apiserver: the others would not, and each would take its time.
async fn statuses(client: &Client, seen: &Seen, objects: &Objects) -> Result<(), kube::Error> {
    if objects.dnses.is_synced() && objects.services.is_synced() {
        statuses_of_dnses(client, seen, objects).await?;
    }
    if objects.ingresses.is_synced() && objects.nodes.is_synced() {
        addresses_of_ingresses(client, seen, objects).await?;
    }
    Ok(())
}

async fn statuses_of_dnses(client: &Client, seen: &Seen, objects: &Objects) -> Result<(), kube::Error> {
    for dns in objects.dnses.list() {
        let now = Time(jiff::Timestamp::now());
        let status = dns_status(&dns, &seen.services, &seen.sites, &seen.reserved, now);
        if status != dns.status {
            write_status::<DNS>(client, &dns.metadata, &status).await?;
        }
    }
    Ok(())
}

/// Says where ingresses are reached.
async fn addresses_of_ingresses(client: &Client, seen: &Seen, objects: &Objects) -> Result<(), kube::Error> {
    let points = ingress_points(&addresses(&objects.nodes.list()));
    for ingress in objects.ingresses.list().iter().filter(|ingress| seen.classes.have(ingress)) {
        let status = ingress.status.as_ref().and_then(|status| status.load_balancer.as_ref());
        let said = status.and_then(|balancer| balancer.ingress.as_deref()).unwrap_or_default();
        if said != points {
            let status = json!({"loadBalancer": {"ingress": points}});
            write_status::<Ingress>(client, &ingress.metadata, &status).await?;
        }
    }
    Ok(())
}

/// Every node says the same, so only the first one writes. Fails only if nobody answers.
async fn write_status<K>(client: &Client, of: &ObjectMeta, status: &impl Serialize) -> Result<(), kube::Error>
where
    K: kube::Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let (Some(namespace), Some(name)) = (&of.namespace, &of.name) else { return Ok(()) };
    let api: Api<K> = Api::namespaced(client.clone(), namespace);
    // With the version that it was made from: whoever was faster is not overwritten.
    let patch = json!({"metadata": {"resourceVersion": of.resource_version}, "status": status});
    match api.patch_status(name, &PatchParams::default(), &Patch::Merge(&patch)).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(error)) => {
            tracing::debug!(%error, namespace, name, kind = %K::kind(&()), "a status was not written");
            Ok(())
        }
        Err(error) => Err(error),
    }
}
