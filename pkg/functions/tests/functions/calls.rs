//! Calls that are answered: from zero, in bursts, through updates and restarts, and by whom they may be made.

use crate::support::{Answered, Functions};
use futures::future::join_all;
use http::StatusCode;
use serde_json::{Value, json};
use std::sync::atomic::Ordering;
use testing::eventually;

const ADD: &str = "def main(params):\n    return params['x'] + params['y']\n";

fn ok(answered: &Answered, body: &str) {
    assert_eq!((answered.status, answered.body.as_str()), (StatusCode::OK, body), "{answered:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_function_answers_from_zero_and_goes_back_to_zero() {
    let functions = Functions::start().await;
    functions.register_with("add", json!({"code": ADD, "idleSeconds": 1})).await;
    assert_eq!(functions.node.started.load(Ordering::Relaxed), 0, "nothing runs before a call");
    let caller = functions.caller().await;
    let first = caller.call("add", r#"{"x":1,"y":2}"#).await;
    ok(&first, "3");
    assert!(first.is_cold && first.timing.contains("import;dur="), "{first:?}");
    let second = caller.call("add", r#"{"x":2,"y":2}"#).await;
    ok(&second, "4");
    assert!(!second.is_cold && functions.node.started.load(Ordering::Relaxed) == 1);
    functions.runs(0).await;
    let status = eventually("the status says so", || async {
        let status = functions.functions().get("add").await.expect("there").status;
        (status.replicas == 0).then_some(status)
    });
    let status = status.await;
    assert_eq!(status.url, "https://knative.kube-system.svc/functions/default/add");
    assert_eq!(
        (status.conditions[0].type_.as_str(), status.conditions[0].status.as_str()),
        ("Ready", "True")
    );
    ok(&caller.call("add", r#"{"x":0,"y":0}"#).await, "0");
    let page = functions.metrics.page();
    let counted = "function_calls_total{namespace=\"default\",function=\"add\",code=\"200\"} 3";
    assert!(page.contains(counted) && page.contains("function_cold_start_seconds_count{} 2"), "{page}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_calls_at_once_from_zero_are_all_answered() {
    let functions = Functions::start().await;
    let code = "import time\ndef main(params):\n    time.sleep(0.01)\n    return params['n']\n";
    functions.register("echo", code).await;
    let caller = functions.caller().await;
    let call = |n: usize| {
        let caller = caller.clone();
        async move { (n, caller.call("echo", &json!({"n": n}).to_string()).await) }
    };
    for (n, answered) in join_all((0..1000).map(call)).await {
        ok(&answered, &n.to_string());
    }
    let started = functions.node.started.load(Ordering::Relaxed);
    assert!((2..100).contains(&started), "{started} pods for 10 s of work");
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_go_round_the_pods_and_no_pod_takes_more_than_it_may() {
    let functions = Functions::start().await;
    let code = "import os, time\ndepth = 0\ndef main(params):\n    global depth\n    depth += 1\n    \
        time.sleep(params.get('s', 0))\n    depth -= 1\n    return [os.getpid(), depth]\n";
    functions.register_with("who", json!({"code": code, "minReplicas": 3, "concurrency": 1})).await;
    functions.runs(3).await;
    let caller = functions.caller().await;
    eventually("all of them are ready", || async {
        let status = functions.functions().get("who").await.expect("there").status;
        (status.ready_replicas == 3).then_some(())
    })
    .await;
    let mut pids = Vec::new();
    for _ in 0..6 {
        let answered: Value = serde_json::from_str(&caller.call("who", "{}").await.body).expect("JSON");
        pids.push(answered[0].as_i64());
    }
    assert_eq!(pids[..3], pids[3..], "each in its turn");
    assert!(pids[0] != pids[1] && pids[1] != pids[2] && pids[0] != pids[2], "{pids:?}");
    let slow = r#"{"s": 0.05}"#;
    for answered in join_all((0..12).map(|_| caller.call("who", slow))).await {
        let answered: Value = serde_json::from_str(&answered.body).expect("JSON");
        assert_eq!(answered[1], 0, "two at a time in one pod");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_update_fails_no_call_and_the_next_one_runs_the_new_code() {
    let functions = Functions::start().await;
    functions.register("version", "def main(params):\n    return 1\n").await;
    let caller = functions.caller().await;
    ok(&caller.call("version", "").await, "1");
    let (calls, stop) = (caller.clone(), tokio_util::sync::CancellationToken::new());
    let stopped = stop.clone();
    let load = tokio::spawn(async move {
        let mut answers = Vec::new();
        while !stopped.is_cancelled() {
            let several = join_all((0..4).map(|_| calls.call("version", ""))).await;
            answers.extend(several.into_iter().map(|answered| (answered.status, answered.body)));
        }
        answers
    });
    for version in 2..5 {
        let code = format!("def main(params):\n    return {version}\n");
        functions.patch("version", json!({"code": code})).await;
        ok(&caller.call("version", "").await, &version.to_string());
    }
    stop.cancel();
    let answers = load.await.expect("calls");
    assert!(answers.iter().all(|(status, _)| *status == StatusCode::OK), "{answers:?}");
    let versions: Vec<&str> = answers.iter().map(|(_, body)| body.as_str()).collect();
    assert!(versions.contains(&"1") && versions.contains(&"4"), "{versions:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_comes_back_takes_on_the_pods_of_before() {
    let mut functions = Functions::start().await;
    functions.register("pid", "import os\ndef main(params):\n    return os.getpid()\n").await;
    let before = functions.caller().await.call("pid", "").await;
    // A call that is under way when the program is told to end is answered.
    functions
        .register("slow", "import time\ndef main(params):\n    time.sleep(1)\n    return 'done'\n")
        .await;
    let caller = functions.caller().await;
    let slow = tokio::spawn(async move { caller.try_call("slow", "").await });
    functions.runs(2).await;
    eventually("the call is under way", || async {
        let status = functions.functions().get("slow").await.expect("there").status;
        (status.ready_replicas == 1).then_some(())
    })
    .await;
    functions.restart().await;
    ok(&slow.await.expect("a call").expect("answered"), "\"done\"");
    let after = functions.caller().await.call("pid", "").await;
    ok(&after, &before.body);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_who_may_invoke_a_function_calls_it() {
    let functions = Functions::start().await;
    functions.register("add", ADD).await;
    let server = &functions.server;
    let token = async |audience: &str| {
        let path = "/api/v1/namespaces/default/serviceaccounts/default/token";
        let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": [audience]}});
        server.http().post(path, &request).await.expect(201)["status"]["token"]
            .as_str()
            .expect("a token")
            .to_owned()
    };
    let (own, other) = (token("functions.minik8s.io").await, token("https://elsewhere").await);
    let call = async |token: &str| {
        let caller = functions.inside(token).await.expect("connected");
        let answered = caller.call("add", r#"{"x":1,"y":2}"#).await;
        (answered.status.as_u16(), answered.message())
    };
    let (code, message) = call("").await;
    assert!(code == 401 && message.contains("functions.minik8s.io"), "{code} {message}");
    assert_eq!(call(&other).await.0, 401);
    let (code, message) = call(&own).await;
    assert!(
        code == 403 && message.contains("cannot create resource \"functions/invoke\""),
        "{code} {message}"
    );
    // What is not there is not told to those who may not know.
    let strange = functions.inside(&own).await.expect("connected").call("nothing", "").await;
    assert_eq!(strange.status, StatusCode::FORBIDDEN);
    // Only the API server hands on who asks.
    let pretending = async |path: fn(&str, &str) -> String| {
        let mut caller = functions.inside(&own).await.expect("connected");
        caller.path = path;
        caller.call("add", "").await.status
    };
    let path = |namespace: &str, name: &str| {
        format!("/apis/minik8s.io/v1/namespaces/{namespace}/functions/{name}/invoke")
    };
    assert_eq!(pretending(path).await, StatusCode::UNAUTHORIZED);
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "edit"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": "default"}]});
    server
        .http()
        .post("/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings", &role)
        .await
        .expect(201);
    eventually("the refusal is forgotten", || async { (call(&own).await.0 == 200).then_some(()) }).await;
    functions.patch("add", json!({"public": true})).await;
    assert_eq!(call("").await.0, 200, "a public function needs no token");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_function_of_several_files_finds_them_and_streams() {
    let functions = Functions::start().await;
    let files = json!({
        "main.py": "from lib.words import words\ndef main(params):\n    yield from words()\n",
        "lib/words.py": "def words():\n    yield 'one '\n    yield {'two': 2}\n",
    });
    functions.register_with("words", json!({"files": files})).await;
    ok(&functions.caller().await.call("words", "").await, "one {\"two\": 2}\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_function_in_javascript_answers_too() {
    let functions = Functions::start().await;
    let code = "exports.main = async ({x, y}) => ({sum: x + y});\n";
    functions.register_with("sum", json!({"code": code, "runtime": "nodejs"})).await;
    let caller = functions.caller().await;
    ok(&caller.call("sum", r#"{"x":1,"y":2}"#).await, r#"{"sum":3}"#);
    functions
        .register_with(
            "throws",
            json!({"code": "exports.main = () => { throw new Error('no'); }", "runtime": "nodejs"}),
        )
        .await;
    let answered = caller.call("throws", "").await;
    assert!(answered.status == 500 && answered.message().contains("Error: no"), "{answered:?}");
}
