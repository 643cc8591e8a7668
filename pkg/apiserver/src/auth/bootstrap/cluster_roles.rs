//! The ClusterRoles that every cluster has, apart from those of controllers. Names and rules are upstream's (1.35,
//! with the features that are on by default).

use super::{EVENTS, READ, READ_WRITE, Terse, WRITE, named, rule, urls};

/// By name.
pub(super) const ROLES: &[(&str, &[Terse])] = &[
    ("cluster-admin", &[rule("*", "*", "*"), urls("*", "*")]),
    (
        "system:aggregate-to-admin",
        &[
            rule("create", "authorization.k8s.io", "localsubjectaccessreviews"),
            rule(READ_WRITE, "rbac.authorization.k8s.io", "rolebindings,roles"),
        ],
    ),
    (
        "system:aggregate-to-edit",
        &[
            rule(READ, "", "pods/attach,pods/exec,pods/portforward,pods/proxy,secrets,services/proxy"),
            rule("impersonate", "", "serviceaccounts"),
            rule(WRITE, "", "pods,pods/attach,pods/exec,pods/portforward,pods/proxy"),
            rule("create", "", "pods/eviction"),
            rule(
                WRITE,
                "",
                "configmaps,persistentvolumeclaims,replicationcontrollers,\
                replicationcontrollers/scale,secrets,serviceaccounts,services,services/proxy",
            ),
            rule("create", "", "serviceaccounts/token"),
            rule(WRITE, ",events.k8s.io", "events"),
            rule(
                WRITE,
                "apps",
                "daemonsets,deployments,deployments/rollback,deployments/scale,replicasets,\
                replicasets/scale,statefulsets,statefulsets/scale",
            ),
            rule(WRITE, "autoscaling", "horizontalpodautoscalers"),
            rule(WRITE, "batch", "cronjobs,jobs"),
            rule(
                WRITE,
                "extensions",
                "daemonsets,deployments,deployments/rollback,deployments/scale,ingresses,\
                networkpolicies,replicasets,replicasets/scale,replicationcontrollers/scale",
            ),
            rule(WRITE, "policy", "poddisruptionbudgets"),
            rule(WRITE, "networking.k8s.io", "ingresses,networkpolicies"),
            rule(READ_WRITE, "coordination.k8s.io", "leases"),
            rule(WRITE, "resource.k8s.io", "resourceclaims,resourceclaimtemplates"),
        ],
    ),
    (
        "system:aggregate-to-view",
        &[
            rule(
                READ,
                "",
                "configmaps,endpoints,persistentvolumeclaims,persistentvolumeclaims/status,pods,\
                replicationcontrollers,replicationcontrollers/scale,serviceaccounts,services,\
                services/status",
            ),
            rule(
                READ,
                "",
                "bindings,limitranges,namespaces/status,pods/log,pods/status,\
                replicationcontrollers/status,resourcequotas,resourcequotas/status",
            ),
            rule(READ, "", "namespaces"),
            rule(READ, ",events.k8s.io", "events"),
            rule(READ, "discovery.k8s.io", "endpointslices"),
            rule(
                READ,
                "apps",
                "controllerrevisions,daemonsets,daemonsets/status,deployments,deployments/scale,\
                deployments/status,replicasets,replicasets/scale,replicasets/status,\
                statefulsets,statefulsets/scale,statefulsets/status",
            ),
            rule(READ, "autoscaling", "horizontalpodautoscalers,horizontalpodautoscalers/status"),
            rule(READ, "batch", "cronjobs,cronjobs/status,jobs,jobs/status"),
            rule(
                READ,
                "extensions",
                "daemonsets,daemonsets/status,deployments,deployments/scale,deployments/status,\
                ingresses,ingresses/status,networkpolicies,replicasets,replicasets/scale,\
                replicasets/status,replicationcontrollers/scale",
            ),
            rule(READ, "policy", "poddisruptionbudgets,poddisruptionbudgets/status"),
            rule(READ, "networking.k8s.io", "ingresses,ingresses/status,networkpolicies"),
            rule(READ, "resource.k8s.io", "resourceclaims,resourceclaims/status,resourceclaimtemplates"),
        ],
    ),
    (
        "system:auth-delegator",
        &[
            rule("create", "authentication.k8s.io", "tokenreviews"),
            rule("create", "authorization.k8s.io", "subjectaccessreviews"),
        ],
    ),
    (
        "system:basic-user",
        &[
            rule("create", "authorization.k8s.io", "selfsubjectaccessreviews,selfsubjectrulesreviews"),
            rule("create", "authentication.k8s.io", "selfsubjectreviews"),
        ],
    ),
    (
        "system:certificates.k8s.io:certificatesigningrequests:nodeclient",
        &[rule("create", "certificates.k8s.io", "certificatesigningrequests/nodeclient")],
    ),
    (
        "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient",
        &[rule("create", "certificates.k8s.io", "certificatesigningrequests/selfnodeclient")],
    ),
    (
        "system:certificates.k8s.io:kube-apiserver-client-approver",
        &[named("approve", "certificates.k8s.io", "signers", "kubernetes.io/kube-apiserver-client")],
    ),
    (
        "system:certificates.k8s.io:kube-apiserver-client-kubelet-approver",
        &[named("approve", "certificates.k8s.io", "signers", "kubernetes.io/kube-apiserver-client-kubelet")],
    ),
    (
        "system:certificates.k8s.io:kubelet-serving-approver",
        &[named("approve", "certificates.k8s.io", "signers", "kubernetes.io/kubelet-serving")],
    ),
    (
        "system:certificates.k8s.io:legacy-unknown-approver",
        &[named("approve", "certificates.k8s.io", "signers", "kubernetes.io/legacy-unknown")],
    ),
    (
        "system:discovery",
        &[urls(
            "get",
            "/api,/api/*,/apis,/apis/*,/healthz,/livez,/openapi,/openapi/*,/readyz,/version,\
                /version/",
        )],
    ),
    (
        "system:heapster",
        &[rule(READ, "", "events,namespaces,nodes,pods"), rule(READ, "extensions", "deployments")],
    ),
    ("system:kube-aggregator", &[rule(READ, "", "endpoints,services")]),
    (
        "system:kube-controller-manager",
        &[
            EVENTS,
            rule("create", "coordination.k8s.io", "leases"),
            named("get,update", "coordination.k8s.io", "leases", "kube-controller-manager"),
            rule("create", "", "secrets,serviceaccounts"),
            rule("delete", "", "secrets"),
            rule("get", "", "configmaps,namespaces,secrets,serviceaccounts"),
            rule("update", "", "secrets,serviceaccounts"),
            rule("create", "authentication.k8s.io", "tokenreviews"),
            rule("create", "authorization.k8s.io", "subjectaccessreviews"),
            rule("list,watch", "*", "*"),
            rule("create", "", "serviceaccounts/token"),
        ],
    ),
    ("system:kube-dns", &[rule("list,watch", "", "endpoints,services")]),
    (
        "system:kube-scheduler",
        &[
            EVENTS,
            rule("create", "coordination.k8s.io", "leases"),
            named("get,list,update,watch", "coordination.k8s.io", "leases", "kube-scheduler"),
            rule(READ_WRITE, "coordination.k8s.io", "leasecandidates"),
            rule(READ, "", "nodes"),
            rule("delete,get,list,watch", "", "pods"),
            rule("create", "", "bindings,pods/binding"),
            rule("patch,update", "", "pods/status"),
            rule(READ, "", "replicationcontrollers,services"),
            rule(READ, "apps,extensions", "replicasets"),
            rule(READ, "apps", "statefulsets"),
            rule(READ, "policy", "poddisruptionbudgets"),
            rule(READ, "", "persistentvolumeclaims,persistentvolumes"),
            rule("create", "authentication.k8s.io", "tokenreviews"),
            rule("create", "authorization.k8s.io", "subjectaccessreviews"),
            rule(READ, "storage.k8s.io", "csinodes"),
            rule(READ, "storage.k8s.io", "volumeattachments"),
            rule(READ, "", "namespaces"),
            rule(READ, "storage.k8s.io", "csidrivers"),
            rule(READ, "storage.k8s.io", "csistoragecapacities"),
            rule(READ, "resource.k8s.io", "deviceclasses"),
            rule("get,list,patch,update,watch", "resource.k8s.io", "resourceclaims"),
            rule("get,list,patch,update,watch", "resource.k8s.io", "resourceclaims/status"),
            rule("update", "", "pods/finalizers"),
            rule(READ, "resource.k8s.io", "resourceslices"),
        ],
    ),
    (
        "system:kubelet-api-admin",
        &[
            rule(READ, "", "nodes"),
            rule("proxy", "", "nodes"),
            rule("*", "", "nodes/log,nodes/metrics,nodes/proxy,nodes/stats"),
            rule("*", "", "nodes/configz,nodes/healthz,nodes/pods"),
        ],
    ),
    (
        "system:monitoring",
        &[
            urls("get", "/healthz,/healthz/*,/livez,/livez/*,/metrics,/metrics/slis,/readyz,/readyz/*"),
            rule("get", "", "nodes/metrics"),
        ],
    ),
    (
        "system:node",
        &[
            rule("create", "authentication.k8s.io", "tokenreviews"),
            rule("create", "authorization.k8s.io", "localsubjectaccessreviews,subjectaccessreviews"),
            rule(READ, "", "services"),
            rule("create,get,list,watch", "", "nodes"),
            rule("patch,update", "", "nodes/status"),
            rule("patch,update", "", "nodes"),
            EVENTS,
            rule(READ, "", "pods"),
            rule("create,delete", "", "pods"),
            rule("patch,update", "", "pods/status"),
            rule("create", "", "pods/eviction"),
            rule(READ, "", "configmaps,secrets"),
            rule("get", "", "persistentvolumeclaims,persistentvolumes"),
            rule("get", "", "endpoints"),
            rule("create,get,list,watch", "certificates.k8s.io", "certificatesigningrequests"),
            rule("create,delete,get,patch,update", "coordination.k8s.io", "leases"),
            rule("get", "storage.k8s.io", "volumeattachments"),
            rule("create", "", "serviceaccounts/token"),
            rule("get,patch,update", "", "persistentvolumeclaims/status"),
            rule(READ, "storage.k8s.io", "csidrivers"),
            rule("create,delete,get,patch,update", "storage.k8s.io", "csinodes"),
            rule(READ, "node.k8s.io", "runtimeclasses"),
            rule("get", "resource.k8s.io", "resourceclaims"),
            rule("deletecollection", "resource.k8s.io", "resourceslices"),
            rule("get", "", "serviceaccounts"),
        ],
    ),
    (
        "system:node-bootstrapper",
        &[rule("create,get,list,watch", "certificates.k8s.io", "certificatesigningrequests")],
    ),
    ("system:node-problem-detector", &[rule("get", "", "nodes"), rule("patch", "", "nodes/status"), EVENTS]),
    (
        "system:node-proxier",
        &[
            rule("list,watch", "", "endpoints,services"),
            rule(READ, "", "nodes"),
            EVENTS,
            rule("list,watch", "networking.k8s.io", "servicecidrs"),
            rule("list,watch", "discovery.k8s.io", "endpointslices"),
        ],
    ),
    (
        "system:persistent-volume-provisioner",
        &[
            rule("create,delete,get,list,watch", "", "persistentvolumes"),
            rule("get,list,update,watch", "", "persistentvolumeclaims"),
            rule(READ, "storage.k8s.io", "storageclasses"),
            rule("watch", "", "events"),
            EVENTS,
        ],
    ),
    ("system:public-info-viewer", &[urls("get", "/healthz,/livez,/readyz,/version,/version/")]),
    (
        "system:service-account-issuer-discovery",
        &[urls(
            "get",
            "/.well-known/openid-configuration,/.well-known/openid-configuration/,\
                /openid/v1/jwks,/openid/v1/jwks/",
        )],
    ),
    (
        "system:volume-scheduler",
        &[
            rule("get,list,patch,update,watch", "", "persistentvolumes"),
            rule(READ, "storage.k8s.io", "storageclasses"),
            rule("get,list,patch,update,watch", "", "persistentvolumeclaims"),
        ],
    ),
];

/// Our own kinds, for everybody who may view or edit, and for the node's nginx. Ingresses' certificates it gets
/// by name, from the node authorizer.
pub(super) const OWN: &[(&str, &[Terse])] = &[
    (
        "minik8s:aggregate-to-edit",
        &[
            rule(WRITE, "minik8s.io", "dnses,functions,workflowruns,workflows"),
            rule("create", "minik8s.io", "functions/invoke,workflowruns/approve,workflows/run"),
            // Made by knative, of whoever may invoke. What is in them may be nothing for those who only look.
            rule("delete,deletecollection,get,list,watch", "minik8s.io", "functioncalls"),
        ],
    ),
    (
        "minik8s:aggregate-to-view",
        &[rule(
            READ,
            "minik8s.io",
            "dnses,dnses/status,functions,functions/log,functions/status,workflowruns,workflowruns/status,workflows,\
             workflows/status,workflowsteps,workflowvalues",
        )],
    ),
    (
        "minik8s:knative",
        &[
            rule(READ, "minik8s.io", "functions,workflowruns,workflows,workflowsteps,workflowvalues"),
            rule("create,delete,deletecollection", "minik8s.io", "workflowruns,workflowsteps,workflowvalues"),
            rule("patch,update", "minik8s.io", "workflowruns/status"),
            rule("create,delete,get,list,watch", "batch", "jobs"),
            rule("patch,update", "minik8s.io", "functioncalls/status,functions/finalizers,functions/status"),
            rule("create,delete,get,list,watch", "minik8s.io", "functioncalls"),
            rule("create,delete,get,list,update,watch", "apps", "controllerrevisions"),
            // A function hears of what its service account may hear of, and of nothing else: it is asked as that.
            rule("impersonate", "", "serviceaccounts"),
            rule("create,delete,get,list,watch", "", "pods"),
            rule("get", "", "pods/log"),
            rule("create", "authentication.k8s.io", "tokenreviews"),
            rule("create", "authorization.k8s.io", "subjectaccessreviews"),
            EVENTS,
        ],
    ),
    ("minik8s:workflow-runs", &[rule("create", "minik8s.io", "functions/invoke")]),
    (
        "minik8s:node-gateway",
        &[
            rule("list,watch", "minik8s.io", "dnses"),
            rule("patch,update", "minik8s.io", "dnses/status"),
            rule("list,watch", "networking.k8s.io", "ingressclasses,ingresses"),
            rule("patch,update", "networking.k8s.io", "ingresses/status"),
        ],
    ),
];
