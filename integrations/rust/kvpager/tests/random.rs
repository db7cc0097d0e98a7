//! Random calls, with handles that are open, closed or of another cache, and values in and out of
//! range. Nothing may crash; the cache is sound after each call, and every call gives an outcome.

use kvpager::{
    Batch, Cache, Config, Error, Group, Key, Namespace, Prompt, Request, Result, SchedConfig,
    Scheduler, Seq, Steps, Submission, Tier, TokenRange,
};

const CALLS: u32 = 4000;
const KINDS: usize = 16;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u32) -> u32 {
        (self.next() % u64::from(n)) as u32
    }

    /// Mostly small; one in 16 is at an end of the range.
    fn number(&mut self) -> u32 {
        match self.below(32) {
            0 => u32::MAX,
            1 => 1 << 31,
            _ => self.below(24),
        }
    }

    /// Mostly token ids that other prompts have, too.
    fn tokens(&mut self, n: u32) -> Vec<i32> {
        let first = self.below(2) as i32;
        let wrong = self.below(64) == 0;
        (0..n as i32).map(|i| if wrong { -i } else { first + i / 8 }).collect()
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u32) as usize]
    }
}

/// Mostly one that is open.
fn any_seq(cache: &Cache, random: &mut Random, seqs: &[Seq]) -> Seq {
    let mut open = Vec::new();
    cache.seqs(&mut open).unwrap();
    if open.is_empty() || random.below(8) == 0 {
        open.extend(seqs);
    }
    random.pick(&open)
}

fn range(random: &mut Random) -> TokenRange {
    let begin = random.number();
    TokenRange { begin, end: begin.wrapping_add(random.below(5)) }
}

/// An open of a random prompt. The handle is remembered for good.
fn open(cache: &mut Cache, ns: Namespace, random: &mut Random, seqs: &mut Vec<Seq>) -> Result<()> {
    let length = random.below(24);
    let tokens = random.tokens(length);
    let begin = random.below(26);
    let keys = [Key::new(random.below(2), begin..begin + random.below(3), b"a key")];
    let prompt = Prompt {
        reserve_tokens: random.number() / 2,
        keys: &keys[..random.below(4) as usize / 3],
        no_match: random.below(8) == 0,
        retention: random.below(9),
        ..Prompt::new(&tokens)
    };
    cache.can_open(ns, prompt)?;
    let found = cache.find(ns, prompt)?;
    let (seq, info) = cache.open(ns, prompt)?;
    assert!(info.hit_tokens <= found.hit_tokens && found.hit_tokens <= length);
    seqs.push(seq);
    Ok(())
}

fn batch(cache: &mut Cache, random: &mut Random, seqs: &[Seq]) -> Result<()> {
    let named: Vec<Seq> = (0..random.below(4)).map(|_| any_seq(cache, random, seqs)).collect();
    let n_tokens: Vec<u32> = named.iter().map(|_| random.below(4)).collect();
    let n = n_tokens.iter().sum::<u32>() + u32::from(random.below(16) == 0);
    let tokens = random.tokens(n);
    let batch = Batch {
        seqs: &named,
        n_tokens: Some(&n_tokens),
        tokens: (random.below(4) > 0).then_some(&tokens[..]),
        reserve_tokens: random.below(3),
        keys: &[],
    };
    match random.below(7) {
        0 => cache.can_extend(&batch).map(drop),
        1 => cache.extend_each(&batch, &mut Vec::new()),
        2 => cache.fill_many(&batch),
        3 => cache.commit_many(&named, &n_tokens),
        4 => cache.swap_out(&named).map(drop),
        5 => cache.can_swap_in(&named, 1).and_then(|_| cache.swap_in(&named, 1)).map(drop),
        _ => cache.extend_many(&batch),
    }
}

fn read(cache: &Cache, random: &mut Random, seq: Seq) -> Result<()> {
    let info = cache.info(seq)?;
    assert!(info.computed_tokens <= info.n_tokens);
    assert_eq!(cache.row(seq, 0)?.len(), info.n_blocks as usize);
    let (from, n) = (random.below(info.n_tokens + 2), random.below(4) as usize);
    match random.below(4) {
        0 => cache.block(Tier(random.below(3) as u8), random.number() as i32).map(drop),
        1 => cache.row(seq, random.below(3)).map(drop),
        2 => cache.tokens(seq, from, &mut vec![0; n]),
        _ => cache.slots(seq, random.below(2), from, &mut vec![0; n]),
    }
}

fn step(cache: &mut Cache, random: &mut Random, seq: Seq) -> Result<()> {
    let (plan, list) = (&mut Vec::new(), &mut Vec::new());
    let number = random.below(200).into();
    match random.below(6) {
        0 => cache.take_plan(plan),
        1 => cache.commit_step(number, &[seq], &[random.number()]),
        2 => cache.fail_step(number, list),
        3 => (0..200).try_for_each(|number| match cache.end_step(number) {
            Err(Error::Argument(None)) => Ok(()), // it is not out
            other => other.map(drop),
        }),
        _ => cache.begin_step(plan).map(drop),
    }
}

fn call(
    kind: usize,
    cache: &mut Cache,
    ns: Namespace,
    random: &mut Random,
    seqs: &mut Vec<Seq>,
) -> Result<()> {
    let seq = any_seq(cache, random, seqs);
    match kind {
        0 | 1 => open(cache, ns, random, seqs),
        2 => cache.close(seq).map(drop),
        3 => cache.truncate(seq, random.number()).map(drop),
        4 => cache.invalidate(seq, random.number(), &mut Vec::new()),
        5 => cache.fork(seq, random.number(), 0).map(|child| seqs.push(child)),
        6 => cache.commit(seq, random.number()),
        7 => cache.info(seq).and_then(|info| cache.commit(seq, info.n_tokens)),
        8 => cache.extend_unknown(seq, random.number() / 4, random.number() / 4),
        9 => cache.fill(seq, &[1, 2][random.below(2) as usize..]),
        10 => cache.retain(seq, range(random), random.below(9)),
        11 => cache.uncache(seq, range(random)),
        12 => read(cache, random, seq),
        13 => step(cache, random, seq),
        14 => batch(cache, random, seqs),
        _ => {
            let n = random.below(6);
            cache.extend(seq, &random.tokens(n), random.number() / 8)
        }
    }
}

/// How many calls of each kind succeeded.
fn run(config: &Config, seed: u64) -> [u32; KINDS] {
    let mut random = Random(seed);
    let mut other = Cache::new(config).unwrap();
    let foreign = other.namespace("").and_then(|ns| other.open(ns, &[])).unwrap().0;
    let mut cache = Cache::new(config).unwrap();
    let ns = cache.namespace("").unwrap();
    let mut seqs = vec![foreign];
    let mut n_ok = [0; KINDS];
    for i in 0..CALLS {
        let kind = random.below(KINDS as u32) as usize;
        match call(kind, &mut cache, ns, &mut random, &mut seqs) {
            Ok(()) => n_ok[kind] += 1,
            Err(error) => assert!(!matches!(error, Error::Corrupt(_) | Error::Other(_)), "{error}"),
        }
        cache.check(1).unwrap();
        if seqs.len() > 24 {
            seqs.drain(1..8);
        }
        match i % 1000 {
            500 => cache.flush(ns).unwrap(),
            999 => cache.reset().unwrap(),
            _ => {}
        }
    }
    cache.check(3).unwrap();
    n_ok
}

fn small() -> Config {
    Config {
        block_tokens: 4,
        unit_tokens: 2,
        n_blocks: 40,
        max_seqs: 12,
        max_seq_tokens: 64,
        max_unit_keys: 1,
        host_blocks: 20,
        ..Config::default()
    }
}

#[test]
fn calls_with_any_arguments_are_sound() {
    let groups =
        vec![Group::default(), Group { sink_tokens: 2, recent_tokens: 8, block_tokens: 0 }];
    let configs = [
        small(),
        Config { steps: Steps::Overlapped, ..small() },
        Config { groups, unit_tokens: 4, ..small() },
    ];
    for (seed, config) in (1..).zip(&configs) {
        let n_ok = run(config, seed);
        assert!(n_ok.iter().all(|&n| n > 20), "{n_ok:?}");
    }
}

fn sched_call(
    sched: &mut Scheduler,
    ns: Namespace,
    random: &mut Random,
    requests: &mut Vec<Request>,
) -> Result<()> {
    let request = random.pick(requests);
    match random.below(12) {
        0..=3 => {
            let length = random.below(24);
            let tokens = random.tokens(length);
            let bytes = [random.below(2) as u8];
            let keys = [Key::new(1, 0..1 + random.below(24), &bytes)];
            let prompt = Prompt { keys: &keys[random.below(2) as usize..], ..Prompt::new(&tokens) };
            let submission = Submission {
                ns,
                prompt,
                priority: random.below(3) as i32,
                n_samples: random.below(4),
                max_new_tokens: random.number(),
            };
            sched.submit(&submission).map(|request| requests.push(request))
        }
        4 => sched.abort(request),
        5 => sched.pause(request),
        6 => sched.resume(request),
        7 => sched.fail(),
        8 => sched.reorder(request, &[random.below(3), 1], &[1, random.below(9) as i32]),
        9 => {
            let info = sched.request(request)?;
            let sample = sched.sample(request, random.below(3))?;
            assert!(sample.n_tokens <= info.max_tokens);
            sched.request_tokens(request, 0, random.number(), &mut [0; 3])
        }
        _ => step_and_finish(sched, random),
    }
}

fn step_and_finish(sched: &mut Scheduler, random: &mut Random) -> Result<()> {
    let step = sched.step()?;
    assert_eq!(
        step.seqs.iter().map(|item| item.n_tokens as usize).sum::<usize>(),
        step.tokens.len()
    );
    sched.take_plan(&mut Vec::new())?;
    if random.below(4) == 0 {
        return Ok(()); // it stays out
    }
    let n_sampled = sched.current().n_sampled + u32::from(random.below(16) == 0);
    let tokens: Vec<i32> = (0..n_sampled).map(|_| random.below(9) as i32).collect();
    let ended: Vec<bool> = (0..n_sampled).map(|_| random.below(8) == 0).collect();
    sched.finish(&tokens, &ended).map(drop)
}

#[test]
fn a_scheduler_with_any_arguments_is_sound() {
    let mut random = Random(7);
    let config = SchedConfig { step_tokens: 32, ..SchedConfig::default() };
    let mut sched = Scheduler::new(&config, Cache::new(&small()).unwrap()).unwrap();
    let ns = sched.namespace("").unwrap();
    let mut requests = vec![Request(kvpager::sys::kvp_request::default())];
    let mut n_ok = 0;
    for _ in 0..CALLS {
        match sched_call(&mut sched, ns, &mut random, &mut requests) {
            Ok(()) => n_ok += 1,
            Err(Error::State) => drop(sched.fail()),
            Err(error) => assert!(!matches!(error, Error::Corrupt(_) | Error::Other(_)), "{error}"),
        }
        sched.check(1).unwrap();
        if requests.len() > 16 {
            requests.drain(1..6);
        }
    }
    let ended = sched.sched_stats().unwrap().ended;
    assert!(n_ok > CALLS / 5 && ended > 20, "{n_ok} calls succeeded, {ended} requests ended");
    sched.into_cache().check(3).unwrap();
}
