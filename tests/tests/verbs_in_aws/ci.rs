//! What the jobs of `infra/integrations/github-actions.yml` and `gitlab-ci.yml` run, with exactly the permissions of `ci-roles.yaml`.

use slipway_tests::client::ACCOUNT;
use slipway_tests::deploy::translate;
use slipway_tests::iam::{Decision, Request, Statement, decide_for};
use slipway_tests::world::Beside;

use super::*;

const PLANNER: &str = "AKIACIPLAN";
const UPLOADER: &str = "AKIACIAPPLY";

async fn roles(slipway: &Installation, system: &str, repository: &str, stack: &str) -> Beside {
    let world = slipway.world();
    let parameters = [
        ("System", system),
        ("Repository", repository),
        ("Cluster", CLUSTER),
        ("SpecBucket", world.reference("SpecBucket").unwrap()),
        ("AssetBucket", world.reference("AssetBucket").unwrap()),
        ("Program", "programs/slipway"),
    ];
    let path = tools::root().join("infra/integrations/ci-roles.yaml");
    let template = translate(&path).await.unwrap();
    let allowed = template["Parameters"]["Repository"]["AllowedPattern"].as_str().unwrap();
    assert!(regex::Regex::new(allowed).unwrap().is_match(repository), "{repository}: {allowed}");
    world.deploy_beside(&path, stack, &parameters, &[]).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_jobs_of_ci_plan_and_upload_with_their_roles_and_the_planner_writes_nothing() {
    let slipway = installation(0).await;
    let world = slipway.world();
    stand_stack(&slipway);
    let stack = roles(&slipway, "github", "corp/clusters", "ci").await;
    for (key, output) in [(PLANNER, "PlanRoleArn"), (UPLOADER, "ApplyRoleArn")] {
        let arn = stack.deployed.outputs[output].clone();
        let statements = stack.deployed.roles[&arn].statements.clone();
        world.gateway().know(key, Principal { name: key.to_owned(), arn, statements });
    }
    // A patch that the repository does not have any more.
    let bucket = world.reference("SpecBucket").unwrap();
    let patch = format!("clusters/{CLUSTER}/patches/90-other.yaml");
    let text = b"target:\n  stack: network\nmerge:\n  Description: patched\n".to_vec();
    let mark = world.observer().mark();
    world.upload("SpecBucket", &patch, text).await.unwrap();
    slipway.rolled_out(mark).await.unwrap();
    // A pull request with another size of the pool.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cluster.yaml");
    let changed = format!("{}      autoScalingGroup: {{minSize: 1, maxSize: 3}}\n", spec());
    std::fs::write(&path, &changed).unwrap();
    let path = path.display();
    let before = slipway.assets().await.unwrap();
    let planned = run(&slipway, PLANNER, &format!("plan {path} --prune"), &[]).await;
    assert!(planned.code == 0 && planned.out.contains("pool-general"), "{planned:?}");
    let refused = run(&slipway, PLANNER, &format!("apply {path} --prune --yes"), &[]).await;
    assert!(refused.code == 3 && refused.stderr.contains("s3:GetObject"), "{refused:?}");
    let stored = async || {
        let key = format!("clusters/{CLUSTER}/cluster.yaml");
        String::from_utf8(world.client().object(bucket, &key).await.unwrap().unwrap()).unwrap()
    };
    assert_eq!((stored().await, slipway.assets().await.unwrap()), (spec(), before));

    let mark = world.observer().mark();
    let applied = run(&slipway, UPLOADER, &format!("apply {path} --prune --yes"), &[]).await;
    assert_eq!(applied.code, 0, "{applied:?}");
    assert_eq!(stored().await, changed);
    assert_eq!(world.client().object(bucket, &patch).await.unwrap(), None);
    slipway.rolled_out(mark).await.unwrap();
    for order in ["pause", "abort --yes", "destroy --yes"] {
        let refused = run(&slipway, UPLOADER, &format!("{order} --cluster {CLUSTER}"), &[]).await;
        assert!(refused.code != 0, "{order}: {refused:?}");
    }
    assert!(slipway.event(mark, &["Rollout Pause", "Rollout Abort"], QUIET).await.is_none());
}

/// Whether the token of a job may assume a role.
fn lets_in(trusts: &[Statement], host: &str, audience: &str, subject: &str) -> bool {
    let context = [(format!("{host}:aud"), audience), (format!("{host}:sub"), subject)];
    let request = Request {
        action: "sts:AssumeRoleWithWebIdentity".to_owned(),
        context: context.map(|(key, value)| (key, vec![value.to_owned()])).into(),
        ..Request::default()
    };
    let provider = format!("federated:arn:aws:iam::{ACCOUNT}:oidc-provider/{host}");
    matches!(decide_for(trusts, &provider, &request), Decision::Allowed(_))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pull_request_may_plan_and_only_the_branch_may_upload() {
    let slipway = Installation::start(&Settings::default()).await.unwrap();
    let github = ("token.actions.githubusercontent.com", "sts.amazonaws.com");
    let gitlab = ("gitlab.com", "https://gitlab.com");
    for (stack, system, repository, (host, audience), request, branch, others) in [
        (
            "names",
            "github",
            "corp/clusters",
            github,
            "repo:corp/clusters:pull_request",
            "repo:corp/clusters:ref:refs/heads/main",
            ["repo:corp/other:pull_request", "repo:evil/clusters:ref:refs/heads/main"],
        ),
        // "Immutable subject claims" (GitHub docs, OpenID Connect): those of newer repositories have ids.
        (
            "ids",
            "github",
            "corp@12/clusters@345",
            github,
            "repo:corp@12/clusters@345:pull_request",
            "repo:corp@12/clusters@345:ref:refs/heads/main",
            ["repo:corp/clusters:pull_request", "repo:corp@13/clusters@345:ref:refs/heads/main"],
        ),
        (
            "gitlab",
            "gitlab",
            "corp/clusters",
            gitlab,
            "project_path:corp/clusters:ref_type:branch:ref:feature",
            "project_path:corp/clusters:ref_type:branch:ref:main",
            [
                "project_path:evil/clusters:ref_type:branch:ref:main",
                "project_path:corp/clusters:ref_type:tag:ref:main",
            ],
        ),
    ] {
        let stack = roles(&slipway, system, repository, stack).await;
        let trusts = |output: &str| stack.deployed.roles[&stack.deployed.outputs[output]].trusts.clone();
        let (plan, apply) = (trusts("PlanRoleArn"), trusts("ApplyRoleArn"));
        assert!(lets_in(&plan, host, audience, request), "{system}");
        assert!(lets_in(&apply, host, audience, branch), "{system}");
        assert!(!lets_in(&apply, host, audience, request), "{system}");
        assert!(!lets_in(&apply, host, "another", branch), "{system}");
        for other in others {
            let in_any = lets_in(&plan, host, audience, other) || lets_in(&apply, host, audience, other);
            assert!(!in_any, "{system}: {other}");
        }
    }
}
