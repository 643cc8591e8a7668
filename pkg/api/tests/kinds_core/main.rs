//! The kinds of core/v1 as a whole: what each fills in, refuses, lets change and shows.
//!
//! Each test is a table of changes to an object that is fine, and what is said about the changed one.

mod columns;
mod objects;
mod pod;
mod pod_parts;
mod pod_update;

use api::kind::{Cell, Kind};
use api::{Errors, Field, Value, kinds};
use serde_json::json;
use std::sync::Arc;

/// A change: JSON pointer and new value; `null` takes the member away.
type Change = (&'static str, Value);

fn kind(name: &str) -> &'static Arc<Kind> {
    kinds::all().iter().find(|kind| kind.kind == name && kind.group.is_empty()).expect("a kind of core/v1")
}

/// An object of the kind that nobody has anything to say about.
fn fine(kind: &str) -> Value {
    let template =
        json!({"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let rest = match kind {
        "Pod" => json!({"spec": template["spec"]}),
        "PodTemplate" => json!({"template": template}),
        "ReplicationController" => json!({"spec": {"template": template}}),
        "PersistentVolume" => {
            json!({"spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
            "hostPath": {"path": "/data"}}})
        }
        "PersistentVolumeClaim" => json!({"spec": {"accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}}}}),
        "LimitRange" => {
            json!({"spec": {"limits": [{"type": "Container", "max": {"cpu": "2"}, "min": {"cpu": "1"}}]}})
        }
        "ResourceQuota" => json!({"spec": {"hard": {"pods": "10"}}}),
        "Endpoints" => json!({"subsets": [{"addresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 80}]}]}),
        "Event" => json!({"involvedObject": {"kind": "Pod", "namespace": "ns", "name": "p"}}),
        "Binding" => json!({"target": {"kind": "Node", "name": "n"}}),
        _ => json!({}),
    };
    let mut object = json!({"kind": kind, "apiVersion": "v1", "metadata": {"name": "x"}});
    if self::kind(kind).namespaced() {
        object["metadata"]["namespace"] = "ns".into();
    }
    object.as_object_mut().expect("made above").extend(rest.as_object().expect("made above").clone());
    object
}

/// Applies a change, making objects and lists on the way.
fn apply(object: &mut Value, (pointer, value): &Change) {
    let mut slot = object;
    let names: Vec<&str> = pointer.split('/').skip(1).collect();
    let (last, path) = names.split_last().expect("a pointer has a name");
    for name in path {
        slot = member(slot, name);
    }
    if value.is_null() {
        slot.as_object_mut().expect("only members are taken away").remove(&last.replace("~1", "/"));
    } else {
        *member(slot, last) = value.clone();
    }
}

fn member<'a>(slot: &'a mut Value, name: &str) -> &'a mut Value {
    match name.parse::<usize>() {
        Ok(index) => {
            if !slot.is_array() {
                *slot = json!([]);
            }
            let items = slot.as_array_mut().expect("made above");
            items.resize(items.len().max(index + 1), json!({}));
            &mut items[index]
        }
        Err(_) => {
            if !slot.is_object() {
                *slot = json!({});
            }
            &mut slot[name.replace("~1", "/").as_str()]
        }
    }
}

/// Decodes and fills in, as the server does before it looks at rules.
fn defaulted(kind: &Kind, mut object: Value) -> Value {
    let unknown = kind.schema().check(&mut object).unwrap_or_else(|error| panic!("{error}: {object}"));
    assert!(unknown.is_empty(), "unknown fields {unknown:?}");
    (kind.default)(&mut object);
    object
}

fn said(validate: impl FnOnce(&mut Errors)) -> Vec<String> {
    let mut errors = Errors::new();
    validate(&mut errors);
    errors.as_slice().iter().map(ToString::to_string).collect()
}

/// Every expected complaint is the beginning of one that was made, and none was made beyond those.
fn compare(what: &dyn std::fmt::Debug, said: &[String], expected: &[&str]) {
    let missing = expected.iter().any(|expected| !said.iter().any(|said| said.starts_with(expected)));
    let surplus = said.iter().any(|said| !expected.iter().any(|expected| said.starts_with(expected)));
    assert!(!missing && !surplus, "{what:?}\n said {said:#?}\n expected {expected:#?}");
}

/// Creating the fine object with the changes gives the complaints.
fn check(name: &str, changes: &[Change], expected: &[&str]) {
    let kind = kind(name);
    let mut object = fine(name);
    changes.iter().for_each(|change| apply(&mut object, change));
    let mut object = defaulted(kind, object);
    (kind.prepare)(&mut object, None);
    let said = said(|errors| {
        let root = Field::root(&object);
        api::meta::validate(&root, kind, errors);
        (kind.validate)(&root, errors);
        (kind.validate_create)(&root, errors);
    });
    compare(&(name, changes), &said, expected);
}

/// As [`check`], for one change and one complaint; empty means none.
fn check_all(name: &str, table: Vec<(&'static str, Value, &str)>) {
    for (pointer, value, expected) in table {
        let expected: Vec<&str> = if expected.is_empty() { vec![] } else { expected.split(" && ").collect() };
        check(name, &[(pointer, value)], &expected);
    }
}

/// Changing the object, as it stands after `before`, gives the complaints. `status` says by which door.
fn check_update(name: &str, before: &[Change], changes: &[Change], status: bool, expected: &[&str]) {
    let kind = kind(name);
    let mut old = defaulted(kind, fine(name));
    (kind.prepare)(&mut old, None);
    before.iter().for_each(|change| apply(&mut old, change));
    old["metadata"]["resourceVersion"] = "1".into();
    let old = defaulted(kind, old);
    let mut new = old.clone();
    changes.iter().for_each(|change| apply(&mut new, change));
    let mut new = defaulted(kind, new);
    let prepare = if status { kind.prepare_status } else { kind.prepare };
    prepare(&mut new, Some(&old));
    let said = said(|errors| {
        let (new, old) = (Field::root(&new), Field::root(&old));
        api::meta::validate_update(&new, &old, kind, errors);
        if status {
            (kind.validate_status)(&new, &old, errors);
        } else {
            (kind.validate)(&new, errors);
            (kind.validate_update)(&new, &old, errors);
        }
    });
    compare(&(name, before, changes), &said, expected);
}

/// The cells of an object's row.
fn row(name: &str, object: &Value) -> Vec<String> {
    let now = "2024-01-01T01:00:00Z".parse().expect("a time");
    let cells = kind(name).columns.iter().map(|column| match &column.cell {
        Cell::Fn(cell) => cell(object, now),
        Cell::Path(path) => path.clone().into(),
    });
    cells.map(|cell| cell.as_str().map_or_else(|| cell.to_string(), str::to_owned)).collect()
}

#[test]
fn fine_objects_are_fine_and_change_nothing_when_filled_in_again() {
    for kind in kinds::all().iter().filter(|kind| kind.group.is_empty() && kind.kind != "Service") {
        check(&kind.kind, &[], &[]);
        let once = defaulted(kind, fine(&kind.kind));
        assert_eq!(defaulted(kind, once.clone()), once);
        if kind.verbs == api::kind::Verbs::All {
            check_update(&kind.kind, &[], &[], false, &[]);
        }
    }
}

#[test]
fn metadata() {
    let long = "a".repeat(300_000);
    check_all(
        "ConfigMap",
        vec![
            (
                "/metadata/name",
                json!(null),
                "metadata.name: Required value: name or generateName is required",
            ),
            (
                "/metadata/name",
                json!("A"),
                "metadata.name: Invalid value: \"A\": a lowercase RFC 1123 subdomain",
            ),
            ("/metadata/generateName", json!("a-"), ""),
            ("/metadata/generateName", json!("AB-"), "metadata.generateName: Invalid value: \"AB-\""),
            ("/metadata/namespace", json!(null), "metadata.namespace: Required value"),
            (
                "/metadata/namespace",
                json!("a.b"),
                "metadata.namespace: Invalid value: \"a.b\": must not contain dots",
            ),
            (
                "/metadata/labels",
                json!({"a b": "c"}),
                "metadata.labels: Invalid value: \"a b\": name part must consist",
            ),
            (
                "/metadata/labels",
                json!({"a": "c d"}),
                "metadata.labels: Invalid value: \"c d\": a valid label must",
            ),
            (
                "/metadata/annotations",
                json!({"a": long}),
                "metadata.annotations: Too long: may not be more than 262144 bytes",
            ),
            (
                "/metadata/annotations",
                json!({"A/b c": ""}),
                "metadata.annotations: Invalid value: \"A/b c\": name part",
            ),
            (
                "/metadata/finalizers",
                json!(["x"]),
                "metadata.finalizers[0]: Invalid value: \"x\": name is neither a standard finalizer",
            ),
            (
                "/metadata/finalizers",
                json!(["orphan", "foregroundDeletion"]),
                "metadata.finalizers: Invalid value",
            ),
            (
                "/metadata/ownerReferences",
                json!([{"apiVersion": "v1", "kind": "Pod", "name": "", "uid": "u"}]),
                "metadata.ownerReferences.name: Invalid value: \"\": must not be empty",
            ),
            (
                "/metadata/ownerReferences",
                json!([{"apiVersion": "v1", "kind": "Event", "name": "e", "uid": "u"}]),
                "metadata.ownerReferences: Invalid value",
            ),
            (
                "/metadata/managedFields",
                json!([{"operation": "X", "manager": "m"}]),
                "metadata.managedFields[0].operation: Invalid value: \"X\": must be `Apply` or `Update`",
            ),
        ],
    );
    let controller =
        |name: &str| json!({"apiVersion": "v1", "kind": "K", "name": name, "uid": "u", "controller": true});
    check(
        "ConfigMap",
        &[("/metadata/ownerReferences", json!([controller("a"), controller("b")]))],
        &["metadata.ownerReferences: Invalid value"],
    );
    check(
        "Namespace",
        &[("/metadata/namespace", json!("a"))],
        &["metadata.namespace: Forbidden: not allowed on this type"],
    );
    for (pointer, value, expected) in [
        ("/metadata/name", json!("y"), "metadata.name: Invalid value: \"y\": field is immutable"),
        ("/metadata/uid", json!("u"), "metadata.uid: Invalid value: \"u\": field is immutable"),
        (
            "/metadata/resourceVersion",
            json!(""),
            "metadata.resourceVersion: Invalid value: \"\": must be specified for an update",
        ),
    ] {
        check_update("ConfigMap", &[], &[(pointer, value)], false, &[expected]);
    }
    check_update(
        "ConfigMap",
        &[("/metadata/deletionTimestamp", json!("2024-01-01T00:00:00Z"))],
        &[("/metadata/finalizers", json!(["x.io/y"]))],
        false,
        &[
            "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{\"x.io/y\"}",
        ],
    );
}
