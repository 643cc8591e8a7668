//! Tokens that stand in a Secret: without an end, good for as long as they stand there.

use serde_json::{Value, json};

/// Who they are from, on every server.
pub(crate) const ISSUER: &str = "kubernetes/serviceaccount";

const NAMESPACE: &str = "kubernetes.io/serviceaccount/namespace";
const SECRET: &str = "kubernetes.io/serviceaccount/secret.name";
const ACCOUNT: &str = "kubernetes.io/serviceaccount/service-account.name";
const ACCOUNT_UID: &str = "kubernetes.io/serviceaccount/service-account.uid";

/// What such a token says.
pub(crate) fn claims(namespace: &str, secret: &str, account: &str, uid: &str) -> Value {
    json!({
        "iss": ISSUER, "sub": format!("system:serviceaccount:{namespace}:{account}"),
        NAMESPACE: namespace, SECRET: secret, ACCOUNT: account, ACCOUNT_UID: uid,
    })
}

/// Namespace, secret, account and its uid.
pub(super) fn read(claims: &Value) -> Option<[String; 4]> {
    let text = |name: &str| claims[name].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    Some([text(NAMESPACE)?, text(SECRET)?, text(ACCOUNT)?, text(ACCOUNT_UID)?])
}
