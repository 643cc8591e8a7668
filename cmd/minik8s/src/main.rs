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

/// Those that make and drop so much that giving memory back each time would slow them down (a create takes 7 % longer).
const BUSY: [&str; 2] = ["apiserver", "scheduler"];

fn main() -> ExitCode {
    let mut arguments: Vec<OsString> = std::env::args_os().collect();
    for own_names in 0..2 {
        if let Some((name, run)) = arguments.get(own_names).and_then(program) {
            if !BUSY.contains(name) {
                give_back_at_once();
            }
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

/// The number of mimalloc's `purge_delay`, which the crate has no name for.
const PURGE_DELAY_MS: i32 = 15;

/// Free memory is given back at once: for a program that comes to rest after a burst, and would keep what it took.
fn give_back_at_once() {
    // SAFETY: it sets a number, before any other thread is there.
    #[expect(unsafe_code, reason = "there is no safe door to it")]
    unsafe {
        libmimalloc_sys::mi_option_set(PURGE_DELAY_MS, 0);
    }
}

fn program(name: &OsString) -> Option<&'static (&'static str, Program)> {
    let name = Path::new(name).file_name()?.to_str()?;
    PROGRAMS.iter().find(|(program, _)| *program == name)
}
