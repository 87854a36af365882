//! containerd, as Kubernetes wants it. The unit is the image's own, where containerd is.

use slipway_core::node::Base;
use slipway_core::software::{Program, SystemImage};

use super::image;
use crate::machine::{File, Furniture, Unit};
use crate::software::PROGRAMS;

const CONFIG: &str = "/etc/containerd/config.toml";
/// Where the kubelet finds it.
pub(super) const ENDPOINT: &str = "unix:///run/containerd/containerd.sock";

/// Its configuration and its unit; `gpu` is a runtime that pods get instead of runc, of which it is a wrapper.
pub(super) fn furniture(base: &Base, gpu: Option<&str>) -> Furniture {
    let config = config(image(base, SystemImage::Pause.as_str()), gpu);
    let installed = base.software.iter().any(|file| file.name == Program::Containerd);
    Furniture {
        files: vec![File::public(CONFIG, config)],
        units: vec![Unit { name: "containerd.service".to_owned(), content: installed.then(unit) }],
    }
}

/// The project's own, but for where its programs are: it starts shims and runc by their names.
fn unit() -> String {
    format!(
        "[Unit]
Description=containerd, which runs containers
After=network.target local-fs.target

[Service]
Environment=PATH=/{PROGRAMS}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
ExecStartPre=-modprobe overlay
ExecStart=/{PROGRAMS}/containerd
Type=notify
Delegate=yes
KillMode=process
Restart=always
RestartSec=5
LimitNPROC=infinity
LimitCORE=infinity
TasksMax=infinity
OOMScoreAdjust=-999

[Install]
WantedBy=multi-user.target
"
    )
}

/// Format 2 is read by containerd 1.7 and by 2.x, which brings it to its own.
fn config(image: &str, gpu: Option<&str>) -> String {
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
