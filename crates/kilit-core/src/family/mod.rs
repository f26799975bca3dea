//! What authors of engines write. Each family is a small trait and an adapter that makes an [`Engine`](crate::Engine)
//! of it, with the rules that are easy to get wrong in one place.

mod lease;
mod session;

pub use lease::{Lease, LeaseEngine, Take};
pub use session::{Gripped, Session, SessionEngine};
