//! Files of objects: YAML or JSON, several documents in one, folders, standard input. What is wrong is named by file,
//! line and column.

use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};

/// One object, and where it stands.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    /// The object.
    pub value: Value,
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

/// Reads files, folders (`-R`: and those below) and `-`.
pub fn read(paths: &[String], recursive: bool) -> Result<Vec<Document>> {
    let mut documents = Vec::new();
    for path in paths {
        if path == "-" {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).context("read standard input")?;
            documents.extend(parse(&text, "<stdin>")?);
        } else if path.starts_with("http://") || path.starts_with("https://") {
            bail!("{path}: fetch it first, and pipe it in: curl -sL {path} | kubectl apply -f -");
        } else {
            for file in files(Path::new(path), recursive)? {
                let text =
                    std::fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
                documents.extend(parse(&text, &file.display().to_string())?);
            }
        }
    }
    if documents.is_empty() {
        bail!("no objects passed to {}", paths.join(", "));
    }
    Ok(documents)
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

/// The documents of a text. Lists are opened.
pub fn parse(text: &str, file: &str) -> Result<Vec<Document>> {
    let mut documents = Vec::new();
    for (line, part) in split(text) {
        let is_empty = part.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#'));
        if is_empty {
            continue;
        }
        let value: Value = serde_saphyr::from_str(&part).map_err(|error| {
            let (at, column) = error.location().map_or((1, 1), |at| (at.line(), at.column()));
            let what = error.to_string();
            let what = what.lines().next().unwrap_or_default().trim_end_matches(':').to_owned();
            anyhow::anyhow!("{file}:{}:{column}: {what}{}", line + at as usize - 1, hint(&part, at as usize))
        })?;
        let place = Place { file: file.to_owned(), line };
        match value {
            Value::Object(_) if value["kind"] == "List" => {
                let items = value["items"].as_array().cloned().unwrap_or_default();
                documents.extend(items.into_iter().map(|value| Document { value, place: place.clone() }));
            }
            Value::Object(_) => documents.push(Document { value, place }),
            Value::Null => {}
            _ => bail!("{place}: expected an object with a kind, found {}", shown(&value)),
        }
    }
    Ok(documents)
}

/// What may be wrong with the line at fault: its likeliest mistakes.
fn hint(text: &str, line: usize) -> String {
    let near = [line, line.saturating_sub(1)];
    let lines = near.iter().filter_map(|&number| text.lines().nth(number.checked_sub(1)?));
    for candidate in lines {
        let content = candidate.split(" #").next().unwrap_or_default().trim();
        if content.contains('\t') && candidate.trim_start_matches(' ').starts_with('\t') {
            return " (indent with spaces, not tabs)".to_owned();
        }
        if let Some((key, value)) = content.split_once(':')
            && !value.is_empty()
            && !value.starts_with(' ')
            && !key.contains(' ')
            && !value.starts_with("//")
        {
            return format!(" (a space is missing after the colon: {key}: {value})");
        }
    }
    String::new()
}

/// Parts between `---` lines, with the number of their first line.
fn split(text: &str) -> Vec<(usize, String)> {
    let mut parts = vec![(1, String::new())];
    for (index, line) in text.lines().enumerate() {
        if line == "---" || line.starts_with("--- ") || line.starts_with("---\t") {
            parts.push((index + 2, String::new()));
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
        let found = found.expect("readable");
        let places: Vec<String> =
            found.iter().map(|found| format!("{} {}", found.place, found.value["kind"])).collect();
        assert_eq!(places, ["f.yaml:3 \"Pod\"", "f.yaml:6 \"A\"", "f.yaml:6 \"B\""]);
    }

    #[test]
    fn what_is_wrong_has_file_line_and_column() {
        let check = |text: &str, expected: &str| {
            let error = parse(text, "f.yaml").expect_err("wrong").to_string();
            assert!(error.starts_with(expected), "{error}");
        };
        check(
            "kind: Pod\n---\nkind: Pod\nmetadata:\n  labels:\n    app: a\n    node:vmeet2\nspec: {}\n",
            "f.yaml:",
        );
        check("- a\n- b\n", "f.yaml:1: expected an object with a kind");
    }

    #[test]
    fn a_missing_space_is_pointed_out() {
        let text = "metadata:\n  labels:\n    app: a\n    node:vmeet2\nspec: {}\n";
        let error = parse(text, "f.yaml").expect_err("wrong").to_string();
        assert!(error.contains("a space is missing after the colon: node: vmeet2"), "{error}");
    }
}
