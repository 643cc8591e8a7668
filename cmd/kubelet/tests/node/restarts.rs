//! The kubelet is killed, at any moment, and nothing is lost.

use crate::machine::{Machine, is_ready, on_a_network_of_its_own};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const FOREVER: &str = "while true; do sleep 0.1; done";
const KILLS: u32 = 50;
/// However slow the machine is, the killing ends.
const LONGEST: Duration = Duration::from_secs(120);

fn pod() -> Value {
    json!({"containers": [{"name": "c", "command": ["sh", "-c", FOREVER]}]})
}

#[test]
fn a_restart_disturbs_nothing() {
    on_a_network_of_its_own(|| async {
        let mut machine = Machine::ready().await;
        machine.create("stays", pod()).await;
        machine.create("goes", pod()).await;
        let before = machine.until("stays", "it is ready", is_ready).await;
        machine.until("goes", "it is ready", is_ready).await;
        machine.kill();
        machine
            .pods()
            .delete("goes", &kube::api::DeleteParams::default().grace_period(0))
            .await
            .expect("deleted");
        machine.start();
        machine.create("new", pod()).await;
        machine.until("new", "it is ready", is_ready).await;
        let after = machine.until("stays", "it is ready", is_ready).await;
        let of = |pod: &Value| {
            let status = &pod["status"];
            (status["containerStatuses"][0]["containerID"].clone(), status["podIP"].clone())
        };
        assert_eq!(of(&after), of(&before));
        machine.delete("stays").await;
        machine.delete("new").await;
        machine.nothing_is_left().await;
    });
}

#[test]
fn kills_at_random_moments() {
    on_a_network_of_its_own(|| async {
        let mut machine = Machine::ready().await;
        let mut random = u64::from(std::process::id()) << 16 | 1;
        println!("seed {random}");
        let began = Instant::now();
        let (mut alive, mut deleted): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
        for number in 0..KILLS {
            if began.elapsed() > LONGEST {
                break;
            }
            // Something is always on its way: one pod comes, and now and then one goes.
            if alive.len() < 3 {
                let name = format!("p{number}");
                machine.create(&name, pod()).await;
                alive.push(name);
            } else {
                let name = alive.remove(0);
                machine.pods().delete(&name, &Default::default()).await.expect("deleted");
                deleted.push(name);
            }
            // xorshift: any moment will do.
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            tokio::time::sleep(Duration::from_millis(random % 400)).await;
            machine.kill();
            machine.start();
        }
        for name in &alive {
            let ready = machine.until(name, "it is ready", is_ready).await;
            assert_eq!(ready["status"]["phase"], "Running");
        }
        for name in &deleted {
            machine.until(name, "it is gone", Value::is_null).await;
        }
        for name in &alive {
            machine.delete(name).await;
        }
        machine.nothing_is_left().await;
    });
}
