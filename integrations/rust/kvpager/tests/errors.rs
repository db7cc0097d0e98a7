//! Each error, provoked.

use kvpager::{
    outcome, sys, Batch, Cache, Class, CommitPolicy, Config, Error, Group, KeepEvicted, Key,
    Namespace, Prompt, Seq, Shortage, Steps, Tier, TokenRange, Why, END,
};

fn small() -> Config {
    Config {
        block_tokens: 4,
        n_blocks: 9,
        max_seqs: 4,
        max_seq_tokens: 64,
        max_namespaces: 2,
        ..Config::default()
    }
}

fn open(config: &Config) -> (Cache, Namespace) {
    let mut cache = Cache::new(config).unwrap();
    let ns = cache.namespace("a").unwrap();
    (cache, ns)
}

/// The field, and the range that it may have.
#[track_caller]
fn why<T: std::fmt::Debug>(result: kvpager::Result<T>) -> Why {
    match result.unwrap_err() {
        Error::Argument(Some(why)) | Error::TooLong(Some(why)) => *why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_status_is_an_error() {
    let mut n_known = 0;
    for status in -64..0 {
        let error = Error::of_status(status);
        assert_eq!(error.status(), status);
        // SAFETY: pure.
        let (name, class) = unsafe {
            let name = std::ffi::CStr::from_ptr(sys::kvp_status_name(status));
            (name.to_str().unwrap(), sys::kvp_status_class(status))
        };
        assert_eq!(error.name(), name);
        assert_eq!(matches!(error, Error::Other(_)), name == "KVP_E_?", "{name}");
        let expected = match class as u32 {
            sys::KVP_CLASS_RETRY => Class::Retry,
            sys::KVP_CLASS_CALLER => Class::Caller,
            sys::KVP_CLASS_DATA => Class::Data,
            _ => Class::System,
        };
        assert_eq!(error.class(), expected, "{name}");
        assert_eq!(error.is_retry(), class as u32 == sys::KVP_CLASS_RETRY);
        assert!(error.to_string().starts_with(name));
        n_known += u32::from(name != "KVP_E_?");
    }
    assert_eq!(n_known, 24);
    assert_eq!(outcome(0), Ok(()));
    assert_eq!(
        outcome(-7),
        Err(Error::NoBlocks(Shortage { missing_blocks: 0, index: 0, tier: Tier::DEVICE }))
    );
    assert_eq!(Error::of_status(-64).to_string(), "KVP_E_?: not a status of this library (-64)");
}

#[test]
fn a_configuration_is_refused_with_the_field() {
    let wrong = why(Cache::new(&Config { n_blocks: 1, ..small() }));
    assert_eq!((wrong.field.as_str(), wrong.value), ("n_blocks", 1.0));
    assert_eq!((wrong.lowest, wrong.highest), (2.0, 2147483647.0));
    assert_eq!(wrong.text, "n_blocks is 1, expected 2 to 2^31-1");
    let error = Config { n_blocks: 1, ..small() }.check().unwrap_err();
    assert_eq!(error.to_string(), "KVP_E_ARG: n_blocks is 1, expected 2 to 2^31-1");

    let field = |config: Config| why(config.bytes()).field;
    assert_eq!(field(Config { unit_tokens: 3, ..small() }), "unit_tokens");
    assert_eq!(field(Config { watermark: 1.0, ..small() }), "watermark");
    assert_eq!(field(Config { commit_policy: CommitPolicy::Other(7), ..small() }), "commit_policy");
    assert_eq!(field(Config { groups: vec![], ..small() }), "n_groups");
    assert_eq!(field(Config { groups: vec![Group::default(); 9], ..small() }), "n_groups");
    let sinks = Group { sink_tokens: 4, recent_tokens: 0, block_tokens: 0 };
    assert!(field(Config { groups: vec![sinks], ..small() }).starts_with("groups"));
}

#[test]
fn a_prompt_is_refused_with_the_field() {
    let (mut cache, ns) = open(&Config { max_unit_keys: 1, ..small() });
    let prompt = Prompt::new(&[1, 2, 3, 4, 5]);
    let wrong = why(cache.open(ns, Prompt { retention: 8, ..prompt }));
    assert_eq!((wrong.field.as_str(), wrong.lowest, wrong.highest), ("retention", 0.0, 7.0));
    assert_eq!(why(cache.find(ns, &[1, -2])).field, "tokens[1]");
    let keys = [Key::new(1, 0..6, b"adapter")];
    assert_eq!(why(cache.can_open(ns, Prompt { keys: &keys, ..prompt })).field, "keys[0].end");
    let keys = [Key::new(1, 0..1, &[0; 53])];
    assert_eq!(why(cache.open(ns, Prompt { keys: &keys, ..prompt })).field, "keys[0].n_bytes");
    let uncached = [TokenRange { begin: 2, end: 2 }];
    let wrong = why(cache.open(ns, Prompt { uncached: &uncached, ..prompt }));
    assert!(wrong.field.starts_with("uncached"), "{}", wrong.field);

    let wrong = cache.open(ns, &[1; 65]).unwrap_err();
    assert_eq!((wrong.name(), wrong.class()), ("KVP_E_TOO_LONG", Class::Caller));
    assert_eq!(why::<()>(Err(wrong)).highest, 64.0);
    assert_eq!(cache.stats().unwrap().open_seqs, 0);
}

#[test]
fn slices_that_do_not_fit_together_are_refused() {
    let (mut cache, ns) = open(&small());
    let (a, _) = cache.open(ns, &[1, 2]).unwrap();
    let (b, _) = cache.open(ns, &[3, 4]).unwrap();
    let seqs = [a, b];
    let batch = Batch { seqs: &seqs, ..Batch::default() };
    let short = Batch { n_tokens: Some(&[1]), ..batch };
    assert_eq!(why(cache.extend_many(&short)).text, "n_tokens has 1 elements, expected 2");
    assert_eq!(why(cache.can_extend(&short)).field, "n_tokens");
    let few = Batch { n_tokens: Some(&[1, 2]), tokens: Some(&[7, 8]), ..batch };
    assert_eq!(why(cache.extend_many(&few)).text, "tokens has 2 elements, expected 3");
    assert_eq!(why(cache.fill_many(&few)).field, "tokens");
    let many = Batch { tokens: Some(&[7, 8, 9]), ..batch };
    assert_eq!(
        why(cache.extend_each(&many, &mut Vec::new())).text,
        "tokens has 3 elements, expected 2"
    );
    assert_eq!(why(cache.commit_many(&seqs, &[2])).field, "n_tokens");
    assert_eq!(why(cache.commit_step(1, &seqs, &[1, 2, 3])).field, "n_tokens");
    let huge = Batch { n_tokens: Some(&[u32::MAX; 2]), tokens: Some(&[1]), ..batch };
    assert_eq!(why(cache.extend_many(&huge)).value, 1.0);
    assert_eq!(why(cache.extend_many(&huge)).lowest, 2.0 * f64::from(u32::MAX));
    assert_eq!(cache.info(a).unwrap().n_tokens, 2);
    let twice = Batch { seqs: &[a, a], ..Batch::default() };
    assert_eq!(cache.extend_many(&twice), Err(Error::Argument(None)));
}

/// Every call on a sequence, with one that is not open.
fn refuses(cache: &mut Cache, seq: Seq) {
    let range = TokenRange { begin: 0, end: 1 };
    let batch = Batch { seqs: &[seq], tokens: Some(&[1]), ..Batch::default() };
    let list = &mut Vec::new();
    let outcomes = [
        cache.extend(seq, &[1], 0),
        cache.extend_unknown(seq, 1, 0),
        cache.extend_many(&batch),
        cache.can_extend(&batch).map(drop),
        cache.fill(seq, &[]),
        cache.fill_many(&batch),
        cache.commit(seq, 0),
        cache.commit_many(&[seq], &[0]),
        cache.invalidate(seq, 0, list),
        cache.fork(seq, END, 0).map(drop),
        cache.truncate(seq, 0).map(drop),
        cache.close(seq).map(drop),
        cache.retain(seq, range, 1),
        cache.uncache(seq, range),
        cache.info(seq).map(drop),
        cache.tokens(seq, 0, &mut []),
        cache.row(seq, 0).map(drop),
        cache.slots(seq, 0, 0, &mut []),
        cache.swap_out(&[seq]).map(drop),
        cache.swap_in(&[seq], 0).map(drop),
        cache.can_swap_out(&[seq]).map(drop),
        cache.can_swap_in(&[seq], 0).map(drop),
        cache.guard(seq).close().map(drop),
    ];
    for (i, outcome) in outcomes.iter().enumerate() {
        assert_eq!(*outcome, Err(Error::Handle), "call {i}");
    }
    let statuses = &mut vec![1, 2, 3];
    cache.extend_each(&batch, statuses).unwrap();
    assert_eq!(*statuses, [sys::KVP_E_HANDLE]);
}

#[test]
fn a_handle_that_is_not_open_is_refused() {
    let (mut cache, ns) = open(&Config { host_blocks: 9, ..small() });
    let (mut other, other_ns) = open(&small());
    let (closed, _) = cache.open(ns, &[1, 2, 3]).unwrap();
    cache.close(closed).unwrap();
    let (foreign, _) = other.open(other_ns, &[1, 2, 3]).unwrap();
    let (open, _) = cache.open(ns, &[4, 5, 6]).unwrap();
    assert_ne!(open, closed);
    refuses(&mut cache, closed);
    refuses(&mut cache, foreign);
    for bits in [0, 1, u64::MAX, open.0.bits ^ 1, open.0.bits ^ (1 << 63), open.0.bits ^ (1 << 32)]
    {
        refuses(&mut cache, Seq(sys::kvp_seq { bits }));
    }
    assert_eq!(cache.info(open).unwrap().n_tokens, 3);

    cache.close_namespace(ns).unwrap();
    for ns in [ns, other_ns, Namespace(sys::kvp_ns::default())] {
        assert_eq!(cache.open(ns, &[1]).map(drop), Err(Error::Handle));
        assert_eq!(cache.find(ns, &[1]).map(drop), Err(Error::Handle));
        assert_eq!(cache.can_open(ns, &[1]).map(drop), Err(Error::Handle));
        assert_eq!(cache.flush(ns), Err(Error::Handle));
        assert_eq!(cache.close_namespace(ns), Err(Error::Handle));
    }
    cache.reset().unwrap();
    refuses(&mut cache, open);
    cache.check(3).unwrap();
}

#[test]
fn values_out_of_range_are_refused() {
    let (mut cache, ns) = open(&small());
    let (seq, _) = cache.open(ns, &[1, 2, 3]).unwrap();
    let refused = Err(Error::Argument(None));
    let mut list = vec![seq];
    assert_eq!(cache.invalidate(seq, 4, &mut list), refused);
    assert!(list.is_empty());
    assert_eq!(cache.commit(seq, 4), refused);
    assert_eq!(cache.extend(seq, &[-1], 0), refused);
    assert_eq!(cache.truncate(seq, 4).map(drop), refused);
    assert_eq!(cache.fork(seq, 4, 0).map(drop), refused);
    assert_eq!(cache.row(seq, 1).map(drop), refused);
    assert_eq!(cache.tokens(seq, 1, &mut [0; 3]), refused);
    assert_eq!(cache.slots(seq, 0, 1, &mut [0; 4]), refused);
    assert_eq!(cache.retain(seq, TokenRange { begin: 0, end: 3 }, 8), refused);
    assert_eq!(cache.uncache(seq, TokenRange { begin: 3, end: 3 }), refused);
    assert_eq!(cache.block(Tier::DEVICE, 9).map(drop), refused);
    assert_eq!(cache.block(Tier::HOST, 0).map(drop), refused);
    assert_eq!(cache.check(4), refused);
    assert_eq!(cache.end_step(1).map(drop), refused);
    assert_eq!(cache.fail_step(1, &mut Vec::new()), refused);
    assert_eq!(cache.namespace([0; 256]).map(drop), refused);
    assert!(cache.namespace([0; 255]).is_ok());
}

#[test]
fn states_are_refused() {
    let (mut cache, ns) = open(&small());
    let (seq, _) = cache.open(ns, &[1, 2, 3]).unwrap();
    let (child, plan) = (cache.fork(seq, END, 0), &mut Vec::new());
    assert_eq!(child, Err(Error::State)); // nothing is computed
    cache.extend_unknown(seq, 1, 0).unwrap();
    assert_eq!(cache.extend(seq, &[5], 0), Err(Error::State));
    assert_eq!(cache.fill(seq, &[4, 5]), Err(Error::State));
    assert_eq!(cache.tokens(seq, 0, &mut [0; 4]), Err(Error::Unknown));
    cache.invalidate(seq, 0, &mut Vec::new()).unwrap();
    assert_eq!(cache.commit(seq, 3), Err(Error::State));
    assert_eq!(cache.slots(seq, 0, 0, &mut [0; 3]), Err(Error::State));
    assert_eq!(cache.begin_step(plan), Err(Error::State));
    assert_eq!(cache.swap_in(&[seq], 0).map(drop), Err(Error::State));

    let config = Config { steps: Steps::Overlapped, max_steps_out: 1, ..small() };
    let (mut cache, ns) = open(&config);
    assert_eq!(cache.take_plan(plan), Err(Error::State));
    assert_eq!(cache.begin_step(plan), Ok(1));
    assert_eq!(cache.begin_step(plan), Err(Error::NoSteps));
    let (seq, _) = cache.open(ns, &[1, 2, 3, 4, 5]).unwrap();
    cache.commit(seq, 5).unwrap();
    cache.extend(seq, &[6], 0).unwrap();
    cache.fork(seq, 5, 0).unwrap();
    assert_eq!(cache.extend(seq, &[7], 0), Err(Error::InFlight));
}

#[test]
fn shortages_have_their_numbers() {
    let (mut cache, ns) =
        open(&Config { host_blocks: 3, keep_evicted: KeepEvicted::Drop, ..small() });
    let missing = |missing_blocks, index, tier| Shortage { missing_blocks, index, tier };
    let tokens: Vec<i32> = (0..64).collect();
    let never = cache.open(ns, &tokens[..36]).unwrap_err();
    assert_eq!(never, Error::Never(missing(1, 0, Tier::DEVICE)));
    assert_eq!(never.class(), Class::Caller);

    let (a, _) = cache.open(ns, &tokens[..16]).unwrap();
    let (b, _) = cache.open(ns, &tokens[16..28]).unwrap();
    let full = cache.open(ns, &tokens[28..40]).unwrap_err();
    assert_eq!(full, Error::NoBlocks(missing(2, 0, Tier::DEVICE)));
    assert!(full.is_retry());
    assert_eq!(
        full.to_string(),
        "KVP_E_NO_BLOCKS: not enough free or cached blocks now: 2 device blocks missing"
    );
    let batch = Batch { seqs: &[a, b], n_tokens: Some(&[1, 4]), ..Batch::default() };
    assert_eq!(cache.extend_many(&batch), Err(Error::NoBlocks(missing(1, 1, Tier::DEVICE))));
    cache.commit_many(&[a, b], &[16, 12]).unwrap();
    assert_eq!(cache.swap_out(&[a]).map(drop), Err(Error::Never(missing(2, 0, Tier::HOST))));

    cache.open(ns, &[]).unwrap();
    cache.open(ns, &[]).unwrap();
    assert_eq!(cache.open(ns, &[]).map(drop), Err(Error::NoSeqs));
    assert_eq!(cache.fork(a, END, 0), Err(Error::NoSeqs));
    cache.namespace("b").unwrap();
    assert_eq!(cache.namespace("c").map(drop), Err(Error::NoNamespaces));
}

#[test]
fn a_full_plan_is_refused() {
    let (mut cache, ns) = open(&Config { max_copies: 1, ..small() });
    let (seq, _) = cache.open(ns, &[1, 2]).unwrap();
    cache.commit(seq, 2).unwrap();
    let forks = [cache.fork(seq, END, 0).unwrap(), cache.fork(seq, END, 0).unwrap()];
    cache.extend(forks[0], &[3], 0).unwrap();
    assert_eq!(cache.extend(forks[1], &[3], 0), Err(Error::PlanFull));
    cache.take_plan(&mut Vec::new()).unwrap();
    cache.extend(forks[1], &[3], 0).unwrap();
}

#[test]
fn what_a_window_has_dropped_is_refused() {
    let groups = vec![Group { sink_tokens: 0, recent_tokens: 4, block_tokens: 0 }];
    let (mut cache, ns) = open(&Config { groups, ..small() });
    let (seq, _) = cache.open(ns, &[1; 12]).unwrap();
    cache.commit(seq, 12).unwrap();
    assert_eq!(cache.row(seq, 0).unwrap()[0], 0);
    assert_eq!(cache.fork(seq, 2, 0), Err(Error::Dropped));
    assert_eq!(cache.truncate(seq, 2).map(drop), Err(Error::Dropped));
}

#[test]
fn memory_that_the_system_has_not_is_refused() {
    let config = Config { max_seqs: 1 << 20, max_seq_tokens: i32::MAX as u32, ..small() };
    assert!(config.bytes().unwrap() > 1 << 47);
    assert_eq!(Cache::new(&config).map(drop), Err(Error::NoMemory));
}

/// Builds with checks end the program instead.
#[test]
fn damage_is_found() {
    if std::env::var("KVP_CHECK").map_or(false, |level| level != "0") {
        return;
    }
    let (mut cache, ns) = open(&small());
    let (seq, _) = cache.open(ns, &[1, 2, 3]).unwrap();
    let entry = cache.row(seq, 0).unwrap().as_ptr() as *mut i32;
    // SAFETY: the row is in the cache; nothing borrows it.
    unsafe { entry.write(2) };
    let found = cache.check(3);
    // SAFETY: as above.
    unsafe { entry.write(1) };
    let error = found.unwrap_err();
    assert!(error.to_string().starts_with("KVP_E_CORRUPT: "));
    match error {
        Error::Corrupt(Some(violation)) => {
            assert!(!violation.invariant.is_empty() && !violation.detail.is_empty());
        }
        other => panic!("{other:?}"),
    }
    cache.check(3).unwrap();
}

extern "C" {
    fn fork() -> i32;
    fn waitpid(pid: i32, status: *mut i32, options: i32) -> i32;
    fn _exit(status: i32) -> !;
}

/// In a forked child the cache is the parent's.
#[test]
fn another_process_is_refused() {
    let (mut cache, ns) = open(&small());
    let (seq, _) = cache.open(ns, &[1, 2, 3]).unwrap();
    // SAFETY: the child makes calls of the cache, which allocate nothing, and ends.
    let status = unsafe {
        let pid = fork();
        if pid == 0 {
            let is_busy = cache.commit(seq, 3) == Err(Error::Busy);
            _exit(if is_busy { 17 } else { 1 });
        }
        let mut status = 0;
        assert_eq!(waitpid(pid, &mut status, 0), pid);
        status
    };
    assert_eq!(status, 17 << 8);
    cache.commit(seq, 3).unwrap();
}
