//! What a kustomization changes in its objects.

use super::{Built, elements, texts};
use anyhow::{Context, Result, bail};
use serde_json::{Map, Value, json};
use std::path::Path;

/// Kinds that live in no namespace.
const CLUSTER_WIDE: [&str; 13] = [
    "Namespace",
    "Node",
    "PersistentVolume",
    "ClusterRole",
    "ClusterRoleBinding",
    "CustomResourceDefinition",
    "StorageClass",
    "PriorityClass",
    "IngressClass",
    "RuntimeClass",
    "CSIDriver",
    "CSINode",
    "VolumeAttachment",
];

pub fn apply(spec: &Value, folder: &Path, objects: &mut Vec<Built>) -> Result<()> {
    for patch in texts(&spec["patchesStrategicMerge"]) {
        let text = if patch.contains('\n') { patch.to_owned() } else { read(folder, patch)? };
        apply_patch(&text, &Value::Null, objects).context("patchesStrategicMerge")?;
    }
    for field in ["patches", "patchesJson6902"] {
        for (index, patch) in elements(&spec[field]).enumerate() {
            let text = match (patch["patch"].as_str(), patch["path"].as_str()) {
                (Some(text), None) => text.to_owned(),
                (None, Some(path)) => read(folder, path)?,
                _ => bail!("{field}[{index}]: expected one of patch and path"),
            };
            apply_patch(&text, &patch["target"], objects).with_context(|| format!("{field}[{index}]"))?;
        }
    }
    if let Some(namespace) = spec["namespace"].as_str() {
        objects.iter_mut().for_each(|built| set_namespace(built, namespace));
    }
    let affix = |field: &str| spec[field].as_str().unwrap_or_default();
    rename(objects, affix("namePrefix"), affix("nameSuffix"));
    labels(spec, objects);
    if let Some(annotations) = spec["commonAnnotations"].as_object() {
        objects.iter_mut().for_each(|built| annotate(&mut built.value, annotations));
    }
    replicas(spec, objects)?;
    elements(&spec["images"])
        .for_each(|image| objects.iter_mut().for_each(|built| set_image(&mut built.value, image)));
    Ok(())
}

fn read(folder: &Path, path: &str) -> Result<String> {
    let path = folder.join(path);
    std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))
}

/// A patch is a list of operations, or objects to merge.
fn apply_patch(text: &str, target: &Value, objects: &mut Vec<Built>) -> Result<()> {
    let unread = || anyhow::anyhow!("the patch is empty");
    let first = crate::yaml::parse(text).ok().flatten().map(|node| node.resolve(crate::yaml::Unknown));
    if let Some(Value::Array(operations)) = first {
        let mut found = false;
        for built in objects.iter_mut().filter(|built| is_target(built, target)) {
            found = true;
            built.value = patch::json_patch(built.value.take(), &Value::Array(operations.clone()))?;
        }
        if !found || target.is_null() {
            bail!("no object is its target");
        }
        return Ok(());
    }
    let documents = crate::documents::parse(text, "patch");
    if documents.is_empty() {
        return Err(unread());
    }
    for document in documents {
        let patch = document?.value;
        let wanted = if target.is_null() {
            json!({"kind": patch["kind"], "name": patch["metadata"]["name"]})
        } else {
            target.clone()
        };
        let matching: Vec<usize> = objects
            .iter()
            .enumerate()
            .filter(|(_, built)| is_target(built, &wanted))
            .map(|(index, _)| index)
            .collect();
        if matching.is_empty() {
            bail!("no matches for {} {}", wanted["kind"], wanted["name"]);
        }
        for index in matching.into_iter().rev() {
            if patch["$patch"] == "delete" {
                objects.remove(index);
                continue;
            }
            let own = objects[index].value.clone();
            objects[index].value = merged(own.clone(), patch.clone())?;
            // The target says which object it is; the patch only had to be addressed.
            objects[index].value["kind"] = own["kind"].clone();
            objects[index].value["metadata"]["name"] = own["metadata"]["name"].clone();
        }
    }
    Ok(())
}

/// A kind that is known is merged as the server would; of others lists are replaced whole.
fn merged(object: Value, patch: Value) -> Result<Value> {
    let (version, kind) = (object["apiVersion"].as_str(), object["kind"].as_str());
    let known = api::kinds::all()
        .iter()
        .find(|known| Some(known.api_version().as_str()) == version && Some(known.kind.as_str()) == kind);
    let unknown = api::Schema::default();
    let schema = known.map_or(&unknown, |known| known.schema());
    Ok(patch::strategic_merge_patch(schema, object, patch)?)
}

fn is_target(built: &Built, target: &Value) -> bool {
    let (group, version) = {
        let own = built.value["apiVersion"].as_str().unwrap_or_default();
        own.rsplit_once('/').unwrap_or(("", own))
    };
    let own_name = built.value["metadata"]["name"].as_str().unwrap_or_default();
    let fits = |field: &str, own: &str| {
        target[field].as_str().is_none_or(|wanted| {
            wanted == own
                || (field == "name" || field == "kind") && wanted.contains(".*") && simple_match(wanted, own)
        })
    };
    let has = |field: &str, own: &Value| {
        target[field].as_str().is_none_or(|selector| {
            selector.split(',').all(|part| match part.split_once('=') {
                Some((key, value)) => own[key.trim()].as_str() == Some(value.trim_start_matches('=').trim()),
                None => own.get(part.trim()).is_some(),
            })
        })
    };
    fits("group", group)
        && fits("version", version)
        && fits("kind", built.kind())
        && (fits("name", own_name) || built.names.iter().any(|name| fits("name", name)))
        && fits("namespace", built.value["metadata"]["namespace"].as_str().unwrap_or_default())
        && has("labelSelector", &built.value["metadata"]["labels"])
        && has("annotationSelector", &built.value["metadata"]["annotations"])
}

/// `.*` is anything; targets' names are patterns.
fn simple_match(pattern: &str, name: &str) -> bool {
    let parts: Vec<&str> = pattern.split(".*").collect();
    let (Some(first), Some(last)) = (parts.first(), parts.last()) else { return false };
    let mut rest = match name.strip_prefix(first) {
        Some(rest) => rest,
        None => return false,
    };
    for part in parts.iter().skip(1) {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    name.ends_with(last)
}

fn set_namespace(built: &mut Built, namespace: &str) {
    let kind = built.kind().to_owned();
    if kind == "Namespace" {
        built.value["metadata"]["name"] = namespace.into();
    } else if !CLUSTER_WIDE.contains(&kind.as_str()) {
        built.value["metadata"]["namespace"] = namespace.into();
    }
    if kind.ends_with("RoleBinding") {
        for subject in built.value["subjects"].as_array_mut().into_iter().flatten() {
            if subject["kind"] == "ServiceAccount"
                && (subject["name"] == "default" || subject.get("namespace").is_some())
            {
                subject["namespace"] = namespace.into();
            }
        }
    }
}

fn rename(objects: &mut [Built], prefix: &str, suffix: &str) {
    for built in objects {
        if matches!(built.kind(), "Namespace" | "CustomResourceDefinition") {
            continue;
        }
        let name = built.value["metadata"]["name"].as_str().unwrap_or_default();
        built.value["metadata"]["name"] = format!("{prefix}{name}{suffix}").into();
    }
}

fn labels(spec: &Value, objects: &mut [Built]) {
    let mut all: Vec<(&Map<String, Value>, bool, bool)> = Vec::new();
    all.extend(spec["commonLabels"].as_object().map(|pairs| (pairs, true, true)));
    for entry in elements(&spec["labels"]) {
        let selectors = entry["includeSelectors"] == true;
        all.extend(
            entry["pairs"]
                .as_object()
                .map(|pairs| (pairs, selectors, selectors || entry["includeTemplates"] == true)),
        );
    }
    for (pairs, in_selectors, in_templates) in all {
        for built in objects.iter_mut() {
            label(&mut built.value, pairs, in_selectors, in_templates);
        }
    }
}

fn label(object: &mut Value, pairs: &Map<String, Value>, in_selectors: bool, in_templates: bool) {
    let kind = object["kind"].as_str().unwrap_or_default().to_owned();
    insert_at(object, "/metadata", "labels", pairs);
    let template = if kind == "CronJob" {
        "/spec/jobTemplate/spec/template/metadata"
    } else {
        "/spec/template/metadata"
    };
    let is_workload = object.pointer(template.trim_end_matches("/metadata")).is_some_and(Value::is_object);
    if in_templates && is_workload {
        insert_at(object, template, "labels", pairs);
        if kind == "CronJob" {
            insert_at(object, "/spec/jobTemplate/metadata", "labels", pairs);
        }
    }
    if in_selectors {
        match kind.as_str() {
            "Service" if object["spec"]["selector"].is_object() => {
                insert_at(object, "/spec", "selector", pairs)
            }
            "ReplicationController" => insert_at(object, "/spec", "selector", pairs),
            "Deployment" | "ReplicaSet" | "DaemonSet" | "StatefulSet" => {
                insert_at(object, "/spec/selector", "matchLabels", pairs);
            }
            "Job" | "CronJob" | "PodDisruptionBudget" | "NetworkPolicy" => {
                let at = match kind.as_str() {
                    "CronJob" => "/spec/jobTemplate/spec/selector",
                    "NetworkPolicy" => "/spec/podSelector",
                    _ => "/spec/selector",
                };
                if object.pointer(at).is_some_and(|selector| selector["matchLabels"].is_object()) {
                    insert_at(object, at, "matchLabels", pairs);
                }
            }
            _ => {}
        }
    }
}

fn annotate(object: &mut Value, pairs: &Map<String, Value>) {
    insert_at(object, "/metadata", "annotations", pairs);
    for template in ["/spec/template", "/spec/jobTemplate", "/spec/jobTemplate/spec/template"] {
        if object.pointer(template).is_some_and(Value::is_object) {
            insert_at(object, &format!("{template}/metadata"), "annotations", pairs);
        }
    }
}

/// Adds pairs to a map below a path, both of which are made where they are not there.
fn insert_at(object: &mut Value, path: &str, field: &str, pairs: &Map<String, Value>) {
    let mut at = object;
    for step in path.split('/').skip(1).chain([field]) {
        if !at[step].is_object() {
            at[step] = json!({});
        }
        at = &mut at[step];
    }
    for (key, value) in pairs {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        at[key] = value.into();
    }
}

fn replicas(spec: &Value, objects: &mut [Built]) -> Result<()> {
    for entry in elements(&spec["replicas"]) {
        let name = entry["name"].as_str().context("replicas: name is missing")?;
        let mut found = false;
        for built in objects.iter_mut() {
            let is_scaled =
                matches!(built.kind(), "Deployment" | "ReplicaSet" | "StatefulSet" | "ReplicationController");
            if is_scaled && (built.is_called(name) || built.value["metadata"]["name"] == name) {
                built.value["spec"]["replicas"] = entry["count"].clone();
                found = true;
            }
        }
        if !found {
            bail!("replicas: no workload is called {name:?}");
        }
    }
    Ok(())
}

fn set_image(value: &mut Value, image: &Value) {
    match value {
        Value::Object(fields) => {
            for (field, value) in fields {
                if matches!(field.as_str(), "containers" | "initContainers") {
                    for container in value.as_array_mut().into_iter().flatten() {
                        let replaced = container["image"].as_str().and_then(|own| replaced(own, image));
                        if let Some(replaced) = replaced {
                            container["image"] = replaced.into();
                        }
                    }
                } else {
                    set_image(value, image);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| set_image(item, image)),
        _ => {}
    }
}

fn replaced(own: &str, image: &Value) -> Option<String> {
    let (without_digest, digest) = own.split_once('@').map_or((own, ""), |(name, digest)| (name, digest));
    let slash = without_digest.rfind('/').map_or(0, |at| at + 1);
    let colon = without_digest[slash..].find(':').map(|at| slash + at);
    let (name, tag) =
        colon.map_or((without_digest, ""), |at| (&without_digest[..at], &without_digest[at + 1..]));
    if image["name"].as_str() != Some(name) {
        return None;
    }
    let text = |field: &str| match &image[field] {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    };
    let new_name = text("newName").unwrap_or_else(|| name.to_owned());
    Some(match (text("digest"), text("newTag")) {
        (Some(digest), _) => format!("{new_name}@{digest}"),
        (None, Some(tag)) => format!("{new_name}:{tag}"),
        (None, None) if !digest.is_empty() => format!("{new_name}@{digest}"),
        (None, None) if !tag.is_empty() => format!("{new_name}:{tag}"),
        (None, None) => new_name,
    })
}
