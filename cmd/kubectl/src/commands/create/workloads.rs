//! Deployments, jobs and cron jobs.

use super::HowFlags;
use crate::connection::Connection;
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

/// `create deployment`.
#[derive(clap::Args)]
pub struct Deployment {
    name: String,
    /// The images to run; several make several containers.
    #[arg(long, required = true)]
    image: Vec<String>,
    /// How many pods.
    #[arg(long, short, default_value_t = 1)]
    replicas: i64,
    /// The port that the container answers on.
    #[arg(long)]
    port: Option<u16>,
    #[command(flatten)]
    how: HowFlags,
    /// The command to run instead of the image's.
    #[arg(last = true)]
    command: Vec<String>,
}

impl Deployment {
    pub fn object(self) -> Result<(Value, HowFlags)> {
        if self.image.len() > 1 && !self.command.is_empty() {
            bail!("cannot specify multiple --image options and command");
        }
        let labels = json!({"app": self.name});
        let mut containers: Vec<Value> = Vec::new();
        for image in &self.image {
            let base = container_name(image);
            let taken = containers.iter().any(|own| own["name"] == base);
            let name = if taken { format!("{base}-{}", containers.len()) } else { base };
            let mut container = json!({"name": name, "image": image, "resources": {}});
            if let Some(port) = self.port {
                container["ports"] = json!([{"containerPort": port}]);
            }
            if !self.command.is_empty() {
                container["command"] = self.command.clone().into();
            }
            containers.push(container);
        }
        let object = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": self.name, "labels": labels},
            "spec": {"replicas": self.replicas, "selector": {"matchLabels": labels}, "strategy": {},
                "template": {"metadata": {"labels": labels}, "spec": {"containers": containers}}},
        });
        Ok((object, self.how))
    }
}

/// `docker.io/library/nginx:1.25` is a container named `nginx`.
fn container_name(image: &str) -> String {
    let last = image.rsplit('/').next().unwrap_or(image);
    let name = last.split([':', '@']).next().unwrap_or(last);
    name.to_lowercase().replace(['_', '.'], "-")
}

/// `create job`.
#[derive(clap::Args)]
pub struct Job {
    name: String,
    /// The image to run.
    #[arg(long, required_unless_present = "from")]
    image: Option<String>,
    /// The cron job to take the template of, as cronjob/NAME.
    #[arg(long)]
    from: Option<String>,
    #[command(flatten)]
    how: HowFlags,
    /// The command to run instead of the image's.
    #[arg(last = true)]
    command: Vec<String>,
}

impl Job {
    pub async fn object(self, connection: &Connection) -> Result<(Value, HowFlags)> {
        let object = match (&self.image, &self.from) {
            (Some(_), Some(_)) => bail!("either --image or --from must be specified"),
            (_, Some(from)) => {
                let (kind, name) = from.split_once('/').context("--from: expected cronjob/NAME")?;
                if !matches!(kind.split('.').next(), Some("cronjob" | "cronjobs" | "cj")) {
                    bail!("from must be an existing cronjob");
                }
                let path = format!("/apis/batch/v1/namespaces/{}/cronjobs/{name}", connection.namespace);
                of_cron_job(&self.name, &connection.get(&path).await?)
            }
            (image, None) => {
                let template =
                    template(&self.name, image.as_deref().unwrap_or_default(), &self.command, "Never");
                json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": self.name},
                    "spec": {"template": template}})
            }
        };
        Ok((object, self.how))
    }
}

fn of_cron_job(name: &str, cron_job: &Value) -> Value {
    let template = &cron_job["spec"]["jobTemplate"];
    let mut metadata = json!({"name": name, "annotations": {"cronjob.kubernetes.io/instantiate": "manual"},
        "ownerReferences": [{"apiVersion": "batch/v1", "kind": "CronJob", "name": cron_job["metadata"]["name"],
            "uid": cron_job["metadata"]["uid"], "controller": true}]});
    for (key, value) in template["metadata"]["annotations"].as_object().into_iter().flatten() {
        metadata["annotations"][key] = value.clone();
    }
    if template["metadata"]["labels"].is_object() {
        metadata["labels"] = template["metadata"]["labels"].clone();
    }
    json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": template["spec"]})
}

fn template(name: &str, image: &str, command: &[String], restart: &str) -> Value {
    let mut container = json!({"name": name, "image": image, "resources": {}});
    if !command.is_empty() {
        container["command"] = command.into();
    }
    json!({"metadata": {}, "spec": {"containers": [container], "restartPolicy": restart}})
}

/// `create cronjob`.
#[derive(clap::Args)]
pub struct CronJob {
    name: String,
    /// The image to run.
    #[arg(long)]
    image: String,
    /// When, as in a crontab.
    #[arg(long)]
    schedule: String,
    /// OnFailure or Never.
    #[arg(long, default_value = "OnFailure")]
    restart: String,
    #[command(flatten)]
    how: HowFlags,
    /// The command to run instead of the image's.
    #[arg(last = true)]
    command: Vec<String>,
}

impl CronJob {
    pub fn object(self) -> Result<(Value, HowFlags)> {
        let object = json!({
            "apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": self.name},
            "spec": {"schedule": self.schedule, "jobTemplate": {"metadata": {"name": self.name}, "spec": {
                "template": template(&self.name, &self.image, &self.command, &self.restart)}}},
        });
        Ok((object, self.how))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containers_are_named_by_their_images() {
        assert_eq!(container_name("docker.io/library/nginx:1.25"), "nginx");
        assert_eq!(container_name("localhost:5000/My_App@sha256:00"), "my-app");
    }
}
