//! Questions from the grammar of paths, and then some that no grammar has: of every user, with every method, selector,
//! body and header. A question follows from its seed and number alone.

use crate::world::{EVERYBODY, Who};
use fastrand::Rng;

/// What somebody asks.
#[derive(Debug, Clone)]
pub struct Question {
    pub who: Who,
    pub method: String,
    /// Path and query.
    pub path: String,
    pub headers: Vec<(String, String)>,
    pub body: String,
}

/// A resource as upstream's documentation lists it.
pub struct Known {
    pub group: &'static str,
    pub version: &'static str,
    pub plural: &'static str,
    pub namespaced: bool,
    /// What can be done: `c`reate, `r`ead, `w`atch, `u`pdate and patch, `d`elete, `D`elete many.
    pub can: &'static str,
    /// Subresources, with what can be done to each; `p` is any method and any path below.
    pub parts: &'static [(&'static str, &'static str)],
}

const fn known(
    group: &'static str,
    version: &'static str,
    plural: &'static str,
    namespaced: bool,
    can: &'static str,
    parts: &'static [(&'static str, &'static str)],
) -> Known {
    Known { group, version, plural, namespaced, can, parts }
}

const ALL: &str = "crwudD";
const STATUS: &[(&str, &str)] = &[("status", "ru")];
const SCALED: &[(&str, &str)] = &[("status", "ru"), ("scale", "ru")];
const RBAC: &str = "rbac.authorization.k8s.io";

#[rustfmt::skip]
pub const RESOURCES: &[Known] = &[
    known("", "v1", "secrets", true, ALL, &[]),
    known("", "v1", "nodes", false, ALL, &[("status", "ru"), ("proxy", "p")]),
    known("", "v1", "namespaces", false, "crwud", &[("status", "ru"), ("finalize", "U")]),
    known("", "v1", "pods", true, ALL, &[("status", "ru"), ("log", "r"), ("exec", "rc"), ("attach", "rc"),
        ("portforward", "rc"), ("proxy", "p"), ("binding", "c"), ("eviction", "c"), ("ephemeralcontainers", "ru"), ("resize", "ru")]),
    known("", "v1", "configmaps", true, ALL, &[]),
    known("", "v1", "services", true, ALL, &[("status", "ru"), ("proxy", "p")]),
    known("", "v1", "serviceaccounts", true, ALL, &[("token", "c")]),
    known("", "v1", "events", true, ALL, &[]),
    known("", "v1", "bindings", true, "c", &[]),
    known("", "v1", "persistentvolumes", false, ALL, STATUS),
    known("apps", "v1", "deployments", true, ALL, SCALED),
    known("coordination.k8s.io", "v1", "leases", true, ALL, &[]),
    known("certificates.k8s.io", "v1", "certificatesigningrequests", false, ALL, &[("status", "ru"), ("approval", "ru")]),
    known(RBAC, "v1", "roles", true, ALL, &[]),
    known(RBAC, "v1", "rolebindings", true, ALL, &[]),
    known(RBAC, "v1", "clusterroles", false, ALL, &[]),
    known(RBAC, "v1", "clusterrolebindings", false, ALL, &[]),
    known("authentication.k8s.io", "v1", "tokenreviews", false, "c", &[]),
    known("authentication.k8s.io", "v1", "selfsubjectreviews", false, "c", &[]),
    known("authorization.k8s.io", "v1", "subjectaccessreviews", false, "c", &[]),
    known("authorization.k8s.io", "v1", "localsubjectaccessreviews", true, "c", &[]),
    known("authorization.k8s.io", "v1", "selfsubjectaccessreviews", false, "c", &[]),
    known("authorization.k8s.io", "v1", "selfsubjectrulesreviews", false, "c", &[]),
    known("apiextensions.k8s.io", "v1", "customresourcedefinitions", false, ALL, STATUS),
    known("apiregistration.k8s.io", "v1", "apiservices", false, ALL, STATUS),
    known("storage.k8s.io", "v1", "csinodes", false, ALL, &[]),
    known("metrics.k8s.io", "v1beta1", "nodes", false, "r", &[]),
    known("metrics.k8s.io", "v1beta1", "pods", true, "r", &[]),
    known("example.com", "v1", "widgets", true, ALL, STATUS),
    known("example.com", "v1", "gadgets", false, ALL, STATUS),
];

#[rustfmt::skip]
const NAMESPACES: &[&str] = &[
    "team", "other", "kube-system", "default", "kube-node-lease", "", "n1", "TEAM", "team%2Fpods", "*", "..",
];
#[rustfmt::skip]
const NAMES: &[&str] = &[
    "allowed", "victim", "treasure", "n1", "n2", "p1", "p2", "s1", "w1", "g1", "team", "other", "default",
    "owner", "view", "cluster-admin", "kube-root-ca.crt", "nothing", "p1:80", "https:p1:443", "https:n1:10250",
    "n1:9", "http:s1:80", "..", ".", "*", "allowed%2F..%2Fvictim", "allowed%00", "%61llowed", "Allowed",
    "allowed%20", "widgets.example.com", "",
];
#[rustfmt::skip]
const PARTS: &[&str] = &[
    "status", "scale", "log", "exec", "attach", "portforward", "proxy", "proxy/", "proxy/run/a/b/c",
    "proxy/namespaces/team/pods", "proxy/..", "proxy/%2e%2e/x", "binding", "eviction", "token", "finalize",
    "approval", "ephemeralcontainers", "resize", "", "nothing", "status/more", "log/more", "secrets", "STATUS",
];
#[rustfmt::skip]
const FIELDS: &[&str] = &[
    "metadata.name", "metadata.namespace", "spec.nodeName", "type", "status.phase", "Metadata.Name", "",
];
#[rustfmt::skip]
const PLAIN: &[&str] = &[
    "/", "/api", "/api/", "/api/v1", "/apis", "/apis/apps", "/apis/apps/v1/", "/apis/example.com/v1",
    "/version", "/version/", "/metrics", "/metrics/", "/healthz", "/healthz/", "/livez/ping", "/readyz",
    "/openapi/v2", "/openapi/v2/", "/openapi/v3", "/openapi/v3/api/v1", "/logs/", "/debug/pprof/",
    "/openid/v1/jwks", "/.well-known/openid-configuration", "/backup", "//", "/apis//v1/pods",
    "//api/v1/secrets", "/api/v1/watch", "/API/v1/pods", "/api/V1/pods", "/api/v1/../v1/secrets",
    "/healthz/../api/v1/secrets", "/version/%2e%2e/metrics", "/metrics%2f",
];

impl Question {
    pub fn get(who: Who, path: &str) -> Question {
        Question { who, method: "GET".into(), path: path.into(), headers: Vec::new(), body: String::new() }
    }

    /// The question of a number.
    pub fn of(seed: u64, number: u64) -> Question {
        let mut rng = Rng::with_seed(
            seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ number.wrapping_mul(0xD1B5_4A32_D192_ED03),
        );
        let who = EVERYBODY[weighted(&mut rng, &[4, 28, 24, 8, 12, 6, 6, 6, 6])];
        let method = method(&mut rng);
        if rng.bool() {
            return near(&mut rng, who, method);
        }
        let mut path = if rng.u8(..100) < 8 { pick(&mut rng, PLAIN).to_owned() } else { path(&mut rng) };
        while rng.u8(..100) < 10 {
            path = odd(&mut rng, &path);
        }
        let query = query(&mut rng, &method);
        let headers = headers(&mut rng, who);
        let body = body(&mut rng, &method);
        Question { who, method, path: format!("{path}{query}"), headers, body }
    }

    /// Whether the answer may be one that does not end.
    pub fn may_wait(&self) -> bool {
        // Encoded, `watch` may be in it as well.
        let path = self.path.split('?').next().unwrap_or_default();
        self.path.to_ascii_lowercase().contains("watch") || path.contains('%')
    }
}

fn pick<'a>(rng: &mut Rng, list: &[&'a str]) -> &'a str {
    list[rng.usize(..list.len())]
}

/// Mostly one of the first, where most of what matters is.
fn likely<'a>(rng: &mut Rng, list: &[&'a str], first: usize) -> &'a str {
    if rng.u8(..100) < 70 { pick(rng, &list[..first]) } else { pick(rng, list) }
}

fn weighted(rng: &mut Rng, weights: &[u32]) -> usize {
    let mut left = rng.u32(..weights.iter().sum::<u32>());
    weights.iter().position(|weight| left.checked_sub(*weight).map(|rest| left = rest).is_none()).unwrap()
}

fn method(rng: &mut Rng) -> String {
    const METHODS: [&str; 8] = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "PURGE"];
    METHODS[weighted(rng, &[56, 13, 6, 7, 10, 4, 3, 1])].to_owned()
}

fn path(rng: &mut Rng) -> String {
    // Secrets, nodes, namespaces and pods are what is worth having.
    let resource =
        if rng.bool() { &RESOURCES[rng.usize(..4)] } else { &RESOURCES[rng.usize(..RESOURCES.len())] };
    let mut path = match resource.group {
        "" => format!("/api/{}", resource.version),
        group => format!("/apis/{group}/{}", resource.version),
    };
    match rng.u8(..100) {
        0..9 => path.push_str("/watch"),
        9 => path.push_str("/proxy"),
        _ => {}
    }
    let fits = rng.u8(..100) < 60;
    if resource.namespaced == fits || (!fits && rng.bool()) {
        path.push_str(&format!("/namespaces/{}", likely(rng, NAMESPACES, 2)));
    }
    path.push_str(&format!("/{}", resource.plural));
    if rng.u8(..100) < 55 {
        path.push_str(&format!("/{}", likely(rng, NAMES, 14)));
        let known = resource.parts;
        match rng.u8(..100) {
            0..20 if !known.is_empty() => path.push_str(&format!("/{}", known[rng.usize(..known.len())].0)),
            0..30 => path.push_str(&format!("/{}", pick(rng, PARTS))),
            _ => {}
        }
    }
    path
}

/// Where somebody has something, and there what they have.
fn own(rng: &mut Rng, who: Who) -> (String, &'static str) {
    let team = |plural: &str| format!("/api/v1/namespaces/team/{plural}");
    let (plural, name) = match who {
        Who::Holder => ("secrets", "allowed"),
        Who::Node => match rng.u8(..4) {
            0 => return ("/api/v1/nodes".into(), "n1"),
            1 => ("pods", "p1"),
            2 => ("serviceaccounts", "default"),
            _ => ("secrets", "allowed"),
        },
        Who::Admin | Who::Watcher if rng.bool() => match rng.u8(..4) {
            0 => return ("/api/v1/nodes".into(), "n2"),
            1 => return ("/apis/example.com/v1/gadgets".into(), "g1"),
            2 => return ("/apis/rbac.authorization.k8s.io/v1/clusterroles".into(), "view"),
            _ => return ("/api/v1/namespaces".into(), "team"),
        },
        _ => match rng.u8(..7) {
            0 => return ("/apis/example.com/v1/namespaces/team/widgets".into(), "w1"),
            1 => ("pods", "p2"),
            2 => ("configmaps", "victim"),
            3 => ("services", "s1"),
            4 => ("serviceaccounts", "default"),
            5 => ("secrets", "victim"),
            _ => ("secrets", "allowed"),
        },
    };
    (team(plural), name)
}

/// A question that its user may ask, or nearly: one or two things about it are otherwise.
fn near(rng: &mut Rng, who: Who, mut method: String) -> Question {
    let (mut path, name) = own(rng, who);
    let mut pairs = Vec::new();
    let by_name =
        [format!("fieldSelector=metadata.name%3D{name}"), format!("fieldSelector=metadata.name=={name}")];
    match rng.u8(..10) {
        0..=4 => path.push_str(&format!("/{name}")),
        5 | 6 => pairs.push(by_name[rng.usize(..2)].clone()),
        _ => {}
    }
    for _ in 0..rng.u8(..3) {
        match rng.u8(..12) {
            0 => path = path.replacen("/v1/", "/v1/watch/", 1),
            1 => pairs.insert(0, format!("fieldSelector={}", selector(rng))),
            2 => pairs.push(format!("fieldSelector={}", selector(rng))),
            3 => pairs.push("watch=1".into()),
            4 => path = path.replacen("/namespaces/team/", "/namespaces/other/", 1),
            5 => path = path.replacen("/namespaces/team/", "/", 1),
            6 if !path.contains("/namespaces/") => path = path.replacen("/v1/", "/v1/namespaces/team/", 1),
            6 => {
                path = format!(
                    "/api/v1/namespaces/team/{}",
                    pick(rng, &["nodes/n1/proxy/pods", "namespaces", "nodes", "persistentvolumes"])
                )
            }
            7 => path = odd(rng, &path),
            8 => path = format!("{path}/{}", pick(rng, PARTS)),
            9 => path = path.replacen(name, likely(rng, NAMES, 14), 1),
            10 => method = pick(rng, &["GET", "POST", "PUT", "PATCH", "DELETE"]).into(),
            _ => pairs.push(by_name[0].clone()),
        }
    }
    if !matches!(method.as_str(), "GET" | "HEAD") {
        pairs.push("dryRun=All".into());
    }
    let query = if pairs.is_empty() { String::new() } else { format!("?{}", pairs.join("&")) };
    let headers = headers(rng, who);
    let body = body(rng, &method);
    Question { who, method, path: format!("{path}{query}"), headers, body }
}

/// The same path, as nobody would write it.
fn odd(rng: &mut Rng, path: &str) -> String {
    let mut bytes = path.as_bytes().to_vec();
    let at = rng.usize(..bytes.len());
    match rng.u8(..9) {
        0 => bytes.push(b'/'),
        1 => bytes.insert(at, b'/'),
        2 => {
            let code = format!("%{:02X}", bytes[at]);
            bytes.splice(at..=at, code.bytes());
        }
        3 => bytes[at] = bytes[at].to_ascii_uppercase(),
        4 => drop(bytes.splice(at..at, b"/..".iter().copied())),
        5 => drop(bytes.splice(at..at, b"/.".iter().copied())),
        6 => drop(bytes.splice(at..at, b"%2f".iter().copied())),
        7 => drop(bytes.splice(at..at, b"%".iter().copied())),
        _ => drop(bytes.remove(at)),
    }
    match String::from_utf8(bytes) {
        Ok(path) if path.starts_with('/') => path,
        Ok(path) => format!("/{path}"),
        Err(_) => path.to_owned(),
    }
}

fn query(rng: &mut Rng, method: &str) -> String {
    let mut pairs = Vec::new();
    // What is allowed is not done, so that the next question finds the same.
    if !matches!(method, "GET" | "HEAD") {
        pairs.push("dryRun=All".to_owned());
    }
    while rng.u8(..100) < 55 && pairs.len() < 5 {
        pairs.push(match rng.u8(..12) {
            0..=4 => format!(
                "{}={}",
                pick(
                    rng,
                    &["fieldSelector", "fieldSelector", "fieldSelector", "FieldSelector", "field%53elector"]
                ),
                selector(rng)
            ),
            5 | 6 => format!("watch={}", pick(rng, &["1", "true", "TRUE", "0", "false", "yes", ""])),
            7 => format!(
                "labelSelector={}",
                pick(rng, &["metadata.name%3Dallowed", "a%3Db", "!a", "a+in+(b)", ""])
            ),
            8 => format!("resourceVersion={}", pick(rng, &["0", "", "1", "x"])),
            9 => format!("limit={}", pick(rng, &["1", "0", "-1", "x"])),
            10 => format!("timeoutSeconds={}", pick(rng, &["1", "2"])),
            _ => pick(
                rng,
                &[
                    "namespace=other",
                    "name=victim",
                    "pretty=1",
                    "a=%zz",
                    "&&",
                    "fieldManager=m",
                    "container=c",
                    "command=sh",
                    "path=/x",
                    "propagationPolicy=Background",
                ],
            )
            .to_owned(),
        });
    }
    if pairs.is_empty() { String::new() } else { format!("?{}", pairs.join("&")) }
}

fn selector(rng: &mut Rng) -> String {
    let mut terms = Vec::new();
    while terms.is_empty() || (rng.u8(..100) < 25 && terms.len() < 3) {
        let field = likely(rng, FIELDS, 1);
        let operator = pick(rng, &["%3D", "=", "%3D%3D", "==", "!%3D", "!=", ""]);
        let value = match rng.u8(..10) {
            0..=3 => "allowed",
            4 | 5 => "victim",
            6 => "n1",
            7 => pick(rng, &["team", "other", "p1", "n2"]),
            _ => pick(
                rng,
                &[
                    "",
                    "a%5C%2Cb",
                    "\\\\",
                    "metadata.name%5C%3Dallowed",
                    "%5C",
                    "a%2Fb",
                    "..",
                    "allowed%20",
                    "+allowed",
                    "%2A",
                ],
            ),
        };
        terms.push(format!("{field}{operator}{value}"));
    }
    terms.join(pick(rng, &[",", "%2C"]))
}

fn headers(rng: &mut Rng, who: Who) -> Vec<(String, String)> {
    let mut headers = Vec::new();
    let mut add = |name: &str, value: &str| headers.push((name.to_owned(), value.to_owned()));
    let media = [
        "application/json",
        "application/json",
        "application/merge-patch+json",
        "application/json-patch+json",
        "application/apply-patch+yaml",
        "application/strategic-merge-patch+json",
        "application/yaml",
        "text/plain",
        "",
    ];
    if rng.u8(..100) < 80 {
        add("content-type", pick(rng, &media));
    }
    match rng.u8(..100) {
        0..4 => add("accept", "application/json;as=Table;v=v1;g=meta.k8s.io"),
        4..8 => add(
            "accept",
            "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
        ),
        8 => add("accept", "application/yaml"),
        9 => add("accept", "text/html"),
        _ => {}
    }
    if who == Who::Agent && rng.bool() {
        add("impersonate-user", "owner");
    }
    while rng.u8(..100) < 6 {
        let users = [
            "owner",
            "admin",
            "system:node:n1",
            "nobody",
            "",
            "OWNER",
            "owner ",
            "system:serviceaccount:team:default",
            "system:anonymous",
            "system:serviceaccount:team:default:x",
        ];
        match rng.u8(..8) {
            0..=2 => add("impersonate-user", pick(rng, &users)),
            3 => add("impersonate-group", pick(rng, &["system:masters", "", "system:nodes"])),
            4 => add(
                pick(
                    rng,
                    &["impersonate-extra-a", "impersonate-uid", "impersonate-extra-a%2fb", "impersonate-"],
                ),
                "x",
            ),
            5 => add("x-remote-user", "admin"),
            6 => add("x-remote-group", "system:masters"),
            _ => add(
                pick(
                    rng,
                    &[
                        "x-forwarded-for",
                        "x-original-url",
                        "x-http-method-override",
                        "forwarded",
                        "x-forwarded-user",
                    ],
                ),
                pick(rng, &["127.0.0.1", "/metrics", "DELETE", "GET"]),
            ),
        }
    }
    headers
}

fn body(rng: &mut Rng, method: &str) -> String {
    let name = pick(rng, &["allowed", "victim", "new", "team", "n1", "p1", ""]);
    let namespace = pick(rng, &["", "team", "other"]);
    match (method, rng.u8(..8)) {
        ("GET" | "HEAD" | "OPTIONS" | "PURGE", _) => String::new(),
        // A body is the last word on a deletion.
        ("DELETE", 0..=4) => String::new(),
        ("DELETE", _) => r#"{"dryRun":["All"]}"#.to_owned(),
        ("PATCH", 0) => r#"[{"op":"add","path":"/metadata/labels","value":{"a":"b"}}]"#.to_owned(),
        (_, 0) => "{}".to_owned(),
        (_, 1) => pick(rng, &["", "null", "[]", "{", "a: b", "\u{0}"]).to_owned(),
        (_, 2) => r#"{"metadata":{"generateName":"new-"}}"#.to_owned(),
        (_, 3) => r#"{"spec":{"user":"owner","token":"x","namespace":"team","resourceAttributes":{"namespace":"team","verb":"get","resource":"pods"}}}"#.to_owned(),
        (_, 4) => format!(r#"{{"metadata":{{"name":"{name}"}},"target":{{"name":"n1"}},"roleRef":{{"apiGroup":"{RBAC}","kind":"ClusterRole","name":"cluster-admin"}}}}"#),
        _ => format!(r#"{{"metadata":{{"name":"{name}","namespace":"{namespace}"}}}}"#),
    }
}
