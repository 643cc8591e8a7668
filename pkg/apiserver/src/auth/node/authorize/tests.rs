use super::*;
use crate::auth::User;
use api::selector::FieldSelector;
use serde_json::{Value, json};

fn graph() -> Graph {
    let mut graph = Graph::default();
    for object in [
        pod("n1", "web"),
        json!({"kind": "PersistentVolume", "metadata": {"name": "pv"}, "spec": {
            "claimRef": {"namespace": "ns", "name": "data"},
            "csi": {"nodePublishSecretRef": {"namespace": "far", "name": "mount"},
                "controllerPublishSecretRef": {"namespace": "far", "name": "control"}}}}),
        json!({"kind": "PersistentVolume", "metadata": {"name": "loose"}, "spec": {
            "claimRef": {"namespace": "ns", "name": "unused"}, "rbd": {"secretRef": {"name": "loose"}}}}),
        json!({"kind": "VolumeAttachment", "metadata": {"name": "va"}, "spec": {"nodeName": "n1"}}),
        json!({"kind": "ResourceSlice", "metadata": {"name": "slice"}, "spec": {"nodeName": "n1"}}),
    ] {
        graph.apply(&object);
    }
    graph
}

/// A pod that refers to something in every way there is.
fn pod(node: &str, name: &str) -> Value {
    json!({"kind": "Pod", "metadata": {"namespace": "ns", "name": name}, "spec": {
        "nodeName": node,
        "serviceAccountName": "sa",
        "imagePullSecrets": [{"name": "pull"}],
        "initContainers": [{"envFrom": [{"secretRef": {"name": "init"}}, {"configMapRef": {"name": "init"}}]}],
        "containers": [{"env": [{"valueFrom": {"secretKeyRef": {"name": "env"}}},
            {"valueFrom": {"configMapKeyRef": {"name": "env"}}}]}],
        "ephemeralContainers": [{"envFrom": [{"secretRef": {"name": "debug"}}]}],
        "volumes": [
            {"name": "a", "secret": {"secretName": "volume"}},
            {"name": "b", "configMap": {"name": "volume"}},
            {"name": "c", "projected": {"sources": [{"secret": {"name": "projected"}}, {"configMap": {"name": "projected"}}]}},
            {"name": "d", "persistentVolumeClaim": {"claimName": "data"}},
            {"name": "e", "ephemeral": {"volumeClaimTemplate": {}}},
            {"name": "f", "csi": {"driver": "d", "nodePublishSecretRef": {"name": "csi"}}},
        ],
        "resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"},
            {"name": "made", "resourceClaimTemplateName": "t"}],
    }, "status": {"resourceClaimStatuses": [{"name": "made", "resourceClaimName": "web-made"}]}})
}

fn node(name: &str) -> User {
    User { name: format!("system:node:{name}"), groups: vec!["system:nodes".into()], ..User::default() }
}

/// `verb [group/]resource[/subresource] namespace name [field=value]`; the reason, or nothing if allowed.
fn decide(graph: &Graph, user: &User, what: &str) -> Option<String> {
    let words: Vec<&str> = what.split(' ').collect();
    let (group, resource) = words[1].split_once(':').unwrap_or(("", words[1]));
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let word = |at: usize| words.get(at).copied().filter(|word| *word != "-").unwrap_or_default();
    let selector = FieldSelector::parse(word(4)).unwrap();
    let attributes = Attributes {
        subresource,
        namespace: word(2),
        name: word(3),
        field_selector: selector.terms(),
        ..Attributes::resource(user, words[0], group, resource)
    };
    let decision = graph.authorize(&attributes);
    (!decision.allowed).then(|| decision.reason.to_string())
}

fn check(graph: &Graph, node_name: &str, allowed: bool, list: &[&str]) {
    for what in list {
        assert_eq!(decide(graph, &node(node_name), what).is_none(), allowed, "{node_name}: {what}");
    }
}

const NEEDED: [&str; 21] = [
    "get pods ns web",
    "watch pods ns web",
    "get serviceaccounts ns sa",
    "create serviceaccounts/token ns sa",
    "get secrets ns pull",
    "get secrets ns init",
    "get secrets ns env",
    "get secrets ns debug",
    "list secrets ns volume",
    "watch secrets ns projected",
    "get secrets ns csi",
    "get configmaps ns init",
    "get configmaps ns env",
    "get configmaps ns volume",
    "get configmaps ns projected",
    "get persistentvolumeclaims ns data",
    "get persistentvolumeclaims ns web-e",
    "patch persistentvolumeclaims/status ns data",
    "get resource.k8s.io:resourceclaims ns gpu",
    "get resource.k8s.io:resourceclaims ns web-made",
    "get storage.k8s.io:volumeattachments - va",
];

const THROUGH_VOLUMES: [&str; 3] =
    ["get persistentvolumes - pv", "get secrets far mount", "get resource.k8s.io:resourceslices - slice"];

#[test]
fn a_node_reads_what_its_pods_need_and_another_does_not() {
    let graph = graph();
    check(&graph, "n1", true, &NEEDED);
    check(&graph, "n1", true, &THROUGH_VOLUMES);
    check(&graph, "n2", false, &NEEDED);
    check(&graph, "n2", false, &THROUGH_VOLUMES);
    check(
        &graph,
        "n1",
        false,
        &[
            "get secrets far control",
            "get secrets ns loose",
            "get persistentvolumes - loose",
            "get secrets other pull",
        ],
    );
}

#[test]
fn what_goes_takes_its_rights_along() {
    let mut graph = graph();
    graph.apply(&pod("n1", "second"));
    graph.delete(&pod("n1", "web"));
    check(
        &graph,
        "n1",
        true,
        &["get secrets ns pull", "get persistentvolumes - pv", "get secrets far mount"],
    );
    check(&graph, "n1", false, &["get pods ns web"]);
    graph.delete(&pod("n1", "second"));
    check(&graph, "n1", false, &NEEDED[..20]);
    check(&graph, "n1", false, &THROUGH_VOLUMES[..2]);
    for object in ["va", "slice"] {
        graph.delete(&json!({"kind": "VolumeAttachment", "metadata": {"name": object}}));
        graph.delete(&json!({"kind": "ResourceSlice", "metadata": {"name": object}}));
    }
    check(&graph, "n1", false, &[NEEDED[20], THROUGH_VOLUMES[2]]);
}

#[test]
fn a_changed_pod_changes_rights() {
    let mut graph = graph();
    let mut debugged = pod("n1", "web");
    debugged["spec"]["ephemeralContainers"] = json!([{"envFrom": [{"secretRef": {"name": "more"}}]}]);
    graph.apply(&debugged);
    check(&graph, "n1", true, &["get secrets ns more"]);
    check(&graph, "n1", false, &["get secrets ns debug"]);
    let mut unbound = pod("", "waiting");
    unbound["spec"]["imagePullSecrets"] = json!([{"name": "waiting"}]);
    graph.apply(&unbound);
    assert!(decide(&graph, &node(""), "get secrets ns waiting").is_some());
}

#[test]
fn a_mirror_pod_gives_nothing() {
    let mut graph = Graph::default();
    let mut mirror = pod("n1", "web");
    mirror["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x"});
    graph.apply(&mirror);
    check(&graph, "n1", true, &["get pods ns web"]);
    check(&graph, "n1", false, &NEEDED[2..20]);
}

#[test]
fn every_node_reads_the_certificates_of_ingresses_and_so_does_kube_proxy() {
    let ingress = |secrets: &[&str]| {
        let tls: Vec<Value> =
            secrets.iter().map(|name| json!({"hosts": ["h"], "secretName": name})).collect();
        json!({"kind": "Ingress", "metadata": {"namespace": "ns", "name": "web"}, "spec": {"tls": tls}})
    };
    let mut graph = graph();
    let proxy = User { name: "system:kube-proxy".into(), ..User::default() };
    let may = |graph: &Graph, what: &str| {
        let decisions = [&node("n1"), &node("n2"), &proxy].map(|user| decide(graph, user, what).is_none());
        assert!(decisions.iter().all(|decision| *decision == decisions[0]), "{what}: {decisions:?}");
        decisions[0]
    };
    assert!(!may(&graph, "get secrets ns shop"));
    graph.apply(&ingress(&["shop", "blog"]));
    let mut other = ingress(&["shop"]);
    other["metadata"]["name"] = "other".into();
    graph.apply(&other);
    for what in
        ["get secrets ns shop", "list secrets ns shop", "watch secrets ns shop", "get secrets ns blog"]
    {
        assert!(may(&graph, what), "{what}");
    }
    for what in ["get secrets far shop", "get secrets ns else", "list secrets ns -", "update secrets ns shop"]
    {
        assert!(!may(&graph, what), "{what}");
    }
    graph.apply(&ingress(&["blog"]));
    assert!(may(&graph, "get secrets ns shop"), "the other ingress has it still");
    graph.delete(&other);
    assert!(!may(&graph, "get secrets ns shop") && may(&graph, "get secrets ns blog"));
    graph.delete(&ingress(&[]));
    assert!(!may(&graph, "get secrets ns blog"));
}

#[test]
fn refusals_say_why_as_upstream_does() {
    let graph = graph();
    let check = |what: &str, reason: &str| {
        assert_eq!(decide(&graph, &node("n1"), what).as_deref(), Some(reason), "{what}");
    };
    let unrelated = "no relationship found between node 'n1' and this object";
    check("get secrets ns x", unrelated);
    check("list secrets ns -", "No Object name found");
    check("get secrets - pull", "can only read namespaced object of this type");
    check("delete secrets ns pull", "can only read resources of this type");
    check("get secrets/x ns pull", "cannot read subresource");
    check("list persistentvolumeclaims ns data", "can only get individual resources of this type");
    check("get persistentvolumeclaims/status ns data", "can only get/update/patch this type");
    check("create serviceaccounts/token ns -", "can only create tokens for individual service accounts");
    check("create serviceaccounts/other ns sa", "can only create token subresource of serviceaccount");
    check("list pods - -", "can only list/watch pods with spec.nodeName field selector");
    check("list pods - - spec.nodeName=n2", "can only list/watch pods with spec.nodeName field selector");
    check("get nodes - n2", "node 'n1' cannot read 'n2', only its own Node object");
    check("list nodes - -", "node 'n1' cannot read all nodes, only its own Node object");
    check(
        "list coordination.k8s.io:leases kube-node-lease -",
        "can only get, create, update, patch, or delete a node lease",
    );
    check(
        "get coordination.k8s.io:leases ns n1",
        r#"can only access leases in the "kube-node-lease" system namespace"#,
    );
    check(
        "get coordination.k8s.io:leases kube-node-lease n2",
        "can only access node lease with the same name as the requesting node",
    );
    check(
        "get storage.k8s.io:csinodes - n2",
        "can only access CSINode with the same name as the requesting node",
    );
    check("list storage.k8s.io:csinodes - -", "can only get, create, update, patch, or delete a CSINode");
    check(
        "list resource.k8s.io:resourceslices - -",
        "can only list/watch/deletecollection resourceslices with nodeName field selector",
    );
    check("delete nodes - n1", "");
    check("update pods ns web", "");
    let nobody = User { name: "system:node:".into(), ..node("") };
    assert_eq!(decide(&graph, &nobody, "get nodes - n1").unwrap(), r#"unknown node for user "system:node:""#);
}

#[test]
fn a_nodes_own_objects_are_its_own() {
    check(
        &graph(),
        "n1",
        true,
        &[
            "list pods - - spec.nodeName=n1",
            "watch pods - - spec.nodeName=n1",
            "create pods ns -",
            "delete pods ns web",
            "patch pods/status ns web",
            "create pods/eviction ns web",
            "create nodes - -",
            "get nodes - n1",
            "watch nodes - n1",
            "patch nodes/status - n1",
            "create coordination.k8s.io:leases kube-node-lease -",
            "update coordination.k8s.io:leases kube-node-lease n1",
            "create storage.k8s.io:csinodes - -",
            "get storage.k8s.io:csinodes - n1",
            "list resource.k8s.io:resourceslices - - spec.nodeName=n1",
            "create resource.k8s.io:resourceslices - -",
            "delete resource.k8s.io:resourceslices - slice",
            "list services - -",
            "create events ns -",
            "get node.k8s.io:runtimeclasses - x",
            "create authentication.k8s.io:tokenreviews - -",
            "create authorization.k8s.io:subjectaccessreviews - -",
        ],
    );
}

#[test]
fn others_are_none_of_its_business() {
    let jane = User { name: "jane".into(), ..User::default() };
    assert_eq!(decide(&graph(), &jane, "get pods ns web").as_deref(), Some(""));
}
