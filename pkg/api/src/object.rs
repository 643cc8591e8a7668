//! The shape all objects share: how an object is encoded, stored and served.
//!
//! *Stored* bytes are the object's JSON without `metadata.resourceVersion`, with kind, apiVersion and metadata
//! first. *Served* bytes are the same with the resourceVersion put in by [`served`]: one copy, no decoding.

pub use serde_json::Value;
use serde_json::{Map, json};

const METADATA: &str = "\"metadata\":{";

/// Encodes an object for the store: kind, apiVersion, metadata (without resourceVersion), then the rest by name.
pub fn stored(object: &Value) -> Vec<u8> {
    let mut out = Vec::with_capacity(1024);
    let empty = Map::new();
    let members = object.as_object().unwrap_or(&empty);
    let metadata = members.get("metadata").and_then(Value::as_object).unwrap_or(&empty);
    out.push(b'{');
    for name in ["kind", "apiVersion"] {
        if let Some(value) = members.get(name) {
            write_member(&mut out, name, value);
            out.push(b',');
        }
    }
    out.extend_from_slice(METADATA.as_bytes());
    let mut first = true;
    for (name, value) in metadata.iter().filter(|(name, _)| *name != "resourceVersion") {
        if !std::mem::take(&mut first) {
            out.push(b',');
        }
        write_member(&mut out, name, value);
    }
    out.push(b'}');
    for (name, value) in members {
        if !matches!(name.as_str(), "kind" | "apiVersion" | "metadata") {
            out.push(b',');
            write_member(&mut out, name, value);
        }
    }
    out.push(b'}');
    out
}

fn write_member(out: &mut Vec<u8>, name: &str, value: &Value) {
    let infallible = "a Value in memory always encodes";
    serde_json::to_writer(&mut *out, name).expect(infallible);
    out.push(b':');
    serde_json::to_writer(&mut *out, value).expect(infallible);
}

/// Puts the resourceVersion into [`stored`] bytes. Bytes of another shape come back as they are.
pub fn served(stored: &[u8], revision: u64) -> Vec<u8> {
    let mut out = Vec::with_capacity(stored.len() + 44);
    write_served(&mut out, stored, revision);
    out
}

/// [`served`] into a buffer that already holds something else, such as the beginning of a watch event.
pub fn write_served(out: &mut Vec<u8>, stored: &[u8], revision: u64) {
    let Some(start) = stored.windows(METADATA.len()).position(|w| w == METADATA.as_bytes()) else {
        out.extend_from_slice(stored);
        return;
    };
    let at = start + METADATA.len();
    let comma = if stored.get(at) == Some(&b'}') { "" } else { "," };
    out.extend_from_slice(&stored[..at]);
    out.extend_from_slice(format!("\"resourceVersion\":\"{revision}\"{comma}").as_bytes());
    out.extend_from_slice(&stored[at..]);
}

/// `metadata.<name>` as a string.
pub fn meta<'a>(object: &'a Value, name: &str) -> Option<&'a str> {
    object.get("metadata")?.get(name)?.as_str()
}

/// The object's name, empty where it has none yet.
pub fn name(object: &Value) -> &str {
    meta(object, "name").unwrap_or_default()
}

/// The object's namespace, empty for cluster-scoped objects.
pub fn namespace(object: &Value) -> &str {
    meta(object, "namespace").unwrap_or_default()
}

/// Whether the object's condition of that type has that status, such as `True`.
pub fn condition_is(object: &Value, ty: &str, status: &str) -> bool {
    let mut conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions.any(|condition| condition["type"] == ty && condition["status"] == status)
}

/// The member, made an empty object first where it is missing (or not an object).
pub fn object_mut<'a>(parent: &'a mut Value, name: &str) -> &'a mut Map<String, Value> {
    if !parent.is_object() {
        *parent = json!({});
    }
    let slot = &mut parent[name];
    if !slot.is_object() {
        *slot = json!({});
    }
    slot.as_object_mut().expect("made an object above")
}

/// Sets a member that is missing or `null`; leaves any other value alone.
pub fn set_default(object: &mut Value, name: &str, default: impl Into<Value>) {
    if let Some(members) = object.as_object_mut() {
        let slot = members.entry(name).or_insert(Value::Null);
        if slot.is_null() {
            *slot = default.into();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_resource_version_is_put_in_without_decoding() {
        let object = json!({"data": {"metadata": "x"}, "kind": "ConfigMap", "apiVersion": "v1",
            "metadata": {"name": "a", "resourceVersion": "1"}});
        let bytes = stored(&object);
        assert_eq!(
            String::from_utf8_lossy(&bytes),
            r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a"},"data":{"metadata":"x"}}"#
        );
        let served: Value = serde_json::from_slice(&served(&bytes, 42)).unwrap();
        assert_eq!(meta(&served, "resourceVersion"), Some("42"));
        assert_eq!(served["data"], object["data"]);
    }
}
