//! Writes the templates of each given spec into a folder, for cfn-lint and for reading:
//!
//! ```text
//! cargo run -p slipway-render --example render_all -- OUT examples/*.yaml
//! cfn-lint --ignore-checks W3010 -- OUT/*/*.json
//! ```
//!
//! W3010 warns of availability zone names. A spec names the zones, so that it renders the same bytes everywhere.
//!
//! The lock and the credentials' digests are invented, so the result cannot be launched.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;
use std::process::ExitCode;

use slipway_core::cluster::{Architecture, Cluster};
use slipway_core::digest::sha256_hex;
use slipway_core::release::Site;
use slipway_core::role::Role;
use slipway_render::lock::Lock;
use slipway_render::{Inputs, render};

#[allow(clippy::print_stderr, reason = "a program for a terminal")]
fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let out = arguments.next().ok_or("usage: render_all OUT SPEC…")?;
    for path in arguments {
        let text = std::fs::read(&path)?;
        let accepted =
            slipway_spec::parse(&text, None).map_err(|findings| lines(&path.to_string_lossy(), &findings))?;
        write(Path::new(&out), &accepted.cluster)?;
    }
    Ok(())
}

/// Writes `OUT/<cluster>/<stack>.json` and `OUT/<cluster>/<role>.config.json.txt`, whose suffix keeps cfn-lint from reading it as a
/// template.
fn write(out: &Path, cluster: &Cluster) -> Result<(), Box<dyn Error>> {
    let site = Site {
        asset_bucket: "slipway-assets-example".to_owned(),
        kms_key_arn: format!(
            "arn:aws:kms:{}:111122223333:key/00000000-0000-0000-0000-000000000000",
            cluster.region
        ),
        region: Some(cluster.region.clone()),
        issuer_bucket: Some("slipway-issuer".to_owned()),
        allowed: None,
    };
    let rendering = render(&Inputs::new(cluster, &lock(cluster), &credentials(cluster), &site))
        .map_err(|errors| lines(&cluster.name, &errors))?;
    let folder = out.join(&cluster.name);
    std::fs::create_dir_all(&folder)?;
    for stack in &rendering.stacks {
        std::fs::write(folder.join(format!("{}.json", stack.name)), &stack.body)?;
    }
    for (role, node) in &rendering.roles {
        std::fs::write(folder.join(format!("{role}.config.json.txt")), &node.config)?;
    }
    Ok(())
}

fn lock(cluster: &Cluster) -> Lock {
    let agent = [Architecture::Arm64, Architecture::X86_64].map(|one| (one, sha256_hex(b"agent"))).into();
    let mut lock = Lock { agent, ..Lock::default() };
    let missing = lock.missing(cluster);
    lock.pin_known(&missing);
    lock.images =
        missing.parameters.into_iter().map(|name| (name, "ami-0123456789abcdef0".to_owned())).collect();
    let digest = |reference: &String| format!("sha256:{}", sha256_hex(reference.as_bytes()));
    lock.addon_images = missing.addon_images.into_iter().map(|name| (name.clone(), digest(&name))).collect();
    lock.program_files =
        missing.program_files.into_keys().map(|url| (url.clone(), sha256_hex(url.as_bytes()))).collect();
    lock
}

fn credentials(cluster: &Cluster) -> BTreeMap<Role, String> {
    let members = cluster.etcd.members.iter().map(|member| Role::Etcd(member.index));
    let pools = cluster.pools.iter().map(|pool| Role::Pool(pool.name.clone()));
    let roles = members.chain([Role::Controller]).chain(pools);
    roles.map(|role| (role.clone(), sha256_hex(role.to_string().as_bytes()))).collect()
}

fn lines(subject: &str, findings: &[impl ToString]) -> String {
    let lines: Vec<String> =
        findings.iter().map(|finding| format!("{subject}: {}", finding.to_string())).collect();
    lines.join("\n")
}
