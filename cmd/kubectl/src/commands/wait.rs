//! `kubectl wait`.

use crate::connection::{ClusterFlags, Connection, is_not_found};
use crate::output::Template;
use crate::resources::{Catalogue, Resource};
use crate::select::{self, ObjectFlags, SelectFlags, Target, name_of};
use anyhow::{Result, bail};
use serde_json::Value;
use std::time::{Duration, Instant};

/// What `wait` is told.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  kubectl wait --for=condition=Ready pod/web --timeout=60s\n  kubectl wait --for=delete pod/web"
)]
pub struct Flags {
    #[command(flatten)]
    objects: ObjectFlags,
    /// condition=NAME[=VALUE], jsonpath={PATH}[=VALUE], create or delete.
    #[arg(long = "for")]
    condition: String,
    /// How long to wait; 0s looks once.
    #[arg(long, default_value = "30s", value_parser = crate::duration::parse)]
    timeout: Duration,
    /// name, yaml, json, …: show the objects.
    #[arg(long, short)]
    output: Option<String>,
}

/// What is waited for.
enum Condition {
    Create,
    Delete,
    Status(String, String),
    Path(Template, Option<String>),
}

/// An object that is waited for: where it is, and what it was when it was first seen.
struct Awaited {
    resource: Resource,
    path: String,
    name: String,
    seen: Option<Value>,
}

/// Waits.
pub async fn run(cluster: &ClusterFlags, flags: Flags) -> Result<()> {
    let condition = parse(&flags.condition)?;
    let connection = Connection::open(cluster).await?;
    let deadline = Instant::now() + flags.timeout;
    let awaited = find(&connection, &flags, &condition, deadline).await?;
    let show = crate::change::ChangeFlags { output: flags.output.clone(), ..Default::default() };
    let mut late = Vec::new();
    for one in awaited {
        match wait(&connection, &one, &condition, deadline).await? {
            Some(object) => show.show(&one.resource, &object, "condition met")?,
            None => late
                .push(format!("timed out waiting for the condition on {}/{}", one.resource.plural, one.name)),
        }
    }
    let last = late.pop();
    late.iter().for_each(|text| eprintln!("error: {text}"));
    last.map_or(Ok(()), |text| bail!("{text}"))
}

fn parse(text: &str) -> Result<Condition> {
    let lower = text.to_lowercase();
    if lower == "delete" {
        return Ok(Condition::Delete);
    }
    if lower == "create" {
        return Ok(Condition::Create);
    }
    if let Some(rest) = text.strip_prefix("condition=") {
        let (name, value) = rest.split_once('=').unwrap_or((rest, "true"));
        return Ok(Condition::Status(name.to_lowercase(), value.to_lowercase()));
    }
    if let Some(rest) = text.strip_prefix("jsonpath=") {
        let rest = rest.trim_matches('\'');
        let (path, value) = match rest.rfind("}=") {
            Some(at) => (&rest[..=at], Some(rest[at + 2..].trim_matches('"').to_owned())),
            None if rest.starts_with('{') => (rest, None),
            None => match rest.split_once('=') {
                Some((path, value)) => (path, Some(value.trim_matches('"').to_owned())),
                None => (rest, None),
            },
        };
        return Ok(Condition::Path(Template::parse(path)?, value));
    }
    bail!("unrecognized condition: \"{text}\"")
}

/// The objects to wait for. What is to be made need not be there; of what is to go, that is enough.
async fn find(
    connection: &Connection,
    flags: &Flags,
    condition: &Condition,
    deadline: Instant,
) -> Result<Vec<Awaited>> {
    let objects = &flags.objects;
    let awaited = |(resource, object): (Resource, Value)| Awaited {
        path: select::path_of(&resource, &object),
        name: name_of(&object).to_owned(),
        resource,
        seen: Some(object),
    };
    if objects.files.any() {
        let found = objects.files.objects(connection).await?;
        return Ok(found.into_iter().map(|one| Awaited { seen: None, ..awaited(one) }).collect());
    }
    let catalogue = Catalogue::for_words(connection, &objects.words).await?;
    let targets = select::targets(&catalogue, &objects.words)?;
    let select = SelectFlags {
        words: objects.words.clone(),
        selector: objects.selector.clone(),
        field_selector: objects.field_selector.clone(),
        all_namespaces: objects.all_namespaces,
    };
    let is_many = objects.all || objects.selector.is_some() || objects.field_selector.is_some();
    if targets.iter().any(|target| target.name.is_none()) && !is_many {
        bail!("resource(s) were provided, but no name was specified");
    }
    loop {
        let mut found = Vec::new();
        for target in &targets {
            found.extend(look(connection, target, &select).await?.into_iter().map(awaited));
            if let Some(name) = &target.name
                && found.last().is_none_or(|last: &Awaited| last.name != *name)
            {
                let path = target.path(connection, false);
                match condition {
                    Condition::Delete => {}
                    Condition::Create => {
                        found.push(Awaited {
                            path,
                            name: name.clone(),
                            resource: target.resource.clone(),
                            seen: None,
                        });
                    }
                    // The server says in its own words what is not there.
                    _ => drop(connection.get(&path).await?),
                }
            }
        }
        if !found.is_empty() || matches!(condition, Condition::Delete) {
            return Ok(found);
        }
        if !matches!(condition, Condition::Create) || Instant::now() >= deadline {
            bail!("no matching resources found");
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

async fn look(
    connection: &Connection,
    target: &Target,
    select: &SelectFlags,
) -> Result<Vec<(Resource, Value)>> {
    let path = target.path(connection, select.all_namespaces && target.name.is_none());
    if target.name.is_some() {
        return match connection.get(&path).await {
            Ok(object) => Ok(vec![(target.resource.clone(), object)]),
            Err(error) if is_not_found(&error) => Ok(Vec::new()),
            Err(error) => Err(error),
        };
    }
    let list = connection.get(&format!("{path}{}", select::query(select))).await?;
    let items = list["items"].as_array().cloned().unwrap_or_default();
    Ok(items.into_iter().map(|item| (target.resource.clone(), item)).collect())
}

/// The object once the condition holds; `None` when time is up.
async fn wait(
    connection: &Connection,
    one: &Awaited,
    condition: &Condition,
    deadline: Instant,
) -> Result<Option<Value>> {
    let mut pause = Duration::from_millis(20);
    let mut last = one.seen.clone();
    loop {
        let object = match connection.get(&one.path).await {
            Ok(object) => Some(object),
            Err(error) if is_not_found(&error) => None,
            Err(error) => return Err(error),
        };
        let uid = |object: &Option<Value>| object.as_ref().map(|object| object["metadata"]["uid"].clone());
        match (condition, &object) {
            (Condition::Delete, None) => return Ok(last),
            // Another one of the same name is not the one that was meant.
            (Condition::Delete, Some(_)) if last.is_some() && uid(&object) != uid(&last) => return Ok(last),
            (condition, Some(own)) if holds(condition, own) => return Ok(object),
            _ => {}
        }
        last = object.or(last);
        if Instant::now() >= deadline {
            return Ok(None);
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_millis(500));
    }
}

fn holds(condition: &Condition, object: &Value) -> bool {
    match condition {
        Condition::Create => true,
        Condition::Delete => false,
        Condition::Status(name, value) => {
            let generation = object["metadata"]["generation"].as_i64().unwrap_or_default();
            object["status"]["conditions"].as_array().into_iter().flatten().any(|own| {
                let is = |field: &str, expected: &str| {
                    own[field].as_str().is_some_and(|text| text.eq_ignore_ascii_case(expected))
                };
                // A condition of an older form of the object says nothing of this one.
                let is_current =
                    own["observedGeneration"].as_i64().is_none_or(|observed| observed >= generation);
                is("type", name) && is("status", value) && is_current
            })
        }
        Condition::Path(template, expected) => {
            let found = template.render(object);
            expected.as_ref().map_or(!found.is_empty(), |expected| found == *expected)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn conditions_are_upstreams() {
        let pod =
            json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
        let check = |text: &str, expected: bool| {
            assert_eq!(holds(&parse(text).expect(text), &pod), expected, "{text}");
        };
        check("condition=Ready", true);
        check("condition=ready=false", false);
        check("condition=Initialized", false);
        check("jsonpath={.status.phase}=Running", true);
        check("jsonpath={.status.phase}=Pending", false);
        check("jsonpath=.status.phase=Running", true);
        check("jsonpath={.status.phase}", true);
        check("delete", false);
        assert!(parse("ready").is_err());
    }

    #[test]
    fn a_condition_of_an_older_generation_does_not_count() {
        let object = |observed: i64| json!({"metadata": {"generation": 2}, "status": {"conditions": [{"type": "Ready", "status": "True", "observedGeneration": observed}]}});
        let ready = parse("condition=Ready").expect("a condition");
        assert!(!holds(&ready, &object(1)));
        assert!(holds(&ready, &object(2)));
    }
}
