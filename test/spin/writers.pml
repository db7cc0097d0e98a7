/* writers.pml: overlapped steps, and who may write into a block that was shared.
 *
 * Sequences of one row entry, a block of two slots; they fork, and leave the block by truncating,
 * by closing, by copy-on-write, while a step that is out may still write a slot of it for them. The
 * cache as include/kvpager/steps.h promises it: parking, writers that have left (a block that they
 * leave is copied before anyone writes into it, as long as their steps are out), commits
 * that end where a sequence was cut.
 *
 * One process; each call is one atomic step, and so is each plan and each forward pass. A second
 * token has one of two values; KV is a tag of it. A step
 * computes what one sequence has not scheduled. Left out: prefixes and sealing, the host, failures
 * (all in tiers.pml), several row entries, a copy of uncomputed tokens (KVP_E_IN_FLIGHT needs
 * blocks of three slots), several copies in one plan.
 *
 * Sizes, -D: N_BLOCKS, N_SEQS, N_OUT.
 */
#ifndef N_BLOCKS
#define N_BLOCKS 2
#endif
#ifndef N_SEQS
#define N_SEQS 2
#endif
#ifndef N_OUT
#define N_OUT 2
#endif
#define NONE 255

/* A first token is 1, its KV too; a second one is 1 or 2, its KV 3 or 4; 0: anything. */
#define TAG0(s_) value[s_].first
#define TAG1(s_) (2 + value[s_].second)

typedef pair_t {
    byte first;
    byte second;
};

/* Blocks. */
byte refs[N_BLOCKS];
bit free[N_BLOCKS];
byte parked[N_BLOCKS];  /* until so many of the oldest steps are over */
byte touched[N_BLOCKS]; /* as parked: a writer has left it */
pair_t kv[N_BLOCKS];

/* Sequences. */
bit open[N_SEQS];
byte tokens[N_SEQS];
byte computed[N_SEQS];
byte writable[N_SEQS];
byte cut_step[N_SEQS]; /* as parked: slots were cut off it that steps out may write */
byte row[N_SEQS];
byte sched[N_SEQS];
pair_t value[N_SEQS];

/* Steps that are out, oldest first, and behind them the plan that waits: one copy, from a block to
 * the next. Two copies of one plan would be of two sequences: a second one waits for a begin. */
typedef step_t {
    bit copies;
    byte src;
    byte dst;
    byte seq; /* as in tiers.pml */
    byte from;
    byte to;
    byte block;
    byte until;
    bit planned;
    bit ran;
    bit done;
    pair_t value;
    byte copied; /* what the copy should carry, in slot 0 */
};
step_t step[N_OUT + 1];
byte n_out;
#define WAITING step[n_out]
#define lives(k_, s_) (step[k_].seq == (s_) + 1)

/* Scratch of the call that runs; 0 between calls. */
byte s, i, k, t, w, b, n;
bit yes;

/* Whoever has a free block may write anything into it, unless a plan is to read it yet. */
inline queue(b_) {
    assert(!free[b_]);
    free[b_] = 1;
    yes = 1;
    for (i : 0 .. n_out) {
        if
        :: step[i].copies && !step[i].planned && step[i].src == (b_) -> yes = 0
        :: else
        fi
    }
    if
    :: yes -> kv[b_].first = 0; kv[b_].second = 0
    :: else
    fi;
    i = 0;
    yes = 0
}

/* A copy to a block that nobody has is not made. */
inline drop_copy(b_) {
    if
    :: WAITING.copies && WAITING.dst == (b_) -> clear_copy(n_out)
    :: else
    fi
}

inline clear_copy(k_) {
    step[k_].copies = 0;
    step[k_].src = 0;
    step[k_].dst = 0;
    step[k_].copied = 0
}

/* Sequence s_ leaves its block. */
inline leave(s_) {
    b = row[s_];
    row[s_] = NONE;
    refs[b]--;
    if
    :: refs[b] > 0 && n_out > 0 && (writable[s_] > computed[s_] || cut_step[s_] > 0) ->
        touched[b] = n_out
    :: refs[b] == 0 && n_out > 0 -> drop_copy(b); touched[b] = 0; parked[b] = n_out
    :: refs[b] == 0 && n_out == 0 -> drop_copy(b); touched[b] = 0; queue(b)
    :: else
    fi;
    b = 0
}

/* The first free block, they are alike: into b. */
inline take() {
    b = 0;
    do
    :: free[b] -> break
    :: else -> b++
    od;
    free[b] = 0;
    refs[b] = 1;
    touched[b] = 0;
    for (t : 0 .. N_OUT - 1) { /* X1 */
        assert(t >= n_out || step[t].done || step[t].ran || step[t].seq == 0 || step[t].block != b)
    }
    t = 0
}

inline any_free() {
    yes = 0;
    for (t : 0 .. N_BLOCKS - 1) {
        yes = yes || free[t]
    }
    t = 0
}

/* Slots computed .. n_ - 1 become writable. */
inline make_room(s_, n_) {
    if
    :: row[s_] == NONE -> take(); row[s_] = b
    :: row[s_] != NONE && (refs[row[s_]] > 1 || touched[row[s_]] > 0) ->
        take();
        n = b;
        if
        :: computed[s_] > 0 ->
            WAITING.copies = 1;
            WAITING.src = row[s_];
            WAITING.dst = n;
            WAITING.copied = TAG0(s_)
        :: else
        fi;
        leave(s_);
        row[s_] = n;
        n = 0
    :: else
    fi;
    b = 0;
    writable[s_] = n_
}

/* Would making room need a copy? */
#define needs_block(s_) (row[s_] == NONE || refs[row[s_]] > 1 || touched[row[s_]] > 0)
#define needs_copy(s_) (row[s_] != NONE && needs_block(s_) && computed[s_] > 0)

inline cut_commits(s_, n_) {
    for (t : 0 .. N_OUT - 1) {
        if
        :: lives(t, s_) && step[t].until > (n_) + 1 -> step[t].until = (n_) + 1
        :: else
        fi
    }
    t = 0;
    if
    :: n_out > 0 && writable[s_] > computed[s_] && writable[s_] > (n_) -> cut_step[s_] = n_out
    :: else
    fi
}

#define cut(value_, n_) value_ = ((value_) < (n_) -> (value_) : (n_))

inline truncate(s_, n_) {
    cut_commits(s_, n_);
    if
    :: (n_) == 0 && row[s_] != NONE -> leave(s_)
    :: else
    fi;
    tokens[s_] = n_;
    cut(computed[s_], n_);
    cut(writable[s_], n_);
    cut(sched[s_], n_);
    if
    :: (n_) == 0 -> value[s_].first = 0
    :: else
    fi;
    value[s_].second = 0
}

inline close(s_) {
    truncate(s_, 0);
    open[s_] = 0;
    cut_step[s_] = 0;
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

inline fork(s_, child_, n_) {
    open[child_] = 1;
    tokens[child_] = n_;
    computed[child_] = n_;
    writable[child_] = n_;
    sched[child_] = n_;
    row[child_] = row[s_];
    refs[row[s_]]++;
    value[child_].first = value[s_].first;
    value[child_].second = ((n_) == 2 -> value[s_].second : 0)
}

inline begin(s_, has_seq_) {
    if
    :: has_seq_ ->
        WAITING.seq = (s_) + 1;
        WAITING.from = sched[s_];
        WAITING.to = tokens[s_];
        WAITING.block = row[s_];
        WAITING.until = 1 + tokens[s_];
        WAITING.value.first = TAG0(s_);
        WAITING.value.second = TAG1(s_);
        sched[s_] = tokens[s_]
    :: else -> WAITING.ran = 1
    fi;
    n_out++;
    skip_empty_plans()
}

inline run_plan(k_) {
    if
    :: step[k_].copies ->
        assert(kv[step[k_].src].first == step[k_].copied);
        kv[step[k_].dst].first = kv[step[k_].src].first;
        kv[step[k_].dst].second = kv[step[k_].src].second
    :: else
    fi;
    clear_copy(k_);
    step[k_].planned = 1;
    skip_empty_plans()
}

/* A plan without copies has run as soon as those before it have. */
inline skip_empty_plans() {
    for (t : 0 .. N_OUT - 1) {
        if
        :: t < n_out && !step[t].copies && (t == 0 || step[t - 1].planned) -> step[t].planned = 1
        :: else
        fi
    }
    t = 0
}

inline run_forward(k_) {
    b = step[k_].block;
    if
    :: step[k_].from > 0 -> assert(kv[b].first == step[k_].value.first)
    :: else -> kv[b].first = step[k_].value.first
    fi;
    if
    :: step[k_].to > 1 -> kv[b].second = step[k_].value.second
    :: else
    fi;
    b = 0;
    step[k_].ran = 1;
    step[k_].from = 0; /* nobody asks any more: fewer states */
    step[k_].to = 0;
    step[k_].block = 0;
    step[k_].value.first = 0;
    step[k_].value.second = 0
}

inline move_step(to_, from_) {
    step[to_].copies = step[from_].copies;
    step[to_].src = step[from_].src;
    step[to_].dst = step[from_].dst;
    step[to_].seq = step[from_].seq;
    step[to_].from = step[from_].from;
    step[to_].to = step[from_].to;
    step[to_].block = step[from_].block;
    step[to_].until = step[from_].until;
    step[to_].planned = step[from_].planned;
    step[to_].ran = step[from_].ran;
    step[to_].done = step[from_].done;
    step[to_].value.first = step[from_].value.first;
    step[to_].value.second = step[from_].value.second;
    step[to_].copied = step[from_].copied
}

inline clear_waiting() {
    clear_copy(n_out);
    WAITING.seq = 0;
    WAITING.from = 0;
    WAITING.to = 0;
    WAITING.block = 0;
    WAITING.until = 0;
    WAITING.planned = 0;
    WAITING.ran = 0;
    WAITING.done = 0;
    WAITING.value.first = 0;
    WAITING.value.second = 0
}

inline over(value_) {
    value_ = (value_ > 0 -> value_ - 1 : 0)
}

inline take_effect() {
    do
    :: n_out > 0 && step[0].done ->
        if
        :: step[0].until > 0 && step[0].seq != 0 && step[0].seq < 8 ->
            s = step[0].seq - 1;
            if
            :: computed[s] < step[0].until - 1 -> computed[s] = step[0].until - 1
            :: else
            fi
        :: else
        fi;
        for (t : 0 .. n_out - 1) {
            move_step(t, t + 1)
        }
        clear_waiting();
        n_out--;
        for (t : 0 .. N_BLOCKS - 1) {
            over(touched[t]);
            if
            :: parked[t] == 1 -> parked[t] = 0; queue(t)
            :: parked[t] > 1 -> parked[t]--
            :: else
            fi
        }
        for (t : 0 .. N_SEQS - 1) {
            over(cut_step[t])
        }
        t = 0;
        s = 0
    :: else -> break
    od
}

inline report_done(k_) {
    step[k_].done = 1;
    take_effect()
}

/* Is a copy to the block out, or does it wait, that has not run? */
inline check_pending(b_) {
    yes = 0;
    for (t : 0 .. n_out) {
        yes = yes || (step[t].copies && !step[t].planned && step[t].dst == (b_))
    }
    t = 0
}

inline check() {
    for (i : 0 .. N_BLOCKS - 1) {
        assert((refs[i] > 0) + free[i] + (parked[i] > 0) == 1); /* B1 */
        assert(parked[i] <= n_out)
    }
    for (i : 0 .. N_SEQS - 1) {
        if
        :: computed[i] > 0 ->
            check_pending(row[i]);
            assert(yes || kv[row[i]].first == TAG0(i));
            assert(yes || computed[i] < 2 || kv[row[i]].second == TAG1(i))
        :: else
        fi
    }
    i = 0;
    yes = 0
}

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
    any_free();
    if
    :: !open[s] && s == 0 -> open[s] = 1
    :: !open[s] -> /* a fork of any sequence that is open */
        any(k, 0, N_SEQS - 1);
        any(i, 1, 2);
        if
        :: open[k] && i <= computed[k] -> d_step { fork(k, s, i); skip }
        :: else
        fi
    :: open[s] -> d_step { close(s); skip }
    :: open[s] && tokens[s] > 0 -> any(k, 0, tokens[s] - 1); d_step { truncate(s, k); skip }
    :: open[s] && tokens[s] < 2 && (yes || !needs_block(s)) &&
       (!needs_copy(s) || !WAITING.copies) ->
        any(k, 1, 2);
        d_step {
            make_room(s, tokens[s] + 1);
            tokens[s]++;
            if
            :: tokens[s] == 1 -> value[s].first = 1
            :: else -> value[s].second = k
            fi
        }
    :: n_out < N_OUT && open[s] && sched[s] < tokens[s] -> d_step { begin(s, 1); skip }
    :: n_out < N_OUT && WAITING.copies -> d_step { begin(s, 0); skip }
    :: else
    fi;
    s = 0; k = 0; i = 0; yes = 0
}

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

inline progress() {
    d_step { may_run() };
    if
    :: !step[k].planned && (k == 0 || step[k - 1].planned) -> d_step { run_plan(k); skip }
    :: yes -> yes = 0; d_step { run_forward(k); skip }
    :: step[k].ran && step[k].planned && !step[k].done -> d_step { report_done(k); skip }
    :: else
    fi;
    k = 0;
    yes = 0
}

init {
    d_step {
        for (i : 0 .. N_BLOCKS - 1) {
            free[i] = 1
        }
        for (i : 0 .. N_SEQS - 1) {
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
