//! Service-account tokens, bound to their pod, and made anew before they end.

use crate::host::Host;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Pod, ServiceAccount, ServiceAccountTokenProjection};
use kube::Api;
use kube::api::PostParams;
use std::path::Path;

/// However long it lives, a token is a day old at most.
const OLDEST_S: i64 = 24 * 60 * 60;

/// A token and when to ask for the next one.
pub(super) struct Token {
    pub text: String,
    pub refresh_at: Timestamp,
}

/// The token that is in the file, if it is good for a while yet; otherwise a new one.
pub(super) async fn of(
    host: &Host,
    pod: &Pod,
    source: &ServiceAccountTokenProjection,
    file: &Path,
) -> Result<Token, String> {
    let now = Timestamp::now();
    if let Some(kept) = std::fs::read_to_string(file).ok().and_then(|text| kept(text, now)) {
        return Ok(kept);
    }
    let meta = &pod.metadata;
    let account =
        pod.spec.as_ref().and_then(|spec| spec.service_account_name.as_deref()).unwrap_or("default");
    let client = host.client.clone().ok_or("this kubelet has no apiserver")?;
    let accounts: Api<ServiceAccount> =
        Api::namespaced(client, meta.namespace.as_deref().unwrap_or_default());
    let request = TokenRequest {
        spec: TokenRequestSpec {
            audiences: source.audience.clone().filter(|audience| !audience.is_empty()).into_iter().collect(),
            expiration_seconds: Some(source.expiration_seconds.unwrap_or(3600)),
            bound_object_ref: Some(BoundObjectReference {
                api_version: Some("v1".into()),
                kind: Some("Pod".into()),
                name: meta.name.clone(),
                uid: meta.uid.clone(),
            }),
        },
        ..TokenRequest::default()
    };
    let answer = accounts.create_token_request(account, &PostParams::default(), &request).await;
    let answer = answer.map_err(|error| format!("failed to fetch token: {error}"))?;
    let status = answer.status.ok_or("failed to fetch token: the answer has none")?;
    let refresh_at = refresh_at(now, status.expiration_timestamp.0);
    Ok(Token { text: status.token, refresh_at })
}

/// After four fifths of its life, or a day.
fn refresh_at(issued: Timestamp, expires: Timestamp) -> Timestamp {
    let life = expires.duration_since(issued).as_secs();
    issued + SignedDuration::from_secs((life * 4 / 5).clamp(1, OLDEST_S))
}

fn kept(text: String, now: Timestamp) -> Option<Token> {
    let claims = pki::unverified_claims(&text)?;
    let time = |name: &str| Timestamp::from_second(claims[name].as_i64()?).ok();
    let refresh_at = refresh_at(time("iat")?, time("exp")?);
    (refresh_at > now).then_some(Token { text, refresh_at })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_renewed_after_four_fifths_or_a_day() {
        let at = |second| Timestamp::from_second(second).expect("a time");
        assert_eq!(refresh_at(at(0), at(3600)), at(2880));
        assert_eq!(refresh_at(at(0), at(365 * 86_400)), at(86_400));
    }
}
