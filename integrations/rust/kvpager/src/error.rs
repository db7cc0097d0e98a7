//! Why a call failed: the statuses of the library, with what it tells about each.

use std::ffi::CStr;
use std::fmt;

use kvpager_sys as sys;

use crate::Tier;

/// The outcome of a call.
pub type Result<T> = std::result::Result<T, Error>;

/// What the caller should do about an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Class {
    /// Nothing is wrong: not now. Release something, or wait, and call again.
    Retry,
    /// The call is wrong, and will be wrong again.
    Caller,
    /// Bytes or tokens that were asked for are not there, or are damaged.
    Data,
    /// The machine refused, or the cache's own state is broken.
    System,
}

/// Why a call was refused. A call that fails has changed nothing, unless its comment says so.
///
/// Each variant is a status of the library, `KVP_E_...`. The comments of its header say which calls
/// give it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Error {
    /// An argument is out of range or inconsistent. For configurations, prompts and slices that do
    /// not fit together, [`Why`] names the field.
    Argument(Option<Box<Why>>),
    /// The handle is closed, stale or of another cache.
    Handle,
    /// The object's state does not allow this call.
    State,
    /// The sequence would exceed `max_seq_tokens`.
    TooLong(Option<Box<Why>>),
    /// A buffer is too small.
    TooSmall,
    /// More blocks than the pool, less the watermark in force, ever has.
    Never(Shortage),
    /// Not enough free or cached blocks now.
    NoBlocks(Shortage),
    /// All `max_seqs` sequences are open; of a scheduler, all `max_requests` or `max_samples`.
    NoSeqs,
    /// All `max_namespaces` namespaces are open.
    NoNamespaces,
    /// `max_copies` copies are pending: take the plan first.
    PlanFull,
    /// Token values in the range are not known to the cache.
    Unknown,
    /// Bytes are not what they should be.
    Format,
    /// Bytes of another version.
    Version,
    /// The result differs from the recorded one.
    Mismatch,
    /// The system gave no memory.
    NoMemory,
    /// Reading or writing failed.
    Io,
    /// Another process has the cache: it was created before a fork.
    Busy,
    /// An invariant does not hold.
    Corrupt(Option<Violation>),
    /// `max_steps_out` steps are out: report one first.
    NoSteps,
    /// A step that is out still writes what must be copied.
    InFlight,
    /// These events are gone.
    Behind,
    /// Tokens that a window has dropped would be needed.
    Dropped,
    /// Nothing can be taken or read at this moment: call again.
    Again,
    /// The peer is gone, or gave up.
    Peer,
    /// A status that this version of the crate does not know.
    Other(i32),
}

/// The first field that is wrong, and what it may be.
#[derive(Clone, Debug, PartialEq)]
pub struct Why {
    /// As in `n_blocks` or `keys[3].end`.
    pub field: String,
    /// What it is; 0 if it is no number.
    pub value: f64,
    /// The lowest value that it may have beside the other fields. With `highest`, both 0 if what is
    /// wrong is no range.
    pub lowest: f64,
    /// The highest value.
    pub highest: f64,
    /// One sentence: `n_blocks is 1, expected 2 to 2^31-1`.
    pub text: String,
}

/// How many blocks are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shortage {
    /// [`Error::NoBlocks`]: blocks that must become available. [`Error::Never`]: blocks beyond the
    /// limit that can never be passed. 0 if a scheduler refused a request.
    pub missing_blocks: u64,
    /// Of the sequence at fault in a call for many, else 0.
    pub index: u32,
    /// Whose blocks.
    pub tier: Tier,
}

/// The first invariant of the cache that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Its number, as in `T1`.
    pub invariant: String,
    /// Block, node or sequence, by invariant.
    pub object: u64,
    /// What does not hold.
    pub detail: &'static str,
}

/// Status, variant; those that carry something are made by hand.
macro_rules! statuses {
    ($($status:ident => $variant:pat, $plain:expr;)*) => {
        impl Error {
            /// The error of a status of the library, without its details.
            pub fn of_status(status: i32) -> Error {
                match status {
                    $(sys::$status => $plain,)*
                    other => Error::Other(other),
                }
            }

            /// The library's number for it, `KVP_E_...`.
            pub fn status(&self) -> i32 {
                match self {
                    $($variant => sys::$status,)*
                    Error::Other(status) => *status,
                }
            }
        }
    };
}

statuses! {
    KVP_E_ARG => Error::Argument(_), Error::Argument(None);
    KVP_E_HANDLE => Error::Handle, Error::Handle;
    KVP_E_STATE => Error::State, Error::State;
    KVP_E_TOO_LONG => Error::TooLong(_), Error::TooLong(None);
    KVP_E_TOO_SMALL => Error::TooSmall, Error::TooSmall;
    KVP_E_NEVER => Error::Never(_), Error::Never(Shortage::default());
    KVP_E_NO_BLOCKS => Error::NoBlocks(_), Error::NoBlocks(Shortage::default());
    KVP_E_NO_SEQS => Error::NoSeqs, Error::NoSeqs;
    KVP_E_NO_NAMESPACES => Error::NoNamespaces, Error::NoNamespaces;
    KVP_E_PLAN_FULL => Error::PlanFull, Error::PlanFull;
    KVP_E_UNKNOWN => Error::Unknown, Error::Unknown;
    KVP_E_FORMAT => Error::Format, Error::Format;
    KVP_E_VERSION => Error::Version, Error::Version;
    KVP_E_MISMATCH => Error::Mismatch, Error::Mismatch;
    KVP_E_NO_MEMORY => Error::NoMemory, Error::NoMemory;
    KVP_E_IO => Error::Io, Error::Io;
    KVP_E_BUSY => Error::Busy, Error::Busy;
    KVP_E_CORRUPT => Error::Corrupt(_), Error::Corrupt(None);
    KVP_E_NO_STEPS => Error::NoSteps, Error::NoSteps;
    KVP_E_IN_FLIGHT => Error::InFlight, Error::InFlight;
    KVP_E_BEHIND => Error::Behind, Error::Behind;
    KVP_E_DROPPED => Error::Dropped, Error::Dropped;
    KVP_E_AGAIN => Error::Again, Error::Again;
    KVP_E_PEER => Error::Peer, Error::Peer;
}

impl Error {
    /// The status's name, `KVP_E_NO_BLOCKS`; `KVP_E_?` for a status that the library does not know.
    pub fn name(&self) -> &'static str {
        // SAFETY: pure; a static string.
        text(unsafe { sys::kvp_status_name(self.status()) })
    }

    /// What to do about it.
    pub fn class(&self) -> Class {
        // SAFETY: pure.
        match unsafe { sys::kvp_status_class(self.status()) } as u32 {
            sys::KVP_CLASS_RETRY => Class::Retry,
            sys::KVP_CLASS_CALLER => Class::Caller,
            sys::KVP_CLASS_DATA => Class::Data,
            _ => Class::System,
        }
    }

    /// Whether the same call can succeed later.
    pub fn is_retry(&self) -> bool {
        self.class() == Class::Retry
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // SAFETY: pure; a static string.
        let said = text(unsafe { sys::kvp_status_text(self.status()) });
        write!(f, "{}: ", self.name())?;
        match self {
            Error::Argument(Some(why)) | Error::TooLong(Some(why)) => f.write_str(&why.text),
            Error::Never(shortage) | Error::NoBlocks(shortage) if shortage.missing_blocks > 0 => {
                let (n, tier) = (shortage.missing_blocks, shortage.tier);
                match tier {
                    Tier::STATE_SLOTS => write!(f, "{said}: {n} {tier} missing"),
                    _ => write!(f, "{said}: {n} {tier} blocks missing"),
                }
            }
            Error::Corrupt(Some(found)) => {
                write!(f, "{}: {} ({})", found.invariant, found.detail, found.object)
            }
            Error::Other(status) => write!(f, "{said} ({status})"),
            _ => f.write_str(said),
        }
    }
}

impl std::error::Error for Error {}

impl Why {
    /// A slice has a length that does not fit the others.
    pub(crate) fn length(field: &str, value: u64, expected: u64) -> Error {
        Error::Argument(Some(Box::new(Why {
            field: field.to_string(),
            value: value as f64,
            lowest: expected as f64,
            highest: expected as f64,
            text: format!("{field} has {value} elements, expected {expected}"),
        })))
    }

    fn of(raw: &sys::kvp_why) -> Option<Box<Why>> {
        let field = array_text(&raw.field);
        (!field.is_empty()).then(|| {
            let (value, lowest, highest) = (raw.value, raw.lowest, raw.highest);
            Box::new(Why { field, value, lowest, highest, text: array_text(&raw.text) })
        })
    }
}

impl Default for Shortage {
    fn default() -> Shortage {
        Shortage { missing_blocks: 0, index: 0, tier: Tier::DEVICE }
    }
}

/// `Ok` for `KVP_OK`, else the error without details.
///
/// # Errors
///
/// The status itself.
pub fn outcome(status: i32) -> Result<()> {
    match status {
        sys::KVP_OK => Ok(()),
        refused => Err(Error::of_status(refused)),
    }
}

/// The error of a call, with what a check has to say about the arguments.
pub(crate) fn explain(error: Error, check: impl FnOnce(*mut sys::kvp_why) -> i32) -> Error {
    let of_checks = match error {
        Error::Argument(None) => Error::Argument,
        Error::TooLong(None) => Error::TooLong,
        other => return other,
    };
    let mut raw = sys::kvp_why::default();
    check(&mut raw);
    of_checks(Why::of(&raw))
}

/// The outcome of an audit.
pub(crate) fn audit(call: impl FnOnce(*mut sys::kvp_violation) -> i32) -> Result<()> {
    let mut raw = sys::kvp_violation::default();
    match outcome(call(&mut raw)) {
        Err(Error::Corrupt(_)) => Err(Error::Corrupt(Some(Violation {
            invariant: array_text(&raw.invariant),
            object: raw.object,
            detail: text(raw.detail),
        }))),
        other => other,
    }
}

/// The number of elements, for a call.
pub(crate) fn count(field: &str, n: usize) -> Result<u32> {
    u32::try_from(n).map_err(|_| {
        Error::Argument(Some(Box::new(Why {
            field: field.to_string(),
            value: n as f64,
            lowest: 0.0,
            highest: f64::from(u32::MAX),
            text: format!("{field} has {n} elements, expected 0 to 2^32-1"),
        })))
    })
}

fn array_text(chars: &[std::os::raw::c_char]) -> String {
    let bytes: Vec<u8> = chars.iter().map(|&c| c as u8).take_while(|&byte| byte != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A static string of the library.
pub(crate) fn text(string: *const std::os::raw::c_char) -> &'static str {
    if string.is_null() {
        return "";
    }
    // SAFETY: the library's strings are static and end with 0.
    unsafe { CStr::from_ptr(string) }.to_str().unwrap_or("")
}
