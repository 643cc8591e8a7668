//! `kubectl events`.

use crate::connection::{ClusterFlags, Connection};
use crate::output::table;
use anyhow::Result;
use api::printing::human_duration;
use jiff::Timestamp;
use serde_json::Value;

/// What `events` is told.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  kubectl events --for pod/web")]
pub struct Flags {
    /// Only those about this object, as kind/name.
    #[arg(long = "for")]
    about: Option<String>,
    /// In all namespaces.
    #[arg(long, short = 'A')]
    all_namespaces: bool,
}

/// Shows, oldest first.
pub async fn run(cluster: &ClusterFlags, flags: Flags) -> Result<()> {
    let connection = Connection::open(cluster).await?;
    let path = if flags.all_namespaces {
        "/api/v1/events".to_owned()
    } else {
        format!("/api/v1/namespaces/{}/events", connection.namespace)
    };
    let list = connection.get(&path).await?;
    let mut items = list["items"].as_array().cloned().unwrap_or_default();
    if let Some(about) = &flags.about {
        let (kind, name) = about.split_once('/').unwrap_or(("", about));
        items.retain(|event| {
            let involved = &event["involvedObject"];
            let kind_fits = involved["kind"]
                .as_str()
                .is_some_and(|own| kind.is_empty() || own.eq_ignore_ascii_case(kind));
            kind_fits && involved["name"] == name
        });
    }
    items.sort_by_key(last_seen);
    if items.is_empty() {
        eprintln!("No events found in {} namespace.", connection.namespace);
        return Ok(());
    }
    let mut rows = vec![["LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"].map(str::to_owned).to_vec()];
    for event in &items {
        let [kind, reason, age, _, message] = cells(event);
        let involved = &event["involvedObject"];
        let object = format!(
            "{}/{}",
            involved["kind"].as_str().unwrap_or_default(),
            involved["name"].as_str().unwrap_or_default()
        );
        rows.push(vec![age, kind, reason, object, message]);
    }
    print!("{}", table(&rows));
    Ok(())
}

/// The cells of an event: type, reason, age, from, message.
pub fn row(event: &Value, indent: &str) -> Vec<String> {
    let mut cells = cells(event);
    cells[0].insert_str(0, indent);
    cells.to_vec()
}

fn cells(event: &Value) -> [String; 5] {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let age = last_seen(event).map_or_else(
        || "<unknown>".to_owned(),
        |at| human_duration(Timestamp::now().duration_since(at).as_secs()),
    );
    let count = event["count"].as_i64().or_else(|| event["series"]["count"].as_i64()).unwrap_or(1);
    let age = if count > 1 { format!("{age} (x{count})") } else { age };
    let from = match text(&event["source"]["component"]) {
        component if component.is_empty() => text(&event["reportingComponent"]),
        component => component,
    };
    let message = text(&event["message"]).trim().replace('\n', " ");
    [text(&event["type"]), text(&event["reason"]), age, from, message]
}

fn last_seen(event: &Value) -> Option<Timestamp> {
    let times = [
        &event["series"]["lastObservedTime"],
        &event["lastTimestamp"],
        &event["eventTime"],
        &event["metadata"]["creationTimestamp"],
    ];
    times.iter().find_map(|time| time.as_str()?.parse().ok())
}
