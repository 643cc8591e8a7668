//! `kubectl get -w`: what is there, then each change; drawn anew in place on a terminal, a line each elsewhere.

use super::{Asked, Flags, TABLE, fetch, rows};
use crate::connection::{Connection, is_history};
use crate::output::{Output, table};
use crate::select::{self, Target, name_of};
use anyhow::Result;
use futures::TryStreamExt;
use serde_json::Value;
use std::io::{IsTerminal, Write};

/// Shows until it is ended.
pub async fn run(connection: &Connection, one: &Asked, flags: &Flags, output: &Output) -> Result<()> {
    let mut select = flags.select.clone();
    if let Some(name) = &one.target.name {
        select.field_selector = Some(format!("metadata.name={name}"));
    }
    let collection = Target { name: None, asked: None, ..one.target.clone() };
    let path = collection.path(connection, flags.select.all_namespaces && one.target.name.is_none());
    let accept = if output.is_table() { TABLE } else { "application/json" };
    let mut screen = Screen::new(flags, output, one);
    let mut is_first = true;
    let query = select::query(&select);
    let query = if query.is_empty() { "?".to_owned() } else { format!("{query}&") };
    loop {
        let Some(list) = fetch(connection, one, flags, accept).await? else { return Ok(()) };
        // Again, when the server has forgotten how things were: then what has changed is not known, and all is shown.
        if !(std::mem::take(&mut is_first) && flags.watch_only) {
            screen.show_list(&list)?;
        }
        // The version of one object may be history already; then its present state comes first, which is known.
        let mut version = if one.target.name.is_some() { "0" } else { version_of(&list) }.to_owned();
        screen.shown = version_of(&list).to_owned();
        let from = format!("{path}{query}watch=true&allowWatchBookmarks=true&resourceVersion=");
        let ended = loop {
            // The server ends watches now and then.
            if let Err(error) = show_events(connection, &from, accept, &mut version, &mut screen).await {
                break error;
            }
        };
        if !is_history(&ended) {
            return Err(ended);
        }
    }
}

/// Shows what changes from a version on, until the watch ends.
async fn show_events(
    connection: &Connection,
    from: &str,
    accept: &str,
    version: &mut String,
    screen: &mut Screen<'_>,
) -> Result<()> {
    let events = connection.watch(&format!("{from}{version}"), accept).await?;
    let mut events = std::pin::pin!(events);
    while let Some(event) = events.try_next().await? {
        let seen = version_of(&event["object"]);
        if !seen.is_empty() {
            *version = seen.to_owned();
        }
        if event["type"] != "BOOKMARK" && seen != screen.shown {
            screen.show_event(event["type"].as_str().unwrap_or_default(), &event["object"])?;
        }
    }
    Ok(())
}

/// The version of an object or a list, as itself or as a table.
fn version_of(told: &Value) -> &str {
    let own = told["metadata"]["resourceVersion"].as_str().filter(|version| !version.is_empty());
    let row = || told["rows"][0]["object"]["metadata"]["resourceVersion"].as_str();
    own.or_else(row).unwrap_or_default()
}

/// What stands on the screen.
struct Screen<'a> {
    flags: &'a Flags,
    output: &'a Output,
    one: &'a Asked,
    /// The version that was listed.
    shown: String,
    widths: Vec<usize>,
    /// On a terminal: all rows, by the object's uid.
    live: Option<Vec<(String, Vec<String>)>>,
    header: Vec<String>,
    drawn: usize,
    columns: Vec<Value>,
}

impl<'a> Screen<'a> {
    fn new(flags: &'a Flags, output: &'a Output, one: &'a Asked) -> Screen<'a> {
        let is_live = output.is_table()
            && std::io::stdout().is_terminal()
            && !flags.output_watch_events
            && !flags.watch_only;
        Screen {
            flags,
            output,
            one,
            shown: String::new(),
            widths: Vec::new(),
            live: is_live.then(Vec::new),
            header: Vec::new(),
            drawn: 0,
            columns: Vec::new(),
        }
    }

    fn show_list(&mut self, list: &Value) -> Result<()> {
        self.live.iter_mut().for_each(Vec::clear);
        if !self.output.is_table() {
            let items = match list["items"].as_array() {
                Some(items) => items.clone(),
                None => vec![list.clone()],
            };
            return items.iter().try_for_each(|item| self.show_event("ADDED", item));
        }
        self.show_rows("ADDED", list)
    }

    fn show_event(&mut self, kind: &str, object: &Value) -> Result<()> {
        if self.output.is_table() {
            return self.show_rows(kind, object);
        }
        let mut object = object.clone();
        if !self.flags.show_managed_fields {
            object["metadata"].as_object_mut().map(|metadata| metadata.remove("managedFields"));
        }
        match self.output {
            Output::Name => println!("{}", self.one.target.resource.named(name_of(&object))),
            Output::Yaml => print!("---\n{}", self.output.show(&object)?),
            output => print!("{}", output.show(&object)?),
        }
        std::io::stdout().flush()?;
        Ok(())
    }

    fn show_rows(&mut self, kind: &str, found: &Value) -> Result<()> {
        // Only the first table of a watch says what its columns are.
        let mut found = found.clone();
        match found["columnDefinitions"].as_array() {
            Some(columns) if !columns.is_empty() => self.columns = columns.clone(),
            _ => found["columnDefinitions"] = self.columns.clone().into(),
        }
        let uids: Vec<String> = found["rows"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|row| row["object"]["metadata"]["uid"].as_str().unwrap_or_default().to_owned())
            .collect();
        let resource = &self.one.target.resource;
        let wide = *self.output == Output::Wide;
        let mut rows =
            rows::rows(std::slice::from_ref(&found), resource, self.flags, wide, self.flags.show_kind);
        if rows.is_empty() {
            return Ok(());
        }
        let header = rows.remove(0);
        if self.live.is_some() {
            self.header = header;
            for (uid, row) in uids.into_iter().zip(rows) {
                self.remember(kind, uid, row);
            }
            return self.draw();
        }
        let with_event = |mut row: Vec<String>, kind: &str| {
            if self.flags.output_watch_events {
                row.insert(0, kind.to_owned());
            }
            row
        };
        let mut all: Vec<Vec<String>> = rows.into_iter().map(|row| with_event(row, kind)).collect();
        if self.widths.is_empty() && !self.flags.no_headers && !all.is_empty() {
            all.insert(0, with_event(header, "EVENT"));
        }
        widen(&mut self.widths, &all);
        let mut out = std::io::stdout().lock();
        for row in &all {
            writeln!(out, "{}", aligned(row, &self.widths))?;
        }
        out.flush()?;
        Ok(())
    }

    fn remember(&mut self, kind: &str, uid: String, row: Vec<String>) {
        let Some(live) = &mut self.live else { return };
        let at = live.iter().position(|(own, _)| *own == uid);
        match (at, kind) {
            (Some(at), "DELETED") => drop(live.remove(at)),
            (Some(at), _) => live[at].1 = row,
            (None, "DELETED") => {}
            (None, _) => live.push((uid, row)),
        }
    }

    /// Draws everything anew over what was drawn. More rows than the terminal has are not shown.
    fn draw(&mut self) -> Result<()> {
        let Some(live) = &self.live else { return Ok(()) };
        let (height, width) = cli::terminal_size();
        let mut rows = Vec::new();
        if !self.flags.no_headers {
            rows.push(self.header.clone());
        }
        let fits = height.saturating_sub(3).max(1);
        rows.extend(live.iter().take(fits).map(|(_, row)| row.clone()));
        let mut text: String =
            table(&rows).lines().map(|line| line.chars().take(width).collect::<String>() + "\n").collect();
        if live.len() > fits {
            text.push_str(&format!("… and {} more\n", live.len() - fits));
        }
        let mut out = std::io::stdout().lock();
        if self.drawn > 0 {
            write!(out, "\u{1b}[{}A\u{1b}[J", self.drawn)?;
        }
        out.write_all(text.as_bytes())?;
        out.flush()?;
        self.drawn = text.lines().count();
        Ok(())
    }
}

fn widen(widths: &mut Vec<usize>, rows: &[Vec<String>]) {
    for row in rows {
        widths.resize(row.len().max(widths.len()), 0);
        for (cell, width) in row.iter().zip(widths.iter_mut()) {
            *width = (*width).max(cell.chars().count());
        }
    }
}

/// A line under lines that are written already: columns are as wide as they have become.
fn aligned(row: &[String], widths: &[usize]) -> String {
    let last = row.len().saturating_sub(1);
    let cells = row.iter().zip(widths).enumerate().map(|(index, (cell, width))| {
        if index == last { cell.clone() } else { format!("{cell:<width$}   ") }
    });
    cells.collect()
}
