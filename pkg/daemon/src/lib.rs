//! What every long-running program does the same: logging, signals, the runtime, memory, connections, and how it ends.
//!
//! ```text
//! main(arguments) ── clap ──> flags ── run(flags, shutdown) ──> 0, or 1 and the reason on standard error
//! ```

mod connections;
mod crowd;
mod health;
mod limits;
mod memory;
mod patience;
mod priority;
mod watched;

use anyhow::{Context, Result};
use clap::Parser;
use std::ffi::OsString;
use std::io::IsTerminal;
use std::process::ExitCode;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

pub use connections::{Connection, Doors, Peer, accept};
pub use health::{Page, serve_health, serve_pages};
pub use hyper::StatusCode;
pub use limits::ConnectionLimits;
pub use priority::yield_to_others;
pub use watched::{ForPeople, Watched, keep_until_taken};

/// What is logged of what all programs share. A watch that fails is told by pkg/client, once and in a line.
const OTHERS: &str = "warn,kube_client=off,kube_runtime=error,client=info";

/// How a program spends its time, by which it gets threads and memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// Under load it works all the time: a thread for every core, and memory is kept for the next request.
    Busy,
    /// It works in bursts: a thread for every core, and memory that a burst took is given back at once.
    Calm,
    /// It hardly ever works: one thread, since each keeps memory that the others cannot use.
    Quiet,
}

/// Parses the arguments, and runs `run` until it ends; SIGTERM and SIGINT cancel the token that it is given.
///
/// `own_log` is what is logged of the program itself where the variable `LOG` does not say otherwise, such as
/// `kubelet=info`.
pub fn main<Flags, Run, Running>(
    pace: Pace,
    arguments: impl Iterator<Item = OsString>,
    own_log: &str,
    run: Run,
) -> ExitCode
where
    Flags: Parser,
    Run: FnOnce(Flags, CancellationToken) -> Running,
    Running: Future<Output = Result<()>>,
{
    let keep = memory::give_back_at_once();
    let flags = match Flags::try_parse_from(arguments) {
        Ok(flags) => flags,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    tracing_subscriber::fmt()
        .with_env_filter(
            tracing_subscriber::EnvFilter::try_from_env("LOG")
                .unwrap_or_else(|_| format!("{OTHERS},{own_log}").into()),
        )
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
    limits::raise_files();
    match block_on(pace, keep, flags, run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("Error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn block_on<Flags, Run, Running>(pace: Pace, keep: memory::Keep, flags: Flags, run: Run) -> Result<()>
where
    Run: FnOnce(Flags, CancellationToken) -> Running,
    Running: Future<Output = Result<()>>,
{
    let mut runtime = match pace {
        Pace::Quiet => tokio::runtime::Builder::new_current_thread(),
        Pace::Busy | Pace::Calm => tokio::runtime::Builder::new_multi_thread(),
    };
    let runtime = runtime.enable_all().build().context("start the runtime")?;
    runtime.block_on(async {
        let shutdown = CancellationToken::new();
        let mut terminate = signal(SignalKind::terminate()).context("listen for SIGTERM")?;
        let mut interrupt = signal(SignalKind::interrupt()).context("listen for SIGINT")?;
        let stop = shutdown.clone();
        tokio::spawn(async move {
            tokio::select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {} }
            stop.cancel();
        });
        tokio::spawn(memory::release((pace == Pace::Busy).then_some(keep)));
        run(flags, shutdown).await
    })
}
