//! Who may use the admin API: tokens with roles.

use std::fmt;

use async_trait::async_trait;

use super::ControlError;
use crate::{
    api::orders::{CreatedToken, TokenView},
    cluster::account::{OperatorToken, Role},
    error::Code,
    id::TokenId,
};

/// Who may use the admin API: tokens with roles, besides the one of the data directory.
///
/// # Contract
/// As for [`Catalog`](super::Catalog); and a token that was made or revoked is known to the admin API of this process
/// when the answer is given.
#[async_trait]
pub trait Operators: fmt::Debug + Send + Sync + 'static {
    /// All tokens, by id: without their secrets, which nobody knows.
    async fn tokens(&self) -> Result<Vec<TokenView>, ControlError>;

    /// Makes a token. Its secret is in the answer, and never shown again.
    ///
    /// MUST refuse a name as [`Tenancy::create_key`](super::Tenancy::create_key) does.
    async fn create_token(&self, name: &str, role: Role) -> Result<CreatedToken, ControlError>;

    /// Revokes a token.
    ///
    /// MUST refuse an unknown one ([`Code::NotFound`]).
    async fn revoke_token(&self, id: TokenId) -> Result<(), ControlError>;
}

/// A token as it is shown.
#[must_use]
pub fn token_view(token: &OperatorToken) -> TokenView {
    TokenView {
        id: token.id,
        name: token.name.clone(),
        role: token.role,
        created_at: token.created_at,
    }
}

/// No token has this id.
#[must_use]
pub fn unknown_token(id: TokenId) -> ControlError {
    ControlError::new(Code::NotFound, format!("there is no admin token {id}"))
        .with_hint("`llmgw ctl tokens` lists those there are")
}
