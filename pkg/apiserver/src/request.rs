//! What a request asks for: its path, method and query, understood once.
//!
//! ```text
//! /api/v1/namespaces/{namespace}/{resource}/{name}/{subresource…}
//! /apis/{group}/{version}/{resource}/{name}
//! /api/v1/watch/…                                     the old form of a watch
//! ```
//!
//! What is permitted and what is served are both read from here, and from nowhere else: a name is one whether the path
//! says it or a field selector, and a request whose selector says another name than its path is none at all.

use crate::error::{ApiError, Result};
use api::selector::{FieldSelector, Term};
use http::Method;
use std::borrow::Cow;

/// The field that selects one object by its name.
const NAME: &str = "metadata.name";

/// A request, understood as upstream's `RequestInfo` is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestInfo<'a> {
    /// get, list, watch, create, update, patch, delete, deletecollection; the method in lower case for other paths.
    pub verb: &'static str,
    /// The path, decoded.
    pub path: &'a str,
    /// What it names; `None` for paths that are not of a resource.
    pub target: Option<Target<'a>>,
    /// What a request for many objects selects by their fields: of a watch of one, its name.
    pub fields: FieldSelector,
}

/// The resource that a path names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Target<'a> {
    /// Empty for the core group.
    pub group: &'a str,
    /// Such as `v1`.
    pub version: &'a str,
    /// The verb that stands before the resource, if one does.
    pub verb_in_path: Option<&'static str>,
    /// Where the resource stands.
    pub scope: PathScope,
    /// Empty for cluster-scoped resources and requests over all namespaces; a namespace is in itself.
    pub namespace: &'a str,
    /// The plural.
    pub resource: &'a str,
    /// The object's name, which may be said by the selector of a list or watch; empty for collections.
    pub name: Cow<'a, str>,
    /// Whether the path ends in the resource and names no object.
    pub is_collection: bool,
    /// Empty for the object itself.
    pub subresource: &'a str,
    /// Where in the path what follows the subresource begins, with its slash.
    pub rest_at: usize,
}

/// Where in a path the resource stands. Which of them its kind has is decided by [`crate::scope`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PathScope {
    /// `/{resource}`
    #[default]
    Cluster,
    /// `/namespaces/{namespace}/{resource}`
    Namespace,
    /// `/namespaces/{name}`, and its own `status` and `finalize`.
    Itself,
}

impl<'a> RequestInfo<'a> {
    /// Understands method, path (decoded, see [`decoded_path`]) and query. What is not a resource is a plain path.
    pub fn parse(method: &Method, path: &'a str, query: &Query) -> Result<RequestInfo<'a>> {
        let fields = FieldSelector::everything();
        let Some(mut target) = target(path) else {
            return Ok(RequestInfo { verb: plain_verb(method), path, target: None, fields });
        };
        let is_watch = query.flag("watch");
        let verb = match (target.verb_in_path, method) {
            (Some(verb), _) => verb,
            (None, &Method::POST) => "create",
            (None, &Method::PUT) => "update",
            (None, &Method::PATCH) => "patch",
            (None, &Method::DELETE) if target.name.is_empty() => "deletecollection",
            (None, &Method::DELETE) => "delete",
            (None, &Method::GET | &Method::HEAD) if !target.name.is_empty() => "get",
            (None, &Method::GET | &Method::HEAD) if is_watch => "watch",
            (None, &Method::GET | &Method::HEAD) => "list",
            _ => "",
        };
        let is_of_many = matches!(verb, "list" | "watch" | "deletecollection");
        let mut fields = fields;
        if is_of_many || (verb == "get" && is_watch) {
            let text = query.get("fieldSelector").unwrap_or_default();
            fields = FieldSelector::parse(text).map_err(|error| ApiError::bad_request(error.to_string()))?;
        }
        if !target.name.is_empty() {
            fields = named(&target.name, fields, verb)?;
        } else if target.verb_in_path.is_none()
            && target.is_collection
            && matches!(verb, "list" | "watch")
            && let Some(name) = only_name(&fields).filter(|name| is_path_segment(name))
        {
            target.name = Cow::Owned(name.to_owned());
        }
        Ok(RequestInfo { verb, path, target: Some(target), fields })
    }

    /// Whether something follows the subresource.
    pub fn has_rest(&self) -> bool {
        self.target.as_ref().is_some_and(|target| target.rest_at < self.path.trim_end_matches('/').len())
    }

    /// What those who permit are told of the selector: upstream tells them nothing of the old form's.
    pub fn fields_asked_for(&self) -> &[Term] {
        match &self.target {
            Some(target) if target.verb_in_path.is_none() => self.fields.terms(),
            _ => &[],
        }
    }
}

impl Target<'_> {
    /// What follows the subresource in the path as it came, `raw`: with its slashes, and encoded as it was.
    pub fn rest<'p>(&self, raw: &'p str) -> &'p str {
        let mut at = 0;
        for _ in 0..self.rest_at {
            at += if raw.as_bytes().get(at) == Some(&b'%') { 3 } else { 1 };
        }
        raw.get(at..).unwrap_or_default()
    }
}

/// The selector of a request for one object: its name. It may say the name too, but no other.
fn named(name: &str, fields: FieldSelector, verb: &str) -> Result<FieldSelector> {
    let is_said = only_name(&fields) == Some(name);
    let contradicts = match verb {
        "watch" => !fields.is_everything() && !is_said,
        _ => fields.pinned(NAME).is_some() && !is_said,
    };
    if contradicts {
        return Err(ApiError::bad_request("fieldSelector metadata.name doesn't match requested name"));
    }
    Ok(match verb {
        "watch" if !is_said => {
            [Term { field: NAME.into(), equal: true, value: name.into() }].into_iter().collect()
        }
        "watch" => fields,
        _ => FieldSelector::everything(),
    })
}

/// The name that every selected object has; none where the selector asks for two at once.
fn only_name(fields: &FieldSelector) -> Option<&str> {
    let names = || fields.terms().iter().filter(|term| term.equal && &*term.field == NAME);
    let first = &*names().next()?.value;
    names().all(|term| &*term.value == first).then_some(first)
}

/// Whether text can be a name in a path.
fn is_path_segment(name: &str) -> bool {
    !matches!(name, "." | "..") && !name.contains(['/', '%'])
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
    let (group, rest) = match path.strip_prefix("/api/") {
        Some(rest) => ("", rest),
        None => path.strip_prefix("/apis/")?.split_once('/').filter(|(group, _)| !group.is_empty())?,
    };
    let (version, rest) = rest.split_once('/')?;
    let rest = rest.trim_end_matches('/');
    (!rest.is_empty()).then_some((group, version, rest))
}

fn target(path: &str) -> Option<Target<'_>> {
    let (group, version, rest) = group_version(path)?;
    let (verb_in_path, rest) = match rest.split_once('/') {
        Some(("watch", rest)) => (Some("watch"), rest),
        Some(("proxy", rest)) => (Some("proxy"), rest),
        _ => (None, rest),
    };
    let below = rest.strip_prefix("namespaces/").map(|below| below.split_once('/').unwrap_or((below, "")));
    let (scope, namespace, rest) = match below {
        None => (PathScope::Cluster, "", rest),
        Some((namespace, after)) => match after.split('/').next() {
            // `namespaces/x/status` is about the namespace itself, as `namespaces/x` is.
            Some("" | "status" | "finalize") if !after.starts_with('/') => {
                (PathScope::Itself, namespace, rest)
            }
            _ => (PathScope::Namespace, namespace, after),
        },
    };
    let (resource, item) = rest.split_once('/').map_or((rest, None), |(first, rest)| (first, Some(rest)));
    let (name, part) = item.unwrap_or_default().split_once('/').unwrap_or((item.unwrap_or_default(), ""));
    let (subresource, after) =
        part.split_once('/').map_or((part, 0), |(first, rest)| (first, rest.len() + 1));
    Some(Target {
        group,
        version,
        verb_in_path,
        scope,
        namespace,
        resource,
        name: name.into(),
        is_collection: item.is_none(),
        subresource,
        rest_at: path.trim_end_matches('/').len() - after,
    })
}

/// A path without percent-encoding. What it means is decided after that, as upstream does: an encoded slash is a slash.
pub fn decoded_path(path: &str) -> Result<Cow<'_, str>> {
    decoded(path).ok_or_else(|| ApiError::bad_request("the path is not properly encoded"))
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

    /// The first value of that name, which alone counts, if it is not empty.
    pub fn get(&self, name: &str) -> Option<&str> {
        let first = self.0.iter().find(|(n, _)| n == name)?;
        Some(first.1.as_str()).filter(|value| !value.is_empty())
    }

    /// All values of that name.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// Whether a boolean parameter is given and not `false` or `0`, as upstream converts them.
    pub fn flag(&self, name: &str) -> bool {
        self.all(name).next().is_some_and(|value| value != "0" && !value.eq_ignore_ascii_case("false"))
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

    fn parse<'a>(method: &str, path: &'a str, query: &str) -> Result<RequestInfo<'a>> {
        RequestInfo::parse(&method.parse().unwrap(), path, &Query::parse(Some(query))?)
    }

    /// Verb and target of a request, and in brackets what it selects.
    fn check(method: &str, path_and_query: &str, expected: &str) {
        let (raw, query) = path_and_query.split_once('?').unwrap_or((path_and_query, ""));
        let path = decoded_path(raw).unwrap();
        let info = parse(method, &path, query).unwrap();
        let text = match &info.target {
            None => format!("{} {}", info.verb, info.path),
            Some(t) => format!(
                "{} group={} version={} ns={} resource={} name={} sub={} rest={} [{}]",
                info.verb,
                t.group,
                t.version,
                t.namespace,
                t.resource,
                t.name,
                t.subresource,
                t.rest(raw),
                info.fields
            ),
        };
        assert_eq!(text, expected, "{method} {path_and_query}");
    }

    #[test]
    fn paths_are_understood_as_upstream_does() {
        check("GET", "/healthz", "get /healthz");
        check("GET", "/apis/apps/v1", "get /apis/apps/v1");
        check("GET", "/api/v1/pods", "list group= version=v1 ns= resource=pods name= sub= rest= []");
        check(
            "GET",
            "/api/v1/pods?watch=true",
            "watch group= version=v1 ns= resource=pods name= sub= rest= []",
        );
        check("GET", "/api/v1/watch/pods", "watch group= version=v1 ns= resource=pods name= sub= rest= []");
        check(
            "GET",
            "/api/v1/namespaces/a/pods/b/log?watch=1",
            "get group= version=v1 ns=a resource=pods name=b sub=log rest= []",
        );
        check(
            "GET",
            "/api/v1/namespaces/a",
            "get group= version=v1 ns=a resource=namespaces name=a sub= rest= []",
        );
        check(
            "PUT",
            "/api/v1/namespaces/a/finalize",
            "update group= version=v1 ns=a resource=namespaces name=a sub=finalize rest= []",
        );
        check(
            "DELETE",
            "/apis/apps/v1/namespaces/a/deployments",
            "deletecollection group=apps version=v1 ns=a resource=deployments name= sub= rest= []",
        );
        check(
            "GET",
            "/api/v1/namespaces/a/services/x:80/proxy/p/q",
            "get group= version=v1 ns=a resource=services name=x:80 sub=proxy rest=/p/q []",
        );
        check(
            "GET",
            "/api/v1/nodes?fieldSelector=metadata.name%3Dn1",
            "list group= version=v1 ns= resource=nodes name=n1 sub= rest= [metadata.name=n1]",
        );
        check(
            "GET",
            "/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Anode",
            "get group=rbac.authorization.k8s.io version=v1 ns= resource=clusterroles name=system:node sub= rest= []",
        );
    }

    #[test]
    fn odd_paths_are_understood_as_upstream_does() {
        check("GET", "/apis//v1/pods", "get /apis//v1/pods");
        check("GET", "//api/v1/pods", "get //api/v1/pods");
        // Where the path has room for a name and none in it, no selector says it: nothing of anything is asked for.
        check(
            "GET",
            "/api/v1/nodes//proxy/x?fieldSelector=metadata.name%3Dn",
            "list group= version=v1 ns= resource=nodes name= sub=proxy rest=/x [metadata.name=n]",
        );
        check("GET", "/api/v1/pods//", "list group= version=v1 ns= resource=pods name= sub= rest=// []");
        check(
            "GET",
            "/api/v1/namespaces//pods",
            "list group= version=v1 ns= resource=pods name= sub= rest= []",
        );
        check(
            "GET",
            "/api/v1/namespaces/a//pods",
            "get group= version=v1 ns=a resource= name=pods sub= rest= []",
        );
        check(
            "GET",
            "/api/v1/%6eamespaces/a%2fpods/b%2Flog",
            "get group= version=v1 ns=a resource=pods name=b sub=log rest= []",
        );
        check(
            "GET",
            "/apis/g.io/v1/namespaces/a",
            "get group=g.io version=v1 ns=a resource=namespaces name=a sub= rest= []",
        );
        check(
            "PUT",
            "/api/v1/namespaces/a/status/b",
            "update group= version=v1 ns=a resource=namespaces name=a sub=status rest=/b []",
        );
        check("POST", "/api/v1/watch/pods", "watch group= version=v1 ns= resource=pods name= sub= rest= []");
        check(
            "GET",
            "/api/v1/proxy/nodes/n",
            "proxy group= version=v1 ns= resource=nodes name=n sub= rest= []",
        );
    }

    #[test]
    fn what_follows_the_proxy_is_kept_as_it_is() {
        let check = |raw: &str, expected: &str| {
            let path = decoded_path(raw).unwrap();
            let info = parse("GET", &path, "").unwrap();
            let target = info.target.unwrap();
            assert_eq!((target.subresource, target.rest(raw)), ("proxy", expected), "{raw}");
        };
        check("/api/v1/nodes/n/proxy", "");
        check("/api/v1/nodes/n/proxy/", "/");
        check("/api/v1/nodes/n/proxy/stats/summary", "/stats/summary");
        check("/api/v1/nodes/n/proxy/namespaces/a/b/c", "/namespaces/a/b/c");
        check("/api/v1/nodes/system%3An%2Fproxy/%2F..%2f", "/%2F..%2f");
        check("/api/v1/nodes/n/proxy%2Fx", "%2Fx");
        check("/api/v1/namespaces/a/pods/p:80/proxy/x//y/", "/x//y/");
        check("/api/v1/namespaces/a/services/https:s:web/proxy/namespaces/%2F", "/namespaces/%2F");
        check("/api/v1/namespaces/a/services/s/proxy", "");
        check("/api/v1/namespaces/a/services/s/proxy//é/%C3%A9", "//é/%C3%A9");
    }

    const SECRETS: &str = "/api/v1/namespaces/a/secrets";

    #[test]
    fn a_name_is_what_the_selector_says_and_not_what_its_text_looks_like() {
        // The name that is permitted, and what is selected.
        let check = |end: &str, query: &str, name: &str, selected: &str| {
            let path = format!("{SECRETS}{end}");
            let info = parse("GET", &path, query).unwrap();
            assert_eq!(info.fields.to_string(), selected, "{path}?{query}");
            assert_eq!(info.target.unwrap().name, name, "{path}?{query}");
        };
        check("", "fieldSelector=metadata.name%3Dx", "x", "metadata.name=x");
        check("", "fieldSelector=metadata.name%3D%3Dx&watch=1", "x", "metadata.name=x");
        check("", "fieldSelector=metadata.name!%3Dx", "", "metadata.name!=x");
        check("", "fieldSelector=metadata.name%3Dx,type%3Dy", "x", "metadata.name=x,type=y");
        check(
            "",
            "fieldSelector=metadata.name%3Dx,metadata.name%3Dx",
            "x",
            "metadata.name=x,metadata.name=x",
        );
        check("", "fieldSelector=metadata.name%3Dx,metadata.name%3Dy", "", "metadata.name=x,metadata.name=y");
        check("", "fieldSelector=metadata.name%3Dx&fieldSelector=metadata.name%3Dy", "x", "metadata.name=x");
        check("", "fieldSelector=&fieldSelector=metadata.name%3Dx", "", "");
        check("", "fieldSelector=metadata.name%3D..", "", "metadata.name=..");
        check("", "fieldSelector=metadata.name%3Da%2Fb", "", "metadata.name=a/b");
        check("", r"fieldSelector=type%3Dmetadata.name\%3Dx", "", r"type=metadata.name\=x");
        check("", "labelSelector=metadata.name%3Dx", "", "");
        // A name in the path is a GET, whatever the query says.
        check("/x", "watch=1", "x", "");
        check("/x", "watch=1&fieldSelector=metadata.name%3Dx", "x", "");
        check("/x", "fieldSelector=metadata.name%3Dy", "x", "");
    }

    #[test]
    fn a_watch_of_one_is_of_that_one() {
        let check = |query: &str, expected: Option<&str>| {
            let path = "/api/v1/watch/namespaces/a/secrets/x";
            let found = parse("GET", path, query).map(|info| info.fields.to_string());
            let refusal = "fieldSelector metadata.name doesn't match requested name";
            let found = found.map_err(|error| (error.code.as_u16(), error.message));
            assert_eq!(found, expected.map(str::to_owned).ok_or((400, refusal.to_owned())), "{query}");
        };
        check("", Some("metadata.name=x"));
        check("fieldSelector=", Some("metadata.name=x"));
        check("fieldSelector=metadata.name%3Dx", Some("metadata.name=x"));
        check("fieldSelector=metadata.name%3D%3Dx,type%3Dy", Some("metadata.name=x,type=y"));
        check("fieldSelector=metadata.name%3Dy", None);
        check("fieldSelector=metadata.name%3Dx,metadata.name%3Dy", None);
        check("fieldSelector=metadata.name!%3Dy", None);
        check("fieldSelector=type%3Dmetadata.name\\%3Dx", None);
        check("fieldSelector=type%3Dy", None);
        let of_victim =
            parse("GET", "/api/v1/namespaces/a/secrets/x", "watch=1&fieldSelector=metadata.name%3Dy");
        assert_eq!(of_victim.unwrap_err().code, 400);
    }

    #[test]
    fn only_lists_and_watches_are_permitted_by_the_selectors_name() {
        let path = SECRETS;
        for (method, path, expected) in [
            ("GET", path, "x"),
            ("HEAD", path, "x"),
            ("DELETE", path, ""),
            ("POST", path, ""),
            ("GET", "/api/v1/watch/namespaces/a/secrets", ""),
        ] {
            let info = parse(method, path, "fieldSelector=metadata.name%3Dx").unwrap();
            assert_eq!(info.target.unwrap().name, expected, "{method} {path}");
        }
    }

    #[test]
    fn a_broken_encoding_is_an_error_and_not_a_panic() {
        assert!(Query::parse(Some("a=%")).is_err());
        assert!(Query::parse(Some("a=%ff")).is_err());
        assert!(decoded_path("/api/v1/pods/%zz").is_err());
        assert!(decoded_path("/api/v1/pods/%f").is_err());
        assert!(decoded_path("/api/v1/pods/%ff").is_err());
    }
}
