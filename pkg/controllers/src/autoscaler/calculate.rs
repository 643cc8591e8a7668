//! How many replicas one metric asks for: upstream's replica calculator, as a function.

use super::metrics::PodMetrics;
use crate::pods;
use api::Quantity;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::autoscaling::v2::{
    ContainerResourceMetricStatus, HorizontalPodAutoscalerSpec, MetricSpec, MetricStatus, MetricTarget,
    MetricValueStatus, ResourceMetricStatus,
};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Amount;
use kube::ResourceExt;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// How far a ratio may be from one.
#[derive(Debug, Clone, Copy)]
pub struct Tolerances {
    pub down: f64,
    pub up: f64,
}

impl Tolerances {
    /// Those that an autoscaler asks for, or the same for both.
    pub fn of(spec: &HorizontalPodAutoscalerSpec, default: f64) -> Tolerances {
        let behavior = spec.behavior.as_ref();
        let parse = |amount: Option<&Amount>| {
            let amount: Quantity = amount?.0.parse().ok()?;
            Some(amount.milli_value() as f64 / 1000.0)
        };
        let up =
            behavior.and_then(|behavior| behavior.scale_up.as_ref()).and_then(|up| up.tolerance.as_ref());
        let down = behavior
            .and_then(|behavior| behavior.scale_down.as_ref())
            .and_then(|down| down.tolerance.as_ref());
        Tolerances { up: parse(up).unwrap_or(default), down: parse(down).unwrap_or(default) }
    }

    fn allow(&self, ratio: f64) -> bool {
        1.0 - self.down <= ratio && ratio <= 1.0 + self.up
    }
}

/// When the metrics of a pod that has just started say nothing.
#[derive(Debug, Clone)]
pub struct Periods {
    pub cpu_initialization: Duration,
    pub initial_readiness: Duration,
}

/// What a calculation is about.
pub struct Input<'a> {
    pub pods: &'a [Arc<Pod>],
    pub metrics: Result<&'a PodMetrics, &'a String>,
    pub current: i32,
    pub tolerances: Tolerances,
    pub periods: &'a Periods,
    pub now: Timestamp,
}

/// What a metric asks for.
#[derive(Debug)]
pub struct Proposal {
    pub replicas: i32,
    pub name: String,
    pub status: MetricStatus,
}

/// What a metric asks for, or the reason and the words of why that is not known.
pub fn replicas(metric: &MetricSpec, input: &Input<'_>) -> Result<Proposal, (String, String)> {
    match metric.type_.as_str() {
        "Resource" => {
            let source = metric.resource.clone().unwrap_or_default();
            let fail = |why: String| ("FailedGetResourceMetric".to_owned(), why);
            let (replicas, name, value) = resource(&source.name, "", &source.target, input).map_err(fail)?;
            let status = MetricStatus {
                type_: "Resource".into(),
                resource: Some(ResourceMetricStatus { name: source.name, current: value }),
                ..MetricStatus::default()
            };
            Ok(Proposal { replicas, name, status })
        }
        "ContainerResource" => {
            let source = metric.container_resource.clone().unwrap_or_default();
            let fail = |why: String| ("FailedGetContainerResourceMetric".to_owned(), why);
            let (replicas, name, value) =
                resource(&source.name, &source.container, &source.target, input).map_err(fail)?;
            let status = MetricStatus {
                type_: "ContainerResource".into(),
                container_resource: Some(ContainerResourceMetricStatus {
                    name: source.name,
                    container: source.container,
                    current: value,
                }),
                ..MetricStatus::default()
            };
            Ok(Proposal { replicas, name, status })
        }
        other => {
            let why = format!("unable to get metrics of type {other}: no metrics API serves them");
            Err((format!("FailedGet{other}Metric"), why))
        }
    }
}

fn resource(
    name: &str,
    container: &str,
    target: &MetricTarget,
    input: &Input<'_>,
) -> Result<(i32, String, MetricValueStatus), String> {
    if let Some(average) = &target.average_value {
        let wanted = average.0.parse::<Quantity>().map_err(|error| error.to_string())?.milli_value();
        let (replicas, usage, _) = calculate(name, container, Wanted::Value(wanted), input)
            .map_err(|why| format!("failed to get {name} usage: {why}"))?;
        let value = MetricValueStatus { average_value: Some(amount(name, usage)), ..Default::default() };
        return Ok((replicas, format!("{name} resource"), value));
    }
    let Some(wanted) = target.average_utilization else {
        return Err("invalid resource metric source: neither an average utilization target nor an average value (usage) target was set".into());
    };
    let (replicas, usage, share) = calculate(name, container, Wanted::Share(wanted.into()), input)
        .map_err(|why| format!("failed to get {name} utilization: {why}"))?;
    let kind = if container.is_empty() { "resource" } else { "container resource" };
    let value = MetricValueStatus {
        average_value: Some(amount(name, usage)),
        average_utilization: i32::try_from(share).ok(),
        value: None,
    };
    Ok((replicas, format!("{name} {kind} utilization (percentage of request)"), value))
}

fn amount(name: &str, milli: i64) -> Amount {
    // Bytes have no thousandths.
    let quantity =
        if name == "memory" { Quantity::from_value(milli / 1000) } else { Quantity::from_milli(milli) };
    Amount(quantity.to_string())
}

#[derive(Clone, Copy)]
enum Wanted {
    /// Thousandths per pod.
    Value(i64),
    /// Percent of what is requested.
    Share(i64),
}

/// Replicas, the average use in thousandths, and its share of the requests in percent.
fn calculate(
    name: &str,
    container: &str,
    wanted: Wanted,
    input: &Input<'_>,
) -> Result<(i32, i64, i64), String> {
    let metrics = input.metrics.map_err(|why| format!("unable to get metrics for resource {name}: {why}"))?;
    let mut usage: BTreeMap<String, i64> = BTreeMap::new();
    for (pod, metric) in metrics {
        let containers = metric.usage.iter().filter(|(found, _)| container.is_empty() || *found == container);
        let amounts: Option<Vec<i64>> = containers.map(|(_, usage)| usage.get(name).copied()).collect();
        if let Some(amounts) = amounts.filter(|amounts| !amounts.is_empty()) {
            usage.insert(pod.clone(), amounts.iter().sum());
        }
    }
    if input.pods.is_empty() {
        return Err("no pods returned by selector while calculating replica count".into());
    }
    let groups = Groups::of(name, &usage, metrics, input);
    usage.retain(|pod, _| !groups.ignored.contains(pod) && !groups.unready.contains(pod));
    if usage.is_empty() {
        return Err("did not receive metrics for targeted pods (pods might be unready)".into());
    }
    let requests = match wanted {
        Wanted::Share(_) => requests(name, container, input.pods)?,
        Wanted::Value(_) => BTreeMap::new(),
    };
    let (ratio, average, share) = ratio(&usage, &requests, wanted)?;
    let found = |replicas: i32| Ok((replicas, average, share));
    let counts_unready = !groups.unready.is_empty() && ratio > 1.0;
    if !counts_unready && groups.missing.is_empty() {
        if input.tolerances.allow(ratio) {
            return found(input.current);
        }
        return found((ratio * groups.ready as f64).ceil() as i32);
    }
    // Pods that say nothing are taken to be against what is about to be done.
    for pod in &groups.missing {
        let assumed = match wanted {
            Wanted::Value(wanted) => wanted,
            Wanted::Share(wanted) => requests.get(pod).copied().unwrap_or(0) * wanted.max(100) / 100,
        };
        if ratio < 1.0 {
            usage.insert(pod.clone(), assumed);
        } else if ratio > 1.0 {
            usage.insert(pod.clone(), 0);
        }
    }
    if counts_unready {
        usage.extend(groups.unready.iter().map(|pod| (pod.clone(), 0)));
    }
    let (adjusted, _, _) = self::ratio(&usage, &requests, wanted)?;
    if input.tolerances.allow(adjusted) || (ratio < 1.0 && adjusted > 1.0) || (ratio > 1.0 && adjusted < 1.0)
    {
        return found(input.current);
    }
    let replicas = (adjusted * usage.len() as f64).ceil() as i32;
    let is_contrary =
        (adjusted < 1.0 && replicas > input.current) || (adjusted > 1.0 && replicas < input.current);
    found(if is_contrary { input.current } else { replicas })
}

/// How the use compares with what is wanted; the average; the share in percent.
fn ratio(
    usage: &BTreeMap<String, i64>,
    requests: &BTreeMap<String, i64>,
    wanted: Wanted,
) -> Result<(f64, i64, i64), String> {
    let total: i64 = usage.values().sum();
    let average = total / i64::try_from(usage.len()).unwrap_or(1).max(1);
    match wanted {
        Wanted::Value(wanted) => Ok((average as f64 / wanted as f64, average, 0)),
        Wanted::Share(wanted) => {
            let requested: i64 = usage.keys().filter_map(|pod| requests.get(pod)).sum();
            if requested == 0 {
                return Err("no metrics returned matched known pods".into());
            }
            let share = total * 100 / requested;
            Ok((share as f64 / wanted as f64, average, share))
        }
    }
}

fn requests(name: &str, container: &str, pods: &[Arc<Pod>]) -> Result<BTreeMap<String, i64>, String> {
    let mut requests = BTreeMap::new();
    for pod in pods {
        let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
        let mut total = 0;
        for found in containers.filter(|found| container.is_empty() || found.name == container) {
            let amounts = found.resources.as_ref().and_then(|resources| resources.requests.as_ref());
            let amount = amounts
                .and_then(|amounts| amounts.get(name))
                .and_then(|amount| amount.0.parse::<Quantity>().ok());
            let Some(amount) = amount else {
                return Err(format!(
                    "missing request for {name} in container {} of Pod {}",
                    found.name,
                    pod.name_any()
                ));
            };
            total += amount.milli_value();
        }
        requests.insert(pod.name_any(), total);
    }
    Ok(requests)
}

/// Pods by what their metrics are worth.
#[derive(Default)]
struct Groups {
    ready: usize,
    unready: BTreeSet<String>,
    missing: BTreeSet<String>,
    ignored: BTreeSet<String>,
}

impl Groups {
    fn of(resource: &str, usage: &BTreeMap<String, i64>, metrics: &PodMetrics, input: &Input<'_>) -> Groups {
        let mut groups = Groups::default();
        for pod in input.pods {
            let name = pod.name_any();
            if pods::is_going(pod.as_ref()) || pods::phase(pod) == "Failed" {
                groups.ignored.insert(name);
            } else if pods::phase(pod) == "Pending" {
                groups.unready.insert(name);
            } else if !usage.contains_key(&name) {
                groups.missing.insert(name);
            } else if resource == "cpu" && is_unready(pod, &metrics[&name], input) {
                groups.unready.insert(name);
            } else {
                groups.ready += 1;
            }
        }
        groups
    }
}

fn is_unready(pod: &Pod, metric: &super::metrics::PodMetric, input: &Input<'_>) -> bool {
    let started = pod.status.as_ref().and_then(|status| status.start_time.as_ref()).map(|time| time.0);
    let (Some(ready), Some(started)) = (pods::condition(pod, "Ready"), started) else { return true };
    let after = |moment: Timestamp, period: Duration| {
        moment.checked_add(SignedDuration::try_from(period).unwrap_or_default()).unwrap_or(moment)
    };
    let changed = ready.last_transition_time.as_ref().map_or(started, |time| time.0);
    if after(started, input.periods.cpu_initialization) > input.now {
        let measured_since = changed.checked_add(metric.window).unwrap_or(changed);
        ready.status == "False" || metric.at < measured_since
    } else {
        ready.status == "False" && after(started, input.periods.initial_readiness) > changed
    }
}
