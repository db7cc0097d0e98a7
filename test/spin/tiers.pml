/* tiers.pml: overlapped steps, as one block of KV after the other is shared, moved and lost.
 *
 * The cache as include/kvpager/steps.h and swap.h promise it, and an engine that does everything
 * that they allow. One process; each call of the cache is one atomic step of it, and so is each
 * plan, and each forward pass, that the device runs. What the device does later than it was asked
 * to is an order of these steps, and all orders are tried.
 *
 * Modelled: open (with hits on both tiers), extend, truncate, close, invalidate, swap out and in,
 * begin with its declared commit, done, failed; parking; copies that are awaited; evicted blocks
 * that are kept; adoption; what a failed step cuts and drops; copies dropped from the plan.
 *
 * Abstract: a block is one token, and is one unit. A token is its position in one of N_KINDS
 * prompts, and its KV a tag that says which. A take takes any block that is free or cached,
 * whatever the queue's order would be. A plan runs as a whole. A step computes tokens of at most
 * one sequence, all that are not scheduled yet, and declares them. When a step fails, either its
 * plan ran, and its forward pass, or what they should have written is LOST; that is then handed on
 * by whatever reads it.
 *
 * Left out: forks and copy-on-write (writers.pml), KVP_KEEP, several units in a block, values that
 * come later, kvp_seq_commit, several sequences in one call, refusals (a call is made only when it
 * would succeed), the order of queues. So which block leaves first, on either tier, is of no matter
 * here: every order is tried, and that the host evicts tails before the prefixes that they need
 * (swap.h) is one of them. That a block is not kept whose prefix is on no tier is a rule of ordered
 * steps.
 *
 * Sizes, -D: N_BLOCKS, N_HOST (0: no host tier), N_SEQS, N_TOKENS, N_KINDS, N_OUT, N_COPIES; FAIL,
 * INVALIDATE, TRUNCATE: 1 when these may happen. Mutants are edits of this text: see `mutants`.
 */
#ifndef N_BLOCKS
#define N_BLOCKS 3
#endif
#ifndef N_HOST
#define N_HOST 1
#endif
#ifndef N_SEQS
#define N_SEQS 2
#endif
#ifndef N_TOKENS
#define N_TOKENS 2
#endif
#ifndef N_KINDS
#define N_KINDS 1
#endif
#ifndef N_OUT
#define N_OUT 2
#endif
#ifndef N_COPIES
#define N_COPIES 2
#endif
#ifndef FAIL
#define FAIL 1
#endif
#ifndef INVALIDATE
#define INVALIDATE 0
#endif
#ifndef TRUNCATE
#define TRUNCATE 1
#endif

#define N_SLOTS (N_OUT + 1) /* steps that are out, oldest first, and the plan that waits */
#define N_ALL (N_BLOCKS + N_HOST) /* device blocks are 0 .. N_BLOCKS - 1; host blocks follow */
#define NONE 255

#define TAG(kind, at) (1 + (kind) * N_TOKENS + (at)) /* the KV of a token, and its node */
#define LOST 255 /* a failed step should have written it, or it was taken back */

/* Blocks of both tiers. */
byte refs[N_ALL];
bit queued[N_ALL];  /* in a queue: free or cached */
byte parked[N_ALL]; /* until so many of the oldest steps have taken effect; 0: not */
byte node[N_ALL];   /* the node that is attached; 0: none */
byte awaits[N_ALL]; /* the node that is attached when the copy's step takes effect */
byte arriving[N_ALL]; /* as parked: a copy that is out, or waits, will write it */
byte kv[N_ALL];     /* what the memory holds: 0: anything */

/* Sequences. */
bit open[N_SEQS];
bit on_host[N_SEQS];
byte kind[N_SEQS];
byte tokens[N_SEQS];
byte computed[N_SEQS];
byte writable[N_SEQS];
byte public_[N_SEQS]; /* tokens from here on are private */
byte row[N_SEQS * N_TOKENS];
byte sched[N_SEQS]; /* the engine's: tokens before are computed, or will be by a step that is out */
#define ROW(s, at) row[(s) * N_TOKENS + (at)]

/* Steps that are out, oldest first, and behind them the plan that waits. */
typedef copy_t {
    byte src;
    byte dst;
    byte tag; /* what it should carry */
    bit chained;
    bit keeps;
};
typedef step_t {
    byte n_copies;
    copy_t copy[N_COPIES];
    byte seq;    /* whose tokens are computed: 1 + its place, or, when it is closed since, that and
                    a multiple of 8; 0: none */
    byte kind;
    byte from;
    byte to;
    byte block[N_TOKENS]; /* the row as the forward pass was given it */
    byte until;  /* 1 + the tokens that will be committed; 0: none */
    bit dropped;
    bit planned; /* its plan has run */
    bit ran;     /* and its forward pass */
    bit lost;    /* or not: it will be reported failed */
    byte state;  /* 0 out, 1 noted done, 2 noted failed */
};
step_t step[N_SLOTS];
byte n_out;
#define WAITING step[n_out]

/* Scratch of the call that runs; 0 between calls. */
byte s, i, j, k, b, h, t, n, need, have, got, victim, w, at_, first;
bit is_bad[N_ALL];
bit yes;

#define is_device(block) ((block) < N_BLOCKS)
#define lives(k_, s_) (step[k_].seq == (s_) + 1)

/* The block of a tier that has the node attached, or NONE. */
inline find(tag_, from_, to_, out_) {
    out_ = NONE;
    for (t : (from_) .. (to_) - 1) {
        if
        :: node[t] == (tag_) && (tag_) != 0 -> out_ = t
        :: else
        fi
    }
    t = 0
}
#define find_device(tag_, out_) find(tag_, 0, N_BLOCKS, out_)
#if N_HOST > 0
#define find_host(tag_, out_) find(tag_, N_BLOCKS, N_ALL, out_)
#else
#define find_host(tag_, out_) out_ = NONE
#endif

inline count_available(from_, to_, out_) {
    out_ = 0;
    for (t : (from_) .. (to_) - 1) {
        out_ = out_ + queued[t]
    }
    t = 0
}

/* Copies to a block that has no content any more are dropped, up to the last one that reads it. */
inline drop_copies(block_) {
    w = WAITING.n_copies;
    do
    :: w > 0 && WAITING.copy[w - 1].src != (block_) && WAITING.copy[w - 1].dst == (block_) ->
        w--;
        WAITING.n_copies--;
        for (t : w .. N_COPIES - 2) {
            WAITING.copy[t].src = WAITING.copy[t + 1].src;
            WAITING.copy[t].dst = WAITING.copy[t + 1].dst;
            WAITING.copy[t].tag = WAITING.copy[t + 1].tag;
            WAITING.copy[t].chained = WAITING.copy[t + 1].chained;
            WAITING.copy[t].keeps = WAITING.copy[t + 1].keeps
        }
        clear_copy(n_out, N_COPIES - 1);
        arriving[block_] = 0
    :: w > 0 && WAITING.copy[w - 1].src != (block_) && WAITING.copy[w - 1].dst != (block_) ->
        w--
    :: else -> break
    od;
    w = 0;
    t = 0
}

inline clear_copy(k_, i_) {
    step[k_].copy[i_].src = 0;
    step[k_].copy[i_].dst = 0;
    step[k_].copy[i_].tag = 0;
    step[k_].copy[i_].chained = 0;
    step[k_].copy[i_].keeps = 0
}

/* Whoever has the block from now on may write anything into it, unless a plan is to read it yet. */
inline garble(block_) {
    yes = 1;
    for (t : 0 .. n_out) {
        for (w : 0 .. N_COPIES - 1) {
            if
            :: !step[t].planned && w < step[t].n_copies && step[t].copy[w].src == (block_) ->
                yes = 0
            :: else
            fi
        }
    }
    if
    :: yes -> kv[block_] = 0
    :: else
    fi;
    yes = 0;
    t = 0;
    w = 0
}

inline queue(block_) {
    assert(!queued[block_]);
    queued[block_] = 1;
    if
    :: node[block_] == 0 -> garble(block_)
    :: else
    fi
}

inline hold(block_) {
    assert(node[block_] != 0);
    if
    :: refs[block_] == 0 -> queued[block_] = 0; parked[block_] = 0
    :: else
    fi;
    refs[block_]++
}

inline release(block_) {
    assert(refs[block_] > 0);
    if
    :: refs[block_] == 1 && node[block_] == 0 -> awaits[block_] = 0; drop_copies(block_)
    :: else
    fi;
    refs[block_]--;
    if
    :: refs[block_] > 0
    :: refs[block_] == 0 && is_device(block_) && n_out > 0 -> parked[block_] = n_out
    :: else -> queue(block_)
    fi
}

inline attach(block_, tag_) {
    assert(node[block_] == 0);
    node[block_] = tag_
}

/* X1: no forward pass of a step that is out reads or writes a device block that is taken. (A plan
 * may: it runs before whatever the block is taken for.) */
inline check_unknown(block_) {
    for (t : 0 .. N_OUT - 1) {
        for (w : 0 .. N_TOKENS - 1) {
            assert(t >= n_out || step[t].ran || step[t].seq == 0 || w >= step[t].to ||
                   step[t].block[w] != (block_))
        }
    }
    t = 0;
    w = 0
}

inline add_copy(src_, dst_, tag_, keeps_) {
    WAITING.copy[WAITING.n_copies].src = src_;
    WAITING.copy[WAITING.n_copies].dst = dst_;
    WAITING.copy[WAITING.n_copies].tag = tag_;
    WAITING.copy[WAITING.n_copies].chained = !is_device(src_) || arriving[src_] != 0;
    WAITING.copy[WAITING.n_copies].keeps = keeps_;
    WAITING.n_copies++;
    arriving[dst_] = n_out + 1
}

/* What a copy brings is found later. */
inline copied(tag_, dst_) {
    awaits[dst_] = tag_
}

inline take_ready(block_) {
    node[block_] = 0;
    awaits[block_] = 0;
    drop_copies(block_);
    arriving[block_] = 0;
    garble(block_);
    queued[block_] = 0;
    refs[block_] = 1
}

/* Take a host block: into h. One must be there. */
inline take_host() {
    choose_host();
    h = victim;
    victim = 0;
    take_ready(h)
}

/* Take a device block: into b. One must be there. */
inline take() {
    choose_device();
    b = victim;
    victim = 0;
    assert(refs[b] == 0 && parked[b] == 0);
    check_unknown(b);
    keep_evicted();
    take_ready(b)
}

/* Any block that is cached, or a free one: these differ by number only, so the first will do. */
#define is_free(block) (queued[block] && node[block] == 0)
#define may_take(block, first_) \
    (queued[block] && (node[block] != 0 || !some_free_before(block, first_)))
#define some_free_before(block, first_) \
    ((block) > (first_) && is_free(first_) || (block) > (first_) + 1 && is_free((first_) + 1) || \
     (block) > (first_) + 2 && is_free((first_) + 2))

inline choose_device() {
    do
    :: may_take(0, 0) -> victim = 0; break
#if N_BLOCKS > 1
    :: may_take(1, 0) -> victim = 1; break
#endif
#if N_BLOCKS > 2
    :: may_take(2, 0) -> victim = 2; break
#endif
#if N_BLOCKS > 3
    :: may_take(3, 0) -> victim = 3; break
#endif
    od
}

inline choose_host() {
    do
#if N_HOST > 0
    :: may_take(N_BLOCKS, N_BLOCKS) -> victim = N_BLOCKS; break
#endif
#if N_HOST > 1
    :: may_take(N_BLOCKS + 1, N_BLOCKS) -> victim = N_BLOCKS + 1; break
#endif
    od
}

/* What device block b has goes to the host, if there is room. */
inline keep_evicted() {
#if N_HOST > 0
    find_host(node[b], got);
    count_available(N_BLOCKS, N_ALL, have);
    if
    :: node[b] != 0 && got == NONE && have > 0 && WAITING.n_copies + need < N_COPIES ->
        take_host();
        add_copy(b, h, node[b], 1);
        copied(node[b], h);
        h = 0
    :: else
    fi;
    got = 0;
    have = 0
#else
    skip
#endif
}

/* ------------------------------------------------------------------------------------ sequences */

/* No step commits more than n_ tokens of s_. */
inline cut_commits(s_, n_) {
    for (t : 0 .. N_OUT - 1) {
        if
        :: lives(t, s_) && step[t].until > 0 && (n_) == 0 ->
            step[t].until = 0;
            step[t].dropped = 0
        :: lives(t, s_) && step[t].until > (n_) + 1 -> step[t].until = (n_) + 1
        :: else
        fi
    }
    t = 0
}

inline drop_commits(s_, from_) {
    for (t : from_ .. N_OUT - 1) {
        if
        :: lives(t, s_) && step[t].until > 0 -> step[t].dropped = 1
        :: else
        fi
    }
    t = 0
}

/* Release the row from its end down to n_. */
inline release_row(s_, n_) {
    at_ = tokens[s_];
    do
    :: at_ > (n_) ->
        at_--;
        if
        :: ROW(s_, at_) != NONE -> release(ROW(s_, at_)); ROW(s_, at_) = NONE
        :: else
        fi
    :: else -> break
    od;
    at_ = 0
}

#define cut(value_, n_) value_ = ((value_) < (n_) -> (value_) : (n_))

inline truncate(s_, n_) {
    cut_commits(s_, n_);
    release_row(s_, n_);
    tokens[s_] = n_;
    cut(computed[s_], n_);
    cut(writable[s_], n_);
    cut(sched[s_], n_);
    if
    :: public_[s_] >= (n_) -> public_[s_] = N_TOKENS
    :: else
    fi
}

inline close(s_) {
    truncate(s_, 0);
    open[s_] = 0;
    on_host[s_] = 0;
    kind[s_] = 0;
    public_[s_] = 0;
    w = 8; /* the place's next sequence is another one: what is out gets a number of its own */
    for (t : 0 .. N_OUT * N_OUT - 1) {
        if
        :: step[t % N_OUT].seq == (s_) + 1 + w -> w = w + 8
        :: else
        fi
    }
    for (t : 0 .. N_OUT - 1) {
        if
        :: lives(t, s_) && step[t].ran -> step[t].seq = 0
        :: lives(t, s_) && !step[t].ran -> step[t].seq = step[t].seq + w
        :: else
        fi
    }
    w = 0;
    t = 0
}

/* Count: need blocks, n copies, for an open of n tokens of a kind. */
inline count_open(kind_, n_) {
    yes = 1;
    need = 0;
    n = 0;
    first = 0; /* hits that are in the queue, and leave it */
    for (i : 0 .. N_TOKENS - 1) {
        find_device(TAG(kind_, i), b);
        find_host(TAG(kind_, i), h);
        if
        :: i < (n_) && yes && b != NONE -> first = first + queued[b]
        :: i < (n_) && yes && b == NONE && h != NONE -> need++; n++
        :: i < (n_) && !(yes && (b != NONE || h != NONE)) -> need++; yes = 0
        :: else
        fi
    }
    count_available(0, N_BLOCKS, have);
    yes = have >= need + first && WAITING.n_copies + n <= N_COPIES;
    i = 0; b = 0; h = 0; first = 0; have = 0
}

inline do_open(s_, kind_, n_) {
    need = n; /* copies that the call adds for itself */
    n = 0;
    open[s_] = 1;
    kind[s_] = kind_;
    tokens[s_] = n_;
    public_[s_] = N_TOKENS;
    yes = 1;
    for (i : 0 .. (n_) - 1) { /* hold the hits */
        find_device(TAG(kind_, i), b);
        find_host(TAG(kind_, i), h);
        if
        :: yes && b != NONE -> hold(b); ROW(s_, i) = b; computed[s_]++
        :: yes && b == NONE && h != NONE -> hold(h); ROW(s_, i) = h; computed[s_]++
        :: else -> yes = 0
        fi
    }
    h = 0;
    b = 0;
    for (i : 0 .. (n_) - 1) {
        if
        :: ROW(s_, i) == NONE -> take(); ROW(s_, i) = b
        :: ROW(s_, i) != NONE && !is_device(ROW(s_, i)) ->
            take();
            add_copy(ROW(s_, i), b, TAG(kind_, i), 0);
            copied(TAG(kind_, i), b);
            need--;
            release(ROW(s_, i));
            ROW(s_, i) = b
        :: else
        fi;
        b = 0
    }
    writable[s_] = n_;
    sched[s_] = computed[s_];
    i = 0; need = 0; yes = 0
}

/* Count what making room for n_ tokens takes. */
inline count_room(s_, n_) {
    need = 0;
    for (i : 0 .. N_TOKENS - 1) {
        if
        :: i >= computed[s_] && i < (n_) && ROW(s_, i) == NONE -> need++
        :: i >= computed[s_] && i < (n_) && ROW(s_, i) != NONE && refs[ROW(s_, i)] > 1 -> need++
        :: else
        fi
    }
    count_available(0, N_BLOCKS, have);
    yes = have >= need;
    need = 0; have = 0; i = 0
}

inline do_extend(s_, n_) {
    for (i : computed[s_] .. (n_) - 1) {
        if
        :: ROW(s_, i) == NONE -> take(); ROW(s_, i) = b
        :: ROW(s_, i) != NONE && refs[ROW(s_, i)] > 1 ->
            take();
            release(ROW(s_, i));
            ROW(s_, i) = b
        :: else -> /* what is written over is not found any more */
            node[ROW(s_, i)] = 0;
            awaits[ROW(s_, i)] = 0
        fi;
        b = 0
    }
    tokens[s_] = n_;
    writable[s_] = n_;
    i = 0
}

inline commit(s_, n_) {
    assert((n_) <= tokens[s_] && !on_host[s_]);
    for (i : 0 .. N_TOKENS - 1) {
        if
        :: i >= computed[s_] && i < (n_) && i < public_[s_] ->
            b = ROW(s_, i);
            find_device(TAG(kind[s_], i), got);
            if
            :: got == NONE && arriving[b] != 0 -> awaits[b] = TAG(kind[s_], i)
            :: got == NONE && arriving[b] == 0 -> attach(b, TAG(kind[s_], i))
            :: got == b
            :: else -> hold(got); ROW(s_, i) = got; release(b) /* adopt */
            fi
        :: else
        fi
    }
    if
    :: computed[s_] < (n_) -> computed[s_] = n_
    :: else
    fi;
    i = 0; b = 0; got = 0
}

/* Engine and cache: the KV of a kind's tokens from n_ on is bad. Whoever has such tokens is
 * invalidated, or closed. */
inline invalidate(kind_, n_) {
    for (i : 0 .. N_ALL - 1) {
        for (j : 0 .. N_TOKENS - 1) {
            if
            :: j >= (n_) && node[i] == TAG(kind_, j) ->
                node[i] = 0;
                if
                :: refs[i] == 0 -> drop_copies(i)
                :: else
                fi
            :: else
            fi;
            if
            :: j >= (n_) && awaits[i] == TAG(kind_, j) -> awaits[i] = 0
            :: else
            fi;
            if
            :: j >= (n_) && kv[i] == TAG(kind_, j) -> kv[i] = LOST
            :: else
            fi
        }
    }
    j = 0;
    for (i : 0 .. N_SEQS - 1) {
        if
        :: open[i] && kind[i] == (kind_) && tokens[i] > (n_) && on_host[i] -> close(i)
        :: open[i] && kind[i] == (kind_) && tokens[i] > (n_) && !on_host[i] ->
            cut_commits(i, n_);
            cut(computed[i], n_);
            cut(writable[i], n_);
            cut(sched[i], n_);
            cut(public_[i], n_)
        :: else
        fi
    }
    i = 0
}

/* Count for a move to the blocks from_ .. to_ - 1, with room for all tokens on the device. */
inline count_move(s_, from_, to_) {
    need = 0;
    n = 0;
    first = 0;
    for (i : 0 .. N_TOKENS - 1) {
        find(TAG(kind[s_], i), from_, to_, b);
        if
        :: i < computed[s_] && i < public_[s_] && b != NONE -> first = first + queued[b]
        :: i < computed[s_] && !(i < public_[s_] && b != NONE) -> need++; n++
        :: i >= computed[s_] && i < tokens[s_] && (from_) == 0 -> need++
        :: else
        fi
    }
    count_available(from_, to_, have);
    yes = have >= need + first && WAITING.n_copies + n <= N_COPIES;
    i = 0; b = 0; first = 0; have = 0; need = 0
}

inline do_swap_out(s_) {
    n = 0;
    for (i : 0 .. computed[s_] - 1) {
        find_host(TAG(kind[s_], i), h);
        if
        :: h != NONE && i < public_[s_] -> hold(h)
        :: else
        fi
    }
    for (i : 0 .. computed[s_] - 1) {
        find_host(TAG(kind[s_], i), h);
        if
        :: h != NONE && i < public_[s_]
        :: else ->
            take_host();
            add_copy(ROW(s_, i), h, TAG(kind[s_], i), 0);
            if
            :: i < public_[s_] -> copied(TAG(kind[s_], i), h)
            :: else
            fi
        fi;
        release(ROW(s_, i));
        ROW(s_, i) = h
    }
    release_row(s_, computed[s_]);
    on_host[s_] = 1;
    writable[s_] = computed[s_];
    sched[s_] = computed[s_];
    cut_commits(s_, 0);
    i = 0; h = 0
}

inline do_swap_in(s_) {
    need = n;
    n = 0;
    for (i : 0 .. computed[s_] - 1) {
        find_device(TAG(kind[s_], i), b);
        if
        :: b != NONE && i < public_[s_] -> hold(b); release(ROW(s_, i)); ROW(s_, i) = b
        :: else
        fi
    }
    for (i : 0 .. computed[s_] - 1) {
        if
        :: !is_device(ROW(s_, i)) ->
            take();
            add_copy(ROW(s_, i), b, TAG(kind[s_], i), 0);
            need--;
            if
            :: i < public_[s_] -> copied(TAG(kind[s_], i), b)
            :: else
            fi;
            release(ROW(s_, i));
            ROW(s_, i) = b
        :: else
        fi
    }
    on_host[s_] = 0;
    b = 0; i = 0; need = 0;
    do_extend(s_, tokens[s_])
}

/* ---------------------------------------------------------------------------------------- steps */

/* With a sequence: its tokens that are not scheduled are computed, and will be committed. */
inline begin(s_, has_seq_) {
    if
    :: has_seq_ ->
        WAITING.seq = (s_) + 1;
        WAITING.kind = kind[s_];
        WAITING.from = sched[s_];
        WAITING.to = tokens[s_];
        for (i : 0 .. tokens[s_] - 1) {
            WAITING.block[i] = ROW(s_, i)
        }
        WAITING.until = 1 + tokens[s_];
        sched[s_] = tokens[s_]
    :: else -> WAITING.ran = 1
    fi;
    i = 0;
    n_out++;
    skip_empty_plans()
}

/* A plan without copies has run as soon as those before it have. */
inline skip_empty_plans() {
    for (t : 0 .. N_OUT - 1) {
        if
        :: t < n_out && step[t].n_copies == 0 && (t == 0 || step[t - 1].planned) ->
            step[t].planned = 1
        :: else
        fi
    }
    t = 0
}

/* The device runs the plan of step k_. */
inline run_plan(k_) {
    for (i : 0 .. N_COPIES - 1) {
        if
        :: i < step[k_].n_copies ->
            assert(kv[step[k_].copy[i].src] == step[k_].copy[i].tag ||
                   kv[step[k_].copy[i].src] == LOST);
            kv[step[k_].copy[i].dst] = (step[k_].lost -> LOST : kv[step[k_].copy[i].src]);
            step[k_].copy[i].tag = 0
        :: else
        fi
    }
    i = 0;
    step[k_].planned = 1;
    skip_empty_plans()
}

/* The device runs the forward pass of step k_. */
inline run_forward(k_) {
    yes = step[k_].lost;
    for (i : 0 .. N_TOKENS - 1) {
        if
        :: i < step[k_].from ->
            assert(kv[step[k_].block[i]] == TAG(step[k_].kind, i) ||
                   kv[step[k_].block[i]] == LOST);
            yes = yes || kv[step[k_].block[i]] == LOST
        :: i >= step[k_].from && i < step[k_].to ->
            kv[step[k_].block[i]] = (yes -> LOST : TAG(step[k_].kind, i))
        :: else
        fi
    }
    i = 0;
    yes = 0;
    step[k_].ran = 1;
    for (t : 0 .. N_TOKENS - 1) { /* nobody asks any more: fewer states */
        step[k_].block[t] = 0
    }
    step[k_].kind = 0;
    step[k_].to = 0;
    if
    :: !step[k_].lost -> step[k_].from = 0
    :: else
    fi;
    t = 0
}

inline clear_step(k_) {
    for (t : 0 .. N_COPIES - 1) {
        clear_copy(k_, t)
    }
    step[k_].n_copies = 0;
    step[k_].seq = 0;
    step[k_].kind = 0;
    step[k_].from = 0;
    step[k_].to = 0;
    for (t : 0 .. N_TOKENS - 1) {
        step[k_].block[t] = 0
    }
    step[k_].until = 0;
    step[k_].dropped = 0;
    step[k_].planned = 0;
    step[k_].ran = 0;
    step[k_].lost = 0;
    step[k_].state = 0;
    t = 0
}

/* Every step moves one place down. */
inline shift() {
    for (k : 0 .. N_OUT - 1) {
        for (t : 0 .. N_COPIES - 1) {
            step[k].copy[t].src = step[k + 1].copy[t].src;
            step[k].copy[t].dst = step[k + 1].copy[t].dst;
            step[k].copy[t].tag = step[k + 1].copy[t].tag;
            step[k].copy[t].chained = step[k + 1].copy[t].chained;
            step[k].copy[t].keeps = step[k + 1].copy[t].keeps
        }
        step[k].n_copies = step[k + 1].n_copies;
        step[k].seq = step[k + 1].seq;
        step[k].kind = step[k + 1].kind;
        step[k].from = step[k + 1].from;
        step[k].to = step[k + 1].to;
        for (t : 0 .. N_TOKENS - 1) {
            step[k].block[t] = step[k + 1].block[t]
        }
        step[k].until = step[k + 1].until;
        step[k].dropped = step[k + 1].dropped;
        step[k].planned = step[k + 1].planned;
        step[k].ran = step[k + 1].ran;
        step[k].lost = step[k + 1].lost;
        step[k].state = step[k + 1].state
    }
    k = 0;
    clear_step(N_OUT);
    n_out--
}

inline settle(k_) {
    for (i : 0 .. N_COPIES - 1) {
        if
        :: i < step[k_].n_copies ->
            b = step[k_].copy[i].dst;
            if
            :: awaits[b] != 0 && arriving[b] == (k_) + 1 ->
                if
                :: is_device(b) -> find_device(awaits[b], got)
                :: else -> find_host(awaits[b], got)
                fi;
                if
                :: got == NONE -> attach(b, awaits[b])
                :: else
                fi;
                awaits[b] = 0
            :: else
            fi;
            if
            :: step[k_].copy[i].keeps -> release(b)
            :: else
            fi
        :: else
        fi
    }
    i = 0; b = 0; got = 0
}

/* Steps that were reported take effect, from the oldest on. */
inline take_effect() {
    do
    :: n_out > 0 && step[0].state != 0 ->
        if
        :: step[0].state == 1 -> settle(0)
        :: else
        fi;
        n = (step[0].state == 1 && !step[0].dropped && step[0].until > 0 -> step[0].until - 1 : 0);
        s = (n > 0 -> step[0].seq % 8 - 1 : 0);
        shift();
        for (j : 0 .. N_ALL - 1) {
            arriving[j] = (arriving[j] > 0 -> arriving[j] - 1 : 0);
            if
            :: parked[j] == 1 -> parked[j] = 0; queue(j)
            :: parked[j] > 1 -> parked[j]--
            :: else
            fi
        }
        j = 0;
        if
        :: n > 0 -> commit(s, n)
        :: else
        fi;
        s = 0;
        n = 0
    :: else -> break
    od
}

inline report_done(k_) {
    step[k_].state = 1;
    take_effect()
}

/* What is bad when step k_ has failed: what its copies should have filled, and what copies behind
 * it read from there. */
inline mark_bad(k_) {
    for (j : k_ .. n_out) {
        for (i : 0 .. N_COPIES - 1) {
            if
            :: i < step[j].n_copies ->
                is_bad[step[j].copy[i].dst] =
                    j == (k_) || (step[j].copy[i].chained && is_bad[step[j].copy[i].src])
            :: else
            fi
        }
    }
    i = 0; j = 0
}

inline strike_awaited() {
    for (i : 0 .. N_ALL - 1) {
        if
        :: is_bad[i] -> awaits[i] = 0
        :: else
        fi
    }
    i = 0
}

inline report_failed(k_) {
    mark_bad(k_);
    strike_awaited();
    for (s : 0 .. N_SEQS - 1) {
        if
        :: open[s] ->
            n = computed[s];
            for (i : 0 .. N_TOKENS - 1) {
                if
                :: i < n && is_bad[ROW(s, i)] && (on_host[s] || arriving[ROW(s, i)] != 0) -> n = i
                :: else
                fi
            }
            if
            :: n < computed[s] || (lives(k_, s) && step[k_].until > computed[s] + 1) ->
                drop_commits(s, k_);
                if /* the engine: what that step should have computed is computed again */
                :: lives(k_, s) && sched[s] > step[k_].from -> sched[s] = step[k_].from
                :: else
                fi
            :: else
            fi;
            if
            :: n < computed[s] ->
                cut_commits(s, n);
                computed[s] = n;
                cut(writable[s], n);
                cut(sched[s], n)
            :: else
            fi;
            if
            :: sched[s] < computed[s] -> sched[s] = computed[s]
            :: else
            fi
        :: else
        fi;
        n = 0
    }
    for (i : 0 .. N_ALL - 1) {
        is_bad[i] = 0
    }
    for (s : 0 .. N_SEQS - 1) { /* swapped rows end where their KV does */
        if
        :: open[s] && on_host[s] -> release_row(s, computed[s])
        :: else
        fi
    }
    for (i : 0 .. N_COPIES - 1) {
        if
        :: step[k_].copy[i].keeps -> step[k_].copy[i].keeps = 0; release(step[k_].copy[i].dst)
        :: else
        fi
    }
    s = 0; i = 0;
    step[k_].state = 2;
    take_effect()
}

/* ----------------------------------------------------------------------- what must always hold */

inline check() {
    for (i : 0 .. N_ALL - 1) {
        /* B1: one state. */
        assert((refs[i] > 0) + queued[i] + (parked[i] > 0) == 1);
        /* X1, S1: what can be found is there, as its node says. */
        assert(node[i] == 0 || kv[i] == node[i]);
        /* X1: nothing is parked for longer than steps are out. */
        assert(parked[i] <= n_out);
        for (j : i + 1 .. N_ALL - 1) {
            /* N3: a node has one block in each tier. */
            assert(node[i] == 0 || node[i] != node[j] || is_device(i) != is_device(j))
        }
    }
    for (i : 0 .. N_SEQS - 1) {
        for (j : 0 .. N_TOKENS - 1) {
            /* What counts as computed is there, or a copy that is not in effect yet brings it. */
            assert(j >= computed[i] || arriving[ROW(i, j)] != 0 ||
                   kv[ROW(i, j)] == TAG(kind[i], j));
            /* T1, and rows are on one tier. */
            assert(ROW(i, j) == NONE || (refs[ROW(i, j)] > 0 && is_device(ROW(i, j)) != on_host[i]))
        }
    }
    i = 0;
    j = 0
}

/* ----------------------------------------------------------------------------------- the engine */

inline any(var_, from_, to_) {
    var_ = from_;
    do
    :: var_ < (to_) -> var_++
    :: break
    od;
    skip /* a loop must not end where a d_step begins */
}

/* Calls on sequence s. One that is not possible now changes nothing. */
inline call() {
    if
    :: !open[s] && (s == 0 || open[s - 1]) -> /* closed places are alike */
        any(j, 0, N_KINDS - 1);
        any(k, 1, N_TOKENS);
        d_step { count_open(j, k) };
        if
        :: yes -> do_open(s, j, k)
        :: else
        fi
    :: open[s] -> d_step { close(s); skip }
    :: open[s] && !on_host[s] ->
        any(k, 0, 1);
        k = k + tokens[s];
        d_step { count_room(s, k) };
        if
        :: yes && k <= N_TOKENS && k > writable[s] -> do_extend(s, k)
        :: else
        fi
#if TRUNCATE
    :: open[s] && !on_host[s] && tokens[s] > 0 ->
        any(k, 0, tokens[s] - 1);
        d_step { truncate(s, k); skip }
#endif
#if INVALIDATE
    :: open[s] && !on_host[s] && computed[s] > 0 ->
        any(k, 0, computed[s] - 1);
        d_step { invalidate(kind[s], k); skip }
#endif
#if N_HOST > 0
    :: open[s] && !on_host[s] && computed[s] > 0 ->
        d_step { count_move(s, N_BLOCKS, N_ALL) };
        if
        :: yes -> do_swap_out(s)
        :: else
        fi
    :: open[s] && on_host[s] ->
        d_step { count_move(s, 0, N_BLOCKS) };
        if
        :: yes -> do_swap_in(s)
        :: else
        fi
#endif
    :: n_out < N_OUT && open[s] && !on_host[s] && sched[s] < tokens[s] && writable[s] == tokens[s]
        -> d_step { begin(s, 1); skip }
    :: n_out < N_OUT && WAITING.n_copies > 0 -> d_step { begin(s, 0); skip }
    :: else
    fi;
    s = 0; j = 0; k = 0; n = 0; yes = 0; need = 0
}

/* May the forward pass of step k start? Its plan has run, and earlier ones of its sequence. */
inline may_run() {
    yes = step[k].planned && !step[k].ran;
    for (i : 0 .. N_OUT - 1) {
        if
        :: i < k && step[i].seq == step[k].seq && !step[i].ran -> yes = 0
        :: else
        fi
    }
    i = 0
}

/* Work that fails does so when it is about to run; a forward pass, also because its plan did. */
inline may_be_lost() {
#if FAIL
    if
    :: step[k].lost = 1
    :: skip
    fi;
#endif
    skip
}

/* The device goes on with step k, or it is reported. */
inline progress() {
    d_step { may_run() };
    if
    :: !step[k].planned && (k == 0 || step[k - 1].planned) ->
        may_be_lost();
        d_step { run_plan(k); skip }
    :: yes ->
        may_be_lost();
        d_step { run_forward(k); skip }
    :: step[k].ran && step[k].planned && step[k].state == 0 && !step[k].lost ->
        d_step { report_done(k); skip }
#if FAIL
    :: step[k].ran && step[k].planned && step[k].state == 0 && step[k].lost ->
        d_step { report_failed(k); skip }
#endif
    :: else
    fi;
    k = 0; yes = 0
}

init {
    d_step {
        for (i : 0 .. N_ALL - 1) {
            queued[i] = 1
        }
        for (i : 0 .. N_SEQS * N_TOKENS - 1) {
            row[i] = NONE
        }
        i = 0
    }
end:
    do
    :: atomic { any(s, 0, N_SEQS - 1); call(); d_step { check(); skip } }
    :: atomic { n_out > 0 -> any(k, 0, n_out - 1); progress(); d_step { check(); skip } }
    od
}
