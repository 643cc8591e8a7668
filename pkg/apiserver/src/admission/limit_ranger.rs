//! What one pod, container or claim of a namespace may ask for, and asks for by default, as LimitRanges say.

use super::{Operation, Request};
use crate::error::{ApiError, Result};
use crate::storage::parse;
use api::kinds::pod_spec::requests::{Amounts, amounts, container_limits, container_requests};
use api::{Quantity, Value, object};

const ANNOTATION: &str = "kubernetes.io/limit-ranger";
/// What a pod as a whole may say of itself, which then counts instead of its containers' sum.
const POD_LEVEL: [&str; 2] = ["cpu", "memory"];

pub(super) fn admit(request: &Request<'_>, object: Option<&mut Value>) -> Result<()> {
    let Some(object) = object else { return Ok(()) };
    // What a pod asks for changes by this door only.
    let is_resize = request.subresource == "resize";
    let is_pod = is_resize || request.is_for("", "pods");
    let applies = match request.operation {
        Operation::Create => is_pod || request.is_for("", "persistentvolumeclaims"),
        Operation::Update => is_resize || request.is_for("", "persistentvolumeclaims"),
        Operation::Delete | Operation::Connect => false,
    };
    if !applies || request.old.is_some_and(|old| object::meta(old, "deletionTimestamp").is_some()) {
        return Ok(());
    }
    let ranges = request.server.registry.built_in("", "limitranges");
    if ranges.cache.is_empty() {
        return Ok(());
    }
    let ranges = ranges.objects(Some(&request.namespace));
    let ranges: Vec<Value> = ranges.iter().map(|range| parse(range.as_json())).collect::<Result<_>>()?;
    for range in ranges.iter().filter(|_| is_pod) {
        set_defaults(object, range);
    }
    for range in &ranges {
        let faults = if is_pod { pod_faults(object, range) } else { claim_faults(object, range) };
        if !faults.is_empty() {
            return Err(ApiError::forbidden(request.kind, &request.name, aggregate(faults)));
        }
    }
    Ok(())
}

/// Several complaints as one sentence; none is said twice.
fn aggregate(faults: Vec<String>) -> String {
    let mut said: Vec<String> = Vec::new();
    for fault in faults {
        if !said.contains(&fault) {
            said.push(fault);
        }
    }
    match said.as_slice() {
        [one] => one.clone(),
        many => format!("[{}]", many.join(", ")),
    }
}

fn limits<'a>(range: &'a Value, ty: &'a str) -> impl Iterator<Item = &'a Value> {
    let all = range["spec"]["limits"].as_array().map(Vec::as_slice).unwrap_or_default();
    all.iter().filter(move |limit| limit["type"] == ty)
}

/// Gives each container what it does not ask for itself, and says so in an annotation.
fn set_defaults(pod: &mut Value, range: &Value) {
    let (mut requests, mut most) = (Vec::new(), Vec::new());
    for limit in limits(range, "Container") {
        for (list, found) in [("defaultRequest", &mut requests), ("default", &mut most)] {
            let entries = limit.get(list).and_then(Value::as_object).into_iter().flatten();
            found.extend(entries.map(|(name, amount)| (name.clone(), amount.clone())));
        }
    }
    let mut said = Vec::new();
    for (list, what) in [("containers", "container"), ("initContainers", "init container")] {
        for container in pod["spec"][list].as_array_mut().into_iter().flatten() {
            let name = container["name"].as_str().unwrap_or_default().to_owned();
            let limits_set = fill(container, "limits", &most);
            for (set, word) in [(fill(container, "requests", &requests), "request"), (limits_set, "limit")] {
                if !set.is_empty() {
                    said.push(format!("{} {word} for {what} {name}", set.join(", ")));
                }
            }
        }
    }
    // Reading a list that is not there has put a null in its place.
    object::object_mut(pod, "spec").retain(|_, value| !value.is_null());
    if !said.is_empty() {
        let text = format!("LimitRanger plugin set: {}", said.join("; "));
        object::object_mut(&mut pod["metadata"], "annotations").insert(ANNOTATION.into(), text.into());
    }
}

/// Adds the amounts that are missing, and names them in order.
fn fill(container: &mut Value, list: &str, defaults: &[(String, Value)]) -> Vec<String> {
    if defaults.is_empty() {
        return Vec::new();
    }
    object::object_mut(container, "resources");
    let amounts = object::object_mut(&mut container["resources"], list);
    let mut set = Vec::new();
    for (name, amount) in defaults {
        if !amounts.contains_key(name) || set.contains(name) {
            amounts.insert(name.clone(), amount.clone());
            set.push(name.clone());
        }
    }
    set.sort_unstable();
    set.dedup();
    set
}

fn pod_faults(pod: &Value, range: &Value) -> Vec<String> {
    let spec = &pod["spec"];
    let mut faults = Vec::new();
    for limit in limits(range, "Container") {
        for list in ["containers", "initContainers"] {
            for container in spec.get(list).and_then(Value::as_array).into_iter().flatten() {
                let requests = amounts(container, "resources.requests");
                check(limit, "Container", &requests, &amounts(container, "resources.limits"), &mut faults);
            }
        }
    }
    for limit in limits(range, "Pod") {
        let (mut requests, mut most) = (container_requests(spec), container_limits(spec));
        let own =
            |path: &str| amounts(spec, path).into_iter().filter(|(name, _)| POD_LEVEL.contains(&&**name));
        requests.extend(own("resources.requests"));
        most.extend(own("resources.limits"));
        check(limit, "Pod", &requests, &most, &mut faults);
    }
    faults
}

fn claim_faults(claim: &Value, range: &Value) -> Vec<String> {
    let requests = amounts(&claim["spec"], "resources.requests");
    let mut faults = Vec::new();
    for limit in limits(range, "PersistentVolumeClaim") {
        let ty = "PersistentVolumeClaim";
        for (name, enforced) in amounts(limit, "min") {
            faults.extend(below_min(ty, &name, enforced, &requests, &Amounts::new()));
        }
        for (name, enforced) in amounts(limit, "max") {
            faults.extend(match requests.get(&name) {
                None => {
                    Some(format!("maximum {name} usage per {ty} is {enforced}.  No request is specified"))
                }
                Some(request) if *request > enforced => {
                    Some(format!("maximum {name} usage per {ty} is {enforced}, but request is {request}"))
                }
                Some(_) => None,
            });
        }
    }
    faults
}

fn check(limit: &Value, ty: &str, requests: &Amounts, limits: &Amounts, faults: &mut Vec<String>) {
    for (name, enforced) in amounts(limit, "min") {
        faults.extend(below_min(ty, &name, enforced, requests, limits));
    }
    for (name, enforced) in amounts(limit, "max") {
        faults.extend(above_max(ty, &name, enforced, requests, limits));
    }
    for (name, enforced) in amounts(limit, "maxLimitRequestRatio") {
        faults.extend(above_ratio(ty, &name, enforced, requests, limits));
    }
}

fn below_min(
    ty: &str,
    name: &str,
    enforced: Quantity,
    requests: &Amounts,
    limits: &Amounts,
) -> Option<String> {
    let least = format!("minimum {name} usage per {ty} is {enforced}");
    match (requests.get(name), limits.get(name)) {
        (None, _) => Some(format!("{least}.  No request is specified")),
        (Some(request), _) if *request < enforced => Some(format!("{least}, but request is {request}")),
        (_, Some(limit)) if *limit < enforced => Some(format!("{least}, but limit is {limit}")),
        _ => None,
    }
}

fn above_max(
    ty: &str,
    name: &str,
    enforced: Quantity,
    requests: &Amounts,
    limits: &Amounts,
) -> Option<String> {
    let most = format!("maximum {name} usage per {ty} is {enforced}");
    match (requests.get(name), limits.get(name)) {
        (_, None) => Some(format!("{most}.  No limit is specified")),
        (_, Some(limit)) if *limit > enforced => Some(format!("{most}, but limit is {limit}")),
        (Some(request), _) if *request > enforced => Some(format!("{most}, but request is {request}")),
        _ => None,
    }
}

fn above_ratio(
    ty: &str,
    name: &str,
    enforced: Quantity,
    requests: &Amounts,
    limits: &Amounts,
) -> Option<String> {
    let most = format!("{name} max limit to request ratio per {ty} is {enforced}");
    let given = |amounts: &Amounts| amounts.get(name).copied().filter(|amount| !amount.is_zero());
    let Some(request) = given(requests) else {
        return Some(format!("{most}, but no request is specified or request is 0"));
    };
    let Some(limit) = given(limits) else {
        return Some(format!("{most}, but no limit is specified or limit is 0"));
    };
    let ratio = limit.milli_value() as f64 / request.milli_value() as f64;
    (ratio * 1000.0 > enforced.milli_value() as f64)
        .then(|| format!("{most}, but provided ratio is {ratio:.6}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn range(limit: Value) -> Value {
        json!({"spec": {"limits": [limit]}})
    }

    fn pod(resources: Value) -> Value {
        json!({"metadata": {}, "spec": {"containers": [{"name": "c", "resources": resources}]}})
    }

    #[test]
    fn defaults_are_set_and_said() {
        let range = range(json!({"type": "Container", "default": {"cpu": "1", "memory": "1Gi"},
            "defaultRequest": {"cpu": "100m"}}));
        let mut object = pod(json!({"limits": {"memory": "2Gi"}}));
        set_defaults(&mut object, &range);
        let resources = &object["spec"]["containers"][0]["resources"];
        assert_eq!(*resources, json!({"limits": {"cpu": "1", "memory": "2Gi"}, "requests": {"cpu": "100m"}}));
        assert_eq!(
            object["metadata"]["annotations"][ANNOTATION],
            "LimitRanger plugin set: cpu request for container c; cpu limit for container c"
        );
        assert!(object["spec"].get("initContainers").is_none());
    }

    #[test]
    fn bounds_are_kept() {
        let cases = [
            (
                json!({"min": {"cpu": "1"}}),
                json!({}),
                "minimum cpu usage per T is 1.  No request is specified",
            ),
            (
                json!({"min": {"cpu": "1"}}),
                json!({"requests": {"cpu": "500m"}}),
                "minimum cpu usage per T is 1, but request is 500m",
            ),
            (json!({"max": {"cpu": "1"}}), json!({}), "maximum cpu usage per T is 1.  No limit is specified"),
            (
                json!({"max": {"memory": "1Gi"}}),
                json!({"limits": {"memory": "2Gi"}}),
                "maximum memory usage per T is 1Gi, but limit is 2Gi",
            ),
            (
                json!({"maxLimitRequestRatio": {"cpu": "2"}}),
                json!({"limits": {"cpu": "3"}, "requests": {"cpu": "1"}}),
                "cpu max limit to request ratio per T is 2, but provided ratio is 3.000000",
            ),
            (json!({"max": {"cpu": "1"}}), json!({"limits": {"cpu": "1"}, "requests": {"cpu": "1"}}), ""),
        ];
        for (limit, resources, fault) in cases {
            for ty in ["Container", "Pod"] {
                let mut limit = limit.clone();
                limit["type"] = ty.into();
                let faults = pod_faults(&pod(resources.clone()), &range(limit));
                assert_eq!(aggregate(faults).replace("[]", ""), fault.replace("per T", &format!("per {ty}")));
            }
        }
    }
}
