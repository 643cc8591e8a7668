//! The interlink program: flags become a configuration, and [`interlink::run`] does the rest.

use anyhow::{Context, Result};
use interlink::Flags;
use std::ffi::OsString;
use std::process::ExitCode;
use tokio_util::sync::CancellationToken;

/// Runs the program with these arguments, its own name first.
pub fn main(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    daemon::main(daemon::Pace::Calm, arguments, "interlink=info,kubelet=info", serve)
}

async fn serve(flags: Flags, shutdown: CancellationToken) -> Result<()> {
    interlink::run(flags, shutdown).await.context("run interlink")
}
