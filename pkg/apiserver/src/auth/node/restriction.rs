//! What a node may write, by content: its own Node, Lease and CSINode, and what belongs to its own pods.

use super::references::{self, ephemeral_claim, items, text};
use crate::auth::{Attributes, Authorizer, Lookup};
use serde_json::Value;
use std::collections::BTreeSet;

const NODE_LEASES: &str = "kube-node-lease";

/// Why a node may not write that.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Restricted {
    /// 403 with this text as its cause.
    #[error("{0}")]
    Forbidden(String),
    /// 404: what it is about does not exist.
    #[error("{resource} {name:?} not found")]
    NotFound {
        /// The resource, in the singular: that is how upstream's caches say it.
        resource: &'static str,
        /// The name looked for.
        name: String,
    },
}

/// A write by a node.
struct Write<'a> {
    node: &'a str,
    request: &'a Attributes<'a>,
    new: &'a Value,
    old: &'a Value,
    operation: Operation,
    lookup: &'a dyn Lookup,
    authorizer: &'a Authorizer,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operation {
    Create,
    Update,
    Delete,
}

impl Operation {
    fn name(self) -> &'static str {
        match self {
            Operation::Create => "CREATE",
            Operation::Update => "UPDATE",
            Operation::Delete => "DELETE",
        }
    }
}

/// Checks what is written (`new`, none for a deletion) over what is there (`old`). Users that are no nodes are not
/// restricted here.
pub fn restrict(
    request: &Attributes<'_>,
    new: Option<&Value>,
    old: Option<&Value>,
    lookup: &dyn Lookup,
    authorizer: &Authorizer,
) -> Result<(), Restricted> {
    let Some(node) = request.user.node() else { return Ok(()) };
    if node.is_empty() {
        return forbid(format!("could not determine node from user {:?}", request.user.name));
    }
    let operation = match request.verb {
        "delete" | "deletecollection" => Operation::Delete,
        "create" => Operation::Create,
        _ if old.is_none() => Operation::Create,
        _ => Operation::Update,
    };
    let nothing = &Value::Null;
    let (new, old) = (new.unwrap_or(nothing), old.unwrap_or(nothing));
    let write = Write { node, request, new, old, operation, lookup, authorizer };
    match (request.group, request.resource, request.subresource) {
        ("", "pods", "") => write.pod(),
        ("", "pods", "status") => write.pod_status(),
        ("", "pods", "eviction") => write.eviction(),
        ("", "pods", other) => {
            forbid(format!("unexpected pod subresource {other:?}, only 'status' and 'eviction' are allowed"))
        }
        ("", "nodes", _) => write.node(),
        ("", "persistentvolumeclaims", "status") => write.claim_status(),
        ("", "persistentvolumeclaims", _) => forbid("may only update PVC status"),
        ("", "serviceaccounts", "token") => write.token(),
        ("coordination.k8s.io", "leases", _) => write.lease(),
        ("storage.k8s.io", "csinodes", _) => write.named_as_the_node("CSINode"),
        ("resource.k8s.io", "resourceslices", _) => write.slice(),
        ("certificates.k8s.io", "certificatesigningrequests", _) => write.signing_request(),
        ("certificates.k8s.io", "podcertificaterequests", _) => {
            forbid("PodCertificateRequest feature gate is disabled")
        }
        _ => Ok(()),
    }
}

impl Write<'_> {
    fn pod(&self) -> Result<(), Restricted> {
        let node = self.node;
        match self.operation {
            Operation::Create => self.mirror_pod(),
            Operation::Delete => {
                let pod = self.existing_pod(self.name())?;
                if text(&pod["spec"]["nodeName"]) != node {
                    return forbid(format!(
                        "node {node:?} can only delete pods with spec.nodeName set to itself"
                    ));
                }
                Ok(())
            }
            Operation::Update => forbid(format!(
                "unexpected operation \"UPDATE\", node {node:?} can only create and delete mirror pods"
            )),
        }
    }

    fn mirror_pod(&self) -> Result<(), Restricted> {
        let (node, pod) = (self.node, self.new);
        if !references::is_mirror(pod) {
            return forbid(format!(
                "pod does not have {:?} annotation, node {node:?} can only create mirror pods",
                references::MIRROR
            ));
        }
        if text(&pod["spec"]["nodeName"]) != node {
            return forbid(format!("node {node:?} can only create pods with spec.nodeName set to itself"));
        }
        let owners: Vec<&Value> = items(&pod["metadata"]["ownerReferences"]).collect();
        let only =
            |what: &str| forbid(format!("node {node:?} can only create pods with {what} set to itself"));
        let owner = match owners[..] {
            [owner] => owner,
            [] => return only("an owner reference"),
            _ => return only("a single owner reference"),
        };
        if owner["apiVersion"] != "v1" || owner["kind"] != "Node" || owner["name"] != node {
            return only("an owner reference");
        }
        if owner["controller"] != true {
            return only("a controller owner reference");
        }
        if owner["blockOwnerDeletion"] == true {
            return forbid(format!("node {node:?} must not set blockOwnerDeletion on an owner reference"));
        }
        let uid = self.lookup.identity("nodes", "", node).ok_or_else(|| not_found("node", node))?.uid;
        if text(&owner["uid"]) != uid {
            let claimed = text(&owner["uid"]);
            return forbid(format!("node {node} UID mismatch: expected {claimed} got {uid}"));
        }
        match references::forbidden_in_mirror_pods(pod) {
            Ok(None) => Ok(()),
            Ok(Some(what)) => forbid(format!("node {node:?} can not create pods that reference {what}")),
            Err(error) => forbid(format!("error checking mirror pod for API references: {error}")),
        }
    }

    fn pod_status(&self) -> Result<(), Restricted> {
        let (node, new, old) = (self.node, self.new, self.old);
        if self.operation != Operation::Update {
            return self.unexpected_operation();
        }
        if text(&old["spec"]["nodeName"]) != node {
            return forbid(format!(
                "node {node:?} can only update pod status for pods with spec.nodeName set to itself"
            ));
        }
        if labels(new) != labels(old) {
            return forbid(format!("node {node:?} cannot update labels through pod status"));
        }
        let claims = |pod: &Value| -> Vec<(Value, Value)> {
            items(&pod["status"]["resourceClaimStatuses"])
                .map(|status| (status["name"].clone(), status["resourceClaimName"].clone()))
                .collect()
        };
        if claims(new) != claims(old) {
            return forbid(format!("node {node:?} cannot update resource claim statues"));
        }
        let extended = |pod: &Value| pod["status"]["extendedResourceClaimStatus"].clone();
        if extended(new) != extended(old) {
            return forbid(format!("node {node:?} cannot update extended resource claim status"));
        }
        Ok(())
    }

    fn eviction(&self) -> Result<(), Restricted> {
        if self.operation != Operation::Create {
            return forbid(format!("unexpected operation {}", self.operation.name()));
        }
        if self.name().is_empty() {
            return forbid("could not determine pod from request data");
        }
        let pod = self.existing_pod(self.name())?;
        if text(&pod["spec"]["nodeName"]) != self.node {
            let node = self.node;
            return forbid(format!("node {node} can only evict pods with spec.nodeName set to itself"));
        }
        Ok(())
    }

    fn node(&self) -> Result<(), Restricted> {
        let (node, new, old) = (self.node, self.new, self.old);
        if self.name() != node {
            return forbid(format!("node {node:?} is not allowed to modify node {:?}", self.name()));
        }
        // What is routed to it is not its own to say. A kubelet is told its range, and never tells.
        let ranges = |object: &Value| ["podCIDR", "podCIDRs"].map(|name| object["spec"][name].clone());
        if self.operation != Operation::Delete && ranges(new) != ranges(old) {
            return forbid(format!("node {node:?} is not allowed to set podCIDR or podCIDRs"));
        }
        let source = &new["spec"]["configSource"];
        if self.operation == Operation::Create {
            if !source.is_null() {
                return forbid(format!(
                    "node {node:?} is not allowed to create pods with a non-nil configSource"
                ));
            }
            let forbidden = forbidden_labels(new, &Value::Null);
            if !forbidden.is_empty() {
                return forbid(format!(
                    "node {node:?} is not allowed to set the following labels: {}",
                    forbidden.join(", ")
                ));
            }
        }
        if self.operation == Operation::Update {
            if !source.is_null() && *source != old["spec"]["configSource"] {
                return forbid(format!(
                    "node {node:?} is not allowed to update configSource to a new non-nil configSource"
                ));
            }
            if !same_list(&new["spec"]["taints"], &old["spec"]["taints"]) {
                return forbid(format!("node {node:?} is not allowed to modify taints"));
            }
            let owners = |object: &Value| object["metadata"]["ownerReferences"].clone();
            if !same_list(&owners(new), &owners(old)) {
                return forbid(format!("node {node:?} is not allowed to modify ownerReferences"));
            }
            let forbidden = forbidden_labels(new, old);
            if !forbidden.is_empty() {
                return forbid(format!("is not allowed to modify labels: {}", forbidden.join(", ")));
            }
        }
        Ok(())
    }

    fn claim_status(&self) -> Result<(), Restricted> {
        if self.operation != Operation::Update {
            return self.unexpected_operation();
        }
        let rest = |claim: &Value| {
            let mut claim = claim.clone();
            for (place, names) in [
                ("metadata", &["resourceVersion", "managedFields"][..]),
                ("status", &["capacity", "conditions", "allocatedResourceStatuses", "allocatedResources"]),
            ] {
                if let Some(members) = claim.get_mut(place).and_then(Value::as_object_mut) {
                    members.retain(|name, _| !names.contains(&name.as_str()));
                }
            }
            claim
        };
        let (new, old) = (rest(self.new), rest(self.old));
        if new == old {
            return Ok(());
        }
        let changed: Vec<&str> =
            ["metadata", "spec", "status"].into_iter().filter(|m| new[*m] != old[*m]).collect();
        forbid(format!(
            "node {:?} is not allowed to update fields other than status.quantity and status.conditions: \
             {} differs",
            self.node,
            changed.join(", ")
        ))
    }

    fn token(&self) -> Result<(), Restricted> {
        if self.operation != Operation::Create {
            return Ok(());
        }
        let reference = &self.new["spec"]["boundObjectRef"];
        let name = text(&reference["name"]);
        if reference["apiVersion"] != "v1" || reference["kind"] != "Pod" || name.is_empty() {
            return forbid("node requested token not bound to a pod");
        }
        let uid = text(&reference["uid"]);
        if uid.is_empty() {
            return forbid("node requested token with a pod binding without a uid");
        }
        let pod = self.existing_pod(name)?;
        if text(&pod["metadata"]["uid"]) != uid {
            return forbid(format!(
                "the UID in the bound object reference ({uid}) does not match the UID in record. \
                 The object might have been deleted and then recreated"
            ));
        }
        if text(&pod["spec"]["nodeName"]) != self.node {
            return forbid("node requested token bound to a pod scheduled on a different node");
        }
        self.audience(&pod)
    }

    /// A node gets tokens for those audiences only that its pods ask for, or that it was given explicitly.
    fn audience(&self, pod: &Value) -> Result<(), Restricted> {
        let audiences: Vec<&str> = items(&self.new["spec"]["audiences"]).map(text).collect();
        let audience = match audiences[..] {
            [] => "",
            [audience] => audience,
            _ => return forbid("node may only request 0 or 1 audiences"),
        };
        match self.pod_asks_for(pod, audience) {
            Ok(true) => return Ok(()),
            Ok(false) => {}
            Err(error) => return forbid(format!("error validating audience {audience:?}: {error}")),
        }
        let user = self.request.user;
        let explicit = Attributes {
            version: "v1",
            namespace: self.request.namespace,
            name: self.request.name,
            ..Attributes::resource(user, "request-serviceaccounts-token-audience", "", audience)
        };
        if self.authorizer.authorize(&explicit).allowed {
            return Ok(());
        }
        forbid(format!(
            "audience {audience:?} not found in pod spec volume, {} is not authorized to request tokens for \
             this audience",
            user.name
        ))
    }

    fn pod_asks_for(&self, pod: &Value, audience: &str) -> Result<bool, String> {
        let mut errors = Vec::new();
        for volume in items(&pod["spec"]["volumes"]) {
            let projected = items(&volume["projected"]["sources"]).any(|source| {
                let token = &source["serviceAccountToken"];
                token.is_object() && text(&token["audience"]) == audience
            });
            if projected {
                return Ok(true);
            }
            match self.driver_asks_for(pod, volume, audience) {
                Ok(true) => return Ok(true),
                Ok(false) => {}
                Err(error) => errors.push(error),
            }
        }
        match errors.is_empty() {
            true => Ok(false),
            false => Err(crate::auth::rbac::aggregate_errors(&errors)),
        }
    }

    /// Whether the volume's CSI driver, reached through claim and volume where need be, wants such tokens.
    fn driver_asks_for(&self, pod: &Value, volume: &Value, audience: &str) -> Result<bool, String> {
        let namespace = self.request.namespace;
        let claim = match text(&volume["persistentVolumeClaim"]["claimName"]) {
            "" if volume["ephemeral"].is_object() => ephemeral_claim(pod, volume),
            claim => claim.to_owned(),
        };
        let get = |resource: &str, singular: &str, namespace: &str, name: &str| {
            let found = self.lookup.object(resource, namespace, name);
            found.ok_or_else(|| format!("{singular} {name:?} not found"))
        };
        let driver = if claim.is_empty() {
            text(&volume["csi"]["driver"]).to_owned()
        } else {
            let claim = get("persistentvolumeclaims", "persistentvolumeclaim", namespace, &claim)?;
            let name = text(&claim["spec"]["volumeName"]);
            let volume = get("persistentvolumes", "persistentvolume", "", name)?;
            text(&volume["spec"]["csi"]["driver"]).to_owned()
        };
        if driver.is_empty() {
            return Ok(false);
        }
        let driver = get("csidrivers.storage.k8s.io", "csidriver.storage.k8s.io", "", &driver)?;
        Ok(items(&driver["spec"]["tokenRequests"]).any(|request| text(&request["audience"]) == audience))
    }

    fn lease(&self) -> Result<(), Restricted> {
        if self.request.namespace != NODE_LEASES {
            return forbid(format!("can only access leases in the {NODE_LEASES:?} system namespace"));
        }
        self.named_as_the_node("node lease")
    }

    fn named_as_the_node(&self, what: &str) -> Result<(), Restricted> {
        if self.name() != self.node {
            return forbid(format!("can only access {what} with the same name as the requesting node"));
        }
        Ok(())
    }

    fn slice(&self) -> Result<(), Restricted> {
        let (slice, verb) = match self.operation {
            Operation::Create => (self.new, "create"),
            Operation::Delete => (self.old, "delete"),
            Operation::Update => return Ok(()),
        };
        if text(&slice["spec"]["nodeName"]) != self.node {
            return forbid(format!(
                "can only {verb} ResourceSlice with the same NodeName as the requesting node"
            ));
        }
        Ok(())
    }

    fn signing_request(&self) -> Result<(), Restricted> {
        use base64::{Engine, prelude::BASE64_STANDARD};
        let signer = text(&self.new["spec"]["signerName"]);
        if self.operation != Operation::Create
            || !matches!(
                signer,
                "kubernetes.io/kubelet-serving" | "kubernetes.io/kube-apiserver-client-kubelet"
            )
        {
            return Ok(());
        }
        let pem = BASE64_STANDARD.decode(text(&self.new["spec"]["request"])).ok();
        let pem = pem.and_then(|pem| String::from_utf8(pem).ok()).unwrap_or_default();
        let request = match pki::Request::from_pem(&pem) {
            Ok(request) => request,
            Err(error) => return forbid(format!("unable to parse csr: {error}")),
        };
        let expected = format!("system:node:{}", self.node);
        if request.facts.common_name != expected {
            return forbid(format!("can only create a node CSR with CN={expected}"));
        }
        Ok(())
    }

    /// The name of the object: of the path, or, where that has none, of the object itself.
    fn name(&self) -> &str {
        match self.request.name {
            "" => api::object::name(self.new),
            name => name,
        }
    }

    fn existing_pod(&self, name: &str) -> Result<Value, Restricted> {
        self.lookup.object("pods", self.request.namespace, name).ok_or_else(|| not_found("pod", name))
    }

    fn unexpected_operation(&self) -> Result<(), Restricted> {
        forbid(format!("unexpected operation {:?}", self.operation.name()))
    }
}

fn forbid(text: impl Into<String>) -> Result<(), Restricted> {
    Err(Restricted::Forbidden(text.into()))
}

fn not_found(resource: &'static str, name: &str) -> Restricted {
    Restricted::NotFound { resource, name: name.to_owned() }
}

fn labels(object: &Value) -> Vec<(&str, &str)> {
    let labels = object["metadata"]["labels"].as_object().into_iter().flatten();
    labels.map(|(key, value)| (key.as_str(), text(value))).collect()
}

/// Whether two lists are equal; one that is missing is empty.
fn same_list(new: &Value, old: &Value) -> bool {
    items(new).eq(items(old))
}

/// The labels that differ and that a node may not set itself, since they steer workloads.
fn forbidden_labels(new: &Value, old: &Value) -> Vec<String> {
    let (new, old) = (labels(new), labels(old));
    let changed: BTreeSet<&str> = new
        .iter()
        .filter(|label| !old.contains(label))
        .chain(old.iter().filter(|label| !new.contains(label)))
        .map(|(key, _)| *key)
        .collect();
    changed.into_iter().filter(|key| !is_allowed_label(key)).map(str::to_owned).collect()
}

fn is_allowed_label(key: &str) -> bool {
    const KUBELET_LABELS: [&str; 11] = [
        "kubernetes.io/hostname",
        "topology.kubernetes.io/zone",
        "topology.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/region",
        "node.kubernetes.io/instance-type",
        "beta.kubernetes.io/instance-type",
        "kubernetes.io/os",
        "kubernetes.io/arch",
        "beta.kubernetes.io/os",
        "beta.kubernetes.io/arch",
    ];
    let Some((namespace, _)) = key.split_once('/') else { return true };
    let under = |domain: &str| {
        namespace == domain || namespace.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.'))
    };
    if under("node-restriction.kubernetes.io") {
        return false;
    }
    let reserved = under("kubernetes.io") || under("k8s.io");
    !reserved
        || KUBELET_LABELS.contains(&key)
        || under("kubelet.kubernetes.io")
        || under("node.kubernetes.io")
}

#[cfg(test)]
mod tests;
