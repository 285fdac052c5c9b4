//! Users, tokens, tickets and rights.

use std::collections::BTreeMap;
use std::fmt;

use super::request::{Credentials, Refusal};
use crate::clock::Millis;
use crate::config::Release;
use crate::seed::{AclSeed, Seed};

/// The one user that may do everything.
pub(crate) const ROOT: &str = "root@pam";

/// Who is calling.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Caller {
    /// `user@realm`, or `user@realm!token`.
    pub id: String,
    /// `user@realm`.
    pub user: String,
    /// Whether a token is used whose rights are its own only.
    pub privsep: bool,
}

impl Caller {
    pub(crate) fn is_token(&self) -> bool {
        self.id != self.user
    }
}

#[derive(Clone)]
pub(crate) struct Token {
    secret: String,
    privsep: bool,
    revoked: bool,
}

#[derive(Clone)]
struct Ticket {
    user: String,
    csrf: String,
    issued: Millis,
}

/// All that decides who may do what.
#[derive(Clone, Default)]
pub(crate) struct Access {
    users: BTreeMap<String, String>,
    tokens: BTreeMap<String, Token>,
    acl: Vec<AclSeed>,
    tickets: BTreeMap<String, Ticket>,
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access").field("acl", &self.acl).finish_non_exhaustive()
    }
}

impl Access {
    pub(crate) fn new(seed: &Seed) -> Self {
        let users = seed.users.iter().map(|user| (user.id.clone(), user.password.clone()));
        let tokens = seed.tokens.iter().map(|token| {
            let kept =
                Token { secret: token.secret.clone(), privsep: token.privsep, revoked: false };
            (token.id.clone(), kept)
        });
        Self {
            users: users.collect(),
            tokens: tokens.collect(),
            acl: seed.acl.clone(),
            tickets: BTreeMap::new(),
        }
    }

    pub(crate) fn set_revoked(&mut self, token: &str, revoked: bool) {
        if let Some(token) = self.tokens.get_mut(token) {
            token.revoked = revoked;
        }
    }

    pub(crate) fn set_secret(&mut self, token: &str, secret: &str) {
        if let Some(token) = self.tokens.get_mut(token) {
            secret.clone_into(&mut token.secret);
        }
    }

    pub(crate) fn set_acl(&mut self, path: &str, who: &str, privileges: &[&str]) {
        self.acl.retain(|entry| !(entry.path == path && entry.who == who));
        self.acl.push(AclSeed {
            path: path.to_owned(),
            who: who.to_owned(),
            privileges: privileges.iter().map(|&name| name.to_owned()).collect(),
        });
    }

    /// A ticket and its CSRF token for a right password.
    pub(crate) fn login(
        &mut self,
        user: &str,
        password: &str,
        now: Millis,
        dice: u64,
    ) -> Option<(String, String)> {
        let renewed = self.tickets.get(password).is_some_and(|ticket| ticket.user == user);
        let right =
            self.users.get(user).is_some_and(|known| !known.is_empty() && known == password);
        if !right && !renewed {
            return None;
        }
        let ticket = format!("PVE:{user}:{:08X}::{dice:016x}", now.secs());
        let csrf = format!("{:08X}:{:016x}", now.secs(), dice.rotate_left(17));
        self.tickets.insert(
            ticket.clone(),
            Ticket { user: user.to_owned(), csrf: csrf.clone(), issued: now },
        );
        Some((ticket, csrf))
    }

    /// Who the credentials belong to.
    pub(crate) fn authenticate(
        &self,
        credentials: &Credentials,
        writes: bool,
        now: Millis,
        lifetime: std::time::Duration,
        release: Release,
    ) -> Result<Caller, Refusal> {
        let refuse = |detail: String| {
            let general = release == Release::V9;
            Refusal::new(401, if general { "Authentication failed!".to_owned() } else { detail })
        };
        if let Some(token) = &credentials.token {
            return self.authenticate_token(token).map_err(refuse);
        }
        let Some(cookie) = &credentials.ticket else {
            return Err(Refusal::new(401, "No ticket"));
        };
        let ticket = self.tickets.get(cookie).filter(|ticket| now.since(ticket.issued) < lifetime);
        let Some(ticket) = ticket else {
            return Err(refuse("permission denied - invalid PVE ticket".to_owned()));
        };
        if writes && credentials.csrf.as_deref() != Some(ticket.csrf.as_str()) {
            return Err(Refusal::new(401, "Permission denied - invalid csrf token"));
        }
        Ok(Caller { id: ticket.user.clone(), user: ticket.user.clone(), privsep: false })
    }

    fn authenticate_token(&self, text: &str) -> Result<Caller, String> {
        let (id, secret) = text.split_once('=').ok_or("invalid token value!")?;
        let (user, name) = id.split_once('!').ok_or("invalid token value!")?;
        if !self.users.contains_key(user) && user != ROOT {
            return Err(format!("no such user ('{user}')"));
        }
        let token = self.tokens.get(id).filter(|token| !token.revoked);
        let token = token.ok_or_else(|| format!("no such token '{name}' for user '{user}'"))?;
        if token.secret != secret {
            return Err("invalid token value!".to_owned());
        }
        Ok(Caller { id: id.to_owned(), user: user.to_owned(), privsep: token.privsep })
    }

    /// Whether the caller has a privilege on a path.
    pub(crate) fn allows(&self, caller: &Caller, path: &str, privilege: &str) -> bool {
        let user = self.grants(&caller.user, path, privilege);
        user && (!caller.privsep || self.grants(&caller.id, path, privilege))
    }

    /// The deepest path with an entry for `who` decides.
    fn grants(&self, who: &str, path: &str, privilege: &str) -> bool {
        if who == ROOT {
            return true;
        }
        self.acl
            .iter()
            .filter(|entry| entry.who == who && covers(&entry.path, path))
            .max_by_key(|entry| if entry.path == "/" { 0 } else { entry.path.len() })
            .is_some_and(|entry| entry.privileges.iter().any(|name| name == privilege))
    }

    /// Every privilege that is granted anywhere, by path.
    pub(crate) fn granted(&self, caller: &Caller) -> BTreeMap<String, Vec<String>> {
        let mut paths = BTreeMap::new();
        let who = if caller.privsep { &caller.id } else { &caller.user };
        for entry in self.acl.iter().filter(|entry| entry.who == *who) {
            let mut names = entry.privileges.clone();
            names.retain(|name| self.allows(caller, &entry.path, name));
            paths.insert(entry.path.clone(), names);
        }
        if caller.user == ROOT && !caller.privsep {
            let all = crate::seed::PROVIDER_PRIVILEGES.iter().map(|&name| name.to_owned());
            paths.insert("/".to_owned(), all.collect());
        }
        paths
    }
}

fn covers(entry: &str, path: &str) -> bool {
    entry == "/"
        || path == entry
        || path.strip_prefix(entry).is_some_and(|rest| rest.starts_with('/'))
}
