//! The query protocol: CloudFormation's actions, and those of the module `groups`.

use std::collections::{BTreeMap, BTreeSet};

use axum::http::HeaderMap;
use axum::response::Response;

use super::query::{Query, page_token};
use super::render;
use super::xml::Xml;
use super::{Service, groups, targets, xml_response};
use crate::world::{
    ApiError, ApiResult, ChangeSetKind, OnFailure, StackRequest, TemplateSource, World, drift_statuses,
};

/// The services of the query protocol that are modelled: the version of each, and its namespace.
const CLOUDFORMATION: (&str, &str) = ("2010-05-15", "http://cloudformation.amazonaws.com/doc/2010-05-15/");
const AUTO_SCALING: (&str, &str) = ("2011-01-01", "http://autoscaling.amazonaws.com/doc/2011-01-01/");

const LOAD_BALANCING: (&str, &str) =
    ("2015-12-01", "http://elasticloadbalancing.amazonaws.com/doc/2015-12-01/");

/// Answers a call of the query protocol.
pub(super) async fn answer(service: &Service, headers: &HeaderMap, body: &[u8]) -> Response {
    let request_id = service.now().request_id();
    let kind = headers.get("content-type").and_then(|value| value.to_str().ok()).unwrap_or_default();
    let outcome = if kind.starts_with("application/x-www-form-urlencoded") {
        call(service, &String::from_utf8_lossy(body)).await
    } else {
        Err(ApiError::not_modelled(&format!("A request of content type {kind:?}")))
    };
    match outcome {
        Ok((namespace, action, result)) => {
            let text = format!(
                "<{action}Response xmlns=\"{namespace}\"><{action}Result>{result}</{action}Result><ResponseMetadata>\
                 <RequestId>{request_id}</RequestId></ResponseMetadata></{action}Response>"
            );
            xml_response(200, text, &request_id)
        }
        Err(error) => xml_response(error.http_status, error_text(&error, &request_id), &request_id),
    }
}

/// An error as the query protocol writes it.
pub(super) fn error_text(error: &ApiError, request_id: &str) -> String {
    let mut xml = Xml::default();
    xml.nest("Error", |xml| {
        xml.leaf("Type", "Sender").leaf("Code", error.code).leaf("Message", &error.message);
    });
    xml.leaf("RequestId", request_id);
    // Clients ignore the namespace of an error.
    format!("<ErrorResponse xmlns=\"{}\">{}</ErrorResponse>", CLOUDFORMATION.1, xml.into_text())
}

/// Namespace, action and result.
async fn call(service: &Service, body: &str) -> ApiResult<(&'static str, String, String)> {
    let query = Query::parse(body);
    let action = query.required("Action")?.to_owned();
    let version = query.take("Version");
    if version == Some(AUTO_SCALING.0) {
        let xml = groups::perform(&mut service.now(), &action, &query)?;
        return Ok((AUTO_SCALING.1, action, xml.into_text()));
    }
    if version == Some(LOAD_BALANCING.0) {
        let xml = targets::perform(&mut service.now(), &action, &query)?;
        return Ok((LOAD_BALANCING.1, action, xml.into_text()));
    }
    if version != Some(CLOUDFORMATION.0) {
        return Err(ApiError::not_modelled("A version other than 2010-05-15, 2011-01-01 and 2015-12-01"));
    }
    // Fetching the template takes a while, so it is done before the world is locked.
    let template = match (query.take("TemplateBody"), query.take("TemplateURL")) {
        (Some(_), Some(_)) => {
            return Err(ApiError::validation("Only one of Template URL or Template Body may be specified."));
        }
        (Some(body), None) => Some(TemplateSource { body: body.to_owned(), from_url: false }),
        (None, Some(url)) => Some(service.templates.fetch(url).await?),
        (None, None) => None,
    };
    let mut world = service.now();
    let xml = perform(&mut world, &action, &query, template)?;
    Ok((CLOUDFORMATION.1, action, xml.into_text()))
}

fn perform(
    world: &mut World,
    action: &str,
    query: &Query,
    template: Option<TemplateSource>,
) -> ApiResult<Xml> {
    let takes_template =
        ["CreateChangeSet", "CreateStack", "UpdateStack", "ValidateTemplate"].contains(&action);
    if template.is_some() && !takes_template {
        return Err(ApiError::validation(format!("{action} takes no template")));
    }
    let mut xml = Xml::default();
    match action {
        "CreateChangeSet" => create_change_set(world, query, template, &mut xml)?,
        "DescribeChangeSet" => describe_change_set(world, query, &mut xml)?,
        "ExecuteChangeSet" => {
            let (name, stack, token) =
                (query.required("ChangeSetName")?, query.take("StackName"), query.take("ClientRequestToken"));
            query.never("DisableRollback")?;
            query.never("RetainExceptOnCreate")?;
            query.finish()?;
            world.execute_change_set(stack, name, token)?;
        }
        "ContinueUpdateRollback" => {
            let (stack, token) = (query.required("StackName")?, query.take("ClientRequestToken"));
            query.finish()?;
            world.continue_update_rollback(stack, token)?;
        }
        "DeleteChangeSet" => {
            let (name, stack) = (query.required("ChangeSetName")?, query.take("StackName"));
            query.finish()?;
            world.delete_change_set(stack, name)?;
        }
        "ListChangeSets" => {
            let stack = query.required("StackName")?;
            query.finish()?;
            let (stack, change_sets) = world.change_sets(stack)?;
            xml.list("Summaries", change_sets, |xml, one| render::change_set_summary(xml, stack, one));
        }
        "CreateStack" => {
            let request = stack_request(query, template, "OnFailure", "ClientRequestToken")?;
            query.finish()?;
            xml.leaf("StackId", world.create_stack(&request)?);
        }
        "UpdateStack" => {
            let request = stack_request(query, template, "OnFailure", "ClientRequestToken")?;
            query.finish()?;
            xml.leaf("StackId", world.update_stack(&request)?);
        }
        "DeleteStack" => {
            let (name, token) = (query.required("StackName")?, query.take("ClientRequestToken"));
            // The role makes no difference in this world.
            query.take("RoleARN");
            query.finish()?;
            world.delete_stack(name, token)?;
        }
        "DescribeStacks" => {
            let name = query.take("StackName");
            query.finish()?;
            let stacks = world.stacks(name)?;
            xml.list("Stacks", stacks, render::stack);
        }
        "ListStacks" => {
            let statuses: Vec<String> =
                query.list("StackStatusFilter").unwrap_or_default().into_iter().map(str::to_owned).collect();
            query.finish()?;
            xml.list("StackSummaries", world.list_stacks(&statuses)?, render::stack_summary);
        }
        "DescribeStackEvents" => {
            let (name, from) = (query.required("StackName")?, query.page()?);
            query.finish()?;
            let (stack, page, next) = world.events(name, from)?;
            xml.list("StackEvents", page, |xml, event| render::event(xml, stack, event));
            xml.maybe("NextToken", next.map(page_token));
        }
        "DescribeEvents" => {
            // By the name alone, or with the stack's beside it, it is refused (cloudformation-cli 1116). Nothing here validates before it deploys, so a change set has
            // no events of its own.
            let name = query.required("ChangeSetName")?;
            if !name.starts_with("arn:") {
                return Err(ApiError::validation(
                    "One of ChangeSetName, OperationId or StackName must be specified",
                ));
            }
            query.flag("Filters.FailedEvents");
            query.finish()?;
            world.change_set_events(name)?;
            xml.nest("OperationEvents", |_| {});
        }
        "DescribeStackResources" => {
            let (name, only) = (query.required("StackName")?, query.take("LogicalResourceId"));
            query.finish()?;
            let (stack, resources) = world.resources("DescribeStackResources", name)?;
            let wanted = resources.into_iter().filter(|one| only.is_none_or(|only| one.logical_id == only));
            xml.list("StackResources", wanted, |xml, one| render::resource(xml, stack, one));
        }
        "ListStackResources" => {
            let name = query.required("StackName")?;
            query.finish()?;
            let (_, resources) = world.resources("ListStackResources", name)?;
            xml.list("StackResourceSummaries", resources, render::resource_summary);
        }
        "DetectStackDrift" => {
            let name = query.required("StackName")?;
            if query.list("LogicalResourceIds").is_some_and(|ids| !ids.is_empty()) {
                return Err(ApiError::not_modelled("LogicalResourceIds"));
            }
            query.finish()?;
            xml.leaf("StackDriftDetectionId", world.detect_stack_drift(name)?);
        }
        "DescribeStackDriftDetectionStatus" => {
            let id = query.required("StackDriftDetectionId")?;
            query.finish()?;
            render::detection(&mut xml, id, world.drift_detection(id)?);
        }
        "DescribeStackResourceDrifts" => describe_drifts(world, query, &mut xml)?,
        "ListExports" => {
            query.finish()?;
            let exports = world.list_exports()?;
            xml.list("Exports", exports, |xml, (stack, output)| {
                xml.leaf("ExportingStackId", &stack.id)
                    .maybe("Name", output.export.as_ref())
                    .leaf("Value", &output.value);
            });
        }
        "GetTemplate" => {
            let (name, change_set) = (query.required("StackName")?, query.take("ChangeSetName"));
            query.take("TemplateStage");
            query.finish()?;
            xml.leaf("TemplateBody", world.template_body(name, change_set)?);
            xml.texts("StagesAvailable", ["Original", "Processed"]);
        }
        "ValidateTemplate" => {
            query.finish()?;
            let source = template.ok_or_else(|| {
                ApiError::validation("Either Template URL or Template Body must be specified.")
            })?;
            render::validated(&mut xml, &world.validate_template(&source)?);
        }
        other => return Err(ApiError::not_modelled(&format!("The action {other}"))),
    }
    Ok(xml)
}

fn create_change_set(
    world: &mut World,
    query: &Query,
    template: Option<TemplateSource>,
    xml: &mut Xml,
) -> ApiResult<()> {
    let request = stack_request(query, template, "OnStackFailure", "ClientToken")?;
    let name = query.required("ChangeSetName")?;
    let description = query.take("Description").map(str::to_owned);
    query.never("IncludeNestedStacks")?;
    query.never("ImportExistingResources")?;
    let kind = match query.take("ChangeSetType") {
        None | Some("UPDATE") => ChangeSetKind::Update,
        Some("CREATE") => ChangeSetKind::Create,
        Some(other) => return Err(ApiError::not_modelled(&format!("ChangeSetType {other}"))),
    };
    query.finish()?;
    let (id, stack_id) = world.create_change_set(name, kind, description, &request)?;
    xml.leaf("Id", id).leaf("StackId", stack_id);
    Ok(())
}

fn describe_change_set(world: &mut World, query: &Query, xml: &mut Xml) -> ApiResult<()> {
    let (name, stack, from) = (query.required("ChangeSetName")?, query.take("StackName"), query.page()?);
    let values = query.flag("IncludePropertyValues");
    query.finish()?;
    let size = world.config().page_size;
    let (stack, change_set) = world.change_set(stack, name)?;
    render::change_set(xml, stack, change_set);
    let page = change_set.changes.iter().skip(from).take(size);
    xml.list("Changes", page, |xml, one| render::change(xml, one, values));
    let next = from + size;
    xml.maybe("NextToken", (next < change_set.changes.len()).then(|| page_token(next)));
    Ok(())
}

/// "The maximum number of results to be returned with a single call", from 1 to 100 (botocore, `BoxedMaxResults`).
fn describe_drifts(world: &mut World, query: &Query, xml: &mut Xml) -> ApiResult<()> {
    let (name, from) = (query.required("StackName")?, query.page()?);
    let statuses = query.list("StackResourceDriftStatusFilters").unwrap_or_default();
    if let Some(odd) = statuses.iter().find(|status| !drift_statuses().contains(*status)) {
        return Err(ApiError::validation(format!("{odd} is not a drift status of a resource")));
    }
    let most = query.take("MaxResults").map(|most| most.parse().unwrap_or_default());
    let most: usize = most.unwrap_or(world.config().page_size);
    if !(1..=100).contains(&most) {
        return Err(ApiError::validation("MaxResults must be between 1 and 100"));
    }
    query.finish()?;
    let (stack_id, found) = world.resource_drifts(name, &statuses)?;
    let next = from + most;
    xml.list("StackResourceDrifts", found.iter().skip(from).take(most), |xml, one| {
        render::resource_drift(xml, &stack_id, one);
    });
    xml.maybe("NextToken", (next < found.len()).then(|| page_token(next)));
    Ok(())
}

fn stack_request(
    query: &Query,
    template: Option<TemplateSource>,
    on_failure: &str,
    token: &str,
) -> ApiResult<StackRequest> {
    let previous = query.flag("UsePreviousTemplate");
    if previous == template.is_some() {
        return Err(ApiError::validation(if previous {
            "Template URL or Template Body may not be specified with UsePreviousTemplate."
        } else {
            "Either Template URL or Template Body must be specified."
        }));
    }
    let mut parameters = BTreeMap::new();
    for prefix in query.structures("Parameters").unwrap_or_default() {
        let key = query.required(&format!("{prefix}ParameterKey"))?.to_owned();
        let value = query.take(&format!("{prefix}ParameterValue")).map(str::to_owned);
        let value = if query.flag(&format!("{prefix}UsePreviousValue")) {
            None
        } else {
            Some(value.unwrap_or_default())
        };
        parameters.insert(key, value);
    }
    let tags = match query.structures("Tags") {
        None => None,
        Some(prefixes) => {
            let mut tags = BTreeMap::new();
            for prefix in prefixes {
                let value = query.take(&format!("{prefix}Value")).unwrap_or_default().to_owned();
                tags.insert(query.required(&format!("{prefix}Key"))?.to_owned(), value);
            }
            Some(tags)
        }
    };
    let mut capabilities = BTreeSet::new();
    for capability in query.list("Capabilities").unwrap_or_default() {
        if !["CAPABILITY_AUTO_EXPAND", "CAPABILITY_IAM", "CAPABILITY_NAMED_IAM"].contains(&capability) {
            return Err(ApiError::validation(format!("Unknown capability {capability}")));
        }
        capabilities.insert(capability.to_owned());
    }
    let disabled = query.flag("DisableRollback").then_some(OnFailure::DoNothing);
    let on_failure = query.take(on_failure).map(OnFailure::parse).transpose()?.or(disabled);
    Ok(StackRequest {
        stack_name: query.required("StackName")?.to_owned(),
        template,
        parameters,
        tags,
        capabilities,
        role_arn: query.take("RoleARN").map(str::to_owned),
        on_failure,
        token: query.take(token).map(str::to_owned),
    })
}
