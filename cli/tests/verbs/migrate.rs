//! `slipway migrate kube-aws`.

use std::os::unix::fs::{PermissionsExt as _, symlink};

use super::*;

const OLD: &str = "\
clusterName: old
s3URI: s3://assets/old
region: us-west-1
kubernetesVersion: v1.15.5
externalDNSName: api.old.example.com
hostedZoneId: Z123
availabilityZone: us-west-1a
containerRuntime: docker
worker:
  nodePools:
  - name: pool-1
    spotFleet: {targetCapacity: 3}
";

/// Where files lie, and what is in them.
fn everything(place: &Place, folder: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found: Vec<(PathBuf, Vec<u8>)> = Vec::new();
    for entry in std::fs::read_dir(place.path(folder)).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(everything(place, path.strip_prefix(place.dir.path()).unwrap().to_str().unwrap()));
        } else {
            found.push((path.clone(), std::fs::read(&path).unwrap_or_default()));
        }
    }
    found.sort();
    found
}

/// A kube-aws directory with its credentials: an authority, and leaves that share one key, as kube-aws made them.
fn old() -> Place {
    let place = Place::new();
    place.write("old/cluster.yaml", OLD);
    let openssl = |args: &str| {
        std::fs::create_dir_all(place.path("old/credentials")).unwrap();
        let run = Command::new("openssl")
            .args(args.split_whitespace())
            .current_dir(place.path("old/credentials"))
            .output()
            .unwrap();
        assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    };
    openssl("req -x509 -newkey rsa:2048 -nodes -keyout ca-key.pem -out ca.pem -subj /CN=kube-ca -days 3000");
    openssl("genrsa -out admin-key.pem 2048");
    std::fs::copy(place.path("old/credentials/admin-key.pem"), place.path("old/credentials/worker-key.pem"))
        .unwrap();
    place.write("old/credentials/tokens.csv", "secret-token,admin,1\n");
    place.write("old/credentials/tokens.csv.enc", "AQICAHh\n");
    place.write("old/credentials/etcd-key.pem.enc", "AQICAHh\n");
    symlink("ca.pem", place.path("old/credentials/worker-ca.pem")).unwrap();
    symlink("gone.pem", place.path("old/credentials/etcd-trusted-ca.pem")).unwrap();
    symlink("/etc/hostname", place.path("old/credentials/kiam-ca.pem")).unwrap();
    place
}

#[test]
fn a_directory_of_kube_aws_becomes_ours_and_stays_as_it_was() {
    let place = old();
    let before = everything(&place, "old");
    let run = place.run("migrate kube-aws old --out new");
    assert_eq!(run.code, 0, "{}", run.output());
    assert_eq!(everything(&place, "old"), before, "kube-aws' directory was touched");
    for piece in [
        "spotFleet",
        "`kubernetesVersion`",
        "admin-key.pem, worker-key.pem are one and the same key",
        "a link to ca.pem",
        "gone.pem, which is not there",
        "/etc/hostname, outside the directory",
        "etcd-key.pem.enc`: encrypted with KMS",
        "`ca.pem`: carried over as import/ca.pem",
        "the first rendering imports it",
        "openssl pkcs8 -topk8",
    ] {
        assert!(run.stdout.contains(piece), "{piece} is not in\n{}", run.stdout);
    }
    // P9: what is told holds no secret.
    assert!(!run.stdout.contains("secret-token") && !place.read("new/MIGRATION.md").contains("secret-token"));
    assert_eq!(place.run("validate new/cluster.yaml").code, 0);
    assert_eq!(place.read("new/import/ca.pem"), place.read("old/credentials/ca.pem"));
    assert_eq!(place.read("new/import/ca-key.pem"), place.read("old/credentials/ca-key.pem"));
    let mode = std::fs::metadata(place.path("new/import/ca-key.pem")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let imported = std::fs::read_dir(place.path("new/import")).unwrap().count();
    assert_eq!(imported, 2, "leaves are made anew");
    // The CA really is carried over: what is rendered trusts it.
    let run = place.run("render new/cluster.yaml --out rendered");
    assert_eq!(run.code, 0, "{}", run.output());
    let manifest: serde_json::Value =
        serde_json::from_str(&place.read("rendered/credentials/pki/manifest.json")).unwrap();
    let fingerprint = manifest["assets"]["ca"]["fingerprint"].as_str().unwrap();
    let kept = place.read(&format!("rendered/credentials/pki/ca/{fingerprint}.pem"));
    let body = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(body(&kept), body(&place.read("old/credentials/ca.pem")));
    // A second time it would write over the first.
    let run = place.run("migrate kube-aws old --out new");
    assert_eq!((run.code, run.stderr.contains("is not empty")), (1, true), "{}", run.output());
    let run = place.run("migrate kube-aws old --out old/new");
    assert_eq!(
        (run.code, run.stderr.contains("is in the directory that is read")),
        (1, true),
        "{}",
        run.output()
    );
}

/// Nearly every key of kube-aws v0.16.4, switched on: accepted, in its modern form only, and none of it gone without a word.
#[test]
fn a_full_cluster_of_kube_aws_is_validated_as_it_is_written() {
    let place = Place::new();
    let full = include_str!("../../../shared/migrate/src/testdata/kube-aws-full.yaml");
    place.write("old/cluster.yaml", full);
    let run = place.run("migrate kube-aws old --out new");
    assert_eq!(run.code, 0, "{}", run.output());
    for told in
        ["`experimental.oidc`: written as", "`s3URI`: remove it", "`worker.nodePools[1].spotFleet.spotPrice`"]
    {
        assert!(place.read("new/MIGRATION.md").contains(told), "{told} is not in\n{}", run.stdout);
    }
    let run = place.run("validate new/cluster.yaml");
    assert_eq!(run.code, 0, "{}", run.output());
    assert!(!run.output().contains("translated-key"), "{}", run.output());
}

#[test]
fn machines_get_every_change_and_every_file() {
    let place = old();
    let run = place.run("migrate kube-aws old --out new --output json");
    let json = run.json();
    assert_eq!((run.code, json["cluster"].as_str()), (0, Some("old")), "{}", run.output());
    let changes = json["changes"].as_array().unwrap();
    for (kind, path) in [
        ("decision", "kubernetesVersion"),
        ("translated", "worker.nodePools[0].spotFleet"),
        ("dropped", "s3URI"),
    ] {
        assert!(
            changes.iter().any(|change| change["kind"] == kind && change["path"] == path),
            "{kind} {path}"
        );
    }
    assert!(json["import"].as_str().is_some_and(|about| about.contains("encrypt it")));
    let files = json["credentials"].as_array().unwrap();
    assert!(files.iter().any(|file| file["name"] == "ca-key.pem" && file["imported"] == "import/ca-key.pem"));
    assert!(files.iter().any(|file| file["name"] == "worker-key.pem" && file["imported"].is_null()));
}

#[test]
fn another_authoritys_key_is_not_taken_and_a_locked_one_is() {
    let place = old();
    place.write("old/credentials/ca-key.pem", place.read("old/credentials/admin-key.pem"));
    std::fs::remove_file(place.path("old/credentials/admin-key.pem")).unwrap();
    std::fs::remove_file(place.path("old/credentials/worker-key.pem")).unwrap();
    let run = place.run("migrate kube-aws old --out new");
    assert!(run.stdout.contains("it is not the key of ca.pem"), "{}", run.output());
    assert!(!place.path("new/import/ca-key.pem").exists());
    let locked = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,00\n\nAAAA\n-----END RSA PRIVATE KEY-----\n";
    place.write("old/credentials/ca-key.pem", locked);
    assert_eq!(place.run("migrate kube-aws old --out locked").code, 0);
    assert_eq!(place.read("locked/import/ca-key.pem"), locked);
}

#[test]
fn what_cannot_be_migrated_writes_nothing() {
    let place = Place::new();
    place.write("old/cluster.yaml", format!("{OLD}podCIDR: 10.0.0.0/8\n"));
    let run = place.run("migrate kube-aws old --out new");
    assert_eq!(run.code, 1, "{}", run.output());
    assert!(run.stderr.contains("podCIDR") && !place.path("new").exists(), "{}", run.output());
    // The place is that in the user's own file.
    let line = format!("{OLD}podCIDR:").lines().count();
    assert!(run.stderr.contains(&format!("old/cluster.yaml:{line}:")), "{}", run.output());
    assert_eq!(place.run("migrate kube-aws nowhere --out new").code, 3);
    // Without credentials there is only the spec.
    place.write("old/cluster.yaml", OLD);
    assert_eq!(place.run("migrate kube-aws old --out new").code, 0);
    assert!(!place.path("new/import").exists());
}
