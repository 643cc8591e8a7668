//! Whether two objects mean the same.
//!
//! Clients with typed structs leave out members that hold nothing (`hostNetwork: false`, `env: []`) and send them
//! again as absent. To them both are one value, so to us they are, too: only where nothing and something empty
//! differ (`runAsUser: 0`) do we tell them apart.

use serde_json::Value;

/// Members whose zero means something other than their absence: upstream's pointers to scalars.
const ZERO_MATTERS: &[&str] = &[
    "activeDeadlineSeconds",
    "allowPrivilegeEscalation",
    "allowVolumeExpansion",
    "attachRequired",
    "automountServiceAccountToken",
    "backoffLimit",
    "backoffLimitPerIndex",
    "blockOwnerDeletion",
    "completions",
    "controller",
    "defaultMode",
    "deletionGracePeriodSeconds",
    "enableServiceLinks",
    "expirationSeconds",
    "fsGroup",
    "globalDefault",
    "gracePeriodSeconds",
    "hostUsers",
    "immutable",
    "maxSurge",
    "maxUnavailable",
    "minAvailable",
    "mode",
    "optional",
    "parallelism",
    "partition",
    "priority",
    "privileged",
    "progressDeadlineSeconds",
    "readOnlyRootFilesystem",
    "replicas",
    "revisionHistoryLimit",
    "runAsGroup",
    "runAsNonRoot",
    "runAsUser",
    "setHostnameAsFQDN",
    "shareProcessNamespace",
    "storageClassName",
    "successfulJobsHistoryLimit",
    "failedJobsHistoryLimit",
    "startingDeadlineSeconds",
    "suspend",
    "terminationGracePeriodSeconds",
    "tolerationSeconds",
    "ttlSecondsAfterFinished",
    "volumeAttributesClassName",
];

/// Whether the values mean the same: members that hold nothing count as absent.
pub fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            a.iter().all(|(name, value)| match b.get(name) {
                Some(other) => same(value, other),
                None => counts_as_absent(name, value),
            }) && b.iter().all(|(name, value)| a.contains_key(name) || counts_as_absent(name, value))
        }
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        _ => a == b || is_nothing(a) && is_nothing(b),
    }
}

fn counts_as_absent(name: &str, value: &Value) -> bool {
    is_nothing(value) || is_zero(value) && !ZERO_MATTERS.contains(&name)
}

/// Null, or a list or map with nothing in it.
fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.iter().all(|(name, value)| counts_as_absent(name, value)),
        _ => false,
    }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        _ => is_nothing(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn nothing_and_absent_are_one_but_for_pointers() {
        let check = |a: Value, b: Value, expected: bool| {
            assert_eq!(same(&a, &b), expected, "{a} {b}");
            assert_eq!(same(&b, &a), expected, "{b} {a}");
        };
        check(json!({"hostNetwork": false, "env": [], "x": "", "r": {"limits": {}}}), json!({}), true);
        check(json!({"runAsUser": 0}), json!({}), false);
        check(json!({"hostNetwork": true}), json!({}), false);
        check(json!([{"a": 0}]), json!([{}]), true);
        check(json!([{}]), json!([]), false);
        check(json!({"a": "b"}), json!({"a": "c"}), false);
        check(Value::Null, json!({}), true);
        check(json!(0), Value::Null, false);
    }
}
