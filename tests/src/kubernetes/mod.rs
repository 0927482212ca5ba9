//! Kubernetes on this machine: its real control plane on loopback, a stand-in for a node, and namespaces for routers.

mod cluster;
mod kubelet;
mod namespace;
mod parts;

pub use cluster::Cluster;
pub use kubelet::{Access, IMAGE, Kubelet, Machine};
pub use namespace::{Namespace, template};
