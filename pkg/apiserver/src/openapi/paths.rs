//! The paths of one group version and what may be done there.

use super::schemas::{META, PREFIX, list_name, taken};
use crate::discovery::{Part, served};
use api::kind::{Kind, Verbs};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// All paths of the kinds of one group version.
pub(super) fn of_version(kinds: &[&Arc<Kind>], group: &str, version: &str) -> Map<String, Value> {
    let root = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
    let place = Place { root, ident: ident(group), tag: tag(group, version), version: capital(version) };
    let mut paths = Map::new();
    let resources = place
        .operation("get", "available resources", "APIResources")
        .response(&format!("{META}.APIResourceList"));
    paths.insert(format!("{}/", place.root), json!({"get": resources.value}));
    for kind in kinds {
        Resource { place: &place, kind }.add_to(&mut paths);
    }
    paths
}

/// `/api/`.
pub(super) fn core() -> Map<String, Value> {
    discovery("/api/", "core", "getCoreAPIVersions", "get available API versions", "APIVersions")
}

/// `/apis/`.
pub(super) fn groups() -> Map<String, Value> {
    discovery("/apis/", "apis", "getAPIVersions", "get available API versions", "APIGroupList")
}

/// `/apis/{group}/`.
pub(super) fn group(group: &str) -> Map<String, Value> {
    let (path, tag, id) =
        (format!("/apis/{group}/"), lower(&ident(group)), format!("get{}APIGroup", ident(group)));
    discovery(&path, &tag, &id, "get information of a group", "APIGroup")
}

/// `/version/`.
pub(super) fn server_version() -> Map<String, Value> {
    let operation = json!({
        "description": "get the version information for this server",
        "operationId": "getCodeVersion",
        "tags": ["version"],
        "responses": responses(&[("200", "OK")], "io.k8s.apimachinery.pkg.version.Info", &["application/json"]),
    });
    Map::from_iter([("/version/".to_owned(), json!({"get": operation}))])
}

fn discovery(path: &str, tag: &str, id: &str, description: &str, kind: &str) -> Map<String, Value> {
    let operation = json!({
        "description": description,
        "operationId": id,
        "tags": [tag],
        "responses": responses(&[("200", "OK")], &format!("{META}.{kind}"), &MEDIA_TYPES),
    });
    Map::from_iter([(path.to_owned(), json!({"get": operation}))])
}

const MEDIA_TYPES: [&str; 2] = ["application/json", "application/yaml"];
const LIST_MEDIA_TYPES: [&str; 3] = ["application/json", "application/yaml", "application/json;stream=watch"];
const PATCH_TYPES: [&str; 4] = [
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
];

/// Query parameters: name, type, what they mean.
type Parameter = (&'static str, &'static str, &'static str);

const PRETTY: Parameter = ("pretty", "string", "If 'true', the output is pretty printed.");
const DRY_RUN: Parameter =
    ("dryRun", "string", "'All' runs every stage of the request without storing anything.");
const FIELD_MANAGER: Parameter =
    ("fieldManager", "string", "The name of the actor that makes these changes; required to apply.");
const FIELD_VALIDATION: Parameter = (
    "fieldValidation",
    "string",
    "What happens to unknown and duplicate fields: 'Ignore' drops them, 'Warn' drops them with a warning (the default), \
     'Strict' refuses the request.",
);
const FORCE: Parameter =
    ("force", "boolean", "Take over fields that others manage. Only for requests that apply.");
const WRITE: [Parameter; 3] = [DRY_RUN, FIELD_MANAGER, FIELD_VALIDATION];
const PATCH: [Parameter; 4] = [DRY_RUN, FIELD_MANAGER, FIELD_VALIDATION, FORCE];
const SELECT: [Parameter; 7] = [
    ("continue", "string", "Where to go on with a list, as the previous answer said."),
    ("fieldSelector", "string", "Only objects with these fields."),
    ("labelSelector", "string", "Only objects with these labels."),
    ("limit", "integer", "The most objects to return at once."),
    ("resourceVersion", "string", "What version of the data may be served, or where a watch starts."),
    ("resourceVersionMatch", "string", "How resourceVersion is applied to a list."),
    ("timeoutSeconds", "integer", "How long a list or watch may take."),
];
const WATCH: [Parameter; 3] = [
    ("allowWatchBookmarks", "boolean", "Send bookmarks in a watch."),
    ("sendInitialEvents", "boolean", "Begin a watch with the objects that there are."),
    ("watch", "boolean", "Stream changes of the objects instead of listing them."),
];
const DELETE: [Parameter; 5] = [
    DRY_RUN,
    ("gracePeriodSeconds", "integer", "How long the object has to stop; zero deletes it at once."),
    (
        "ignoreStoreReadErrorWithClusterBreakingPotential",
        "boolean",
        "Delete an object even if it cannot be read.",
    ),
    ("orphanDependents", "boolean", "Deprecated: use propagationPolicy."),
    ("propagationPolicy", "string", "What becomes of dependents: 'Orphan', 'Background' or 'Foreground'."),
];
const LOG: [Parameter; 9] = [
    ("container", "string", "The container whose log to read; may be left out if the pod has one."),
    ("follow", "boolean", "Go on as the log is written."),
    ("insecureSkipTLSVerifyBackend", "boolean", "Do not verify the certificate of the node."),
    ("limitBytes", "integer", "The most bytes to return."),
    ("previous", "boolean", "The log of the container that ran before."),
    ("sinceSeconds", "integer", "Only lines of the last so many seconds."),
    ("stream", "string", "'All', 'Stdout' or 'Stderr'."),
    ("tailLines", "integer", "Only the last so many lines."),
    ("timestamps", "boolean", "Begin each line with its time."),
];

/// Where a group version lives and how it is named.
struct Place {
    root: String,
    ident: String,
    tag: String,
    version: String,
}

impl Place {
    fn operation(&self, verb: &str, of: &str, name: &str) -> Operation {
        Operation {
            value: json!({
                "description": format!("{verb} {of}"),
                "operationId": format!("{verb}{}{}{name}", self.ident, self.version),
                "tags": [self.tag],
            }),
        }
    }
}

/// An operation in the making.
struct Operation {
    value: Value,
}

impl Operation {
    fn described(mut self, description: String) -> Self {
        self.value["description"] = description.into();
        self
    }

    fn acting(mut self, action: &str, gvk: &Value) -> Self {
        self.value["x-kubernetes-action"] = action.into();
        self.value["x-kubernetes-group-version-kind"] = gvk.clone();
        self
    }

    fn parameters(mut self, lists: &[&[Parameter]]) -> Self {
        self.value["parameters"] = queries(lists).into();
        self
    }

    fn body(mut self, schema: &str, media_types: &[&str], required: bool) -> Self {
        self.value["requestBody"] = json!({"content": content(schema, media_types)});
        if required {
            self.value["requestBody"]["required"] = true.into();
        }
        self
    }

    fn responses(mut self, codes: &[(&str, &str)], schema: &str, media_types: &[&str]) -> Self {
        self.value["responses"] = responses(codes, schema, media_types);
        self
    }

    fn response(self, schema: &str) -> Self {
        self.responses(&[("200", "OK")], schema, &MEDIA_TYPES)
    }
}

/// One kind, being described.
struct Resource<'a> {
    place: &'a Place,
    kind: &'a Kind,
}

impl Resource<'_> {
    fn add_to(&self, paths: &mut Map<String, Value>) {
        let (root, plural) = (&self.place.root, &self.kind.plural);
        let collection = match self.kind.namespaced() {
            true => format!("{root}/namespaces/{{namespace}}/{plural}"),
            false => format!("{root}/{plural}"),
        };
        match self.kind.verbs {
            Verbs::CreateOnly => {
                let item = json!({"post": self.create().value, "parameters": self.common(false)});
                paths.insert(collection.clone(), item);
            }
            verbs @ (Verbs::All | Verbs::ReadOnly) => {
                let mut item = json!({
                    "get": self.list(&self.name()).parameters(&[&SELECT, &WATCH]).value,
                    "parameters": self.common(false),
                });
                let mut one = self.item();
                if verbs == Verbs::All {
                    item["post"] = self.create().value;
                    item["delete"] = self.delete_collection().value;
                } else if let Some(methods) = one.as_object_mut() {
                    methods.retain(|method, _| matches!(method.as_str(), "get" | "parameters"));
                }
                paths.insert(collection.clone(), item);
                if self.kind.namespaced() {
                    let list = self.list(&format!("{}ForAllNamespaces", self.kind.kind));
                    let parameters = queries(&[&SELECT, &WATCH, &[PRETTY]]);
                    paths.insert(
                        format!("{root}/{plural}"),
                        json!({"get": list.value, "parameters": parameters}),
                    );
                }
                paths.insert(format!("{collection}/{{name}}"), one);
            }
        }
        for part in served(self.kind) {
            paths.insert(format!("{collection}/{{name}}/{}", part.name), self.part(&part));
            if part.name == "proxy" {
                let mut item = self.part(&Part { name: "proxy", ..part });
                add_proxy_path(&mut item);
                paths.insert(format!("{collection}/{{name}}/proxy/{{path}}"), item);
            }
        }
    }

    /// `NamespacedPod`, or `Node`.
    fn name(&self) -> String {
        let scope = if self.kind.namespaced() { "Namespaced" } else { "" };
        format!("{scope}{}", self.kind.kind)
    }

    fn gvk(&self) -> Value {
        json!({"group": self.kind.group, "version": self.kind.version, "kind": self.kind.kind})
    }

    /// Parameters that all operations of a path have.
    fn common(&self, named: bool) -> Vec<Value> {
        let path = |name: &str, description: String| {
            json!({"name": name, "in": "path", "required": true, "description": description,
                "schema": {"type": "string", "uniqueItems": true}})
        };
        let mut parameters = Vec::new();
        if named {
            parameters.push(path("name", format!("name of the {}", self.kind.kind)));
        }
        if self.kind.namespaced() {
            let description = "object name and auth scope, such as for teams and projects";
            parameters.push(path("namespace", description.into()));
        }
        parameters.extend(queries(&[&[PRETTY]]));
        parameters
    }

    fn create(&self) -> Operation {
        let kind = self.kind;
        self.place
            .operation("create", "", &self.name())
            .described(format!("create {}", article(&kind.kind)))
            .acting("post", &self.gvk())
            .parameters(&[&WRITE])
            .body(&kind.definition_name, &["*/*"], true)
            .responses(
                &[("200", "OK"), ("201", "Created"), ("202", "Accepted")],
                &kind.definition_name,
                &MEDIA_TYPES,
            )
    }

    fn list(&self, name: &str) -> Operation {
        self.place
            .operation("list", "", name)
            .described(format!("list or watch objects of kind {}", self.kind.kind))
            .acting("list", &self.gvk())
            .responses(&[("200", "OK")], &list_name(self.kind), &LIST_MEDIA_TYPES)
    }

    fn delete_collection(&self) -> Operation {
        self.place
            .operation("delete", "", &format!("Collection{}", self.name()))
            .described(format!("delete collection of {}", self.kind.kind))
            .acting("deletecollection", &self.gvk())
            .parameters(&[&SELECT, &DELETE])
            .body(&format!("{META}.DeleteOptions"), &["*/*"], false)
            .response(&format!("{META}.Status"))
    }

    /// The path of one object.
    fn item(&self) -> Value {
        let (kind, gvk, schema) = (self.kind, self.gvk(), &self.kind.definition_name);
        let delete = self
            .place
            .operation("delete", "", &self.name())
            .described(format!("delete {}", article(&kind.kind)))
            .acting("delete", &gvk)
            .parameters(&[&DELETE])
            .body(&format!("{META}.DeleteOptions"), &["*/*"], false)
            .responses(&[("200", "OK"), ("202", "Accepted")], &format!("{META}.Status"), &MEDIA_TYPES);
        let mut item =
            self.read_and_write(&self.name(), &format!("the specified {}", kind.kind), &gvk, schema);
        item["delete"] = delete.value;
        item
    }

    /// A path that can be read, replaced and patched.
    fn read_and_write(&self, name: &str, of: &str, gvk: &Value, schema: &str) -> Value {
        let written = [("200", "OK"), ("201", "Created")];
        let operation =
            |verb: &str, text: &str| self.place.operation(verb, "", name).described(format!("{text} {of}"));
        let read = operation("read", "read").acting("get", gvk).response(schema);
        let replace = operation("replace", "replace")
            .acting("put", gvk)
            .parameters(&[&WRITE])
            .body(schema, &["*/*"], true)
            .responses(&written, schema, &MEDIA_TYPES);
        // What a strategic merge would be, only built-in kinds say.
        let patch_types: Vec<&str> = PATCH_TYPES
            .into_iter()
            .filter(|patch| self.kind.custom.is_none() || !patch.contains("strategic"))
            .collect();
        let patch = operation("patch", "partially update")
            .acting("patch", gvk)
            .parameters(&[&PATCH])
            .body(&format!("{META}.Patch"), &patch_types, true)
            .responses(&written, schema, &MEDIA_TYPES);
        json!({"get": read.value, "put": replace.value, "patch": patch.value, "parameters": self.common(true)})
    }

    fn part(&self, part: &Part) -> Value {
        let (group, version, taken_kind) = &part.takes;
        let gvk = match version.is_empty() {
            true => json!({"group": self.kind.group, "version": self.kind.version, "kind": taken_kind}),
            false => json!({"group": group, "version": version, "kind": taken_kind}),
        };
        let name = format!("{}{}", self.name(), capital(part.name));
        let of = format!("{} of the specified {}", part.name, self.kind.kind);
        let Some(schema) = taken(self.kind, &part.takes) else { return self.connect(part, &gvk) };
        if part.name == "log" {
            let read =
                self.place.operation("read", "", &name).described(format!("read {of}")).acting("get", &gvk);
            let mut read = read.value;
            read["responses"] = text_responses(&["application/json", "text/plain"]);
            let mut parameters = self.common(true);
            parameters.extend(queries(&[&LOG]));
            return json!({"get": read, "parameters": parameters});
        }
        let mut item = self.read_and_write(&name, &of, &gvk, &schema);
        let create = self
            .place
            .operation("create", "", &name)
            .described(format!("create {} of {}", part.name, article(&self.kind.kind)))
            .acting("post", &gvk)
            .parameters(&[&WRITE])
            .body(&schema, &["*/*"], true)
            .responses(&[("200", "OK"), ("201", "Created"), ("202", "Accepted")], &schema, &MEDIA_TYPES);
        item["post"] = create.value;
        if let Some(item) = item.as_object_mut() {
            for (verb, method) in [("get", "get"), ("update", "put"), ("patch", "patch"), ("create", "post")]
            {
                if !part.verbs.contains(&verb) {
                    item.remove(method);
                }
            }
        }
        item
    }

    /// A path that opens a connection to something behind the object.
    fn connect(&self, part: &Part, gvk: &Value) -> Value {
        let mut item = json!({"parameters": self.common(true)});
        let methods =
            [("get", "get"), ("create", "post"), ("update", "put"), ("patch", "patch"), ("delete", "delete")];
        for (verb, method) in methods {
            if !part.verbs.contains(&verb) {
                continue;
            }
            let name = format!("{}{}{}", capital(method), self.name(), capital(part.name));
            let upper = method.to_ascii_uppercase();
            let mut operation = self
                .place
                .operation("connect", "", &name)
                .described(format!("connect {upper} requests to {} of {}", part.name, self.kind.kind))
                .acting("connect", gvk)
                .value;
            operation["responses"] = text_responses(&["*/*"]);
            item[method] = operation;
        }
        item
    }
}

/// The same path with the rest of the proxied one.
fn add_proxy_path(item: &mut Value) {
    for (method, operation) in item.as_object_mut().into_iter().flatten() {
        if method == "parameters" {
            let path = json!({"name": "path", "in": "path", "required": true, "description": "path to the resource",
                "schema": {"type": "string", "uniqueItems": true}});
            operation.as_array_mut().into_iter().for_each(|list| list.push(path.clone()));
        } else if let Some(id) = operation["operationId"].as_str() {
            operation["operationId"] = format!("{id}WithPath").into();
        }
    }
}

fn queries(lists: &[&[Parameter]]) -> Vec<Value> {
    let mut parameters: Vec<&Parameter> = lists.iter().flat_map(|list| list.iter()).collect();
    parameters.sort_by_key(|(name, ..)| *name);
    let describe = |(name, ty, description): &Parameter| {
        json!({"name": name, "in": "query", "description": description,
            "schema": {"type": ty, "uniqueItems": true}})
    };
    parameters.into_iter().map(describe).collect()
}

fn content(schema: &str, media_types: &[&str]) -> Value {
    let schema = json!({"schema": {"$ref": format!("{PREFIX}{schema}")}});
    media_types
        .iter()
        .map(|media_type| ((*media_type).to_owned(), schema.clone()))
        .collect::<Map<_, _>>()
        .into()
}

fn responses(codes: &[(&str, &str)], schema: &str, media_types: &[&str]) -> Value {
    let mut responses = json!({"401": {"description": "Unauthorized"}});
    for (code, description) in codes {
        responses[*code] = json!({"description": description, "content": content(schema, media_types)});
    }
    responses
}

fn text_responses(media_types: &[&str]) -> Value {
    let content: Map<String, Value> = media_types
        .iter()
        .map(|media_type| ((*media_type).to_owned(), json!({"schema": {"type": "string"}})))
        .collect();
    json!({"200": {"description": "OK", "content": content}, "401": {"description": "Unauthorized"}})
}

/// A group's name in operation ids: `Core`, `Apps`, `RbacAuthorization`, `StableExampleCom`.
fn ident(group: &str) -> String {
    if group.is_empty() {
        return "Core".into();
    }
    group.trim_end_matches(".k8s.io").split(['.', '-']).map(capital).collect()
}

fn tag(group: &str, version: &str) -> String {
    format!("{}_{version}", lower(&ident(group)))
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(chars).collect()
}

fn lower(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_ascii_lowercase()).into_iter().chain(chars).collect()
}

fn article(kind: &str) -> String {
    let article = if kind.starts_with(['A', 'E', 'I', 'O', 'U']) { "an" } else { "a" };
    format!("{article} {kind}")
}
