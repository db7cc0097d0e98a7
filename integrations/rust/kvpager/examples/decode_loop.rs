//! Continuous batching, in small: four requests, at most three running at a time.
//!
//! Each step admits the requests that fit, runs prompts and one token of every running sequence,
//! commits, and closes what is finished. The model is a function of the last token. It prints what
//! examples/decode_loop.c of the repository prints.

use kvpager::{Batch, Cache, Config, Error, Namespace, Result, Seq};

const BATCH_MAX: usize = 3;
const OUTPUT_TOKENS: usize = 4;

const PROMPTS: [&[i32]; 4] =
    [&[1, 2, 3, 4, 5, 6], &[1, 2, 3, 4, 7], &[8, 9], &[1, 2, 3, 4, 5, 6, 7, 8]];

struct Running {
    request: usize,
    seq: Seq,
    n_tokens: usize, // prompt and output so far
    last: i32,
}

fn model(last: i32) -> i32 {
    last + 100
}

/// What a kernel needs to write the KV of `n` tokens.
fn print_slots(cache: &Cache, request: usize, seq: Seq, from: usize, n: usize) -> Result<()> {
    let mut slots = vec![0; n];
    cache.slots(seq, 0, from as u32, &mut slots)?;
    print!("  request {request}, positions {from}..{}, slots", from + n - 1);
    for slot in slots {
        print!(" {slot}");
    }
    println!();
    Ok(())
}

/// Opens the prompt, computes what is not cached, samples the first output token.
fn admit(cache: &mut Cache, ns: Namespace, request: usize) -> Result<Running> {
    let prompt = PROMPTS[request];
    let (seq, info) = cache.open(ns, prompt)?;
    let mut guard = cache.guard(seq);
    let cached = info.cached_tokens as usize;
    print_slots(guard.cache(), request, seq, cached, prompt.len() - cached)?;
    guard.cache().commit(seq, prompt.len() as u32)?;
    let last = model(prompt[prompt.len() - 1]);
    Ok(Running { request, seq: guard.keep(), n_tokens: prompt.len(), last })
}

/// One token for every running sequence: all get room, or none.
fn decode(cache: &mut Cache, running: &mut [Running]) -> Result<()> {
    let seqs: Vec<Seq> = running.iter().map(|r| r.seq).collect();
    let tokens: Vec<i32> = running.iter().map(|r| r.last).collect();
    // Error::NoBlocks: close the newest sequence, then repeat.
    cache.extend_many(&Batch { seqs: &seqs, tokens: Some(&tokens), ..Batch::default() })?;
    for r in running.iter_mut() {
        print_slots(cache, r.request, r.seq, r.n_tokens, 1)?;
        r.n_tokens += 1;
        r.last = model(r.last);
    }
    let n_tokens: Vec<u32> = running.iter().map(|r| r.n_tokens as u32).collect();
    cache.commit_many(&seqs, &n_tokens)
}

fn close_finished(cache: &mut Cache, running: &mut Vec<Running>) -> Result<()> {
    let is_over = |r: &Running| r.n_tokens >= PROMPTS[r.request].len() + OUTPUT_TOKENS;
    for r in running.iter().filter(|r| is_over(r)) {
        cache.close(r.seq)?;
    }
    running.retain(|r| !is_over(r));
    Ok(())
}

fn main() -> Result<()> {
    let mut cache = Cache::new(&Config {
        block_tokens: 4,
        n_blocks: 16,
        max_seqs: BATCH_MAX as u32,
        ..Config::default()
    })?;
    let ns = cache.namespace("")?;
    let mut running = Vec::new();
    let mut n_admitted = 0;
    let mut step = 0;
    while !running.is_empty() || n_admitted < PROMPTS.len() {
        println!("step {step}");
        decode(&mut cache, &mut running)?;
        close_finished(&mut cache, &mut running)?;
        while running.len() < BATCH_MAX && n_admitted < PROMPTS.len() {
            match admit(&mut cache, ns, n_admitted) {
                Ok(admitted) => running.push(admitted),
                Err(Error::NoBlocks(_)) => break, // try again after a close
                Err(error) => return Err(error),
            }
            n_admitted += 1;
        }
        step += 1;
    }
    Ok(())
}
