//! How effects are called in the log.

use super::*;

#[test]
fn an_effect_is_called_in_the_log_what_it_is_called_in_the_state() {
    let (group, instance) = ("c-pool-a".to_owned(), "i-1".to_owned());
    for effect in [
        Effect::ArmTick,
        Effect::DisarmTick,
        Effect::SetDesired { group: group.clone(), desired: 1 },
        Effect::Terminate { group: group.clone(), instance: instance.clone(), then_desired: None },
        Effect::ProlongTermination { group: group.clone(), instance: instance.clone() },
        Effect::CompleteTermination { group, instance },
        Effect::DeleteChangeSet { stack: "c-etcd".to_owned(), name: "n".to_owned() },
    ] {
        let written = format!("{effect:?}");
        let own = written.split([' ', '{', '(']).next();
        assert_eq!(own, Some(name(&effect)));
    }
}
