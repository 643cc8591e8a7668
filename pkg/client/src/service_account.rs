//! Clients that act as service accounts of `kube-system`, each with a token of its own.
//!
//! All share the connections of one client that has no credentials; the token is put on each request. Tokens are asked
//! for by the root client when they are first needed, and again before they expire. An account that does not exist is
//! made, as upstream's controller-manager does.

use crate::connect::{ConnectError, Way, connect_with};
use futures::future::BoxFuture;
use http::{HeaderValue, Request, Response, StatusCode, header};
use jiff::Timestamp;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Client;
use kube::api::{Api, ObjectMeta, PostParams};
use kube::client::Body;
use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::Instant;

const NAMESPACE: &str = "kube-system";
const TOKEN_SECONDS: i64 = 3600;

/// Makes clients that are service accounts.
#[derive(Clone)]
pub struct ServiceAccounts {
    root: Client,
    bare: Client,
}

impl ServiceAccounts {
    /// `root` may ask for tokens; the server is the one that the kubeconfig names.
    pub async fn new(
        root: Client,
        kubeconfig: Option<&Path>,
        user_agent: &str,
    ) -> Result<ServiceAccounts, ConnectError> {
        let way = Way { without_credentials: true, ..Way::default() };
        Ok(ServiceAccounts { root, bare: connect_with(kubeconfig, user_agent, way).await? })
    }

    /// A client that is this account of `kube-system`. Nothing is asked for before it is used.
    pub fn client(&self, account: &str) -> Client {
        let service =
            AsAccount { accounts: self.clone(), name: account.into(), token: Arc::new(Mutex::new(None)) };
        Client::new(service, NAMESPACE)
    }

    async fn request_token(&self, account: &str) -> kube::Result<Token> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.root.clone(), NAMESPACE);
        let request = TokenRequest {
            spec: TokenRequestSpec { expiration_seconds: Some(TOKEN_SECONDS), ..TokenRequestSpec::default() },
            ..TokenRequest::default()
        };
        let mut answer = accounts.create_token_request(account, &PostParams::default(), &request).await;
        if matches!(&answer, Err(kube::Error::Api(status)) if status.code == 404) {
            let metadata = ObjectMeta { name: Some(account.to_owned()), ..ObjectMeta::default() };
            let new = ServiceAccount { metadata, ..ServiceAccount::default() };
            match accounts.create(&PostParams::default(), &new).await {
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                created => drop(created?),
            }
            answer = accounts.create_token_request(account, &PostParams::default(), &request).await;
        }
        let Some(status) = answer?.status else {
            return Err(kube::Error::Service("the answer has no token".into()));
        };
        let lives = status.expiration_timestamp.0.duration_since(Timestamp::now());
        let lives = Duration::try_from(lives).unwrap_or_default();
        let value = HeaderValue::from_str(&format!("Bearer {}", status.token))
            .map_err(|error| kube::Error::Service(error.into()))?;
        Ok(Token { value, renew_at: Instant::now() + lives.mul_f32(0.8) })
    }
}

struct Token {
    value: HeaderValue,
    renew_at: Instant,
}

#[derive(Clone)]
struct AsAccount {
    accounts: ServiceAccounts,
    name: Arc<str>,
    token: Arc<Mutex<Option<Token>>>,
}

impl AsAccount {
    async fn token(&self) -> kube::Result<HeaderValue> {
        let mut token = self.token.lock().await;
        if let Some(token) = token.as_ref().filter(|token| Instant::now() < token.renew_at) {
            return Ok(token.value.clone());
        }
        let fresh = self.accounts.request_token(&self.name).await?;
        Ok(token.insert(fresh).value.clone())
    }
}

impl tower_service::Service<Request<Body>> for AsAccount {
    type Response = Response<Body>;
    type Error = kube::Error;
    type Future = BoxFuture<'static, kube::Result<Response<Body>>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), kube::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let this = self.clone();
        Box::pin(async move {
            request.headers_mut().insert(header::AUTHORIZATION, this.token().await?);
            let answer = this.accounts.bare.send(request).await?;
            if answer.status() == StatusCode::UNAUTHORIZED {
                // The account was made anew, or the server has other keys: the next request asks for another token.
                *this.token.lock().await = None;
            }
            Ok(answer)
        })
    }
}
