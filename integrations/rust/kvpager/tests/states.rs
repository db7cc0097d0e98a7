//! Recurrent state.

use kvpager::{
    Cache, Checkpoint, Config, Error, Namespace, Prompt, Shortage, Stop, Tier, Verdict, END,
};

fn make(state_slots: u32) -> (Cache, Namespace) {
    let config = Config {
        block_tokens: 4,
        n_blocks: 17,
        max_seqs: 8,
        max_seq_tokens: 64,
        state_slots,
        ..Config::default()
    };
    let mut cache = Cache::new(&config).unwrap();
    let ns = cache.namespace("a").unwrap();
    (cache, ns)
}

const TOKENS: [i32; 10] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10];

#[test]
fn a_hit_begins_at_a_checkpoint() {
    let (mut cache, ns) = make(8);
    let (seq, _) = cache.open(ns, &TOKENS).unwrap();
    let state = cache.state(seq).unwrap();
    assert_eq!((state.read_slot, state.write_slot, state.is_lost), (0, 1, false));
    assert_eq!((state.branch_end, state.prompt_end), (0, 8));
    assert_eq!(cache.checkpoint(seq), Err(Error::State)); // nothing is computed
    cache.commit(seq, 8).unwrap();
    assert_eq!(cache.checkpoint(seq), Ok(Checkpoint::Made));
    assert_eq!(cache.checkpoint(seq), Ok(Checkpoint::There));
    cache.commit(seq, 10).unwrap();
    assert_eq!(cache.checkpoint(seq), Err(Error::State)); // no unit ends there
    cache.close(seq).unwrap();

    let (a, info) = cache.open(ns, &TOKENS).unwrap();
    assert_eq!((info.hit_tokens, info.cached_tokens), (8, 8));
    let (b, info) = cache.open(ns, Prompt { no_match: true, ..Prompt::new(&TOKENS) }).unwrap();
    assert_eq!((info.hit_tokens, info.stop), (0, Stop::Off));
    let (mut read, mut write) = ([-1; 2], [-1; 2]);
    cache.state_slots(&[b, a], &mut read, &mut write).unwrap();
    assert_eq!((read, write), ([0, 1], [3, 2]));
    let stats = cache.state_stats().unwrap();
    assert_eq!((stats.usable_slots, stats.held_slots, stats.made, stats.hits), (7, 3, 1, 1));
    cache.check(3).unwrap();
}

#[test]
fn without_a_slot_nothing_is_kept() {
    let (mut cache, ns) = make(2);
    let (seq, _) = cache.open(ns, &TOKENS).unwrap();
    cache.commit(seq, 8).unwrap();
    assert_eq!(cache.checkpoint(seq), Ok(Checkpoint::Skipped));
    assert_eq!(cache.state_stats().unwrap().skipped, 1);
    assert_eq!(cache.can_open(ns, &[1; 4]).unwrap().verdict, Verdict::Later);
    let missing = Shortage { missing_blocks: 1, index: 0, tier: Tier::STATE_SLOTS };
    let error = cache.open(ns, &[1; 4]).unwrap_err();
    assert_eq!(error, Error::NoBlocks(missing));
    assert!(error.to_string().ends_with(": 1 state slots missing"), "{error}");
}

#[test]
fn a_state_that_is_nowhere_is_told() {
    let (mut cache, ns) = make(8);
    let (seq, _) = cache.open(ns, &TOKENS).unwrap();
    cache.commit(seq, 10).unwrap();
    assert_eq!(cache.fork(seq, 4, 0), Err(Error::Dropped));
    assert_eq!(cache.truncate(seq, 4), Err(Error::Dropped));
    cache.fork(seq, END, 0).unwrap();
    cache.invalidate(seq, 8, &mut Vec::new()).unwrap();
    assert!(cache.state(seq).unwrap().is_lost);
    assert_eq!(cache.checkpoint(seq), Err(Error::Dropped));
    assert_eq!(cache.state_slots(&[seq], &mut [0], &mut [0]), Err(Error::Dropped));
}

#[test]
fn wrong_arguments_are_refused() {
    let (mut cache, ns) = make(8);
    let (seq, _) = cache.open(ns, &TOKENS).unwrap();
    for (read, write) in [(0, 1), (1, 0), (2, 1), (1, 2)] {
        let (read, write) = (&mut vec![7; read], &mut vec![7; write]);
        match cache.state_slots(&[seq], read, write) {
            Err(Error::Argument(Some(why))) => assert_eq!((why.lowest, why.highest), (1.0, 1.0)),
            other => panic!("{other:?}"),
        }
        assert!(read.iter().chain(write.iter()).all(|&slot| slot == 7));
    }
    cache.close(seq).unwrap();
    assert_eq!(cache.state(seq), Err(Error::Handle));
    assert_eq!(cache.checkpoint(seq), Err(Error::Handle));
    assert_eq!(cache.state_slots(&[seq], &mut [0], &mut [0]), Err(Error::Handle));

    let (mut plain, ns) = make(0);
    let (seq, _) = plain.open(ns, &TOKENS).unwrap();
    assert_eq!(plain.state(seq), Err(Error::State));
    assert_eq!(plain.checkpoint(seq), Err(Error::State));
    assert_eq!(plain.state_slots(&[seq], &mut [0], &mut [0]), Err(Error::State));
    assert_eq!(plain.state_stats().unwrap().usable_slots, 0);
    let error = Config { state_slots: 1, ..Config::default() }.check().unwrap_err();
    assert!(error.to_string().starts_with("KVP_E_ARG: state_slots is 1"), "{error}");
}
