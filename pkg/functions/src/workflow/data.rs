//! The one dialect by which data is picked and put: JSON Pointers (RFC 6901).

use super::engine::Failure;
use api::kinds::minik8s::WorkflowNode;
use serde_json::{Map, Value};

/// The largest part of a value that a message shows.
const MOST_SHOWN: usize = 200;

/// What of the value that comes in a node works on.
pub fn pick(node: &WorkflowNode, input: &Value) -> Result<Value, Failure> {
    if node.inputs.is_empty() {
        return at(input, &node.input, "input").cloned();
    }
    let picks = node.inputs.iter().map(|(name, pointer)| {
        let picked = at(input, pointer, &format!("inputs.{name}"))?;
        Ok((name.clone(), picked.clone()))
    });
    picks.collect::<Result<Map<String, Value>, Failure>>().map(Value::Object)
}

/// What a pointer leads to.
pub fn at<'a>(value: &'a Value, pointer: &str, field: &str) -> Result<&'a Value, Failure> {
    value.pointer(pointer).ok_or_else(|| {
        Failure::new("BadInput", format!("`{field}` leads to {pointer:?}, which is not in {}", shown(value)))
    })
}

/// A value with another one put where a pointer leads. Objects on the way are made where there are none.
pub fn put(value: &Value, pointer: &str, put: Value) -> Result<Value, Failure> {
    if pointer.is_empty() {
        return Ok(put);
    }
    let mut whole = value.clone();
    let mut place = &mut whole;
    for token in pointer.split('/').skip(1) {
        let token = token.replace("~1", "/").replace("~0", "~");
        let cannot =
            || Failure::new("BadInput", format!("nothing can be put at {pointer:?} of {}", shown(value)));
        if place.is_null() {
            *place = Value::Object(Map::new());
        }
        place = match place {
            Value::Object(members) => members.entry(token).or_insert(Value::Null),
            Value::Array(items) => {
                let index = token.parse::<usize>().map_err(|_| cannot())?;
                items.get_mut(index).ok_or_else(cannot)?
            }
            _ => return Err(cannot()),
        };
    }
    *place = put;
    Ok(whole)
}

/// A value, as far as a message has room for it.
pub fn shown(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(MOST_SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_are_put_where_pointers_lead() {
        let check = |value: Value, pointer: &str, expected: Value| {
            assert_eq!(put(&value, pointer, json!(7)).expect("put"), expected);
        };
        check(json!({"a": 1}), "", json!(7));
        check(json!({"a": 1}), "/b/c", json!({"a": 1, "b": {"c": 7}}));
        check(json!({"a": [1, 2]}), "/a/1", json!({"a": [1, 7]}));
        check(json!({}), "/a~1b~0", json!({"a/b~": 7}));
        check(Value::Null, "/a", json!({"a": 7}));
        assert!(put(&json!({"a": 1}), "/a/b", json!(7)).is_err(), "a number has no members");
        assert!(put(&json!([1]), "/1", json!(7)).is_err());
    }

    #[test]
    fn what_is_not_there_is_named() {
        let node = WorkflowNode { input: "/order".to_owned(), ..WorkflowNode::default() };
        let failure = pick(&node, &json!({"x": 1})).expect_err("nothing there");
        assert_eq!(failure.message, "`input` leads to \"/order\", which is not in {\"x\":1}");
        let inputs = [("id".to_owned(), "/x".to_owned())].into();
        let node = WorkflowNode { inputs, ..WorkflowNode::default() };
        assert_eq!(pick(&node, &json!({"x": 1})), Ok(json!({"id": 1})));
    }
}
