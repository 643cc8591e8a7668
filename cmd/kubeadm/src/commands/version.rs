//! `kubeadm version`.

use crate::cluster::KUBERNETES_VERSION;
use anyhow::Result;
use clap::{Args, ValueEnum};
use serde_json::{Value, json};

/// What `version` is told.
#[derive(Args)]
pub struct Flags {
    /// How to print it.
    #[arg(long, short)]
    output: Option<Format>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    Yaml,
    Json,
    Short,
}

/// Prints it.
pub fn run(flags: &Flags) -> Result<()> {
    match flags.output {
        None => {
            println!(
                "kubeadm version: minik8s v{} (Kubernetes {KUBERNETES_VERSION})",
                env!("CARGO_PKG_VERSION")
            );
        }
        Some(Format::Short) => println!("{KUBERNETES_VERSION}"),
        Some(Format::Json) => println!("{}", serde_json::to_string_pretty(&info())?),
        Some(Format::Yaml) => print!("{}", serde_saphyr::to_string(&info())?),
    }
    Ok(())
}

fn info() -> Value {
    let mut parts = KUBERNETES_VERSION.trim_start_matches('v').split('.');
    json!({"clientVersion": {
        "major": parts.next(), "minor": parts.next(),
        "gitVersion": format!("{KUBERNETES_VERSION}+minik8s-{}", env!("CARGO_PKG_VERSION")),
        "platform": format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH.replace("x86_64", "amd64")),
    }})
}
