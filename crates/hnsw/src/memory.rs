//! Memory goes back to the system when a build is over.
//!
//! By itself glibc keeps most of what was freed: with the first large block it raises the size from which blocks are mappings of
//! their own, up to 32 MiB, and smaller ones lie among others in its arenas, where a few bytes that live on hold a megabyte. Then
//! a daemon holds more than its builds have reserved. Elsewhere these do nothing.
#![allow(unsafe_code)] // calls of the C library

/// Blocks from this size on are mappings of their own, which are gone when they are freed.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const MAPPED_FROM: i32 = 64 << 10;

/// Their largest number: a process may have 65,530 mappings.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const MAPPED_MOST: i32 = 32_000;

/// Has large blocks mapped, whatever sizes were asked for before. Best before there are threads.
pub fn map_large_blocks() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: numbers of the allocator are set, which has a lock for that. Should it not take them, all stays as it was.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_FROM);
        libc::mallopt(libc::M_MMAP_MAX, MAPPED_MOST);
    }
}

/// Gives the free pages among smaller blocks back, when a build's memory has been freed.
pub fn give_back() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: touches only what is free, under the allocator's locks.
    unsafe {
        libc::malloc_trim(0);
    }
}
