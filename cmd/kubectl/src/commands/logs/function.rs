//! `kubectl logs func/NAME`: what all pods of a function have written, in order, also those that are gone.

use super::Flags;
use crate::connection::{Connection, Refusal, is_not_found};
use crate::pods;
use crate::select::{encode, name_of};
use anyhow::{Context, Result, bail};
use api::dialect::map_name;
use http::Method;
use jiff::{SignedDuration, Timestamp};
use std::collections::HashSet;
use std::io::Write;
use std::time::Duration;

/// The label of what belongs to a function, and the container that runs it.
const FUNCTION: &str = "minik8s.io/function";
const CONTAINER: &str = "function";
/// Between two looks at what is new.
const PAUSE: Duration = Duration::from_millis(500);
/// What is written may be heard of so much later.
const SPARE: SignedDuration = SignedDuration::from_secs(5);

/// A line of a pod.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Line {
    time: Timestamp,
    pod: String,
    text: String,
}

/// The function that a word names, if it names one.
pub fn named(word: &str) -> Option<&str> {
    let (kind, name) = word.split_once('/')?;
    let is_function = matches!(
        kind,
        "func" | "fn" | "function" | "functions" | "functions.minik8s.io" | "function.minik8s.io"
    );
    is_function.then_some(name)
}

/// Shows.
pub async fn run(connection: &Connection, name: &str, flags: &Flags) -> Result<()> {
    if flags.previous || flags.limit_bytes.is_some() || flags.all_containers || flags.selector.is_some() {
        bail!(
            "--previous, --limit-bytes, --all-containers and -l do not go with a function: name its pod for them"
        );
    }
    let name = map_name(name);
    let path = format!("/apis/minik8s.io/v1/namespaces/{}/functions/{name}", connection.namespace);
    connection.get(&path).await?;
    let since = since(flags)?;
    let mut lines = lines(connection, &path, &name, since).await?;
    lines.retain(|line| is_wanted(line, flags));
    if let Some(most) = flags.tail.and_then(|tail| usize::try_from(tail).ok()) {
        lines.drain(..lines.len().saturating_sub(most));
    }
    show(&lines, flags)?;
    if !flags.follow {
        return Ok(());
    }
    let mut shown: HashSet<Line> = lines.into_iter().collect();
    let mut from = Timestamp::now();
    loop {
        tokio::time::sleep(PAUSE).await;
        let now = Timestamp::now();
        let mut new = self::lines(connection, &path, &name, Some(from - SPARE)).await?;
        new.retain(|line| is_wanted(line, flags) && line.time >= from - SPARE && !shown.contains(line));
        show(&new, flags)?;
        shown.retain(|line| line.time >= from - SPARE);
        shown.extend(new);
        from = now;
    }
}

fn since(flags: &Flags) -> Result<Option<Timestamp>> {
    match (&flags.since, &flags.since_time) {
        (Some(since), _) => Ok(Timestamp::now().checked_sub(*since).ok()),
        (None, Some(time)) => Ok(Some(time.parse().with_context(|| format!("--since-time {time}"))?)),
        (None, None) => Ok(None),
    }
}

fn is_wanted(line: &Line, flags: &Flags) -> bool {
    flags.request_id.as_ref().is_none_or(|id| {
        line.text
            .strip_prefix('[')
            .and_then(|rest| rest.strip_prefix(id.as_str()))
            .is_some_and(|rest| rest.starts_with(']'))
    })
}

/// All lines since a time, in the order in which they were written.
async fn lines(
    connection: &Connection,
    function: &str,
    name: &str,
    since: Option<Timestamp>,
) -> Result<Vec<Line>> {
    let gone =
        connection.text(Method::GET, &format!("{function}/log"), "application/json", None, "*/*").await;
    let gone = gone.unwrap_or_else(|error| {
        eprintln!("Warning: what pods wrote that are gone cannot be read now: {error:#}");
        String::new()
    });
    let mut found: Vec<Line> = gone
        .lines()
        .filter_map(|line| line.split_once(' '))
        .filter_map(|(pod, line)| parse(pod, line))
        .collect();
    let query = since.map_or_else(String::new, |since| {
        format!("&sinceTime={}", encode(&since.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()))
    });
    for pod in pods::selected(connection, &format!("{FUNCTION}={name}")).await? {
        let pod = name_of(&pod);
        let path =
            format!("{}/log?container={CONTAINER}&timestamps=true{query}", pods::path(connection, pod));
        match connection.text(Method::GET, &path, "application/json", None, "*/*").await {
            Ok(text) => found.extend(text.lines().filter_map(|line| parse(pod, line))),
            // It has gone meanwhile, or has not begun to run: there is nothing to be read.
            Err(error) if is_not_found(&error) || error.downcast_ref::<Refusal>().is_some() => {}
            Err(error) => return Err(error),
        }
    }
    found.retain(|line| since.is_none_or(|since| line.time >= since));
    found.sort();
    found.dedup();
    Ok(found)
}

fn parse(pod: &str, line: &str) -> Option<Line> {
    let (time, text) = line.split_once(' ').unwrap_or((line, ""));
    Some(Line { time: time.parse().ok()?, pod: pod.to_owned(), text: text.to_owned() })
}

fn show(lines: &[Line], flags: &Flags) -> Result<()> {
    let mut out = std::io::stdout().lock();
    for Line { time, pod, text } in lines {
        if flags.prefix {
            write!(out, "[pod/{pod}/{CONTAINER}] ")?;
        }
        if flags.timestamps {
            write!(out, "{time} ")?;
        }
        writeln!(out, "{text}")?;
    }
    out.flush()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_is_named_by_any_of_its_names() {
        assert_eq!(named("func/add"), Some("add"));
        assert_eq!(named("functions.minik8s.io/add"), Some("add"));
        assert_eq!((named("pod/add"), named("func")), (None, None));
    }

    #[test]
    fn lines_are_in_the_order_of_their_times() {
        let mut lines: Vec<Line> =
            ["2026-01-01T00:00:00.5Z two", "2026-01-01T00:00:00.123456789Z one", "no time"]
                .iter()
                .filter_map(|line| parse("p", line))
                .collect();
        lines.sort();
        assert_eq!(lines.iter().map(|line| line.text.as_str()).collect::<Vec<_>>(), ["one", "two"]);
    }
}
