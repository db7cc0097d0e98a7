//! What calls take: prompts, keys, batches.

use std::marker::PhantomData;
use std::ops::Range;

use kvpager_sys as sys;

use crate::error::{count, Why};
use crate::{Result, Seq, TokenRange};

/// A prompt, and how it is to be opened. Made of tokens by [`From`], or with other fields:
///
/// ```
/// use kvpager::Prompt;
/// let prompt = Prompt { tag: 7, ..Prompt::new(&[1, 2, 3]) };
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Prompt<'a> {
    /// `[n]` token ids, >= 0. An empty sequence takes no block, unless it reserves.
    pub tokens: &'a [i32],
    /// Slots wanted beyond the tokens.
    pub reserve_tokens: u32,
    /// Ascending by begin, inside the tokens: what their KV depends on besides token ids.
    pub keys: &'a [Key<'a>],
    /// Positions that must not be cached, now or when they are reached later.
    pub uncached: &'a [TokenRange],
    /// Take no hit, compute everything (prompt log-probabilities).
    pub no_match: bool,
    /// Take no hit that would have to be copied from the host.
    pub device_only: bool,
    /// What is not hit comes from another process: take no block for what windows drop.
    pub receive: bool,
    /// Class 0..7 of the blocks that this sequence takes: lower ones are evicted first. Default 0.
    pub retention: u32,
    /// The caller's own.
    pub tag: u64,
}

impl<'a> Prompt<'a> {
    /// A prompt of these tokens, with defaults.
    pub fn new(tokens: &'a [i32]) -> Prompt<'a> {
        Prompt { tokens, ..Prompt::default() }
    }

    /// The struct of C, which points into this one.
    pub(crate) fn to_raw(self) -> Result<sys::kvp_prompt> {
        let mut flags = 0;
        if self.no_match {
            flags |= sys::KVP_OPEN_NO_MATCH;
        }
        if self.device_only {
            flags |= sys::KVP_OPEN_DEVICE_ONLY;
        }
        if self.receive {
            flags |= sys::KVP_OPEN_RECEIVE;
        }
        Ok(sys::kvp_prompt {
            struct_size: std::mem::size_of::<sys::kvp_prompt>(),
            tokens: self.tokens.as_ptr(),
            n_tokens: count("tokens", self.tokens.len())?,
            reserve_tokens: self.reserve_tokens,
            keys: self.keys.as_ptr().cast(),
            n_keys: count("keys", self.keys.len())?,
            uncached: self.uncached.as_ptr(),
            n_uncached: count("uncached", self.uncached.len())?,
            flags,
            retention: self.retention,
            tag: self.tag,
            ..Default::default()
        })
    }
}

impl<'a> From<&'a [i32]> for Prompt<'a> {
    fn from(tokens: &'a [i32]) -> Prompt<'a> {
        Prompt::new(tokens)
    }
}

impl<'a> From<&'a Vec<i32>> for Prompt<'a> {
    fn from(tokens: &'a Vec<i32>) -> Prompt<'a> {
        Prompt::new(tokens)
    }
}

impl<'a, const N: usize> From<&'a [i32; N]> for Prompt<'a> {
    fn from(tokens: &'a [i32; N]) -> Prompt<'a> {
        Prompt::new(tokens)
    }
}

/// Something besides token ids that the KV of a range of tokens depends on: an image's digest with
/// its placeholder's range, or an adapter from its first token on. Keys of equal type and bytes must
/// have equal length; keys of two types never compare equal.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Key<'a> {
    raw: sys::kvp_key,
    bytes: PhantomData<&'a [u8]>,
}

// SAFETY: a shared borrow of bytes, and numbers.
unsafe impl Send for Key<'_> {}
// SAFETY: as above.
unsafe impl Sync for Key<'_> {}

impl<'a> Key<'a> {
    /// A key of the caller's type number. Positions are the sequence's; `bytes` are 0..52 of them:
    /// of longer ones pass a digest. The call that takes it checks it.
    pub fn new(kind: u32, positions: Range<u32>, bytes: &'a [u8]) -> Key<'a> {
        let raw = sys::kvp_key {
            type_: kind,
            begin: positions.start,
            end: positions.end,
            n_bytes: bytes.len().min(u32::MAX as usize) as u32, // more than 52 are refused
            bytes: bytes.as_ptr().cast(),
        };
        Key { raw, bytes: PhantomData }
    }

    pub(crate) fn raw(&self) -> &sys::kvp_key {
        &self.raw
    }

    pub(crate) fn bytes(&self) -> &'a [u8] {
        // SAFETY: made of such a slice in `new`.
        unsafe { crate::view(self.raw.bytes.cast(), self.raw.n_bytes) }
    }
}

/// New tokens of many sequences, in one call. `B` is the number of sequences.
#[derive(Clone, Copy, Debug, Default)]
pub struct Batch<'a> {
    /// `[B]`, each once.
    pub seqs: &'a [Seq],
    /// `[B]` new tokens of each, may be 0; `None`: one each.
    pub n_tokens: Option<&'a [u32]>,
    /// `[sum of n_tokens]` ids, concatenated; `None`: their values are not known yet.
    pub tokens: Option<&'a [i32]>,
    /// Slots wanted beyond the new tokens, for each.
    pub reserve_tokens: u32,
    /// For a batch of one sequence: ascending, inside the new tokens (absolute positions).
    pub keys: &'a [Key<'a>],
}

impl Batch<'_> {
    /// The struct of C, which points into this one. Refuses lengths that do not fit together: the
    /// library would read beyond the slices.
    pub(crate) fn to_raw(self) -> Result<sys::kvp_batch> {
        let n_seqs = count("seqs", self.seqs.len())?;
        if let Some(counts) = self.n_tokens {
            same_length("n_tokens", counts.len(), self.seqs.len() as u64)?;
        }
        if let Some(tokens) = self.tokens {
            let sum = self.n_tokens.map(|counts| counts.iter().map(|&n| u64::from(n)).sum());
            same_length("tokens", tokens.len(), sum.unwrap_or_else(|| u64::from(n_seqs)))?;
        }
        Ok(sys::kvp_batch {
            struct_size: std::mem::size_of::<sys::kvp_batch>(),
            n_seqs,
            seqs: self.seqs.as_ptr().cast(),
            n_tokens: self.n_tokens.map_or(std::ptr::null(), <[u32]>::as_ptr),
            tokens: self.tokens.map_or(std::ptr::null(), <[i32]>::as_ptr),
            reserve_tokens: self.reserve_tokens,
            n_keys: count("keys", self.keys.len())?,
            keys: self.keys.as_ptr().cast(),
            ..Default::default()
        })
    }
}

pub(crate) fn same_length(field: &str, n: usize, expected: u64) -> Result<()> {
    match n as u64 {
        n if n == expected => Ok(()),
        n => Err(Why::length(field, n, expected)),
    }
}
