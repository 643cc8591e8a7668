//! The seed's document, walked from its first command to its last with its own files (testcases/seed), on one machine.
//!
//! Files named `.malformed.yaml` stand in the document as they are, and beside them what they were meant to be. The
//! machine is called vmeet2, as in the document.

use crate::kubeadm::said;
use crate::support::{Datastore, Node};
use std::path::Path;
use std::process::Output;
use testing::Switch;

const FILES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testcases/seed");

struct Walk {
    node: Node,
}

impl Walk {
    /// Types a line of the document; `./bin/` is left away. What it said.
    fn types(&self, line: &str) -> String {
        let output = self.attempt(line);
        assert!(output.status.success(), "{line}: {}", said(&output));
        said(&output)
    }

    /// Types a line that must be refused. What it said.
    fn refused(&self, line: &str) -> String {
        let output = self.attempt(line);
        assert!(!output.status.success(), "{line}: {}", said(&output));
        said(&output)
    }

    fn attempt(&self, line: &str) -> Output {
        let words: Vec<&str> = line.split_whitespace().collect();
        self.node.attempt(&words)
    }

    fn path(&self, words: &str, path: &str) -> String {
        self.node.get(words, path)
    }

    /// Until containers of a pod have run; the document's run `bash`, which ends at once.
    fn has_run(&self, pod: &str, containers: usize) {
        self.node.eventually("the seed's containers have run", |_| {
            let ids = self.path(&format!("pod {pod}"), "{.status.containerStatuses[*].containerID}");
            ids.split_whitespace().count() == containers
        });
    }
}

#[test]
fn the_seeds_document_can_be_typed_as_it_stands() {
    walk(Datastore::Embedded);
}

#[test]
fn the_seeds_document_can_be_typed_on_etcd() {
    walk(Datastore::Etcd);
}

fn walk(datastore: Datastore) {
    let switch = Switch::new();
    let node = Node::boot(&switch, "vmeet2", 1);
    let files = node.machine.path("/etc/seed");
    std::fs::create_dir(&files).expect("a folder");
    for entry in std::fs::read_dir(Path::new(FILES)).expect("testcases/seed").flatten() {
        std::fs::copy(entry.path(), files.join(entry.file_name())).expect("copied");
    }
    let address = node.machine.address();
    let own =
        format!("kind: Node\nmetadata:\n  name: vmeet2\nspec:\n  masterIp: {address}\n  nodeIp: {address}\n");
    std::fs::write(files.join("vmeet2.yaml"), own).expect("written");
    let walk = Walk { node };
    walk.types(&datastore.init().join(" "));
    assert!(walk.types("kubeadm join --config=/etc/seed/vmeet2.yaml").contains("nothing to do"));
    walk.types("kubeadm version");
    walk.node.import("golang");
    pods(&walk);
    services(&walk);
    deployments(&walk);
    nodes(&walk);
    functions(&walk);
    gpu(&walk);
    assert!(walk.types("kubectl get pod -n kube-system").contains("kube-apiserver-vmeet2"));
}

/// "Pod": three strategies, of which one is malformed in the document.
fn pods(walk: &Walk) {
    let understood = walk.types("kubectl apply /etc/seed/pod-round-robin.yaml");
    for part in ["apiVersion v1", "name rr-one for rr_one", "hostPath.path /root/test_vo", "200Mi for 200MiB"]
    {
        assert_eq!(
            understood.matches(part).count(),
            if part.starts_with("200") { 2 } else { 1 },
            "{part}: {understood}"
        );
    }
    assert!(understood.contains("pod/rr-one created"), "{understood}");
    assert!(walk.types("kubectl get pod").contains("rr-one"));
    assert!(walk.types("kubectl get pod rr_one").contains("rr-one"));
    assert!(walk.types("kubectl describe pod rr_one").contains("rr-one"));
    walk.has_run("rr_one", 2);
    let limits = "{.spec.containers[0].resources.limits.cpu} {.spec.containers[1].resources.limits.memory}";
    assert_eq!(walk.path("pod rr_one", limits), "500m 200Mi");
    assert_eq!(walk.path("pod rr_one", "{.spec.volumes[0].hostPath.path}"), "/root/test_vo");
    // Another object would have the same name.
    std::fs::write(
        walk.node.machine.path("/etc/seed/taken.yaml"),
        "kind: Pod\nmetadata: {name: rr-one}\nspec: {containers: [{name: a, image: golang}]}\n",
    )
    .expect("written");
    let refused = walk.refused("kubectl apply /etc/seed/taken.yaml");
    assert!(refused.contains("\"rr-one\" and \"rr_one\" both become \"rr-one\""), "{refused}");
    walk.types("kubectl delete pod rr_one");
    assert!(walk.refused("kubectl get pod rr_one").contains("not found"));

    let refused = walk.refused("kubectl apply /etc/seed/pod-affinity.malformed.yaml");
    assert!(refused.contains("/etc/seed/pod-affinity.malformed.yaml:6:5: "), "{refused}");
    assert!(refused.contains("expected \"node: vmeet2\""), "{refused}");
    assert!(walk.types("kubectl get pod").contains("No resources found"));
    walk.types("kubectl apply /etc/seed/pod-affinity.yaml");
    walk.has_run("rr_one", 2);
    assert_eq!(walk.path("pod rr_one", "{.spec.nodeName}"), "vmeet2");
    walk.types("kubectl delete pod rr_one");

    walk.types("kubectl apply /etc/seed/pod-memory.yaml");
    assert_eq!(walk.path("pod rr_one", "{.metadata.labels.resourcePolicy}"), "on");
    walk.has_run("rr_one", 2);
    walk.types("kubectl delete rr_one");
}

/// "GPU": the job is stored and waits for a SLURM node, which is in the tests `slurm`.
fn gpu(walk: &Walk) {
    // Where the document has its source; the host's folder is not touched.
    let machine = &walk.node.machine;
    machine.run("mount", &["-t", "tmpfs", "none", "/root"]);
    machine.run("mkdir", &["-p", "/root/minik8s/minik8s/scripts/data"]);
    machine.run("cp", &["/etc/seed/add.cu", "/root/minik8s/minik8s/scripts/data/add.cu"]);
    assert!(walk.types("kubectl apply /etc/seed/job.yaml").contains("stays Pending"));
    assert!(walk.types("kubectl get jobs").contains("gpujob"));
    walk.node.eventually("the job's pod waits", |_| {
        walk.path("pod -l job-name=gpujob", "{.items[*].status.phase}") == "Pending"
    });
    let shown = walk.types("kubectl get job gpujob");
    assert!(shown.contains("no result yet"), "{shown}");
    walk.types("kubectl delete job gpujob");
}

/// "Service" and "DNS".
fn services(walk: &Walk) {
    assert!(
        walk.types("kubectl apply /etc/seed/service.yaml").contains("name servicepodtest for servicePodTest")
    );
    let shown = walk.types("kubectl get service");
    assert!(shown.contains("servicepodtest") && shown.contains("8080/TCP,80/TCP"), "{shown}");
    let address = walk.path("service servicePodTest", "{.spec.clusterIP}");
    assert!(address.starts_with("10."), "{address}");
    walk.types("kubectl apply /etc/seed/dns.yaml");
    let shown = walk.types("kubectl get dns");
    assert!(shown.contains("test-dns") && shown.contains("minik8s.io"), "{shown}");
    assert_eq!(walk.path("dns test-dns", "{.spec.subpaths[*].service}"), "servicepodtest servicepodtest");
    walk.types("kubectl delete test-dns");
    walk.types("kubectl delete servicePodTest");
    assert!(walk.refused("kubectl get service servicePodTest").contains("not found"));
}

/// "Deployment", malformed in the document, and "Autoscaler".
fn deployments(walk: &Walk) {
    let refused = walk.refused("kubectl apply /etc/seed/test_deployment.malformed.yaml");
    assert!(refused.contains("/etc/seed/test_deployment.malformed.yaml:8:5: "), "{refused}");
    assert!(refused.contains("indented deeper"), "{refused}");
    assert!(walk.types("kubectl get deployment").contains("No resources found"));
    let understood = walk.types("kubectl apply /etc/seed/test_deployment.yaml");
    assert!(understood.contains("selector from the template's labels"), "{understood}");
    assert!(walk.types("kubectl get deployment").contains("deployment-test"));
    let pods = "pod -l app=deploymentServiceTest";
    walk.node.eventually("two pods were started", |_| {
        walk.path(pods, "{.items[*].status.containerStatuses[*].containerID}").split_whitespace().count() == 2
    });
    walk.types("kubectl apply /etc/seed/test_autoscaler.yaml");
    let shown = walk.types("kubectl get autoscaler");
    assert!(shown.contains("autoscaler-test") && shown.contains("Deployment/deployment-test"), "{shown}");
    let behavior =
        "{.spec.behavior.scaleUp.policies[0].periodSeconds} {.spec.behavior.scaleDown.policies[0].value}";
    assert_eq!(walk.path("autoscaler autoscaler_test", behavior), "10 1");
    walk.types("kubectl delete autoscaler autoscaler_test");
    walk.types("kubectl delete deployment deployment_test");
    walk.node.eventually("its pods are gone", |_| walk.path(pods, "{.items[*].metadata.name}").is_empty());
}

/// "多机Minik8s": the second machine of the document is only named here; machines that join are in `cluster`.
fn nodes(walk: &Walk) {
    assert!(walk.types("kubectl get nodes").contains("vmeet2"));
    walk.types("kubectl apply /etc/seed/vmeet1.yaml");
    assert!(walk.types("kubectl get nodes").contains("vmeet1"));
    walk.types("kubectl delete node vmeet1");
    assert!(!walk.types("kubectl get nodes").contains("vmeet1"));
}

/// "Serverless", as far as it needs no pods: calls are in `functions`, and workflows in `workflows`.
fn functions(walk: &Walk) {
    let said = walk.types("kubectl register /etc/seed/Add.py");
    assert!(said.contains("add for Add"), "{said}");
    assert!(walk.types("kubectl get func").contains("add"));
    walk.types("kubectl update /etc/seed/Add.py");
    std::fs::copy(walk.node.machine.path("/etc/seed/Add.py"), walk.node.machine.path("/etc/seed/add.py"))
        .expect("copied");
    let refused = walk.refused("kubectl register /etc/seed/add.py");
    assert!(refused.contains("\"add\" and \"Add\" both become \"add\""), "{refused}");
    walk.types("kubectl delete func Add");
    assert!(walk.types("kubectl get func").contains("No resources found"));
}
