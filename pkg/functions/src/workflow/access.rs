//! What a run may do: what its service account may. It is asked before anything is done, in the account's name, and nothing is
//! done as somebody else.

use super::engine::Failure;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::api::PostParams;
use kube::{Api, Client};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::Duration;
use tokio::time::Instant;

/// Those who run a Workflow that names no service account are in this group besides: it may call the functions of its namespace.
const NAMELESS: &str = "system:minik8s:workflow-runs";
/// An answer is believed for so long.
const BELIEVED: Duration = Duration::from_secs(10);
/// So many answers are remembered.
const MOST_ANSWERS: usize = 10_000;

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Deed {
    /// To call the function of this name.
    Invoke(String),
    /// To create a Job.
    CreateJob,
}

/// Who asks: a namespace, and a service account of it, unless it is nameless.
pub type Account = (String, String);

/// Asks the API server, and remembers what it said.
pub struct Permissions {
    client: Client,
    answers: Mutex<HashMap<(Account, Deed), (Instant, bool)>>,
}

impl Permissions {
    /// Nothing is known yet.
    pub fn new(client: Client) -> Permissions {
        Permissions { client, answers: Mutex::default() }
    }

    /// Fails unless the account may do this in its own namespace.
    pub async fn check(&self, account: &Account, deed: &Deed) -> Result<(), Failure> {
        let question = (account.clone(), deed.clone());
        let now = Instant::now();
        let known = self.answers.lock().get(&question).filter(|(until, _)| *until > now).map(|(_, is)| *is);
        let is_allowed = match known {
            Some(is_allowed) => is_allowed,
            None => {
                let is_allowed = self.ask(account, deed).await?;
                let mut answers = self.answers.lock();
                if answers.len() >= MOST_ANSWERS {
                    answers.clear();
                }
                answers.insert(question, (now + BELIEVED, is_allowed));
                is_allowed
            }
        };
        if is_allowed {
            return Ok(());
        }
        let (namespace, name) = account;
        let what = match deed {
            Deed::Invoke(function) => {
                format!("create resource \"functions/invoke\" of function {function:?}")
            }
            Deed::CreateJob => "create resource \"jobs\" in API group \"batch\"".to_owned(),
        };
        let name = if name.is_empty() { "default" } else { name };
        let message = format!(
            "the run acts as User \"system:serviceaccount:{namespace}:{name}\", which cannot {what} in the namespace \
             {namespace:?}: give it a role, or name another `serviceAccountName`"
        );
        Err(Failure::new("Forbidden", message))
    }

    async fn ask(&self, account: &Account, deed: &Deed) -> Result<bool, Failure> {
        let reviews: Api<SubjectAccessReview> = Api::all(self.client.clone());
        let asked = reviews.create(&PostParams::default(), &review(account, deed)).await;
        let review = asked.map_err(|error| {
            Failure::new("Unavailable", format!("it cannot be found out what the run may do: {error}"))
        })?;
        Ok(review.status.is_some_and(|status| status.allowed))
    }
}

fn review((namespace, name): &Account, deed: &Deed) -> SubjectAccessReview {
    let mut groups = vec![
        "system:serviceaccounts".to_owned(),
        format!("system:serviceaccounts:{namespace}"),
        "system:authenticated".to_owned(),
    ];
    let own = match name.as_str() {
        "" => {
            groups.push(NAMELESS.to_owned());
            "default"
        }
        name => name,
    };
    let (group, resource, subresource, object) = match deed {
        Deed::Invoke(function) => ("minik8s.io", "functions", Some("invoke"), Some(function.clone())),
        Deed::CreateJob => ("batch", "jobs", None, None),
    };
    SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: Some(format!("system:serviceaccount:{namespace}:{own}")),
            groups: Some(groups),
            resource_attributes: Some(ResourceAttributes {
                group: Some(group.to_owned()),
                version: Some("v1".to_owned()),
                resource: Some(resource.to_owned()),
                subresource: subresource.map(str::to_owned),
                name: object,
                verb: Some("create".to_owned()),
                namespace: Some(namespace.clone()),
                ..ResourceAttributes::default()
            }),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    }
}
