//! The ConfigMaps and Secrets that a pod names, asked of the apiserver when its job is made: a job takes them along, and
//! is not told of later changes.

use super::contents::{self, PodData};
use super::node::PodObjects;
use crate::objects::Data;
use async_trait::async_trait;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube::{Api, Client};

/// An apiserver; without one pods name nothing that there is.
pub struct ApiObjects(pub Option<Client>);

#[async_trait]
impl PodObjects for ApiObjects {
    async fn of(&self, pod: &Pod) -> Result<PodData, String> {
        let Some(client) = &self.0 else { return Ok(PodData::default()) };
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let config_maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
        let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
        let failed = |kind: &'static str, name: &str, error: &kube::Error| {
            format!("{kind} \"{name}\": {}", crate::error::chain(error))
        };
        let (maps, named_secrets) = contents::named(pod);
        let mut data = PodData::default();
        for name in maps {
            let found =
                config_maps.get_opt(&name).await.map_err(|error| failed("configmap", &name, &error))?;
            if let Some(found) = found {
                let mut values: std::collections::BTreeMap<String, Vec<u8>> = Default::default();
                values.extend(
                    found.data.unwrap_or_default().into_iter().map(|(key, text)| (key, text.into_bytes())),
                );
                values.extend(
                    found.binary_data.unwrap_or_default().into_iter().map(|(key, bytes)| (key, bytes.0)),
                );
                data.config_maps.insert(name, Data { data: values, ..Data::default() });
            }
        }
        for name in named_secrets {
            let found = secrets.get_opt(&name).await.map_err(|error| failed("secret", &name, &error))?;
            if let Some(found) = found {
                let values = found.data.unwrap_or_default().into_iter().map(|(key, bytes)| (key, bytes.0));
                data.secrets.insert(name, Data { data: values.collect(), ..Data::default() });
            }
        }
        Ok(data)
    }
}
