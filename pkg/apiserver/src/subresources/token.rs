//! `serviceaccounts/token`: a token that is bound and expires.

use crate::admission::question::{self, Question};
use crate::admission::{self, Operation};
use crate::answer::{self, Answer};
use crate::auth::token::{self, Settings, TokenRequestError};
use crate::decode;
use crate::error::{ApiError, Result};
use crate::handler::Call;
use crate::registry::Resource;
use crate::server::Server;
use api::{Value, object};
use http::StatusCode;

/// Answers the TokenRequest with a token.
pub async fn handle(server: &Server, accounts: &Resource, call: &Call<'_>) -> Result<Answer> {
    let context = call.context()?;
    // The account, or the pod that the token is bound to, may have been made a moment ago through another server.
    server.catch_up().await?;
    let mut request = decode::document(call.headers, &call.body)?.value;
    if !request.is_object() {
        return Err(ApiError::bad_request("the body must be a TokenRequest"));
    }
    request["kind"] = "TokenRequest".into();
    request["apiVersion"] = "authentication.k8s.io/v1".into();
    let (namespace, name) = (call.target.namespace, &*call.target.name);
    name_request(&mut request, namespace, name);
    token::set_defaults(&mut request);
    admission::admit(server, Operation::Create, accounts, "token", &context, &mut request, None)?;
    if !question::nobody_is_asked(server) {
        let question = Question {
            subresource: "token",
            takes: Some(("authentication.k8s.io", "v1", "TokenRequest")),
            name,
            namespace,
            ..Question::about(server, &context, Operation::Create, &accounts.kind, &Value::Null)
        };
        Box::pin(question::ask_all(&question, Some(&mut request), None)).await?;
    }
    let settings = Settings {
        issuer: server.auth.issuer.clone(),
        audiences: server.auth.audiences.clone(),
        max_expiration_seconds: server
            .config
            .service_account_max_token_expiration
            .map(|d| d.as_secs() as i64),
        extend_expiration: true,
    };
    let id = uuid::Uuid::new_v4().to_string();
    let made = token::request_token(
        &settings,
        &server.auth.signer,
        (namespace, name),
        request,
        server,
        context.now,
        &id,
    )
    .map_err(|error| token_error(server, accounts, name, error))?;
    if let Some(warning) = made.warning {
        context.warn(warning);
    }
    Ok(answer::json(StatusCode::CREATED, &made.object).with_warnings(&context))
}

fn name_request(request: &mut Value, namespace: &str, name: &str) {
    let metadata = object::object_mut(request, "metadata");
    for (member, value) in [("name", name), ("namespace", namespace)] {
        if metadata.get(member).and_then(Value::as_str).is_none_or(str::is_empty) {
            metadata.insert(member.into(), value.into());
        }
    }
}

fn token_error(server: &Server, accounts: &Resource, name: &str, error: TokenRequestError) -> ApiError {
    match error {
        TokenRequestError::NotFound { resource, name } => {
            ApiError::not_found(&server.kind("", resource), &name)
        }
        TokenRequestError::Invalid(errors) => {
            let mut invalid = ApiError::invalid(&accounts.kind, name, &errors);
            invalid.message =
                invalid.message.replacen("ServiceAccount", "TokenRequest.authentication.k8s.io", 1);
            invalid
        }
        TokenRequestError::Conflict { cause, .. } => ApiError::conflict(&accounts.kind, name, cause),
        TokenRequestError::BadRequest(message) => ApiError::bad_request(message),
        TokenRequestError::Signing(cause) => {
            tracing::error!(cause, "cannot sign a token");
            ApiError::internal("failed to generate token")
        }
    }
}
