//! What the client can take: JSON or YAML, whole objects, tables or metadata only, compressed or not.

use crate::body::Body;
use crate::error::{ApiError, Result};
use api::table::MetaVersion;
use http::HeaderMap;
use http::header::{ACCEPT, ACCEPT_ENCODING};

/// How an answer is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// `application/json`.
    Json,
    /// `application/yaml`.
    Yaml,
}

/// What of the objects is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// The objects.
    Object,
    /// A Table of `meta.k8s.io`.
    Table,
    /// PartialObjectMetadata, or a list of it.
    Metadata,
}

/// The outcome of the negotiation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// How.
    pub format: Format,
    /// What.
    pub shape: Shape,
    /// Which version of tables and of metadata.
    pub meta: MetaVersion,
}

impl Wanted {
    /// Takes the first clause of `Accept` that can be satisfied. Watches are always JSON. Some kinds have no tables.
    pub fn from_headers(headers: &HeaderMap, has_tables: bool) -> Result<Wanted> {
        let Some(accept) = headers.get(ACCEPT) else {
            return Ok(Wanted { format: Format::Json, shape: Shape::Object, meta: MetaVersion::V1 });
        };
        let accept = accept.to_str().map_err(|_| ApiError::not_acceptable())?;
        let can_be = |wanted: &Wanted| has_tables || wanted.shape != Shape::Table;
        accept.split(',').filter_map(clause).find(can_be).ok_or_else(ApiError::not_acceptable)
    }

    /// Whether it is what the caches hold: JSON of whole objects.
    pub fn is_plain(self) -> bool {
        self.shape == Shape::Object && self.format == Format::Json
    }
}

fn clause(clause: &str) -> Option<Wanted> {
    let mut parts = clause.split(';').map(str::trim);
    let format = match parts.next()? {
        "application/json" | "*/*" | "application/*" => Format::Json,
        "application/yaml" | "application/x-yaml" => Format::Yaml,
        _ => return None,
    };
    let parameters: Vec<(&str, &str)> = parts.filter_map(|p| p.split_once('=')).collect();
    let parameter = |name: &str| parameters.iter().find(|(n, _)| *n == name).map(|(_, value)| *value);
    let meta = parameter("v").and_then(MetaVersion::parse);
    let shape = match parameter("as") {
        None => Shape::Object,
        Some(_) if parameter("g") != Some("meta.k8s.io") || meta.is_none() => return None,
        Some("Table") => Shape::Table,
        Some("PartialObjectMetadata" | "PartialObjectMetadataList") => Shape::Metadata,
        Some(_) => return None,
    };
    Some(Wanted { format, shape, meta: meta.unwrap_or_default() })
}

/// Smaller answers are not worth compressing; upstream's threshold.
const WORTH_COMPRESSING: u64 = 128 * 1024;

/// Whether a body should be compressed for this client: if it is large, or may well be.
pub fn compresses(headers: &HeaderMap, body: &Body) -> bool {
    let is_worth_it = match body {
        Body::Full(_) | Body::List(_) => body.bytes().is_some_and(|bytes| bytes >= WORTH_COMPRESSING),
        Body::Work(_) => true,
        Body::Stream(_) => false,
    };
    is_worth_it
        && headers.get(ACCEPT_ENCODING).and_then(|value| value.to_str().ok()).is_some_and(|value| {
            value.split(',').any(|coding| coding.trim().split(';').next() == Some("gzip"))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_clause_that_can_be_satisfied_wins() {
        let wanted = |accept: &str, has_tables: bool| {
            let headers = HeaderMap::from_iter([(ACCEPT, accept.parse().unwrap())]);
            Wanted::from_headers(&headers, has_tables).ok().map(|w| (w.format, w.shape))
        };
        let check = |accept: &str, expected: Option<(Format, Shape)>| {
            let wanted = wanted(accept, true);
            assert_eq!(wanted, expected, "{accept}");
        };
        check("application/json", Some((Format::Json, Shape::Object)));
        check("application/vnd.kubernetes.protobuf,application/json", Some((Format::Json, Shape::Object)));
        check(
            "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
            Some((Format::Json, Shape::Table)),
        );
        check("application/json;as=Table;g=meta.k8s.io;v=v1beta1, */*", Some((Format::Json, Shape::Table)));
        check("application/json;as=Table;g=meta.k8s.io;v=v1alpha1, */*", Some((Format::Json, Shape::Object)));
        check("application/yaml", Some((Format::Yaml, Shape::Object)));
        check(
            "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
            Some((Format::Json, Shape::Metadata)),
        );
        check("text/html", None);
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
        assert_eq!(wanted(table, false), None);
        assert_eq!(wanted(&format!("{table},application/json"), false), Some((Format::Json, Shape::Object)));
    }
}
