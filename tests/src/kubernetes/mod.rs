//! Kubernetes on this machine: a real control plane on loopback, a stand-in for kubelets, and namespaces for routers.

mod cluster;
mod kubelet;
mod namespace;
mod parts;

pub use cluster::Cluster;
pub use kubelet::{Access, IMAGE, Kubelet, Machine};
pub use namespace::{Namespace, template};
