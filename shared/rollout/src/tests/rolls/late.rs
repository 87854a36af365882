//! A resume that comes long after it was given: the rollout had stopped until it came, so no timeout may have run out meanwhile.

use super::*;

impl Yard {
    /// Receives an order that was given that many minutes ago.
    fn receive(&mut self, order: Order, minutes: i64) {
        let at = |second| Timestamp::from_second(second).unwrap();
        let given = Given { order, at: at(self.now - 60 * minutes) };
        self.state =
            self.fake.after_order_performed(self.state.clone(), &given, Some(&self.wanted), at(self.now));
    }

    /// Whether its machines are unreachable, and its groups launch nothing.
    fn is_dark(&mut self, dark: bool) {
        self.launches = !dark;
        self.silent.clear();
        if dark {
            let machines = self.groups.values().flat_map(|group| group.machines.keys());
            self.silent = machines.cloned().collect();
        }
    }
}

#[test]
fn p10_a_resume_that_comes_over_an_hour_late_leaves_as_much_patience_as_one_in_time() {
    for change in [Change::Machines, Change::Credentials] {
        for moment in 1..60 {
            let mut yard = Yard::new(&SMALL, change, &|_| true, &auto());
            (0..moment).for_each(|_| yard.wake(None));
            if yard.state.active().is_none() {
                break;
            }
            yard.receive(Order::Pause, 0);
            // What it waits for comes soon after the resume.
            yard.is_dark(true);
            (0..100).for_each(|_| yard.wake(None));
            assert_eq!(yard.report.state.as_str(), "paused", "at {moment}");
            yard.receive(Order::Resume, 99);
            yard.wake(None);
            yard.is_dark(false);
            assert_eq!(yard.run(), "succeeded", "at {moment}: {}", yard.report.message);
        }
    }
}

#[test]
fn p6_p10_a_drain_that_was_paused_for_a_day_has_its_whole_patience_after_a_resume_that_comes_late() {
    for (whom, id) in [(&is_worker as Whom<'_>, "pool-a.0"), (&is_controller, "controller.0")] {
        let mut yard = Yard::new(&SMALL, Change::Machines, whom, &auto());
        yard.stuck.insert(id.to_owned());
        while !yard.log.iter().any(|line| line.ends_with(&format!("drains {id}"))) {
            yard.wake(None);
        }
        yard.receive(Order::Pause, 0);
        yard.pace = 60;
        (0..30).for_each(|_| yard.wake(None));
        yard.receive(Order::Resume, 29 * 60);
        yard.pace = 10;
        (0..5).for_each(|_| yard.wake(None));
        assert_eq!(yard.report.state.as_str(), "running", "{id}: {}", yard.report.message);
        yard.stuck.clear();
        yard.pace = 1;
        assert_eq!(yard.run(), "succeeded", "{id}: {}", yard.report.message);
    }
}
