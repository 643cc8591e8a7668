//! `docs/slurm.md`, typed as it stands.

use crate::support::Site;
use std::process::{Command, Stdio};

const PAGE: &str = include_str!("../../../../docs/slurm.md");

/// The commands of a section: what is indented.
fn commands(section: &str) -> String {
    let text = PAGE.split(&format!("## {section}\n")).nth(1).expect("the section");
    let text = text.split("\n## ").next().unwrap_or_default();
    text.lines().filter_map(|line| line.strip_prefix("    ")).map(|line| format!("{line}\n")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_on_slurm_can_be_typed() {
    let site = Site::start().await;
    // kubectl as it is installed, and its kubeconfig.
    site.says(&["version"]);
    let bin = site.folder().join("bin");
    std::fs::create_dir(&bin).expect("a folder");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_minik8s"), bin.join("kubectl")).expect("linked");
    for (section, shown) in [("The first job", "hello from job "), ("The seed's form", "\nresult:\n3\n")] {
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default());
        let mut shell = Command::new("bash");
        shell.args(["-euc", &commands(section)]).env("PATH", path).current_dir(site.folder());
        shell.env("KUBECONFIG", site.folder().join("admin.kubeconfig")).stdin(Stdio::null());
        let output = shell.output().expect("bash runs");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && said.contains(shown), "{section}: {said}\n{errors}");
    }
}
