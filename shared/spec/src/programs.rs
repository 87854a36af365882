//! What Kubernetes' programs understand: fields of the kubelet's configuration, flags, feature gates.
//!
//! `data/kubernetes_programs.py` makes the tables out of the source and the programs of the minors that are launched, 1.34 to 1.37.

static FIELDS: &str = include_str!("../data/kubelet-fields.txt");
static FLAGS: &str = include_str!("../data/component-flags.txt");
static GATES: &str = include_str!("../data/feature-gates.txt");

/// What a program reads at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Type {
    Bool,
    Text,
    Int32,
    Int64,
    Uint32,
    Float,
    /// A duration as Go writes it.
    Duration,
    List,
    /// Fields of their own.
    Group,
    /// Names and texts.
    Texts,
    /// Something else, of which nothing is said here.
    Other,
}

/// The type of a field of `KubeletConfiguration`, by its path such as `logging.vmodule[].verbosity`.
pub(crate) fn kubelet_field(path: &str) -> Option<Type> {
    let (_, about) = lines(FIELDS).find(|(name, _)| *name == path)?;
    Some(match about.split(' ').next().unwrap_or_default() {
        "bool" => Type::Bool,
        "string" => Type::Text,
        "int32" => Type::Int32,
        "int64" => Type::Int64,
        "uint32" => Type::Uint32,
        "float" => Type::Float,
        "duration" => Type::Duration,
        "list" => Type::List,
        "group" => Type::Group,
        "texts" => Type::Texts,
        _ => Type::Other,
    })
}

/// The names of the fields at the top.
pub(crate) fn kubelet_fields() -> impl Iterator<Item = &'static str> {
    lines(FIELDS).map(|(name, _)| name).filter(|name| !name.contains(['.', '[']))
}

/// The oldest minor that knows the field.
pub(crate) fn field_since(name: &str) -> Option<u16> {
    minors(FIELDS, name, 1).next()
}

/// What a program does with a flag of that name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flag {
    /// No release that is known here has it.
    Unknown,
    /// It reads its value as that type.
    Known(Type),
}

/// The flag of the program, such as `kube-apiserver`. Flags that only other minors than 1.36 have are not told apart by program.
pub(crate) fn flag(program: &str, name: &str) -> Flag {
    let found = lines(FLAGS).find_map(|(flag_program, about)| {
        let (known, kind) = about.split_once(' ')?;
        ((flag_program == program || flag_program == "*") && known == name).then_some(kind)
    });
    match found {
        None => Flag::Unknown,
        Some("bool") => Flag::Known(Type::Bool),
        Some("int32") => Flag::Known(Type::Int32),
        Some("int") => Flag::Known(Type::Int64),
        Some("duration") => Flag::Known(Type::Duration),
        Some(_) => Flag::Known(Type::Other),
    }
}

/// The flags of a program.
pub(crate) fn flags(program: &str) -> impl Iterator<Item = &'static str> {
    lines(FLAGS).filter(move |(of, _)| *of == program).filter_map(|(_, about)| about.split(' ').next())
}

/// The minors whose source has the feature gate.
pub(crate) fn gate(name: &str) -> impl Iterator<Item = u16> {
    minors(GATES, name, 0)
}

/// The feature gates of all of these minors.
pub(crate) fn gates() -> impl Iterator<Item = &'static str> {
    lines(GATES).map(|(name, _)| name)
}

fn lines(table: &'static str) -> impl Iterator<Item = (&'static str, &'static str)> {
    table.lines().filter_map(|line| line.split_once(' '))
}

fn minors(table: &'static str, name: &str, skip: usize) -> impl Iterator<Item = u16> {
    let about = lines(table).find(|(known, _)| *known == name).map_or("", |(_, about)| about);
    about.split(' ').skip(skip).filter_map(|minor| minor.parse().ok())
}

#[cfg(test)]
mod tests {
    use slipway_core::versions::RELEASES;

    use super::*;

    #[test]
    fn the_tables_are_of_the_minors_that_are_launched() {
        let launched: Vec<u16> = RELEASES.iter().map(|release| release.minor).collect();
        assert_eq!(minors(FIELDS, "podPidsLimit", 1).collect::<Vec<_>>(), launched);
        assert_eq!(gate("AllAlpha").collect::<Vec<_>>(), launched);
    }

    #[test]
    fn fields_flags_and_gates_are_found_by_their_names() {
        assert_eq!(kubelet_field("imageGCHighThresholdPercent"), Some(Type::Int32));
        assert_eq!(kubelet_field("shutdownGracePeriodByPodPriority[].priority"), Some(Type::Int32));
        assert_eq!(kubelet_field("imageGCHighTreshold"), None);
        assert_eq!((field_since("tlsCurvePreferences"), field_since("podPidsLimit")), (Some(36), Some(34)));
        assert_eq!(flag("kube-apiserver", "max-requests-inflight"), Flag::Known(Type::Int64));
        assert_eq!(flag("kube-scheduler", "max-requests-inflight"), Flag::Unknown);
        assert!(gate("SidecarContainers").next().is_some() && gate("NotAGate").next().is_none());
    }
}
