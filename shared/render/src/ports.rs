//! The ports of nodes. Security groups and node configurations must agree, so both take them from here.

/// etcd's client port.
pub(super) const ETCD_CLIENT: u16 = slipway_core::members::CLIENT_PORT;
/// etcd's peer port.
pub(super) const ETCD_PEER: u16 = slipway_core::members::PEER_PORT;
/// The API server on each controller.
pub(super) const API_SERVER: u16 = 6443;
/// The API on its load balancers.
pub(super) const API_PUBLIC: u16 = 443;
/// The kubelet's API, for logs, exec and metrics.
pub(super) const KUBELET: u16 = 10250;
/// VXLAN over UDP on Linux' default port, which flannel and Cilium use as well: the pod network between nodes.
pub(super) const POD_NETWORK: u16 = 8472;
/// SSH, closed unless the spec names ranges.
pub(super) const SSH: u16 = 22;
