//! What kinds of things the server has, by discovery, and what people call them.

use crate::connection::Connection;
use anyhow::{Result, bail};
use http::Method;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::path::Path;
use std::time::Duration;

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// The file of a server's cache.
const CACHE_FILE: &str = "serverresources.json";
/// How long a kept answer is believed. A kind that is not in it is asked for at once.
const CACHE_LASTS: Duration = Duration::from_secs(600);

/// One kind of thing.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
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
#[derive(Default)]
pub struct Catalogue(Vec<Resource>);

impl Catalogue {
    /// Asks the server, and keeps the answer for the next command.
    pub async fn load(connection: &Connection) -> Result<Catalogue> {
        let ask = |path| connection.send_as(Method::GET, path, "application/json", None, AGGREGATED);
        let (core, groups) = futures::try_join!(ask("/api"), ask("/apis"))?;
        let mut resources = parse(&core);
        resources.extend(parse(&groups));
        let catalogue = Catalogue(resources);
        if let Some(folder) = &connection.cache {
            // Without a cache the next command asks again: no reason to fail this one.
            let _ = catalogue.keep(folder);
        }
        Ok(catalogue)
    }

    /// What the server said lately, if that was kept and everything these words name is in it; else the server is asked.
    pub async fn for_words(connection: &Connection, words: &[String]) -> Result<Catalogue> {
        let kept = connection.cache.as_deref().and_then(Catalogue::kept);
        match kept.filter(|kept| words_name_kinds(kept, words)) {
            Some(kept) => Ok(kept),
            None => Catalogue::load(connection).await,
        }
    }

    fn keep(&self, folder: &Path) -> std::io::Result<()> {
        std::fs::create_dir_all(folder)?;
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        serde_json::to_writer(&mut file, &self.0)?;
        file.persist(folder.join(CACHE_FILE))?;
        Ok(())
    }

    fn kept(folder: &Path) -> Option<Catalogue> {
        let path = folder.join(CACHE_FILE);
        let age = std::fs::metadata(&path).ok()?.modified().ok()?.elapsed().ok()?;
        if age > CACHE_LASTS {
            return None;
        }
        serde_json::from_slice(&std::fs::read(path).ok()?).ok().map(Catalogue)
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
        let of_category = |resource: &&Resource| resource.categories.iter().any(|own| own == name);
        self.preferred().into_iter().filter(of_category).collect()
    }

    /// Each once, in the version that the server prefers.
    pub fn preferred(&self) -> Vec<&Resource> {
        let mut found: Vec<&Resource> = Vec::new();
        for resource in &self.0 {
            if !found.iter().any(|own| own.group == resource.group && own.plural == resource.plural) {
                found.push(resource);
            }
        }
        found
    }
}

/// Whether each word that should name a kind does: all of `pod/a svc/b`, the first of `pods a b`.
fn words_name_kinds(catalogue: &Catalogue, words: &[String]) -> bool {
    let known = |kind: &str| catalogue.find(kind).is_ok() || !catalogue.category(kind).is_empty();
    if words.iter().any(|word| word.contains('/')) {
        return words.iter().all(|word| word.split_once('/').is_some_and(|(kind, _)| known(kind)));
    }
    words.first().is_some_and(|kinds| kinds.split(',').all(known))
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
    fn what_is_not_in_the_cache_is_asked_for() {
        let folder = tempfile::tempdir().expect("a folder");
        assert!(Catalogue::kept(folder.path()).is_none());
        catalogue().keep(folder.path()).expect("kept");
        let kept = Catalogue::kept(folder.path()).expect("there");
        assert_eq!(kept.all(), catalogue().all());
        let check = |words: &[&str], expected: bool| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            assert_eq!(words_name_kinds(&kept, &words), expected, "{words:?}");
        };
        check(&["po", "web"], true);
        check(&["po,deploy"], true);
        check(&["po/a", "deploy/b"], true);
        check(&["po/a", "shelf/b"], false);
        check(&["shelves"], false);
        check(&[], false);
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
