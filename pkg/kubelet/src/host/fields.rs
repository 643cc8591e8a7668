//! What a pod may ask about itself: `fieldRef` and `resourceFieldRef`, in environments and in downward volumes.

use super::Capacity;
use api::Quantity;
use k8s_openapi::api::core::v1::{Container, Pod, ResourceFieldSelector};
use std::collections::BTreeMap;

/// What is known of a pod at this moment.
pub(crate) struct FieldContext<'a> {
    /// The pod.
    pub pod: &'a Pod,
    /// Its addresses.
    pub pod_ips: &'a [String],
    /// The node's addresses.
    pub host_ips: &'a [String],
    /// Its node.
    pub node_name: &'a str,
}

impl FieldContext<'_> {
    /// The value of a field.
    pub fn field(&self, path: &str) -> Result<String, String> {
        let meta = &self.pod.metadata;
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        let spec = self.pod.spec.as_ref();
        if let Some((map, key)) = path.strip_suffix("']").and_then(|path| path.split_once("['")) {
            return match map {
                "metadata.labels" => Ok(find(&meta.labels, key)),
                "metadata.annotations" => Ok(find(&meta.annotations, key)),
                _ => Err(format!("fieldPath \"{map}\" does not support subscript")),
            };
        }
        Ok(match path {
            "metadata.name" => text(&meta.name),
            "metadata.namespace" => text(&meta.namespace),
            "metadata.uid" => text(&meta.uid),
            "metadata.labels" => format_map(&meta.labels),
            "metadata.annotations" => format_map(&meta.annotations),
            "spec.nodeName" => self.node_name.to_owned(),
            "spec.serviceAccountName" => text(&spec.and_then(|spec| spec.service_account_name.clone())),
            "spec.restartPolicy" => text(&spec.and_then(|spec| spec.restart_policy.clone())),
            "status.hostIP" => self.host_ips.first().cloned().unwrap_or_default(),
            "status.hostIPs" => self.host_ips.join(","),
            "status.podIP" => self.pod_ips.first().cloned().unwrap_or_default(),
            "status.podIPs" => self.pod_ips.join(","),
            other => return Err(format!("unsupported fieldPath: {other}")),
        })
    }
}

fn find(map: &Option<BTreeMap<String, String>>, key: &str) -> String {
    map.as_ref().and_then(|map| map.get(key)).cloned().unwrap_or_default()
}

/// One line per entry, `key="value"`, as Go quotes.
fn format_map(map: &Option<BTreeMap<String, String>>) -> String {
    let lines: Vec<String> =
        map.iter().flatten().map(|(key, value)| format!("{key}={}", quote(value))).collect();
    lines.join("\n")
}

fn quote(text: &str) -> String {
    let mut out = String::from('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            c if c.is_control() => out.push_str(&format!("\\x{:02x}", c as u32)),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// What a container may use, in units of the divisor, rounded up. Without a limit of its own: what the node has.
pub(crate) fn resource(
    selector: &ResourceFieldSelector,
    container: &Container,
    allocatable: &Capacity,
) -> Result<String, String> {
    let (list, name) = selector
        .resource
        .split_once('.')
        .ok_or_else(|| format!("unsupported container resource : {}", selector.resource))?;
    let resources = container.resources.as_ref();
    let (limits, requests) =
        (resources.and_then(|r| r.limits.as_ref()), resources.and_then(|r| r.requests.as_ref()));
    let given = match list {
        "limits" => limits.and_then(|limits| limits.get(name)),
        "requests" => requests.and_then(|requests| requests.get(name)),
        _ => return Err(format!("unsupported container resource : {}", selector.resource)),
    };
    let amount: Quantity = match given {
        Some(amount) => amount.0.parse().map_err(|_| format!("not an amount: {}", amount.0))?,
        None if list == "limits" => allocatable.get(name).copied().unwrap_or_default(),
        None => Quantity::default(),
    };
    let divisor: Quantity = selector
        .divisor
        .as_ref()
        .and_then(|divisor| divisor.0.parse().ok())
        .filter(|divisor: &Quantity| !divisor.is_zero())
        .unwrap_or(Quantity::from_value(1));
    let (amount, divisor) = if name == "cpu" {
        (amount.milli_value(), divisor.milli_value())
    } else {
        (amount.value(), divisor.value())
    };
    Ok(amount.div_ceil_to(divisor).to_string())
}

trait DivCeil {
    fn div_ceil_to(self, divisor: i64) -> i64;
}

impl DivCeil for i64 {
    fn div_ceil_to(self, divisor: i64) -> i64 {
        let divisor = divisor.max(1);
        self / divisor + i64::from(self % divisor > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod() -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "web", "namespace": "shop", "uid": "u1",
                "labels": {"app": "web", "tier": "a\"b"}, "annotations": {"x.io/y": "1"}},
            "spec": {"containers": [], "serviceAccountName": "bot"},
        }))
        .expect("a pod")
    }

    #[test]
    fn fields_of_a_pod() {
        let pod = pod();
        let (pod_ips, host_ips) = (["10.0.0.2".to_owned(), "fd00::2".to_owned()], ["192.0.2.1".to_owned()]);
        let context = FieldContext { pod: &pod, pod_ips: &pod_ips, host_ips: &host_ips, node_name: "n1" };
        for (path, expected) in [
            ("metadata.name", "web"),
            ("metadata.labels['app']", "web"),
            ("metadata.labels['none']", ""),
            ("metadata.annotations['x.io/y']", "1"),
            ("metadata.labels", "app=\"web\"\ntier=\"a\\\"b\""),
            ("spec.nodeName", "n1"),
            ("spec.serviceAccountName", "bot"),
            ("status.podIPs", "10.0.0.2,fd00::2"),
            ("status.hostIP", "192.0.2.1"),
        ] {
            assert_eq!(context.field(path).as_deref(), Ok(expected), "{path}");
        }
        assert!(context.field("spec.nothing").is_err());
    }

    #[test]
    fn resources_are_rounded_up_and_default_to_the_node() {
        let container: Container = serde_json::from_value(json!({"name": "c", "resources": {
            "limits": {"cpu": "1500m"}, "requests": {"memory": "65Mi"}}}))
        .expect("a container");
        let node = Capacity::from([("memory".to_owned(), "2Gi".parse().expect("an amount"))]);
        for (path, divisor, expected) in [
            ("limits.cpu", "0", "2"),
            ("limits.cpu", "1m", "1500"),
            ("requests.memory", "1Mi", "65"),
            ("limits.memory", "1Gi", "2"),
            ("requests.cpu", "1", "0"),
        ] {
            let selector = serde_json::from_value(json!({"resource": path, "divisor": divisor}));
            let selector = selector.expect("a selector");
            assert_eq!(resource(&selector, &container, &node).as_deref(), Ok(expected), "{path} {divisor}");
        }
    }
}
