//! The rest of the API: creating and updating stacks without change sets, and all read-only actions.

use slipway_rollout::StackStatus;

use super::change_sets::check_updatable;
use super::drift::DriftInformation;
use super::error::{ApiError, ApiResult};
use super::operation::OperationKind;
use super::resource::{Output, Resource};
use super::stack::{Stack, StackEvent};
use super::template::Template;
use super::{OnFailure, StackRequest, World, limits, request};

/// The answer of `ValidateTemplate`.
pub(crate) struct Validated {
    pub(crate) template: Template,
    pub(crate) capability: Option<&'static str>,
}

impl World {
    /// Deletes a stack, as a person at a console does.
    ///
    /// # Errors
    /// Those of the API: the stack is being updated.
    pub fn delete(&mut self, name: &str) -> ApiResult<()> {
        self.delete_stack(name, None)
    }

    /// Adds a new stack.
    pub(super) fn add_stack(&mut self, name: &str, status: StackStatus) -> String {
        let uuid = self.uuid();
        let id = self.arn(&format!("stack/{name}/{uuid}"));
        let stack = Stack {
            id: id.clone(),
            name: name.to_owned(),
            status,
            reason: None,
            created_at: self.now,
            updated_at: None,
            deleted_at: None,
            role_arn: None,
            protected: false,
            revision: None,
            resources: Default::default(),
            outputs: Default::default(),
            imports: Default::default(),
            events: Vec::new(),
            change_sets: Vec::new(),
            change_set_id: None,
            operation: None,
            generation: 0,
            shown: Vec::new(),
        };
        self.stacks.insert(id.clone(), std::sync::Arc::new(stack));
        if status == StackStatus::ReviewInProgress {
            self.set_stack_status(&id, status, Some("User Initiated".to_owned()));
        }
        id
    }

    /// `CreateStack`. Returns the stack's id.
    pub(crate) fn create_stack(&mut self, request: &StackRequest) -> ApiResult<String> {
        self.enter("CreateStack")?;
        limits::of_name("stackName", &request.stack_name)?;
        let token = request.token.as_deref();
        if let Some(stack) = self.live(&request.stack_name) {
            let id = stack.id.clone();
            if self.token_was_used(token, "CreateStack", &id)? {
                return Ok(id);
            }
            return Err(ApiError::already_exists(format!("Stack [{}] already exists", request.stack_name)));
        }
        let target = self.revision(request, None)?;
        let id = self.add_stack(&request.stack_name, StackStatus::CreateInProgress);
        self.note_token(token, "CreateStack", &id);
        self.stack_mut(&id).role_arn.clone_from(&request.role_arn);
        let on_failure = request.on_failure.unwrap_or(OnFailure::Rollback);
        self.begin(&id, OperationKind::Create { on_failure }, Some(target), token, None);
        Ok(id)
    }

    /// `UpdateStack`. Returns the stack's id.
    pub(crate) fn update_stack(&mut self, request: &StackRequest) -> ApiResult<String> {
        self.enter("UpdateStack")?;
        let token = request.token.as_deref();
        let missing = || ApiError::validation(format!("Stack [{}] does not exist", request.stack_name));
        let stack = self.find(&request.stack_name).filter(|stack| !stack.is_deleted()).ok_or_else(missing)?;
        let id = stack.id.clone();
        if self.token_was_used(token, "UpdateStack", &id)? {
            return Ok(id);
        }
        let stack = &self.stacks[&id];
        check_updatable(stack)?;
        let target = self.revision(request, stack.revision.as_ref())?;
        match self.work_out(stack, &target) {
            Err(reason)
                if reason == super::change_set::NO_CHANGES || reason == super::change_set::NO_UPDATES =>
            {
                return Err(ApiError::validation(super::change_set::NO_UPDATES));
            }
            // Other errors show when the update is executed, as in AWS.
            Err(_) | Ok(_) => {}
        }
        self.note_token(token, "UpdateStack", &id);
        if request.role_arn.is_some() {
            self.stack_mut(&id).role_arn.clone_from(&request.role_arn);
        }
        let roll_back = request.on_failure != Some(OnFailure::DoNothing);
        self.begin(&id, OperationKind::Update { roll_back }, Some(target), token, None);
        Ok(id)
    }

    /// `DescribeStacks`: one stack, or all live stacks, with what is known of their drift.
    pub(crate) fn stacks(&mut self, name: Option<&str>) -> ApiResult<Vec<(&Stack, DriftInformation)>> {
        self.enter("DescribeStacks")?;
        let found: Vec<&Stack> = match name {
            None => self.all_stacks().filter(|stack| !stack.is_deleted()).collect(),
            Some(name) => {
                let missing = || ApiError::validation(format!("Stack with id {name} does not exist"));
                vec![self.find(name).ok_or_else(missing)?]
            }
        };
        Ok(found.into_iter().map(|stack| (stack, self.drift_information(&stack.id))).collect())
    }

    /// `ListStacks`: all stacks that ever existed, or those with one of `statuses` if any are given.
    pub(crate) fn list_stacks(&mut self, statuses: &[String]) -> ApiResult<Vec<&Stack>> {
        self.enter("ListStacks")?;
        let wanted =
            |stack: &&Stack| statuses.is_empty() || statuses.contains(&super::status_name(stack.status));
        Ok(self.all_stacks().filter(wanted).collect())
    }

    /// `DescribeStackEvents`, newest first: the page that begins at `from`, and where the next page begins.
    pub(crate) fn events(
        &mut self,
        name: &str,
        from: usize,
    ) -> ApiResult<(&Stack, Vec<&StackEvent>, Option<usize>)> {
        self.enter("DescribeStackEvents")?;
        let missing = || ApiError::validation(format!("Stack [{name}] does not exist"));
        let size = self.config.page_size;
        let stack = self.find(name).ok_or_else(missing)?;
        let page: Vec<&StackEvent> = stack.events.iter().rev().skip(from).take(size).collect();
        let next = (from + page.len() < stack.events.len()).then_some(from + page.len());
        Ok((stack, page, next))
    }

    /// `DescribeStackResources`, `ListStackResources`.
    pub(crate) fn resources(
        &mut self,
        action: &'static str,
        name: &str,
    ) -> ApiResult<(&Stack, Vec<&Resource>)> {
        self.enter(action)?;
        let stack = self
            .find(name)
            .ok_or_else(|| ApiError::validation(format!("Stack with id {name} does not exist")))?;
        Ok((stack, stack.resources.values().collect()))
    }

    /// `ListExports`: stacks and outputs.
    pub(crate) fn list_exports(&mut self) -> ApiResult<Vec<(&Stack, &Output)>> {
        self.enter("ListExports")?;
        let stacks = self.all_stacks().filter(|stack| !stack.is_deleted());
        let outputs = stacks.flat_map(|stack| stack.outputs.values().map(move |output| (stack, output)));
        let mut exports: Vec<(&Stack, &Output)> =
            outputs.filter(|(_, output)| output.export.is_some()).collect();
        exports.sort_by(|(_, left), (_, right)| left.export.cmp(&right.export));
        Ok(exports)
    }

    /// `GetTemplate` of a stack or of one of its change sets.
    pub(crate) fn template_body(&mut self, name: &str, change_set: Option<&str>) -> ApiResult<String> {
        self.enter("GetTemplate")?;
        let missing = || ApiError::validation(format!("Stack with id {name} does not exist"));
        let stack = self.find(name).ok_or_else(missing)?;
        if let Some(wanted) = change_set {
            let found = stack.change_sets.iter().find(|one| one.name == wanted || one.id == wanted);
            let found = found.ok_or_else(|| ApiError::change_set_not_found(wanted))?;
            return Ok(found.target.template.body.clone());
        }
        let revision = stack
            .revision
            .as_ref()
            .or(stack.operation.as_ref().and_then(|operation| operation.target.as_ref()));
        revision
            .map(|revision| revision.template.body.clone())
            .ok_or_else(|| ApiError::validation(format!("Template of stack {name} does not exist")))
    }

    /// `ValidateTemplate`.
    pub(crate) fn validate_template(&mut self, source: &request::TemplateSource) -> ApiResult<Validated> {
        self.enter("ValidateTemplate")?;
        let template = source.read()?;
        let capability = request::needed_capability(&template);
        Ok(Validated { template, capability })
    }

    /// Whether an operation with that token has begun already: then this is a repeated call, which is answered like the first one or, by the
    /// token, refused as CloudFormation may refuse it.
    pub(super) fn token_was_used(
        &self,
        token: Option<&str>,
        action: &'static str,
        subject: &str,
    ) -> ApiResult<bool> {
        let Some(token) = token else { return Ok(false) };
        match self.tokens.get(token) {
            None => Ok(false),
            Some((of, on)) if *of == action && on == subject && !is_refused(token) => Ok(true),
            Some(_) => Err(ApiError::token_already_exists(token)),
        }
    }

    pub(super) fn note_token(&mut self, token: Option<&str>, action: &'static str, subject: &str) {
        if let Some(token) = token {
            self.tokens.insert(token.to_owned(), (action, subject.to_owned()));
        }
    }
}

/// Whether a repeated call with that token is refused: for every second token. CloudFormation is documented to accept it, and was seen to
/// refuse it with "has already been used for this stack" (banzaicloud/pipeline 3016).
fn is_refused(token: &str) -> bool {
    token.bytes().fold(0_u8, u8::wrapping_add) % 2 == 1
}
