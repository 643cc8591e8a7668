//! The script of a pod's job, and the files that it needs beside it: a pure function of the pod, the objects that it
//! names, and the site.
//!
//! ```text
//! Pod, PodData, SiteConfig ──> Rendered { script, files, folders, links }     below <dataRoot>/<uid>/:
//!     script            what sbatch is given: #SBATCH lines, a small library, the containers in order
//!     enter/<name>      the surroundings of a container: `bash enter/<name> PROGRAM …` runs a program in them
//!     volumes/<name>/   volumes         logs/<name>.<restart>   what a container wrote
//!     work/             where it starts journal                 what happened, line by line
//! ```
//!
//! Everything that a pod says reaches a shell between single quotes, or is a plain word that was checked.

use super::contents::{self, Contents, JobFile, MountedVolume, PodData};
use super::options::{self, Options, PREFIX, words};
use super::refusal::{self, Refusal};
use super::site::{ContainerRuntime, SiteConfig, is_word};
use api::dialect::{SLURM_CODE, SLURM_NO_IMAGE, SLURM_RESULT, SLURM_RUN};
use k8s_openapi::api::core::v1::{Container, Pod};
use std::fmt::Write;

const LIBRARY: &str = include_str!("library.sh");
/// The folder of the hints that something happened to a job of a node, below that of all jobs.
pub fn hints(root: &str, mark: &str) -> String {
    format!("{root}/.events/{mark}")
}

/// Whose job it is, and where.
#[derive(Debug, Clone, Copy)]
pub struct JobPlace<'a> {
    /// The node's name.
    pub node_name: &'a str,
    /// What marks the jobs of this node.
    pub mark: &'a str,
}

/// A job, as it is put at the site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rendered {
    /// The folder of hints that something happened to a job of this node.
    pub hints: String,
    /// Its own folder.
    pub folder: String,
    /// What sbatch is given.
    pub script: String,
    /// Files, below its folder.
    pub files: Vec<JobFile>,
    /// Folders, below its folder.
    pub folders: Vec<String>,
    /// Symbolic links below its folder, and what they lead to.
    pub links: Vec<(String, String)>,
}

/// What SLURM lists a pod's job by.
pub fn job_name(pod: &Pod) -> String {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    format!("{}.{}", text(&pod.metadata.name), text(&pod.metadata.uid))
}

/// The comment of a pod's job: which node's it is, and which pod's.
pub fn comment(mark: &str, uid: &str) -> String {
    format!("minik8s:{mark}:{uid}")
}

/// The mark and the uid of a comment.
pub fn parse_comment(comment: &str) -> Option<(&str, &str)> {
    comment.strip_prefix("minik8s:")?.split_once(':')
}

/// Makes it, or says why the pod cannot be a job here.
pub fn render(
    pod: &Pod,
    data: &PodData,
    site: &SiteConfig,
    place: JobPlace<'_>,
) -> Result<Rendered, Refusal> {
    refusal::check(pod, site)?;
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let identity = site.identity(namespace).cloned().unwrap_or_default();
    let uid = pod.metadata.uid.as_deref().unwrap_or_default();
    let name = job_name(pod);
    if !is_word(uid) || !is_word(&name) {
        return Err(Refusal::unsupported(format!("metadata.uid: {uid:?} is not a word")));
    }
    let root = site.root_of(identity.user.as_deref());
    let folder = format!("{root}/{uid}");
    let options = options::of(pod, site, &identity)?;
    let own = |container: &str| own_variables(site, &folder, container);
    let Contents { env, mounts, files, folders } = contents::of(pod, data, place.node_name, own)?;
    let hints = hints(&root, place.mark);
    let mut made = Rendered {
        hints: hints.clone(),
        folder: folder.clone(),
        script: String::new(),
        files,
        folders,
        links: Vec::new(),
    };
    for name in ["enter", "volumes", "work", "logs", "times"] {
        made.folders.push(name.to_owned());
    }
    let mut script = heading(pod, &name, &comment(place.mark, uid), &folder, &options);
    let _ = writeln!(script, "\nD={}\nHINT={}", quoted(&folder), quoted(&format!("{hints}/{uid}")));
    script.push_str(LIBRARY);
    script.push('\n');
    if let Some(before) = annotation(pod, "job.vk.io/pre-exec") {
        let _ = writeln!(script, "eval {}", quoted(before));
    }
    if let Some(result) = annotation(pod, SLURM_RESULT) {
        let first = pod.spec.iter().flat_map(|spec| &spec.containers).next();
        if !is_word(result) || RESERVED.contains(&result) {
            return Err(Refusal::annotation(SLURM_RESULT, &format!("{result:?} is not the name of a file")));
        }
        let first = first.map(|container| container.name.as_str()).unwrap_or_default();
        let _ = writeln!(script, "ln -sfn \"logs/{first}.$R\" {result}");
    }
    let spec = pod.spec.as_ref();
    let init = spec.into_iter().flat_map(|spec| spec.init_containers.iter().flatten());
    let plain = spec.into_iter().flat_map(|spec| &spec.containers);
    let all = init.map(|container| ("init", container)).chain(plain.map(|container| ("start", container)));
    let mut order = String::new();
    let mut code = None;
    for (number, (how, container)) in all.enumerate() {
        let variables = env.get(&container.name).cloned().unwrap_or_default();
        let mounted = mounts.get(&container.name).cloned().unwrap_or_default();
        let job = Job { pod, site, folder: &folder, options: &options };
        let (command, source) = job.command(container, &variables)?;
        code = code.or(source);
        let enter = job.enter(container, &variables, &mounted)?;
        made.files.push(JobFile {
            path: format!("enter/{}", container.name),
            mode: 0o600,
            content: enter.into_bytes(),
        });
        if site.containers == ContainerRuntime::None {
            made.links.extend(links(&folder, &container.name, &mounted));
        }
        let tasks = if how == "init" { 1 } else { options::tasks(&options) };
        let launch = job.launcher(tasks, &mounted, container)?;
        let words: Vec<String> = command.iter().map(|word| quoted(word)).collect();
        let _ = writeln!(
            script,
            "run_{number}() {{ exec {launch}bash \"$D/enter/{}\" {}; }}",
            container.name,
            words.join(" ")
        );
        if how == "start" && !order.contains("start ") {
            order.push_str("pids=\n");
        }
        let _ = writeln!(order, "{how} {number} {}", container.name);
    }
    made.files.extend(code);
    script.push_str(&order);
    script.push_str("finish\n");
    made.script = script;
    Ok(made)
}

/// What a job's folder has already.
const RESERVED: [&str; 11] = [
    "script",
    "enter",
    "volumes",
    "work",
    "logs",
    "times",
    "journal",
    "claim",
    "jobid",
    "submitting",
    "roots",
];

/// Variables that every container has beside its own.
fn own_variables(site: &SiteConfig, folder: &str, container: &str) -> Vec<(String, String)> {
    match site.containers {
        // A plain process sees the site's files; what it would have mounted is below this.
        ContainerRuntime::None => vec![("MINIK8S_ROOT".into(), format!("{folder}/roots/{container}"))],
        _ => Vec::new(),
    }
}

fn heading(pod: &Pod, name: &str, comment: &str, folder: &str, options: &Options) -> String {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let mut script = String::from("#!/bin/bash\n");
    let fixed = [
        ("job-name", name),
        ("comment", comment),
        ("chdir", "/"),
        ("output", &format!("{folder}/slurm.log")),
        ("open-mode", "append"),
    ];
    for (option, value) in fixed {
        let _ = writeln!(script, "#SBATCH --{option}={value}");
    }
    script.push_str("#SBATCH --requeue\n");
    for (option, value) in options {
        let _ = writeln!(script, "#SBATCH --{option}={value}");
    }
    let _ = writeln!(
        script,
        "# Pod {} of namespace {}.",
        text(&pod.metadata.name),
        text(&pod.metadata.namespace)
    );
    script
}

/// The links by which a plain process finds its volumes below `MINIK8S_ROOT`.
fn links(folder: &str, container: &str, mounts: &[MountedVolume]) -> Vec<(String, String)> {
    let link = |mount: &MountedVolume| {
        (format!("roots/{container}{}", mount.target), absolute(folder, &mount.source))
    };
    mounts.iter().map(link).collect()
}

fn absolute(folder: &str, source: &str) -> String {
    if source.starts_with('/') { source.to_owned() } else { format!("{folder}/{source}") }
}

/// What the containers of a job have in common.
struct Job<'a> {
    pod: &'a Pod,
    site: &'a SiteConfig,
    folder: &'a str,
    options: &'a Options,
}

impl Job<'_> {
    /// What a container runs, and the source that it needs for that.
    fn command(
        &self,
        container: &Container,
        env: &[(String, String)],
    ) -> Result<(Vec<String>, Option<JobFile>), Refusal> {
        let mut command = contents::expanded(container.command.as_ref(), env);
        command.extend(contents::expanded(container.args.as_ref(), env));
        if command.first().map(String::as_str) != Some(SLURM_RUN) {
            if let Some(word) = command.iter().find(|word| word.contains('\0')) {
                return Err(Refusal::container(container, &format!("command: {word:?} has a NUL")));
            }
            return Ok((command, None));
        }
        let path = command.get(1).cloned().unwrap_or_default();
        let name = path.rsplit('/').next().unwrap_or_default();
        let Some(code) = annotation(self.pod, SLURM_CODE) else {
            let what =
                format!("{path}: its source did not come with the job: apply it with minik8s' kubectl");
            return Err(Refusal::annotation(SLURM_CODE, &what));
        };
        if !is_word(name) {
            let what = format!("{name:?} is not the name of a source: letters, digits and ._- only");
            return Err(Refusal::annotation(&format!("{PREFIX}code-path"), &what));
        }
        let ending = name.rsplit_once('.').map_or("sh", |(_, ending)| ending);
        let Some(template) = self.site.compilers.get(ending) else {
            let what = format!("{name}: this site's `compilers` do not say how .{ending} is run");
            return Err(Refusal::annotation(&format!("{PREFIX}code-path"), &what));
        };
        let filled = template.replace("{source}", name).replace("{program}", &container.name);
        let source = JobFile { path: format!("work/{name}"), mode: 0o600, content: code.as_bytes().to_vec() };
        Ok((vec!["sh".into(), "-c".into(), filled], Some(source)))
    }

    /// The file that runs a program in the surroundings of a container.
    fn enter(
        &self,
        container: &Container,
        env: &[(String, String)],
        mounts: &[MountedVolume],
    ) -> Result<String, Refusal> {
        let mut text = format!("# The surroundings of container {}.\n", container.name);
        text.push_str("export PATH=${PATH:-/usr/local/bin:/usr/bin:/bin}\n");
        if !self.site.preamble.is_empty() {
            text.push_str(self.site.preamble.trim_end());
            text.push('\n');
        }
        for (name, value) in env {
            let _ = writeln!(text, "export {name}={}", quoted(value));
        }
        let work = format!("{}/work", self.folder);
        let dir = container.working_dir.clone().filter(|dir| !dir.is_empty());
        if self.site.containers != ContainerRuntime::Apptainer {
            let _ = writeln!(text, "cd {} || exit 125", quoted(dir.as_deref().unwrap_or(&work)));
        } else {
            let _ = writeln!(text, "cd {} || exit 125", quoted(&work));
        }
        let image = container.image.clone().unwrap_or_default();
        let is_plain = image == SLURM_NO_IMAGE;
        match self.site.containers {
            ContainerRuntime::Apptainer if !is_plain => {
                text.push_str(&self.apptainer(container, &image, dir.as_deref(), mounts)?);
            }
            ContainerRuntime::Enroot if !is_plain => {
                let mut words = vec!["enroot".to_owned(), "start".to_owned()];
                for mount in mounts {
                    let flags = if mount.read_only { ":none:bind,ro" } else { "" };
                    let source = absolute(self.folder, &mount.source);
                    words.push("--mount".into());
                    words.push(quoted(&format!("{source}:{}{flags}", mount.target)));
                }
                words.push(quoted(&image));
                let _ = writeln!(text, "exec {} \"$@\"", words.join(" "));
            }
            _ => text.push_str("exec \"$@\"\n"),
        }
        Ok(text)
    }

    fn apptainer(
        &self,
        container: &Container,
        image: &str,
        dir: Option<&str>,
        mounts: &[MountedVolume],
    ) -> Result<String, Refusal> {
        let mut all = vec!["apptainer".to_owned(), "exec".to_owned()];
        if self.options.get("gres").is_some_and(|gres| gres.contains("gpu")) {
            all.push("--nv".into());
        }
        if let Some(dir) = dir {
            all.push("--pwd".into());
            all.push(quoted(dir));
        }
        for mount in mounts {
            let mode = if mount.read_only { ":ro" } else { "" };
            let source = absolute(self.folder, &mount.source);
            all.push("--bind".into());
            all.push(quoted(&format!("{source}:{}{mode}", mount.target)));
        }
        for key in ["slurm-job.vk.io/singularity-mounts", "slurm-job.vk.io/singularity-options"] {
            if let Some(more) = annotation(self.pod, key) {
                let more = words(more).map_err(|why| Refusal::annotation(key, why))?;
                all.extend(more.iter().map(|word| quoted(word)));
            }
        }
        let has_scheme = image.starts_with('/') || image.contains("://");
        let root = annotation(self.pod, "slurm-job.vk.io/image-root").unwrap_or_default();
        let image = if !root.is_empty() {
            format!("{root}{image}")
        } else if has_scheme {
            image.to_owned()
        } else {
            format!("docker://{image}")
        };
        all.push(quoted(&image));
        if container.command.as_ref().is_none_or(Vec::is_empty) {
            // The image says what runs, unless somebody else asks for a program.
            let run: Vec<String> = all
                .iter()
                .enumerate()
                .map(|(at, word)| if at == 1 { "run".into() } else { word.clone() })
                .collect();
            return Ok(format!("exec {} \"$@\"\n", run.join(" ")));
        }
        Ok(format!("exec {} \"$@\"\n", all.join(" ")))
    }

    /// What starts a container's tasks.
    fn launcher(
        &self,
        tasks: u64,
        mounts: &[MountedVolume],
        container: &Container,
    ) -> Result<String, Refusal> {
        let is_pyxis = self.site.containers == ContainerRuntime::Pyxis
            && container.image.as_deref() != Some(SLURM_NO_IMAGE);
        if tasks <= 1 && !is_pyxis {
            return Ok(String::new());
        }
        let mut all = vec!["srun".to_owned(), "--kill-on-bad-exit=1".to_owned()];
        if tasks <= 1 {
            all.push("--ntasks=1".into());
        }
        let key = "slurm-job.vk.io/mpi-flags";
        if let Some(more) = annotation(self.pod, key) {
            let more = words(more).map_err(|why| Refusal::annotation(key, why))?;
            all.extend(more.iter().map(|word| quoted(word)));
        }
        if is_pyxis {
            let image = container.image.clone().unwrap_or_default();
            all.push(quoted(&format!("--container-image={image}")));
            let mut list = vec![format!("{}:{}", self.folder, self.folder)];
            for mount in mounts {
                let mode = if mount.read_only { ":ro" } else { "" };
                list.push(format!("{}:{}{mode}", absolute(self.folder, &mount.source), mount.target));
            }
            all.push(quoted(&format!("--container-mounts={}", list.join(","))));
        }
        Ok(format!("{} ", all.join(" ")))
    }
}

fn annotation<'a>(pod: &'a Pod, key: &str) -> Option<&'a str> {
    pod.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

/// One word for a shell, whatever is in it.
pub fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests;
