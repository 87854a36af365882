//! Renewals while an upload waits for an approval.

use slipway_core::release::Rendering;
use slipway_core::status::Desired;

use super::*;

/// P7: an upload that nobody approves holds up no renewal. What runs is renewed with nothing else changed, and the upload waits as before.
#[tokio::test]
async fn p7_an_upload_that_nobody_approves_holds_up_no_renewal() {
    let spec = PRODUCTION.replace("approval: auto", "approval: manual");
    let changed = spec.replace("minSize: 2", "minSize: 3");
    assert_ne!(changed, spec);
    let account = Workshop::launched(&spec).await;
    account.uses_newest_spec(&account.desired_plan());
    let good = account.desired().unwrap();
    let waiting = account.render(&changed).await.plan;
    assert!(waiting.waits_for_approval(account.now), "{}", waiting.summary());
    // The renewal is due, and the plan that waits has it, too.
    let early = launch() + days(350);
    scan(&account, early).await;
    let both = planned(&account, early).await.unwrap();
    assert!(both.waits_for_approval(early) && !both.is_renewal(), "{}", both.summary());
    assert_eq!(account.desired().unwrap().plan, both.id);
    take_event_counts(&account);

    let now = launch() + days(363);
    let scanned = scan(&account, now).await;
    assert!(
        scanned.findings.iter().any(|finding| finding.help.contains("slipway approve --cluster production"))
    );
    assert!(take_event_counts(&account).contains_key("Certificate Renewed"), "the render function is woken");
    planned(&account, now).await.unwrap();
    let desired = account.desired().unwrap();
    assert_eq!(desired.spec_version, good.spec_version);
    let plan: Plan = account.read(&keys::plan(NAME, &desired.plan)).unwrap();
    assert!(plan.is_renewal() && !plan.waits_for_approval(now), "{}", plan.summary());
    assert_eq!(desired.set_aside.as_ref().unwrap().target, both.to);
    let said = take_event_counts(&account);
    assert_eq!((said["Plan Ready"], said["Rollout Requested"]), (2, 1), "{said:?}");
    // The event comes twice.
    planned(&account, now).await.unwrap();
    assert_eq!(account.desired().unwrap(), desired);
    // Afterwards the upload waits again.
    let upload = Desired { plan: both.id, target: both.to, ..account.desired().unwrap().taken_up().unwrap() };
    assert_eq!(account.desired().unwrap().taken_up().unwrap(), upload);

    // It is, byte for byte, what the spec that runs renders to with the renewed credentials.
    let again = account.render(&spec).await.plan;
    let release = |target: &str| {
        let mut release: Rendering = account.read(&keys::release(NAME, target)).unwrap();
        // Pools are in the order of the spec, or of their names.
        release.stacks.sort_by(|one, other| one.name.cmp(&other.name));
        release
    };
    assert_eq!(release(&again.to), release(&desired.target));
}
