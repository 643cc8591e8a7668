//! What a request asks for: its path, method and query, understood once.
//!
//! ```text
//! /api/v1/namespaces/{namespace}/{resource}/{name}/{subresource…}
//! /apis/{group}/{version}/{resource}/{name}
//! ```

use crate::error::{ApiError, Result};
use api::selector::FieldSelector;
use http::Method;
use std::borrow::Cow;

/// A request, understood as upstream's `RequestInfo` is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestInfo<'a> {
    /// get, list, watch, create, update, patch, delete, deletecollection; the method in lower case for other paths.
    pub verb: &'static str,
    /// The path as it came.
    pub path: &'a str,
    /// What it names; `None` for paths that are not of a resource.
    pub target: Option<Target<'a>>,
    /// What the field selector of a collection request wants fields to equal.
    pub fields: Vec<(String, String)>,
}

/// The resource that a path names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Target<'a> {
    /// Empty for the core group.
    pub group: &'a str,
    /// Such as `v1`.
    pub version: &'a str,
    /// Empty for cluster-scoped resources and requests over all namespaces.
    pub namespace: Cow<'a, str>,
    /// The plural.
    pub resource: &'a str,
    /// Empty for collections.
    pub name: Cow<'a, str>,
    /// Empty for the object itself.
    pub subresource: &'a str,
    /// What follows the subresource (`proxy` takes a path).
    pub rest: &'a str,
}

impl<'a> RequestInfo<'a> {
    /// Understands method, path and query. Never fails: what is not a resource is a plain path.
    pub fn parse(method: &Method, path: &'a str, query: &Query) -> RequestInfo<'a> {
        let plain = RequestInfo { verb: plain_verb(method), path, target: None, fields: Vec::new() };
        let Some((group, version, rest)) = group_version(path) else { return plain };
        let (rest, old_watch) = match rest.strip_prefix("watch/") {
            Some(rest) => (rest, true),
            None => (rest, false),
        };
        let Some(mut target) = target(group, version, rest) else { return plain };
        let verb = match *method {
            Method::POST => "create",
            Method::PUT => "update",
            Method::PATCH => "patch",
            Method::DELETE if target.name.is_empty() => "deletecollection",
            Method::DELETE => "delete",
            Method::GET | Method::HEAD
                if old_watch || (query.flag("watch") && target.subresource.is_empty()) =>
            {
                "watch"
            }
            Method::GET | Method::HEAD if target.name.is_empty() => "list",
            Method::GET | Method::HEAD => "get",
            _ => "",
        };
        let fields = match verb {
            "list" | "watch" | "deletecollection" => wanted_fields(query),
            _ => Vec::new(),
        };
        // A list that can only be about one object is authorized as being about it.
        if let Some((_, name)) = fields.iter().find(|(field, _)| field == "metadata.name")
            && target.name.is_empty()
        {
            target.name = Cow::Owned(name.clone());
        }
        RequestInfo { verb, path, target: Some(target), fields }
    }
}

/// What must be equal to be selected. A selector that cannot be read selects nothing here; whoever uses it complains.
fn wanted_fields(query: &Query) -> Vec<(String, String)> {
    let selector = query.get("fieldSelector").and_then(|text| FieldSelector::parse(text).ok());
    let terms = selector.iter().flat_map(|selector| selector.terms()).filter(|term| term.equal);
    terms.map(|term| (term.field.to_string(), term.value.to_string())).collect()
}

fn plain_verb(method: &Method) -> &'static str {
    match *method {
        Method::GET => "get",
        Method::HEAD => "head",
        Method::POST => "post",
        Method::PUT => "put",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        Method::OPTIONS => "options",
        _ => "",
    }
}

/// Splits `/api/v1/…` and `/apis/group/version/…`; the rest must name a resource.
fn group_version(path: &str) -> Option<(&str, &str, &str)> {
    let (group, rest) = if let Some(rest) = path.strip_prefix("/api/") {
        ("", rest)
    } else {
        path.strip_prefix("/apis/")?.split_once('/')?
    };
    let (version, rest) = rest.split_once('/')?;
    let rest = rest.trim_end_matches('/');
    (!rest.is_empty()).then_some((group, version, rest))
}

fn target<'a>(group: &'a str, version: &'a str, rest: &'a str) -> Option<Target<'a>> {
    let mut target = Target { group, version, ..Target::default() };
    let rest = match rest.strip_prefix("namespaces/").and_then(|rest| rest.split_once('/')) {
        // `namespaces/x/status` is about the namespace itself, as `namespaces/x` is.
        Some((_, "status" | "finalize")) | None => rest,
        Some((namespace, rest)) => {
            target.namespace = decoded(namespace)?;
            rest
        }
    };
    let (resource, rest) = rest.split_once('/').unwrap_or((rest, ""));
    let (name, rest) = rest.split_once('/').unwrap_or((rest, ""));
    let (subresource, rest) = rest.split_once('/').unwrap_or((rest, ""));
    target.resource = resource;
    target.name = decoded(name)?;
    target.subresource = subresource;
    target.rest = rest;
    if group.is_empty() && resource == "namespaces" && !name.is_empty() {
        target.namespace = target.name.clone();
    }
    Some(target)
}

/// Undoes percent-encoding; `None` where that does not give text.
fn decoded(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains('%') {
        return Some(Cow::Borrowed(text));
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(if byte == b'%' { hex(rest.next()?)? << 4 | hex(rest.next()?)? } else { byte });
    }
    String::from_utf8(bytes).ok().map(Cow::Owned)
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|d| d as u8)
}

/// The query string, decoded.
#[derive(Debug, Default)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Decodes `a=b&c=d`.
    pub fn parse(query: Option<&str>) -> Result<Query> {
        let Some(query) = query.filter(|q| !q.is_empty()) else { return Ok(Query::default()) };
        query
            .split('&')
            .filter(|pair| !pair.is_empty())
            .map(|pair| {
                let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
                let decode = |text: &str| decoded(&text.replace('+', " ")).map(Cow::into_owned);
                decode(name).zip(decode(value))
            })
            .collect::<Option<Vec<_>>>()
            .map(Query)
            .ok_or_else(|| ApiError::bad_request("the query string is not properly encoded"))
    }

    /// The first non-empty value of that name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(n, value)| n == name && !value.is_empty()).map(|(_, value)| value.as_str())
    }

    /// All values of that name.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// Whether a boolean parameter is given and not `false` or `0`, as upstream converts them.
    pub fn flag(&self, name: &str) -> bool {
        self.all(name)
            .next()
            .is_some_and(|value| !matches!(value, "false" | "0" | "False" | "FALSE" | "f" | "F"))
    }

    /// A boolean parameter that may be absent.
    pub fn optional_flag(&self, name: &str) -> Option<bool> {
        self.all(name).next().map(|_| self.flag(name))
    }

    /// An integer parameter.
    pub fn int(&self, name: &str) -> Result<Option<i64>> {
        let Some(text) = self.get(name) else { return Ok(None) };
        text.parse().map(Some).map_err(|_| {
            ApiError::bad_request(format!(
                "strconv.ParseInt: parsing {text:?}: invalid syntax (query parameter {name})"
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(method: &str, path_and_query: &str, expected: &str) {
        let (path, query) = path_and_query.split_once('?').unwrap_or((path_and_query, ""));
        let query = Query::parse(Some(query)).unwrap();
        let info = RequestInfo::parse(&method.parse().unwrap(), path, &query);
        let text = match info.target {
            None => format!("{} {}", info.verb, info.path),
            Some(t) => format!(
                "{} group={} version={} ns={} resource={} name={} sub={} rest={}",
                info.verb, t.group, t.version, t.namespace, t.resource, t.name, t.subresource, t.rest
            ),
        };
        assert_eq!(text, expected, "{method} {path_and_query}");
    }

    #[test]
    fn paths_are_understood_as_upstream_does() {
        check("GET", "/healthz", "get /healthz");
        check("GET", "/apis/apps/v1", "get /apis/apps/v1");
        check("GET", "/api/v1/pods", "list group= version=v1 ns= resource=pods name= sub= rest=");
        check("GET", "/api/v1/pods?watch=true", "watch group= version=v1 ns= resource=pods name= sub= rest=");
        check("GET", "/api/v1/watch/pods", "watch group= version=v1 ns= resource=pods name= sub= rest=");
        check(
            "GET",
            "/api/v1/namespaces/a/pods/b/log?watch=1",
            "get group= version=v1 ns=a resource=pods name=b sub=log rest=",
        );
        check(
            "GET",
            "/api/v1/namespaces/a",
            "get group= version=v1 ns=a resource=namespaces name=a sub= rest=",
        );
        check(
            "PUT",
            "/api/v1/namespaces/a/finalize",
            "update group= version=v1 ns=a resource=namespaces name=a sub=finalize rest=",
        );
        check(
            "DELETE",
            "/apis/apps/v1/namespaces/a/deployments",
            "deletecollection group=apps version=v1 ns=a resource=deployments name= sub= rest=",
        );
        check(
            "GET",
            "/api/v1/namespaces/a/services/x:80/proxy/p/q",
            "get group= version=v1 ns=a resource=services name=x:80 sub=proxy rest=p/q",
        );
        check(
            "GET",
            "/api/v1/nodes?fieldSelector=metadata.name%3Dn1",
            "list group= version=v1 ns= resource=nodes name=n1 sub= rest=",
        );
        check(
            "GET",
            "/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Anode",
            "get group=rbac.authorization.k8s.io version=v1 ns= resource=clusterroles name=system:node sub= rest=",
        );
    }

    #[test]
    fn a_broken_encoding_is_an_error_and_not_a_panic() {
        assert!(Query::parse(Some("a=%")).is_err());
        assert!(Query::parse(Some("a=%ff")).is_err());
        assert_eq!(RequestInfo::parse(&Method::GET, "/api/v1/pods/%zz", &Query::default()).target, None);
    }
}
