//! Workflows over real functions: from zero, through restarts, and by whom they may be run.

use crate::support::Functions;
use api::kinds::minik8s::{WorkflowRun, WorkflowStep};
use http::StatusCode;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use std::sync::atomic::Ordering;
use testing::eventually;

const ROOT: &str = "/apis/minik8s.io/v1/namespaces/default";
const ADD: &str = "def main(params):\n    return {'result': params['x'] + params['y']}\n";
const ECHO: &str = "def main(params):\n    return params\n";

impl Functions {
    async fn workflow(&self, name: &str, spec: Value) {
        let workflow = json!({"apiVersion": "minik8s.io/v1", "kind": "Workflow", "metadata": {"name": name}, "spec": spec});
        self.server.http().post(&format!("{ROOT}/workflows"), &workflow).await.expect(201);
    }

    async fn start_run(&self, workflow: &str, name: &str, params: Value) {
        let run = json!({"apiVersion": "minik8s.io/v1", "kind": "WorkflowRun", "metadata": {"name": name},
            "spec": {"workflow": workflow, "params": params}});
        self.server.http().post(&format!("{ROOT}/workflowruns"), &run).await.expect(201);
    }

    fn workflow_runs(&self) -> Api<WorkflowRun> {
        Api::namespaced(self.server.admin(), "default")
    }

    async fn run_until(&self, name: &str, what: &str, is_so: impl Fn(&WorkflowRun) -> bool) -> WorkflowRun {
        eventually(what, || async {
            let run = self.workflow_runs().get(name).await.expect("a run");
            is_so(&run).then_some(run)
        })
        .await
    }

    /// The run, as soon as it has ended and every step has its record.
    async fn ended(&self, name: &str) -> WorkflowRun {
        let is_over =
            |run: &WorkflowRun| run.status.has_ended() && run.status.recorded == run.status.step_count;
        self.run_until(name, &format!("run {name} ends"), is_over).await
    }

    async fn ran(&self, workflow: &str, name: &str, params: Value) -> WorkflowRun {
        self.start_run(workflow, name, params).await;
        self.ended(name).await
    }

    async fn wants(&self, name: &str, spec: Value) {
        let patch = Patch::Merge(json!({"spec": spec}));
        self.workflow_runs().patch(name, &PatchParams::default(), &patch).await.expect("patched");
    }

    async fn records(&self, run: &str) -> Vec<WorkflowStep> {
        let steps: Api<WorkflowStep> = Api::namespaced(self.server.admin(), "default");
        let of = ListParams::default().labels(&format!("minik8s.io/workflow-run={run}"));
        let mut steps = steps.list(&of).await.expect("a list").items;
        steps.sort_by_key(|step| step.spec.number);
        steps
    }

    /// What a person says to a run, as the API server hands it on.
    async fn says(&self, run: &str, body: Value) -> (StatusCode, String) {
        let mut caller = self.caller().await;
        caller.path = |namespace, name| {
            format!("/apis/minik8s.io/v1/namespaces/{namespace}/workflowruns/{name}/approve")
        };
        let answered = caller.call(run, &body.to_string()).await;
        (answered.status, answered.body)
    }
}

fn succeeded(run: &WorkflowRun, output: Value) {
    assert_eq!((run.status.phase.as_str(), &run.status.output), ("Succeeded", &output), "{:?}", run.status);
}

fn three_branches() -> Value {
    json!({"startAt": "add", "params": {"x": 1, "y": 2}, "nodes": {
        "add": {"type": "Task", "next": "compare"},
        "compare": {"type": "Choice", "choices": [
            {"conditions": [{"variable": "result", "operator": "gt", "value": 10}], "next": "big"},
            {"conditions": [{"variable": "result", "operator": "gt", "value": 2}], "next": "middle"},
            {"conditions": [{"variable": "result", "operator": "gt", "value": 0}], "next": "small"}]},
        "big": {"type": "Task"}, "middle": {"type": "Task"}, "small": {"type": "Task"}}})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_choice_takes_each_of_its_branches_from_zero() {
    let functions = Functions::start().await;
    functions.register("add", ADD).await;
    for name in ["big", "middle", "small"] {
        functions
            .register(name, &format!("def main(params):\n    return ['{name}', params['result']]\n"))
            .await;
    }
    functions.workflow("sum", three_branches()).await;
    assert_eq!(functions.node.started.load(Ordering::Relaxed), 0, "nothing runs before a run");
    succeeded(&functions.ran("sum", "middle", Value::Null).await, json!(["middle", 3]));
    succeeded(&functions.ran("sum", "big", json!({"x": 10, "y": 2})).await, json!(["big", 12]));
    succeeded(&functions.ran("sum", "small", json!({"x": 1, "y": 0})).await, json!(["small", 1]));
    let records = functions.records("middle").await;
    let shown: Vec<_> = records.iter().map(|step| (step.spec.node.as_str(), step.spec.is_cold)).collect();
    assert_eq!(shown, [("add", Some(true)), ("compare", None), ("middle", Some(true))]);
    assert_eq!(
        (&records[0].spec.input, &records[0].spec.output),
        (&json!({"x": 1, "y": 2}), &json!({"result": 3}))
    );
    assert_eq!(records[1].spec.chose, "middle");
    let none = functions.ran("sum", "none", json!({"x": -1, "y": 0})).await;
    assert_eq!(none.status.reason, "NoBranch");
    assert_eq!(
        none.status.error,
        "node \"compare\": no branch fits {\"result\":-1}, and there is no `default`"
    );
    let unlike = functions.ran("sum", "unlike", json!({"x": "a", "y": "b"})).await;
    assert!(
        unlike.status.error.contains("\"ab\", which cannot be compared (gt) with 10"),
        "{}",
        unlike.status.error
    );
    let page = functions.workflows.page();
    assert!(
        page.contains("workflow_runs_total{namespace=\"default\",workflow=\"sum\",phase=\"Succeeded\"} 3"),
        "{page}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chain_a_parallel_and_a_map_run_over_cold_functions() {
    let functions = Functions::start().await;
    for n in 1..=5 {
        functions.register(&format!("f{n}"), &format!("def main(n):\n    return n * 10 + {n}\n")).await;
    }
    let node = |n: i32| json!({"type": "Task", "next": format!("f{}", n + 1)});
    functions
        .workflow("chain", json!({"startAt": "f1", "nodes": {"f1": node(1), "f2": node(2), "f3": node(3), "f4": node(4), "f5": {"type": "Task"}}}))
        .await;
    let run = functions.ran("chain", "chain", json!(0)).await;
    succeeded(&run, json!(12345));
    functions.register("square", "def main(n):\n    return n * n\n").await;
    functions.register("total", "def main(both):\n    return [sum(both[0]), both[1]]\n").await;
    functions
        .workflow(
            "both",
            json!({"startAt": "both", "nodes": {
                "both": {"type": "Parallel", "branches": ["squares", "length"], "next": "total"},
                "squares": {"type": "Map", "each": "square", "maxConcurrency": 4},
                "square": {"type": "Task"}, "length": {"type": "Pass", "value": "done"}, "total": {"type": "Task"}}}),
        )
        .await;
    let list: Vec<i32> = (1..=20).collect();
    succeeded(&functions.ran("both", "both", json!(list)).await, json!([2870, "done"]));
    assert_eq!(functions.records("both").await.len(), 24);
}

/// Counts its own effects: a line for each, with the attempt.
fn counting(file: &std::path::Path) -> String {
    format!(
        "import time\ndef main(params, context):\n    with open({file:?}, 'a') as file:\n        file.write(f\"{{context['attempt']}}\\n\")\n    \
         time.sleep(params.get('s', 0))\n    return context['attempt']\n"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_pod_still_holds_is_used_after_knative_died() {
    let mut functions = Functions::start().await;
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("effects");
    functions.register("slow", &counting(&file)).await;
    functions.workflow("w", json!({"startAt": "slow", "nodes": {"slow": {"type": "Task", "next": "end"}, "end": {"type": "Pass"}}})).await;
    functions.start_run("w", "r", json!({"s": 2})).await;
    eventually("the function works", || async { file.exists().then_some(()) }).await;
    functions.stop().await;
    functions.restart().await;
    let run = functions.ended("r").await;
    succeeded(&run, json!(1));
    assert_eq!(std::fs::read_to_string(&file).expect("effects"), "1\n", "it was done once");
    let records = functions.records("r").await;
    assert_eq!((records[0].spec.attempts, records[0].spec.number, records.len()), (2, 1, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_died_with_its_pod_runs_again_as_the_next_attempt_and_nothing_else_does() {
    let mut functions = Functions::start().await;
    let folder = tempfile::tempdir().expect("a folder");
    let (first, second) = (folder.path().join("first"), folder.path().join("second"));
    functions.register("first", &counting(&first)).await;
    functions.register("second", &counting(&second)).await;
    functions
        .workflow("w", json!({"startAt": "first", "nodes": {"first": {"type": "Task", "result": "/first", "next": "second"}, "second": {"type": "Task"}}}))
        .await;
    // Only the second one takes its time.
    functions.patch("first", json!({"code": counting(&first).replace("params.get('s', 0)", "0")})).await;
    functions.start_run("w", "r", json!({"s": 3})).await;
    eventually("the second function works", || async { second.exists().then_some(()) }).await;
    functions.stop().await;
    let pods: Api<k8s_openapi::api::core::v1::Pod> = Api::namespaced(functions.server.admin(), "default");
    for pod in pods.list(&ListParams::default()).await.expect("pods") {
        let name = pod.metadata.name.expect("a name");
        pods.delete(&name, &kube::api::DeleteParams::default().grace_period(0)).await.expect("deleted");
    }
    functions.restart().await;
    succeeded(&functions.ended("r").await, json!(2));
    assert_eq!(std::fs::read_to_string(&first).expect("effects"), "1\n", "what has ended is not done again");
    assert_eq!(std::fs::read_to_string(&second).expect("effects"), "1\n2\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_are_approved_suspended_cancelled_and_redriven() {
    let functions = Functions::start().await;
    functions.register("echo", ECHO).await;
    functions
        .workflow(
            "ask",
            json!({"startAt": "ask", "nodes": {"ask": {"type": "Approval", "message": "go?", "result": "/answer", "next": "echo"}, "echo": {"type": "Task"}}}),
        )
        .await;
    functions.start_run("ask", "yes", json!({"x": 1})).await;
    let waits =
        |run: &WorkflowRun| run.status.threads.first().is_some_and(|thread| thread.state == "Approving");
    functions.run_until("yes", "it waits", waits).await;
    let (status, _) = functions.says("yes", json!({"value": 7})).await;
    assert_eq!(status, StatusCode::OK);
    let run = functions.ended("yes").await;
    assert_eq!(run.status.output["answer"]["value"], 7, "{:?}", run.status);
    assert_eq!(functions.says("yes", json!({})).await.0, StatusCode::CONFLICT, "nothing waits any more");
    functions.start_run("ask", "no", json!({"x": 1})).await;
    functions.run_until("no", "it waits", waits).await;
    // A token, by which somebody without any other credential may.
    let (_, body) = functions.says("no", json!({"token": true})).await;
    let path: Value = serde_json::from_str(&body).expect("JSON");
    let path = path["path"].as_str().expect("a path").to_owned();
    let mut stranger = functions.inside("").await.expect("connected");
    stranger.path = |_, path| path.to_owned();
    let wrong = format!("{}0", &path[..path.len() - 1]);
    let wrong = if wrong == path { format!("{}1", &path[..path.len() - 1]) } else { wrong };
    assert_eq!(stranger.call(&wrong, "{}").await.status, StatusCode::FORBIDDEN);
    assert_eq!(
        stranger.call(&path, r#"{"approved": false, "reason": "too dear"}"#).await.status,
        StatusCode::OK
    );
    let run = functions.ended("no").await;
    assert_eq!(run.status.error, "node \"ask\": a token did not approve: too dear");
    functions.wants("no", json!({"redrive": 1})).await;
    functions.run_until("no", "it waits again", |run| run.status.redrives == 1 && waits(run)).await;
    functions.wants("no", json!({"suspend": true})).await;
    functions.run_until("no", "it is suspended", |run| run.status.phase == "Suspended").await;
    assert_eq!(functions.says("no", json!({})).await.0, StatusCode::OK);
    let run = functions.run_until("no", "the answer is there", |run| run.status.nodes == ["echo"]).await;
    assert_eq!(run.status.phase, "Suspended", "nothing begins");
    functions.wants("no", json!({"suspend": false})).await;
    assert_eq!(functions.ended("no").await.status.phase, "Succeeded");
    let phases: Vec<String> = functions.records("no").await.into_iter().map(|step| step.spec.phase).collect();
    assert_eq!(phases, ["Failed", "Succeeded", "Succeeded"], "the history of before is kept");
    functions.start_run("ask", "end", json!({"x": 1})).await;
    functions.run_until("end", "it waits", waits).await;
    functions.wants("end", json!({"cancel": true})).await;
    assert_eq!(functions.ended("end").await.status.phase, "Cancelled");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_may_what_its_service_account_may() {
    let functions = Functions::start().await;
    functions.register("echo", ECHO).await;
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "poor"}});
    functions.server.http().post("/api/v1/namespaces/default/serviceaccounts", &account).await.expect(201);
    functions
        .workflow(
            "poor",
            json!({"startAt": "echo", "serviceAccountName": "poor", "nodes": {"echo": {"type": "Task"}}}),
        )
        .await;
    let run = functions.ran("poor", "poor", json!(1)).await;
    assert_eq!(run.status.reason, "Forbidden");
    assert!(run.status.error.contains("system:serviceaccount:default:poor"), "{}", run.status.error);
    let job = json!({"template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}});
    functions.workflow("job", json!({"startAt": "j", "nodes": {"j": {"type": "Task", "job": job}}})).await;
    let run = functions.ran("job", "job", json!(1)).await;
    assert!(
        run.status.reason == "Forbidden" && run.status.error.contains("\"jobs\""),
        "{}",
        run.status.error
    );
    let missing = functions.ran("nothing", "nothing", Value::Null).await;
    assert_eq!(missing.status.error, "workflows.minik8s.io \"nothing\" not found");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_may_be_a_job_and_its_last_words_are_the_output() {
    let functions = Functions::start().await;
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "edit"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": "default"}]});
    let bindings = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";
    functions.server.http().post(bindings, &binding).await.expect(201);
    let job = json!({"template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}});
    functions
        .workflow(
            "job",
            json!({"startAt": "j", "nodes": {"j": {"type": "Task", "job": job, "result": "/made"}}}),
        )
        .await;
    functions.start_run("job", "job", json!({"x": 1})).await;
    let jobs: Api<k8s_openapi::api::batch::v1::Job> = Api::namespaced(functions.server.admin(), "default");
    let made =
        eventually("the job is there", || async { jobs.get_opt("job-1-1").await.expect("an answer") }).await;
    let made = serde_json::to_value(made).expect("JSON");
    let env = made["spec"]["template"]["spec"]["containers"][0]["env"].as_array().expect("env").clone();
    assert!(env.contains(&json!({"name": "WORKFLOW_INPUT", "value": "{\"x\":1}"})), "{env:?}");
    // As whoever runs Jobs would have it.
    let result = Patch::Merge(json!({"metadata": {"annotations": {"minik8s.io/result": "{\"y\": 2}"}}}));
    jobs.patch("job-1-1", &PatchParams::default(), &result).await.expect("annotated");
    let now = "2026-01-01T00:00:00Z";
    let done = json!({"status": {"startTime": now, "completionTime": now, "succeeded": 1, "conditions": [
        {"type": "SuccessCriteriaMet", "status": "True", "lastTransitionTime": now, "lastProbeTime": now},
        {"type": "Complete", "status": "True", "lastTransitionTime": now, "lastProbeTime": now}]}});
    jobs.patch_status("job-1-1", &PatchParams::default(), &Patch::Merge(done)).await.expect("done");
    succeeded(&functions.ended("job").await, json!({"x": 1, "made": {"y": 2}}));
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_writes_a_run_meanwhile_does_not_make_a_step_twice() {
    let functions = Functions::start().await;
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("effects");
    functions.register("count", &counting(&file)).await;
    let node = |next: &str| json!({"type": "Task", "function": "count", "inputs": {}, "value": null, "result": "/last", "next": next});
    functions
        .workflow(
            "w",
            json!({"startAt": "a", "nodes": {"a": node("b"), "b": node("c"), "c": node("d"), "d": node("")}}),
        )
        .await;
    functions.start_run("w", "r", json!({"s": 0.2})).await;
    let mut count = 0;
    while !functions.workflow_runs().get("r").await.expect("a run").status.has_ended() {
        count += 1;
        let patch = Patch::Merge(json!({"metadata": {"annotations": {"touched": count.to_string()}}}));
        functions.workflow_runs().patch("r", &PatchParams::default(), &patch).await.expect("patched");
    }
    let run = functions.ended("r").await;
    assert_eq!((run.status.phase.as_str(), run.status.step_count), ("Succeeded", 4), "{:?}", run.status);
    assert_eq!(std::fs::read_to_string(&file).expect("effects").lines().count(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn large_values_are_kept_beside_the_run_and_found_after_a_restart() {
    let mut functions = Functions::start().await;
    functions
        .register("large", "def main(params):\n    return {'text': 'x' * 100000, 'n': params['n']}\n")
        .await;
    functions.register("length", "def main(params):\n    return len(params['text']) + params['n']\n").await;
    functions
        .workflow(
            "w",
            json!({"startAt": "large", "nodes": {"large": {"type": "Task", "next": "pause"},
                "pause": {"type": "Wait", "seconds": 2, "next": "length"}, "length": {"type": "Task"}}}),
        )
        .await;
    functions.start_run("w", "r", json!({"n": 1})).await;
    let run = functions.run_until("r", "it waits", |run| run.status.nodes == ["pause"]).await;
    assert!(serde_json::to_string(&run).expect("JSON").len() < 8 << 10, "the run itself is small");
    functions.stop().await;
    functions.restart().await;
    succeeded(&functions.ended("r").await, json!(100_001));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_starts_a_run_and_gets_what_came_of_it() {
    let functions = Functions::start().await;
    functions.register("echo", ECHO).await;
    functions
        .workflow(
            "w",
            json!({"startAt": "echo", "limits": {"parallelRuns": 1}, "nodes": {"echo": {"type": "Task"}}}),
        )
        .await;
    let mut caller = functions.caller().await;
    caller.path = |namespace, name| {
        format!("/apis/minik8s.io/v1/namespaces/{namespace}/workflows/{name}/run?wait=20&name=once")
    };
    let answered = caller.call("w", r#"{"x": 1}"#).await;
    let said: Value = serde_json::from_str(&answered.body).expect("JSON");
    assert_eq!(
        (answered.status, &said),
        (StatusCode::OK, &json!({"run": "once", "phase": "Succeeded", "output": {"x": 1}}))
    );
    let again = caller.call("w", r#"{"x": 2}"#).await;
    assert_eq!(again.body, answered.body, "the same name is the same run");
    assert_eq!(caller.call("nothing", "{}").await.status, StatusCode::NOT_FOUND);
    let mut stranger = functions.inside("").await.expect("connected");
    stranger.path = caller.path;
    assert_eq!(stranger.call("w", "{}").await.status, StatusCode::UNAUTHORIZED);
    // With one at a time all are run, one after the other.
    for n in 0..5 {
        functions.start_run("w", &format!("r{n}"), json!(n)).await;
    }
    for n in 0..5 {
        succeeded(&functions.ended(&format!("r{n}")).await, json!(n));
    }
}
