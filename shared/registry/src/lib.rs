//! Registries of container images: the port [`Registry`](slipway_ports::Registry) over the OCI distribution
//! protocol (github.com/opencontainers/distribution-spec, "Pulling manifests").
//!
//! One question alone is asked: which digest a tag has. The HTTP client is the one that the AWS SDKs bring, so that a
//! function grows by nothing but this file; a room of its own, because the command line asks the same and has no SDK.
//!
//! Registries are asked without credentials: `registry.k8s.io`, `ghcr.io` and `public.ecr.aws` give a token to anybody.

mod oci;
mod reference;

pub use oci::{Mirror, OciRegistry};
