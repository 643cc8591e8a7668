//! Config maps and secrets that a kustomization makes, with a hash of their contents in their names.

use super::{Built, elements, texts};
use anyhow::{Context, Result, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};
use std::path::Path;

pub fn generate(spec: &Value, folder: &Path, file: &Path, objects: &mut Vec<Built>) -> Result<()> {
    for (field, kind) in [("configMapGenerator", "ConfigMap"), ("secretGenerator", "Secret")] {
        for (index, generator) in elements(&spec[field]).enumerate() {
            let at = || format!("{}: {field}[{index}]", file.display());
            generate_one(spec, generator, kind, folder, file, objects).with_context(at)?;
        }
    }
    Ok(())
}

fn generate_one(
    spec: &Value,
    generator: &Value,
    kind: &str,
    folder: &Path,
    file: &Path,
    objects: &mut Vec<Built>,
) -> Result<()> {
    const KNOWN: [&str; 9] =
        ["name", "namespace", "behavior", "files", "literals", "envs", "env", "type", "options"];
    if let Some(unknown) =
        generator.as_object().into_iter().flat_map(Map::keys).find(|name| !KNOWN.contains(&name.as_str()))
    {
        bail!("the field {unknown:?} is not supported");
    }
    let name = generator["name"].as_str().context("name is missing")?;
    let mut data = Data { kind, fields: Map::new(), binary: Map::new() };
    for literal in texts(&generator["literals"]) {
        let (key, value) =
            literal.split_once('=').with_context(|| format!("literal {literal:?}: expected KEY=VALUE"))?;
        data.insert(key, unquoted(value).as_bytes());
    }
    for source in texts(&generator["files"]) {
        let (key, path) = match source.split_once('=') {
            Some((key, path)) => (key.to_owned(), path),
            None => {
                (Path::new(source).file_name().unwrap_or_default().to_string_lossy().into_owned(), source)
            }
        };
        let path = folder.join(path);
        data.insert(&key, &std::fs::read(&path).with_context(|| format!("read {}", path.display()))?);
    }
    for source in texts(&generator["envs"]).chain(generator["env"].as_str()) {
        let path = folder.join(source);
        let text = std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let (key, value) = line
                .split_once('=')
                .with_context(|| format!("{}: {line:?}: expected KEY=VALUE", path.display()))?;
            data.insert(key, value.as_bytes());
        }
    }
    let options = merged(&spec["generatorOptions"], &generator["options"]);
    let value = data.object(generator, name, &options);
    place(generator, value, &options, file, objects)
}

/// Adds the object, or merges it into one that is there, as its behavior says.
fn place(
    generator: &Value,
    value: Value,
    options: &Value,
    file: &Path,
    objects: &mut Vec<Built>,
) -> Result<()> {
    let name = value["metadata"]["name"].as_str().unwrap_or_default();
    let found = objects.iter_mut().find(|built| built.kind() == value["kind"] && built.is_called(name));
    match (generator["behavior"].as_str().unwrap_or("create"), found) {
        ("create", None) => {
            let mut built = Built::new(value, file);
            built.needs_hash = options["disableNameSuffixHash"] != true;
            objects.push(built);
        }
        ("create", Some(_)) => bail!("{name:?} is there already: behavior must be merge or replace"),
        ("merge", Some(built)) => {
            for field in ["data", "binaryData"] {
                for (key, value) in value[field].as_object().into_iter().flatten() {
                    built.value[field][key] = value.clone();
                }
            }
        }
        ("replace", Some(built)) => {
            for field in ["data", "binaryData"] {
                match value.get(field) {
                    Some(data) => built.value[field] = data.clone(),
                    None => drop(built.value.as_object_mut().map(|fields| fields.remove(field))),
                }
            }
        }
        ("merge" | "replace", None) => bail!("{name:?} is not there to be merged into"),
        (other, _) => bail!("behavior {other:?}: expected create, merge or replace"),
    }
    Ok(())
}

fn merged(general: &Value, own: &Value) -> Value {
    let mut options = if general.is_object() { general.clone() } else { json!({}) };
    for (name, value) in own.as_object().into_iter().flatten() {
        match value.as_object() {
            Some(fields) => fields.iter().for_each(|(key, value)| options[name][key] = value.clone()),
            None => options[name] = value.clone(),
        }
    }
    options
}

fn unquoted(value: &str) -> &str {
    let inner = |quote: char| value.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote));
    inner('"').or_else(|| inner('\'')).unwrap_or(value)
}

struct Data<'a> {
    kind: &'a str,
    fields: Map<String, Value>,
    binary: Map<String, Value>,
}

impl Data<'_> {
    fn insert(&mut self, key: &str, bytes: &[u8]) {
        match std::str::from_utf8(bytes) {
            Ok(text) if self.kind == "ConfigMap" => self.fields.insert(key.to_owned(), text.into()),
            _ if self.kind == "ConfigMap" => {
                self.binary.insert(key.to_owned(), STANDARD.encode(bytes).into())
            }
            _ => self.fields.insert(key.to_owned(), STANDARD.encode(bytes).into()),
        };
    }

    fn object(self, generator: &Value, name: &str, options: &Value) -> Value {
        let mut value = json!({"apiVersion": "v1", "kind": self.kind, "metadata": {"name": name}});
        for field in ["labels", "annotations"] {
            if options[field].is_object() {
                value["metadata"][field] = options[field].clone();
            }
        }
        if let Some(namespace) = generator["namespace"].as_str() {
            value["metadata"]["namespace"] = namespace.into();
        }
        if self.kind == "Secret" {
            value["type"] = generator["type"].as_str().unwrap_or("Opaque").into();
        }
        if !self.fields.is_empty() {
            value["data"] = Value::Object(self.fields);
        }
        if !self.binary.is_empty() {
            value["binaryData"] = Value::Object(self.binary);
        }
        if options["immutable"] == true {
            value["immutable"] = true.into();
        }
        value
    }
}

/// The hash of a config map's or secret's contents and name, as kustomize spells it.
pub fn hash(object: &Value) -> String {
    let or_empty = |value: &Value| if value.is_null() { json!("") } else { value.clone() };
    let mut hashed = json!({
        "kind": object["kind"], "name": object["metadata"]["name"], "data": or_empty(&object["data"]),
    });
    for (kind, field) in [("ConfigMap", "binaryData"), ("Secret", "stringData")] {
        if object["kind"] == kind && object[field].is_object() {
            hashed[field] = object[field].clone();
        }
    }
    if object["kind"] == "Secret" {
        hashed["type"] = or_empty(&object["type"]);
    }
    // Go's encoder escapes these, and the hash is of its bytes.
    let text = hashed.to_string().replace('&', "\\u0026").replace('<', "\\u003c").replace('>', "\\u003e");
    let digest = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
    let hex: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    let spelled = hex.chars().take(10).map(|letter| match letter {
        '0' => 'g',
        '1' => 'h',
        '3' => 'k',
        'a' => 'm',
        'e' => 't',
        letter => letter,
    });
    spelled.collect()
}
