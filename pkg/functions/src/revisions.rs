//! Revisions of functions: each source that calls were answered by is a ControllerRevision, so that it can be gone back to,
//! and can have a share of the calls.
//!
//! ```text
//! Function ── its parts ──> ControllerRevision NAME-REVISION, the last few, and those with a share
//! spec.traffic ── a call's luck ──> the latest definition, or an earlier one
//! ```

use crate::controller::Shared;
use crate::definition::Definition;
use crate::fleet::Fault;
use crate::pod::{FUNCTION, REVISION};
use client::{Cache, Key};
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use kube::api::{DeleteParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// So many revisions are kept, and those that have a share.
const MOST_KEPT: usize = 10;
/// A write that failed is tried again after this.
const RETRY: Duration = Duration::from_millis(500);
const MOST_TRIES: usize = 20;

/// A function's latest revision, and the shares of earlier ones.
#[derive(Debug, Clone)]
pub struct Routes {
    /// Who is called where nothing else is said.
    pub latest: Arc<Definition>,
    /// Who is called how often of a hundred times.
    shares: Vec<(u8, Arc<Definition>)>,
    /// Why a share has nobody.
    pub fault: Option<Fault>,
}

impl Routes {
    /// The shares of a function's revisions, found among these.
    pub fn new(latest: Arc<Definition>, revisions: &[Arc<ControllerRevision>]) -> Routes {
        let mut fault = None;
        let mut shares = Vec::new();
        for share in &latest.function.spec.traffic {
            let percent = u8::try_from(share.percent.clamp(0, 100)).unwrap_or(100);
            let is_latest = share.revision.is_empty() || share.revision == latest.revision;
            let found =
                if is_latest { Some(latest.clone()) } else { earlier(&latest, &share.revision, revisions) };
            match found {
                Some(definition) => shares.push((percent, definition)),
                None => {
                    let message = format!(
                        "there is no revision {:?} to be called: its share goes to the latest",
                        share.revision
                    );
                    fault = Some(Fault::new("RevisionNotFound", message));
                }
            }
        }
        Routes { latest, shares, fault }
    }

    /// Who is called, of a number below a hundred.
    pub fn choose(&self, number: u8) -> &Arc<Definition> {
        let mut below = 0_u8;
        let chosen = self.shares.iter().find(|(percent, _)| {
            below = below.saturating_add(*percent);
            number < below
        });
        chosen.map_or(&self.latest, |(_, definition)| definition)
    }

    /// The definition of a revision, if it may be called.
    pub fn of(&self, revision: &str) -> Option<&Arc<Definition>> {
        let shares = self.shares.iter().map(|(_, definition)| definition);
        shares.chain([&self.latest]).find(|definition| definition.revision == revision)
    }

    fn has(&self, revision: &str) -> bool {
        self.latest.function.spec.traffic.iter().any(|share| share.revision == revision)
    }
}

fn earlier(
    latest: &Definition,
    revision: &str,
    revisions: &[Arc<ControllerRevision>],
) -> Option<Arc<Definition>> {
    let found =
        revisions.iter().find(|known| known.labels().get(REVISION).is_some_and(|own| own == revision))?;
    latest.earlier(revision, &found.data.as_ref()?.0["spec"]).map(Arc::new)
}

/// The revisions of a function, oldest first.
pub fn of(cache: &Cache<ControllerRevision>, definition: &Definition) -> Vec<Arc<ControllerRevision>> {
    let uid = definition.function.metadata.uid.as_deref().unwrap_or_default();
    let mut found = cache.by(BY_FUNCTION, uid);
    found.sort_by_key(|revision| revision.revision);
    found
}

/// The index of revisions by their function's uid.
pub const BY_FUNCTION: &str = "function";

/// Lets revisions be found by their function.
pub fn index(cache: &Cache<ControllerRevision>) {
    cache.index(BY_FUNCTION, |revision| {
        revision.owner_references().iter().map(|owner| owner.uid.clone()).collect()
    });
}

/// Stores a function's latest revision as the latest, and forgets those that are too old.
pub async fn remember(shared: &Shared, routes: &Routes) {
    let definition = &routes.latest;
    let api: Api<ControllerRevision> = Api::namespaced(shared.client.clone(), &definition.key.namespace);
    for _ in 0..MOST_TRIES {
        let known = of(&shared.revisions, definition);
        let next = known.last().map_or(1, |last| last.revision + 1);
        let own = known.iter().find(|revision| revision.labels().get(REVISION) == Some(&definition.revision));
        let written = match own {
            Some(own) if own.revision + 1 == next => Ok(()),
            Some(own) => {
                let again = ControllerRevision { revision: next, ..own.as_ref().clone() };
                api.replace(&own.name_any(), &PostParams::default(), &again).await.map(drop)
            }
            None => api.create(&PostParams::default(), &revision(definition, next)).await.map(drop),
        };
        match written {
            Ok(()) => {
                forget(&api, routes, &known).await;
                return;
            }
            // The cache is behind, or the function has gone.
            Err(error) => tracing::debug!(%error, function = %definition.key, "a revision was not stored"),
        }
        tokio::select! {
            () = tokio::time::sleep(RETRY) => {}
            () = shared.shutdown().cancelled() => return,
        }
    }
}

fn revision(definition: &Definition, number: i64) -> ControllerRevision {
    let Key { namespace, name } = &definition.key;
    ControllerRevision {
        metadata: ObjectMeta {
            name: Some(format!("{name}-{}", definition.revision)),
            namespace: Some(namespace.clone()),
            labels: Some(
                [(FUNCTION.to_owned(), name.clone()), (REVISION.to_owned(), definition.revision.clone())]
                    .into(),
            ),
            owner_references: Some(vec![OwnerReference {
                api_version: "minik8s.io/v1".to_owned(),
                kind: "Function".to_owned(),
                name: name.clone(),
                uid: definition.function.metadata.uid.clone().unwrap_or_default(),
                controller: Some(true),
                block_owner_deletion: Some(true),
            }]),
            ..ObjectMeta::default()
        },
        data: Some(RawExtension(json!({"spec": definition.parts()}))),
        revision: number,
    }
}

async fn forget(api: &Api<ControllerRevision>, routes: &Routes, known: &[Arc<ControllerRevision>]) {
    let label = |revision: &ControllerRevision| revision.labels().get(REVISION).cloned().unwrap_or_default();
    let is_old = |revision: &&Arc<ControllerRevision>| {
        let own = label(revision);
        own != routes.latest.revision && !routes.has(&own)
    };
    let old: Vec<_> = known.iter().filter(is_old).collect();
    for revision in &old[..old.len().saturating_sub(MOST_KEPT - 1)] {
        if let Err(error) = api.delete(&revision.name_any(), &DeleteParams::default()).await {
            tracing::debug!(%error, revision = revision.name_any(), "an old revision was not deleted");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn definition(spec: Value) -> Arc<Definition> {
        let function = json!({"metadata": {"namespace": "a", "name": "f", "uid": "u"}, "spec": spec});
        Arc::new(Definition::new(Arc::new(serde_json::from_value(function).expect("a function"))))
    }

    #[test]
    fn each_revision_has_its_share() {
        let old = definition(json!({"code": "a", "handler": "main"}));
        let known = [Arc::new(revision(&old, 1))];
        let traffic = json!([{"revision": old.revision, "percent": 20}, {"percent": 80}]);
        let latest = definition(json!({"code": "b", "handler": "main", "traffic": traffic}));
        let routes = Routes::new(latest.clone(), &known);
        assert_eq!(routes.fault, None);
        let chosen: Vec<&str> = [0, 19, 20, 99].iter().map(|n| routes.choose(*n).revision.as_str()).collect();
        assert_eq!(chosen, [&old.revision, &old.revision, &latest.revision, &latest.revision]);
        assert!(routes.of(&old.revision).is_some() && routes.of("other").is_none());
        let forgotten = Routes::new(latest.clone(), &[]);
        assert_eq!(forgotten.fault.map(|fault| fault.reason), Some("RevisionNotFound".to_owned()));
        assert_eq!(Routes::new(latest.clone(), &[]).choose(0).revision, latest.revision);
    }
}
