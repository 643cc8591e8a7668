//! Who may do and see what, said a second time: by templates of paths as upstream's documentation lists them, and by the
//! few rules that the test itself has given. It shares nothing with the server, and is asked about every answer.

use crate::grammar::{Known, Question, RESOURCES};
use crate::wire::Answer;
use crate::world::Who;
use serde_json::Value;

/// What a question means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Meaning {
    /// Something is done to a resource.
    Resource(Asked),
    /// A path that is none.
    Plain(String),
    /// There is no such path or method, or what it says contradicts itself: nobody may be given anything.
    Nothing,
}

/// What is done to which resource.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Asked {
    pub verb: &'static str,
    pub group: &'static str,
    pub plural: &'static str,
    pub part: &'static str,
    /// `None`: what has no namespace, or all of them.
    pub namespace: Option<String>,
    /// The name that the path says, or the selector.
    pub name: Option<String>,
    /// What the selector says of nodes: `spec.nodeName`.
    pub node: Option<String>,
}

/// What a question means, by trying every path that there is.
pub fn meaning(question: &Question) -> Meaning {
    let (raw, query) = question.path.split_once('?').unwrap_or((&question.path, ""));
    let Some(path) = decode(raw) else { return Meaning::Nothing };
    let segments: Vec<&str> = path.trim_end_matches('/').split('/').skip(1).collect();
    let is_resource = match segments.as_slice() {
        ["api", _, _, ..] => true,
        ["apis", group, _, _, ..] => !group.is_empty(),
        _ => false,
    };
    if !is_resource {
        return Meaning::Plain(path);
    }
    let asked = RESOURCES.iter().find_map(|known| asked(known, &segments, &question.method, query));
    asked.map_or(Meaning::Nothing, Meaning::Resource)
}

/// What is asked of this resource, if the path is one of its.
fn asked(known: &'static Known, segments: &[&str], method: &str, query: &str) -> Option<Asked> {
    let prefix: &[&str] = match known.group {
        "" => &["api", known.version],
        group => &["apis", group, known.version],
    };
    let rest = segments.strip_prefix(prefix)?;
    let (old_watch, rest) = match rest {
        ["watch", rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    let (namespace, rest) = match rest {
        // What follows `namespaces/x` is in it, but for its own parts.
        ["namespaces", name, part @ ("status" | "finalize"), more @ ..] => {
            if known.plural != "namespaces" || !more.is_empty() {
                return None;
            }
            return object(known, Some((*name).to_owned()), name, part, method, old_watch, false, query);
        }
        ["namespaces", name] if known.plural == "namespaces" && known.group.is_empty() => {
            return object(known, Some((*name).to_owned()), name, "", method, old_watch, false, query);
        }
        ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (Some(*namespace), rest),
        rest => (None, rest),
    };
    if !known.namespaced && namespace.is_some() || rest.first() != Some(&known.plural) {
        return None;
    }
    let namespace = namespace.filter(|namespace| !namespace.is_empty()).map(str::to_owned);
    match &rest[1..] {
        [] => collection(known, namespace, method, old_watch, query),
        _ if known.namespaced && namespace.is_none() => None,
        [name] => object(known, namespace, name, "", method, old_watch, false, query),
        [name, part, more @ ..] => {
            object(known, namespace, name, part, method, old_watch, !more.is_empty(), query)
        }
    }
}

fn collection(
    known: &'static Known,
    namespace: Option<String>,
    method: &str,
    old_watch: bool,
    query: &str,
) -> Option<Asked> {
    let can = |what: char| known.can.contains(what);
    let watches =
        parameter(query, "watch").is_some_and(|value| value != "0" && !value.eq_ignore_ascii_case("false"));
    // Custom kinds answer HEAD as GET.
    let is_get = method == "GET" || (method == "HEAD" && known.group == "example.com" && !old_watch);
    let verb = match method {
        _ if is_get && (old_watch || watches) && can('w') => "watch",
        _ if is_get && !old_watch && !watches && can('r') => "list",
        _ if old_watch => return None,
        "POST" if can('c') => "create",
        "DELETE" if can('D') => "deletecollection",
        _ => return None,
    };
    if known.namespaced && namespace.is_none() && !matches!(verb, "list" | "watch") {
        return None;
    }
    let terms = match verb {
        "create" => Vec::new(),
        _ => terms(&parameter(query, "fieldSelector").unwrap_or_default())?,
    };
    let said = |field: &str| {
        let mut values =
            terms.iter().filter(|(own, equal, _)| own == field && *equal).map(|(.., value)| value);
        let first = values.next()?.clone();
        values.all(|other| *other == first).then_some(first)
    };
    let tells = !old_watch && matches!(verb, "list" | "watch");
    let name = said("metadata.name").filter(|name| tells && !name.is_empty() && !name.contains(['/', '%']));
    let name = name.filter(|name| name != "." && name != "..");
    let node = said("spec.nodeName").filter(|_| !old_watch);
    Some(Asked { verb, group: known.group, plural: known.plural, part: "", namespace, name, node })
}

#[allow(clippy::too_many_arguments, reason = "each is one part of a path")]
fn object(
    known: &'static Known,
    namespace: Option<String>,
    name: &str,
    part: &str,
    method: &str,
    old_watch: bool,
    goes_on: bool,
    query: &str,
) -> Option<Asked> {
    if name.is_empty() || known.can == "c" {
        return None;
    }
    let (part, can) = match part {
        "" if goes_on => return None,
        "" => ("", known.can),
        part => *known.parts.iter().find(|(own, _)| *own == part)?,
    };
    if goes_on && can != "p" {
        return None;
    }
    let has = |what: char| can.contains(what) || can == "p";
    let verb = match method {
        "GET" if old_watch && part.is_empty() && has('w') => "watch",
        _ if old_watch => return None,
        "GET" if has('r') => "get",
        "HEAD" if can == "p" || (known.group == "example.com" && has('r')) => "get",
        "OPTIONS" if can == "p" => "",
        "POST" if has('c') && !part.is_empty() => "create",
        "PUT" if has('u') || has('U') => "update",
        "PATCH" if has('u') => "patch",
        "DELETE" if (has('d') && part.is_empty()) || can == "p" => "delete",
        _ => return None,
    };
    if old_watch {
        let terms = terms(&parameter(query, "fieldSelector").unwrap_or_default())?;
        let names: Vec<&String> = terms
            .iter()
            .filter(|(field, equal, _)| field == "metadata.name" && *equal)
            .map(|(.., value)| value)
            .collect();
        if !terms.is_empty() && (names.is_empty() || names.iter().any(|said| *said != name)) {
            return None;
        }
    }
    let name = Some(name.to_owned());
    Some(Asked { verb, group: known.group, plural: known.plural, part, namespace, name, node: None })
}

/// Percent-encoding undone.
fn decode(text: &str) -> Option<String> {
    let mut out = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'%' => {
                let code = [rest.next()?, rest.next()?];
                out.push(u8::from_str_radix(std::str::from_utf8(&code).ok()?, 16).ok()?);
            }
            byte => out.push(byte),
        }
    }
    String::from_utf8(out).ok()
}

/// The first value of a parameter.
fn parameter(query: &str, wanted: &str) -> Option<String> {
    let pairs = query.split('&').filter_map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        Some((decode(&name.replace('+', " "))?, decode(&value.replace('+', " "))?))
    });
    pairs.filter(|(name, _)| name == wanted).map(|(_, value)| value).next()
}

/// Field, whether it must be equal, and value of each term.
fn terms(text: &str) -> Option<Vec<(String, bool, String)>> {
    let mut terms = vec![String::new()];
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => terms.last_mut()?.extend(['\\'].into_iter().chain(chars.next())),
            ',' => terms.push(String::new()),
            c => terms.last_mut()?.push(c),
        }
    }
    let term = |text: String| {
        let at = text.char_indices().find(|(at, c)| *c == '=' || text[*at..].starts_with("!="))?.0;
        let (field, rest) = text.split_at(at);
        let value = rest.trim_start_matches('!');
        let value = value.strip_prefix("==").or(value.strip_prefix('='))?;
        let mut plain = String::new();
        let mut chars = value.chars();
        while let Some(c) = chars.next() {
            match c {
                '\\' => plain.push(chars.next().filter(|c| matches!(c, '\\' | ',' | '='))?),
                '=' => return None,
                c => plain.push(c),
            }
        }
        Some((field.to_owned(), !rest.starts_with('!'), plain))
    };
    terms.into_iter().filter(|text| !text.is_empty()).map(term).collect()
}

/// As whom a question is answered, if the one who asks may be that.
pub fn acts_as(question: &Question) -> Option<Who> {
    let wishes: Vec<&(String, String)> =
        question.headers.iter().filter(|(name, _)| name.starts_with("impersonate-")).collect();
    let user = wishes.iter().find(|(name, _)| name == "impersonate-user").map_or("", |(_, user)| user);
    let others = wishes
        .iter()
        .filter(|(name, _)| !matches!(name.as_str(), "impersonate-user" | "impersonate-"))
        .count();
    match (question.who, user.trim_end(), others) {
        (who, "", 0) => Some(who),
        (_, "", _) => None,
        (Who::Admin, "owner", 0) => Some(Who::Owner),
        (Who::Admin, "nobody" | "OWNER" | "admin" | "system:serviceaccount:team:default:x", 0) => {
            Some(Who::Nobody)
        }
        (Who::Admin, "system:anonymous", 0) => Some(Who::Anonymous),
        (Who::Admin, "system:serviceaccount:team:default", 0) => Some(Who::Account),
        (Who::Admin, ..) => Some(Who::Admin),
        (Who::Agent, "owner", 0) => Some(Who::Owner),
        // An owner may impersonate the accounts of the namespace.
        (Who::Owner, "system:serviceaccount:team:default", 0) => Some(Who::Account),
        _ => None,
    }
}

/// Whether somebody may.
pub fn may(who: Who, asked: &Asked) -> bool {
    let is = |group: &str, plural: &str| asked.group == group && asked.plural == plural;
    let namespace = asked.namespace.as_deref();
    let name = asked.name.as_deref();
    let about_oneself = asked.verb == "create"
        && matches!(
            asked.plural,
            "selfsubjectreviews" | "selfsubjectaccessreviews" | "selfsubjectrulesreviews"
        );
    match who {
        Who::Admin => true,
        Who::Anonymous => false,
        _ if about_oneself => true,
        Who::Owner => namespace == Some("team"),
        Who::Holder => {
            is("", "secrets") && asked.part.is_empty() && namespace == Some("team") && name == Some("allowed")
        }
        Who::Watcher => asked.verb == "watch",
        Who::Node => node_may(asked),
        Who::Account => {
            let viewed = match asked.part {
                "" => ["pods", "configmaps", "services", "serviceaccounts", "events", "namespaces"]
                    .contains(&asked.plural),
                "log" | "status" => asked.plural == "pods",
                _ => false,
            };
            namespace == Some("team")
                && matches!(asked.verb, "get" | "list" | "watch")
                && viewed
                && asked.group.is_empty()
        }
        Who::Agent | Who::Nobody => false,
    }
}

/// What the Node authorizer allows to `n1`; what is written is looked at by NodeRestriction after that.
fn node_may(asked: &Asked) -> bool {
    let (namespace, name) = (asked.namespace.as_deref(), asked.name.as_deref());
    let reads = matches!(asked.verb, "get" | "list" | "watch");
    let writes = matches!(asked.verb, "update" | "patch");
    let plain = asked.part.is_empty();
    match (asked.group, asked.plural) {
        ("", "nodes") => {
            (reads && plain && name == Some("n1"))
                || (writes && matches!(asked.part, "" | "status"))
                || (asked.verb == "create" && plain)
        }
        ("", "pods") => match (asked.part, asked.verb) {
            ("", "get") => namespace == Some("team") && name == Some("p1"),
            ("", "list" | "watch") => {
                asked.node.as_deref() == Some("n1") || (namespace == Some("team") && name == Some("p1"))
            }
            ("", "create" | "delete") | ("status", "update" | "patch") | ("eviction", "create") => true,
            _ => false,
        },
        ("", "secrets") => reads && plain && namespace == Some("team") && name == Some("allowed"),
        ("", "configmaps") => reads && plain && namespace == Some("team") && name == Some("kube-root-ca.crt"),
        ("", "serviceaccounts") => {
            namespace == Some("team")
                && name == Some("default")
                && ((asked.verb == "get" && plain) || (asked.verb == "create" && asked.part == "token"))
        }
        ("", "services") => reads && plain,
        ("", "events") => plain && matches!(asked.verb, "create" | "update" | "patch"),
        ("coordination.k8s.io", "leases") => {
            let own = name == Some("n1") && (writes || matches!(asked.verb, "get" | "delete"));
            namespace == Some("kube-node-lease") && (own || asked.verb == "create")
        }
        ("storage.k8s.io", "csinodes") => {
            let own = name == Some("n1") && (writes || matches!(asked.verb, "get" | "delete"));
            plain && (own || asked.verb == "create")
        }
        ("certificates.k8s.io", _) => plain && (reads || asked.verb == "create"),
        ("authentication.k8s.io", "tokenreviews") => asked.verb == "create",
        ("authorization.k8s.io", "subjectaccessreviews" | "localsubjectaccessreviews") => {
            asked.verb == "create"
        }
        _ => false,
    }
}

fn may_plain(who: Who, method: &str, path: &str) -> bool {
    let public = ["/healthz", "/livez", "/readyz", "/version", "/version/"].contains(&path);
    let discovery = ["/api", "/apis", "/openapi"]
        .iter()
        .any(|root| path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')));
    let keys = [
        "/openid/v1/jwks",
        "/openid/v1/jwks/",
        "/.well-known/openid-configuration",
        "/.well-known/openid-configuration/",
    ];
    match who {
        Who::Admin => true,
        _ if method != "GET" => false,
        Who::Anonymous => public,
        Who::Account => public || discovery || keys.contains(&path),
        _ => public || discovery,
    }
}

/// What is wrong with an answer, if anything is.
pub fn wrong(question: &Question, answer: &Answer) -> Option<String> {
    let meaning = meaning(question);
    let who = acts_as(question);
    let allowed = match (&meaning, who) {
        (_, None) | (Meaning::Nothing, _) => false,
        (Meaning::Plain(path), Some(who)) => may_plain(who, &question.method, path),
        (Meaning::Resource(asked), Some(who)) => may(who, asked),
    };
    if !allowed {
        return tells_anything(&meaning, answer);
    }
    let (Meaning::Resource(asked), Some(who)) = (&meaning, who) else { return None };
    if !(200..300).contains(&answer.code) || matches!(asked.part, "log" | "proxy") {
        return None;
    }
    let objects = objects(&answer.body);
    objects.iter().find(|object| !is_seen(who, asked, object)).map(|object| {
        format!("{:?} is shown {} {}", who, object["metadata"]["namespace"], object["metadata"]["name"])
    })
}

/// What is done, or told, although it may not be.
fn tells_anything(meaning: &Meaning, answer: &Answer) -> Option<String> {
    match answer.code {
        400 | 401 | 403 | 405 | 406 | 413 | 415 | 429 => None,
        404 => {
            let status: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
            let is_about_object = status["details"]["name"].is_string();
            // Whether there is such an object is nobody's business who may not ask; where there is no path, it is said
            // of none.
            is_about_object.then(|| format!("says what is there: {meaning:?}"))
        }
        code => Some(format!("answers {code}: {meaning:?}")),
    }
}

/// Whether somebody who asked for that may be shown this object.
fn is_seen(who: Who, asked: &Asked, object: &Value) -> bool {
    let text = |name: &str| object["metadata"][name].as_str().map(str::to_owned);
    let (namespace, name) = (text("namespace"), text("name"));
    // Answers that are no objects, such as reviews.
    if object["metadata"]["uid"].as_str().is_none() {
        return true;
    }
    let is_namespace = asked.plural == "namespaces";
    let namespace = if is_namespace && asked.namespace.is_some() { name.clone() } else { namespace };
    if asked.namespace.is_some() && namespace != asked.namespace {
        return false;
    }
    if asked.verb != "create" && asked.name.is_some() && name != asked.name {
        return false;
    }
    if who == Who::Node && asked.plural == "pods" && asked.group.is_empty() {
        return object["spec"]["nodeName"] == "n1" || object["spec"].is_null();
    }
    if who == Who::Node && asked.plural == "nodes" {
        return name.as_deref() == Some("n1");
    }
    let named = if asked.verb == "create" && asked.part.is_empty() { asked.name.clone() } else { name };
    may(who, &Asked { namespace, name: named, ..asked.clone() })
}

/// Objects in an answer: itself, items, rows, events.
fn objects(body: &[u8]) -> Vec<Value> {
    let mut found = Vec::new();
    for document in serde_json::Deserializer::from_slice(body).into_iter::<Value>() {
        let Ok(document) = document else { break };
        collect(document, &mut found);
    }
    found
}

fn collect(mut document: Value, found: &mut Vec<Value>) {
    if !document.is_object() {
        return;
    }
    for list in ["items", "rows"] {
        if let Value::Array(list) = document[list].take() {
            list.into_iter().for_each(|item| collect(item, found));
            return;
        }
    }
    match document["object"].take() {
        object @ Value::Object(_) => collect(object, found),
        _ => found.push(document),
    }
}
