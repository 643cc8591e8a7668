//! `kubeadm backup` and `kubeadm restore`: everything a cluster is, in one file: its objects and its keys.
//!
//! ```text
//! backup.tar: store.backup (from the running API server)   pki/* (the authority, token and encryption keys)
//! ```

use super::admin_client;
use crate::datastore::{self, Datastore};
use crate::layout;
use crate::phases::init::services_run;
use anyhow::{Context, Result, bail};
use clap::Args;
use http_body_util::BodyExt;
use pki::file::Mode;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

const STORE: &str = "store.backup";

/// What `backup` is told.
#[derive(Args)]
#[command(after_help = "Example:\n  kubeadm backup cluster.tar")]
pub struct Flags {
    /// The file to write; it must not exist. Keep it as safe as a password.
    file: PathBuf,
}

/// What `restore` is told.
#[derive(Args)]
#[command(
    after_help = "Example, on a fresh machine or after kubeadm reset:\n  kubeadm restore cluster.tar\n  kubeadm init\nMoving to etcd (and back by leaving --datastore out):\n  kubeadm restore cluster.tar --datastore etcd\n  kubeadm init --datastore etcd"
)]
pub struct RestoreFlags {
    /// The file that `kubeadm backup` has written.
    file: PathBuf,
    #[command(flatten)]
    datastore: datastore::StoreFlags,
}

/// Writes a backup.
pub async fn run(flags: Flags) -> Result<()> {
    let client = admin_client().await?;
    let store = tempfile::NamedTempFile::new().context("make a temporary file")?;
    fetch(&client, store.as_file()).await.context("fetch the objects from the API server")?;
    let summary = store::backup::verify(store.path())?;
    let file = File::options()
        .write(true)
        .create_new(true)
        .open(&flags.file)
        .with_context(|| format!("make {}", flags.file.display()))?;
    file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
    let mut archive = tar::Builder::new(file);
    archive.append_path_with_name(store.path(), STORE)?;
    for entry in fs::read_dir(layout::pki()).context("read the keys")?.flatten() {
        if entry.path().is_file() {
            archive.append_path_with_name(entry.path(), Path::new("pki").join(entry.file_name()))?;
        }
    }
    let file = archive.into_inner()?;
    file.sync_all()?;
    println!(
        "{}: {} objects as of revision {}, and the cluster's keys. Keep it safe.",
        flags.file.display(),
        summary.entries,
        summary.revision
    );
    Ok(())
}

async fn fetch(client: &kube::Client, mut to: &File) -> Result<()> {
    let request = http::Request::get("/minik8s/backup").body(kube::client::Body::empty())?;
    let response = client.send(request).await?;
    if !response.status().is_success() {
        bail!("the API server answered {}", response.status());
    }
    let mut body = response.into_body();
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame?.into_data() {
            to.write_all(&data)?;
        }
    }
    Ok(to.sync_all()?)
}

/// Puts a backup in place: its objects, then its keys.
pub async fn restore(flags: RestoreFlags) -> Result<()> {
    if services_run() || layout::manifests().join("kube-apiserver.yaml").exists() {
        bail!("a cluster is on this machine: kubeadm reset takes it away first");
    }
    for path in [layout::embedded_store(), layout::ETCD.into(), layout::pki().join("ca.key")] {
        if path.exists() {
            bail!("{} is there already, nothing was changed: kubeadm reset takes it away", path.display());
        }
    }
    let folder = tempfile::tempdir().context("make a temporary folder")?;
    let store = folder.path().join(STORE);
    let keys = unpack(&flags.file, &store)?;
    store::backup::verify(&store)
        .with_context(|| format!("{} is not a whole backup", flags.file.display()))?;
    let datastore = Datastore::from(flags.datastore);
    let objects = match datastore::restore(&store, &datastore).await {
        Ok(objects) => objects,
        Err(error) => {
            // Half a cluster is worse than none.
            let _ = fs::remove_dir_all(layout::embedded_store());
            let _ = fs::remove_dir_all(layout::ETCD);
            return Err(error).context("restore the objects (nothing was kept)");
        }
    };
    fs::create_dir_all(layout::pki())?;
    for (name, content) in &keys {
        let is_public = name.extension().is_some_and(|extension| extension == "crt" || extension == "pub");
        let mode = if is_public { Mode::Public } else { Mode::Secret };
        pki::file::write(&layout::pki().join(name), content, mode)?;
    }
    let next = format!("kubeadm init{}", datastore.words());
    println!("{objects} objects and {} keys are in place. Go on with:\n\n  {next}\n", keys.len());
    Ok(())
}

/// Takes a backup apart: the store's part goes to a file. The keys, by name.
fn unpack(backup: &Path, store: &Path) -> Result<Vec<(PathBuf, Vec<u8>)>> {
    let file = File::open(backup).with_context(|| format!("open {}", backup.display()))?;
    let not_whole = || format!("{} is not a whole backup", backup.display());
    let mut keys = Vec::new();
    for entry in tar::Archive::new(file).entries().with_context(not_whole)? {
        let mut entry = entry.with_context(not_whole)?;
        let path = entry.path()?.into_owned();
        if path == Path::new(STORE) {
            entry.unpack(store).with_context(not_whole)?;
        } else if let (Some(name), Ok(_)) = (path.file_name(), path.strip_prefix("pki")) {
            let mut content = Vec::new();
            entry.read_to_end(&mut content).with_context(not_whole)?;
            keys.push((name.into(), content));
        }
    }
    Ok(keys)
}
