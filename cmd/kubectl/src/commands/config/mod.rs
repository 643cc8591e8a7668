//! `kubectl config`: looking at the kubeconfig and changing it.
//!
//! The file is changed as a tree, so that what this program does not know stays; it is rewritten whole or not at all.

mod change;

use crate::connection::{ClusterFlags, read_kubeconfig};
use crate::output::{Output, table};
use anyhow::{Context, Result, bail};
use change::{Cluster, Credentials};
use serde_json::{Value, json};
use std::path::PathBuf;

/// What can be done with the kubeconfig.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Show it; secrets are left out.
    View {
        /// Show secrets, too.
        #[arg(long)]
        raw: bool,
        /// Only what the current context uses.
        #[arg(long)]
        minify: bool,
        /// With the contents of files that it names.
        #[arg(long)]
        flatten: bool,
        /// yaml, json, jsonpath=….
        #[arg(long, short, default_value = "yaml")]
        output: String,
    },
    /// Show which context is used.
    CurrentContext,
    /// Show the contexts that there are.
    GetContexts {
        /// Only these.
        names: Vec<String>,
        /// name: only names.
        #[arg(long, short)]
        output: Option<String>,
        /// Without the line of names of columns.
        #[arg(long)]
        no_headers: bool,
    },
    /// Show the clusters that there are.
    GetClusters,
    /// Show the users that there are.
    GetUsers,
    /// Use another context from now on.
    #[command(visible_alias = "use")]
    UseContext {
        /// Its name.
        name: String,
    },
    /// Make or change a context; --namespace says its namespace.
    SetContext {
        /// Its name.
        name: Option<String>,
        /// The current one.
        #[arg(long)]
        current: bool,
        /// The cluster that it means.
        #[arg(long)]
        cluster: Option<String>,
        /// The user that it means.
        #[arg(long)]
        user: Option<String>,
    },
    /// Make or change a cluster; --server and --certificate-authority say where it is.
    SetCluster {
        /// Its name.
        name: String,
        /// Put the certificate itself into the file.
        #[arg(long)]
        embed_certs: bool,
        /// The proxy on the way to it.
        #[arg(long)]
        proxy_url: Option<String>,
    },
    /// Make or change a user; --token, --client-certificate and --client-key say who that is.
    SetCredentials {
        /// Its name.
        name: String,
        /// Put the certificate and its key themselves into the file.
        #[arg(long)]
        embed_certs: bool,
        /// A user name.
        #[arg(long)]
        username: Option<String>,
        /// A password.
        #[arg(long)]
        password: Option<String>,
    },
    /// Remove a context.
    DeleteContext {
        /// Its name.
        name: String,
    },
    /// Remove a cluster.
    DeleteCluster {
        /// Its name.
        name: String,
    },
    /// Remove a user.
    DeleteUser {
        /// Its name.
        name: String,
    },
    /// Give a context another name.
    RenameContext {
        /// Its name.
        old: String,
        /// Its new name.
        new: String,
    },
    /// Set one value: kubectl config set clusters.home.server https://10.0.0.1:6443
    Set {
        /// Its path, with dots.
        path: String,
        /// The value.
        value: String,
    },
    /// Remove one value: kubectl config unset current-context
    Unset {
        /// Its path, with dots.
        path: String,
    },
}

/// Does it.
pub fn run(flags: &ClusterFlags, command: Command) -> Result<()> {
    match command {
        Command::View { raw, minify, flatten, output } => view(flags, raw, minify, flatten, &output),
        Command::CurrentContext => match current(&whole(flags)) {
            "" => bail!("current-context is not set"),
            current => {
                println!("{current}");
                Ok(())
            }
        },
        Command::GetContexts { names, output, no_headers } => {
            contexts(flags, &names, output.as_deref(), no_headers)
        }
        Command::GetClusters => names(flags, "clusters"),
        Command::GetUsers => names(flags, "users"),
        command => edit(flags, command),
    }
}

fn view(flags: &ClusterFlags, raw: bool, minify: bool, flatten: bool, output: &str) -> Result<()> {
    let mut value = whole(flags);
    if minify {
        change::minify(&mut value, flags.context.as_deref())?;
    }
    if flatten {
        change::flatten(&mut value)?;
    }
    if !raw && !flatten {
        change::redact(&mut value);
    }
    print!("{}", Output::parse(Some(output))?.show(&value)?);
    Ok(())
}

/// What all files together say; an empty one where there is none.
fn whole(flags: &ClusterFlags) -> Value {
    let mut value = read_kubeconfig(flags)
        .ok()
        .and_then(|config| serde_json::to_value(config).ok())
        .unwrap_or_else(change::empty);
    change::drop_nulls(&mut value);
    for (field, missing) in [("apiVersion", json!("v1")), ("kind", json!("Config"))] {
        if value.get(field).is_none() {
            value[field] = missing;
        }
    }
    // As upstream's types write them: nothing is null, and preferences are not shown any more.
    for list in ["clusters", "contexts", "users"] {
        if value[list].as_array().is_none_or(Vec::is_empty) {
            value[list] = Value::Null;
        }
    }
    value.as_object_mut().map(|fields| fields.remove("preferences"));
    value
}

fn current(value: &Value) -> &str {
    value["current-context"].as_str().unwrap_or_default()
}

fn contexts(flags: &ClusterFlags, names: &[String], output: Option<&str>, no_headers: bool) -> Result<()> {
    let value = whole(flags);
    let header = ["CURRENT", "NAME", "CLUSTER", "AUTHINFO", "NAMESPACE"];
    let mut rows = if no_headers { Vec::new() } else { vec![header.map(str::to_owned).to_vec()] };
    let mut all: Vec<&Value> = value["contexts"].as_array().into_iter().flatten().collect();
    all.sort_by_key(|context| context["name"].as_str().unwrap_or_default());
    for name in names {
        if !all.iter().any(|context| context["name"] == **name) {
            bail!("context {name} not found");
        }
    }
    for context in all {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let name = text(&context["name"]);
        if !names.is_empty() && !names.contains(&name) {
            continue;
        }
        if output == Some("name") {
            println!("{name}");
            continue;
        }
        let about = &context["context"];
        let mark = if name == current(&value) { "*" } else { "" };
        rows.push(vec![
            mark.to_owned(),
            name,
            text(&about["cluster"]),
            text(&about["user"]),
            text(&about["namespace"]),
        ]);
    }
    if output != Some("name") {
        print!("{}", table(&rows));
    }
    Ok(())
}

fn names(flags: &ClusterFlags, field: &str) -> Result<()> {
    println!("NAME");
    let value = whole(flags);
    let mut names: Vec<&str> =
        value[field].as_array().into_iter().flatten().filter_map(|one| one["name"].as_str()).collect();
    names.sort_unstable();
    names.iter().for_each(|name| println!("{name}"));
    Ok(())
}

/// Commands that rewrite the file.
fn edit(flags: &ClusterFlags, command: Command) -> Result<()> {
    let path = path(flags).context("no HOME, so there is no place for a kubeconfig")?;
    let mut value = read(&path)?;
    let file = path.display().to_string();
    let said = match command {
        Command::UseContext { name } => change::use_context(&mut value, &name)?,
        Command::SetContext { name, current, cluster, user } => {
            let name = match (name, current) {
                (Some(_), true) => bail!("you cannot specify both a context name and --current"),
                (Some(name), false) => name,
                (None, true) if self::current(&value).is_empty() => bail!("no current context is set"),
                (None, true) => self::current(&value).to_owned(),
                (None, false) => bail!("you must specify a non-empty context name or --current"),
            };
            let fields = [("cluster", cluster), ("user", user), ("namespace", flags.namespace.clone())];
            change::set_context(&mut value, &name, fields)
        }
        Command::SetCluster { name, embed_certs, proxy_url } => {
            let cluster = Cluster {
                server: flags.server.clone(),
                authority: flags.certificate_authority.clone(),
                embed: embed_certs,
                insecure: flags.insecure_skip_tls_verify,
                tls_server_name: flags.tls_server_name.clone(),
                proxy_url,
            };
            change::set_cluster(&mut value, &name, cluster)?
        }
        Command::SetCredentials { name, embed_certs, username, password } => {
            let credentials = Credentials {
                token: flags.token.clone(),
                certificate: flags.client_certificate.clone(),
                key: flags.client_key.clone(),
                embed: embed_certs,
                username,
                password,
            };
            change::set_credentials(&mut value, &name, credentials)?
        }
        Command::DeleteContext { name } => {
            if current(&value) == name {
                eprintln!(
                    "warning: this removed your active context, use \"kubectl config use-context\" to select a different one"
                );
            }
            change::remove(&mut value, "contexts", "context", &name, &file)?
        }
        Command::DeleteCluster { name } => change::remove(&mut value, "clusters", "cluster", &name, &file)?,
        Command::DeleteUser { name } => change::remove(&mut value, "users", "user", &name, &file)?,
        Command::RenameContext { old, new } => change::rename_context(&mut value, &old, &new, &file)?,
        Command::Set { path, value: text } => change::set(&mut value, &path, &text)?,
        Command::Unset { path } => change::unset(&mut value, &path)?,
        _ => bail!("that does not change the kubeconfig"),
    };
    write(&path, &value)?;
    println!("{said}");
    Ok(())
}

fn read(path: &PathBuf) -> Result<Value> {
    match std::fs::read_to_string(path) {
        Ok(text) if text.trim().is_empty() => Ok(change::empty()),
        Ok(text) => serde_saphyr::from_str(&text).with_context(|| format!("understand {}", path.display())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(change::empty()),
        Err(error) => Err(error).with_context(|| format!("read {}", path.display())),
    }
}

/// Rewrites the file, for its owner's eyes only.
fn write(path: &PathBuf, value: &Value) -> Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.map_or_else(|| PathBuf::from("."), PathBuf::from);
    std::fs::create_dir_all(&folder).with_context(|| format!("make {}", folder.display()))?;
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    std::io::Write::write_all(&mut file, serde_saphyr::to_string(value)?.as_bytes())?;
    file.as_file().sync_all()?;
    file.persist(path).with_context(|| format!("write {}", path.display()))?;
    Ok(())
}

/// The file that changes go to: the flag's, the first of the environment's that is there, or the user's.
fn path(flags: &ClusterFlags) -> Option<PathBuf> {
    let from_environment = || {
        let paths = std::env::var_os("KUBECONFIG").filter(|paths| !paths.is_empty())?;
        let paths: Vec<PathBuf> = std::env::split_paths(&paths).collect();
        paths.iter().find(|path| path.exists()).or(paths.last()).cloned()
    };
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".kube/config"));
    flags.kubeconfig.clone().or_else(from_environment).or_else(home)
}
