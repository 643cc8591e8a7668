//! A machine that systemd runs: the kubelet and kube-proxy are its units.

use crate::support::{Node, traces};
use testing::{Machine, Switch};

const UNITS: [&str; 2] = ["kubelet", "kubeproxy"];

#[test]
fn systemd_keeps_a_node_running() {
    let switch = Switch::new();
    let mut node = Node::on(Machine::boot_systemd(&switch, "m1", 1));
    let before = traces(&node);
    node.init(&[]);
    units_are_up(&node);
    node.import("httpd");
    node.apply(include_str!("../../../../testcases/hello.yaml"));
    answers(&node);

    // A kubelet that starts anew, by order or after a crash, finds its pods and lets them be.
    let running = containers(&node);
    node.machine.run("systemctl", &["restart", "kubelet"]);
    works(&node, 3);
    assert_eq!(missing(&running, &containers(&node)), [""; 0]);
    for unit in UNITS {
        let killed = main_process(&node, unit);
        node.machine.run("kill", &["-KILL", &killed]);
        node.eventually(&format!("{unit} is started again"), |node| {
            !["0", &killed].contains(&main_process(node, unit).as_str())
        });
    }
    works(&node, 4);
    assert_eq!(missing(&running, &containers(&node)), [""; 0]);
    let events = node.kubectl(&["get", "events", "-A"]);
    assert!(!events.contains("Node is not ready"), "pods lost their clients meanwhile: {events}");

    // Without power, everything stops; with it, everything comes back by itself.
    node.machine.reboot();
    node.eventually("the pods were started again", |node| {
        let ready = node.get("pods -l app=hello", "{.items[*].status.containerStatuses[*].ready}");
        let restarts = node.get("pods -l app=hello", "{.items[*].status.containerStatuses[*].restartCount}");
        ready == "true true true true" && !restarts.contains('0')
    });
    units_are_up(&node);
    answers(&node);

    // Init again finds the units and leaves the kubelet alone; reset removes all of it.
    node.run(&["kubeadm", "reset", "--force"]);
    let units = ["list-units", "--all", "--plain", "--no-legend", "kube*"];
    assert_eq!(node.machine.run("systemctl", &units), "");
    assert_eq!(node.machine.run("systemctl", &["--failed", "--plain", "--no-legend"]), "");
    node.leaves_only(&before);
}

fn units_are_up(node: &Node) {
    for unit in UNITS {
        assert_eq!(node.machine.run("systemctl", &["is-enabled", unit]), "enabled\n");
        assert_eq!(node.machine.run("systemctl", &["is-active", unit]), "active\n");
    }
}

fn main_process(node: &Node, unit: &str) -> String {
    node.machine.run("systemctl", &["show", "-p", "MainPID", "--value", unit]).trim().to_owned()
}

/// The kubelet starts further pods, and their service answers.
fn works(node: &Node, replicas: usize) {
    node.kubectl(&["scale", "deployment/hello", "--replicas", &replicas.to_string()]);
    answers(node);
    assert_eq!(node.get("deployment hello", "{.status.readyReplicas}"), replicas.to_string());
}

fn answers(node: &Node) {
    node.rolled_out("deployment/hello");
    let service = format!("http://{}/", node.get("service hello", "{.spec.clusterIP}"));
    node.eventually("the service answers", |node| node.fetch(&service).starts_with("hello-"));
}

/// Every container's process.
fn containers(node: &Node) -> Vec<String> {
    let text = node.machine.run("ctr", &["-n", "k8s.io", "tasks", "ls"]);
    text.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

fn missing<'a>(before: &'a [String], after: &[String]) -> Vec<&'a str> {
    before.iter().filter(|container| !after.contains(container)).map(String::as_str).collect()
}
