//! One table for each check: what it says of which pod, at which level and version.

use super::*;
use serde_json::json;

/// What is said of a pod at `level:minor`, or `level` for the latest version.
#[track_caller]
fn check(at: &str, pod: &Value, expected: &[&str]) {
    let (level, version) = match at.split_once(":v1.") {
        Some((level, minor)) => (level, Version::Minor(minor.parse().expect("a number"))),
        None => (at, Version::Latest),
    };
    let level = match level {
        "privileged" => Level::Privileged,
        "baseline" => Level::Baseline,
        _ => Level::Restricted,
    };
    let found = violations(LevelVersion { level, version }, pod);
    let found: Vec<String> =
        found.iter().map(|found| format!("{} ({})", found.reason, found.detail)).collect();
    assert_eq!(found, expected, "{at} {pod}");
}

/// A pod with nothing wrong at any level, but for what is put over it: containers with their contexts, and the spec.
fn pod(contexts: &[(&str, Value)], spec: Value) -> Value {
    let good = json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}});
    let container =
        |(name, context): &(&str, Value)| json!({"name": name, "securityContext": over(&good, context)});
    let containers: Vec<Value> = contexts.iter().map(container).collect();
    let good = json!({"containers": containers,
        "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}}});
    json!({"metadata": {"name": "p"}, "spec": over(&good, &spec)})
}

/// Members of the second put over those of the first; null takes one away.
fn over(base: &Value, more: &Value) -> Value {
    let mut result = base.clone();
    for (name, value) in more.as_object().into_iter().flatten() {
        let is_nested = result[name].is_object() && value.is_object();
        result[name] = if is_nested { over(&result[name], value) } else { value.clone() };
    }
    result
}

/// A pod of one container `c`.
fn one(context: Value, spec: Value) -> Value {
    pod(&[("c", context)], spec)
}

#[test]
fn a_good_pod_is_good_everywhere() {
    let good = one(json!({}), json!({}));
    for at in
        ["privileged", "baseline", "restricted", "restricted:v1.0", "restricted:v1.22", "restricted:v1.99"]
    {
        check(at, &good, &[]);
    }
}

#[test]
fn a_plain_pod_is_told_all_that_restricted_asks_for() {
    let plain = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    check("baseline", &plain, &[]);
    check(
        "restricted",
        &plain,
        &[
            "allowPrivilegeEscalation != false (container \"c\" must set securityContext.allowPrivilegeEscalation=false)",
            "unrestricted capabilities (container \"c\" must set securityContext.capabilities.drop=[\"ALL\"])",
            "runAsNonRoot != true (pod or container \"c\" must set securityContext.runAsNonRoot=true)",
            "seccompProfile (pod or container \"c\" must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\")",
        ],
    );
    check(
        "restricted:v1.7",
        &plain,
        &["runAsNonRoot != true (pod or container \"c\" must set securityContext.runAsNonRoot=true)"],
    );
    let windows = json!({"spec": {"os": {"name": "windows"}, "containers": [{"name": "c"}],
        "securityContext": {"runAsNonRoot": true}}});
    check("restricted:v1.25", &windows, &[]);
    check(
        "restricted:v1.18",
        &windows,
        &[
            "allowPrivilegeEscalation != false (container \"c\" must set securityContext.allowPrivilegeEscalation=false)",
        ],
    );
}

#[test]
fn containers_of_every_list_are_looked_at() {
    let bad = json!({"privileged": true});
    let list = |name: &str| json!([{"name": name, "securityContext": bad}]);
    let all = json!({"spec": {"initContainers": list("i"), "containers": list("c"), "ephemeralContainers": list("e")}});
    check(
        "baseline",
        &all,
        &["privileged (containers \"i\", \"c\", \"e\" must not set securityContext.privileged=true)"],
    );
}

#[test]
fn app_armor() {
    let bad = json!({"appArmorProfile": {"type": "Unconfined"}});
    check(
        "baseline",
        &one(bad.clone(), json!({"securityContext": bad})),
        &[
            "forbidden AppArmor profile (pod and container \"c\" must not set AppArmor profile type to \"Unconfined\")",
        ],
    );
    check("restricted", &one(json!({"appArmorProfile": {"type": "Localhost"}}), json!({})), &[]);
    let mut annotated = one(json!({}), json!({}));
    let annotations = [("a", "unconfined"), ("b", "localhost/x"), ("c", "runtime/default"), ("d", "other")];
    for (name, profile) in annotations {
        annotated["metadata"]["annotations"][format!("{APP_ARMOR_ANNOTATION}{name}")] = profile.into();
    }
    check(
        "baseline:v1.0",
        &annotated,
        &[
            "forbidden AppArmor profiles (annotations must not set AppArmor profile type to \"container.apparmor.security.beta.kubernetes.io/a=\"unconfined\"\", \"container.apparmor.security.beta.kubernetes.io/d=\"other\"\")",
        ],
    );
}

#[test]
fn capabilities() {
    let adds = |all: &[&str]| json!({"capabilities": {"add": all}});
    let two =
        pod(&[("a", adds(&["NET_RAW", "CHOWN"])), ("b", adds(&["SYS_ADMIN"])), ("c", json!({}))], json!({}));
    let said = "containers \"a\", \"b\" must not include \"NET_RAW\", \"SYS_ADMIN\" in securityContext.capabilities.add";
    check("baseline", &two, &[&format!("non-default capabilities ({said})")]);
    check("restricted:v1.21", &two, &[&format!("non-default capabilities ({said})")]);
    check("baseline", &one(adds(&["CHOWN", "NET_BIND_SERVICE"]), json!({})), &[]);
    let drops_one = json!({"capabilities": {"drop": ["CHOWN"], "add": ["CHOWN", "NET_BIND_SERVICE"]}});
    check(
        "restricted",
        &one(drops_one, json!({})),
        &[
            "unrestricted capabilities (container \"c\" must set securityContext.capabilities.drop=[\"ALL\"]; container \"c\" must not include \"CHOWN\" in securityContext.capabilities.add)",
        ],
    );
}

#[test]
fn what_is_the_hosts() {
    check(
        "baseline",
        &one(json!({}), json!({"hostNetwork": true, "hostPID": true, "hostIPC": true})),
        &["host namespaces (hostNetwork=true, hostPID=true, hostIPC=true)"],
    );
    check("baseline", &one(json!({}), json!({"hostNetwork": false})), &[]);
    let mut ports = pod(&[("a", json!({})), ("b", json!({}))], json!({}));
    ports["spec"]["containers"][0]["ports"] =
        json!([{"hostPort": 8080}, {"hostPort": 0}, {"containerPort": 1}]);
    check("baseline", &ports, &["hostPort (container \"a\" uses hostPort 8080)"]);
    ports["spec"]["containers"][1]["ports"] = json!([{"hostPort": 443}]);
    check("restricted", &ports, &["hostPort (containers \"a\", \"b\" use hostPorts 443, 8080)"]);
    check(
        "baseline",
        &one(
            json!({"windowsOptions": {"hostProcess": true}}),
            json!({"securityContext": {"windowsOptions": {"hostProcess": true}}}),
        ),
        &[
            "hostProcess (pod and container \"c\" must not set securityContext.windowsOptions.hostProcess=true)",
        ],
    );
}

#[test]
fn hosts_of_probes() {
    let mut probed = pod(&[("b", json!({})), ("a", json!({}))], json!({}));
    probed["spec"]["containers"][0]["livenessProbe"] = json!({"httpGet": {"host": "example.com"}});
    probed["spec"]["containers"][1]["lifecycle"] = json!({"preStop": {"tcpSocket": {"host": "10.0.0.1"}}});
    let said = "containers \"a\", \"b\" use probe or lifecycle hosts \"10.0.0.1\", \"example.com\"";
    check("baseline", &probed, &[&format!("probe or lifecycle host ({said})")]);
    check("baseline:v1.34", &probed, &[&format!("probe or lifecycle host ({said})")]);
    check("baseline:v1.33", &probed, &[]);
    probed["spec"]["containers"][0]["livenessProbe"]["httpGet"]["host"] = "".into();
    let said = "container \"a\" uses probe or lifecycle host \"10.0.0.1\"";
    check("baseline", &probed, &[&format!("probe or lifecycle host ({said})")]);
}

#[test]
fn volumes() {
    let volumes = json!({"volumes": [{"name": "h", "hostPath": {"path": "/"}}, {"name": "n", "nfs": {}},
        {"name": "e", "emptyDir": {}}, {"name": "i", "image": {"reference": "i"}}, {"name": "h2", "hostPath": {}}]});
    let all = one(json!({}), volumes);
    check("baseline", &all, &["hostPath volumes (volumes \"h\", \"h2\")"]);
    check(
        "restricted:v1.0",
        &all,
        &[
            "restricted volume types (volumes \"h\", \"n\", \"h2\" use restricted volume types \"hostPath\", \"nfs\")",
        ],
    );
    check(
        "restricted",
        &one(json!({}), json!({"volumes": [{"name": "g", "gitRepo": {}}]})),
        &["restricted volume types (volume \"g\" uses restricted volume type \"gitRepo\")"],
    );
}

#[test]
fn users() {
    let root = one(
        json!({"runAsUser": 0, "runAsNonRoot": false}),
        json!({"securityContext": {"runAsUser": 0, "runAsNonRoot": false}}),
    );
    let non_root =
        "runAsNonRoot != true (pod and container \"c\" must not set securityContext.runAsNonRoot=false)";
    check("restricted", &root, &[non_root, "runAsUser=0 (pod and container \"c\" must not set runAsUser=0)"]);
    check("restricted:v1.22", &root, &[non_root]);
    check("baseline", &root, &[]);
    let mut own_users = root.clone();
    own_users["spec"]["hostUsers"] = false.into();
    let by_root = "runAsUser=0 (pod and container \"c\" must not set runAsUser=0)";
    check("restricted", &own_users, &[non_root, by_root]);
    check("restricted:v1.22", &own_users, &[non_root]);
    let silent = pod(
        &[("a", json!({})), ("b", json!({"runAsNonRoot": true})), ("c", json!({}))],
        json!({"securityContext": {"runAsNonRoot": null}}),
    );
    check(
        "restricted",
        &silent,
        &["runAsNonRoot != true (pod or containers \"a\", \"c\" must set securityContext.runAsNonRoot=true)"],
    );
}

#[test]
fn mounts_of_proc() {
    let bad = |users: bool| one(json!({"procMount": "Unmasked"}), json!({"hostUsers": users}));
    let said = ["procMount (container \"c\" must not set securityContext.procMount to \"Unmasked\")"];
    check("baseline", &bad(true), &said);
    check("restricted", &bad(true), &said);
    check("baseline", &bad(false), &said);
    check("restricted", &bad(false), &said);
    check("baseline:v1.34", &bad(false), &said);
    check("restricted:v1.34", &bad(false), &said);
    check("restricted", &one(json!({"procMount": "Default"}), json!({})), &[]);
}

#[test]
fn se_linux() {
    let options = |all: Value| json!({"seLinuxOptions": all});
    check(
        "baseline",
        &one(
            options(json!({"type": "x", "user": "u"})),
            json!({"securityContext": options(json!({"role": "r"}))}),
        ),
        &[
            "seLinuxOptions (pod and container \"c\" set forbidden securityContext.seLinuxOptions: type \"x\"; user may not be set; role may not be set)",
        ],
    );
    let engine = one(options(json!({"type": "container_engine_t", "level": "s0"})), json!({}));
    check("baseline", &engine, &[]);
    check(
        "baseline:v1.30",
        &engine,
        &[
            "seLinuxOptions (container \"c\" set forbidden securityContext.seLinuxOptions: type \"container_engine_t\")",
        ],
    );
    let two = pod(&[("a", options(json!({"type": "y"}))), ("b", options(json!({"type": "x"})))], json!({}));
    check(
        "restricted",
        &two,
        &[
            "seLinuxOptions (containers \"a\", \"b\" set forbidden securityContext.seLinuxOptions: types \"x\", \"y\")",
        ],
    );
}

#[test]
fn seccomp() {
    let bad = json!({"seccompProfile": {"type": "Unconfined"}});
    let both = one(bad.clone(), json!({"securityContext": bad}));
    let said = [
        "seccompProfile (pod and container \"c\" must not set securityContext.seccompProfile.type to \"Unconfined\")",
    ];
    check("baseline", &both, &said);
    check("restricted", &both, &said);
    check("baseline:v1.18", &both, &[]);
    let silent = pod(
        &[("a", json!({})), ("b", json!({"seccompProfile": {"type": "Localhost"}}))],
        json!({"securityContext": {"seccompProfile": null}}),
    );
    check("baseline", &silent, &[]);
    check(
        "restricted",
        &silent,
        &[
            "seccompProfile (pod or container \"a\" must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\")",
        ],
    );
    let mut annotated = one(json!({}), json!({}));
    let prefix = CONTAINER_SECCOMP_ANNOTATION;
    annotated["metadata"]["annotations"] = json!({SECCOMP_ANNOTATION: "unconfined", format!("{prefix}c"): "docker/default",
        format!("{prefix}other"): "unconfined"});
    check(
        "restricted:v1.18",
        &annotated,
        &["seccompProfile (forbidden annotation seccomp.security.alpha.kubernetes.io/pod=\"unconfined\")"],
    );
    check("restricted", &annotated, &[]);
}

#[test]
fn sysctls_become_safe_with_time() {
    let sets = |names: &[&str]| {
        let all: Vec<Value> = names.iter().map(|name| json!({"name": name, "value": "1"})).collect();
        one(json!({}), json!({"securityContext": {"sysctls": all}}))
    };
    let all = sets(&[
        "net.ipv4.tcp_syncookies",
        "net.ipv4.ip_local_reserved_ports",
        "net.ipv4.tcp_rmem",
        "kernel.msgmax",
    ]);
    check("baseline", &all, &["forbidden sysctls (kernel.msgmax)"]);
    check("baseline:v1.31", &all, &["forbidden sysctls (net.ipv4.tcp_rmem, kernel.msgmax)"]);
    check(
        "restricted:v1.26",
        &all,
        &["forbidden sysctls (net.ipv4.ip_local_reserved_ports, net.ipv4.tcp_rmem, kernel.msgmax)"],
    );
}
