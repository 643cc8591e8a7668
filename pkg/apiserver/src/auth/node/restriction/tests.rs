use super::*;
use crate::auth::User;
use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::json;

/// Objects by `resource namespace/name`.
struct Objects(Vec<(&'static str, Value)>);

impl Lookup for Objects {
    fn object(&self, resource: &str, namespace: &str, name: &str) -> Option<Value> {
        let key = format!("{resource} {namespace}/{name}");
        self.0.iter().find(|(own, _)| *own == key).map(|(_, object)| object.clone())
    }
}

fn objects() -> Objects {
    Objects(vec![
        ("nodes /n1", json!({"metadata": {"name": "n1", "uid": "node-uid"}})),
        ("pods ns/own", pod("n1")),
        ("pods ns/other", pod("n2")),
        ("persistentvolumeclaims ns/claim", json!({"spec": {"volumeName": "pv"}})),
        ("persistentvolumes /pv", json!({"spec": {"csi": {"driver": "driver"}}})),
        (
            "csidrivers.storage.k8s.io /driver",
            json!({"spec": {"tokenRequests": [{"audience": "driver-audience"}]}}),
        ),
    ])
}

fn pod(node: &str) -> Value {
    json!({"kind": "Pod", "metadata": {"name": "own", "namespace": "ns", "uid": "pod-uid", "labels": {"a": "b"}},
        "spec": {"nodeName": node, "serviceAccountName": "sa", "volumes": [
            {"name": "token", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}},
                {"serviceAccountToken": {"audience": "vault"}}]}},
            {"name": "data", "persistentVolumeClaim": {"claimName": "claim"}}]}})
}

fn mirror() -> Value {
    json!({"kind": "Pod", "metadata": {"name": "static-n1", "namespace": "ns",
            "annotations": {"kubernetes.io/config.mirror": "x"},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "node-uid", "controller": true}]},
        "spec": {"nodeName": "n1", "volumes": [{"name": "h", "hostPath": {"path": "/x"}}]}})
}

/// `verb [group:]resource[/subresource] namespace name`, by node n1.
fn attempt(what: &str, new: Value, old: Value) -> Result<(), String> {
    attempt_with(&Authorizer::default(), what, new, old)
}

fn attempt_with(authorizer: &Authorizer, what: &str, new: Value, old: Value) -> Result<(), String> {
    let user = User { name: "system:node:n1".into(), groups: vec!["system:nodes".into()], ..User::default() };
    let words: Vec<&str> = what.split(' ').collect();
    let (group, resource) = words[1].split_once(':').unwrap_or(("", words[1]));
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let word = |at: usize| words.get(at).copied().filter(|word| *word != "-").unwrap_or_default();
    let request = Attributes {
        subresource,
        namespace: word(2),
        name: word(3),
        ..Attributes::resource(&user, words[0], group, resource)
    };
    let given = |object: Value| (!object.is_null()).then_some(object);
    let (new, old) = (given(new), given(old));
    restrict(&request, new.as_ref(), old.as_ref(), &objects(), authorizer).map_err(|error| error.to_string())
}

fn changed(mut object: Value, pointer: &str, value: Value) -> Value {
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    object.pointer_mut(parent).unwrap()[name] = value;
    object
}

#[test]
fn only_mirror_pods_of_its_own_are_created() {
    let check = |pod: Value, expected: &str| {
        assert_eq!(attempt("create pods ns -", pod, Value::Null).err().unwrap_or_default(), expected);
    };
    let owner =
        |name: &str, value: Value| changed(mirror(), &format!("/metadata/ownerReferences/0/{name}"), value);
    check(mirror(), "");
    check(
        changed(mirror(), "/metadata/annotations", json!({})),
        r#"pod does not have "kubernetes.io/config.mirror" annotation, node "n1" can only create mirror pods"#,
    );
    check(
        changed(mirror(), "/spec/nodeName", json!("n2")),
        r#"node "n1" can only create pods with spec.nodeName set to itself"#,
    );
    let own = r#"node "n1" can only create pods with an owner reference set to itself"#;
    check(changed(mirror(), "/metadata/ownerReferences", json!([])), own);
    check(owner("name", json!("n2")), own);
    check(
        changed(mirror(), "/metadata/ownerReferences", json!([{}, {}])),
        r#"node "n1" can only create pods with a single owner reference set to itself"#,
    );
    check(
        owner("controller", json!(false)),
        r#"node "n1" can only create pods with a controller owner reference set to itself"#,
    );
    check(
        owner("blockOwnerDeletion", json!(true)),
        r#"node "n1" must not set blockOwnerDeletion on an owner reference"#,
    );
    check(owner("uid", json!("x")), "node n1 UID mismatch: expected x got node-uid");
}

#[test]
fn mirror_pods_refer_to_nothing() {
    let check = |pointer: &str, value: Value, what: &str| {
        let error = attempt("create pods ns -", changed(mirror(), pointer, value), Value::Null).unwrap_err();
        assert_eq!(error, format!("node \"n1\" can not create pods that reference {what}"));
    };
    check("/spec/serviceAccountName", json!("sa"), "serviceaccounts");
    check("/spec/imagePullSecrets", json!([{"name": "s"}]), "secrets");
    check("/spec/containers", json!([{"envFrom": [{"configMapRef": {"name": "c"}}]}]), "configmaps");
    check("/spec/resourceClaims", json!([{"name": "c"}]), "resourceclaims");
    let volume = |source: Value| {
        let mut volume = source;
        volume["name"] = json!("v");
        json!([volume])
    };
    check("/spec/volumes", volume(json!({"configMap": {}})), "configmaps (via configmap volumes)");
    check("/spec/volumes", volume(json!({"csi": {"driver": "d"}})), "csidrivers (via CSI volumes)");
    check(
        "/spec/volumes",
        volume(json!({"ephemeral": {}})),
        "persistentvolumeclaims (via ephemeral volumes)",
    );
    check(
        "/spec/volumes",
        volume(json!({"projected": {"sources": [{"downwardAPI": {}}, {"serviceAccountToken": {}}]}})),
        "serviceaccounts (via projected volumes)",
    );
    let unknown = changed(mirror(), "/spec/volumes", volume(json!({"new": {}})));
    assert_eq!(
        attempt("create pods ns -", unknown, Value::Null).unwrap_err(),
        "error checking mirror pod for API references: unknown volume type for volume  \"v\""
    );
}

#[test]
fn pods_of_its_own_are_deleted_evicted_and_reported_on() {
    let check = |what: &str, new: Value, old: Value, expected: &str| {
        assert_eq!(attempt(what, new, old).err().unwrap_or_default(), expected, "{what}");
    };
    let nothing = || Value::Null;
    check("delete pods ns own", nothing(), nothing(), "");
    check("delete pods ns gone", nothing(), nothing(), "pod \"gone\" not found");
    check(
        "delete pods ns other",
        nothing(),
        nothing(),
        r#"node "n1" can only delete pods with spec.nodeName set to itself"#,
    );
    check(
        "update pods ns own",
        pod("n1"),
        pod("n1"),
        r#"unexpected operation "UPDATE", node "n1" can only create and delete mirror pods"#,
    );
    check("create pods/eviction ns own", json!({}), nothing(), "");
    check("create pods/eviction ns -", json!({"metadata": {"name": "own"}}), nothing(), "");
    check(
        "create pods/eviction ns other",
        json!({}),
        nothing(),
        "node n1 can only evict pods with spec.nodeName set to itself",
    );
    check("patch pods/status ns own", pod("n1"), pod("n1"), "");
    check(
        "patch pods/status ns other",
        pod("n2"),
        pod("n2"),
        r#"node "n1" can only update pod status for pods with spec.nodeName set to itself"#,
    );
    check(
        "patch pods/status ns own",
        changed(pod("n1"), "/metadata/labels", json!({"a": "c"})),
        pod("n1"),
        r#"node "n1" cannot update labels through pod status"#,
    );
    let claims = json!({"resourceClaimStatuses": [{"name": "a", "resourceClaimName": "b"}]});
    check(
        "patch pods/status ns own",
        changed(pod("n1"), "/status", claims),
        pod("n1"),
        r#"node "n1" cannot update resource claim statues"#,
    );
    check(
        "create pods/binding ns own",
        json!({}),
        nothing(),
        r#"unexpected pod subresource "binding", only 'status' and 'eviction' are allowed"#,
    );
}

#[test]
fn a_node_writes_itself_but_not_what_steers_workloads() {
    let node = |labels: Value| json!({"metadata": {"name": "n1", "labels": labels}, "spec": {"taints": [{"key": "t"}]}});
    let check = |what: &str, new: Value, old: Value, expected: &str| {
        assert_eq!(attempt(what, new, old).err().unwrap_or_default(), expected, "{what}");
    };
    let fine = json!({"kubernetes.io/hostname": "n1", "node.kubernetes.io/x": "", "a": "", "example.com/b": "",
        "kubelet.kubernetes.io/y": "", "topology.kubernetes.io/zone": "z"});
    check("create nodes - -", node(fine.clone()), Value::Null, "");
    check("create nodes - n1", node(fine.clone()), Value::Null, "");
    check("update nodes - n1", node(fine.clone()), node(json!({})), "");
    check(
        "create nodes - -",
        node(
            json!({"x.node-restriction.kubernetes.io/a": "", "node-role.kubernetes.io/b": "", "k8s.io/c": ""}),
        ),
        Value::Null,
        "node \"n1\" is not allowed to set the following labels: \
         k8s.io/c, node-role.kubernetes.io/b, x.node-restriction.kubernetes.io/a",
    );
    check(
        "patch nodes/status - n1",
        node(json!({})),
        node(json!({"node-role.kubernetes.io/b": ""})),
        "is not allowed to modify labels: node-role.kubernetes.io/b",
    );
    check(
        "update nodes - n1",
        changed(node(json!({})), "/spec/taints", json!([])),
        node(json!({})),
        r#"node "n1" is not allowed to modify taints"#,
    );
    check(
        "update nodes - n1",
        changed(node(json!({})), "/metadata/ownerReferences", json!([{}])),
        node(json!({})),
        r#"node "n1" is not allowed to modify ownerReferences"#,
    );
    let ranges = r#"node "n1" is not allowed to set podCIDR or podCIDRs"#;
    let ranged = |name: &str, range: Value| changed(node(json!({})), &format!("/spec/{name}"), range);
    for (name, range) in [("podCIDR", json!("192.168.1.0/24")), ("podCIDRs", json!(["192.168.1.0/24"]))] {
        check("create nodes - -", ranged(name, range.clone()), Value::Null, ranges);
        check("update nodes - n1", ranged(name, range.clone()), node(json!({})), ranges);
        check("patch nodes/status - n1", ranged(name, range.clone()), node(json!({})), ranges);
        check("update nodes - n1", node(json!({})), ranged(name, range.clone()), ranges);
        check("update nodes - n1", ranged(name, range.clone()), ranged(name, range), "");
    }
    check(
        "update nodes - n2",
        json!({"metadata": {"name": "n2"}}),
        json!({}),
        r#"node "n1" is not allowed to modify node "n2""#,
    );
    check(
        "create nodes - -",
        changed(node(json!({})), "/spec/configSource", json!({})),
        Value::Null,
        r#"node "n1" is not allowed to create pods with a non-nil configSource"#,
    );
}

#[test]
fn tokens_are_for_its_own_pods_and_their_audiences() {
    let request = |name: &str, uid: &str, audiences: &[&str]| {
        json!({"spec": {"audiences": audiences,
            "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid}}})
    };
    let check = |new: Value, expected: &str| {
        let outcome = attempt("create serviceaccounts/token ns sa", new, Value::Null);
        assert_eq!(outcome.err().unwrap_or_default(), expected);
    };
    check(request("own", "pod-uid", &[]), "");
    check(request("own", "pod-uid", &["vault"]), "");
    check(request("own", "pod-uid", &["driver-audience"]), "");
    check(json!({"spec": {}}), "node requested token not bound to a pod");
    check(request("own", "", &[]), "node requested token with a pod binding without a uid");
    check(request("gone", "x", &[]), "pod \"gone\" not found");
    check(
        request("own", "x", &[]),
        "the UID in the bound object reference (x) does not match the UID in record. \
         The object might have been deleted and then recreated",
    );
    check(
        request("other", "pod-uid", &[]),
        "node requested token bound to a pod scheduled on a different node",
    );
    check(request("own", "pod-uid", &["a", "b"]), "node may only request 0 or 1 audiences");
    let refused = "audience \"a\" not found in pod spec volume, system:node:n1 is not authorized to request tokens \
                   for this audience";
    check(request("own", "pod-uid", &["a"]), refused);
    let mut authorizer = Authorizer::default();
    authorizer.rbac.apply(&json!({"kind": "ClusterRole", "metadata": {"name": "r"}, "rules": [
        {"verbs": ["request-serviceaccounts-token-audience"], "apiGroups": [""], "resources": ["a"]}]}));
    authorizer.rbac.apply(&json!({"kind": "ClusterRoleBinding", "metadata": {"name": "r"},
        "roleRef": {"kind": "ClusterRole", "name": "r"}, "subjects": [{"kind": "Group", "name": "system:nodes"}]}));
    let explicit = request("own", "pod-uid", &["a"]);
    assert!(attempt_with(&authorizer, "create serviceaccounts/token ns sa", explicit, Value::Null).is_ok());
}

#[test]
fn leases_csinodes_slices_and_claims() {
    let named = |name: &str| json!({"metadata": {"name": name}});
    let check = |what: &str, new: Value, old: Value, expected: &str| {
        assert_eq!(attempt(what, new, old).err().unwrap_or_default(), expected, "{what}");
    };
    let lease = "can only access node lease with the same name as the requesting node";
    check("create coordination.k8s.io:leases kube-node-lease -", named("n1"), Value::Null, "");
    check("create coordination.k8s.io:leases kube-node-lease -", named("n2"), Value::Null, lease);
    check("update coordination.k8s.io:leases kube-node-lease n2", named("n2"), named("n2"), lease);
    check(
        "update coordination.k8s.io:leases ns n1",
        named("n1"),
        named("n1"),
        r#"can only access leases in the "kube-node-lease" system namespace"#,
    );
    let csi = "can only access CSINode with the same name as the requesting node";
    check("create storage.k8s.io:csinodes - -", named("n1"), Value::Null, "");
    check("create storage.k8s.io:csinodes - -", named("n2"), Value::Null, csi);
    let slice = |node: &str| json!({"spec": {"nodeName": node}});
    check("create resource.k8s.io:resourceslices - -", slice("n1"), Value::Null, "");
    check(
        "create resource.k8s.io:resourceslices - -",
        slice("n2"),
        Value::Null,
        "can only create ResourceSlice with the same NodeName as the requesting node",
    );
    check(
        "deletecollection resource.k8s.io:resourceslices - -",
        Value::Null,
        slice("n2"),
        "can only delete ResourceSlice with the same NodeName as the requesting node",
    );
    let claim = |size: &str, label: &str| json!({"metadata": {"labels": {"a": label}, "resourceVersion": size}, "status": {"capacity": {"storage": size}}});
    check("patch persistentvolumeclaims/status ns c", claim("1", "x"), claim("2", "x"), "");
    check(
        "patch persistentvolumeclaims/status ns c",
        claim("1", "x"),
        claim("2", "y"),
        "node \"n1\" is not allowed to update fields other than status.quantity and status.conditions: \
         metadata differs",
    );
    check("update persistentvolumeclaims ns c", json!({}), json!({}), "may only update PVC status");
    check("update configmaps ns c", json!({}), json!({}), "");
}

#[test]
fn a_signing_request_is_for_the_node_itself() {
    let key = pki::PrivateKey::generate().unwrap();
    let request = |name: &str, signer: &str| {
        let pem = pki::request(&key, name, &["system:nodes"], &[]).unwrap();
        json!({"spec": {"signerName": signer, "request": BASE64_STANDARD.encode(pem)}})
    };
    let create =
        |new: Value| attempt("create certificates.k8s.io:certificatesigningrequests - -", new, Value::Null);
    let kubelet = "kubernetes.io/kube-apiserver-client-kubelet";
    assert!(create(request("system:node:n1", kubelet)).is_ok());
    assert_eq!(
        create(request("system:node:n2", kubelet)).unwrap_err(),
        "can only create a node CSR with CN=system:node:n1"
    );
    assert!(create(request("jane", "example.com/signer")).is_ok());
    let rubbish = json!({"spec": {"signerName": kubelet, "request": "AAAA"}});
    assert!(create(rubbish).unwrap_err().starts_with("unable to parse csr: "));
}

#[test]
fn others_are_not_restricted() {
    let jane = User { name: "jane".into(), ..User::default() };
    let request = Attributes { name: "n2", ..Attributes::resource(&jane, "update", "", "nodes") };
    assert_eq!(restrict(&request, None, None, &objects(), &Authorizer::default()), Ok(()));
    let nobody = User { name: "system:node:".into(), groups: vec!["system:nodes".into()], ..User::default() };
    let request = Attributes::resource(&nobody, "update", "", "nodes");
    assert_eq!(
        restrict(&request, None, None, &objects(), &Authorizer::default()).unwrap_err().to_string(),
        r#"could not determine node from user "system:node:""#
    );
}
