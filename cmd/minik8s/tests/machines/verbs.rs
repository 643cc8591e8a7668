//! What kubectl does to machines and workloads that really run: it empties a machine, goes back to an older revision,
//! looks into pods, follows changes.

use crate::kubeadm::{refused, said};
use crate::support::{Cluster, Node};
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use testing::Switch;

const KUBECTL: &[&str] = &["kubectl", "--kubeconfig", "/etc/kubernetes/admin.conf"];

#[test]
fn kubectl_acts_on_what_really_runs() {
    let switch = Switch::new();
    let cluster = Cluster::new(&switch, 2, &[]);
    let node = cluster.first();
    cluster.nodes.iter().for_each(|node| node.import("busybox"));
    node.apply(include_str!("../../../../testcases/hello.yaml"));
    node.rolled_out("deployment/hello");
    a_machine_is_drained(node);
    workloads_go_back(node);
    pods_are_run_and_looked_into(node, &cluster.nodes[1]);
    services_and_autoscalers_are_made(node);
    files_come_from_the_network(node);
    changes_are_followed(node);
    refused(
        node,
        &[KUBECTL, &["get", "pods", "--request-timeout", "1s", "--server", "https://10.89.0.77:6443"]]
            .concat(),
        &["10.89.0.77:6443", "no answer in 1s"],
    );
}

fn on(node: &Node) -> String {
    node.get("pods -l app=hello", "{.items[*].spec.nodeName}")
}

fn a_machine_is_drained(node: &Node) {
    node.apply(
        "apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {name: hello}\n\
         spec: {minAvailable: 2, selector: {matchLabels: {app: hello}}}\n",
    );
    node.eventually("the budget is known", |node| node.get("pdb hello", "{.status.expectedPods}") == "2");
    node.kubectl(&[
        "run",
        "alone",
        "--image",
        "busybox",
        "--image-pull-policy",
        "IfNotPresent",
        "--overrides",
        r#"{"spec": {"nodeName": "m2"}}"#,
        "--",
        "sleep",
        "1000",
    ]);
    // A pod that nobody would start again is not evicted unasked; nor is one that the budget protects.
    refused(node, &[KUBECTL, &["drain", "m2"]].concat(), &["default/alone", "--force"]);
    let protected = [KUBECTL, &["drain", "m2", "--force", "--timeout", "3s"]].concat();
    refused(node, &protected, &["Cannot evict pod as it would violate the pod's disruption budget"]);
    assert!(node.kubectl(&["get", "node", "m2"]).contains("Ready,SchedulingDisabled"));
    node.kubectl(&["delete", "pdb", "hello"]);
    let told = node.kubectl(&["drain", "m2", "--force", "--timeout", "170s"]);
    assert!(told.contains("node/m2 drained"), "{told}");
    node.eventually("all pods are on the other machine", |node| on(node) == "m1 m1");
    assert!(node.kubectl(&["uncordon", "m2"]).contains("node/m2 uncordoned"));
}

fn workloads_go_back(node: &Node) {
    for (kind, name, spec) in [
        ("StatefulSet", "ordered", "serviceName: ordered\n  replicas: 2\n  "),
        ("DaemonSet", "everywhere", ""),
    ] {
        let yaml = format!(
            "apiVersion: apps/v1\nkind: {kind}\nmetadata: {{name: {name}}}\nspec:\n  {spec}\
             selector: {{matchLabels: {{app: {name}}}}}\n  template:\n    metadata: {{labels: {{app: {name}}}}}\n    \
             spec: {{terminationGracePeriodSeconds: 1, containers: [{{name: c, image: busybox, imagePullPolicy: \
             IfNotPresent, command: [sleep, \"1000\"]}}]}}\n"
        );
        node.apply(&yaml);
        let target = format!("{kind}/{name}").to_lowercase();
        let status = || node.rolled_out(&target);
        let image =
            |node: &Node| node.get(&format!("pods -l app={name}"), "{.items[*].spec.containers[0].image}");
        status();
        node.kubectl(&["set", "image", &target, "c=httpd"]);
        status();
        assert_eq!(image(node), "httpd httpd");
        let history = node.kubectl(&["rollout", "history", &target]);
        assert!(history.contains("\n1 ") && history.contains("\n2 "), "{history}");
        assert!(node.kubectl(&["rollout", "undo", &target]).contains("rolled back"));
        node.eventually("the older revision runs", |node| image(node) == "busybox busybox");
        status();
        node.kubectl(&["delete", &target]);
    }
}

fn pods_are_run_and_looked_into(node: &Node, second: &Node) {
    let once =
        ["run", "once", "--image", "busybox", "--image-pull-policy", "IfNotPresent", "--restart", "Never"];
    let is_gone = || {
        node.eventually("the pod is gone", |node| {
            node.kubectl(&["get", "pods", "-l", "run=once", "-o", "name"]).is_empty()
        });
    };
    let told = node.kubectl(&[&once[..], &["--rm", "-i", "--", "echo", "it ran"]].concat());
    assert!(told.contains("it ran") && told.contains("pod \"once\" deleted"), "{told}");
    is_gone();
    let failed = node.attempt(&[KUBECTL, &once[..], &["--rm", "-i", "--", "sh", "-c", "exit 7"]].concat());
    assert_eq!(failed.status.code(), Some(7), "{}", said(&failed));
    is_gone();

    // What a pod said is there as long as the pod is, though its containers are gone.
    node.kubectl(&[&once[..], &["--", "echo", "said before it ended"]].concat());
    node.kubectl(&["wait", "pod/once", "--for", "jsonpath={.status.phase}=Succeeded", "--timeout", "170s"]);
    node.eventually("its containers are gone", |node| {
        let of_pods = "for c in $(ctr -n k8s.io containers ls -q); do ctr -n k8s.io containers info $c; done";
        let on = node.get("pod once", "{.spec.nodeName}");
        let machine = if on == "m1" { node } else { second };
        !machine.machine.run("sh", &["-c", of_pods]).contains("\"once\"")
    });
    assert_eq!(node.kubectl(&["logs", "once"]), "said before it ended\n");
    assert_eq!(node.kubectl(&["logs", "-f", "once"]), "said before it ended\n");
    node.kubectl(&["delete", "pod", "once"]);

    let pod = node.get("pods -l app=hello", "{.items[0].metadata.name}");
    let debug =
        ["debug", &pod, "--image", "busybox", "--image-pull-policy", "IfNotPresent", "--target", "hello"];
    let told = node.kubectl(&[&debug[..], &["-i", "--", "wget", "-qO-", "http://127.0.0.1/"]].concat());
    assert!(told.contains(&pod), "{told}");
    let shown = node.kubectl(&["describe", "pod", &pod]);
    assert!(shown.contains("Ephemeral Containers:"), "{shown}");
    let debug = ["debug", "node/m2", "--image", "busybox", "--image-pull-policy", "IfNotPresent"];
    let told = node.kubectl(&[&debug[..], &["-i", "--", "cat", "/host/proc/sys/kernel/hostname"]].concat());
    assert_eq!(told, "m2\n");
    node.kubectl(&["delete", "pods", "-l", "app.kubernetes.io/managed-by=kubectl-debug"]);
}

fn services_and_autoscalers_are_made(node: &Node) {
    node.kubectl(&[
        "expose",
        "deployment",
        "hello",
        "--name",
        "exposed",
        "--port",
        "8080",
        "--target-port",
        "80",
    ]);
    let address = node.get("service exposed", "{.spec.clusterIP}");
    node.eventually("the exposed pods answer", |node| {
        node.fetch(&format!("http://{address}:8080/")).starts_with("hello-")
    });
    node.kubectl(&["autoscale", "deployment", "hello", "--min", "1", "--max", "3", "--cpu", "80%"]);
    let bounds =
        "{.spec.minReplicas} {.spec.maxReplicas} {.spec.metrics[0].resource.target.averageUtilization}";
    assert_eq!(node.get("hpa.v2.autoscaling hello", bounds), "1 3 80");
    node.kubectl(&["delete", "hpa/hello", "service/exposed"]);
}

fn files_come_from_the_network(node: &Node) {
    let files = node.machine.path("/etc/files");
    std::fs::create_dir(&files).expect("a folder");
    std::fs::write(files.join("a.yaml"), "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: fetched}\n")
        .expect("written");
    let mut server = node.machine.command("busybox");
    let serving = server.args(["httpd", "-f", "-p", "127.0.0.1:8099", "-h", "/etc/files"]).spawn();
    let mut serving = serving.expect("a server");
    node.eventually("the server answers", |node| {
        node.fetch("http://127.0.0.1:8099/a.yaml").contains("fetched")
    });
    let told = node.kubectl(&["apply", "-f", "http://127.0.0.1:8099/a.yaml"]);
    assert!(told.contains("configmap/fetched"), "{told}");
    let missing = [KUBECTL, &["apply", "-f", "http://127.0.0.1:8099/b.yaml"]].concat();
    refused(node, &missing, &["http://127.0.0.1:8099/b.yaml", "404"]);
    let _ = (serving.kill(), serving.wait());
}

fn changes_are_followed(node: &Node) {
    let mut command = node.machine.command(node.program());
    command.args(KUBECTL).args(["get", "configmaps", "-w", "--no-headers"]).stdout(Stdio::piped());
    let mut following = command.spawn().expect("kubectl runs");
    let mut lines = BufReader::new(following.stdout.take().expect("piped")).lines();
    let mut next = |what: &str| {
        let line = lines.find(|line| line.as_ref().is_ok_and(|line| line.starts_with(what)));
        assert!(line.is_some(), "kubectl ended before it showed {what}");
    };
    next("fetched");
    node.kubectl(&["create", "configmap", "followed", "--from-literal=a=b"]);
    next("followed");
    node.kubectl(&["delete", "configmap", "followed"]);
    next("followed");
    let _ = (following.kill(), following.wait());
}
