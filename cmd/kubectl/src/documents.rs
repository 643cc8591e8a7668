//! Files of objects: YAML or JSON, several documents in one, folders, globs, URLs, standard input. What is wrong is named
//! by file, line and column.

use crate::yaml::{self, Content, Mark, Node, Unknown};
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};

/// One object, and where it stands.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    /// The object, read without a schema.
    pub value: Value,
    /// The object as it stands in the file.
    pub node: Node,
    /// Where it was read.
    pub place: Place,
}

/// Where a document begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The file, or `<stdin>`.
    pub file: String,
    /// The line that the document begins in, from 1.
    pub line: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

impl Document {
    fn new(node: Node, place: Place) -> Document {
        Document { value: node.resolve(Unknown), node, place }
    }

    /// An object that a program made.
    pub fn of(node: Option<Node>, value: Value, place: Place) -> Document {
        let nothing = Node { content: Content::Map(Vec::new()), at: Mark { line: 1, column: 1 } };
        Document { value, node: node.unwrap_or(nothing), place }
    }

    /// `file:line:column` of a path in it, or of the deepest part of the path that stands there.
    pub fn at(&self, path: &str) -> String {
        self.mark(self.node.locate(path).0)
    }

    fn mark(&self, mark: Mark) -> String {
        format!("{}:{}:{}", self.place.file, self.place.line + mark.line - 1, mark.column)
    }
}

/// Reads files, folders (`-R`: and those below), globs, URLs and `-`. All that is wrong is said at once.
pub async fn read(paths: &[String], recursive: bool) -> Result<Vec<Document>> {
    let mut documents = Vec::new();
    let mut wrong = Vec::new();
    for path in paths {
        for (name, text) in texts(path, recursive).await? {
            for parsed in parse(&text, &name) {
                match parsed {
                    Ok(document) => documents.push(document),
                    Err(error) => wrong.push(error.to_string()),
                }
            }
        }
    }
    if !wrong.is_empty() {
        let fate = match documents.len() {
            0 => String::new(),
            good => format!(
                "\nnothing was sent: {} of {} documents cannot be read",
                wrong.len(),
                good + wrong.len()
            ),
        };
        bail!("{}{fate}", wrong.join("\nerror: "));
    }
    if documents.is_empty() {
        bail!("no objects passed to {}", paths.join(", "));
    }
    Ok(documents)
}

/// Names and contents of what a path means.
async fn texts(path: &str, recursive: bool) -> Result<Vec<(String, String)>> {
    if path == "-" {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).context("read standard input")?;
        return Ok(vec![("<stdin>".to_owned(), text)]);
    }
    if path.starts_with("http://") || path.starts_with("https://") {
        return Ok(vec![(path.to_owned(), crate::fetch::fetch(path).await?)]);
    }
    let mut found = Vec::new();
    for path in expand(Path::new(path))? {
        for file in files(&path, recursive)? {
            let text = std::fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
            found.push((file.display().to_string(), text));
        }
    }
    Ok(found)
}

/// The paths that a glob means; a path that is there is itself.
fn expand(pattern: &Path) -> Result<Vec<PathBuf>> {
    if pattern.exists() || !pattern.to_string_lossy().contains(['*', '?', '[']) {
        return Ok(vec![pattern.to_owned()]);
    }
    let mut found = vec![PathBuf::new()];
    for component in pattern.components() {
        let component = component.as_os_str().to_string_lossy().into_owned();
        if !component.contains(['*', '?', '[']) {
            found =
                found.into_iter().map(|path| path.join(&component)).filter(|path| path.exists()).collect();
            continue;
        }
        let mut next = Vec::new();
        for folder in found {
            let folder = if folder.as_os_str().is_empty() { PathBuf::from(".") } else { folder };
            let entries = std::fs::read_dir(&folder).into_iter().flatten().flatten();
            let mut names: Vec<String> =
                entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
            names.retain(|name| matches(&component, name));
            names.sort();
            next.extend(names.into_iter().map(|name| folder.join(name)));
        }
        found = next;
    }
    if found.is_empty() {
        bail!("the path \"{}\" does not exist, and no file fits it as a pattern", pattern.display());
    }
    Ok(found)
}

/// Whether a name fits a pattern of `*`, `?` and `[a-z]`.
fn matches(pattern: &str, name: &str) -> bool {
    let pattern: Vec<char> = pattern.chars().collect();
    let name: Vec<char> = name.chars().collect();
    fits(&pattern, &name)
}

fn fits(pattern: &[char], name: &[char]) -> bool {
    match (pattern, name) {
        ([], []) => true,
        (['*', rest @ ..], name) => (0..=name.len()).any(|skipped| fits(rest, &name[skipped..])),
        (['?', rest @ ..], [_, name @ ..]) => fits(rest, name),
        (['[', rest @ ..], [letter, name @ ..]) => {
            let Some(end) = rest.iter().position(|letter| *letter == ']') else { return false };
            let (set, negated) = match &rest[..end] {
                ['^' | '!', set @ ..] => (set, true),
                set => (set, false),
            };
            let in_range =
                set.windows(3).any(|range| range[1] == '-' && (range[0]..=range[2]).contains(letter));
            (set.contains(letter) || in_range) != negated && fits(&rest[end + 1..], name)
        }
        ([wanted, rest @ ..], [letter, name @ ..]) if wanted == letter => fits(rest, name),
        _ => false,
    }
}

fn files(path: &Path, recursive: bool) -> Result<Vec<PathBuf>> {
    if !path.exists() {
        bail!("the path \"{}\" does not exist", path.display());
    }
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut found = Vec::new();
    let entries = std::fs::read_dir(path).with_context(|| format!("read {}", path.display()))?;
    let mut entries: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    entries.sort();
    for entry in entries {
        let extension = entry.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
        if entry.is_dir() {
            if recursive {
                found.extend(files(&entry, true)?);
            }
        } else if matches!(extension, "yaml" | "yml" | "json") {
            found.push(entry);
        }
    }
    if found.is_empty() {
        bail!("no .yaml, .yml or .json file is in {}", path.display());
    }
    Ok(found)
}

/// The documents of a text, or what is wrong with each. Lists are opened.
pub fn parse(text: &str, file: &str) -> Vec<Result<Document>> {
    split(text)
        .into_iter()
        .flat_map(|(line, part)| parse_part(&part, Place { file: file.to_owned(), line }))
        .collect()
}

fn parse_part(text: &str, place: Place) -> Vec<Result<Document>> {
    let node = match yaml::parse(text) {
        Ok(Some(node)) => node,
        Ok(None) => return Vec::new(),
        Err(error) => {
            let (at, hint) = hint(text, error.at);
            let line = place.line + at.line.max(1) - 1;
            return vec![Err(anyhow::anyhow!(
                "{}:{line}:{}: {}{hint}",
                place.file,
                at.column.max(1),
                error.what
            ))];
        }
    };
    let document = Document::new(node, place);
    match &document.node.content {
        Content::Scalar { text, plain: true } if text.is_empty() || text == "null" || text == "~" => {
            Vec::new()
        }
        Content::Map(_) if is_list(&document.node) => {
            let items = match document.node.get("items").map(|node| &node.content) {
                Some(Content::List(items)) => items.clone(),
                _ => Vec::new(),
            };
            items.into_iter().map(|node| Ok(Document::new(node, document.place.clone()))).collect()
        }
        Content::Map(_) => vec![Ok(document)],
        _ => vec![Err(anyhow::anyhow!(
            "{}: expected an object with a kind, found {}",
            document.mark(document.node.at),
            shown(&document.value)
        ))],
    }
}

/// `List`, and `PodList` and its like.
fn is_list(node: &Node) -> bool {
    let kind = node.get("kind").and_then(Node::text).unwrap_or_default();
    kind.ends_with("List") && matches!(node.get("items").map(|node| &node.content), Some(Content::List(_)))
}

/// What may be wrong near the place at fault, its likeliest mistakes, and where exactly.
fn hint(text: &str, at: Mark) -> (Mark, String) {
    let number = |number: usize| text.lines().nth(number.checked_sub(1)?);
    let content = |line: &str| line.split(" #").next().unwrap_or_default().trim().to_owned();
    let indent = |line: &str| line.len() - line.trim_start().len();
    for line in [at.line, at.line.saturating_sub(1)] {
        let Some(candidate) = number(line) else { continue };
        let at = Mark { line, column: indent(candidate) + 1 };
        if candidate.trim_start_matches(' ').starts_with('\t') && !candidate.trim().is_empty() {
            return (at, " (indent with spaces, not tabs)".to_owned());
        }
        if let Some((key, value)) = content(candidate).split_once(':')
            && !value.is_empty()
            && !value.starts_with([' ', '\t'])
            && !key.contains([' ', '"', '\''])
            && !value.starts_with("//")
        {
            return (at, format!(" (a space is missing after the colon: expected \"{key}: {value}\")"));
        }
    }
    // A line that is indented deeper than the field before it, which already has a value.
    let before = (1..at.line).rev().filter_map(number).find(|line| !line.trim().is_empty());
    if let (Some(here), Some(before)) = (number(at.line), before)
        && indent(here) > indent(before)
        && content(before).contains(": ")
    {
        let at = Mark { line: at.line, column: indent(here) + 1 };
        let what = format!(
            " (\"{}\" is indented deeper than \"{}\", which has a value already: expected {} spaces before it)",
            content(here),
            content(before),
            indent(before),
        );
        return (at, what);
    }
    (at, String::new())
}

/// Parts between `---` lines, with the number of their first line.
fn split(text: &str) -> Vec<(usize, String)> {
    let mut parts = vec![(1, String::new())];
    for (index, line) in text.trim_start_matches('\u{feff}').lines().enumerate() {
        if line == "---" || line.starts_with("--- ") || line.starts_with("---\t") {
            let rest = line[3..].trim();
            // An object may begin on the line itself: `--- {kind: Pod}`.
            let rest = if rest.starts_with('#') { "" } else { rest };
            parts.push(if rest.is_empty() {
                (index + 2, String::new())
            } else {
                (index + 1, format!("{rest}\n"))
            });
        } else if let Some((_, part)) = parts.last_mut() {
            part.push_str(line);
            part.push('\n');
        }
    }
    parts
}

fn shown(value: &Value) -> String {
    let text = value.to_string();
    if text.chars().count() > 40 { text.chars().take(40).collect::<String>() + "…" } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_know_where_they_begin() {
        let found =
            parse("# a\n---\nkind: Pod\n---\n---\nkind: List\nitems:\n- kind: A\n- kind: B\n", "f.yaml");
        let places: Vec<String> = found
            .into_iter()
            .map(|found| found.expect("readable"))
            .map(|found| format!("{} {}", found.at("kind"), found.value["kind"]))
            .collect();
        assert_eq!(places, ["f.yaml:3:1 \"Pod\"", "f.yaml:8:3 \"A\"", "f.yaml:9:3 \"B\""]);
    }

    #[test]
    fn what_is_wrong_has_file_line_and_column_and_leaves_the_others() {
        let text = "kind: Pod\n---\nkind: Pod\nmetadata:\n  labels:\n    app: a\n    node:vmeet2\nspec: {}\n---\nkind: A\n";
        let found = parse(text, "f.yaml");
        assert_eq!(found.len(), 3);
        let error = found[1].as_ref().expect_err("wrong").to_string();
        assert!(error.starts_with("f.yaml:7:5: "), "{error}");
        assert!(error.contains("a space is missing after the colon: expected \"node: vmeet2\""), "{error}");
        assert!(found[0].is_ok() && found[2].is_ok());
        let error = parse("- a\n- b\n", "f.yaml").remove(0).expect_err("wrong").to_string();
        assert_eq!(error, "f.yaml:1:1: expected an object with a kind, found [\"a\",\"b\"]");
    }

    #[test]
    fn a_line_at_the_wrong_indent_is_pointed_out() {
        let text = "spec:\n  template:\n  kind: Pod\n    metadata:\n      name: test\n";
        let error = parse(text, "f.yaml").remove(0).expect_err("wrong").to_string();
        assert!(error.starts_with("f.yaml:4:5: "), "{error}");
        assert!(error.contains("expected 2 spaces before it"), "{error}");
    }

    #[test]
    fn patterns_fit_names() {
        let check = |pattern: &str, name: &str, expected: bool| {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        };
        check("*.yaml", "a.yaml", true);
        check("*.yaml", "a.yml", false);
        check("?-[0-9]*", "a-1x", true);
        check("[!a]b", "ab", false);
        check("a*b*c", "a-b-b-c", true);
    }
}
