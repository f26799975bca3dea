//! Everything that depends on the operating system. A port is one more file here, with the same functions.

#[cfg(not(target_os = "linux"))]
compile_error!("kilit runs on Linux only for now: a port needs a file beside kilit-core/src/sys/linux.rs");

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "linux")]
pub(crate) use linux::{Alarm, boot_time, host_name, sleep_until};
#[cfg(target_os = "linux")]
pub use linux::{Readable, boot_id, process_id};
