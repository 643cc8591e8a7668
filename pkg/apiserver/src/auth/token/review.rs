//! TokenReviews: somebody else was shown a token and asks whose it is.

use crate::auth::Lookup;
use crate::auth::authn::Authenticator;
use jiff::Timestamp;
use serde_json::{Value, json};

/// The status of a TokenReview; an error is a bad request.
pub fn review(
    review: &Value,
    authenticator: &Authenticator,
    lookup: &dyn Lookup,
    now: Timestamp,
) -> Result<Value, String> {
    let spec = &review["spec"];
    let token = spec["token"].as_str().unwrap_or_default();
    if token.is_empty() {
        return Err("token is required for TokenReview in authentication".to_owned());
    }
    let audiences: Vec<String> = spec["audiences"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect();
    let asked = (!audiences.is_empty()).then_some(&audiences[..]);
    Ok(match authenticator.token(token, asked, lookup, now) {
        Ok(found) => {
            json!({"authenticated": true, "user": found.user.to_json(), "audiences": found.audiences})
        }
        Err(rejected) => json!({"user": {}, "error": rejected.to_string()}),
    })
}
