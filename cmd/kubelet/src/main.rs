//! The kubelet program.

fn main() -> std::process::ExitCode {
    kubelet_cmd::main(std::env::args_os())
}
