//! Calls of functions. `functions/invoke` is a kind's part as any other to discovery, RBAC and clients; who answers is the
//! activator behind the service `kube-system/knative`, which is told who asks as other servers are.

use super::backend::Backend;
use crate::answer::Answer;
use crate::error::Result;
use crate::nodes::Forwarded;
use crate::server::Server;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Our certificate, and the authority, are read again after this: they may have been renewed.
const REFRESH: Duration = Duration::from_secs(30);

/// The way to the activator, as it was made last.
pub type Known = Mutex<Option<(Instant, Arc<Backend>)>>;

/// Calls a function.
pub async fn invoke(server: &Arc<Server>, request: Forwarded<'_>, body: Incoming) -> Result<Answer> {
    let backend = activator(server);
    backend.forward(server, request.info, request.parts, body.boxed_unsync()).await
}

fn activator(server: &Server) -> Arc<Backend> {
    let mut known = server.api_services.activator.lock();
    match known.as_ref().filter(|(made, _)| made.elapsed() < REFRESH) {
        Some((_, backend)) => backend.clone(),
        None => {
            let backend = Arc::new(Backend::own(server, "kube-system", "knative"));
            *known = Some((Instant::now(), backend.clone()));
            backend
        }
    }
}
