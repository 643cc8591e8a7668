//! A Deployment's status: counts, and the conditions Available, Progressing and ReplicaFailure.

use super::rollout::{Rollout, generation_seen, replicas, status_replicas};
use crate::pods::nonzero;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::{DeploymentCondition, DeploymentStatus, ReplicaSet};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use std::time::Duration;

/// A condition that is new now.
pub fn condition(
    ty: &str,
    status: &str,
    reason: &str,
    message: String,
    now: Timestamp,
) -> DeploymentCondition {
    DeploymentCondition {
        type_: ty.into(),
        status: status.into(),
        reason: Some(reason.into()),
        message: Some(message),
        last_update_time: Some(Time(now)),
        last_transition_time: Some(Time(now)),
    }
}

/// The condition of a type.
pub fn get<'a>(status: &'a DeploymentStatus, ty: &str) -> Option<&'a DeploymentCondition> {
    status.conditions.iter().flatten().find(|condition| condition.type_ == ty)
}

/// Sets a condition. One with the same status and reason stays as it is, times and message included.
pub fn set(status: &mut DeploymentStatus, mut condition: DeploymentCondition) {
    if let Some(current) = get(status, &condition.type_)
        && current.status == condition.status
    {
        if current.reason == condition.reason {
            return;
        }
        condition.last_transition_time = current.last_transition_time.clone();
    }
    remove(status, &condition.type_.clone());
    status.conditions.get_or_insert_default().push(condition);
}

/// Removes the condition of a type.
pub fn remove(status: &mut DeploymentStatus, ty: &str) {
    if let Some(conditions) = &mut status.conditions {
        conditions.retain(|condition| condition.type_ != ty);
    }
}

fn reason<'a>(status: &'a DeploymentStatus, ty: &str) -> &'a str {
    get(status, ty).and_then(|condition| condition.reason.as_deref()).unwrap_or_default()
}

impl Rollout<'_> {
    /// The counts and the condition Available, as the ReplicaSets have them.
    pub fn counted(&self) -> DeploymentStatus {
        let sum = |count: fn(&ReplicaSet) -> i32| self.sets.iter().map(count).sum::<i32>();
        let available = sum(available);
        let unavailable = (sum(replicas) - available).max(0);
        let old = self.status();
        let mut status = DeploymentStatus {
            observed_generation: self.deployment.metadata.generation,
            replicas: nonzero(sum(status_replicas)),
            updated_replicas: nonzero(self.new_set().map_or(0, status_replicas)),
            ready_replicas: nonzero(sum(|set| {
                set.status.as_ref().and_then(|status| status.ready_replicas).unwrap_or(0)
            })),
            available_replicas: nonzero(available),
            unavailable_replicas: nonzero(unavailable),
            terminating_replicas: self.terminating(),
            collision_count: old.collision_count,
            conditions: old.conditions,
        };
        let condition = if available >= self.wanted - self.max_unavailable() {
            let message = "Deployment has minimum availability.";
            condition("Available", "True", "MinimumReplicasAvailable", message.into(), self.now)
        } else {
            let message = "Deployment does not have minimum availability.";
            condition("Available", "False", "MinimumReplicasUnavailable", message.into(), self.now)
        };
        set(&mut status, condition);
        status
    }

    /// How many pods are going; unknown while a set does not say.
    fn terminating(&self) -> Option<i32> {
        let counts = self.sets.iter().map(|set| {
            // One that was made in this plan has none.
            if set.metadata.uid.is_none() { Some(0) } else { set.status.as_ref()?.terminating_replicas }
        });
        counts.sum()
    }

    /// The status during a rollout: counted, and whether it gets on.
    pub fn rolled(&self) -> DeploymentStatus {
        let mut status = self.counted();
        let old = self.status();
        if self.progress_deadline().is_none() {
            remove(&mut status, "Progressing");
        }
        let was_complete = status.replicas == status.updated_replicas
            && reason(&old, "Progressing") == "NewReplicaSetAvailable";
        if self.progress_deadline().is_some() && !was_complete {
            self.note_progress(&mut status, &old);
        }
        match self.replica_failure() {
            Some(failure) => set(&mut status, failure),
            None => remove(&mut status, "ReplicaFailure"),
        }
        status
    }

    fn note_progress(&self, status: &mut DeploymentStatus, old: &DeploymentStatus) {
        let subject = match self.new_set().and_then(|set| set.metadata.name.as_ref()) {
            Some(name) => format!("ReplicaSet {name:?}"),
            None => format!("Deployment {:?}", self.deployment.metadata.name.as_deref().unwrap_or_default()),
        };
        if self.is_complete(status) {
            let message = format!("{subject} has successfully progressed.");
            set(status, condition("Progressing", "True", "NewReplicaSetAvailable", message, self.now));
        } else if progressed(old, status) {
            let message = format!("{subject} is progressing.");
            let mut condition = condition("Progressing", "True", "ReplicaSetUpdated", message, self.now);
            if let Some(current) = get(old, "Progressing") {
                if current.status == "True" {
                    condition.last_transition_time = current.last_transition_time.clone();
                }
                remove(status, "Progressing");
            }
            set(status, condition);
        } else if self.has_timed_out(status) {
            let message = format!("{subject} has timed out progressing.");
            set(status, condition("Progressing", "False", "ProgressDeadlineExceeded", message, self.now));
        }
    }

    /// Whether every replica is of the new version, and there are no others.
    pub fn is_complete(&self, status: &DeploymentStatus) -> bool {
        let is_wanted = |count: Option<i32>| count.unwrap_or(0) == self.wanted;
        is_wanted(status.updated_replicas)
            && is_wanted(status.replicas)
            && is_wanted(status.available_replicas)
            && status.observed_generation >= self.deployment.metadata.generation
    }

    fn has_timed_out(&self, status: &DeploymentStatus) -> bool {
        match (reason(status, "Progressing"), self.deadline(status)) {
            ("NewReplicaSetAvailable", _) => false,
            ("ProgressDeadlineExceeded", _) => true,
            (_, deadline) => deadline.is_some_and(|deadline| deadline < self.now),
        }
    }

    fn deadline(&self, status: &DeploymentStatus) -> Option<Timestamp> {
        let updated = get(status, "Progressing")?.last_update_time.as_ref()?.0;
        updated.checked_add(SignedDuration::from_secs(self.progress_deadline()?.into())).ok()
    }

    /// When to look whether it has timed out.
    pub fn check_progress_in(&self, status: &DeploymentStatus) -> Option<Duration> {
        if self.is_complete(status) || reason(status, "Progressing") == "ProgressDeadlineExceeded" {
            return None;
        }
        let left = Duration::try_from(self.deadline(status)?.duration_since(self.now)).unwrap_or_default();
        Some(left + Duration::from_secs(1))
    }

    fn replica_failure(&self) -> Option<DeploymentCondition> {
        let sets = self.new_set().into_iter().chain(&self.sets);
        let mut conditions =
            sets.flat_map(|set| set.status.iter().flat_map(|status| status.conditions.iter().flatten()));
        let failure = conditions.find(|condition| condition.type_ == "ReplicaFailure")?;
        Some(DeploymentCondition {
            type_: failure.type_.clone(),
            status: failure.status.clone(),
            reason: failure.reason.clone(),
            message: failure.message.clone(),
            last_transition_time: failure.last_transition_time.clone(),
            last_update_time: failure.last_transition_time.clone(),
        })
    }

    /// Pauses and resumes are conditions too.
    pub fn note_pause(&mut self) {
        if self.progress_deadline().is_none() {
            return;
        }
        let mut status = self.status();
        let paused = self.deployment.spec.as_ref().and_then(|spec| spec.paused) == Some(true);
        let new = match reason(&status, "Progressing") {
            "ProgressDeadlineExceeded" => return,
            "DeploymentPaused" if !paused => ("DeploymentResumed", "Deployment is resumed"),
            "DeploymentPaused" => return,
            _ if paused => ("DeploymentPaused", "Deployment is paused"),
            _ => return,
        };
        set(&mut status, condition("Progressing", "Unknown", new.0, new.1.into(), self.now));
        self.deployment.status = Some(status);
    }
}

/// How many of a set's pods are available, as far as it keeps them.
pub fn available(set: &ReplicaSet) -> i32 {
    let available = set.status.as_ref().and_then(|status| status.available_replicas).unwrap_or(0);
    // A set that is being scaled down still counts pods that it is about to delete.
    if generation_seen(set) { available } else { available.min(replicas(set)) }
}

fn progressed(old: &DeploymentStatus, new: &DeploymentStatus) -> bool {
    let count = |count: Option<i32>| count.unwrap_or(0);
    let outdated = |status: &DeploymentStatus| count(status.replicas) - count(status.updated_replicas);
    count(new.updated_replicas) > count(old.updated_replicas)
        || outdated(new) < outdated(old)
        || count(new.ready_replicas) > count(old.ready_replicas)
        || count(new.available_replicas) > count(old.available_replicas)
}
