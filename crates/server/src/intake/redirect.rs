//! Looks up where mail goes for addresses that content rules and filters name.

use crate::context::Context;
use crate::routing::Routing;
use crate::routing::expansions::{ClientKey, Expanded, ExpansionRequest, ExpansionSettings, Resolved};
use mail::{Address, Envelope, Recipient, RecipientParams};
use route::resolve::{Delivery, Outcome, Resolution};
use std::sync::Arc;

/// Returns the recipients that mail for these addresses has, each with its destination. `routing`: none without maps.
///
/// # Errors
/// A look-up failed, an address is refused, or it is a long list.
/// # Cancel safety
/// Yes.
pub(crate) async fn resolve_redirects(
    context: &Arc<Context>,
    routing: Option<&Arc<Routing>>,
    envelope: &Envelope,
    addresses: &[Address],
) -> Result<Vec<(Recipient, Vec<u8>)>, Arc<str>> {
    let mut found = Vec::new();
    let live = context.live.load_full();
    let recipient = |address: Address| Recipient { address, params: RecipientParams::default() };
    for address in addresses {
        let Some(routing) = routing else {
            let recipients = vec![recipient(address.clone())];
            let encoded = live.encode(&Envelope { recipients, ..envelope.clone() });
            found.push((recipient(address.clone()), encoded.destination(0).to_vec()));
            continue;
        };
        let wanted = ExpansionRequest {
            client: ClientKey::Internal,
            sender: envelope.sender.clone(),
            recipient: address.clone(),
            ip: None,
            is_local_submission: false,
        };
        let settings = ExpansionSettings::of(&live.config.maps);
        let resolved = context.expansions.resolve(routing, &wanted, &settings).await;
        match resolved.map_err(|error| Arc::<str>::from(error.to_string()))? {
            Resolved::Short(Resolution { outcome: Outcome::Deliver(deliveries), .. }) => {
                let one = |one: Delivery| (recipient(one.address), one.destination.to_bytes());
                found.extend(deliveries.into_iter().map(one));
            }
            Resolved::Short(Resolution { outcome: Outcome::Discard, .. }) | Resolved::Long(Expanded::Discarded) => {}
            Resolved::Long(Expanded::Members(_)) => {
                return Err(format!("<{address}>, to which a rule sends mail, is a long list").into());
            }
            Resolved::Short(Resolution { outcome: Outcome::Refuse(refusal), .. })
            | Resolved::Long(Expanded::Refused(refusal)) => {
                return Err(format!("<{address}>, to which a rule sends mail: {}", refusal.text).into());
            }
        }
    }
    Ok(found)
}
