//! The effects of rules on an address on its way.

use super::HoldReason;
use super::rule::{At, CopyTo, Rule};
use super::run::{Copy, Flow, Job, RecipientResolver};
use crate::alias::Origin;
use crate::question::{MapEntry, Stop};
use mail::Address;
use std::rc::Rc;

impl RecipientResolver<'_, '_, '_> {
    /// The rules of one place.
    pub(super) fn rules(&mut self, job: &mut Job, at: At) -> Result<Flow, Stop> {
        let delimiter = self.router.settings.delimiter;
        let mut via = None;
        for index in 0..self.rules.len() {
            let Some(&(number, rule)) = self.rules.get(index) else { break };
            let is_copying =
                !rule.action.copies.is_empty() && job.copy.is_none() && !job.marks.copied.contains(&number);
            if rule.at != at || (job.is_ruled && !is_copying) || !rule.recipient.has(&job.address, delimiter) {
                continue;
            }
            if is_copying {
                self.copy(job, number, rule);
            }
            if job.is_ruled || rule.action.is_copy_alone() {
                continue;
            }
            job.is_ruled = true;
            if let Some(refusal) = &rule.action.reject {
                let found = found_of(rule, &job.address, refusal.to_string());
                self.step_of("rule", &found, || format!("refused: {refusal}"));
                return Ok(self.fail(job, refusal.clone().with_found(Some(found))));
            }
            self.mark(job, rule);
            via = rule.action.via.as_ref().map(|value| (value, rule));
        }
        let Some((value, rule)) = via else { return Ok(Flow::On) };
        let found = found_of(rule, &job.address, value.to_string());
        self.step_of("rule", &found, || format!("{} by {value}", job.address));
        self.follow(job, value, Some(found))
    }

    fn mark(&mut self, job: &mut Job, rule: &Rule) {
        let action = &rule.action;
        let marks = Rc::make_mut(&mut job.marks);
        let mut said = Vec::new();
        if let Some(hold) = &action.hold {
            marks.hold = Some(HoldReason::new(&rule.name, hold));
            said.push(format!("held: {hold}"));
        }
        if action.queue_only {
            marks.queue_only = true;
            said.push("waits in the queue".to_owned());
        }
        if let Some(acknowledge) = action.acknowledge {
            marks.acknowledge = Some(acknowledge);
            said.push(format!("acknowledged as {}", acknowledge.name()));
        }
        if let Some(ip) = action.source4 {
            marks.source4 = Some(ip);
            said.push(format!("from {ip}"));
        }
        if let Some(ip) = action.source6 {
            marks.source6 = Some(ip);
            said.push(format!("from {ip}"));
        }
        if let Some(hello) = &action.hello {
            marks.hello = Some(hello.clone());
            said.push(format!("as {hello}"));
        }
        if !said.is_empty() {
            let said = said.join(", ");
            let found = found_of(rule, &job.address, said.clone());
            self.step_of("rule", &found, || said);
        }
    }

    /// Notes the copies that a rule asks for.
    fn copy(&mut self, job: &mut Job, number: usize, rule: &Rule) {
        Rc::make_mut(&mut job.marks).copied.push(number);
        for to in &rule.action.copies {
            let mut copy = Job {
                copy: Some(rule.action.copy_dsn),
                marks: Rc::default(),
                is_ruled: false,
                is_routed: false,
                ..job.clone()
            };
            match to {
                CopyTo::Address(address) => {
                    let found = found_of(rule, &job.address, address.to_string());
                    self.step_of("rule", &found, || format!("copy to {address}"));
                    copy.address = address.clone();
                    (copy.origin, copy.before) = (Origin::default(), None);
                    self.copies.push_back(Copy::Job(copy));
                }
                CopyTo::Mailer(value) => {
                    let found = found_of(rule, &job.address, value.to_string());
                    self.step_of("rule", &found, || format!("copy for {} by {value}", job.address));
                    self.copies.push_back(Copy::Value(copy, value.clone(), Some(found)));
                }
            }
        }
    }
}

fn found_of(rule: &Rule, address: &Address, value: String) -> MapEntry {
    let key = format!("{} for {address}", rule.name);
    MapEntry { key: key.into(), value: value.into(), place: rule.place.clone() }
}
