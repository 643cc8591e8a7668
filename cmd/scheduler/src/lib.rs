//! The scheduler program: flags become a [`Config`], and [`scheduler::run`] does the rest.

use anyhow::{Context, Result};
use scheduler::{Config, Flags};
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
    daemon::main(daemon::Pace::Busy, arguments, "scheduler=info", serve)
}

async fn serve(flags: Flags, shutdown: CancellationToken) -> Result<()> {
    let address = SocketAddr::new(flags.bind_address, flags.health_port);
    let listener = TcpListener::bind(address).await.with_context(|| {
        format!("listen on {address}: is another scheduler running? (--health-port 0 takes a free port)")
    })?;
    let config = Config::from(flags);
    let metrics = config.metrics.clone();
    let ended = shutdown.child_token();
    let health = daemon::serve_health(listener, ended.clone(), move || metrics.page(), || Ok(()));
    let scheduling = async {
        let result = scheduler::run(config, shutdown).await.context("run the scheduler");
        ended.cancel();
        result
    };
    tokio::join!(health, scheduling).1
}
