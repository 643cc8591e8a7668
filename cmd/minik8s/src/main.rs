//! All programs in one file, which acts by the name it is called by (`ln -s minik8s kubectl`), or by its first argument
//! (`minik8s kubectl get pods`).

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

/// Runs a program with its arguments, its own name first.
type Program = fn(std::vec::IntoIter<OsString>) -> ExitCode;

/// The programs, by name.
const PROGRAMS: &[(&str, Program)] = &[
    ("apiserver", |arguments| apiserver_cmd::main(arguments)),
    ("controller-manager", |arguments| controller_manager_cmd::main(arguments)),
    ("interlink", |arguments| interlink_cmd::main(arguments)),
    ("knative", |arguments| knative_cmd::main(arguments)),
    ("kubeadm", |arguments| kubeadm_cmd::main(arguments)),
    ("kubectl", |arguments| kubectl_cmd::main(arguments)),
    ("kubelet", |arguments| kubelet_cmd::main(arguments)),
    ("kubeproxy", |arguments| kubeproxy_cmd::main(arguments)),
    ("scheduler", |arguments| scheduler_cmd::main(arguments)),
];

fn main() -> ExitCode {
    let mut arguments: Vec<OsString> = std::env::args_os().collect();
    for own_names in 0..2 {
        if let Some(run) = arguments.get(own_names).and_then(program) {
            arguments.drain(..own_names);
            return run(arguments.into_iter());
        }
    }
    eprintln!("Usage: minik8s PROGRAM [ARGUMENT]...\n\nPrograms:");
    for (name, _) in PROGRAMS {
        eprintln!("  {name}");
    }
    eprintln!(
        "\nFor example:\n  minik8s kubeadm init\n\nCalled by the name of a program (ln -s minik8s kubectl), it is that program."
    );
    ExitCode::from(2)
}

fn program(name: &OsString) -> Option<Program> {
    let name = Path::new(name).file_name()?.to_str()?;
    PROGRAMS.iter().find(|(program, _)| *program == name).map(|(_, run)| *run)
}
