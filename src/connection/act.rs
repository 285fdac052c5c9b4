//! Writes the status. Chooses nothing.

use kube::api::{Api, Patch, PatchParams};
use kube::{Client, ResourceExt};
use serde_json::Value;

use super::FIELD_MANAGER;
use crate::api::ProxmoxConnection;
use crate::fault::{Class, Fault};

/// Writes the status; whether it was still that of the object that was judged.
pub(super) async fn write_status(
    client: &Client,
    connection: &ProxmoxConnection,
    patch: &Value,
) -> Result<bool, Fault> {
    let name = connection.name_any();
    let api: Api<ProxmoxConnection> = Api::all(client.clone());
    let parameters =
        PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    match api.patch_status(&name, &parameters, &Patch::Merge(patch)).await {
        Ok(_) => Ok(true),
        // 404: it went; 409: it changed.
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(false),
        Err(error) => {
            let class = match &error {
                kube::Error::Api(status) if matches!(status.code, 401 | 403) => Class::Denied,
                kube::Error::Api(status) if matches!(status.code, 400 | 422) => Class::Invalid,
                _ => Class::Transient,
            };
            let message = format!("cannot write the status of ProxmoxConnection {name}: {error}");
            Err(Fault::new(class, message))
        }
    }
}
