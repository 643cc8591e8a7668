//! The interlink program.

fn main() -> std::process::ExitCode {
    interlink_cmd::main(std::env::args_os())
}
