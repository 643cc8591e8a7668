//! The kubeproxy program.

fn main() -> std::process::ExitCode {
    kubeproxy_cmd::main(std::env::args_os())
}
