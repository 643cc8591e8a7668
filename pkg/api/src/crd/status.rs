//! What becomes of a definition: which of its names are free, and whether it is served.

use super::{text, texts};
use crate::kind::Kind;
use crate::object;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The names that other definitions of a group hold.
#[derive(Debug, Default)]
pub struct Names {
    resources: BTreeSet<String>,
    kinds: BTreeSet<String>,
}

impl Names {
    /// The accepted names of all definitions of `group`, the asking one included since its own do not conflict, and
    /// those of built-in kinds of that group.
    pub fn of_group<'a>(
        group: &str,
        definitions: impl Iterator<Item = &'a Value>,
        built_in: &[Arc<Kind>],
    ) -> Names {
        let mut names = Names::default();
        for kind in built_in.iter().filter(|kind| kind.group == group && kind.custom.is_none()) {
            names.resources.extend([kind.plural.clone(), kind.singular.clone()]);
            names.resources.extend(kind.short_names.iter().cloned());
            names.kinds.extend([kind.kind.clone(), kind.list_kind.clone()]);
        }
        for definition in definitions.filter(|definition| text(&definition["spec"], "group") == group) {
            let accepted = &definition["status"]["acceptedNames"];
            names.resources.extend([text(accepted, "plural").into(), text(accepted, "singular").into()]);
            names.resources.extend(texts(accepted, "shortNames"));
            names.kinds.extend([text(accepted, "kind").into(), text(accepted, "listKind").into()]);
        }
        names
    }
}

/// The status that the definition should have now, or `None` if it has it. A definition whose names are accepted
/// is established at once: kinds are served from the same write that says so.
pub fn next_status(definition: &Value, taken: &Names, now: Timestamp) -> Option<Value> {
    let (accepted, names_condition) = accept_names(definition, taken);
    let established = if object::condition_is(definition, "Established", "True") {
        None
    } else if text(&names_condition, "status") == "True" {
        Some(condition("Established", "True", "InitialNamesAccepted", "the initial names have been accepted"))
    } else {
        Some(condition("Established", "False", "NotAccepted", "not all names are accepted"))
    };
    let mut status =
        definition.get("status").filter(|status| status.is_object()).cloned().unwrap_or(json!({}));
    status["acceptedNames"] = accepted;
    for condition in [Some(names_condition), established].into_iter().flatten() {
        set_condition(&mut status, condition, now);
    }
    (definition.get("status") != Some(&status)).then_some(status)
}

/// The names that the definition gets, and whether those are the ones it wants.
fn accept_names(definition: &Value, taken: &Names) -> (Value, Value) {
    let wanted = &definition["spec"]["names"];
    let mut accepted = match &definition["status"]["acceptedNames"] {
        held @ Value::Object(_) => held.clone(),
        _ => json!({"plural": "", "kind": ""}),
    };
    let mut conflict = None;
    let is_free = |name: &str, held: &str, taken: &BTreeSet<String>| name == held || !taken.contains(name);
    for (name, reason, taken) in
        [("plural", "PluralConflict", &taken.resources), ("singular", "SingularConflict", &taken.resources)]
    {
        accept(wanted, &mut accepted, name, reason, taken, &mut conflict);
    }
    let held = texts(&accepted, "shortNames");
    let in_use: Vec<String> = texts(wanted, "shortNames")
        .into_iter()
        .filter(|name| !held.contains(name) && !is_free(name, "", &taken.resources))
        .map(|name| format!("{name:?} is already in use"))
        .collect();
    if in_use.is_empty() {
        copy(wanted, &mut accepted, "shortNames");
    } else {
        // As Go writes several errors as one.
        let message = if in_use.len() == 1 { in_use[0].clone() } else { format!("[{}]", in_use.join(", ")) };
        conflict = Some(("ShortNamesConflict", message));
    }
    for (name, reason) in [("kind", "KindConflict"), ("listKind", "ListKindConflict")] {
        accept(wanted, &mut accepted, name, reason, &taken.kinds, &mut conflict);
    }
    copy(wanted, &mut accepted, "categories");
    let condition = match conflict {
        Some((reason, message)) => condition("NamesAccepted", "False", reason, &message),
        None => condition("NamesAccepted", "True", "NoConflicts", "no conflicts found"),
    };
    (accepted, condition)
}

fn accept(
    wanted: &Value,
    accepted: &mut Value,
    name: &str,
    reason: &'static str,
    taken: &BTreeSet<String>,
    conflict: &mut Option<(&'static str, String)>,
) {
    let value = text(wanted, name);
    if value == text(accepted, name) || !taken.contains(value) {
        copy(wanted, accepted, name);
    } else {
        *conflict = Some((reason, format!("{value:?} is already in use")));
    }
}

fn copy(from: &Value, to: &mut Value, name: &str) {
    match (from.get(name), to.as_object_mut()) {
        (Some(value), Some(to)) => {
            to.insert(name.to_owned(), value.clone());
        }
        (None, Some(to)) => {
            to.remove(name);
        }
        _ => {}
    }
}

/// Says of a definition that it is going, and its objects with it.
pub fn mark_terminating(definition: &mut Value, now: Timestamp) {
    let message = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon";
    let terminating = condition("Terminating", "True", "InstanceDeletionPending", message);
    set_condition(&mut definition["status"], terminating, now);
}

fn condition(ty: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({"type": ty, "status": status, "reason": reason, "message": message})
}

fn find<'a>(conditions: &'a Value, ty: &str) -> Option<&'a Value> {
    conditions.as_array()?.iter().find(|condition| text(condition, "type") == ty)
}

/// Sets a condition; its time is that of the last change of its status.
fn set_condition(status: &mut Value, mut condition: Value, now: Timestamp) {
    let ty = text(&condition, "type").to_owned();
    let old = find(&status["conditions"], &ty);
    let unchanged = old.is_some_and(|old| text(old, "status") == text(&condition, "status"));
    condition["lastTransitionTime"] = match old {
        Some(old) if unchanged && old.get("lastTransitionTime").is_some() => {
            old["lastTransitionTime"].clone()
        }
        _ => now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string().into(),
    };
    let conditions = &mut status["conditions"];
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    if let Some(list) = conditions.as_array_mut() {
        match list.iter_mut().find(|old| text(old, "type") == ty) {
            Some(old) => *old = condition,
            None => list.push(condition),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition(plural: &str, kind: &str, short: &[&str]) -> Value {
        json!({"spec": {"group": "example.com", "names": {"plural": plural, "singular": kind.to_lowercase(),
            "kind": kind, "listKind": format!("{kind}List"), "shortNames": short}}})
    }

    fn now() -> Timestamp {
        "2026-01-02T03:04:05Z".parse().unwrap()
    }

    #[test]
    fn free_names_are_accepted_and_the_definition_established() {
        let mut definition = definition("crontabs", "CronTab", &["ct"]);
        let status = next_status(&definition, &Names::default(), now()).unwrap();
        assert_eq!(status["acceptedNames"], definition["spec"]["names"]);
        definition["status"] = status;
        for ty in ["NamesAccepted", "Established"] {
            assert!(object::condition_is(&definition, ty, "True"), "{ty}");
        }
        assert_eq!(definition["status"]["conditions"][0]["lastTransitionTime"], "2026-01-02T03:04:05Z");
        let taken = Names::of_group("example.com", [&definition].into_iter(), &[]);
        assert_eq!(next_status(&definition, &taken, now()), None, "its own names do not conflict");
    }

    #[test]
    fn taken_names_are_refused_by_name() {
        let mut first = definition("crontabs", "CronTab", &["ct"]);
        first["status"] = next_status(&first, &Names::default(), now()).unwrap();
        let taken = Names::of_group("example.com", [&first].into_iter(), &[]);
        for (second, reason, message) in [
            (definition("crontabs", "Other", &[]), "PluralConflict", "\"crontabs\" is already in use"),
            (definition("others", "CronTab", &[]), "KindConflict", ""),
            (
                definition("others", "Other", &["ct", "crontabs"]),
                "ShortNamesConflict",
                "[\"ct\" is already in use, \"crontabs\" is already in use]",
            ),
        ] {
            let status = next_status(&second, &taken, now()).unwrap();
            let names = &status["conditions"][0];
            assert_eq!(names["status"], "False");
            if reason == "KindConflict" {
                assert_eq!(names["reason"], "ListKindConflict", "the last conflict is the one told");
            } else {
                assert_eq!((&names["reason"], &names["message"]), (&json!(reason), &json!(message)));
            }
            assert_eq!(status["conditions"][1]["reason"], "NotAccepted");
        }
        let other_group = Names::of_group("else.com", [&first].into_iter(), &[]);
        assert!(other_group.resources.is_empty());
        let pods = Arc::new(Kind::new::<k8s_openapi::api::apps::v1::Deployment>());
        let built_in = Names::of_group("apps", std::iter::empty(), &[pods]);
        assert!(built_in.kinds.contains("Deployment"));
    }
}
