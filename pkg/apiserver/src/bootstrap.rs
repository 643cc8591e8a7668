//! What a cluster has before anybody asks for anything: its namespaces, their default service accounts, the roles, and
//! the service that the API itself is reached by.
//!
//! Everything here may run again at any time, on any number of apiservers: what is there already is left alone.

use crate::auth::bootstrap::{self as roles, Reconcile};
use crate::context::Context;
use crate::error::Result;
use crate::server::Server;
use crate::storage::Change;
use crate::verbs::create;
use crate::{aggregated_roles, flowcontrol, peers, services, time};
use api::kinds::networking::service_cidr;
use api::{Value, object};
use futures::future::try_join_all;
use listwatch::{Batch, EventType, Scope, Since};
use serde_json::json;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

const NAMESPACES: [&str; 4] = ["default", "kube-system", "kube-public", "kube-node-lease"];

/// Makes what is missing.
pub async fn run(server: &Arc<Server>) -> Result<()> {
    let context = Context::internal(jiff::Timestamp::now());
    let namespaces = NAMESPACES.map(|name| {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        ensure(server, "", "namespaces", "", namespace, &context)
    });
    try_join_all(namespaces).await?;
    server.catch_up().await?;
    // Together, so that they share the store's waits for the disk.
    let accounts = try_join_all(NAMESPACES.map(|name| default_account(server, name, &context)));
    let roles = try_join_all(roles::policy().into_iter().map(|wanted| ensure_role(server, wanted, &context)));
    let classes = [("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)];
    let classes = try_join_all(classes.map(|(name, value)| {
        let class = json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value,
            "description": "Used for system critical pods that must not be moved from their current node.",
        });
        ensure(server, "scheduling.k8s.io", "priorityclasses", "", class, &context)
    }));
    futures::try_join!(accounts, roles, classes, flowcontrol::pass(server))?;
    service_ranges(server, &context).await?;
    own_service(server, &context).await?;
    services::take_again(server).await?;
    peers::announce(server).await?;
    server.catch_up().await?;
    aggregated_roles::pass(server).await
}

/// Gives every namespace its default service account, as it appears.
pub async fn keep_default_accounts(server: Arc<Server>, shutdown: CancellationToken) {
    let namespaces = server.registry.built_in("", "namespaces");
    while let Ok(mut watcher) = namespaces.cache.watch(Scope::default(), Since::Any) {
        loop {
            let events = tokio::select! {
                batch = watcher.next() => match batch {
                    Ok(Batch::Events(events)) => events,
                    Ok(Batch::InitialEventsEnd(_)) => continue,
                    Err(_) => break,
                },
                () = shutdown.cancelled() => return,
            };
            for event in events.iter().filter(|event| event.kind == EventType::Added) {
                let name = event.object.name();
                let context = Context::internal(jiff::Timestamp::now());
                if let Err(error) = default_account(&server, name, &context).await {
                    tracing::warn!(
                        namespace = name,
                        error = error.message,
                        "cannot make the default service account"
                    );
                }
            }
        }
    }
}

async fn default_account(server: &Server, namespace: &str, context: &Context) -> Result<()> {
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": namespace}});
    ensure(server, "", "serviceaccounts", namespace, account, context).await
}

/// Creates an object unless there is one of its name.
pub async fn ensure(
    server: &Server,
    group: &str,
    plural: &str,
    namespace: &str,
    wanted: Value,
    context: &Context,
) -> Result<()> {
    let resource = server.registry.built_in(group, plural);
    if resource.cache.get(namespace, object::name(&wanted)).is_some() {
        return Ok(());
    }
    match create::create(server, &resource, wanted, namespace, context).await {
        Ok(_) => Ok(()),
        Err(error) if error.reason == "AlreadyExists" => Ok(()),
        Err(error) => Err(error),
    }
}

/// Creates a role or binding, or adds what an older version of it lacks.
async fn ensure_role(server: &Server, wanted: Value, context: &Context) -> Result<()> {
    let plural = match wanted["kind"].as_str() {
        Some("ClusterRole") => "clusterroles",
        Some("ClusterRoleBinding") => "clusterrolebindings",
        Some("Role") => "roles",
        _ => "rolebindings",
    };
    let resource = server.registry.built_in("rbac.authorization.k8s.io", plural);
    let (namespace, name) = (object::namespace(&wanted).to_owned(), object::name(&wanted).to_owned());
    let current = server.cached(&resource, &namespace, &name).await?.map(|current| current.object);
    match roles::reconcile(current.as_ref(), &wanted) {
        Reconcile::Nothing => Ok(()),
        Reconcile::Create(object) => {
            ensure(server, "rbac.authorization.k8s.io", plural, &namespace, object, context).await
        }
        Reconcile::Update(object) => {
            let put = |_: &Value| Ok(Change::Put(Box::new(object.clone()), Vec::new()));
            server.modify(&resource, &namespace, &name, false, put).await.map(|_| ())
        }
        Reconcile::Recreate(object) => {
            let remove = |_: &Value| Ok(Change::Remove(Vec::new()));
            server.modify(&resource, &namespace, &name, false, remove).await?;
            server.catch_up().await?;
            ensure(server, "rbac.authorization.k8s.io", plural, &namespace, object, context).await
        }
    }
}

/// The ServiceCIDR `kubernetes`: what addresses of services are given from.
async fn service_ranges(server: &Server, context: &Context) -> Result<()> {
    let ranges = &server.config.service_cluster_ip_range;
    let ranges = [Some(ranges.first), ranges.second].into_iter().flatten();
    let ranges: Vec<String> = ranges.map(|range| range.trunc().to_string()).collect();
    let range = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR",
        "metadata": {"name": service_cidr::DEFAULT}, "spec": {"cidrs": ranges},
    });
    ensure(server, "networking.k8s.io", "servicecidrs", "", range, context).await?;
    let resource = server.registry.built_in("networking.k8s.io", "servicecidrs");
    let at = time::rfc3339(context.now);
    let say = |current: &Value| {
        if current["status"]["conditions"].as_array().is_some_and(|conditions| !conditions.is_empty()) {
            return Ok(Change::Keep);
        }
        let mut next = current.clone();
        next["status"] = json!({"conditions": [{
            "type": "Ready", "status": "True", "reason": "", "message": "Kubernetes Service CIDR is ready",
            "lastTransitionTime": at,
        }]});
        Ok(Change::Put(Box::new(next), Vec::new()))
    };
    server.modify(&resource, "", service_cidr::DEFAULT, false, say).await.map(|_| ())
}

/// `default/kubernetes`: what the API is reached by from inside.
async fn own_service(server: &Server, context: &Context) -> Result<()> {
    let address = services::first_address(&server.config.service_cluster_ip_range);
    let service = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "kubernetes", "namespace": "default", "labels": {"component": "apiserver", "provider": "kubernetes"}},
        "spec": {
            "type": "ClusterIP", "clusterIP": address.to_string(), "sessionAffinity": "None",
            "ports": [{"name": "https", "protocol": "TCP", "port": 443, "targetPort": server.address.port()}],
        },
    });
    ensure(server, "", "services", "default", service, context).await
}
