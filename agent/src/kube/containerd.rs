//! containerd's configuration. Its unit is the image's own, unless the agent installs containerd.

use slipway_core::node::Base;
use slipway_core::software::{Program, SystemImage};

use super::image;
use crate::machine::{File, Setup, Unit};
use crate::software::PROGRAMS;

const CONFIG: &str = "/etc/containerd/config.toml";
pub(super) const ENDPOINT: &str = "unix:///run/containerd/containerd.sock";

/// Its files and its unit. `gpu` names a runtime that wraps runc and becomes the default.
pub(super) fn setup(base: &Base, gpu: Option<&str>) -> Setup {
    let config = config(&pinnable(image(base, SystemImage::Pause.as_str())), gpu);
    let installed = base.software.iter().any(|file| file.name == Program::Containerd);
    Setup {
        files: vec![File::public(CONFIG, config)],
        units: vec![Unit { name: "containerd.service".to_owned(), content: installed.then(unit) }],
    }
}

/// `repository@digest` for `repository:tag@digest`. The kubelet's garbage collection spares an image that containerd has pinned, and
/// containerd pins the sandbox image if its name in the configuration equals the normalized name of what it pulls, which has no tag
/// beside a digest (containerd `internal/cri/server/images/image_pull.go`: `ParseDockerRef`, `getLabels`).
fn pinnable(image: &str) -> String {
    let Some((name, digest)) = image.split_once('@') else { return image.to_owned() };
    // A colon before the last slash is a registry's port.
    let repository = match name.rsplit_once(':') {
        Some((repository, tag)) if !tag.contains('/') => repository,
        Some(_) | None => name,
    };
    format!("{repository}@{digest}")
}

/// The unit of the containerd project, except for paths and open files: containerd finds shims and runc in `PATH`, and containers inherit its
/// limits. systemd's soft limit of 1,024 is too small for proxies and databases, and without a limit programs that close all descriptors take
/// gigabytes; these are the numbers of EKS (amazon-eks-ami `nodeadm/internal/containerd/base-runtime-spec.json`, issue 1746, PR 1535).
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
LimitNOFILE=65536:1048576
LimitNPROC=infinity
LimitCORE=infinity
TasksMax=infinity
OOMScoreAdjust=-999

[Install]
WantedBy=multi-user.target
"
    )
}

/// containerd 1.7 reads version 2, and 2.x migrates it.
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

#[cfg(test)]
mod tests {
    use super::pinnable;

    #[test]
    fn containerd_is_given_the_pause_image_by_the_name_under_which_it_pins_it() {
        let digest = "sha256:5e7aff91bd62e19e53bbbbeda74e9e9eb671ebeb3e9eee5f2d4c074895da0cf4";
        for (image, name) in [
            ("registry.k8s.io/pause:3.10.2@", "registry.k8s.io/pause@"),
            (
                "mirror.example.com:5000/registry.k8s.io/pause:3.10.2@",
                "mirror.example.com:5000/registry.k8s.io/pause@",
            ),
            ("mirror.example.com:5000/pause@", "mirror.example.com:5000/pause@"),
        ] {
            assert_eq!(pinnable(&format!("{image}{digest}")), format!("{name}{digest}"));
        }
        assert_eq!(pinnable("registry.k8s.io/pause:3.10.2"), "registry.k8s.io/pause:3.10.2");
    }
}
