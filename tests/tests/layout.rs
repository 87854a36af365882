//! The layout of design §12, compared with cargo's metadata.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::path::Path;
use std::process::Command;

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package, PackageId};
use regex::Regex;
use slipway_tests::tools;

/// The level of each crate above the core: a crate may use crates of lower levels, and never those of the same or a higher level.
const LEVELS: &[(&str, u8)] = &[
    ("slipway-core", 0),
    ("slipway-spec", 1),
    ("slipway-migrate", 2),
    ("slipway-credentials", 1),
    ("slipway-render", 2),
    ("slipway-ports", 2),
    ("slipway-plan", 3),
    ("slipway-crypto", 3),
    ("slipway-registry", 3),
    ("slipway-rollout", 4),
    ("slipway-flows", 5),
    ("slipway-aws", 6),
    ("slipway-lambda", 6),
    ("slipway-sim", 6),
    ("slipway-render-function", 7),
    ("slipway-rollout-function", 7),
    ("slipway-scan-function", 7),
    ("slipway-node", 4),
    ("slipway", 7),
    ("slipway-tests", 8),
];

/// The folder of each crate.
const ROOMS: &[(&str, &str)] = &[
    ("slipway-core", "shared/core"),
    ("slipway-spec", "shared/spec"),
    ("slipway-migrate", "shared/migrate"),
    ("slipway-credentials", "shared/credentials"),
    ("slipway-render", "shared/render"),
    ("slipway-ports", "shared/ports"),
    ("slipway-plan", "shared/plan"),
    ("slipway-crypto", "shared/crypto"),
    ("slipway-registry", "shared/registry"),
    ("slipway-rollout", "shared/rollout"),
    ("slipway-flows", "shared/flows"),
    ("slipway-aws", "shared/aws"),
    ("slipway-lambda", "shared/lambda"),
    ("slipway-sim", "shared/sim"),
    ("slipway-render-function", "functions/render"),
    ("slipway-rollout-function", "functions/rollout"),
    ("slipway-scan-function", "functions/scan"),
    ("slipway-node", "agent"),
    ("slipway", "cli"),
    ("slipway-tests", "tests"),
];

/// Dependencies that only some crates may name, so that their work happens in one place.
const RESERVED: &[(&str, &[&str])] = &[
    ("aws-sdk-", &["slipway-aws"]),
    ("aws-config", &["slipway-aws"]),
    ("aws-runtime", &["slipway-aws"]),
    ("aws-smithy-", &["slipway-aws", "slipway-registry"]),
    ("lambda_runtime", &["slipway-lambda"]),
    ("aws_lambda_events", &["slipway-lambda"]),
    ("aws-lc-rs", &["slipway-crypto"]),
    ("rcgen", &["slipway-crypto"]),
    ("x509-parser", &["slipway-crypto"]),
    ("miette", &["slipway"]),
    ("clap", &["slipway", "slipway-node", "slipway-tests"]),
    ("aws-sigv4", &["slipway-node"]),
    ("kube", &["slipway-node"]),
    ("reqwest", &["slipway-node", "slipway-sim", "slipway-tests"]),
    ("axum", &["slipway-sim", "slipway-tests"]),
];

/// Dependencies that are not allowed at all: deny.toml has the reasons.
const BANNED: &[&str] = &["aws-sdk-ec2", "ring", "openssl", "openssl-sys", "native-tls", "serde_yaml"];

/// The crates that decide: values in, values out.
const PURE: &[&str] = &[
    "slipway-core",
    "slipway-spec",
    "slipway-migrate",
    "slipway-credentials",
    "slipway-render",
    "slipway-plan",
    "slipway-rollout",
    "slipway-ports",
];

/// Crates that the agent does not compile, because a machine does not need them.
const NOT_ON_MACHINES: &[&str] = &[
    "slipway-spec",
    "slipway-migrate",
    "slipway-render",
    "slipway-plan",
    "slipway-rollout",
    "slipway-flows",
    "slipway-aws",
];

/// Crates that a pure crate may not use, even indirectly: no runtime, sockets, randomness or AWS.
const IMPURE: &[&str] = &[
    "tokio",
    "async-std",
    "smol",
    "mio",
    "hyper",
    "reqwest",
    "axum",
    "socket2",
    "rand",
    "rand_core",
    "getrandom",
    "fastrand",
    "aws-config",
    "lambda_runtime",
    "aws-lc-rs",
    "tempfile",
    "walkdir",
    "notify",
    "chrono",
];

fn metadata() -> Metadata {
    MetadataCommand::new()
        .manifest_path(tools::root().join("Cargo.toml"))
        .other_options(["--offline".to_owned(), "--locked".to_owned()])
        .exec()
        .unwrap()
}

fn named<'a>(metadata: &'a Metadata, name: &str) -> &'a Package {
    let mut ours = metadata.workspace_packages().into_iter();
    ours.find(|package| package.name.as_str() == name).unwrap_or_else(|| panic!("no crate {name}"))
}

/// The direct dependencies of `package`, for its code or its build script, and optionally for its tests.
fn direct(package: &Package, with_tests: bool) -> BTreeSet<&str> {
    let wanted = package.dependencies.iter().filter(|dependency| match dependency.kind {
        DependencyKind::Development => with_tests,
        DependencyKind::Normal | DependencyKind::Build => true,
        DependencyKind::Unknown => panic!("cargo knows a new kind of dependency: {dependency:?}"),
    });
    wanted.map(|dependency| dependency.name.as_str()).collect()
}

/// The direct and indirect dependencies of `package`, without those that only its tests use.
fn all_below(metadata: &Metadata, package: &Package) -> BTreeSet<String> {
    let resolve = metadata.resolve.as_ref().unwrap();
    let nodes: BTreeMap<&PackageId, _> = resolve.nodes.iter().map(|node| (&node.id, node)).collect();
    let (mut seen, mut todo) = (BTreeSet::new(), VecDeque::from([&package.id]));
    while let Some(id) = todo.pop_front() {
        for dependency in &nodes[id].deps {
            let normal = dependency.dep_kinds.iter().any(|kind| {
                // Dependencies for Windows or WebAssembly are never built.
                let elsewhere = kind.target.as_ref().is_some_and(|target| {
                    let target = target.to_string();
                    target.contains("wasm") || target.contains("windows")
                });
                kind.kind == DependencyKind::Normal && !elsewhere
            });
            if normal && seen.insert(&dependency.pkg) {
                todo.push_back(&dependency.pkg);
            }
        }
    }
    let names: BTreeMap<_, _> =
        metadata.packages.iter().map(|package| (&package.id, &package.name)).collect();
    seen.into_iter().map(|id| names[id].to_string()).collect()
}

#[test]
fn every_crate_lives_in_its_room() {
    let metadata = metadata();
    let root = metadata.workspace_root.clone();
    for package in metadata.workspace_packages() {
        let room = ROOMS.iter().find(|(name, _)| *name == package.name.as_str());
        let (_, room) =
            room.unwrap_or_else(|| panic!("{} is in no room: add it to design §12 and here", package.name));
        assert_eq!(package.manifest_path, root.join(room).join("Cargo.toml"));
    }
    assert_eq!(metadata.workspace_packages().len(), ROOMS.len(), "a room is empty");
}

#[test]
fn dependencies_point_down() {
    let metadata = metadata();
    let levels: BTreeMap<_, _> = LEVELS.iter().copied().collect();
    for (name, level) in LEVELS {
        for below in direct(named(&metadata, name), false) {
            if let Some(theirs) = levels.get(below) {
                assert!(
                    theirs < level,
                    "{name} must not use {below}, which is not on a lower level (design §12)"
                );
            }
        }
    }
}

#[test]
fn the_pure_crates_are_pure_all_the_way_down() {
    let metadata = metadata();
    for pure in PURE {
        let below = all_below(&metadata, named(&metadata, pure));
        assert!(below.contains("serde"), "the walk finds nothing: {below:?}");
        for name in &below {
            let impure =
                IMPURE.contains(&name.as_str()) || name.starts_with("aws-sdk-") || name.starts_with("tokio-");
            assert!(!impure, "{pure} depends on {name}: pass time, randomness and I/O in as arguments");
        }
    }
}

#[test]
fn migration_from_kube_aws_is_used_by_the_command_line_alone() {
    for package in metadata().workspace_packages() {
        let uses = direct(package, true).contains("slipway-migrate");
        assert!(!uses || package.name.as_str() == "slipway", "{} must not use slipway-migrate", package.name);
    }
}

#[test]
fn the_agent_compiles_nothing_that_renders_plans_or_decides() {
    let metadata = metadata();
    let below = all_below(&metadata, named(&metadata, "slipway-node"));
    assert!(below.contains("slipway-core"), "the walk finds nothing: {below:?}");
    for name in NOT_ON_MACHINES {
        assert!(!below.contains(*name), "slipway-node depends on {name}, which a machine does not need");
    }
}

#[test]
fn what_is_reserved_is_named_by_its_owner_alone() {
    let metadata = metadata();
    for package in metadata.workspace_packages() {
        for dependency in direct(package, true) {
            for (reserved, owners) in RESERVED {
                let is_it = if reserved.ends_with('-') {
                    dependency.starts_with(reserved)
                } else {
                    dependency == *reserved
                };
                let fine = !is_it || owners.contains(&package.name.as_str());
                assert!(fine, "{} must not name {dependency}: only {owners:?} may", package.name);
            }
        }
    }
    // A rule about a crate that no package uses would never fail.
    for (reserved, owners) in RESERVED {
        let used = owners.iter().any(|owner| {
            direct(named(&metadata, owner), true).iter().any(|dependency| dependency.starts_with(reserved))
        });
        assert!(used, "nothing uses {reserved} any more: delete its rule");
    }
}

/// The names of all packages that cargo builds for a selection. The graph of the metadata is not used, because it has crates that a weak
/// feature names and nothing builds.
fn tree(selection: &[&str]) -> BTreeSet<String> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let tree = Command::new(cargo)
        .current_dir(tools::root())
        .args(["tree", "--offline", "--locked", "--prefix=none", "--format={p}"])
        .args(selection)
        .output()
        .unwrap();
    let lines = String::from_utf8(tree.stdout).unwrap();
    let names = lines.lines().filter_map(|line| line.split_whitespace().next());
    let names: BTreeSet<String> = names.map(str::to_owned).collect();
    assert!(names.contains("aws-lc-rs"), "{}", String::from_utf8_lossy(&tree.stderr));
    names
}

/// Issue 22, section 2. Features are united over what is built together, and infra/package.sh builds the functions and the agent without the
/// command line.
#[test]
fn sso_is_in_the_command_line_and_makes_no_function_larger() {
    let sso = ["aws-sdk-sso", "aws-sdk-ssooidc"];
    let command_line = tree(&["--package=slipway", "--edges=normal"]);
    assert!(sso.iter().all(|name| command_line.contains(*name)), "the command line cannot sign in by SSO");
    let packaged = ["render-function", "rollout-function", "scan-function", "node"];
    let packaged = packaged.map(|name| format!("--package=slipway-{name}"));
    let selection: Vec<&str> = packaged.iter().map(String::as_str).chain(["--edges=normal"]).collect();
    let functions = tree(&selection);
    assert!(functions.contains("aws-config"), "the search is broken: {functions:?}");
    assert!(sso.iter().all(|name| !functions.contains(*name)), "a function has the clients of SSO");
}

#[test]
fn what_is_banned_is_nowhere() {
    let names = tree(&["--workspace", "--target=all"]);
    for banned in BANNED {
        assert!(
            !names.contains(*banned),
            "the workspace depends on {banned}, which is not allowed: `cargo tree -i {banned}`"
        );
    }
}

#[test]
fn the_core_takes_what_it_is_given_of_jiff() {
    // jiff's other features read the system's time zone, its files or its clock.
    let metadata = metadata();
    for dependency in PURE.iter().flat_map(|name| &named(&metadata, name).dependencies) {
        if dependency.name == "jiff" {
            assert!(!dependency.uses_default_features, "jiff's defaults read the machine's time zone");
            let pure = |feature: &String| ["std", "alloc", "serde"].contains(&feature.as_str());
            assert!(dependency.features.iter().all(pure), "{:?}", dependency.features);
        }
    }
    // `std` brings `Timestamp::now`, which clippy forbids as long as the list says so.
    for room in ROOMS.iter().filter(|(name, _)| PURE.contains(name)).map(|(_, room)| room) {
        let forbidden = fs::read_to_string(tools::root().join(room).join("clippy.toml")).unwrap();
        for call in
            ["jiff::Timestamp::now", "jiff::Zoned::now", "std::time::SystemTime::now", "std::env::var"]
        {
            assert!(forbidden.contains(&format!("\"{call}\"")), "{room}/clippy.toml must forbid {call}");
        }
    }
}

/// The sections of a manifest as they are written, because the metadata does not show what is inherited.
fn sections(manifest: &str) -> BTreeMap<String, Vec<&str>> {
    let mut sections: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    let mut current = String::new();
    for line in manifest.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if line.starts_with('[') {
            current = line.trim_matches(['[', ']']).to_owned();
        } else {
            sections.entry(current.clone()).or_default().push(line);
        }
    }
    sections
}

#[test]
fn every_crate_inherits_what_the_house_decides() {
    for package in metadata().workspace_packages() {
        let manifest = fs::read_to_string(&package.manifest_path).unwrap();
        let sections = sections(&manifest);
        for key in ["version", "edition", "rust-version", "license", "publish"] {
            let inherits = sections["package"].contains(&format!("{key}.workspace = true").as_str());
            assert!(inherits, "{} sets its own {key}: write `{key}.workspace = true`", package.name);
        }
        let lints = sections.get("lints").map(Vec::as_slice);
        assert_eq!(lints, Some(["workspace = true"].as_slice()), "{} has its own lints", package.name);
        assert_eq!(package.publish.as_deref(), Some([].as_slice()), "{} could be published", package.name);
        // Each dependency has one version, in one place.
        for (section, lines) in &sections {
            for line in lines.iter().filter(|_| section.ends_with("dependencies")) {
                let inherits = line.contains("workspace = true");
                assert!(inherits, "{}: {line}: the version belongs in the workspace", package.name);
            }
        }
    }
}

#[test]
fn the_house_forbids_what_hides_failure() {
    let manifest = fs::read_to_string(tools::root().join("Cargo.toml")).unwrap();
    let sections = sections(&manifest);
    assert!(sections["workspace.lints.rust"].contains(&"unsafe_code = \"forbid\""));
    let clippy = &sections["workspace.lints.clippy"];
    for lint in
        ["unwrap_used", "wildcard_enum_match_arm", "print_stdout", "print_stderr", "todo", "dbg_macro"]
    {
        assert!(clippy.contains(&format!("{lint} = \"warn\"").as_str()), "clippy no longer warns of {lint}");
    }
}

/// The source of every module of a crate by its path, such as `["etcd", "join"]`, without what only tests compile.
fn modules(src: &Path) -> BTreeMap<Vec<String>, String> {
    fn walk(folder: &Path, inside: &[String], found: &mut BTreeMap<Vec<String>, String>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let mut module = inside.to_vec();
            module.push(path.file_stem().unwrap().to_string_lossy().into_owned());
            if path.is_dir() {
                walk(&path, &module, found);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                if module == ["lib"] || module == ["main"] || module.last().unwrap() == "mod" {
                    module.pop();
                }
                found.entry(module).or_default().push_str(&fs::read_to_string(path).unwrap());
            }
        }
    }
    let mut found = BTreeMap::new();
    walk(src, &[], &mut found);
    // A program in `bin` is a crate of its own.
    found.retain(|module, _| module.first().is_none_or(|first| first != "bin"));

    let declaration =
        Regex::new(r"#\[cfg\([^\]]*\btest\b[^\]]*\)\]\s+(?:pub(?:\(\w+\))? )?mod (\w+)(;| \{)").unwrap();
    let mut for_tests = Vec::new();
    for (module, source) in &mut found {
        *source =
            source.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n");
        for declared in declaration.captures_iter(source) {
            for_tests.push([module.as_slice(), &[declared[1].to_owned()]].concat());
        }
        // The tests inside of a file are at its end.
        if let Some(inside) = declaration.captures_iter(source).find(|declared| &declared[2] == " {") {
            let start = inside.get(0).unwrap().start();
            source.truncate(start);
        }
    }
    found.retain(|module, _| !for_tests.iter().any(|tests| module.starts_with(tests)));
    found
}

/// Reads one tree of a `use`, or one path of an expression, and adds each of its paths to `found`. Returns the text behind it.
fn read_paths<'a>(text: &'a str, mut path: Vec<&'a str>, found: &mut Vec<Vec<&'a str>>) -> &'a str {
    if let Some(mut inner) = text.strip_prefix('{') {
        loop {
            inner = inner.trim_start_matches([' ', '\n', ',']);
            let rest = read_paths(inner, path.clone(), found);
            if rest.len() == inner.len() {
                return rest.strip_prefix('}').unwrap_or(rest);
            }
            inner = rest;
        }
    }
    let end = text.find(|character: char| !character.is_alphanumeric() && character != '_');
    let (name, rest) = text.split_at(end.unwrap_or(text.len()));
    let star = rest.strip_prefix('*').filter(|_| name.is_empty());
    if !name.is_empty() {
        path.push(name);
        if let Some(below) = rest.strip_prefix("::") {
            return read_paths(below, path, found);
        }
    }
    found.push(path);
    let Some(renamed) = rest.strip_prefix(" as ") else { return star.unwrap_or(rest) };
    renamed.trim_start_matches(|character: char| character.is_alphanumeric() || character == '_')
}

/// The items that each module has from its children by `pub use`, and the module that each comes from.
fn exports(modules: &BTreeMap<Vec<String>, String>) -> BTreeMap<(&[String], &str), Vec<String>> {
    let start = Regex::new(r"(?m)^\s*pub(?:\([\w: ]+\))? use (?:self::)?").unwrap();
    let mut exports = BTreeMap::new();
    for (module, source) in modules {
        for found in start.find_iter(source) {
            let mut paths = Vec::new();
            read_paths(&source[found.end()..], Vec::new(), &mut paths);
            for path in paths {
                let Some((item, child)) = path.split_last() else { continue };
                let from = module.iter().cloned().chain(child.iter().map(|part| (*part).to_owned()));
                let from: Vec<String> = from.collect();
                if !child.is_empty() && modules.contains_key(&from) {
                    exports.insert((module.as_slice(), *item), from);
                }
            }
        }
    }
    exports
}

/// Which sibling uses which, by the module that declares both: a path from `etcd::join` to `kube::proxy` lets `etcd` use `kube`. An item that a
/// module has from a child by `pub use` is the child's.
fn uses(modules: &BTreeMap<Vec<String>, String>) -> BTreeMap<Vec<String>, BTreeMap<&str, BTreeSet<&str>>> {
    let start = Regex::new(r"(?:^|[^\w:])(crate|super(?:::super)*)::").unwrap();
    let mut uses: BTreeMap<Vec<String>, BTreeMap<&str, BTreeSet<&str>>> = BTreeMap::new();
    let exports = exports(modules);
    for (module, source) in modules {
        let mut paths = Vec::new();
        for captured in start.captures_iter(source) {
            let head = captured[1].split("::").map(|part| if part == "crate" { "crate" } else { "super" });
            read_paths(&source[captured.get(0).unwrap().end()..], head.collect(), &mut paths);
        }
        for path in paths {
            let above = path.iter().take_while(|part| **part == "super").count();
            // A module inside of a file may climb above the crate as we count it.
            let Some(level) = module.len().checked_sub(above) else { continue };
            let mut used: Vec<String> =
                if path[0] == "crate" { Vec::new() } else { module[..level].to_vec() };
            used.extend(
                path.iter().filter(|part| !["crate", "super"].contains(part)).map(|part| (*part).to_owned()),
            );
            // The end of a path is an item.
            let Some((mut of, _)) =
                (0..=used.len()).rev().find_map(|length| modules.get_key_value(&used[..length]))
            else {
                continue;
            };
            if let Some(item) = used.get(of.len()) {
                while let Some((from, _)) =
                    exports.get(&(of.as_slice(), item.as_str())).and_then(|from| modules.get_key_value(from))
                {
                    of = from;
                }
            }
            let used = of;
            let common = module.iter().zip(used).take_while(|(ours, theirs)| ours == theirs).count();
            if let (Some(ours), Some(theirs)) = (module.get(common), used.get(common)) {
                uses.entry(module[..common].to_vec()).or_default().entry(ours).or_default().insert(theirs);
            }
        }
    }
    uses
}

/// The modules that can be reached from `start`, one use after the other.
fn reached<'a>(start: &str, uses: &BTreeMap<&'a str, BTreeSet<&'a str>>) -> BTreeSet<&'a str> {
    let (mut seen, mut todo) = (BTreeSet::new(), VecDeque::from([start]));
    while let Some(module) = todo.pop_front() {
        for used in uses.get(module).into_iter().flatten() {
            if seen.insert(*used) {
                todo.push_back(used);
            }
        }
    }
    seen
}

/// The circles of a crate: sets of sibling modules in which each uses each, directly or through others. Every circle comes with the module that
/// declares its members.
fn circles(modules: &BTreeMap<Vec<String>, String>) -> BTreeSet<(String, Vec<String>)> {
    let mut found = BTreeSet::new();
    for (parent, uses) in uses(modules) {
        let reach: BTreeMap<&str, _> = uses.keys().map(|module| (*module, reached(module, &uses))).collect();
        for (module, reached) in &reach {
            if reached.contains(module) {
                let members = reached
                    .iter()
                    .filter(|other| reach.get(*other).is_some_and(|back| back.contains(module)));
                found.insert((parent.join("::"), members.map(|member| (*member).to_owned()).collect()));
            }
        }
    }
    found
}

#[test]
fn no_modules_of_a_crate_depend_on_each_other_in_a_circle() {
    let (mut found, mut count) = (Vec::new(), 0);
    for (_, room) in ROOMS {
        let modules = modules(&tools::root().join(room).join("src"));
        count += modules.len();
        found.extend(circles(&modules).into_iter().map(|(parent, members)| (*room, parent, members)));
    }
    assert!(count > 500, "the walk finds {count} modules");
    assert!(
        found.is_empty(),
        "circles between modules: {found:#?}\nMove what both sides need into a module below them."
    );
}

#[test]
fn a_circle_is_found_through_nested_modules_and_a_parent_and_its_child_are_none() {
    let crate_of = |sources: &[(&str, &str)]| {
        let module =
            |path: &str| path.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect();
        circles(&sources.iter().map(|(path, source)| (module(path), (*source).to_owned())).collect())
    };
    let mut sources = vec![
        ("", "mod kube; mod etcd; mod status;"),
        ("kube", "use crate::{\n    Facts,\n    etcd::{self, join},\n};"),
        ("etcd", "mod join; mod health; fn f() { join::promote() }"),
        ("etcd::join", "use super::{Member, health::Health as H};"),
        ("etcd::health", "fn g() -> crate::status::Status { }"),
        ("status", "use super::Facts;"),
    ];
    assert_eq!(crate_of(&sources), BTreeSet::new());
    sources.push(("status::listeners", "fn h() { super::super::kube::restart() }"));
    let members = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let outer = (String::new(), members(&["etcd", "kube", "status"]));
    assert_eq!(crate_of(&sources), BTreeSet::from([outer.clone()]));
    // What a parent has from its child is the child's.
    let mut behind = sources.clone();
    behind.truncate(6);
    behind[3].1 = "pub(crate) struct Member; use super::Health;";
    behind[2].1 = "mod join;\nmod health;\npub use health::{Health, self as h};\npub use self::join::Member;";
    behind[4].1 = "use super::Member;";
    let within = ("etcd".to_owned(), members(&["health", "join"]));
    assert_eq!(crate_of(&behind), BTreeSet::from([within]));
    sources[4].1 = "use super::join::promote; fn g() -> crate::status::Status { }";
    assert_eq!(
        crate_of(&sources),
        BTreeSet::from([outer, ("etcd".to_owned(), members(&["health", "join"]))])
    );
}
