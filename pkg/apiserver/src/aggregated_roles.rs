//! ClusterRoles that gather the rules of others: kept up to date as those come, go and change.

use crate::auth::rbac::{Rule, aggregated_rules};
use crate::error::Result;
use crate::server::Server;
use crate::storage::{Change, parse};
use api::Value;
use listwatch::{Scope, Since};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Writes the rules that aggregated roles should have and do not.
pub async fn pass(server: &Server) -> Result<()> {
    let resource = server.registry.built_in("rbac.authorization.k8s.io", "clusterroles");
    let roles: Vec<Value> =
        resource.objects(None).iter().map(|object| parse(object.as_json())).collect::<Result<_>>()?;
    for (name, rules) in aggregated_rules(&roles) {
        let rules: Value = rules.iter().map(Rule::to_json).collect();
        let write = |current: &Value| {
            if current["rules"] == rules {
                return Ok(Change::Keep);
            }
            let mut next = current.clone();
            next["rules"] = rules.clone();
            Ok(Change::Put(Box::new(next), Vec::new()))
        };
        server.modify(&resource, "", name, false, write).await?;
    }
    Ok(())
}

/// Does so again whenever a ClusterRole changes, until shutdown.
pub async fn keep(server: Arc<Server>, shutdown: CancellationToken) {
    let cache = server.registry.built_in("rbac.authorization.k8s.io", "clusterroles").cache.clone();
    while let Ok(mut watcher) = cache.watch(Scope::default(), Since::Now) {
        loop {
            if let Err(error) = pass(&server).await {
                tracing::warn!(error = error.message, "cannot update aggregated roles");
            }
            tokio::select! {
                news = watcher.next() => if news.is_err() { break },
                () = shutdown.cancelled() => return,
            }
        }
    }
}
