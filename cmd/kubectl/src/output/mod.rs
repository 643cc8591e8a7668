//! What `-o` asks for.

mod go;

use anyhow::{Context, Result, bail};
use api::jsonpath::JsonPath;
use go::GoTemplate;
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
    /// As YAML in brackets.
    Kyaml,
    /// As JSON.
    Json,
    /// As `kind/name`.
    Name,
    /// As a template's paths say.
    JsonPath(Template),
    /// What a path finds, as a list.
    JsonPathAsJson(Template),
    /// As a table of own columns.
    CustomColumns(Vec<(String, Template)>),
    /// As a Go template says.
    GoTemplate(GoTemplate),
}

impl Output {
    /// Understands the value of `-o`.
    pub fn parse(text: Option<&str>) -> Result<Output> {
        Output::parse_with(text, None)
    }

    /// Understands the values of `-o` and `--template`.
    pub fn parse_with(text: Option<&str>, template: Option<&str>) -> Result<Output> {
        let text = text.unwrap_or(if template.is_some() { "go-template" } else { "" });
        let (name, argument) = text.split_once('=').unwrap_or((text, template.unwrap_or_default()));
        let read = |file: &str| std::fs::read_to_string(file).with_context(|| format!("read {file}"));
        Ok(match name {
            "" => Output::Table,
            "wide" => Output::Wide,
            "yaml" => Output::Yaml,
            "kyaml" => Output::Kyaml,
            "json" => Output::Json,
            "name" => Output::Name,
            "jsonpath" => Output::JsonPath(json_path(argument)?),
            "jsonpath-as-json" => Output::JsonPathAsJson(json_path(argument)?),
            "jsonpath-file" => Output::JsonPath(json_path(&read(argument)?)?),
            "custom-columns" => Output::CustomColumns(custom_columns(argument)?),
            "custom-columns-file" => {
                Output::CustomColumns(custom_columns(&columns_of_file(&read(argument)?)?)?)
            }
            "go-template" | "template" if argument.is_empty() => {
                bail!("template format specified but no template given")
            }
            "go-template" | "template" => {
                Output::GoTemplate(GoTemplate::parse(argument).context("error parsing template")?)
            }
            "go-template-file" | "templatefile" => {
                Output::GoTemplate(GoTemplate::parse(&read(argument)?).context("error parsing template")?)
            }
            _ => bail!(
                "unable to match a printer suitable for the output format {name:?}, allowed formats are: \
                 custom-columns,custom-columns-file,go-template,go-template-file,json,jsonpath,jsonpath-as-json,jsonpath-file,kyaml,name,template,templatefile,wide,yaml"
            ),
        })
    }

    /// Whether the server's tables are shown.
    pub fn is_table(&self) -> bool {
        matches!(self, Output::Table | Output::Wide)
    }

    /// As `show`; own columns may be without their header.
    pub fn show_columns_or(&self, value: &Value, without_header: bool) -> Result<String> {
        match self {
            Output::CustomColumns(columns) => Ok(show_columns(columns, value, without_header)),
            output => output.show(value),
        }
    }

    /// An object (or a list) as it is shown; not for tables.
    pub fn show(&self, value: &Value) -> Result<String> {
        Ok(match self {
            Output::Json => json(value)? + "\n",
            Output::Yaml => crate::yaml::emit(value),
            Output::Kyaml => crate::yaml::emit_kyaml(value),
            Output::JsonPath(template) => template.render(value),
            Output::JsonPathAsJson(template) => {
                json(&template.find(value).into_iter().cloned().collect())? + "\n"
            }
            Output::CustomColumns(columns) => show_columns(columns, value, false),
            Output::GoTemplate(template) => template.render(value).context("error executing template")?,
            Output::Name | Output::Table | Output::Wide => bail!("that is not for a single value"),
        })
    }
}

/// JSON as upstream writes it: four spaces, and `<`, `>`, `&` as Go escapes them.
pub fn json(value: &Value) -> Result<String> {
    let mut bytes = Vec::new();
    let formatter = serde_json::ser::PrettyFormatter::with_indent(b"    ");
    let mut serializer = serde_json::Serializer::with_formatter(&mut bytes, formatter);
    serde::Serialize::serialize(value, &mut serializer)?;
    Ok(escaped(&String::from_utf8(bytes)?))
}

/// These stand only inside of strings in JSON.
fn escaped(json: &str) -> String {
    json.replace('&', "\\u0026").replace('<', "\\u003c").replace('>', "\\u003e")
}

fn json_path(text: &str) -> Result<Template> {
    Template::parse(text).with_context(|| format!("error parsing jsonpath {text}"))
}

/// A file with a line of headers and a line of paths.
fn columns_of_file(text: &str) -> Result<String> {
    let mut lines = text.lines();
    let headers = lines.next().unwrap_or_default().split_whitespace();
    let paths: Vec<&str> = lines.next().unwrap_or_default().split_whitespace().collect();
    let columns: Vec<String> = headers.zip(&paths).map(|(header, path)| format!("{header}:{path}")).collect();
    if columns.is_empty() || columns.len() != paths.len() {
        bail!("a file of custom columns has a line of headers and a line of as many paths");
    }
    Ok(columns.join(","))
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

fn show_columns(columns: &[(String, Template)], value: &Value, without_header: bool) -> String {
    let items = value["items"].as_array().map_or_else(|| vec![value], |items| items.iter().collect());
    let header = columns.iter().map(|(header, _)| header.clone()).collect();
    let rows = items.into_iter().map(|item| {
        columns
            .iter()
            .map(|(_, template)| match template.find(item).as_slice() {
                [] => "<none>".to_owned(),
                found => found.iter().map(|value| go_shown(value)).collect::<Vec<_>>().join(","),
            })
            .collect()
    });
    table(
        &std::iter::once(header).chain(rows).skip(usize::from(without_header)).collect::<Vec<Vec<String>>>(),
    )
}

pub use cli::table;

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
        } else if let Some(quoted) = unquoted(&action) {
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

fn unquoted(action: &str) -> Option<&str> {
    let inner = |quote: char| action.strip_prefix(quote)?.strip_suffix(quote);
    inner('"').or_else(|| inner('\''))
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

/// A value as Go prints it: `map[a:b]`, `[a b]`.
fn go_shown(value: &Value) -> String {
    match value {
        Value::Array(items) => {
            format!("[{}]", items.iter().map(go_shown).collect::<Vec<_>>().join(" "))
        }
        Value::Object(fields) => {
            let fields: Vec<String> =
                fields.iter().map(|(name, value)| format!("{name}:{}", go_shown(value))).collect();
            format!("map[{}]", fields.join(" "))
        }
        value => shown(value),
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "<nil>".to_owned(),
        other => escaped(&other.to_string()),
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
        check("{.items[0].n}{'\\n'}", "1\n");
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
        assert_eq!(
            show_columns(&columns, &list, false),
            "NAME        NODE\nlong-name   n1\nb           <none>\n"
        );
    }
}
