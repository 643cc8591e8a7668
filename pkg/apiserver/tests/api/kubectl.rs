//! Upstream's kubectl against a fresh apiserver: the tour in testcases/tour.

use std::process::Command;
use testing::{run_script, testcases};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tour_of_kubectl() {
    let Some(kubectl) = testing::kubectl() else {
        println!("skipped: a_tour_of_kubectl: no kubectl 1.30 or newer is installed");
        return;
    };
    let mut tour = Command::new(testcases().join("tour/run"));
    tour.env("KUBECTL", kubectl);
    run_script(tour).await;
}
