//! Continuous batching with the scheduler: more requests than fit into memory.
//!
//! The device has eight blocks of four tokens, and so has the host. Three requests share a prompt's
//! first block; one of them has two samples. Each step prints which requests wait, are admitted, go
//! to the host, come back and end. It also prints the copies that the engine has to make (d: device,
//! h: host). It prints what examples/scheduler.c of the repository prints.

use kvpager::{
    BlockCopy, Cache, Config, Preempt, Prompt, Request, Result, SchedConfig, Scheduler, Submission,
    Tier,
};

const PROMPTS: [&[i32]; 4] = [
    &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10],
    &[1, 2, 3, 4, 11, 12],
    &[21, 22, 23, 24, 25, 26, 27, 28],
    &[1, 2, 3, 4, 5],
];
const SAMPLES: [u32; 4] = [1, 2, 1, 1];
const WAIT_BLOCKS: usize = kvpager::sys::KVP_WAIT_BLOCKS as usize;

/// A request's tag is its number here.
fn number_of(sched: &Scheduler, request: Request) -> Result<u64> {
    Ok(sched.request(request)?.tag)
}

fn print_step(sched: &Scheduler) -> Result<()> {
    let step = sched.current();
    print!("step {}:", step.number);
    let changes =
        [("swap out", step.swapped_out), ("swap in", step.swapped_in), ("admit", step.admitted)];
    for (what, requests) in changes {
        for &request in requests {
            print!("  {what} {}", number_of(sched, request)?);
        }
    }
    for item in step.seqs {
        let number = number_of(sched, item.request)?;
        let last = item.begin + item.n_tokens - 1;
        print!("  {number}.{}[{}..{last}]", item.sample, item.begin);
    }
    let waiting = step.waited[WAIT_BLOCKS] + step.waited_swapped[WAIT_BLOCKS];
    if waiting > 0 {
        print!("  ({waiting} wait for blocks)");
    }
    println!();
    Ok(())
}

fn print_copies(plan: &[BlockCopy]) {
    let place = |tier, block| format!("{}{block}", if tier == Tier::DEVICE { 'd' } else { 'h' });
    for (i, copy) in plan.iter().enumerate() {
        print!("{}", if i == 0 { "        copy " } else { ", " });
        let from = place(copy.src_tier, copy.src_block);
        print!("{from} to {}", place(copy.dst_tier, copy.dst_block));
    }
    if !plan.is_empty() {
        println!();
    }
}

fn main() -> Result<()> {
    let cache = Cache::new(&Config {
        block_tokens: 4,
        n_blocks: 9,
        max_seqs: 8,
        host_blocks: 9,
        max_copies: 32,
        ..Config::default()
    })?;
    let config = SchedConfig { step_tokens: 16, preempt: Preempt::Swap, ..SchedConfig::default() };
    let mut sched = Scheduler::new(&config, cache)?;
    let ns = sched.namespace("")?;
    for (i, tokens) in PROMPTS.iter().enumerate() {
        let prompt = Prompt { tag: i as u64, ..Prompt::new(tokens) };
        sched.submit(&Submission { n_samples: SAMPLES[i], ..Submission::new(ns, prompt, 5) })?;
    }
    let mut plan = Vec::new();
    while !sched.step()?.seqs.is_empty() {
        print_step(&sched)?;
        sched.take_plan(&mut plan)?;
        print_copies(&plan);
        // An engine would run the plan's copies and the forward pass here, and sample.
        let step = sched.current();
        let sampled: Vec<i32> =
            (0..step.n_sampled).map(|i| 100 + step.number as i32 * 10 + i as i32).collect();
        for ended in sched.finish(&sampled, &[])? {
            let new_tokens = ended.new_tokens;
            println!("        {}.{} ended with {new_tokens} new tokens", ended.tag, ended.sample);
        }
    }
    println!("success");
    Ok(())
}
