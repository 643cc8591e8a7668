//! What to write so that FlowSchemas and levels are there as they should be, and say what becomes of them.
//!
//! Mandatory ones are always as the program says. Suggested ones are too, unless they are annotated
//! `apf.kubernetes.io/autoupdate-spec: "false"`, or not at all and have been changed. Those that carry the annotation `true`
//! and are suggested no longer are removed.

use crate::time;
use api::kinds::flowcontrol::{AUTOUPDATE, MANDATORY};
use api::{Value, equality, object};
use jiff::Timestamp;
use serde_json::json;

/// The condition that says that there is no level for a schema.
const DANGLING: &str = "Dangling";

/// An object of which there is one in every cluster, as it should be; `None` if it is so already.
pub fn kept(current: &Value, wanted: &Value) -> Option<Value> {
    let is_kept = MANDATORY.contains(&object::name(wanted)) || updates_itself(current);
    let mut next = current.clone();
    if is_kept && !is_same_spec(current, wanted) {
        next["spec"] = wanted["spec"].clone();
        next["metadata"]["generation"] = (generation(current) + 1).into();
    }
    if annotation(current) != Some(is_kept) {
        let annotations = object::object_mut(&mut next["metadata"], "annotations");
        annotations.insert(AUTOUPDATE.into(), is_kept.to_string().into());
    }
    (next != *current).then_some(next)
}

/// Whether an object was made by a server of another version, which suggested more.
pub fn is_left_over(current: &Value, wanted: &[Value]) -> bool {
    let is_wanted =
        |wanted: &Value| object::name(wanted) == object::name(current) && wanted["kind"] == current["kind"];
    annotation(current) == Some(true) && !wanted.iter().any(is_wanted)
}

/// A schema that says whether its level is there; `None` if it does so already.
pub fn told(schema: &Value, has_level: bool, now: Timestamp) -> Option<Value> {
    let level = schema["spec"]["priorityLevelConfiguration"]["name"].as_str().unwrap_or_default();
    let (status, reason, end) = match has_level {
        true => ("False", "Found", "and it exists"),
        false => ("True", "NotFound", "but there is no such object"),
    };
    let message =
        format!("This FlowSchema references the PriorityLevelConfiguration object named {level:?} {end}");
    let conditions = schema["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let says = |condition: &Value| {
        condition["type"] == DANGLING
            && condition["status"] == status
            && condition["reason"] == reason
            && condition["message"] == message.as_str()
    };
    if conditions.iter().any(says) {
        return None;
    }
    let others = conditions.into_iter().filter(|condition| condition["type"] != DANGLING);
    let own = json!({"type": DANGLING, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": time::rfc3339(now)});
    let mut next = schema.clone();
    next["status"] = json!({"conditions": others.chain([own]).collect::<Vec<_>>()});
    Some(next)
}

fn updates_itself(current: &Value) -> bool {
    annotation(current).unwrap_or_else(|| generation(current) <= 1)
}

fn generation(object: &Value) -> i64 {
    object["metadata"]["generation"].as_i64().unwrap_or(0)
}

/// What the annotation says, in one of the ways in which Go says it.
fn annotation(object: &Value) -> Option<bool> {
    match object["metadata"]["annotations"][AUTOUPDATE].as_str()? {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

/// How much the exempt level keeps free is the administrator's matter.
fn is_same_spec(current: &Value, wanted: &Value) -> bool {
    if wanted["spec"]["type"] == "Exempt" {
        return current["spec"]["type"] == "Exempt" && current["spec"].get("limited").is_none();
    }
    equality::same(&current["spec"], &wanted["spec"])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn level(name: &str, annotation: Value, generation: u64, shares: u32) -> Value {
        let mut level = json!({"kind": "PriorityLevelConfiguration", "metadata": {"name": name, "generation": generation},
            "spec": {"type": "Limited", "limited": {"nominalConcurrencyShares": shares}}});
        if !annotation.is_null() {
            level["metadata"]["annotations"] = json!({ AUTOUPDATE: annotation });
        }
        level
    }

    /// Shares, annotation and generation of what is written over an object whose shares should be 7.
    fn check(current: Value, expected: Option<(u32, &str, u64)>) {
        let name = object::name(&current).to_owned();
        let next = kept(&current, &level(&name, json!("true"), 1, 7));
        let expected = expected
            .map(|(shares, annotation, generation)| level(&name, json!(annotation), generation, shares));
        assert_eq!(next, expected, "{current}");
    }

    #[test]
    fn suggestions_are_kept_unless_somebody_has_another_mind() {
        check(level("system", json!("true"), 3, 7), None);
        check(level("system", json!("true"), 3, 9), Some((7, "true", 4)));
        check(level("system", json!("false"), 3, 9), None);
        check(level("system", Value::Null, 1, 9), Some((7, "true", 2)));
        check(level("system", Value::Null, 2, 9), Some((9, "false", 2)));
        check(level("system", json!("maybe"), 2, 9), Some((9, "false", 2)));
        check(level("catch-all", json!("false"), 2, 9), Some((7, "true", 3)));
        check(level("catch-all", json!("false"), 2, 7), Some((7, "true", 2)));
    }

    #[test]
    fn what_the_exempt_level_keeps_free_is_not_ours_to_say() {
        let exempt = |shares: u32| {
            json!({"metadata": {"name": "exempt", "annotations": {AUTOUPDATE: "true"}},
                "spec": {"type": "Exempt", "exempt": {"nominalConcurrencyShares": shares}}})
        };
        assert_eq!(kept(&exempt(5), &exempt(0)), None);
    }

    #[test]
    fn only_what_servers_made_is_removed() {
        let wanted = [level("system", json!("true"), 1, 1)];
        let check = |current: Value, expected: bool| {
            assert_eq!(is_left_over(&current, &wanted), expected, "{current}")
        };
        check(level("system", json!("true"), 1, 1), false);
        check(level("old", json!("true"), 1, 1), true);
        check(level("old", json!("false"), 1, 1), false);
        check(level("old", Value::Null, 1, 1), false);
        let mut schema = level("system", json!("true"), 1, 1);
        schema["kind"] = "FlowSchema".into();
        check(schema, true);
    }

    #[test]
    fn schemas_say_whether_their_level_is_there() {
        let now = Timestamp::from_second(0).unwrap();
        let schema = json!({"spec": {"priorityLevelConfiguration": {"name": "l"}},
            "status": {"conditions": [{"type": "Mine", "status": "True"}]}});
        let dangling = told(&schema, false, now).unwrap();
        let message = "This FlowSchema references the PriorityLevelConfiguration object named \"l\" but there is no such object";
        let expected = json!({"type": "Dangling", "status": "True", "reason": "NotFound", "message": message,
            "lastTransitionTime": "1970-01-01T00:00:00Z"});
        assert_eq!(dangling["status"]["conditions"], json!([{"type": "Mine", "status": "True"}, expected]));
        assert_eq!(told(&dangling, false, now), None);
        let found = told(&dangling, true, now).unwrap();
        assert_eq!(found["status"]["conditions"][1]["status"], "False");
        assert_eq!(found["status"]["conditions"].as_array().unwrap().len(), 2);
        assert_eq!(told(&found, true, now), None);
    }
}
