//! Three machines: what stops a join, how machines join, and what becomes of a cluster whose machines all lose power.

use crate::kubeadm::{refused, said};
use crate::support::{Node, traces};
use testing::Switch;

#[test]
fn three_machines_join_lose_power_come_back_and_leave() {
    let switch = Switch::new();
    let mut nodes = Node::boot_all(&switch, 3);
    let before: Vec<Vec<String>> = nodes.iter().map(traces).collect();
    let line = nodes[0].init(&[]);
    let words: Vec<&str> = line.iter().map(String::as_str).collect();
    joins_that_must_fail(&nodes[1], &words, &before[1]);

    // One joins by the line that init printed, one by the seed's file.
    nodes[1].run(&words);
    let file = "kind: Node\nmetadata:\n  name: m3\nspec:\n  masterIp: 10.89.0.1\n  nodeIp: 10.89.0.3\n";
    std::fs::write(nodes[2].machine.path("/etc/node.yaml"), file).expect("written");
    refused(
        &nodes[2],
        &["kubeadm", "join", "--config=/etc/node.yaml"],
        &["--token is missing", "kubeadm token create"],
    );
    let with_token = format!("{file}  token: {}\n", words[4]);
    std::fs::write(nodes[2].machine.path("/etc/node.yaml"), with_token).expect("written");
    nodes[2].run(&["kubeadm", "join", "--config=/etc/node.yaml"]);
    std::fs::remove_file(nodes[2].machine.path("/etc/node.yaml")).expect("removed");
    all_ready(&nodes[0]);

    // Pods run on all of them.
    nodes.iter().for_each(|node| node.import("httpd"));
    nodes[0].apply(&include_str!("../../../../testcases/hello.yaml").replace("replicas: 2", "replicas: 3"));
    nodes[0].rolled_out("deployment/hello");
    let on = nodes[0].get("pods -l app=hello", "{.items[*].spec.nodeName}");
    assert!(["m1", "m2", "m3"].iter().all(|name| on.contains(name)), "{on}");
    answers_everywhere(&nodes);

    // All lose power; those who wait for the control plane come back before it.
    nodes.iter_mut().for_each(|node| node.machine.kill());
    nodes.iter_mut().rev().for_each(|node| node.machine.reboot());
    nodes[0].eventually("every pod was started again", |node| {
        let ask = |what| {
            node.get("pods -l app=hello", &format!("{{.items[*].status.containerStatuses[*].{what}}}"))
        };
        ask("ready") == "true true true" && !ask("restartCount").split_whitespace().any(|count| count == "0")
    });
    all_ready(&nodes[0]);
    answers_everywhere(&nodes);

    // One leaves without a word, and comes back under its name.
    nodes[1].run(&["kubeadm", "reset", "--force"]);
    nodes[1].leaves_only(&before[1]);
    nodes[1].run(&words);
    all_ready(&nodes[0]);
    answers_everywhere(&nodes);

    // In the end each of them is as it was.
    for (node, before) in nodes.iter().zip(&before).rev() {
        node.run(&["kubeadm", "reset", "--force"]);
        node.leaves_only(before);
    }
}

/// Each stops with its reason, before it has changed anything.
fn joins_that_must_fail(node: &Node, words: &[&str], before: &[String]) {
    let with = |place: usize, word: &'static str| {
        let mut words = words.to_vec();
        words[place] = word;
        words
    };
    let secret = format!("{}.0000000000000000", words[4].split('.').next().expect("an id"));
    let mut wrong_secret = words.to_vec();
    wrong_secret[4] = &secret;
    let hash = "sha256:0000000000000000000000000000000000000000000000000000000000000000";
    refused(node, &wrong_secret, &["the token's secret is wrong"]);
    refused(
        node,
        &with(4, "zzzzzz.0123456789abcdef"),
        &["does not know the token zzzzzz", "kubeadm token create"],
    );
    refused(node, &with(4, "nonsense"), &["--token"]);
    refused(node, &with(6, hash), &["this is another cluster", hash]);
    refused(node, &words[..5], &["--discovery-token-ca-cert-hash is missing"]);
    refused(node, &with(2, "10.89.0.1:6444"), &["reach https://10.89.0.1:6444", "Connection refused"]);
    refused(node, &with(2, "10.89.0.77:6443"), &["reach https://10.89.0.77:6443"]);
    let in_an_hour = node.machine.output("faketime", &[&["-f", "+1h", node.program()], words].concat());
    assert!(
        !in_an_hour.status.success() && said(&in_an_hour).contains("the clocks differ"),
        "{in_an_hour:?}"
    );
    assert_eq!(traces(node), before);
}

fn all_ready(control_plane: &Node) {
    control_plane.eventually("all nodes are Ready", |node| {
        node.get("nodes", "{.items[*].status.conditions[?(@.type==\"Ready\")].status}") == "True True True"
    });
}

fn answers_everywhere(nodes: &[Node]) {
    let service = format!("http://{}/", nodes[0].get("service hello", "{.spec.clusterIP}"));
    for node in nodes {
        node.eventually("the service answers", |node| node.fetch(&service).starts_with("hello-"));
    }
}
