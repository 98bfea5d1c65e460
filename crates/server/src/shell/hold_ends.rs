//! Releases mail that was held for a time, when that is over, and deletes mail whose time in quarantine is over.

use crate::context::Context;
use crate::intake::sort_after_start;
use crate::outbound::Outbound;
use observe::{Event, ScreenVerdict, Severity};
use operator::queue::{EndedHold, release_ended_holds};
use os::blocking;
use std::sync::Arc;
use std::time::Duration;

/// How often the server looks for holds that have ended.
const INTERVAL: Duration = Duration::from_secs(5);

/// Looks for holds that have ended until the server stops.
pub(crate) async fn release_periodically(outbound: Arc<Outbound>) {
    sort_held(&outbound).await;
    loop {
        tokio::select! {
            () = outbound.context.stop.begun() => return,
            () = tokio::time::sleep(INTERVAL) => release(&outbound).await,
        }
    }
}

/// Sorts mail that a crash left before the rules of operators were applied, and has it delivered.
async fn sort_held(outbound: &Arc<Outbound>) {
    let context = Arc::clone(&outbound.context);
    // A panic is reported where it happens.
    let Ok(sorted) = blocking::run(move || sort_after_start(&context)).await else { return };
    if let Some(dispatch) = &outbound.dispatch {
        sorted.into_iter().for_each(|id| dispatch.look_at(id));
    }
}

/// Releases all mail whose hold has ended, and logs it.
async fn release(outbound: &Arc<Outbound>) {
    let context = &outbound.context;
    loop {
        let releaser = Arc::clone(outbound);
        let released = blocking::run(move || {
            let (spool, dispatch) = (releaser.context.spool()?, releaser.dispatch.as_ref()?);
            Some(release_ended_holds(spool, &**dispatch))
        });
        // A panic is reported where it happens.
        let Ok(Some(released)) = released.await else { return };
        match released {
            Ok(released) if released.is_empty() => return,
            Ok(released) => released.iter().for_each(|ended| report(context, ended)),
            Err(error) => {
                let text = format!("mail whose hold has ended stays held, and is released later: {error}");
                return context.record(&Event::Spool { severity: Severity::Error, text: &text });
            }
        }
    }
}

fn report(context: &Context, ended: &EndedHold) {
    let EndedHold { id, recipients, hold, deleted, next } = ended;
    if !deleted.is_empty() {
        // The history knows by the place that the recipients are deleted.
        return context.record(&Event::Screened {
            id: *id,
            verdict: ScreenVerdict::Discard,
            by: hold.by(),
            place: "quarantine.keep",
            to: &deleted.join(","),
            action: &format!("deleted, its time in quarantine is over: {}", hold.text()),
        });
    }
    let why = match next {
        Some(next) => format!("{}; held from now on by {}: {}", hold.text(), next.by(), next.text()),
        None => hold.text().to_owned(),
    };
    context.record(&Event::HoldEnded { id: *id, recipients: *recipients, by: hold.by(), why: &why });
}
