use std::fmt;
use std::sync::OnceLock;

use thiserror::Error;

#[cfg(target_arch = "x86_64")]
use crate::amx;

/// The instructions that kernels may use. On each architecture, each level includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// What every processor of the architecture has.
    Portable,
    /// x86-64 with AVX2, FMA, F16C and POPCNT.
    Avx2,
    /// x86-64 with AVX-512 F, BW, DQ and VL.
    Avx512,
    /// [`Self::Avx512`] with dot products of int8 (VNNI).
    Vnni,
    /// [`Self::Vnni`] with AMX for int8, which the operating system lets this process use.
    Amx,
    /// aarch64, all of which have NEON with fused multiply-add and conversion of f16.
    Neon,
    /// aarch64 with dot products of int8.
    NeonDot,
}

/// The level that the process uses.
static CURRENT: OnceLock<Level> = OnceLock::new();

/// Why a level cannot be chosen.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LevelError {
    /// No level has this name.
    #[error("no processor level is called {0:?}; there are {names}", names = list(&Level::ALL))]
    Unknown(String),
    /// The processor lacks the instructions, or the operating system withholds them.
    #[error("this processor does not have {0}; it has {available}", available = list(&Level::available()))]
    Missing(Level),
    /// The process uses another level already.
    #[error("the processor level is {0} already")]
    Chosen(Level),
}

impl Level {
    /// Every level of every architecture, lowest first.
    pub const ALL: [Self; 7] =
        [Self::Portable, Self::Avx2, Self::Avx512, Self::Vnni, Self::Amx, Self::Neon, Self::NeonDot];

    /// The level that this process uses: the one chosen, else the highest that the processor has.
    #[must_use]
    pub fn current() -> Self {
        let highest = || Self::of_architecture().iter().rev().copied().find(|level| level.is_available());
        *CURRENT.get_or_init(|| highest().unwrap_or(Self::Portable))
    }

    /// The level with this name.
    ///
    /// # Errors
    /// If no level has this name, or the processor does not have the level.
    pub fn named(name: &str) -> Result<Self, LevelError> {
        let level = Self::ALL.into_iter().find(|level| level.name() == name);
        let level = level.ok_or_else(|| LevelError::Unknown(name.to_owned()))?;
        level.check()?;
        Ok(level)
    }

    fn check(self) -> Result<(), LevelError> {
        if Self::available().contains(&self) { Ok(()) } else { Err(LevelError::Missing(self)) }
    }

    /// Makes the process use this level. Call it before the first kernel is chosen: kernels and packed values of different
    /// levels are not compatible.
    ///
    /// # Errors
    /// If the processor does not have the level, or another one is in use.
    pub fn choose(self) -> Result<(), LevelError> {
        self.check()?;
        let current = *CURRENT.get_or_init(|| self);
        if current == self { Ok(()) } else { Err(LevelError::Chosen(current)) }
    }

    /// Every level that this processor can run, lowest first.
    #[must_use]
    pub fn available() -> Vec<Self> {
        let mut levels = vec![Self::Portable];
        levels.extend(Self::of_architecture().iter().filter(|level| level.is_available()));
        levels
    }

    /// Its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Portable => "portable",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
            Self::Vnni => "vnni",
            Self::Amx => "amx",
            Self::Neon => "neon",
            Self::NeonDot => "neondot",
        }
    }

    /// The levels of this architecture above the portable one, lowest first.
    pub(crate) fn of_architecture() -> &'static [Self] {
        if cfg!(target_arch = "aarch64") {
            &[Self::Neon, Self::NeonDot]
        } else {
            &[Self::Avx2, Self::Avx512, Self::Vnni, Self::Amx]
        }
    }

    #[cfg(target_arch = "x86_64")]
    fn is_available(self) -> bool {
        let avx2 = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c")
            && is_x86_feature_detected!("popcnt");
        match self {
            Self::Amx => Self::Vnni.is_available() && amx::is_available(),
            Self::Vnni => Self::Avx512.is_available() && is_x86_feature_detected!("avx512vnni"),
            Self::Avx512 => {
                avx2 && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
            }
            level => level == Self::Avx2 && avx2,
        }
    }

    #[cfg(target_arch = "aarch64")]
    fn is_available(self) -> bool {
        match self {
            Self::NeonDot => std::arch::is_aarch64_feature_detected!("dotprod"),
            level => level == Self::Neon,
        }
    }

    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    fn is_available(self) -> bool {
        false
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The names, separated by commas.
fn list(levels: &[Level]) -> String {
    levels.iter().map(|level| level.name()).collect::<Vec<_>>().join(", ")
}

/// One portable body, compiled for each level: `fn name(level: Level) -> Kernel`.
///
/// The body is generic over a type that loads and multiplies as the level does, and must be `#[inline(always)]`, so that it is
/// compiled with the features of the function that it is inlined into.
macro_rules! for_each_level {
    ($name:ident, $body:ident, $portable:ty, $fused:ty) => {
        pub(crate) fn $name(level: $crate::Level) -> $crate::Kernel {
            fn portable(a: &[u8], b: &[u8]) -> f32 {
                $body::<$portable>(a, b)
            }
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2,fma,f16c,popcnt")]
                fn avx2(a: &[u8], b: &[u8]) -> f32 {
                    $body::<$fused>(a, b)
                }
                #[target_feature(enable = "avx2,fma,f16c,popcnt,avx512f,avx512bw,avx512dq,avx512vl")]
                fn avx512(a: &[u8], b: &[u8]) -> f32 {
                    $body::<$fused>(a, b)
                }
                if level >= $crate::Level::Avx512 {
                    // SAFETY: a level that is in use has every feature that the function is compiled for.
                    return |a, b| unsafe { avx512(a, b) };
                }
                if level == $crate::Level::Avx2 {
                    // SAFETY: as above.
                    return |a, b| unsafe { avx2(a, b) };
                }
            }
            #[cfg(target_arch = "aarch64")]
            if level != $crate::Level::Portable {
                // NEON is part of the architecture: no feature to enable.
                return |a, b| $body::<$fused>(a, b);
            }
            let _ = level;
            portable
        }
    };
}
pub(crate) use for_each_level;

/// One portable function, compiled for each level: `fn name(level: Level) -> fn(...) -> ...`. The body must be
/// `#[inline(always)]` and give the same result whatever it is compiled for.
macro_rules! compiled_for_each_level {
    ($name:ident, $body:ident, ($($argument:ident: $type:ty),*) -> $result:ty) => {
        fn $name(level: $crate::Level) -> fn($($argument: $type),*) -> $result {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2")]
                fn avx2($($argument: $type),*) -> $result {
                    $body($($argument),*)
                }
                #[target_feature(enable = "avx2,avx512f,avx512bw,avx512dq,avx512vl")]
                fn avx512($($argument: $type),*) -> $result {
                    $body($($argument),*)
                }
                if level >= $crate::Level::Avx512 {
                    // SAFETY: a level that is in use has every feature that the function is compiled for.
                    return |$($argument),*| unsafe { avx512($($argument),*) };
                }
                if level == $crate::Level::Avx2 {
                    // SAFETY: as above.
                    return |$($argument),*| unsafe { avx2($($argument),*) };
                }
            }
            let _ = level;
            |$($argument),*| $body($($argument),*)
        }
    };
}
pub(crate) use compiled_for_each_level;
