//! Asks the access map about the host at the other end: whether TLS is tried with it, what is demanded of the
//! connection, as which user we log in, which extensions are not used; and what is demanded for a recipient.
//!
//! The map that is in force when the connection is opened counts; a connection that was opened under another map
//! takes no further message ([`is_out_of_date`]). A map without such tags costs a few comparisons. A map that cannot
//! be asked defers mail: TLS is never weaker for it.
//!
//! | Said | By | Wins |
//! |---|---|---|
//! | TLS is demanded | `TLS_Srv:`, `tls = "required"` | always |
//! | TLS is not tried | `Try_TLS: NO`, `tls = "none"` | over `opportunistic` |

use super::Candidate;
use super::connect_error::ConnectError;
use super::link::Link;
use crate::config::Config;
use crate::routing::{Admission, Routing};
use crate::settle::{AttemptOutcome, Cause};
use crate::tls::{ServerCertificate, TlsInfo};
use base64ct::{Base64, Encoding as _};
use mail::{EnhancedCode, Envelope, Outcome};
use observe::Reason;
use route::access::demand::{Secured, Verify};
use route::access::tag::{AuthInfo, Certified, Server, Tagged, TlsDemand};
use route::{Access, Ask, MapEntry, Refusal, Stop};
use smtp::client::{Login, Mechanism, Security};
use std::sync::Arc;

/// The tags for hosts.
const TAGS: [&str; 5] = ["Try_TLS", "TLS_Srv", "TLS_Rcpt", "AuthInfo", "Clt_Features"];

/// Rules of the access map for a host.
#[derive(Clone, Debug, Default)]
pub(super) struct Peer {
    /// STARTTLS is not used.
    pub(super) is_without_tls: bool,
    /// Demand on the connection.
    demand: Option<Tagged<TlsDemand>>,
    /// The part of the demand that a connection without TLS does not meet.
    pub(super) in_clear: Option<Unmet>,
    /// The certificate is judged.
    pub(super) is_judged: bool,
    /// The login that we use.
    pub(super) login: Option<Arc<Login>>,
    /// The entry with the login.
    login_entry: Option<MapEntry>,
    /// PIPELINING is not used.
    pub(super) is_lockstep: bool,
    /// CHUNKING is not used.
    pub(super) is_without_chunking: bool,
}

/// A demand that a connection does not meet.
#[derive(Clone, Debug)]
pub(super) struct Unmet {
    pub(super) status: EnhancedCode,
    /// With the entry.
    pub(super) text: String,
}

impl Unmet {
    /// Words the unmet part of a demand, with the entry that has it. A recipient is not refused for good where the
    /// certificate could not be judged.
    fn of(refusal: Refusal, info: Option<&TlsInfo>) -> Self {
        let fault = info.and_then(|info| info.fault.as_ref());
        let (code, status) = match fault {
            Some(fault) if fault.is_ours => (454, refusal.status.with_outcome(Outcome::Transient)),
            _ => (refusal.code, refusal.status),
        };
        let mut text = format!("{code} {status} {}", refusal.text);
        if let Some(fault) = fault.filter(|fault| fault.is_ours || refusal.text == "authentication failed") {
            text.push_str(&format!(": {}", fault.text));
        }
        if let Some(found) = &refusal.found {
            let line = found.place.line.map(|line| format!(" line {line}")).unwrap_or_default();
            text.push_str(&format!(" ({} {} in {}{line})", found.key, found.value, found.place.file));
        }
        Self { status, text }
    }
}

/// Returns the access map, if it may say something of hosts.
fn access(routing: &Routing) -> Option<&Access> {
    let access = routing.admission().map(|Admission { access, .. }| &**access)?;
    TAGS.iter().any(|tag| access.may_have(tag)).then_some(access)
}

/// Returns whether the rules for a connection that was opened under `old` maps may differ now.
pub(super) fn is_out_of_date(old: &Arc<Routing>, new: &Arc<Routing>) -> bool {
    !Arc::ptr_eq(old, new) && (access(old).is_some() || access(new).is_some()) && !old.has_access_of(new)
}

impl Peer {
    /// Asks for a host.
    ///
    /// # Errors
    /// The map cannot be asked now.
    /// # Cancel safety
    /// Yes.
    pub(super) async fn ask(routing: &Routing, config: &Config, host: &Candidate) -> Result<Self, ConnectError> {
        // Two processes of one machine need no protection from the network.
        let (Some(access), Some(ip)) = (access(routing), host.address.ip()) else { return Ok(Self::default()) };
        let server = Server { name: Some(&*host.name).filter(|name| !name.starts_with('[')), ip: Some(ip) };
        let asked = routing.decide(|ask| Self::asked(access, ask, server, config, host)).await;
        asked.map_err(|why| ConnectError::map(host, &why))
    }

    fn asked(
        access: &Access,
        ask: &mut Ask<'_>,
        server: Server<'_>,
        config: &Config,
        host: &Candidate,
    ) -> Result<Self, Stop> {
        let is_without_tls = access.try_tls(ask, server)?.is_some_and(|said| !said.value);
        let demand = access.tls_server(ask, server)?;
        let in_clear = match &demand {
            Some(demand) => access.lacks(ask, demand, &secured(host, None, demand))?,
            None => None,
        };
        let login = access.auth_info(ask, server)?;
        let letters = access.client_features(ask, server)?.map(|said| said.value).unwrap_or_default();
        Ok(Self {
            is_without_tls,
            is_judged: access.may_have("TLS_Srv") || access.may_have("TLS_Rcpt") || needs_certificate(&login, config),
            demand,
            in_clear: in_clear.map(|refusal| Unmet::of(refusal, None)),
            login_entry: login.as_ref().map(|login| login.found.clone()),
            login: login.map(|login| Arc::new(login_of(&login, config))),
            is_lockstep: letters.contains('P'),
            is_without_chunking: letters.contains('C'),
        })
    }

    /// Finds the part of the demand that a connection under TLS does not meet.
    ///
    /// # Errors
    /// The map cannot be asked now.
    /// # Cancel safety
    /// Yes.
    pub(super) async fn unmet(
        &self,
        routing: &Routing,
        host: &Candidate,
        info: &TlsInfo,
    ) -> Result<Option<Unmet>, Arc<str>> {
        let (Some(access), Some(demand)) = (access(routing), &self.demand) else { return Ok(None) };
        let connection = secured(host, Some(info), demand);
        let lacks = routing.decide(|ask| access.lacks(ask, demand, &connection)).await?;
        Ok(lacks.map(|refusal| Unmet::of(refusal, Some(info))))
    }

    /// Leaves mechanisms out of the login. Returns whether some were in it and others are left.
    pub(super) fn leave_out(&mut self, used: impl Fn(Mechanism) -> bool) -> bool {
        let Some(login) = &self.login else { return false };
        let left: Vec<Mechanism> = login.mechanisms.iter().copied().filter(|one| !used(*one)).collect();
        let is_less = !left.is_empty() && left.len() < login.mechanisms.len();
        if is_less {
            self.login = Some(Arc::new(Login { mechanisms: left, ..(**login).clone() }));
        }
        is_less
    }

    /// Adds to the text of a failed login the entry that demanded it.
    pub(super) fn explain(&self, host: &Candidate, trouble: &mut ConnectError) {
        let (Some(login), Some(entry)) = (&self.login, &self.login_entry) else { return };
        let line = entry.place.line.map(|line| format!(" line {line}")).unwrap_or_default();
        let (key, file) = (&entry.key, &entry.place.file);
        trouble.text =
            format!("login at {} as {} failed: {} ({key} in {file}{line})", host.name, login.user, trouble.text);
    }
}

/// Converts a login for the session. A login that the map gives for all hosts is used where AUTH is offered; one that
/// it gives for one host is needed.
fn login_of(login: &Tagged<AuthInfo>, config: &Config) -> Login {
    let AuthInfo { user, identity, password, is_base64, mechanisms, .. } = &login.value;
    let known: Vec<Mechanism> = mechanisms.iter().filter_map(|name| Mechanism::parse(name)).collect();
    let password = password.as_deref().unwrap_or_default();
    let decoded = is_base64.then(|| Base64::decode_vec(password).ok()).flatten();
    Login {
        user: identity.as_ref().or(user.as_ref()).map(String::as_str).unwrap_or_default().into(),
        on_behalf_of: user
            .as_ref()
            .filter(|user| identity.as_ref().is_some_and(|own| own != *user))
            .map(|user| user.as_str().into()),
        password: decoded.unwrap_or_else(|| password.as_bytes().to_vec()).into_boxed_slice().into(),
        mechanisms: if mechanisms.is_empty() { Mechanism::ALL.to_vec() } else { known },
        password_needs: password_needs(config),
        is_required: !login.is_default(),
    }
}

/// The least security of a connection over which a password is said.
const fn password_needs(config: &Config) -> Security {
    match (config.route.login_in_clear, config.route.login_unverified) {
        (true, _) => Security::Clear,
        (false, true) => Security::Encrypted,
        (false, false) => Security::Verified,
    }
}

fn needs_certificate(login: &Option<Tagged<AuthInfo>>, config: &Config) -> bool {
    login.is_some() && password_needs(config) == Security::Verified
}

/// Tells what is known of a connection, as far as this demand goes: of the names of its certificate the one that is
/// wanted counts.
fn secured<'a>(
    host: &'a Candidate,
    info: Option<&'a TlsInfo>,
    Tagged { value: demand, .. }: &'a Tagged<TlsDemand>,
) -> Secured<'a> {
    let name = &*host.server_name;
    let Some(info) = info else { return Secured { name: Some(name), ..Secured::default() } };
    let certificate = info.certificate.as_deref();
    let wanted = demand.further.iter().find_map(|one| match one {
        Certified::Cn(wanted) => Some(wanted.as_deref().unwrap_or(name).trim_end_matches('.')),
        _ => None,
    });
    let is_for = |wanted: &&str| certificate.is_some_and(|certificate| certificate.is_for(wanted));
    Secured {
        verify: match (&info.fault, certificate) {
            (Some(_), _) => Verify::Fail,
            (None, None) => Verify::No,
            (None, Some(_)) => Verify::Ok,
        },
        bits: info.bits.into(),
        common_name: wanted.filter(is_for).or_else(|| certificate?.common_name()),
        subject: certificate.map(ServerCertificate::subject),
        issuer: certificate.map(ServerCertificate::issuer),
        name: Some(name),
    }
}

/// Decides about recipients for whom the connection is not good enough; nothing for the others. Empty: it is good
/// enough for all.
///
/// # Cancel safety
/// Yes.
pub(super) async fn unserved(link: &Link, envelope: &Envelope) -> Vec<Option<AttemptOutcome>> {
    let Some(routing) = &link.routing else { return Vec::new() };
    let access = access(routing).filter(|access| access.may_have("TLS_Rcpt") && link.peer.address.ip().is_some());
    let Some(access) = access else { return Vec::new() };
    let info = link.tls.as_deref();
    let mut fates = Vec::with_capacity(envelope.recipients.len());
    for recipient in &envelope.recipients {
        let asked = routing.decide(|ask| match access.tls_recipient(ask, &recipient.address)? {
            Some(demand) => access.lacks(ask, &demand, &secured(&link.peer, info, &demand)),
            None => Ok(None),
        });
        fates.push(match asked.await {
            Ok(None) => None,
            Ok(Some(refusal)) => {
                let unmet = Unmet::of(refusal, info);
                let cause = Cause::new(unmet.status, unmet.text, None).with_reason(Reason::Auth);
                Some(match unmet.status.outcome() {
                    Outcome::Permanent => AttemptOutcome::Failed(cause),
                    _ => AttemptOutcome::Deferred(cause),
                })
            }
            Err(why) => {
                let status = EnhancedCode::of(Outcome::Transient, 3, 0);
                Some(AttemptOutcome::Deferred(Cause::new(
                    status,
                    format!("the access map cannot be asked: {why}"),
                    None,
                )))
            }
        });
    }
    if fates.iter().all(Option::is_none) { Vec::new() } else { fates }
}
