//! Rules for containers: those of the pod, those that run before them, and those that look into a running pod.

use super::env::{validate_env, validate_env_from};
use super::handlers::validate_probes_and_lifecycle;
use super::resources::validate_container_resources;
use super::security::validate_security_context;
use super::validate::Pod;
use super::volumes::{VolumeKind, validate_descending_path};
use crate::field::{Errors, Field, Reason};
use crate::names;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

const ONLY_FOR_SIDECARS: &str = "may not be set for init containers without restartPolicy=Always";
const NOT_FOR_EPHEMERAL: [&str; 7] =
    ["ports", "resources", "livenessProbe", "readinessProbe", "startupProbe", "lifecycle", "resizePolicy"];

/// Complains about `containers`.
pub(super) fn validate_containers(containers: &Field<'_>, pod: &Pod, errors: &mut Errors) {
    if !containers.required(errors) {
        return;
    }
    let mut names = BTreeSet::new();
    let mut host_ports = BTreeSet::new();
    for container in containers.items() {
        validate_container(&container, pod, errors);
        let name = container.get("name");
        if !names.insert(name.text().to_owned()) {
            name.duplicate(errors);
        }
        validate_probes_and_lifecycle(&container, pod, errors);
        validate_restart_policy(&container, errors);
    }
    for container in containers.items() {
        validate_host_ports(&container, &mut host_ports, errors);
    }
}

/// Complains about `initContainers`.
pub(super) fn validate_init_containers(spec: &Field<'_>, pod: &Pod, errors: &mut Errors) {
    let mut names = names_of(&spec.get("containers"));
    for container in spec.get("initContainers").items() {
        validate_container(&container, pod, errors);
        let policy = container.get("restartPolicy");
        let sidecar = policy.text() == "Always";
        let rules = container.get("restartPolicyRules");
        if sidecar && !rules.is_empty() {
            let detail = "restartPolicyRules are not allowed for init containers with restart policy Always";
            rules.forbidden(detail, errors);
        } else {
            validate_restart_policy(&container, errors);
        }
        let name = container.get("name");
        if names.contains(name.text()) {
            name.duplicate(errors);
        } else if !name.text().is_empty() {
            names.insert(name.text().to_owned());
        }
        // Init containers run one after another: only ports of the same one can collide.
        validate_host_ports(&container, &mut BTreeSet::new(), errors);
        if sidecar {
            validate_probes_and_lifecycle(&container, pod, errors);
        } else {
            for name in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
                let member = container.get(name);
                if member.exists() {
                    member.forbidden(ONLY_FOR_SIDECARS, errors);
                }
            }
        }
    }
}

/// Complains about `ephemeralContainers`.
pub(super) fn validate_ephemeral_containers(spec: &Field<'_>, pod: &Pod, errors: &mut Errors) {
    let mut others = names_of(&spec.get("containers"));
    others.extend(names_of(&spec.get("initContainers")));
    let mut names = others.clone();
    for container in spec.get("ephemeralContainers").items() {
        validate_container(&container, pod, errors);
        validate_image_is_trimmed(&container, errors);
        let name = container.get("name");
        if !names.insert(name.text().to_owned()) {
            name.duplicate(errors);
        }
        let target = container.get("targetContainerName");
        if !target.text().is_empty() && !others.contains(target.text()) {
            target.not_found(errors);
        }
        for name in NOT_FOR_EPHEMERAL {
            let member = container.get(name);
            if member.exists() && !crate::equality::same(member.value(), &Value::Null) {
                member.forbidden("cannot be set for an Ephemeral Container", errors);
            }
        }
        for mount in container.get("volumeMounts").items() {
            for name in ["subPath", "subPathExpr"] {
                if !mount.get(name).text().is_empty() {
                    mount.get(name).forbidden("cannot be set for an Ephemeral Container", errors);
                }
            }
        }
    }
}

/// Complains about an image with blanks around it: asked of pods, not of templates.
pub(super) fn validate_image_is_trimmed(container: &Field<'_>, errors: &mut Errors) {
    let image = container.get("image");
    if image.text() != image.text().trim() {
        image.invalid("must not have leading or trailing whitespace", errors);
    }
}

/// What holds for all containers.
fn validate_container(container: &Field<'_>, pod: &Pod, errors: &mut Errors) {
    let name = container.get("name");
    if name.required(errors) {
        name.conforms(names::is_dns1123_label, errors);
    }
    container.get("image").required(errors);
    container.get("terminationMessagePolicy").required_one_of(&["File", "FallbackToLogsOnError"], errors);
    validate_ports(&container.get("ports"), errors);
    validate_env(&container.get("env"), errors);
    validate_env_from(&container.get("envFrom"), errors);
    validate_mounts(container, pod, errors);
    validate_devices(container, pod, errors);
    container.get("imagePullPolicy").required_one_of(&["Always", "IfNotPresent", "Never"], errors);
    validate_container_resources(&container.get("resources"), &pod.claims, errors);
    validate_resize_policy(&container.get("resizePolicy"), pod, errors);
    validate_security_context(&container.get("securityContext"), pod.host_users, errors);
    for variable in container.get("env").items() {
        let source = variable.get("valueFrom");
        let file = source.get("fileKeyRef");
        let volume = file.get("volumeName");
        match pod.volumes.get(volume.text()) {
            _ if volume.text().is_empty() => {}
            None => volume.not_found(errors),
            Some(VolumeKind::EmptyDir) => {}
            Some(_) => volume.invalid("referenced volume must be of type emptyDir", errors),
        }
    }
}

fn names_of(containers: &Field<'_>) -> BTreeSet<String> {
    containers.items().map(|container| container.get("name").text().to_owned()).collect()
}

fn validate_ports(ports: &Field<'_>, errors: &mut Errors) {
    let mut taken = BTreeSet::new();
    for port in ports.items() {
        let name = port.get("name");
        if !name.text().is_empty() {
            let faults = names::is_port_name(name.text());
            if faults.is_empty() && !taken.insert(name.text().to_owned()) {
                name.duplicate(errors);
            }
            for fault in faults {
                name.invalid(fault, errors);
            }
        }
        let (number, host) = (port.get("containerPort"), port.get("hostPort"));
        if number.int().unwrap_or(0) == 0 {
            number.complain(Reason::Required, "", errors);
        } else {
            number.in_range(1..=65535, errors);
        }
        if host.int().is_some_and(|number| number != 0) {
            host.in_range(1..=65535, errors);
        }
        port.get("protocol").required_one_of(&["SCTP", "TCP", "UDP"], errors);
    }
}

fn validate_host_ports(container: &Field<'_>, taken: &mut BTreeSet<String>, errors: &mut Errors) {
    for port in container.get("ports").items() {
        let host = port.get("hostPort");
        let Some(number) = host.int().filter(|&number| number != 0) else { continue };
        let key = format!("{}/{}/{number}", port.get("protocol").text(), port.get("hostIP").text());
        if !taken.insert(key.clone()) {
            host.with_value(&key.into()).duplicate(errors);
        }
    }
}

fn paths_by_name(list: &Field<'_>, path: &str) -> BTreeMap<String, String> {
    list.items().map(|item| (item.get("name").text().to_owned(), item.get(path).text().to_owned())).collect()
}

fn validate_mounts(container: &Field<'_>, pod: &Pod, errors: &mut Errors) {
    let mounts = container.get("volumeMounts");
    let devices = paths_by_name(&container.get("volumeDevices"), "devicePath");
    let context = container.get("securityContext");
    let privileged = context.get("privileged").bool();
    let mut taken = BTreeSet::new();
    for mount in mounts.items() {
        let (name, path) = (mount.get("name"), mount.get("mountPath"));
        name.required(errors);
        if !pod.volumes.contains_key(name.text()) {
            name.not_found(errors);
        }
        path.required(errors);
        if !taken.insert(path.text().to_owned()) {
            path.invalid("must be unique", errors);
        }
        if devices.contains_key(name.text()) {
            name.invalid("must not already exist in volumeDevices", errors);
        }
        if devices.values().any(|device| device == path.text()) {
            path.invalid("must not already exist as a path in volumeDevices", errors);
        }
        let (sub_path, expression) = (mount.get("subPath"), mount.get("subPathExpr"));
        // Upstream names the list, not the element, in these.
        validate_descending_path(&mounts.get("subPath").with_value(sub_path.value()), errors);
        if !expression.text().is_empty() && !sub_path.text().is_empty() {
            expression.invalid("subPathExpr and subPath are mutually exclusive", errors);
        }
        validate_descending_path(&mounts.get("subPathExpr").with_value(expression.value()), errors);
        validate_propagation(&mounts, &mount, privileged, errors);
    }
}

fn validate_propagation(mounts: &Field<'_>, mount: &Field<'_>, privileged: bool, errors: &mut Errors) {
    let given = mount.get("mountPropagation");
    let propagation = mounts.get("mountPropagation").with_value(given.value());
    propagation.one_of(&["Bidirectional", "HostToContainer", "None"], errors);
    if propagation.text() == "Bidirectional" && !privileged {
        let detail = "Bidirectional mount propagation is available only to privileged containers";
        propagation.forbidden(detail, errors);
    }
    let given = mount.get("recursiveReadOnly");
    let recursive = mounts.get("recursiveReadOnly").with_value(given.value());
    match recursive.str() {
        None | Some("Disabled") => {}
        Some("Enabled" | "IfPossible") => {
            if !mount.get("readOnly").bool() {
                recursive.forbidden("may only be specified when readOnly is true", errors);
            }
            if !matches!(propagation.str(), None | Some("None")) {
                let detail = "may only be specified when mountPropagation is None or not specified";
                recursive.forbidden(detail, errors);
            }
        }
        Some(_) => recursive.not_supported(&["Disabled", "Enabled", "IfPossible"], errors),
    }
}

fn validate_devices(container: &Field<'_>, pod: &Pod, errors: &mut Errors) {
    let mounts = paths_by_name(&container.get("volumeMounts"), "mountPath");
    let (mut names, mut paths) = (BTreeSet::new(), BTreeSet::new());
    for device in container.get("volumeDevices").items() {
        let (name, path) = (device.get("name"), device.get("devicePath"));
        if name.required(errors) && !names.insert(name.text().to_owned()) {
            name.invalid("must be unique", errors);
        }
        match pod.volumes.get(name.text()) {
            None => name.not_found(errors),
            Some(VolumeKind::Claim) => {}
            Some(_) => name.invalid(
                "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode",
                errors,
            ),
        }
        path.required(errors);
        if paths.contains(path.text()) {
            path.invalid("must be unique", errors);
        }
        if path.text().split('/').any(|part| part == "..") {
            path.invalid("can not contain backsteps ('..')", errors);
        } else {
            paths.insert(path.text().to_owned());
        }
        if mounts.contains_key(name.text()) {
            name.invalid("must not already exist in volumeMounts", errors);
        }
        if mounts.values().any(|mount| mount == path.text()) {
            path.invalid("must not already exist as a path in volumeMounts", errors);
        }
    }
}

fn validate_resize_policy(policies: &Field<'_>, pod: &Pod, errors: &mut Errors) {
    let mut taken = BTreeSet::new();
    for policy in policies.items() {
        let (resource, restart) = (policy.get("resourceName"), policy.get("restartPolicy"));
        if !taken.insert(resource.text().to_owned()) {
            policy.with_value(resource.value()).duplicate(errors);
        }
        policies.with_value(resource.value()).required_one_of(&["cpu", "memory"], errors);
        policies.with_value(restart.value()).required_one_of(&["NotRequired", "RestartContainer"], errors);
        if pod.restart_policy == "Never" && restart.text() != "NotRequired" {
            let detail = "must be 'NotRequired' when `restartPolicy` is 'Never'";
            policies.invalid_value(restart.text(), detail, errors);
        }
    }
}

fn validate_restart_policy(container: &Field<'_>, errors: &mut Errors) {
    let (policy, rules) = (container.get("restartPolicy"), container.get("restartPolicyRules"));
    if !policy.exists() {
        if !rules.is_empty() {
            policy.required_because("must specify restartPolicy when restart rules are used", errors);
        }
        return;
    }
    policy.one_of(&["Always", "Never", "OnFailure"], errors);
    if rules.len() > 20 {
        rules.too_long(20, errors);
    }
    for rule in rules.items() {
        let (action, codes) = (rule.get("action"), rule.get("exitCodes"));
        if action.text() != "Restart" {
            action.not_supported(&["Restart"], errors);
        }
        if !codes.exists() {
            codes.required_because("must be specified", errors);
            continue;
        }
        let operator = codes.get("operator");
        if !matches!(operator.text(), "In" | "NotIn") {
            operator.not_supported(&["In", "NotIn"], errors);
        }
        if codes.get("values").len() > 255 {
            codes.get("values").too_long(255, errors);
        }
    }
}
