//! All programs in one file, which acts by the name it is called by (`ln -s minik8s kubectl`), or by its first argument
//! (`minik8s kubectl get pods`).

mod man;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

/// One of the programs.
struct Program {
    name: &'static str,
    /// Runs it with its arguments, its own name first.
    run: fn(std::vec::IntoIter<OsString>) -> ExitCode,
    /// Its commands and flags.
    command: fn() -> clap::Command,
}

macro_rules! programs {
    ($($name:literal: $of:ident),* $(,)?) => {
        &[$(Program { name: $name, run: |arguments| $of::main(arguments), command: $of::command }),*]
    };
}

/// The programs, by name.
const PROGRAMS: &[Program] = programs! {
    // By this name containerd calls it.
    "containerd-shim-minik8s-v1": shim_cmd,
    "apiserver": apiserver_cmd,
    "controller-manager": controller_manager_cmd,
    "interlink": interlink_cmd,
    "knative": knative_cmd,
    "kubeadm": kubeadm_cmd,
    "kubectl": kubectl_cmd,
    "kubelet": kubelet_cmd,
    "kubeproxy": kubeproxy_cmd,
    "scheduler": scheduler_cmd,
};

fn main() -> ExitCode {
    let mut arguments: Vec<OsString> = std::env::args_os().collect();
    for own_names in 0..2 {
        if let Some(program) = arguments.get(own_names).and_then(program) {
            arguments.drain(..own_names);
            return (program.run)(arguments.into_iter());
        }
        if let Some(command) = arguments.get(own_names).and_then(kubectl_command) {
            arguments.drain(..=own_names);
            let arguments = [OsString::from("kubectl"), command].into_iter().chain(arguments);
            return kubectl_cmd::main(arguments);
        }
    }
    match arguments.get(1..) {
        Some([word, folder]) if word == "man" => man::write(Path::new(folder)),
        _ => usage(),
    }
}

fn usage() -> ExitCode {
    eprintln!("Usage: minik8s PROGRAM [ARGUMENT]...\n       minik8s man FOLDER\n\nPrograms:");
    for program in PROGRAMS {
        eprintln!("  {}", program.name);
    }
    eprintln!(
        "\nFor example:\n  minik8s kubeadm init\n  minik8s man /usr/local/share/man/man1    # writes the man pages of all programs\n\n\
        Called by the name of a program (ln -s minik8s kubectl), it is that program."
    );
    ExitCode::from(2)
}

/// The command of a link that other kubectls find as their plug-in, such as `kubectl-trigger`.
fn kubectl_command(name: &OsString) -> Option<OsString> {
    let command = Path::new(name).file_name()?.to_str()?.strip_prefix("kubectl-")?;
    kubectl_cmd::has_command(command).then(|| command.into())
}

fn program(name: &OsString) -> Option<&'static Program> {
    let name = Path::new(name).file_name()?.to_str()?;
    PROGRAMS.iter().find(|program| program.name == name)
}
