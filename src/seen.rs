//! What was seen of the world outside: present, absent, or not known.
//!
//! A node that does not answer makes a fact unknown, never absent. Steps that create or destroy
//! require [`Seen::Present`] or [`Seen::Absent`]; only an answer of the cluster gives those.

/// One observation of something outside this process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen<T> {
    /// The other side answered, and the thing is there.
    Present(T),
    /// The other side answered, and the thing is not there.
    Absent,
    /// No usable answer; the text says why, for people.
    Unknown(String),
}

impl<T> Seen<T> {
    /// The value, when present.
    pub fn present(&self) -> Option<&T> {
        match self {
            Self::Present(value) => Some(value),
            Self::Absent | Self::Unknown(_) => None,
        }
    }

    /// Whether the other side answered that the thing is not there.
    pub fn is_absent(&self) -> bool {
        matches!(self, Self::Absent)
    }

    /// Borrowed form.
    pub fn as_ref(&self) -> Seen<&T> {
        match self {
            Self::Present(value) => Seen::Present(value),
            Self::Absent => Seen::Absent,
            Self::Unknown(why) => Seen::Unknown(why.clone()),
        }
    }

    /// Applies `f` to a present value.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Seen<U> {
        match self {
            Self::Present(value) => Seen::Present(f(value)),
            Self::Absent => Seen::Absent,
            Self::Unknown(why) => Seen::Unknown(why),
        }
    }
}

impl<T> From<Option<T>> for Seen<T> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Absent, Self::Present)
    }
}
