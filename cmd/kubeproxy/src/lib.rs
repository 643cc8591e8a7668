//! The kubeproxy program: flags to Config to run.

use anyhow::{Context, Result};
use daemon::{Page, StatusCode};
use proxy::{Flags, Status};
use std::ffi::OsString;
use std::net::SocketAddr;
use std::process::ExitCode;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// The program's flags, for its man page.
pub fn command() -> clap::Command {
    <Flags as clap::CommandFactory>::command()
}

/// Runs the program with these arguments, its own name first.
pub fn main(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    daemon::main(daemon::Pace::Quiet, arguments, "proxy=info,network=info", run)
}

async fn run(flags: Flags, shutdown: CancellationToken) -> Result<()> {
    let (healthz, metrics) = (flags.healthz_bind_address, flags.metrics_bind_address);
    let cleanup = flags.cleanup;
    let config = flags.config()?;
    if cleanup {
        return proxy::cleanup(&config).await.context("clean up");
    }
    let status = Status::default();
    let (healthz, metrics) = (listen(healthz).await?, listen(metrics).await?);
    let serve = |listener| {
        let status = status.clone();
        daemon::serve_pages(listener, shutdown.clone(), move |path| page(&status, path))
    };
    let (healthz, metrics) = (serve(healthz), serve(metrics));
    let running = async {
        let end = proxy::run(config, status.clone(), shutdown.clone()).await;
        shutdown.cancel();
        end
    };
    let (end, (), ()) = tokio::join!(running, healthz, metrics);
    Ok(end?)
}

fn page(status: &Status, path: &str) -> Option<Page> {
    let json = |(is_well, text)| {
        let code = if is_well { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        Page { content_type: "application/json", ..Page::plain(code, text) }
    };
    match path {
        "/healthz" => Some(json(status.healthz())),
        "/livez" => Some(json(status.livez())),
        "/metrics" => Some(Page::plain(StatusCode::OK, status.metrics())),
        "/proxyMode" => Some(Page::plain(StatusCode::OK, "iptables")),
        _ => None,
    }
}

async fn listen(address: SocketAddr) -> Result<TcpListener> {
    TcpListener::bind(address)
        .await
        .with_context(|| format!("listen on {address}: is another kubeproxy running?"))
}
