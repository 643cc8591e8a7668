//! The seed's GPU job, as it stands in the document, with its compile step set to a C compiler.

use crate::support::{Site, Way};
use std::path::Path;
use testing::{SlurmConfig, eventually};

const SEED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testcases/seed");

#[tokio::test(flavor = "multi_thread")]
async fn the_seeds_gpu_job_has_a_result() {
    typed(Way::Local).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_seeds_gpu_job_has_a_result_over_ssh() {
    typed(Way::Ssh).await;
}

async fn typed(way: Way) {
    let site = Site::start_with(way, &SlurmConfig::default(), "").await;
    // On the user's machine the source is where the document says; on this one beside it.
    let text = std::fs::read_to_string(Path::new(SEED).join("job.yaml")).expect("the seed's job");
    let path = text.lines().find_map(|line| line.trim().strip_prefix("codePath: ")).expect("its source");
    let file = site.folder().join("job.yaml");
    std::fs::write(&file, &text).expect("written");
    let job = file.to_str().expect("a path");
    if !Path::new(path).exists() {
        let refused = site.kubectl(&["apply", job]);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && said.contains(&format!("spec.codePath: read {path}")), "{said}");
    }
    let here = Path::new(SEED).join("add.cu");
    std::fs::write(&file, text.replace(path, here.to_str().expect("a path"))).expect("written");

    site.says(&["apply", job]);
    assert!(site.says(&["get", "jobs"]).contains("gpujob"));
    let result = "0 11 22 33 44 55 66 77";
    let shown = eventually("the job's result", || async {
        let shown = site.says(&["get", "job", "gpujob"]);
        shown.contains(result).then_some(shown)
    })
    .await;
    assert!(shown.contains(&format!("\nresult:\n{result}")), "{shown}");
    eventually("its pod has succeeded", || async {
        let phases =
            site.says(&["get", "pod", "-l", "job-name=gpujob", "-o", "jsonpath={.items[*].status.phase}"]);
        (phases == "Succeeded").then_some(())
    })
    .await;
    eventually("the job is complete", || async {
        let said = site.says(&["get", "job", "gpujob", "-o", "jsonpath={.status.succeeded}"]);
        (said == "1").then_some(())
    })
    .await;
    // As SLURM has it: in the seed's partition, with its processors and its GPU.
    let queue = site.slurm.says(&[
        "squeue",
        "--states=all",
        "--noheader",
        "--Format=Partition:|,cpus-per-task:|,tres-per-node:|",
    ]);
    assert!(queue.starts_with("dgx2|6|gres:gpu:1|"), "{queue}");
    site.says(&["delete", "job", "gpujob"]);
    eventually("its pod is gone", || async {
        site.says(&["get", "pod", "-o", "name"]).trim().is_empty().then_some(())
    })
    .await;
}
