//! What users build with: the mutex now, over any engine. A recipe never names an engine.

mod acquire;
mod mutex;
mod shared;
mod terms;

pub use mutex::Mutex;
pub use shared::Shared;
pub use terms::Terms;
