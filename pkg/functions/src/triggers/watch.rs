//! Changes of objects of the function's namespace, heard as the function's service account: what that may not list and watch
//! calls nobody.

use super::{Cause, call, label};
use crate::controller::Shared;
use crate::definition::Definition;
use api::kinds::minik8s::{FunctionEvents, FunctionTriggerStatus};
use client::{Key, must_list};
use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{APIResourceList, LabelSelector};
use kube::core::WatchEvent;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

/// After so many seconds it is asked again whether it may be watched.
const ALLOWED_FOR: u32 = 60;
/// What may not be watched is asked for again after this.
const FORBIDDEN_FOR: Duration = Duration::from_secs(10);
/// What is larger is passed on without its contents.
const MOST_BYTES: usize = 256 << 10;

/// What is to be watched, by function and trigger; and what makes it another watch.
pub fn wanted(definitions: &[Arc<Definition>]) -> HashMap<(Key, String), (Value, Arc<Definition>)> {
    let mut wanted = HashMap::new();
    for definition in definitions {
        for trigger in &definition.function.spec.triggers {
            if trigger.on.is_some() {
                let what = json!([definition.function.metadata.uid, user(definition)]);
                wanted.insert((definition.key.clone(), label(trigger)), (what, definition.clone()));
            }
        }
    }
    wanted
}

/// Who a function is to the API.
fn user(definition: &Definition) -> String {
    let spec = definition.function.spec.template.as_ref().and_then(|template| template.spec.as_ref());
    let name = spec.and_then(|spec| spec.service_account_name.as_deref()).unwrap_or("default");
    format!("system:serviceaccount:{}:{name}", definition.key.namespace)
}

/// A selector, as a query has it.
pub fn selector(selector: &LabelSelector) -> String {
    let labels = selector.match_labels.iter().flatten().map(|(key, value)| format!("{key}={value}"));
    let rules = selector.match_expressions.iter().flatten().map(|rule| {
        let values = rule.values.as_deref().unwrap_or_default().join(",");
        match rule.operator.as_str() {
            "In" => format!("{} in ({values})", rule.key),
            "NotIn" => format!("{} notin ({values})", rule.key),
            "Exists" => rule.key.clone(),
            _ => format!("!{}", rule.key),
        }
    });
    labels.chain(rules).collect::<Vec<_>>().join(",")
}

struct Watched<'a> {
    shared: &'a Shared,
    definition: Arc<Definition>,
    on: FunctionEvents,
    label: &'a str,
    user: String,
}

/// Follows the objects of a trigger, and calls for each change, for ever.
pub async fn follow(shared: &Arc<Shared>, definition: Arc<Definition>, label: &str) {
    let mut triggers = definition.function.spec.triggers.iter();
    let Some(on) =
        triggers.find(|trigger| super::label(trigger) == label).and_then(|trigger| trigger.on.clone())
    else {
        return;
    };
    let user = user(&definition);
    let watched = Watched { shared, definition, on, label, user };
    loop {
        let pause = match watched.round().await {
            Ok(()) => continue,
            Err(kube::Error::Api(status)) if (400..500).contains(&status.code) => {
                watched.said(watched.version(), &status.message);
                FORBIDDEN_FOR
            }
            Err(error) => {
                tracing::debug!(%error, function = %watched.definition.key, "objects cannot be watched now");
                Duration::from_secs(1)
            }
        };
        tokio::time::sleep(pause).await;
    }
}

impl Watched<'_> {
    /// One watch, from where the last one ended.
    async fn round(&self) -> kube::Result<()> {
        let path = self.path().await?;
        if self.version().is_empty() {
            // What is there already has not changed.
            let list: Value = self.ask(&format!("{path}&limit=1")).await?;
            self.said(version_of(&list), "");
        }
        let query = format!(
            "{path}&watch=true&allowWatchBookmarks=true&timeoutSeconds={ALLOWED_FOR}&resourceVersion={}",
            self.version()
        );
        let events = self.shared.client.request_events::<Value>(self.request(&query)?).await?;
        let mut events = std::pin::pin!(events);
        while let Some(event) = events.next().await {
            match event? {
                WatchEvent::Added(object) => self.changed("added", &object).await,
                WatchEvent::Modified(object) => self.changed("modified", &object).await,
                WatchEvent::Deleted(object) => self.changed("deleted", &object).await,
                WatchEvent::Bookmark(bookmark) => self.said(bookmark.metadata.resource_version, ""),
                WatchEvent::Error(status) if must_list(&status) => return self.catch_up(&path).await,
                WatchEvent::Error(status) => return Err(kube::Error::Api(status)),
            }
        }
        Ok(())
    }

    /// Calls for what has changed since a version that is history.
    async fn catch_up(&self, path: &str) -> kube::Result<()> {
        let list: Value = self.ask(path).await?;
        let since = number(&self.version());
        for object in list["items"].as_array().into_iter().flatten() {
            if number(&version_of(object)) > since {
                self.changed("modified", object).await;
            }
        }
        self.said(version_of(&list), "");
        Ok(())
    }

    async fn changed(&self, how: &str, object: &Value) {
        let text = |name: &str| object["metadata"][name].as_str().unwrap_or_default();
        let version = version_of(object);
        let (kind, name) = (&self.on.kind, text("name"));
        let cause = Cause {
            identity: format!("{}/{version}/{how}", text("uid")),
            source: format!("{}/{name}", kind.to_lowercase()),
            kind: format!("io.minik8s.object.{how}"),
            time: Timestamp::now(),
            params: params(how, &self.on, object),
        };
        call(self.shared, &self.definition, self.label, cause).await;
        self.said(version, "");
    }

    /// The path of the objects, ending in a query.
    async fn path(&self) -> kube::Result<String> {
        let version = if self.on.api_version.is_empty() { "v1" } else { &self.on.api_version };
        let root = if version.contains('/') { format!("/apis/{version}") } else { format!("/api/{version}") };
        let known: APIResourceList = self.ask(&root).await?;
        let mut resources = known.resources.into_iter();
        let found = resources.find(|resource| {
            resource.kind == self.on.kind
                && resource.namespaced
                && !resource.name.contains('/')
                && resource.verbs.iter().any(|verb| verb == "watch")
        });
        let Some(found) = found else {
            let message = format!(
                "there is no kind {:?} in {version} that a namespace has and that can be watched",
                self.on.kind
            );
            let status = kube::core::Status {
                code: 404,
                message,
                reason: "NotFound".to_owned(),
                ..Default::default()
            };
            return Err(kube::Error::Api(Box::new(status)));
        };
        let selector = self.on.selector.as_ref().map(selector).unwrap_or_default();
        let namespace = &self.definition.key.namespace;
        Ok(format!("{root}/namespaces/{namespace}/{}?labelSelector={}", found.name, encoded(&selector)))
    }

    fn request(&self, path: &str) -> kube::Result<http::Request<Vec<u8>>> {
        let request = http::Request::get(path).header("impersonate-user", &self.user).body(Vec::new());
        request.map_err(kube::Error::HttpError)
    }

    async fn ask<T: DeserializeOwned>(&self, path: &str) -> kube::Result<T> {
        self.shared.client.request(self.request(path)?).await
    }

    fn version(&self) -> String {
        let known = self.shared.progress(&self.definition.key).remove(self.label);
        known.map(|known| known.resource_version).unwrap_or_default()
    }

    fn said(&self, resource_version: String, message: &str) {
        let (trigger, message) = (self.label.to_owned(), message.to_owned());
        let status =
            FunctionTriggerStatus { trigger, resource_version, message, ..FunctionTriggerStatus::default() };
        self.shared.progressed(&self.definition.key, status);
    }
}

fn version_of(object: &Value) -> String {
    object["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned()
}

fn number(version: &str) -> u64 {
    client::version_number(Some(version))
}

/// What a function is told of a change. Of Secrets, and of what is too large, only which it is.
fn params(how: &str, on: &FunctionEvents, object: &Value) -> String {
    let mut object = object.clone();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
    let api_version = if on.api_version.is_empty() { "v1" } else { &on.api_version };
    let is_secret = on.kind == "Secret" && api_version == "v1";
    let whole = json!({"type": how.to_uppercase(), "object": object}).to_string();
    if !is_secret && whole.len() <= MOST_BYTES {
        return whole;
    }
    let mut metadata = object["metadata"].clone();
    if let Some(metadata) = metadata.as_object_mut() {
        metadata.remove("annotations");
    }
    let which = json!({"apiVersion": api_version, "kind": on.kind, "metadata": metadata});
    json!({"type": how.to_uppercase(), "object": which, "isPartial": true}).to_string()
}

fn encoded(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                encoded.push(char::from(byte))
            }
            byte => drop(write!(encoded, "%{byte:02X}")),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selector_is_a_query() {
        let parsed = json!({"matchLabels": {"a": "b"}, "matchExpressions": [
            {"key": "c", "operator": "In", "values": ["d", "e"]}, {"key": "f", "operator": "DoesNotExist"}]});
        let parsed: LabelSelector = serde_json::from_value(parsed).expect("a selector");
        assert_eq!(selector(&parsed), "a=b,c in (d,e),!f");
        assert_eq!(encoded("a in (b)"), "a%20in%20%28b%29");
    }

    #[test]
    fn what_a_secret_holds_is_not_told() {
        let secret = json!({"metadata": {"name": "s", "managedFields": [1], "annotations": {"a": "data"}}, "data": {"k": "djEyMw=="}});
        let on = |kind: &str| FunctionEvents { kind: kind.to_owned(), ..FunctionEvents::default() };
        let told = params("added", &on("Secret"), &secret);
        assert!(!told.contains("djEyMw") && !told.contains("annotations"), "{told}");
        let told = params("added", &on("ConfigMap"), &secret);
        assert!(told.contains("djEyMw") && !told.contains("managedFields"), "{told}");
    }
}
