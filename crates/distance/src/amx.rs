//! Does the processor have AMX for int8, and may this process use it?

use std::arch::x86_64::__cpuid_count;

/// Asks for the permission as well: Linux reserves the kilobytes of register state only for processes that request it.
pub(crate) fn is_available() -> bool {
    processor_has_amx() && request_permission()
}

/// `AMX-TILE` and `AMX-INT8` (Intel SDM, CPUID leaf 7). Only for processors with AVX-512, all of which have that leaf.
fn processor_has_amx() -> bool {
    const BOTH: u32 = 1 << 24 | 1 << 25;
    __cpuid_count(7, 0).edx & BOTH == BOTH
}

#[cfg(target_os = "linux")]
fn request_permission() -> bool {
    // arch/x86/include/uapi/asm/prctl.h, and the number of the state component.
    const ARCH_REQ_XCOMP_PERM: libc::c_ulong = 0x1023;
    const XFEATURE_XTILEDATA: libc::c_ulong = 18;
    // SAFETY: the system call takes no pointers and only extends what this process may use.
    unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0 }
}

#[cfg(not(target_os = "linux"))]
fn request_permission() -> bool {
    false
}
