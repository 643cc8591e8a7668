//! `kubeadm image`: images without a registry.

use crate::layout;
use crate::phases::init::socket_path;
use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use kubelet::runtime::Runtime;
use kubelet::runtime::containerd::Containerd;
use std::path::{Path, PathBuf};

/// What can be done with images.
#[derive(Subcommand)]
pub enum Command {
    /// Bring images of an OCI or docker archive into containerd.
    Import {
        /// The archives.
        #[arg(required = true)]
        archives: Vec<PathBuf>,
        #[command(flatten)]
        socket: Socket,
    },
    /// Show the images that pods can use here.
    List {
        #[command(flatten)]
        socket: Socket,
    },
}

/// Where containerd is.
#[derive(Args)]
pub struct Socket {
    /// containerd's socket.
    #[arg(long, default_value = "unix:///run/containerd/containerd.sock")]
    cri_socket: String,
}

/// containerd, as the kubelet sees it.
pub fn containerd(socket: &Path) -> Result<Containerd> {
    let config = kubelet::runtime::containerd::Config {
        socket: socket.to_owned(),
        root_dir: Path::new(layout::KUBELET).join("runtime"),
        ..Default::default()
    };
    Ok(Containerd::new(config)?)
}

/// Does it.
pub async fn run(command: Command) -> Result<()> {
    match command {
        Command::Import { archives, socket } => {
            for archive in archives {
                let imported = containerd(&socket_path(&socket.cri_socket))?.import(&archive).await;
                let imported = imported.with_context(|| format!("import {}", archive.display()))?;
                imported.iter().flat_map(|image| &image.tags).for_each(|tag| println!("imported {tag}"));
            }
        }
        Command::List { socket } => {
            let images = containerd(&socket_path(&socket.cri_socket))?.images().await?;
            let mut rows = vec![["IMAGE", "IMAGE ID", "SIZE"].map(str::to_owned).to_vec()];
            for image in images {
                let id: String = image.id.0.trim_start_matches("sha256:").chars().take(12).collect();
                let size = format!("{:.1} MB", image.size_bytes as f64 / 1e6);
                rows.extend(image.tags.into_iter().map(|tag| vec![tag, id.clone(), size.clone()]));
            }
            print!("{}", cli::table(&rows));
        }
    }
    Ok(())
}
