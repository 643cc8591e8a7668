//! The man pages, made of the programs' own commands and flags: one for each command, such as `kubectl-get.1`.

use crate::PROGRAMS;
use std::path::Path;
use std::process::ExitCode;

/// Writes the pages of all programs into a folder, which is made if it is not there.
pub fn write(folder: &Path) -> ExitCode {
    let written = std::fs::create_dir_all(folder).and_then(|()| {
        PROGRAMS.iter().try_for_each(|program| clap_mangen::generate_to((program.command)(), folder))
    });
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: write the man pages into {}: {error}", folder.display());
            ExitCode::FAILURE
        }
    }
}
