//! Changes to a kubeconfig, on its tree.

use anyhow::{Context, Result, bail};
use base64::Engine as _;
use serde_json::{Value, json};
use std::path::PathBuf;

/// A cluster as flags describe it.
pub struct Cluster {
    pub server: Option<String>,
    pub authority: Option<PathBuf>,
    pub embed: bool,
    pub insecure: bool,
    pub tls_server_name: Option<String>,
    pub proxy_url: Option<String>,
}

/// A user as flags describe it.
pub struct Credentials {
    pub token: Option<String>,
    pub certificate: Option<PathBuf>,
    pub key: Option<PathBuf>,
    pub embed: bool,
    pub username: Option<String>,
    pub password: Option<String>,
}

/// A kubeconfig with nothing in it.
pub fn empty() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Config", "preferences": {},
        "clusters": [], "contexts": [], "users": [], "current-context": "",
    })
}

/// The entry of a name in one of the lists, made where it is not there; and whether it was there.
fn entry<'a>(value: &'a mut Value, list: &str, field: &str, name: &str) -> (&'a mut Value, bool) {
    if !value[list].is_array() {
        value[list] = json!([]);
    }
    let there = value[list].as_array().and_then(|list| list.iter().position(|one| one["name"] == name));
    let index = there.unwrap_or_else(|| {
        let list = value[list].as_array_mut().map(|list| {
            list.push(json!({"name": name, field: {}}));
            list.len() - 1
        });
        list.unwrap_or_default()
    });
    let one = &mut value[list][index][field];
    if !one.is_object() {
        *one = json!({});
    }
    (one, there.is_some())
}

pub fn use_context(value: &mut Value, name: &str) -> Result<String> {
    let mut contexts = value["contexts"].as_array().into_iter().flatten();
    if !contexts.any(|context| context["name"] == name) {
        bail!("no context exists with the name: \"{name}\"");
    }
    value["current-context"] = name.into();
    Ok(format!("Switched to context \"{name}\"."))
}

pub fn set_context(value: &mut Value, name: &str, fields: [(&str, Option<String>); 3]) -> String {
    let (context, was_there) = entry(value, "contexts", "context", name);
    for (field, text) in fields {
        if let Some(text) = text {
            context[field] = text.into();
        }
    }
    format!("Context \"{name}\" {}.", if was_there { "modified" } else { "created" })
}

pub fn set_cluster(value: &mut Value, name: &str, wanted: Cluster) -> Result<String> {
    let (cluster, _) = entry(value, "clusters", "cluster", name);
    for (field, text) in [
        ("server", wanted.server),
        ("tls-server-name", wanted.tls_server_name),
        ("proxy-url", wanted.proxy_url),
    ] {
        if let Some(text) = text {
            cluster[field] = text.into();
        }
    }
    if wanted.insecure {
        cluster["insecure-skip-tls-verify"] = true.into();
        remove_fields(cluster, &["certificate-authority", "certificate-authority-data"]);
    }
    if let Some(path) = wanted.authority {
        remove_fields(cluster, &["insecure-skip-tls-verify"]);
        put_file(cluster, "certificate-authority", &path, wanted.embed)?;
    }
    Ok(format!("Cluster \"{name}\" set."))
}

pub fn set_credentials(value: &mut Value, name: &str, wanted: Credentials) -> Result<String> {
    if wanted.token.is_some() && (wanted.username.is_some() || wanted.password.is_some()) {
        bail!(
            "you cannot specify more than one authentication method at the same time: [--token --username]"
        );
    }
    let (user, _) = entry(value, "users", "user", name);
    for (field, text) in
        [("token", wanted.token), ("username", wanted.username), ("password", wanted.password)]
    {
        if let Some(text) = text {
            user[field] = text.into();
        }
    }
    for (field, path) in [("client-certificate", wanted.certificate), ("client-key", wanted.key)] {
        if let Some(path) = path {
            put_file(user, field, &path, wanted.embed)?;
        }
    }
    Ok(format!("User \"{name}\" set."))
}

/// A file by its path, or its contents.
fn put_file(object: &mut Value, field: &str, path: &PathBuf, embed: bool) -> Result<()> {
    let data = format!("{field}-data");
    remove_fields(object, &[field, &data]);
    if embed {
        let contents = std::fs::read(path).with_context(|| format!("read {}", path.display()))?;
        object[data] = base64::engine::general_purpose::STANDARD.encode(contents).into();
    } else {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
        object[field] = path.display().to_string().into();
    }
    Ok(())
}

fn remove_fields(object: &mut Value, fields: &[&str]) {
    if let Some(object) = object.as_object_mut() {
        fields.iter().for_each(|field| drop(object.remove(*field)));
    }
}

pub fn remove(value: &mut Value, list: &str, what: &str, name: &str, file: &str) -> Result<String> {
    let Some(entries) = value[list].as_array_mut().filter(|list| list.iter().any(|one| one["name"] == name))
    else {
        bail!("cannot delete {what} {name}, not in {file}");
    };
    entries.retain(|one| one["name"] != name);
    Ok(format!("deleted {what} {name} from {file}"))
}

pub fn rename_context(value: &mut Value, old: &str, new: &str, file: &str) -> Result<String> {
    let contexts = value["contexts"].as_array_mut().map(Vec::as_mut_slice).unwrap_or_default();
    if contexts.iter().any(|context| context["name"] == new) {
        bail!("cannot rename the context \"{old}\", the context \"{new}\" already exists in {file}");
    }
    let Some(context) = contexts.iter_mut().find(|context| context["name"] == old) else {
        bail!("cannot rename the context \"{old}\", it's not in {file}");
    };
    context["name"] = new.into();
    if value["current-context"] == old {
        value["current-context"] = new.into();
    }
    Ok(format!("Context \"{old}\" renamed to \"{new}\"."))
}

/// The value that a path with dots names; names of clusters, contexts and users may have dots.
fn place<'a>(value: &'a mut Value, path: &str) -> Result<(&'a mut Value, String)> {
    let Some((list, rest)) = path.split_once('.') else { return Ok((value, path.to_owned())) };
    let field = match list {
        "clusters" => "cluster",
        "contexts" => "context",
        "users" => "user",
        _ => bail!(
            "{path}: expected current-context, clusters.NAME.FIELD, contexts.NAME.FIELD or users.NAME.FIELD"
        ),
    };
    let (name, member) =
        rest.rsplit_once('.').with_context(|| format!("{path}: expected {list}.NAME.FIELD"))?;
    Ok((entry(value, list, field, name).0, member.to_owned()))
}

pub fn set(value: &mut Value, path: &str, text: &str) -> Result<String> {
    let (place, field) = place(value, path)?;
    place[field] = match text {
        "true" => true.into(),
        "false" => false.into(),
        text => text.into(),
    };
    Ok(format!("Property \"{path}\" set."))
}

pub fn unset(value: &mut Value, path: &str) -> Result<String> {
    let (list, name) = path.split_once('.').unwrap_or((path, ""));
    let is_entry = value[list].as_array().is_some_and(|list| list.iter().any(|one| one["name"] == name));
    if is_entry {
        if let Some(entries) = value[list].as_array_mut() {
            entries.retain(|one| one["name"] != name);
        }
    } else {
        let (place, field) = place(value, path)?;
        remove_fields(place, &[&field]);
    }
    Ok(format!("Property \"{path}\" unset."))
}

/// Leaves only what one context uses.
pub fn minify(value: &mut Value, context: Option<&str>) -> Result<()> {
    let name = context.or(value["current-context"].as_str()).unwrap_or_default().to_owned();
    if name.is_empty() {
        bail!("current-context must exist in order to minify");
    }
    let found = value["contexts"].as_array().into_iter().flatten().find(|context| context["name"] == name);
    let about = found.with_context(|| format!("cannot locate context {name}"))?["context"].clone();
    let keeps =
        [("contexts", json!(name)), ("clusters", about["cluster"].clone()), ("users", about["user"].clone())];
    for (list, keep) in keeps {
        if let Some(entries) = value[list].as_array_mut() {
            entries.retain(|one| one["name"] == keep);
        }
    }
    value["current-context"] = name.into();
    Ok(())
}

/// Puts the contents of files in their places.
pub fn flatten(value: &mut Value) -> Result<()> {
    for (list, field, files) in [
        ("clusters", "cluster", &["certificate-authority"][..]),
        ("users", "user", &["client-certificate", "client-key"][..]),
    ] {
        for one in value[list].as_array_mut().into_iter().flatten() {
            for file in files {
                if let Some(path) = one[field][file].as_str().map(PathBuf::from) {
                    put_file(&mut one[field], file, &path, true)?;
                }
            }
        }
    }
    Ok(())
}

/// Fields without a value are not shown.
pub fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

/// Secrets are not shown.
pub fn redact(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match name.as_str() {
                    "token" | "password" if value.is_string() => *value = "REDACTED".into(),
                    "client-key-data" | "client-certificate-data" | "certificate-authority-data"
                        if value.is_string() =>
                    {
                        *value = "DATA+OMITTED".into();
                    }
                    _ => redact(value),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(redact),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Value {
        let mut value = empty();
        for name in ["home", "work"] {
            set_context(
                &mut value,
                name,
                [("cluster", Some(name.into())), ("user", Some(name.into())), ("namespace", None)],
            );
            entry(&mut value, "clusters", "cluster", name);
            entry(&mut value, "users", "user", name);
        }
        value["current-context"] = "home".into();
        value
    }

    #[test]
    fn contexts_are_made_changed_renamed_and_removed() {
        let mut value = config();
        let fields =
            |namespace: &str| [("cluster", None), ("user", None), ("namespace", Some(namespace.to_owned()))];
        assert_eq!(set_context(&mut value, "home", fields("dev")), "Context \"home\" modified.");
        assert_eq!(set_context(&mut value, "new", fields("dev")), "Context \"new\" created.");
        assert_eq!(
            value["contexts"][0]["context"],
            json!({"cluster": "home", "user": "home", "namespace": "dev"})
        );
        assert_eq!(
            rename_context(&mut value, "home", "flat", "f").expect("there"),
            "Context \"home\" renamed to \"flat\"."
        );
        assert_eq!(value["current-context"], "flat");
        assert!(rename_context(&mut value, "flat", "work", "f").is_err());
        assert_eq!(
            remove(&mut value, "contexts", "context", "new", "f").expect("there"),
            "deleted context new from f"
        );
        assert_eq!(
            remove(&mut value, "contexts", "context", "new", "f").expect_err("gone").to_string(),
            "cannot delete context new, not in f"
        );
        assert_eq!(
            use_context(&mut value, "x").expect_err("none").to_string(),
            "no context exists with the name: \"x\""
        );
    }

    #[test]
    fn minified_is_what_one_context_uses() {
        let mut value = config();
        minify(&mut value, None).expect("there");
        for list in ["contexts", "clusters", "users"] {
            assert_eq!(value[list].as_array().map(Vec::len), Some(1), "{list}");
        }
        minify(&mut config(), Some("none")).expect_err("no such context");
    }

    #[test]
    fn single_values_are_set_and_unset() {
        let mut value = config();
        set(&mut value, "clusters.home.server", "https://a").expect("set");
        assert_eq!(value["clusters"][0]["cluster"]["server"], "https://a");
        unset(&mut value, "clusters.home.server").expect("unset");
        assert_eq!(value["clusters"][0]["cluster"], json!({}));
        unset(&mut value, "users.work").expect("unset");
        assert_eq!(value["users"].as_array().map(Vec::len), Some(1));
        set(&mut value, "current-context", "work").expect("set");
        assert_eq!(value["current-context"], "work");
    }

    #[test]
    fn secrets_are_not_shown() {
        let mut value = json!({"users": [{"user": {"token": "t", "client-key-data": "k", "client-certificate-data": "c"}}]});
        redact(&mut value);
        let user = json!({"token": "REDACTED", "client-key-data": "DATA+OMITTED", "client-certificate-data": "DATA+OMITTED"});
        assert_eq!(value, json!({"users": [{"user": user}]}));
    }
}
