//! `/metrics`: by plain HTTP to anybody, or by HTTPS to who may `get` the path.
//!
//! As with the servers of Kubernetes' own controllers, the certificate is made at the start and
//! signed by nobody, and the API server says who asks (TokenReview) and whether they may
//! (SubjectAccessReview). Profiles and a change of the log level, which capmox v0.7 offers here as
//! well, are not offered.

use std::sync::Arc;

use axum::Router;
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::api::PostParams;
use kube::{Api, Client};
use rustls::ServerConfig;
use rustls::version::{TLS12, TLS13};
use rustls_pki_types::PrivateKeyDer;
use tokio_rustls::TlsAcceptor;
use tracing::warn;

use super::TlsVersion;
use super::metrics::{self, Metrics};

const PATH: &str = "/metrics";

/// Who may read.
#[derive(Clone)]
pub(super) enum Access {
    /// Anybody.
    Open,
    /// Whom the API server allows to.
    Reviewed(Client),
}

pub(super) fn router(metrics: Metrics, access: Access) -> Router {
    let text = async move |headers: HeaderMap| -> Response {
        if let Access::Reviewed(client) = &access
            && let Err(refusal) = review(client, &headers).await
        {
            return refusal.into_response();
        }
        ([(CONTENT_TYPE, metrics::CONTENT_TYPE)], metrics.text()).into_response()
    };
    Router::new().route(PATH, get(text))
}

/// Whether who sent these headers may read.
async fn review(client: &Client, headers: &HeaderMap) -> Result<(), (StatusCode, String)> {
    let unauthorized = || (StatusCode::UNAUTHORIZED, "Unauthorized\n".to_owned());
    let token = bearer(headers).ok_or_else(unauthorized)?;
    let user = who(client, token).await.map_err(unknown)?.ok_or_else(unauthorized)?;
    let name = user.username.clone().unwrap_or_default();
    if may_read(client, user).await.map_err(unknown)? {
        return Ok(());
    }
    let why = format!("{name:?} may not get {PATH}; bind it to the ClusterRole metrics-reader\n");
    Err((StatusCode::FORBIDDEN, why))
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

#[expect(clippy::needless_pass_by_value, reason = "as map_err gives it")]
fn unknown(error: kube::Error) -> (StatusCode, String) {
    warn!(%error, "cannot ask the API server who may read metrics");
    let why = "the API server does not say whether you may read this\n";
    (StatusCode::INTERNAL_SERVER_ERROR, why.to_owned())
}

async fn who(client: &Client, token: &str) -> kube::Result<Option<UserInfo>> {
    let review = TokenReview {
        spec: TokenReviewSpec { token: Some(token.to_owned()), ..TokenReviewSpec::default() },
        ..TokenReview::default()
    };
    let reviews: Api<TokenReview> = Api::all(client.clone());
    let answer = reviews.create(&PostParams::default(), &review).await?;
    let status = answer.status.unwrap_or_default();
    Ok(status.user.filter(|_| status.authenticated == Some(true)))
}

async fn may_read(client: &Client, user: UserInfo) -> kube::Result<bool> {
    let review = SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: user.username,
            uid: user.uid,
            groups: user.groups,
            extra: user.extra,
            non_resource_attributes: Some(NonResourceAttributes {
                path: Some(PATH.to_owned()),
                verb: Some("get".to_owned()),
            }),
            resource_attributes: None,
        },
        ..SubjectAccessReview::default()
    };
    let reviews: Api<SubjectAccessReview> = Api::all(client.clone());
    let answer = reviews.create(&PostParams::default(), &review).await?;
    Ok(answer.status.is_some_and(|status| status.allowed && status.denied != Some(true)))
}

/// TLS with a certificate of our own making.
///
/// # Errors
///
/// A sentence, when key or certificate cannot be made.
pub(super) fn tls(oldest: TlsVersion) -> Result<TlsAcceptor, String> {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()])
        .map_err(|error| error.to_string())?;
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der())?;
    let versions: &[_] = match oldest {
        TlsVersion::V12 => &[&TLS13, &TLS12],
        TlsVersion::V13 => &[&TLS13],
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .map_err(|error| error.to_string())?
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .map_err(|error| error.to_string())?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_bearer_token_counts() {
        for (value, wanted) in [
            (Some("Bearer abc"), Some("abc")),
            (Some("bearer  abc "), Some("abc")),
            (Some("Basic abc"), None),
            (Some("Bearer "), None),
            (Some("abc"), None),
            (None, None),
        ] {
            let mut headers = HeaderMap::new();
            if let Some(value) = value {
                headers.insert(AUTHORIZATION, value.parse().unwrap());
            }
            assert_eq!(bearer(&headers), wanted, "{value:?}");
        }
    }

    #[test]
    fn tls_can_be_set_up_for_both_versions() {
        assert!(tls(TlsVersion::V12).is_ok());
        assert!(tls(TlsVersion::V13).is_ok());
    }
}
