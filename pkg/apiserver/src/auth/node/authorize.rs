//! What a node may ask for, by name.

use super::Graph;
use super::references::Kind;
use crate::auth::{Attributes, Decision};

const NODE_LEASES: &str = "kube-node-lease";
/// Who the proxy of a node is where it is not its node.
const KUBE_PROXY: &str = "system:kube-proxy";

impl Graph {
    /// Whether the request is of a node and about what is its own. Of others there is no opinion.
    pub fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
        let node = attributes.user.node();
        if (node.is_some() || attributes.user.name == KUBE_PROXY) && self.is_certificate(attributes) {
            return Decision::allow();
        }
        let Some(node) = node else { return Decision::no_opinion("") };
        if node.is_empty() {
            return Decision::no_opinion(format!("unknown node for user {:?}", attributes.user.name));
        }
        let outcome = match (attributes.is_resource, attributes.group, attributes.resource) {
            (true, "", "secrets") => self.read_needed(node, Kind::Secret, attributes),
            (true, "", "configmaps") => self.read_needed(node, Kind::ConfigMap, attributes),
            (true, "", "persistentvolumeclaims") => self.claim(node, attributes),
            (true, "", "persistentvolumes") => {
                get_only(attributes).and_then(|()| related(node, attributes, |name| self.mounts(node, name)))
            }
            (true, "", "serviceaccounts") => self.service_account(node, attributes),
            (true, "", "nodes") => node_object(node, attributes),
            (true, "", "pods") => self.pod(node, attributes),
            (true, "resource.k8s.io", "resourceclaims") => {
                get_only(attributes).and_then(|()| self.needed(node, Kind::ResourceClaim, attributes))
            }
            (true, "resource.k8s.io", "resourceslices") => self.slice(node, attributes),
            (true, "storage.k8s.io", "volumeattachments") => get_only(attributes)
                .and_then(|()| related(node, attributes, |name| self.attaches(node, name))),
            (true, "storage.k8s.io", "csinodes") => csi_node(node, attributes),
            (true, "coordination.k8s.io", "leases") => lease(node, attributes),
            (true, "certificates.k8s.io", "podcertificaterequests") => Err(String::new()),
            _ if self.rules.iter().any(|rule| rule.allows(attributes)) => Ok(()),
            _ => Err(String::new()),
        };
        match outcome {
            Ok(()) => Decision::allow(),
            Err(reason) => Decision::no_opinion(reason),
        }
    }

    /// Whether this reads a certificate of an ingress: the proxy of every node serves them all.
    fn is_certificate(&self, attributes: &Attributes<'_>) -> bool {
        (attributes.is_resource, attributes.group, attributes.resource) == (true, "", "secrets")
            && matches!((attributes.verb, attributes.subresource), ("get" | "list" | "watch", ""))
            && self.certifies(attributes.namespace, attributes.name)
    }

    fn needed(&self, node: &str, kind: Kind, attributes: &Attributes<'_>) -> Result<(), String> {
        related(node, attributes, |name| self.needs(node, kind, attributes.namespace, name))
    }

    fn read_needed(&self, node: &str, kind: Kind, attributes: &Attributes<'_>) -> Result<(), String> {
        if !matches!(attributes.verb, "get" | "list" | "watch") {
            return Err("can only read resources of this type".to_owned());
        }
        if !attributes.subresource.is_empty() {
            return Err("cannot read subresource".to_owned());
        }
        if attributes.namespace.is_empty() {
            return Err("can only read namespaced object of this type".to_owned());
        }
        self.needed(node, kind, attributes)
    }

    fn claim(&self, node: &str, attributes: &Attributes<'_>) -> Result<(), String> {
        match (attributes.subresource, attributes.verb) {
            ("status", "update" | "patch") => {}
            ("status", _) => return Err("can only get/update/patch this type".to_owned()),
            _ => get_only(attributes)?,
        }
        self.needed(node, Kind::Claim, attributes)
    }

    fn service_account(&self, node: &str, attributes: &Attributes<'_>) -> Result<(), String> {
        if attributes.verb == "get" && attributes.subresource.is_empty() {
            return self.read_needed(node, Kind::ServiceAccount, attributes);
        }
        if attributes.verb != "create" || attributes.name.is_empty() {
            return Err("can only create tokens for individual service accounts".to_owned());
        }
        if attributes.subresource != "token" {
            return Err("can only create token subresource of serviceaccount".to_owned());
        }
        self.needed(node, Kind::ServiceAccount, attributes)
    }

    fn slice(&self, node: &str, attributes: &Attributes<'_>) -> Result<(), String> {
        if !attributes.subresource.is_empty() {
            return Err("cannot authorize ResourceSlice subresources".to_owned());
        }
        match attributes.verb {
            // Its content is looked at when it is written.
            "create" => Ok(()),
            "get" | "update" | "patch" | "delete" => {
                related(node, attributes, |name| self.offers(node, name))
            }
            "watch" | "list" | "deletecollection" if selects(attributes, "spec.nodeName", node) => Ok(()),
            "watch" | "list" | "deletecollection" => {
                Err("can only list/watch/deletecollection resourceslices with nodeName field selector"
                    .to_owned())
            }
            _ => Err("only the following verbs are allowed for a ResourceSlice: \
                      get, watch, list, create, update, patch, delete, deletecollection"
                .to_owned()),
        }
    }

    fn pod(&self, node: &str, attributes: &Attributes<'_>) -> Result<(), String> {
        let own = || related(node, attributes, |name| self.runs(node, attributes.namespace, name));
        match (attributes.subresource, attributes.verb) {
            ("", "get") => own(),
            ("", "list" | "watch") if selects(attributes, "spec.nodeName", node) => Ok(()),
            ("", "list" | "watch") if !attributes.name.is_empty() => own(),
            ("", "list" | "watch") => {
                Err("can only list/watch pods with spec.nodeName field selector".to_owned())
            }
            // What is written is looked at by `restrict`.
            ("", "create" | "delete") | ("status", "update" | "patch") | ("eviction", "create") => Ok(()),
            _ => Err(String::new()),
        }
    }
}

fn related(
    node: &str,
    attributes: &Attributes<'_>,
    is_related: impl FnOnce(&str) -> bool,
) -> Result<(), String> {
    match attributes.name {
        "" => Err("No Object name found".to_owned()),
        name if is_related(name) => Ok(()),
        _ => Err(format!("no relationship found between node '{node}' and this object")),
    }
}

fn get_only(attributes: &Attributes<'_>) -> Result<(), String> {
    if attributes.verb != "get" {
        return Err("can only get individual resources of this type".to_owned());
    }
    if !attributes.subresource.is_empty() {
        return Err("cannot get subresource".to_owned());
    }
    Ok(())
}

fn node_object(node: &str, attributes: &Attributes<'_>) -> Result<(), String> {
    match (attributes.subresource, attributes.verb) {
        // Which node it writes is looked at by `restrict`.
        ("", "create" | "update" | "patch") | ("status", "update" | "patch") => Ok(()),
        ("redis", "get") if attributes.name == node => Ok(()),
        ("", "get" | "list" | "watch") => match attributes.name {
            name if name == node => Ok(()),
            "" => Err(format!("node '{node}' cannot read all nodes, only its own Node object")),
            name => Err(format!("node '{node}' cannot read '{name}', only its own Node object")),
        },
        _ => Err(String::new()),
    }
}

fn lease(node: &str, attributes: &Attributes<'_>) -> Result<(), String> {
    if !matches!(attributes.verb, "get" | "create" | "update" | "patch" | "delete") {
        return Err("can only get, create, update, patch, or delete a node lease".to_owned());
    }
    if attributes.namespace != NODE_LEASES {
        return Err(format!("can only access leases in the {NODE_LEASES:?} system namespace"));
    }
    if attributes.verb != "create" && attributes.name != node {
        return Err("can only access node lease with the same name as the requesting node".to_owned());
    }
    Ok(())
}

fn csi_node(node: &str, attributes: &Attributes<'_>) -> Result<(), String> {
    if !matches!(attributes.verb, "get" | "create" | "update" | "patch" | "delete") {
        return Err("can only get, create, update, patch, or delete a CSINode".to_owned());
    }
    if !attributes.subresource.is_empty() {
        return Err("cannot authorize CSINode subresources".to_owned());
    }
    if attributes.verb != "create" && attributes.name != node {
        return Err("can only access CSINode with the same name as the requesting node".to_owned());
    }
    Ok(())
}

fn selects(attributes: &Attributes<'_>, field: &str, value: &str) -> bool {
    attributes.field_selector.iter().any(|term| term.equal && &*term.field == field && &*term.value == value)
}

#[cfg(test)]
mod tests;
