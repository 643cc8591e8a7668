//! Versions of a Deployment: the ReplicaSet of each template, its name and hash, revision numbers, history, and rolling back.

use super::View;
use super::conditions::{self, condition};
use super::rollout::{Rollout, replicas, status_replicas};
use crate::hash::template_hash;
use crate::runtime::{Failure, Note, Plan, Write, controlled_by, owner_reference};
use client::reference;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, ReplicaSetSpec};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Resource, ResourceExt};

pub const REVISION: &str = "deployment.kubernetes.io/revision";
const HISTORY: &str = "deployment.kubernetes.io/revision-history";
pub const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
pub const MAX: &str = "deployment.kubernetes.io/max-replicas";
const ROLLBACK_TO: &str = "deprecated.deployment.rollback.to";
const HASH_LABEL: &str = "pod-template-hash";
/// Annotations that a ReplicaSet does not take over.
const NOT_COPIED: [&str; 6] =
    ["kubectl.kubernetes.io/last-applied-configuration", REVISION, HISTORY, DESIRED, MAX, ROLLBACK_TO];
const LONGEST_HISTORY: usize = 2000;

/// The revision that an old-style request asks to go back to.
pub fn rollback_to(deployment: &Deployment) -> Option<i64> {
    deployment.annotations().get(ROLLBACK_TO)?.parse().ok()
}

/// Whether two templates are the same but for the hash.
pub fn same_template(a: Option<&PodTemplateSpec>, b: &PodTemplateSpec) -> bool {
    let stripped = |template: &PodTemplateSpec| {
        let mut template = template.clone();
        if let Some(labels) = template.metadata.as_mut().and_then(|meta| meta.labels.as_mut()) {
            labels.remove(HASH_LABEL);
        }
        template
    };
    a.is_some_and(|a| stripped(a) == stripped(b))
}

/// The revision of a ReplicaSet; zero where it has none.
pub fn revision(set: &impl Resource) -> i64 {
    set.annotations().get(REVISION).and_then(|revision| revision.parse().ok()).unwrap_or(0)
}

impl Rollout<'_> {
    fn next_revision(&self) -> i64 {
        let old = self.sets.iter().enumerate().filter(|(index, _)| Some(*index) != self.new);
        old.map(|(_, set)| revision(set)).max().unwrap_or(0) + 1
    }

    /// Makes sure that the new ReplicaSet is annotated, and the Deployment with its revision. Without one, it is made if
    /// that is asked for.
    pub fn sync_revision(&mut self, create: bool) {
        let next = self.next_revision();
        match self.new {
            Some(new) => self.sync_existing(new, next),
            None if create => self.create_set(next),
            None => {}
        }
    }

    fn sync_existing(&mut self, new: usize, next: i64) {
        let min_ready = self.deployment.spec.as_ref().and_then(|spec| spec.min_ready_seconds);
        let deployment = self.deployment.clone();
        let set = &mut self.sets[new];
        annotate(set, &deployment, next);
        let spec = set.spec.get_or_insert_default();
        if spec.min_ready_seconds.unwrap_or(0) != min_ready.unwrap_or(0) {
            spec.min_ready_seconds = min_ready;
        }
        let (revision, name) = (revision(set), set.name_any());
        self.set_revision(revision);
        if self.progress_deadline().is_some() && conditions::get(&self.status(), "Progressing").is_none() {
            let message = format!("Found new replica set {name:?}");
            self.set_condition(condition("Progressing", "True", "FoundNewReplicaSet", message, self.now));
        }
    }

    fn create_set(&mut self, next: i64) {
        let mut set = new_set(&self.deployment);
        annotate(&mut set, &self.deployment, next);
        self.sets.push(set);
        self.originals.push(None);
        let new = self.sets.len() - 1;
        self.new = Some(new);
        let size = self.new_size();
        self.resize(new, size);
        self.annotate_sizes(new);
        self.set_revision(next);
        if self.progress_deadline().is_some() {
            let message = format!("Created new replica set {:?}", self.sets[new].name_any());
            self.set_condition(condition("Progressing", "True", "NewReplicaSetCreated", message, self.now));
        }
    }

    fn set_revision(&mut self, revision: i64) {
        let annotations = self.deployment.metadata.annotations.get_or_insert_default();
        annotations.insert(REVISION.into(), revision.to_string());
    }

    /// Deletes the oldest ReplicaSets beyond the limit, if they have no pods.
    pub fn clean_up(&self) -> Vec<Write> {
        let limit = self.deployment.spec.as_ref().and_then(|spec| spec.revision_history_limit);
        let Some(limit) = limit.and_then(|limit| usize::try_from(limit).ok()) else { return Vec::new() };
        let mut old: Vec<&ReplicaSet> = self.old().filter(|set| !crate::pods::is_going(*set)).collect();
        old.sort_by_key(|set| (revision(*set), set.creation_timestamp()));
        let surplus = old.len().saturating_sub(limit);
        let is_empty = |set: &&&ReplicaSet| {
            status_replicas(set) == 0 && replicas(set) == 0 && super::rollout::generation_seen(set)
        };
        old.iter().take(surplus).filter(is_empty).map(|set| Write::delete(*set)).collect()
    }

    /// Goes back to a revision (0: the one before), as clients of old asked the server to.
    pub fn roll_back(mut self, wanted: i64) -> Plan {
        self.sync_revision(false);
        let mut deployment = self.deployment.clone();
        deployment.metadata.annotations.get_or_insert_default().remove(ROLLBACK_TO);
        let mut plan = Plan::default();
        let wanted = if wanted == 0 { self.last_revision() } else { wanted };
        let warning = |reason, message: &str| Note::warning(reference(&self.deployment), reason, message);
        let found = self.sets.iter().find(|set| revision(*set) == wanted);
        let template = found.and_then(|set| set.spec.as_ref()?.template.clone());
        match (template, &mut deployment.spec) {
            _ if wanted == 0 => {
                plan.tell(warning("DeploymentRollbackRevisionNotFound", "Unable to find last revision."));
            }
            (Some(mut template), Some(spec)) if !same_template(Some(&template), &spec.template) => {
                if let Some(labels) = template.metadata.as_mut().and_then(|meta| meta.labels.as_mut()) {
                    labels.remove(HASH_LABEL);
                }
                spec.template = template;
                let message =
                    format!("Rolled back deployment {:?} to revision {wanted}", deployment.name_any());
                plan.tell(Note::normal(reference(&self.deployment), "DeploymentRollback", message));
            }
            (Some(_), _) => {
                let message = format!(
                    "The rollback revision contains the same template as current deployment {:?}",
                    deployment.name_any()
                );
                plan.tell(warning("DeploymentRollbackTemplateUnchanged", &message));
            }
            (None, _) => {
                let message = "Unable to find the revision to rollback to.";
                plan.tell(warning("DeploymentRollbackRevisionNotFound", message));
            }
        }
        plan.writes.push(Write::update(&deployment));
        plan
    }

    /// The revision before the present one; zero where there is none.
    fn last_revision(&self) -> i64 {
        let mut revisions: Vec<i64> = self.sets.iter().map(revision).collect();
        revisions.sort_unstable();
        revisions.iter().rev().nth(1).copied().unwrap_or(0)
    }
}

/// Annotates the new ReplicaSet: with what the Deployment is annotated with, with its revision, and with those it had.
fn annotate(set: &mut ReplicaSet, deployment: &Deployment, next: i64) {
    let old = set.annotations().get(REVISION).cloned();
    let annotations = set.metadata.annotations.get_or_insert_default();
    for (key, value) in deployment.annotations() {
        if !NOT_COPIED.contains(&key.as_str()) {
            annotations.insert(key.clone(), value.clone());
        }
    }
    let old_number = old.as_deref().map_or(Some(0), |old| old.parse::<i64>().ok());
    if old_number.is_none_or(|old| old >= next) {
        return;
    }
    annotations.insert(REVISION.into(), next.to_string());
    if let Some(old) = old {
        let history = annotations.entry(HISTORY.into()).or_default();
        let mut revisions: Vec<&str> = history.split(',').filter(|revision| !revision.is_empty()).collect();
        revisions.push(&old);
        while revisions.join(",").len() > LONGEST_HISTORY {
            revisions.remove(0);
        }
        *history = revisions.join(",");
    }
}

/// A ReplicaSet of the Deployment's template, without pods as yet.
fn new_set(deployment: &Deployment) -> ReplicaSet {
    let spec = deployment.spec.clone().unwrap_or_default();
    let collisions = deployment.status.as_ref().and_then(|status| status.collision_count);
    let hash = template_hash(&spec.template, collisions);
    let mut template = spec.template;
    let labels = template.metadata.get_or_insert_default().labels.get_or_insert_default();
    labels.insert(HASH_LABEL.into(), hash.clone());
    let labels = labels.clone();
    let mut selector = spec.selector;
    selector.match_labels.get_or_insert_default().insert(HASH_LABEL.into(), hash.clone());
    let longest = 253 - 1 - hash.len();
    let stem: String = deployment.name_any().chars().take(longest).collect();
    ReplicaSet {
        metadata: ObjectMeta {
            name: Some(format!("{stem}-{hash}")),
            namespace: deployment.namespace(),
            labels: Some(labels),
            owner_references: Some(vec![owner_reference(deployment)]),
            ..ObjectMeta::default()
        },
        spec: Some(ReplicaSetSpec {
            replicas: Some(0),
            min_ready_seconds: spec.min_ready_seconds,
            selector,
            template: Some(template),
        }),
        status: None,
    }
}

/// The status when the new ReplicaSet could not be created: another hash if its name is taken, a condition otherwise.
pub fn not_created(view: &View, failure: &Failure, now: Timestamp) -> Option<Write> {
    let mut deployment = view.deployment.as_ref().clone();
    let status = deployment.status.get_or_insert_default();
    if failure.reason() == "AlreadyExists" {
        let name = &failure.write.target.key.name;
        let uid = view.deployment.uid().unwrap_or_default();
        let is_ours =
            view.sets.iter().any(|set| &set.name_any() == name && controlled_by(set.as_ref(), &uid));
        // Ours that the cache does not show yet is no collision; neither is one that may be adopted.
        if is_ours {
            return None;
        }
        status.collision_count = Some(status.collision_count.unwrap_or(0) + 1);
        return Some(Write::update_status(&deployment));
    }
    view.deployment.spec.as_ref().and_then(|spec| spec.progress_deadline_seconds)?;
    let name = &failure.write.target.key.name;
    let message = format!("Failed to create new replica set {name:?}: {}", failure.message());
    conditions::set(status, condition("Progressing", "False", "ReplicaSetCreateError", message, now));
    (deployment.status != view.deployment.status).then(|| Write::update_status(&deployment))
}
