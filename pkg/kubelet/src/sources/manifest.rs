//! A file becomes a static pod.

use crate::hash;
use api::field::{Errors, Field};
use k8s_openapi::api::core::v1::{Pod, Toleration};
use serde_json::Value;
use std::path::Path;

/// The annotation of a pod: where it comes from.
pub const SOURCE: &str = "kubernetes.io/config.source";
/// The annotation of a static pod: the hash of its file.
pub const HASH: &str = "kubernetes.io/config.hash";
/// The annotation of a static pod: when it was seen first.
pub const SEEN: &str = "kubernetes.io/config.seen";
/// The annotation of a mirror pod: the hash of the static pod's file.
pub const MIRROR: &str = "kubernetes.io/config.mirror";

/// Reads a manifest. An error: what is wrong with it.
pub(crate) fn parse(text: &str, path: &Path, node: &str) -> Result<Pod, String> {
    let mut object: Value = serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
    if object["kind"] != "Pod" {
        return Err(format!("expected an object of kind Pod, found {}", object["kind"]));
    }
    if object["apiVersion"] != "v1" {
        return Err(format!("expected apiVersion v1, found {}", object["apiVersion"]));
    }
    let uid = hash::of_bytes(format!("{node}\0{}\0{object}", path.display()).as_bytes());
    let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    if name.is_empty() {
        return Err("metadata.name: Required value".into());
    }
    let full = format!("{name}-{}", node.to_lowercase());
    object["metadata"]["name"] = full.into();
    if object["metadata"]["namespace"].as_str().unwrap_or_default().is_empty() {
        object["metadata"]["namespace"] = "default".into();
    }
    check(&mut object)?;
    let mut pod: Pod = serde_json::from_value(object).map_err(|error| error.to_string())?;
    pod.metadata.uid = Some(uid.clone());
    pod.status = None;
    let annotations = pod.metadata.annotations.get_or_insert_default();
    annotations.insert(SOURCE.into(), "file".into());
    annotations.insert(HASH.into(), uid);
    if let Some(spec) = &mut pod.spec {
        spec.node_name = Some(node.to_owned());
        let everything = Toleration {
            operator: Some("Exists".into()),
            effect: Some("NoExecute".into()),
            ..Toleration::default()
        };
        spec.tolerations.get_or_insert_default().push(everything);
    }
    Ok(pod)
}

/// Defaults and rules, the same as the apiserver's.
fn check(object: &mut Value) -> Result<(), String> {
    let kinds = api::kinds::all();
    let kind = kinds.iter().find(|kind| kind.kind == "Pod" && kind.group.is_empty());
    let kind = kind.ok_or("the kind Pod is missing")?;
    (kind.default)(object);
    let mut errors = Errors::new();
    let field = Field::root(object);
    (kind.validate)(&field, &mut errors);
    let errors = errors.into_vec();
    if errors.is_empty() {
        return Ok(());
    }
    let messages: Vec<String> =
        errors.iter().map(|error| format!("{}: {}", error.path, error.message())).collect();
    Err(messages.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec:\n  containers: [{name: c, image: busybox}]\n";

    #[test]
    fn a_file_becomes_a_pod_of_this_node() {
        let pod = parse(GOOD, Path::new("/m/web.yaml"), "N1").expect("a pod");
        assert_eq!(pod.metadata.name.as_deref(), Some("web-n1"));
        assert_eq!(pod.metadata.namespace.as_deref(), Some("default"));
        let spec = pod.spec.expect("a spec");
        assert_eq!(spec.restart_policy.as_deref(), Some("Always"), "defaults are set");
        let other = parse(&GOOD.replace("busybox", "nginx"), Path::new("/m/web.yaml"), "N1").expect("a pod");
        assert_ne!(other.metadata.uid, pod.metadata.uid, "another file, another pod");
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, said) in [
            ("kind: Pod\napiVersion: v1\nspec: {}\n", "metadata.name"),
            ("kind: Deployment\n", "kind Pod"),
            ("a: [", "line"),
            (&GOOD.replace("image: busybox", "image: \"\""), "spec.containers[0].image"),
        ] {
            let error = parse(text, Path::new("/m"), "n").expect_err("refused");
            assert!(error.contains(said), "{error}");
        }
    }
}
