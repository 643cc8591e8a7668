//! Text → nodes.

use super::{Content, Mark, Node};
use granit_parser::{Event, Parser, ScalarStyle, ScanError, Span};
use std::collections::HashMap;

/// What is wrong with a text, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct YamlError {
    /// Where.
    pub at: Mark,
    /// What.
    pub what: String,
}

/// References multiply: a text of a few lines could otherwise fill the memory.
const MOST_NODES: usize = 1_000_000;
/// Nobody nests deeper.
const MOST_DEPTH: usize = 200;

/// The only document of a text; `None` if there is nothing in it.
pub fn parse(text: &str) -> Result<Option<Node>, YamlError> {
    let mut builder = Builder { parser: Parser::new_from_str(text), anchors: HashMap::new(), nodes: 0 };
    builder.document()
}

struct Builder<'a, P: Iterator<Item = Result<(Event<'a>, Span), ScanError>>> {
    parser: P,
    anchors: HashMap<usize, Node>,
    nodes: usize,
}

impl<'a, P: Iterator<Item = Result<(Event<'a>, Span), ScanError>>> Builder<'a, P> {
    fn document(&mut self) -> Result<Option<Node>, YamlError> {
        let mut found = None;
        loop {
            let (event, at) = self.next()?;
            match event {
                Event::StreamEnd => return Ok(found),
                Event::StreamStart | Event::DocumentStart(..) | Event::DocumentEnd => {}
                _ if found.is_some() => return Err(error(at, "expected one document")),
                event => found = Some(self.node(event, at, 0)?),
            }
        }
    }

    fn next(&mut self) -> Result<(Event<'a>, Mark), YamlError> {
        loop {
            match self.parser.next() {
                Some(Ok((Event::Comment(..) | Event::Anchor(..), _))) => {}
                Some(Ok((event, span))) => {
                    return Ok((event, Mark { line: span.start.line(), column: span.start.col() + 1 }));
                }
                Some(Err(failed)) => {
                    let at = Mark { line: failed.marker().line(), column: failed.marker().col() + 1 };
                    return Err(error(at, &failed.info()));
                }
                None => return Ok((Event::StreamEnd, Mark::default())),
            }
        }
    }

    fn node(&mut self, event: Event<'a>, at: Mark, depth: usize) -> Result<Node, YamlError> {
        self.nodes += 1;
        if self.nodes > MOST_NODES || depth > MOST_DEPTH {
            return Err(error(at, "this is nested or repeated too often"));
        }
        let (content, anchor) = match event {
            Event::Scalar(text, style, anchor, tag) => {
                let is_text = tag.is_some_and(|tag| matches!(tag.suffix(), "str" | "binary"));
                let plain = style == ScalarStyle::Plain && !is_text;
                (Content::Scalar { text: text.into_owned(), plain }, anchor)
            }
            Event::SequenceStart(_, anchor, _) => (Content::List(self.list(depth)?), anchor),
            Event::MappingStart(_, anchor, _) => (Content::Map(self.map(depth)?), anchor),
            Event::Alias(anchor) => {
                let node = self.anchors.get(&anchor).cloned();
                let node = node.ok_or_else(|| error(at, "a reference inside of what it refers to"))?;
                self.nodes += size(&node);
                return Ok(Node { at, ..node });
            }
            _ => return Err(error(at, "expected a value")),
        };
        let node = Node { content, at };
        if anchor > 0 {
            self.anchors.insert(anchor, node.clone());
        }
        Ok(node)
    }

    fn list(&mut self, depth: usize) -> Result<Vec<Node>, YamlError> {
        let mut items = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd, _) => return Ok(items),
                (event, at) => items.push(self.node(event, at, depth + 1)?),
            }
        }
    }

    fn map(&mut self, depth: usize) -> Result<Vec<(String, Mark, Node)>, YamlError> {
        let mut fields: Vec<(String, Mark, Node)> = Vec::new();
        let mut merged = Vec::new();
        loop {
            let (event, at) = self.next()?;
            if event == Event::MappingEnd {
                break;
            }
            let key = self.node(event, at, depth + 1)?;
            let Content::Scalar { text: name, plain } = key.content else {
                return Err(error(at, "a field's name must be text"));
            };
            let (event, value_at) = self.next()?;
            let value = self.node(event, value_at, depth + 1)?;
            if name == "<<" && plain {
                merged.push(value);
            } else if fields.iter().any(|(other, ..)| *other == name) {
                return Err(error(at, &format!("the field {name:?} is there twice")));
            } else {
                fields.push((name, at, value));
            }
        }
        // What is said here wins over what is merged in.
        for node in merged {
            for (name, at, value) in merged_fields(node)? {
                if !fields.iter().any(|(other, ..)| *other == name) {
                    fields.push((name, at, value));
                }
            }
        }
        Ok(fields)
    }
}

fn merged_fields(node: Node) -> Result<Vec<(String, Mark, Node)>, YamlError> {
    match node.content {
        Content::Map(fields) => Ok(fields),
        Content::List(nodes) => {
            let mut all = Vec::new();
            for node in nodes {
                all.extend(merged_fields(node)?);
            }
            Ok(all)
        }
        Content::Scalar { .. } => Err(error(node.at, "<< merges fields, and this has none")),
    }
}

fn size(node: &Node) -> usize {
    1 + match &node.content {
        Content::Scalar { .. } => 0,
        Content::List(items) => items.iter().map(size).sum(),
        Content::Map(fields) => fields.iter().map(|(.., node)| size(node)).sum(),
    }
}

fn error(at: Mark, what: &str) -> YamlError {
    YamlError { at, what: what.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::super::Unknown;
    use super::*;
    use serde_json::{Value, json};

    fn check(text: &str, expected: Value) {
        let node = parse(text).expect(text).expect("something");
        assert_eq!(node.resolve(Unknown), expected, "{text}");
    }

    #[test]
    fn yaml_is_read() {
        check(
            "a: [1, \"2\", 'x', null]\nb: {c: true}\n",
            json!({"a": [1, "2", "x", null], "b": {"c": true}}),
        );
        check("a: |\n  one\n  two\nb: >-\n  x\n  y\n", json!({"a": "one\ntwo\n", "b": "x y"}));
        check("{\"a\": {\"b\": [1]}}", json!({"a": {"b": [1]}}));
        check("a: !!str 1\n", json!({"a": "1"}));
        check("a:\nb: 1\n", json!({"a": null, "b": 1}));
        check("on: 1\n", json!({"on": 1}));
        assert_eq!(parse("# nothing\n"), Ok(None));
    }

    #[test]
    fn references_and_merges_are_followed() {
        check("a: &x {b: 1, c: 2}\nd: *x\n", json!({"a": {"b": 1, "c": 2}, "d": {"b": 1, "c": 2}}));
        check(
            "a: &x {b: 1, c: 2}\nd: {<<: *x, c: 3}\n",
            json!({"a": {"b": 1, "c": 2}, "d": {"b": 1, "c": 3}}),
        );
    }

    #[test]
    fn what_is_wrong_is_said_where_it_stands() {
        let check = |text: &str, line: usize, column: usize, what: &str| {
            let error = parse(text).expect_err(text);
            assert_eq!((error.at.line, error.at.column), (line, column), "{text}: {error}");
            assert!(error.what.contains(what), "{}", error.what);
        };
        check("a: 1\na: 2\n", 2, 1, "\"a\" is there twice");
        check("a: 1\n b: 2\n", 2, 3, "");
        let laughs: String = std::iter::once("a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n".to_owned())
            .chain((1..9).map(|n| {
                let before = format!("*a{},", n - 1).repeat(10);
                format!("a{n}: &a{n} [{before}]\n")
            }))
            .collect();
        assert!(parse(&laughs).expect_err("too much").what.contains("too often"));
    }
}
