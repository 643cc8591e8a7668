//! Functions on a machine of their own, with the real kubelet and containerd: the seed's document for them as it stands,
//! what goes wrong, and what is killed meanwhile.

use crate::kubeadm::said;
use crate::support::Node;
use std::path::Path;
use std::process::Output;
use testing::Switch;

const FILES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testcases/seed");

fn kubectl(node: &Node, arguments: &[&str]) -> Output {
    node.attempt(&[&["kubectl", "--kubeconfig", "/etc/kubernetes/admin.conf"], arguments].concat())
}

/// Calls a function, which must answer.
fn trigger(node: &Node, name: &str, data: &str) -> String {
    let output = kubectl(node, &["trigger", name, data]);
    assert!(output.status.success(), "{name} {data}: {}", said(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Calls a function, which must fail. What was said.
fn fails(node: &Node, name: &str, data: &str) -> String {
    let output = kubectl(node, &["trigger", name, data]);
    assert!(!output.status.success(), "{name} {data}: {}", said(&output));
    said(&output)
}

fn write(node: &Node, file: &str, text: &str) -> String {
    let path = format!("/etc/{file}");
    std::fs::write(node.machine.path(&path), text).expect("written");
    path
}

fn pods_of(node: &Node, function: &str) -> String {
    node.get(&format!("pods -l minik8s.io/function={function}"), "{.items[*].metadata.name}")
}

#[test]
fn the_seeds_functions_answer() {
    let switch = Switch::new();
    let node = Node::boot(&switch, "m1", 1);
    node.init(&[]);
    node.import("python");
    the_documents_commands(&node);
    the_node_ends_what_a_function_may_not_do(&node);
    what_is_killed_comes_back(&node);
}

/// "Serverless": register, get, trigger, update, delete.
fn the_documents_commands(node: &Node) {
    let seed = std::fs::read_to_string(Path::new(FILES).join("Add.py")).expect("Add.py");
    let file = write(node, "Add.py", &seed);
    assert!(node.kubectl(&["register", &file]).contains("add for Add"));
    assert!(node.kubectl(&["get", "func"]).contains("add"));
    assert_eq!(pods_of(node, "add"), "", "nothing runs before a call");
    assert_eq!(trigger(node, "Add", r#"{"x":1,"y":2}"#), "{\"result\": 3}\n");
    assert_eq!(trigger(node, "add", r#"{"x":20,"y":22}"#), "{\"result\": 42}\n");
    let pod = pods_of(node, "add");
    assert!(pod.starts_with("add-") && !pod.contains(' '), "{pod}");
    write(node, "Add.py", "def main(params):\n    return 'new'\n");
    assert!(node.kubectl(&["update", &file]).contains("updated"));
    assert_eq!(trigger(node, "add", ""), "\"new\"\n");
    node.kubectl(&["delete", "func", "Add"]);
    node.eventually("nothing of the function is left", |node| pods_of(node, "add").is_empty());
    assert!(fails(node, "add", "").contains("\"add\" not found"));
}

/// Memory, processes and files of others, as the kernel has it.
fn the_node_ends_what_a_function_may_not_do(node: &Node) {
    let code = "import os\ndef main(params):\n    how = params.get('how')\n    if how == 'memory':\n        return len('x' * (1 << 30))\n    \
        if how == 'dies':\n        print('last words', flush=True)\n        os._exit(7)\n    \
        if how == 'who':\n        return [os.getuid(), os.path.exists('/etc/kubernetes')]\n    return 'fine'\n";
    node.kubectl(&["register", &write(node, "trouble.py", code)]);
    assert_eq!(trigger(node, "trouble", r#"{"how":"who"}"#), "[65534, false]\n");
    let said = fails(node, "trouble", r#"{"how":"memory"}"#);
    assert!(said.contains("MemoryError") || said.contains("more memory than its pod may"), "{said}");
    assert_eq!(trigger(node, "trouble", ""), "\"fine\"\n");
    let said = fails(node, "trouble", r#"{"how":"dies"}"#);
    assert!(said.contains("exited with 7") && said.contains("last words"), "{said}");
    assert_eq!(trigger(node, "trouble", ""), "\"fine\"\n");
    let said = fails(node, "trouble", "{");
    assert!(said.contains("not JSON"), "{said}");
}

/// knative itself, and a pod.
fn what_is_killed_comes_back(node: &Node) {
    node.kubectl(&["delete", "pods", "-l", "minik8s.io/function=trouble"]);
    assert_eq!(trigger(node, "trouble", ""), "\"fine\"\n");
    let before = pods_of(node, "trouble");
    node.machine.run("sh", &["-c", "kill -9 $(pidof -s knative || pgrep -f '^/knative ')"]);
    node.eventually("knative answers again", |node| {
        let output = kubectl(node, &["trigger", "trouble", ""]);
        output.status.success()
    });
    assert_eq!(pods_of(node, "trouble"), before, "the pod of before is taken on");
}
