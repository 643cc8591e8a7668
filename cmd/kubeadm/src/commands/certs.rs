//! `kubeadm certs`: how long the control plane's certificates last. They renew by themselves; this is to look, and for
//! those who want it sooner.

use crate::{layout, redis};
use anyhow::{Context, Result, bail};
use clap::Subcommand;
use jiff::Timestamp;
use pki::{Authority, Facts, Kubeconfig};
use std::path::Path;

/// What can be done with certificates.
#[derive(Subcommand)]
pub enum Command {
    /// Show when certificates end.
    CheckExpiration,
    /// Give certificates a new year now: one of those that check-expiration names, or all.
    Renew {
        /// Which.
        #[arg(default_value = "all")]
        name: String,
    },
}

/// Authorities in the folder of keys.
const AUTHORITIES: [&str; 2] = ["ca", "front-proxy-ca"];
/// Certificates beside their keys in the folder of keys, and who signed them.
const LEAVES: [(&str, &str); 6] = [
    ("apiserver", "ca"),
    ("apiserver-kubelet-client", "ca"),
    ("admin", "ca"),
    (pki::FRONT_PROXY_CLIENT, "front-proxy-ca"),
    (pki::ACTIVATOR, "ca"),
    (redis::CERTIFICATE, "ca"),
];

/// Does it.
pub fn run(command: Command) -> Result<()> {
    match command {
        Command::CheckExpiration => check_expiration(),
        Command::Renew { name } => renew(&name),
    }
}

fn check_expiration() -> Result<()> {
    let header = ["CERTIFICATE", "EXPIRES", "RESIDUAL TIME", "CERTIFICATE AUTHORITY"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    let now = Timestamp::now();
    let mut add = |name: &str, pem: &str, authority: &str| -> Result<()> {
        let facts = Facts::from_pem(pem).with_context(|| format!("understand {name}"))?;
        let left = (facts.not_after - now.as_second()) / 86_400;
        let expires = Timestamp::from_second(facts.not_after)?.strftime("%b %d, %Y %H:%M UTC").to_string();
        rows.push(vec![name.to_owned(), expires, format!("{left}d"), authority.to_owned()]);
        Ok(())
    };
    for component in &pki::COMPONENTS {
        let path = layout::etc(component.file);
        if let Ok(text) = std::fs::read_to_string(&path) {
            let config = Kubeconfig::parse(&text).with_context(|| path.display().to_string())?;
            add(component.file, &config.client_cert_pem.unwrap_or_default(), "ca")?;
        }
    }
    let mut add_file = |name: &str, authority: &str| -> Result<()> {
        match std::fs::read_to_string(layout::pki().join(format!("{name}.crt"))) {
            Ok(pem) => add(name, &pem, authority),
            Err(_) => Ok(()),
        }
    };
    LEAVES.iter().try_for_each(|(leaf, authority)| add_file(leaf, authority))?;
    AUTHORITIES.iter().try_for_each(|authority| add_file(authority, ""))?;
    if let Ok(pem) = std::fs::read_to_string(layout::kubelet_identity()) {
        add("kubelet.conf", &pem, "ca")?;
    }
    print!("{}", cli::table(&rows));
    Ok(())
}

fn renew(name: &str) -> Result<()> {
    let (pki, now) = (layout::pki(), Timestamp::now());
    let authority = Authority::load(&read(&pki.join("ca.crt"))?, &read(&pki.join("ca.key"))?)?;
    let is_meant = |one: &str| name == "all" || name == one;
    let mut renewed: Vec<&str> = Vec::new();
    // What is not there is made anew. The server takes it up while it runs.
    let names = names_of(&pki, "apiserver")?;
    let activator_names = names_of(&pki, pki::ACTIVATOR)?;
    // Not every cluster has one.
    let redis_names = names_of(&pki, redis::CERTIFICATE)?;
    let is_there = |leaf: &str| leaf != redis::CERTIFICATE || !redis_names.is_empty();
    for (leaf, _) in LEAVES.into_iter().filter(|(leaf, _)| is_meant(leaf) && is_there(leaf)) {
        let path = pki.join(format!("{leaf}.crt"));
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("remove {}", path.display()));
            }
            _ => renewed.push(leaf),
        }
    }
    if !renewed.is_empty() {
        pki::ensure(&pki, &pki::Config { names, service_ip: None }, now)?;
        if !activator_names.is_empty() {
            pki::ensure_activator(&pki, &authority, &activator_names, now)?;
        }
        if !redis_names.is_empty() {
            pki::ensure_server(&pki, redis::CERTIFICATE, &authority, &redis_names, now)?;
        }
    }
    for component in pki::COMPONENTS.iter().filter(|component| is_meant(component.file)) {
        if pki::renew_component(Path::new(layout::ETC), component, &authority, now, i64::MAX)? {
            renewed.push(component.file);
        }
    }
    match renewed.as_slice() {
        [] if name == "kubelet.conf" => bail!("the kubelet renews its certificate by itself"),
        [] => {
            bail!(
                "there is no certificate {name:?}; kubeadm certs check-expiration shows those that there are"
            )
        }
        renewed => renewed.iter().for_each(|name| println!("certificate {name} renewed")),
    }
    Ok(())
}

/// The names that a server's certificate has now.
fn names_of(pki: &Path, server: &str) -> Result<Vec<String>> {
    match std::fs::read_to_string(pki.join(format!("{server}.crt"))) {
        Ok(pem) => Ok(Facts::from_pem(&pem)?.sans),
        Err(_) => Ok(Vec::new()),
    }
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path)
        .with_context(|| format!("read {} (is this the control plane?)", path.display()))
}
