//! Which resources the server has, each in the version it prefers: for controllers that look after all of them.

use crate::runtime::Target;
use client::Key;
use kube::Client;
use kube::api::ApiResource;
use kube::core::discovery::v2::{APIGroupDiscovery, APIResourceDiscovery};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A resource of the server.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Resource {
    /// Its group, empty for the core.
    pub group: String,
    /// The version to ask for.
    pub version: String,
    /// What one is called.
    pub kind: String,
    /// What they are called in paths.
    pub plural: String,
    /// Whether they are in namespaces.
    pub namespaced: bool,
    /// What can be done with them.
    pub verbs: Vec<String>,
}

/// What the server said.
#[derive(Debug, Default)]
pub struct Discovered {
    /// The resources.
    pub resources: Vec<Arc<Resource>>,
    /// Group versions that could not be asked.
    pub failed: Vec<String>,
}

impl Resource {
    /// `v1`, `apps/v1`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// Whether all of this can be done.
    pub fn can(&self, verbs: &[&str]) -> bool {
        verbs.iter().all(|verb| self.verbs.iter().any(|known| known == verb))
    }

    /// An object of it. The namespace is left out where the kind has none.
    pub fn target(&self, namespace: &str, name: &str) -> Target {
        let namespace = if self.namespaced { namespace } else { "" };
        Target {
            api_version: self.api_version(),
            kind: self.kind.clone(),
            plural: self.plural.clone(),
            key: Key::new(namespace, name),
            subresource: "",
        }
    }

    /// The same for kube-rs.
    pub fn api_resource(&self) -> ApiResource {
        ApiResource {
            group: self.group.clone(),
            version: self.version.clone(),
            api_version: self.api_version(),
            kind: self.kind.clone(),
            plural: self.plural.clone(),
        }
    }
}

/// Asks the server, in two requests.
pub async fn discover(client: &Client) -> kube::Result<Discovered> {
    let (core, groups) =
        futures::try_join!(client.list_core_api_versions_aggregated(), client.list_api_groups_aggregated())?;
    let mut discovered = Discovered::default();
    for group in core.items.iter().chain(&groups.items) {
        collect(group, &mut discovered);
    }
    Ok(discovered)
}

/// Takes each resource of a group once, from the first version that has it.
fn collect(group: &APIGroupDiscovery, discovered: &mut Discovered) {
    let name = group.metadata.as_ref().and_then(|meta| meta.name.clone()).unwrap_or_default();
    let mut taken = BTreeSet::new();
    for version in &group.versions {
        let Some(number) = &version.version else { continue };
        if version.freshness.as_deref() == Some("Stale") {
            discovered.failed.push(format!("{name}/{number}"));
            continue;
        }
        for resource in version.resources.iter().filter_map(|found| resource(&name, number, found)) {
            if taken.insert(resource.plural.clone()) {
                discovered.resources.push(Arc::new(resource));
            }
        }
    }
}

fn resource(group: &str, version: &str, found: &APIResourceDiscovery) -> Option<Resource> {
    Some(Resource {
        group: group.to_owned(),
        version: version.to_owned(),
        kind: found.response_kind.as_ref()?.kind.clone()?,
        plural: found.resource.clone()?,
        namespaced: found.scope.as_deref() == Some("Namespaced"),
        verbs: found.verbs.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_resource_comes_once_in_the_preferred_version() {
        let resource = |plural: &str, kind: &str, scope: &str| json!({"resource": plural, "responseKind": {"kind": kind}, "scope": scope, "verbs": ["list", "delete"]});
        let group = json!({
            "metadata": {"name": "shop.example"},
            "versions": [
                {"version": "v3", "freshness": "Stale", "resources": []},
                {"version": "v2", "freshness": "Current", "resources": [resource("carts", "Cart", "Namespaced")]},
                {"version": "v1", "resources": [resource("carts", "Cart", "Namespaced"), resource("shops", "Shop", "Cluster")]},
            ],
        });
        let mut discovered = Discovered::default();
        collect(&serde_json::from_value(group).unwrap(), &mut discovered);
        let found: Vec<String> = discovered
            .resources
            .iter()
            .map(|r| format!("{} {} {}", r.api_version(), r.plural, r.namespaced))
            .collect();
        assert_eq!(found, ["shop.example/v2 carts true", "shop.example/v1 shops false"]);
        assert_eq!(discovered.failed, ["shop.example/v3"]);
        assert!(discovered.resources[0].can(&["list"]) && !discovered.resources[0].can(&["watch"]));
        assert_eq!(discovered.resources[1].target("ns", "a").path(), "/apis/shop.example/v1/shops/a");
    }
}
