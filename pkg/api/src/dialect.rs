//! The seed's shorthand: YAML that is almost Kubernetes' becomes Kubernetes' own, and what was understood is said.
//!
//! ```text
//! {kind: Deployment, metadata: {name: deployment_test}, spec: {template: …}}
//!     ──> apps/v1, name deployment-test, selector from the template's labels
//! ```
//!
//! The server speaks only the Kubernetes form, so this is for clients. An object that is Kubernetes' already comes out
//! as it went in.

mod slurm;

pub use slurm::{
    CODE as SLURM_CODE, CODE_PATH as SLURM_CODE_PATH, MAX_CODE_BYTES as MAX_SLURM_CODE_BYTES,
    NO_IMAGE as SLURM_NO_IMAGE, RESULT as SLURM_RESULT, RUN as SLURM_RUN,
};

use crate::names;
use crate::object::{object_mut, set_default};
use serde_json::{Map, Value, json};

/// Where the name is kept that an object had before it was mapped.
pub const ORIGINAL_NAME: &str = "minik8s.io/original-name";

/// An object in Kubernetes' own form.
#[derive(Debug, Clone, PartialEq)]
pub struct Translated {
    /// The object.
    pub value: Value,
    /// What was understood, in short sentences; empty if nothing had to be.
    pub notes: Vec<String>,
}

/// Why an object of the dialect cannot be translated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {what}")]
pub struct DialectError {
    /// Where.
    pub path: String,
    /// What is wrong there.
    pub what: String,
}

/// A name as Kubernetes takes it: `rr_one` is `rr-one`, `Add` is `add`. Good names stay.
pub fn map_name(name: &str) -> String {
    if names::dns_subdomain_name(name).is_ok() {
        return name.to_owned();
    }
    name.to_lowercase().replace('_', "-").trim_matches('-').to_owned()
}

/// Translates an object. `api_version` finds the version of a kind where the object does not say it.
pub fn translate(
    mut value: Value,
    api_version: impl Fn(&str) -> Option<String>,
) -> Result<Translated, DialectError> {
    let mut notes = Vec::new();
    let kind = value["kind"].as_str().unwrap_or_default().to_owned();
    if kind.is_empty() {
        return Err(DialectError { path: "kind".into(), what: "is missing".into() });
    }
    let is_seeds = value["apiVersion"].as_str().unwrap_or_default().is_empty();
    if is_seeds {
        let Some(version) = api_version(&kind) else {
            return Err(DialectError {
                path: "kind".into(),
                what: format!("the server has no kind {kind:?}"),
            });
        };
        notes.push(format!("apiVersion {version}"));
        value["apiVersion"] = version.into();
    }
    match kind.as_str() {
        "Workflow" => workflow(&mut value),
        "HorizontalPodAutoscaler" => autoscaler(&mut value, &mut notes)?,
        "Deployment" => selector(&mut value, &mut notes),
        "DNS" => services_of_dns(&mut value),
        "Node" => node(&mut value, &mut notes),
        "Job" => slurm::job(&mut value, &mut notes)?,
        _ => {}
    }
    for pod_spec in ["/spec", "/spec/template/spec"] {
        if (pod_spec == "/spec") == (kind == "Pod")
            && let Some(spec) = value.pointer_mut(pod_spec)
        {
            pod(spec, &mut notes);
            if is_seeds {
                images(spec, &mut notes);
            }
            if is_seeds && kind == "Deployment" {
                requests(spec, &mut notes);
            }
        }
    }
    // Names of roles are paths' segments: capitals and more are good in them.
    if !value["apiVersion"].as_str().is_some_and(|version| version.starts_with("rbac.")) {
        name(&mut value, &mut notes);
    }
    Ok(Translated { value, notes })
}

/// Maps the object's name, and keeps the original one.
fn name(value: &mut Value, notes: &mut Vec<String>) {
    let Some(original) = value["metadata"]["name"].as_str().map(str::to_owned) else { return };
    let mapped = map_name(&original);
    if mapped != original {
        notes.push(format!("name {mapped} for {original}"));
        value["metadata"]["name"] = mapped.into();
        let annotations = object_mut(&mut value["metadata"], "annotations");
        annotations.insert(ORIGINAL_NAME.into(), original.into());
    }
}

/// `hostPath: /a` is `hostPath: {path: /a}`; `200MiB` is `200Mi`.
fn pod(spec: &mut Value, notes: &mut Vec<String>) {
    for volume in elements(spec, "volumes") {
        if let Some(path) = volume["hostPath"].as_str().map(str::to_owned) {
            notes.push(format!("hostPath.path {path}"));
            volume["hostPath"] = json!({ "path": path });
        }
    }
    for list in ["initContainers", "containers"] {
        for container in elements(spec, list) {
            for kind in ["limits", "requests"] {
                let Some(resources) =
                    container.pointer_mut(&format!("/resources/{kind}")).and_then(Value::as_object_mut)
                else {
                    continue;
                };
                for quantity in resources.values_mut() {
                    let Some(text) = quantity.as_str() else { continue };
                    if let Some(kubernetes) = text.strip_suffix('B').filter(|rest| rest.ends_with('i')) {
                        notes.push(format!("{kubernetes} for {text}"));
                        *quantity = kubernetes.into();
                    }
                }
            }
        }
    }
}

/// The seed takes an image that is there; Kubernetes would ask a registry for each `latest`.
fn images(spec: &mut Value, notes: &mut Vec<String>) {
    let mut any = false;
    for list in ["initContainers", "containers"] {
        for container in elements(spec, list) {
            let Some(image) = container["image"].as_str() else { continue };
            let name = image.rsplit('/').next().unwrap_or(image);
            let is_latest =
                !name.contains('@') && name.split_once(':').is_none_or(|(_, tag)| tag == "latest");
            if is_latest && container.get("imagePullPolicy").is_none() {
                container["imagePullPolicy"] = "IfNotPresent".into();
                any = true;
            }
        }
    }
    if any {
        notes.push("imagePullPolicy IfNotPresent".into());
    }
}

/// What a container of the seed's Deployment asks for where it does not say: the seed's autoscaler counts in percent of it.
const REQUESTS: [(&str, &str); 2] = [("cpu", "100m"), ("memory", "100Mi")];

fn requests(spec: &mut Value, notes: &mut Vec<String>) {
    let mut given: Vec<String> = Vec::new();
    for container in elements(spec, "containers").filter(|container| container.is_object()) {
        for (resource, quantity) in REQUESTS {
            let is_set = |list: &str| !container["resources"][list][resource].is_null();
            if is_set("requests") || is_set("limits") {
                continue;
            }
            let resources = object_mut(container, "resources").entry("requests").or_insert_with(|| json!({}));
            let Some(requests) = resources.as_object_mut() else { continue };
            requests.insert(resource.into(), quantity.into());
            let note = format!("{resource} {quantity}");
            if !given.contains(&note) {
                given.push(note);
            }
        }
    }
    if !given.is_empty() {
        notes.push(format!("requests {} for containers that name none", given.join(" and ")));
    }
}

fn selector(value: &mut Value, notes: &mut Vec<String>) {
    let labels = value["spec"]["template"]["metadata"]["labels"].clone();
    if value["spec"].is_object() && value["spec"]["selector"].is_null() && labels.is_object() {
        value["spec"]["selector"] = json!({ "matchLabels": labels });
        notes.push("selector from the template's labels".into());
    }
    if let Some(template) = value["spec"]["template"].as_object_mut() {
        // A template is a pod's, whatever it says of itself.
        template.remove("kind");
        template.remove("apiVersion");
        if let Some(metadata) = template.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("name");
        }
    }
}

fn autoscaler(value: &mut Value, notes: &mut Vec<String>) -> Result<(), DialectError> {
    let Some(spec) = value["spec"].as_object_mut() else { return Ok(()) };
    if let Some(target) = spec.remove("targetRef") {
        spec.insert("scaleTargetRef".into(), target);
    }
    if let Some(target) = spec.get_mut("scaleTargetRef") {
        if target["kind"] == "Deployment" {
            set_default(target, "apiVersion", "apps/v1");
        }
        map_reference(target, "name");
    }
    for (index, metric) in
        spec.get_mut("metrics").and_then(Value::as_array_mut).into_iter().flatten().enumerate()
    {
        let resource = &metric["resource"];
        let Some(utilization) = resource.get("utilization").cloned() else { continue };
        if resource["strategy"].as_str().is_some_and(|strategy| strategy != "average") {
            let path = format!("spec.metrics[{index}].resource.strategy");
            let what = format!("{} is not supported; \"average\" is", resource["strategy"]);
            return Err(DialectError { path, what });
        }
        *metric = json!({"type": "Resource", "resource": {
            "name": resource["name"], "target": {"type": "Utilization", "averageUtilization": utilization},
        }});
    }
    let interval = spec.remove("scaleIntervel").or_else(|| spec.remove("scaleInterval"));
    if let Some(interval) = interval {
        let one_by_one = json!({
            "stabilizationWindowSeconds": 0,
            "policies": [{"type": "Pods", "value": 1, "periodSeconds": interval}],
        });
        spec.insert("behavior".into(), json!({"scaleUp": one_by_one, "scaleDown": one_by_one}));
        notes.push(format!("behavior: one pod every {interval} seconds"));
    }
    Ok(())
}

/// `startAt`, `params` and `nodes` stand at the top in the seed; nodes' `Type` is `type`.
fn workflow(value: &mut Value) {
    let Some(object) = value.as_object_mut() else { return };
    let moved: Map<String, Value> = ["startAt", "params", "nodes"]
        .into_iter()
        .filter_map(|field| object.remove(field).map(|value| (field.to_owned(), value)))
        .collect();
    object_mut(value, "spec").extend(moved);
    let spec = &mut value["spec"];
    // Nodes are named as their functions are.
    map_reference(spec, "startAt");
    let Some(nodes) = spec.get_mut("nodes").and_then(Value::as_object_mut) else { return };
    let renamed = std::mem::take(nodes).into_iter().map(|(name, mut node)| {
        if let Some(node) = node.as_object_mut()
            && let Some(kind) = node.remove("Type")
        {
            node.insert("type".into(), kind);
        }
        ["next", "default", "each"].iter().for_each(|field| map_reference(&mut node, field));
        for list in ["choices", "catch"] {
            elements(&mut node, list).for_each(|choice| map_reference(choice, "next"));
        }
        for branch in elements(&mut node, "branches") {
            if let Some(name) = branch.as_str().map(map_name) {
                *branch = name.into();
            }
        }
        (map_name(&name), node)
    });
    *nodes = renamed.collect();
}

fn services_of_dns(value: &mut Value) {
    if let Some(spec) = value.get_mut("spec") {
        elements(spec, "subpaths").for_each(|subpath| map_reference(subpath, "service"));
    }
}

/// A machine becomes a node by joining; its YAML only says what it is called.
fn node(value: &mut Value, notes: &mut Vec<String>) {
    let Some(spec) = value["spec"].as_object_mut() else { return };
    if spec.remove("masterIp").is_some() | spec.remove("nodeIp").is_some() | spec.remove("token").is_some() {
        notes.push("the machine itself joins with kubeadm join --config=FILE".into());
    }
}

fn map_reference(value: &mut Value, field: &str) {
    if let Some(mapped) = value.get(field).and_then(Value::as_str).map(map_name) {
        value[field] = mapped.into();
    }
}

fn elements<'a>(value: &'a mut Value, list: &str) -> impl Iterator<Item = &'a mut Value> {
    value.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(given: Value, expected: Value) {
        let versions = |kind: &str| {
            let version = match kind {
                "Pod" | "Service" | "Node" => "v1",
                "Deployment" => "apps/v1",
                "HorizontalPodAutoscaler" => "autoscaling/v2",
                "DNS" | "Workflow" => "minik8s.io/v1",
                _ => return None,
            };
            Some(version.to_owned())
        };
        assert_eq!(translate(given, versions).expect("understood").value, expected);
    }

    #[test]
    fn names_are_mapped_and_kept() {
        let names =
            [("rr_one", "rr-one"), ("servicePodTest", "servicepodtest"), ("web.1", "web.1"), ("Add", "add")];
        for (name, mapped) in names {
            assert_eq!(map_name(name), mapped);
            assert_eq!(map_name(mapped), mapped);
        }
        check(
            json!({"kind": "Service", "metadata": {"name": "servicePodTest"}, "spec": {}}),
            json!({"apiVersion": "v1", "kind": "Service", "spec": {}, "metadata": {
                "name": "servicepodtest", "annotations": {ORIGINAL_NAME: "servicePodTest"}}}),
        );
    }

    #[test]
    fn a_pods_shorthand_is_understood() {
        check(
            json!({"kind": "Pod", "metadata": {"name": "a"}, "spec": {
                "volumes": [{"name": "v", "hostPath": "/root/test_vo"}],
                "containers": [{"name": "c", "resources": {"limits": {"memory": "200MiB", "cpu": "0.5"}}}]}}),
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {
                "volumes": [{"name": "v", "hostPath": {"path": "/root/test_vo"}}],
                "containers": [{"name": "c", "resources": {"limits": {"memory": "200Mi", "cpu": "0.5"}}}]}}),
        );
    }

    #[test]
    fn the_seeds_images_are_pulled_only_if_they_are_not_there() {
        let container = |image: &str| json!({"name": "c", "image": image});
        let taken = |image: &str| json!({"name": "c", "image": image, "imagePullPolicy": "IfNotPresent"});
        let pod = |containers: Value| json!({"kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": containers}});
        let mut expected = pod(json!([
            taken("golang:latest"),
            taken("h:5000/x"),
            container("nginx:1"),
            container("x@sha256:0")
        ]));
        expected["apiVersion"] = "v1".into();
        let given = ["golang:latest", "h:5000/x", "nginx:1", "x@sha256:0"].map(container);
        check(pod(json!(given)), expected);
    }

    #[test]
    fn the_seeds_deployments_ask_for_what_its_autoscaler_counts_in() {
        let of = |version: Option<&str>, resources: Value| {
            let mut given = json!({"kind": "Deployment", "metadata": {"name": "d"}, "spec": {"selector": {},
                "template": {"spec": {"containers": [{"name": "c", "resources": resources}]}}}});
            if let Some(version) = version {
                given["apiVersion"] = version.into();
            }
            let translated = translate(given, |_| Some("apps/v1".into())).expect("understood");
            let container = &translated.value["spec"]["template"]["spec"]["containers"][0];
            (container["resources"].clone(), translated.notes.join(", "))
        };
        let both = json!({"requests": {"cpu": "100m", "memory": "100Mi"}});
        let (resources, notes) = of(None, Value::Null);
        assert_eq!(resources, both);
        assert!(
            notes.contains("requests cpu 100m and memory 100Mi for containers that name none"),
            "{notes}"
        );
        let limited = json!({"limits": {"memory": "1Gi"}});
        let expected = json!({"limits": {"memory": "1Gi"}, "requests": {"cpu": "100m"}});
        assert_eq!(of(None, limited).0, expected);
        assert_eq!(of(None, both.clone()), (both, "apiVersion apps/v1".to_owned()));
        assert_eq!(of(Some("apps/v1"), Value::Null), (Value::Null, String::new()), "Kubernetes' own");
    }

    #[test]
    fn a_deployment_selects_its_own_pods() {
        let labels = json!({"app": "x"});
        check(
            json!({"kind": "Deployment", "metadata": {"name": "d"}, "spec": {
                "template": {"kind": "Pod", "metadata": {"name": "test", "labels": labels}, "spec": {}}}}),
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {
                "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": {}}}}),
        );
    }

    #[test]
    fn an_autoscaler_has_one_pod_per_interval() {
        let given = json!({"kind": "HorizontalPodAutoscaler", "metadata": {"name": "a"}, "spec": {
            "maxReplicas": 3, "minReplicas": 1, "scaleIntervel": 10,
            "scaleTargetRef": {"kind": "Deployment", "name": "deployment_test"},
            "metrics": [{"resource": {"name": "cpu", "strategy": "average", "utilization": 20}}]}});
        let behavior = json!({"stabilizationWindowSeconds": 0, "policies": [{"type": "Pods", "value": 1, "periodSeconds": 10}]});
        check(
            given,
            json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "a"}, "spec": {
                "maxReplicas": 3, "minReplicas": 1, "behavior": {"scaleUp": behavior, "scaleDown": behavior},
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "deployment-test"},
                "metrics": [{"type": "Resource", "resource": {
                    "name": "cpu", "target": {"type": "Utilization", "averageUtilization": 20}}}]}}),
        );
    }

    #[test]
    fn a_workflows_graph_stands_in_its_spec() {
        check(
            json!({"kind": "Workflow", "metadata": {"name": "w"}, "startAt": "Add", "params": {"x": 1},
                "nodes": {"Add": {"Type": "Task", "next": "Sub"}, "Sub": {"type": "Task"}}}),
            json!({"apiVersion": "minik8s.io/v1", "kind": "Workflow", "metadata": {"name": "w"}, "spec": {
                "startAt": "add", "params": {"x": 1},
                "nodes": {"add": {"type": "Task", "next": "sub"}, "sub": {"type": "Task"}}}}),
        );
    }

    #[test]
    fn what_cannot_be_done_is_refused_by_its_field() {
        let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "g"}, "spec": {"partition": "dgx2"}});
        let error = translate(job, |_| None).expect_err("refused");
        assert_eq!(error.path, "spec.codePath");
        let error = translate(json!({"metadata": {}}), |_| None).expect_err("refused");
        assert_eq!(error.to_string(), "kind: is missing");
    }

    #[test]
    fn kubernetes_own_objects_stay_as_they_are() {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {
            "volumes": [{"name": "v", "hostPath": {"path": "/a"}}], "containers": [{"name": "c"}]}});
        let translated = translate(pod.clone(), |_| None).expect("understood");
        assert_eq!(translated, Translated { value: pod, notes: Vec::new() });
    }
}
