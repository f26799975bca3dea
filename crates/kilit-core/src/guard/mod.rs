//! Notice: the holder's side of a lock.

mod loss;

pub use loss::{Loss, LossReason, Standing};
