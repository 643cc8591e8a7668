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
            "add": {"type": "Task", "next": "judge"},
            "judge": {"type": "Choice", "choices": [
                {"conditions": [{"variable": "x", "operator": "gt", "value": 5}], "next": "print"},
                {"conditions": [{"variable": "x", "value": false}], "next": "add"}]},
            "print": {}}}),
    );
    assert_eq!(workflow["spec"]["nodes"]["print"], json!({"type": "Task", "function": "print"}));
    assert_eq!(workflow["spec"]["nodes"]["judge"]["choices"][1]["conditions"][0]["operator"], "eq");
    check_invalid(
        &workflow,
        &[
            ("/spec/startAt", json!(null), "spec.startAt: Required value"),
            ("/spec/startAt", json!("nowhere"), "spec.startAt: Not found: \"nowhere\""),
            ("/spec/nodes", json!({}), "spec.nodes: Required value"),
            ("/spec/nodes/add/next", json!("nowhere"), "spec.nodes[add].next: Not found: \"nowhere\""),
            (
                "/spec/nodes/add/type",
                json!("Loop"),
                "spec.nodes[add].type: Unsupported value: \"Loop\": supported values: \"Choice\", \"Task\"",
            ),
            (
                "/spec/nodes/add/choices",
                json!([{}]),
                "spec.nodes[add].choices: Forbidden: only a node of type 'Choice' has choices",
            ),
            ("/spec/nodes/judge/choices", json!([]), "spec.nodes[judge].choices: Required value"),
            ("/spec/nodes/judge/function", json!("f"), "spec.nodes[judge].function: Forbidden"),
            ("/spec/nodes/judge/next", json!("add"), "spec.nodes[judge].next: Forbidden"),
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
        ],
    );
    assert_eq!(row(&workflow), "Name=x | Start=add | Nodes=3 | Age=5m");
}

#[test]
fn runs_do_not_change_and_do_not_come_back() {
    let run = ours("WorkflowRun", json!({"workflow": "w", "params": [1, "two"]}));
    check_invalid(&run, &[("/spec/workflow", json!(""), "spec.workflow: Required value")]);
    check_update(&run, &[("/spec/params", json!(3), "spec: Invalid value")]);
    check_status(
        &with(&run, "/status", json!({"phase": "Failed"})),
        &[
            ("/status/error", json!("node judge: no branch for 3"), ""),
            (
                "/status/phase",
                json!("Running"),
                "status.phase: Invalid value: \"Running\": field is immutable",
            ),
            ("/status/phase", json!("Lost"), "status.phase: Unsupported value"),
        ],
    );
    let done = with(&run, "/status", json!({"phase": "Succeeded", "steps": [{}], "output": {"y": 2}}));
    assert_eq!(
        row(&done),
        "Name=x | Workflow=w | Status=Succeeded | Steps=1 | Age=5m | +Output={\"y\":2} | +Error="
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
