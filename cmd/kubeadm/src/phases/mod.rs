//! Ordered lists of idempotent phases.

pub mod init;
pub mod join;
pub mod reset;

use anyhow::{Context, Result};
use cli::Progress;
use futures::future::BoxFuture;

/// One phase of `C`'s work. It says what it has done.
pub struct Phase<C> {
    /// Its name, for `--skip-phases`.
    pub name: &'static str,
    /// What it does, shown while it does it.
    pub about: &'static str,
    /// Does it.
    pub run: for<'a> fn(&'a mut C, &'a Progress) -> BoxFuture<'a, Result<String>>,
}

/// Runs phases in order, but for those to be skipped.
pub async fn run_all<C>(phases: &[Phase<C>], context: &mut C, skipped: &[String]) -> Result<()> {
    for phase in phases {
        let progress = Progress::begin(phase.name, phase.about);
        if skipped.iter().any(|name| name == phase.name) {
            progress.skipped("skipped");
            continue;
        }
        match (phase.run)(context, &progress).await {
            Ok(done) => progress.done(&done),
            Err(error) => {
                progress.failed();
                return Err(error).with_context(|| format!("phase {}", phase.name));
            }
        }
    }
    Ok(())
}
