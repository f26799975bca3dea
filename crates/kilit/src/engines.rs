//! The engines that are built in: a line a crate.

use kilit_core::Descriptor;

static CRATES: &[&[Descriptor]] = &[
    #[cfg(feature = "file")]
    kilit_file::ENGINES,
    #[cfg(feature = "memory")]
    kilit_memory::ENGINES,
    #[cfg(feature = "redis")]
    kilit_redis::ENGINES,
    #[cfg(feature = "testlease")]
    kilit_testlease::ENGINES,
];

/// All engines that are built in.
pub fn engines() -> impl Iterator<Item = &'static Descriptor> {
    CRATES.iter().copied().flatten()
}
