//! What authors of engines write. Each family is a small trait and an adapter that makes an [`Engine`](crate::Engine)
//! of it, with the rules that are easy to get wrong in one place.
//!
//! Both say what they promise. An engine whose holds the kernel keeps, and which looks at them once a second:
//!
//! ```
//! # use std::time::Duration;
//! # use kilit_core::{Assurance, Bound, Exclusion, Modes, Order, TokenStrength};
//! fn promise() -> Assurance {
//!     Assurance {
//!         engine: "mine",
//!         exclusion: Exclusion::HostKernel,
//!         token: TokenStrength::None,
//!         clock_accepted: false,
//!         order: Order::Any,
//!         modes: Modes { exclusive: true, shared: false, permits: false },
//!         leases: false,
//!         // `alive` is asked this often, and answers `Renewal::Kept(None)`: there is no deadline.
//!         loss_notice: Bound::fixed(Duration::from_secs(1)),
//!         // The kernel lets go when the holder dies. A lease engine says `Bound::ONE_TTL`.
//!         crash_release: Bound::AT_ONCE,
//!         wait_look: Bound::fixed(Duration::from_secs(1)),
//!         notes: vec![],
//!     }
//! }
//! ```
//!
//! The same function is the [`Descriptor`](crate::Descriptor)'s `assurance`, as the promise before anything was probed.

mod lease;
mod session;

pub use lease::{Extended, Lease, LeaseEngine, Take};
pub use session::{Gripped, Session, SessionEngine};
