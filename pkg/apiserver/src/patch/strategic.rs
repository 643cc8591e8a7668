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
    if let Some(directive) = patch.remove(DIRECTIVE) {
        return match directive.as_str() {
            Some("replace") => Ok(patch),
            Some("delete") => Ok(Map::new()),
            _ => {
                Err(Error::UnknownDirective { directive: display::go_value(&directive), map: shown(&patch) })
            }
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
            Some(Value::Array(ListPatch::new(member)?.merge(live, patch)?))
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
        let merge = ListPatch::new(member)?;
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
                let live_keys = merge.keys(&live_list)?;
                let merged = merge.merge(live_list, patch_list)?;
                merge.order(merged, &order, &live_keys)?
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
