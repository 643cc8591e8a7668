//! PodSecurity: pods keep to the security level that the labels of their namespace ask for.
//!
//! ```text
//! labels ──levels──> Policy { enforce, warn } ──checks(pod)──> violations ──> refused, or warned of
//! ```
//!
//! Pods are refused; of what makes pods (Deployments, Jobs, …) its writer is warned. Nobody is exempt. Labels for `audit`
//! must be right but do nothing: there is no audit log.

mod checks;
mod levels;

use super::Request;
use crate::error::{ApiError, Result};
use crate::storage::parse;
use crate::write::invalid_if_any;
use api::{Errors, Field, Value, object};
use checks::{Violation, violations};
use levels::{Fault, Level, LevelVersion, PREFIX, Policy};
use serde::Deserialize;
use std::collections::{BTreeMap, HashSet};

/// Parts of a pod through which nothing comes that is checked.
const HARMLESS: [&str; 8] =
    ["exec", "attach", "binding", "eviction", "log", "portforward", "proxy", "status"];
/// Existing pods are looked at when a namespace asks for more, but not more of them than this.
const MOST_PODS: usize = 3000;

pub(super) fn validate(request: &Request<'_>, object: &Value) -> Result<()> {
    if request.is_for("", "namespaces") {
        return validate_namespace(request, object);
    }
    let Some(place) = place_of_pod(&request.kind.group, &request.kind.plural) else { return Ok(()) };
    let is_pod = place.is_empty();
    let is_harmless =
        if is_pod { HARMLESS.contains(&request.subresource) } else { !request.subresource.is_empty() };
    let Some(policy) = (!is_harmless).then(|| policy(request)).flatten() else { return Ok(()) };
    if is_pod && request.old.is_some_and(|old| !is_significant(object, old)) {
        return Ok(());
    }
    let Some(pod) = object.pointer(place).filter(|pod| pod.is_object()) else { return Ok(()) };
    let Policy { enforce, warn } = policy;
    if is_pod && let Some(what) = details(&violations(enforce, pod)) {
        let why = format!("violates PodSecurity \"{enforce}\": {what}");
        return Err(ApiError::forbidden(request.kind, &request.name, why));
    }
    if let Some(what) = details(&violations(warn, pod)) {
        request.context.warn(format!("would violate PodSecurity \"{warn}\": {what}"));
    }
    Ok(())
}

/// Where a pod, or what pods are made from, stands in an object.
fn place_of_pod(group: &str, plural: &str) -> Option<&'static str> {
    match (group, plural) {
        ("", "pods") => Some(""),
        ("", "podtemplates") => Some("/template"),
        ("", "replicationcontrollers")
        | ("apps", "daemonsets" | "deployments" | "replicasets" | "statefulsets")
        | ("batch", "jobs") => Some("/spec/template"),
        ("batch", "cronjobs") => Some("/spec/jobTemplate/spec/template"),
        _ => None,
    }
}

/// What the namespace of the request asks for, if it asks for anything. Its cached labels need no decoding.
fn policy(request: &Request<'_>) -> Option<Policy> {
    let namespace = request.server.registry.built_in("", "namespaces").cache.get("", &request.namespace)?;
    let labels = namespace.labels();
    labels.iter().any(|(key, _)| key.starts_with(PREFIX)).then(|| Policy::read(|key| labels.get(key)).0)
}

/// Of what may change in a pod, images and new containers are looked at.
fn is_significant(new: &Value, old: &Value) -> bool {
    fn containers<'a>(pod: &'a Value, list: &str) -> &'a [Value] {
        pod["spec"][list].as_array().map(Vec::as_slice).unwrap_or_default()
    }
    let in_order = ["containers", "initContainers"].iter().any(|list| {
        let (new, old) = (containers(new, list), containers(old, list));
        new.len() != old.len() || new.iter().zip(old).any(|(new, old)| new["image"] != old["image"])
    });
    let before = containers(old, "ephemeralContainers");
    in_order
        || containers(new, "ephemeralContainers").iter().any(|new| {
            let old = before.iter().find(|old| old["name"] == new["name"]);
            old.is_none_or(|old| old["image"] != new["image"])
        })
}

/// What is wrong, in full; nothing if nothing is.
fn details(violations: &[Violation]) -> Option<String> {
    let said = violations.iter().map(|violation| format!("{} ({})", violation.reason, violation.detail));
    (!violations.is_empty()).then(|| said.collect::<Vec<_>>().join(", "))
}

/// Labels must be right, and whoever asks for more is told which pods do not keep to it.
fn validate_namespace(request: &Request<'_>, namespace: &Value) -> Result<()> {
    let (policy, faults) = read(namespace);
    let Some(old) = request.old else { return refuse(request, namespace, &faults) };
    let (before, old_faults) = read(old);
    if faults != old_faults {
        refuse(request, namespace, &faults)?;
    }
    if asks_for_more(policy.enforce, before.enforce) {
        let pods = request.server.registry.built_in("", "pods").objects(Some(&request.name));
        let total = pods.len();
        let pods = one_of_each_first(pods, MOST_PODS, |pod| controller(pod.as_json()));
        let pods = pods.iter().filter_map(|pod| parse(pod.as_json()).ok());
        let warnings = existing_pods(&request.name, policy.enforce, pods, total);
        warnings.into_iter().for_each(|warning| request.context.warn(warning));
    }
    Ok(())
}

fn read(namespace: &Value) -> (Policy, Vec<Fault>) {
    let labels = &namespace["metadata"]["labels"];
    Policy::read(|key| labels.get(key).and_then(Value::as_str))
}

fn refuse(request: &Request<'_>, namespace: &Value, faults: &[Fault]) -> Result<()> {
    let mut errors = Errors::new();
    let root = Field::root(namespace);
    let metadata = root.get("metadata");
    let labels = metadata.get("labels");
    for fault in faults {
        labels.key(fault.label).invalid(fault.expected, &mut errors);
    }
    invalid_if_any(request.kind, namespace, errors)
}

/// Whether pods that were let in before may not be any more.
fn asks_for_more(new: LevelVersion, old: LevelVersion) -> bool {
    let is_relaxed = new.version == old.version && new.level <= old.level;
    new.level != Level::Privileged && !is_relaxed
}

/// Of too many pods the first `most`: one of each controller before others of the same.
fn one_of_each_first<T>(pods: Vec<T>, most: usize, controller: impl Fn(&T) -> Option<String>) -> Vec<T> {
    if pods.len() <= most {
        return pods;
    }
    let mut seen = HashSet::new();
    let is_first = |pod: &T| controller(pod).is_none_or(|uid| seen.insert(uid));
    let (mut first, others): (Vec<T>, Vec<T>) = pods.into_iter().partition(is_first);
    first.extend(others);
    first.truncate(most);
    first
}

/// The uid of the controller of an encoded pod.
fn controller(json: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Pod {
        metadata: Metadata,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Metadata {
        #[serde(default)]
        owner_references: Vec<Owner>,
    }
    #[derive(Deserialize)]
    struct Owner {
        uid: String,
        #[serde(default)]
        controller: bool,
    }
    let pod: Pod = serde_json::from_slice(json).ok()?;
    pod.metadata.owner_references.into_iter().find(|owner| owner.controller).map(|owner| owner.uid)
}

/// What to say of pods that are there already: those with the same faults together, under the first of their names.
fn existing_pods(
    namespace: &str,
    enforce: LevelVersion,
    pods: impl Iterator<Item = Value>,
    total: usize,
) -> Vec<String> {
    let mut checked = 0;
    let mut faults: BTreeMap<String, (String, usize)> = BTreeMap::new();
    for pod in pods {
        checked += 1;
        let reasons: Vec<&str> = violations(enforce, &pod).iter().map(|violation| violation.reason).collect();
        if reasons.is_empty() {
            continue;
        }
        let name = object::name(&pod);
        let (first, count) = faults.entry(reasons.join(", ")).or_insert_with(|| (name.to_owned(), 0));
        *count += 1;
        if name < first.as_str() {
            *first = name.to_owned();
        }
    }
    let mut warnings = Vec::new();
    if checked < total {
        warnings.push(format!(
            "new PodSecurity enforce level only checked against the first {checked} of {total} existing pods"
        ));
    }
    if !faults.is_empty() {
        warnings.push(format!(
            "existing pods in namespace {namespace:?} violate the new PodSecurity enforce level \"{enforce}\""
        ));
    }
    let mut said: Vec<String> = faults
        .into_iter()
        .map(|(reasons, (first, count))| match count {
            1 => format!("{first}: {reasons}"),
            2 => format!("{first} (and 1 other pod): {reasons}"),
            _ => format!("{first} (and {} other pods): {reasons}", count - 1),
        })
        .collect();
    said.sort_unstable();
    warnings.extend(said);
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;
    use levels::Version;
    use serde_json::json;

    fn at(level: Level, version: Version) -> LevelVersion {
        LevelVersion { level, version }
    }

    fn pod(name: &str, spec: Value) -> Value {
        json!({"metadata": {"name": name}, "spec": spec})
    }

    #[test]
    fn images_and_new_containers_are_significant() {
        let base = json!({"containers": [{"name": "c", "image": "a"}], "initContainers": [{"name": "i", "image": "a"}],
            "ephemeralContainers": [{"name": "e", "image": "a"}]});
        let check = |place: &str, value: Value, expected| {
            let mut spec = base.clone();
            *spec.pointer_mut(place).expect("a place") = value;
            assert_eq!(is_significant(&pod("p", spec), &pod("p", base.clone())), expected, "{place}");
        };
        check("/containers/0/image", json!("a"), false);
        check("/containers/0/image", json!("b"), true);
        check("/containers/0/name", json!("other"), false);
        check("/initContainers/0/image", json!("b"), true);
        check("/initContainers", json!([]), true);
        check("/ephemeralContainers/0/image", json!("b"), true);
        check("/ephemeralContainers/0/name", json!("new"), true);
        check("/ephemeralContainers", json!([]), false);
    }

    #[test]
    fn existing_pods_are_looked_at_when_more_is_asked_for() {
        use Level::{Baseline, Privileged, Restricted};
        let (old, new) = (Version::Minor(20), Version::Latest);
        let check =
            |now, before, expected| assert_eq!(asks_for_more(now, before), expected, "{now}, {before}");
        check(at(Baseline, new), at(Privileged, new), true);
        check(at(Restricted, new), at(Baseline, new), true);
        check(at(Baseline, new), at(Baseline, new), false);
        check(at(Baseline, new), at(Restricted, new), false);
        check(at(Baseline, new), at(Restricted, old), true);
        check(at(Privileged, new), at(Restricted, old), false);
    }

    #[test]
    fn existing_pods_are_named_by_what_is_wrong_with_them() {
        let host = json!({"hostNetwork": true});
        let both = json!({"hostPID": true, "volumes": [{"name": "v", "hostPath": {"path": "/"}}]});
        let pods = || vec![("d", &host), ("b", &host), ("c", &host), ("a", &both), ("ok", &Value::Null)];
        let pods = || pods().into_iter().map(|(name, spec)| pod(name, spec.clone()));
        let enforce = at(Level::Baseline, Version::Latest);
        let head =
            "existing pods in namespace \"ns\" violate the new PodSecurity enforce level \"baseline:latest\"";
        let said = ["a: host namespaces, hostPath volumes", "b (and 2 other pods): host namespaces"];
        assert_eq!(existing_pods("ns", enforce, pods(), 5), [head, said[0], said[1]]);
        assert_eq!(
            existing_pods("ns", enforce, pods().take(2), 5),
            [
                "new PodSecurity enforce level only checked against the first 2 of 5 existing pods",
                head,
                "b (and 1 other pod): host namespaces"
            ]
        );
        assert!(existing_pods("ns", at(Level::Privileged, Version::Latest), pods(), 5).is_empty());
    }

    #[test]
    fn of_too_many_pods_one_of_each_controller_comes_first() {
        let pods = vec![
            ("a1", Some("a")),
            ("a2", Some("a")),
            ("single", None),
            ("b1", Some("b")),
            ("b2", Some("b")),
        ];
        let first = |most| {
            let kept = one_of_each_first(pods.clone(), most, |pod| pod.1.map(str::to_owned));
            kept.into_iter().map(|pod| pod.0).collect::<Vec<_>>()
        };
        assert_eq!(first(4), ["a1", "single", "b1", "a2"]);
        assert_eq!(first(5), ["a1", "a2", "single", "b1", "b2"]);
        let owners = json!([{"uid": "other"}, {"uid": "mine", "controller": true}]);
        let owned = json!({"metadata": {"ownerReferences": owners}}).to_string();
        assert_eq!(controller(owned.as_bytes()).as_deref(), Some("mine"));
        assert_eq!(controller(br#"{"metadata": {}}"#), None);
    }
}
