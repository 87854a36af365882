//! EventBridge Scheduler.

use jiff::SignedDuration;

use super::*;
use crate::world::{Outgoing, ScheduleRequest};

fn tick() -> ScheduleRequest {
    ScheduleRequest {
        group: Some("slipway".to_owned()),
        name: "slipway-prod".to_owned(),
        expression: "rate(1 minutes)".to_owned(),
        target_arn: "arn:aws:lambda:eu-central-1:123456789012:function:rollout".to_owned(),
        role_arn: "arn:aws:iam::123456789012:role/tick".to_owned(),
        input: Some("{\"a\":1}".to_owned()),
        enabled: true,
        ..ScheduleRequest::default()
    }
}

fn fired(world: &mut World, after_s: i64) -> usize {
    let to = world.now() + SignedDuration::from_secs(after_s);
    world.advance(to);
    let sent = world.drain();
    for one in &sent {
        match one {
            Outgoing::Invoke { schedule, input, .. } => {
                assert_eq!((schedule.as_str(), input.as_str()), ("slipway-prod", "{\"a\":1}"))
            }
            Outgoing::Event(event) => panic!("{event:?}"),
        }
    }
    sent.len()
}

#[test]
fn a_schedule_fires_at_its_rate_until_it_is_deleted() {
    let mut world = world();
    world.create_schedule(tick()).unwrap();
    assert_eq!(fired(&mut world, 59), 1);
    assert_eq!(fired(&mut world, 1), 1);
    assert_eq!(fired(&mut world, 600), 10);
    world.delete_schedule(Some("slipway"), "slipway-prod").unwrap();
    assert_eq!(fired(&mut world, 600), 0);
    world.create_schedule(tick()).unwrap();
    assert_eq!(fired(&mut world, 120), 3);
}

#[test]
fn schedules_are_told_apart_by_group_and_name() {
    let mut world = world();
    world.create_schedule(tick()).unwrap();
    assert_eq!(world.create_schedule(tick()).unwrap_err().code, "ConflictException");
    assert!(world.create_schedule(ScheduleRequest { group: None, ..tick() }).is_ok());
    assert_eq!(world.schedule(Some("slipway"), "slipway-prod").unwrap().expression, "rate(1 minutes)");
    assert_eq!(world.delete_schedule(None, "other").unwrap_err().code, "ResourceNotFoundException");
    assert_eq!(world.schedules(), ["default/slipway-prod", "slipway/slipway-prod"]);
}

#[test]
fn what_is_no_rate_is_refused() {
    for expression in ["rate(1 fortnight)", "rate(0 minutes)", "rate(1minute)", "cron(0 0 * * ? *)", "daily"]
    {
        let error = world()
            .create_schedule(ScheduleRequest { expression: expression.to_owned(), ..tick() })
            .unwrap_err();
        assert_eq!(error.code, "ValidationException", "{expression}");
    }
}
