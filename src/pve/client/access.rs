//! `/access`: who may do what.

use super::{Client, Exchange};
use crate::pve::error::Error;
use crate::pve::limits::Lane;
use crate::pve::transport::Verb;
use crate::pve::types::Permissions;

impl Client {
    /// Own privileges, on `path` or on all paths: `GET access/permissions`.
    pub async fn permissions(&self, path: Option<&str>) -> Result<Permissions, Error> {
        let endpoint = "access/permissions";
        let call = Exchange::new(Verb::Get, endpoint, ["access", "permissions"], Lane::Endpoint);
        self.run(call.set_some("path", path)).await?.object()
    }
}
