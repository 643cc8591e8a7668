//! Makes, joins and removes a cluster.
//!
//! ```text
//! kubeadm init ──> phases: preflight, certs, kubeconfigs, image, manifests, kubelet, … ──> a running control plane
//! kubeadm join ──> phases: preflight, discovery, certificate, kubelet, …               ──> one node more
//! kubeadm reset ─> phases that take away exactly what the others made
//! ```
//!
//! A phase may run again at any time: what stands already is kept. kubeadm itself runs only while it is called (and, on
//! a host without systemd, as the [`supervisor`] of the kubelet and kube-proxy).

mod cluster;
mod commands;
mod datastore;
mod discovery;
mod facts;
mod host;
mod image;
mod layout;
mod links;
mod manifests;
mod member;
mod moved;
mod node;
mod node_name;
mod objects;
mod phases;
mod preflight;
mod redis;
mod services;
mod status;
mod supervisor;

use anyhow::Result;
use clap::{CommandFactory, Parser, Subcommand};
use std::ffi::OsString;
use std::process::ExitCode;

/// Makes a Kubernetes cluster of machines.
#[derive(Parser)]
#[command(
    name = "kubeadm",
    version,
    after_help = "Example:\n  kubeadm init                  # on the first machine; prints the line for the others\n  kubeadm join 192.0.2.1:6443 --token abcdef.0123456789abcdef --discovery-token-ca-cert-hash sha256:…\n  kubeadm status                # what runs, what does not, and what to do\n  kubeadm reset                 # takes everything away again"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Make this machine the control plane of a new cluster, and its first node.
    Init(Box<phases::init::Flags>),
    /// Make this machine a node of a cluster.
    Join(Box<phases::join::Flags>),
    /// Take away what init or join made on this machine.
    Reset(phases::reset::Flags),
    /// Show what of the cluster runs on this machine, and why what does not.
    Status(commands::status::Flags),
    /// Tokens by which machines join.
    #[command(subcommand)]
    Token(commands::token::Command),
    /// The control plane's certificates.
    #[command(subcommand)]
    Certs(commands::certs::Command),
    /// Write everything the cluster knows to one file, while it runs.
    Backup(commands::backup::Flags),
    /// Put a backup in place, before `kubeadm init`.
    Restore(commands::backup::RestoreFlags),
    /// Images on this machine.
    #[command(subcommand)]
    Image(commands::image::Command),
    /// Print the commands that make this cluster's users at a Redis that somebody else runs.
    RedisUsers(commands::redis_users::Flags),
    /// The configuration of a cluster.
    #[command(subcommand)]
    Config(commands::config::Command),
    /// Which version this is.
    Version(commands::version::Flags),
    /// Completions for a shell, for example: source <(kubeadm completion bash)
    Completion {
        /// bash, zsh, fish or elvish.
        shell: clap_complete::Shell,
    },
    /// Keep the kubelet and kube-proxy running, on a host without systemd.
    #[command(hide = true)]
    Supervise,
}

/// The program's commands and flags, for its man pages.
pub fn command() -> clap::Command {
    Cli::command()
}

/// Runs the program with these arguments, its own name first.
pub fn main(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    cli::end_with_the_reader();
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    match run(cli.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", told(&error));
            ExitCode::FAILURE
        }
    }
}

/// An error and its causes. Of what the apiserver refused, its own sentence is enough.
fn told(error: &anyhow::Error) -> String {
    let mut causes = Vec::new();
    for cause in error.chain() {
        if let Some(kube::Error::Api(status)) = cause.downcast_ref() {
            causes.push(status.message.clone());
            break;
        }
        causes.push(cause.to_string());
    }
    causes.join(": ")
}

fn run(command: Command) -> Result<()> {
    // It stays while the machine runs: no runtime, no threads.
    if matches!(command, Command::Supervise) {
        return supervisor::run();
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        match command {
            Command::Init(flags) => phases::init::run(*flags).await,
            Command::Join(flags) => phases::join::run(*flags).await,
            Command::Reset(flags) => phases::reset::run(flags).await,
            Command::Status(flags) => commands::status::run(&flags).await,
            Command::Token(command) => commands::token::run(command).await,
            Command::Certs(command) => commands::certs::run(command),
            Command::Backup(flags) => commands::backup::run(flags).await,
            Command::Restore(flags) => commands::backup::restore(flags).await,
            Command::Image(command) => commands::image::run(command).await,
            Command::RedisUsers(flags) => commands::redis_users::run(flags).await,
            Command::Config(command) => commands::config::run(command).await,
            Command::Version(flags) => commands::version::run(&flags),
            Command::Completion { shell } => {
                clap_complete::generate(shell, &mut Cli::command(), "kubeadm", &mut std::io::stdout());
                Ok(())
            }
            Command::Supervise => unreachable!("it has its own way above"),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_refusal_the_servers_sentence_is_told() {
        let status = kube::core::Status::failure("tokens \"a\" not found", "NotFound").with_code(404);
        let error = anyhow::Error::from(kube::Error::Api(status.boxed())).context("delete the token");
        assert_eq!(told(&error), "delete the token: tokens \"a\" not found");
    }

    #[test]
    fn all_flags_go_together() {
        Cli::command().debug_assert();
    }
}
