//! JSON merge patch (RFC 7386): objects are merged, `null` deletes, everything else replaces.

use serde_json::{Map, Value};

/// Applies a patch to a value.
pub fn merge_patch(target: Value, patch: Value) -> Value {
    let Value::Object(patch) = patch else { return patch };
    let mut members = match target {
        Value::Object(members) => members,
        _ => Map::new(),
    };
    for (name, patch) in patch {
        if patch.is_null() {
            members.remove(&name);
        } else {
            let target = members.remove(&name).unwrap_or_default();
            members.insert(name, merge_patch(target, patch));
        }
    }
    Value::Object(members)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn the_cases_of_the_rfc() {
        let check = |target: Value, patch: Value, expected: Value| {
            assert_eq!(merge_patch(target.clone(), patch.clone()), expected, "{target} with {patch}");
        };
        check(json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"}));
        check(json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"}));
        check(json!({"a": "b"}), json!({"a": null}), json!({}));
        check(json!({"a": "b", "b": "c"}), json!({"a": null}), json!({"b": "c"}));
        check(json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"}));
        check(json!({"a": "c"}), json!({"a": ["b"]}), json!({"a": ["b"]}));
        check(json!({"a": {"b": "c"}}), json!({"a": {"b": "d", "c": null}}), json!({"a": {"b": "d"}}));
        check(json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]}));
        check(json!(["a", "b"]), json!(["c", "d"]), json!(["c", "d"]));
        check(json!({"a": "b"}), json!(["c"]), json!(["c"]));
        check(json!({"a": "foo"}), json!(null), json!(null));
        check(json!({"e": null}), json!({"a": 1}), json!({"e": null, "a": 1}));
        check(json!([1, 2]), json!({"a": "b", "c": null}), json!({"a": "b"}));
        check(json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}}));
    }

    proptest! {
        #[test]
        fn applying_twice_is_applying_once(
            target in super::super::testing::json(),
            patch in super::super::testing::json(),
        ) {
            let once = merge_patch(target, patch.clone());
            prop_assert_eq!(merge_patch(once.clone(), patch), once);
        }

        #[test]
        fn an_empty_patch_changes_no_object(target in super::super::testing::object()) {
            prop_assert_eq!(merge_patch(target.clone(), json!({})), target);
        }

        #[test]
        fn patching_nothing_gives_the_patch_without_nulls(patch in super::super::testing::object()) {
            let result = merge_patch(json!({}), patch.clone());
            prop_assert_eq!(merge_patch(result.clone(), patch), result);
        }
    }
}
