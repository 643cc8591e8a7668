//! A pod stays five minutes on a node that is not ready or not reachable, unless it says otherwise.

use super::{Operation, Request};
use crate::error::Result;
use api::{Value, object};
use serde_json::json;

const SECONDS: i64 = 300;
const TAINTS: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];

pub(super) fn admit(request: &Request<'_>, pod: Option<&mut Value>) -> Result<()> {
    let Some(pod) = pod else { return Ok(()) };
    if !request.is_for("", "pods") || request.operation == Operation::Delete {
        return Ok(());
    }
    let spec = object::object_mut(pod, "spec");
    let tolerations = spec.get("tolerations").and_then(Value::as_array).cloned().unwrap_or_default();
    let missing: Vec<Value> = TAINTS
        .iter()
        .filter(|taint| !tolerations.iter().any(|toleration| tolerates(toleration, taint)))
        .map(|taint| json!({"key": taint, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": SECONDS}))
        .collect();
    if !missing.is_empty() {
        spec.insert("tolerations".into(), tolerations.into_iter().chain(missing).collect());
    }
    Ok(())
}

fn tolerates(toleration: &Value, taint: &str) -> bool {
    let text = |name: &str| toleration.get(name).and_then(Value::as_str).unwrap_or_default();
    (text("key").is_empty() || text("key") == taint) && matches!(text("effect"), "" | "NoExecute")
}

#[cfg(test)]
mod tests {
    use super::tolerates;
    use serde_json::json;

    #[test]
    fn a_toleration_of_everything_tolerates_these_too() {
        let taint = "node.kubernetes.io/not-ready";
        assert!(tolerates(&json!({"operator": "Exists"}), taint));
        assert!(tolerates(&json!({"key": taint, "operator": "Exists", "effect": "NoExecute"}), taint));
        assert!(!tolerates(&json!({"key": taint, "effect": "NoSchedule"}), taint));
        assert!(!tolerates(&json!({"key": "other"}), taint));
    }
}
