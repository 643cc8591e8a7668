//! All programs in one file, which acts by the name it is called by (`ln -s minik8s kubectl`), or by its first argument
//! (`minik8s kubectl get pods`).

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

/// A create makes and drops some hundred small values: it takes a third less CPU time than with the C library's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Runs a program with its arguments, its own name first.
type Program = fn(std::vec::IntoIter<OsString>) -> ExitCode;

/// The programs, by name.
const PROGRAMS: &[(&str, Program)] = &[
    ("apiserver", |arguments| apiserver_cmd::main(arguments)),
    ("controller-manager", |arguments| controller_manager_cmd::main(arguments)),
    ("kubeadm", |arguments| kubeadm_cmd::main(arguments)),
    ("kubectl", |arguments| kubectl_cmd::main(arguments)),
    ("kubelet", |arguments| kubelet_cmd::main(arguments)),
    ("kubeproxy", |arguments| kubeproxy_cmd::main(arguments)),
    ("scheduler", |arguments| scheduler_cmd::main(arguments)),
];

fn main() -> ExitCode {
    daemon::collect_by(|| {
        // SAFETY: it may be called at any time, by any thread.
        #[expect(unsafe_code, reason = "there is no safe door to it")]
        unsafe {
            libmimalloc_sys::mi_collect(true)
        }
    });
    let mut arguments: Vec<OsString> = std::env::args_os().collect();
    if let Some(program) = arguments.first().and_then(program) {
        return program(arguments.into_iter());
    }
    if let Some(program) = arguments.get(1).and_then(program) {
        arguments.remove(0);
        return program(arguments.into_iter());
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
