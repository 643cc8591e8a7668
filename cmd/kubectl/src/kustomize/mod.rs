//! Kustomizations: the common part of kustomize. What is not in it is refused by name.
//!
//! ```text
//! resources, generators ──> patches ──> namespace, names, labels, annotations ──> replicas, images
//!     ──> names with hashes ──> references to renamed objects
//! ```

mod generators;
mod references;
mod transform;

pub use generators::hash;

use crate::documents::{Document, Place};
use crate::yaml;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// An object that a kustomization makes.
#[derive(Debug, Clone, PartialEq)]
pub struct Built {
    /// The object.
    pub value: Value,
    /// The file of it, or of the kustomization that generates it.
    pub file: String,
    /// The names it has had, by which other objects and patches refer to it.
    names: Vec<String>,
    /// A hash of its contents is still to be added to its name.
    needs_hash: bool,
}

impl Built {
    fn new(value: Value, file: &Path) -> Built {
        let name = value["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        Built { value, file: file.display().to_string(), names: vec![name], needs_hash: false }
    }

    /// The object as a document of its file.
    pub fn document(self) -> Document {
        let text = yaml::emit(&self.value);
        let place = Place { file: self.file, line: 1 };
        Document::of(yaml::parse(&text).ok().flatten(), self.value, place)
    }

    fn is_called(&self, name: &str) -> bool {
        self.names.iter().any(|own| own == name)
    }

    fn kind(&self) -> &str {
        self.value["kind"].as_str().unwrap_or_default()
    }
}

const NAMES: [&str; 3] = ["kustomization.yaml", "kustomization.yml", "Kustomization"];

/// Fields that are understood.
const FIELDS: [&str; 20] = [
    "apiVersion",
    "kind",
    "metadata",
    "resources",
    "bases",
    "namespace",
    "namePrefix",
    "nameSuffix",
    "commonLabels",
    "labels",
    "commonAnnotations",
    "images",
    "replicas",
    "patches",
    "patchesStrategicMerge",
    "patchesJson6902",
    "configMapGenerator",
    "secretGenerator",
    "generatorOptions",
    "sortOptions",
];

/// Builds the kustomization of a folder.
pub fn build(folder: &Path) -> Result<Vec<Built>> {
    if folder.to_string_lossy().contains("://") {
        bail!("{}: only kustomizations of this machine are supported", folder.display());
    }
    let mut built = accumulate(folder, &mut Vec::new())?;
    sort(&mut built);
    Ok(built)
}

fn accumulate(folder: &Path, outer: &mut Vec<PathBuf>) -> Result<Vec<Built>> {
    let absolute =
        folder.canonicalize().with_context(|| format!("the path \"{}\" does not exist", folder.display()))?;
    if outer.contains(&absolute) {
        bail!("cycle detected: {} is a resource of itself", folder.display());
    }
    outer.push(absolute);
    let file = NAMES.iter().map(|name| folder.join(name)).find(|file| file.is_file());
    let file = file.with_context(|| {
        format!("unable to find one of 'kustomization.yaml', 'kustomization.yml' or 'Kustomization' in directory '{}'", folder.display())
    })?;
    let text = std::fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
    let spec = read_one(&text, &file)?;
    check_fields(&spec, &text, &file)?;
    let mut objects = Vec::new();
    for resource in texts(&spec["resources"]).chain(texts(&spec["bases"])) {
        objects.extend(read_resource(folder, resource, outer)?);
    }
    generators::generate(&spec, folder, &file, &mut objects)?;
    transform::apply(&spec, folder, &mut objects).with_context(|| file.display().to_string())?;
    references::rename(&mut objects);
    outer.pop();
    Ok(objects)
}

fn read_one(text: &str, file: &Path) -> Result<Value> {
    let name = file.display().to_string();
    match crate::documents::parse(text, &name).into_iter().collect::<Result<Vec<Document>>>()?.as_slice() {
        [] => bail!("{name} is empty"),
        [one] => Ok(one.value.clone()),
        _ => bail!("{name}: expected one document"),
    }
}

fn check_fields(spec: &Value, text: &str, file: &Path) -> Result<()> {
    for field in spec.as_object().into_iter().flat_map(|fields| fields.keys()) {
        if !FIELDS.contains(&field.as_str()) {
            let line =
                text.lines().position(|line| line.starts_with(&format!("{field}:"))).unwrap_or_default() + 1;
            let hint = crate::suggest::closest(field, FIELDS.into_iter());
            let hint = hint.map(|name| format!(" (did you mean {name:?}?)")).unwrap_or_default();
            bail!(
                "{}:{line}:1: the field {field:?} of kustomizations is not supported{hint}",
                file.display()
            );
        }
    }
    if spec["kind"].as_str().is_some_and(|kind| kind != "Kustomization") {
        bail!("{}: kind {} is not supported; \"Kustomization\" is", file.display(), spec["kind"]);
    }
    Ok(())
}

fn read_resource(folder: &Path, resource: &str, outer: &mut Vec<PathBuf>) -> Result<Vec<Built>> {
    let path = folder.join(resource);
    if path.is_dir() {
        return accumulate(&path, outer);
    }
    if !path.exists() && (resource.contains("://") || resource.contains("?ref=")) {
        bail!("resource {resource:?}: only resources of this machine are supported");
    }
    let text = std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    let documents = crate::documents::parse(&text, &path.display().to_string());
    documents.into_iter().map(|document| Ok(Built::new(document?.value, &path))).collect()
}

/// Namespaces and what others stand on first, as kustomize puts them.
fn sort(objects: &mut [Built]) {
    const FIRST: [&str; 21] = [
        "Namespace",
        "ResourceQuota",
        "StorageClass",
        "CustomResourceDefinition",
        "ServiceAccount",
        "PodSecurityPolicy",
        "Role",
        "ClusterRole",
        "RoleBinding",
        "ClusterRoleBinding",
        "ConfigMap",
        "Secret",
        "Endpoints",
        "Service",
        "LimitRange",
        "PriorityClass",
        "PersistentVolume",
        "PersistentVolumeClaim",
        "Deployment",
        "StatefulSet",
        "CronJob",
    ];
    const LAST: [&str; 3] =
        ["PodDisruptionBudget", "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"];
    let rank = |built: &Built| {
        let kind = built.kind();
        let first = FIRST.iter().position(|own| *own == kind);
        let last = LAST.iter().position(|own| *own == kind).map(|at| FIRST.len() + 1 + at);
        first.or(last).unwrap_or(FIRST.len())
    };
    let key = |built: &Built| {
        let text =
            |path: &str| built.value.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
        (rank(built), text("/apiVersion"), text("/kind"), text("/metadata/namespace"), text("/metadata/name"))
    };
    objects.sort_by_key(key);
}

fn texts(value: &Value) -> impl Iterator<Item = &str> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str)
}

fn elements(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, text) in files {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            std::fs::write(path, text).expect("written");
        }
        folder
    }

    const DEPLOYMENT: &str = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec:\n  replicas: 1\n  \
        selector: {matchLabels: {app: web}}\n  template:\n    metadata: {labels: {app: web}}\n    spec:\n      \
        containers:\n      - {name: c, image: 'nginx:1', envFrom: [{configMapRef: {name: settings}}]}\n";

    #[test]
    fn a_kustomization_is_built() {
        let kustomization = "resources: [deployment.yaml]\nnamespace: shop\nnamePrefix: p-\nnameSuffix: -s\n\
            commonLabels: {team: a}\ncommonAnnotations: {note: x}\nimages: [{name: nginx, newTag: '2'}]\n\
            replicas: [{name: web, count: 3}]\nconfigMapGenerator: [{name: settings, literals: [a=1]}]\n\
            patches:\n- patch: '[{\"op\": \"add\", \"path\": \"/spec/paused\", \"value\": true}]'\n  target: {kind: Deployment}\n";
        let folder = folder(&[("kustomization.yaml", kustomization), ("deployment.yaml", DEPLOYMENT)]);
        let built = build(folder.path()).expect("built");
        let [settings, web] = built.as_slice() else { panic!("{built:?}") };
        let name = settings.value["metadata"]["name"].as_str().expect("a name");
        assert!(name.starts_with("p-settings-s-") && name.len() == "p-settings-s-".len() + 10, "{name}");
        let web = &web.value;
        assert_eq!(web["metadata"]["name"], "p-web-s");
        assert_eq!(web["metadata"]["namespace"], "shop");
        assert_eq!(web["spec"]["selector"]["matchLabels"]["team"], "a");
        assert_eq!(web["spec"]["template"]["metadata"]["labels"]["team"], "a");
        assert_eq!(web["spec"]["template"]["metadata"]["annotations"]["note"], "x");
        assert_eq!(web["spec"]["replicas"], 3);
        assert_eq!(web["spec"]["paused"], true);
        let container = &web["spec"]["template"]["spec"]["containers"][0];
        assert_eq!(container["image"], "nginx:2");
        assert_eq!(container["envFrom"][0]["configMapRef"]["name"], name);
    }

    #[test]
    fn overlays_patch_their_bases() {
        let overlay = "resources: [../base]\nnamePrefix: dev-\npatches:\n- path: patch.yaml\n";
        let patch = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec:\n  template:\n    spec:\n      containers:\n      - {name: c, imagePullPolicy: Never}\n";
        let folder = folder(&[
            ("base/kustomization.yaml", "resources: [deployment.yaml]\nnamePrefix: b-\n"),
            ("base/deployment.yaml", DEPLOYMENT),
            ("dev/kustomization.yaml", overlay),
            ("dev/patch.yaml", patch),
        ]);
        let built = build(&folder.path().join("dev")).expect("built");
        assert_eq!(built[0].value["metadata"]["name"], "dev-b-web");
        let container = &built[0].value["spec"]["template"]["spec"]["containers"][0];
        assert_eq!(container["imagePullPolicy"], "Never");
        assert_eq!(container["image"], "nginx:1");
    }

    #[test]
    fn what_is_not_supported_is_refused_by_name() {
        let check = |text: &str, expected: &str| {
            let folder = folder(&[("kustomization.yaml", text)]);
            let error = format!("{:#}", build(folder.path()).expect_err("refused"));
            assert!(error.contains(expected), "{error}");
        };
        check("namespace: a\nhelmCharts: []\n", "kustomization.yaml:2:1: the field \"helmCharts\"");
        check("namePrefx: a\n", "did you mean \"namePrefix\"?");
        check("resources: [https://example.com/x]\n", "only resources of this machine");
        check("resources: [.]\n", "cycle detected");
    }
}
