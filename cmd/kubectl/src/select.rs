//! Which objects a command is about: `pod web`, `pods a b`, `pod/a svc/b`, `pods -l app=x`, `pods,services`, `all`.

use crate::connection::{Connection, is_not_found};
use crate::manifests::{FileFlags, check_asked};
use crate::resources::{Catalogue, Resource};
use anyhow::{Result, bail};
use serde_json::Value;

/// Flags that choose objects.
#[derive(clap::Args, Clone, Default)]
pub struct SelectFlags {
    /// Kinds and names: `pod web`, `pod/web service/web`, `deployments,services`.
    pub words: Vec<String>,
    /// Only objects with these labels.
    #[arg(long, short = 'l')]
    pub selector: Option<String>,
    /// Only objects with these fields.
    #[arg(long)]
    pub field_selector: Option<String>,
    /// In all namespaces.
    #[arg(long, short = 'A')]
    pub all_namespaces: bool,
}

/// Flags that choose the objects that a command changes, as all of upstream's such commands have them.
#[derive(clap::Args, Clone, Default)]
pub struct ObjectFlags {
    /// Kinds and names: `pod web`, `pod/web service/web`, `deployments,services`.
    pub words: Vec<String>,
    /// Only objects with these labels.
    #[arg(long, short = 'l')]
    pub selector: Option<String>,
    /// Only objects with these fields.
    #[arg(long)]
    pub field_selector: Option<String>,
    /// All of the kind in the namespace.
    #[arg(long)]
    pub all: bool,
    /// In all namespaces.
    #[arg(long, short = 'A')]
    pub all_namespaces: bool,
    #[command(flatten)]
    pub files: FileFlags,
}

impl ObjectFlags {
    /// Whether more than a name was said, so that a kind alone means all of them.
    fn chooses_many(&self) -> bool {
        self.all || self.selector.is_some() || self.field_selector.is_some()
    }

    /// The objects, as the server has them; `local`: as files have them, and no server is asked.
    pub async fn choose(&self, connection: &Connection, local: bool) -> Result<Vec<(Resource, Value)>> {
        if self.files.any() {
            return self.of_files(connection, local).await;
        }
        if local {
            bail!("cannot specify resources by name with --local: use -f");
        }
        if self.words.is_empty() {
            bail!("required resource not specified: name it as KIND NAME or KIND/NAME, or use -f");
        }
        let catalogue = Catalogue::for_words(connection, &self.words).await?;
        let targets = targets(&catalogue, &self.words)?;
        if targets.iter().any(|target| target.name.is_none()) && !self.chooses_many() {
            bail!("resource(s) were provided, but no name was specified");
        }
        let select = SelectFlags {
            words: self.words.clone(),
            selector: self.selector.clone(),
            field_selector: self.field_selector.clone(),
            all_namespaces: self.all_namespaces,
        };
        find(connection, &targets, &select).await
    }

    async fn of_files(&self, connection: &Connection, local: bool) -> Result<Vec<(Resource, Value)>> {
        if local {
            return self.files.local_objects(connection).await;
        }
        let mut found = self.files.objects(connection).await?;
        for (resource, value) in &mut found {
            *value = connection.get(&path_of(resource, value)).await?;
        }
        Ok(found)
    }
}

/// One thing that was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Its kind.
    pub resource: Resource,
    /// Its name; `None`: all of them.
    pub name: Option<String>,
    /// The name that was typed, where it is another: the seed's.
    pub asked: Option<String>,
}

impl Target {
    /// All of a kind.
    fn all(resource: &Resource) -> Target {
        Target { resource: resource.clone(), name: None, asked: None }
    }

    /// Refuses what stands under the name if it was made under another one than was typed.
    pub fn check(&self, live: &Value) -> Result<()> {
        self.asked.as_ref().map_or(Ok(()), |asked| check_asked(asked, live))
    }

    /// Its path, in the namespace that is meant.
    pub fn path(&self, connection: &Connection, all_namespaces: bool) -> String {
        let namespace = (!all_namespaces).then_some(connection.namespace.as_str());
        let path = self.resource.path(namespace);
        match &self.name {
            Some(name) => format!("{path}/{name}"),
            None => path,
        }
    }
}

/// Understands words. Names of the seed are mapped as everywhere.
pub fn targets(catalogue: &Catalogue, words: &[String]) -> Result<Vec<Target>> {
    let named = |resource: &Resource, name: &str| {
        let mapped =
            if resource.group.starts_with("rbac.") { name.to_owned() } else { api::dialect::map_name(name) };
        let asked = (mapped != name).then(|| name.to_owned());
        Target { resource: resource.clone(), name: Some(mapped), asked }
    };
    if words.iter().any(|word| word.contains('/')) {
        return words
            .iter()
            .map(|word| match word.split_once('/') {
                Some((kind, name)) if !name.is_empty() => Ok(named(catalogue.find(kind)?, name)),
                _ => bail!("there is no need to specify a resource type as a separate argument when passing arguments in resource/name form (e.g. 'kubectl get resource/<resource_name>' instead of 'kubectl get resource resource/<resource_name>'"),
            })
            .collect();
    }
    let Some((kinds, names)) = words.split_first() else {
        bail!("You must specify the type of resource to get.")
    };
    let mut resources = Vec::new();
    for kind in kinds.split(',') {
        match catalogue.category(kind) {
            members if members.is_empty() => resources.push(catalogue.find(kind)?.clone()),
            members => resources.extend(members.into_iter().cloned()),
        }
    }
    if names.is_empty() {
        return Ok(resources.iter().map(Target::all).collect());
    }
    // Each name of each kind, as upstream does it.
    Ok(names.iter().flat_map(|name| resources.iter().map(|resource| named(resource, name))).collect())
}

/// The query of a list.
pub fn query(flags: &SelectFlags) -> String {
    let mut parts = Vec::new();
    for (name, value) in [("labelSelector", &flags.selector), ("fieldSelector", &flags.field_selector)] {
        parts.extend(value.as_ref().map(|value| format!("{name}={}", encode(value))));
    }
    if parts.is_empty() { String::new() } else { format!("?{}", parts.join("&")) }
}

/// A text as part of a query.
pub fn encode(text: &str) -> String {
    text.bytes().fold(String::new(), |encoded, byte| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
            encoded + &char::from(byte).to_string()
        }
        _ => encoded + &format!("%{byte:02X}"),
    })
}

/// The objects that were asked for, each with its kind.
pub async fn objects(connection: &Connection, flags: &SelectFlags) -> Result<Vec<(Resource, Value)>> {
    let catalogue = Catalogue::for_words(connection, &flags.words).await?;
    let targets = targets(&catalogue, &flags.words)?;
    find(connection, &targets, flags).await
}

/// The same; where nothing has the name of `TYPE NAME`, all whose names start with it, and whether that was so.
pub async fn objects_or_prefixed(
    connection: &Connection,
    flags: &SelectFlags,
) -> Result<(Vec<(Resource, Value)>, bool)> {
    let catalogue = Catalogue::for_words(connection, &flags.words).await?;
    let targets = targets(&catalogue, &flags.words)?;
    let missing = match find(connection, &targets, flags).await {
        Err(error) if is_not_found(&error) => error,
        found => return Ok((found?, false)),
    };
    let Some((kind, prefix)) = kind_and_prefix(&flags.words, &targets) else { return Err(missing) };
    let mut found = find(connection, &[kind], &SelectFlags::default()).await?;
    found.retain(|(_, object)| name_of(object).starts_with(prefix));
    if found.is_empty() { Err(missing) } else { Ok((found, true)) }
}

/// All of the kind and the start of names that `TYPE NAME_PREFIX` means; other forms mean no prefix.
fn kind_and_prefix<'a>(words: &'a [String], targets: &[Target]) -> Option<(Target, &'a str)> {
    match (words, targets) {
        ([_, prefix], [target]) => Some((Target::all(&target.resource), prefix)),
        _ => None,
    }
}

async fn find(
    connection: &Connection,
    targets: &[Target],
    flags: &SelectFlags,
) -> Result<Vec<(Resource, Value)>> {
    let mut found = Vec::new();
    for target in targets {
        let path = target.path(connection, flags.all_namespaces && target.name.is_none());
        if target.name.is_some() {
            let object = connection.get(&path).await?;
            target.check(&object)?;
            found.push((target.resource.clone(), object));
            continue;
        }
        let list = connection.get(&format!("{path}{}", query(flags))).await?;
        for mut item in list["items"].as_array().cloned().unwrap_or_default() {
            item["apiVersion"] = target.resource.api_version().into();
            item["kind"] = target.resource.kind.clone().into();
            found.push((target.resource.clone(), item));
        }
    }
    Ok(found)
}

/// The path of an object that was read.
pub fn path_of(resource: &Resource, object: &Value) -> String {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    format!("{}/{name}", resource.path(object["metadata"]["namespace"].as_str()))
}

/// Whether an object has the labels that a selector wants.
pub fn has_labels(selector: &api::selector::LabelSelector, object: &Value) -> bool {
    let none = serde_json::Map::new();
    selector.matches(object["metadata"]["labels"].as_object().unwrap_or(&none))
}

/// An object's name.
pub fn name_of(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}
