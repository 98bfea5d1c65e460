//! Rules about sender authentication: checks that need others, and keys without an effect.

use super::super::{SenderCheck, SenderFailure};
use super::Rules;

impl Rules<'_> {
    pub(super) fn auth_results(&mut self) {
        let config = self.config();
        let checks = &config.auth_results.checks;
        let has = |check| checks.contains(&check);
        if has(SenderCheck::Dmarc) && !(has(SenderCheck::Spf) && has(SenderCheck::Dkim)) {
            self.error(
                &[("auth_results.checks", 0)],
                "auth_results.checks: \"dmarc\" needs the results of \"spf\" and \"dkim\"".to_owned(),
                "write [\"spf\", \"dkim\", \"dmarc\"]",
            );
        }
        if has(SenderCheck::Iprev) && !config.accept.reverse_dns {
            self.warn(
                &[("accept.reverse_dns", 0), ("auth_results.checks", 0)],
                "accept.reverse_dns = false: there is no result of iprev".to_owned(),
                "remove it, or leave \"iprev\" out of auth_results.checks",
            );
        }
        let can_trust = has(SenderCheck::Arc) && has(SenderCheck::Dmarc);
        if !can_trust && !config.auth_results.trusted_arc_sealers.is_empty() {
            self.warn(
                &[("auth_results.trusted_arc_sealers", 0), ("auth_results.checks", 0)],
                "auth_results.trusted_arc_sealers has no effect without the checks \"arc\" and \"dmarc\"".to_owned(),
                "add them to auth_results.checks",
            );
        }
        self.effects_without_check();
    }

    /// Warns of effects of checks that are not made.
    fn effects_without_check(&mut self) {
        let config = self.config();
        for (index, listen) in config.listen.iter().enumerate() {
            let effects = [
                ("listen.dmarc_reject", listen.dmarc_reject, SenderCheck::Dmarc),
                ("listen.dmarc_quarantine", listen.dmarc_quarantine, SenderCheck::Dmarc),
                ("listen.spf_fail", listen.spf_fail, SenderCheck::Spf),
                ("listen.iprev_fail", listen.iprev_fail, SenderCheck::Iprev),
            ];
            for (key, effect, check) in effects {
                let is_made = listen.auth_results && config.auth_results.checks.contains(&check);
                let is_set = self.loaded.places.of(key, index).is_some();
                if is_set && effect != SenderFailure::None && !is_made {
                    self.warn(
                        &[(key, index)],
                        format!("{key} has no effect: this listener does not make the check"),
                        "see auth_results.checks and listen.auth_results",
                    );
                }
            }
        }
    }
}
