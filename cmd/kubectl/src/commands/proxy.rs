//! `kubectl proxy`: the API on a local port, with the kubeconfig's credentials.
//!
//! Whoever reaches the port is the user, so it listens on this machine only, and answers only to names of this machine:
//! a page in a browser cannot come in under a name of its own.

use crate::connection::{ClusterFlags, Connection};
use anyhow::{Context, Result};
use http::{Request, Response, StatusCode, header};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kube::Client;
use kube::client::Body;
use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use tokio::net::TcpListener;

/// What `proxy` is told.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  kubectl proxy --port=8001\n  curl http://127.0.0.1:8001/api/v1/namespaces"
)]
pub struct Flags {
    /// The port; 0 is any free one.
    #[arg(long, short, default_value_t = 8001)]
    port: u16,
    /// Where to listen.
    #[arg(long, default_value = "127.0.0.1")]
    address: IpAddr,
    /// The path that the API has here.
    #[arg(long, default_value = "/")]
    api_prefix: String,
    /// Also pass requests on that run commands in pods.
    #[arg(long)]
    disable_filter: bool,
}

struct Proxy {
    client: Client,
    prefix: String,
    address: IpAddr,
    disable_filter: bool,
}

/// Serves until it is told to stop.
pub async fn run(cluster: &ClusterFlags, flags: Flags) -> Result<()> {
    let connection = Connection::open(cluster).await?;
    let listener = TcpListener::bind((flags.address, flags.port)).await.context("listen")?;
    println!("Starting to serve on {}", listener.local_addr()?);
    let proxy = Arc::new(Proxy {
        client: connection.client,
        prefix: flags.api_prefix.trim_end_matches('/').to_owned(),
        address: flags.address,
        disable_filter: flags.disable_filter,
    });
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    loop {
        let (stream, _) = tokio::select! {
            accepted = listener.accept() => accepted?,
            _ = terminate.recv() => return Ok(()),
            _ = tokio::signal::ctrl_c() => return Ok(()),
        };
        let proxy = proxy.clone();
        tokio::spawn(async move {
            let service = service_fn(|request| {
                let proxy = proxy.clone();
                async move { Ok::<_, Infallible>(proxy.answer(request).await) }
            });
            let server = hyper::server::conn::http1::Builder::new();
            let _ = server.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

impl Proxy {
    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        let host =
            request.headers().get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
        let path = request.uri().path();
        let is_allowed =
            self.disable_filter || (is_of_this_machine(host, self.address) && !reaches_into_pods(path));
        if !is_allowed {
            return plain(StatusCode::FORBIDDEN, "Forbidden");
        }
        let Some(rest) = path.strip_prefix(&self.prefix).filter(|rest| rest.starts_with('/')) else {
            return plain(StatusCode::NOT_FOUND, "404 page not found");
        };
        let uri = match request.uri().query() {
            Some(query) => format!("{rest}?{query}"),
            None => rest.to_owned(),
        };
        let (mut parts, body) = request.into_parts();
        let Ok(uri) = uri.parse() else { return plain(StatusCode::BAD_REQUEST, "Bad Request") };
        parts.uri = uri;
        // The server is another one, and knows the user otherwise.
        for name in [header::HOST, header::AUTHORIZATION, header::CONNECTION, header::UPGRADE, header::ORIGIN]
        {
            parts.headers.remove(name);
        }
        let body = match body.collect().await {
            Ok(body) => body.to_bytes(),
            Err(_) => return plain(StatusCode::BAD_REQUEST, "the request broke off"),
        };
        match self.client.send(Request::from_parts(parts, Body::from(body.to_vec()))).await {
            Ok(mut response) => {
                // How many bytes follow, and in which pieces, is between us and the client.
                response.headers_mut().remove(header::TRANSFER_ENCODING);
                response.headers_mut().remove(header::CONNECTION);
                response
            }
            Err(error) => plain(StatusCode::BAD_GATEWAY, &error.to_string()),
        }
    }
}

fn plain(status: StatusCode, text: &str) -> Response<Body> {
    let mut response = Response::new(Body::from(text.as_bytes().to_vec()));
    *response.status_mut() = status;
    response
}

/// Whether the client called this machine by a name of this machine.
fn is_of_this_machine(host: &str, address: IpAddr) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.parse::<u16>().is_ok() => name,
        _ => host,
    };
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    name == "localhost" || bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback() || ip == address)
}

/// Whether a path would run something in a pod.
fn reaches_into_pods(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    parts.windows(3).any(|three| three[0] == "pods" && matches!(three[2], "exec" | "attach"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machines_names_are_answered() {
        let check = |host: &str, expected: bool| {
            assert_eq!(is_of_this_machine(host, IpAddr::from([127, 0, 0, 1])), expected, "{host}");
        };
        check("127.0.0.1:8001", true);
        check("localhost", true);
        check("[::1]:8001", true);
        check("evil.example.com:8001", false);
        check("", false);
        check("10.0.0.1:8001", false);
        assert!(reaches_into_pods("/api/v1/namespaces/default/pods/web/exec"));
        assert!(!reaches_into_pods("/api/v1/namespaces/default/pods/exec"));
    }
}
