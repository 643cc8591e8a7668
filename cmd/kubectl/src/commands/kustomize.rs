//! `kubectl kustomize`: shows what a kustomization makes.

use crate::{kustomize, yaml};
use anyhow::{Context, Result};
use std::path::PathBuf;

/// What `kustomize` is told.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  kubectl kustomize overlays/dev")]
pub struct Flags {
    /// The folder with the kustomization.
    #[arg(default_value = ".")]
    folder: PathBuf,
    /// A file, instead of the terminal.
    #[arg(long, short)]
    output: Option<PathBuf>,
}

/// Shows.
pub fn run(flags: &Flags) -> Result<()> {
    let built = kustomize::build(&flags.folder)?;
    let text = built.iter().map(|built| yaml::emit(&built.value)).collect::<Vec<_>>().join("---\n");
    match &flags.output {
        Some(file) => std::fs::write(file, text).with_context(|| format!("write {}", file.display())),
        None => {
            print!("{text}");
            Ok(())
        }
    }
}
