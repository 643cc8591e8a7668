//! Where a cluster keeps its objects: what people say about it, how an etcd of our own is run, and how one is reached.

use crate::{facts, layout};
use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use store::{Etcd, Tls};
use tokio::process::{Child, Command};

/// The address of our own etcd.
pub const ETCD_URL: &str = "http://127.0.0.1:2379";
/// How long our own etcd may take to answer, and to end.
const PATIENCE: Duration = Duration::from_secs(60);

/// What is said about it.
#[derive(Args, Debug, Clone)]
pub struct StoreFlags {
    /// Where the cluster keeps its objects.
    #[arg(long, value_enum, default_value_t = Engine::Embedded)]
    datastore: Engine,
    /// Use the etcd at these URLs.
    #[arg(long, value_delimiter = ',')]
    etcd_servers: Vec<String>,
    /// The CA of that etcd's certificate.
    #[arg(long, requires_all = ["etcd_certfile", "etcd_keyfile"])]
    etcd_cafile: Option<String>,
    /// The certificate to show to that etcd.
    #[arg(long, requires = "etcd_cafile")]
    etcd_certfile: Option<String>,
    /// The key of that certificate.
    #[arg(long, requires = "etcd_cafile")]
    etcd_keyfile: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Engine {
    /// In the API server itself.
    Embedded,
    /// In an etcd beside it.
    Etcd,
}

/// Where objects are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Datastore {
    /// In the API server's own folder.
    Embedded,
    /// In an etcd that runs beside it, as a pod of ours.
    Etcd,
    /// In an etcd that somebody else runs.
    External {
        /// Its URLs.
        servers: Vec<String>,
        /// CA, certificate and key, where it wants them.
        files: Option<[String; 3]>,
    },
}

impl From<StoreFlags> for Datastore {
    fn from(flags: StoreFlags) -> Datastore {
        let files = flags.etcd_cafile.zip(flags.etcd_certfile).zip(flags.etcd_keyfile);
        match (flags.datastore, flags.etcd_servers) {
            (_, servers) if !servers.is_empty() => {
                Datastore::External { servers, files: files.map(|((ca, cert), key)| [ca, cert, key]) }
            }
            (Engine::Embedded, _) => Datastore::Embedded,
            (Engine::Etcd, _) => Datastore::Etcd,
        }
    }
}

impl Datastore {
    /// The flags that say so, each with the space before it.
    pub fn words(&self) -> String {
        match self {
            Datastore::Embedded => String::new(),
            Datastore::Etcd => " --datastore etcd".to_owned(),
            Datastore::External { servers, files } => {
                let names = ["ca", "cert", "key"].iter().zip(files.iter().flatten());
                let files: String = names.map(|(name, file)| format!(" --etcd-{name}file {file}")).collect();
                format!(" --etcd-servers {}{files}", servers.join(","))
            }
        }
    }
}

/// What our own etcd is told.
pub fn etcd_arguments() -> Vec<String> {
    vec![
        "--name=control-plane".to_owned(),
        format!("--data-dir={}", layout::ETCD),
        format!("--listen-client-urls={ETCD_URL}"),
        format!("--advertise-client-urls={ETCD_URL}"),
        "--listen-peer-urls=http://127.0.0.1:2380".to_owned(),
        "--initial-advertise-peer-urls=http://127.0.0.1:2380".to_owned(),
        "--initial-cluster=control-plane=http://127.0.0.1:2380".to_owned(),
        "--logger=zap".to_owned(),
    ]
}

/// Puts a backup's objects into a store that has none. How many there are.
pub async fn restore(backup: &Path, into: &Datastore) -> Result<u64> {
    let summary = match into {
        Datastore::Embedded => store::backup::restore_embedded(backup, &layout::embedded_store())?,
        Datastore::Etcd => {
            let mut etcd = OwnEtcd::start().await?;
            let restored = store::backup::restore_etcd(backup, &etcd.client).await;
            etcd.stop().await?;
            restored?
        }
        Datastore::External { servers, files } => {
            let etcd = Etcd::connect(servers, tls(files.as_ref())?).await?;
            store::backup::restore_etcd(backup, &etcd).await?
        }
    };
    Ok(summary.entries)
}

fn tls(files: Option<&[String; 3]>) -> Result<Option<Tls>> {
    let read = |file: &String| std::fs::read(file).with_context(|| format!("read {file}"));
    let Some([ca, certificate, key]) = files else { return Ok(None) };
    Ok(Some(Tls { ca: read(ca)?, identity: Some((read(certificate)?, read(key)?)) }))
}

/// An etcd on the folder that its static pod will have, for as long as something is put into it.
struct OwnEtcd {
    child: Child,
    client: Etcd,
}

impl OwnEtcd {
    async fn start() -> Result<OwnEtcd> {
        let program = facts::find_program("etcd").context("etcd is missing: apt-get install etcd-server")?;
        let mut child = Command::new(program)
            .args(etcd_arguments())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .context("run etcd")?;
        let connected = async {
            loop {
                if let Ok(client) = Etcd::connect(&[ETCD_URL.to_owned()], None).await {
                    return client;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let client = tokio::select! {
            client = tokio::time::timeout(PATIENCE, connected) => client.context("etcd does not answer")?,
            status = child.wait() => bail!("etcd has ended: {}", status?),
        };
        Ok(OwnEtcd { child, client })
    }

    /// Lets it write what it holds and end.
    async fn stop(&mut self) -> Result<()> {
        let pid =
            self.child.id().and_then(|pid| i32::try_from(pid).ok()).context("etcd has ended by itself")?;
        kill(Pid::from_raw(pid), Signal::SIGTERM).context("stop etcd")?;
        tokio::time::timeout(PATIENCE, self.child.wait()).await.context("etcd does not end")??;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        flags: StoreFlags,
    }

    fn check(arguments: &[&str], expected: &Datastore) {
        let cli = Cli::try_parse_from([&["kubeadm"], arguments].concat()).expect("good flags");
        let datastore = Datastore::from(cli.flags);
        assert_eq!(datastore, *expected);
        // What is said about it can be typed again.
        let words = datastore.words();
        let again =
            Cli::try_parse_from(["kubeadm"].into_iter().chain(words.split_whitespace())).expect("good words");
        assert_eq!(Datastore::from(again.flags), *expected);
    }

    #[test]
    fn flags_say_where_objects_are_kept() {
        check(&[], &Datastore::Embedded);
        check(&["--datastore=etcd"], &Datastore::Etcd);
        let servers = vec!["https://a:1".to_owned(), "https://b:1".to_owned()];
        let external = Datastore::External { servers: servers.clone(), files: None };
        check(&["--etcd-servers=https://a:1,https://b:1"], &external);
        let files = Some(["/ca".to_owned(), "/cert".to_owned(), "/key".to_owned()]);
        let flags = [
            "--etcd-servers=https://a:1,https://b:1",
            "--etcd-cafile=/ca",
            "--etcd-certfile=/cert",
            "--etcd-keyfile=/key",
        ];
        check(&flags, &Datastore::External { servers, files });
        assert!(Cli::try_parse_from(["kubeadm", "--etcd-cafile=/ca"]).is_err(), "a CA alone is not enough");
    }
}
