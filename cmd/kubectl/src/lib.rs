//! The command line of the cluster.
//!
//! ```text
//! words ──> Catalogue (discovery) ──> Resource ──> paths ──> the server's tables, or -o yaml|json|name|jsonpath|…
//! files ──> Documents ──> the seed's dialect ──> server-side apply
//! ```
//!
//! It knows no kind by itself: what the server has, it can show and change.

mod arguments;
mod change;
mod commands;
mod completion;
mod connection;
mod documents;
mod duration;
mod editor;
mod faults;
mod fetch;
mod kustomize;
mod manifests;
mod output;
mod pods;
mod resources;
mod schemas;
mod select;
mod session;
mod suggest;
mod usage;
mod yaml;

use anyhow::Result;
use clap::{Args, CommandFactory, Parser, Subcommand};
use connection::ClusterFlags;
use std::ffi::OsString;
use std::process::ExitCode;

/// Looks at a Kubernetes cluster and changes it.
#[derive(Parser)]
#[command(
    name = "kubectl",
    version,
    after_help = "Example:\n  kubectl get pods -A\n  kubectl apply -f web.yaml\n  kubectl describe pod web"
)]
struct Cli {
    #[command(flatten)]
    cluster: ClusterFlags,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Show objects.
    Get(commands::get::Flags),
    /// Show objects and what happened to them.
    Describe(commands::describe::Flags),
    /// Make objects be as files say.
    Apply(commands::apply::Flags),
    /// Make new objects, from files or by kind.
    Create(commands::create::Flags),
    /// Replace objects by those in files.
    Replace(commands::replace::Flags),
    /// Show what an apply would change.
    Diff(commands::diff::Flags),
    /// Show what a kustomization makes.
    Kustomize(commands::kustomize::Flags),
    /// Say what fields a kind has.
    Explain(commands::explain::Flags),
    /// Delete objects.
    Delete(commands::delete::Flags),
    /// Change a part of an object.
    Patch(commands::patch::Flags),
    /// Change an object in an editor.
    Edit(commands::edit::Flags),
    /// Add, change or (KEY-) remove labels.
    Label(commands::mark::Flags),
    /// Add, change or (KEY-) remove annotations.
    Annotate(commands::mark::Flags),
    /// Change how many there are.
    Scale(commands::scale::Flags),
    /// Look after the roll-out of a workload.
    #[command(subcommand)]
    Rollout(commands::rollout::Command),
    /// Show what a container writes.
    Logs(commands::logs::Flags),
    /// Run a command in a container.
    Exec(commands::exec::Flags),
    /// Attach to a container's main process.
    Attach(commands::exec::AttachFlags),
    /// Forward local ports to a pod's.
    PortForward(commands::port_forward::Flags),
    /// Copy files and folders to and from containers.
    Cp(commands::cp::Flags),
    /// Empty a node, to look after it.
    Drain(commands::drain::Flags),
    /// Run one pod.
    Run(commands::run::Flags),
    /// Make a service for what runs.
    Expose(commands::expose::Flags),
    /// Let a workload grow and shrink with its load.
    Autoscale(commands::autoscale::Flags),
    /// Answer requests for certificates.
    #[command(subcommand)]
    Certificate(commands::certificate::Command),
    /// Show what nodes or pods use.
    #[command(subcommand)]
    Top(commands::top::Command),
    /// Wait until something is so.
    Wait(commands::wait::Flags),
    /// Show what happened.
    Events(commands::events::Flags),
    /// Change what workloads run with: image, env, resources, selector, serviceaccount, subject.
    #[command(subcommand)]
    Set(commands::set::Command),
    /// Keep pods away from nodes, unless they tolerate it.
    Taint(commands::taint::Flags),
    /// Let no new pods onto a node.
    Cordon(commands::cordon::Flags),
    /// Let pods onto a node again.
    Uncordon(commands::cordon::Flags),
    /// Questions about permission.
    #[command(subcommand)]
    Auth(commands::auth::Command),
    /// Show what kinds of things the server has.
    ApiResources(commands::server::ResourcesFlags),
    /// Show which versions of the API the server has.
    ApiVersions,
    /// Show where the cluster is, and with `dump` all about it.
    ClusterInfo(commands::cluster_info::Flags),
    /// Serve the API on a local port.
    Proxy(commands::proxy::Flags),
    /// Put a container of one's own into a pod that runs.
    Debug(commands::debug::Flags),
    /// Look at and choose between kubeconfig's contexts.
    #[command(subcommand)]
    Config(commands::config::Command),
    /// Show the options that every command has.
    Options,
    /// Show versions.
    Version(commands::server::VersionFlags),
    /// Completions for a shell, for example: source <(kubectl completion bash)
    Completion {
        /// The shell.
        shell: completion::Shell,
    },
    /// Commands of others: programs kubectl-NAME on the PATH.
    #[command(subcommand)]
    Plugin(commands::plugin::Command),
    /// Store a function, under the name of its file.
    Register(commands::functions::FileFlags),
    /// Store a function's new code.
    Update(commands::functions::FileFlags),
    /// Call a function with JSON.
    Trigger(commands::functions::TriggerFlags),
    /// Run workflows, and look after their runs.
    #[command(subcommand)]
    Workflow(commands::workflow::Command),
}

/// The program's commands and flags, for its man pages.
pub fn command() -> clap::Command {
    Cli::command()
}

/// Whether it has a command of its own of this name.
pub fn has_command(name: &str) -> bool {
    Cli::command().find_subcommand(name).is_some()
}

/// Runs the program with these arguments, its own name first.
pub fn main(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    cli::end_with_the_reader();
    let mut command = Cli::command();
    let arguments: Vec<OsString> = arguments.collect();
    if let Some(answer) = completion::answer(&arguments, &mut command) {
        print!("{answer}");
        return ExitCode::SUCCESS;
    }
    commands::plugin::become_plugin(&arguments, &command);
    let arguments = arguments::normalised(arguments.into_iter(), &command);
    let cli = match Cli::try_parse_from(&arguments) {
        Ok(cli) => cli,
        Err(error) => return misused(&error, &arguments, &mut command),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let ran = runtime.map_err(anyhow::Error::from).and_then(|runtime| runtime.block_on(run(cli)));
    match ran {
        Ok(code) => code,
        // What the server said, or that nobody did, is told as it is.
        Err(error) if connection::speaks_for_itself(&error) => {
            eprintln!("{}", cli::plain(&error.to_string()));
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("{}", cli::plain(&format!("error: {error:#}")));
            ExitCode::FAILURE
        }
    }
}

/// Shows the help that was asked for, or says what is wrong with the command line.
fn misused(error: &clap::Error, arguments: &[OsString], command: &mut clap::Command) -> ExitCode {
    use clap::error::ErrorKind;
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            let _ = error.print();
            return ExitCode::SUCCESS;
        }
        // kubectl alone is a question and no fault.
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand if arguments.len() <= 1 => {
            print!("{}", error.render());
            return ExitCode::SUCCESS;
        }
        _ => {}
    }
    match usage::complaint(error, &completion::path(arguments, command)) {
        Some(complaint) => eprintln!("{complaint}"),
        None => drop(error.print()),
    }
    ExitCode::FAILURE
}

async fn run(cli: Cli) -> Result<ExitCode> {
    let cluster = &cli.cluster;
    match cli.command {
        Command::Get(flags) => commands::get::run(cluster, flags).await?,
        Command::Describe(flags) => commands::describe::run(cluster, flags).await?,
        Command::Apply(flags) => {
            let code = commands::apply::run(cluster, flags).await?;
            if code != ExitCode::SUCCESS {
                return Ok(code);
            }
        }
        Command::Create(flags) => commands::create::run(cluster, flags).await?,
        Command::Replace(flags) => commands::replace::run(cluster, flags).await?,
        Command::Diff(flags) => return commands::diff::run(cluster, flags).await,
        Command::Kustomize(flags) => commands::kustomize::run(&flags)?,
        Command::Explain(flags) => commands::explain::run(cluster, flags).await?,
        Command::Delete(flags) => commands::delete::run(cluster, flags).await?,
        Command::Patch(flags) => commands::patch::run(cluster, flags).await?,
        Command::Edit(flags) => commands::edit::run(cluster, flags).await?,
        Command::Label(flags) => commands::mark::run(cluster, flags, commands::mark::Mark::Label).await?,
        Command::Annotate(flags) => {
            commands::mark::run(cluster, flags, commands::mark::Mark::Annotation).await?
        }
        Command::Scale(flags) => commands::scale::run(cluster, flags).await?,
        Command::Rollout(command) => commands::rollout::run(cluster, command).await?,
        Command::Logs(flags) => commands::logs::run(cluster, flags).await?,
        Command::Exec(flags) => return commands::exec::run(cluster, flags).await,
        Command::Attach(flags) => return commands::exec::attach(cluster, flags).await,
        Command::PortForward(flags) => commands::port_forward::run(cluster, flags).await?,
        Command::Cp(flags) => return commands::cp::run(cluster, flags).await,
        Command::Drain(flags) => commands::drain::run(cluster, flags).await?,
        Command::Run(flags) => return commands::run::run(cluster, flags).await,
        Command::Expose(flags) => commands::expose::run(cluster, flags).await?,
        Command::Autoscale(flags) => commands::autoscale::run(cluster, flags).await?,
        Command::Certificate(command) => commands::certificate::run(cluster, command).await?,
        Command::Top(command) => commands::top::run(cluster, command).await?,
        Command::Wait(flags) => commands::wait::run(cluster, flags).await?,
        Command::Events(flags) => commands::events::run(cluster, flags).await?,
        Command::Set(command) => commands::set::run(cluster, command).await?,
        Command::Taint(flags) => commands::taint::run(cluster, flags).await?,
        Command::Cordon(flags) => commands::cordon::run(cluster, flags, true).await?,
        Command::Uncordon(flags) => commands::cordon::run(cluster, flags, false).await?,
        Command::Auth(command) => return commands::auth::run(cluster, command).await,
        Command::ApiResources(flags) => commands::server::resources(cluster, flags).await?,
        Command::ApiVersions => commands::server::versions(cluster).await?,
        Command::ClusterInfo(flags) => commands::cluster_info::run(cluster, flags).await?,
        Command::Proxy(flags) => commands::proxy::run(cluster, flags).await?,
        Command::Debug(flags) => return commands::debug::run(cluster, flags).await,
        Command::Config(command) => commands::config::run(cluster, command)?,
        Command::Options => print!("{}", options()),
        Command::Version(flags) => commands::server::version(cluster, flags).await?,
        Command::Completion { shell } => print!("{}", shell.script()),
        Command::Plugin(command) => commands::plugin::run(&command)?,
        Command::Register(flags) => commands::functions::register(cluster, flags).await?,
        Command::Update(flags) => commands::functions::update(cluster, flags).await?,
        Command::Trigger(flags) => commands::functions::trigger(cluster, flags).await?,
        Command::Workflow(command) => return commands::workflow::run(cluster, command).await,
    }
    if cluster.warnings_as_errors {
        connection::refuse_warnings()?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What `kubectl options` shows.
fn options() -> String {
    let command = ClusterFlags::augment_args(clap::Command::new("kubectl"));
    let template = "The following options can be passed to any command:\n\n{options}\n";
    command.disable_help_flag(true).help_template(template).render_long_help().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_command_contradicts_itself() {
        Cli::command().debug_assert();
    }

    /// clap finds out only when the flag is read, and panics.
    #[test]
    fn no_flag_is_called_as_one_of_every_command_with_another_type() {
        fn look(command: &clap::Command, of_all: &clap::Command) {
            for own in command.get_arguments() {
                let general =
                    of_all.get_arguments().find(|it| it.is_global_set() && it.get_id() == own.get_id());
                let is_other = general.is_some_and(|general| {
                    own.get_value_parser().type_id() != general.get_value_parser().type_id()
                });
                assert!(!is_other, "{} --{}", command.get_name(), own.get_id());
            }
            command.get_subcommands().for_each(|command| look(command, of_all));
        }
        let cli = Cli::command();
        cli.get_subcommands().for_each(|command| look(command, &cli));
    }

    #[test]
    fn a_commands_own_options_stand_before_those_of_every_command() {
        let mut command = Cli::command();
        command.build();
        let delete = command.find_subcommand_mut("delete").expect("a command");
        let help = delete.render_long_help().to_string();
        let (own, general) = help.split_once("Options of every command:").expect("two parts");
        assert!(own.contains("--grace-period") && !own.contains("--kubeconfig"), "{help}");
        assert!(general.contains("--kubeconfig") && !general.contains("--grace-period"), "{help}");
        let all = options();
        for flag in ["--kubeconfig", "--context", "--cluster", "--user", "--as-group", "--request-timeout"] {
            assert!(all.contains(flag), "{all}");
        }
    }
}
