//! What kinds of things the server has, by discovery, and what people call them.

use crate::connection::Connection;
use anyhow::{Result, bail};
use http::Method;
use serde_json::Value;

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// One kind of thing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Resource {
    /// Its API group; empty for the core.
    pub group: String,
    /// Its version.
    pub version: String,
    /// Its name in paths.
    pub plural: String,
    /// Its name in the singular.
    pub singular: String,
    /// Its kind.
    pub kind: String,
    /// Its short names.
    pub short_names: Vec<String>,
    /// The groups of kinds it is in, such as `all`.
    pub categories: Vec<String>,
    /// What can be done with it.
    pub verbs: Vec<String>,
    /// Lives in a namespace.
    pub namespaced: bool,
}

impl Resource {
    /// `apps/v1`, or `v1`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// `deployments.apps`, or `pods`.
    pub fn qualified(&self) -> String {
        if self.group.is_empty() { self.plural.clone() } else { format!("{}.{}", self.plural, self.group) }
    }

    /// `deployment.apps/web`, or `pod/web`: how an object is named in messages.
    pub fn named(&self, name: &str) -> String {
        let kind = self.kind.to_lowercase();
        if self.group.is_empty() { format!("{kind}/{name}") } else { format!("{kind}.{}/{name}", self.group) }
    }

    /// The path of all of them, in one namespace or (`None`) in all.
    pub fn path(&self, namespace: Option<&str>) -> String {
        let root = if self.group.is_empty() { "/api".to_owned() } else { format!("/apis/{}", self.group) };
        match namespace {
            Some(namespace) if self.namespaced => {
                format!("{root}/{}/namespaces/{namespace}/{}", self.version, self.plural)
            }
            _ => format!("{root}/{}/{}", self.version, self.plural),
        }
    }

    /// Whether people may mean it by this name.
    fn is_called(&self, name: &str) -> bool {
        let names = [&self.plural, &self.singular];
        names.iter().any(|own| own.eq_ignore_ascii_case(name))
            || self.kind.eq_ignore_ascii_case(name)
            || self.short_names.iter().any(|short| short == name)
            || ALIASES.iter().any(|(alias, plural)| *alias == name && *plural == self.plural)
    }
}

/// Names that the seed's users know.
const ALIASES: [(&str, &str); 3] = [
    ("autoscaler", "horizontalpodautoscalers"),
    ("autoscalers", "horizontalpodautoscalers"),
    ("func", "functions"),
];

/// Everything the server has, in the order it prefers.
pub struct Catalogue(Vec<Resource>);

impl Catalogue {
    /// Asks the server.
    pub async fn load(connection: &Connection) -> Result<Catalogue> {
        let ask = |path| connection.send_as(Method::GET, path, "application/json", None, AGGREGATED);
        let (core, groups) = futures::try_join!(ask("/api"), ask("/apis"))?;
        let mut resources = parse(&core);
        resources.extend(parse(&groups));
        Ok(Catalogue(resources))
    }

    /// All of them.
    pub fn all(&self) -> &[Resource] {
        &self.0
    }

    /// The one that a word means: `po`, `deployments`, `deployments.apps`, `deployments.v1.apps`.
    pub fn find(&self, word: &str) -> Result<&Resource> {
        let (name, rest) = word.split_once('.').unwrap_or((word, ""));
        let fits = |resource: &&Resource| {
            let group_fits = rest.is_empty()
                || resource.group == rest
                || rest == format!("{}.{}", resource.version, resource.group)
                || (resource.group.is_empty() && rest == resource.version);
            resource.is_called(name) && group_fits
        };
        match self.0.iter().find(fits) {
            Some(resource) => Ok(resource),
            None => {
                let close = self.0.iter().flat_map(|resource| [&resource.plural, &resource.singular]);
                let hint = crate::suggest::closest(name, close.map(String::as_str));
                let hint = hint.map(|name| format!(" (did you mean {name:?}?)")).unwrap_or_default();
                bail!("the server doesn't have a resource type \"{word}\"{hint}")
            }
        }
    }

    /// The one of an object's kind.
    pub fn of(&self, api_version: &str, kind: &str) -> Option<&Resource> {
        self.0.iter().find(|resource| resource.kind == kind && resource.api_version() == api_version)
    }

    /// The preferred one of a kind, where no version is said.
    pub fn of_kind(&self, kind: &str) -> Option<&Resource> {
        self.0.iter().find(|resource| resource.kind == kind)
    }

    /// Those of a category, such as `all`.
    pub fn category(&self, name: &str) -> Vec<&Resource> {
        self.0.iter().filter(|resource| resource.categories.iter().any(|own| own == name)).collect()
    }
}

/// Resources of an aggregated discovery document; the first version of a group is the preferred one, and a kind that
/// it has is not taken again from an older one.
fn parse(document: &Value) -> Vec<Resource> {
    let array = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let texts = |value: &Value| array(value).iter().map(text).collect::<Vec<_>>();
    let mut resources: Vec<Resource> = Vec::new();
    for group in array(&document["items"]) {
        for version in array(&group["versions"]) {
            for found in array(&version["resources"]) {
                resources.push(Resource {
                    group: text(&group["metadata"]["name"]),
                    version: text(&version["version"]),
                    plural: text(&found["resource"]),
                    singular: text(&found["singularResource"]),
                    kind: text(&found["responseKind"]["kind"]),
                    short_names: texts(&found["shortNames"]),
                    categories: texts(&found["categories"]),
                    verbs: texts(&found["verbs"]),
                    namespaced: found["scope"] == "Namespaced",
                });
            }
        }
    }
    resources
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn catalogue() -> Catalogue {
        let resource =
            |group: &str, version: &str, plural: &str, singular: &str, kind: &str, short: &[&str]| {
                json!({"metadata": {"name": group}, "versions": [{"version": version, "resources": [{
                    "resource": plural, "singularResource": singular, "responseKind": {"kind": kind},
                    "shortNames": short, "scope": "Namespaced", "verbs": ["get"],
                }]}]})
            };
        Catalogue(parse(&json!({"items": [
            resource("", "v1", "pods", "pod", "Pod", &["po"]),
            resource("", "v1", "events", "event", "Event", &["ev"]),
            resource("apps", "v1", "deployments", "deployment", "Deployment", &["deploy"]),
            resource("autoscaling", "v2", "horizontalpodautoscalers", "horizontalpodautoscaler", "HorizontalPodAutoscaler", &["hpa"]),
            resource("events.k8s.io", "v1", "events", "event", "Event", &["ev"]),
        ]})))
    }

    #[test]
    fn people_call_things_by_many_names() {
        let catalogue = catalogue();
        let check = |word: &str, expected: &str| {
            assert_eq!(catalogue.find(word).expect(word).qualified(), expected, "{word}");
        };
        check("po", "pods");
        check("Pod", "pods");
        check("deploy", "deployments.apps");
        check("deployments.apps", "deployments.apps");
        check("deployments.v1.apps", "deployments.apps");
        check("autoscaler", "horizontalpodautoscalers.autoscaling");
        check("events", "events");
        check("events.events.k8s.io", "events.events.k8s.io");
    }

    #[test]
    fn what_is_close_is_suggested() {
        let error = catalogue().find("deplyment").expect_err("no such thing").to_string();
        assert_eq!(
            error,
            "the server doesn't have a resource type \"deplyment\" (did you mean \"deployment\"?)"
        );
    }

    #[test]
    fn paths_name_the_namespace_where_there_is_one() {
        let catalogue = catalogue();
        let deployments = catalogue.find("deploy").expect("there");
        assert_eq!(deployments.path(Some("web")), "/apis/apps/v1/namespaces/web/deployments");
        assert_eq!(deployments.path(None), "/apis/apps/v1/deployments");
        assert_eq!(catalogue.find("po").expect("there").named("a"), "pod/a");
        assert_eq!(deployments.named("a"), "deployment.apps/a");
    }
}
