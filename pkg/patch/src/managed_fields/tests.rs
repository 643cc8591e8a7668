use super::*;
use crate::tests::{DEPLOYMENT, context};

fn deployment(replicas: u32, label: &str) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "x", "uid": "u", "labels": {"a": label}}, "spec": {"replicas": replicas}})
}

/// Manager, operation, subresource, time and fields of each entry.
fn summary(object: &Value) -> Vec<String> {
    let entries = encoded(object).cloned().map(decode_or_reset).unwrap_or_default();
    let line = |entry: Entry| {
        let Entry { manager, operation, subresource, time, fields, .. } = entry;
        let time = time.unwrap_or_default();
        format!("{manager} {operation:?} {subresource} {} {}", &time[17..19], fields.paths().join(" "))
    };
    entries.into_iter().map(line).collect()
}

/// The object after a create and then updates, each by a manager in a second of its own.
fn written(writes: &[(&str, Value)]) -> Value {
    let mut live: Option<Value> = None;
    for (second, (manager, object)) in writes.iter().enumerate() {
        let mut new = object.clone();
        track_update(&DEPLOYMENT, live.as_ref(), &mut new, &context(manager, second as i64));
        live = Some(new);
    }
    live.expect("something was written")
}

#[test]
fn a_create_owns_what_it_sets() {
    let object = written(&[("kubectl", deployment(1, "x"))]);
    assert_eq!(summary(&object), ["kubectl Update  20 .metadata.labels .metadata.labels.a .spec.replicas"]);
    assert_eq!(
        object["metadata"]["managedFields"][0],
        json!({"manager": "kubectl", "operation": "Update", "apiVersion": "apps/v1",
            "time": "2023-11-14T22:13:20Z", "fieldsType": "FieldsV1",
            "fieldsV1": {"f:metadata": {"f:labels": {".": {}, "f:a": {}}}, "f:spec": {"f:replicas": {}}}})
    );
}

#[test]
fn whoever_changes_a_field_owns_it_from_then_on() {
    let object = written(&[("a", deployment(1, "x")), ("b", deployment(2, "x"))]);
    assert_eq!(
        summary(&object),
        ["a Update  20 .metadata.labels .metadata.labels.a", "b Update  21 .spec.replicas"]
    );
    let object = written(&[("a", deployment(1, "x")), ("b", deployment(2, "x")), ("b", deployment(2, "y"))]);
    assert_eq!(
        summary(&object),
        ["a Update  20 .metadata.labels", "b Update  22 .metadata.labels.a .spec.replicas"]
    );
}

#[test]
fn a_write_that_changes_nothing_leaves_entries_and_times_alone() {
    let object = written(&[("a", deployment(1, "x"))]);
    assert_eq!(written(&[("a", deployment(1, "x")), ("b", deployment(1, "x"))]), object);
    assert_eq!(written(&[("a", deployment(1, "x")), ("b", object.clone())]), object);
}

#[test]
fn what_is_removed_has_no_owner() {
    let mut without = deployment(1, "x");
    without["metadata"].as_object_mut().expect("a map").remove("labels");
    assert_eq!(
        summary(&written(&[("a", deployment(1, "x")), ("b", without)])),
        ["a Update  20 .spec.replicas"]
    );
}

#[test]
fn subresources_have_entries_of_their_own() {
    let live = written(&[("a", deployment(1, "x"))]);
    let mut new = live.clone();
    new["status"] = json!({"replicas": 1});
    new["spec"]["replicas"] = json!(5);
    new["metadata"]["managedFields"] = json!([]);
    let status = WriteContext { subresource: "status", reset_fields: &["spec"], ..context("a", 1) };
    track_update(&DEPLOYMENT, Some(&live), &mut new, &status);
    assert_eq!(
        summary(&new),
        [
            "a Update  20 .metadata.labels .metadata.labels.a .spec.replicas",
            "a Update status 21 .status.replicas"
        ]
    );
}

#[test]
fn an_empty_list_forgets_all_and_nobody_starts_again() {
    for reset in [json!([]), json!([{}])] {
        let mut forgetting = deployment(2, "x");
        forgetting["metadata"]["managedFields"] = reset;
        let object = written(&[("a", deployment(1, "x")), ("b", forgetting), ("b", deployment(3, "x"))]);
        assert_eq!(encoded(&object), None);
    }
}

#[test]
fn entries_that_cannot_be_read_are_replaced() {
    let live = written(&[("a", deployment(1, "x"))]);
    for bad in [json!([{"operation": "Dance"}]), json!("x"), json!([7]), json!([{"operation": "Apply"}])] {
        let mut new = deployment(2, "x");
        new["metadata"]["managedFields"] = bad.clone();
        track_update(&DEPLOYMENT, Some(&live), &mut new, &context("b", 1));
        assert_eq!(summary(&new).len(), 2, "{bad}");
        let mut broken = live.clone();
        broken["metadata"]["managedFields"] = bad;
        let mut new = deployment(2, "x");
        track_update(&DEPLOYMENT, Some(&broken), &mut new, &context("b", 1));
        assert_eq!(encoded(&new), None);
    }
}

#[test]
fn a_writer_may_take_entries_out() {
    let live = written(&[("a", deployment(1, "x")), ("b", deployment(2, "x"))]);
    let mut new = live.clone();
    new["metadata"]["managedFields"].as_array_mut().expect("a list").remove(0);
    track_update(&DEPLOYMENT, Some(&live), &mut new, &context("c", 2));
    assert_eq!(summary(&new), ["b Update  21 .spec.replicas"]);
}

#[test]
fn the_oldest_updates_become_ancient_changes() {
    let writes: Vec<(String, Value)> = (0..13)
        .map(|n| {
            let mut object = deployment(1, "x");
            for label in 0..=n {
                object["metadata"]["labels"][format!("l{label:02}")] = json!("x");
            }
            (format!("m{n:02}"), object)
        })
        .collect();
    let writes: Vec<(&str, Value)> =
        writes.iter().map(|(name, object)| (name.as_str(), object.clone())).collect();
    let lines = summary(&written(&writes));
    assert_eq!(lines.len(), MOST_UPDATE_ENTRIES);
    assert_eq!(
        lines[0],
        "ancient-changes Update  23 .metadata.labels .metadata.labels.a .metadata.labels.l00 \
         .metadata.labels.l01 .metadata.labels.l02 .metadata.labels.l03 .spec.replicas"
    );
    assert_eq!(lines[1], "m04 Update  24 .metadata.labels.l04");
}

#[test]
fn managers_without_a_name_are_called_by_their_program() {
    assert_eq!(manager_or_user_agent("me", "kubectl/v1.35 (linux)"), "me");
    assert_eq!(manager_or_user_agent("", "kubectl/v1.35 (linux)"), "kubectl");
    assert_eq!(manager_or_user_agent("", &"é".repeat(100)).len(), 128);
    assert_eq!(summary(&written(&[("", deployment(1, "x"))]))[0].split(' ').next(), Some("unknown"));
}
