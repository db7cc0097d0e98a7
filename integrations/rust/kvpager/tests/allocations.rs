//! In the steady state of an engine the crate allocates nothing. (`model_allocations` of the repository
//! counts the library's.)

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use kvpager::{Batch, Cache, Config, Prompt, Result, SchedConfig, Scheduler, Submission, END};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u32> = const { Cell::new(0) };
}

// SAFETY: the system's, counted.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|n| n.set(n.get() + 1));
        System.alloc(layout)
    }

    unsafe fn dealloc(&self, data: *mut u8, layout: Layout) {
        System.dealloc(data, layout)
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// How often `work` allocates on this thread.
fn allocations(work: impl FnOnce() -> Result<()>) -> u32 {
    let before = ALLOCATIONS.with(Cell::get);
    work().unwrap();
    ALLOCATIONS.with(Cell::get) - before
}

fn config() -> Config {
    Config { block_tokens: 4, n_blocks: 65, max_seqs: 8, max_seq_tokens: 128, ..Config::default() }
}

#[test]
fn steps_of_an_engine() {
    let mut counted = Vec::new();
    let push = || {
        counted.push(1);
        Ok(())
    };
    assert_eq!(allocations(push), 1);
    assert_eq!(counted, [1]);
    let mut cache = Cache::new(&config()).unwrap();
    let ns = cache.namespace("").unwrap();
    let (mut plan, mut statuses, mut slots) = (Vec::with_capacity(8), Vec::with_capacity(8), [0]);
    let n = allocations(|| {
        for turn in 0..20 {
            let prompt = [turn % 3; 10];
            let (a, _) = cache.open(ns, Prompt { tag: 1, ..Prompt::new(&prompt) })?;
            cache.commit(a, 10)?;
            let b = cache.fork(a, END, 0)?;
            let seqs = [a, b];
            for step in 0..8 {
                let tokens = [step, turn];
                let batch = Batch { seqs: &seqs, tokens: Some(&tokens), ..Batch::default() };
                cache.can_extend(&batch)?;
                cache.extend_each(&batch, &mut statuses)?;
                cache.take_plan(&mut plan)?;
                for seq in seqs {
                    cache.slots(seq, 0, 10 + step as u32, &mut slots)?;
                    assert!(cache.row(seq, 0)?.contains(&((slots[0] / 4) as i32)));
                }
                cache.commit_many(&seqs, &[11 + step as u32; 2])?;
            }
            cache.truncate(a, 9)?;
            for seq in seqs {
                cache.guard(seq).close()?;
            }
            cache.stats()?;
        }
        Ok(())
    });
    assert_eq!(n, 0);
}

#[test]
fn steps_of_a_scheduler() {
    let cache = Cache::new(&config()).unwrap();
    let mut sched = Scheduler::new(&SchedConfig::default(), cache).unwrap();
    let ns = sched.namespace("").unwrap();
    let mut plan = Vec::with_capacity(8);
    let n = allocations(|| {
        let mut n_ended = 0;
        for turn in 0..40 {
            sched.submit(&Submission::new(ns, &[turn % 3; 10], 3))?;
            let n_sampled = sched.step()?.n_sampled;
            sched.take_plan(&mut plan)?;
            let items = sched.current().seqs;
            assert!(!sched.row(items[0].seq, 0)?.is_empty());
            n_ended += sched.finish(&[7; 8][..n_sampled as usize], &[])?.len();
        }
        assert!(n_ended > 30);
        Ok(())
    });
    assert_eq!(n, 0);
}
