//! Returns memory to the system when a build is over.
//!
//! By default glibc keeps most freed memory: when a large block is freed, it raises the size from which blocks get their own
//! mapping, up to 32 MiB, and smaller blocks lie in its arenas, where a few live bytes can hold a megabyte. Then a daemon holds
//! more than its builds have reserved. With other C libraries these functions do nothing.
#![allow(unsafe_code)] // calls of the C library

/// Blocks of at least this many bytes get their own mapping, which is unmapped when they are freed.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const MAPPED_FROM: i32 = 64 << 10;

/// The most blocks with their own mapping: Linux allows 65,530 mappings per process.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const MAPPED_MOST: i32 = 32_000;

/// Fixes the threshold for mapped blocks, which glibc otherwise raises. Best called before threads are started.
pub fn map_large_blocks() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: sets two parameters of the allocator, under its own lock. Rejected values change nothing.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_FROM);
        libc::mallopt(libc::M_MMAP_MAX, MAPPED_MOST);
    }
}

/// Returns free pages between smaller blocks to the system (`malloc_trim`), after a build's memory has been freed.
pub fn give_back() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: releases only free memory, under the allocator's locks.
    unsafe {
        libc::malloc_trim(0);
    }
}
