//! Functions on a machine of their own, with the real kubelet and containerd: the seed's document for them as it stands,
//! what goes wrong, and what is killed meanwhile.

use crate::kubeadm::said;
use crate::support::Node;
use std::path::Path;
use std::process::Output;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
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
    what_the_page_says(&node);
    the_node_ends_what_a_function_may_not_do(&node);
    a_fork_bomb_harms_itself(&node);
    many_at_once_are_all_answered(&node);
    kills_lose_nothing_silently_and_double_nothing(&node);
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

/// What docs/functions.md says beyond the seed's document.
fn what_the_page_says(node: &Node) {
    let file = write(
        node,
        "sum.py",
        "def main(params):\n    print('adding')\n    return params['x'] + params['y']\n",
    );
    node.kubectl(&["register", &file]);
    let data = r#"{"x":1,"y":2}"#;
    // Nothing waits, and nothing is lost.
    assert_eq!(node.kubectl(&["trigger", "sum", data, "--async", "--wait"]), "3\n");
    let promised = node.kubectl(&["trigger", "sum", data, "--async", "--idempotency-key", "one"]);
    assert!(
        promised.starts_with("functioncall.minik8s.io/sum-") && promised.ends_with(" promised\n"),
        "{promised}"
    );
    let call =
        promised.trim_start_matches("functioncall.minik8s.io/").trim_end_matches(" promised\n").to_owned();
    assert_eq!(node.kubectl(&["trigger", "sum", data, "--async", "--idempotency-key", "one"]), promised);
    node.eventually("the call is made", |node| {
        node.kubectl(&["get", "functioncall", &call]).contains("Succeeded")
    });
    assert_eq!(node.kubectl(&["trigger", &call, "--again", "--wait"]), "3\n");
    // Without a cluster.
    assert_eq!(node.kubectl(&["trigger", &file, data, "--local"]), "3\n");
    // As upstream's kubectl finds it.
    let plugin = ["kubectl-trigger", "sum", data, "--kubeconfig", "/etc/kubernetes/admin.conf"];
    assert_eq!(node.run(&plugin), "3\n");
    // What was written, also by pods that are gone.
    assert!(node.kubectl(&["logs", "func/sum"]).contains("] adding\n"));
    node.kubectl(&["delete", "pods", "-l", "minik8s.io/function=sum"]);
    node.eventually("the pods are gone", |node| pods_of(node, "sum").is_empty());
    let log = node.kubectl(&["logs", "func/sum", "--tail", "1"]);
    let request = log.strip_prefix('[').and_then(|log| log.split_once(']')).map(|(id, _)| id.to_owned());
    let request = request.unwrap_or_else(|| panic!("{log}"));
    assert_eq!(node.kubectl(&["logs", "func/sum", "--request-id", &request]), log);
    assert_eq!(node.kubectl(&["logs", "func/sum", "--request-id", "other"]), "");
    // Back to what it was.
    write(node, "sum.py", "def main(params):\n    return 'wrong'\n");
    node.kubectl(&["update", &file]);
    assert_eq!(trigger(node, "sum", data), "\"wrong\"\n");
    assert!(node.kubectl(&["rollout", "history", "func/sum"]).contains("\n2"));
    assert!(node.kubectl(&["rollout", "undo", "func/sum"]).contains("rolled back"));
    assert_eq!(trigger(node, "sum", data), "3\n");
    node.eventually("its calls are counted", |node| {
        let row = node.kubectl(&["get", "func", "sum", "--no-headers"]);
        row.split_whitespace().nth(3).is_some_and(|calls| calls != "0")
    });
    assert!(node.kubectl(&["describe", "func", "sum"]).contains("Callable"));
    node.kubectl(&["delete", "func", "sum"]);
    node.eventually("its calls are gone with it", |node| node.get("functioncalls", "{.items}") == "[]");
}

/// As many kubectls at once as a machine bears: a thousand with `SOAK=1`, from zero.
fn many_at_once_are_all_answered(node: &Node) {
    let count = if std::env::var_os("SOAK").is_some() { 1000 } else { 50 };
    let file = write(node, "double.py", "def main(params):\n    return 2 * params['n']\n");
    node.kubectl(&["register", &file]);
    std::thread::scope(|scope| {
        for worker in 0..50 {
            scope.spawn(move || {
                for n in (worker..count).step_by(50) {
                    assert_eq!(trigger(node, "double", &format!("{{\"n\":{n}}}")), format!("{}\n", 2 * n));
                }
            });
        }
    });
    node.kubectl(&["delete", "func", "double"]);
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

/// A function that forks without end has its pod's memory and its call's time, and others go on.
fn a_fork_bomb_harms_itself(node: &Node) {
    let code = "import os, time\ndef main(params):\n    while params.get('forks'):\n        if os.fork() == 0:\n            \
        time.sleep(60)\n            os._exit(0)\n    return 'fine'\n";
    let function = serde_json::json!({"apiVersion": "minik8s.io/v1", "kind": "Function", "metadata": {"name": "bomb"},
        "spec": {"code": code, "timeoutSeconds": 5}});
    node.kubectl(&["apply", "-f", &write(node, "bomb.json", &function.to_string())]);
    fails(node, "bomb", r#"{"forks":true}"#);
    assert_eq!(trigger(node, "trouble", ""), "\"fine\"\n", "the neighbour");
    node.eventually("it can be called again", |node| {
        kubectl(node, &["trigger", "bomb", ""]).status.success()
    });
    node.kubectl(&["delete", "func", "bomb"]);
}

/// Each call writes its number down. Whatever is killed meanwhile, one that was answered was made once, and one that failed
/// says so and was made once at most.
fn kills_lose_nothing_silently_and_double_nothing(node: &Node) {
    let count = if std::env::var_os("SOAK").is_some() { 4000 } else { 200 };
    node.machine.run("sh", &["-c", "mkdir -p /opt/made && chmod 777 /opt/made"]);
    let code = "import os\ndef main(params):\n    file = os.open('/made/log', os.O_WRONLY | os.O_CREAT | os.O_APPEND)\n    \
        os.write(file, b'%d\\n' % params['n'])\n    os.close(file)\n    return params['n']\n";
    let function = serde_json::json!({"apiVersion": "minik8s.io/v1", "kind": "Function", "metadata": {"name": "once"},
        "spec": {"code": code, "template": {"spec": {
            "volumes": [{"name": "made", "hostPath": {"path": "/opt/made"}}],
            "containers": [{"name": "function", "volumeMounts": [{"name": "made", "mountPath": "/made"}]}]}}}});
    node.kubectl(&["apply", "-f", &write(node, "once.json", &function.to_string())]);
    let (next, answers) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                loop {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    if n >= count {
                        return;
                    }
                    let output = kubectl(node, &["trigger", "once", &format!("{{\"n\":{n}}}")]);
                    answers.lock().expect("no panic").push((n, output));
                }
            });
        }
        let victims = [
            "minik8s_runtime",
            "^/knative ",
            "minik8s_runtime",
            "kubelet --",
            "^/knative ",
            "minik8s_runtime",
        ];
        for (at, victim) in victims.iter().enumerate() {
            node.eventually("calls go on", |_| next.load(Ordering::Relaxed) >= (at + 1) * count / 8);
            node.machine.output("sh", &["-c", &format!("kill -9 $(pgrep -f '{victim}' | head -n 1)")]);
        }
    });
    let made = std::fs::read_to_string(node.machine.path("/opt/made/log")).expect("read");
    let times = |n: usize| made.lines().filter(|line| line.parse() == Ok(n)).count();
    let answers = answers.into_inner().expect("no panic");
    let mut answered = 0;
    for (n, output) in &answers {
        match output.status.success() {
            true => assert_eq!((said(output).trim(), times(*n)), (n.to_string().as_str(), 1)),
            false => assert!(times(*n) <= 1 && !said(output).trim().is_empty(), "{n}: {}", said(output)),
        }
        answered += usize::from(output.status.success());
    }
    assert!(answers.len() == count && answered > count / 2, "{answered} of {count} were answered");
    node.eventually("it is answered again", |node| {
        kubectl(node, &["trigger", "once", &format!("{{\"n\":{count}}}")]).status.success()
    });
    node.kubectl(&["delete", "func", "once"]);
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
