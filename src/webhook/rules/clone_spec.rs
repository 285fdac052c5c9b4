//! Machine specs that a cluster carries for its ClusterClass.
//!
//! Nothing but the patches of a ClusterClass reads them, and these may put right what is wrong in them,
//! or leave them alone; capmox takes any. So what their machines will be refused for is no more than a
//! warning, with its field. It is given where it comes in, and not again with every later write.

use kube::core::DynamicObject;

use super::{Denial, Review, guest};
use crate::api::NetworkSpec;

/// What a write brings in that machines will be refused for. `cluster` is the JSON pointer of the
/// cluster's spec within the object.
pub(super) fn doubts(review: &Review<'_>, cluster: &str) -> Vec<String> {
    let known = review.old.map_or_else(Vec::new, |old| refusals(old, cluster));
    let found = refusals(review.object, cluster);
    let new = found.into_iter().filter(|refusal| !known.contains(refusal));
    new.map(|(at, refusal)| {
        let status = refusal.below(&at).into_status(review.kind.as_str(), review.name);
        format!("machines made from {at} will be refused: {}", status.message)
    })
    .collect()
}

/// All refusals, each with the path of the machine spec that it is about.
fn refusals(object: &DynamicObject, cluster: &str) -> Vec<(String, Denial)> {
    let specs = object.data.pointer(&format!("{cluster}/cloneSpec/machineSpec"));
    let specs = specs.and_then(|specs| specs.as_object()).into_iter().flatten();
    let mut found = Vec::new();
    for (role, spec) in specs {
        let Some(network) = spec.get("network") else { continue };
        // What cannot be read, the apiserver refuses by the schema.
        let Ok(asked) = serde_json::from_value::<NetworkSpec>(network.clone()) else { continue };
        let at = format!("{}.cloneSpec.machineSpec.{role}", cluster[1..].replace('/', "."));
        let refused = guest::refusals(&asked, network);
        found.extend(refused.into_iter().map(|refusal| (at.clone(), refusal)));
    }
    found
}
