//! What is so around the machines: who they are, what is attached where, which records are set, what they are told to do.

use std::collections::{BTreeMap, VecDeque};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use serde_json::Value;
use slipway_sim::ports::SharedWorld;
use tokio::sync::{Notify, oneshot};

use super::qemu::Handle;

/// What ids of commands begin with that did not go through Run Command.
const OURS: &str = "ours-";

/// Who waits for what, by the id of the command.
#[derive(Debug, Default)]
pub struct Waiting(Mutex<(u64, BTreeMap<String, oneshot::Sender<Value>>)>);

impl Waiting {
    pub(super) fn expect(&self) -> (String, oneshot::Receiver<Value>) {
        let (sender, receiver) = oneshot::channel();
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.0 += 1;
        let id = format!("{OURS}{}", waiting.0);
        waiting.1.insert(id.clone(), sender);
        (id, receiver)
    }

    /// A machine tells how a command ended: whether it was one of ours.
    pub fn take(&self, told: &Value) -> bool {
        let id = told["id"].as_str().unwrap_or_default();
        if let Some(sender) = self.0.lock().unwrap_or_else(PoisonError::into_inner).1.remove(id) {
            // Who has gone needs no answer.
            let _ = sender.send(told.clone());
        }
        id.starts_with(OURS)
    }
}

/// Shared by all that answers machines.
#[derive(Debug)]
pub struct State {
    /// The simulated AWS.
    pub world: SharedWorld,
    /// `eu-west-1`.
    pub region: String,
    /// Volumes lie here.
    pub folder: PathBuf,
    /// Rung when a machine is told to do something.
    pub command_added: Notify,
    /// Who waits for what a machine was told past Run Command.
    pub waiting: Waiting,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    guests: BTreeMap<String, Guest>,
    /// Instance and device of each volume that is attached.
    attached: BTreeMap<String, (String, String)>,
    /// By zone and name, without the dot at its end.
    records: BTreeMap<(String, String), Record>,
    api_names: Vec<String>,
}

/// A record of addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Seconds.
    pub ttl_s: u32,
    /// What it says.
    pub addresses: Vec<Ipv4Addr>,
}

/// A machine.
#[derive(Debug, Clone)]
pub struct Guest {
    /// `i-…`.
    pub id: String,
    /// `etcd-0`, `controller`, ….
    pub role: String,
    /// Its address.
    pub address: Ipv4Addr,
    /// `eu-west-1a`.
    pub zone: String,
    /// Its subnet.
    pub subnet: String,
    /// `m7i.large`.
    pub instance_type: String,
    /// Whether it is a Spot instance.
    pub is_spot: bool,
    /// Its instance profile's role.
    pub node_role: String,
    /// As EC2 shows them.
    pub tags: BTreeMap<String, String>,
    /// The script, decoded.
    pub userdata: Vec<u8>,
    /// When it was started.
    pub launched_at: Timestamp,
    /// How QEMU is told about it.
    pub handle: Handle,
    /// What its agent has not fetched yet: commands as it is told them.
    pub commands: VecDeque<Value>,
}

impl Guest {
    /// Its name in the VPC.
    #[must_use]
    pub fn dns_name(&self, region: &str) -> String {
        let [a, b, c, d] = self.address.octets();
        format!("ip-{a}-{b}-{c}-{d}.{}", domain(region))
    }
}

/// The domain of a VPC's machines.
#[must_use]
pub fn domain(region: &str) -> String {
    if region == "us-east-1" { "ec2.internal".to_owned() } else { format!("{region}.compute.internal") }
}

impl State {
    /// Nothing but a world.
    #[must_use]
    pub fn new(world: SharedWorld, region: &str, folder: PathBuf) -> Arc<Self> {
        let inner = Mutex::default();
        Arc::new(Self {
            world,
            region: region.to_owned(),
            folder,
            command_added: Notify::new(),
            waiting: Waiting::default(),
            inner,
        })
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The simulated AWS, as it is now.
    pub fn world(&self) -> MutexGuard<'_, slipway_sim::World> {
        slipway_sim::ports::lock(&self.world)
    }

    /// Every machine.
    #[must_use]
    pub fn guests(&self) -> Vec<Guest> {
        self.inner().guests.values().cloned().collect()
    }

    /// A machine.
    #[must_use]
    pub fn guest(&self, id: &str) -> Option<Guest> {
        self.inner().guests.get(id).cloned()
    }

    /// The machine that has an address.
    #[must_use]
    pub fn guest_at(&self, address: Ipv4Addr) -> Option<Guest> {
        self.inner().guests.values().find(|guest| guest.address == address).cloned()
    }

    /// There is a machine more.
    pub fn add(&self, guest: Guest) {
        self.inner().guests.insert(guest.id.clone(), guest);
    }

    /// A machine is gone, and with it what it had attached.
    pub fn remove(&self, id: &str) {
        let mut inner = self.inner();
        inner.guests.remove(id);
        inner.attached.retain(|_, (instance, _)| instance != id);
    }

    /// Tells a machine to do something.
    pub fn add_command(&self, id: &str, command: Value) {
        if let Some(guest) = self.inner().guests.get_mut(id) {
            guest.commands.push_back(command);
        }
        self.command_added.notify_waiters();
    }

    /// What a machine is to do, each once.
    #[must_use]
    pub fn take_commands(&self, id: &str) -> Vec<Value> {
        self.inner().guests.get_mut(id).map(|guest| guest.commands.drain(..).collect()).unwrap_or_default()
    }

    /// Instance and device to which a volume is attached.
    #[must_use]
    pub fn attachment(&self, volume: &str) -> Option<(String, String)> {
        self.inner().attached.get(volume).cloned()
    }

    /// A volume is attached, unless it was already: whether it was not.
    pub fn attach(&self, volume: &str, instance: &str, device: &str) -> bool {
        let mut inner = self.inner();
        if inner.attached.contains_key(volume) {
            return false;
        }
        inner.attached.insert(volume.to_owned(), (instance.to_owned(), device.to_owned()));
        true
    }

    /// It is not, after all.
    pub fn detach(&self, volume: &str) {
        self.inner().attached.remove(volume);
    }

    /// Sets a record, or takes it away.
    pub fn set_record(&self, zone: &str, name: &str, record: Option<Record>) {
        let name = name.trim_end_matches('.').to_lowercase();
        self.world().note_record(zone, &name, record.is_some());
        let key = (zone.to_owned(), name);
        match record {
            Some(record) => _ = self.inner().records.insert(key, record),
            None => _ = self.inner().records.remove(&key),
        }
    }

    /// The records of a zone, by name.
    #[must_use]
    pub fn records(&self, zone: &str) -> BTreeMap<String, Record> {
        let inner = self.inner();
        let of_it = inner.records.iter().filter(|((of, _), _)| of == zone);
        of_it.map(|((_, name), record)| (name.clone(), record.clone())).collect()
    }

    /// What a record of any zone says.
    #[must_use]
    pub fn record(&self, name: &str) -> Option<Vec<Ipv4Addr>> {
        let inner = self.inner();
        let mut found = inner.records.iter().filter(|((_, of), _)| of == name);
        found.next().map(|(_, record)| record.addresses.clone())
    }

    /// The address of the machine of that name.
    #[must_use]
    pub fn address_by_name(&self, name: &str) -> Option<Ipv4Addr> {
        let inner = self.inner();
        let mut found = inner.guests.values().filter(|guest| guest.dns_name(&self.region) == name);
        found.next().map(|guest| guest.address)
    }

    /// Names of the API, which lead to the load balancer.
    pub fn set_api_names(&self, names: Vec<String>) {
        self.inner().api_names = names;
    }

    /// See [`State::set_api_names`].
    #[must_use]
    pub fn api_names(&self) -> Vec<String> {
        self.inner().api_names.clone()
    }
}
