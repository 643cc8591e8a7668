//! Approval of kubelets' client certificates: of new machines with a bootstrap token, and of nodes that renew theirs.
//!
//! What a request is, is read from it; whether its user may have it, the server is asked (SubjectAccessReview), so
//! that ordinary roles decide.

use super::{KUBELET_CLIENT, has, is_issued, kubelet_client, parse, usages};
use crate::runtime::{Context, Controller, Driver, Plan, Task, Write};
use client::{Cache, Key};
use jiff::Timestamp;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::PostParams;
use kube::{Api, Client};
use pki::Facts;
use std::sync::Arc;

/// What a request may be approved as: the subresource that one must be allowed to create, and what is told then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Recognition {
    permission: &'static str,
    message: &'static str,
}

const SELF: Recognition = Recognition {
    permission: "selfnodeclient",
    message: "Auto approving self kubelet client certificate after SubjectAccessReview.",
};
const NODE: Recognition = Recognition {
    permission: "nodeclient",
    message: "Auto approving kubelet client certificate after SubjectAccessReview.",
};

/// As what the request can be approved, in the order to try.
fn recognize(request: &CertificateSigningRequest, facts: &Facts) -> Vec<Recognition> {
    let is_node =
        request.spec.signer_name == KUBELET_CLIENT && kubelet_client(facts, &usages(request)).is_ok();
    let is_self = request.spec.username.as_deref() == Some(facts.common_name.as_str());
    let mut all = Vec::new();
    all.extend((is_node && is_self).then_some(SELF));
    all.extend(is_node.then_some(NODE));
    all
}

struct View {
    request: Arc<CertificateSigningRequest>,
    allowed: Recognition,
}

fn plan(view: &View, now: Timestamp) -> Plan {
    let mut next = CertificateSigningRequest::clone(&view.request);
    let conditions = next.status.get_or_insert_default().conditions.get_or_insert_default();
    conditions.push(CertificateSigningRequestCondition {
        type_: "Approved".to_owned(),
        status: "True".to_owned(),
        reason: Some("AutoApproved".to_owned()),
        message: Some(view.allowed.message.to_owned()),
        last_update_time: Some(Time(now)),
        last_transition_time: Some(Time(now)),
    });
    Plan { writes: vec![Write::update(&next).on("approval")], ..Plan::default() }
}

struct Approver {
    client: Client,
    requests: Cache<CertificateSigningRequest>,
}

/// Makes it.
pub fn start(context: &Context) -> Task {
    let requests: Cache<CertificateSigningRequest> = context.informers.cache();
    let controller = Approver { client: context.client.clone(), requests: requests.clone() };
    Driver::new(context, controller).owns(&requests).task()
}

impl Controller for Approver {
    type View = View;

    async fn observe(&self, key: &Key) -> kube::Result<Option<View>> {
        let Some(request) = self.requests.get(key) else { return Ok(None) };
        if is_issued(&request) || has(&request, "Approved") || has(&request, "Denied") {
            return Ok(None);
        }
        let Some(parsed) = parse(&request) else { return Ok(None) };
        for recognition in recognize(&request, &parsed.facts) {
            if self.may(&request, recognition.permission).await? {
                return Ok(Some(View { request, allowed: recognition }));
            }
        }
        Ok(None)
    }

    fn plan(&self, view: &View, now: Timestamp) -> Plan {
        plan(view, now)
    }
}

impl Approver {
    async fn may(&self, request: &CertificateSigningRequest, subresource: &str) -> kube::Result<bool> {
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: request.spec.username.clone(),
                uid: request.spec.uid.clone(),
                groups: request.spec.groups.clone(),
                extra: request.spec.extra.clone(),
                resource_attributes: Some(ResourceAttributes {
                    group: Some("certificates.k8s.io".to_owned()),
                    resource: Some("certificatesigningrequests".to_owned()),
                    subresource: Some(subresource.to_owned()),
                    verb: Some("create".to_owned()),
                    version: Some("*".to_owned()),
                    ..ResourceAttributes::default()
                }),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        };
        let reviews: Api<SubjectAccessReview> = Api::all(self.client.clone());
        let answer = reviews.create(&PostParams::default(), &review).await?;
        Ok(answer.status.is_some_and(|status| status.allowed))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::request;
    use super::*;
    use serde_json::json;

    const CLIENT_USAGES: [&str; 2] = ["digital signature", "client auth"];

    #[test]
    fn nodes_that_renew_and_machines_that_join_are_told_apart() {
        let nodes = &["system:nodes"];
        let of = |signer: &str, name: &str| request(signer, name, nodes, &[], &CLIENT_USAGES, json!({}));
        let cases = [
            ("renews", of(KUBELET_CLIENT, "system:node:n1"), vec![SELF, NODE]),
            ("joins", of(KUBELET_CLIENT, "system:node:n2"), vec![NODE]),
            ("for another signer", of(super::super::CLIENT, "system:node:n1"), vec![]),
            ("of nobody", of(KUBELET_CLIENT, "bob"), vec![]),
        ];
        for (name, request, expected) in cases {
            let facts = parse(&request).unwrap().facts;
            assert_eq!(recognize(&request, &facts), expected, "{name}");
        }
    }

    #[test]
    fn an_approval_says_why() {
        let request =
            request(KUBELET_CLIENT, "system:node:n1", &["system:nodes"], &[], &CLIENT_USAGES, json!({}));
        let view = View { request: Arc::new(request), allowed: NODE };
        let plan = plan(&view, "2026-01-01T00:00:00Z".parse().unwrap());
        let condition = &plan.writes[0].body["status"]["conditions"][0];
        assert_eq!(plan.writes[0].target.subresource, "approval");
        assert_eq!(condition["reason"], "AutoApproved");
        assert_eq!(condition["message"], NODE.message);
    }
}
