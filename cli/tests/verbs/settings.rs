//! What a person sets once: the configuration file, the variables, and the options that count before them. And how things are called
//! elsewhere.

use super::Place;
use super::apply::NOWHERE;

const KEY: [(&str, &str); 3] =
    [("AWS_ACCESS_KEY_ID", "a"), ("AWS_SECRET_ACCESS_KEY", "b"), ("AWS_MAX_ATTEMPTS", "1")];

#[test]
fn a_cluster_is_named_by_the_option_or_the_variable_or_the_file_in_this_order() {
    let place = Place::new();
    place.write("home/.config/slipway/config.yaml", "cluster: of-file\nstack: of-file\n");
    let home = place.path("home").display().to_string();
    let seen = |arguments: &str, more: &[(&str, &str)]| {
        let environment = [&NOWHERE[..], &KEY[..], &[("HOME", home.as_str())], more].concat();
        let run = place.run_in(&format!("{arguments} -v"), &environment);
        let line = run.stderr.lines().find_map(|line| line.strip_prefix("cluster ")).map(str::to_owned);
        line.unwrap_or_else(|| run.output())
    };
    assert_eq!(seen("status", &[]), "of-file");
    assert_eq!(seen("status", &[("SLIPWAY_CLUSTER", "of-variable")]), "of-variable");
    assert_eq!(seen("status --cluster of-option", &[("SLIPWAY_CLUSTER", "of-variable")]), "of-option");
    // A spec names its own cluster.
    place.write("cluster.yaml", super::SMALL);
    assert_eq!(seen("apply cluster.yaml", &[("SLIPWAY_CLUSTER", "of-variable")]), "small");
    assert_eq!(seen("create -f cluster.yaml", &[]), "small");
    // And its own region, if nothing else does.
    let nowhere = [NOWHERE[0], NOWHERE[1], NOWHERE[3], NOWHERE[4], KEY[0], KEY[1], KEY[2]];
    let run = place.run_in("apply cluster.yaml -v", &nowhere);
    assert!(run.stderr.contains("AWS: region eu-west-1"), "{}", run.output());
}

#[test]
fn a_mistake_in_the_file_and_a_cluster_that_nobody_names_are_wrong_usage() {
    let place = Place::new();
    let nobody = place.run_in("status", &NOWHERE);
    assert_eq!(nobody.code, 2, "{}", nobody.output());
    for words in ["no cluster is named", "--cluster NAME", "SLIPWAY_CLUSTER", "slipway list"] {
        assert!(nobody.stderr.contains(words), "{words}: {}", nobody.output());
    }
    place.write("slipway.yaml", "cluster: a\n  region: b\n");
    let run = place.run_in("status", &[&NOWHERE[..], &[("SLIPWAY_CONFIG", "slipway.yaml")]].concat());
    assert!(run.code == 2 && run.stderr.contains("slipway.yaml:"), "{}", run.output());
    let run = place.run_in("status", &[("SLIPWAY_CONFIG", "nowhere.yaml")]);
    assert!(run.code == 3 && run.stderr.contains("cannot read nowhere.yaml"), "{}", run.output());
    let run = place.run_in("status --cluster a --region eu-west-1 --asset-bucket b -o yaml", &NOWHERE[3..]);
    assert!(run.code == 3 && run.stdout.starts_with("error:\n  help: "), "{}", run.output());
}

#[test]
fn each_call_is_shown_on_demand_and_nothing_secret_is() {
    let place = Place::new();
    let environment = [&NOWHERE[..], &KEY[..]].concat();
    let run = place.run_in("status --cluster small -vv", &environment);
    let call = run.stderr.lines().find(|line| line.starts_with("GET http://127.0.0.1:9/assets")).unwrap();
    assert!(call.contains("no connection") && call.ends_with(" ms"), "{call}");
    for secret in ["AWS4-HMAC", "Signature", "prefix="] {
        assert!(!run.stderr.contains(secret), "{}", run.stderr);
    }
    let run = place.run_in("status --cluster small -v", &environment);
    assert!(!run.stderr.contains("GET "), "{}", run.stderr);
    assert!(
        run.stderr.contains("region eu-west-1") && run.stderr.contains("asset bucket assets"),
        "{}",
        run.stderr
    );
}

#[test]
fn a_result_is_yaml_on_demand() {
    let place = Place::small();
    let run = place.run("validate -f cluster.yaml -o yaml");
    assert_eq!(run.code, 0, "{}", run.output());
    assert_eq!(run.stdout, "cluster: small\ndiagnostics: []\nfile: cluster.yaml\nok: true\n");
    place.write("zebra.yaml", "zebra: 1\n");
    let run = place.run("validate zebra.yaml -o yaml");
    assert!(run.code == 1 && run.stdout.contains("  - code: unknown-key\n"), "{}", run.output());
    let version = place.run("version -o yaml");
    assert!(
        version.stdout.starts_with("commit: ") && version.stdout.contains("\nok: true\n"),
        "{}",
        version.output()
    );
    let short = place.run("--version").stdout;
    assert!(short.starts_with("slipway 0.") && short.contains(" (commit "), "{short}");
}

#[test]
fn every_verb_has_a_manual_page() {
    let place = Place::new();
    let run = place.run("man --out man1 -o json");
    assert_eq!(run.code, 0, "{}", run.output());
    let pages: Vec<String> = serde_json::from_value(run.json()["pages"].clone()).unwrap();
    for verb in super::VERBS {
        let page = format!("slipway-{}.1", verb.replace(' ', "-"));
        assert!(pages.contains(&page), "{page} of {pages:?}");
        let text = place.read(&format!("man1/{page}"));
        assert!(text.contains(".SH OPTIONS") && text.contains("Exit codes:"), "{page}: {text}");
    }
}

#[test]
fn who_names_the_cluster_as_other_tools_do_is_told_how_it_is_done_here() {
    let place = Place::new();
    for (args, words) in [
        ("status prod", "name a cluster with '--cluster prod'"),
        ("delete prod --yes", "name a cluster with '--cluster prod'"),
        ("get clusters", "leave out 'clusters'"),
        ("get nodes", "'slipway status' shows the nodes"),
    ] {
        let run = place.run(args);
        assert!(run.code == 2 && run.stderr.contains(words), "{args}: {}", run.output());
    }
    let run = place.run("status --colour");
    assert!(run.code == 2 && !run.stderr.contains("name a cluster"), "{}", run.output());
}

#[test]
fn a_profile_that_does_not_exist_is_named_with_what_to_do() {
    let place = Place::new();
    let run = place.run_in("list --region eu-west-1 --profile nope", &[("HOME", "/nonexistent"), NOWHERE[4]]);
    assert!(run.code == 3 && run.stderr.contains("aws configure list-profiles"), "{}", run.output());
}

/// With a login and a portal: `tests/tests/verbs_in_aws/sign_in.rs`.
#[test]
fn a_profile_of_sso_without_a_login_says_how_to_log_in() {
    let place = Place::new();
    place.write(
        "home/.aws/config",
        "[profile corp]\nsso_session = corp\nsso_account_id = 123456789012\nsso_role_name = admin\n\
         [sso-session corp]\nsso_region = eu-west-1\nsso_start_url = https://corp.awsapps.com/start\n",
    );
    let home = place.path("home").display().to_string();
    let run = place.run_in("list --profile corp", &[&NOWHERE[..], &[("HOME", home.as_str())]].concat());
    for words in ["failed to load the cached SSO token", "`aws sso login`"] {
        assert!(run.code == 3 && run.stderr.contains(words), "{words}: {}", run.output());
    }
}

/// Behind a proxy, no verb reached AWS.
#[test]
fn calls_go_through_the_proxy_that_the_environment_names() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = format!("http://{}", listener.local_addr().unwrap());
    let asked = std::thread::spawn(move || {
        let (mut connection, _) = listener.accept().unwrap();
        let mut start = [0; 64];
        let length = std::io::Read::read(&mut connection, &mut start).unwrap();
        String::from_utf8_lossy(&start[..length]).into_owned()
    });
    let environment =
        [("AWS_ACCESS_KEY_ID", "a"), ("AWS_SECRET_ACCESS_KEY", "b"), ("HTTPS_PROXY", proxy.as_str())];
    let run = Place::new().run_in("list --region eu-west-1", &environment);
    assert_eq!(run.code, 3, "the proxy ends the connection: {}", run.output());
    let asked = asked.join().unwrap();
    assert!(asked.starts_with("CONNECT cloudformation.eu-west-1.amazonaws.com:443 "), "{asked}");
}

#[test]
fn arguments_that_cannot_be_read_are_a_document_for_programs() {
    let place = Place::small();
    let run = place.run("validate cluster.yaml --bogus -o json");
    assert_eq!(run.code, 2, "{}", run.output());
    let document = run.json();
    assert_eq!(document["ok"], false);
    assert!(document["error"]["message"].as_str().unwrap().contains("unexpected argument '--bogus'"));
    let run = place.run("validate cluster.yaml --bogus");
    assert!(run.code == 2 && run.stdout.is_empty() && run.stderr.contains("--bogus"), "{}", run.output());
    let run = place.run("validate --help -o json");
    assert!(run.code == 0 && run.stdout.contains("Usage"), "{}", run.output());
}
