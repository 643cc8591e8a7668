//! Deployments.

use super::page::{Page, items, shown, text, time};
use super::pod;
use serde_json::Value;

pub fn deployment(object: &Value, replica_sets: &Value, page: &mut Page) {
    let (spec, status) = (&object["spec"], &object["status"]);
    page.field("Name", text(object, "/metadata/name"));
    page.field("Namespace", text(object, "/metadata/namespace"));
    page.field("CreationTimestamp", &time(text(object, "/metadata/creationTimestamp")));
    page.labels_and_annotations(object);
    page.field("Selector", &api::printing::label_selector(Some(&spec["selector"])));
    let number = |field: &str| status[field].as_i64().unwrap_or_default();
    page.field(
        "Replicas",
        &format!(
            "{} desired | {} updated | {} total | {} available | {} unavailable",
            spec["replicas"].as_i64().unwrap_or(1),
            number("updatedReplicas"),
            number("replicas"),
            number("availableReplicas"),
            number("unavailableReplicas")
        ),
    );
    page.field("StrategyType", text(spec, "/strategy/type"));
    page.field("MinReadySeconds", &spec["minReadySeconds"].as_i64().unwrap_or_default().to_string());
    if let Some(rolling) = spec["strategy"].get("rollingUpdate").filter(|rolling| rolling.is_object()) {
        let limits = format!(
            "{} max unavailable, {} max surge",
            shown(&rolling["maxUnavailable"]),
            shown(&rolling["maxSurge"])
        );
        page.field("RollingUpdateStrategy", &limits);
    }
    pod::template(&spec["template"], page);
    let mut conditions = items(status, "/conditions").peekable();
    if conditions.peek().is_some() {
        page.line("Conditions:\n  Type\tStatus\tReason\n  ----\t------\t------");
        for condition in conditions {
            let part = |field: &str| condition[field].as_str().unwrap_or_default().to_owned();
            page.line(&format!("  {} \t{}\t{}", part("type"), part("status"), part("reason")));
        }
    }
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
                let created = set["status"]["replicas"].as_i64().unwrap_or_default();
                let wanted = set["spec"]["replicas"].as_i64().unwrap_or_default();
                format!("{} ({created}/{wanted} replicas created)", text(set, "/metadata/name"))
            })
            .collect();
        if sets.is_empty() { "<none>".to_owned() } else { sets.join(", ") }
    };
    let current = revision(object);
    page.field("OldReplicaSets", &describe(own.iter().filter(|set| revision(set) != current).collect()));
    page.field("NewReplicaSet", &describe(own.iter().filter(|set| revision(set) == current).collect()));
}
