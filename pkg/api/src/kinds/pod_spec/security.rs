//! Rules for security contexts, of pods and of containers, and for what an operating system rules out.

use super::volumes::validate_descending_path;
use crate::field::{Errors, Field};
use crate::names;
use std::collections::BTreeSet;

const MOST_ID: i64 = i32::MAX as i64;
const PROFILES: [&str; 3] = ["Localhost", "RuntimeDefault", "Unconfined"];
const NOT_ON_WINDOWS: &str = "cannot be set for a windows pod";

/// Complains about the `securityContext` of a pod.
pub(super) fn validate_pod_security_context(spec: &Field<'_>, errors: &mut Errors) {
    let context = spec.get("securityContext");
    for name in ["fsGroup", "runAsUser", "runAsGroup"] {
        context.get(name).in_range(0..=MOST_ID, errors);
    }
    for group in context.get("supplementalGroups").items() {
        group.in_range(0..=MOST_ID, errors);
    }
    let share = spec.get("shareProcessNamespace");
    if share.bool() && spec.get("hostPID").bool() {
        let detail = "ShareProcessNamespace and HostPID cannot both be enabled";
        context.get("shareProcessNamespace").invalid_value(true, detail, errors);
    }
    validate_sysctls(spec, &context.get("sysctls"), errors);
    context.get("fsGroupChangePolicy").one_of(&["Always", "OnRootMismatch"], errors);
    validate_seccomp(&context.get("seccompProfile"), errors);
    validate_windows_options(&context.get("windowsOptions"), errors);
    validate_app_armor(&context.get("appArmorProfile"), errors);
    context.get("supplementalGroupsPolicy").one_of(&["Merge", "Strict"], errors);
    context.get("seLinuxChangePolicy").one_of(&["MountOption", "Recursive"], errors);
}

/// Complains about the `securityContext` of a container.
pub(super) fn validate_security_context(context: &Field<'_>, host_users: bool, errors: &mut Errors) {
    if !context.exists() {
        return;
    }
    for name in ["runAsUser", "runAsGroup"] {
        context.get(name).in_range(0..=MOST_ID, errors);
    }
    let proc_mount = context.get("procMount");
    proc_mount.one_of(&["Default", "Unmasked"], errors);
    if host_users && proc_mount.text() == "Unmasked" {
        proc_mount.invalid("`hostUsers` must be false to use `Unmasked`", errors);
    }
    validate_seccomp(&context.get("seccompProfile"), errors);
    let escalation = context.get("allowPrivilegeEscalation");
    if escalation.exists() && !escalation.bool() {
        if context.get("privileged").bool() {
            context
                .invalid("cannot set `allowPrivilegeEscalation` to false and `privileged` to true", errors);
        }
        let capabilities = context.get("capabilities");
        if capabilities.get("add").items().any(|capability| capability.text() == "CAP_SYS_ADMIN") {
            let detail =
                "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN";
            context.invalid(detail, errors);
        }
    }
    validate_windows_options(&context.get("windowsOptions"), errors);
    validate_app_armor(&context.get("appArmorProfile"), errors);
}

/// Complains about what goes against users of the pod's own.
pub(super) fn validate_host_users(spec: &Field<'_>, errors: &mut Errors) {
    if !spec.get("hostUsers").exists() || spec.get("hostUsers").bool() {
        return;
    }
    for (name, shown) in [("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC")] {
        if spec.get(name).bool() {
            spec.get(shown).forbidden("when `hostUsers` is false", errors);
        }
    }
    each_container(spec, |container| {
        if !container.get("volumeDevices").is_empty() {
            container.get("volumeDevices").forbidden("when `hostUsers` is false", errors);
        }
    });
}

/// Complains about `os`, and about what that system does not have.
pub(super) fn validate_os(spec: &Field<'_>, errors: &mut Errors) {
    let os = spec.get("os");
    if !os.exists() {
        return;
    }
    let name = os.get("name");
    match name.text() {
        "" => {
            name.required(errors);
        }
        "linux" => validate_linux(spec, errors),
        "windows" => validate_windows(spec, errors),
        _ => os.with_value(name.value()).not_supported(&["linux", "windows"], errors),
    }
}

/// Complains about Windows' host processes where not all containers are.
pub(super) fn validate_host_processes(spec: &Field<'_>, errors: &mut Errors) {
    let context = spec.get("securityContext");
    let options = context.get("windowsOptions");
    let of_pod = options.get("hostProcess").value().as_bool();
    let (mut containers, mut host_processes) = (0, 0);
    each_container(spec, |container| {
        let context = container.get("securityContext");
        let options = context.get("windowsOptions");
        let own = options.get("hostProcess");
        containers += 1;
        if own.value().as_bool().or(of_pod) == Some(true) {
            host_processes += 1;
        }
        if let (Some(pod), Some(_)) = (of_pod, own.value().as_bool())
            && own.bool() != pod
        {
            let detail = format!("pod hostProcess value must be identical if both are specified, was {pod}");
            own.invalid(detail, errors);
        }
    });
    if host_processes == 0 {
        return;
    }
    if host_processes != containers {
        let detail =
            "If pod contains any hostProcess containers then all containers must be HostProcess containers";
        spec.invalid_value("", detail, errors);
    }
    if !spec.get("hostNetwork").bool() {
        let detail = "hostNetwork must be true if pod contains any hostProcess containers";
        spec.get("hostNetwork").invalid_value(false, detail, errors);
    }
}

/// Visits containers of all three lists.
fn each_container(spec: &Field<'_>, mut visit: impl FnMut(&Field<'_>)) {
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        for container in spec.get(list).items() {
            visit(&container);
        }
    }
}

fn validate_linux(spec: &Field<'_>, errors: &mut Errors) {
    let forbid = |holder: &Field<'_>, errors: &mut Errors| {
        let context = holder.get("securityContext");
        let options = context.get("windowsOptions");
        if options.exists() {
            options.forbidden("windows options cannot be set for a linux pod", errors);
        }
    };
    forbid(spec, errors);
    each_container(spec, |container| forbid(container, errors));
}

fn validate_windows(spec: &Field<'_>, errors: &mut Errors) {
    let forbid = |holder: &Field<'_>, names: &[&str], errors: &mut Errors| {
        for name in names {
            let member = holder.get(name);
            if member.exists() && !matches!(member.value(), serde_json::Value::Bool(false)) {
                member.forbidden(NOT_ON_WINDOWS, errors);
            }
        }
    };
    let context = spec.get("securityContext");
    let of_context = [
        "appArmorProfile",
        "seLinuxOptions",
        "seccompProfile",
        "fsGroup",
        "fsGroupChangePolicy",
        "sysctls",
        "runAsUser",
        "runAsGroup",
        "supplementalGroups",
        "supplementalGroupsPolicy",
        "seLinuxChangePolicy",
    ];
    forbid(&context, &of_context, errors);
    forbid(spec, &["hostUsers", "hostPID", "hostIPC", "shareProcessNamespace"], errors);
    let of_container = [
        "appArmorProfile",
        "seLinuxOptions",
        "seccompProfile",
        "capabilities",
        "readOnlyRootFilesystem",
        "privileged",
        "allowPrivilegeEscalation",
        "procMount",
        "runAsUser",
        "runAsGroup",
    ];
    each_container(spec, |container| forbid(&container.get("securityContext"), &of_container, errors));
    if spec.get("resources").exists() {
        spec.get("resources").forbidden("may not be set for a windows pod", errors);
    }
}

fn validate_sysctls(spec: &Field<'_>, sysctls: &Field<'_>, errors: &mut Errors) {
    const SEGMENT: &str = "[a-z0-9]([-_a-z0-9]*[a-z0-9])?";
    let segment = |part: &str| {
        let ends = |b: Option<u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        ends(part.bytes().next())
            && ends(part.bytes().last())
            && part.bytes().all(|b| ends(Some(b)) || matches!(b, b'-' | b'_'))
    };
    let mut taken = BTreeSet::new();
    for sysctl in sysctls.items() {
        let name = sysctl.get("name");
        if name.required(errors) {
            if name.text().len() > 253 || !name.text().split(['.', '/']).all(segment) {
                let regex = format!(r"^({SEGMENT}[\./])*{SEGMENT}$");
                name.invalid(format!("must have at most 253 characters and match regex {regex}"), errors);
            } else if taken.contains(name.text()) {
                name.duplicate(errors);
            }
        }
        let dotted = name.text().replace('/', ".");
        if spec.get("hostNetwork").bool() && dotted.starts_with("net.") {
            name.invalid("may not be specified when 'hostNetwork' is true", errors);
        }
        let of_ipc = dotted.starts_with("kernel.shm")
            || dotted.starts_with("kernel.msg")
            || dotted == "kernel.sem"
            || dotted.starts_with("fs.mqueue.");
        if spec.get("hostIPC").bool() && of_ipc {
            name.invalid("may not be specified when 'hostIPC' is true", errors);
        }
        taken.insert(name.text().to_owned());
    }
}

fn validate_seccomp(profile: &Field<'_>, errors: &mut Errors) {
    if !profile.exists() {
        return;
    }
    let (ty, local) = (profile.get("type"), profile.get("localhostProfile"));
    if ty.required_because("type is required when seccompProfile is set", errors) {
        ty.one_of(&PROFILES, errors);
    }
    if ty.text() == "Localhost" {
        if local.exists() {
            validate_descending_path(&local, errors);
        } else {
            local.required_because("must be set when seccomp type is Localhost", errors);
        }
    } else if local.exists() {
        local.invalid_value(
            profile.value().clone(),
            "can only be set when seccomp type is Localhost",
            errors,
        );
    }
}

fn validate_app_armor(profile: &Field<'_>, errors: &mut Errors) {
    if !profile.exists() {
        return;
    }
    let (ty, local) = (profile.get("type"), profile.get("localhostProfile"));
    match ty.text() {
        "Localhost" => {
            if !local.text().is_empty() && local.text() != local.text().trim() {
                local.invalid("must not be padded with whitespace", errors);
            } else {
                local.required_because("must be set when AppArmor type is Localhost", errors);
            }
            if local.text().len() > 4095 {
                local.too_long(4095, errors);
            }
        }
        "RuntimeDefault" | "Unconfined" if local.exists() => {
            local.invalid("can only be set when AppArmor type is Localhost", errors);
        }
        "RuntimeDefault" | "Unconfined" => {}
        "" => {
            ty.required_because("type is required when appArmorProfile is set", errors);
        }
        _ => ty.not_supported(&PROFILES, errors),
    }
}

fn validate_windows_options(options: &Field<'_>, errors: &mut Errors) {
    let (spec_name, spec) = (options.get("gmsaCredentialSpecName"), options.get("gmsaCredentialSpec"));
    if spec_name.exists() {
        spec_name.conforms(names::is_dns1123_subdomain, errors);
    }
    if spec.exists() && spec.text().is_empty() {
        spec.invalid("gmsaCredentialSpec cannot be an empty string", errors);
    }
    if spec.text().len() > 64 * 1024 {
        spec.invalid("gmsaCredentialSpec size must be under 64 KiB", errors);
    }
    let user = options.get("runAsUserName");
    if user.exists() && user.text().is_empty() {
        user.invalid("runAsUserName cannot be an empty string", errors);
    }
    if user.text().chars().any(char::is_control) {
        user.invalid("runAsUserName cannot contain control characters", errors);
    }
}
