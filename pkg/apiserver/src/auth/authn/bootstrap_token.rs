//! Bootstrap tokens: each is a Secret in kube-system, for the short time in which a machine joins.

use crate::auth::{Lookup, User};
use base64::{Engine, prelude::BASE64_STANDARD};
use jiff::Timestamp;
use pki::BootstrapToken;
use ring::digest::{SHA256, digest};
use std::collections::BTreeSet;

const GROUP: &str = "system:bootstrappers";
const SECRET_TYPE: &str = "bootstrap.kubernetes.io/token";

/// Who shows this bootstrap token; `None` if it is none, or does not count.
pub(super) fn authenticate(token: &str, lookup: &dyn Lookup, now: Timestamp) -> Option<User> {
    let token: BootstrapToken = token.parse().ok()?;
    let secret = lookup.object("secrets", "kube-system", &format!("bootstrap-token-{}", token.id()))?;
    if api::object::meta(&secret, "deletionTimestamp").is_some() || secret["type"] != SECRET_TYPE {
        return None;
    }
    let data = |key: &str| -> Option<String> {
        let bytes = BASE64_STANDARD.decode(secret.get("data")?.get(key)?.as_str()?).ok()?;
        String::from_utf8(bytes).ok()
    };
    let same = is_same_secret(&data("token-secret")?, token.secret());
    let known = same && data("token-id")? == token.id();
    let usable = data("usage-bootstrap-authentication").as_deref() == Some("true");
    if !known || !usable || has_expired(data("expiration").as_deref(), now) {
        return None;
    }
    Some(User {
        name: format!("system:bootstrap:{}", token.id()),
        groups: groups(data("auth-extra-groups").as_deref().unwrap_or_default())?,
        ..User::default()
    })
}

/// By their digests: how long it takes to compare those tells nothing about the secret.
fn is_same_secret(one: &str, two: &str) -> bool {
    digest(&SHA256, one.as_bytes()).as_ref() == digest(&SHA256, two.as_bytes()).as_ref()
}

/// A time that cannot be read has passed.
fn has_expired(expiration: Option<&str>, now: Timestamp) -> bool {
    match expiration {
        None | Some("") => false,
        Some(at) => at.parse::<Timestamp>().map_or(true, |at| at <= now),
    }
}

/// The group of all bootstrap tokens and the extra ones; `None` if one of those reaches beyond.
fn groups(extra: &str) -> Option<Vec<String>> {
    let mut groups = BTreeSet::from([GROUP.to_owned()]);
    for group in extra.split(',').filter(|_| !extra.is_empty()) {
        let rest = group.strip_prefix(GROUP)?.strip_prefix(':')?;
        let letter = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        let fine = rest.len() <= 256
            && rest.bytes().all(|b| letter(b) || b == b':' || b == b'-')
            && rest.bytes().last().is_some_and(letter);
        if !fine {
            return None;
        }
        groups.insert(group.to_owned());
    }
    Some(groups.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    struct Secrets(Value);

    impl Lookup for Secrets {
        fn object(&self, resource: &str, namespace: &str, name: &str) -> Option<Value> {
            (resource == "secrets" && namespace == "kube-system" && name == "bootstrap-token-abcdef")
                .then(|| self.0.clone())
        }
    }

    const TOKEN: &str = "abcdef.0123456789abcdef";

    fn secret(changes: &[(&str, &str)]) -> Value {
        let mut data = json!({});
        let good = [
            ("token-id", "abcdef"),
            ("token-secret", "0123456789abcdef"),
            ("usage-bootstrap-authentication", "true"),
        ];
        for (key, value) in good.iter().chain(changes) {
            data[*key] = json!(BASE64_STANDARD.encode(value));
        }
        json!({"kind": "Secret", "type": SECRET_TYPE, "metadata": {}, "data": data})
    }

    fn groups_of(token: &str, secret: Value) -> Option<Vec<String>> {
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        let user = authenticate(token, &Secrets(secret), now)?;
        assert_eq!(user.name, "system:bootstrap:abcdef");
        Some(user.groups)
    }

    #[test]
    fn a_good_token_is_believed() {
        assert_eq!(groups_of(TOKEN, secret(&[])).unwrap(), [GROUP]);
        let extra = [("auth-extra-groups", "system:bootstrappers:b,system:bootstrappers:a")];
        assert_eq!(
            groups_of(TOKEN, secret(&extra)).unwrap(),
            [GROUP, "system:bootstrappers:a", "system:bootstrappers:b"]
        );
        assert!(groups_of(TOKEN, secret(&[("expiration", "2026-01-01T00:00:01Z")])).is_some());
    }

    #[test]
    fn a_bad_one_is_not() {
        let check = |changes: &[(&str, &str)]| {
            assert_eq!(groups_of(TOKEN, secret(changes)), None, "{changes:?}");
        };
        check(&[("token-secret", "0123456789abcdeF")]);
        check(&[("token-id", "abcdeg")]);
        check(&[("usage-bootstrap-authentication", "false")]);
        check(&[("expiration", "2026-01-01T00:00:00Z")]);
        check(&[("expiration", "soon")]);
        check(&[("auth-extra-groups", "system:masters")]);
        check(&[("auth-extra-groups", "system:bootstrappers:")]);
        check(&[("auth-extra-groups", "system:bootstrappers:a,")]);
        assert_eq!(groups_of("abcdef.0123456789abcdeg", secret(&[])), None);
        assert_eq!(groups_of("ghijkl.0123456789abcdef", secret(&[])), None);
        assert_eq!(groups_of("rubbish", secret(&[])), None);
        let mut deleted = secret(&[]);
        deleted["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        assert_eq!(groups_of(TOKEN, deleted), None);
        let mut other = secret(&[]);
        other["type"] = json!("Opaque");
        assert_eq!(groups_of(TOKEN, other), None);
    }
}
