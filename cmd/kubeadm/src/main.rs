//! The kubeadm program.

fn main() -> std::process::ExitCode {
    kubeadm_cmd::main(std::env::args_os())
}
