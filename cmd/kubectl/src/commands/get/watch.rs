//! `kubectl get -w`: what is there, then each change; drawn anew in place on a terminal, a line each elsewhere.

use super::{Asked, Flags, TABLE, fetch, rows};
use crate::connection::Connection;
use crate::output::{Output, table};
use crate::select::{self, Target, name_of};
use anyhow::{Result, bail};
use futures::{AsyncBufReadExt, StreamExt};
use serde_json::Value;
use std::io::{IsTerminal, Write};

/// Shows until it is ended.
pub async fn run(connection: &Connection, one: &Asked, flags: &Flags, output: &Output) -> Result<()> {
    let mut select = flags.select.clone();
    if let Some(name) = &one.target.name {
        select.field_selector = Some(format!("metadata.name={name}"));
    }
    let collection = Target { name: None, ..one.target.clone() };
    let path = collection.path(connection, flags.select.all_namespaces && one.target.name.is_none());
    let accept = if output.is_table() { TABLE } else { "application/json" };
    let Some(list) = fetch(connection, one, flags, accept).await? else { return Ok(()) };
    let mut version = list["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
    let mut screen = Screen::new(flags, output, one);
    if !flags.watch_only {
        screen.show_list(&list)?;
    }
    let query = select::query(&select);
    let query = if query.is_empty() { "?".to_owned() } else { format!("{query}&") };
    loop {
        let from = format!("{path}{query}watch=true&allowWatchBookmarks=true&resourceVersion={version}");
        let mut lines = connection.stream(&from, accept).await?.lines();
        while let Some(Ok(line)) = lines.next().await {
            let event: Value = serde_json::from_str(&line)?;
            if event["type"] == "ERROR" {
                bail!("{}", event["object"]["message"].as_str().unwrap_or("the watch failed"));
            }
            let seen = match output.is_table() {
                true => &event["object"]["rows"][0]["object"]["metadata"]["resourceVersion"],
                false => &event["object"]["metadata"]["resourceVersion"],
            };
            if let Some(seen) = seen.as_str().or(event["object"]["metadata"]["resourceVersion"].as_str()) {
                version = seen.to_owned();
            }
            if event["type"] != "BOOKMARK" {
                screen.show_event(event["type"].as_str().unwrap_or_default(), &event["object"])?;
            }
        }
        // The server ends watches now and then.
    }
}

/// What stands on the screen.
struct Screen<'a> {
    flags: &'a Flags,
    output: &'a Output,
    one: &'a Asked,
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
            widths: Vec::new(),
            live: is_live.then(Vec::new),
            header: Vec::new(),
            drawn: 0,
            columns: Vec::new(),
        }
    }

    fn show_list(&mut self, list: &Value) -> Result<()> {
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
