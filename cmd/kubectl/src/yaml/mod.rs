//! YAML as it stands in a file: a tree of nodes that know their line and column, and what plain words mean.
//!
//! ```text
//! text ──parse──> Node ──resolve(schema)──> JSON            `on`, `yes`, `0644` mean what the schema says
//!                   └────locate("spec.ports[0].port")──> line and column
//! JSON ──emit──> text, as upstream's kubectl writes it
//! ```
//!
//! Plain words that YAML 1.1 and 1.2 read differently are *traps*: they are decided by the schema of the field they stand
//! in, and as YAML 1.1 (upstream's way) where no schema says anything. Nothing here reads files or asks the server.

mod emit;
mod kyaml;
mod parse;
mod scalar;

pub use emit::emit;
pub use kyaml::emit as emit_kyaml;
pub use parse::parse;
pub use scalar::Wanted;

use serde_json::{Map, Value};

/// A line and a column, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Mark {
    /// The line.
    pub line: usize,
    /// The column.
    pub column: usize,
}

/// A value of a file, and where it stands.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// What it is.
    pub content: Content,
    /// Where it begins.
    pub at: Mark,
}

/// What stands at a place.
#[derive(Debug, Clone, PartialEq)]
pub enum Content {
    /// A word; a plain one may mean a number or a boolean.
    Scalar {
        /// The text, without quotes.
        text: String,
        /// It stood without quotes.
        plain: bool,
    },
    /// A list.
    List(Vec<Node>),
    /// Fields, each with the place of its name.
    Map(Vec<(String, Mark, Node)>),
}

/// What a schema says of a value, as far as reading YAML needs it.
pub trait Shape: Copy {
    /// What a scalar here should be.
    fn wanted(self) -> Wanted;
    /// The shape of a field.
    fn field(self, name: &str) -> Self;
    /// The shape of a list's elements.
    fn element(self) -> Self;
}

/// Where nothing is known.
#[derive(Clone, Copy)]
pub struct Unknown;

impl Shape for Unknown {
    fn wanted(self) -> Wanted {
        Wanted::Anything
    }
    fn field(self, _: &str) -> Unknown {
        Unknown
    }
    fn element(self) -> Unknown {
        Unknown
    }
}

impl Node {
    /// The node of a field.
    pub fn get(&self, field: &str) -> Option<&Node> {
        match &self.content {
            Content::Map(fields) => fields.iter().find(|(name, ..)| name == field).map(|(.., node)| node),
            _ => None,
        }
    }

    /// The text of a scalar.
    pub fn text(&self) -> Option<&str> {
        match &self.content {
            Content::Scalar { text, .. } => Some(text),
            _ => None,
        }
    }

    /// Whether the schema is needed to read it.
    pub fn has_traps(&self) -> bool {
        match &self.content {
            Content::Scalar { text, plain } => *plain && scalar::is_trap(text),
            Content::List(items) => items.iter().any(Node::has_traps),
            Content::Map(fields) => fields.iter().any(|(.., node)| node.has_traps()),
        }
    }

    /// The value, by what a schema says of it.
    pub fn resolve(&self, shape: impl Shape) -> Value {
        match &self.content {
            Content::Scalar { text, plain: false } => text.clone().into(),
            Content::Scalar { text, plain: true } => scalar::resolve(text, shape.wanted()),
            Content::List(items) => {
                Value::Array(items.iter().map(|item| item.resolve(shape.element())).collect())
            }
            Content::Map(fields) => {
                let fields =
                    fields.iter().map(|(name, _, node)| (name.clone(), node.resolve(shape.field(name))));
                Value::Object(fields.collect::<Map<String, Value>>())
            }
        }
    }

    /// Where a path such as `spec.ports[0].port` stands, or the deepest part of it that does, and whether all of it does.
    pub fn locate(&self, path: &str) -> (Mark, bool) {
        let mut found = (self.at, self);
        for step in steps(path) {
            let next = match (&found.1.content, step.parse::<usize>()) {
                (Content::Map(fields), _) => {
                    fields.iter().find(|(name, ..)| *name == step).map(|(_, at, node)| (*at, node))
                }
                (Content::List(items), Ok(index)) => items.get(index).map(|node| (node.at, node)),
                _ => None,
            };
            match next {
                Some(next) => found = next,
                None => return (found.0, false),
            }
        }
        (found.0, true)
    }
}

/// The steps of a path of an API error: `a.b[0].c`, `metadata.labels[x/y]`, `.a.b`.
pub fn steps(path: &str) -> Vec<String> {
    raw_steps(path).into_iter().map(|step| step.trim_matches('"').to_owned()).collect()
}

/// The steps of a path, quotes of keys and all.
pub fn raw_steps(path: &str) -> Vec<String> {
    let mut steps = vec![String::new()];
    let mut in_brackets = false;
    for letter in path.trim_start_matches('.').chars() {
        match letter {
            '.' if !in_brackets => steps.push(String::new()),
            '[' if !in_brackets => {
                in_brackets = true;
                steps.push(String::new());
            }
            ']' if in_brackets => in_brackets = false,
            letter => {
                if let Some(step) = steps.last_mut() {
                    step.push(letter);
                }
            }
        }
    }
    steps.retain(|step| !step.is_empty());
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_found_where_they_stand() {
        let text =
            "kind: Pod\nspec:\n  containers:\n  - name: a\n    ports:\n    - containerPort: x\n  'b.c': 1\n";
        let node = parse(text).expect("readable").expect("something");
        let at = |path: &str| {
            let (mark, whole) = node.locate(path);
            (mark.line, mark.column, whole)
        };
        assert_eq!(at("spec.containers[0].ports[0].containerPort"), (6, 7, true));
        assert_eq!(at(".spec.containers[0].image"), (4, 5, false));
        assert_eq!(at("spec[b.c]"), (7, 3, true));
        assert_eq!(at("status"), (1, 1, false));
    }
}
