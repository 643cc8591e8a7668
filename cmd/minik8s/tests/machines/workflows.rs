//! Workflows on a machine of their own, with the real kubelet, containerd and runtimes: the seed's as it stands, and the page that
//! tells of them.

use crate::kubeadm::said;
use crate::support::Node;
use std::path::Path;
use std::process::Output;
use testing::Switch;

const SEED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testcases/seed");
const PAGE: &str = include_str!("../../../../docs/workflows.md");

fn kubectl(node: &Node, arguments: &[&str]) -> Output {
    node.attempt(&[&["kubectl", "--kubeconfig", "/etc/kubernetes/admin.conf"], arguments].concat())
}

fn write(node: &Node, file: &str, text: &str) -> String {
    let path = format!("/etc/{file}");
    std::fs::write(node.machine.path(&path), text).expect("written");
    path
}

fn register(node: &Node, file: &str, code: &str) {
    let file = write(node, file, code);
    node.kubectl(&["register", &file]);
}

#[test]
fn the_seeds_workflow_has_a_result() {
    let switch = Switch::new();
    let node = Node::boot(&switch, "m1", 1);
    node.init(&[]);
    node.import("python");
    the_seeds_workflow(&node);
    a_job_a_person_and_a_crash(&node);
    the_pages_commands(&node);
}

fn the_seeds_workflow(node: &Node) {
    let read = |file: &str| std::fs::read_to_string(Path::new(SEED).join(file)).expect("a file of the seed");
    register(node, "Add.py", &read("Add.py"));
    register(node, "Big.py", "def main(params):\n    return 'big ' + str(params['result'])\n");
    register(node, "Small.py", "def main(params):\n    return 'small'\n");
    let file = write(node, "workflow.yaml", &read("workflow.yaml"));
    let shown = said(&kubectl(node, &["apply", &file]));
    assert!(shown.contains("created") && shown.contains("✓  compare") && shown.contains("→ big"), "{shown}");
    assert!(shown.contains("succeeded in") && shown.contains("\"big 3\""), "{shown}");
    let again = node.kubectl(&["apply", &file]);
    assert!(again.contains("kubectl workflow run sum-and-compare --watch"), "{again}");
    let run = ["workflow", "run", "sum_and_compare", "--params", "{\"x\":1,\"y\":1}", "--watch"];
    assert!(node.kubectl(&run).contains("\"small\""));
    assert!(node.kubectl(&["workflow", "list", "sum_and_compare"]).matches("Succeeded").count() == 2);
    let bad = ["workflow", "run", "sum_and_compare", "--params", "{\"x\":\"a\",\"y\":\"b\"}", "--watch"];
    let output = kubectl(node, &bad);
    assert!(!output.status.success() && said(&output).contains("\"ab\""), "{}", said(&output));
    let described = node.kubectl(&["workflow", "describe", "sum_and_compare"]);
    assert!(described.contains("UnlikeTypes") && described.contains("compare"), "{described}");
}

fn a_job_a_person_and_a_crash(node: &Node) {
    node.kubectl(&[
        "create",
        "rolebinding",
        "jobs",
        "--clusterrole=edit",
        "--serviceaccount=default:default",
    ]);
    let flow = write(
        node,
        "job.yaml",
        "kind: Workflow\nmetadata: {name: job}\nstartAt: ask\nnodes:\n  ask: {type: Approval, next: make}\n  make:\n    type: Task\n    \
         job:\n      backoffLimit: 0\n      template:\n        spec:\n          restartPolicy: Never\n          containers:\n          - name: c\n            \
         image: minik8s.io/python:3\n            command: [/usr/bin/python3, -c, \"import os; open('/dev/termination-log', 'w').write(os.environ['WORKFLOW_INPUT'] + '1')\"]\n",
    );
    node.kubectl(&["workflow", "validate", "-f", &flow]);
    let stored = std::fs::read_to_string(node.machine.path(&flow)).expect("read");
    let (head, rest) = stored.split_once("startAt").expect("two parts");
    let spec: String = format!("startAt{rest}").lines().map(|line| format!("  {line}\n")).collect();
    write(node, "job.yaml", &format!("apiVersion: minik8s.io/v1\n{head}spec:\n{spec}"));
    node.kubectl(&["apply", "-f", &flow]);
    node.kubectl(&["workflow", "run", "job", "--params", "4", "--run-name", "r"]);
    node.eventually("it waits", |node| {
        node.get("workflowrun r", "{.status.threads[0].state}") == "Approving"
    });
    node.machine.run("sh", &["-c", "kill -9 $(pidof -s knative || pgrep -f '^/knative ')"]);
    node.eventually("it is approved", |node| {
        let output = kubectl(node, &["workflow", "approve", "r"]);
        if !output.status.success() {
            println!("{}", said(&output));
        }
        output.status.success()
    });
    node.eventually("it has ended", |node| !node.get("workflowrun r", "{.status.completionTime}").is_empty());
    assert_eq!(node.get("workflowrun r", "{.status.phase} {.status.output}"), "Succeeded 41");
}

/// Every command of the page's first part.
fn the_pages_commands(node: &Node) {
    // The seed's have other sources under these names.
    for name in ["Add", "Big"] {
        node.kubectl(&["delete", "func", name]);
    }
    let first = PAGE
        .split("## The first one")
        .nth(1)
        .and_then(|rest| rest.split("## Nodes").next())
        .expect("the part");
    let script: String =
        first.lines().filter_map(|line| line.strip_prefix("    ")).map(|line| format!("{line}\n")).collect();
    let kubectl = format!("{} kubectl --kubeconfig /etc/kubernetes/admin.conf", node.program());
    let script = format!("set -e\nkubectl() {{ {kubectl} \"$@\"; }}\ncd /etc\n{script}");
    let output = node.machine.output("sh", &["-c", &script]);
    assert!(output.status.success(), "{}", said(&output));
    let shown = said(&output);
    assert!(shown.contains("\"big: 3\"") && shown.contains("\"small\""), "{shown}");
}
