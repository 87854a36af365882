//! What is known of EC2's instance types.
//!
//! New ones appear every month, so this table only ever advises: what it does not know is not refused, and nothing
//! that is rendered depends on it (P1). `data/instance_types.py` makes it from what EC2 itself says.

use slipway_core::cluster::Architecture;

static TABLE: &str = include_str!("../data/instance-types.txt");

/// One instance type that exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InstanceType {
    /// What it runs; `None` if no more is known than that it exists.
    pub processor: Option<Processor>,
    /// The kind of its accelerators.
    pub accelerator: Option<Accelerator>,
    /// Its NVMe disks, alike and empty at every start; `None` if it has none, or nothing is known of them.
    pub disks: Option<Disks>,
}

/// What an instance type runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Processor {
    /// Linux nodes of that architecture.
    Linux(Architecture),
    /// A Mac, which runs macOS alone.
    Mac,
}

/// The kind of an instance type's accelerators.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accelerator {
    /// GPUs of NVIDIA's.
    Nvidia,
    /// AWS Inferentia and Trainium.
    Neuron,
}

/// The disks of an instance store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Disks {
    /// How many.
    pub count: u32,
    /// The size of each in GB.
    pub each_gb: u32,
}

/// The instance type of that name, if it is known.
#[must_use]
pub fn lookup(name: &str) -> Option<InstanceType> {
    let (family, size) = name.split_once('.')?;
    let (_, about) = lines().find(|(known, _)| *known == family)?;
    let mut words = about.split(' ');
    let processor = match words.next() {
        Some("arm64") => Some(Processor::Linux(Architecture::Arm64)),
        Some("x86_64") => Some(Processor::Linux(Architecture::X86_64)),
        Some("mac") => Some(Processor::Mac),
        _ => None,
    };
    let accelerator = match words.next() {
        Some("nvidia") => Some(Accelerator::Nvidia),
        Some("neuron") => Some(Accelerator::Neuron),
        _ => None,
    };
    let (_, disks) = words
        .map(|word| word.split_once(':').unwrap_or((word, "")))
        .find(|size_and_disks| size_and_disks.0 == size)?;
    let disks = disks
        .split_once('x')
        .and_then(|(count, each)| Some(Disks { count: count.parse().ok()?, each_gb: each.parse().ok()? }));
    Some(InstanceType { processor, accelerator, disks })
}

/// The names of all that are known, in order.
pub fn names() -> impl Iterator<Item = String> {
    lines().flat_map(|(family, about)| {
        let sizes = about.split(' ').skip(2).map(|word| word.split(':').next().unwrap_or(word));
        sizes.map(move |size| format!("{family}.{size}"))
    })
}

/// Each family with its properties.
fn lines() -> impl Iterator<Item = (&'static str, &'static str)> {
    TABLE.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once(' '))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_known_type_can_be_looked_up() {
        let names: Vec<String> = names().collect();
        assert!(names.len() > 1400, "{}", names.len());
        for name in names {
            assert!(lookup(&name).is_some(), "{name}");
        }
        for name in ["m7g.lagre", "m7g", "", "#.x", "nothing.large", "m7g.large "] {
            assert_eq!(lookup(name), None, "{name}");
        }
    }

    /// The rule by which architectures are told from names, which holds for types that this table does not know,
    /// against what EC2 says of every type that it does.
    #[test]
    fn architectures_follow_from_names() {
        let mut checked = 0;
        for name in names() {
            if let Some(Processor::Linux(architecture)) = lookup(&name).unwrap().processor {
                assert_eq!(Architecture::of_instance_type(&name), architecture, "{name}");
                checked += 1;
            }
        }
        assert!(checked > 1300, "{checked}");
        for name in ["g5g.xlarge", "hpc7g.4xlarge", "im4gn.large", "is4gen.large", "a1.large", "x2gd.large"] {
            assert_eq!(Architecture::of_instance_type(name), Architecture::Arm64, "{name}");
        }
        for name in ["g4dn.xlarge", "g5.xlarge", "g6e.xlarge", "gr6.4xlarge", "mg.large", "p5en.48xlarge"] {
            assert_eq!(Architecture::of_instance_type(name), Architecture::X86_64, "{name}");
        }
        // Of NVIDIA's Grace no answer of EC2's is at hand (aws.amazon.com/ec2/instance-types/p6: "Grace Blackwell
        // Superchips", whose processors are Arm's).
        assert_eq!(Architecture::of_instance_type("p6e-gb200.36xlarge"), Architecture::Arm64);
        assert_eq!(Architecture::of_instance_type("p6-b200.48xlarge"), Architecture::X86_64);
    }

    #[test]
    fn disks_and_accelerators_are_those_of_ec2() {
        let known = |name| lookup(name).unwrap();
        assert_eq!(known("m7gd.16xlarge").disks, Some(Disks { count: 2, each_gb: 1900 }));
        assert_eq!(known("m7g.large").disks, None);
        assert_eq!(known("g5g.xlarge").accelerator, Some(Accelerator::Nvidia));
        assert_eq!(known("inf2.xlarge").accelerator, Some(Accelerator::Neuron));
        assert_eq!(known("mac2.metal").processor, Some(Processor::Mac));
        // Its disks are no NVMe.
        assert_eq!(known("d2.xlarge").disks, None);
    }
}
