//! Returns memory to the system when a build is over.
//!
//! By default glibc keeps most freed memory: when a large block is freed, it raises the size from which blocks get their own
//! mapping, up to 32 MiB, and smaller blocks lie in its arenas, where a few live bytes can hold a megabyte. Then a daemon holds
//! more than its builds have reserved. With other C libraries these functions do nothing.
#![allow(unsafe_code)] // calls of the C library

/// Blocks from this size on get their own mapping, which ends when they are freed.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const MAPPED_FROM: i32 = 64 << 10;

/// Their largest number: a process may have 65,530 mappings.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const MAPPED_MOST: i32 = 32_000;

/// Fixes the threshold for mapped blocks. Best called before there are threads.
pub fn map_large_blocks() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: numbers of the allocator are set, which has a lock for that. Should it not take them, all stays as it was.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_FROM);
        libc::mallopt(libc::M_MMAP_MAX, MAPPED_MOST);
    }
}

/// Returns the free pages among smaller blocks, after a build's memory has been freed.
pub fn give_back() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: touches only what is free, under the allocator's locks.
    unsafe {
        libc::malloc_trim(0);
    }
}
