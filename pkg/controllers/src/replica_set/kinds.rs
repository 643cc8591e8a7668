//! What ReplicaSets and ReplicationControllers have in common.

use crate::pods::{self, nonzero};
use api::selector::LabelSelector;
use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetCondition, ReplicaSetStatus};
use k8s_openapi::api::core::v1::{
    PodTemplateSpec, ReplicationController, ReplicationControllerCondition, ReplicationControllerStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;
use kube::Resource;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::sync::LazyLock;

/// A kind that keeps so many pods of a template.
pub trait Replicated:
    Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned + Send + Sync + 'static
{
    /// Whether its status has `terminatingReplicas`.
    const COUNTS_TERMINATING: bool;

    /// What is wanted.
    fn spec(&self) -> Spec<'_>;

    /// What was last found.
    fn status(&self) -> Status;

    /// The same with another status.
    fn with_status(&self, status: Status) -> Self;
}

/// What is wanted of a set.
pub struct Spec<'a> {
    /// How many.
    pub replicas: usize,
    /// Ready for how long before a pod is available.
    pub min_ready_seconds: i32,
    /// Which pods are its own.
    pub selector: LabelSelector,
    /// What new ones are like.
    pub template: &'a PodTemplateSpec,
}

/// What was found of a set.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Status {
    /// Pods that are neither finished nor going.
    pub replicas: i32,
    /// Those that have all labels of the template.
    pub fully_labeled: i32,
    /// Those that are ready.
    pub ready: i32,
    /// Those that have been ready for long enough.
    pub available: i32,
    /// Those that are going.
    pub terminating: Option<i32>,
    /// Which generation of the set this is about.
    pub observed_generation: i64,
    /// What went wrong.
    pub conditions: Vec<ReplicaSetCondition>,
}

static NO_TEMPLATE: LazyLock<PodTemplateSpec> = LazyLock::new(PodTemplateSpec::default);

impl Replicated for ReplicaSet {
    const COUNTS_TERMINATING: bool = true;

    fn spec(&self) -> Spec<'_> {
        let spec = self.spec.as_ref();
        Spec {
            replicas: spec.and_then(|spec| spec.replicas).and_then(|n| n.try_into().ok()).unwrap_or(1),
            min_ready_seconds: spec.and_then(|spec| spec.min_ready_seconds).unwrap_or(0),
            selector: spec.map_or_else(LabelSelector::nothing, |spec| pods::selector(&spec.selector)),
            template: spec.and_then(|spec| spec.template.as_ref()).unwrap_or(&NO_TEMPLATE),
        }
    }

    fn status(&self) -> Status {
        let status = self.status.clone().unwrap_or_default();
        Status {
            replicas: status.replicas,
            fully_labeled: status.fully_labeled_replicas.unwrap_or(0),
            ready: status.ready_replicas.unwrap_or(0),
            available: status.available_replicas.unwrap_or(0),
            terminating: status.terminating_replicas,
            observed_generation: status.observed_generation.unwrap_or(0),
            conditions: status.conditions.unwrap_or_default(),
        }
    }

    fn with_status(&self, status: Status) -> Self {
        let status = ReplicaSetStatus {
            replicas: status.replicas,
            fully_labeled_replicas: nonzero(status.fully_labeled),
            ready_replicas: nonzero(status.ready),
            available_replicas: nonzero(status.available),
            terminating_replicas: status.terminating,
            observed_generation: nonzero(status.observed_generation),
            conditions: (!status.conditions.is_empty()).then_some(status.conditions),
        };
        ReplicaSet { status: Some(status), ..self.clone() }
    }
}

impl Replicated for ReplicationController {
    const COUNTS_TERMINATING: bool = false;

    fn spec(&self) -> Spec<'_> {
        let spec = self.spec.as_ref();
        let labels = spec.and_then(|spec| spec.selector.clone()).unwrap_or_default();
        let selector = meta::LabelSelector { match_labels: Some(labels.clone()), ..Default::default() };
        Spec {
            replicas: spec.and_then(|spec| spec.replicas).and_then(|n| n.try_into().ok()).unwrap_or(1),
            min_ready_seconds: spec.and_then(|spec| spec.min_ready_seconds).unwrap_or(0),
            // An empty one would match everything.
            selector: if labels.is_empty() { LabelSelector::nothing() } else { pods::selector(&selector) },
            template: spec.and_then(|spec| spec.template.as_ref()).unwrap_or(&NO_TEMPLATE),
        }
    }

    fn status(&self) -> Status {
        let status = self.status.clone().unwrap_or_default();
        let conditions =
            status.conditions.unwrap_or_default().into_iter().map(|condition| ReplicaSetCondition {
                type_: condition.type_,
                status: condition.status,
                reason: condition.reason,
                message: condition.message,
                last_transition_time: condition.last_transition_time,
            });
        Status {
            replicas: status.replicas,
            fully_labeled: status.fully_labeled_replicas.unwrap_or(0),
            ready: status.ready_replicas.unwrap_or(0),
            available: status.available_replicas.unwrap_or(0),
            terminating: None,
            observed_generation: status.observed_generation.unwrap_or(0),
            conditions: conditions.collect(),
        }
    }

    fn with_status(&self, status: Status) -> Self {
        let conditions = status.conditions.into_iter().map(|condition| ReplicationControllerCondition {
            type_: condition.type_,
            status: condition.status,
            reason: condition.reason,
            message: condition.message,
            last_transition_time: condition.last_transition_time,
        });
        let conditions: Vec<_> = conditions.collect();
        let status = ReplicationControllerStatus {
            replicas: status.replicas,
            fully_labeled_replicas: nonzero(status.fully_labeled),
            ready_replicas: nonzero(status.ready),
            available_replicas: nonzero(status.available),
            observed_generation: nonzero(status.observed_generation),
            conditions: (!conditions.is_empty()).then_some(conditions),
        };
        ReplicationController { status: Some(status), ..self.clone() }
    }
}
