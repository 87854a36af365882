//! The static pods of a controller: their names, and where the kubelet reads their manifests.

pub const MANIFESTS: &str = "/etc/kubernetes/manifests";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Program {
    ApiServer,
    ControllerManager,
    Scheduler,
}

impl Program {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::ApiServer => "kube-apiserver",
            Self::ControllerManager => "kube-controller-manager",
            Self::Scheduler => "kube-scheduler",
        }
    }
}

/// Their names, which are also the names of their manifests.
pub const STATIC_PODS: [&str; 3] =
    [Program::ApiServer.name(), Program::ControllerManager.name(), Program::Scheduler.name()];
