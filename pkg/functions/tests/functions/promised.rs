//! Calls that nobody waits for, and calls that nobody makes: promised, made again, triggered.

use crate::support::{Answered, Functions};
use api::kinds::minik8s::FunctionCall;
use http::StatusCode;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use testing::eventually;

const ASYNC: (&str, &str) = ("prefer", "respond-async");

fn calls(functions: &Functions) -> Api<FunctionCall> {
    Api::namespaced(functions.server.admin(), "default")
}

/// The name of the call that was promised.
fn promised(answered: &Answered) -> String {
    assert_eq!(answered.status, StatusCode::ACCEPTED, "{answered:?}");
    let call: Value = serde_json::from_str(&answered.body).expect("JSON");
    call["metadata"]["name"].as_str().expect("a name").to_owned()
}

async fn ended(functions: &Functions, name: &str) -> FunctionCall {
    eventually(&format!("{name} ends"), || async {
        let call = calls(functions).get(name).await.expect("there");
        matches!(call.status.phase.as_str(), "Succeeded" | "Failed").then_some(call)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_promised_is_done_from_zero_and_its_result_is_kept_for_a_while() {
    let functions = Functions::start().await;
    let code = "def main(params):\n    return params['x'] + params['y']\n";
    functions.register_with("add", json!({"code": code, "async": {"keepSeconds": 2}})).await;
    let caller = functions.caller().await;
    let body = r#"{"x":1,"y":2}"#;
    let name = promised(&caller.call_with("add", body, &[ASYNC]).await);
    let call = ended(&functions, &name).await;
    let status = &call.status;
    assert_eq!((status.phase.as_str(), status.result.as_str(), status.attempts), ("Succeeded", "3", 1));
    assert_eq!(
        call.metadata.owner_references.map_or(0, |owners| owners.len()),
        1,
        "it goes with its function"
    );
    eventually("it is forgotten", || async {
        calls(&functions).get_opt(&name).await.expect("asked").is_none().then_some(())
    })
    .await;
    let refused = caller.call_with("add", "{", &[ASYNC]).await;
    assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_fails_is_made_again_and_then_given_up() {
    let functions = Functions::start().await;
    let code = "def main(params, context):\n    if context['attempt'] < params['from']:\n        \
        raise ValueError(f\"not {context['attempt']}\")\n    return context['attempt']\n";
    functions
        .register_with("third", json!({"code": code, "async": {"retries": 2, "backoffSeconds": 1}}))
        .await;
    let caller = functions.caller().await;
    let (good, bad) = (r#"{"from":3}"#, r#"{"from":9}"#);
    let good = promised(&caller.call_with("third", good, &[ASYNC]).await);
    let bad = promised(&caller.call_with("third", bad, &[ASYNC]).await);
    let done = ended(&functions, &good).await.status;
    assert_eq!((done.phase.as_str(), done.result.as_str(), done.attempts), ("Succeeded", "3", 3));
    let failed = ended(&functions, &bad).await.status;
    assert_eq!((failed.phase.as_str(), failed.reason.as_str(), failed.attempts), ("Failed", "Raised", 3));
    assert!(failed.message.contains("ValueError: not 3"), "{failed:?}");
    let selected = ListParams::default().fields("status.phase=Failed");
    let listed = calls(&functions).list(&selected).await.expect("a list");
    assert_eq!(
        listed.items.iter().filter_map(|call| call.metadata.name.as_ref()).collect::<Vec<_>>(),
        [&bad]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_key_is_the_same_call() {
    let functions = Functions::start().await;
    functions.register("one", "n = 0\ndef main(params):\n    global n\n    n += 1\n    return n\n").await;
    let caller = functions.caller().await;
    let key = ("idempotency-key", "order-7");
    let first = promised(&caller.call_with("one", "{}", &[ASYNC, key]).await);
    ended(&functions, &first).await;
    let again = promised(&caller.call_with("one", "{}", &[ASYNC, key]).await);
    assert_eq!(first, again);
    let other = caller.call_with("one", r#"{"a":1}"#, &[ASYNC, key]).await;
    assert_eq!(other.status, StatusCode::UNPROCESSABLE_ENTITY, "{other:?}");
    assert_eq!(caller.call("one", "{}").await.body, "2", "it was made once");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_leads_next_asks_the_pod_what_came_of_a_call() {
    let mut functions = Functions::start().await;
    let code = "import time\nn = 0\ndef main(params):\n    global n\n    n += 1\n    time.sleep(params.get('s', 0))\n    return n\n";
    functions.register("slow", code).await;
    let caller = functions.caller().await;
    let name = promised(&caller.call_with("slow", r#"{"s":2}"#, &[ASYNC]).await);
    eventually("it runs", || async {
        let is_running = calls(&functions).get(&name).await.expect("there").status.phase == "Running";
        let is_ready = functions.functions().get("slow").await.expect("there").status.ready_replicas == 1;
        (is_running && is_ready).then_some(())
    })
    .await;
    functions.restart().await;
    let status = ended(&functions, &name).await.status;
    assert_eq!((status.phase.as_str(), status.result.as_str(), status.attempts), ("Succeeded", "1", 2));
    assert_eq!(functions.caller().await.call("slow", "{}").await.body, "2", "it was made once");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_time_that_has_passed_calls_once() {
    let mut functions = Functions::start().await;
    let code = "def main(params, context):\n    return [params, context['event']['type']]\n";
    let trigger = json!({"schedule": "0 8 * * *", "timeZone": "Europe/Berlin", "params": {"day": 1}});
    functions.register_with("morning", json!({"code": code, "triggers": [trigger]})).await;
    eventually("the trigger is known", || async {
        let status = functions.functions().get("morning").await.expect("there").status;
        (status.triggers.len() == 1).then_some(())
    })
    .await;
    assert!(calls(&functions).list(&ListParams::default()).await.expect("a list").items.is_empty());
    functions.stop().await;
    // As if nobody had led for some days.
    let before = json!({"status": {"triggers": [{"trigger": "0 8 * * * Europe/Berlin", "lastTime": "2026-01-01T00:00:00Z"}]}});
    functions
        .functions()
        .patch_status("morning", &PatchParams::default(), &Patch::Merge(before))
        .await
        .expect("patched");
    functions.restart().await;
    let name = eventually("it calls", || async {
        let list = calls(&functions).list(&ListParams::default()).await.expect("a list");
        list.items.first().and_then(|call| call.metadata.name.clone())
    })
    .await;
    let call = ended(&functions, &name).await;
    assert_eq!(call.status.result, r#"[{"day": 1}, "io.minik8s.schedule"]"#);
    functions.restart().await;
    let list = calls(&functions).list(&ListParams::default()).await.expect("a list");
    assert_eq!(
        (list.items.len(), call.spec.cause.as_str()),
        (1, "schedule"),
        "of all that was missed, the latest, once"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_call_as_far_as_the_service_account_may_see_them() {
    let functions = Functions::start().await;
    let http = functions.server.http();
    let code = "def main(params):\n    return [params['type'], params['object']['metadata']['name']]\n";
    let on = json!({"on": {"kind": "ConfigMap", "selector": {"matchLabels": {"app": "a"}}}});
    functions.register_with("heard", json!({"code": code, "triggers": [on]})).await;
    let message = eventually("it is said why not", || async {
        let status = functions.functions().get("heard").await.expect("there").status;
        status.triggers.first().map(|trigger| trigger.message.clone()).filter(|message| !message.is_empty())
    })
    .await;
    assert!(
        message.contains("system:serviceaccount:default:default") && message.contains("configmaps"),
        "{message}"
    );
    let role = json!({"kind": "Role", "apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "see"},
        "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list", "watch"]}]});
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    http.post(&format!("{rbac}/roles"), &role).await.expect(201);
    let binding = json!({"kind": "RoleBinding", "apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "see"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "see"},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": "default"}]});
    http.post(&format!("{rbac}/rolebindings"), &binding).await.expect(201);
    eventually("it watches", || async {
        let status = functions.functions().get("heard").await.expect("there").status;
        status.triggers.first().filter(|trigger| !trigger.resource_version.is_empty()).map(|_| ())
    })
    .await;
    let path = "/api/v1/namespaces/default/configmaps";
    for (name, app) in [("one", "a"), ("other", "b"), ("two", "a")] {
        let map = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": name, "labels": {"app": app}}});
        http.post(path, &map).await.expect(201);
    }
    let results = eventually("both were heard of", || async {
        let list = calls(&functions).list(&ListParams::default()).await.expect("a list").items;
        let mut results: Vec<String> = list
            .iter()
            .filter(|call| call.status.phase == "Succeeded")
            .map(|call| call.status.result.clone())
            .collect();
        results.sort();
        (results.len() >= 2).then_some(results)
    })
    .await;
    assert_eq!(results, [r#"["ADDED", "one"]"#, r#"["ADDED", "two"]"#]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_is_the_same_in_both_of_its_modes() {
    let functions = Functions::start().await;
    functions.register("told", "def main(params, context):\n    return [params, context['event']]\n").await;
    let caller = functions.caller().await;
    let event =
        json!({"specversion": "1.0", "id": "7", "source": "/shop", "type": "order", "data": {"n": 1}});
    let structured = caller
        .call_with("told", &event.to_string(), &[("content-type", "application/cloudevents+json")])
        .await;
    let binary = [("ce-specversion", "1.0"), ("ce-id", "7"), ("ce-source", "/shop"), ("ce-type", "order")];
    let binary = caller.call_with("told", r#"{"n": 1}"#, &binary).await;
    let parsed = |answered: &Answered| serde_json::from_str::<Value>(&answered.body).expect("JSON");
    assert_eq!(parsed(&structured), parsed(&binary));
    assert_eq!(parsed(&binary)[1]["source"], "/shop");
    let wrong = caller.call_with("told", "{}", &[("ce-specversion", "0.3")]).await;
    assert_eq!(wrong.status, StatusCode::BAD_REQUEST, "{wrong:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn revisions_are_kept_and_have_their_shares() {
    let mut functions = Functions::start().await;
    functions.register("version", "def main(params):\n    return 'old'\n").await;
    let old = functions.functions().get("version").await.expect("there").status.revision;
    let caller = functions.caller().await;
    assert_eq!(caller.call("version", "").await.body, "\"old\"");
    functions.patch("version", json!({"code": "def main(params):\n    return 'new'\n"})).await;
    let revisions: Api<k8s_openapi::api::apps::v1::ControllerRevision> =
        Api::namespaced(functions.server.admin(), "default");
    eventually("both are kept", || async {
        let list = revisions.list(&ListParams::default()).await.expect("a list");
        (list.items.len() == 2).then_some(())
    })
    .await;
    functions.patch("version", json!({"traffic": [{"revision": old, "percent": 50}, {"percent": 50}]})).await;
    async fn answers(functions: &Functions) -> (usize, usize) {
        let caller = functions.caller().await;
        let (mut old, mut new) = (0, 0);
        for _ in 0..60 {
            let answered = caller.call("version", "").await;
            assert_eq!(answered.status, StatusCode::OK, "{answered:?}");
            if answered.body == "\"old\"" { old += 1 } else { new += 1 }
        }
        (old, new)
    }
    let (from_old, from_new) = answers(&functions).await;
    assert!(from_old > 5 && from_new > 5, "{from_old} and {from_new} of 60");
    functions.restart().await;
    let (from_old, from_new) = answers(&functions).await;
    assert!(from_old > 5 && from_new > 5, "{from_old} and {from_new} of 60");
    functions.patch("version", json!({"traffic": [{"revision": old, "percent": 100}]})).await;
    assert_eq!(answers(&functions).await, (60, 0));
    functions.patch("version", json!({"traffic": [{"revision": "beef", "percent": 100}]})).await;
    let condition = eventually("what is not there is said", || async {
        let status = functions.functions().get("version").await.expect("there").status;
        status.conditions.into_iter().find(|condition| condition.reason == "RevisionNotFound")
    })
    .await;
    assert!(condition.message.contains("\"beef\""), "{condition:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_status_counts_calls_over_restarts() {
    let mut functions = Functions::start().await;
    functions.register("half", "def main(params):\n    return 1 / params['x']\n").await;
    let caller = functions.caller().await;
    caller.call("half", r#"{"x":1}"#).await;
    caller.call("half", r#"{"x":0}"#).await;
    let counted = async |functions: &Functions, calls: i64, errors: i64| {
        eventually("it is counted", || async {
            let status = functions.functions().get("half").await.expect("there").status;
            (status.calls == calls && status.errors == errors && status.last_cold_start_milliseconds > 0)
                .then_some(())
        })
        .await;
    };
    counted(&functions, 2, 1).await;
    functions.restart().await;
    functions.caller().await.call("half", r#"{"x":1}"#).await;
    counted(&functions, 3, 1).await;
}
