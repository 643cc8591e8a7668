//! Names that were changed, and everything that refers to them.

use super::{Built, generators};
use serde_json::Value;

/// Adds hashes to names, and makes references follow all names that changed since the objects were read.
pub fn rename(objects: &mut [Built]) {
    for built in objects.iter_mut().filter(|built| built.needs_hash) {
        let name = built.value["metadata"]["name"].as_str().unwrap_or_default();
        built.value["metadata"]["name"] = format!("{name}-{}", generators::hash(&built.value)).into();
        built.needs_hash = false;
    }
    let mut renamed: Vec<(String, String, String)> = Vec::new();
    for built in objects.iter() {
        let now = built.value["metadata"]["name"].as_str().unwrap_or_default();
        let before = built.names.iter().filter(|before| *before != now);
        renamed.extend(before.map(|before| (built.kind().to_owned(), before.clone(), now.to_owned())));
    }
    let now = |kind: &str, before: &str| {
        renamed.iter().find(|(own, name, _)| own == kind && name == before).map(|(.., now)| now.clone())
    };
    for built in objects.iter_mut() {
        let kind = built.kind().to_owned();
        for (field, value) in built.value.as_object_mut().into_iter().flatten() {
            if field != "metadata" {
                follow(&kind, field, value, &now);
            }
        }
        let now = built.value["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        if !built.is_called(&now) {
            built.names.push(now);
        }
    }
}

/// Visits a field and all below it.
fn follow(kind: &str, field: &str, value: &mut Value, now: &impl Fn(&str, &str) -> Option<String>) {
    let own_kind = value["kind"].as_str().unwrap_or_default().to_owned();
    let refers: &[(&str, &str)] = match field {
        "configMap" | "configMapRef" | "configMapKeyRef" => &[("name", "ConfigMap")],
        "secretRef" | "secretKeyRef" | "imagePullSecrets" | "secrets" => &[("name", "Secret")],
        "secret" => &[("secretName", "Secret"), ("name", "Secret")],
        "tls" => &[("secretName", "Secret")],
        "persistentVolumeClaim" => &[("claimName", "PersistentVolumeClaim")],
        "service" if kind == "Ingress" => &[("name", "Service")],
        "subpaths" if kind == "DNS" => &[("service", "Service")],
        "spec" => &[
            ("serviceAccountName", "ServiceAccount"),
            ("serviceAccount", "ServiceAccount"),
            ("serviceName", "Service"),
            ("priorityClassName", "PriorityClass"),
            ("storageClassName", "StorageClass"),
            ("ingressClassName", "IngressClass"),
        ],
        "scaleTargetRef" | "roleRef" | "subjects" => &[("name", "")],
        _ => &[],
    };
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| follow(kind, field, item, now)),
        Value::Object(fields) => {
            for (name, wanted) in refers {
                let wanted = if wanted.is_empty() { own_kind.as_str() } else { wanted };
                let found = fields.get(*name).and_then(Value::as_str).and_then(|name| now(wanted, name));
                if let Some(found) = found {
                    fields.insert((*name).to_owned(), found.into());
                }
            }
            fields.iter_mut().for_each(|(field, value)| follow(kind, field, value, now));
        }
        _ => {}
    }
}
