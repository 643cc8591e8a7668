//! Acting as somebody else: what must be allowed for it, and who one is then.

use super::{Attributes, User};
use http::HeaderMap;
use std::collections::BTreeMap;

const USER: &str = "impersonate-user";
const GROUP: &str = "impersonate-group";
const UID: &str = "impersonate-uid";
const EXTRA_PREFIX: &str = "impersonate-extra-";
const AUTHENTICATION_GROUP: &str = "authentication.k8s.io";

/// Somebody else, and the permissions that it takes to be them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Impersonation {
    /// All of these must be allowed to the one who asks, or the request is forbidden.
    pub checks: Vec<Check>,
    /// Who the request is made as then.
    pub user: User,
}

/// One permission to impersonate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    kind: &'static str,
    namespace: String,
    name: String,
    /// The key of an extra.
    key: String,
}

impl Check {
    /// What must be allowed to the user who asks.
    pub fn attributes<'a>(&'a self, user: &'a User) -> Attributes<'a> {
        let (group, version, resource) = match self.kind {
            "ServiceAccount" => ("", "", "serviceaccounts"),
            "User" => ("", "", "users"),
            "Group" => ("", "", "groups"),
            "UserExtra" => (AUTHENTICATION_GROUP, "v1", "userextras"),
            _ => (AUTHENTICATION_GROUP, "v1", "uids"),
        };
        Attributes {
            version,
            namespace: &self.namespace,
            name: &self.name,
            subresource: &self.key,
            ..Attributes::resource(user, "impersonate", group, resource)
        }
    }
}

/// What the headers of a request ask for; `None` if nothing. An error is a bad request.
///
/// Whoever goes on with the request drops these headers first.
pub fn from_headers(headers: &HeaderMap) -> Result<Option<Impersonation>, String> {
    let mut checks = Vec::new();
    let name = text(headers.get(USER));
    if let Some((namespace, name)) = User::split_service_account(&name) {
        checks.push(check("ServiceAccount", namespace, name, ""));
    } else if !name.is_empty() {
        checks.push(check("User", "", &name, ""));
    }
    let groups: Vec<String> = headers.get_all(GROUP).iter().map(|value| text(Some(value))).collect();
    checks.extend(groups.iter().map(|group| check("Group", "", group, "")));
    let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (header, value) in headers {
        if let Some(key) = header.as_str().strip_prefix(EXTRA_PREFIX) {
            let (key, value) = (unescape(key), text(Some(value)));
            checks.push(check("UserExtra", "", &value, &key));
            extra.entry(key).or_default().push(value);
        }
    }
    let uid = text(headers.get(UID));
    if !uid.is_empty() {
        checks.push(check("UID", "", &uid, ""));
    }
    if checks.is_empty() {
        return Ok(None);
    }
    if name.is_empty() {
        return Err(format!("requested {} without impersonating a user", describe(&checks)));
    }
    let groups = groups_of(&name, groups);
    Ok(Some(Impersonation { checks, user: User { name, uid, groups, extra } }))
}

/// The groups asked for, or those that a service account has anyway; with the one of all who are (not) authenticated.
fn groups_of(name: &str, mut groups: Vec<String>) -> Vec<String> {
    if groups.is_empty()
        && let Some((namespace, _)) = User::split_service_account(name)
    {
        groups = User::service_account_groups(namespace);
    }
    let has = |group: &str| groups.iter().any(|own| own == group);
    if name == User::ANONYMOUS {
        if !has(User::UNAUTHENTICATED) {
            groups.push(User::UNAUTHENTICATED.to_owned());
        }
    } else if !has(User::AUTHENTICATED) && !has(User::UNAUTHENTICATED) {
        groups.push(User::AUTHENTICATED.to_owned());
    }
    groups
}

fn check(kind: &'static str, namespace: &str, name: &str, key: &str) -> Check {
    Check { kind, namespace: namespace.to_owned(), name: name.to_owned(), key: key.to_owned() }
}

/// As Go prints object references.
fn describe(checks: &[Check]) -> String {
    let items: Vec<String> = checks
        .iter()
        .map(|check| {
            let version = match check.kind {
                "UserExtra" | "UID" => "authentication.k8s.io/v1",
                _ => "",
            };
            format!("{{{} {} {}  {version}  {}}}", check.kind, check.namespace, check.name, check.key)
        })
        .collect();
    format!("[{}]", items.join(" "))
}

fn text(value: Option<&http::HeaderValue>) -> String {
    value.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).unwrap_or_default()
}

/// Header names cannot hold everything that keys can: `%2f` is `/`. What is malformed stays as it is.
fn unescape(key: &str) -> String {
    let mut bytes = Vec::with_capacity(key.len());
    let mut rest = key.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        if first == b'%' {
            let hex = after.get(..2).and_then(|hex| std::str::from_utf8(hex).ok());
            let Some(byte) = hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) else {
                return key.to_owned();
            };
            bytes.push(byte);
            rest = &after[2..];
        } else {
            bytes.push(first);
            rest = after;
        }
    }
    String::from_utf8(bytes).unwrap_or_else(|_| key.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderName, HeaderValue};

    fn parse(headers: &[(&str, &str)]) -> Result<Option<Impersonation>, String> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let name: HeaderName = name.parse().unwrap();
            map.append(name, HeaderValue::from_str(value).unwrap());
        }
        from_headers(&map)
    }

    /// The permissions that it takes, and the user that comes of it.
    fn check(headers: &[(&str, &str)], permissions: &[&str], groups: &[&str]) -> User {
        let found = parse(headers).unwrap().unwrap();
        let asks = User::default();
        let texts: Vec<String> = found
            .checks
            .iter()
            .map(|check| {
                let a = check.attributes(&asks);
                assert_eq!((a.verb, a.is_resource), ("impersonate", true));
                format!("{}/{}/{} {}/{}", a.group, a.resource, a.subresource, a.namespace, a.name)
            })
            .collect();
        assert_eq!(texts, permissions);
        assert_eq!(found.user.groups, groups);
        found.user
    }

    #[test]
    fn nothing_is_asked_for() {
        assert_eq!(parse(&[("accept", "application/json")]), Ok(None));
    }

    #[test]
    fn users_groups_uids_and_extras_are_each_a_permission() {
        let user = check(
            &[
                ("Impersonate-User", "jane"),
                ("Impersonate-Group", "dev"),
                ("Impersonate-Group", "ops"),
                ("Impersonate-Extra-Acme.com%2fScopes", "view"),
                ("Impersonate-Extra-Acme.com%2fScopes", "edit"),
                ("Impersonate-Uid", "42"),
            ],
            &[
                "/users/ /jane",
                "/groups/ /dev",
                "/groups/ /ops",
                "authentication.k8s.io/userextras/acme.com/scopes /view",
                "authentication.k8s.io/userextras/acme.com/scopes /edit",
                "authentication.k8s.io/uids/ /42",
            ],
            &["dev", "ops", "system:authenticated"],
        );
        assert_eq!((user.name.as_str(), user.uid.as_str()), ("jane", "42"));
        assert_eq!(user.extra["acme.com/scopes"], ["view", "edit"]);
    }

    #[test]
    fn service_accounts_have_groups_of_their_own() {
        let name = ("Impersonate-User", "system:serviceaccount:ns:sa");
        let own = ["system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated"];
        check(&[name], &["/serviceaccounts/ ns/sa"], &own);
        check(
            &[name, ("Impersonate-Group", "g")],
            &["/serviceaccounts/ ns/sa", "/groups/ /g"],
            &["g", "system:authenticated"],
        );
    }

    #[test]
    fn anonymous_stays_anonymous() {
        let name = ("Impersonate-User", "system:anonymous");
        check(&[name], &["/users/ /system:anonymous"], &["system:unauthenticated"]);
        check(
            &[("Impersonate-User", "x"), ("Impersonate-Group", "system:unauthenticated")],
            &["/users/ /x", "/groups/ /system:unauthenticated"],
            &["system:unauthenticated"],
        );
    }

    #[test]
    fn somebody_must_be_named() {
        assert_eq!(
            parse(&[("Impersonate-Group", "g"), ("Impersonate-Uid", "1")]),
            Err("requested [{Group  g    } {UID  1  authentication.k8s.io/v1  }] without impersonating a user"
                .to_owned())
        );
    }

    #[test]
    fn malformed_keys_stay_as_they_are() {
        for (given, expected) in
            [("a%2fb", "a/b"), ("a%2", "a%2"), ("a%zz", "a%zz"), ("%ff", "%ff"), ("", "")]
        {
            assert_eq!(unescape(given), expected);
        }
    }
}
