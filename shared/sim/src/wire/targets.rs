//! Elastic Load Balancing's one action here, as botocore's service model has it (`elbv2/2015-12-01`, `DescribeTargetHealth`).

use super::query::Query;
use super::xml::Xml;
use crate::world::{ApiError, ApiResult, World};

pub(super) fn perform(world: &mut World, action: &str, query: &Query) -> ApiResult<Xml> {
    let mut xml = Xml::default();
    match action {
        "DescribeTargetHealth" => {
            let arn = query.required("TargetGroupArn")?.to_owned();
            query.finish()?;
            let found = world.target_health(&arn)?;
            xml.list("TargetHealthDescriptions", &found, |xml, target| {
                xml.nest("Target", |xml| {
                    xml.leaf("Id", &target.machine).leaf("Port", target.port);
                });
                xml.leaf("HealthCheckPort", target.port);
                xml.nest("TargetHealth", |xml| {
                    xml.leaf("State", target.state).maybe("Reason", target.reason);
                });
            });
        }
        other => {
            return Err(ApiError::not_modelled(&format!("The action {other} of Elastic Load Balancing")));
        }
    }
    Ok(xml)
}
