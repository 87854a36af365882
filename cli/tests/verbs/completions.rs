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
