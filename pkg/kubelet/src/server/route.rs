//! What a path asks for, and what one must be permitted to ask it. Pure.

use super::answer::Refusal;
use http::{Method, StatusCode};
use percent_encoding::percent_decode_str;

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Route {
    /// `/pods`
    Pods,
    /// `/runningpods/`
    RunningPods,
    /// `/containerLogs/{namespace}/{pod}/{container}`
    Logs(PodPath),
    /// `/logs/{path}`
    NodeLogs(Vec<String>),
    /// `/exec/{namespace}/{pod}[/{uid}]/{container}`
    Exec(PodPath),
    /// `/attach/{namespace}/{pod}[/{uid}]/{container}`
    Attach(PodPath),
    /// `/portForward/{namespace}/{pod}[/{uid}]`
    PortForward(PodPath),
    /// `/stats/summary`
    Summary,
    /// `/metrics/resource`
    ResourceMetrics,
    /// `/metrics`
    Metrics,
    /// `/healthz` and the checks under it.
    Healthz,
    /// `/configz`
    Configz,
}

/// A pod or a container in a path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodPath {
    /// The namespace.
    pub namespace: String,
    /// The pod's name.
    pub pod: String,
    /// The pod's uid, where it is given.
    pub uid: Option<String>,
    /// The container's name; empty for a port.
    pub container: String,
}

impl Route {
    /// Understands a path.
    pub fn parse(method: &Method, path: &str) -> Result<Route, Refusal> {
        let not_found = || (StatusCode::NOT_FOUND, "404 page not found".to_owned());
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        let pod = |namespace: &str, pod: &str, uid: Option<&str>, container: &str| PodPath {
            namespace: namespace.to_owned(),
            pod: pod.to_owned(),
            uid: uid.map(str::to_owned),
            container: container.to_owned(),
        };
        let route = match parts.as_slice() {
            ["pods"] => Route::Pods,
            ["runningpods"] => Route::RunningPods,
            ["containerLogs", namespace, name, container] => {
                Route::Logs(pod(namespace, name, None, container))
            }
            ["logs", parts @ ..] => {
                let decoded = parts.iter().map(|part| percent_decode_str(part).decode_utf8_lossy());
                Route::NodeLogs(decoded.map(Into::into).collect())
            }
            ["exec", namespace, name, container] => Route::Exec(pod(namespace, name, None, container)),
            ["exec", namespace, name, uid, container] => {
                Route::Exec(pod(namespace, name, Some(uid), container))
            }
            ["attach", namespace, name, container] => Route::Attach(pod(namespace, name, None, container)),
            ["attach", namespace, name, uid, container] => {
                Route::Attach(pod(namespace, name, Some(uid), container))
            }
            ["portForward", namespace, name] => Route::PortForward(pod(namespace, name, None, "")),
            ["portForward", namespace, name, uid] => Route::PortForward(pod(namespace, name, Some(uid), "")),
            ["stats", "summary"] => Route::Summary,
            ["metrics", "resource"] => Route::ResourceMetrics,
            ["metrics"] => Route::Metrics,
            ["healthz"] | ["healthz", "ping" | "log" | "syncloop"] => Route::Healthz,
            ["configz"] => Route::Configz,
            _ => return Err(not_found()),
        };
        let is_stream = matches!(route, Route::Exec(_) | Route::Attach(_) | Route::PortForward(_));
        match *method {
            Method::GET | Method::HEAD => Ok(route),
            Method::POST if is_stream || route == Route::Summary => Ok(route),
            _ => Err((StatusCode::METHOD_NOT_ALLOWED, "405: Method Not Allowed".to_owned())),
        }
    }
}

/// The subresources of the node of which one must be permitted, in the order in which they are tried.
pub fn subresources(path: &str) -> &'static [&'static str] {
    let first = path.split('/').find(|part| !part.is_empty()).unwrap_or_default();
    match first {
        "pods" | "runningpods" => &["pods", "proxy"],
        "healthz" => &["healthz", "proxy"],
        "configz" => &["configz", "proxy"],
        "stats" => &["stats"],
        "metrics" => &["metrics"],
        "logs" => &["log"],
        "checkpoint" => &["checkpoint"],
        _ => &["proxy"],
    }
}

impl Route {
    /// The subresources of the node that are about what is asked for: [`subresources`] of any path that leads there.
    pub fn subresources(&self) -> &'static [&'static str] {
        match self {
            Route::Pods | Route::RunningPods => &["pods", "proxy"],
            Route::Logs(_) | Route::Exec(_) | Route::Attach(_) | Route::PortForward(_) => &["proxy"],
            Route::NodeLogs(_) => &["log"],
            Route::Summary => &["stats"],
            Route::ResourceMetrics | Route::Metrics => &["metrics"],
            Route::Healthz => &["healthz", "proxy"],
            Route::Configz => &["configz", "proxy"],
        }
    }
}

/// The verb that one must be permitted.
pub fn verb(method: &Method) -> &'static str {
    match *method {
        Method::GET | Method::HEAD => "get",
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => "",
    }
}

/// The query string, decoded. What is not properly encoded is taken as it is.
#[derive(Debug, Default, Clone)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Decodes `a=b&c=d`.
    pub fn parse(query: &str) -> Query {
        let pairs = query.split('&').filter(|pair| !pair.is_empty());
        Query(
            pairs
                .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
                .map(|(name, value)| (decoded(name), decoded(value)))
                .collect(),
        )
    }

    /// The first value of that name that is not empty.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(n, value)| n == name && !value.is_empty()).map(|(_, value)| value.as_str())
    }

    /// All values of that name.
    pub fn all(&self, name: &str) -> Vec<String> {
        self.0.iter().filter(|(n, _)| n == name).map(|(_, value)| value.clone()).collect()
    }

    /// Whether a boolean parameter is set.
    pub fn flag(&self, name: &str) -> bool {
        self.get(name).is_some_and(|value| matches!(value, "1" | "true" | "True" | "TRUE" | "t" | "T"))
    }
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let pair = after.get(..2).and_then(|pair| std::str::from_utf8(pair).ok());
        match (byte, pair.and_then(|pair| u8::from_str_radix(pair, 16).ok())) {
            (b'%', Some(value)) => {
                bytes.push(value);
                rest = &after[2..];
            }
            _ => {
                bytes.push(if byte == b'+' { b' ' } else { byte });
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_those_of_upstream() {
        let path = |uid: Option<&str>, container: &str| PodPath {
            namespace: "ns".into(),
            pod: "p".into(),
            uid: uid.map(Into::into),
            container: container.into(),
        };
        let check = |method: Method, text: &str, expected: Result<Route, u16>| {
            let found = Route::parse(&method, text).map_err(|(code, _)| code.as_u16());
            assert_eq!(found, expected, "{method} {text}");
        };
        check(Method::GET, "/pods", Ok(Route::Pods));
        check(Method::GET, "/runningpods/", Ok(Route::RunningPods));
        check(Method::GET, "/containerLogs/ns/p/c", Ok(Route::Logs(path(None, "c"))));
        check(Method::GET, "/logs/", Ok(Route::NodeLogs(vec![])));
        check(Method::GET, "/logs/a/b%20c", Ok(Route::NodeLogs(vec!["a".into(), "b c".into()])));
        check(Method::POST, "/exec/ns/p/c", Ok(Route::Exec(path(None, "c"))));
        check(Method::GET, "/exec/ns/p/u/c", Ok(Route::Exec(path(Some("u"), "c"))));
        check(Method::GET, "/attach/ns/p/c", Ok(Route::Attach(path(None, "c"))));
        check(Method::GET, "/portForward/ns/p", Ok(Route::PortForward(path(None, ""))));
        check(Method::GET, "/portForward/ns/p/u", Ok(Route::PortForward(path(Some("u"), ""))));
        check(Method::GET, "/healthz/syncloop", Ok(Route::Healthz));
        check(Method::GET, "/metrics/resource", Ok(Route::ResourceMetrics));
        check(Method::POST, "/containerLogs/ns/p/c", Err(405));
        check(Method::GET, "/exec/ns", Err(404));
        check(Method::GET, "/", Err(404));
    }

    #[test]
    fn what_must_be_permitted_follows_from_the_path() {
        for (path, expected) in [
            ("/pods", &["pods", "proxy"][..]),
            ("/podsx", &["proxy"]),
            ("/stats/summary", &["stats"]),
            ("/metrics/resource", &["metrics"]),
            ("/healthz", &["healthz", "proxy"]),
            ("/exec/a/b/c", &["proxy"]),
            ("/", &["proxy"]),
        ] {
            assert_eq!(subresources(path), expected, "{path}");
        }
    }

    #[test]
    fn what_is_served_is_what_was_permitted() {
        let names = [
            "pods",
            "runningpods",
            "containerLogs",
            "logs",
            "exec",
            "attach",
            "portForward",
            "stats",
            "summary",
            "metrics",
            "resource",
            "healthz",
            "configz",
            "checkpoint",
            "",
            "%2e%2e",
            "..",
            "%6cogs",
            "a%2fb",
            "ns",
        ];
        let mut served = 0;
        for seed in 0..20_000 {
            let mut random = fastrand::Rng::with_seed(seed);
            let path: String =
                (0..random.usize(0..6)).map(|_| format!("/{}", names[random.usize(..names.len())])).collect();
            let Ok(route) = Route::parse(&Method::GET, &path) else { continue };
            assert_eq!(subresources(&path), route.subresources(), "{path}");
            served += 1;
        }
        assert!(served > 1000, "{served}");
    }

    #[test]
    fn queries_are_decoded() {
        let query = Query::parse("command=sh&command=-c&command=echo+a%20%26%zz&tty=1&stdin=false&empty");
        assert_eq!(query.all("command"), ["sh", "-c", "echo a &%zz"]);
        assert!(query.flag("tty") && !query.flag("stdin") && !query.flag("empty"));
        assert_eq!(query.get("empty"), None);
    }
}
