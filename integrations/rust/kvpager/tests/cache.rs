//! What each call does.

use kvpager::{
    outcome, sys, Batch, BlockCopy, BlockState, Cache, CommitPolicy, Config, Error, FullHit, Group,
    KeepEvicted, Key, Namespace, Prompt, Released, Seq, Steps, Stop, Tier, TokenRange, Verdict,
    END, NO_SLOT,
};

fn small() -> Config {
    Config { block_tokens: 4, n_blocks: 17, max_seqs: 8, max_seq_tokens: 64, ..Config::default() }
}

fn open(config: &Config) -> (Cache, Namespace) {
    let mut cache = Cache::new(config).unwrap();
    let ns = cache.namespace("a").unwrap();
    (cache, ns)
}

fn plan_of(cache: &mut Cache) -> Vec<BlockCopy> {
    let mut plan = Vec::new();
    cache.take_plan(&mut plan).unwrap();
    plan
}

/// A sequence of these tokens, computed.
fn computed(cache: &mut Cache, ns: Namespace, tokens: &[i32]) -> Seq {
    let (seq, _) = cache.open(ns, tokens).unwrap();
    cache.commit(seq, tokens.len() as u32).unwrap();
    seq
}

#[test]
fn the_library_is_of_the_crate_s_version() {
    assert_eq!(kvpager::version(), env!("CARGO_PKG_VERSION"));
    assert_eq!(sys::KVP_VERSION, format!("{}\0", env!("CARGO_PKG_VERSION")).as_bytes());
}

#[test]
fn a_configuration_comes_back() {
    let config = Config {
        block_tokens: 8,
        unit_tokens: 4,
        n_blocks: 33,
        max_seqs: 5,
        max_seq_tokens: 71,
        max_namespaces: 3,
        n_nodes: 99,
        max_unit_keys: 2,
        max_copies: 77,
        commit_policy: CommitPolicy::Keep,
        full_hit: FullHit::Recompute,
        prefix_cache: false,
        watermark: 0.25,
        hash_seed: 12345,
        uncached_tokens: vec![3, 7],
        host_blocks: 21,
        keep_evicted: KeepEvicted::Drop,
        steps: Steps::Overlapped,
        max_steps_out: 6,
        max_events: 64,
        max_tree_tokens: 13,
        groups: vec![
            Group { block_tokens: 8, ..Group::default() },
            Group { sink_tokens: 1, recent_tokens: 9, block_tokens: 16 },
        ],
        quotas: true,
        max_loads: 2,
        lent_blocks: 4,
        learned_policy: false,
        state_slots: 0,
        host_state_slots: 0,
        retain_tokens: 16,
    };
    assert_eq!(Cache::new(&config).unwrap().config(), Ok(config));
    let learned = Config { learned_policy: true, ..small() };
    assert!(Cache::new(&learned).unwrap().config().unwrap().learned_policy);
    let slots = Config { state_slots: 9, ..small() };
    assert_eq!(Cache::new(&slots).unwrap().config().unwrap().state_slots, 9);
    let resolved = Cache::new(&Config::default()).unwrap().config().unwrap();
    assert_eq!((resolved.unit_tokens, resolved.max_copies), (16, 256 + 64));
    let larger = Config { n_blocks: 9999, ..small() };
    assert!(small().bytes().unwrap() < larger.bytes().unwrap());
    assert_eq!(Config::default().check(), Ok(()));
}

#[test]
fn a_prompt_is_matched_and_opened() {
    let (mut cache, ns) = open(&small());
    let tokens: Vec<i32> = (10..20).collect();
    let (a, info) =
        cache.open(ns, Prompt { tag: 5, retention: 2, ..Prompt::new(&tokens) }).unwrap();
    assert_eq!((info.cached_tokens, info.taken_blocks, info.stop), (0, 3, Stop::Miss));
    assert_eq!(cache.row(a, 0).unwrap(), [1, 2, 3]);
    let mut slots = [0; 3];
    cache.slots(a, 0, 6, &mut slots).unwrap();
    assert_eq!(slots, [10, 11, 12]);
    let state = cache.info(a).unwrap();
    assert_eq!((state.tag, state.retention, state.ns, state.tier), (5, 2, ns, Tier::DEVICE));
    assert_eq!((state.n_tokens, state.computed_tokens, state.writable_tokens), (10, 0, 10));
    cache.commit(a, 10).unwrap();
    assert_eq!(cache.info(a).unwrap().computed_tokens, 10);
    assert_eq!(cache.info(a).unwrap().public_tokens, 8);
    let mut back = [0; 4];
    cache.tokens(a, 3, &mut back).unwrap();
    assert_eq!(back, [13, 14, 15, 16]);

    let found = cache.find(ns, &tokens).unwrap();
    assert_eq!((found.hit_tokens, found.shared_blocks, found.stop), (8, 2, Stop::End));
    let (b, info) = cache.open(ns, &tokens[..8]).unwrap();
    assert_eq!((info.cached_tokens, info.hit_tokens, info.taken_blocks), (7, 8, 0));
    let mut slot = [0];
    cache.slots(b, 0, 7, &mut slot).unwrap();
    assert_eq!(slot, [NO_SLOT]);
    assert_eq!(
        cache.find(ns, Prompt { no_match: true, ..Prompt::new(&tokens) }).unwrap().stop,
        Stop::Off
    );

    let admission =
        cache.can_open(ns, Prompt { reserve_tokens: 3, ..Prompt::new(&tokens) }).unwrap();
    assert_eq!(
        (admission.verdict, admission.need_blocks, admission.available),
        (Verdict::Ok, 2, 13)
    );
    let block = cache.block(Tier::DEVICE, 2).unwrap();
    assert_eq!(
        (block.state, block.ref_count, block.retention, block.sealed_tokens),
        (BlockState::Held, 2, 2, 4)
    );
    assert_eq!(cache.block(Tier::DEVICE, 0).unwrap().state, BlockState::Null);
    assert_eq!(cache.block(Tier::DEVICE, 9).unwrap().state, BlockState::Free);

    let mut seqs = vec![b; 9];
    cache.seqs(&mut seqs).unwrap();
    assert_eq!(seqs, [a, b]);
    assert_eq!(cache.close(a), Ok(Released { freed_blocks: 1, cached_blocks: 0 }));
    assert_eq!(cache.close(b), Ok(Released { freed_blocks: 0, cached_blocks: 2 }));
    let stats = cache.stats().unwrap();
    assert_eq!(
        (stats.opens, stats.cached_blocks, stats.free_blocks, stats.open_seqs),
        (2, 2, 14, 0)
    );
    assert_eq!(cache.block(Tier::DEVICE, 2).unwrap().state, BlockState::Cached);
}

#[test]
fn prompts_of_two_namespaces_or_keys_share_nothing() {
    let (mut cache, ns) = open(&Config { max_unit_keys: 2, ..small() });
    let other = cache.namespace(b"b\0b").unwrap();
    assert_eq!(cache.namespace("a").unwrap(), ns);
    let tokens: Vec<i32> = (0..12).collect();
    let prompt = Prompt::new(&tokens);
    let first = [Key::new(1, 4..5, b"adapter 1")];
    let seq = cache.open(ns, Prompt { keys: &first, ..prompt }).unwrap().0;
    cache.commit(seq, 12).unwrap();
    cache.close(seq).unwrap();
    let mut hits = |ns, keys: &[Key]| cache.find(ns, Prompt { keys, ..prompt }).unwrap().hit_tokens;
    assert_eq!(hits(ns, &first), 12);
    assert_eq!(hits(ns, &[]), 4);
    assert_eq!(hits(ns, &[Key::new(1, 4..5, b"adapter 2")]), 4);
    assert_eq!(hits(ns, &[Key::new(2, 4..5, b"adapter 1")]), 4);
    assert_eq!(hits(ns, &[Key::new(1, 5..6, b"adapter 1")]), 4);
    assert_eq!(hits(other, &first), 0);
    cache.flush(ns).unwrap();
    assert_eq!(cache.find(ns, Prompt { keys: &first, ..prompt }).unwrap().hit_tokens, 0);
    for _ in 0..2 {
        cache.close_namespace(ns).unwrap();
    }
    assert_eq!(cache.close_namespace(ns), Err(Error::Handle));
}

#[test]
fn what_must_not_be_cached_is_not() {
    let (mut cache, ns) = open(&Config { uncached_tokens: vec![-5, 99], ..small() });
    let tokens: Vec<i32> = (0..12).collect();
    let uncached = [TokenRange { begin: 9, end: 10 }];
    let (seq, _) = cache.open(ns, Prompt { uncached: &uncached, ..Prompt::new(&tokens) }).unwrap();
    cache.commit(seq, 12).unwrap();
    let found = cache.find(ns, &tokens).unwrap();
    assert_eq!((found.hit_tokens, found.stop), (8, Stop::Miss));
    assert_eq!(cache.uncache(seq, TokenRange { begin: 3, end: 4 }), Err(Error::State));
    cache.uncache(seq, TokenRange { begin: 20, end: 21 }).unwrap();
    assert_eq!(cache.find(ns, &[99, 1, 2, 3, 4]).unwrap().stop, Stop::Uncached);

    let stored = computed(&mut cache, ns, &[50; 8]);
    cache.retain(stored, TokenRange { begin: 0, end: 4 }, 3).unwrap();
    let blocks = cache.row(stored, 0).unwrap().to_vec();
    let classes: Vec<u32> =
        blocks.iter().map(|&block| cache.block(Tier::DEVICE, block).unwrap().retention).collect();
    assert_eq!(classes, [3, 0]);
}

#[test]
fn sequences_grow_together() {
    let (mut cache, ns) = open(&Config { max_unit_keys: 1, ..small() });
    let (a, b) = (computed(&mut cache, ns, &[1, 2, 3]), computed(&mut cache, ns, &[4, 5, 6, 7]));
    let seqs = [a, b];
    let batch = Batch {
        seqs: &seqs,
        n_tokens: Some(&[2, 1]),
        tokens: Some(&[10, 11, 12]),
        reserve_tokens: 4,
        ..Batch::default()
    };
    assert_eq!(cache.can_extend(&batch).unwrap().need_blocks, 4);
    cache.extend_many(&batch).unwrap();
    assert_eq!(cache.row(a, 0).unwrap().len(), 3);
    let mut last = [0; 2];
    cache.tokens(a, 3, &mut last).unwrap();
    assert_eq!(last, [10, 11]);
    assert_eq!(cache.info(b).unwrap().last_token, 12);
    assert_eq!(cache.info(b).unwrap().writable_tokens, 9);
    cache.commit_many(&seqs, &[5, 5]).unwrap();

    cache.extend_unknown(a, 2, 4).unwrap();
    assert_eq!(cache.info(a).unwrap().writable_tokens, 11);
    assert_eq!((cache.info(a).unwrap().n_tokens, cache.info(a).unwrap().known_tokens), (7, 5));
    cache.fill(a, &[20]).unwrap();
    let values = Batch { seqs: &seqs[..1], tokens: Some(&[21]), ..Batch::default() };
    cache.fill_many(&values).unwrap();
    cache.tokens(a, 5, &mut last).unwrap();
    assert_eq!(last, [20, 21]);
    cache.extend_many(&Batch { seqs: &seqs, ..Batch::default() }).unwrap();
    assert_eq!(cache.info(b).unwrap().known_tokens, 5);

    cache.fill(a, &[22]).unwrap();
    let keys = [Key::new(1, 8..9, b"image")];
    let keyed = Batch { seqs: &seqs[..1], tokens: Some(&[1]), keys: &keys, ..Batch::default() };
    cache.extend_many(&keyed).unwrap();
    cache.extend(a, &[1, 1, 1], 5).unwrap();
    assert_eq!(cache.info(a).unwrap().writable_tokens, 17);
    cache.commit(a, 12).unwrap();
    let tokens = [1, 2, 3, 10, 11, 20, 21, 22, 1, 1, 1, 1];
    let prompt = Prompt { keys: &keys, ..Prompt::new(&tokens) };
    assert_eq!(cache.find(ns, prompt).unwrap().hit_tokens, 12);
    assert_eq!(cache.find(ns, &tokens).unwrap().hit_tokens, 8);
}

#[test]
fn one_that_has_no_room_leaves_the_others() {
    let (mut cache, ns) = open(&Config { n_blocks: 4, ..small() });
    let seqs = [
        computed(&mut cache, ns, &[1, 2, 3, 4]),
        computed(&mut cache, ns, &[5, 6, 7]),
        computed(&mut cache, ns, &[8, 9, 10, 11]),
    ];
    let batch = Batch { seqs: &seqs, tokens: Some(&[20, 21, 22]), ..Batch::default() };
    let mut statuses = Vec::new();
    cache.extend_each(&batch, &mut statuses).unwrap();
    let is_ok: Vec<bool> = statuses.iter().map(|&status| outcome(status).is_ok()).collect();
    assert_eq!(is_ok, [false, true, false]);
    assert_eq!(statuses[2], sys::KVP_E_NO_BLOCKS);
    assert_eq!(cache.info(seqs[1]).unwrap().last_token, 21);
    assert_eq!(cache.can_extend(&batch).unwrap().verdict, Verdict::Later);
}

#[test]
fn forks_share_until_they_write() {
    let (mut cache, ns) = open(&small());
    let parent = computed(&mut cache, ns, &[1, 2, 3, 4, 5, 6]);
    let mut children = Vec::new();
    for tag in 0..6 {
        let child = cache.fork(parent, END, tag).unwrap();
        assert_eq!(cache.info(child).unwrap().tag, tag);
        cache.extend(child, &[7], 0).unwrap();
        children.push(child);
    }
    let short = cache.fork(parent, 3, 0).unwrap();
    assert_eq!(cache.info(short).unwrap().n_tokens, 3);
    let mut plan = Vec::with_capacity(1);
    cache.take_plan(&mut plan).unwrap();
    assert_eq!(plan.len(), 6);
    for (copy, &child) in plan.iter().zip(&children) {
        let row = cache.row(child, 0).unwrap();
        assert_eq!((copy.src_block, copy.dst_block, copy.n_tokens), (2, row[1], 2));
        assert_eq!((copy.phase, copy.group), (0, 0));
        assert_eq!((copy.src_tier, copy.dst_tier), (Tier::DEVICE, Tier::DEVICE));
    }
    cache.take_plan(&mut plan).unwrap();
    assert!(plan.is_empty());
    assert_eq!(cache.truncate(parent, 4), Ok(Released { freed_blocks: 1, cached_blocks: 0 }));
    assert_eq!(cache.info(parent).unwrap().n_tokens, 4);
}

#[test]
fn what_failed_is_taken_back() {
    let (mut cache, ns) = open(&small());
    let a = computed(&mut cache, ns, &[1; 8]);
    let others: Vec<Seq> = (0..6).map(|_| cache.open(ns, &[1; 8]).unwrap().0).collect();
    let mut sharing = vec![a; 9];
    cache.invalidate(a, 4, &mut sharing).unwrap();
    assert_eq!(sharing, others);
    assert_eq!(cache.info(a).unwrap().computed_tokens, 4);
    assert_eq!(cache.find(ns, &[1; 8]).unwrap().hit_tokens, 4);
    cache.reset().unwrap();
    assert_eq!(cache.info(a), Err(Error::Handle));
    assert_eq!(cache.stats().unwrap().free_blocks, 16);
    assert_eq!(cache.open(ns, &[1; 8]).unwrap().1.hit_tokens, 0);
}

#[test]
fn what_is_evicted_is_listed() {
    let (mut cache, ns) = open(&Config { n_blocks: 5, host_blocks: 3, ..small() });
    let seq = computed(&mut cache, ns, &[1; 8]);
    cache.close(seq).unwrap();
    let hash = cache.block(Tier::DEVICE, 2).unwrap().hash;
    cache.open(ns, &[2; 12]).unwrap();
    let evicted = cache.evicted().unwrap();
    assert_eq!(evicted.len(), 1);
    assert_eq!((evicted[0].block, evicted[0].tier, evicted[0].group), (2, Tier::DEVICE, 0));
    assert!(evicted[0].is_kept());
    assert_eq!(evicted[0].hash, hash);
    let plan = plan_of(&mut cache);
    assert_eq!((plan[0].src_block, plan[0].dst_tier, plan[0].dst_block), (2, Tier::HOST, 1));
    let found = cache.find(ns, &[1; 8]).unwrap();
    assert_eq!((found.hit_tokens, found.host_tokens, found.host_blocks), (8, 4, 1));
    let prompt = Prompt { device_only: true, ..Prompt::new(&[1; 8]) };
    assert_eq!(cache.find(ns, prompt).unwrap().hit_tokens, 4);
}

#[test]
fn the_coldest_blocks_are_evicted_ahead() {
    let (mut cache, ns) = open(&Config { n_blocks: 7, ..small() });
    let seq = computed(&mut cache, ns, &[1; 16]);
    cache.close(seq).unwrap();
    assert_eq!(cache.stats().unwrap().free_blocks, 2);
    assert_eq!(cache.reclaim(2), Ok(0));
    assert_eq!(cache.reclaim(4), Ok(2));
    let blocks: Vec<i32> = cache.evicted().unwrap().iter().map(|each| each.block).collect();
    assert_eq!(blocks, [4, 3]);
    assert_eq!(cache.stats().unwrap().free_blocks, 4);
    assert_eq!(cache.find(ns, &[1; 16]).unwrap().hit_tokens, 8);
    assert_eq!(cache.reclaim(u32::MAX), Ok(2));
    assert_eq!(cache.stats().unwrap().cached_blocks, 0);
}

#[test]
fn sequences_move_to_the_host_and_back() {
    let (mut cache, ns) = open(&Config { host_blocks: 9, ..small() });
    let a = computed(&mut cache, ns, &[1, 2, 3, 4, 5, 6]);
    let b = cache.fork(a, END, 0).unwrap();
    let seqs = [a, b];
    assert_eq!(cache.can_swap_out(&seqs).unwrap().copied_blocks, 2);
    let swapped = cache.swap_out(&seqs).unwrap();
    assert_eq!((swapped.copied_blocks, swapped.found_blocks), (2, 0));
    assert_eq!(swapped.released, Released { freed_blocks: 1, cached_blocks: 1 });
    assert_eq!(cache.info(b).unwrap().tier, Tier::HOST);
    assert_eq!(cache.extend(a, &[7], 0), Err(Error::State));
    assert_eq!(plan_of(&mut cache).len(), 2);
    let admission = cache.can_swap_in(&seqs, 1).unwrap();
    assert_eq!((admission.verdict, admission.need_blocks), (Verdict::Ok, 3));
    let back = cache.swap_in(&seqs, 1).unwrap();
    assert_eq!((back.copied_blocks, back.found_blocks), (1, 1));
    assert_eq!(cache.info(b).unwrap().tier, Tier::DEVICE);
    assert_eq!(cache.info(a).unwrap().writable_tokens, 7);
}

#[test]
fn steps_overlap() {
    let (mut cache, ns) = open(&Config { steps: Steps::Overlapped, ..small() });
    let (a, _) = cache.open(ns, &[1, 2, 3, 4]).unwrap();
    let mut plan = Vec::new();
    assert_eq!(cache.begin_step(&mut plan), Ok(1));
    cache.commit_step(1, &[a], &[4]).unwrap();
    cache.extend(a, &[5], 0).unwrap();
    assert_eq!(cache.begin_step(&mut plan), Ok(2));
    cache.commit_step(2, &[a], &[5]).unwrap();
    assert_eq!(cache.end_step(2), Ok(0));
    assert_eq!(cache.end_step(1), Ok(2));
    assert_eq!(cache.info(a).unwrap().computed_tokens, 5);
    assert_eq!(cache.end_step(1), Err(Error::Argument(None)));

    let b = cache.fork(a, END, 0).unwrap();
    cache.extend(b, &[6], 0).unwrap();
    assert_eq!(cache.begin_step(&mut plan), Ok(3));
    assert_eq!(plan.len(), 1);
    let mut cut = Vec::new();
    cache.fail_step(3, &mut cut).unwrap();
    assert_eq!(cut, [b]);
    assert_eq!(cache.info(b).unwrap().computed_tokens, 4);
    assert_eq!(cache.stats().unwrap().failed_steps, 1);
}

#[test]
fn a_window_drops_blocks() {
    let groups =
        vec![Group::default(), Group { sink_tokens: 0, recent_tokens: 4, block_tokens: 0 }];
    let (mut cache, ns) = open(&Config { groups, ..small() });
    let seq = computed(&mut cache, ns, &[1; 12]);
    assert!(cache.row(seq, 0).unwrap().iter().all(|&block| block > 0));
    assert_eq!(cache.row(seq, 1).unwrap()[..2], [0, 0]);
    let mut slots = [0, 0];
    cache.extend(seq, &[1], 0).unwrap();
    cache.slots(seq, 1, 12, &mut slots[..1]).unwrap();
    assert_eq!(slots[0], i64::from(cache.row(seq, 1).unwrap()[3]) * 4);
}

#[test]
fn a_guard_closes() {
    let (mut cache, ns) = open(&small());
    let (seq, _) = cache.open(ns, &[1, 2, 3]).unwrap();
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let mut guard = cache.guard(seq);
        assert_eq!(guard.seq(), seq);
        guard.cache().commit(seq, 3).unwrap();
        panic!("an engine's");
    }));
    assert!(caught.is_err());
    assert_eq!(cache.info(seq), Err(Error::Handle));

    let (seq, _) = cache.open(ns, &[1, 2, 3]).unwrap();
    assert_eq!(cache.guard(seq).keep(), seq);
    assert_eq!(cache.guard(seq).close().unwrap().freed_blocks, 1);
    let (seq, _) = cache.open(ns, &[1, 2, 3]).unwrap();
    let mut guard = cache.guard(seq);
    guard.cache().close(seq).unwrap();
    drop(guard);
    assert_eq!(cache.stats().unwrap().open_seqs, 0);
}

#[test]
fn a_cache_moves_to_another_thread() {
    let (mut cache, ns) = open(&small());
    let (seq, _) = cache.open(ns, &[1, 2, 3]).unwrap();
    let mut cache = std::thread::spawn(move || {
        cache.commit(seq, 3).unwrap();
        cache
    })
    .join()
    .unwrap();
    assert_eq!(cache.close(seq).unwrap().freed_blocks, 1);
    cache.check(3).unwrap();
}
