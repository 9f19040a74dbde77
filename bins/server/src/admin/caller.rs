//! Who asks, and what they may: the bearer of the data directory's token, or of one with a role.

use std::{fmt, sync::Arc};

use axum::{
    extract::{FromRequestParts, Request, State},
    middleware::Next,
    response::{IntoResponse, Response},
};
use http::{HeaderMap, Method, request::Parts};
use llmgw_core::{
    api::orders::ACTOR_HEADER,
    cluster::account::Role,
    control::{Actor, Control, ControlError},
    error::Code,
    keys::{HashingKey, TokenRing},
};
use tokio::sync::watch;

use super::{
    refusal::Refusal,
    token::{AdminToken, bearer},
};

/// The tokens with roles, besides the one of the data directory.
#[derive(Clone, Debug)]
pub struct RoleTokens {
    /// What secrets are hashed with.
    pub hashing_key: HashingKey,
    /// Those that are good.
    pub ring: watch::Receiver<Arc<TokenRing>>,
}

/// What is known of a caller who was let in.
#[derive(Clone, Debug)]
pub(super) struct Caller {
    name: Arc<str>,
    role: Role,
}

/// The roles of the control plane, in the name of whoever asks.
pub(super) struct Asked(pub(super) Control);

/// What callers are checked against.
#[derive(Clone, Debug)]
pub(super) struct Door {
    pub(super) control: Control,
    pub(super) token: AdminToken,
    pub(super) roles: Option<RoleTokens>,
}

// === impl Door ===

impl Door {
    fn admit(&self, presented: &str) -> Option<Caller> {
        if self.token.admits(presented) {
            return Some(Caller {
                name: "admin".into(),
                role: Role::Admin,
            });
        }
        let RoleTokens { hashing_key, ring } = self.roles.as_ref()?;
        let ring = Arc::clone(&ring.borrow());
        let token = ring.check(hashing_key, presented)?;
        Some(Caller {
            name: token.name.as_str().into(),
            role: token.role,
        })
    }
}

/// Lets a request through that carries a token, and says with it whose it is.
pub(super) async fn check(State(door): State<Door>, mut request: Request, next: Next) -> Response {
    let message = match bearer(request.headers()) {
        Some(presented) => match door.admit(presented) {
            Some(caller) => {
                let control = match control_for(&door.control, &caller, &request) {
                    Ok(control) => control,
                    Err(refusal) => return refusal.into_response(),
                };
                let extensions = request.extensions_mut();
                extensions.insert(caller);
                extensions.insert(control);
                return next.run(request).await;
            }
            None => "that is not the admin token",
        },
        None => "the admin token is missing",
    };
    let error = ControlError::new(Code::InvalidApiKey, message).with_hint(
        "the token is in admin.token in the data directory; send it as `Authorization: Bearer TOKEN`",
    );
    Refusal::from(error).into_response()
}

/// Lets a request through whose caller has this role, or one that may more.
pub(super) async fn require(State(role): State<Role>, request: Request, next: Next) -> Response {
    let caller = request.extensions().get::<Caller>();
    if caller.is_some_and(|caller| caller.role >= role) {
        return next.run(request).await;
    }
    let (name, has) = caller.map_or(("nobody", "no"), |caller| {
        (&caller.name, caller.role.as_str())
    });
    let message = format!("this needs the role {role}, and {name} has the role {has}");
    let error = ControlError::new(Code::PermissionDenied, message)
        .with_hint(format!(
            "ask whoever has the role admin for a token with the role {role}: `llmgw ctl tokens create NAME --role {role}`"
        ));
    Refusal::from(error).into_response()
}

/// What changes something is ordered in the caller's name; what only asks, in nobody's.
fn control_for(control: &Control, caller: &Caller, request: &Request) -> Result<Control, Refusal> {
    if matches!(*request.method(), Method::GET | Method::HEAD) {
        return Ok(control.clone());
    }
    let actor = actor(&caller.name, request.headers())?;
    Ok(control.acting.acting_as(&actor))
}

/// Whoever has the token, with who they say they are.
fn actor(name: &str, headers: &HeaderMap) -> Result<Actor, Refusal> {
    let Some(said) = headers.get(ACTOR_HEADER) else {
        return Ok(Actor::named(name)?);
    };
    let said = said.to_str().map_err(|_| {
        ControlError::new(Code::InvalidRequest, "the header x-llmgw-actor is no text")
            .with_hint("use printable ASCII characters")
    })?;
    let said: Vec<char> = said.trim().chars().collect();
    if said.is_empty() {
        return Ok(Actor::named(name)?);
    }
    if said.len() > MAX_ACTOR {
        let message = "the header x-llmgw-actor is longer than 64 characters";
        return Err(ControlError::new(Code::InvalidRequest, message).into());
    }
    let said: String = said.into_iter().collect();
    Ok(Actor::named(&format!("{said} ({name})"))?)
}

// === impl Asked ===

impl<S: Send + Sync> FromRequestParts<S> for Asked {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Refusal> {
        let control = parts.extensions.get::<Control>().cloned();
        control
            .map(Self)
            .ok_or_else(|| ControlError::new(Code::Internal, "nobody has looked who asks").into())
    }
}

// === impl Caller ===

impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name, self.role)
    }
}

/// Beside a token's name of 128 characters, the whole is an actor's name still.
const MAX_ACTOR: usize = 64;
