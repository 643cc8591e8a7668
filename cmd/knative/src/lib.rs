//! The knative program: flags become a [`Config`], and [`functions::run`] does the rest.

use anyhow::{Context, Result};
use functions::{Config, Flags};
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
    daemon::main(daemon::Pace::Calm, arguments, "functions=info", serve)
}

async fn serve(flags: Flags, shutdown: CancellationToken) -> Result<()> {
    let listen = async |address: SocketAddr, flag: &str| {
        TcpListener::bind(address).await.with_context(|| {
            format!("listen on {address}: is another knative running? ({flag} 0 takes a free port)")
        })
    };
    let calls = listen(SocketAddr::new(flags.bind_address, flags.secure_port), "--secure-port").await?;
    let ready = listen(SocketAddr::new(flags.bind_address, flags.ready_port), "--ready-port").await?;
    let health = listen(SocketAddr::new(flags.health_address, flags.health_port), "--health-port").await?;
    let config = Config::from(flags);
    let (metrics, workflows) = (config.metrics.clone(), config.workflows.clone());
    let ended = shutdown.child_token();
    let health =
        daemon::serve_health(health, ended.clone(), move || metrics.page() + &workflows.page(), || Ok(()));
    let functions = async {
        let result = functions::run(config, calls, ready, shutdown).await.context("run functions");
        ended.cancel();
        result
    };
    tokio::join!(health, functions).1
}
