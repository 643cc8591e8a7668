//! A node's name: whether it can be one, and whether it is free in the cluster that a machine wants to join.
//!
//! ```text
//! no Node of that name, or one that was given back ─────> join
//! a Node that is not Ready ──> only with --replace-node    a Node that is Ready ──> refused
//! ```
//!
//! Two machines with one name would take each other's pods away in turn.

use anyhow::{Result, bail};
use api::dialect::map_name;
use api::names::dns_subdomain_name;
use k8s_openapi::api::core::v1::Node;
use kubelet::node::GIVEN_BACK;

/// The name that a flag gives, or that the machine has.
pub fn checked(flag: Option<String>, host_name: impl FnOnce() -> String) -> Result<String> {
    let (name, whose) = match flag {
        Some(name) => (name, "--node-name"),
        None => (host_name(), "this machine's name"),
    };
    if dns_subdomain_name(&name).is_ok() {
        return Ok(name);
    }
    let mapped = map_name(&name);
    let next = match dns_subdomain_name(&mapped).is_ok() {
        true => format!("--node-name {mapped} would do"),
        false => "give another one with --node-name".to_owned(),
    };
    bail!(
        "{whose}: {name:?} cannot be a node's name (small letters, digits, \"-\" and \".\" between them): {next}"
    )
}

/// Whether a machine may join by this name. What is said of it if it may.
pub fn free(name: &str, node: Option<&Node>, replaces: bool) -> Result<String> {
    let Some(node) = node else { return Ok(format!("{name} is nobody's name in the cluster")) };
    let status = node.status.clone().unwrap_or_default();
    let ready =
        status.conditions.unwrap_or_default().into_iter().find(|condition| condition.type_ == "Ready");
    let is_ready = ready.as_ref().is_some_and(|ready| ready.status == "True");
    let addresses = status.addresses.unwrap_or_default();
    let at = addresses.iter().find(|address| address.type_ == "InternalIP").map(|found| &found.address);
    let at = at.map(|address| format!(" (the machine at {address})")).unwrap_or_default();
    if is_ready {
        bail!(
            "a node {name:?} is in the cluster and Ready{at}: choose another name with --node-name, or end that one \
             first, by kubeadm reset on its machine or kubectl delete node {name}"
        );
    }
    let annotations = node.metadata.annotations.as_ref();
    if let Some(why) = annotations.and_then(|all| all.get(GIVEN_BACK)) {
        return Ok(format!("{name} is free again: {why}"));
    }
    let why = ready.and_then(|ready| ready.message).filter(|message| !message.is_empty());
    let why = why.map(|message| format!(": {}", message.trim_end_matches('.'))).unwrap_or_default();
    if !replaces {
        bail!(
            "a node {name:?} is in the cluster, though not Ready{at}{why}; if its machine does not come back, \
             --replace-node takes its place with its pods; otherwise choose another name with --node-name"
        );
    }
    Ok(format!("{name} takes the place of a node that is not Ready{at}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_name_that_cannot_be_one_is_refused_at_once() {
        let check = |flag: Option<&str>, host: &str, expected: Result<&str, &str>| {
            let found = checked(flag.map(str::to_owned), || host.to_owned());
            match expected {
                Ok(name) => assert_eq!(found.expect("a name"), name),
                Err(part) => {
                    let said = found.expect_err("refused").to_string();
                    assert!(said.contains(part), "{said}");
                }
            }
        };
        check(Some("worker-1.example"), "host", Ok("worker-1.example"));
        check(None, "host", Ok("host"));
        check(Some("Bad_Name"), "host", Err("--node-name: \"Bad_Name\" cannot be a node's name"));
        check(Some("Bad_Name"), "host", Err("--node-name bad-name would do"));
        check(Some("ä"), "host", Err("give another one with --node-name"));
        check(None, "my_host", Err("this machine's name: \"my_host\""));
    }

    #[test]
    fn a_node_that_is_there_is_not_taken_over() {
        let node = |ready: &str, annotations: serde_json::Value| -> Node {
            let conditions = json!([{"type": "Ready", "status": ready, "message": "Kubelet stopped posting node status."}]);
            let addresses = json!([{"type": "InternalIP", "address": "192.0.2.7"}]);
            let status = json!({"conditions": conditions, "addresses": addresses});
            serde_json::from_value(json!({"metadata": {"annotations": annotations}, "status": status}))
                .expect("a node")
        };
        assert!(free("m2", None, false).is_ok());
        let given_back = node("Unknown", json!({GIVEN_BACK: "kubeadm reset was called"}));
        assert_eq!(
            free("m2", Some(&given_back), false).expect("free"),
            "m2 is free again: kubeadm reset was called"
        );
        for replaces in [false, true] {
            let said = free("m2", Some(&node("True", json!({}))), replaces).expect_err("refused").to_string();
            assert!(said.contains("is in the cluster and Ready (the machine at 192.0.2.7)"), "{said}");
            assert!(said.contains("kubectl delete node m2"), "{said}");
        }
        // Whoever reports is there, whatever was said before.
        assert!(free("m2", Some(&node("True", json!({GIVEN_BACK: "moved"}))), false).is_err());
        let silent = node("Unknown", json!({}));
        let said = free("m2", Some(&silent), false).expect_err("refused").to_string();
        assert!(said.contains("Kubelet stopped posting node status; if its machine"), "{said}");
        assert!(said.contains("--replace-node"), "{said}");
        assert!(free("m2", Some(&silent), true).is_ok());
        assert!(free("m2", Some(&serde_json::from_value(json!({})).expect("a node")), false).is_err());
    }
}
