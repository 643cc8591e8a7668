//! What keeps pods running, and how many.

use super::page::{Page, bracketed, items, or, shown, text, time};
use super::pod;
use super::storage::truth;
use serde_json::Value;

fn number(value: &Value, field: &str) -> i64 {
    value[field].as_i64().unwrap_or_default()
}

fn selector(object: &Value) -> String {
    api::printing::label_selector(object["spec"].get("selector"))
}

/// How the pods of a controller are, of all pods with its labels.
fn pods_status(object: &Value, pods: &Value) -> String {
    let uid = &object["metadata"]["uid"];
    let is_own = |pod: &&Value| {
        items(pod, "/metadata/ownerReferences")
            .any(|owner| owner["controller"] == true && owner["uid"] == *uid)
    };
    let own: Vec<&Value> = items(pods, "/items").filter(is_own).collect();
    let count = |phase: &str| own.iter().filter(|pod| pod["status"]["phase"] == phase).count();
    let (running, waiting) = (count("Running"), count("Pending"));
    format!(
        "{running} Running / {waiting} Waiting / {} Succeeded / {} Failed",
        count("Succeeded"),
        count("Failed")
    )
}

pub fn deployment(object: &Value, replica_sets: &Value, page: &mut Page) {
    let (spec, status) = (&object["spec"], &object["status"]);
    page.name(object);
    page.field("CreationTimestamp", &time(text(object, "/metadata/creationTimestamp")));
    page.labels_and_annotations(object);
    page.field("Selector", &selector(object));
    page.field(
        "Replicas",
        &format!(
            "{} desired | {} updated | {} total | {} available | {} unavailable",
            spec["replicas"].as_i64().unwrap_or(1),
            number(status, "updatedReplicas"),
            number(status, "replicas"),
            number(status, "availableReplicas"),
            number(status, "unavailableReplicas")
        ),
    );
    page.field("StrategyType", text(spec, "/strategy/type"));
    page.field("MinReadySeconds", &number(spec, "minReadySeconds").to_string());
    if let Some(rolling) = spec["strategy"].get("rollingUpdate").filter(|rolling| rolling.is_object()) {
        let limits = format!(
            "{} max unavailable, {} max surge",
            shown(&rolling["maxUnavailable"]),
            shown(&rolling["maxSurge"])
        );
        page.field("RollingUpdateStrategy", &limits);
    }
    pod::template(&spec["template"], page);
    page.conditions(object);
    let uid = &object["metadata"]["uid"];
    let own: Vec<&Value> = items(replica_sets, "/items")
        .filter(|set| items(set, "/metadata/ownerReferences").any(|owner| owner["uid"] == *uid))
        .collect();
    let revision =
        |object: &Value| text(object, "/metadata/annotations/deployment.kubernetes.io~1revision").to_owned();
    let describe = |sets: Vec<&&Value>| {
        let sets: Vec<String> = sets
            .into_iter()
            .map(|set| {
                let (created, wanted) =
                    (number(&set["status"], "replicas"), number(&set["spec"], "replicas"));
                format!("{} ({created}/{wanted} replicas created)", text(set, "/metadata/name"))
            })
            .collect();
        if sets.is_empty() { "<none>".to_owned() } else { sets.join(", ") }
    };
    if !own.is_empty() {
        let current = revision(object);
        let (new, old) = own.iter().partition(|set| revision(set) == current);
        page.field("OldReplicaSets", &describe(old));
        page.field("NewReplicaSet", &describe(new));
    }
}

/// ReplicaSets and ReplicationControllers.
pub fn replicas(object: &Value, pods: &Value, page: &mut Page) {
    page.name(object);
    let selector = match object["kind"] == "ReplicationController" {
        true => api::printing::labels(object["spec"].get("selector")),
        false => selector(object),
    };
    page.field("Selector", &selector);
    page.labels_and_annotations(object);
    if object["kind"] == "ReplicaSet" {
        page.owner(object);
    }
    let wanted = object["spec"]["replicas"].as_i64().unwrap_or(1);
    page.field("Replicas", &format!("{} current / {wanted} desired", number(&object["status"], "replicas")));
    page.field("Pods Status", &pods_status(object, pods));
    pod::template(&object["spec"]["template"], page);
    page.conditions(object);
}

pub fn stateful_set(object: &Value, pods: &Value, page: &mut Page) {
    let spec = &object["spec"];
    page.name(object);
    page.field("CreationTimestamp", &time(text(object, "/metadata/creationTimestamp")));
    page.field("Selector", &selector(object));
    page.labels_and_annotations(object);
    let wanted = spec["replicas"].as_i64().unwrap_or(1);
    page.field("Replicas", &format!("{wanted} desired | {} total", number(&object["status"], "replicas")));
    page.field("Update Strategy", text(spec, "/updateStrategy/type"));
    let rolling = &spec["updateStrategy"]["rollingUpdate"];
    if let Some(partition) = rolling["partition"].as_i64() {
        page.line(&format!("  Partition:\t{partition}"));
        if let Some(most) = rolling.get("maxUnavailable") {
            page.line(&format!("  MaxUnavailable:\t{}", shown(most)));
        }
    }
    page.field("Pods Status", &pods_status(object, pods));
    pod::template(&spec["template"], page);
    let mut claims = items(spec, "/volumeClaimTemplates").peekable();
    match claims.peek() {
        None => page.field("Volume Claims", "<none>"),
        Some(_) => page.line("Volume Claims:"),
    }
    for claim in claims {
        page.line(&format!("  Name:\t{}", text(claim, "/metadata/name")));
        page.line(&format!("  StorageClass:\t{}", text(claim, "/spec/storageClassName")));
        for (title, map) in [("Labels", "labels"), ("Annotations", "annotations")] {
            let mut pairs = claim["metadata"][map]
                .as_object()
                .into_iter()
                .flatten()
                .map(|(key, value)| format!("{key}={}", shown(value)));
            page.line(&format!("  {title}:\t{}", pairs.next().unwrap_or_else(|| "<none>".to_owned())));
            pairs.for_each(|pair| page.line(&format!("  \t{pair}")));
        }
        let size = claim["spec"]["resources"]["requests"].get("storage");
        page.line(&format!("  Capacity:\t{}", size.map_or_else(|| "<default>".to_owned(), shown)));
        page.line(&format!("  Access Modes:\t{}", bracketed(&claim["spec"]["accessModes"])));
    }
}

pub fn daemon_set(object: &Value, pods: &Value, page: &mut Page) {
    let status = &object["status"];
    page.name(object);
    page.field("Selector", &selector(object));
    page.field(
        "Node-Selector",
        &api::printing::labels(object["spec"]["template"]["spec"].get("nodeSelector")),
    );
    page.labels_and_annotations(object);
    for (title, field) in [
        ("Desired Number of Nodes Scheduled", "desiredNumberScheduled"),
        ("Current Number of Nodes Scheduled", "currentNumberScheduled"),
        ("Number of Nodes Scheduled with Up-to-date Pods", "updatedNumberScheduled"),
        ("Number of Nodes Scheduled with Available Pods", "numberAvailable"),
        ("Number of Nodes Misscheduled", "numberMisscheduled"),
    ] {
        page.line(&format!("{title}: {}", number(status, field)));
    }
    page.field("Pods Status", &pods_status(object, pods));
    pod::template(&object["spec"]["template"], page);
}

pub fn job(object: &Value, page: &mut Page) {
    let (spec, status) = (&object["spec"], &object["status"]);
    page.name(object);
    page.field("Selector", &selector(object));
    page.labels_and_annotations(object);
    page.owner(object);
    page.given("Parallelism", spec.get("parallelism"));
    page.field("Completions", &spec.get("completions").map_or_else(|| "<unset>".to_owned(), shown));
    page.given("Completion Mode", spec.get("completionMode"));
    page.given("Suspend", spec.get("suspend"));
    page.given("Backoff Limit", spec.get("backoffLimit"));
    page.given("TTL Seconds After Finished", spec.get("ttlSecondsAfterFinished"));
    let (started, ended) = (text(status, "/startTime"), text(status, "/completionTime"));
    for (title, at) in [("Start Time", started), ("Completed At", ended)] {
        if !at.is_empty() {
            page.field(title, &time(at));
        }
    }
    if let (Ok(started), Ok(ended)) = (started.parse::<jiff::Timestamp>(), ended.parse::<jiff::Timestamp>()) {
        page.field("Duration", &api::printing::human_duration(ended.as_second() - started.as_second()));
    }
    if let Some(seconds) = spec["activeDeadlineSeconds"].as_i64() {
        page.field("Active Deadline Seconds", &format!("{seconds}s"));
    }
    let ready = status["ready"].as_i64().map(|ready| format!(" ({ready} Ready)")).unwrap_or_default();
    let count = |field: &str| number(status, field);
    page.field(
        "Pods Statuses",
        &format!(
            "{} Active{ready} / {} Succeeded / {} Failed",
            count("active"),
            count("succeeded"),
            count("failed")
        ),
    );
    if spec["completionMode"] == "Indexed" {
        page.field("Completed Indexes", &cut_indexes(text(status, "/completedIndexes")));
    }
    pod::template(&spec["template"], page);
}

/// A long list of indexes ends at the first comma after this many letters.
fn cut_indexes(indexes: &str) -> String {
    const ENOUGH: usize = 50;
    match indexes.get(ENOUGH..).and_then(|rest| rest.find(',')) {
        Some(at) => format!("{}...", &indexes[..=ENOUGH + at]),
        None => or(indexes, "<none>").to_owned(),
    }
}

pub fn cron_job(object: &Value, page: &mut Page) {
    let (spec, status) = (&object["spec"], &object["status"]);
    let template = &spec["jobTemplate"]["spec"];
    let or_unset = |value: Option<&Value>| value.map_or_else(|| "<unset>".to_owned(), shown);
    page.opening(object);
    page.field("Schedule", text(spec, "/schedule"));
    page.field("Concurrency Policy", text(spec, "/concurrencyPolicy"));
    page.field("Suspend", truth(&spec["suspend"]));
    page.field("Successful Job History Limit", &or_unset(spec.get("successfulJobsHistoryLimit")));
    page.field("Failed Job History Limit", &or_unset(spec.get("failedJobsHistoryLimit")));
    let deadline = spec["startingDeadlineSeconds"].as_i64().map(|seconds| format!("{seconds}s"));
    page.field("Starting Deadline Seconds", deadline.as_deref().unwrap_or("<unset>"));
    let selector = template.get("selector").map(|selector| api::printing::label_selector(Some(selector)));
    page.field("Selector", selector.as_deref().unwrap_or("<unset>"));
    page.field("Parallelism", &or_unset(template.get("parallelism")));
    page.field("Completions", &or_unset(template.get("completions")));
    if let Some(seconds) = template["activeDeadlineSeconds"].as_i64() {
        page.field("Active Deadline Seconds", &format!("{seconds}s"));
    }
    pod::template(&template["template"], page);
    page.field("Last Schedule Time", &time(text(status, "/lastScheduleTime")));
    let active: Vec<&str> = items(status, "/active").map(|job| text(job, "/name")).collect();
    page.field("Active Jobs", or(&active.join(", "), "<none>"));
}

pub fn disruption_budget(object: &Value, page: &mut Page) {
    let (spec, status) = (&object["spec"], &object["status"]);
    page.name(object);
    match spec.get("minAvailable") {
        Some(least) => page.field("Min available", &shown(least)),
        None => page.given("Max unavailable", spec.get("maxUnavailable")),
    }
    let selector = spec.get("selector").map(|selector| api::printing::label_selector(Some(selector)));
    page.field("Selector", selector.as_deref().unwrap_or("<unset>"));
    page.line("Status:");
    for (title, field) in [
        ("Allowed disruptions", "disruptionsAllowed"),
        ("Current", "currentHealthy"),
        ("Desired", "desiredHealthy"),
        ("Total", "expectedPods"),
    ] {
        page.line(&format!("    {title}:\t{}", number(status, field)));
    }
}

pub fn autoscaler(object: &Value, page: &mut Page) {
    let (spec, status) = (&object["spec"], &object["status"]);
    let kind = text(spec, "/scaleTargetRef/kind");
    page.opening(object);
    page.field("CreationTimestamp", &time(text(object, "/metadata/creationTimestamp")));
    page.field("Reference", &format!("{kind}/{}", text(spec, "/scaleTargetRef/name")));
    page.field("Metrics", "( current / target )");
    for (index, metric) in items(spec, "/metrics").enumerate() {
        page.line(&format!("  {}", self::metric(metric, &status["currentMetrics"][index])));
    }
    page.field("Min replicas", &spec.get("minReplicas").map_or_else(|| "<unset>".to_owned(), shown));
    page.field("Max replicas", &number(spec, "maxReplicas").to_string());
    if spec["behavior"].is_object() {
        page.line("Behavior:");
        behavior("Scale Up", &spec["behavior"]["scaleUp"], page);
        behavior("Scale Down", &spec["behavior"]["scaleDown"], page);
    }
    let (current, desired) = (number(status, "currentReplicas"), number(status, "desiredReplicas"));
    page.field(&format!("{kind} pods"), &format!("{current} current / {desired} desired"));
    let mut conditions = items(status, "/conditions").peekable();
    if conditions.peek().is_some() {
        page.line("Conditions:\n  Type\tStatus\tReason\tMessage\n  ----\t------\t------\t-------");
        for condition in conditions {
            let part = |field: &str| condition[field].as_str().unwrap_or_default();
            page.line(&format!(
                "  {}\t{}\t{}\t{}",
                part("type"),
                part("status"),
                part("reason"),
                part("message")
            ));
        }
    }
}

fn metric(metric: &Value, current: &Value) -> String {
    let kind = text(metric, "/type");
    let field =
        kind.chars().next().map(|first| first.to_lowercase().to_string() + &kind[1..]).unwrap_or_default();
    let (source, current) = (&metric[&field], &current[&field]["current"]);
    let now = |field: &str| current.get(field).map_or_else(|| "<unknown>".to_owned(), shown);
    let (target, name) = (&source["target"], text(source, "/metric/name"));
    let against = |field: &str| format!("{} / {}", now(field), shown(&target[field]));
    let averaged = |title: String| match target.get("averageValue") {
        Some(_) => format!("{title} (target average value):\t{}", against("averageValue")),
        None => format!("{title} (target value):\t{}", against("value")),
    };
    match field.as_str() {
        "external" => averaged(format!("\"{name}\"")),
        "object" => {
            let of = &source["describedObject"];
            averaged(format!("\"{name}\" on {}/{}", text(of, "/kind"), text(of, "/name")))
        }
        "pods" => format!("\"{name}\" on pods:\t{}", against("averageValue")),
        "resource" | "containerResource" => {
            let container = source["container"].as_str().map(|name| format!(" of container \"{name}\""));
            let title =
                format!("resource {}{} on pods", text(source, "/name"), container.unwrap_or_default());
            if target.get("averageValue").is_some() {
                return format!("{title}:\t{}", against("averageValue"));
            }
            let now = match current["averageUtilization"].as_i64() {
                Some(percent) => format!("{percent}% ({})", now("averageValue")),
                None => "<unknown>".to_owned(),
            };
            let wanted = target["averageUtilization"].as_i64().map(|percent| format!("{percent}%"));
            let wanted = wanted.as_deref().unwrap_or("<auto>");
            format!("{title}  (as a percentage of request):\t{now} / {wanted}")
        }
        _ => format!("<unknown metric type \"{kind}\">"),
    }
}

fn behavior(title: &str, rules: &Value, page: &mut Page) {
    if !rules.is_object() {
        return;
    }
    page.line(&format!("  {title}:"));
    if let Some(seconds) = rules["stabilizationWindowSeconds"].as_i64() {
        page.line(&format!("    Stabilization Window: {seconds} seconds"));
    }
    let mut policies = items(rules, "/policies").peekable();
    if policies.peek().is_some() {
        page.line(&format!(
            "    Select Policy: {}\n    Policies:",
            rules["selectPolicy"].as_str().unwrap_or("Max")
        ));
    }
    for policy in policies {
        let (value, period) = (number(policy, "value"), number(policy, "periodSeconds"));
        page.line(&format!(
            "      - Type: {}\tValue: {value}\tPeriod: {period} seconds",
            text(policy, "/type")
        ));
    }
}
