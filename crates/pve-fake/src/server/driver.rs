//! Advances the model when something is due and tells the guests what happened to their VMs.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use super::shared::Shared;
use crate::guest::{Guest, GuestHandle};
use crate::model::Effect;

/// Runs until the simulator is gone.
pub(super) async fn drive(shared: Weak<Shared>, wake: Arc<Notify>) {
    let mut lines: BTreeMap<u32, mpsc::UnboundedSender<Effect>> = BTreeMap::new();
    loop {
        let Some(strong) = shared.upgrade() else { return };
        let (effects, due) = {
            let mut model = strong.present();
            (model.take_effects(), model.next_due())
        };
        if let Some(guest) = &strong.guest {
            for effect in effects {
                deliver(&mut lines, guest, &shared, effect);
            }
        }
        let now = strong.clock.now();
        // A moment late is fine, an hour without a look is not: the clock may be skipped.
        let pause = due.map_or(Duration::from_secs(1), |due| due.since(now));
        drop(strong);
        let until = Instant::now() + pause.clamp(Duration::from_millis(1), Duration::from_secs(1));
        tokio::select! {
            () = wake.notified() => {}
            () = tokio::time::sleep_until(until) => {}
        }
    }
}

fn deliver(
    lines: &mut BTreeMap<u32, mpsc::UnboundedSender<Effect>>,
    guest: &Arc<dyn Guest>,
    shared: &Weak<Shared>,
    effect: Effect,
) {
    let vmid = match &effect {
        Effect::Started(boot) => boot.vmid,
        Effect::Stopped { vmid, .. } => *vmid,
    };
    let line = lines.entry(vmid).or_insert_with(|| {
        let (sender, mut receiver) = mpsc::unbounded_channel();
        let (guest, shared) = (Arc::clone(guest), Weak::clone(shared));
        tokio::spawn(async move {
            while let Some(effect) = receiver.recv().await {
                match effect {
                    Effect::Started(boot) => {
                        let handle =
                            GuestHandle { shared: Weak::clone(&shared), vmid, boot: boot.boot };
                        guest.started(*boot, handle).await;
                    }
                    Effect::Stopped { vmid, .. } => guest.stopped(vmid).await,
                }
            }
        });
        sender
    });
    // A line that is closed belongs to a runtime that shuts down.
    let _ = line.send(effect);
}
