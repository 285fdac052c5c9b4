//! An API server that refuses everything, or hangs up on everybody, in the middle of a life.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use tokio::time::interval;

use crate::lane::{Lane, quick};
use crate::relay::Trouble;
use crate::site::play;

const TURN: Duration = Duration::from_secs(1);
/// How long it lasts. Watches are tried again less and less often, as by Go's controllers.
const LASTS: std::ops::Range<u32> = 1..6;

/// Comes after a moment and goes.
async fn comes_and_goes(lane: &Lane, trouble: Trouble) -> Result<()> {
    let mut ticks = interval(TURN);
    for turn in 0_u32.. {
        ticks.tick().await;
        lane.site.trouble(LASTS.contains(&turn).then_some(trouble));
    }
    bail!("it has no end")
}

#[test]
fn a_machine_lives_though_the_api_server_refuses_or_hangs_up_for_a_while() {
    play(async {
        let lane = Lane::open("outage", quick()).await?;
        for (name, trouble) in [
            ("busy", Trouble::Refuses(429)),
            ("failing", Trouble::Refuses(500)),
            ("broken", Trouble::Breaks),
        ] {
            tokio::select! {
                ended = lane.live(name) => ended?,
                ended = comes_and_goes(&lane, trouble) => ended?,
            }
            lane.site.trouble(None);
            ensure!(lane.clones(name).len() == 1, "{name}: {:?}", lane.clones(name));
        }
        Ok(())
    });
}
