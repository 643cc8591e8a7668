//! What `-o` asks for.

use anyhow::{Context, Result, bail};
use api::jsonpath::JsonPath;
use serde_json::Value;

/// How objects are shown.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Output {
    /// As the server's table.
    #[default]
    Table,
    /// As the server's table, with all columns.
    Wide,
    /// As YAML.
    Yaml,
    /// As JSON.
    Json,
    /// As `kind/name`.
    Name,
    /// As a template's paths say.
    JsonPath(Template),
    /// As a table of own columns.
    CustomColumns(Vec<(String, Template)>),
}

impl Output {
    /// Understands the value of `-o`.
    pub fn parse(text: Option<&str>) -> Result<Output> {
        let text = text.unwrap_or_default();
        let (name, argument) = text.split_once('=').unwrap_or((text, ""));
        Ok(match name {
            "" => Output::Table,
            "wide" => Output::Wide,
            "yaml" => Output::Yaml,
            "json" => Output::Json,
            "name" => Output::Name,
            "jsonpath" => Output::JsonPath(Template::parse(argument)?),
            "jsonpath-file" => {
                let text = std::fs::read_to_string(argument).with_context(|| format!("read {argument}"))?;
                Output::JsonPath(Template::parse(&text)?)
            }
            "custom-columns" => Output::CustomColumns(custom_columns(argument)?),
            _ => bail!(
                "unable to match a printer suitable for the output format {name:?}, allowed formats are: \
                 custom-columns,json,jsonpath,jsonpath-file,name,wide,yaml"
            ),
        })
    }

    /// Whether the server's tables are shown.
    pub fn is_table(&self) -> bool {
        matches!(self, Output::Table | Output::Wide)
    }

    /// An object (or a list) as it is shown; not for tables.
    pub fn show(&self, value: &Value) -> Result<String> {
        Ok(match self {
            Output::Json => serde_json::to_string_pretty(value)? + "\n",
            Output::Yaml => serde_saphyr::to_string(value)?,
            Output::JsonPath(template) => template.render(value),
            Output::CustomColumns(columns) => show_columns(columns, value),
            Output::Name | Output::Table | Output::Wide => bail!("that is not for a single value"),
        })
    }
}

fn custom_columns(spec: &str) -> Result<Vec<(String, Template)>> {
    if spec.is_empty() {
        bail!("custom-columns format specified but no custom columns given");
    }
    spec.split(',')
        .map(|column| {
            let (header, path) = column.split_once(':').with_context(|| {
                format!("unexpected custom-columns spec: {column}, expected <header>:<json-path-expr>")
            })?;
            let path = path.trim_start_matches('{').trim_end_matches('}');
            let path = if path.starts_with('.') || path.starts_with('[') {
                path.to_owned()
            } else {
                format!(".{path}")
            };
            Ok((header.to_owned(), Template::parse(&format!("{{{path}}}"))?))
        })
        .collect()
}

fn show_columns(columns: &[(String, Template)], value: &Value) -> String {
    let items = value["items"].as_array().map_or_else(|| vec![value], |items| items.iter().collect());
    let header = columns.iter().map(|(header, _)| header.clone()).collect();
    let rows = items.into_iter().map(|item| {
        columns
            .iter()
            .map(|(_, template)| match template.find(item).as_slice() {
                [] => "<none>".to_owned(),
                found => found.iter().map(|value| shown(value)).collect::<Vec<_>>().join(","),
            })
            .collect()
    });
    table(&std::iter::once(header).chain(rows).collect::<Vec<Vec<String>>>())
}

/// Rows of cells, aligned; three spaces between columns, as upstream.
pub fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or_default();
    let width =
        |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or_default()).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            line.push_str(cell);
            line.push_str(&" ".repeat(width - cell.chars().count() + 3));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// kubectl's templates: text, `{path}`, `{"text"}`, `{range path}…{end}`.
#[derive(Debug, Clone, PartialEq)]
pub struct Template(Vec<Part>);

#[derive(Debug, Clone, PartialEq)]
enum Part {
    Text(String),
    Path(JsonPath),
    Range(JsonPath, Vec<Part>),
}

impl Template {
    /// Parses a template; one without braces is a path.
    pub fn parse(text: &str) -> Result<Template> {
        if text.is_empty() {
            bail!("template format specified but no template given");
        }
        let braced = if text.contains('{') { text.to_owned() } else { format!("{{{text}}}") };
        let mut rest = braced.as_str();
        let parts = parse_parts(&mut rest, false)?;
        Ok(Template(parts))
    }

    /// The template with the paths' values in it.
    pub fn render(&self, value: &Value) -> String {
        let mut text = String::new();
        render(&self.0, value, &mut text);
        text
    }

    /// What the template's only path finds.
    fn find<'v>(&'v self, value: &'v Value) -> Vec<&'v Value> {
        match self.0.as_slice() {
            [Part::Path(path)] => path.find(value),
            _ => Vec::new(),
        }
    }
}

fn parse_parts(rest: &mut &str, in_range: bool) -> Result<Vec<Part>> {
    let mut parts = Vec::new();
    while !rest.is_empty() {
        let Some(open) = rest.find('{') else {
            parts.push(Part::Text(std::mem::take(rest).to_owned()));
            break;
        };
        if open > 0 {
            parts.push(Part::Text(rest[..open].to_owned()));
        }
        let close = closing_brace(&rest[open..]).context("unclosed action in the template")? + open;
        let action = rest[open + 1..close].trim().to_owned();
        *rest = &rest[close + 1..];
        if action == "end" {
            if in_range {
                return Ok(parts);
            }
            bail!("not in range, nothing to end");
        } else if let Some(path) = action.strip_prefix("range ") {
            let path = JsonPath::parse(path.trim())?;
            parts.push(Part::Range(path, parse_parts(rest, true)?));
        } else if let Some(quoted) = action.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
            parts.push(Part::Text(quoted.replace("\\n", "\n").replace("\\t", "\t").replace("\\\"", "\"")));
        } else {
            parts.push(Part::Path(JsonPath::parse(&action)?));
        }
    }
    if in_range {
        bail!("unmatched range: there is no {{end}}");
    }
    Ok(parts)
}

/// The brace that closes the first one, past quoted text.
fn closing_brace(text: &str) -> Option<usize> {
    let mut quote = None;
    for (at, letter) in text.char_indices() {
        match (quote, letter) {
            (None, '}') => return Some(at),
            (None, '"' | '\'') => quote = Some(letter),
            (Some(open), letter) if open == letter => quote = None,
            _ => {}
        }
    }
    None
}

fn render(parts: &[Part], value: &Value, text: &mut String) {
    for part in parts {
        match part {
            Part::Text(part) => text.push_str(part),
            Part::Path(path) => {
                let found: Vec<String> = path.find(value).iter().map(|value| shown(value)).collect();
                text.push_str(&found.join(" "));
            }
            Part::Range(path, parts) => {
                for found in path.find(value) {
                    match found {
                        Value::Array(items) => items.iter().for_each(|item| render(parts, item, text)),
                        item => render(parts, item, text),
                    }
                }
            }
        }
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "<nil>".to_owned(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn templates_are_kubectls() {
        let list =
            json!({"items": [{"metadata": {"name": "a"}, "n": 1}, {"metadata": {"name": "b"}, "n": 2}]});
        let check = |template: &str, expected: &str| {
            assert_eq!(Template::parse(template).expect(template).render(&list), expected, "{template}");
        };
        check("{.items[*].metadata.name}", "a b");
        check(".items[0].n", "1");
        check("{range .items[*]}{.metadata.name}{\"\\t\"}{.n}{\"\\n\"}{end}", "a\t1\nb\t2\n");
        check("names: {.items[*].metadata.name}", "names: a b");
        assert!(Template::parse("{range .items[*]}{.a}").is_err());
    }

    #[test]
    fn columns_align_and_say_none() {
        let Output::CustomColumns(columns) =
            Output::parse(Some("custom-columns=NAME:.metadata.name,NODE:.spec.nodeName")).expect("columns")
        else {
            panic!("not columns");
        };
        let list = json!({"items": [{"metadata": {"name": "long-name"}, "spec": {"nodeName": "n1"}}, {"metadata": {"name": "b"}}]});
        assert_eq!(show_columns(&columns, &list), "NAME        NODE\nlong-name   n1\nb           <none>\n");
    }
}
