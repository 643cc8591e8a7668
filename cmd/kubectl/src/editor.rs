//! The user's editor.

use anyhow::{Context, Result, bail};
use std::process::Command;

/// What the user makes of a text. `KUBE_EDITOR` and `EDITOR` say by what.
pub fn edit(text: &str) -> Result<String> {
    let file = tempfile::Builder::new().prefix("kubectl-edit-").suffix(".yaml").tempfile()?;
    std::fs::write(file.path(), text)?;
    let editor = ["KUBE_EDITOR", "EDITOR"].iter().find_map(|name| std::env::var(name).ok());
    let editor = editor.unwrap_or_else(|| "vi".to_owned());
    let status = Command::new("sh")
        .args(["-c", &format!("{editor} \"$0\""), &file.path().display().to_string()])
        .status()
        .with_context(|| format!("run {editor}"))?;
    if !status.success() {
        bail!("{editor} ended with {status}; nothing was changed");
    }
    std::fs::read_to_string(file.path()).context("read what was edited")
}
