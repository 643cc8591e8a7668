//! Our own kinds.

use super::*;
use api::kinds::minik8s::{DNS, DNSSpec, DNSSubpath, Function, FunctionSpec, Workflow};

fn ours(kind: &str, spec: Value) -> Value {
    created(json!({"apiVersion": "minik8s.io/v1", "kind": kind, "metadata": metadata("x"), "spec": spec}))
}

#[test]
fn bad_dns_says_why() {
    let dns = ours(
        "DNS",
        json!({"host": "minik8s.io", "subpaths": [
        {"path": "/test1", "service": "web", "port": 80}, {"path": "/test2", "service": "web", "port": 8080}]}),
    );
    check_invalid(
        &dns,
        &[
            ("/spec/host", json!(""), "spec.host: Required value"),
            ("/spec/host", json!("A_b"), "spec.host: Invalid value: \"A_b\""),
            ("/spec/subpaths", json!([]), "spec.subpaths: Required value"),
            (
                "/spec/subpaths/0/path",
                json!("test"),
                "spec.subpaths[0].path: Invalid value: \"test\": must be an absolute path",
            ),
            ("/spec/subpaths/0/path", json!("/a;return 200"), "spec.subpaths[0].path: Invalid value"),
            ("/spec/subpaths/1/path", json!("/test1"), "spec.subpaths[1].path: Duplicate value: \"/test1\""),
            ("/spec/subpaths/0/service", json!(null), "spec.subpaths[0].service: Required value"),
            (
                "/spec/subpaths/0/service",
                json!("servicePodTest"),
                "spec.subpaths[0].service: Invalid value: \"servicePodTest\"",
            ),
            (
                "/spec/subpaths/0/port",
                json!(70000),
                "spec.subpaths[0].port: Invalid value: 70000: must be between 1 and 65535, inclusive",
            ),
            ("/spec/subpaths/0/port", json!(null), "spec.subpaths[0].port: Required value"),
        ],
    );
    assert_eq!(
        row(&dns),
        "Name=x | Host=minik8s.io | Path=/test1,/test2 | Service=web,web | Port=80,8080 | Status=Pending | Age=5m"
    );
    let conditions =
        |status: &str, reason: &str| json!([{"type": "Ready", "status": status, "reason": reason}]);
    assert!(row(&with(&dns, "/status/conditions", conditions("True", "Ok"))).contains("Status=Ready"));
    assert!(
        row(&with(&dns, "/status/conditions", conditions("False", "NoService"))).contains("Status=NoService")
    );
}

#[test]
fn bad_functions_say_why() {
    let function = ours("Function", json!({"code": "def main(params): return params"}));
    assert_eq!(
        function["spec"],
        json!({"code": "def main(params): return params", "runtime": "python", "handler": "main",
            "minReplicas": 0, "concurrency": 1, "idleSeconds": 30, "timeoutSeconds": 60,
            "limits": {"requestBytes": 6 << 20, "responseBytes": 6 << 20, "queueLength": 10_000,
                "queueSeconds": 60},
            "async": {"retries": 3, "backoffSeconds": 1, "keepSeconds": 3600}})
    );
    let files = with(&with(&function, "/spec/code", json!("")), "/spec/files", json!({"a/b.py": "x = 1"}));
    check_valid(&function, &[("/spec", files["spec"].clone()), ("/spec/handler", json!("a.b"))]);
    check_invalid(
        &function,
        &[
            ("/spec/code", json!(""), "spec.code: Required value"),
            (
                "/spec/files",
                json!({"a.py": ""}),
                "spec.files: Forbidden: may not be given together with `code`",
            ),
            ("/spec/runtime", json!("A B"), "spec.runtime: Invalid value: \"A B\""),
            ("/spec/handler", json!("a-b"), "spec.handler: Invalid value: \"a-b\""),
            ("/spec/handler", json!("a..b"), "spec.handler: Invalid value: \"a..b\""),
            ("/spec/port", json!(80), "spec.port: Forbidden: may only be given with an image"),
            ("/spec/minReplicas", json!(-1), "spec.minReplicas: Invalid value: -1"),
            (
                "/spec/maxReplicas",
                json!(0),
                "spec.maxReplicas: Invalid value: 0: must be between 1 and 1000, inclusive",
            ),
            ("/spec/concurrency", json!(0), "spec.concurrency: Invalid value: 0"),
            ("/spec/timeoutSeconds", json!(0), "spec.timeoutSeconds: Invalid value: 0"),
            ("/spec/limits/requestBytes", json!(0), "spec.limits.requestBytes: Invalid value: 0"),
            ("/spec/limits/queueLength", json!(0), "spec.limits.queueLength: Invalid value: 0"),
            ("/spec/async/retries", json!(101), "spec.async.retries: Invalid value: 101"),
            ("/spec/triggers", json!([{}]), "spec.triggers[0].schedule: Required value: a trigger has a"),
            ("/spec/triggers", json!([{"schedule": "soon"}]), "spec.triggers[0].schedule: Invalid value"),
            (
                "/spec/triggers",
                json!([{"schedule": "0 8 * * *", "timeZone": "Nowhere/Town"}]),
                "spec.triggers[0].timeZone: Invalid value",
            ),
            (
                "/spec/triggers",
                json!([{"schedule": "0 8 * * *", "on": {"kind": "Pod"}}]),
                "spec.triggers[0].on: Forbidden",
            ),
            (
                "/spec/triggers",
                json!([{"on": {"kind": "Pod"}, "params": {}}]),
                "spec.triggers[0].params: Forbidden",
            ),
            ("/spec/traffic", json!([{"percent": 99}]), "spec.traffic: Invalid value"),
            (
                "/spec/traffic",
                json!([{"percent": 50}, {"percent": 50}]),
                "spec.traffic[1].revision: Duplicate value",
            ),
            (
                "/spec/traffic",
                json!([{"revision": "../x", "percent": 100}]),
                "spec.traffic[0].revision: Invalid value",
            ),
        ],
    );
    for path in ["/etc/passwd", "../a.py", "a//b.py", "a b.py", "a/./b.py"] {
        let said = format!("spec.files[{path}]: Invalid value: \"\": must be a path of letters");
        check_invalid(&files, &[("/spec/files", json!({ path: "" }), &said)]);
    }
    let most = with(&function, "/spec/minReplicas", json!(11));
    check_invalid(
        &most,
        &[(
            "/spec/maxReplicas",
            json!(10),
            "spec.maxReplicas: Invalid value: 10: must be greater than or equal to",
        )],
    );
    let row_of = |status: Value| row(&with(&function, "/status", status));
    assert_eq!(
        row(&function),
        "Name=x | Runtime=python | Replicas=0 | Calls=0 | Errors=0 | Cold Start= | Status=Pending | Age=5m | \
         +Handler=main | +Revision= | +URL="
    );
    let conditions = json!({"conditions": [{"type": "Ready", "status": "False", "reason": "ImportFailed"}]});
    assert!(row_of(conditions).contains("Status=ImportFailed"));
    assert!(row_of(json!({"lastColdStartMilliseconds": 241})).contains("Cold Start=241ms"));
    assert!(row_of(json!({"lastColdStartMilliseconds": 2041})).contains("Cold Start=2.04s"));
}

#[test]
fn a_function_of_an_image_has_a_port_and_no_source() {
    let function = ours("Function", json!({"image": "web", "port": 80}));
    assert_eq!(function["spec"]["runtime"], Value::Null);
    check_invalid(
        &function,
        &[
            ("/spec/port", json!(null), "spec.port: Required value"),
            ("/spec/port", json!(65_536), "spec.port: Invalid value: 65536"),
            ("/spec/code", json!("x"), "spec.code: Forbidden: may not be given together with `image`"),
            ("/spec/runtime", json!("python"), "spec.runtime: Forbidden"),
            ("/spec/files", json!({"a": "b"}), "spec.files: Forbidden"),
        ],
    );
}

#[test]
fn calls_do_not_change_and_do_not_come_back() {
    let call = ours("FunctionCall", json!({"function": "f", "params": "{}"}));
    check_invalid(&call, &[("/spec/function", json!(""), "spec.function: Required value")]);
    check_update(&call, &[("/spec/params", json!("3"), "spec: Invalid value")]);
    let done = with(&call, "/status", json!({"phase": "Failed", "attempts": 4, "message": "no\nnothing"}));
    let said = "status.phase: Invalid value: \"Running\": field is immutable";
    check_status(&done, &[("/status/phase", json!("Running"), said)]);
    assert_eq!(row(&done), "Name=x | Function=f | Status=Failed | Attempts=4 | Result=no | Age=5m | +Cause=");
}

#[test]
fn workflows_lead_somewhere() {
    let workflow = ours(
        "Workflow",
        json!({"startAt": "add", "params": {"x": 1}, "nodes": {
            "add": {"type": "Task", "retry": [{}], "next": "judge"},
            "judge": {"type": "Choice", "choices": [
                {"conditions": [{"variable": "x", "operator": "gt", "value": 5}], "next": "print"},
                {"conditions": [{"not": {"variable": "x", "value": false}}], "next": "add"}]},
            "print": {}}}),
    );
    assert_eq!(workflow["spec"]["nodes"]["print"], json!({"type": "Task", "function": "print"}));
    let conditions = &workflow["spec"]["nodes"]["judge"]["choices"][1]["conditions"];
    assert_eq!(conditions[0]["not"]["operator"], "eq");
    assert_eq!(workflow["spec"]["nodes"]["add"]["retry"][0]["attempts"], 3);
    check_invalid(
        &workflow,
        &[
            ("/spec/startAt", json!(null), "spec.startAt: Required value"),
            ("/spec/startAt", json!("nowhere"), "spec.startAt: Not found: \"nowhere\""),
            ("/spec/nodes", json!({}), "spec.nodes: Required value"),
            ("/spec/nodes/add/next", json!("nowhere"), "spec.nodes[add].next: Not found: \"nowhere\""),
            ("/spec/nodes/add/type", json!("Loop"), "spec.nodes[add].type: Unsupported value: \"Loop\""),
            (
                "/spec/nodes/add/choices",
                json!([{}]),
                "spec.nodes[add].choices: Forbidden: a node of type 'Task' has none",
            ),
            (
                "/spec/nodes/add/input",
                json!("x"),
                "spec.nodes[add].input: Invalid value: \"x\": must be a JSON Pointer",
            ),
            ("/spec/nodes/judge/choices", json!([]), "spec.nodes[judge].choices: Required value"),
            ("/spec/nodes/judge/function", json!("f"), "spec.nodes[judge].function: Forbidden"),
            ("/spec/nodes/judge/next", json!("add"), "spec.nodes[judge].next: Forbidden"),
            ("/spec/nodes/judge/default", json!("nowhere"), "spec.nodes[judge].default: Not found"),
            (
                "/spec/nodes/judge/choices/0/next",
                json!("nowhere"),
                "spec.nodes[judge].choices[0].next: Not found",
            ),
            (
                "/spec/nodes/judge/choices/0/conditions/0/operator",
                json!("like"),
                "spec.nodes[judge].choices[0].conditions[0].operator: Unsupported value",
            ),
            (
                "/spec/nodes/judge/choices/0/conditions/0/variable",
                json!(""),
                "spec.nodes[judge].choices[0].conditions[0].variable: Required value",
            ),
            (
                "/spec/nodes/judge/choices/0/conditions/0/value",
                json!(null),
                "spec.nodes[judge].choices[0].conditions[0].value: Required value",
            ),
            (
                "/spec/nodes/judge/choices/0/conditions/0/value",
                json!([1]),
                "spec.nodes[judge].choices[0].conditions[0].value: Invalid value",
            ),
            (
                "/spec/nodes/judge/choices/0/conditions/0",
                json!({"variable": "x", "operator": "matches", "value": "("}),
                "spec.nodes[judge].choices[0].conditions[0].value: Invalid value",
            ),
            (
                "/spec/nodes/judge/choices/0/next",
                json!("add"),
                "spec.nodes[print]: Invalid value: \"print\": nothing leads to this node",
            ),
            (
                "/spec/nodes/print/next",
                json!("add"),
                "spec.nodes[print]: Invalid value: \"print\": a run that comes here goes round for ever",
            ),
            ("/spec/schedule", json!("now"), "spec.schedule: Invalid value: \"now\""),
            ("/spec/limits/items", json!(100_000), "spec.limits.items: Invalid value"),
            ("/spec/params", json!("x".repeat(70_000)), "spec.params: Too long"),
        ],
    );
    assert_eq!(row(&workflow), "Name=x | Start=add | Nodes=3 | Age=5m | +Schedule=");
}

#[test]
fn branches_do_not_hold_themselves() {
    let workflow = ours(
        "Workflow",
        json!({"startAt": "both", "nodes": {
            "both": {"type": "Parallel", "branches": ["all", "ask"]},
            "all": {"type": "Map", "each": "one"}, "one": {"job": {"template": {"spec": {"containers": [
                {"name": "c", "image": "i"}]}}}},
            "ask": {"type": "Approval", "next": "pause"}, "pause": {"type": "Wait", "seconds": 1, "next": "end"},
            "end": {"type": "Succeed"}}}),
    );
    assert_eq!(workflow["spec"]["nodes"]["all"]["maxConcurrency"], 10);
    assert!(workflow["spec"]["nodes"]["one"]["function"].is_null(), "a Job calls no function");
    check_invalid(
        &workflow,
        &[
            (
                "/spec/nodes/one/next",
                json!("both"),
                "spec.nodes[all]: Invalid value: \"all\": its branches lead back to itself",
            ),
            ("/spec/nodes/one/function", json!("f"), "spec.nodes[one].function: Forbidden"),
            ("/spec/nodes/both/branches", json!([]), "spec.nodes[both].branches: Required value"),
            ("/spec/nodes/all/each", json!(""), "spec.nodes[all].each: Required value"),
            ("/spec/nodes/all/maxConcurrency", json!(65), "spec.nodes[all].maxConcurrency: Invalid value"),
            ("/spec/nodes/pause/until", json!("/at"), "spec.nodes[pause].until: Forbidden"),
            ("/spec/nodes/pause/seconds", json!(null), "spec.nodes[pause].seconds: Required value"),
            ("/spec/nodes/end/catch", json!([{"next": "end"}]), "spec.nodes[end].catch: Forbidden"),
        ],
    );
}

#[test]
fn runs_do_not_change_and_do_not_come_back() {
    let run = ours("WorkflowRun", json!({"workflow": "w", "params": [1, "two"]}));
    check_invalid(&run, &[("/spec/workflow", json!(""), "spec.workflow: Required value")]);
    check_update(
        &run,
        &[
            ("/spec/params", json!(3), "spec.params: Invalid value"),
            ("/spec/suspend", json!(true), ""),
            ("/spec/cancel", json!(true), ""),
            ("/spec/redrive", json!(1), ""),
        ],
    );
    let cancelled = with(&with(&run, "/spec/cancel", json!(true)), "/spec/redrive", json!(1));
    check_update(
        &cancelled,
        &[
            ("/spec/cancel", json!(false), "spec.cancel: Invalid value"),
            ("/spec/redrive", json!(0), "spec.redrive: Invalid value"),
            ("/spec", json!({"workflow": "w", "params": [1, "two"], "redrive": 2}), ""),
        ],
    );
    check_status(
        &with(&run, "/status", json!({"phase": "Failed"})),
        &[
            ("/status/error", json!("node judge: no branch for 3"), ""),
            (
                "/status/phase",
                json!("Running"),
                "status.phase: Invalid value: \"Running\": field is immutable",
            ),
            ("/status", json!({"phase": "Running", "redrives": 1}), ""),
            ("/status/phase", json!("Lost"), "status.phase: Unsupported value"),
        ],
    );
    let done = with(
        &run,
        "/status",
        json!({"phase": "Succeeded", "stepCount": 1, "nodes": ["a", "b"], "output": {"y": 2}}),
    );
    assert_eq!(
        row(&done),
        "Name=x | Workflow=w | Status=Succeeded | Node=a + 1 more | Steps=1 | Age=5m | +Output={\"y\":2} | +Error="
    );
}

#[test]
fn typed_objects_are_good_objects() {
    let dns = DNS {
        metadata: serde_json::from_value(metadata("x")).expect("metadata"),
        spec: DNSSpec {
            host: "a.example.com".into(),
            subpaths: vec![DNSSubpath { path: "/".into(), service: "web".into(), port: 80 }],
        },
        ..DNS::default()
    };
    let json = serde_json::to_value(&dns).expect("JSON");
    assert_eq!((&json["apiVersion"], &json["kind"]), (&json!("minik8s.io/v1"), &json!("DNS")));
    assert_eq!(complaints(&created(json.clone())), Vec::<String>::new());
    assert_eq!(serde_json::from_value::<DNS>(json).expect("a DNS"), dns);
    let function = Function {
        spec: FunctionSpec { code: "def main(p): return p".into(), ..FunctionSpec::default() },
        ..Function::default()
    };
    let json = serde_json::to_value(&function).expect("JSON");
    assert_eq!(complaints(&created(json)), Vec::<String>::new());
    let wrong = json!({"kind": "DNS", "metadata": {}, "spec": {"startAt": "a", "nodes": {}}});
    assert!(serde_json::from_value::<Workflow>(wrong).is_err());
}

#[test]
fn lists_merge_by_what_names_their_elements() {
    use api::schema::ListType;
    let dns = kind_of(&json!({"apiVersion": "minik8s.io/v1", "kind": "DNS"}));
    let list = |part: &str, name: &str| {
        let part = dns.schema().property(part).expect("a part").resolve();
        part.property(name).expect("a list").list.clone()
    };
    assert_eq!(list("spec", "subpaths"), ListType::Map(vec!["path".into()]));
    assert_eq!(list("status", "conditions"), ListType::Map(vec!["type".into()]));
}
