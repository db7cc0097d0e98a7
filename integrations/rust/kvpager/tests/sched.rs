//! The scheduler.

use kvpager::{
    Cache, Config, EndReason, Error, Key, Namespace, Preempt, Prompt, Request, RequestState,
    SchedConfig, Scheduler, Steps, Submission, TokenRange,
};

fn small() -> Config {
    Config {
        block_tokens: 4,
        n_blocks: 17,
        max_seqs: 4,
        max_seq_tokens: 32,
        max_unit_keys: 1,
        ..Config::default()
    }
}

fn make(config: &SchedConfig, cache: &Config) -> (Scheduler, Namespace) {
    let mut sched = Scheduler::new(config, Cache::new(cache).unwrap()).unwrap();
    let ns = sched.namespace("a").unwrap();
    (sched, ns)
}

/// One step, in which every sequence samples 7.
fn run_step(sched: &mut Scheduler) -> Vec<(Request, EndReason)> {
    let n_sampled = sched.step().unwrap().n_sampled;
    sched.take_plan(&mut Vec::new()).unwrap();
    let ended = sched.finish(&vec![7; n_sampled as usize], &[]).unwrap();
    ended.iter().map(|each| (each.request, each.reason())).collect()
}

#[test]
fn a_request_runs_to_its_end() {
    let (mut sched, ns) = make(&SchedConfig::default(), &small());
    let prompt = Prompt { tag: 3, ..Prompt::new(&[1, 2, 3, 4, 5]) };
    let request =
        sched.submit(&Submission { priority: -2, ..Submission::new(ns, prompt, 3) }).unwrap();
    let info = sched.request(request).unwrap();
    assert_eq!((info.state, info.priority, info.tag), (RequestState::Waiting, -2, 3));
    assert_eq!((info.prompt_tokens, info.max_tokens, info.arrival, info.ns), (5, 8, 1, ns));
    assert_eq!(sched.sample(request, 0).unwrap().seq, None);

    let step = sched.step().unwrap();
    assert_eq!((step.number, step.n_sampled, step.n_decoding), (1, 1, 0));
    assert_eq!((step.tokens, step.admitted), (&[1, 2, 3, 4, 5][..], &[request][..]));
    let item = step.seqs[0];
    assert_eq!((item.request, item.sample, item.begin, item.n_tokens), (request, 0, 0, 5));
    assert_eq!(sched.step().map(drop), Err(Error::State));
    assert_eq!(sched.current().seqs, [item]);
    assert_eq!(sched.row(item.seq, 0).unwrap(), [1, 2]);
    assert_eq!(sched.sample(request, 0).unwrap().seq, Some(item.seq));

    assert_eq!(sched.finish(&[40], &[]).unwrap(), []);
    assert!(sched.current().seqs.is_empty() && sched.current().tokens.is_empty());
    assert_eq!(sched.current().admitted, [request]);
    assert_eq!(sched.finish(&[40], &[]), Err(Error::State));
    assert_eq!(sched.request(request).unwrap().state, RequestState::Running);
    let sample = sched.sample(request, 0).unwrap();
    assert_eq!((sample.n_tokens, sample.computed_tokens, sample.has_ended), (6, 5, false));
    assert_eq!(sched.sample(request, 1).map(drop), Err(Error::Argument(None)));

    let step = sched.step().unwrap();
    assert_eq!((step.tokens, step.seqs[0].begin, step.n_decoding), (&[40][..], 5, 1));
    let ended = sched.finish(&[41], &[true]).unwrap();
    assert_eq!(ended.len(), 1);
    assert_eq!((ended[0].request, ended[0].tag, ended[0].sample), (request, 3, 0));
    assert_eq!((ended[0].reason(), ended[0].new_tokens), (EndReason::Stopped, 2));
    assert_eq!((ended[0].is_last(), ended[0].status), (true, 0));
    assert_eq!(sched.request(request), Err(Error::Handle));
    assert!(sched.step().unwrap().seqs.is_empty());
    assert_eq!(sched.sched_stats().unwrap().ended, 1);
    sched.check(3).unwrap();
    let mut cache = sched.into_cache();
    assert_eq!(cache.find(ns, &[1, 2, 3, 4, 5]).unwrap().hit_tokens, 4);
}

#[test]
fn slices_that_do_not_fit_the_step_are_refused() {
    let (mut sched, ns) = make(&SchedConfig::default(), &small());
    sched.submit(&Submission::new(ns, &[1, 2], 3)).unwrap();
    sched.step().unwrap();
    for (tokens, ended) in [(&[][..], &[][..]), (&[1, 2], &[]), (&[1], &[true, false])] {
        match sched.finish(tokens, ended) {
            Err(Error::Argument(Some(why))) => assert_eq!(why.highest, 1.0),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(sched.finish(&[-1], &[]), Err(Error::Argument(None)));
    assert_eq!(sched.finish(&[1], &[false]).unwrap(), []);
}

#[test]
fn what_can_never_be_served_is_refused() {
    let config = SchedConfig {
        max_requests: 2,
        max_samples: 4,
        max_running: 2,
        max_tries: 1,
        arena_tokens: 256,
        ..SchedConfig::default()
    };
    let (mut sched, ns) = make(&config, &Config { max_seq_tokens: 128, ..small() });
    let mut submit = |submission: Submission| sched.submit(&submission);
    let tokens: Vec<i32> = (0..128).collect();
    let prompt = Prompt::new(&tokens[..5]);
    let field = |result| match result {
        Err(Error::Argument(Some(why))) => why.field,
        other => panic!("{other:?}"),
    };
    assert_eq!(
        field(submit(Submission::new(ns, Prompt { retention: 8, ..prompt }, 1))),
        "retention"
    );
    assert_eq!(submit(Submission::new(ns, prompt, 0)), Err(Error::Argument(None)));
    let many = Submission { n_samples: 3, ..Submission::new(ns, prompt, 1) };
    assert_eq!(submit(many), Err(Error::Argument(None)));
    assert_eq!(submit(Submission::new(ns, &tokens, 1)), Err(Error::TooLong(None)));
    assert!(matches!(submit(Submission::new(ns, &tokens[..80], 1)), Err(Error::Never(_))));
    submit(Submission::new(ns, &tokens[..50], 10)).unwrap();
    let two = Submission { n_samples: 2, ..Submission::new(ns, &tokens[..40], 5) };
    assert!(matches!(submit(two), Err(Error::NoBlocks(_))));
    submit(Submission::new(ns, prompt, 1)).unwrap();
    assert_eq!(submit(Submission::new(ns, prompt, 1)), Err(Error::NoSeqs));
    sched.close_namespace(ns).unwrap();
    assert_eq!(sched.submit(&Submission::new(ns, prompt, 1)), Err(Error::Handle));
}

#[test]
fn a_configuration_is_refused_with_the_field() {
    let cache = Cache::new(&small()).unwrap();
    let config = SchedConfig { max_running: 5, ..SchedConfig::default() };
    let (error, cache) = Scheduler::new(&config, cache).unwrap_err();
    match error {
        Error::Argument(Some(why)) => {
            assert_eq!((why.field.as_str(), why.lowest, why.highest), ("max_running", 1.0, 4.0));
        }
        other => panic!("{other:?}"),
    }
    let config = SchedConfig { preempt: Preempt::Other(9), ..SchedConfig::default() };
    let (error, cache) = Scheduler::new(&config, cache).unwrap_err();
    assert!(error.to_string().starts_with("KVP_E_ARG: preempt is 9"), "{error}");
    Scheduler::new(&SchedConfig::default(), cache).unwrap();
}

#[test]
fn requests_are_paused_aborted_and_failed() {
    let (mut sched, ns) = make(&SchedConfig::default(), &small());
    let a = sched.submit(&Submission::new(ns, &[1, 2, 3, 4], 2)).unwrap();
    let b = sched.submit(&Submission::new(ns, &[5, 6, 7, 8], 2)).unwrap();
    sched.pause(a).unwrap();
    assert_eq!(sched.request(a).unwrap().state, RequestState::Paused);
    assert_eq!(sched.step().unwrap().admitted, [b]);
    sched.fail().unwrap();
    assert_eq!(sched.fail(), Err(Error::State));
    assert!(sched.current().seqs.is_empty());
    assert_eq!(sched.request(b).unwrap().preemptions, 1);
    sched.resume(a).unwrap();
    assert_eq!(sched.step().unwrap().admitted, [a, b]);
    sched.abort(b).unwrap();
    for outcome in [sched.abort(b), sched.pause(b), sched.resume(b), sched.request(b).map(drop)] {
        assert_eq!(outcome, Err(Error::Handle));
    }
    assert_eq!(sched.request_tokens(b, 0, 0, &mut [0]), Err(Error::Handle));
    assert_eq!(sched.finish(&[1, 2], &[]).unwrap(), []);
    let mut tokens = [0; 3];
    sched.request_tokens(a, 0, 2, &mut tokens).unwrap();
    assert_eq!(tokens, [3, 4, 1]);
    assert_eq!(sched.request_tokens(a, 0, 3, &mut tokens), Err(Error::Argument(None)));
    assert_eq!(sched.request_tokens(a, 0, u32::MAX, &mut tokens), Err(Error::Argument(None)));
    assert_eq!(run_step(&mut sched), [(a, EndReason::Length)]);
}

#[test]
fn beams_are_reordered() {
    let (mut sched, ns) = make(&SchedConfig::default(), &small());
    let beams = Submission { n_samples: 3, ..Submission::new(ns, &[1, 2, 3, 4, 5], 4) };
    let request = sched.submit(&beams).unwrap();
    assert_eq!(sched.reorder(request, &[0, 1, 2], &[1, 2, 3]), Err(Error::State));
    assert_eq!(sched.step().unwrap().n_sampled, 3);
    sched.take_plan(&mut Vec::new()).unwrap();
    sched.finish(&[10, 11, 12], &[]).unwrap();
    run_step(&mut sched);
    assert!(matches!(sched.reorder(request, &[0, 1], &[1, 2, 3]), Err(Error::Argument(Some(_)))));
    assert!(matches!(sched.reorder(request, &[0, 1, 2], &[1]), Err(Error::Argument(Some(_)))));
    assert_eq!(sched.reorder(request, &[0, 1, 3], &[1, 2, 3]), Err(Error::Argument(None)));
    sched.reorder(request, &[1, 1, 2], &[30, 31, 32]).unwrap();
    for (sample, expected) in [(0, [11, 30]), (1, [11, 31]), (2, [12, 32])] {
        let mut tokens = [0; 2];
        sched.request_tokens(request, sample, 5, &mut tokens).unwrap();
        assert_eq!(tokens, expected);
    }
    sched.check(3).unwrap();
}

/// The library borrows keys and ranges until a request ends. The caller's are gone by then.
#[test]
fn keys_need_not_outlive_the_submission() {
    let (mut sched, ns) = make(&SchedConfig { max_running: 1, ..SchedConfig::default() }, &small());
    let tokens: Vec<i32> = (0..12).collect();
    for adapter in 0..4u8 {
        let bytes = vec![adapter % 2; 40];
        let keys = vec![Key::new(1, 0..1, &bytes)];
        let uncached = vec![TokenRange { begin: 8, end: 9 }];
        let prompt = Prompt { keys: &keys, uncached: &uncached, ..Prompt::new(&tokens) };
        sched.submit(&Submission::new(ns, prompt, 1)).unwrap();
    }
    for _ in 0..4 {
        assert_eq!(run_step(&mut sched).len(), 1);
    }
    // The third and the fourth hit what the first and the second computed: two blocks each.
    assert_eq!(sched.stats().unwrap().cached_tokens, 16);
    assert_eq!(sched.find(ns, &tokens).unwrap().hit_tokens, 0);
    sched.flush(ns).unwrap();
}

#[test]
fn steps_overlap() {
    let (mut sched, ns) =
        make(&SchedConfig::default(), &Config { steps: Steps::Overlapped, ..small() });
    let request = sched.submit(&Submission::new(ns, &[1, 2, 3, 4], 3)).unwrap();
    let (mut plan, mut cut) = (Vec::new(), Vec::new());
    sched.step().unwrap();
    assert_eq!(sched.take_plan(&mut plan), Err(Error::State));
    assert_eq!(sched.begin_step(&mut plan), Ok(1));
    assert_eq!(sched.end_step(1), Ok(1));
    sched.finish(&[5], &[]).unwrap();
    sched.step().unwrap();
    assert_eq!(sched.begin_step(&mut plan), Ok(2));
    sched.fail_step(2, &mut cut).unwrap();
    sched.fail().unwrap();
    assert_eq!(sched.request(request).unwrap().preemptions, 1);
}

#[test]
fn blocks_for_the_next_step_are_evicted_ahead() {
    let config = SchedConfig { free_target: 2, ..SchedConfig::default() };
    let cache = Config { n_blocks: 129, max_seq_tokens: 512, ..small() };
    let (mut sched, ns) = make(&config, &cache);
    let long: Vec<i32> = (100..600).collect();
    sched.submit(&Submission::new(ns, &long, 1)).unwrap();
    run_step(&mut sched);
    sched.submit(&Submission::new(ns, &[1, 2, 3], 4)).unwrap();
    sched.submit(&Submission::new(ns, &[4, 5, 6], 4)).unwrap();
    sched.submit(&Submission::new(ns, &[7, 8, 9], 4)).unwrap();
    assert_eq!(sched.reclaim(), Err(Error::State));
    run_step(&mut sched);
    sched.step().unwrap(); // each fills its block, and goes on with a new one
    sched.take_plan(&mut Vec::new()).unwrap();
    assert_eq!(sched.stats().unwrap().free_blocks, 0);
    assert_eq!(sched.reclaim(), Ok(2));
    assert_eq!(sched.reclaim(), Ok(0));
    assert_eq!(sched.stats().unwrap().free_blocks, 2);
    sched.finish(&[1; 3], &[]).unwrap();
    sched.check(3).unwrap();
    let config = SchedConfig { free_target: 3, ..config };
    let (error, _) = Scheduler::new(&config, sched.into_cache()).unwrap_err();
    assert!(error.to_string().starts_with("KVP_E_ARG: free_target is 3"), "{error}");
}

#[test]
fn drafts_are_accepted() {
    let config =
        SchedConfig { max_running: 2, step_tokens: 8, draft_tokens: 3, ..SchedConfig::default() };
    let (mut sched, ns) = make(&config, &small());
    let request = sched.submit(&Submission::new(ns, &[1, 2, 3], 6)).unwrap();
    run_step(&mut sched);
    let step = sched.step().unwrap();
    assert_eq!(step.drafts, [3]);
    assert!(sched.finish_drafts(&[5, 6], &[3], &[]).is_err());
    assert!(sched.finish_drafts(&[5, 6], &[1, 1], &[]).is_err());
    assert_eq!(sched.finish_drafts(&[5, 6, 7], &[3], &[false]).unwrap().len(), 0);
    assert_eq!(sched.sample(request, 0).unwrap().n_tokens, 7);
    sched.step().unwrap();
    assert_eq!(sched.finish_drafts(&[8, 9], &[2], &[]).unwrap().len(), 1);
    sched.check(3).unwrap();
}

#[test]
fn a_scheduler_moves_to_another_thread() {
    let (mut sched, ns) = make(&SchedConfig::default(), &small());
    let request = sched.submit(&Submission::new(ns, &[1, 2, 3, 4], 1)).unwrap();
    let ended = std::thread::spawn(move || run_step(&mut sched)).join().unwrap();
    assert_eq!(ended, [(request, EndReason::Length)]);
}
