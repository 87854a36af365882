//! Boots what groups launch, and switches off what they let go: follows the simulated Auto Scaling.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Value, json};
use slipway_sim::{Delegated, MachineFacts, Power};
use tokio::task::{JoinHandle, JoinSet};

use super::metadata::access_key;
use super::qemu::{Accelerator, Hardware, Running};
use super::state::{Guest, State};
use crate::client::ACCOUNT;
use crate::gateway::Principal;
use crate::iam::{self, Statement};
use crate::installation::Installation;

/// How often it looks at the groups.
const LOOK: Duration = Duration::from_millis(250);
const SUBNET: &str = "AWS::EC2::Subnet";
const GROUP: &str = "AWS::AutoScaling::AutoScalingGroup";
const PROFILE: &str = "AWS::IAM::InstanceProfile";
const ROLE: &str = "AWS::IAM::Role";

/// What machines are made of.
#[derive(Debug)]
pub struct Workshop {
    /// The machines that there are.
    pub state: Arc<State>,
    /// What they are in.
    pub slipway: Arc<Installation>,
    /// What they run on.
    pub accelerator: Accelerator,
    /// The folder of the image.
    pub image: PathBuf,
    /// Each machine has a folder in here, with its console.
    pub folder: PathBuf,
    /// What each document has a shell do, with places for its parameters.
    pub documents: BTreeMap<String, String>,
    /// What happened to machines, a line each.
    pub story: Mutex<Vec<(String, String)>>,
}

impl Workshop {
    fn log(&self, id: &str, line: impl Into<String>) {
        self.story.lock().unwrap_or_else(PoisonError::into_inner).push((id.to_owned(), line.into()));
    }

    /// What happened since the last call: machine, and a line.
    #[must_use]
    pub fn story(&self) -> Vec<(String, String)> {
        std::mem::take(&mut *self.story.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The console of a machine, as far as it has come.
    #[must_use]
    pub fn console(&self, id: &str) -> String {
        let bytes = std::fs::read(self.folder.join(id).join("console")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

/// Follows the groups until the task is dropped.
#[must_use]
pub fn follow(workshop: Arc<Workshop>) -> JoinHandle<()> {
    tokio::spawn(async move {
        let mut running: BTreeMap<String, Running> = BTreeMap::new();
        let mut seen = BTreeSet::new();
        let mut leaving = JoinSet::new();
        loop {
            let (machines, asked) = {
                let mut world = workshop.state.world();
                (world.machines(), world.delegated())
            };
            for command in &asked {
                workshop.hand_over(command);
            }
            for machine in &machines {
                if machine.power != Power::Down && seen.insert(machine.id.clone()) {
                    match workshop.boot(machine).await {
                        Ok(started) => _ = running.insert(machine.id.clone(), started),
                        Err(error) => {
                            workshop.log(&machine.id, format!("cannot be started: {error}"));
                            workshop.state.world().kill_machine(&machine.id);
                        }
                    }
                }
            }
            let stands =
                |id: &str| machines.iter().any(|machine| machine.id == id && machine.power != Power::Down);
            let gone: Vec<String> = running.keys().filter(|id| !stands(id)).cloned().collect();
            for id in gone {
                let Some(machine) = running.remove(&id) else { continue };
                let workshop = Arc::clone(&workshop);
                leaving.spawn(async move {
                    machine.shut_down().await;
                    workshop.log(&id, "is gone");
                    workshop.state.remove(&id);
                });
            }
            while leaving.try_join_next().is_some() {}
            for (id, machine) in &mut running {
                if let Ok(ended) = tokio::time::timeout(Duration::from_millis(1), machine.ended()).await {
                    workshop.log(id, format!("has stopped by itself: {ended}"));
                    workshop.state.world().kill_machine(id);
                }
            }
            tokio::time::sleep(LOOK).await;
        }
    })
}

impl Workshop {
    /// Lets the machine's agent do what a document says, text for text as Systems Manager fills it in.
    fn hand_over(&self, command: &Delegated) {
        let Some(line) = self.documents.get(&command.document) else {
            return self.log(
                &command.instance,
                format!("is asked for {}, which the installation has not", command.document),
            );
        };
        let defaults = slipway_sim::documents().find(|document| document.name == command.document);
        let mut values: BTreeMap<String, String> = defaults
            .iter()
            .flat_map(|document| &document.parameters)
            .filter_map(|(name, default)| Some(((*name).to_owned(), (*default)?.to_owned())))
            .collect();
        values.extend(command.parameters.clone());
        let mut line = line.clone();
        for (name, value) in &values {
            line = line.replace(&format!("{{{{ {name} }}}}"), value);
        }
        self.log(&command.instance, format!("runs {}", command.document));
        self.state.add_command(
            &command.instance,
            json!({ "id": command.id, "lines": [line], "seconds": command.timeout_s }),
        );
    }

    async fn boot(&self, machine: &MachineFacts) -> io::Result<Running> {
        let (launch, groups, subnets) = {
            let world = self.state.world();
            (world.launch_of(&machine.id), world.resources_of_type(GROUP), world.resources_of_type(SUBNET))
        };
        let launch = launch.ok_or_else(|| io::Error::other("its launch template is gone"))?;
        let group = groups.get(&machine.group).cloned().unwrap_or_default();
        let instance_type = instance_type(&launch.template, &group);
        let (subnet, address) = self.place(machine, &group, &subnets)?;
        let hardware = Hardware {
            id: &machine.id,
            accelerator: self.accelerator,
            image: &self.image,
            folder: self.folder.join(&machine.id),
            address,
            disk_gib: disk_gib(&launch.template),
            memory_mib: memory_mib(&machine.role),
            instance_type: &instance_type,
        };
        let running = Running::start(&hardware).await?;
        let userdata = launch.template["UserData"].as_str().and_then(|text| STANDARD.decode(text).ok());
        let profile =
            launch.template.pointer("/IamInstanceProfile/Arn").and_then(Value::as_str).unwrap_or_default();
        let node_role = self.know(profile.rsplit('/').next().unwrap_or_default(), &machine.id);
        self.state.add(Guest {
            id: machine.id.clone(),
            role: machine.role.clone(),
            address,
            zone: machine.zone.clone(),
            subnet,
            instance_type,
            is_spot: group
                .pointer("/MixedInstancesPolicy/InstancesDistribution/OnDemandPercentageAboveBaseCapacity")
                .is_some(),
            node_role,
            tags: launch.tags,
            userdata: userdata.unwrap_or_default(),
            launched_at: Timestamp::now(),
            handle: running.handle(),
            commands: VecDeque::new(),
        });
        self.log(&machine.id, format!("{} starts at {address}", machine.role));
        Ok(running)
    }

    /// From now on the machine with that instance profile may do what its role grants, and no more: the role's name.
    fn know(&self, profile: &str, machine: &str) -> String {
        let (profiles, roles) = {
            let world = self.state.world();
            (world.resources_of_type(PROFILE), world.resources_of_type(ROLE))
        };
        let role = profiles.get(profile).and_then(|profile| profile["Roles"][0].as_str()).unwrap_or_default();
        let policies =
            roles.get(role).and_then(|role| role["Policies"].as_array()).cloned().unwrap_or_default();
        let read = |policy: &Value| {
            iam::parse(&policy["PolicyDocument"]).unwrap_or_else(|error| {
                self.log(role, format!("grants nothing, since its policy cannot be read: {error}"));
                Vec::new()
            })
        };
        let statements: Vec<Statement> = policies.iter().flat_map(read).collect();
        let arn = format!("arn:aws:iam::{ACCOUNT}:role/slipway/{role}");
        let principal = Principal { name: machine.to_owned(), arn, statements };
        self.slipway.world().gateway().know(&access_key(machine), principal);
        role.to_owned()
    }

    /// A subnet of the group in the machine's zone, and an address of it that nobody has.
    fn place(
        &self,
        machine: &MachineFacts,
        group: &Value,
        subnets: &BTreeMap<String, Value>,
    ) -> io::Result<(String, Ipv4Addr)> {
        let ids = group["VPCZoneIdentifier"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let mut of_it = ids.filter_map(|id| Some((id, subnets.get(id)?)));
        let (id, subnet) =
            of_it.find(|(_, subnet)| subnet["AvailabilityZone"] == machine.zone.as_str()).ok_or_else(
                || io::Error::other(format!("{} has no subnet in {}", machine.group, machine.zone)),
            )?;
        let cidr = subnet["CidrBlock"].as_str().unwrap_or_default();
        let base: Option<Ipv4Addr> = cidr.split('/').next().and_then(|base| base.parse().ok());
        let base = base.ok_or_else(|| io::Error::other(format!("{id} has no range: {cidr:?}")))?;
        let taken: BTreeSet<Ipv4Addr> = self.state.guests().iter().map(|guest| guest.address).collect();
        let [a, b, c, _] = base.octets();
        // The first addresses of a subnet are AWS' own.
        let free =
            (10..250).map(|last| Ipv4Addr::new(a, b, c, last)).find(|address| !taken.contains(address));
        let free = free.ok_or_else(|| io::Error::other(format!("{id} is full")))?;
        Ok((id.to_owned(), free))
    }
}

fn instance_type(template: &Value, group: &Value) -> String {
    let first = group.pointer("/MixedInstancesPolicy/LaunchTemplate/Overrides/0/InstanceType");
    first.or(template.get("InstanceType")).and_then(Value::as_str).unwrap_or("m7i.large").to_owned()
}

fn disk_gib(template: &Value) -> u64 {
    let size = template.pointer("/BlockDeviceMappings/0/Ebs/VolumeSize");
    size.and_then(|size| size.as_u64().or_else(|| size.as_str()?.parse().ok())).unwrap_or(20)
}

/// What a role needs here, and not what its instance type has: all of them must fit into one machine.
fn memory_mib(role: &str) -> u64 {
    match role {
        "controller" => 2_560,
        _ if role.starts_with("etcd-") => 1_024,
        _ => 1_792,
    }
}
