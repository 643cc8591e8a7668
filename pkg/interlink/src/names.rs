//! Names that become parts of paths, checked before they do: nothing that a pod is called leads out of the data folder.

use k8s_openapi::api::core::v1::Pod;
use std::path::{Component, Path};

/// Who a pod is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodName {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
}

impl PodName {
    /// Of a pod whose names are as Kubernetes makes them.
    pub fn of(pod: &Pod) -> Result<PodName, String> {
        let meta = &pod.metadata;
        let part = |field: &str, value: &Option<String>| match value {
            Some(value) if is_part(value) => Ok(value.clone()),
            Some(value) => Err(format!(
                "metadata.{field}: {value:?} is not a name: letters, digits, '-' and '.' are allowed"
            )),
            None => Err(format!("metadata.{field} is missing")),
        };
        Ok(PodName {
            namespace: part("namespace", &meta.namespace)?,
            name: part("name", &meta.name)?,
            uid: part("uid", &meta.uid)?,
        })
    }
}

/// Whether a name can be a part of a path: no separators, no dots only.
pub fn is_part(name: &str) -> bool {
    let is_safe = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    !name.is_empty()
        && name.len() <= 253
        && name.bytes().all(is_safe)
        && name.bytes().any(|byte| byte != b'.')
}

/// Whether a path leads downwards only.
pub fn is_below(path: &str) -> bool {
    let is_step = |step: Component<'_>| matches!(step, Component::Normal(_));
    !path.is_empty()
        && !path.contains('\0')
        && path.len() <= 1024
        && Path::new(path).components().all(is_step)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn names_do_not_lead_elsewhere() {
        for good in ["a", "u1-2", "a.b", "..a", "A_b"] {
            assert!(is_part(good), "{good}");
        }
        for bad in ["", ".", "..", "...", "a/b", "../x", "a\0", "a b", "a\n", &"a".repeat(254)] {
            assert!(!is_part(bad), "{bad:?}");
        }
        for good in ["a", "a/b", "..a/b"] {
            assert!(is_below(good), "{good}");
        }
        for bad in ["", "/a", "a/../b", "..", "a\0b"] {
            assert!(!is_below(bad), "{bad:?}");
        }
        // A dot is no step of a path.
        assert!(is_below("a/./b"));
    }

    #[test]
    fn a_pod_without_names_is_refused() {
        let check = |meta: serde_json::Value, said: &str| {
            let pod = serde_json::from_value(json!({"metadata": meta})).unwrap();
            assert!(PodName::of(&pod).unwrap_err().contains(said), "{meta}");
        };
        check(json!({"name": "a", "namespace": "b"}), "metadata.uid is missing");
        check(json!({"name": "a", "namespace": "b", "uid": "../../etc"}), "metadata.uid");
        check(json!({"name": "a/b", "namespace": "b", "uid": "u"}), "metadata.name");
        check(json!({"name": "a", "namespace": "..", "uid": "u"}), "metadata.namespace");
    }
}
