//! Handles, and a guard that closes a sequence.

use kvpager_sys as sys;

use crate::{Cache, Released, Result};

/// One stream of tokens. A handle, not an owner: it can be copied, and every call checks it. Use
/// after close, or on another cache, is [`Error::Handle`](crate::Error::Handle).
///
/// ```
/// use kvpager::{Cache, Config, Error};
/// let mut cache = Cache::new(&Config::default())?;
/// let ns = cache.namespace("llama-8b")?;
/// let (seq, _) = cache.open(ns, &[1, 2, 3])?;
/// cache.close(seq)?;
/// assert_eq!(cache.commit(seq, 3), Err(Error::Handle));
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Seq(pub sys::kvp_seq);

/// What separates tenants, adapters and model versions: nothing is shared across two. A handle, as
/// [`Seq`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Namespace(pub sys::kvp_ns);

impl From<sys::kvp_ns> for Namespace {
    fn from(raw: sys::kvp_ns) -> Namespace {
        Namespace(raw)
    }
}

/// Closes its sequence when it goes: for the way from open to the place that keeps the handle, where
/// an early return would leave it open.
///
/// ```
/// # use kvpager::{Cache, Config, Error, Result, Seq};
/// fn admit(cache: &mut Cache, seq: Seq, n_tokens: u32) -> Result<Seq> {
///     let mut guard = cache.guard(seq);
///     guard.cache().commit(seq, n_tokens)?; // refused: the sequence is closed
///     Ok(guard.keep())
/// }
/// # let mut cache = Cache::new(&Config::default())?;
/// # let ns = cache.namespace("")?;
/// # let (seq, _) = cache.open(ns, &[1, 2, 3])?;
/// # assert!(matches!(admit(&mut cache, seq, 4), Err(Error::Argument(_))));
/// # assert_eq!(cache.stats()?.open_seqs, 0);
/// # let (seq, _) = cache.open(ns, &[1, 2, 3])?;
/// # assert_eq!(admit(&mut cache, seq, 3), Ok(seq));
/// # assert_eq!(cache.stats()?.open_seqs, 1);
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
#[must_use = "the sequence is closed at once"]
pub struct SeqGuard<'c> {
    cache: &'c mut Cache,
    seq: Seq,
    is_kept: bool,
}

impl<'c> SeqGuard<'c> {
    pub(crate) fn new(cache: &'c mut Cache, seq: Seq) -> SeqGuard<'c> {
        SeqGuard { cache, seq, is_kept: false }
    }

    /// The cache, for calls while the guard is there.
    pub fn cache(&mut self) -> &mut Cache {
        self.cache
    }

    /// The sequence.
    pub fn seq(&self) -> Seq {
        self.seq
    }

    /// Leaves the sequence open.
    pub fn keep(mut self) -> Seq {
        self.is_kept = true;
        self.seq
    }

    /// Closes the sequence now.
    ///
    /// # Errors
    ///
    /// [`Error::Handle`](crate::Error::Handle): it is closed already.
    pub fn close(mut self) -> Result<Released> {
        self.is_kept = true;
        self.cache.close(self.seq)
    }
}

impl Drop for SeqGuard<'_> {
    fn drop(&mut self) {
        if !self.is_kept {
            let _ = self.cache.close(self.seq); // it may be closed already
        }
    }
}
