//! The kubelet program: flags become a [`Config`], and [`kubelet::run`] does the rest.

use anyhow::{Context, Result};
use interlink::node::NodeOptions;
use kubelet::{Config, Flags};
use std::ffi::OsString;
use std::process::ExitCode;
use tokio_util::sync::CancellationToken;

/// Runs the program with these arguments, its own name first.
pub fn main(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    daemon::main(daemon::Pace::Calm, arguments, "kubelet=info,interlink=info", serve)
}

async fn serve(flags: Flags, shutdown: CancellationToken) -> Result<()> {
    if flags.is_interlink() {
        let options = NodeOptions { config: flags.config.clone(), server: flags.interlink_apiserver.clone() };
        return interlink::node::run(Config::from(flags), options, shutdown)
            .await
            .context("run the virtual node");
    }
    kubelet::run(Config::from(flags), shutdown).await.context("run the kubelet")
}
