//! A kind: all that the server needs to know to serve its objects.
//!
//! Each built-in kind is one file under `kinds/` that returns a [`Kind`]; a CustomResourceDefinition becomes one
//! too. Routes, discovery, OpenAPI, storage, watch and tables are derived from it.

use crate::crd::{Structural, Versions};
use crate::field::{Errors, Field};
use crate::schema::{Schema, definitions};
use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope, Resource};
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::Value;
use std::any::TypeId;
use std::borrow::Cow;
use std::sync::Arc;

/// Whether objects of a kind live in namespaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// In a namespace each.
    Namespaced,
    /// In the cluster as a whole.
    Cluster,
}

/// What may be asked of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verbs {
    /// get, list, watch, create, update, patch, delete, deletecollection.
    All,
    /// create only: a question, such as SubjectAccessReview, whose answer is not kept.
    CreateOnly,
    /// get and list only: what is computed when somebody asks, such as PodMetrics, and never kept.
    ReadOnly,
}

/// One part of an object served under a path of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subresource {
    /// `status`: written apart from the rest.
    Status,
    /// `scale`: the object seen as a number of replicas. Paths are dotted, without a leading dot.
    Scale {
        /// Where the wanted number is.
        spec_replicas: String,
        /// Where the present number is.
        status_replicas: String,
        /// Where the selector is, as text (`status.selector`) or as a label selector (`spec.selector`).
        selector: Option<String>,
    },
    /// A named one with code of its own in the apiserver: binding, eviction, log, token, approval, ….
    Named {
        /// The path segment.
        name: &'static str,
        /// Group, version and kind of what it takes; empty group and version mean the parent's own.
        takes: (&'static str, &'static str, &'static str),
        /// Discovery's verbs.
        verbs: &'static [&'static str],
    },
}

/// One column of `kubectl get`.
#[derive(Clone)]
pub struct Column {
    /// The header.
    pub name: String,
    /// OpenAPI's type: string, integer, number, boolean or date.
    pub ty: &'static str,
    /// `name` for the name column, otherwise empty.
    pub format: &'static str,
    /// What the column means.
    pub description: String,
    /// 0 is always shown, 1 with `-o wide`.
    pub priority: i32,
    /// How a cell comes out of an object.
    pub cell: Cell,
}

/// How a cell comes out of an object.
#[derive(Clone)]
pub enum Cell {
    /// A function of the object and the present time.
    Fn(fn(&Value, jiff::Timestamp) -> Value),
    /// A JSONPath (`.spec.replicas`), as custom kinds give them; the type `date` shows an age.
    Path(String),
}

/// A column that is always shown.
pub fn column(name: &str, ty: &'static str, cell: fn(&Value, jiff::Timestamp) -> Value) -> Column {
    Column {
        name: name.into(),
        ty,
        format: "",
        description: String::new(),
        priority: 0,
        cell: Cell::Fn(cell),
    }
}

/// A column that only `-o wide` shows.
pub fn wide(name: &str, ty: &'static str, cell: fn(&Value, jiff::Timestamp) -> Value) -> Column {
    Column { priority: 1, ..column(name, ty, cell) }
}

/// Fills in what the user left out.
pub type Default = fn(&mut Value);
/// Complains about an object as it would be stored.
pub type Validate = fn(&Field<'_>, &mut Errors);
/// Complains about a change: new, then old.
pub type ValidateUpdate = fn(&Field<'_>, &Field<'_>, &mut Errors);
/// Adjusts an object before it is created (`old` is `None`) or updated: resets what the writer may not set, keeps
/// what must not be lost.
pub type Prepare = fn(&mut Value, Option<&Value>);
/// Turns an object of the stored version into this version, or back.
pub type Convert = fn(Value) -> Value;

/// The hosts that an object names.
pub type Hosts = fn(&Value) -> Vec<String>;

/// A kind of object.
#[derive(Clone)]
pub struct Kind {
    /// The API group; empty for the core.
    pub group: String,
    /// The version, such as `v1`.
    pub version: String,
    /// The name in CamelCase.
    pub kind: String,
    /// The name of a list of them.
    pub list_kind: String,
    /// The path segment.
    pub plural: String,
    /// The lower-case name of one.
    pub singular: String,
    /// What people type instead.
    pub short_names: Vec<String>,
    /// Groups such as `all`.
    pub categories: Vec<String>,
    /// Namespaced or not.
    pub scope: Scope,
    /// What may be asked.
    pub verbs: Verbs,
    /// Parts served under paths of their own.
    pub subresources: Vec<Subresource>,
    /// The columns of a table; empty means name and age.
    pub columns: Vec<Column>,
    /// Fields that field selectors may name, beyond metadata.name and metadata.namespace: dotted paths.
    pub selectable_fields: Vec<String>,
    /// Whether `metadata.generation` counts changes of anything but metadata and status.
    pub generation: bool,
    /// Whether an update must name the resourceVersion it is based on.
    pub unconditional_update: bool,
    /// Whether a PUT of an object that is not there creates it.
    pub create_on_update: bool,
    /// Whether the status that a creator gives is kept, as that of nodes is.
    pub status_on_create: bool,
    /// Whether many objects may be deleted in one request.
    pub delete_collection: bool,
    /// What everybody who uses the kind is warned of.
    pub deprecated: Option<Cow<'static, str>>,
    /// The name's rule; complaints go to `metadata.name`.
    pub validate_name: fn(&str) -> Result<(), String>,
    /// Fills in what was left out.
    pub default: Default,
    /// Adjusts before create and update of the main resource.
    pub prepare: Prepare,
    /// Adjusts before an update of `status`.
    pub prepare_status: Prepare,
    /// Rules for objects.
    pub validate: Validate,
    /// Rules for objects that hold only when they are created.
    pub validate_create: Validate,
    /// What a writer should know of an object that is accepted.
    pub warnings: fn(&Value) -> Vec<String>,
    /// Rules for changes.
    pub validate_update: ValidateUpdate,
    /// Rules for changes of status.
    pub validate_status: ValidateUpdate,
    /// The hosts that an object of the kind leads somewhere: whoever writes them is asked whether they may.
    pub hosts: Option<Hosts>,
    /// How this version differs from the stored one: (from stored, to stored). `None`: it is the stored one.
    pub convert: Option<(Convert, Convert)>,
    /// The version that objects are stored in, where it is not this one and nothing but the version's name differs.
    pub stored_version: Option<String>,
    /// Members that the stored version calls otherwise: (here, there). Field selectors are told so.
    pub stored_members: &'static [(&'static str, &'static str)],
    /// Group and plural under which objects are stored, where they differ from this kind's own.
    pub stored_as: Option<(String, String)>,
    /// Adds the type's definition to a schema generator; `None` for custom kinds.
    pub definition: Option<fn(&mut SchemaGenerator)>,
    /// The definition's name, such as `io.k8s.api.core.v1.Pod`.
    pub definition_name: String,
    /// The schema of a custom kind, as it was given (`openAPIV3Schema`), with its compiled form.
    pub custom: Option<Arc<CustomSchema>>,
    /// All versions of a custom kind: how its stored objects are read.
    pub versions: Option<Arc<Versions>>,
}

/// The schema of a custom kind.
pub struct CustomSchema {
    /// As the definition gave it.
    pub json: Value,
    /// Compiled for decoding and merging.
    pub schema: Schema,
    /// Compiled for pruning, defaults and validation.
    pub structural: Structural,
}

impl Kind {
    /// A built-in kind, identified by its Rust type.
    pub fn new<T>() -> Kind
    where
        T: Resource + JsonSchema,
        T::Scope: 'static,
    {
        let kind = T::KIND.to_owned();
        let namespaced = TypeId::of::<T::Scope>() == TypeId::of::<NamespaceResourceScope>();
        debug_assert!(namespaced || TypeId::of::<T::Scope>() == TypeId::of::<ClusterResourceScope>());
        Kind {
            group: T::GROUP.into(),
            version: T::VERSION.into(),
            list_kind: format!("{kind}List"),
            plural: T::URL_PATH_SEGMENT.into(),
            singular: kind.to_ascii_lowercase(),
            kind,
            scope: if namespaced { Scope::Namespaced } else { Scope::Cluster },
            definition: Some(|generator| {
                generator.subschema_for::<T>();
            }),
            definition_name: T::schema_name().into_owned(),
            ..Kind::blank()
        }
    }

    /// A kind of which nothing is said yet: no names, no rules.
    pub(crate) fn blank() -> Kind {
        Kind {
            group: String::new(),
            version: String::new(),
            kind: String::new(),
            list_kind: String::new(),
            plural: String::new(),
            singular: String::new(),
            short_names: Vec::new(),
            categories: Vec::new(),
            scope: Scope::Namespaced,
            verbs: Verbs::All,
            subresources: Vec::new(),
            columns: Vec::new(),
            selectable_fields: Vec::new(),
            generation: false,
            unconditional_update: true,
            create_on_update: false,
            status_on_create: false,
            delete_collection: true,
            deprecated: None,
            validate_name: |_| Ok(()),
            default: |_| (),
            prepare: |_, _| (),
            prepare_status: |_, _| (),
            validate: |_, _| (),
            validate_create: |_, _| (),
            warnings: |_| Vec::new(),
            validate_update: |_, _, _| (),
            validate_status: |_, _, _| (),
            hosts: None,
            convert: None,
            stored_version: None,
            stored_members: &[],
            stored_as: None,
            definition: None,
            definition_name: String::new(),
            custom: None,
            versions: None,
        }
    }

    /// `v1`, or `apps/v1`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// `pods`, or `deployments.apps`: how messages name the resource.
    pub fn group_resource(&self) -> String {
        if self.group.is_empty() { self.plural.clone() } else { format!("{}.{}", self.plural, self.group) }
    }

    /// Whether objects live in namespaces.
    pub fn namespaced(&self) -> bool {
        self.scope == Scope::Namespaced
    }

    /// Whether `status` is written apart from the rest.
    pub fn has_status(&self) -> bool {
        self.subresources.contains(&Subresource::Status)
    }

    /// The schema its objects are checked against.
    pub fn schema(&self) -> &Schema {
        match &self.custom {
            Some(custom) => &custom.schema,
            None => definitions().get(&self.definition_name).expect("every built-in kind has a definition"),
        }
    }

    /// Where the stored version has what is at this path here.
    pub fn stored_path<'a>(&self, path: &'a str) -> Cow<'a, str> {
        let (first, rest) = path.find('.').map_or((path, ""), |dot| path.split_at(dot));
        match self.stored_members.iter().find(|(here, _)| *here == first) {
            Some((_, there)) => format!("{there}{rest}").into(),
            None => path.into(),
        }
    }

    /// The key prefix of its objects in the store, ending in `/`.
    pub fn prefix(&self) -> String {
        let (group, plural) = match &self.stored_as {
            Some((group, plural)) => (group.as_str(), plural.as_str()),
            None => (self.group.as_str(), self.plural.as_str()),
        };
        let group = if group.is_empty() { "core" } else { group };
        format!("/registry/{group}/{plural}/")
    }

    /// The key of one object in the store.
    pub fn key(&self, namespace: &str, name: &str) -> String {
        let prefix = self.prefix();
        if self.namespaced() { format!("{prefix}{namespace}/{name}") } else { format!("{prefix}{name}") }
    }
}

/// Sets fields of a [`Kind`] in the order people read them.
impl Kind {
    /// What people type instead of the plural.
    pub fn short(mut self, names: &[&str]) -> Self {
        self.short_names = names.iter().map(|&name| name.to_owned()).collect();
        self
    }

    /// Makes `kubectl get all` show it.
    pub fn in_all(mut self) -> Self {
        self.categories.push("all".into());
        self
    }

    /// Serves `status` apart from the rest.
    pub fn with_status(mut self) -> Self {
        self.subresources.push(Subresource::Status);
        self
    }

    /// Serves `scale`.
    pub fn with_scale(mut self, spec_replicas: &str, status_replicas: &str, selector: &str) -> Self {
        self.subresources.push(Subresource::Scale {
            spec_replicas: spec_replicas.into(),
            status_replicas: status_replicas.into(),
            selector: Some(selector.into()),
        });
        self
    }

    /// Serves a part that the apiserver has code for.
    pub fn with_subresource(
        mut self,
        name: &'static str,
        takes: (&'static str, &'static str, &'static str),
        verbs: &'static [&'static str],
    ) -> Self {
        self.subresources.push(Subresource::Named { name, takes, verbs });
        self
    }

    /// Counts changes in `metadata.generation`.
    pub fn with_generation(mut self) -> Self {
        self.generation = true;
        self
    }

    /// Allows field selectors on these paths.
    pub fn selectable(mut self, paths: &[&str]) -> Self {
        self.selectable_fields = paths.iter().map(|&path| path.to_owned()).collect();
        self
    }
}
