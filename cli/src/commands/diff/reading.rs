//! Reads what is compared: the releases that were rolled out, and the stacks and groups that there are.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use slipway_aws::{Aws, Detection, DetectionStart};
use slipway_core::keys;
use slipway_core::release::Rendering;
use slipway_flows::error::FlowError;
use slipway_flows::store::{self, AT_A_TIME};
use slipway_ports::{ErrorKind, Objects as _, PortResult};
use tokio::time::{Instant, sleep};

use super::findings::{Drift, StackInRelease, StackRead, Standing, can_be_looked_at};
use crate::cloud::Cloud;
use crate::failure::CliError;
use crate::members::POLL_PAUSE;
use crate::printer::Printer;

/// How many stacks are looked at at a time.
const STACKS_AT_A_TIME: usize = 5;
/// The pause before the first look at a detection. It doubles until [`POLL_PAUSE`].
const FIRST_LOOK: Duration = Duration::from_millis(500);

/// A stack that stands, the id of its release, and what that says of it. `None`: the release is not stored any more.
pub(super) type WantedStack = (String, String, Option<StackInRelease>);

/// What each stack of `standing` should be, by the release that was rolled out for it.
pub(super) async fn wanted(
    cloud: &Cloud,
    standing: &BTreeMap<String, String>,
) -> Result<Vec<WantedStack>, CliError> {
    let ids: BTreeSet<&String> = standing.values().collect();
    let loads = ids.into_iter().map(|id| async move {
        let key = keys::release(&cloud.cluster, id);
        let stored = store::load::<Rendering>(cloud.assets(), &key).await;
        stored.map(|stored| (id, stored.value)).map_err(|error| CliError::from(error).in_cloud())
    });
    let releases: BTreeMap<&String, Option<Rendering>> =
        stream::iter(loads).buffer_unordered(AT_A_TIME).try_collect().await?;
    let wanted = standing.iter().map(|(stack, id)| {
        let release = releases.get(id).and_then(Option::as_ref);
        let wanted = release.and_then(|release| StackInRelease::from_release(release, stack));
        (stack.clone(), id.clone(), wanted)
    });
    Ok(wanted.collect())
}

/// The stacks as they are. `within`: how long a drift detection may take.
pub(super) async fn stacks(
    cloud: &Cloud,
    wanted: Vec<WantedStack>,
    within: Duration,
    printer: &Printer,
) -> Result<Vec<StackRead>, CliError> {
    let until = Instant::now() + within;
    let reads = wanted.into_iter().map(|(name, release, wanted)| async move {
        let template_url = wanted.as_ref().map(|wanted| cloud.assets().url(&wanted.template_key));
        let standing = standing(cloud.aws(), &name, wanted.as_ref(), until).await;
        let standing = standing.map_err(|error| CliError::from(FlowError::Port(error)).in_cloud())?;
        printer.beside(&format!("{name} is read\n"));
        Ok(StackRead { name, release, wanted, template_url, standing })
    });
    stream::iter(reads).buffered(STACKS_AT_A_TIME).try_collect().await
}

/// A stack and its groups, and what drift detection finds in it. `None`: there is no such stack.
async fn standing(
    aws: &Aws,
    name: &str,
    wanted: Option<&StackInRelease>,
    until: Instant,
) -> PortResult<Option<Standing>> {
    let Some(stack) = aws.stack(name).await? else { return Ok(None) };
    let names: BTreeSet<String> =
        wanted.into_iter().flat_map(|wanted| &wanted.groups).map(|group| group.name.clone()).collect();
    let (template, groups) = tokio::try_join!(aws.deployed_template(name), aws.group_settings(&names))?;
    let drift = match can_be_looked_at(&stack.status) {
        true => drift(aws, name, until).await?,
        false => Drift::NotNow,
    };
    let (status, tags, protected) = (stack.status, stack.tags, stack.protected);
    Ok(Some(Standing { status, protected, tags, template, drift, groups }))
}

/// Has CloudFormation look at the resources of a stack, and waits for that.
async fn drift(aws: &Aws, stack: &str, until: Instant) -> PortResult<Drift> {
    let mut pause = FIRST_LOOK;
    let mut id = None;
    loop {
        let ended = match &id {
            None => {
                match aws.detect_drift(stack).await {
                    Ok(DetectionStart::Begun(begun)) => id = Some(begun),
                    Ok(DetectionStart::Busy) => {}
                    // Somebody has begun to change the stack since it was described.
                    Err(error) if error.kind == ErrorKind::Invalid => {
                        return Ok(Drift::Refused(error.to_string()));
                    }
                    Err(error) => return Err(error),
                }
                None
            }
            Some(id) => match aws.drift_detection(stack, id).await? {
                Detection::InProgress => None,
                Detection::Complete => Some(None),
                Detection::Failed(reason) => Some(Some(reason)),
            },
        };
        if let Some(failure) = ended {
            let drifts = aws.resource_drifts(stack).await?;
            return Ok(Drift::Looked { drifts, failure });
        }
        if Instant::now() >= until {
            return Ok(match id {
                Some(_) => Drift::NotInTime,
                None => Drift::SomebodyElses,
            });
        }
        sleep(pause).await;
        pause = (pause * 2).min(POLL_PAUSE);
    }
}
