//! `pods/eviction`: a deletion that asks the disruption budgets first.

use crate::admission::Operation;
use crate::admission::question::{self, Question};
use crate::answer::{self, Answer};
use crate::context::Context;
use crate::decode;
use crate::deletion::{self, DeleteOptions};
use crate::error::{ApiError, Result};
use crate::handler::Call;
use crate::registry::Resource;
use crate::server::Server;
use crate::storage::Change;
use crate::{time, verbs::delete};
use api::selector::{LabelSelector, Labels};
use api::{Value, object};
use http::StatusCode;
use serde_json::json;

/// Evicts the pod, or says which budget stands in the way.
pub async fn handle(server: &Server, pods: &Resource, call: &Call<'_>) -> Result<Answer> {
    let mut context = call.context()?;
    let mut eviction = decode::document(call.headers, &call.body)?.value;
    let mut options = DeleteOptions::parse(eviction.get("deleteOptions"), call.query)?;
    context.dry_run |= options.dry_run;
    let (namespace, name) = (call.target.namespace, &*call.target.name);
    let pod = server.read(pods, namespace, name).await?.object;
    if !question::nobody_is_asked(server) && eviction.is_object() {
        eviction["apiVersion"] = "policy/v1".into();
        eviction["kind"] = "Eviction".into();
        let question = Question {
            subresource: "eviction",
            takes: Some(("policy", "v1", "Eviction")),
            ..Question::about(server, &context, Operation::Create, &pods.kind, &pod)
        };
        Box::pin(question::ask_all(&question, Some(&mut eviction), None)).await?;
        // About the deletion itself nobody is asked any more.
        context.is_internal = true;
    }
    let mut unguarded = None;
    if needs_budget(&pod) {
        let budgets = server.registry.built_in("policy", "poddisruptionbudgets");
        let matching = matching_budgets(&budgets, namespace, &pod);
        match matching.as_slice() {
            [] => {}
            [budget] if !object::condition_is(&pod, "Ready", "True") && lets_unready_go(budget) => {
                unguarded = Some(object::name(budget).to_owned());
            }
            [budget] => spend(server, &budgets, namespace, object::name(budget), name, &context).await?,
            _ => {
                return Err(ApiError::internal(
                    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
                ));
            }
        }
    }
    let asked_version = options.resource_version.is_some();
    if unguarded.is_some() && !asked_version {
        // It may become ready meanwhile.
        options.resource_version = object::meta(&pod, "resourceVersion").map(str::to_owned);
    }
    // Who did not ask for a version is not told that it has changed, but to try again.
    let told = |error: ApiError| match &unguarded {
        Some(budget) if !asked_version && error.code == StatusCode::CONFLICT => being_processed(budget),
        _ => error,
    };
    if !context.dry_run {
        let marked = mark(server, pods, namespace, name, &options, &context).await.map_err(told)?;
        if options.resource_version.is_some() {
            options.resource_version = object::meta(&marked, "resourceVersion").map(str::to_owned);
        }
    }
    delete::delete(server, pods, namespace, name, &options, &context).await.map_err(told)?;
    let status =
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
    Ok(answer::json(StatusCode::CREATED, &status))
}

/// Writes into the pod why it goes, which the failure policy of a Job asks. The pod as it is then.
async fn mark(
    server: &Server,
    pods: &Resource,
    namespace: &str,
    name: &str,
    options: &DeleteOptions,
    context: &Context,
) -> Result<Value> {
    let condition = json!({
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
        "lastTransitionTime": time::rfc3339(context.now),
    });
    let marked = server.modify(pods, namespace, name, false, |current| {
        deletion::check_preconditions(&pods.kind, current, options)?;
        let mut next = current.clone();
        let status = object::object_mut(&mut next, "status");
        let conditions = status.get("conditions").and_then(Value::as_array).into_iter().flatten();
        let others = conditions.filter(|other| other["type"] != condition["type"]).cloned();
        let conditions: Vec<Value> = others.chain([condition.clone()]).collect();
        status.insert("conditions".into(), conditions.into());
        Ok(Change::Put(Box::new(next), Vec::new()))
    });
    Ok(marked.await?.into_object())
}

/// A pod that has ended, has not begun or is already going takes nothing from a budget.
fn needs_budget(pod: &Value) -> bool {
    !matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed" | "Pending"))
        && object::meta(pod, "deletionTimestamp").is_none()
}

/// Whether a pod that is not ready may go without taking from the budget: always, if it says so, and otherwise while those
/// that are ready are enough.
fn lets_unready_go(budget: &Value) -> bool {
    let count = |name: &str| budget["status"][name].as_i64().unwrap_or(0);
    let enough = count("desiredHealthy") > 0 && count("currentHealthy") >= count("desiredHealthy");
    budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow" || enough
}

fn matching_budgets(budgets: &Resource, namespace: &str, pod: &Value) -> Vec<Value> {
    let labels = pod["metadata"]["labels"].as_object().into_iter().flatten();
    let labels =
        Labels::from_iter(labels.map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default())));
    budgets
        .objects(Some(namespace))
        .iter()
        .filter_map(|object| serde_json::from_slice::<Value>(object.as_json()).ok())
        .filter(|budget| {
            budget["spec"]
                .get("selector")
                .and_then(|selector| LabelSelector::from_json(selector).ok())
                .is_some_and(|selector| selector.matches(&labels))
        })
        .collect()
}

const VIOLATED: &str = "Cannot evict pod as it would violate the pod's disruption budget.";

/// To be tried again soon.
fn being_processed(budget: &str) -> ApiError {
    let why = format!("The disruption budget {budget} is still being processed by the server.");
    ApiError::too_many_requests(VIOLATED, 10).with_cause("DisruptionBudget", &why, "")
}

/// Takes one disruption from the budget, so that two evictions at once cannot both have the last one.
async fn spend(
    server: &Server,
    budgets: &Resource,
    namespace: &str,
    budget: &str,
    pod: &str,
    context: &Context,
) -> Result<()> {
    let at = time::rfc3339(context.now);
    server
        .modify(budgets, namespace, budget, context.dry_run, |current| {
            let observed = current["status"]["observedGeneration"].as_i64().unwrap_or(0);
            if observed < current["metadata"]["generation"].as_i64().unwrap_or(0) {
                return Err(being_processed(budget));
            }
            let allowed = current["status"]["disruptionsAllowed"].as_i64().unwrap_or(0);
            if allowed <= 0 {
                let (needed, healthy) = (&current["status"]["desiredHealthy"], &current["status"]["currentHealthy"]);
                return Err(ApiError::too_many_requests(VIOLATED, 0).with_cause(
                    "DisruptionBudget",
                    &format!("The disruption budget {budget} needs {needed} healthy pods and has {healthy} currently"),
                    "",
                ));
            }
            let mut next = current.clone();
            next["status"]["disruptionsAllowed"] = json!(allowed - 1);
            object::object_mut(&mut next["status"], "disruptedPods").insert(pod.to_owned(), at.as_str().into());
            Ok(Change::Put(Box::new(next), Vec::new()))
        })
        .await
        .map(|_| ())
}
