//! HorizontalPodAutoscalers: as many replicas as the use of resources asks for.
//!
//! ```text
//! scale, pods, metrics.k8s.io ──calculate──> replicas per metric ──most──> behavior: stabilized, rate-limited ──> scale
//! ```
//!
//! Metrics of the types Resource and ContainerResource are read from metrics.k8s.io. Others need APIs that a cluster may
//! not have; what cannot be read is a condition.

mod behavior;
mod calculate;
mod metrics;
#[cfg(test)]
mod tests;

use crate::pods;
use crate::runtime::{Context, Controller, Driver, Failure, Note, Plan, Target, Task, Verb, Write};
use api::selector::LabelSelector;
use behavior::{History, Limits};
use calculate::{Periods, Tolerances};
use client::{Cache, Key, reference};
use jiff::Timestamp;
use k8s_openapi::api::autoscaling::v1::Scale;
use k8s_openapi::api::autoscaling::v2::{
    HorizontalPodAutoscaler, HorizontalPodAutoscalerCondition, HorizontalPodAutoscalerSpec,
    HorizontalPodAutoscalerStatus, MetricStatus,
};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{Client, ResourceExt};
use metrics::PodMetrics;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// Keeps HorizontalPodAutoscalers.
pub fn start(context: &Context) -> Task {
    let informers = &context.informers;
    let (autoscalers, all_pods) = (informers.cache::<HorizontalPodAutoscaler>(), pods::cache(informers));
    let config = &context.config;
    let controller = Autoscalers {
        autoscalers: autoscalers.clone(),
        pods: all_pods.clone(),
        client: context.client.clone(),
        history: Mutex::default(),
        settings: Settings {
            periods: Periods {
                cpu_initialization: config.hpa_cpu_initialization_period,
                initial_readiness: config.hpa_initial_readiness_delay,
            },
            tolerance: config.hpa_tolerance,
            downscale_stabilization: config.hpa_downscale_stabilization,
            sync_period: config.hpa_sync_period,
        },
    };
    Driver::new(context, controller)
        // Its own status is no reason to look: it looks by itself often enough.
        .watches(&autoscalers, |change| match (&change.old, &change.new) {
            (Some(old), Some(new)) if old.spec == new.spec => Vec::new(),
            _ => vec![change.key()],
        })
        .reads(&all_pods)
        .task()
}

/// How metrics are judged.
#[derive(Debug, Clone)]
pub struct Settings {
    /// When the metrics of a pod say nothing yet.
    pub periods: Periods,
    /// Differences smaller than this share are none.
    pub tolerance: f64,
    /// For so long higher recommendations are remembered.
    pub downscale_stabilization: Duration,
    /// How often to look.
    pub sync_period: Duration,
}

struct Autoscalers {
    autoscalers: Cache<HorizontalPodAutoscaler>,
    pods: Cache<Pod>,
    client: Client,
    history: Mutex<HashMap<String, History>>,
    settings: Settings,
}

/// An autoscaler and what it looks at.
pub struct View {
    /// The autoscaler.
    pub autoscaler: Arc<HorizontalPodAutoscaler>,
    /// What it scales, with the resource's name, or why that is not known.
    pub scale: Result<(String, Scale), String>,
    /// The pods of that.
    pub pods: Vec<Arc<Pod>>,
    /// What they use, or why that is not known.
    pub metrics: Result<PodMetrics, String>,
    /// What was recommended and done before.
    pub history: History,
}

impl Controller for Autoscalers {
    type View = View;

    async fn observe(&self, key: &Key) -> kube::Result<Option<View>> {
        let Some(autoscaler) = self.autoscalers.get(key) else { return Ok(None) };
        let scale = metrics::scale(&self.client, &autoscaler).await;
        let selector = scale.as_ref().ok().and_then(|(_, scale)| scale.status.as_ref()?.selector.clone());
        let parsed = selector.as_deref().and_then(|selector| LabelSelector::parse(selector).ok());
        let mut pods = self.pods.in_namespace(&key.namespace);
        pods.retain(|pod| parsed.as_ref().is_some_and(|selector| pods::selects(selector, pod.as_ref())));
        let metrics = match &selector {
            Some(selector) => metrics::of_pods(&self.client, &key.namespace, selector).await,
            None => Err("selector is required".to_owned()),
        };
        let uid = autoscaler.uid().unwrap_or_default();
        let history = self.history.lock().get(&uid).cloned().unwrap_or_default();
        Ok(Some(View { autoscaler, scale, pods, metrics, history }))
    }

    fn plan(&self, view: &View, now: Timestamp) -> Plan {
        let (plan, history) = plan(view, &self.settings, now);
        let mut histories = self.history.lock();
        histories.insert(view.autoscaler.uid().unwrap_or_default(), history);
        if histories.len() > 2 * self.autoscalers.len() + 16 {
            let known: Vec<String> = self.autoscalers.list().iter().filter_map(|it| it.uid()).collect();
            histories.retain(|uid, _| known.contains(uid));
        }
        plan
    }

    fn after_failure(
        &self,
        view: &View,
        _plan: &Plan,
        failure: &Failure,
        now: Timestamp,
    ) -> impl IntoIterator<Item = Write> {
        let uid = view.autoscaler.uid().unwrap_or_default();
        if let Some(history) = self.history.lock().get_mut(&uid) {
            history.not_scaled(now);
        }
        if failure.is_conflict() {
            // It is tried again at once.
            return None;
        }
        let mut decision = Decision::new(view, &self.settings, now);
        let why = format!("the HPA controller was unable to update the target scale: {}", failure.message());
        decision.condition("AbleToScale", false, "FailedUpdateScale", why);
        decision.finish().0.status
    }
}

/// What to do about an autoscaler, and what to remember.
pub fn plan(view: &View, settings: &Settings, now: Timestamp) -> (Plan, History) {
    let decision = Decision::new(view, settings, now);
    decision.decide()
}

struct Decision<'a> {
    view: &'a View,
    settings: &'a Settings,
    spec: HorizontalPodAutoscalerSpec,
    status: HorizontalPodAutoscalerStatus,
    history: History,
    plan: Plan,
    now: Timestamp,
}

impl<'a> Decision<'a> {
    fn new(view: &'a View, settings: &'a Settings, now: Timestamp) -> Decision<'a> {
        Decision {
            view,
            settings,
            spec: view.autoscaler.spec.clone().unwrap_or_default(),
            status: view.autoscaler.status.clone().unwrap_or_default(),
            history: view.history.clone(),
            plan: Plan::later(settings.sync_period),
            now,
        }
    }

    fn decide(mut self) -> (Plan, History) {
        self.status.observed_generation = self.view.autoscaler.metadata.generation;
        let (plural, scale) = match &self.view.scale {
            Ok(found) => found.clone(),
            Err(why) => {
                self.warn("FailedGetScale", why.clone());
                let message =
                    format!("the HPA controller was unable to get the target's current scale: {why}");
                self.condition("AbleToScale", false, "FailedGetScale", message);
                return self.finish();
            }
        };
        let message = "the HPA controller was able to get the target's current scale";
        self.condition("AbleToScale", true, "SucceededGetScale", message.into());
        let current = scale.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(0);
        self.history.begin(current, self.now);
        let least = self.spec.min_replicas.unwrap_or(1);
        self.status.current_replicas = Some(current);
        if current == 0 && least != 0 {
            let message = "scaling is disabled since the replica count of the target is zero";
            self.condition("ScalingActive", false, "ScalingDisabled", message.into());
            self.status.desired_replicas = 0;
            return self.finish();
        }
        let (desired, reason) = if current > self.spec.max_replicas {
            (self.spec.max_replicas, "Current number of replicas above Spec.MaxReplicas".to_owned())
        } else if current < least {
            (least, "Current number of replicas below Spec.MinReplicas".to_owned())
        } else {
            match self.by_metrics(&scale, current, least) {
                Ok(found) => found,
                Err(why) => {
                    self.warn("FailedComputeMetricsReplicas", why);
                    return self.finish();
                }
            }
        };
        self.status.desired_replicas = desired;
        if desired != current {
            self.rescale(&plural, scale, current, desired, &reason);
        }
        self.finish()
    }

    /// How many replicas the metrics ask for, within what behavior allows, and why.
    fn by_metrics(&mut self, scale: &Scale, current: i32, least: i32) -> Result<(i32, String), String> {
        if scale.status.as_ref().and_then(|status| status.selector.as_ref()).is_none_or(String::is_empty) {
            let message = "the HPA target's scale is missing a selector";
            self.condition("ScalingActive", false, "InvalidSelector", message.into());
            return Err("selector is required".into());
        }
        let (proposed, metric) = self.most_of_metrics(current)?;
        let message = format!("the HPA was able to successfully calculate a replica count from {metric}");
        self.condition("ScalingActive", true, "ValidMetricFound", message);
        let reason = match proposed.cmp(&current) {
            std::cmp::Ordering::Greater => format!("{metric} above target"),
            _ => "All metrics below target".to_owned(),
        };
        let behavior = self.spec.behavior.clone();
        let limits = Limits {
            least,
            most: self.spec.max_replicas,
            behavior: behavior.as_ref(),
            downscale_stabilization: self.settings.downscale_stabilization,
        };
        let (stabilized, why) = behavior::stabilize(&mut self.history, current, proposed, &limits, self.now);
        let (why, message) = why.unwrap_or(("ReadyForNewScale", "recommended size matches current size"));
        self.condition("AbleToScale", true, why, message.into());
        let (desired, why, message) = behavior::limit(&self.history, current, stabilized, &limits, self.now);
        self.condition("ScalingLimited", desired != stabilized, why, message.into());
        Ok((desired, reason))
    }

    fn most_of_metrics(&mut self, current: i32) -> Result<(i32, String), String> {
        let specs = self.spec.metrics.clone().unwrap_or_default();
        let mut statuses: Vec<MetricStatus> = Vec::new();
        let mut most: Option<(i32, String)> = None;
        let mut failures: Vec<(String, String)> = Vec::new();
        let tolerances = Tolerances::of(&self.spec, self.settings.tolerance);
        for metric in &specs {
            let metrics = self.view.metrics.as_ref();
            let input = calculate::Input {
                pods: &self.view.pods,
                metrics,
                current,
                tolerances,
                periods: &self.settings.periods,
                now: self.now,
            };
            match calculate::replicas(metric, &input) {
                Ok(found) => {
                    statuses.push(found.status);
                    if most.as_ref().is_none_or(|(replicas, _)| found.replicas > *replicas) {
                        most = Some((found.replicas, found.name));
                    }
                }
                Err(failure) => failures.push(failure),
            }
        }
        self.status.current_metrics = Some(statuses);
        let Some((first_reason, first)) = failures.first().cloned() else {
            return most.ok_or_else(|| "no metrics".to_owned());
        };
        let message = format!(
            "invalid metrics ({} invalid out of {}), first error is: {first}",
            failures.len(),
            specs.len()
        );
        // With some unknown, more is safe and less is not.
        match most.filter(|(replicas, _)| *replicas >= current) {
            Some(most) => Ok(most),
            None => {
                self.warn(&first_reason, first.clone());
                let text = format!("the HPA was unable to compute the replica count: {first}");
                self.condition("ScalingActive", false, &first_reason, text);
                Err(message)
            }
        }
    }

    fn rescale(&mut self, plural: &str, mut scale: Scale, current: i32, desired: i32, reason: &str) {
        let autoscaler = self.view.autoscaler.as_ref();
        let target = &self.spec.scale_target_ref;
        scale.spec.get_or_insert_default().replicas = Some(desired);
        let target = Target {
            api_version: target.api_version.clone().unwrap_or_else(|| "v1".into()),
            kind: target.kind.clone(),
            plural: plural.to_owned(),
            key: Key::new(autoscaler.namespace().unwrap_or_default(), &target.name),
            subresource: "scale",
        };
        let body = serde_json::to_value(&scale).unwrap_or_default();
        let done = format!("New size: {desired}; reason: {reason}");
        let failed = format!("New size: {desired}; reason: {reason}; error: {{error}}");
        self.plan.writes.push(Write::new(Verb::Update, target, body).told(
            Note::normal(reference(autoscaler), "SuccessfulRescale", done),
            Note::warning(reference(autoscaler), "FailedRescale", failed),
        ));
        let message = format!("the HPA controller was able to update the target scale to {desired}");
        self.condition("AbleToScale", true, "SucceededRescale", message);
        self.status.last_scale_time = Some(Time(self.now));
        self.history.scaled(current, desired, self.now);
    }

    fn warn(&mut self, reason: &str, message: String) {
        self.plan.tell(Note::warning(reference(self.view.autoscaler.as_ref()), reason, message));
    }

    fn condition(&mut self, ty: &str, is: bool, reason: &str, message: String) {
        let status = if is { "True" } else { "False" };
        let conditions = self.status.conditions.get_or_insert_default();
        let position = conditions.iter().position(|condition| condition.type_ == ty).unwrap_or_else(|| {
            conditions.push(HorizontalPodAutoscalerCondition { type_: ty.into(), ..Default::default() });
            conditions.len() - 1
        });
        let condition = &mut conditions[position];
        if condition.status != status {
            condition.last_transition_time = Some(Time(self.now));
        }
        condition.status = status.into();
        condition.reason = Some(reason.into());
        condition.message = Some(message);
    }

    fn finish(mut self) -> (Plan, History) {
        if Some(&self.status) != self.view.autoscaler.status.as_ref() {
            let mut copy = self.view.autoscaler.as_ref().clone();
            copy.status = Some(self.status);
            self.plan.status = Some(Write::update_status(&copy));
        }
        (self.plan, self.history)
    }
}
