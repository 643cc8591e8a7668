//! One Deployment being planned: copies of it and of its ReplicaSets, changed as decided, then compared with the originals.

use super::conditions;
use super::revision::same_template;
use super::scale::{max_surge, max_unavailable};
use crate::runtime::{Note, Plan, Write};
use client::reference;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, DeploymentCondition, DeploymentStatus, ReplicaSet};
use kube::ResourceExt;
use std::sync::Arc;

/// What a Deployment is to become.
pub struct Rollout<'a> {
    /// A copy, with its status as decided so far.
    pub deployment: Deployment,
    original: &'a Deployment,
    /// Copies of the ReplicaSets, oldest first, with sizes and annotations as decided so far.
    pub sets: Vec<ReplicaSet>,
    /// What they were; `None` for one that is to be created.
    pub originals: Vec<Option<Arc<ReplicaSet>>>,
    /// Which of them is of the present template.
    pub new: Option<usize>,
    with_pods: &'a [String],
    /// How many pods are wanted.
    pub wanted: i32,
    pub now: Timestamp,
}

/// How many pods a set should have.
pub fn replicas(set: &ReplicaSet) -> i32 {
    set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(0)
}

/// How many pods a set has, as it says.
pub fn status_replicas(set: &ReplicaSet) -> i32 {
    set.status.as_ref().map_or(0, |status| status.replicas)
}

/// Whether what a set says is about what is wanted of it now.
pub fn generation_seen(set: &ReplicaSet) -> bool {
    set.status.as_ref().and_then(|status| status.observed_generation) >= set.metadata.generation
}

impl<'a> Rollout<'a> {
    pub fn new(
        deployment: &'a Deployment,
        sets: &[Arc<ReplicaSet>],
        with_pods: &'a [String],
        now: Timestamp,
    ) -> Rollout<'a> {
        let mut sets = sets.to_vec();
        sets.sort_by_key(|set| (set.creation_timestamp(), set.name_any()));
        let spec = deployment.spec.clone().unwrap_or_default();
        let is_new = |set: &Arc<ReplicaSet>| {
            same_template(set.spec.as_ref().and_then(|spec| spec.template.as_ref()), &spec.template)
        };
        Rollout {
            deployment: deployment.clone(),
            original: deployment,
            new: sets.iter().position(is_new),
            sets: sets.iter().map(|set| set.as_ref().clone()).collect(),
            originals: sets.into_iter().map(Some).collect(),
            with_pods,
            wanted: spec.replicas.unwrap_or(1),
            now,
        }
    }

    pub fn status(&self) -> DeploymentStatus {
        self.deployment.status.clone().unwrap_or_default()
    }

    pub fn set_condition(&mut self, condition: DeploymentCondition) {
        conditions::set(self.deployment.status.get_or_insert_default(), condition);
    }

    pub fn new_set(&self) -> Option<&ReplicaSet> {
        self.sets.get(self.new?)
    }

    /// The ReplicaSets of other templates.
    pub fn old(&self) -> impl Iterator<Item = &ReplicaSet> {
        self.sets.iter().enumerate().filter(|(index, _)| Some(*index) != self.new).map(|(_, set)| set)
    }

    pub fn old_indexes(&self) -> Vec<usize> {
        (0..self.sets.len()).filter(|index| Some(*index) != self.new).collect()
    }

    pub fn progress_deadline(&self) -> Option<i32> {
        let seconds = self.original.spec.as_ref()?.progress_deadline_seconds?;
        (seconds != i32::MAX).then_some(seconds)
    }

    pub fn is_rolling(&self) -> bool {
        let strategy = self.original.spec.as_ref().and_then(|spec| spec.strategy.as_ref());
        strategy.and_then(|strategy| strategy.type_.as_deref()) != Some("Recreate")
    }

    pub fn max_surge(&self) -> i32 {
        if self.is_rolling() { max_surge(self.original) } else { 0 }
    }

    pub fn max_unavailable(&self) -> i32 {
        if self.is_rolling() { max_unavailable(self.original).min(self.wanted) } else { 0 }
    }

    /// Counts only: the Deployment is going.
    pub fn status_only(mut self) -> Plan {
        self.sync_revision(false);
        let status = self.counted();
        self.finish(status, Vec::new())
    }

    /// Scales what there is, without rolling on.
    pub fn scale_and_report(mut self) -> Plan {
        self.sync_revision(false);
        self.scale();
        let paused = self.original.spec.as_ref().and_then(|spec| spec.paused) == Some(true);
        let clean_up = if paused { self.clean_up() } else { Vec::new() };
        let status = self.counted();
        self.finish(status, clean_up)
    }

    /// One step of a rolling update: up first, then down, then cleaning up.
    pub fn roll(mut self) -> Plan {
        self.sync_revision(true);
        let mut clean_up = Vec::new();
        if !self.scale_new() && !self.scale_old_down() && self.is_complete(&self.status()) {
            clean_up = self.clean_up();
        }
        let status = self.rolled();
        self.finish(status, clean_up)
    }

    /// One step of a replacement: the old ones go, and when no pod of theirs is left the new ones come.
    pub fn recreate(mut self) -> Plan {
        self.sync_revision(false);
        let mut scaled_down = false;
        for index in self.old_indexes() {
            scaled_down |= self.resize(index, 0);
        }
        let mut clean_up = Vec::new();
        if !scaled_down && !self.has_old_pods() {
            self.sync_revision(true);
            if let Some(new) = self.new {
                self.resize(new, self.wanted);
            }
            if self.is_complete(&self.status()) {
                clean_up = self.clean_up();
            }
        }
        let status = self.rolled();
        self.finish(status, clean_up)
    }

    fn has_old_pods(&self) -> bool {
        self.old().any(|set| {
            status_replicas(set) > 0
                || !generation_seen(set)
                || set.metadata.uid.as_ref().is_some_and(|uid| self.with_pods.contains(uid))
        })
    }

    /// Everything that differs from what is there becomes a write.
    fn finish(mut self, mut status: DeploymentStatus, clean_up: Vec<Write>) -> Plan {
        let mut plan = Plan::default();
        for (set, original) in self.sets.iter().zip(&self.originals) {
            match original {
                None => plan.writes.push(self.create(set)),
                Some(original) if original.as_ref() != set => plan.writes.push(self.update(set, original)),
                Some(_) => {}
            }
        }
        plan.writes.extend(clean_up);
        if status.conditions.as_ref().is_some_and(Vec::is_empty) {
            status.conditions = None;
        }
        plan.look_again = self.check_progress_in(&status).filter(|_| self.progress_deadline().is_some());
        self.deployment.status = Some(status);
        if !self.is_unchanged() {
            plan.status = Some(Write::update_status(&self.deployment));
        }
        plan
    }

    fn is_unchanged(&self) -> bool {
        let normal = |deployment: &Deployment| {
            let mut status = deployment.status.clone().unwrap_or_default();
            for count in [
                &mut status.replicas,
                &mut status.updated_replicas,
                &mut status.ready_replicas,
                &mut status.available_replicas,
                &mut status.unavailable_replicas,
            ] {
                *count = Some(count.unwrap_or(0));
            }
            status.conditions = status.conditions.filter(|conditions| !conditions.is_empty());
            status
        };
        normal(self.original) == normal(&self.deployment)
            && self.original.annotations() == self.deployment.annotations()
    }

    fn create(&self, set: &ReplicaSet) -> Write {
        let (name, size) = (set.name_any(), replicas(set));
        let done = format!("Scaled up replica set {name} from 0 to {size}");
        let failed = format!("Failed to create new replica set {name:?}: {{error}}");
        let mut write = Write::create(set).told(
            Note::normal(reference(self.original), "ScalingReplicaSet", done),
            Note::warning(reference(self.original), "ReplicaSetCreateError", failed),
        );
        if size == 0 {
            write.done = None;
        }
        write
    }

    fn update(&self, set: &ReplicaSet, original: &ReplicaSet) -> Write {
        let (from, to) = (replicas(original), replicas(set));
        let mut write = Write::update(set);
        if from != to {
            let direction = if from < to { "up" } else { "down" };
            let message = format!("Scaled {direction} replica set {} from {from} to {to}", set.name_any());
            write.done = Some(Note::normal(reference(self.original), "ScalingReplicaSet", message));
        }
        write
    }
}
