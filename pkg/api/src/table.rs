//! Objects as people read them: Tables and PartialObjectMetadata of `meta.k8s.io`.
//!
//! ```text
//! Kind ──columns──> Table ──row(object)──> cells + object    (kubectl get, watch)
//! ```
//!
//! The server makes cells so that `kubectl get` needs to know no kind. A [`Table`] is made once per request: paths of
//! custom columns are parsed then, not for each row.

use crate::jsonpath::JsonPath;
use crate::kind::{Cell, Column, Kind};
use crate::object;
use crate::printing::human_duration;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

/// How much of an object a row carries beside its cells.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum IncludeObject {
    /// Nothing.
    None,
    /// Its metadata.
    #[default]
    Metadata,
    /// All of it.
    Object,
}

impl IncludeObject {
    /// The value of the query parameter `includeObject`; absent reads as `Metadata`.
    pub fn parse(value: Option<&str>) -> Option<IncludeObject> {
        match value {
            None | Some("" | "Metadata") => Some(IncludeObject::Metadata),
            Some("None") => Some(IncludeObject::None),
            Some("Object") => Some(IncludeObject::Object),
            Some(_) => None,
        }
    }
}

/// A version of `meta.k8s.io`. What is made here is of `v1`; of the older one it differs in nothing but its name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum MetaVersion {
    /// `v1`.
    #[default]
    V1,
    /// `v1beta1`.
    V1Beta1,
}

impl MetaVersion {
    /// By its name.
    pub fn parse(name: &str) -> Option<MetaVersion> {
        match name {
            "v1" => Some(MetaVersion::V1),
            "v1beta1" => Some(MetaVersion::V1Beta1),
            _ => None,
        }
    }

    /// As an `apiVersion`.
    pub fn api_version(self) -> &'static str {
        match self {
            MetaVersion::V1 => "meta.k8s.io/v1",
            MetaVersion::V1Beta1 => "meta.k8s.io/v1beta1",
        }
    }

    /// A table or a row of one, or objects with nothing but their metadata, in this version. Whole objects in rows are of
    /// their own.
    pub fn of(self, mut made: Value) -> Value {
        let rename = |part: &mut Value| {
            if let Some(version) =
                part.get_mut("apiVersion").filter(|version| **version == MetaVersion::V1.api_version())
            {
                *version = self.api_version().into();
            }
        };
        if self != MetaVersion::V1 {
            made.get_mut("items").and_then(Value::as_array_mut).into_iter().flatten().for_each(rename);
            let rows = made.get_mut("rows").and_then(Value::as_array_mut).into_iter().flatten();
            rows.filter_map(|row| row.get_mut("object")).for_each(rename);
            made.get_mut("object").into_iter().for_each(rename);
            rename(&mut made);
        }
        made
    }
}

/// The columns of a kind, ready to make rows.
pub struct Table<'a> {
    columns: Vec<TableColumn<'a>>,
}

struct TableColumn<'a> {
    name: &'a str,
    ty: &'a str,
    format: &'a str,
    description: &'a str,
    priority: i32,
    cell: CellOf<'a>,
}

enum CellOf<'a> {
    Name,
    CreatedAt,
    Age,
    Fn(fn(&Value, Timestamp) -> Value),
    /// `None`: a path that does not parse, which shows nothing.
    Path(Option<JsonPath>, &'a str),
}

const NAME: &str = "Name must be unique within a namespace. Is required when creating resources, although some \
    resources may allow a client to request the generation of an appropriate name automatically. Name is primarily \
    intended for creation idempotence and configuration definition. Cannot be updated. More info: \
    https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names";
const CREATED: &str = "CreationTimestamp is a timestamp representing the server time when this object was created. It \
    is not guaranteed to be set in happens-before order across separate operations. Clients may not set this value. It \
    is represented in RFC3339 form and is in UTC.\n\nPopulated by the system. Read-only. Null for lists. More info: \
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";

/// A whole table: that of a list, or of a single object.
///
/// `metadata` is the list's (or `{"resourceVersion": …}` of the object).
pub fn table<'v>(
    kind: &Kind,
    objects: impl Iterator<Item = &'v Value>,
    metadata: Value,
    include: IncludeObject,
    now: Timestamp,
) -> Value {
    let table = Table::new(kind);
    let rows = objects.map(|object| table.row(object, include, now)).collect();
    table.with_rows(metadata, rows, true)
}

/// An object with nothing but its metadata.
pub fn partial_object(object: &Value) -> Value {
    json!({
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": object.get("metadata").cloned().unwrap_or_else(|| json!({})),
    })
}

/// A list of objects with nothing but their metadata.
pub fn partial_list<'v>(objects: impl Iterator<Item = &'v Value>, metadata: Value) -> Value {
    json!({
        "kind": "PartialObjectMetadataList",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "items": objects.map(partial_object).collect::<Vec<Value>>(),
    })
}

impl<'a> Table<'a> {
    /// The columns of a kind: its own, or name and age.
    pub fn new(kind: &'a Kind) -> Table<'a> {
        let own = kind.columns.iter().map(TableColumn::of);
        let columns = match (kind.custom.is_some(), kind.columns.is_empty()) {
            (false, false) => own.collect(),
            (false, true) => vec![TableColumn::name(), TableColumn::created_at()],
            (true, false) => std::iter::once(TableColumn::name()).chain(own).collect(),
            (true, true) => vec![TableColumn::name(), TableColumn::age()],
        };
        Table { columns }
    }

    /// The row of one object.
    pub fn row(&self, object: &Value, include: IncludeObject, now: Timestamp) -> Value {
        let cells = self.cells(object, now);
        let object = match include {
            IncludeObject::None => Value::Null,
            IncludeObject::Metadata => partial_object(object),
            IncludeObject::Object => object.clone(),
        };
        json!({"cells": cells, "object": object})
    }

    /// The cells of one object's row.
    pub fn cells(&self, object: &Value, now: Timestamp) -> Value {
        self.columns.iter().map(|column| column.cell.show(object, now)).collect()
    }

    /// A table of these rows. In a watch only the first event has headers.
    pub fn with_rows(&self, metadata: Value, rows: Vec<Value>, headers: bool) -> Value {
        let headers = if headers { self.definitions() } else { Value::Null };
        let mut table = Map::new();
        table.insert("kind".into(), "Table".into());
        table.insert("apiVersion".into(), "meta.k8s.io/v1".into());
        table.insert("metadata".into(), metadata);
        table.insert("columnDefinitions".into(), headers);
        table.insert("rows".into(), rows.into());
        Value::Object(table)
    }

    fn definitions(&self) -> Value {
        let definition = |column: &TableColumn<'_>| {
            json!({"name": column.name, "type": column.ty, "format": column.format,
                "description": column.description, "priority": column.priority})
        };
        self.columns.iter().map(definition).collect()
    }
}

impl<'a> TableColumn<'a> {
    fn of(column: &'a Column) -> TableColumn<'a> {
        let description = match (column.format, column.description.as_str()) {
            ("name", "") => NAME,
            (_, "") if column.name == "Age" => CREATED,
            (_, description) => description,
        };
        TableColumn {
            name: &column.name,
            ty: column.ty,
            format: column.format,
            description,
            priority: column.priority,
            cell: match &column.cell {
                Cell::Fn(show) => CellOf::Fn(*show),
                Cell::Path(path) => CellOf::Path(JsonPath::parse(path).ok(), column.ty),
            },
        }
    }

    fn name() -> TableColumn<'a> {
        TableColumn {
            name: "Name",
            ty: "string",
            format: "name",
            description: NAME,
            priority: 0,
            cell: CellOf::Name,
        }
    }

    fn created_at() -> TableColumn<'a> {
        let column = TableColumn::age();
        TableColumn { name: "Created At", cell: CellOf::CreatedAt, ..column }
    }

    fn age() -> TableColumn<'a> {
        TableColumn {
            name: "Age",
            ty: "date",
            format: "",
            description: CREATED,
            priority: 0,
            cell: CellOf::Age,
        }
    }
}

impl CellOf<'_> {
    fn show(&self, object: &Value, now: Timestamp) -> Value {
        match self {
            CellOf::Name => object::name(object).into(),
            CellOf::CreatedAt => object::meta(object, "creationTimestamp").map_or(Value::Null, Value::from),
            CellOf::Age => {
                object::meta(object, "creationTimestamp").map_or(Value::Null, |time| age(time, now))
            }
            CellOf::Fn(show) => show(object, now),
            CellOf::Path(path, ty) => match path.as_ref().and_then(|path| path.first(object)) {
                Some(value) => typed(value, ty, now),
                None => Value::Null,
            },
        }
    }
}

/// A value as a cell of its column's type; nothing where it is of another.
fn typed(value: &Value, ty: &str, now: Timestamp) -> Value {
    match (ty, value) {
        ("string", Value::String(_)) => value.clone(),
        ("string", Value::Null) => "<no value>".into(),
        ("string", other) => other.to_string().into(),
        ("integer", number) if number.is_i64() => number.clone(),
        ("integer", Value::Number(number)) => {
            number.as_f64().map_or(Value::Null, |float| (float as i64).into())
        }
        ("number", Value::Number(number)) => number.as_f64().map_or(Value::Null, Value::from),
        ("boolean", Value::Bool(_)) => value.clone(),
        ("date", Value::String(time)) => age(time, now),
        _ => Value::Null,
    }
}

fn age(time: &str, now: Timestamp) -> Value {
    match time.parse::<Timestamp>() {
        Ok(time) => human_duration(now.duration_since(time).as_secs()).into(),
        Err(_) => "<invalid>".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crd;
    use crate::kind::{column, wide};
    use k8s_openapi::api::core::v1::ConfigMap;

    fn now() -> Timestamp {
        "2026-01-01T01:00:00Z".parse().unwrap()
    }

    fn object() -> Value {
        json!({"metadata": {"name": "a", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"replicas": 3, "ratio": 2, "on": true, "list": [1], "when": "2025-12-31T01:00:00Z"}})
    }

    fn names(table: &Value) -> Vec<&str> {
        table["columnDefinitions"].as_array().unwrap().iter().map(|c| c["name"].as_str().unwrap()).collect()
    }

    #[test]
    fn kinds_without_columns_show_name_and_time() {
        let kind = Kind::new::<ConfigMap>();
        let table = table(
            &kind,
            [&object()].into_iter(),
            json!({"resourceVersion": "5"}),
            IncludeObject::Metadata,
            now(),
        );
        assert_eq!(names(&table), ["Name", "Created At"]);
        assert_eq!(table["metadata"]["resourceVersion"], "5");
        assert_eq!(table["rows"][0]["cells"], json!(["a", "2026-01-01T00:00:00Z"]));
        assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
        assert_eq!(table["rows"][0]["object"]["metadata"]["name"], "a");
        assert_eq!(table["rows"][0]["object"].get("spec"), None);
    }

    #[test]
    fn built_in_columns_are_functions() {
        let mut kind = Kind::new::<ConfigMap>();
        kind.columns = vec![
            column("Name", "string", |o, _| object::name(o).into()),
            wide("Replicas", "integer", |o, _| o["spec"]["replicas"].clone()),
        ];
        let table = table(&kind, [&object()].into_iter(), json!({}), IncludeObject::None, now());
        assert_eq!(table["columnDefinitions"][1]["priority"], 1);
        assert_eq!(table["rows"][0], json!({"cells": ["a", 3], "object": null}));
    }

    #[test]
    fn custom_columns_are_paths() {
        let column = |name: &str, ty: &str, path: &str| json!({"name": name, "type": ty, "jsonPath": path});
        let definition = json!({"spec": {"group": "g.io", "names": {"plural": "ks", "kind": "K"}, "versions": [
        {"name": "v1", "served": true, "storage": true, "additionalPrinterColumns": [
            column("Replicas", "integer", ".spec.replicas"),
            column("Ratio", "number", ".spec.ratio"),
            column("On", "boolean", ".spec.on"),
            column("List", "string", ".spec.list"),
            column("When", "date", ".spec.when"),
            column("Missing", "string", ".spec.missing"),
            column("Wrong", "integer", ".metadata.name"),
        ]}]}});
        let kinds = crd::kinds(&definition);
        let table = table(&kinds[0], [&object()].into_iter(), json!({}), IncludeObject::Object, now());
        assert_eq!(names(&table), ["Name", "Replicas", "Ratio", "On", "List", "When", "Missing", "Wrong"]);
        assert_eq!(table["rows"][0]["cells"], json!(["a", 3, 2.0, true, "[1]", "24h", null, null]));
        assert_eq!(table["rows"][0]["object"], object());
    }

    #[test]
    fn custom_kinds_without_columns_show_name_and_age() {
        let definition = json!({"spec": {"group": "g.io", "names": {"plural": "ks", "kind": "K"},
            "versions": [{"name": "v1", "served": true, "storage": true}]}});
        let kinds = crd::kinds(&definition);
        let table = Table::new(&kinds[0]);
        let row = table.row(&object(), IncludeObject::None, now());
        assert_eq!(row["cells"], json!(["a", "60m"]));
        let later = table.with_rows(json!({}), vec![row], false);
        assert_eq!(later["columnDefinitions"], Value::Null);
    }

    #[test]
    fn partial_lists_carry_only_metadata() {
        let list = partial_list([&object()].into_iter(), json!({"resourceVersion": "9"}));
        assert_eq!(list["kind"], "PartialObjectMetadataList");
        assert_eq!(list["items"][0]["metadata"], object()["metadata"]);
        assert_eq!(IncludeObject::parse(Some("x")), None);
    }
}
