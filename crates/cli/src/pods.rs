//! The router's settings for builders in pods.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::anyhow;
use clap::Args;
use router::{KubernetesConfig, Source, check_template};
use service::TicketKeys;

use crate::failure::Failure;

/// Each flag is a setting, like those of [`crate::router::Router`].
#[derive(Debug, Args)]
pub struct Pods {
    /// With --builders kubernetes: file with the pod template of builders, as JSON
    #[arg(long, value_name = "FILE")]
    pub builder_template: Option<PathBuf>,
    /// With --builders kubernetes: the least memory of a builder, as in 4GB; without --builder-min-memory and --builder-max-memory all
    /// builders have that of the template
    #[arg(long, value_name = "SIZE", value_parser = service::parse_size, requires = "builder_max_memory")]
    pub builder_min_memory: Option<u64>,
    /// With --builders kubernetes: the most memory of a builder
    #[arg(long, value_name = "SIZE", value_parser = service::parse_size, requires = "builder_min_memory")]
    pub builder_max_memory: Option<u64>,
    /// With --builders kubernetes: the namespace of the pods [default: that of the service account]
    #[arg(long, value_name = "NAME")]
    pub namespace: Option<String>,
    /// With --builders kubernetes: prefix of pods' names; routers with the same prefix share --max-builders
    #[arg(long, value_name = "NAME", default_value = "lantern-index")]
    pub instance: String,
    /// With --builders kubernetes: the name of this router's own pod
    #[arg(long, value_name = "NAME")]
    pub identity: Option<String>,
    /// With --builders kubernetes: the Deployment that owns the pods, which are deleted with it
    #[arg(long, value_name = "NAME")]
    pub owner: Option<String>,
}

impl Pods {
    /// The source of builders that the settings describe.
    pub fn source(&self, ticket_keys: Option<Arc<TicketKeys>>) -> Result<Source, Failure> {
        let need = |what: &str| Failure::usage(anyhow!("--builders kubernetes needs {what}"));
        let memory = self.builder_min_memory.zip(self.builder_max_memory).unwrap_or_default();
        if memory.0 > memory.1 {
            return Err(Failure::usage(anyhow!("the least memory of a builder is more than the most")));
        }
        let template = self.builder_template.clone().ok_or_else(|| need("--builder-template"))?;
        check_template(&template).map_err(Failure::usage)?;
        let config = KubernetesConfig {
            template,
            namespace: self.namespace.clone(),
            instance: self.instance.clone(),
            identity: self.identity.clone().ok_or_else(|| need("--identity, the name of the router's own pod"))?,
            owner: self.owner.clone(),
            ticket_keys: ticket_keys.ok_or_else(|| need("--ticket-key"))?,
        };
        Ok(Source::Kubernetes(config, memory))
    }
}
