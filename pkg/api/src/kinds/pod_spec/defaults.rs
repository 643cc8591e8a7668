//! What a pod's spec says where its author said nothing.

use super::requests::container_requests;
use crate::object::{object_mut, set_default};
use crate::quantity::{Format, Quantity};
use serde_json::{Value, json};

const DEFAULT_MODE: i64 = 0o644;

/// Fills in a `PodTemplateSpec`.
pub fn default_template(template: &mut Value) {
    object_mut(template, "spec");
    default_pod_spec(&mut template["spec"]);
}

/// Fills in a `PodSpec` as all kinds that hold one do; pods themselves get [a little more](default_own_pod_spec).
pub fn default_pod_spec(spec: &mut Value) {
    fill(spec, "dnsPolicy", "ClusterFirst");
    fill(spec, "restartPolicy", "Always");
    fill(spec, "schedulerName", "default-scheduler");
    set_default(spec, "securityContext", json!({}));
    set_default(spec, "terminationGracePeriodSeconds", 30);
    for volume in list_mut(spec, "volumes") {
        default_volume(volume);
    }
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        list_mut(spec, list).iter_mut().for_each(default_container);
    }
    round_resources(spec.get_mut("overhead"));
    if let Some(resources) = spec.get_mut("resources") {
        default_resources(resources);
    }
    keep_service_account_names_alike(spec);
}

/// Fills in what only a Pod's own spec has.
pub fn default_own_pod_spec(spec: &mut Value) {
    for list in ["containers", "initContainers"] {
        for container in list_mut(spec, list) {
            if let Some(resources) = container.get_mut("resources") {
                request_what_is_limited(resources);
            }
        }
    }
    default_pod_level_requests(spec);
    set_default(spec, "enableServiceLinks", true);
    if spec.get("hostNetwork").and_then(Value::as_bool) == Some(true) {
        default_host_ports(spec);
    }
    default_pod_spec(spec);
}

/// The service account has a name of old and a name of now; both are shown.
pub fn keep_service_account_names_alike(spec: &mut Value) {
    let name = |spec: &Value, member: &str| {
        spec.get(member).and_then(Value::as_str).filter(|name| !name.is_empty()).map(str::to_owned)
    };
    if let Some(account) = name(spec, "serviceAccountName").or_else(|| name(spec, "serviceAccount")) {
        spec["serviceAccountName"] = account.clone().into();
        spec["serviceAccount"] = account.into();
    }
}

/// Fills in the source of a volume, of a pod or persistent, whichever member it is.
pub fn default_volume_source(source: &mut Value) {
    let member = |source: &mut Value, name: &str, defaults: &[(&str, Value)]| {
        if let Some(member) = source.get_mut(name).filter(|member| member.is_object()) {
            for (name, value) in defaults {
                fill(member, name, value.clone());
            }
        }
    };
    if let Some(host_path) = source.get_mut("hostPath") {
        set_default(host_path, "type", "");
    }
    member(source, "iscsi", &[("iscsiInterface", "default".into())]);
    member(
        source,
        "rbd",
        &[("pool", "rbd".into()), ("user", "admin".into()), ("keyring", "/etc/ceph/keyring".into())],
    );
    member(
        source,
        "azureDisk",
        &[("cachingMode", "ReadWrite".into()), ("fsType", "ext4".into()), ("kind", "Shared".into())],
    );
    if let Some(disk) = source.get_mut("azureDisk") {
        set_default(disk, "readOnly", false);
    }
    member(source, "scaleIO", &[("storageMode", "ThinProvisioned".into()), ("fsType", "xfs".into())]);
}

/// Fills in the spec of a claim.
pub fn default_claim_spec(spec: &mut Value) {
    set_default(spec, "volumeMode", "Filesystem");
    if let Some(resources) = spec.get_mut("resources") {
        default_resources(resources);
    }
}

/// Rounds the amounts of a resource list up to thousandths, finer than which nothing is counted.
pub fn round_resources(list: Option<&mut Value>) {
    for amount in list.and_then(Value::as_object_mut).into_iter().flat_map(|list| list.values_mut()) {
        let parsed = amount.as_str().and_then(|text| text.parse::<Quantity>().ok());
        if let Some(quantity) = parsed
            && Quantity::from_milli(quantity.milli_value()) > quantity
        {
            let format = match quantity.format() {
                Format::BinarySi => Format::DecimalSi,
                other => other,
            };
            *amount = Quantity::from_milli(quantity.milli_value()).with_format(format).to_string().into();
        }
    }
}

fn default_volume(volume: &mut Value) {
    let has_source = volume
        .as_object()
        .is_some_and(|members| members.iter().any(|(name, source)| name != "name" && !source.is_null()));
    if !has_source {
        set_default(volume, "emptyDir", json!({}));
    }
    default_volume_source(volume);
    for source in ["secret", "configMap", "downwardAPI", "projected"] {
        if let Some(source) = volume.get_mut(source) {
            set_default(source, "defaultMode", DEFAULT_MODE);
        }
    }
    if let Some(downward) = volume.get_mut("downwardAPI") {
        default_field_refs(downward);
    }
    if let Some(projected) = volume.get_mut("projected") {
        for source in list_mut(projected, "sources") {
            if let Some(downward) = source.get_mut("downwardAPI") {
                default_field_refs(downward);
            }
            if let Some(token) = source.get_mut("serviceAccountToken") {
                set_default(token, "expirationSeconds", 3600);
            }
        }
    }
    if let Some(spec) = volume.pointer_mut("/ephemeral/volumeClaimTemplate/spec") {
        default_claim_spec(spec);
    }
    if let Some(image) = volume.get_mut("image") {
        let policy = pull_policy(image.get("reference"));
        fill(image, "pullPolicy", policy);
    }
}

fn default_field_refs(downward: &mut Value) {
    for item in list_mut(downward, "items") {
        if let Some(field_ref) = item.get_mut("fieldRef") {
            fill(field_ref, "apiVersion", "v1");
        }
    }
}

fn default_container(container: &mut Value) {
    let policy = pull_policy(container.get("image"));
    fill(container, "imagePullPolicy", policy);
    fill(container, "terminationMessagePath", "/dev/termination-log");
    fill(container, "terminationMessagePolicy", "File");
    for port in list_mut(container, "ports") {
        fill(port, "protocol", "TCP");
    }
    for variable in list_mut(container, "env") {
        if let Some(field_ref) = variable.pointer_mut("/valueFrom/fieldRef") {
            fill(field_ref, "apiVersion", "v1");
        }
        if let Some(file_key) = variable.pointer_mut("/valueFrom/fileKeyRef") {
            set_default(file_key, "optional", false);
        }
    }
    set_default(container, "resources", json!({}));
    default_resources(&mut container["resources"]);
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = container.get_mut(probe) {
            default_probe(probe);
        }
    }
    for handler in ["/lifecycle/postStart/httpGet", "/lifecycle/preStop/httpGet"] {
        if let Some(action) = container.pointer_mut(handler) {
            default_http_get(action);
        }
    }
}

fn default_resources(resources: &mut Value) {
    round_resources(resources.get_mut("limits"));
    round_resources(resources.get_mut("requests"));
}

/// What is limited and not requested is requested at its limit.
fn request_what_is_limited(resources: &mut Value) {
    let Some(limits) = resources.get("limits").and_then(Value::as_object).cloned() else { return };
    let requests = object_mut(resources, "requests");
    for (name, limit) in limits {
        requests.entry(name).or_insert(limit);
    }
}

/// A pod that limits its resources as a whole requests what its containers request, or else its limits.
fn default_pod_level_requests(spec: &mut Value) {
    let limits = spec.pointer("/resources/limits").and_then(Value::as_object).cloned().unwrap_or_default();
    if limits.is_empty() {
        return;
    }
    let of_containers = container_requests(spec);
    let requests = object_mut(&mut spec["resources"], "requests");
    for (name, amount) in of_containers.iter().filter(|(name, _)| matches!(name.as_str(), "cpu" | "memory")) {
        requests.entry(name.as_str()).or_insert_with(|| amount.to_string().into());
    }
    for (name, limit) in limits {
        requests.entry(name).or_insert(limit);
    }
}

fn default_probe(probe: &mut Value) {
    for (name, value) in
        [("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1), ("failureThreshold", 3)]
    {
        fill(probe, name, value);
    }
    if let Some(action) = probe.get_mut("httpGet") {
        default_http_get(action);
    }
    if let Some(action) = probe.get_mut("grpc") {
        set_default(action, "service", "");
    }
}

fn default_http_get(action: &mut Value) {
    fill(action, "path", "/");
    fill(action, "scheme", "HTTP");
}

/// On the host's network a port is the host's own.
fn default_host_ports(spec: &mut Value) {
    for list in ["containers", "initContainers"] {
        for container in list_mut(spec, list) {
            for port in list_mut(container, "ports") {
                if let Some(number) = port.get("containerPort").cloned() {
                    fill(port, "hostPort", number);
                }
            }
        }
    }
}

/// An image that may change under its name is pulled every time.
fn pull_policy(image: Option<&Value>) -> &'static str {
    let image = image.and_then(Value::as_str).unwrap_or_default();
    let name = image.rsplit('/').next().unwrap_or_default();
    match name.split_once('@') {
        Some((name, _)) if name.ends_with(":latest") => "Always",
        Some(_) => "IfNotPresent",
        None if name.is_empty() => "IfNotPresent",
        None => match name.split_once(':') {
            Some((_, tag)) if tag != "latest" => "IfNotPresent",
            _ => "Always",
        },
    }
}

/// Sets a member that is missing or, as upstream's structs cannot tell the two apart, empty or zero.
pub(crate) fn fill(object: &mut Value, name: &str, default: impl Into<Value>) {
    if let Some(members) = object.as_object_mut() {
        let slot = members.entry(name).or_insert(Value::Null);
        if slot.is_null() || slot.as_str() == Some("") || slot.as_i64() == Some(0) {
            *slot = default.into();
        }
    }
}

/// The elements of a member list; none where there is no list.
pub(crate) fn list_mut<'a>(object: &'a mut Value, name: &str) -> &'a mut [Value] {
    object.get_mut(name).and_then(Value::as_array_mut).map(Vec::as_mut_slice).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pull_policies_follow_the_tag() {
        for (image, policy) in [
            ("nginx", "Always"),
            ("nginx:latest", "Always"),
            ("nginx:1", "IfNotPresent"),
            ("host:5000/nginx", "Always"),
            ("host:5000/nginx:1", "IfNotPresent"),
            ("nginx@sha256:abc", "IfNotPresent"),
            ("nginx:latest@sha256:abc", "Always"),
            ("", "IfNotPresent"),
        ] {
            assert_eq!(pull_policy(Some(&image.into())), policy, "{image}");
        }
    }
}
