//! One file per command that is not a list of phases.

pub mod backup;
pub mod certs;
pub mod config;
pub mod image;
pub mod token;
pub mod version;

use crate::layout;
use anyhow::{Context, Result};
use kube::Client;

/// A client of the cluster whose control plane runs here.
async fn admin_client() -> Result<Client> {
    let path = layout::admin();
    let text = std::fs::read_to_string(&path)
        .with_context(|| format!("read {} (is this the control plane, and are you root?)", path.display()))?;
    crate::phases::init::client_of(&text).await
}

/// Lines of cells as a table whose columns align.
fn print_table(rows: &[Vec<String>]) {
    let columns = rows.iter().map(Vec::len).max().unwrap_or_default();
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.len()).max();
    let widths: Vec<usize> = (0..columns).filter_map(width).collect();
    for row in rows {
        let line: Vec<String> =
            row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        println!("{}", line.join("   ").trim_end());
    }
}
