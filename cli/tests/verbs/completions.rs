//! `slipway completions`.

use super::*;

#[test]
fn every_shell_learns_every_verb() {
    let place = Place::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let run = place.run(&format!("completions {shell}"));
        assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{shell}");
        for verb in ["init", "validate", "render", "plan", "completions"] {
            assert!(run.stdout.contains(verb), "{shell} does not learn {verb}");
        }
    }
}

#[test]
fn a_shell_that_is_not_known() {
    snapshot!(Place::new().run("completions csh"));
}

/// In a shell of its own, with a `slipway` that lists two clusters.
#[test]
fn bash_completes_the_names_of_clusters() {
    let place = Place::new();
    place.write(
        "slipway",
        "#!/bin/sh\n[ \"$1 $2\" = 'list --names' ] && printf 'prod\\nproduction\\ntest\\n'\n",
    );
    place.write("script", place.run("completions bash").stdout);
    let words = "chmod +x slipway; PATH=$PWD:$PATH; . ./script; COMP_WORDS=(slipway status --cluster pro); COMP_CWORD=3; \
                 _slipway slipway pro --cluster; echo \"${COMPREPLY[@]}\"";
    let output = Command::new("bash").arg("-c").arg(words).current_dir(place.dir.path()).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "prod production\n", "{output:?}");
    // The other shells call the same.
    for shell in ["zsh", "fish"] {
        let script = place.run(&format!("completions {shell}")).stdout;
        assert!(script.matches("slipway list --names").count() > 0, "{shell}");
    }
    let zsh = place.run("completions zsh").stdout;
    assert!(zsh.contains("_slipway_clusters() {") && zsh.contains(":NAME:_slipway_clusters"), "{zsh}");
}
