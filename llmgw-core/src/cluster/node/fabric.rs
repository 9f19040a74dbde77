//! A network that shards may span, as a node sees its end of it.

use serde::{Deserialize, Serialize};

/// A node's port on a fast network.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Fabric {
    /// Of what kind it is: [`Fabric::INFINIBAND`], [`Fabric::ROCE`] or [`Fabric::ETHERNET`].
    pub kind: String,
    /// Which network it is: nodes that name the same one reach each other. Absent when the port has no address
    /// that tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The port, such as `mlx5_0/1` or `ens1f0np0`.
    pub port: String,
    /// What it carries, in Gbit/s; absent when the kernel does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gbps: Option<u32>,
    /// Whether it carries data now.
    pub up: bool,
}

impl Fabric {
    /// InfiniBand.
    pub const INFINIBAND: &str = "infiniband";
    /// RDMA over Ethernet.
    pub const ROCE: &str = "roce";
    /// Ethernet without RDMA.
    pub const ETHERNET: &str = "ethernet";
}
