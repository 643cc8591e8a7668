//! A pod that names a RuntimeClass takes on what that runtime costs, and where it runs.

use super::{Operation, Request};
use crate::error::{ApiError, Result};
use api::{Quantity, Value, object};
use serde_json::{Map, json};

pub(super) fn admit(request: &Request<'_>, pod: Option<&mut Value>) -> Result<()> {
    let Some(pod) = pod else { return Ok(()) };
    if !request.is_for("", "pods") || request.operation != Operation::Create {
        return Ok(());
    }
    let refused = |why: String| ApiError::forbidden(request.kind, &request.name, why);
    let class = match pod["spec"]["runtimeClassName"].as_str() {
        Some(name) => {
            let found = request.server.lookup("node.k8s.io", "runtimeclasses", "", name);
            Some(found.ok_or_else(|| refused(format!("pod rejected: RuntimeClass {name:?} not found")))?)
        }
        None => None,
    };
    let spec = object::object_mut(pod, "spec");
    take_overhead(spec, class.as_ref()).map_err(refused)?;
    class.map_or(Ok(()), |class| take_scheduling(spec, &class["scheduling"])).map_err(refused)
}

fn take_overhead(spec: &mut Map<String, Value>, class: Option<&Value>) -> Result<(), String> {
    let given = spec.get("overhead").filter(|given| !given.is_null());
    match class.and_then(|class| class["overhead"].get("podFixed")) {
        Some(fixed) => {
            if given.is_some_and(|given| given != &json!({}) && !same_amounts(given, fixed)) {
                return Err(
                    "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead".into()
                );
            }
            spec.insert("overhead".into(), fixed.clone());
            Ok(())
        }
        None if given.is_some() => {
            Err("pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead".into())
        }
        None => Ok(()),
    }
}

/// `1Gi` is `1024Mi`.
fn same_amounts(a: &Value, b: &Value) -> bool {
    let (Some(a), Some(b)) = (a.as_object(), b.as_object()) else { return false };
    let amount = |value: &Value| value.as_str().and_then(|text| text.parse::<Quantity>().ok());
    a.len() == b.len()
        && a.iter().all(|(name, value)| b.get(name).is_some_and(|b| amount(b) == amount(value)))
}

fn take_scheduling(spec: &mut Map<String, Value>, scheduling: &Value) -> Result<(), String> {
    let wanted = scheduling["nodeSelector"].as_object().into_iter().flatten();
    for (key, value) in wanted {
        let selector = spec.entry("nodeSelector").or_insert_with(|| json!({}));
        match selector.get(key).filter(|own| *own != value) {
            Some(own) => {
                let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                let (own, value) = (text(own), text(value));
                return Err(format!(
                    "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; pod.spec.nodeSelector[{key}] = {own}"
                ));
            }
            None => selector[key.as_str()] = value.clone(),
        }
    }
    let own = spec.get("tolerations").and_then(Value::as_array).cloned().unwrap_or_default();
    let more: Vec<Value> = scheduling["tolerations"].as_array().into_iter().flatten().cloned().collect();
    let more: Vec<Value> = more.into_iter().filter(|toleration| !own.contains(toleration)).collect();
    if !more.is_empty() {
        spec.insert("tolerations".into(), own.into_iter().chain(more).collect());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(spec: Value, class: Option<Value>, expected: Result<Value, &str>) {
        let mut spec = spec.as_object().expect("an object").clone();
        let done = take_overhead(&mut spec, class.as_ref()).and_then(|()| {
            take_scheduling(&mut spec, class.as_ref().map_or(&Value::Null, |c| &c["scheduling"]))
        });
        match expected {
            Ok(expected) => assert_eq!(done.map(|()| Value::Object(spec)), Ok(expected)),
            Err(why) => assert!(done.as_ref().is_err_and(|error| error.contains(why)), "{done:?}"),
        }
    }

    #[test]
    fn a_pod_takes_on_what_its_runtime_costs() {
        let class = || Some(json!({"overhead": {"podFixed": {"cpu": "250m", "memory": "1Gi"}}}));
        let with = || json!({"overhead": {"cpu": "250m", "memory": "1Gi"}});
        check(json!({}), class(), Ok(with()));
        check(json!({"overhead": {"cpu": "0.25", "memory": "1024Mi"}}), class(), Ok(with()));
        check(json!({"overhead": {"cpu": "1"}}), class(), Err("doesn't match"));
        check(with(), None, Err("without corresponding RuntimeClass"));
        check(json!({}), None, Ok(json!({})));
    }

    #[test]
    fn a_pod_goes_where_its_runtime_is() {
        let toleration = json!({"key": "gvisor", "operator": "Exists"});
        let class = || {
            Some(json!({"scheduling": {"nodeSelector": {"runtime": "gvisor"}, "tolerations": [toleration]}}))
        };
        let placed = || json!({"nodeSelector": {"runtime": "gvisor"}, "tolerations": [toleration]});
        check(json!({}), class(), Ok(placed()));
        check(placed(), class(), Ok(placed()));
        check(
            json!({"nodeSelector": {"runtime": "runc"}}),
            class(),
            Err(
                "conflict: runtimeClass.scheduling.nodeSelector[runtime] = gvisor; pod.spec.nodeSelector[runtime] = runc",
            ),
        );
    }
}
