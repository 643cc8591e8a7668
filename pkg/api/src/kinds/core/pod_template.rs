//! PodTemplate: a pod to be made, kept by itself.

use crate::kind::{Kind, column};
use crate::kinds::pod_spec::{default_template, validate_template};
use crate::names;
use crate::object::object_mut;
use crate::printing::{at, container_names_and_images, labels, name_column};
use k8s_openapi::api::core::v1::PodTemplate;

pub(crate) fn kind() -> Kind {
    Kind {
        validate_name: names::dns_subdomain_name,
        default: |object| {
            object_mut(object, "template");
            default_template(&mut object["template"]);
        },
        validate: |object, errors| validate_template(&object.get("template"), errors),
        columns: vec![
            name_column(),
            column("Containers", "string", |object, _| {
                container_names_and_images(at(object, "template.spec")).0.into()
            }),
            column("Images", "string", |object, _| {
                container_names_and_images(at(object, "template.spec")).1.into()
            }),
            column("Pod Labels", "string", |object, _| labels(at(object, "template.metadata.labels")).into()),
        ],
        ..Kind::new::<PodTemplate>().with_generation()
    }
}
