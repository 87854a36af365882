//! Files of other tools, which people have at hand. Each of their keys would be a finding of its own, and none would say what is wrong.

use crate::problem::{Problem, Span};

/// By what their files begin: the group of `apiVersion`, what it is, and what to do with it.
const TOOLS: [(&str, &str); 6] = [
    ("eksctl.io", "a file of eksctl"),
    ("kops.k8s.io", "a file of kOps"),
    ("kops/", "a file of kOps"),
    ("anywhere.eks.amazonaws.com", "a file of EKS Anywhere"),
    ("cluster.x-k8s.io", "a file of Cluster API"),
    ("kubeadm.k8s.io", "a configuration of kubeadm"),
];

/// How many lines are searched: a file has its version at its beginning.
const MOST_LINES: usize = 400;

/// What is wrong with a text that another tool reads; `None`: it may be a spec.
pub(crate) fn of_another_tool(text: &str) -> Option<Problem> {
    let value = |key: &str| {
        let mut start = 0;
        for (number, line) in (1..).zip(text.split_inclusive('\n').take(MOST_LINES)) {
            if let Some(value) = line.strip_prefix(key).and_then(|rest| rest.strip_prefix(':')) {
                let value = value.split(" #").next().unwrap_or_default();
                let span = Span { line: number, column: 1, start, end: start + line.trim_end().len() };
                return Some((span, value.trim().trim_matches(['"', '\'']).to_owned()));
            }
            start += line.len();
        }
        None
    };
    let (span, version) = value("apiVersion")?;
    let (_, kind) = value("kind")?;
    let tool = TOOLS.iter().find(|(group, _)| {
        let own = version.split('/').next().unwrap_or_default();
        own == *group || own.ends_with(&format!(".{group}")) || version.starts_with(group)
    });
    let what = match tool {
        Some((_, what)) => (*what).to_owned(),
        None => "an object of Kubernetes".to_owned(),
    };
    let help = "begin with `slipway init`, which writes a cluster.yaml, and take over names, ranges and pools by hand; \
                only a folder of kube-aws can be translated (`slipway migrate kube-aws`)";
    let message = format!("this is {what} (`kind: {kind}`), not a cluster.yaml of Slipway");
    Some(Problem::at(span, "other-tool", message).help(help))
}
