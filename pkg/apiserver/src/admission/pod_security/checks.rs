//! What each level forbids: a table of checks, in the order in which their complaints are read.
//!
//! Reasons and details are upstream's words (1.35). Rules that changed in a version look at the version asked for, but for
//! one: upstream lets pods with `hostUsers: false` be root, since root in a user namespace of its own is nobody outside.
//! Our nodes make no such namespaces, so that counts for nothing.

use super::levels::{Level, LevelVersion, Version};
use api::Value;
use std::collections::BTreeSet;

/// What is wrong with a pod.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Violation {
    /// In a word or two.
    pub reason: &'static str,
    /// Who does what.
    pub detail: String,
}

/// All that is wrong with a pod, or with what pods are made from, at a level.
pub(super) fn violations(at: LevelVersion, pod: &Value) -> Vec<Violation> {
    let pod = Pod { annotations: &pod["metadata"]["annotations"], spec: &pod["spec"], version: at.version };
    CHECKS.iter().filter(|check| check.applies(at)).filter_map(|check| (check.find)(&pod)).collect()
}

struct Check {
    /// From which level on.
    level: Level,
    /// From which version on.
    since: u64,
    /// From which version on a stricter check takes its place in `restricted`.
    replaced: Option<u64>,
    find: fn(&Pod<'_>) -> Option<Violation>,
}

impl Check {
    fn applies(&self, at: LevelVersion) -> bool {
        let is_since = |minor: u64| at.version >= Version::Minor(minor);
        let is_replaced = at.level == Level::Restricted && self.replaced.is_some_and(is_since);
        self.level <= at.level && is_since(self.since) && !is_replaced
    }
}

const fn baseline(find: fn(&Pod<'_>) -> Option<Violation>, since: u64, replaced: Option<u64>) -> Check {
    Check { level: Level::Baseline, since, replaced, find }
}

const fn restricted(find: fn(&Pod<'_>) -> Option<Violation>, since: u64) -> Check {
    Check { level: Level::Restricted, since, replaced: None, find }
}

const CHECKS: [Check; 18] = [
    baseline(app_armor_profile, 0, None),
    baseline(default_capabilities, 0, Some(22)),
    baseline(host_namespaces, 0, None),
    baseline(host_path_volumes, 0, Some(0)),
    baseline(host_ports, 0, None),
    baseline(probe_and_lifecycle_hosts, 34, None),
    baseline(privileged, 0, None),
    baseline(proc_mount, 0, None),
    baseline(se_linux_options, 0, None),
    baseline(seccomp_profile, 0, Some(19)),
    baseline(sysctls, 0, None),
    baseline(windows_host_process, 0, None),
    restricted(privilege_escalation, 8),
    restricted(restricted_capabilities, 22),
    restricted(restricted_volumes, 0),
    restricted(run_as_non_root, 0),
    restricted(run_as_user, 23),
    restricted(required_seccomp_profile, 19),
];

const APP_ARMOR_ANNOTATION: &str = "container.apparmor.security.beta.kubernetes.io/";
const SECCOMP_ANNOTATION: &str = "seccomp.security.alpha.kubernetes.io/pod";
const CONTAINER_SECCOMP_ANNOTATION: &str = "container.seccomp.security.alpha.kubernetes.io/";
const DEFAULT_CAPABILITIES: [&str; 13] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];
const HANDLERS: [&str; 5] =
    ["/livenessProbe", "/readinessProbe", "/startupProbe", "/lifecycle/postStart", "/lifecycle/preStop"];
/// With the version from which on each is allowed.
const SE_LINUX_TYPES: [(&str, u64); 5] = [
    ("", 0),
    ("container_t", 0),
    ("container_init_t", 0),
    ("container_kvm_t", 0),
    ("container_engine_t", 31),
];
/// With the version from which on each is allowed.
const SAFE_SYSCTLS: [(&str, u64); 12] = [
    ("kernel.shm_rmid_forced", 0),
    ("net.ipv4.ip_local_port_range", 0),
    ("net.ipv4.tcp_syncookies", 0),
    ("net.ipv4.ping_group_range", 0),
    ("net.ipv4.ip_unprivileged_port_start", 0),
    ("net.ipv4.ip_local_reserved_ports", 27),
    ("net.ipv4.tcp_keepalive_time", 29),
    ("net.ipv4.tcp_fin_timeout", 29),
    ("net.ipv4.tcp_keepalive_intvl", 29),
    ("net.ipv4.tcp_keepalive_probes", 29),
    ("net.ipv4.tcp_rmem", 32),
    ("net.ipv4.tcp_wmem", 32),
];
const HARMLESS_VOLUMES: [&str; 9] = [
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
];

/// A pod as the checks see it, and the version whose rules count.
struct Pod<'a> {
    annotations: &'a Value,
    spec: &'a Value,
    version: Version,
}

impl<'a> Pod<'a> {
    fn is_since(&self, minor: u64) -> bool {
        self.version >= Version::Minor(minor)
    }

    /// Validation has seen to it that pods for Windows do not set what only Linux has.
    fn is_windows(&self) -> bool {
        self.is_since(25) && self.spec["os"]["name"] == "windows"
    }

    fn context(&self) -> &'a Value {
        &self.spec["securityContext"]
    }

    fn containers(&self) -> impl Iterator<Item = &'a Value> {
        let spec = self.spec;
        let lists = ["initContainers", "containers", "ephemeralContainers"];
        lists.into_iter().flat_map(move |list| items(&spec[list]))
    }

    /// The names of containers of which this is true.
    fn containers_that(&self, mut is_so: impl FnMut(&'a Value) -> bool) -> Vec<&'a str> {
        self.containers()
            .filter(|container| is_so(container))
            .map(|container| text(container, "name"))
            .collect()
    }

    /// Who has a security context of which this is true: `pod and container "a"`.
    fn setters(&self, mut is_so: impl FnMut(&'a Value) -> bool) -> Vec<String> {
        let mut setters = Vec::new();
        if is_so(self.context()) {
            setters.push("pod".to_owned());
        }
        let containers = self.containers_that(|container| is_so(&container["securityContext"]));
        if !containers.is_empty() {
            setters.push(counted("container", &containers));
        }
        setters
    }

    /// The containers that do not say this, if the pod does not say it for them.
    fn silent_containers(&self, member: &str) -> Vec<&'a str> {
        if !self.context()[member].is_null() {
            return Vec::new();
        }
        self.containers_that(|container| container["securityContext"][member].is_null())
    }

    fn annotations(&self) -> impl Iterator<Item = (&'a String, &'a str)> {
        let all = self.annotations.as_object().into_iter().flatten();
        all.map(|(key, value)| (key, value.as_str().unwrap_or_default()))
    }
}

fn app_armor_profile(pod: &Pod<'_>) -> Option<Violation> {
    let mut types = BTreeSet::new();
    let mut setters =
        pod.setters(|context| insert(&mut types, forbidden_profile(context, "appArmorProfile")));
    let mut values: Vec<String> = types.into_iter().map(str::to_owned).collect();
    let is_allowed =
        |profile: &str| matches!(profile, "" | "runtime/default") || profile.starts_with("localhost/");
    let mut annotations: Vec<String> = pod
        .annotations()
        .filter(|(key, profile)| key.starts_with(APP_ARMOR_ANNOTATION) && !is_allowed(profile))
        .map(|(key, profile)| format!("{key}={profile:?}"))
        .collect();
    if !annotations.is_empty() {
        setters.push(plural("annotation", annotations.len()));
        annotations.sort_unstable();
        values.append(&mut annotations);
    }
    let reason = if values.len() == 1 { "forbidden AppArmor profile" } else { "forbidden AppArmor profiles" };
    let list = quoted(&values);
    by(&setters, reason, |who| format!("{who} must not set AppArmor profile type to {list}"))
}

fn default_capabilities(pod: &Pod<'_>) -> Option<Violation> {
    let detail = added_capabilities(pod, &DEFAULT_CAPABILITIES)?;
    Some(Violation { reason: "non-default capabilities", detail })
}

fn host_namespaces(pod: &Pod<'_>) -> Option<Violation> {
    let shared = ["hostNetwork", "hostPID", "hostIPC"].into_iter().filter(|name| pod.spec[*name] == true);
    let shared: Vec<String> = shared.map(|name| format!("{name}=true")).collect();
    (!shared.is_empty()).then(|| Violation { reason: "host namespaces", detail: shared.join(", ") })
}

fn host_path_volumes(pod: &Pod<'_>) -> Option<Violation> {
    let volumes = items(&pod.spec["volumes"]).filter(|volume| volume["hostPath"].is_object());
    let volumes: Vec<&str> = volumes.map(|volume| text(volume, "name")).collect();
    let detail = || counted("volume", &volumes);
    (!volumes.is_empty()).then(|| Violation { reason: "hostPath volumes", detail: detail() })
}

fn host_ports(pod: &Pod<'_>) -> Option<Violation> {
    let mut ports = BTreeSet::new();
    let containers = pod.containers_that(|container| {
        let used = items(&container["ports"]).filter_map(|port| port["hostPort"].as_i64());
        let used: Vec<String> = used.filter(|port| *port != 0).map(|port| port.to_string()).collect();
        let is_bad = !used.is_empty();
        ports.extend(used);
        is_bad
    });
    of(&containers, "hostPort", |who| {
        let list = ports.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        format!("{who} {} {} {list}", uses(containers.len()), plural("hostPort", ports.len()))
    })
}

fn probe_and_lifecycle_hosts(pod: &Pod<'_>) -> Option<Violation> {
    let mut hosts = BTreeSet::new();
    let mut containers = pod.containers_that(|container| {
        let handlers = HANDLERS.iter().filter_map(|place| container.pointer(place));
        let named =
            handlers.flat_map(|handler| ["httpGet", "tcpSocket"].map(|how| text(&handler[how], "host")));
        let named: Vec<&str> = named.filter(|host| !host.is_empty()).collect();
        let is_bad = !named.is_empty();
        hosts.extend(named);
        is_bad
    });
    containers.sort_unstable();
    containers.dedup();
    of(&containers, "probe or lifecycle host", |who| {
        let hosts: Vec<&str> = hosts.iter().copied().collect();
        format!("{who} {} {}", uses(containers.len()), counted("probe or lifecycle host", &hosts))
    })
}

fn privileged(pod: &Pod<'_>) -> Option<Violation> {
    let containers = pod.containers_that(|container| container["securityContext"]["privileged"] == true);
    of(&containers, "privileged", |who| format!("{who} must not set securityContext.privileged=true"))
}

fn proc_mount(pod: &Pod<'_>) -> Option<Violation> {
    let mut types = BTreeSet::new();
    let containers = pod.containers_that(|container| {
        let ty = container["securityContext"]["procMount"].as_str();
        insert(&mut types, ty.filter(|ty| *ty != "Default"))
    });
    of(&containers, "procMount", |who| {
        format!("{who} must not set securityContext.procMount to {}", quoted(&types))
    })
}

fn se_linux_options(pod: &Pod<'_>) -> Option<Violation> {
    let mut types = BTreeSet::new();
    let (mut sets_user, mut sets_role) = (false, false);
    let setters = pod.setters(|context| {
        let options = &context["seLinuxOptions"];
        let is_allowed =
            |ty: &&str| SE_LINUX_TYPES.iter().any(|(name, since)| name == ty && pod.is_since(*since));
        let has_type = insert(&mut types, Some(text(options, "type")).filter(|ty| !is_allowed(ty)));
        let (has_user, has_role) = (!text(options, "user").is_empty(), !text(options, "role").is_empty());
        sets_user |= has_user;
        sets_role |= has_role;
        has_type || has_user || has_role
    });
    let mut bad = Vec::new();
    if !types.is_empty() {
        bad.push(counted("type", &types.into_iter().collect::<Vec<_>>()));
    }
    bad.extend(sets_user.then(|| "user may not be set".to_owned()));
    bad.extend(sets_role.then(|| "role may not be set".to_owned()));
    by(&setters, "seLinuxOptions", |who| {
        format!("{who} set forbidden securityContext.seLinuxOptions: {}", bad.join("; "))
    })
}

fn seccomp_profile(pod: &Pod<'_>) -> Option<Violation> {
    if pod.is_since(19) { forbidden_seccomp_profile(pod) } else { seccomp_annotations(pod) }
}

/// Before there were fields.
fn seccomp_annotations(pod: &Pod<'_>) -> Option<Violation> {
    let is_allowed = |profile: &str| {
        matches!(profile, "runtime/default" | "docker/default") || profile.starts_with("localhost/")
    };
    let is_of_container = |name: &str| pod.containers().any(|container| text(container, "name") == name);
    let counts = |key: &str| {
        key == SECCOMP_ANNOTATION
            || key.strip_prefix(CONTAINER_SECCOMP_ANNOTATION).is_some_and(is_of_container)
    };
    let forbidden = pod.annotations().filter(|(key, profile)| counts(key) && !is_allowed(profile));
    let forbidden: BTreeSet<String> = forbidden.map(|(key, profile)| format!("{key}={profile:?}")).collect();
    (!forbidden.is_empty()).then(|| {
        let (noun, list) = (plural("annotation", forbidden.len()), Vec::from_iter(forbidden).join(", "));
        Violation { reason: "seccompProfile", detail: format!("forbidden {noun} {list}") }
    })
}

fn forbidden_seccomp_profile(pod: &Pod<'_>) -> Option<Violation> {
    let mut types = BTreeSet::new();
    let setters = pod.setters(|context| insert(&mut types, forbidden_profile(context, "seccompProfile")));
    by(&setters, "seccompProfile", |who| {
        format!("{who} must not set securityContext.seccompProfile.type to {}", quoted(&types))
    })
}

fn sysctls(pod: &Pod<'_>) -> Option<Violation> {
    let is_safe = |name: &&str| SAFE_SYSCTLS.iter().any(|(safe, since)| safe == name && pod.is_since(*since));
    let names = items(&pod.context()["sysctls"]).map(|sysctl| text(sysctl, "name"));
    let unsafe_names: Vec<&str> = names.filter(|name| !is_safe(name)).collect();
    let detail = unsafe_names.join(", ");
    (!unsafe_names.is_empty()).then_some(Violation { reason: "forbidden sysctls", detail })
}

fn windows_host_process(pod: &Pod<'_>) -> Option<Violation> {
    let setters = pod.setters(|context| context["windowsOptions"]["hostProcess"] == true);
    by(&setters, "hostProcess", |who| {
        format!("{who} must not set securityContext.windowsOptions.hostProcess=true")
    })
}

fn privilege_escalation(pod: &Pod<'_>) -> Option<Violation> {
    if pod.is_windows() {
        return None;
    }
    let containers =
        pod.containers_that(|container| container["securityContext"]["allowPrivilegeEscalation"] != false);
    of(&containers, "allowPrivilegeEscalation != false", |who| {
        format!("{who} must set securityContext.allowPrivilegeEscalation=false")
    })
}

fn restricted_capabilities(pod: &Pod<'_>) -> Option<Violation> {
    if pod.is_windows() {
        return None;
    }
    let drops_all = |container: &Value| {
        items(&container["securityContext"]["capabilities"]["drop"]).any(|capability| capability == "ALL")
    };
    let keeping = pod.containers_that(|container| !drops_all(container));
    let keeping = (!keeping.is_empty()).then(|| {
        format!("{} must set securityContext.capabilities.drop=[\"ALL\"]", counted("container", &keeping))
    });
    let details: Vec<String> =
        keeping.into_iter().chain(added_capabilities(pod, &["NET_BIND_SERVICE"])).collect();
    let detail = details.join("; ");
    (!details.is_empty()).then_some(Violation { reason: "unrestricted capabilities", detail })
}

fn restricted_volumes(pod: &Pod<'_>) -> Option<Violation> {
    let mut types = BTreeSet::new();
    let volumes = items(&pod.spec["volumes"]).filter(|volume| {
        // Beside its name a volume has one member, its source.
        let mut members = volume.as_object().into_iter().flatten();
        let source = members.find(|(name, value)| *name != "name" && !value.is_null());
        let source = source.map_or("unknown", |(name, _)| name);
        insert(&mut types, Some(source).filter(|source| !HARMLESS_VOLUMES.contains(source)))
    });
    let volumes: Vec<&str> = volumes.map(|volume| text(volume, "name")).collect();
    (!volumes.is_empty()).then(|| {
        let types = counted("restricted volume type", &Vec::from_iter(types));
        let detail = format!("{} {} {types}", counted("volume", &volumes), uses(volumes.len()));
        Violation { reason: "restricted volume types", detail }
    })
}

fn run_as_non_root(pod: &Pod<'_>) -> Option<Violation> {
    const REASON: &str = "runAsNonRoot != true";
    let setters = pod.setters(|context| context["runAsNonRoot"] == false);
    let said = by(&setters, REASON, |who| format!("{who} must not set securityContext.runAsNonRoot=false"));
    said.or_else(|| {
        let silent = pod.silent_containers("runAsNonRoot");
        of(&silent, REASON, |who| format!("pod or {who} must set securityContext.runAsNonRoot=true"))
    })
}

fn run_as_user(pod: &Pod<'_>) -> Option<Violation> {
    let setters = pod.setters(|context| context["runAsUser"] == 0);
    by(&setters, "runAsUser=0", |who| format!("{who} must not set runAsUser=0"))
}

fn required_seccomp_profile(pod: &Pod<'_>) -> Option<Violation> {
    if pod.is_windows() {
        return None;
    }
    forbidden_seccomp_profile(pod).or_else(|| {
        of(&pod.silent_containers("seccompProfile"), "seccompProfile", |who| {
            format!("pod or {who} must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\"")
        })
    })
}

/// What containers add beyond what they may.
fn added_capabilities(pod: &Pod<'_>, allowed: &[&str]) -> Option<String> {
    let mut added = BTreeSet::new();
    let containers = pod.containers_that(|container| {
        let all = items(&container["securityContext"]["capabilities"]["add"]).filter_map(Value::as_str);
        let bad: Vec<&str> = all.filter(|capability| !allowed.contains(capability)).collect();
        added.extend(bad.iter().copied());
        !bad.is_empty()
    });
    let list = quoted(&added);
    (!containers.is_empty()).then(|| {
        let who = counted("container", &containers);
        format!("{who} must not include {list} in securityContext.capabilities.add")
    })
}

/// The type of a profile that is given and is none of those that protect.
fn forbidden_profile<'a>(context: &'a Value, member: &str) -> Option<&'a str> {
    let profile = context.get(member).filter(|profile| !profile.is_null())?;
    Some(text(profile, "type")).filter(|ty| !matches!(*ty, "RuntimeDefault" | "Localhost"))
}

/// Keeps the value, if there is one. Returns whether there is.
fn insert<'a>(values: &mut BTreeSet<&'a str>, value: Option<&'a str>) -> bool {
    values.extend(value);
    value.is_some()
}

/// A violation, if somebody is to blame.
fn by(setters: &[String], reason: &'static str, detail: impl FnOnce(&str) -> String) -> Option<Violation> {
    (!setters.is_empty()).then(|| Violation { reason, detail: detail(&setters.join(" and ")) })
}

/// A violation, if there are such containers.
fn of(containers: &[&str], reason: &'static str, detail: impl FnOnce(&str) -> String) -> Option<Violation> {
    (!containers.is_empty()).then(|| Violation { reason, detail: detail(&counted("container", containers)) })
}

/// `container "a"`, `containers "a", "b"`.
fn counted(noun: &str, names: &[&str]) -> String {
    format!("{} {}", plural(noun, names.len()), quoted(names))
}

fn plural(noun: &str, count: usize) -> String {
    if count == 1 { noun.to_owned() } else { format!("{noun}s") }
}

fn uses(count: usize) -> &'static str {
    if count == 1 { "uses" } else { "use" }
}

fn quoted(names: impl IntoIterator<Item = impl AsRef<str>>) -> String {
    let quoted = names.into_iter().map(|name| format!("\"{}\"", name.as_ref()));
    quoted.collect::<Vec<_>>().join(", ")
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

fn text<'a>(object: &'a Value, member: &str) -> &'a str {
    object[member].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests;
