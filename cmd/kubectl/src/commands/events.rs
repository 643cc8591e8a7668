//! `kubectl events`.

use crate::connection::{ClusterFlags, Connection, is_history};
use crate::output::{Output, table};
use crate::resources::Catalogue;
use anyhow::{Result, bail};
use api::printing::human_duration;
use client::version_number;
use futures::TryStreamExt;
use jiff::Timestamp;
use serde_json::{Value, json};

/// What `events` is told.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  kubectl events --for pod/web --watch")]
pub struct Flags {
    /// Only those about this object, as kind/name.
    #[arg(long = "for")]
    about: Option<String>,
    /// In all namespaces.
    #[arg(long, short = 'A')]
    all_namespaces: bool,
    /// Only of these types: Normal, Warning.
    #[arg(long, value_delimiter = ',')]
    types: Vec<String>,
    /// Go on as more happens.
    #[arg(long, short)]
    watch: bool,
    /// Without the line of names of columns.
    #[arg(long)]
    no_headers: bool,
    /// yaml, json, name or jsonpath=….
    #[arg(long, short)]
    output: Option<String>,
}

/// Shows, oldest first.
pub async fn run(cluster: &ClusterFlags, flags: Flags) -> Result<()> {
    if let Some(wrong) =
        flags.types.iter().find(|kind| !["normal", "warning"].contains(&kind.to_lowercase().as_str()))
    {
        bail!("valid --types are Normal or Warning: {wrong} is neither");
    }
    let output = Output::parse(flags.output.as_deref())?;
    let connection = Connection::open(cluster).await?;
    let about = about(&connection, flags.about.as_deref()).await?;
    let path = if flags.all_namespaces {
        "/api/v1/events".to_owned()
    } else {
        format!("/api/v1/namespaces/{}/events", connection.namespace)
    };
    let list = connection.get(&path).await?;
    let mut items = list["items"].as_array().cloned().unwrap_or_default();
    items.retain(|event| is_wanted(event, &flags.types, about.as_ref()));
    items.sort_by_key(last_seen);
    if items.is_empty() && !flags.watch {
        match flags.all_namespaces {
            true => eprintln!("No events found."),
            false => eprintln!("No events found in {} namespace.", connection.namespace),
        }
        return Ok(());
    }
    if !output.is_table() {
        for event in &mut items {
            event["apiVersion"] = "v1".into();
            event["kind"] = "Event".into();
            event["metadata"].as_object_mut().map(|metadata| metadata.remove("managedFields"));
        }
        print!(
            "{}",
            output.show(&json!({"apiVersion": "v1", "kind": "List", "items": items, "metadata": {}}))?
        );
        return Ok(());
    }
    let mut rows = if flags.no_headers { Vec::new() } else { vec![header(flags.all_namespaces)] };
    rows.extend(items.iter().map(|event| line(event, flags.all_namespaces)));
    print!("{}", table(&rows));
    if flags.watch {
        return follow(&connection, &flags, about.as_ref(), &path, &list).await;
    }
    Ok(())
}

/// Shows what happens after a list, for ever. What the server had forgotten by the time it was asked is in another list.
async fn follow(
    connection: &Connection,
    flags: &Flags,
    about: Option<&(String, String)>,
    path: &str,
    list: &Value,
) -> Result<()> {
    let version_of = |object: &Value| version_number(object["metadata"]["resourceVersion"].as_str());
    let mut version = version_of(list);
    let mut show = |event: &Value| {
        if is_wanted(event, &flags.types, about) {
            print!("{}", table(&[line(event, flags.all_namespaces)]));
        }
    };
    loop {
        let from = format!("{path}?watch=true&allowWatchBookmarks=true&resourceVersion={version}");
        match told(connection, &from, &mut show, &mut version).await {
            Err(error) if is_history(&error) => {}
            ended => {
                ended?;
                continue;
            }
        }
        let list = connection.get(path).await?;
        let mut items: Vec<&Value> = list["items"].as_array().into_iter().flatten().collect();
        items.retain(|event| version_of(event) > version);
        items.sort_by_key(|event| last_seen(event));
        items.into_iter().for_each(&mut show);
        version = version_of(&list);
    }
}

/// Shows the events of one watch.
async fn told(
    connection: &Connection,
    from: &str,
    show: &mut impl FnMut(&Value),
    version: &mut u64,
) -> Result<()> {
    let changes = connection.watch(from, "application/json").await?;
    let mut changes = std::pin::pin!(changes);
    while let Some(change) = changes.try_next().await? {
        *version = version_number(change["object"]["metadata"]["resourceVersion"].as_str());
        if matches!(change["type"].as_str(), Some("ADDED" | "MODIFIED")) {
            show(&change["object"]);
        }
    }
    Ok(())
}

/// The kind and name of what events are asked about.
async fn about(connection: &Connection, word: Option<&str>) -> Result<Option<(String, String)>> {
    let Some(word) = word else { return Ok(None) };
    let Some((kind, name)) = word.split_once('/') else {
        bail!("--for must be in resource/name form");
    };
    let catalogue = Catalogue::for_words(connection, &[kind.to_owned()]).await?;
    Ok(Some((catalogue.find(kind)?.kind.clone(), name.to_owned())))
}

fn is_wanted(event: &Value, types: &[String], about: Option<&(String, String)>) -> bool {
    let involved = &event["involvedObject"];
    let is_about = about.is_none_or(|(kind, name)| involved["kind"] == **kind && involved["name"] == **name);
    let own = event["type"].as_str().unwrap_or_default();
    is_about && (types.is_empty() || types.iter().any(|kind| kind.eq_ignore_ascii_case(own)))
}

fn header(all_namespaces: bool) -> Vec<String> {
    let mut header = ["LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"].map(str::to_owned).to_vec();
    if all_namespaces {
        header.insert(0, "NAMESPACE".to_owned());
    }
    header
}

fn line(event: &Value, all_namespaces: bool) -> Vec<String> {
    let [kind, reason, age, _, message] = cells(event);
    let involved = &event["involvedObject"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let object = format!("{}/{}", text(&involved["kind"]), text(&involved["name"]));
    let mut line = vec![age, kind, reason, object, message];
    if all_namespaces {
        line.insert(0, text(&event["metadata"]["namespace"]));
    }
    line
}

/// The cells of an event: type, reason, age, from, message.
pub fn cells(event: &Value) -> [String; 5] {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let now = Timestamp::now();
    let since = |at: Timestamp| human_duration(now.duration_since(at).as_secs());
    let age = last_seen(event).map_or_else(|| "<unknown>".to_owned(), since);
    let count = event["series"]["count"].as_i64().or_else(|| event["count"].as_i64()).unwrap_or(1);
    let first = [&event["firstTimestamp"], &event["eventTime"]];
    let first = first.iter().find_map(|time| time.as_str()?.parse().ok());
    let age = match first {
        Some(first) if count > 1 => format!("{age} (x{count} over {})", since(first)),
        _ => age,
    };
    let from = match text(&event["source"]["component"]) {
        component if component.is_empty() => text(&event["reportingComponent"]),
        component => component,
    };
    let message = text(&event["message"]).trim().replace('\n', " ");
    [text(&event["type"]), text(&event["reason"]), age, from, message]
}

pub fn last_seen(event: &Value) -> Option<Timestamp> {
    let times = [
        &event["series"]["lastObservedTime"],
        &event["lastTimestamp"],
        &event["eventTime"],
        &event["metadata"]["creationTimestamp"],
    ];
    times.iter().find_map(|time| time.as_str()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_chosen_by_type_and_object() {
        let event = json!({"type": "Warning", "involvedObject": {"kind": "Pod", "name": "web"}});
        let pod = |name: &str| Some(("Pod".to_owned(), name.to_owned()));
        assert!(is_wanted(&event, &[], None));
        assert!(is_wanted(&event, &["warning".to_owned()], pod("web").as_ref()));
        assert!(!is_wanted(&event, &["Normal".to_owned()], None));
        assert!(!is_wanted(&event, &[], pod("db").as_ref()));
    }
}
