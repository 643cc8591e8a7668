//! Strategic merge patch: a merge patch that knows which lists are maps, and can say more than "replace".
//!
//! ```text
//! $patch: replace | delete            this map, or (in a list's element) this list or this element
//! $retainKeys: [..]                   members that stay; all others go
//! $deleteFromPrimitiveList/<list>     scalars that go
//! $setElementOrder/<list>             how the elements that the patch knows are to stand
//! ```
//!
//! Merge keys and strategies come from the schema. Elements are found through an index, so that long lists cost no
//! more than their length.

mod lists;

use super::{PatchError, display};
use api::Schema;
use api::schema::PatchStrategy;
use lists::{ListPatch, order_only};
use serde_json::{Map, Value};

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM_PRIMITIVE_LIST: &str = "$deleteFromPrimitiveList";
const SET_ELEMENT_ORDER: &str = "$setElementOrder";

/// Applies a patch to an object of a built-in kind.
pub fn strategic_merge_patch(schema: &Schema, live: Value, patch: Value) -> Result<Value, PatchError> {
    match (live, patch) {
        (Value::Object(live), Value::Object(patch)) => {
            Ok(Value::Object(merge_map(live, patch, schema).map_err(PatchError::from)?))
        }
        (_, patch) => Err(PatchError::BadRequest(format!(
            "json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
            display::json_type(&patch)
        ))),
    }
}

/// Why a patch does not apply, in upstream's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum Error {
    #[error("invalid patch format of primitive list")]
    PrimitiveListFormat,
    #[error("invalid patch format of retainKeys")]
    RetainKeysFormat,
    #[error("invalid patch format of setElementOrder list")]
    ElementOrderFormat,
    #[error("lists of lists are not supported")]
    ListOfLists,
    #[error("map: {map} does not contain declared merge key: {key}")]
    NoMergeKey { map: String, key: String },
    #[error("expected a {expected}, but received a {received}")]
    WrongType { expected: &'static str, received: &'static str },
    #[error("unknown patch type: {directive} in map: {map}")]
    UnknownDirective { directive: String, map: String },
    #[error("merging lists cannot yet be specified in the patch")]
    MergeDirective,
    #[error("list element types are not identical")]
    MixedElements,
    #[error("cannot merge lists without merge key for {0}")]
    NoDeclaredKey(&'static str),
    #[error("merge key {0} is not a scalar")]
    KeyNotScalar(String),
    #[error("The order in patch list:\n{patch}\n doesn't match $setElementOrder list:\n{order}\n")]
    OrderMismatch { patch: String, order: String },
}

impl From<Error> for PatchError {
    fn from(error: Error) -> PatchError {
        match error {
            Error::PrimitiveListFormat | Error::RetainKeysFormat | Error::ElementOrderFormat => {
                PatchError::BadRequest(error.to_string())
            }
            _ => PatchError::Unprocessable(error.to_string()),
        }
    }
}

impl Error {
    fn no_merge_key(element: &Map<String, Value>, key: &str) -> Error {
        Error::NoMergeKey { map: shown(element), key: key.to_owned() }
    }

    fn wrong_type(expected: &'static str, received: &Value) -> Error {
        Error::WrongType { expected, received: display::go_type(received) }
    }
}

/// A value in a message, not all of it if it is long.
fn shown(map: &Map<String, Value>) -> String {
    display::shortened(display::go_value(&Value::Object(map.clone())))
}

/// Merges a patch into a map.
fn merge_map(
    mut live: Map<String, Value>,
    mut patch: Map<String, Value>,
    schema: &Schema,
) -> Result<Map<String, Value>, Error> {
    if let Some(directive) = patch.get(DIRECTIVE) {
        return match directive.as_str() {
            Some("replace") => {
                patch.remove(DIRECTIVE);
                Ok(patch)
            }
            Some("delete") => Ok(Map::new()),
            _ => Err(Error::UnknownDirective { directive: display::go_value(directive), map: shown(&patch) }),
        };
    }
    if let Some(keys) = patch.remove(RETAIN_KEYS) {
        retain_keys(&mut live, &patch, &keys)?;
    }
    set_element_orders(&mut live, &mut patch, schema)?;
    for (name, value) in patch {
        match strip_directive(&name, DELETE_FROM_PRIMITIVE_LIST) {
            Some(None) => return Err(Error::PrimitiveListFormat),
            Some(Some(name)) => delete_from_list(&mut live, name, &value)?,
            None => merge_member(&mut live, name, value, schema)?,
        }
    }
    Ok(live)
}

/// The field that a directive such as `$setElementOrder/containers` is about: `None` if it is no such directive,
/// `Some(None)` if it names no field.
fn strip_directive<'a>(name: &'a str, directive: &str) -> Option<Option<&'a str>> {
    name.strip_prefix(directive).map(|rest| rest.strip_prefix('/'))
}

fn merge_member(
    live: &mut Map<String, Value>,
    name: String,
    value: Value,
    schema: &Schema,
) -> Result<(), Error> {
    let member = schema.property(&name);
    let merged = match (live.remove(&name), value) {
        (_, Value::Null) => None,
        (Some(Value::Object(live)), Value::Object(patch)) => {
            if member.is_some_and(|member| member.patch == PatchStrategy::Replace) {
                Some(Value::Object(patch))
            } else {
                let merged = merge_map(live, patch, member.unwrap_or(&ANY))?;
                Some(Value::Object(merged))
            }
        }
        (Some(Value::Array(live)), Value::Array(patch)) if is_merged(member) => {
            Some(Value::Array(ListPatch::new(member).merge(live, patch)?))
        }
        (Some(Value::Array(_)), patch @ Value::Array(_)) => Some(patch),
        (_, value) => without_directives(without_nulls(value)),
    };
    if let Some(merged) = merged {
        live.insert(name, merged);
    }
    Ok(())
}

/// A schema that says nothing.
static ANY: std::sync::LazyLock<Schema> = std::sync::LazyLock::new(Schema::default);

fn is_merged(member: Option<&Schema>) -> bool {
    let strategy = member.map(|member| member.patch);
    matches!(strategy, Some(PatchStrategy::Merge | PatchStrategy::MergeRetainKeys))
}

/// Drops the members of `live` that are not to stay. All that the patch sets must be among those that do.
fn retain_keys(live: &mut Map<String, Value>, patch: &Map<String, Value>, keys: &Value) -> Result<(), Error> {
    let keys: std::collections::HashSet<&str> =
        keys.as_array().ok_or(Error::RetainKeysFormat)?.iter().filter_map(Value::as_str).collect();
    let exempt =
        |name: &str| name.starts_with(DELETE_FROM_PRIMITIVE_LIST) || name.starts_with(SET_ELEMENT_ORDER);
    let stays = |name: &str, value: &Value| value.is_null() || exempt(name) || keys.contains(name);
    if !patch.iter().all(|(name, value)| stays(name, value)) {
        return Err(Error::RetainKeysFormat);
    }
    live.retain(|name, _| keys.contains(name.as_str()));
    Ok(())
}

/// Merges and orders the lists for which the patch gives an order, and takes them out of the patch.
fn set_element_orders(
    live: &mut Map<String, Value>,
    patch: &mut Map<String, Value>,
    schema: &Schema,
) -> Result<(), Error> {
    let directives: Vec<String> =
        patch.keys().filter(|name| name.starts_with(SET_ELEMENT_ORDER)).cloned().collect();
    for directive in directives {
        let order = match patch.remove(&directive) {
            Some(Value::Array(order)) => order,
            Some(other) => return Err(Error::wrong_type("[]interface {}", &other)),
            None => continue,
        };
        let name =
            strip_directive(&directive, SET_ELEMENT_ORDER).flatten().ok_or(Error::ElementOrderFormat)?;
        let list = |value: Option<Value>| match value {
            None => Ok(None),
            Some(Value::Array(list)) => Ok(Some(list)),
            Some(other) => Err(Error::wrong_type("[]interface {}", &other)),
        };
        let (live_list, patch_list) = (list(live.remove(name))?, list(patch.remove(name))?);
        let member = schema.property(name);
        let merge = ListPatch::new(member);
        merge.check_order(patch_list.as_deref().unwrap_or_default(), &order)?;
        let ordered = match (live_list, patch_list) {
            (None, None) => continue,
            (Some(live_list), None) => order_only(&merge, live_list, &order)?,
            (None, Some(patch_list)) => {
                let Some(Value::Array(added)) = without_directives(Value::Array(patch_list)) else {
                    continue;
                };
                merge.order(added, &order, &[])?
            }
            (Some(live_list), Some(patch_list)) if is_merged(member) => {
                merge.merge_in_order(live_list, patch_list, Some(&order))?
            }
            (Some(live_list), Some(patch_list)) => {
                merge.order(patch_list, &order, &merge.keys(&live_list)?)?
            }
        };
        live.insert(name.to_owned(), Value::Array(ordered));
    }
    Ok(())
}

fn delete_from_list(live: &mut Map<String, Value>, name: &str, deleted: &Value) -> Result<(), Error> {
    match (live.get_mut(name), deleted) {
        (Some(_), Value::Null) => {
            live.remove(name);
        }
        (Some(Value::Array(list)), Value::Array(deleted)) => lists::delete_scalars(list, deleted)?,
        _ => {}
    }
    Ok(())
}

/// What is new takes no `null`: there is nothing to delete.
fn without_nulls(mut value: Value) -> Value {
    fn discard(value: &mut Value) {
        match value {
            Value::Object(members) => {
                members.retain(|_, member| !member.is_null());
                members.values_mut().for_each(discard);
            }
            Value::Array(items) => items.iter_mut().for_each(discard),
            _ => {}
        }
    }
    discard(&mut value);
    value
}

/// What is new takes no directives; a map that is one is not there at all.
fn without_directives(value: Value) -> Option<Value> {
    match value {
        Value::Object(members) if members.contains_key(DIRECTIVE) => None,
        Value::Object(members) => Some(Value::Object(
            members
                .into_iter()
                .filter_map(|(name, member)| without_directives(member).map(|member| (name, member)))
                .collect(),
        )),
        Value::Array(items) => Some(Value::Array(items.into_iter().filter_map(without_directives).collect())),
        scalar => Some(scalar),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::schema_of;
    use super::super::tests::{DEPLOYMENT, POD};
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(schema: &Schema, live: Value, patch: Value, expected: Value) {
        let result = strategic_merge_patch(schema, live.clone(), patch.clone());
        assert_eq!(result, Ok(expected), "{live} with {patch}");
    }

    /// The same within `spec.containers`.
    #[track_caller]
    fn check_containers(live: Value, patch: Value, expected: Value) {
        let pod = |containers: Value| json!({"spec": {"containers": containers}});
        check(&POD, pod(live), json!({"spec": patch}), pod(expected));
    }

    #[test]
    fn maps_are_merged_and_null_deletes() {
        check(
            &POD,
            json!({"metadata": {"labels": {"a": "1", "b": "2"}}, "spec": {"nodeName": "x"}}),
            json!({"metadata": {"labels": {"b": null, "c": "3"}, "annotations": {"n": null, "x": "y"}}, "spec": null}),
            json!({"metadata": {"labels": {"a": "1", "c": "3"}, "annotations": {"x": "y"}}}),
        );
        check(
            &POD,
            json!({"spec": {"a": "x"}}),
            json!({"spec": {"$patch": "replace", "b": "y"}}),
            json!({"spec": {"b": "y"}}),
        );
        check(&POD, json!({"spec": {"a": "x"}}), json!({"spec": {"$patch": "delete"}}), json!({"spec": {}}));
        check(&POD, json!({}), json!({"spec": {"$patch": "delete"}}), json!({}));
        check(&POD, json!({"spec": [1]}), json!({"spec": {"b": "y"}}), json!({"spec": {"b": "y"}}));
    }

    #[test]
    fn lists_are_merged_by_key() {
        let live = || json!([{"name": "a", "image": "x"}, {"name": "b", "image": "x", "args": ["1"]}]);
        check_containers(
            live(),
            json!({"containers": [{"name": "b", "image": "y", "args": ["2", "3"]}]}),
            json!([{"name": "a", "image": "x"}, {"name": "b", "image": "y", "args": ["2", "3"]}]),
        );
        check_containers(
            live(),
            json!({"containers": [{"name": "a", "image": null}, {"name": "c"}]}),
            json!([{"name": "a"}, {"name": "c"}, {"name": "b", "image": "x", "args": ["1"]}]),
        );
        check_containers(
            live(),
            json!({"containers": [{"name": "b", "$patch": "delete"}]}),
            json!([{"name": "a", "image": "x"}]),
        );
        check_containers(live(), json!({"containers": [{"name": "z", "$patch": "delete"}]}), live());
        check_containers(
            live(),
            json!({"containers": [{"$patch": "replace"}, {"name": "n"}]}),
            json!([{"name": "n"}]),
        );
        check_containers(
            json!([{"name": "a", "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]}]),
            json!({"containers": [{"name": "a", "env": [{"name": "A", "$patch": "delete"}, {"name": "B", "value": "3"}]}]}),
            json!([{"name": "a", "env": [{"name": "B", "value": "3"}]}]),
        );
    }

    #[test]
    fn elements_stand_in_the_wanted_order() {
        let named = |names: &[&str]| names.iter().map(|name| json!({"name": name})).collect::<Vec<_>>();
        let order = |live: &[&str], patch: &[&str], order: &[&str], expected: &[&str]| {
            let mut directive = json!({"$setElementOrder/containers": named(order)});
            if !patch.is_empty() {
                directive["containers"] = json!(named(patch));
            }
            check_containers(json!(named(live)), directive, json!(named(expected)));
        };
        order(&["a", "b", "c"], &[], &["c", "a", "b"], &["c", "a", "b"]);
        order(&["a", "b"], &["c"], &["a", "c", "b"], &["a", "c", "b"]);
        order(&["a", "s", "b"], &["c"], &["b", "c", "a"], &["s", "b", "c", "a"]);
        order(&["a", "s"], &["b"], &["a", "b"], &["a", "b", "s"]);
        check_containers(
            json!(named(&["a", "b", "s"])),
            json!({"$setElementOrder/containers": named(&["b", "c"]), "containers": [{"name": "c"}, {"name": "a", "$patch": "delete"}]}),
            json!(named(&["b", "s", "c"])),
        );
    }

    #[test]
    fn unions_keep_what_the_patch_names() {
        check(
            &DEPLOYMENT,
            json!({"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}}),
            json!({"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}}),
            json!({"spec": {"strategy": {"type": "Recreate"}}}),
        );
        check(
            &POD,
            json!({"spec": {"volumes": [{"name": "v", "emptyDir": {}}, {"name": "w"}]}}),
            json!({"spec": {"volumes": [{"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/x"}}]}}),
            json!({"spec": {"volumes": [{"name": "v", "hostPath": {"path": "/x"}}, {"name": "w"}]}}),
        );
        let budget = schema_of::<k8s_openapi::api::policy::v1::PodDisruptionBudget>();
        check(
            &budget,
            json!({"spec": {"selector": {"matchLabels": {"a": "1"}}}}),
            json!({"spec": {"selector": {"matchLabels": {"b": "2"}}}}),
            json!({"spec": {"selector": {"matchLabels": {"b": "2"}}}}),
        );
    }

    #[test]
    fn sets_of_scalars() {
        let finalizers = |live: &[&str], mut patch: Value, expected: &[&str]| {
            let patch = json!({"metadata": patch.take()});
            let object = |list: &[&str]| json!({"metadata": {"finalizers": list}});
            check(&POD, object(live), patch, object(expected));
        };
        finalizers(&["a", "b"], json!({"finalizers": ["c", "a"]}), &["c", "a", "b"]);
        finalizers(&["a", "b", "c"], json!({"$deleteFromPrimitiveList/finalizers": ["b", "z"]}), &["a", "c"]);
        finalizers(
            &["a", "b"],
            json!({"$setElementOrder/finalizers": ["c", "b"], "finalizers": ["c"], "$deleteFromPrimitiveList/finalizers": ["a"]}),
            &["c", "b"],
        );
        finalizers(&["a", "b"], json!({"$setElementOrder/finalizers": ["b", "a"]}), &["b", "a"]);
    }

    #[test]
    fn what_does_not_apply_is_refused_in_upstreams_words() {
        let check = |patch: Value, expected: PatchError| {
            let live = json!({"metadata": {"finalizers": ["a"]}, "spec": {"containers": [{"name": "a", "image": "x"}]}});
            assert_eq!(strategic_merge_patch(&POD, live, patch.clone()), Err(expected), "{patch}");
        };
        let unprocessable = |message: &str| PatchError::Unprocessable(message.into());
        let bad_request = |message: &str| PatchError::BadRequest(message.into());
        let containers = |list: Value| json!({"spec": {"containers": list}});
        check(
            containers(json!([{"image": "x", "args": ["1"]}])),
            unprocessable("map: map[args:[1] image:x] does not contain declared merge key: name"),
        );
        check(
            containers(json!([{"$patch": "delete"}])),
            unprocessable("map: map[$patch:delete] does not contain declared merge key: name"),
        );
        check(
            containers(json!([{"name": "a", "$patch": "dance"}])),
            unprocessable("unknown patch type: dance in map: map[$patch:dance name:a]"),
        );
        check(
            containers(json!([{"name": "a", "$patch": "merge"}])),
            unprocessable("merging lists cannot yet be specified in the patch"),
        );
        check(containers(json!(["a"])), unprocessable("list element types are not identical"));
        check(containers(json!([["a"]])), unprocessable("lists of lists are not supported"));
        check(
            json!({"spec": {"$patch": "merge"}}),
            unprocessable("unknown patch type: merge in map: map[$patch:merge]"),
        );
        check(json!({"spec": {"$retainKeys": "x"}}), bad_request("invalid patch format of retainKeys"));
        check(
            json!({"spec": {"$retainKeys": [], "x": 1}}),
            bad_request("invalid patch format of retainKeys"),
        );
        check(
            json!({"metadata": {"$deleteFromPrimitiveList": []}}),
            bad_request("invalid patch format of primitive list"),
        );
        check(
            json!({"spec": {"$setElementOrder": []}}),
            bad_request("invalid patch format of setElementOrder list"),
        );
        check(
            json!({"spec": {"$setElementOrder/containers": {}}}),
            unprocessable("expected a []interface {}, but received a map[string]interface {}"),
        );
        check(
            json!({"spec": {"$setElementOrder/containers": [{"name": "b"}], "containers": [{"name": "a"}]}}),
            unprocessable(
                "The order in patch list:\n[map[name:a]]\n doesn't match $setElementOrder list:\n[map[name:b]]\n",
            ),
        );
        check(
            json!([]),
            bad_request("json: cannot unmarshal array into Go value of type map[string]interface {}"),
        );
    }
}
