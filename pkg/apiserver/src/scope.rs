//! Whether a path is one that its kind has: the one decision about it, taken as soon as the kind is known and before
//! anything is read, written, reviewed or passed on.
//!
//! ```text
//!                     cluster-scoped          namespaced                       reviews, bindings
//! /{resource}         all of it               list and watch, over all         create, if cluster-scoped
//! /{resource}/{name}  yes                     no                               no
//! /namespaces/{namespace}/{resource}…  no     all of it                        create, if namespaced
//! /namespaces/{name}  of namespaces only
//! ```
//!
//! A role in a namespace is about what is below it. A kind without namespaces that answered there as well would be
//! everybody's who has a namespace.

use crate::error::{ApiError, Result};
use crate::request::{PathScope, RequestInfo, Target};
use api::Kind;
use api::kind::{Subresource, Verbs};
use http::Method;

/// Refuses a request whose path or method its kind does not have.
pub fn check(kind: &Kind, target: &Target<'_>, info: &RequestInfo<'_>, method: &Method) -> Result<()> {
    let is_part = !target.subresource.is_empty();
    let is_object = !target.is_collection;
    let looks = matches!(info.verb, "list" | "watch");
    // Over all namespaces one can look, and do nothing.
    let acts_across = kind.namespaced() && target.namespace.is_empty() && !looks;
    let answers_only = kind.verbs == Verbs::CreateOnly;
    let is_defined = kind.custom.is_some() && kind.verbs == Verbs::All;
    let part = kind.subresources.iter().find(|part| name_of(part) == target.subresource);
    if !fits(kind.namespaced(), target)
        || (is_object && (target.name.is_empty() || answers_only))
        || (is_part && part.is_none())
        || (info.has_rest() && target.subresource != "proxy")
        || target.verb_in_path.is_some_and(|verb| verb != "watch" || is_part || kind.verbs != Verbs::All)
        || (acts_across && is_defined)
        || (answers_only && kind.namespaced() && target.namespace.is_empty())
    {
        return Err(ApiError::no_such_path());
    }
    // Whoever is behind a proxy answers any method.
    let has_method = match part {
        Some(Subresource::Named { name: "proxy", .. }) => true,
        Some(Subresource::Named { verbs, .. }) => verbs.contains(&info.verb) && method != Method::HEAD,
        _ => method != Method::HEAD || is_defined,
    };
    if acts_across || !has_method || (target.verb_in_path.is_some() && method != Method::GET) {
        return Err(ApiError::method_not_allowed(kind, info.verb));
    }
    Ok(())
}

/// Whether a path fits a kind that has namespaces or has none: what has none has no path below one, and an object of
/// what has them is in one.
pub fn fits(namespaced: bool, target: &Target<'_>) -> bool {
    match target.scope {
        PathScope::Itself if target.group.is_empty() => true,
        PathScope::Namespace | PathScope::Itself if !target.namespace.is_empty() => namespaced,
        PathScope::Namespace | PathScope::Itself => namespaced && target.is_collection,
        PathScope::Cluster => !namespaced || target.is_collection,
    }
}

fn name_of(part: &Subresource) -> &str {
    match part {
        Subresource::Status => "status",
        Subresource::Scale { .. } => "scale",
        Subresource::Named { name, .. } => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nodes::metrics_kinds;
    use crate::request::Query;
    use std::sync::Arc;

    fn kinds() -> Vec<Arc<Kind>> {
        api::kinds::all().iter().cloned().chain(metrics_kinds()).collect()
    }

    /// The code of the refusal, or 200.
    fn code(kind: &Kind, method: &str, path: &str) -> u16 {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let method = method.parse().unwrap();
        let info = RequestInfo::parse(&method, path, &Query::parse(Some(query)).unwrap()).unwrap();
        let target = info.target.as_ref().unwrap();
        check(kind, target, &info, &method).map_or_else(|error| error.code.as_u16(), |()| 200)
    }

    fn base(kind: &Kind) -> String {
        match kind.group.as_str() {
            "" => format!("/api/{}", kind.version),
            group => format!("/apis/{group}/{}", kind.version),
        }
    }

    #[test]
    fn no_kind_without_namespaces_has_a_path_below_one() {
        for kind in kinds().iter().filter(|kind| !kind.namespaced()) {
            let (base, plural) = (base(kind), &kind.plural);
            for method in ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"] {
                for end in [
                    "",
                    "/x",
                    "/x/status",
                    "/x/proxy",
                    "/x/proxy/y",
                    "?watch=1",
                    "?fieldSelector=metadata.name%3Dx",
                ] {
                    for form in ["", "/watch"] {
                        let path = format!("{base}{form}/namespaces/a/{plural}{end}");
                        assert_eq!(code(kind, method, &path), 404, "{method} {path}");
                    }
                }
            }
            if kind.plural != "namespaces" && kind.verbs != Verbs::CreateOnly {
                assert_eq!(code(kind, "GET", &format!("{base}/{plural}/x")), 200, "{plural}");
            }
        }
    }

    #[test]
    fn nothing_of_anything_has_no_path() {
        for kind in kinds().iter().filter(|kind| kind.verbs != Verbs::CreateOnly) {
            let namespace = if kind.namespaced() { "/namespaces/a" } else { "" };
            let base = format!("{}{namespace}/{}", base(kind), kind.plural);
            for method in ["GET", "POST", "PUT", "PATCH", "DELETE"] {
                for end in ["//status", "//proxy", "//proxy/x", "//log"] {
                    for query in
                        ["", "?fieldSelector=metadata.name%3Dx", "?watch=1&fieldSelector=metadata.name%3Dx"]
                    {
                        let path = format!("{base}{end}{query}");
                        assert_eq!(code(kind, method, &path), 404, "{method} {path}");
                    }
                }
            }
        }
    }

    #[test]
    fn no_object_of_a_kind_with_namespaces_is_outside_of_one() {
        for kind in kinds().iter().filter(|kind| kind.namespaced()) {
            let (base, plural) = (base(kind), &kind.plural);
            for method in ["GET", "POST", "PUT", "PATCH", "DELETE"] {
                for path in [format!("{base}/{plural}/x"), format!("{base}/namespaces//{plural}/x")] {
                    assert_eq!(code(kind, method, &path), 404, "{method} {path}");
                }
            }
            let all = format!("{base}/{plural}");
            let is_kept = kind.verbs != Verbs::CreateOnly;
            assert_eq!(code(kind, "GET", &all), if is_kept { 200 } else { 404 }, "{all}");
            for method in ["POST", "DELETE"] {
                assert_eq!(code(kind, method, &all), if is_kept { 405 } else { 404 }, "{method} {all}");
            }
            assert_eq!(code(kind, "POST", &format!("{base}/namespaces/a/{plural}")), 200, "{plural}");
        }
    }

    #[test]
    fn what_stands_in_no_table_is_nowhere() {
        let kinds = kinds();
        let check = |method: &str, path: &str, expected: u16| {
            let plain = path.replacen("/watch/", "/", 1).replacen("/proxy/", "/", 1);
            let info = RequestInfo::parse(&Method::GET, &plain, &Query::default()).unwrap();
            let target = info.target.unwrap();
            let is_it = |kind: &&Arc<Kind>| kind.group == target.group && kind.plural == target.resource;
            assert_eq!(code(kinds.iter().find(is_it).unwrap(), method, path), expected, "{method} {path}");
        };
        check("GET", "/api/v1/namespaces/a", 200);
        check("PUT", "/api/v1/namespaces/a/finalize", 200);
        check("PUT", "/api/v1/namespaces/a/finalize/b", 404);
        check("GET", "/api/v1/namespaces/a/finalize", 405);
        check("GET", "/api/v1/namespaces/a/pods/p/exec", 200);
        check("HEAD", "/api/v1/namespaces/a/pods/p/exec", 405);
        check("DELETE", "/api/v1/namespaces/a/pods/p/eviction", 405);
        check("GET", "/api/v1/namespaces/a/namespaces", 404);
        check("GET", "/api/v1/namespaces/a/namespaces/a", 404);
        check("GET", "/api/v1/namespaces/a/pods/p/log", 200);
        check("GET", "/api/v1/namespaces/a/pods/p/log/", 200);
        check("GET", "/api/v1/namespaces/a/pods/p/log/more", 404);
        check("GET", "/api/v1/namespaces/a/pods//log", 404);
        check("GET", "/api/v1/namespaces/a/pods/p/proxy/more/and/more", 200);
        check("GET", "/api/v1/namespaces/a/configmaps/c/status", 404);
        check("GET", "/api/v1/namespaces/a/configmaps/c/proxy/x", 404);
        check("GET", "/api/v1/watch/namespaces/a/pods/p", 200);
        check("GET", "/api/v1/watch/namespaces/a", 200);
        check("GET", "/api/v1/watch/namespaces/a/pods/p/log", 404);
        check("GET", "/api/v1/watch/nodes/n/proxy/run", 404);
        check("POST", "/api/v1/watch/namespaces/a/pods", 405);
        check("POST", "/api/v1/watch/pods", 405);
        check("HEAD", "/api/v1/pods", 405);
        check("GET", "/api/v1/proxy/nodes/n", 404);
        check("HEAD", "/api/v1/namespaces/a/pods", 405);
        check("HEAD", "/api/v1/nodes/n/proxy/x", 200);
        check("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", 200);
        check("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews/x", 404);
        check("POST", "/apis/authorization.k8s.io/v1/localsubjectaccessreviews", 404);
        check("POST", "/api/v1/namespaces/a/bindings/x", 404);
        check("GET", "/apis/metrics.k8s.io/v1beta1/watch/nodes", 404);
    }
}
