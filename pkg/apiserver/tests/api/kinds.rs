//! Every built-in kind: no field is lost, and an object of it lives and dies on a real server.

use crate::{config_map, deployment, pod};
use api::kind::Verbs;
use api::schema::{Format, Schema, Type};
use api::{Kind, kinds, object};
use serde_json::{Map, Value, json};
use testing::{Engine, TestServer, eventually};

/// Definitions that contain themselves are followed this far.
const DEEPEST: usize = 40;

/// A value with every field that the schema has; `None` where a definition contains itself.
fn full(schema: &Schema, within: &mut Vec<usize>) -> Option<Value> {
    assert!(within.len() < DEEPEST, "a definition that never ends");
    Some(match &schema.ty {
        Type::Ref(index) => {
            if within.contains(index) {
                return None;
            }
            within.push(*index);
            let value = full(schema.resolve(), within);
            within.pop();
            return value;
        }
        Type::Object { properties, additional } => {
            let mut members = Map::new();
            for (name, member) in properties.iter() {
                members.extend(full(member, within).map(|value| (name.to_string(), value)));
            }
            if let Some(additional) = additional {
                members.extend(full(additional, within).map(|value| ("example.com/key".to_owned(), value)));
            }
            Value::Object(members)
        }
        Type::Array(element) => Value::Array(full(element, within).into_iter().collect()),
        Type::String(Format::Plain) => "text with \"quotes\" and \u{1F980}".into(),
        Type::String(Format::Byte) => "AP/+".into(),
        Type::String(Format::DateTime) => "2026-01-02T03:04:05.000006Z".into(),
        Type::String(Format::Quantity) => "100m".into(),
        Type::Integer { wide: true } => i64::MAX.into(),
        Type::Integer { wide: false } => i32::MIN.into(),
        Type::Number => json!(1.5),
        Type::Boolean => true.into(),
        Type::IntOrString => "50%".into(),
        Type::Any => json!({"any": ["thing", 1, 1.25, null, {"deep": true}]}),
    })
}

fn fields(value: &Value) -> usize {
    match value {
        Value::Object(members) => members.values().map(|member| 1 + fields(member)).sum(),
        Value::Array(items) => items.iter().map(fields).sum(),
        _ => 0,
    }
}

#[test]
fn every_field_of_every_kind_survives() {
    for kind in kinds::all() {
        let mut given = full(kind.schema(), &mut Vec::new()).unwrap();
        given["kind"] = kind.kind.as_str().into();
        given["apiVersion"] = kind.api_version().into();
        let mut checked = given.clone();
        let unknown =
            kind.schema().check(&mut checked).unwrap_or_else(|error| panic!("{}: {error}", kind.kind));
        assert_eq!(unknown, [""; 0], "{}", kind.kind);
        assert_eq!(checked, given, "{}: nothing is rewritten", kind.kind);
        let served: Value = serde_json::from_slice(&object::served(&object::stored(&checked), 42)).unwrap();
        if given["metadata"].is_object() {
            given["metadata"]["resourceVersion"] = "42".into();
        }
        assert_eq!(served, given, "{}", kind.kind);
        assert!(fields(&given) >= 8, "{} has fields", kind.kind);
    }
    let pod = kinds::all().iter().find(|kind| kind.kind == "Pod").unwrap();
    let pod = full(pod.schema(), &mut Vec::new()).unwrap();
    assert!(fields(&pod) > 1000, "a pod has many: {}", fields(&pod));
}

/// The smallest good object of each kind that is kept.
pub fn smallest() -> Vec<(&'static str, Value)> {
    let template = || json!({"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let once = || json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
    let selector = || json!({"matchLabels": {"app": "x"}});
    let reference = || json!({"kind": "Deployment", "name": "x", "apiVersion": "apps/v1"});
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"});
    let involved = json!({"kind": "Pod", "namespace": "default", "name": "x"});
    let schema = json!({"openAPIV3Schema": {"type": "object"}});
    vec![
        ("v1 ConfigMap", config_map("x", "1")),
        ("v1 Endpoints", json!({"subsets": [{"addresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 80}]}]})),
        ("v1 Event", json!({"involvedObject": involved, "reason": "R", "type": "Normal"})),
        ("v1 LimitRange", json!({"spec": {"limits": [{"type": "Pod", "max": {"cpu": "1"}}]}})),
        ("v1 Namespace", json!({})),
        ("v1 Node", json!({})),
        (
            "v1 PersistentVolume",
            json!({"spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"}}}),
        ),
        (
            "v1 PersistentVolumeClaim",
            json!({"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}),
        ),
        ("v1 Pod", pod("x")),
        ("v1 PodTemplate", json!({"template": template()})),
        ("v1 ReplicationController", json!({"spec": {"selector": {"app": "x"}, "template": template()}})),
        ("v1 ResourceQuota", json!({"spec": {"hard": {"pods": "10"}}})),
        ("v1 Secret", json!({"stringData": {"a": "b"}})),
        ("v1 ServiceAccount", json!({})),
        ("v1 Service", json!({"spec": {"ports": [{"port": 80}]}})),
        ("admissionregistration.k8s.io/v1 MutatingWebhookConfiguration", json!({})),
        (
            "admissionregistration.k8s.io/v1 ValidatingAdmissionPolicy",
            json!({"spec": {
                "matchConstraints": {"resourceRules": [
                    {"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}]},
                "validations": [{"expression": "object != null"}],
            }}),
        ),
        (
            "admissionregistration.k8s.io/v1 ValidatingAdmissionPolicyBinding",
            json!({"spec": {"policyName": "none", "validationActions": ["Deny"]}}),
        ),
        ("admissionregistration.k8s.io/v1 ValidatingWebhookConfiguration", json!({})),
        (
            "apiextensions.k8s.io/v1 CustomResourceDefinition",
            json!({
                "metadata": {"name": "xs.example.com"},
                "spec": {
                    "group": "example.com", "scope": "Cluster", "names": {"plural": "xs", "kind": "X"},
                    "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}],
                },
            }),
        ),
        (
            "apiregistration.k8s.io/v1 APIService",
            json!({
                "metadata": {"name": "v1.example.net"},
                "spec": {"group": "example.net", "version": "v1", "groupPriorityMinimum": 1, "versionPriority": 1},
            }),
        ),
        ("apps/v1 ControllerRevision", json!({"revision": 1, "data": {"spec": {}}})),
        ("apps/v1 DaemonSet", json!({"spec": {"selector": selector(), "template": template()}})),
        ("apps/v1 Deployment", deployment("x", 1)),
        ("apps/v1 ReplicaSet", json!({"spec": {"selector": selector(), "template": template()}})),
        (
            "apps/v1 StatefulSet",
            json!({"spec": {"serviceName": "x", "selector": selector(), "template": template()}}),
        ),
        (
            "autoscaling/v2 HorizontalPodAutoscaler",
            json!({"spec": {"scaleTargetRef": reference(), "maxReplicas": 3}}),
        ),
        (
            "autoscaling/v1 HorizontalPodAutoscaler",
            json!({"spec": {"scaleTargetRef": reference(), "maxReplicas": 3}}),
        ),
        (
            "batch/v1 CronJob",
            json!({"spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": once()}}}}),
        ),
        ("batch/v1 Job", json!({"spec": {"template": once()}})),
        (
            "certificates.k8s.io/v1 CertificateSigningRequest",
            json!({"spec": {"request": request(), "signerName": "example.com/signer", "usages": ["client auth"]}}),
        ),
        ("coordination.k8s.io/v1 Lease", json!({"spec": {"holderIdentity": "x"}})),
        (
            "discovery.k8s.io/v1 EndpointSlice",
            json!({"addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"]}], "ports": []}),
        ),
        (
            "events.k8s.io/v1 Event",
            json!({
                "eventTime": "2026-01-02T03:04:05.000006Z", "reportingController": "example.com/c", "reportingInstance": "i",
                "action": "A", "reason": "R", "type": "Normal", "regarding": involved,
            }),
        ),
        (
            "networking.k8s.io/v1 Ingress",
            json!({"spec": {"defaultBackend": {"service": {"name": "x", "port": {"number": 80}}}}}),
        ),
        ("networking.k8s.io/v1 IngressClass", json!({"spec": {"controller": "example.com/c"}})),
        (
            "networking.k8s.io/v1 IPAddress",
            json!({"metadata": {"name": "192.0.2.1"}, "spec": {"parentRef": {"resource": "services", "name": "x"}}}),
        ),
        ("networking.k8s.io/v1 ServiceCIDR", json!({"spec": {"cidrs": ["192.0.2.0/24"]}})),
        (
            "flowcontrol.apiserver.k8s.io/v1 FlowSchema",
            json!({"spec": {"priorityLevelConfiguration": {"name": "exempt"}}}),
        ),
        (
            "flowcontrol.apiserver.k8s.io/v1 PriorityLevelConfiguration",
            json!({"spec": {"type": "Limited", "limited": {"limitResponse": {"type": "Reject"}}}}),
        ),
        ("networking.k8s.io/v1 NetworkPolicy", json!({"spec": {"podSelector": {}}})),
        ("node.k8s.io/v1 RuntimeClass", json!({"handler": "runc"})),
        ("policy/v1 PodDisruptionBudget", json!({"spec": {"minAvailable": 1, "selector": selector()}})),
        ("rbac.authorization.k8s.io/v1 ClusterRole", json!({"rules": []})),
        ("rbac.authorization.k8s.io/v1 ClusterRoleBinding", json!({"roleRef": role, "subjects": []})),
        ("rbac.authorization.k8s.io/v1 Role", json!({"rules": []})),
        ("rbac.authorization.k8s.io/v1 RoleBinding", json!({"roleRef": role, "subjects": []})),
        ("resource.k8s.io/v1 DeviceClass", json!({"spec": {}})),
        ("resource.k8s.io/v1 ResourceClaim", json!({"spec": claim()})),
        ("resource.k8s.io/v1 ResourceClaimTemplate", json!({"spec": {"spec": claim()}})),
        (
            "resource.k8s.io/v1 ResourceSlice",
            json!({"spec": {
                "driver": "gpu.example.com", "nodeName": "n",
                "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1},
            }}),
        ),
        ("scheduling.k8s.io/v1 PriorityClass", json!({"value": 10})),
        ("storage.k8s.io/v1 CSIDriver", json!({"spec": {}})),
        ("storage.k8s.io/v1 CSINode", json!({"spec": {"drivers": []}})),
        ("storage.k8s.io/v1 CSIStorageCapacity", json!({"storageClassName": "x"})),
        ("storage.k8s.io/v1 StorageClass", json!({"provisioner": "example.com/p"})),
        (
            "storage.k8s.io/v1 VolumeAttachment",
            json!({"spec": {"attacher": "csi.example.com", "nodeName": "n", "source": {"persistentVolumeName": "v"}}}),
        ),
        (
            "storage.k8s.io/v1 VolumeAttributesClass",
            json!({"driverName": "csi.example.com", "parameters": {"iops": "100"}}),
        ),
        (
            "minik8s.io/v1 DNS",
            json!({"spec": {"host": "x.example.com", "subpaths": [{"path": "/", "service": "x", "port": 80}]}}),
        ),
        ("minik8s.io/v1 Function", json!({"spec": {"code": "def main(params): return params"}})),
        ("minik8s.io/v1 FunctionCall", json!({"spec": {"function": "x"}})),
        ("minik8s.io/v1 Workflow", json!({"spec": {"startAt": "a", "nodes": {"a": {}}}})),
        ("minik8s.io/v1 WorkflowRun", json!({"spec": {"workflow": "x"}})),
        (
            "minik8s.io/v1 WorkflowStep",
            json!({"spec": {"number": 1, "node": "a", "type": "Pass", "phase": "Succeeded"}}),
        ),
        ("minik8s.io/v1 WorkflowValue", json!({"spec": {"value": [1, null, "x"]}})),
    ]
}

/// A claim on a device.
fn claim() -> Value {
    json!({"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}]}})
}

/// A certificate request, in the base64 that the API has it in.
fn request() -> String {
    use base64::Engine as _;
    let key = pki::PrivateKey::generate().unwrap();
    let request = pki::request(&key, "x", &["system:nodes"], &[]).unwrap();
    base64::prelude::BASE64_STANDARD.encode(request)
}

pub fn collection(kind: &Kind) -> String {
    let root = if kind.group.is_empty() { "/api".to_owned() } else { format!("/apis/{}", kind.group) };
    let namespace = if kind.namespaced() { "/namespaces/default" } else { "" };
    format!("{root}/{}{namespace}/{}", kind.version, kind.plural)
}

/// Whether the server itself goes on to write the status of such an object.
pub fn is_followed(kind: &Kind) -> bool {
    matches!(kind.kind.as_str(), "CustomResourceDefinition" | "APIService" | "FlowSchema")
}

#[tokio::test]
async fn an_object_of_every_kind_lives_and_dies() {
    let examples = smallest();
    for engine in Engine::both() {
        let server = TestServer::start_on(engine).await;
        let http = server.http();
        for kind in kinds::all().iter().filter(|kind| kind.verbs == Verbs::All) {
            let id = format!("{} {}", kind.api_version(), kind.kind);
            let example = examples.iter().find(|(name, _)| *name == id);
            let (_, mut given) = example.cloned().unwrap_or_else(|| panic!("no example of {id}"));
            given["kind"] = kind.kind.as_str().into();
            given["apiVersion"] = kind.api_version().into();
            if given["metadata"].get("name").is_none() {
                given["metadata"] = json!({"name": "x"});
            }
            let name = object::name(&given).to_owned();
            let (all, one) = (collection(kind), format!("{}/{name}", collection(kind)));

            let answer = http.post(&format!("{all}?fieldValidation=Strict"), &given).await;
            assert_eq!(answer.code, 201, "{id}: {}", answer.text());
            let made = answer.json();
            contains(&id, "", &made, &given);
            let list = http.get(&all).await.expect(200);
            assert_eq!(list["kind"], kind.list_kind, "{id}");
            let listed = list["items"].as_array().unwrap().iter().find(|item| object::name(item) == name);
            if !is_followed(kind) {
                assert_eq!(http.get(&one).await.expect(200), made, "{id}");
                // The list says what its items are.
                let mut item = made.clone();
                item.as_object_mut().unwrap().retain(|name, _| name != "kind" && name != "apiVersion");
                assert_eq!(listed, Some(&item), "{id} is listed");
            }
            assert!(listed.is_some(), "{id} is listed");

            let mut changed = eventually(&id, async || {
                let mut latest = http.get(&one).await.expect(200);
                latest["metadata"]["labels"]["changed"] = "yes".into();
                let answer = http.put(&one, &latest).await;
                assert!(matches!(answer.code, 200 | 409), "{id}: {}", answer.text());
                (answer.code == 200).then(|| answer.json())
            })
            .await;
            assert_eq!(changed["metadata"]["labels"]["changed"], "yes", "{id}");
            if kind.custom.is_none() && !is_followed(kind) {
                for metadata in ["labels", "managedFields", "resourceVersion"] {
                    changed["metadata"][metadata] = made["metadata"][metadata].clone();
                }
                if kind.kind == "EndpointSlice" {
                    // Its generation counts changes of labels too, as upstream's does.
                    changed["metadata"]["generation"] = 1.into();
                }
                changed["metadata"].as_object_mut().unwrap().retain(|_, value| !value.is_null());
                assert_eq!(changed, made, "{id}: an update of labels changes nothing else");
            }
            let gone = http.delete(&one, &json!({"propagationPolicy": "Background"})).await;
            assert_eq!(gone.code, 200, "{id}: {}", gone.text());
            if kind.kind == "Namespace" {
                let going = http.get(&one).await.expect(200);
                assert_eq!(going["status"]["phase"], "Terminating");
                assert!(going["metadata"].get("deletionGracePeriodSeconds").is_none(), "{going}");
                continue;
            }
            if matches!(kind.kind.as_str(), "PersistentVolume" | "PersistentVolumeClaim") {
                // Nobody is there to see that it is not in use.
                http.patch(&one, "merge", &json!({"metadata": {"finalizers": null}})).await.expect(200);
            }
            eventually(&id, async || (http.get(&one).await.code == 404).then_some(())).await;
        }
    }
}

/// Everything that was given is there, as it was given; more may be there too.
fn contains(id: &str, path: &str, made: &Value, given: &Value) {
    match given {
        Value::Object(members) => {
            for (name, member) in members.iter().filter(|(name, _)| *name != "stringData") {
                contains(id, &format!("{path}.{name}"), &made[name], member);
            }
        }
        Value::Array(items) if made.as_array().is_some_and(|made| made.len() == items.len()) => {
            for (index, item) in items.iter().enumerate() {
                contains(id, &format!("{path}[{index}]"), &made[index], item);
            }
        }
        // An empty list may as well be left out.
        Value::Array(items) if items.is_empty() && made.is_null() => {}
        _ => assert_eq!(made, given, "{id}: {path}"),
    }
}
