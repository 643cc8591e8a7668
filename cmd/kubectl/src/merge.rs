//! Merging objects without a server: strategic merge patches and JSON patches, as kustomizations and `--local` need them.
//!
//! Lists are merged by the keys of the well-known ones below; other lists are replaced whole, as upstream does for lists
//! that have no merge key.

use anyhow::{Context, Result, bail};
use serde_json::{Map, Value};

/// Lists whose elements are told apart by a field: the list's name, and the field.
const KEYS: [(&str, &[&str]); 14] = [
    ("containers", &["name"]),
    ("initContainers", &["name"]),
    ("ephemeralContainers", &["name"]),
    ("volumes", &["name"]),
    ("env", &["name"]),
    ("imagePullSecrets", &["name"]),
    ("secrets", &["name"]),
    ("ports", &["containerPort", "port"]),
    ("volumeMounts", &["mountPath"]),
    ("volumeDevices", &["devicePath"]),
    ("hostAliases", &["ip"]),
    ("topologySpreadConstraints", &["topologyKey"]),
    ("conditions", &["type"]),
    ("ownerReferences", &["uid"]),
];

/// Applies a strategic merge patch.
pub fn strategic(target: &mut Value, patch: &Value) {
    let Value::Object(changes) = patch else {
        *target = patch.clone();
        return;
    };
    if changes.get("$patch").is_some_and(|directive| directive == "replace") {
        let mut fields = changes.clone();
        fields.remove("$patch");
        *target = Value::Object(fields);
        return;
    }
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    for (name, change) in changes {
        let Some(fields) = target.as_object_mut() else { return };
        match change {
            _ if name.starts_with('$') => {}
            Value::Null => drop(fields.remove(name)),
            Value::Array(items) => merge_list(fields, name, items),
            Value::Object(change) if change.get("$patch").is_some_and(|directive| directive == "delete") => {
                fields.remove(name);
            }
            change => strategic(fields.entry(name.clone()).or_insert(Value::Null), change),
        }
    }
}

fn merge_list(fields: &mut Map<String, Value>, name: &str, patch: &[Value]) {
    let replaces = patch
        .iter()
        .any(|item| item["$patch"] == "replace" && item.as_object().is_some_and(|own| own.len() == 1));
    let keys = KEYS.iter().find(|(list, _)| *list == name).map(|(_, keys)| *keys).unwrap_or_default();
    let present = fields.get(name).and_then(Value::as_array).cloned().unwrap_or_default();
    let key = keys.iter().find(|key| patch.iter().chain(&present).any(|item| item.get(**key).is_some()));
    let (Some(key), false) = (key, replaces) else {
        let items = patch.iter().filter(|item| item.get("$patch").is_none()).cloned().collect();
        fields.insert(name.to_owned(), Value::Array(items));
        return;
    };
    let mut merged = present;
    let mut added = Vec::new();
    for item in patch {
        let found = merged.iter().position(|own| own.get(*key).is_some() && own[*key] == item[*key]);
        match (found, item["$patch"] == "delete") {
            (Some(at), true) => drop(merged.remove(at)),
            (Some(at), false) => strategic(&mut merged[at], item),
            (None, true) => {}
            (None, false) => added.push(item.clone()),
        }
    }
    // New elements stand first, as upstream puts them.
    added.append(&mut merged);
    fields.insert(name.to_owned(), Value::Array(added));
}

/// Applies a JSON patch (RFC 6902).
pub fn json_patch(target: &mut Value, operations: &[Value]) -> Result<()> {
    for operation in operations {
        let text = |field: &str| operation[field].as_str();
        let op = text("op").context("an operation without op")?;
        let path = text("path").with_context(|| format!("{op}: path is missing"))?;
        let apply = || -> Result<Value> {
            let mut copy = target.clone();
            match op {
                "add" => add(&mut copy, path, operation["value"].clone())?,
                "replace" => {
                    *copy.pointer_mut(path).context("there is nothing")? = operation["value"].clone();
                }
                "remove" => drop(remove(&mut copy, path)?),
                "move" | "copy" => {
                    let from = text("from").context("from is missing")?;
                    let value = if op == "move" {
                        remove(&mut copy, from)?
                    } else {
                        copy.pointer(from).cloned().context("there is nothing at from")?
                    };
                    add(&mut copy, path, value)?;
                }
                "test" if copy.pointer(path) == Some(&operation["value"]) => {}
                "test" => bail!("it is not {}", operation["value"]),
                other => bail!("no operation is called {other:?}"),
            }
            Ok(copy)
        };
        *target = apply().with_context(|| format!("{op} {path}"))?;
    }
    Ok(())
}

fn parent<'a>(target: &'a mut Value, path: &str) -> Result<(&'a mut Value, String)> {
    let (parent, last) = path.rsplit_once('/').context("a path begins with /")?;
    let parent = target.pointer_mut(parent).with_context(|| format!("there is no {parent}"))?;
    Ok((parent, last.replace("~1", "/").replace("~0", "~")))
}

fn add(target: &mut Value, path: &str, value: Value) -> Result<()> {
    if path.is_empty() {
        *target = value;
        return Ok(());
    }
    let (parent, last) = parent(target, path)?;
    match parent {
        Value::Object(fields) => drop(fields.insert(last, value)),
        Value::Array(items) => {
            let at = if last == "-" { items.len() } else { last.parse().context("expected an index")? };
            if at > items.len() {
                bail!("the list has {} elements", items.len());
            }
            items.insert(at, value);
        }
        _ => bail!("its parent has no fields"),
    }
    Ok(())
}

fn remove(target: &mut Value, path: &str) -> Result<Value> {
    let (parent, last) = parent(target, path)?;
    let removed = match parent {
        Value::Object(fields) => fields.remove(&last),
        Value::Array(items) => {
            last.parse().ok().filter(|at| *at < items.len()).map(|at: usize| items.remove(at))
        }
        _ => None,
    };
    removed.context("there is nothing")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn lists_are_merged_by_their_keys() {
        let check = |mut target: Value, patch: Value, expected: Value| {
            strategic(&mut target, &patch);
            assert_eq!(target, expected, "{patch}");
        };
        let pod = json!({"containers": [{"name": "a", "image": "x"}, {"name": "b"}], "args": [1, 2], "z": 1});
        check(
            pod.clone(),
            json!({"containers": [{"name": "a", "image": "y"}, {"name": "c"}], "args": [3], "z": null}),
            json!({"containers": [{"name": "c"}, {"name": "a", "image": "y"}, {"name": "b"}], "args": [3]}),
        );
        check(
            pod.clone(),
            json!({"containers": [{"name": "b", "$patch": "delete"}]}),
            json!({"containers": [{"name": "a", "image": "x"}], "args": [1, 2], "z": 1}),
        );
        check(
            pod,
            json!({"containers": [{"$patch": "replace"}, {"name": "n"}], "z": {"$patch": "replace", "q": 1}}),
            json!({"containers": [{"name": "n"}], "args": [1, 2], "z": {"q": 1}}),
        );
    }

    #[test]
    fn json_patches_are_applied_in_order() {
        let mut value = json!({"a": {"b": [1, 2]}, "c/d": 1});
        let operations = json!([
            {"op": "test", "path": "/a/b/0", "value": 1},
            {"op": "add", "path": "/a/b/-", "value": 3},
            {"op": "remove", "path": "/a/b/0"},
            {"op": "move", "from": "/c~1d", "path": "/e"},
            {"op": "replace", "path": "/e", "value": 5},
            {"op": "copy", "from": "/e", "path": "/a/f"},
        ]);
        json_patch(&mut value, operations.as_array().expect("a list")).expect("applied");
        assert_eq!(value, json!({"a": {"b": [2, 3], "f": 5}, "e": 5}));
        let error = json_patch(&mut value, &[json!({"op": "remove", "path": "/x"})]).expect_err("refused");
        assert_eq!(format!("{error:#}"), "remove /x: there is nothing");
    }
}
