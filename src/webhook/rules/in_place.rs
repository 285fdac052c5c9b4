//! In-place updates by Cluster API, from its version 1.12 on with the feature gate `InPlaceUpdates`.
//!
//! There a change that this provider cannot bring about may be another's to bring about: an Update
//! Extension that the administrator installed. Cluster API asks it, after it has tried the ProxmoxMachine
//! by dry run as the new template has it; only if it takes the change upon itself the ProxmoxMachine is
//! changed, with an annotation, and the extension told to go on. Else the machine is replaced. A refusal
//! would come in between: of the dry run, so that the extension is not asked, and the first releases of 1.12
//! and 1.13 even stick (<https://github.com/kubernetes-sigs/cluster-api/pull/13640>; with that, they still
//! stick at a refusal that is neither 422 nor 403, as that of tags); or of the change itself, after the
//! extension was asked, so that the update never ends. As the contract for InfraMachines wants ("support
//! for in-place changes"), such a change is let through and has no effect of ours.
//!
//! Seen in Cluster API 1.13.5: `createRequest` in `controlplane/kubeadm/internal/controllers/
//! inplace_canupdatemachine.go` (the dry run), `triggerInPlaceUpdate` in `inplace_trigger.go` beside it
//! and in `internal/controllers/machineset/machineset_controller.go` (the change).

use kube::core::DynamicObject;

use super::{Denial, Kind, Review};

/// On the objects of a machine from the change until the extension says that it is done.
const UPDATE_IN_PROGRESS: &str = "in-place-updates.internal.cluster.x-k8s.io/update-in-progress";
/// The template that an object is as.
const CLONED_FROM: &str = "cluster.x-k8s.io/cloned-from-name";

/// Makes a refusal a warning where Cluster API updates the machine in place.
pub(super) fn unless_updated(
    review: &Review<'_>,
    judgement: Result<(), Denial>,
    doubts: &mut Vec<String>,
) -> Result<(), Denial> {
    match judgement {
        Err(denial) if is_updated(review) => {
            let refusal = denial.into_status(Kind::ProxmoxMachine.as_str(), review.name);
            doubts.push(format!(
                "only an Update Extension of Cluster API can bring this about; by itself it would be \
                 refused: {}",
                refusal.message
            ));
            Ok(())
        }
        judgement => judgement,
    }
}

/// Whether Cluster API changes the machine, or tries to. The dry run has no mark of its own, but as it
/// is that of another template it names another. Anybody else's dry run is answered as the change
/// itself would be, or `kubectl apply --dry-run=server` would promise what is refused later.
fn is_updated(review: &Review<'_>) -> bool {
    let is_tried = || {
        let template = annotation(review.object, CLONED_FROM);
        template.is_some() && template != review.old.and_then(|old| annotation(old, CLONED_FROM))
    };
    annotation(review.object, UPDATE_IN_PROGRESS).is_some() || (review.dry_run && is_tried())
}

fn annotation<'a>(object: &'a DynamicObject, name: &str) -> Option<&'a str> {
    object.metadata.annotations.as_ref()?.get(name).map(String::as_str)
}
