//! Objects of files, ready to be sent: the seed's dialect is translated, YAML's traps are decided by the server's schemas,
//! and kinds are found.
//!
//! ```text
//! Documents, kustomizations ──> schema ──> dialect ──> Manifest{resource, value, document}
//! ```

use crate::connection::{Connection, Refusal, is_not_found};
use crate::documents::{self, Document};
use crate::faults::{FaultKind, faults_of};
use crate::kustomize;
use crate::resources::{Catalogue, Resource};
use crate::schemas::{self, Schemas};
use crate::select::{name_of, path_of};
use anyhow::{Context, Result, bail};
use api::dialect::{self, MAX_SLURM_CODE_BYTES, ORIGINAL_NAME, SLURM_CODE, SLURM_CODE_PATH};
use serde_json::Value;
use std::path::Path;

/// Flags that name files.
#[derive(clap::Args, Clone, Default)]
pub struct FileFlags {
    /// Files, folders, patterns or URLs of objects; `-` is standard input.
    #[arg(long, short)]
    pub filename: Vec<String>,
    /// Also folders below folders.
    #[arg(long, short = 'R')]
    pub recursive: bool,
    /// A folder with a kustomization.
    #[arg(long, short = 'k')]
    pub kustomize: Option<String>,
}

impl FileFlags {
    /// Whether any file is named.
    pub fn any(&self) -> bool {
        !self.filename.is_empty() || self.kustomize.is_some()
    }

    /// What stands in the files.
    pub async fn documents(&self) -> Result<Vec<Document>> {
        match &self.kustomize {
            Some(_) if !self.filename.is_empty() => bail!("only one of -f or -k can be specified"),
            Some(folder) => {
                Ok(kustomize::build(Path::new(folder))?.into_iter().map(|built| built.document()).collect())
            }
            None => documents::read(&self.filename, self.recursive).await,
        }
    }

    /// The objects, ready to be sent: with the sources that they run.
    pub async fn manifests(&self, connection: &Connection) -> Result<Manifests> {
        let mut manifests = self.named(connection).await?;
        for manifest in &mut manifests.all {
            add_source(&mut manifest.value, &manifest.document)?;
        }
        Ok(manifests)
    }

    async fn named(&self, connection: &Connection) -> Result<Manifests> {
        let documents = self.documents().await?;
        Manifests::prepared(connection, Catalogue::load(connection).await?, documents).await
    }

    /// The objects, each with its kind, which the server must have. None of them is another's of nearly the same name.
    pub async fn objects(&self, connection: &Connection) -> Result<Vec<(Resource, Value)>> {
        let mut manifests = self.named(connection).await?;
        let mut objects = Vec::new();
        for index in 0..manifests.all.len() {
            let resource = manifests.resource(connection, index).await?;
            let value = manifests.all[index].value.take();
            check_live(connection, &resource, &value).await?;
            objects.push((resource, value));
        }
        Ok(objects)
    }

    /// The objects, without asking a server: a kind is what the file says.
    pub async fn local_objects(&self, connection: &Connection) -> Result<Vec<(Resource, Value)>> {
        let manifests =
            Manifests::prepared(connection, Catalogue::default(), self.documents().await?).await?;
        Ok(manifests.all.into_iter().map(|manifest| (unseen(&manifest.value), manifest.value)).collect())
    }
}

/// The source of a job of the seed goes with the job: it is on the machine of who applies it.
fn add_source(value: &mut Value, document: &Document) -> Result<()> {
    let annotations = value.pointer_mut("/spec/template/metadata/annotations").and_then(Value::as_object_mut);
    let Some(annotations) = annotations.filter(|annotations| !annotations.contains_key(SLURM_CODE)) else {
        return Ok(());
    };
    let Some(path) = annotations.get(SLURM_CODE_PATH).and_then(Value::as_str) else { return Ok(()) };
    let at = document.at("spec.codePath");
    let bytes = std::fs::read(path).with_context(|| format!("{at}: spec.codePath: read {path}"))?;
    if bytes.len() > MAX_SLURM_CODE_BYTES {
        bail!(
            "{at}: spec.codePath: {path} has {} bytes, and the source that goes with a job at most \
             {MAX_SLURM_CODE_BYTES}: let it include what is in a folder of the site (hostPath)",
            bytes.len()
        );
    }
    let Ok(text) = String::from_utf8(bytes) else {
        bail!("{at}: spec.codePath: {path} is not text: a source goes with a job, a program does not");
    };
    annotations.insert(SLURM_CODE.to_owned(), text.into());
    Ok(())
}

/// The kind of an object that no server was asked about.
pub fn unseen(value: &Value) -> Resource {
    let text = |field: &str| value[field].as_str().unwrap_or_default();
    let api_version = text("apiVersion");
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    Resource {
        group: group.to_owned(),
        version: version.to_owned(),
        kind: text("kind").to_owned(),
        ..Resource::default()
    }
}

/// An object of a file.
pub struct Manifest {
    /// Its kind; `None` if the server does not have it (yet: a definition may stand before it in the file).
    pub resource: Option<Resource>,
    /// The object, in Kubernetes' own form.
    pub value: Value,
    /// Where it stands.
    pub document: Document,
}

/// All objects of files, and what the server knows of them.
pub struct Manifests {
    /// The kinds of the server.
    pub catalogue: Catalogue,
    /// The schemas of the server.
    pub schemas: Schemas,
    /// The objects.
    pub all: Vec<Manifest>,
}

impl Manifests {
    async fn prepared(
        connection: &Connection,
        catalogue: Catalogue,
        documents: Vec<Document>,
    ) -> Result<Manifests> {
        let mut manifests = Manifests { catalogue, schemas: Schemas::default(), all: Vec::new() };
        for document in documents {
            let manifest = manifests.prepare(connection, document).await?;
            manifests.all.push(manifest);
        }
        Ok(manifests)
    }

    async fn prepare(&mut self, connection: &Connection, document: Document) -> Result<Manifest> {
        let value = self.read(connection, &document).await;
        let version = |kind: &str| self.catalogue.of_kind(kind).map(Resource::api_version);
        let translated = dialect::translate(value, version).map_err(|error| {
            let hint = if error.path == "kind" {
                let kinds = self.catalogue.all().iter().map(|resource| resource.kind.as_str());
                let kind = document.value["kind"].as_str().unwrap_or_default();
                crate::suggest::closest(kind, kinds).map(|kind| format!(" (did you mean {kind:?}?)"))
            } else {
                None
            };
            anyhow::anyhow!("{}: {error}{}", document.at(&error.path), hint.unwrap_or_default())
        })?;
        if !translated.notes.is_empty() {
            eprintln!("{}: understood as {}", document.place, translated.notes.join(", "));
        }
        let mut value = translated.value;
        let resource = self.find(&value).cloned();
        complete(connection, resource.as_ref(), &mut value, &document)?;
        Ok(Manifest { resource, value, document })
    }

    /// The value, by the schema of its kind where that makes a difference.
    async fn read(&mut self, connection: &Connection, document: &Document) -> Value {
        if !document.node.has_traps() {
            return document.value.clone();
        }
        let kind = document.value["kind"].as_str().unwrap_or_default();
        let resource = match document.value["apiVersion"].as_str() {
            Some(version) => self.catalogue.of(version, kind),
            None => self.catalogue.of_kind(kind),
        };
        match resource.cloned() {
            Some(resource) => match self.schemas.of(connection, &resource).await {
                Some(schema) => document.node.resolve(schema),
                None => document.value.clone(),
            },
            None => document.value.clone(),
        }
    }

    fn find(&self, value: &Value) -> Option<&Resource> {
        let text = |field: &str| value[field].as_str().unwrap_or_default();
        self.catalogue.of(text("apiVersion"), text("kind"))
    }

    /// The kind of an object, asked for again if it was not there before.
    pub async fn resource(&mut self, connection: &Connection, index: usize) -> Result<Resource> {
        if let Some(resource) = self.all.get(index).and_then(|manifest| manifest.resource.clone()) {
            return Ok(resource);
        }
        let defines = self.all.iter().any(|manifest| manifest.value["kind"] == "CustomResourceDefinition");
        // A definition of this file is established by the server in its own time.
        for attempt in 0..50 {
            self.catalogue = Catalogue::load(connection).await?;
            if self.find(&self.all[index].value).is_some() || !defines || attempt == 49 {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
        let found = self.find(&self.all[index].value).cloned();
        let kind = self.all[index].value["kind"].as_str().unwrap_or_default();
        let hint = match self.catalogue.of_kind(kind) {
            Some(other) => format!(" (this server has it in version {:?})", other.api_version()),
            None => {
                let kinds = self.catalogue.all().iter().map(|resource| resource.kind.as_str());
                let close = crate::suggest::closest(kind, kinds);
                close.map(|kind| format!(" (did you mean {kind:?}?)")).unwrap_or_default()
            }
        };
        let manifest = &mut self.all[index];
        let text = |field: &str| manifest.value[field].as_str().unwrap_or_default().to_owned();
        let resource = found.with_context(|| {
            format!(
                "{}: resource mapping not found for name: \"{}\" namespace: \"{}\": no matches for kind \"{}\" in version \
                 \"{}\"{hint}\nensure CRDs are installed first",
                manifest.document.at("kind"),
                name_of(&manifest.value),
                manifest.value["metadata"]["namespace"].as_str().unwrap_or_default(),
                text("kind"),
                text("apiVersion"),
            )
        })?;
        complete(connection, Some(&resource), &mut manifest.value, &manifest.document)?;
        manifest.resource = Some(resource.clone());
        Ok(resource)
    }

    /// An error of the server about an object, with file, line, column and what may have been meant.
    pub async fn located(&mut self, connection: &Connection, index: usize, error: &anyhow::Error) -> String {
        let Some(refusal) = error.downcast_ref::<Refusal>() else { return format!("{error:#}") };
        let manifest = &self.all[index];
        let faults = faults_of(refusal, &manifest.value);
        let mut lines = Vec::new();
        for fault in &faults {
            let schema = match &manifest.resource {
                Some(resource) if fault.kind == FaultKind::Unknown => {
                    self.schemas.of(connection, resource).await
                }
                _ => None,
            };
            let hint = schema.and_then(|schema| schemas::suggestion(schema, &fault.field));
            let hint = hint.map(|name| format!(" (did you mean {name:?}?)")).unwrap_or_default();
            lines.push(format!("{}: {}{hint}", manifest.document.at(&fault.field), fault.text()));
        }
        if !faults.is_empty() && faults.iter().all(|fault| fault.replaces_the_refusal(refusal)) {
            return format!("error: {}", lines.join("\nerror: "));
        }
        if faults.is_empty() {
            lines.push(manifest.document.place.to_string());
        }
        format!("{error}\n  at {}", lines.join("\n  at "))
    }
}

/// Puts the object into the namespace that is meant.
fn complete(
    connection: &Connection,
    resource: Option<&Resource>,
    value: &mut Value,
    document: &Document,
) -> Result<()> {
    if !resource.is_some_and(|resource| resource.namespaced) {
        return Ok(());
    }
    if !value["metadata"].is_null() && !value["metadata"].is_object() {
        bail!("{}: metadata: expected fields such as name and labels", document.at("metadata"));
    }
    let own = value["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
    if own.is_empty() {
        value["metadata"]["namespace"] = connection.namespace.clone().into();
    } else if connection.namespace_is_given && own != connection.namespace {
        bail!(
            "{}: the namespace from the provided object \"{own}\" does not match the namespace \"{}\". You must pass '--namespace={own}' to perform this operation.",
            document.at("metadata.namespace"),
            connection.namespace
        );
    }
    Ok(())
}

/// Two names that map to the same one are two objects: the second is refused.
pub fn check_names(before: &Value, after: &Value) -> Result<()> {
    let original = |object: &Value| {
        let annotations = &object["metadata"]["annotations"];
        annotations[ORIGINAL_NAME].as_str().unwrap_or(name_of(object)).to_owned()
    };
    let (old, new) = (original(before), original(after));
    if old != new {
        bail!("{new:?} and {old:?} both become {:?}: rename one of them", name_of(after));
    }
    Ok(())
}

/// Refuses an object of a file if what stands under its name was made under another one.
pub async fn check_live(connection: &Connection, resource: &Resource, value: &Value) -> Result<()> {
    if name_of(value).is_empty() {
        return Ok(());
    }
    match connection.get(&path_of(resource, value)).await {
        Ok(live) => check_names(&live, value),
        Err(error) if is_not_found(&error) || !is_mapped(value) => Ok(()),
        Err(error) => Err(error),
    }
}

fn is_mapped(object: &Value) -> bool {
    !object["metadata"]["annotations"][ORIGINAL_NAME].is_null()
}

/// Refuses an object that was asked for by a name of the seed's, and was not made under it.
pub fn check_asked(asked: &str, live: &Value) -> Result<()> {
    let name = name_of(live);
    if asked == name || live["metadata"]["annotations"][ORIGINAL_NAME] == asked {
        return Ok(());
    }
    bail!("{asked:?} is not there: {name:?} was not made under that name")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn names_that_become_one_are_refused() {
        let plain = json!({"metadata": {"name": "rr-one"}});
        let mapped = json!({"metadata": {"name": "rr-one", "annotations": {ORIGINAL_NAME: "rr_one"}}});
        assert!(check_names(&plain, &plain).is_ok());
        assert!(check_names(&mapped, &mapped).is_ok());
        let error = check_names(&plain, &mapped).expect_err("two names").to_string();
        assert_eq!(error, "\"rr_one\" and \"rr-one\" both become \"rr-one\": rename one of them");
        assert!(check_names(&mapped, &plain).is_err());
        assert!(check_asked("rr_one", &mapped).is_ok() && check_asked("rr-one", &mapped).is_ok());
        let error = check_asked("rr_one", &plain).expect_err("another").to_string();
        assert_eq!(error, "\"rr_one\" is not there: \"rr-one\" was not made under that name");
    }
}
