//! Rules for environment variables, and for the references into pods that they and volumes make.

use super::volumes::validate_no_backsteps;
use crate::field::{Errors, Field};
use crate::names;

const ENV_FIELDS: [&str; 9] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
/// Fields of a pod that a file of a volume may hold.
pub(super) const VOLUME_FIELDS: [&str; 5] =
    ["metadata.name", "metadata.namespace", "metadata.labels", "metadata.annotations", "metadata.uid"];
const CONVERTIBLE_FIELDS: [&str; 14] = [
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.serviceAccountName",
    "spec.schedulerName",
    "status.phase",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
const RESOURCES: [&str; 6] = [
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
];
const BYTE_DIVISORS: [&str; 13] =
    ["1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"];

/// Complains about `env`.
pub(super) fn validate_env(env: &Field<'_>, errors: &mut Errors) {
    for variable in env.items() {
        let name = variable.get("name");
        if name.required(errors) {
            name.conforms(names::is_env_var_name, errors);
        }
        let source = variable.get("valueFrom");
        if source.exists() {
            validate_value_from(&variable, &source, errors);
        }
    }
}

/// Complains about `envFrom`.
pub(super) fn validate_env_from(env_from: &Field<'_>, errors: &mut Errors) {
    for source in env_from.items() {
        let prefix = source.get("prefix");
        if !prefix.text().is_empty() {
            prefix.conforms(names::is_env_var_name, errors);
        }
        let mut sources = 0;
        for name in ["configMapRef", "secretRef"] {
            let reference = source.get(name);
            if reference.exists() {
                sources += 1;
                let name = reference.get("name");
                if name.required(errors) {
                    name.conforms(names::is_dns1123_subdomain, errors);
                }
            }
        }
        if sources == 0 {
            env_from.invalid_value("", "must specify one of: `configMapRef` or `secretRef`", errors);
        } else if sources > 1 {
            env_from.invalid_value("", "may not have more than one field specified at a time", errors);
        }
    }
}

/// Complains about a reference to a field of the pod, other than those allowed.
pub(super) fn validate_field_ref(reference: &Field<'_>, allowed: &[&str], errors: &mut Errors) {
    let (version, path) = (reference.get("apiVersion"), reference.get("fieldPath"));
    if !version.required(errors) || !path.required(errors) {
        return;
    }
    let text = if path.text() == "spec.host" { "spec.nodeName" } else { path.text() };
    let subscript =
        text.strip_suffix("']").and_then(|rest| rest.split_once("['")).filter(|(path, _)| !path.is_empty());
    let fault = match subscript {
        _ if version.text() != "v1" => Some(format!("unsupported pod version: {}", version.text())),
        Some(("metadata.annotations" | "metadata.labels", _)) => None,
        Some(_) => Some(format!("field label does not support subscript: {text}")),
        None if CONVERTIBLE_FIELDS.contains(&text) => None,
        None => Some(format!("field label not supported: {text}")),
    };
    if let Some(fault) = fault {
        path.invalid(format!("error converting fieldPath: {fault}"), errors);
        return;
    }
    match subscript {
        Some((of, key)) => {
            let key = if of == "metadata.annotations" { key.to_ascii_lowercase() } else { key.to_owned() };
            for fault in names::is_qualified_name(&key) {
                reference.invalid_value(key.as_str(), fault, errors);
            }
        }
        None if !allowed.contains(&text) => path.not_supported(allowed, errors),
        None => {}
    }
}

/// Complains about a reference to an amount of a container's; in a volume it must say which container's.
pub(super) fn validate_resource_field_ref(reference: &Field<'_>, in_volume: bool, errors: &mut Errors) {
    let (container, resource) = (reference.get("containerName"), reference.get("resource"));
    let huge_pages =
        ["requests.hugepages-", "limits.hugepages-"].iter().any(|p| resource.text().starts_with(p));
    if in_volume && container.text().is_empty() {
        container.required(errors);
    } else if resource.required(errors) && !RESOURCES.contains(&resource.text()) && !huge_pages {
        resource.not_supported(&RESOURCES, errors);
    }
    let divisor = reference.get("divisor");
    let Some(parsed) = super::resources::quantity(&divisor).filter(|divisor| !divisor.is_zero()) else {
        return;
    };
    let what = match resource.text() {
        "limits.cpu" | "requests.cpu" => "cpu",
        "limits.memory" | "requests.memory" => "memory",
        "limits.ephemeral-storage" | "requests.ephemeral-storage" => "local ephemeral storage",
        _ if huge_pages => "hugepages",
        _ => return,
    };
    let text = parsed.to_string();
    let detail = match what {
        "cpu" if text == "1m" || text == "1" => return,
        "cpu" => "only divisor's values 1m and 1 are supported with the cpu resource".to_owned(),
        _ if BYTE_DIVISORS.contains(&text.as_str()) => return,
        _ => format!(
            "only divisor's values {} are supported with the {what} resource",
            BYTE_DIVISORS.join(", ")
        ),
    };
    divisor.invalid_value(resource.text(), detail, errors);
}

fn validate_value_from(variable: &Field<'_>, source: &Field<'_>, errors: &mut Errors) {
    let mut sources = 0;
    let field_ref = source.get("fieldRef");
    if field_ref.exists() {
        sources += 1;
        validate_field_ref(&field_ref, &ENV_FIELDS, errors);
    }
    let resource_ref = source.get("resourceFieldRef");
    if resource_ref.exists() {
        sources += 1;
        validate_resource_field_ref(&resource_ref, false, errors);
    }
    for name in ["configMapKeyRef", "secretKeyRef"] {
        let reference = source.get(name);
        if reference.exists() {
            sources += 1;
            reference.get("name").conforms(names::is_dns1123_subdomain, errors);
            let key = reference.get("key");
            if key.required(errors) {
                key.conforms(names::is_config_map_key, errors);
            }
        }
    }
    let file_ref = source.get("fileKeyRef");
    if file_ref.exists() {
        sources += 1;
        validate_file_key_ref(&file_ref, errors);
    }
    let detail = if sources == 0 {
        "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
    } else if !variable.get("value").text().is_empty() {
        "may not be specified when `value` is not empty"
    } else if sources > 1 {
        "may not have more than one field specified at a time"
    } else {
        return;
    };
    source.invalid_value("", detail, errors);
}

fn validate_file_key_ref(reference: &Field<'_>, errors: &mut Errors) {
    let (key, volume, path) = (reference.get("key"), reference.get("volumeName"), reference.get("path"));
    if key.required(errors) {
        key.conforms(names::is_env_var_name, errors);
    }
    if volume.required(errors) {
        volume.conforms(names::is_dns1123_label, errors);
    }
    if path.required(errors) {
        validate_no_backsteps(&path, errors);
    }
}
