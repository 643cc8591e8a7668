//! The scripts of jobs: as text, and as bash runs them.

use super::*;
use crate::objects::Data;
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Stdio};

fn site(root: &str, more: &str) -> SiteConfig {
    SiteConfig::parse(&format!("dataRoot: {root}\nnamespaces: {{'*': {{account: acc}}}}\n{more}"))
        .expect("a site")
}

fn pod(annotations: Value, spec: Value) -> Pod {
    let meta = json!({"name": "train", "namespace": "a", "uid": "u-1", "annotations": annotations});
    serde_json::from_value(json!({"metadata": meta, "spec": spec})).expect("a pod")
}

fn data() -> PodData {
    let value =
        Data { data: [("key".to_owned(), b"it's \"secret\" $(id)".to_vec())].into(), ..Data::default() };
    PodData {
        config_maps: [("cfg".to_owned(), value.clone())].into(),
        secrets: [("sec".to_owned(), value)].into(),
    }
}

fn rendered(site: &SiteConfig, pod: &Pod) -> Rendered {
    render(pod, &data(), site, JobPlace { node_name: "hpc", mark: "m" }).expect("a job")
}

/// A script without the part that all have.
fn own_part(script: &str) -> String {
    script.replace(LIBRARY, "...\n")
}

fn file<'a>(job: &'a Rendered, path: &str) -> &'a str {
    let found = job.files.iter().find(|file| file.path == path).expect("the file");
    std::str::from_utf8(&found.content).expect("text")
}

#[test]
fn a_script_has_its_options_and_its_containers_in_order() {
    let pod = pod(
        json!({"slurm.minik8s.io/partition": "dgx2", "slurm.minik8s.io/output": "result"}),
        json!({
            "initContainers": [{"name": "fetch", "command": ["cp", "a b", "c"]}],
            "containers": [
                {"name": "train", "command": ["sh", "-c"], "args": ["echo $(WHO)'s"], "env": [{"name": "WHO", "value": "it"}],
                 "resources": {"limits": {"cpu": "6", "nvidia.com/gpu": "1"}}},
                {"name": "side", "command": ["sleep", "1"]},
            ],
        }),
    );
    let job = rendered(&site("/s", ""), &pod);
    let expected = "#!/bin/bash
#SBATCH --job-name=train.u-1
#SBATCH --comment=minik8s:m:u-1
#SBATCH --chdir=/
#SBATCH --output=/s/u-1/slurm.log
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --account=acc
#SBATCH --cpus-per-task=6
#SBATCH --gres=gpu:1
#SBATCH --partition=dgx2
# Pod train of namespace a.

D='/s/u-1'
HINT='/s/.events/m/u-1'
...

ln -sfn \"logs/train.$R\" result
run_0() { exec bash \"$D/enter/fetch\" 'cp' 'a b' 'c'; }
run_1() { exec bash \"$D/enter/train\" 'sh' '-c' 'echo it'\\''s'; }
run_2() { exec bash \"$D/enter/side\" 'sleep' '1'; }
init 0 fetch
pids=
start 1 train
start 2 side
finish
";
    assert_eq!(own_part(&job.script), expected);
    let enter = "# The surroundings of container train.
export PATH=${PATH:-/usr/local/bin:/usr/bin:/bin}
export MINIK8S_ROOT='/s/u-1/roots/train'
export WHO='it'
cd '/s/u-1/work' || exit 125
exec \"$@\"
";
    assert_eq!(file(&job, "enter/train"), enter);
}

#[test]
fn containers_run_by_what_the_site_has() {
    let spec = json!({
        "volumes": [{"name": "cfg", "configMap": {"name": "cfg"}}],
        "containers": [{"name": "c", "image": "ubuntu:22.04", "command": ["true"], "workingDir": "/w",
            "volumeMounts": [{"name": "cfg", "mountPath": "/etc/cfg", "readOnly": true}],
            "resources": {"limits": {"nvidia.com/gpu": "2"}}}],
    });
    let last = |runtime: &str, annotations: Value| {
        let job = rendered(&site("/s", &format!("containers: {runtime}\n")), &pod(annotations, spec.clone()));
        let run = job.script.lines().find(|line| line.starts_with("run_0")).expect("it runs").to_owned();
        (file(&job, "enter/c").lines().last().unwrap_or_default().to_owned(), run)
    };
    let (enter, run) = last("apptainer", json!({"slurm-job.vk.io/singularity-options": "--fakeroot 'a b'"}));
    assert_eq!(
        enter,
        "exec apptainer exec --nv --pwd '/w' --bind '/s/u-1/volumes/cfg:/etc/cfg:ro' '--fakeroot' 'a b' \
         'docker://ubuntu:22.04' \"$@\""
    );
    assert_eq!(run, "run_0() { exec bash \"$D/enter/c\" 'true'; }");
    let (enter, _) = last("enroot", json!({}));
    assert_eq!(
        enter,
        "exec enroot start --mount '/s/u-1/volumes/cfg:/etc/cfg:none:bind,ro' 'ubuntu:22.04' \"$@\""
    );
    let (enter, run) = last("pyxis", json!({}));
    assert_eq!(enter, "exec \"$@\"");
    assert_eq!(
        run,
        "run_0() { exec srun --kill-on-bad-exit=1 --ntasks=1 '--container-image=ubuntu:22.04' \
         '--container-mounts=/s/u-1:/s/u-1,/s/u-1/volumes/cfg:/etc/cfg:ro' bash \"$D/enter/c\" 'true'; }"
    );
}

#[test]
fn several_tasks_are_started_by_srun() {
    let many = json!({"slurm.minik8s.io/nodes": "2", "slurm-job.vk.io/mpi-flags": "--mpi=pmix -v"});
    let job = rendered(
        &site("/s", ""),
        &pod(many, json!({"containers": [{"name": "c", "command": ["hostname"]}]})),
    );
    assert!(job.script.contains(
        "run_0() { exec srun --kill-on-bad-exit=1 '--mpi=pmix' '-v' bash \"$D/enter/c\" 'hostname'; }"
    ));
}

#[test]
fn a_source_is_compiled_as_the_site_says() {
    let annotations =
        json!({"slurm.minik8s.io/code-path": "/root/add.cu", "slurm.minik8s.io/code": "int main() {}"});
    let spec = json!({"containers": [{"name": "gpujob", "image": SLURM_NO_IMAGE, "command": [SLURM_RUN, "/root/add.cu"]}]});
    let job = rendered(&site("/s", ""), &pod(annotations, spec.clone()));
    assert_eq!(file(&job, "work/add.cu"), "int main() {}");
    assert!(job.script.contains("'sh' '-c' 'nvcc add.cu -o gpujob && ./gpujob'"), "{}", job.script);
    let refused = |annotations: Value, command: &str| {
        let mut spec = spec.clone();
        spec["containers"][0]["command"][1] = json!(command);
        let pod = pod(annotations, spec);
        let place = JobPlace { node_name: "hpc", mark: "m" };
        render(&pod, &data(), &site("/s", ""), place).expect_err("refused").message
    };
    assert!(refused(json!({}), "/root/add.cu").contains("did not come with the job"));
    let code = || json!({"slurm.minik8s.io/code": "x"});
    assert!(refused(code(), "/root/a;id.cu").contains("not the name of a source"));
    assert!(refused(code(), "/root/a.f90").contains(".f90"));
}

/// Runs a job's script as SLURM would, without SLURM; gives its output back.
fn run(job: &Rendered, id: &str, restart: &str) -> String {
    let folder = Path::new(&job.folder);
    std::fs::create_dir_all(&job.hints).expect("a folder");
    for path in &job.folders {
        std::fs::create_dir_all(folder.join(path)).expect("a folder");
    }
    for file in &job.files {
        let path = folder.join(&file.path);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        std::fs::write(path, &file.content).expect("written");
    }
    for (path, target) in &job.links {
        let path = folder.join(path);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        std::os::unix::fs::symlink(target, path).expect("linked");
    }
    let script = folder.join("script");
    std::fs::write(&script, &job.script).expect("written");
    let mut bash = Command::new("bash");
    bash.arg(script).env("SLURM_JOB_ID", id).env("SLURM_RESTART_COUNT", restart).stdin(Stdio::null());
    let output = bash.output().expect("bash runs");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(errors, "", "{errors}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn log(job: &Rendered, name: &str) -> String {
    std::fs::read_to_string(Path::new(&job.folder).join("logs").join(name)).unwrap_or_default()
}

#[test]
fn a_job_finds_its_volumes_and_leaves_no_secret() {
    let dir = tempfile::tempdir().expect("a folder");
    let root = dir.path().to_str().expect("a path");
    let spec = json!({
        "volumes": [{"name": "sec", "secret": {"secretName": "sec"}}],
        "containers": [{"name": "c", "command": ["bash", "-c", "cat \"$MINIK8S_ROOT/etc/sec/key\"; echo; echo \"$S\"; exit 4"],
            "env": [{"name": "S", "valueFrom": {"secretKeyRef": {"name": "sec", "key": "key"}}}],
            "volumeMounts": [{"name": "sec", "mountPath": "/etc/sec"}]}],
    });
    let job = rendered(&site(root, ""), &pod(json!({}), spec));
    run(&job, "12", "0");
    assert_eq!(log(&job, "c.0"), "it's \"secret\" $(id)\nit's \"secret\" $(id)\n");
    let folder = Path::new(&job.folder);
    for gone in ["enter", "volumes", "roots"] {
        assert!(!folder.join(gone).exists(), "{gone}");
    }
    let journal = std::fs::read_to_string(folder.join("journal")).expect("a journal");
    let words: Vec<&str> = journal.lines().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(words, ["boot", "start", "end", "done"]);
    assert!(journal.trim().ends_with(" 4"), "{journal}");
    // The same pod, submitted a second time: nothing is done.
    let said = run(&job, "13", "0");
    assert!(said.contains("job 12 runs this pod already"), "{said}");
    assert_eq!(std::fs::read_to_string(folder.join("journal")).expect("a journal"), journal);
}

#[test]
fn an_init_container_that_fails_is_the_last() {
    let dir = tempfile::tempdir().expect("a folder");
    let spec = json!({
        "initContainers": [{"name": "a", "command": ["true"]}, {"name": "b", "command": ["sh", "-c", "exit 5"]}],
        "containers": [{"name": "c", "command": ["true"]}],
    });
    let job = rendered(&site(dir.path().to_str().expect("a path"), ""), &pod(json!({}), spec));
    run(&job, "1", "0");
    let journal = std::fs::read_to_string(Path::new(&job.folder).join("journal")).expect("a journal");
    let said: Vec<String> = journal
        .lines()
        .map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            format!("{} {}", words[0], words.get(2).unwrap_or(&""))
        })
        .collect();
    assert_eq!(said[1..5], ["start a", "end a", "start b", "end b"]);
    assert!(said[5].starts_with("done") && said.len() == 6, "{journal}");
}

/// Whatever a pod says is a word, never a command.
#[test]
fn hostile_words_run_nothing() {
    let dir = tempfile::tempdir().expect("a folder");
    let proof = dir.path().join("proof");
    let hostile = [
        format!("$(touch {})", proof.display()),
        format!("`touch {}`", proof.display()),
        format!("'; touch {}; '", proof.display()),
        format!("\"; touch {}; \"", proof.display()),
        format!("x\n#SBATCH --uid=0\ntouch {}\n", proof.display()),
        format!("\\'; touch {} #", proof.display()),
        "$HOME ~ * ? [a-z] {a,b} !x".to_owned(),
    ];
    for (index, word) in hostile.iter().enumerate() {
        let root = dir.path().join(index.to_string());
        let spec = json!({"containers": [{
            "name": "c", "command": ["bash", "-c", "printf '%s|%s|%s' \"$1\" \"$V\" \"$PWD\"", "x", word],
            "env": [{"name": "V", "value": word}],
        }]});
        let job = rendered(&site(root.to_str().expect("a path"), ""), &pod(json!({}), spec));
        run(&job, "1", "0");
        let said = log(&job, "c.0");
        assert!(said.starts_with(&format!("{word}|{word}|")), "{word}: {said}");
        assert!(!proof.exists(), "{word}");
        assert!(
            !job.script
                .lines()
                .any(|line| line == "#SBATCH --uid=0" && job.script.find(line) < job.script.find("\nD="))
        );
    }
    let place = JobPlace { node_name: "hpc", mark: "m" };
    for (key, value) in [
        ("slurm.minik8s.io/output", "../x"),
        ("slurm.minik8s.io/output", "journal"),
        ("slurm.minik8s.io/output", "a b"),
        ("slurm.minik8s.io/partition", "p\n#SBATCH --uid=0"),
        ("slurm-job.vk.io/flags", "--uid=0"),
        ("slurm-job.vk.io/flags", "--comment=minik8s:x:y"),
        ("slurm-job.vk.io/unheard-of", "x"),
    ] {
        let spec = json!({"containers": [{"name": "c", "command": ["true"]}]});
        let refused = render(&pod(json!({key: value}), spec), &data(), &site("/s", ""), place);
        assert!(refused.is_err(), "{key}: {value}");
    }
}
