//! `slipway certs verify` on a directory of ours: what its inventory names, and what it does not.

use std::os::unix::fs::PermissionsExt as _;

use super::certs::{authority, codes, kubeadm, openssl, rendered};

#[test]
fn everything_that_the_inventory_names_must_be_there_and_whole() {
    let place = rendered();
    let path_of = |folder: &str, like: &str| -> String {
        let entries = std::fs::read_dir(place.path(&format!("out/credentials/{folder}"))).unwrap();
        let mut names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let name = names.find(|name| name.starts_with(like) || name.ends_with(like)).unwrap();
        format!("out/credentials/{folder}/{name}")
    };
    let [ca, scheduler, digest, signs, pair, bundle, other] = [
        ("pki/ca", ".sealed"),
        ("pki/scheduler", ".sealed"),
        ("pki/digest-key", ".sealed"),
        ("pki/service-account", ".sealed"),
        ("pki/service-account", ".pem"),
        ("bundles/pool-general", "credentials-"),
        ("bundles/pool-other", "credentials-"),
    ]
    .map(|(folder, like)| path_of(folder, like));
    let key = std::fs::read(place.path("out/credentials/local.key")).unwrap();
    std::fs::remove_file(place.path("out/credentials/local.key")).unwrap();
    let run = place.run("certs verify out");
    assert_eq!(run.code, 0, "{}", run.output());

    // Each by itself, and each is told once, with the key and without.
    let whole = |name: &str| std::fs::read(place.path(name)).unwrap();
    for name in [&ca, &scheduler, &digest, &signs, &pair, &bundle, &other] {
        let bytes = whole(name);
        for left in [None, Some(0), Some(3), Some(bytes.len() - 1)] {
            match left {
                None => std::fs::remove_file(place.path(name)).unwrap(),
                Some(left) => std::fs::write(place.path(name), &bytes[..left]).unwrap(),
            }
            // A text without its last line break is the text.
            let harmless = left == Some(bytes.len() - 1) && name == &pair;
            for with_key in [false, true] {
                if with_key {
                    place.write("out/credentials/local.key", &key);
                    let mode = std::fs::Permissions::from_mode(0o600);
                    std::fs::set_permissions(place.path("out/credentials/local.key"), mode).unwrap();
                }
                let run = place.run("certs verify out --output json");
                let told: Vec<String> = codes(&run).into_iter().map(|(_, file)| file).collect();
                let at = place.masked(name.strip_prefix("out/credentials/").unwrap());
                let expected = if harmless { vec![] } else { vec![at] };
                assert_eq!(told, expected, "{left:?} {with_key} {}", run.output());
            }
            std::fs::remove_file(place.path("out/credentials/local.key")).unwrap();
            std::fs::write(place.path(name), &bytes).unwrap();
        }
    }
    // Another key in the place of the one that verifies tokens.
    openssl(&place, "k", "ecparam -name prime256v1 -genkey -noout -out key.pem");
    openssl(&place, "k", "ec -in key.pem -pubout -out pub.pem");
    let bytes = whole(&pair);
    std::fs::copy(place.path("k/pub.pem"), place.path(&pair)).unwrap();
    let run = place.run("certs verify out");
    assert!(run.stdout.contains("it is not the public key that the inventory lists"), "{}", run.output());
    std::fs::write(place.path(&pair), bytes).unwrap();

    // From above and from within, the same is seen.
    std::fs::remove_file(place.path(&ca)).unwrap();
    for (dir, prefix) in [(".", "out/credentials/pki/"), ("out/credentials/pki", "")] {
        let run = place.run(&format!("certs verify {dir} --output json"));
        let at = place.masked(&ca.replace("out/credentials/pki/", prefix));
        assert!(codes(&run).contains(&("inventory".to_owned(), at)), "{}", run.output());
    }
}

#[test]
fn a_certificate_that_the_inventory_does_not_know_is_listed() {
    let place = rendered();
    authority(&place, "out/credentials", "mine", "mine.pem", "mine-key.pem");
    authority(&place, "out/credentials/pki/more", "more", "more.pem", "more-key.pem");
    let run = place.run("certs verify out --output json");
    assert_eq!((run.code, codes(&run)), (0, vec![]), "{}", run.output());
    let json = run.json();
    let files = |list: &str| -> Vec<String> {
        let others = json[list].as_array().unwrap().iter();
        others.map(|other| format!("{}: {}", other["file"], other["what"]).replace('"', "")).collect()
    };
    let unknown = files("unknown");
    for file in ["mine.pem", "pki/more/more.pem"] {
        assert!(
            unknown.contains(&format!("{file}: a certificate that the inventory does not know")),
            "{unknown:?}"
        );
    }
    // One that was renewed is an earlier one.
    let run = place.run("certs renew scheduler cluster.yaml --out out");
    assert_eq!(run.code, 0, "{}", run.output());
    let run = place.run("certs verify out --output json");
    assert_eq!((run.code, codes(&run)), (0, vec![]), "{}", run.output());
    assert!(run.stdout.contains("an earlier certificate of scheduler"), "{}", run.output());
}

#[test]
fn a_lost_inventory_is_told_and_somebody_elses_manifest_is_none() {
    let place = rendered();
    let inventory = place.read("out/credentials/pki/manifest.json");
    for (content, problem) in [
        (Some(&inventory[..200]), "cannot be read"),
        (Some("{}"), "cannot be read"),
        (None, "no inventory (pki/manifest.json)"),
    ] {
        match content {
            Some(content) => place.write("out/credentials/pki/manifest.json", content),
            None => std::fs::remove_file(place.path("out/credentials/pki/manifest.json")).unwrap(),
        }
        for dir in ["out", "out/credentials"] {
            let run = place.run(&format!("certs verify {dir} --output json"));
            let told = codes(&run);
            assert!(
                told.contains(&("inventory".to_owned(), "pki/manifest.json".to_owned())),
                "{}",
                run.output()
            );
            assert!(run.stdout.contains(problem), "{}", run.output());
        }
    }
    let place = kubeadm();
    for manifest in [r#"{"name": "web", "icons": []}"#, r#"{"format": 1}"#, "[]", "words", "{"] {
        place.write("k/manifest.json", manifest);
        place.write("k/pki/manifest.json", manifest);
        let run = place.run("certs verify k --output json");
        assert_eq!((run.code, codes(&run)), (0, vec![]), "{manifest}: {}", run.output());
        assert_eq!(run.json()["layout"], "kubeadm");
    }
}
