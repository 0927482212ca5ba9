//! Whether there are tile registers for int8 products, and whether this process may use them.

use std::arch::x86_64::__cpuid_count;

/// Asks the system, too: Linux gives the registers' kilobytes of state only to processes that want them.
pub(crate) fn is_here() -> bool {
    processor_has_it() && system_lets_us()
}

/// `AMX-TILE` and `AMX-INT8` (Intel SDM, CPUID leaf 7). To be asked of processors that have AVX-512, and so that leaf.
fn processor_has_it() -> bool {
    const BOTH: u32 = 1 << 24 | 1 << 25;
    __cpuid_count(7, 0).edx & BOTH == BOTH
}

#[cfg(target_os = "linux")]
fn system_lets_us() -> bool {
    // arch/x86/include/uapi/asm/prctl.h, and the number of the state component.
    const ARCH_REQ_XCOMP_PERM: libc::c_ulong = 0x1023;
    const XFEATURE_XTILEDATA: libc::c_ulong = 18;
    // SAFETY: the call has no pointers, and changes nothing but what the process may do.
    unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0 }
}

#[cfg(not(target_os = "linux"))]
fn system_lets_us() -> bool {
    false
}
