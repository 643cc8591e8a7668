//! The kinds outside core, each through the same questions: is a good object good, what does a bad one say, what may
//! change, what is filled in, and what does `kubectl get` show.

mod access;
mod apps;
mod autoscaling;
mod batch;
mod cluster;
mod every_field;
mod extension;
mod identity;
mod minik8s;
mod networking;
mod resource;
mod service;

use api::kind::Cell;
use api::{Errors, Field, Kind, kinds};
use serde_json::{Value, json};

/// The kind of an object.
fn kind_of(object: &Value) -> &'static Kind {
    let (version, kind) = (&object["apiVersion"], &object["kind"]);
    kinds::all()
        .iter()
        .find(|candidate| *version == candidate.api_version() && *kind == candidate.kind)
        .unwrap_or_else(|| panic!("no kind {version} {kind}"))
}

/// The object as the server would store it: known members only, defaults filled in, prepared.
fn created(mut object: Value) -> Value {
    let kind = kind_of(&object);
    let unknown = kind.schema().check(&mut object).expect("of the right types");
    assert_eq!(unknown, Vec::<String>::new());
    object["metadata"]["uid"] = json!("u-1");
    (kind.default)(&mut object);
    (kind.prepare)(&mut object, None);
    object
}

/// The object with the value at a JSON pointer set, or removed where the value is null.
fn with(object: &Value, pointer: &str, value: Value) -> Value {
    let mut object = object.clone();
    let mut slot = &mut object;
    let mut names = pointer[1..].split('/').map(|name| name.replace("~1", "/")).peekable();
    while let Some(name) = names.next() {
        if value.is_null() && names.peek().is_none() {
            match slot {
                Value::Array(items) => drop(items.remove(name.parse().expect("an index"))),
                other => drop(other.as_object_mut().expect("an object").remove(&name)),
            }
            return object;
        }
        slot = match name.parse::<usize>() {
            Ok(index) if slot.is_array() => {
                let items = slot.as_array_mut().expect("an array");
                if index == items.len() {
                    items.push(Value::Null);
                }
                &mut items[index]
            }
            _ => &mut slot[name.as_str()],
        };
    }
    *slot = value;
    object
}

fn texts(errors: Errors) -> Vec<String> {
    errors.into_vec().iter().map(ToString::to_string).collect()
}

/// What is wrong with an object that is to be created.
fn complaints(object: &Value) -> Vec<String> {
    let (kind, mut errors) = (kind_of(object), Errors::new());
    (kind.validate)(&Field::root(object), &mut errors);
    (kind.validate_create)(&Field::root(object), &mut errors);
    texts(errors)
}

fn assert_said(expected: &str, said: &[String], what: &str) {
    assert!(said.iter().any(|text| text.starts_with(expected)), "{what}\n want {expected}\n said {said:#?}");
}

/// The object is good; with each change it is not, and says so.
fn check_invalid(object: &Value, cases: &[(&str, Value, &str)]) {
    assert_eq!(complaints(object), Vec::<String>::new());
    for (pointer, value, expected) in cases {
        let changed = with(object, pointer, value.clone());
        assert_said(expected, &complaints(&changed), &format!("{pointer} = {value}"));
    }
}

/// Each change makes another good object.
fn check_valid(object: &Value, cases: &[(&str, Value)]) {
    for (pointer, value) in cases {
        let changed = with(object, pointer, value.clone());
        assert_eq!(complaints(&changed), Vec::<String>::new(), "{pointer} = {value}");
    }
}

/// Updates with these changes are refused with the complaint, or let through where it is empty.
fn check_update(object: &Value, cases: &[(&str, Value, &str)]) {
    let kind = kind_of(object);
    for (pointer, value, expected) in cases {
        let mut changed = with(object, pointer, value.clone());
        (kind.prepare)(&mut changed, Some(object));
        let mut errors = Errors::new();
        (kind.validate)(&Field::root(&changed), &mut errors);
        (kind.validate_update)(&Field::root(&changed), &Field::root(object), &mut errors);
        check_change(texts(errors), expected, &format!("{pointer} = {value}"));
    }
}

/// As [`check_update`], of `status`.
fn check_status(object: &Value, cases: &[(&str, Value, &str)]) {
    let kind = kind_of(object);
    for (pointer, value, expected) in cases {
        let mut changed = with(object, pointer, value.clone());
        (kind.prepare_status)(&mut changed, Some(object));
        let mut errors = Errors::new();
        (kind.validate_status)(&Field::root(&changed), &Field::root(object), &mut errors);
        check_change(texts(errors), expected, &format!("{pointer} = {value}"));
    }
}

fn check_change(said: Vec<String>, expected: &str, what: &str) {
    if expected.is_empty() {
        assert_eq!(said, Vec::<String>::new(), "{what}");
    } else {
        assert_said(expected, &said, what);
    }
}

/// The cells of `kubectl get -o wide`, as `HEADER=cell`, five minutes after 2026 began.
fn row(object: &Value) -> String {
    let now = "2026-01-01T00:05:00Z".parse().expect("a time");
    let cells = kind_of(object).columns.iter().map(|column| {
        let Cell::Fn(cell) = column.cell else { panic!("{} is a path", column.name) };
        let text = match cell(object, now) {
            Value::String(text) => text,
            other => other.to_string(),
        };
        let mark = if column.priority == 0 { "" } else { "+" };
        format!("{mark}{}={text}", column.name)
    });
    cells.collect::<Vec<_>>().join(" | ")
}

/// A pod template with one container and the label `app: web`.
fn template() -> Value {
    json!({"metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "c", "image": "nginx:1"}]}})
}

/// Metadata of an object made when 2026 began.
fn metadata(name: &str) -> Value {
    json!({"name": name, "namespace": "default", "creationTimestamp": "2026-01-01T00:00:00Z"})
}

/// An object `x` with these members, created.
fn object(version: &str, kind: &str, rest: Value) -> Value {
    let mut object = json!({"apiVersion": version, "kind": kind, "metadata": metadata("x")});
    for (name, value) in rest.as_object().expect("members") {
        object[name] = value.clone();
    }
    created(object)
}
