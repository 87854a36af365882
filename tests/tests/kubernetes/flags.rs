//! Compares the table of flags with the programs themselves.

use std::process::Command;

use slipway_tests::tools;

#[test]
fn the_programs_of_this_release_know_the_flags_of_the_table() {
    let Some(programs) = tools::kubernetes() else { return };
    let table = std::fs::read_to_string(tools::root().join("agent/src/kube/testdata/flags.txt")).unwrap();
    let release = programs.file_name().unwrap().to_string_lossy().into_owned();
    let minor = release.split('.').nth(1).unwrap().to_owned();
    for program in ["kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet"] {
        let output = Command::new(programs.join(program)).arg("--help").output().unwrap();
        let help = String::from_utf8(output.stdout).unwrap();
        let known: Vec<&str> = help
            .lines()
            .filter_map(|line| line.split_once("--"))
            .filter(|(before, _)| before.trim().is_empty() || before.trim().ends_with(','))
            .map(|(_, flag)| flag.split([' ', '[', '=']).next().unwrap_or_default())
            .collect();
        let mut asked = 0;
        for line in table.lines().filter(|line| line.starts_with(&format!("{program} "))) {
            let words: Vec<&str> = line.split_whitespace().collect();
            assert_eq!(words[2..].contains(&minor.as_str()), known.contains(&words[1]), "{release}: {line}");
            asked += 1;
        }
        assert!(asked > 5, "{program} is not in the table");
    }
}
