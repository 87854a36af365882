//! `slipway certs show` and `slipway certs verify`.

use std::os::unix::fs::{PermissionsExt as _, symlink};

use super::*;

pub(super) fn rendered() -> Place {
    let place = Place::small();
    let run = place.run("render cluster.yaml --out out");
    assert_eq!(run.code, 0, "{}", run.output());
    place
}

/// Runs `openssl` in a folder of the place.
pub(super) fn openssl(place: &Place, folder: &str, args: &str) {
    std::fs::create_dir_all(place.path(folder)).unwrap();
    let mut command = Command::new("openssl");
    let run = command.args(args.split_whitespace()).current_dir(place.path(folder)).output().unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
}

pub(super) fn authority(place: &Place, folder: &str, name: &str, file: &str, key: &str) {
    openssl(
        place,
        folder,
        &format!(
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout {key} -out {file} -subj /CN={name} -days 3650 \
         -addext keyUsage=critical,keyCertSign,cRLSign"
        ),
    );
}

/// A leaf, by `ca` (certificate and key), for `days`.
fn leaf(
    place: &Place,
    folder: &str,
    subject: &str,
    (file, key): (&str, &str),
    ca: (&str, &str),
    extensions: &str,
    days: u32,
) {
    place.write(&format!("{folder}/ext"), extensions.replace(';', "\n"));
    openssl(
        place,
        folder,
        &format!(
            "req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout {key} -out csr -subj {subject}"
        ),
    );
    openssl(
        place,
        folder,
        &format!(
            "x509 -req -in csr -CA {} -CAkey {} -set_serial 0x{:x} -days {days} -extfile ext -out {file}",
            ca.0,
            ca.1,
            0x7700_0000_0000_u64 + u64::from(days) + file.len() as u64
        ),
    );
    for name in ["csr", "ext"] {
        std::fs::remove_file(place.path(&format!("{folder}/{name}"))).unwrap();
    }
}

const SERVER: &str = "keyUsage=critical,digitalSignature;extendedKeyUsage=serverAuth;authorityKeyIdentifier=keyid;\
subjectAltName=DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,DNS:kubernetes.default.svc.cluster.local,IP:10.3.0.1";
const CLIENT: &str =
    "keyUsage=critical,digitalSignature;extendedKeyUsage=clientAuth;authorityKeyIdentifier=keyid";

/// `/etc/kubernetes` as kubeadm lays it out, in part, with a kubeconfig that carries its certificate and key.
pub(super) fn kubeadm() -> Place {
    let place = Place::new();
    authority(&place, "k/pki", "kubernetes", "ca.crt", "ca.key");
    leaf(
        &place,
        "k/pki",
        "/CN=kube-apiserver",
        ("apiserver.crt", "apiserver.key"),
        ("ca.crt", "ca.key"),
        SERVER,
        365,
    );
    let client = ("apiserver-kubelet-client.crt", "apiserver-kubelet-client.key");
    leaf(
        &place,
        "k/pki",
        "/O=kubeadm:cluster-admins/CN=kube-apiserver-kubelet-client",
        client,
        ("ca.crt", "ca.key"),
        CLIENT,
        364,
    );
    openssl(&place, "k/pki", "genrsa -out sa.key 2048");
    openssl(&place, "k/pki", "rsa -in sa.key -pubout -out sa.pub");
    leaf(
        &place,
        "k/pki",
        "/O=kubeadm:cluster-admins/CN=kubernetes-admin",
        ("a.crt", "a.key"),
        ("ca.crt", "ca.key"),
        CLIENT,
        363,
    );
    let encoded = |name: &str| {
        use base64::Engine as _;
        base64::engine::general_purpose::STANDARD.encode(place.read(&format!("k/pki/{name}")))
    };
    let config = format!(
        "apiVersion: v1\nclusters:\n- cluster:\n    certificate-authority-data: {}\nusers:\n- user:\n    client-certificate-data: {}\n    client-key-data: {}\n",
        encoded("ca.crt"),
        encoded("a.crt"),
        encoded("a.key")
    );
    place.write("k/admin.conf", config);
    for gone in ["a.crt", "a.key"] {
        std::fs::remove_file(place.path(&format!("k/pki/{gone}"))).unwrap();
    }
    std::fs::set_permissions(place.path("k/admin.conf"), std::fs::Permissions::from_mode(0o600)).unwrap();
    place
}

/// `[code, file]` of each finding.
pub(super) fn codes(run: &Run) -> Vec<(String, String)> {
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    let json = run.json();
    let findings = json["findings"].as_array().unwrap();
    for finding in findings {
        assert!(!text(&finding["message"]).is_empty() && !text(&finding["help"]).is_empty(), "{finding}");
    }
    findings.iter().map(|finding| (text(&finding["code"]), text(&finding["file"]))).collect()
}

#[test]
fn what_was_rendered_is_shown_with_everything_that_matters_and_nothing_is_wrong() {
    let place = rendered();
    let mut run = place.run("certs show out");
    assert_eq!(run.code, 0, "{}", run.output());
    // A second may have passed since they were made.
    run.stdout = run.stdout.replace(" 364 d left", " 365 d left").replace("3649 d left", "3650 d left");
    for piece in [
        "365 d left  apiserver\n",
        "3650 d left  kubelet-ca\n",
        "subject  O=slipway:cluster-admins, CN=kubernetes-admin\n",
        "names    10.3.0.1, 127.0.0.1, api.small.example.com, kubernetes,",
        "issuer   CN=etcd-ca\n",
        "issuer   itself\n",
        "serial   [HEX]\n",
        "key      ECDSA P-256, signed by SHA-256 with ECDSA\n",
        "held by  etcd-0, controller\n",
        "15 certificates: 0 expired, 0 expire within 30 days",
    ] {
        assert!(run.stdout.contains(piece), "{piece} is not in\n{}", run.stdout);
    }
    assert!(!run.stdout.contains("ONE KEY") && !run.stdout.contains('\u{1b}'));
    let names: Vec<&str> =
        run.stdout.lines().filter_map(|line| line.split_once(" d left  ")).map(|(_, name)| name).collect();
    assert_eq!((names[0], names[11]), ("admin", "ca"), "what expires first comes first, then by name");

    // The spec lies beside the directory.
    let run = place.run("certs verify out");
    assert_eq!(run.code, 0, "{}", run.output());
    assert!(run.stdout.contains("names are checked against [DIR]/cluster.yaml"), "{}", run.stdout);
    assert!(
        run.stdout.contains("sealed files were opened with the local.key in this folder"),
        "{}",
        run.stdout
    );
    // A key for each certificate, and the pair that signs tokens.
    assert!(run.stdout.contains("15 certificates, 17 keys: nothing is wrong"), "{}", run.stdout);
}

#[test]
fn machines_get_the_same_and_a_page_stands_alone() {
    let place = rendered();
    let run = place.run("certs show out --output json --sort name --html page.html");
    let json = run.json();
    let all = json["certificates"].as_array().unwrap();
    assert_eq!((run.code, json["layout"].as_str(), all.len()), (0, Some("slipway"), 15));
    let apiserver = all.iter().find(|one| one["name"] == "apiserver").unwrap();
    assert_eq!(apiserver["roles"], serde_json::json!(["controller"]));
    assert!([364, 365].map(Some).contains(&apiserver["daysLeft"].as_i64()), "{apiserver}");
    assert_eq!(apiserver["extended"], serde_json::json!({ "server": true, "client": false }));
    assert!(apiserver["sans"].as_array().unwrap().contains(&"api.small.example.com".into()));
    let page = place.read("page.html");
    assert!(page.contains("prefers-color-scheme: dark") && page.contains("apiserver"), "{page}");
    assert!(!page.contains("<script") && !page.contains("http://") && !page.contains("https://"), "{page}");
}

#[test]
fn time_is_the_callers() {
    let place = rendered();
    let run = place.run("certs show out --at 2040-01-01T00:00:00Z");
    assert!(run.stdout.contains(" d ago  ca\n") && run.stdout.contains("15 expired"), "{}", run.output());
    let run = place.run("certs verify out --at 2040-01-01T00:00:00Z --output json");
    assert_eq!(run.code, 1);
    assert!(codes(&run).iter().all(|(code, _)| code == "expired") && codes(&run).len() == 15);
    let run = place.run("certs verify out --days 400 --output json");
    let json = run.json();
    assert!(json["findings"].as_array().unwrap().iter().all(|one| one["severity"] == "warning"));
    assert_eq!((run.code, codes(&run).len()), (1, 11), "the authorities last longer: {}", run.output());
    assert_eq!(place.run("certs verify out --at yesterday").code, 2);
}

#[test]
fn a_directory_that_is_not_what_its_inventory_says_is_told() {
    let place = rendered();
    let files = |asset: &str| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(place.path(&format!("out/credentials/pki/{asset}"))).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        paths.filter(|path| path.extension().is_some_and(|ending| ending == "pem")).collect()
    };
    let (scheduler, admin) = (files("scheduler"), files("admin"));
    std::fs::copy(&admin[0], &scheduler[0]).unwrap();
    std::fs::remove_file(&admin[0]).unwrap();
    let run = place.run("certs verify out");
    assert_eq!(run.code, 1);
    for piece in [
        "it is not the certificate that its name says",
        "the inventory lists scheduler, and its certificate",
        "the inventory lists admin, and its certificate",
    ] {
        assert!(run.stdout.contains(piece), "{piece} is not in\n{}", run.stdout);
    }
    // Another spec's names are not these.
    let place = rendered();
    place.write("other.yaml", SMALL.replace("api.small.example.com", "api.other.example.com"));
    let run = place.run("certs verify out --spec other.yaml");
    assert!(
        run.stdout.contains("it lacks names that it is called by: api.other.example.com"),
        "{}",
        run.output()
    );
    assert!(run.stdout.contains("that the spec does not give it: api.small.example.com"), "{}", run.output());
    let run = place.run("certs verify out --spec nowhere.yaml");
    assert_eq!(run.code, 3, "{}", run.output());
    place.write("bad.yaml", "zebra: 1\n");
    assert_eq!(place.run("certs verify out --spec bad.yaml").code, 1);
}

#[test]
fn what_is_sealed_is_opened_where_its_key_is_at_hand_and_each_damage_is_told() {
    let place = rendered();
    let in_folder = |folder: &str, ending: &str| -> String {
        let entries = std::fs::read_dir(place.path(&format!("out/credentials/{folder}"))).unwrap();
        let mut names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let name = names.find(|name| name.starts_with(ending) || name.ends_with(ending)).unwrap();
        format!("out/credentials/{folder}/{name}")
    };
    let (scheduler, admin, ca) = (
        in_folder("pki/scheduler", ".sealed"),
        in_folder("pki/admin", ".sealed"),
        in_folder("pki/ca", ".sealed"),
    );
    let (worker, other) =
        (in_folder("bundles/pool-general", "credentials-"), in_folder("bundles/pool-other", "credentials-"));
    let bytes = |name: &str| std::fs::read(place.path(name)).unwrap();
    // Another's in its place, half of it, none; of a bundle one bit.
    let others = bytes(&admin);
    std::fs::write(place.path(&scheduler), others).unwrap();
    std::fs::write(place.path(&admin), &bytes(&admin)[..99]).unwrap();
    std::fs::remove_file(place.path(&ca)).unwrap();
    let mut flipped = bytes(&worker);
    *flipped.last_mut().unwrap() ^= 1;
    std::fs::write(place.path(&worker), flipped).unwrap();
    std::fs::copy(place.path(&worker), place.path(&other)).unwrap();
    let run = place.run("certs verify out --output json");
    let mut told: Vec<String> =
        codes(&run).into_iter().map(|(code, file)| format!("{code} {file}")).collect();
    told.sort();
    let told_as = |code: &str, name: &str| {
        format!("{code} {}", place.masked(name.strip_prefix("out/credentials/").unwrap()))
    };
    let damaged = [&scheduler, &admin, &worker, &other].map(|name| told_as("unreadable", name));
    let mut expected: Vec<String> = damaged.into_iter().chain([told_as("inventory", &ca)]).collect();
    expected.sort();
    assert_eq!((run.code, told), (1, expected), "{}", run.output());
    // A key that others may read is not used.
    std::fs::set_permissions(place.path("out/credentials/local.key"), std::fs::Permissions::from_mode(0o644))
        .unwrap();
    let run = place.run("certs verify out --output json");
    let inside = |name: &str| place.masked(name.strip_prefix("out/credentials/").unwrap());
    // What is lost or cut shows without it.
    let mut without = vec![("inventory".to_owned(), inside(&ca)), ("damaged".to_owned(), inside(&admin))];
    without.sort_by(|a, b| a.1.cmp(&b.1));
    let mut told = codes(&run);
    assert!(told.contains(&("unreadable".to_owned(), "local.key".to_owned())), "{}", run.output());
    told.retain(|(_, file)| file != "local.key");
    assert_eq!(told, without, "{}", run.output());
    // Without the key nobody can look further, and that is said.
    std::fs::remove_file(place.path("out/credentials/local.key")).unwrap();
    assert_eq!(codes(&place.run("certs verify out --output json")), without);
    let run = place.run("certs verify out");
    assert!(run.stdout.contains("files were not inspected: they are sealed"), "{}", run.output());
}

#[test]
fn kubeadms_folder_is_known_with_its_kubeconfigs() {
    let place = kubeadm();
    let run = place.run("certs verify k --output json");
    assert_eq!((run.code, codes(&run)), (0, vec![]), "{}", run.output());
    assert_eq!(run.json()["layout"], "kubeadm");
    assert_eq!((run.json()["certificates"].clone(), run.json()["keys"].clone()), (5.into(), 6.into()));

    // A client's certificate in the server's place, another's key, a key that all may read, one key for two names.
    place.write("k/pki/apiserver.crt", place.read("k/pki/apiserver-kubelet-client.crt"));
    std::fs::copy(place.path("k/pki/ca.key"), place.path("k/pki/sa.key")).unwrap();
    std::fs::set_permissions(place.path("k/pki/ca.key"), std::fs::Permissions::from_mode(0o640)).unwrap();
    std::fs::remove_file(place.path("k/pki/apiserver-kubelet-client.key")).unwrap();
    let run = place.run("certs verify k --output json");
    let mut expected = [
        ("key-missing", "pki/apiserver-kubelet-client.crt"),
        ("key-mismatch", "pki/apiserver.key"),
        ("key-mismatch", "pki/sa.key"),
        ("name", "pki/apiserver.crt"),
        ("permissions", "pki/ca.key"),
        ("purpose", "pki/apiserver.crt"),
        ("purpose", "pki/apiserver.crt"),
        ("twin", "pki/ca.crt"),
    ];
    expected.sort_unstable();
    let mut found = codes(&run);
    found.retain(|(_, file)| !file.starts_with("admin.conf"));
    found.sort_unstable();
    let found: Vec<(&str, &str)> = found.iter().map(|(code, file)| (code.as_str(), file.as_str())).collect();
    assert_eq!(found, expected, "{}", run.output());
    assert_eq!(run.code, 1);
}

#[test]
fn kube_awss_folder_is_known_and_its_old_spec_says_the_names() {
    let place = Place::new();
    place.write("old/cluster.yaml", "\
clusterName: old\ns3URI: s3://assets/old\nregion: us-west-1\nkubernetesVersion: v1.15.5\nexternalDNSName: api.old.example.com\n\
hostedZoneId: Z123\navailabilityZone: us-west-1a\nworker:\n  nodePools:\n  - name: pool-1\n    count: 2\n");
    let folder = "old/credentials";
    authority(&place, folder, "kube-ca", "ca.pem", "ca-key.pem");
    let ca = ("ca.pem", "ca-key.pem");
    let names = format!("{SERVER},DNS:api.old.example.com,IP:127.0.0.1");
    leaf(&place, folder, "/CN=kube-apiserver", ("apiserver.pem", "apiserver-key.pem"), ca, &names, 365);
    leaf(&place, folder, "/CN=kube-worker", ("worker.pem", "worker-key.pem"), ca, CLIENT, 300);
    leaf(&place, folder, "/CN=kube-etcd-client", ("etcd-client.pem", "etcd-client-key.pem"), ca, CLIENT, 200);
    for (name, target) in
        [("worker-ca.pem", "ca.pem"), ("worker-ca-key.pem", "ca-key.pem"), ("etcd-trusted-ca.pem", "ca.pem")]
    {
        symlink(target, place.path(&format!("{folder}/{name}"))).unwrap();
    }
    place.write("old/credentials/tokens.csv", "");
    place.write("old/credentials/admin-key.pem.enc", "AQICAHh\n");
    place.write("old/credentials/notes", "mine\n");
    let run = place.run("certs verify old/credentials --output json");
    assert_eq!((run.code, codes(&run)), (0, vec![]), "{}", run.output());
    let json = run.json();
    assert_eq!(json["layout"], "kube-aws");
    assert!(json["spec"].as_str().unwrap().ends_with("old/cluster.yaml"), "{}", run.output());
    let unknown: Vec<&str> =
        json["unknown"].as_array().unwrap().iter().map(|other| other["file"].as_str().unwrap()).collect();
    assert_eq!(unknown, ["notes", "tokens.csv"], "an empty file of any name is shown");

    place.write("old/cluster.yaml", place.read("old/cluster.yaml").replace("api.old", "api.new"));
    let run = place.run("certs verify old/credentials --output json");
    assert_eq!(codes(&run), [("name".to_owned(), "apiserver.pem".to_owned())], "{}", run.output());
}

#[test]
fn nothing_that_lies_in_a_folder_breaks_it_or_is_passed_over() {
    let place = kubeadm();
    let whole = place.read("k/pki/ca.crt");
    place.write("k/empty.pem", "");
    place.write("k/binary.pem", (0..=255).cycle().skip(128).take(999).collect::<Vec<u8>>());
    place.write("k/big.pem", vec![b'A'; 10 << 20]);
    place.write("k/cut.pem", &whole[..200]);
    place.write("k/twisted.crt", whole.replacen('M', "!", 1));
    place.write("k/README", "words");
    place.write("k/folder.pem/inside.pem", "x");
    symlink("gone", place.path("k/dangling.pem")).unwrap();
    symlink("/", place.path("k/root.pem")).unwrap();
    symlink(".", place.path("k/loop")).unwrap();
    let made = Command::new("mkfifo").arg(place.path("k/pipe.key")).status().unwrap();
    assert!(made.success());
    let run = place.run("certs verify k --output json");
    let found = codes(&run);
    for (code, file) in [
        ("empty", "empty.pem"),
        ("damaged", "binary.pem"),
        ("unreadable", "big.pem"),
        ("damaged", "cut.pem"),
        ("damaged", "twisted.crt"),
        ("unreadable", "folder.pem"),
        ("damaged", "folder.pem/inside.pem"),
        ("unreadable", "dangling.pem"),
        ("unreadable", "root.pem"),
        ("unreadable", "loop"),
        ("unreadable", "pipe.key"),
    ] {
        assert!(found.contains(&(code.to_owned(), file.to_owned())), "{code} {file} is not in {found:?}");
    }
    assert_eq!((run.code, found.len()), (1, 11), "{}", run.output());
    assert_eq!(run.json()["unknown"][0]["file"], "README");
    // `show` says so, too, and shows the rest.
    let run = place.run("certs show k");
    assert!(
        run.code == 0
            && run.stdout.contains("pki/apiserver.crt")
            && run.stdout.contains("empty.pem: it is empty")
    );
}

#[test]
fn a_folder_without_certificates_is_no_success() {
    let place = Place::new();
    place.write("a/README", "words");
    for verb in ["show", "verify"] {
        let run = place.run(&format!("certs {verb} a"));
        assert_eq!(
            (run.code, run.stderr.contains("there is no certificate in a")),
            (1, true),
            "{}",
            run.output()
        );
        assert_eq!(place.run(&format!("certs {verb} nowhere")).code, 3);
        assert_eq!(place.run(&format!("certs {verb} a/README")).code, 3);
    }
}

#[test]
fn p9_no_private_key_is_shown() {
    let place = kubeadm();
    let secrets: Vec<String> = ["ca.key", "apiserver.key", "sa.key"]
        .iter()
        .map(|name| place.read(&format!("k/pki/{name}")).lines().nth(1).unwrap().to_owned())
        .collect();
    for args in
        ["certs show k", "certs show k --output json", "certs verify k", "certs verify k --output json"]
    {
        let run = place.run(args);
        assert!(!secrets.iter().any(|secret| run.output().contains(secret)), "{args}");
    }
}

#[test]
fn old_generations_go_when_asked_and_not_before() {
    let place = rendered();
    assert_eq!(place.run("certs gc out").stdout, "nothing is unused\n");
    place.write(
        "cluster.yaml",
        format!("{SMALL}kubernetes:\n  apiServer:\n    certSANs: [k8s.example.com]\n"),
    );
    assert_eq!(place.run("render cluster.yaml --out out").code, 0);
    let before = place.files();
    let look = place.run("certs gc out");
    assert_eq!(look.code, 0);
    assert!(look.stdout.ends_with("that nobody refers to; --apply removes them\n"), "{}", look.output());
    for part in ["  pki/apiserver/", ".pem\n", ".sealed\n", "  bundles/controller/credentials-", "3 files ("]
    {
        assert!(look.stdout.contains(part), "{}", look.output());
    }
    assert_eq!(place.files(), before, "a look removes nothing");
    let json = place.run("certs gc out --apply --output json").json();
    assert_eq!((json["applied"].clone(), json["unused"].as_array().unwrap().len()), (true.into(), 3));
    assert_eq!(place.files().len(), before.len() - 3);
    assert_eq!(place.run("certs gc out --apply").stdout, "nothing is unused\n");
    let again = place.run("render cluster.yaml --out out");
    assert!(again.stdout.contains("nothing changed"), "{}", again.output());
}

#[test]
fn where_nothing_was_rendered_nothing_is_removed() {
    let place = Place::small();
    place.write("other/credentials/pki/ca/x.pem", "mine");
    for args in ["certs gc other --apply", "certs gc other"] {
        let run = place.run(args);
        assert_eq!(run.code, 1, "{}", run.output());
        assert!(run.stderr.contains("is not a directory that slipway render wrote"), "{}", run.output());
    }
    assert_eq!(place.run("certs gc nowhere --apply").code, 3);
    let place = rendered();
    std::fs::remove_file(place.path("out/credentials/pki/manifest.json")).unwrap();
    let run = place.run("certs gc out --apply");
    assert_eq!(run.code, 3);
    assert!(run.stderr.contains("without it everything looks unused"), "{}", run.output());
}

#[test]
fn p1_a_lost_inventory_is_not_replaced_by_another_pki() {
    let place = rendered();
    std::fs::remove_file(place.path("out/credentials/pki/manifest.json")).unwrap();
    let before = place.files();
    let run = place.run("render cluster.yaml --out out");
    assert_eq!(run.code, 3);
    assert!(
        run.stderr.contains("is lost, and other stored credentials were made with it"),
        "{}",
        run.output()
    );
    assert_eq!(place.files(), before);
}
