//! The controller-manager program: flags become a [`Config`], and [`controllers::run`] does the rest.

use anyhow::{Context, Result};
use controllers::{Config, Flags};
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
    daemon::main(daemon::Pace::Calm, arguments, "controllers=info", serve)
}

async fn serve(flags: Flags, shutdown: CancellationToken) -> Result<()> {
    let address = SocketAddr::new(flags.bind_address, flags.health_port);
    let listener = TcpListener::bind(address).await.with_context(|| {
        format!(
            "listen on {address}: is another controller-manager running? (--health-port 0 takes a free port)"
        )
    })?;
    println!("Serving health and metrics on http://{}", listener.local_addr().context("the address")?);
    let config = Config::from(flags);
    let metrics = config.metrics.clone();
    let ended = shutdown.child_token();
    let health = daemon::serve_health(listener, ended.clone(), move || metrics.page(), || Ok(()));
    let controllers = async {
        let result = controllers::run(config, shutdown).await.context("run the controllers");
        ended.cancel();
        result
    };
    tokio::join!(health, controllers).1
}
