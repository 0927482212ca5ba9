//! Files that containers get: kubeconfig, secrets, configuration.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::{ConfigMap, Container, Pod, Secret, ServiceAccount};
use kube::ResourceExt;
use kube::api::{Api, PostParams};

use super::Kubelet;

impl Kubelet {
    /// The kubeconfig file of the container's service account; `None` for the default account, which has no rights.
    pub(super) async fn access(&self, uid: &str, pod: &Pod) -> Result<Option<PathBuf>> {
        let spec = pod.spec.as_ref().context("a pod without spec")?;
        let account = spec.service_account_name.as_deref().unwrap_or("default");
        if account == "default" || spec.automount_service_account_token == Some(false) {
            return Ok(None);
        }
        let namespace = pod.namespace().unwrap_or_default();
        let accounts = Api::<ServiceAccount>::namespaced(self.client.clone(), &namespace);
        let asked = TokenRequest::default();
        let made = accounts.create_token_request(account, &PostParams::default(), &asked).await?;
        let token = made.status.context("no token")?.token;
        let folder = self.files.path().join(uid);
        fs::create_dir_all(&folder)?;
        let file = folder.join("kubeconfig.json");
        fs::write(&file, (self.kubeconfig)(&token, &namespace))?;
        Ok(Some(file))
    }

    /// Directories with the secrets and configuration that the container mounts, and their mount paths.
    pub(super) async fn mounts(&self, uid: &str, pod: &Pod, container: &Container) -> Result<Vec<(String, PathBuf)>> {
        let secrets = Api::<Secret>::namespaced(self.client.clone(), &pod.namespace().unwrap_or_default());
        let maps = Api::<ConfigMap>::namespaced(self.client.clone(), &pod.namespace().unwrap_or_default());
        let mut mounts = Vec::new();
        for mount in container.volume_mounts.iter().flatten() {
            let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
            let volume = volumes.into_iter().find(|volume| volume.name == mount.name);
            let secret = volume.and_then(|volume| volume.secret.as_ref()?.secret_name.clone());
            let map = volume.and_then(|volume| Some(volume.config_map.as_ref()?.name.clone()));
            let files: BTreeMap<String, Vec<u8>> = match (secret, map) {
                (Some(name), _) => {
                    let data = secrets.get(&name).await?.data.unwrap_or_default();
                    data.into_iter().map(|(key, value)| (key, value.0)).collect()
                }
                (None, Some(name)) => {
                    let data = maps.get(&name).await?.data.unwrap_or_default();
                    data.into_iter().map(|(key, value)| (key, value.into_bytes())).collect()
                }
                (None, None) => continue,
            };
            let folder = self.files.path().join(uid).join(&mount.name);
            fs::create_dir_all(&folder)?;
            for (key, value) in files {
                fs::write(folder.join(key), value)?;
            }
            mounts.push((mount.mount_path.clone(), folder));
        }
        Ok(mounts)
    }
}
