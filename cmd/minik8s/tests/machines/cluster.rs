//! Two commands to a cluster: `kubeadm init` and `join` on machines of their own, as people use them.

use crate::support::{Datastore, Node, traces};
use std::time::Instant;
use testing::Switch;

#[test]
fn init_runs_pods_and_reset_leaves_nothing() {
    a_machine_is_a_cluster_and_is_none_again(Datastore::Embedded);
}

#[test]
fn init_on_etcd_runs_pods_and_reset_leaves_nothing() {
    a_machine_is_a_cluster_and_is_none_again(Datastore::Etcd);
}

fn a_machine_is_a_cluster_and_is_none_again(datastore: Datastore) {
    let switch = Switch::new();
    let node = Node::boot(&switch, "m1", 1);
    let before = traces(&node);
    let join = node.init_on(datastore, &[]);
    assert_eq!(join[..4], ["kubeadm", "join", "10.89.0.1:6443", "--token"]);
    assert_eq!(node.get("nodes", "{.items[*].metadata.name}"), "m1");

    // The control plane is there as pods.
    node.eventually("the control plane's pods are Running", |node| {
        let phases = node.get("pods -n kube-system", "{.items[*].status.phase}");
        phases.split(' ').filter(|phase| *phase == "Running").count() == datastore.pods()
    });

    // Its apiserver is killed, and is back; its manifest is changed, and the new one runs.
    let killed = Instant::now();
    node.machine.run("pkill", &["-KILL", "-f", "^/apiserver "]);
    let apiserver = |node: &Node, path: &str| node.get("pod kube-apiserver-m1 -n kube-system", path);
    let restarts = "{.status.containerStatuses[0].restartCount} {.status.containerStatuses[0].ready}";
    node.eventually("the apiserver is back", |node| apiserver(node, restarts) == "1 true");
    println!("apiserver killed -> Running and ready again: {:?} (promised: 3 s)", killed.elapsed());
    let manifest = node.machine.path("/etc/kubernetes/manifests/kube-apiserver.yaml");
    let text = std::fs::read_to_string(&manifest).expect("the manifest");
    let limited = text.replace("cpu: 50m\n", "cpu: 50m\n      limits:\n        memory: 900Mi\n");
    assert_ne!(text, limited, "{text}");
    let edited = Instant::now();
    std::fs::write(&manifest, limited).expect("written");
    let limit = "{.spec.containers[0].resources.limits.memory} {.status.containerStatuses[0].ready}";
    node.eventually("the changed apiserver runs", |node| apiserver(node, limit) == "900Mi true");
    println!("apiserver's memory limit edited -> in force: {:?} (promised: 10 s)", edited.elapsed());

    // A Deployment's pods run, and answer.
    node.import("httpd");
    node.apply(include_str!("../../../../testcases/hello.yaml"));
    node.rolled_out("deployment/hello");
    let addresses = node.get("pods -l app=hello", "{.items[*].status.podIP}");
    assert_eq!(addresses.split(' ').count(), 2, "{addresses}");
    for address in addresses.split(' ') {
        node.eventually("the pod answers", |node| hello(node, address));
    }

    // So does their service.
    let address = node.get("service hello", "{.spec.clusterIP}");
    node.eventually("the service answers", |node| hello(node, &address));

    // Init again changes nothing and says so; joining here is a no-op that says so.
    let again = node.attempt(datastore.init());
    assert!(String::from_utf8_lossy(&again.stderr).contains("kubeadm reset"), "{again:?}");
    assert!(node.run(&["kubeadm", "join", "10.89.0.1:6443"]).contains("nothing to do"));

    // The root of a container that was never made, as a kubelet leaves it that is stopped in between.
    node.machine.run("ctr", &["-n", "k8s.io", "snapshots", "prepare", &"a1".repeat(32)]);
    node.run(&["kubeadm", "reset", "--force"]);
    node.leaves_only(&before);
}

#[test]
fn a_second_machine_joins_and_leaves() {
    two_machines_are_one_cluster(Datastore::Embedded);
}

#[test]
fn a_second_machine_joins_a_cluster_on_etcd_and_leaves() {
    two_machines_are_one_cluster(Datastore::Etcd);
}

fn two_machines_are_one_cluster(datastore: Datastore) {
    let switch = Switch::new();
    let (first, second) = (Node::boot(&switch, "m1", 1), Node::boot(&switch, "m2", 2));
    let before = traces(&second);
    let line = first.init_on(datastore, &[]);
    let words: Vec<&str> = line.iter().map(String::as_str).collect();

    // With a wrong token it says what is wrong, and leaves nothing behind.
    let mut wrong = words.clone();
    wrong[4] = "aaaaaa.0123456789abcdef";
    let refused = second.machine.output(second.program(), &wrong);
    assert!(!refused.status.success());
    let errors = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(errors.contains("does not know the token aaaaaa"), "{errors}");
    assert_eq!(traces(&second), before);

    second.run(&words);
    assert_eq!(first.get("nodes", "{.items[*].metadata.name}"), "m1 m2");

    // Pods run on both, and each machine reaches all of them and their service.
    first.import("httpd");
    second.import("httpd");
    first.apply(include_str!("../../../../testcases/hello.yaml"));
    first.rolled_out("deployment/hello");
    let nodes = first.get("pods -l app=hello", "{.items[*].spec.nodeName}");
    assert!(nodes.contains("m1") && nodes.contains("m2"), "{nodes}");
    let addresses = first.get("pods -l app=hello", "{.items[*].status.podIP}");
    let service = first.get("service hello", "{.spec.clusterIP}");
    for node in [&first, &second] {
        for address in addresses.split(' ').chain([service.as_str()]) {
            node.eventually("every pod and the service answer", |node| hello(node, address));
        }
    }

    second.run(&["kubeadm", "reset", "--force"]);
    second.leaves_only(&before);
    first.kubectl(&["delete", "node", "m2"]);
}

/// The demo's page is there.
fn hello(node: &Node, address: &str) -> bool {
    node.fetch(&format!("http://{address}/")).starts_with("hello-")
}
