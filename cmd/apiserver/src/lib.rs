//! The apiserver program: flags become a [`Config`], and [`apiserver::run`] does the rest.

use anyhow::{Context, Result};
use apiserver::{Config, Flags};
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
    daemon::main(daemon::Pace::Busy, arguments, "apiserver=info", serve)
}

async fn serve(flags: Flags, shutdown: CancellationToken) -> Result<()> {
    let address = SocketAddr::new(flags.bind_address, flags.secure_port);
    let listener = TcpListener::bind(address).await.with_context(|| {
        format!("listen on {address}: is another server running there? (--secure-port 0 takes a free port)")
    })?;
    apiserver::run(Config::from(flags), listener, shutdown, |server| {
        println!("Serving the Kubernetes API on {}", server.url());
    })
    .await
    .context("run the apiserver")
}
