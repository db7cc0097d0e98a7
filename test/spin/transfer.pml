/* transfer.pml: a sequence's KV, handed to another process.
 *
 * One sender, one receiver, as include/kvpager/transfer.h promises them, and two callers that do all
 * that it allows, at any moment: mark, compute, fail a step, give up, close a sequence and give its
 * block to another one, close a transfer and reserve the next in its place. The link between them
 * keeps order, but may lose a message, and may be cut, with all that is on its way.
 *
 * A sequence has one block, one token, N_LAYERS layers; its KV in a layer is a tag: 1 or 2 for its
 * value, BAD for anything else. What must hold: a layer is written only for the sequence whose slots
 * were handed out, while it has not counted anything (R2); what is committed is its KV, in every
 * layer (R3); what ends without success has committed nothing.
 *
 * Left out: heads and several senders, ranges and chunks (a layer is one), scales, damage (a
 * checksum turns it into a loss or a failure), full links. One process; each call is one atomic
 * step.
 *
 * Sizes, -D: N_LAYERS; N_SEQS, N_SENDER_SEQS, N_TRANSFERS, N_MARKS: sequences that each side ever
 * opens, transfers ever reserved, and marked; N_WAIT: messages on their way.
 */
#ifndef N_LAYERS
#define N_LAYERS 2
#endif
#ifndef N_SEQS
#define N_SEQS 1
#endif
#ifndef N_SENDER_SEQS
#define N_SENDER_SEQS 1
#endif
#ifndef N_TRANSFERS
#define N_TRANSFERS 2
#endif
#ifndef N_MARKS
#define N_MARKS 2
#endif
#ifndef N_WAIT
#define N_WAIT 2
#endif
#define BAD 3

mtype = { NONE, WAITING, MOVING, SENT, COMPLETE, FAILED, BEGIN, CHUNK, DONE, GIVE_UP };

/* The receiver's sequence and its block; a number for each sequence, 0: none is open. */
byte seq;
byte opened;
byte value;
bit computed;
byte kv[N_LAYERS];

/* The receiver's transfer: its id is its number, never used again. */
mtype r_state = NONE;
byte r_id;
byte r_seq;
byte r_value;         /* hash of the tokens that it knows */
bit r_begun;
byte r_part;          /* the attempt that began it */
byte next[N_LAYERS];

/* The sender's sequence and its block. */
byte s_seq;
byte s_opened;
byte s_value;
bit s_computed;
bit s_bad; /* the step that runs has written something wrong */
byte s_layer; /* that is written next */
byte skv[N_LAYERS];

/* The sender's transfer. */
mtype s_state = NONE;
byte s_id;     /* of the ticket */
byte s_part;   /* a number for each mark */
byte s_of;     /* sequence */
byte ready[N_LAYERS];
byte sent[N_LAYERS];

/* The link: to the receiver kind, id, part, layer, tag; to the sender id, ok. */
chan to_r = [N_WAIT] of { mtype, byte, byte, byte, byte };
chan to_s = [N_WAIT] of { byte, bit };

byte i, id, part, layer, tag; /* scratch; 0 between calls */
mtype kind = NONE;
bit ok;

#define s_lives (s_state == WAITING || s_state == MOVING || s_state == SENT)
#define r_lives (r_state == WAITING || r_state == MOVING)

inline result(ok_) {
    if
    :: len(to_s) < N_WAIT && r_begun -> to_s!r_id, ok_
    :: else
    fi
}

inline r_fail() {
    r_state = FAILED;
    result(0);
    r_forget()
}

inline s_fail() {
    if
    :: s_state != WAITING && len(to_r) < N_WAIT -> to_r!GIVE_UP, s_id, s_part, 0, 0
    :: else
    fi;
    s_state = FAILED;
    s_forget()
}

/* What has ended is not looked at again: fewer states. */
inline r_forget() {
    r_seq = 0;
    r_value = 0;
    r_begun = 0;
    r_part = 0;
    for (i : 0 .. N_LAYERS - 1) {
        next[i] = 0;
        kv[i] = (computed -> kv[i] : BAD)
    }
    i = 0
}

inline s_forget() {
    s_of = 0;
    for (i : 0 .. N_LAYERS - 1) {
        ready[i] = 0;
        sent[i] = 0
    }
    i = 0
}

/* Is the sequence what it was when its slots were handed out? */
#define r_same (seq == r_seq && !computed)

inline on_begin() {
    if
    :: id == r_id && r_state == WAITING && r_same -> r_begun = 1; r_part = part; r_state = MOVING
    :: id == r_id && r_state == WAITING && !r_same -> r_fail()
    :: else /* refused: it waits for a better one */
    fi
}

inline on_chunk() {
    if
    :: id == r_id && r_state == MOVING ->
        if
        :: part != r_part || next[layer] != 0 || !r_same -> r_fail()
        :: else ->
            assert(seq == r_seq && !computed && seq != 0); /* R2 */
            kv[layer] = tag;
            next[layer] = 1
        fi
    :: else
    fi
}

inline on_done() {
    if
    :: id == r_id && r_state == MOVING ->
        ok = 1;
        for (i : 0 .. N_LAYERS - 1) {
            ok = ok && next[i] == 1
        }
        i = 0;
        if
        :: !ok || part != r_part || tag != r_value || !r_same -> r_fail()
        :: else -> r_state = COMPLETE; result(1); r_begun = 0
        fi
    :: else
    fi
}

inline on_give_up() {
    if
    :: id == r_id && r_state == MOVING -> r_state = FAILED; r_forget()
    :: else
    fi
}

inline receive() {
    to_r?kind, id, part, layer, tag;
    if
    :: kind == BEGIN -> on_begin()
    :: kind == CHUNK -> on_chunk()
    :: kind == DONE -> on_done()
    :: kind == GIVE_UP -> on_give_up()
    fi;
    kind = NONE; id = 0; part = 0; layer = 0; tag = 0; ok = 0
}

inline answer() {
    to_s?id, ok;
    if
    :: id == s_id && s_lives && !ok -> s_state = FAILED; s_forget()
    :: id == s_id && s_state == SENT && ok -> s_state = COMPLETE; s_forget()
    :: id == s_id && s_lives && s_state != SENT && ok -> s_fail()
    :: else
    fi;
    id = 0; ok = 0
}

/* One message of what can be sent now. */
inline push() {
    if
    :: s_seq != s_of -> s_fail()
    :: else ->
        if
        :: s_state == WAITING -> to_r!BEGIN, s_id, s_part, 0, 0; s_state = MOVING
        :: else ->
            for (i : 0 .. N_LAYERS - 1) {
                if
                :: layer == 0 && sent[i] < ready[i] -> layer = i + 1
                :: else
                fi
            }
            i = 0;
            if
            :: layer > 0 ->
                to_r!CHUNK, s_id, s_part, layer - 1, skv[layer - 1];
                sent[layer - 1] = 1
            :: else ->
                ok = 1;
                for (i : 0 .. N_LAYERS - 1) {
                    ok = ok && sent[i] == 1
                }
                i = 0;
                if
                :: ok && s_computed -> to_r!DONE, s_id, s_part, 0, s_value; s_state = SENT
                :: else
                fi
            fi
        fi
    fi;
    layer = 0; ok = 0
}

/* The link breaks: both sides notice. The next one is empty. */
inline cut() {
    do
    :: nempty(to_r) -> to_r?kind, id, part, layer, tag
    :: nempty(to_s) -> to_s?id, ok
    :: empty(to_r) && empty(to_s) -> break
    od;
    kind = NONE; id = 0; part = 0; layer = 0; tag = 0; ok = 0;
    if
    :: s_lives -> s_state = FAILED; s_forget()
    :: else
    fi;
    if
    :: r_state == MOVING -> r_state = FAILED; r_forget()
    :: else
    fi
}

inline lose() {
    to_r?kind, id, part, layer, tag;
    kind = NONE; id = 0; part = 0; layer = 0; tag = 0
}

/* ------------------------------------------------------------------------- the receiver's caller */

inline open_seq(value_) {
    value = value_;
    opened++;
    seq = opened;
    computed = 0
}

/* Its block is free: whoever has it next writes what it likes. */
inline close_seq() {
    seq = 0;
    value = 0;
    computed = 0;
    for (i : 0 .. N_LAYERS - 1) {
        kv[i] = BAD
    }
    i = 0
}

/* The sequence that has the block computes its own KV. */
inline compute_here() {
    for (i : 0 .. N_LAYERS - 1) {
        kv[i] = value
    }
    i = 0;
    computed = 1
}

inline reserve() {
    r_state = WAITING;
    r_id++;
    r_seq = seq;
    r_value = value;
    r_begun = 0;
    for (i : 0 .. N_LAYERS - 1) {
        next[i] = 0
    }
    i = 0
}

inline commit() {
    for (i : 0 .. N_LAYERS - 1) {
        assert(kv[i] == value) /* R3 */
    }
    i = 0;
    computed = 1;
    r_state = NONE;
    r_forget()
}

/* --------------------------------------------------------------------------- the sender's caller */

inline s_open(value_) {
    s_opened++;
    s_seq = s_opened;
    s_value = value_;
    s_computed = 0;
    s_bad = 0;
    s_layer = 0;
    for (i : 0 .. N_LAYERS - 1) {
        skv[i] = BAD
    }
    i = 0
}

inline s_close() {
    s_seq = 0;
    s_value = 0;
    s_computed = 0;
    s_bad = 0;
    s_layer = 0;
    for (i : 0 .. N_LAYERS - 1) {
        skv[i] = BAD
    }
    i = 0
}

inline mark() {
    s_state = WAITING;
    s_id = r_id;
    s_part++;
    s_of = s_seq;
    for (i : 0 .. N_LAYERS - 1) {
        ready[i] = s_computed;
        sent[i] = 0
    }
    i = 0
}

/* A layer of the step; it may go wrong, which is known when the step ends. */
inline write_layer(tag_) {
    skv[s_layer] = tag_;
    s_bad = s_bad || tag_ == BAD;
    if
    :: s_lives && s_of == s_seq -> ready[s_layer] = 1
    :: else
    fi;
    s_layer++
}

/* Whoever takes KV back that was said to be ready aborts. */
inline end_step() {
    if
    :: !s_bad -> s_computed = 1
    :: else ->
        if
        :: s_lives && s_of == s_seq -> s_fail()
        :: else
        fi;
        s_bad = 0;
        s_layer = 0
    fi
}

inline check() {
    for (i : 0 .. N_LAYERS - 1) {
        assert(!computed || kv[i] == value)
    }
    i = 0
}

init {
    d_step {
        for (i : 0 .. N_LAYERS - 1) {
            kv[i] = BAD;
            skv[i] = BAD
        }
        i = 0
    }
end:
    do
    /* messages */
    :: nempty(to_r) -> d_step { receive(); check() }
    :: nempty(to_r) -> d_step { lose(); skip }
    :: nempty(to_s) -> d_step { answer(); skip }
    :: (s_state == WAITING || s_state == MOVING) && nfull(to_r) -> d_step { push(); skip }
    :: nempty(to_r) || nempty(to_s) || s_lives || r_state == MOVING -> d_step { cut(); skip }
    /* the receiver's caller */
    :: seq == 0 && opened < N_SEQS -> d_step { open_seq(1 + opened % 2); check() }
    :: seq != 0 -> d_step { close_seq(); check() }
    :: seq != 0 && !computed && !(r_lives && r_seq == seq) -> d_step { compute_here(); check() }
    :: seq != 0 && !computed && r_state == NONE && r_id < N_TRANSFERS -> d_step { reserve(); check() }
    :: r_lives -> d_step { r_fail(); check() }
    :: r_state == COMPLETE && seq == r_seq && !computed -> d_step { commit(); check() }
    :: r_state == COMPLETE || r_state == FAILED -> d_step { r_state = NONE; r_forget(); check() }
    /* the sender's caller */
    :: s_seq == 0 && s_opened < N_SENDER_SEQS -> d_step { s_open(1); skip }
    :: s_seq == 0 && s_opened < N_SENDER_SEQS -> d_step { s_open(2); skip }
    :: s_seq != 0 -> d_step { s_close(); skip }
    :: s_seq != 0 && s_state == NONE && r_lives && s_part < N_MARKS -> d_step { mark(); skip }
    :: s_seq != 0 && !s_computed && s_layer < N_LAYERS -> d_step { write_layer(s_value); skip }
    :: s_seq != 0 && !s_computed && s_layer == N_LAYERS - 1 -> d_step { write_layer(BAD); skip }
    :: s_seq != 0 && !s_computed && s_layer == N_LAYERS -> d_step { end_step(); skip }
    :: s_lives -> d_step { s_fail(); skip }
    :: s_state == COMPLETE || s_state == FAILED -> d_step { s_state = NONE; skip }
    od
}
