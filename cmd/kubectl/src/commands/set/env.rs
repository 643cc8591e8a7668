//! `kubectl set env`.

use super::{containers, pod_spec};
use crate::change::ChangeFlags;
use crate::connection::{ClusterFlags, Connection};
use crate::select::{ObjectFlags, name_of};
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::io::Read;

/// What `set env` is told.
#[derive(clap::Args)]
pub struct Flags {
    /// Kinds and names, then KEY=VALUE or KEY-; `-` reads KEY=VALUE lines from standard input.
    #[command(flatten)]
    objects: ObjectFlags,
    /// Which containers; * is all.
    #[arg(long, short, default_value = "*")]
    containers: String,
    /// KEY=VALUE, as among the words.
    #[arg(long, short)]
    env: Vec<String>,
    /// All keys of configmap/NAME or secret/NAME.
    #[arg(long)]
    from: Option<String>,
    /// Only these of its keys.
    #[arg(long, value_delimiter = ',')]
    keys: Vec<String>,
    /// Put before the names of variables that --from makes.
    #[arg(long, default_value = "")]
    prefix: String,
    /// Show what is set.
    #[arg(long)]
    list: bool,
    /// With --list: look up what configmaps and secrets say.
    #[arg(long)]
    resolve: bool,
    /// Change values that are there.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true")]
    overwrite: bool,
    /// Change what files say, ask no server.
    #[arg(long)]
    local: bool,
    #[command(flatten)]
    change: ChangeFlags,
}

/// Sets, removes, or lists.
pub async fn run(cluster: &ClusterFlags, mut flags: Flags) -> Result<()> {
    let (mut variables, removed) = wishes(&mut flags)?;
    let connection = Connection::open(cluster).await?;
    if let Some(from) = &flags.from {
        variables.extend(from_keys(&connection, from, &flags).await?);
    }
    if flags.list {
        for (_, mut object) in flags.objects.choose(&connection, flags.local).await? {
            list(&connection, &mut object, &flags).await?;
        }
        return Ok(());
    }
    if variables.is_empty() && removed.is_empty() {
        bail!("at least one environment variable must be provided");
    }
    let overwrite = flags.overwrite;
    let pattern = flags.containers.clone();
    let flags = super::Flags { objects: flags.objects, local: flags.local, change: flags.change };
    super::apply(cluster, &flags, "env updated", |object| {
        set(object, &pattern, &variables, &removed, overwrite)
    })
    .await
}

/// Takes the changes out of the words: variables to set, and names to remove.
fn wishes(flags: &mut Flags) -> Result<(Vec<Value>, Vec<String>)> {
    let mut texts = flags.env.clone();
    let mut words = Vec::new();
    for word in std::mem::take(&mut flags.objects.words) {
        if word == "-" {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).context("read standard input")?;
            texts.extend(text.lines().filter(|line| line.contains('=')).map(str::to_owned));
        } else if word.contains('=') || word.ends_with('-') {
            texts.push(word);
        } else {
            words.push(word);
        }
    }
    flags.objects.words = words;
    let (mut variables, mut removed) = (Vec::new(), Vec::new());
    for text in texts {
        match text.split_once('=') {
            Some((name, value)) => variables.push(json!({"name": name, "value": value})),
            None => removed.push(text.trim_end_matches('-').to_owned()),
        }
    }
    Ok((variables, removed))
}

async fn from_keys(connection: &Connection, from: &str, flags: &Flags) -> Result<Vec<Value>> {
    let (kind, name) = from
        .split_once('/')
        .with_context(|| format!("--from={from}: expected configmap/NAME or secret/NAME"))?;
    let (plural, reference) = match kind {
        "configmap" | "configmaps" | "cm" => ("configmaps", "configMapKeyRef"),
        "secret" | "secrets" => ("secrets", "secretKeyRef"),
        other => bail!("unsupported resource specified in --from: {other}"),
    };
    let object =
        connection.get(&format!("/api/v1/namespaces/{}/{plural}/{name}", connection.namespace)).await?;
    let keys = object["data"].as_object().into_iter().flatten().map(|(key, _)| key.as_str());
    Ok(keys
        .filter(|key| flags.keys.is_empty() || flags.keys.iter().any(|wanted| wanted == key))
        .map(|key| {
            json!({
                "name": format!("{}{}", flags.prefix, variable_name(key)),
                "valueFrom": {reference: {"name": name, "key": key}},
            })
        })
        .collect())
}

/// `some.key` as a variable's name: `SOME_KEY`.
fn variable_name(key: &str) -> String {
    key.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' }).collect()
}

fn set(
    object: &mut Value,
    pattern: &str,
    variables: &[Value],
    removed: &[String],
    overwrite: bool,
) -> Result<()> {
    let spec = pod_spec(object)?;
    let found = containers(spec, pattern);
    if found.is_empty() {
        bail!("unable to find container named {pattern}");
    }
    for container in found {
        let mut env = container["env"].as_array().cloned().unwrap_or_default();
        for variable in variables {
            match env.iter().position(|own| own["name"] == variable["name"]) {
                Some(index) if overwrite => env[index] = variable.clone(),
                Some(_) => bail!(
                    "{} already has a value, and --overwrite is false",
                    variable["name"].as_str().unwrap_or_default()
                ),
                None => env.push(variable.clone()),
            }
        }
        env.retain(|own| !removed.iter().any(|name| own["name"] == **name));
        match (env.is_empty(), container.as_object_mut()) {
            (true, Some(fields)) => drop(fields.remove("env")),
            (_, Some(fields)) => drop(fields.insert("env".into(), env.into())),
            (_, None) => {}
        }
    }
    Ok(())
}

async fn list(connection: &Connection, object: &mut Value, flags: &Flags) -> Result<()> {
    let (kind, name) =
        (object["kind"].as_str().unwrap_or_default().to_lowercase(), name_of(object).to_owned());
    let plural = format!("{kind}s");
    for container in containers(pod_spec(object)?, &flags.containers) {
        println!("# {plural}/{name}, container {}", container["name"].as_str().unwrap_or_default());
        for variable in container["env"].as_array().into_iter().flatten() {
            let own = variable["name"].as_str().unwrap_or_default();
            match source(variable) {
                None => println!("{own}={}", variable["value"].as_str().unwrap_or_default()),
                Some(source) if flags.resolve => {
                    println!("{own}={}", resolved(connection, variable).await.unwrap_or(source));
                }
                Some(source) => println!("# {own} from {source}"),
            }
        }
    }
    Ok(())
}

/// Where a variable's value comes from, in words.
fn source(variable: &Value) -> Option<String> {
    let from = variable.get("valueFrom")?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    for (field, kind) in [("configMapKeyRef", "configmap"), ("secretKeyRef", "secret")] {
        if let Some(reference) = from.get(field) {
            return Some(format!("{kind} {}, key {}", text(&reference["name"]), text(&reference["key"])));
        }
    }
    let field = &from["fieldRef"]["fieldPath"];
    let resource = &from["resourceFieldRef"]["resource"];
    Some(if field.is_string() {
        format!("field path {}", text(field))
    } else {
        format!("resource field {}", text(resource))
    })
}

async fn resolved(connection: &Connection, variable: &Value) -> Option<String> {
    use base64::Engine as _;
    let from = variable.get("valueFrom")?;
    let (plural, reference) = from
        .get("configMapKeyRef")
        .map(|reference| ("configmaps", reference))
        .or_else(|| from.get("secretKeyRef").map(|reference| ("secrets", reference)))?;
    let path =
        format!("/api/v1/namespaces/{}/{plural}/{}", connection.namespace, reference["name"].as_str()?);
    let object = connection.get(&path).await.ok()?;
    let value = object["data"][reference["key"].as_str()?].as_str()?.to_owned();
    if plural == "configmaps" {
        return Some(value);
    }
    String::from_utf8(base64::engine::general_purpose::STANDARD.decode(value).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_added_changed_and_removed() {
        let pod = || json!({"kind": "Pod", "spec": {"containers": [{"name": "c", "env": [{"name": "A", "value": "1"}]}]}});
        let variable = |name: &str, value: &str| json!({"name": name, "value": value});
        let check = |variables: &[Value], removed: &[&str], expected: Value| {
            let removed: Vec<String> = removed.iter().map(|name| (*name).to_owned()).collect();
            let mut pod = pod();
            set(&mut pod, "*", variables, &removed, true).expect("set");
            assert_eq!(pod["spec"]["containers"][0]["env"], expected);
        };
        check(&[variable("B", "2")], &[], json!([variable("A", "1"), variable("B", "2")]));
        check(&[variable("A", "2")], &[], json!([variable("A", "2")]));
        check(&[variable("C", "3")], &["A"], json!([variable("C", "3")]));
        check(&[], &["A"], Value::Null);
        assert!(set(&mut pod(), "*", &[variable("A", "2")], &[], false).is_err());
        assert_eq!(variable_name("some.key-1"), "SOME_KEY_1");
    }
}
