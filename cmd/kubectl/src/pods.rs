//! The pods that words mean, and their containers, for commands that reach into pods.

use crate::connection::Connection;
use crate::resources::Resource;
use crate::select::{self, SelectFlags, encode, name_of};
use anyhow::{Context, Result, bail};
use api::object;
use serde_json::{Value, json};
use std::time::Duration;

const DEFAULT_CONTAINER: &str = "kubectl.kubernetes.io/default-container";

/// What pods are to the API: no need to ask the server.
pub fn resource() -> Resource {
    Resource {
        version: "v1".into(),
        plural: "pods".into(),
        singular: "pod".into(),
        kind: "Pod".into(),
        namespaced: true,
        ..Resource::default()
    }
}

/// The path of a pod.
pub fn path(connection: &Connection, name: &str) -> String {
    format!("/api/v1/namespaces/{}/pods/{name}", connection.namespace)
}

/// The pods of `web`, `pod/web`, or what selects pods, such as `deployment/web`; those that are most ready first.
pub async fn of_word(connection: &Connection, word: &str) -> Result<Vec<Value>> {
    let (kind, name) = word.split_once('/').unwrap_or(("pod", word));
    if matches!(kind, "pod" | "pods" | "po") {
        let pod = connection.get(&path(connection, &api::dialect::map_name(name))).await?;
        crate::manifests::check_asked(name, &pod)?;
        return Ok(vec![pod]);
    }
    let select = SelectFlags { words: vec![word.to_owned()], ..SelectFlags::default() };
    let found = select::objects(connection, &select).await?;
    let (resource, object) = found.first().with_context(|| format!("{word} is not there"))?;
    let selector = selector_of(object).with_context(|| {
        format!("cannot find pods of {}: it selects none", resource.named(name_of(object)))
    })?;
    let mut pods = selected(connection, &selector).await?;
    pods.sort_by_key(readiness);
    if pods.is_empty() {
        bail!("no pods found for {}", resource.named(name_of(object)));
    }
    Ok(pods)
}

/// The pods with labels.
pub async fn selected(connection: &Connection, selector: &str) -> Result<Vec<Value>> {
    let path = format!("/api/v1/namespaces/{}/pods?labelSelector={}", connection.namespace, encode(selector));
    let list = connection.get(&path).await?;
    Ok(list["items"].as_array().cloned().unwrap_or_default())
}

/// The labels of an object's pods, as a query says them.
pub fn selector_of(object: &Value) -> Option<String> {
    let selector = object.get("spec")?.get("selector")?;
    let pairs = selector.get("matchLabels").unwrap_or(selector).as_object();
    let mut parts: Vec<String> = pairs
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| Some(format!("{key}={}", value.as_str()?)))
        .collect();
    for rule in selector["matchExpressions"].as_array().into_iter().flatten() {
        let key = rule["key"].as_str()?;
        let values: Vec<&str> =
            rule["values"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        parts.push(match rule["operator"].as_str()? {
            "In" => format!("{key} in ({})", values.join(",")),
            "NotIn" => format!("{key} notin ({})", values.join(",")),
            "Exists" => key.to_owned(),
            _ => format!("!{key}"),
        });
    }
    (!parts.is_empty()).then(|| parts.join(","))
}

/// Which pod to take first: one that runs and is ready, and stays.
fn readiness(pod: &Value) -> (bool, bool, bool) {
    let is_ready = object::condition_is(pod, "Ready", "True");
    (pod["metadata"]["deletionTimestamp"].is_string(), pod["status"]["phase"] != "Running", !is_ready)
}

/// The one pod that a command is about. It must not have ended.
pub async fn running(connection: &Connection, word: &str, timeout: Duration) -> Result<Value> {
    let Some(mut pod) = of_word(connection, word).await?.into_iter().next() else {
        bail!("{word} has no pods")
    };
    let path = path(connection, name_of(&pod));
    let waiting = async {
        let mut is_told = false;
        while pod["status"]["phase"].as_str().unwrap_or("Pending") == "Pending" {
            if let Some(note) = pull_note(&pod).filter(|_| !is_told) {
                eprintln!("Note: {note}");
                is_told = true;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
            pod = connection.get(&path).await?;
        }
        Ok(pod)
    };
    match tokio::time::timeout(timeout, waiting).await {
        Ok(pod) => pod,
        Err(_) => bail!("timed out waiting for the condition"),
    }
}

/// Why a pod has no image, and what to do about it.
fn pull_note(pod: &Value) -> Option<String> {
    let is_stuck = |status: &&Value| {
        matches!(status["state"]["waiting"]["reason"].as_str(), Some("ErrImagePull" | "ImagePullBackOff"))
    };
    let stuck = pod["status"]["containerStatuses"].as_array()?.iter().find(is_stuck)?;
    let container = pod["spec"]["containers"].as_array()?.iter().find(|own| own["name"] == stuck["name"])?;
    let image = container["image"].as_str().unwrap_or_default();
    let hint = match container["imagePullPolicy"].as_str() {
        Some("Always") => format!("; {ALWAYS_PULLED}"),
        _ => String::new(),
    };
    Some(format!("image {image:?} cannot be pulled{hint}"))
}

/// What who has no registry must know of images without a tag.
pub const ALWAYS_PULLED: &str = "an image without a tag, or with :latest, is asked for at a registry each time (imagePullPolicy Always): \
    with --image-pull-policy=IfNotPresent one that is on the node is taken";

/// Whether nothing but an image's tag decides that it is always pulled.
pub fn is_always_pulled(image: &str) -> bool {
    let name = image.rsplit('/').next().unwrap_or(image);
    !name.contains('@') && name.split_once(':').is_none_or(|(_, tag)| tag == "latest")
}

/// The names of all containers of a pod: its own, then those that run first, then those added while it runs.
pub fn containers(pod: &Value) -> Vec<&str> {
    ["containers", "initContainers", "ephemeralContainers"]
        .iter()
        .filter_map(|field| pod["spec"][field].as_array())
        .flatten()
        .filter_map(|container| container["name"].as_str())
        .collect()
}

/// Gives a container the variables of `--env KEY=VALUE`, if there are any.
pub fn set_env(container: &mut Value, pairs: &[String]) -> Result<()> {
    let variable = |pair: &String| {
        let (name, value) = pair.split_once('=').with_context(|| format!("invalid env: {pair}"))?;
        Ok(json!({"name": name, "value": value}))
    };
    if !pairs.is_empty() {
        container["env"] = pairs.iter().map(variable).collect::<Result<_>>()?;
    }
    Ok(())
}

/// The container that is meant where none is named: what the pod says, or its first; that others exist is told.
pub fn default_container(pod: &Value, quiet: bool) -> Result<String> {
    let all = containers(pod);
    if let Some(named) =
        pod["metadata"]["annotations"][DEFAULT_CONTAINER].as_str().filter(|name| !name.is_empty())
    {
        if all.contains(&named) {
            return Ok(named.to_owned());
        }
        eprintln!("Default container name {named:?} not found in pod {}", name_of(pod));
    }
    let first = all.first().with_context(|| format!("pod {} has no containers", name_of(pod)))?;
    if all.len() > 1 && !quiet {
        let init = pod["spec"]["initContainers"].as_array().into_iter().flatten();
        let init: Vec<&str> = init.filter_map(|container| container["name"].as_str()).collect();
        let shown: Vec<String> = all
            .iter()
            .map(|name| if init.contains(name) { format!("{name} (init)") } else { (*name).to_owned() })
            .collect();
        eprintln!("Defaulted container \"{first}\" out of: {}", shown.join(", "));
    }
    Ok((*first).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn selectors_of_services_and_workloads() {
        let check = |object: Value, expected: Option<&str>| {
            assert_eq!(selector_of(&object).as_deref(), expected, "{object}");
        };
        check(json!({"spec": {"selector": {"app": "web"}}}), Some("app=web"));
        check(json!({"spec": {"selector": {"matchLabels": {"a": "b", "c": "d"}}}}), Some("a=b,c=d"));
        let rules = json!([{"key": "x", "operator": "In", "values": ["1", "2"]}, {"key": "y", "operator": "DoesNotExist"}]);
        check(
            json!({"spec": {"selector": {"matchLabels": {"a": "b"}, "matchExpressions": rules}}}),
            Some("a=b,x in (1,2),!y"),
        );
        check(json!({"spec": {}}), None);
    }

    #[test]
    fn the_pod_may_say_which_container_is_meant() {
        let mut pod =
            json!({"metadata": {"name": "web"}, "spec": {"containers": [{"name": "a"}, {"name": "b"}]}});
        assert_eq!(default_container(&pod, true).expect("one"), "a");
        pod["metadata"]["annotations"][DEFAULT_CONTAINER] = "b".into();
        assert_eq!(default_container(&pod, true).expect("one"), "b");
        pod["metadata"]["annotations"][DEFAULT_CONTAINER] = "c".into();
        assert_eq!(default_container(&pod, true).expect("one"), "a");
    }

    #[test]
    fn pods_that_are_ready_come_first() {
        let pod = |name: &str, phase: &str, ready: &str| json!({"metadata": {"name": name}, "status": {"phase": phase, "conditions": [{"type": "Ready", "status": ready}]}});
        let mut pods =
            [pod("a", "Pending", "False"), pod("b", "Running", "False"), pod("c", "Running", "True")];
        pods.sort_by_key(readiness);
        assert_eq!(pods.iter().map(name_of).collect::<Vec<_>>(), ["c", "b", "a"]);
    }
}
