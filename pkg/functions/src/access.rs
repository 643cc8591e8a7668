//! Who may call a function: whoever may `create` `functions/invoke` of `minik8s.io`. The API server has asked that of
//! those whom it hands on; of others it is asked here, and remembered for a little while.

use crate::fleet::Refusal;
use client::Key;
use http::{HeaderMap, StatusCode, header};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::api::PostParams;
use kube::{Api, Client};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Whom tokens must be made for.
pub const AUDIENCE: &str = "functions.minik8s.io";
/// An answer is believed for so long.
const ALLOWED_FOR: Duration = Duration::from_secs(10);
const DENIED_FOR: Duration = Duration::from_secs(2);
/// So many answers are remembered.
const MOST_ANSWERS: usize = 10_000;

type Question = ([u8; 32], Key);
/// Who it is that may, or why they may not.
type Verdict = Result<Arc<str>, Refusal>;

/// Asks the API server, and remembers what it said.
pub struct Access {
    client: Client,
    answers: Mutex<HashMap<Question, (Instant, Verdict)>>,
}

impl Access {
    /// Nothing is known yet.
    pub fn new(client: Client) -> Access {
        Access { client, answers: Mutex::default() }
    }

    /// Who shows these headers, if they may call a function.
    ///
    /// # Errors
    ///
    /// Why not.
    pub async fn check(&self, headers: &HeaderMap, function: &Key) -> Verdict {
        let value = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let Some(token) = value.and_then(|value| value.strip_prefix("Bearer ")) else {
            let message = format!("a call needs a bearer token for the audience {AUDIENCE}");
            return Err(Refusal::new(StatusCode::UNAUTHORIZED, "Unauthorized", message));
        };
        let mut hash = [0; 32];
        hash.copy_from_slice(ring::digest::digest(&ring::digest::SHA256, token.as_bytes()).as_ref());
        let question = (hash, function.clone());
        let now = Instant::now();
        if let Some((until, answer)) = self.answers.lock().get(&question)
            && *until > now
        {
            return answer.clone();
        }
        let answer = self.ask(token, function).await?;
        let kept_for = if answer.is_ok() { ALLOWED_FOR } else { DENIED_FOR };
        let mut answers = self.answers.lock();
        if answers.len() >= MOST_ANSWERS {
            answers.retain(|_, (until, _)| *until > now);
        }
        if answers.len() < MOST_ANSWERS {
            answers.insert(question, (now + kept_for, answer.clone()));
        }
        answer
    }

    /// Who it is, or why they may not; an error if that could not be found out.
    async fn ask(&self, token: &str, function: &Key) -> Result<Verdict, Refusal> {
        let unknown = |error: kube::Error| {
            tracing::warn!(%error, "cannot ask who may call");
            Refusal::for_now(
                StatusCode::SERVICE_UNAVAILABLE,
                "ServiceUnavailable",
                "it cannot be found out who asks",
            )
        };
        let review = TokenReview {
            spec: TokenReviewSpec {
                token: Some(token.to_owned()),
                audiences: Some(vec![AUDIENCE.to_owned()]),
            },
            ..TokenReview::default()
        };
        let reviews: Api<TokenReview> = Api::all(self.client.clone());
        let review = reviews.create(&PostParams::default(), &review).await.map_err(unknown)?;
        let status = review.status.unwrap_or_default();
        let Some(user) = status.user.filter(|_| status.authenticated == Some(true)) else {
            let message = format!("the token is not valid for the audience {AUDIENCE}");
            return Ok(Err(Refusal::new(StatusCode::UNAUTHORIZED, "Unauthorized", message)));
        };
        let name = user.username.clone().unwrap_or_default();
        let reviews: Api<SubjectAccessReview> = Api::all(self.client.clone());
        let review =
            reviews.create(&PostParams::default(), &question(user, function)).await.map_err(unknown)?;
        let is_allowed = review.status.is_some_and(|status| status.allowed);
        let message = format!(
            "functions.minik8s.io {:?} is forbidden: User {name:?} cannot create resource \"functions/invoke\" in API group \
             \"minik8s.io\" in the namespace {:?}",
            function.name, function.namespace
        );
        match is_allowed {
            true => Ok(Ok(name.into())),
            false => Ok(Err(Refusal::new(StatusCode::FORBIDDEN, "Forbidden", message))),
        }
    }
}

fn question(user: UserInfo, function: &Key) -> SubjectAccessReview {
    SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: user.username,
            uid: user.uid,
            groups: user.groups,
            extra: user.extra,
            resource_attributes: Some(ResourceAttributes {
                group: Some("minik8s.io".to_owned()),
                version: Some("v1".to_owned()),
                resource: Some("functions".to_owned()),
                subresource: Some("invoke".to_owned()),
                verb: Some("create".to_owned()),
                namespace: Some(function.namespace.clone()),
                name: Some(function.name.clone()),
                ..ResourceAttributes::default()
            }),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    }
}
