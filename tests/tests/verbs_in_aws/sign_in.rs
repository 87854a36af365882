//! The ways to sign in that only a person's machine has: a program that gives out credentials, and IAM Identity Center (SSO).

use std::os::unix::fs::PermissionsExt as _;

use axum::http::{HeaderMap, StatusCode, Uri};
use slipway_tests::iam;
use slipway_tests::observe::Observed;

use super::*;

/// Lets the access key `AKIACORP` list clusters, and returns the name of the asset bucket.
fn known(slipway: &Installation) -> &str {
    let world = slipway.world();
    let bucket = world.reference("AssetBucket").unwrap();
    let policy = json!({"Statement": [
        {"Effect": "Allow", "Action": "s3:ListBucket", "Resource": format!("arn:aws:s3:::{bucket}")},
        {"Effect": "Allow", "Action": "s3:GetObject", "Resource": format!("arn:aws:s3:::{bucket}/clusters/*")},
    ]});
    let (arn, statements) = ("arn:aws:iam::123456789012:role/corp".to_owned(), iam::parse(&policy).unwrap());
    world.gateway().know("AKIACORP", Principal { name: "corp".to_owned(), arn, statements });
    bucket
}

/// Lists the clusters, and looks who called AWS. The key in the environment is an administrator's: the profile counts before it.
async fn lists_as_corp(slipway: &Installation, environment: &[(&str, &str)]) {
    let observer = slipway.world().observer();
    let mark = observer.mark();
    let listed = run(slipway, ADMINISTRATOR, "list --profile corp -vv", environment).await;
    assert!(listed.code == 0 && listed.out.contains(CLUSTER), "{listed:?}");
    assert!(!listed.stderr.contains("top-secret"), "{listed:?}");
    let callers = observer.since(mark).into_iter().filter_map(|seen| match seen.what {
        Observed::Call(call) if call.action.starts_with("s3:List") => Some(call.caller),
        _ => None,
    });
    let callers: Vec<String> = callers.collect();
    assert!(!callers.is_empty() && callers.iter().all(|caller| caller == "corp"), "{callers:?}");
}

/// Issue 22, section 2.
#[tokio::test(flavor = "multi_thread")]
async fn a_profile_whose_credentials_a_program_gives_out_reaches_the_installation() {
    let slipway = installation(0).await;
    let bucket = known(&slipway);
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("keys");
    let keys = json!({"Version": 1, "AccessKeyId": "AKIACORP", "SecretAccessKey": "top-secret"});
    std::fs::write(&program, format!("#!/bin/sh\necho '{keys}'\n")).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o700)).unwrap();
    let config = folder.path().join("config");
    std::fs::write(&config, format!("[profile corp]\ncredential_process = {}\n", program.display())).unwrap();
    let config = config.display().to_string();
    let environment = [("AWS_CONFIG_FILE", config.as_str()), ("SLIPWAY_ASSET_BUCKET", bucket)];
    lists_as_corp(&slipway, &environment).await;

    // A program that fails: nothing of what it wrote is shown.
    std::fs::write(&program, "#!/bin/sh\necho top-secret\nexit 1\n").unwrap();
    let failed = run(&slipway, ADMINISTRATOR, "list --profile corp", &environment).await;
    assert!(failed.code == 3 && failed.stderr.contains("NoCredentials"), "{failed:?}");
    assert!(!failed.stderr.contains("top-secret"), "{failed:?}");

    // `aws login` made it: what to do is said, since no SDK reads it here.
    let file = folder.path().join("config");
    std::fs::write(file, "[profile corp]\nlogin_session = arn:aws:iam::123456789012:user/corp\n").unwrap();
    let failed = run(&slipway, ADMINISTRATOR, "list --profile corp", &environment).await;
    assert!(failed.code == 3 && failed.stderr.contains("export-credentials --profile NAME"), "{failed:?}");
}

/// The portal of IAM Identity Center: GetRoleCredentials of its API, for whoever has the token of the login.
async fn portal() -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let app = axum::Router::new().fallback(async |uri: Uri, headers: HeaderMap| {
        let token = headers.get("x-amz-sso_bearer_token").and_then(|token| token.to_str().ok());
        let wanted = "/federation/credentials?role_name=admin&account_id=123456789012";
        if token != Some("top-secret-token") || uri != wanted {
            return (StatusCode::UNAUTHORIZED, format!("{{\"message\": \"{uri}\"}}"));
        }
        let keys = json!({"accessKeyId": "AKIACORP", "secretAccessKey": "top-secret", "sessionToken": "t",
                          "expiration": 4_070_908_800_000_u64});
        (StatusCode::OK, json!({ "roleCredentials": keys }).to_string())
    });
    tokio::spawn(async move { axum::serve(listener, app).await });
    url
}

/// Issue 22, section 2.
#[tokio::test(flavor = "multi_thread")]
async fn a_profile_of_sso_reaches_the_installation_with_the_token_of_the_last_login() {
    let slipway = installation(0).await;
    let bucket = known(&slipway);
    let home = tempfile::tempdir().unwrap();
    let cache = home.path().join(".aws/sso/cache");
    std::fs::create_dir_all(&cache).unwrap();
    let config = "[profile corp]\nsso_session = corp\nsso_account_id = 123456789012\nsso_role_name = admin\n\
                  [sso-session corp]\nsso_region = eu-west-1\nsso_start_url = https://corp.awsapps.com/start\n";
    std::fs::write(home.path().join(".aws/config"), config).unwrap();
    // As `aws sso login` writes it, into a file that has the SHA-1 of the session's name.
    let token = json!({"accessToken": "top-secret-token", "expiresAt": "2099-01-01T00:00:00Z", "region": "eu-west-1",
                       "startUrl": "https://corp.awsapps.com/start"});
    let file = cache.join("ee0bfd2552fbd840c02cc48b6e823320543c450f.json");
    std::fs::write(file, token.to_string()).unwrap();
    let (home, portal) = (home.path().display().to_string(), portal().await);
    let environment = [
        ("HOME", home.as_str()),
        ("AWS_ENDPOINT_URL_SSO", portal.as_str()),
        ("SLIPWAY_ASSET_BUCKET", bucket),
    ];
    lists_as_corp(&slipway, &environment).await;
}
