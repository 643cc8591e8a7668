//! The OpenAPI documents: how clients learn the shape of objects and the paths they live at.
//!
//! ```text
//! kinds ──schemas──┐
//!       ──paths────┴─> /openapi/v3/{path}: one document per group version      (kubectl explain, apply, create)
//!                          └─v2──> /openapi/v2: all of them in the older form ──proto──> gnostic's protobuf
//! ```
//!
//! A document is a function of the kinds it describes, made when somebody first asks and kept compressed: a
//! [`Cache`] holds it until one of those kinds is replaced. Nothing here knows HTTP.

mod paths;
mod proto;
mod schemas;
mod v2;

use crate::discovery::{groups, of_version, versions};
use api::kind::Kind;
use bytes::Bytes;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::io::{Read, Write};
use std::sync::Arc;

/// A document, compressed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document {
    gzip: Bytes,
    length: usize,
    hash: String,
}

impl Document {
    /// Compresses and hashes a document.
    pub fn new(plain: &[u8]) -> Document {
        let infallible = "writing to memory does not fail";
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(plain).expect(infallible);
        let gzip = encoder.finish().expect(infallible).into();
        Document { gzip, length: plain.len(), hash: hash(plain) }
    }

    /// The bytes for clients that take gzip.
    pub fn gzip(&self) -> Bytes {
        self.gzip.clone()
    }

    /// The bytes for clients that do not.
    pub fn plain(&self) -> Vec<u8> {
        let mut plain = Vec::with_capacity(self.length);
        GzDecoder::new(self.gzip.as_ref()).read_to_end(&mut plain).expect("compressed by ourselves");
        plain
    }

    /// The `ETag`, with its quotes.
    pub fn etag(&self) -> String {
        format!("\"{}\"", self.hash)
    }

    /// The hash that the index names and that a request repeats (`?hash=`): what is asked for by its hash never
    /// changes.
    pub fn hash(&self) -> &str {
        &self.hash
    }
}

/// The forms of the older document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum V2Form {
    /// JSON.
    Json,
    /// gnostic's protobuf, which kubectl and client-go ask for.
    Protobuf,
}

impl V2Form {
    /// The form that an `Accept` header asks for; JSON where it says nothing that is known.
    pub fn accepted(accept: &str) -> V2Form {
        let known = |range: &str| {
            let media_type = range.split(';').next().unwrap_or_default().trim();
            match media_type {
                "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
                | "application/com.github.proto-openapi.spec.v2@v1.0+protobuf" => Some(V2Form::Protobuf),
                "application/json" | "application/*" | "*/*" => Some(V2Form::Json),
                _ => None,
            }
        };
        accept.split(',').find_map(known).unwrap_or(V2Form::Json)
    }

    /// The `Content-Type` of that form.
    pub fn content_type(self) -> &'static str {
        match self {
            V2Form::Json => "application/json",
            V2Form::Protobuf => "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
        }
    }
}

/// The documents made so far.
///
/// # Guarantees
/// A document always describes the kinds it is asked for with: each is kept with the kinds it was made of and made
/// again when they are others. Kinds are compared by identity, so a changed definition must make new `Arc`s.
///
/// # Caveats
/// Making a document takes milliseconds of work: callers on an async runtime hand it to a blocking thread.
#[derive(Default)]
pub struct Cache {
    documents: Mutex<HashMap<Key, Made>>,
}

/// A document and the kinds it was made of.
struct Made {
    of: Vec<Arc<Kind>>,
    document: Arc<Document>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Key {
    Index,
    V3(String),
    V2(V2Form),
}

impl Cache {
    /// No documents yet.
    pub fn new() -> Cache {
        Cache::default()
    }

    /// `/openapi/v3`: the paths of all documents, with the hashes they have now.
    pub fn index(&self, kinds: &[Arc<Kind>]) -> Arc<Document> {
        self.forget_others(kinds);
        self.get_or_make(Key::Index, kinds.to_vec(), || {
            let mut paths = Map::new();
            for path in documents(kinds) {
                if let Some(document) = self.v3(kinds, &path) {
                    let url = format!("/openapi/v3/{path}?hash={}", document.hash());
                    paths.insert(path, json!({"serverRelativeURL": url}));
                }
            }
            json!({"paths": paths}).to_string().into_bytes()
        })
    }

    /// `/openapi/v3/{path}`, such as `api/v1` or `apis/apps/v1`; `None` if there is no such document.
    pub fn v3(&self, kinds: &[Arc<Kind>], path: &str) -> Option<Arc<Document>> {
        let subject = Subject::parse(kinds, path)?;
        let of = subject.kinds(kinds);
        Some(
            self.get_or_make(Key::V3(path.to_owned()), of, || {
                subject.document(kinds).to_string().into_bytes()
            }),
        )
    }

    /// `/openapi/v2`.
    pub fn v2(&self, kinds: &[Arc<Kind>], form: V2Form) -> Arc<Document> {
        self.get_or_make(Key::V2(form), kinds.to_vec(), || {
            let swagger = v2::swagger(documents(kinds).iter().filter_map(|path| {
                let subject = Subject::parse(kinds, path)?;
                Some(subject.document(kinds))
            }));
            match form {
                V2Form::Json => swagger.to_string().into_bytes(),
                V2Form::Protobuf => proto::encode(&swagger),
            }
        })
    }

    fn get_or_make(&self, key: Key, of: Vec<Arc<Kind>>, make: impl FnOnce() -> Vec<u8>) -> Arc<Document> {
        let same = |a: &[Arc<Kind>], b: &[Arc<Kind>]| {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| Arc::ptr_eq(a, b))
        };
        if let Some(made) = self.documents.lock().get(&key)
            && same(&made.of, &of)
        {
            return made.document.clone();
        }
        // Made outside of the lock: two who ask at once make it twice, and nobody waits.
        let document = Arc::new(Document::new(&make()));
        self.documents.lock().insert(key, Made { of, document: document.clone() });
        document
    }

    /// Drops documents of group versions that are no longer served.
    fn forget_others(&self, kinds: &[Arc<Kind>]) {
        self.documents.lock().retain(|key, _| match key {
            Key::V3(path) => Subject::parse(kinds, path).is_some(),
            Key::Index | Key::V2(_) => true,
        });
    }
}

/// What a document is about.
enum Subject<'a> {
    /// `/api`: the versions of the core group.
    Core,
    /// `/apis`: the named groups.
    Groups,
    /// `/apis/{group}`.
    Group(&'a str),
    /// The resources of one version.
    Version(&'a str, &'a str),
    /// `/version`.
    ServerVersion,
}

impl<'a> Subject<'a> {
    fn parse(kinds: &[Arc<Kind>], path: &'a str) -> Option<Subject<'a>> {
        let exists = |group: &str, version: Option<&str>| {
            kinds
                .iter()
                .any(|kind| kind.group == group && version.is_none_or(|version| kind.version == version))
        };
        let segments: Vec<&str> = path.split('/').collect();
        match segments.as_slice() {
            ["api"] => Some(Subject::Core),
            ["apis"] => Some(Subject::Groups),
            ["version"] => Some(Subject::ServerVersion),
            ["api", version] if exists("", Some(version)) => Some(Subject::Version("", version)),
            ["apis", group] if !group.is_empty() && exists(group, None) => Some(Subject::Group(group)),
            ["apis", group, version] if !group.is_empty() && exists(group, Some(version)) => {
                Some(Subject::Version(group, version))
            }
            _ => None,
        }
    }

    /// The kinds that the document is made of.
    fn kinds(&self, kinds: &[Arc<Kind>]) -> Vec<Arc<Kind>> {
        match self {
            Subject::Version(group, version) => {
                of_version(kinds, group, version).into_iter().cloned().collect()
            }
            _ => Vec::new(),
        }
    }

    fn document(&self, kinds: &[Arc<Kind>]) -> Value {
        let (paths, schemas) = match self {
            Subject::Core => (paths::core(), schemas::of_discovery()),
            Subject::Groups => (paths::groups(), schemas::of_discovery()),
            Subject::Group(group) => (paths::group(group), schemas::of_discovery()),
            Subject::ServerVersion => (paths::server_version(), schemas::of_server_version()),
            Subject::Version(group, version) => {
                let of = of_version(kinds, group, version);
                (paths::of_version(&of, group, version), schemas::of_version(&of, kinds))
            }
        };
        json!({
            "openapi": "3.0.0",
            "info": {"title": "Kubernetes", "version": "unversioned"},
            "paths": paths,
            "components": {
                "schemas": schemas,
                "securitySchemes": {"BearerToken": {"description": "Bearer Token authentication", "type": "apiKey",
                    "name": "authorization", "in": "header"}},
            },
        })
    }
}

/// The paths of all documents.
fn documents(kinds: &[Arc<Kind>]) -> Vec<String> {
    let mut paths = vec!["api".to_owned(), "apis".to_owned(), "version".to_owned()];
    paths.extend(versions(kinds, "").into_iter().map(|version| format!("api/{version}")));
    for group in groups(kinds) {
        paths.push(format!("apis/{group}"));
        paths.extend(versions(kinds, group).into_iter().map(|version| format!("apis/{group}/{version}")));
    }
    paths
}

/// Upper-case hexadecimal, as upstream writes it.
fn hash(bytes: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA512, bytes);
    digest.as_ref().iter().map(|byte| format!("{byte:02X}")).collect()
}

#[cfg(test)]
mod tests;
