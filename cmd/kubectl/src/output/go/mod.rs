//! Go's templates, as far as `-o go-template` is used for: fields, variables, `range`, `if`, `with`, pipelines and the
//! usual functions. What is not in it is refused when the template is parsed.
//!
//! ```text
//! text ──parse──> [Text | Print | If | Range | With | Set] ──render(value)──> text
//! ```

mod functions;
mod parse;

use anyhow::{Result, bail};
use serde_json::Value;

/// A template, parsed once.
#[derive(Debug, Clone, PartialEq)]
pub struct GoTemplate(Vec<Part>);

#[derive(Debug, Clone, PartialEq)]
enum Part {
    Text(String),
    Print(Pipeline),
    Set { name: String, value: Pipeline, declares: bool },
    If { condition: Pipeline, then: Vec<Part>, otherwise: Vec<Part>, rebinds: bool },
    Range { key: Option<String>, item: Option<String>, over: Pipeline, body: Vec<Part>, otherwise: Vec<Part> },
}

/// Commands, each of which gets the value of the one before as its last argument.
type Pipeline = Vec<Command>;

#[derive(Debug, Clone, PartialEq)]
enum Command {
    Operand(Operand),
    Call(String, Vec<Operand>),
}

#[derive(Debug, Clone, PartialEq)]
struct Operand {
    root: Root,
    fields: Vec<String>,
}

#[derive(Debug, Clone, PartialEq)]
enum Root {
    Dot,
    Variable(String),
    Literal(Value),
    Nested(Pipeline),
}

impl GoTemplate {
    /// Parses a template.
    pub fn parse(text: &str) -> Result<GoTemplate> {
        parse::parse(text).map(GoTemplate)
    }

    /// The template with a value's fields in it.
    pub fn render(&self, value: &Value) -> Result<String> {
        let mut scope = Scope { variables: vec![("$".to_owned(), value.clone())], text: String::new() };
        scope.parts(&self.0, value)?;
        Ok(scope.text)
    }
}

struct Scope {
    variables: Vec<(String, Value)>,
    text: String,
}

impl Scope {
    fn parts(&mut self, parts: &[Part], dot: &Value) -> Result<()> {
        let depth = self.variables.len();
        for part in parts {
            match part {
                Part::Text(text) => self.text.push_str(text),
                Part::Print(pipeline) => {
                    let value = self.pipeline(pipeline, dot)?;
                    self.text.push_str(
                        &value.map_or_else(|| "<no value>".to_owned(), |value| functions::shown(&value)),
                    );
                }
                Part::Set { name, value, declares } => {
                    let value = self.pipeline(value, dot)?.unwrap_or_default();
                    match self.variables.iter_mut().rev().find(|(own, _)| own == name) {
                        Some((_, own)) if !declares => *own = value,
                        None if !declares => bail!("undefined variable {name:?}"),
                        _ => self.variables.push((name.clone(), value)),
                    }
                }
                Part::If { condition, then, otherwise, rebinds } => {
                    let value = self.pipeline(condition, dot)?.unwrap_or_default();
                    if functions::is_true(&value) {
                        self.parts(then, if *rebinds { &value } else { dot })?;
                    } else {
                        self.parts(otherwise, dot)?;
                    }
                }
                Part::Range { key, item, over, body, otherwise } => {
                    let over = self.pipeline(over, dot)?.unwrap_or_default();
                    self.range((key.as_ref(), item.as_ref()), &over, body, otherwise, dot)?;
                }
            }
        }
        self.variables.truncate(depth);
        Ok(())
    }

    fn range(
        &mut self,
        (key, item): (Option<&String>, Option<&String>),
        over: &Value,
        body: &[Part],
        otherwise: &[Part],
        dot: &Value,
    ) -> Result<()> {
        let entries: Vec<(Value, Value)> = match over {
            Value::Array(items) => {
                items.iter().enumerate().map(|(at, item)| (at.into(), item.clone())).collect()
            }
            Value::Object(fields) => {
                fields.iter().map(|(name, value)| (name.clone().into(), value.clone())).collect()
            }
            Value::Number(count) => {
                (0..count.as_i64().unwrap_or_default()).map(|number| (number.into(), number.into())).collect()
            }
            Value::Null => Vec::new(),
            other => bail!("range can't iterate over {}", functions::shown(other)),
        };
        if entries.is_empty() {
            return self.parts(otherwise, dot);
        }
        for (at, value) in entries {
            let depth = self.variables.len();
            self.variables.extend(key.map(|name| (name.clone(), at)));
            self.variables.extend(item.map(|name| (name.clone(), value.clone())));
            self.parts(body, &value)?;
            self.variables.truncate(depth);
        }
        Ok(())
    }

    /// The value of a pipeline; `None` where a field is missing.
    fn pipeline(&mut self, pipeline: &Pipeline, dot: &Value) -> Result<Option<Value>> {
        let mut last: Option<Option<Value>> = None;
        for command in pipeline {
            last = Some(match command {
                Command::Operand(operand) => self.operand(operand, dot)?,
                Command::Call(name, operands) => {
                    let mut arguments = Vec::new();
                    for operand in operands {
                        arguments.push(self.operand(operand, dot)?.unwrap_or_default());
                    }
                    arguments.extend(last.map(Option::unwrap_or_default));
                    Some(functions::call(name, &arguments)?)
                }
            });
        }
        Ok(last.flatten())
    }

    fn operand(&mut self, operand: &Operand, dot: &Value) -> Result<Option<Value>> {
        let mut value = match &operand.root {
            Root::Dot => dot.clone(),
            Root::Literal(value) => value.clone(),
            Root::Nested(pipeline) => match self.pipeline(pipeline, dot)? {
                Some(value) => value,
                None => return Ok(None),
            },
            Root::Variable(name) => match self.variables.iter().rev().find(|(own, _)| own == name) {
                Some((_, value)) => value.clone(),
                None => bail!("undefined variable {name:?}"),
            },
        };
        for field in &operand.fields {
            value = match value {
                Value::Object(mut fields) => match fields.remove(field) {
                    Some(value) => value,
                    None => return Ok(None),
                },
                Value::Null => return Ok(None),
                other => bail!("can't evaluate field {field} in {}", functions::shown(&other)),
            };
        }
        Ok(Some(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn templates_are_rendered_as_go_does() {
        let value = json!({
            "items": [{"metadata": {"name": "a", "labels": {"x": "1"}}, "n": 3}, {"metadata": {"name": "b"}, "n": 4}],
            "data": {"k": "djE="}, "empty": [],
        });
        let check = |template: &str, expected: &str| {
            let rendered = GoTemplate::parse(template).and_then(|parsed| parsed.render(&value));
            assert_eq!(rendered.expect(template), expected, "{template}");
        };
        check("{{range .items}}{{.metadata.name}} {{end}}{{\"\\n\"}}", "a b \n");
        check("{{range $i, $e := .items}}{{$i}}={{$e.metadata.name}};{{end}}", "0=a;1=b;");
        check("{{range $k, $v := .data}}{{$k}}:{{$v | base64decode}}{{end}}", "k:v1");
        check("{{(index .items 0).metadata.name}}", "a");
        check("{{index .items 1 \"metadata\" \"name\"}}", "b");
        check("{{len .items}} {{len .data}}", "2 1");
        check("{{if .empty}}yes{{else if eq (len .items) 2}}two{{else}}no{{end}}", "two");
        check("{{with .data}}{{.k}}{{end}}", "djE=");
        check("{{.none}} {{.none.deeper}}", "<no value> <no value>");
        check("{{range .empty}}x{{else}}none{{end}}", "none");
        check("{{printf \"%s-%d %v %q %5d|\" .data.k 7 true \"x\" 3}}", "djE=-7 true \"x\"     3|");
        check("{{println \"a\" 1}}", "a 1\n");
        check("a {{- /* gone */ -}} b", "ab");
        check("{{$n := 0}}{{range .items}}{{$n = .n}}{{end}}{{$n}}", "4");
        check("{{range .items}}{{if and .metadata.labels (gt .n 2)}}{{.metadata.name}}{{end}}{{end}}", "a");
        check("{{.data}} {{(index .items 0).metadata}}", "map[k:djE=] map[labels:map[x:1] name:a]");
        check("{{if not (eq .data.k \"x\" \"djE=\")}}a{{else}}b{{end}}", "b");
        check("{{exists . \"data\" \"k\"}} {{exists . \"data\" \"q\"}}", "true false");
    }

    #[test]
    fn what_is_wrong_is_refused() {
        for wrong in [
            "{{",
            "{{range .a}}",
            "{{end}}",
            "{{nofunc .a}}",
            "{{.a | }}",
            "{{if}}x{{end}}",
            "{{template \"x\"}}",
            "{{\"a}}",
        ] {
            assert!(GoTemplate::parse(wrong).is_err(), "{wrong}");
        }
    }
}
