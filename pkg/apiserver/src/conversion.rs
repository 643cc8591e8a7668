//! Custom objects in another version than they were stored in, where a webhook knows what to make of them.
//!
//! ```text
//! cache, store ──stored version──> Converter ──webhook, once for each state of an object──> version that is asked for
//! store <──────stored version────── Converter <──────────────────────webhook────────────── version that was written
//! ```
//!
//! The caches hold what is stored: a feed that waited for somebody else's program would hold up everything else. What
//! only the converted object can tell, such as whether its fields are those that a selector wants, is asked after.

use crate::admission::webhook::Client;
use crate::error::{ApiError, Result};
use crate::registry::Resource;
use crate::server::Server;
use crate::storage::in_version;
use api::crd::Versions;
use api::selector::{FieldSelector, Term};
use api::{Value, object};
use parking_lot::Mutex;
use serde_json::json;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

/// How long an answer may take.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Conversions that are remembered; after so many, remembering begins anew.
const MOST_KNOWN: usize = 4096;

/// Whoever converts the objects of a custom kind.
pub struct Converter {
    client: Client,
    /// The version of the question that it understands.
    review_version: Option<String>,
    versions: Arc<Versions>,
    known: Mutex<HashMap<State, Value>>,
}

/// A state of an object: uid, resourceVersion, and the version that it is wanted in.
type State = (String, String, String);

impl Converter {
    /// As a definition says, if it names a webhook.
    pub fn new(versions: &Arc<Versions>) -> Option<Converter> {
        let webhook = versions.conversion_webhook.as_ref()?;
        let understood = webhook["conversionReviewVersions"].as_array().into_iter().flatten();
        let mut understood = understood.filter_map(Value::as_str);
        Some(Converter {
            client: Client::new(&webhook["clientConfig"]),
            review_version: understood
                .find(|version| matches!(*version, "v1" | "v1beta1"))
                .map(str::to_owned),
            versions: versions.clone(),
            known: Mutex::default(),
        })
    }

    /// Objects as they are read, in a version. Each state is asked about once.
    async fn read(&self, server: &Server, api_version: &str, mut objects: Vec<Value>) -> Result<Vec<Value>> {
        let mut unknown = Vec::new();
        for (index, object) in objects.iter_mut().enumerate() {
            let known = self.known.lock().get(&state(object, api_version)).cloned();
            match known {
                Some(known) => *object = known,
                None if object["apiVersion"] == api_version => {}
                None => unknown.push((index, object.clone())),
            }
        }
        let (indexes, unknown): (Vec<usize>, Vec<Value>) = unknown.into_iter().unzip();
        for (index, converted) in indexes.into_iter().zip(self.convert(server, api_version, unknown).await?) {
            let mut known = self.known.lock();
            if known.len() >= MOST_KNOWN {
                known.clear();
            }
            known.insert(state(&converted, api_version), converted.clone());
            objects[index] = converted;
        }
        Ok(objects)
    }

    /// Objects of other versions in this one, in their order.
    async fn convert(&self, server: &Server, api_version: &str, objects: Vec<Value>) -> Result<Vec<Value>> {
        let Some(first) = objects.first() else { return Ok(objects) };
        let text = |name: &str| first[name].as_str().unwrap_or_default();
        let about = format!("conversion webhook for {}, Kind={}", text("apiVersion"), text("kind"));
        let fault = |why: String| ApiError::untyped(format!("{about} {why}"));
        let version = self.review_version.as_deref();
        let version =
            version.ok_or_else(|| ApiError::untyped("no supported conversion review versions".into()))?;
        let review_version = format!("apiextensions.k8s.io/{version}");
        let uid = uuid::Uuid::new_v4().to_string();
        let request = json!({"uid": uid, "desiredAPIVersion": api_version, "objects": objects});
        let review = json!({"kind": "ConversionReview", "apiVersion": review_version, "request": request});
        let answer = self.client.post(server, review.to_string().into_bytes(), TIMEOUT).await;
        let converted = answer
            .and_then(|answer| converted_objects(&answer, version, &uid))
            .map_err(|why| fault(format!("failed: {why}")))?;
        if converted.len() != objects.len() {
            return Err(fault(format!("returned {} objects, expected {}", converted.len(), objects.len())));
        }
        let restore = |(index, (original, converted)): (usize, (&Value, Value))| -> Result<Value> {
            let mut converted = restored(original, converted, api_version)
                .map_err(|why| fault(format!("returned invalid converted object at index {index}: {why}")))?;
            self.versions.prune(&mut converted);
            Ok(converted)
        };
        objects.iter().zip(converted).enumerate().map(restore).collect()
    }
}

impl Resource {
    /// An object as it was stored, in the version of this resource.
    pub async fn in_version(&self, server: &Server, object: Value) -> Result<Value> {
        match &self.converter {
            None => Ok(in_version(&self.kind, object)),
            Some(_) => {
                let converted = self.all_in_version(server, vec![object]).await?.pop();
                converted.ok_or_else(|| ApiError::internal("an object was lost"))
            }
        }
    }

    /// [`Resource::in_version`] of many.
    pub async fn all_in_version(&self, server: &Server, objects: Vec<Value>) -> Result<Vec<Value>> {
        match &self.converter {
            None => Ok(objects.into_iter().map(|object| in_version(&self.kind, object)).collect()),
            Some(converter) => converter.read(server, &self.kind.api_version(), objects).await,
        }
    }

    /// An object of this resource in the version in which it is stored, if somebody must be asked for that.
    pub async fn to_stored(&self, server: &Server, object: &Value) -> Result<Option<Value>> {
        let (Some(converter), Some(version)) = (&self.converter, &self.kind.stored_version) else {
            return Ok(None);
        };
        let api_version = format!("{}/{version}", self.kind.group);
        Ok(converter.convert(server, &api_version, vec![object.clone()]).await?.pop())
    }

    /// A selector divided into what the caches can tell, and what only converted objects can.
    pub fn divide(&self, fields: FieldSelector) -> (FieldSelector, FieldSelector) {
        if self.converter.is_none() {
            return (fields, FieldSelector::everything());
        }
        let is_early = |term: &&Term| term.field.starts_with("metadata.");
        let terms = fields.terms();
        (
            terms.iter().filter(is_early).cloned().collect(),
            terms.iter().filter(|term| !is_early(term)).cloned().collect(),
        )
    }
}

/// Whether the fields of an object are those that a selector wants.
pub fn selects(selector: &FieldSelector, object: &Value) -> bool {
    let text = |term: &Term| {
        let text = match object.pointer(&format!("/{}", term.field.replace('.', "/")))? {
            Value::String(text) => text.clone(),
            scalar @ (Value::Bool(_) | Value::Number(_)) => scalar.to_string(),
            _ => return None,
        };
        Some((term.field.to_string(), text))
    };
    let fields: BTreeMap<String, String> = selector.terms().iter().filter_map(text).collect();
    selector.matches(&fields)
}

fn state(object: &Value, api_version: &str) -> State {
    let meta = |name: &str| object::meta(object, name).unwrap_or_default().to_owned();
    (meta("uid"), meta("resourceVersion"), api_version.to_owned())
}

/// What an answer says, if it is one to this question.
fn converted_objects(answer: &[u8], version: &str, uid: &str) -> std::result::Result<Vec<Value>, String> {
    let mut review: Value = serde_json::from_slice(answer).map_err(|error| error.to_string())?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    // The older version of the question was never so strict.
    if version == "v1" {
        let (api_version, kind) = (text(&review["apiVersion"]), text(&review["kind"]));
        if (&*api_version, &*kind) != ("apiextensions.k8s.io/v1", "ConversionReview") {
            let expected = "apiextensions.k8s.io/v1, Kind=ConversionReview";
            return Err(format!("expected webhook response of {expected}, got {api_version}, Kind={kind}"));
        }
    }
    let Some(response) = review.get_mut("response").filter(|response| response.is_object()) else {
        return Err("no response provided".into());
    };
    if version == "v1" && response["uid"] != uid {
        return Err(format!("expected response.uid={uid:?}, got {:?}", text(&response["uid"])));
    }
    let (status, message) = (text(&response["result"]["status"]), text(&response["result"]["message"]));
    match (&*status, message.is_empty()) {
        ("Success", _) => {
            let objects = response.get_mut("convertedObjects").and_then(Value::as_array_mut);
            Ok(objects.map(std::mem::take).unwrap_or_default())
        }
        (_, false) => Err(message),
        (other, true) => Err(format!("response.result.status was '{other}', not 'Success'")),
    }
}

/// A converted object, with the metadata of the original: only labels and annotations may change.
fn restored(original: &Value, mut converted: Value, api_version: &str) -> std::result::Result<Value, String> {
    let text = |value: &Value, name: &str| value[name].as_str().unwrap_or_default().to_owned();
    for (name, words, expected) in
        [("apiVersion", "groupVersion", api_version.to_owned()), ("kind", "kind", text(original, "kind"))]
    {
        let received = text(&converted, name);
        if received != expected {
            return Err(format!("invalid {words} (expected {expected}, received {received})"));
        }
    }
    for (name, words) in [("name", "name"), ("namespace", "namespace"), ("uid", "UID")] {
        let (before, after) = (text(&original["metadata"], name), text(&converted["metadata"], name));
        if before != after {
            return Err(format!("must have the same {words}: {before} != {after}"));
        }
    }
    let mut metadata = original["metadata"].clone();
    for name in ["labels", "annotations"] {
        match converted["metadata"].get(name) {
            Some(Value::Null) | None => {
                if let Some(members) = metadata.as_object_mut() {
                    members.remove(name);
                }
            }
            Some(given @ Value::Object(members)) if members.values().all(Value::is_string) => {
                metadata[name] = given.clone();
            }
            Some(_) => return Err(format!("invalid metadata.{name} in converted object")),
        }
    }
    converted["metadata"] = metadata;
    Ok(converted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_labels_and_annotations_are_the_webhooks() {
        let original = json!({"apiVersion": "e/v1", "kind": "K", "metadata": {"name": "a", "uid": "u", "labels": {"l": "1"}, "generation": 3}});
        let check = |metadata: Value, expected: std::result::Result<Value, &str>| {
            let converted = json!({"apiVersion": "e/v2", "kind": "K", "metadata": metadata});
            let result = restored(&original, converted, "e/v2").map(|object| object["metadata"].clone());
            assert_eq!(result, expected.map_err(str::to_owned));
        };
        check(
            json!({"name": "a", "uid": "u", "annotations": {"n": "2"}, "generation": 9}),
            Ok(json!({"name": "a", "uid": "u", "annotations": {"n": "2"}, "generation": 3})),
        );
        check(json!({"name": "b", "uid": "u"}), Err("must have the same name: a != b"));
        check(json!({"name": "a", "uid": "x"}), Err("must have the same UID: u != x"));
        check(
            json!({"name": "a", "uid": "u", "labels": {"l": 1}}),
            Err("invalid metadata.labels in converted object"),
        );
        let other = json!({"apiVersion": "e/v3", "kind": "K", "metadata": {"name": "a", "uid": "u"}});
        assert_eq!(
            restored(&original, other, "e/v2").unwrap_err(),
            "invalid groupVersion (expected e/v2, received e/v3)"
        );
    }

    #[test]
    fn an_answer_must_be_one_to_the_question() {
        let check = |version: &str, answer: Value, expected: std::result::Result<usize, &str>| {
            let result =
                converted_objects(answer.to_string().as_bytes(), version, "7").map(|list| list.len());
            assert_eq!(result, expected.map_err(str::to_owned));
        };
        let review = |response: Value| json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "response": response});
        let done = json!({"uid": "7", "result": {"status": "Success"}, "convertedObjects": [{}, {}]});
        check("v1", review(done.clone()), Ok(2));
        check("v1beta1", json!({"response": {"result": {"status": "Success"}}}), Ok(0));
        check(
            "v1",
            json!({"response": done}),
            Err("expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got , Kind="),
        );
        check("v1", review(Value::Null), Err("no response provided"));
        check("v1", review(json!({"uid": "8"})), Err("expected response.uid=\"7\", got \"8\""));
        check("v1", review(json!({"uid": "7", "result": {"status": "Failed", "message": "no"}})), Err("no"));
        check("v1", review(json!({"uid": "7"})), Err("response.result.status was '', not 'Success'"));
    }

    #[test]
    fn fields_are_compared_as_text() {
        let object = json!({"host": "h", "spec": {"size": 3, "on": true}});
        for (selector, expected) in [
            ("host=h,spec.size=3", true),
            ("spec.on=true", true),
            ("host!=h", false),
            ("port=", true),
            ("port=80", false),
        ] {
            assert_eq!(selects(&FieldSelector::parse(selector).unwrap(), &object), expected, "{selector}");
        }
    }
}
