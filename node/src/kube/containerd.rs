//! containerd, as Kubernetes wants it. The unit is the image's own.

use crate::machine::{File, Furniture, Unit};

const CONFIG: &str = "/etc/containerd/config.toml";
/// Where the kubelet finds it.
pub(super) const ENDPOINT: &str = "unix:///run/containerd/containerd.sock";

/// The image of the container that holds a pod's namespaces, by minor: `PauseVersion` in kubeadm's `constants.go`.
fn sandbox_image(minor: u16) -> &'static str {
    match minor {
        ..=35 => "registry.k8s.io/pause:3.10.1",
        _ => "registry.k8s.io/pause:3.10.2",
    }
}

/// Its configuration; `gpu` is a runtime that pods get instead of runc, of which it is a wrapper.
pub(super) fn furniture(minor: u16, gpu: Option<&str>) -> Furniture {
    let config = config(minor, gpu);
    Furniture {
        files: vec![File::public(CONFIG, config)],
        units: vec![Unit { name: "containerd.service".to_owned(), content: None }],
    }
}

/// Format 2 is read by containerd 1.7 and by 2.x, which brings it to its own.
fn config(minor: u16, gpu: Option<&str>) -> String {
    let image = sandbox_image(minor);
    let default = gpu.unwrap_or("runc");
    let mut config = format!(
        r#"version = 2

[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{image}"

[plugins."io.containerd.grpc.v1.cri".registry]
config_path = "/etc/containerd/certs.d"

[plugins."io.containerd.grpc.v1.cri".containerd]
default_runtime_name = "{default}"
{}"#,
        runtime("runc", None),
    );
    if let Some(gpu) = gpu {
        config.push_str(&runtime(gpu, Some(&format!("/usr/bin/{gpu}-container-runtime"))));
    }
    config
}

fn runtime(name: &str, binary: Option<&str>) -> String {
    let binary = binary.map(|path| format!("BinaryName = \"{path}\"\n")).unwrap_or_default();
    format!(
        r#"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.{name}]
runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.{name}.options]
SystemdCgroup = true
{binary}"#
    )
}
