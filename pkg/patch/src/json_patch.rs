//! JSON patch (RFC 6902): a list of operations, all or none.
//!
//! Messages are those of the library that upstream uses, and so is what it does beyond the RFC: negative indexes
//! count from the end, `replace` sets members that are not there yet, `null` equals absent in `test`.
//!
//! Everything is bounded: operations, the bytes that `copy` adds, the depth that `add` and `move` can reach, and
//! the work that all operations do together.

use super::{PatchError, display};
use serde_json::Value;

/// More operations than this are refused, as upstream does.
const MOST_OPERATIONS: usize = 10_000;
/// All `copy` operations together may add this much.
const MOST_COPIED_BYTES: usize = 3 * 1024 * 1024;
/// No value may stand or reach deeper than this.
const MOST_DEPTH: usize = 256;
/// All operations together may look at or move this many values.
const MOST_WORK: usize = 20_000_000;

/// Applies a patch to a document.
pub fn json_patch(document: Value, patch: &Value) -> Result<Value, PatchError> {
    let operations = decode(patch)?;
    let mut run = Run { document, copied_bytes: 0, work: 0 };
    for operation in &operations {
        run.operation(operation).map_err(PatchError::Unprocessable)?;
    }
    Ok(run.document)
}

struct Operation<'a> {
    op: &'a str,
    path: Option<&'a str>,
    from: Option<&'a str>,
    value: &'a Value,
}

fn decode(patch: &Value) -> Result<Vec<Operation<'_>>, PatchError> {
    static ABSENT: Value = Value::Null;
    let bad = |what: &str| {
        PatchError::BadRequest(format!("json: cannot unmarshal {what} into Go value of type jsonpatch.Patch"))
    };
    let list = patch.as_array().ok_or_else(|| bad(display::json_type(patch)))?;
    if list.len() > MOST_OPERATIONS {
        return Err(PatchError::TooLarge(format!(
            "The allowed maximum operations in a JSON patch is {MOST_OPERATIONS}, got {}",
            list.len()
        )));
    }
    list.iter()
        .map(|operation| {
            let members = operation.as_object().ok_or_else(|| bad(display::json_type(operation)))?;
            let text = |name: &str| members.get(name).and_then(Value::as_str);
            Ok(Operation {
                op: text("op").unwrap_or("unknown"),
                path: text("path"),
                from: text("from"),
                value: members.get("value").unwrap_or(&ABSENT),
            })
        })
        .collect()
}

const MISSING: &str = "missing value";
const INVALID_INDEX: &str = "invalid index referenced";

struct Run {
    document: Value,
    copied_bytes: usize,
    work: usize,
}

impl Run {
    fn operation(&mut self, operation: &Operation<'_>) -> Result<(), String> {
        match operation.op {
            "add" => self.add(operation),
            "remove" => self.remove(operation),
            "replace" => self.replace(operation),
            "move" => self.move_value(operation),
            "copy" => self.copy(operation),
            "test" => self.test(operation),
            other => Err(format!("Unexpected kind: {other}")),
        }
    }

    fn add(&mut self, operation: &Operation<'_>) -> Result<(), String> {
        let path = operation.path.ok_or_else(|| format!("add operation failed to decode path: {MISSING}"))?;
        let missing = || format!("add operation does not apply: doc is missing path: \"{path}\": {MISSING}");
        self.check_depth(path, operation.value)?;
        let (parent, key) = find(&mut self.document, path).ok_or_else(missing)?;
        spend(&mut self.work, parent)?;
        insert(parent, &key, operation.value.clone())
            .map_err(|error| format!("error in add for path: '{path}': {error}"))
    }

    fn remove(&mut self, operation: &Operation<'_>) -> Result<(), String> {
        let path =
            operation.path.ok_or_else(|| format!("remove operation failed to decode path: {MISSING}"))?;
        let missing =
            || format!("remove operation does not apply: doc is missing path: \"{path}\": {MISSING}");
        let (parent, key) = find(&mut self.document, path).ok_or_else(missing)?;
        spend(&mut self.work, parent)?;
        take(parent, &key).map_err(|error| format!("error in remove for path: '{path}': {error}"))?;
        Ok(())
    }

    fn replace(&mut self, operation: &Operation<'_>) -> Result<(), String> {
        let path =
            operation.path.ok_or_else(|| format!("replace operation failed to decode path: {MISSING}"))?;
        self.check_depth(path, operation.value)?;
        if path.is_empty() {
            if !operation.value.is_object() && !operation.value.is_array() {
                return Err("replace operation value must be object or array".into());
            }
            self.document = operation.value.clone();
            return Ok(());
        }
        let missing = |what: &str| {
            format!("replace operation does not apply: doc is missing {what}: {path}: {MISSING}")
        };
        let (parent, key) = find(&mut self.document, path).ok_or_else(|| missing("path"))?;
        match parent {
            Value::Object(members) => {
                members.insert(key, operation.value.clone());
            }
            Value::Array(items) => {
                let index = index(&key, items.len(), items.len()).map_err(|_| missing("key"))?;
                items[index] = operation.value.clone();
            }
            _ => return Err(missing("path")),
        }
        Ok(())
    }

    fn move_value(&mut self, operation: &Operation<'_>) -> Result<(), String> {
        let from =
            operation.from.ok_or_else(|| format!("move operation failed to decode from: {MISSING}"))?;
        let missing =
            || format!("move operation does not apply: doc is missing from path: {from}: {MISSING}");
        let (parent, key) = find(&mut self.document, from).ok_or_else(missing)?;
        spend(&mut self.work, parent)?;
        let value =
            take(parent, &key).map_err(|error| format!("error in move for path: '{key}': {error}"))?;
        let path =
            operation.path.ok_or_else(|| format!("move operation failed to decode path: {MISSING}"))?;
        let missing =
            || format!("move operation does not apply: doc is missing destination path: {path}: {MISSING}");
        self.check_depth(path, &value)?;
        let (parent, key) = find(&mut self.document, path).ok_or_else(missing)?;
        spend(&mut self.work, parent)?;
        insert(parent, &key, value).map_err(|error| format!("error in move for path: '{path}': {error}"))
    }

    fn copy(&mut self, operation: &Operation<'_>) -> Result<(), String> {
        let from =
            operation.from.ok_or_else(|| format!("copy operation failed to decode from: {MISSING}"))?;
        let missing =
            || format!("copy operation does not apply: doc is missing from path: {from}: {MISSING}");
        let (parent, key) = find(&mut self.document, from).ok_or_else(missing)?;
        let value =
            get(parent, &key).map_err(|error| format!("error in copy for from: '{from}': {error}"))?;
        self.copied_bytes += value.map_or(4, bytes);
        if self.copied_bytes > MOST_COPIED_BYTES {
            return Err(format!(
                "Unable to complete the copy, the accumulated size increase of copy is {}, exceeding the limit {MOST_COPIED_BYTES}",
                self.copied_bytes
            ));
        }
        let value = value.cloned().unwrap_or_default();
        let path =
            operation.path.ok_or_else(|| format!("copy operation failed to decode path: {MISSING}"))?;
        let missing =
            || format!("copy operation does not apply: doc is missing destination path: {path}: {MISSING}");
        self.check_depth(path, &value)?;
        let (parent, key) = find(&mut self.document, path).ok_or_else(missing)?;
        spend(&mut self.work, parent)?;
        insert(parent, &key, value).map_err(|error| format!("error while adding value during copy: {error}"))
    }

    fn test(&mut self, operation: &Operation<'_>) -> Result<(), String> {
        let path =
            operation.path.ok_or_else(|| format!("test operation failed to decode path: {MISSING}"))?;
        let failed = || format!("testing value {path} failed: test failed");
        if path.is_empty() {
            return if self.document == *operation.value { Ok(()) } else { Err(failed()) };
        }
        let missing = || format!("test operation does not apply: is missing path: {path}: {MISSING}");
        let (parent, key) = find(&mut self.document, path).ok_or_else(missing)?;
        let found =
            get(parent, &key).map_err(|error| format!("error in test for path: '{path}': {error}"))?;
        if *found.unwrap_or(&Value::Null) == *operation.value { Ok(()) } else { Err(failed()) }
    }

    /// Refuses what would nest deeper than anything that recurses over it can bear.
    fn check_depth(&mut self, path: &str, value: &Value) -> Result<(), String> {
        let standing = path.matches('/').count();
        if standing < MOST_DEPTH && fits(value, MOST_DEPTH - standing, &mut self.work) {
            return within(self.work);
        }
        Err(format!("exceeded max depth of {MOST_DEPTH}"))
    }
}

/// Counts the items of a list that an insertion or removal moves.
fn spend(work: &mut usize, parent: &Value) -> Result<(), String> {
    *work += parent.as_array().map_or(1, |items| items.len() / 16 + 1);
    within(*work)
}

fn within(work: usize) -> Result<(), String> {
    if work <= MOST_WORK { Ok(()) } else { Err("the patch takes too much work".into()) }
}

/// Whether a value is at most `depth` levels deep.
fn fits(value: &Value, depth: usize, work: &mut usize) -> bool {
    *work += 1;
    match value {
        Value::Array(items) => depth > 0 && items.iter().all(|item| fits(item, depth - 1, work)),
        Value::Object(members) => depth > 0 && members.values().all(|member| fits(member, depth - 1, work)),
        _ => true,
    }
}

/// About as many bytes as the value has when encoded.
fn bytes(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len() + 2,
        Value::Array(items) => 2 + items.iter().map(|item| bytes(item) + 1).sum::<usize>(),
        Value::Object(members) => {
            2 + members.iter().map(|(name, member)| name.len() + 4 + bytes(member)).sum::<usize>()
        }
        _ => 5,
    }
}

/// The value that holds what a pointer points to, and the last part of the pointer.
fn find<'a>(document: &'a mut Value, pointer: &str) -> Option<(&'a mut Value, String)> {
    let mut parts = pointer.split('/').map(|part| part.replace("~1", "/").replace("~0", "~"));
    parts.next()?;
    let mut parts = parts.peekable();
    let mut parent = document;
    loop {
        let part = parts.next()?;
        if parts.peek().is_none() {
            return (parent.is_object() || parent.is_array()).then_some((parent, part));
        }
        parent = match parent {
            Value::Object(members) => members.get_mut(&part)?,
            Value::Array(items) => {
                let index = index(&part, items.len(), items.len()).ok()?;
                &mut items[index]
            }
            _ => return None,
        };
    }
}

/// An index below `limit`; negative ones count from `end`.
fn index(part: &str, limit: usize, end: usize) -> Result<usize, String> {
    let number: i64 = part.parse().map_err(|_| format!("strconv.Atoi: parsing {part:?}: invalid syntax"))?;
    let from_start = if number < 0 { end as i64 + number } else { number };
    match usize::try_from(from_start) {
        Ok(index) if index < limit => Ok(index),
        _ => Err(format!("Unable to access invalid index: {number}: {INVALID_INDEX}")),
    }
}

fn get<'a>(parent: &'a Value, key: &str) -> Result<Option<&'a Value>, String> {
    match parent {
        Value::Array(items) => Ok(Some(&items[index(key, items.len(), items.len())?])),
        other => Ok(other.get(key)),
    }
}

fn insert(parent: &mut Value, key: &str, value: Value) -> Result<(), String> {
    match parent {
        Value::Array(items) if key == "-" => items.push(value),
        Value::Array(items) => {
            let size = items.len() + 1;
            let index = index(key, size, size).map_err(|error| match key.parse::<i64>() {
                Ok(_) => error,
                Err(_) => format!("value was not a proper array index: '{key}': {error}"),
            })?;
            items.insert(index, value);
        }
        Value::Object(members) => {
            members.insert(key.to_owned(), value);
        }
        _ => return Err(MISSING.into()),
    }
    Ok(())
}

fn take(parent: &mut Value, key: &str) -> Result<Value, String> {
    match parent {
        Value::Array(items) => {
            let index = index(key, items.len(), items.len())?;
            Ok(items.remove(index))
        }
        Value::Object(members) => {
            members.remove(key).ok_or_else(|| format!("Unable to remove nonexistent key: {key}: {MISSING}"))
        }
        _ => Err(MISSING.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn operations() {
        let check = |document: Value, patch: Value, expected: Result<Value, &str>| {
            let result = json_patch(document.clone(), &patch);
            let expected = expected.map_err(|message| PatchError::Unprocessable(message.into()));
            assert_eq!(result, expected, "{document} with {patch}");
        };
        let a = || json!({"a": [1, 2], "b": {"c": "x", "d/e": 1, "f~g": 2}});
        check(json!({}), json!([]), Ok(json!({})));
        check(json!({}), json!([{"op": "add", "path": "/x", "value": 1}]), Ok(json!({"x": 1})));
        check(
            a(),
            json!([{"op": "add", "path": "/a/1", "value": 9}, {"op": "remove", "path": "/b"}]),
            Ok(json!({"a": [1, 9, 2]})),
        );
        check(
            a(),
            json!([{"op": "add", "path": "/a/-", "value": 9}, {"op": "remove", "path": "/b"}]),
            Ok(json!({"a": [1, 2, 9]})),
        );
        check(
            a(),
            json!([{"op": "remove", "path": "/a/-1"}, {"op": "remove", "path": "/b"}]),
            Ok(json!({"a": [1]})),
        );
        check(
            a(),
            json!([{"op": "remove", "path": "/b/d~1e"}, {"op": "remove", "path": "/b/f~0g"}]),
            Ok(json!({"a": [1, 2], "b": {"c": "x"}})),
        );
        check(
            a(),
            json!([{"op": "replace", "path": "/b", "value": null}]),
            Ok(json!({"a": [1, 2], "b": null})),
        );
        check(a(), json!([{"op": "replace", "path": "", "value": {"z": 1}}]), Ok(json!({"z": 1})));
        check(
            a(),
            json!([{"op": "move", "from": "/b/c", "path": "/a/0"}, {"op": "remove", "path": "/b"}]),
            Ok(json!({"a": ["x", 1, 2]})),
        );
        check(
            a(),
            json!([{"op": "copy", "from": "/a", "path": "/b"}]),
            Ok(json!({"a": [1, 2], "b": [1, 2]})),
        );
        check(
            a(),
            json!([{"op": "test", "path": "/b/c", "value": "x"}, {"op": "test", "path": "/b/none"}]),
            Ok(a()),
        );
        check(
            a(),
            json!([{"op": "test", "path": "/b/c", "value": "y"}]),
            Err("testing value /b/c failed: test failed"),
        );
        check(
            a(),
            json!([{"op": "remove", "path": "/b/none"}]),
            Err("error in remove for path: '/b/none': Unable to remove nonexistent key: none: missing value"),
        );
        check(
            a(),
            json!([{"op": "remove", "path": "/none/x"}]),
            Err("remove operation does not apply: doc is missing path: \"/none/x\": missing value"),
        );
        check(
            a(),
            json!([{"op": "add", "path": "/a/7", "value": 1}]),
            Err("error in add for path: '/a/7': Unable to access invalid index: 7: invalid index referenced"),
        );
        check(
            a(),
            json!([{"op": "add", "path": "/a/x", "value": 1}]),
            Err(
                "error in add for path: '/a/x': value was not a proper array index: 'x': strconv.Atoi: parsing \"x\": invalid syntax",
            ),
        );
        check(
            a(),
            json!([{"op": "replace", "path": "/a/7", "value": 1}]),
            Err("replace operation does not apply: doc is missing key: /a/7: missing value"),
        );
        check(a(), json!([{"op": "dance"}]), Err("Unexpected kind: dance"));
        check(a(), json!([{"op": "add"}]), Err("add operation failed to decode path: missing value"));
        check(
            a(),
            json!([{"op": "add", "path": "/a/0/b/c", "value": 1}]),
            Err("add operation does not apply: doc is missing path: \"/a/0/b/c\": missing value"),
        );
    }

    #[test]
    fn what_is_no_patch_or_too_much_is_refused() {
        assert!(matches!(json_patch(json!({}), &json!({})), Err(PatchError::BadRequest(_))));
        assert!(matches!(json_patch(json!({}), &json!([1])), Err(PatchError::BadRequest(_))));
        let many = vec![json!({"op": "test", "path": "/x"}); MOST_OPERATIONS + 1];
        assert!(matches!(json_patch(json!({}), &json!(many)), Err(PatchError::TooLarge(_))));
    }

    #[test]
    fn copies_cannot_explode() {
        let double = vec![json!({"op": "copy", "from": "/a", "path": "/a/-"}); 64];
        let error = json_patch(json!({"a": ["x".repeat(100)]}), &json!(double)).expect_err("too much");
        assert!(error.to_string().starts_with("Unable to complete the copy"), "{error}");
    }

    #[test]
    fn nothing_gets_too_deep() {
        let mut nest = json!({});
        for _ in 0..100 {
            nest = json!({"n": nest});
        }
        let bottom = "/n".repeat(100);
        let deepen = [
            json!({"op": "add", "path": "/b", "value": nest}),
            json!({"op": "move", "from": "/a", "path": format!("/b{bottom}")}),
            json!({"op": "move", "from": "/b", "path": "/a"}),
        ];
        let patch: Vec<Value> = deepen.iter().cycle().take(300).cloned().collect();
        let error = json_patch(json!({"a": {}}), &json!(patch)).expect_err("too deep");
        assert_eq!(error.to_string(), "exceeded max depth of 256");
    }
}
