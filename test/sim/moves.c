/* Moves: a sequence's KV goes to the other engine, there to be hit. See sim.h.
 *
 *   sender     its own prefill, chunk by chunk in steps of its own, several of them out; or
 *              a sequence of a request, while it is computed
 *   receiver   opens the prompt, and has room for what it does not hit
 *
 * What is complete is compared slot by slot, committed, and closed: then any prompt hits it. A move
 * may fail where a link has lied, an engine died, its peer has other weights, or its sequence has
 * gone; else that is a defect. It also is if a move does not end though both sides go on. */
#include "sim.h"

#include <inttypes.h>
#include <string.h>

enum { PATIENCE = 300 /* calls */, ROUNDS = 2000, TICKET_BYTES = 2048 };

static const sim_side *side_of(const sim *s, const sim_move *move, bool is_receiver)
{
    return &s->sides[move->is_up == is_receiver];
}

static bool is_here(const sim *s, const sim_side *side)
{
    return side == &s->sides[0];
}

/* What waits in the plan here runs now: a sender reads what counts as computed, where it is. */
static void run_plans(sim *s)
{
    kvp_stats stats;
    (void)sim_ok(s, "kvp_cache_stats_get", kvp_cache_stats_get(s->cache, &stats));
    if (stats.pending_copies > 0) {
        sim_work *work = sim_work_begin(s);
        sim_tell(s, work);
    }
    for (uint32_t i = 0; i < s->n_out && !s->verdict.is_bad; i++) {
        while (!s->out[i]->has_copied && sim_move_on(s)) {}
    }
}

/* The peer's run at once. */
static void run_peers_plan(sim *s)
{
    kvp_copy copies[SIM_COPIES];
    uint32_t n = 0;
    (void)sim_ok(s, "kvp_plan_take", kvp_plan_take(s->peer.cache, copies, SIM_COPIES, &n));
    if (!sched_memory_copy(&s->peer.memory, copies, n))
        verdict_bad(&s->verdict, "a copy of the peer's plan is none");
}

/* ------------------------------------------------------------------------------ what lies where */

/* Tokens of the range, as the cache has their rows and slots now. */
static bool take_item(sim *s, const sim_side *side, const sim_move *move, kvp_range range,
                      sim_item *item)
{
    const kvp_seq seq = move->seqs[side == side_of(s, move, true)];
    memset(item, 0, sizeof *item);
    item->seq = seq;
    item->tag = move->tag;
    item->range = range;
    item->salt = move->salt;
    memcpy(item->text, move->text, sizeof item->text);
    sim_mix_key(&move->key, item->text);
    for (uint32_t g = 0; g < side->memory->n_groups; g++) {
        const int32_t *row;
        uint32_t n;
        if (!sim_ok(s, "kvp_seq_row", kvp_seq_row(side->cache, seq, g, &row, &n)))
            return false;
        memcpy(item->rows[g], row, n * sizeof *row);
    }
    item->n_writes = side->states->n > 0;
    return item->n_writes == 0 ||
           sim_ok(s, "kvp_meta_states",
                  kvp_meta_states(side->cache, &seq, 1, &item->read, item->writes));
}

/* What arrived is the KV of these tokens, and the state after them. */
static void compare(sim *s, const sim_side *side, const sim_move *move, kvp_range range)
{
    sim_item item;
    if (!take_item(s, side, move, range, &item))
        return;
    for (uint32_t g = 0; g < side->memory->n_groups; g++)
        sim_compare_kv(s, side->memory, &item, g);
    const uint64_t *state = sched_states_slot(side->states, KVP_DEVICE, item.writes[0]);
    if (item.n_writes > 0 && (state == NULL || *state != sim_state_after(&item, range.end)))
        verdict_bad(&s->verdict, "move %" PRIu64 " brought another state", move->tag);
}

/* ---------------------------------------------------------------------------------------- begin */

static bool is_no_room(kvp_status status)
{
    return kvp_status_class(status) == KVP_CLASS_RETRY || status == KVP_E_NEVER;
}

static bool open_on(sim *s, sim_move *move, bool is_receiver)
{
    const sim_side *side = side_of(s, move, is_receiver);
    kvp_prompt prompt = sim_prompt(move->text, move->n, &move->key, move->tag);
    prompt.flags = is_receiver ? KVP_OPEN_RECEIVE : 0;
    const kvp_status status = kvp_seq_open(side->cache, side->spaces[move->space], &prompt,
                                           &move->seqs[is_receiver], NULL);
    if (is_no_room(status) || !sim_ok(s, "kvp_seq_open", status))
        return false;
    if (!is_here(s, side))
        run_peers_plan(s);
    return true;
}

/* A request's first sample, with all its tokens so far. */
static bool borrow(sim *s, sim_move *move)
{
    const sim_request *r = &s->requests[sim_below(s, SIM_REQUESTS)];
    kvp_sample_info sample;
    kvp_seq_info info;
    if (!r->is_here || r->has_ended[0] ||
        kvp_request_sample(s->sched, r->handle, 0, &sample) != KVP_OK || sample.seq.bits == 0 ||
        kvp_seq_info_get(s->cache, sample.seq, &info) != KVP_OK || info.tier != KVP_DEVICE)
        return false;
    move->is_up = move->is_lent = true;
    move->space = r->space;
    move->seqs[0] = sample.seq;
    move->n = info.n_tokens < r->n[0] ? info.n_tokens : r->n[0];
    memcpy(move->text, r->text[0], sizeof move->text);
    move->key = r->key;
    return true;
}

static void draw_move(sim *s, sim_move *move)
{
    memset(move, 0, sizeof *move);
    move->tag = ++s->n_tags;
    move->begun = s->n_calls;
    move->tells_ready = s->entry > 1 || sim_percent(s, 50);
    if (!sim_percent(s, 30) || !borrow(s, move)) {
        const int32_t *document = s->documents[sim_below(s, SIM_DOCUMENTS)];
        move->is_up = sim_percent(s, 50);
        move->space = sim_below(s, SIM_SPACES);
        move->n = 1 + sim_below(s, SIM_PROMPT);
        if (sim_percent(s, 50) && move->n >= s->config.unit_tokens)
            move->n -= move->n % s->config.unit_tokens;
        memcpy(move->text, document, SIM_PROMPT * sizeof *document);
        sim_draw_key(s, move->n, &move->key);
    }
}

/* What a ticket is of. */
typedef struct space_name {
    uint64_t space, weights;
} space_name;

static space_name name_of(const sim_side *side, const sim_move *move)
{
    return (space_name){move->space, side->weights[move->space]};
}

/* The ticket goes to the sender, which may have other weights, or it may be damaged. */
static bool mark(sim *s, sim_move *move, uint8_t *ticket, size_t n_bytes)
{
    const sim_side *side = side_of(s, move, false);
    const space_name name = name_of(side, move);
    const kvp_send send = {.struct_size = sizeof send,
                           .seq = move->seqs[0],
                           .ticket = ticket,
                           .ticket_bytes = n_bytes,
                           .link = s->links[!move->is_up].at_sender,
                           .space_bytes = sizeof name,
                           .space = &name,
                           .ready_tokens = move->tells_ready ? 0 : KVP_END};
    if (sim_percent(s, 3)) {
        ticket[sim_below(s, n_bytes)] ^= (uint8_t)(1u << sim_below(s, 8));
        move->is_excused = true;
    }
    const kvp_status status = kvp_sender_mark(side->sender, &send, &move->ids[0]);
    s->seen[SIM_moves_refused] += status == KVP_E_MISMATCH && !move->is_excused;
    return (status != KVP_OK && move->is_excused) ||
                   (status == KVP_E_MISMATCH &&
                    s->peer.weights[move->space] != s->weights[move->space])
               ? false
               : sim_ok(s, "kvp_sender_mark", status);
}

static bool agree(sim *s, sim_move *move)
{
    const sim_side *side = side_of(s, move, true);
    const space_name name = name_of(side, move);
    const kvp_receive receive = {.struct_size = sizeof receive,
                                 .seq = move->seqs[1],
                                 .end = KVP_END,
                                 .space_bytes = sizeof name,
                                 .space = &name};
    uint8_t ticket[TICKET_BYTES];
    size_t n_bytes;
    kvp_seq_info info;
    if (!sim_ok(s, "kvp_seq_info_get", kvp_seq_info_get(side->cache, move->seqs[1], &info)) ||
        info.computed_tokens == move->n)
        return false; /* it is there */
    return sim_ok(s, "kvp_receiver_reserve",
                  kvp_receiver_reserve(side->receiver, &receive, ticket, sizeof ticket, &n_bytes,
                                       &move->ids[1])) &&
           mark(s, move, ticket, n_bytes);
}

/* ------------------------------------------------------------------------------------------ end */

static void drop_half(sim *s, sim_move *move, bool is_receiver)
{
    const sim_side *side = side_of(s, move, is_receiver);
    const uint64_t id = move->ids[is_receiver];
    if (id != 0 && is_receiver) {
        (void)kvp_receiver_abort(side->receiver, id, KVP_E_PEER);
        (void)sim_ok(s, "kvp_receiver_close", kvp_receiver_close(side->receiver, id));
    } else if (id != 0) {
        (void)kvp_sender_abort(side->sender, id, KVP_E_PEER);
        (void)sim_ok(s, "kvp_sender_close", kvp_sender_close(side->sender, id));
    }
    if (move->seqs[is_receiver].bits != 0 && (is_receiver || !move->is_lent))
        (void)sim_ok(s, "kvp_seq_close", kvp_seq_close(side->cache, move->seqs[is_receiver], NULL));
    move->ids[is_receiver] = 0;
    move->seqs[is_receiver].bits = 0;
}

static void drop(sim *s, sim_move *move)
{
    drop_half(s, move, false);
    drop_half(s, move, true);
    move->tag = 0;
}

void sim_moves_drop(sim *s, uint32_t space)
{
    for (uint32_t i = 0; i < SIM_MOVES; i++)
        if (s->moves[i].tag != 0 && (space == SIM_SPACES || s->moves[i].space == space))
            drop(s, &s->moves[i]);
}

/* Sequences of which a step that failed has taken back KV, which may have been sent. */
void sim_moves_cut(sim *s, const kvp_seq *cut, uint32_t n)
{
    for (uint32_t k = 0; k < n * SIM_MOVES; k++) {
        sim_move *move = &s->moves[k % SIM_MOVES];
        if (move->tag != 0 && move->seqs[!move->is_up].bits == cut[k / SIM_MOVES].bits)
            drop(s, move);
    }
}

/* The step that was to compute this failed: it is computed again. With recurrent state the pass may
 * have written over what it read. */
void sim_moves_again(sim *s, const sim_item *item)
{
    for (uint32_t i = 0; i < SIM_MOVES; i++) {
        sim_move *move = &s->moves[i];
        if (move->tag == item->tag && s->states.n > 0) {
            drop(s, move);
        } else if (move->tag == item->tag) {
            if (item->range.begin < move->n_ordered) { /* an earlier one may have failed first */
                move->n_ordered = item->range.begin;
            }
            s->seen[SIM_chunks_failed]++;
        }
    }
}

/* Nothing of the side that is gone can be closed. */
void sim_moves_lose(sim *s, uint32_t gone)
{
    for (uint32_t i = 0; i < SIM_MOVES; i++) {
        sim_move *move = &s->moves[i];
        if (move->tag != 0) {
            s->seen[SIM_moves_cut] += move->ids[0] != 0 && move->ids[1] != 0;
            drop_half(s, move, move->is_up == (gone == 0));
            move->tag = 0;
        }
    }
}

static bool may_fail(sim *s, const sim_move *move, kvp_status status)
{
    bool has_windows = false;
    for (uint32_t g = 0; g < s->config.n_groups; g++)
        has_windows |= s->config.groups[g].recent_tokens > 0;
    return move->is_excused || move->is_lent || s->links[!move->is_up].has_lied ||
           (status == KVP_E_DROPPED && has_windows);
}

static void note_failed(sim *s, sim_move *move, const kvp_transfer_info *info)
{
    if (!may_fail(s, move, info->status)) {
        verdict_bad(&s->verdict, "move %" PRIu64 " of %" PRIu32 " tokens failed: %s%s", move->tag,
                    move->n, kvp_status_name(info->status), info->by_peer ? ", says the peer" : "");
    }
    s->seen[SIM_moves_failed]++;
    drop(s, move);
}

/* All of it is there. */
static void receive_all(sim *s, sim_move *move, const kvp_transfer_info *info)
{
    const sim_side *side = side_of(s, move, true);
    if (s->peer.weights[move->space] != s->weights[move->space])
        verdict_bad(&s->verdict, "move %" PRIu64 " brought KV of other weights", move->tag);
    compare(s, side, move, (kvp_range){info->begin, info->end});
    if (!sim_ok(s, "kvp_seq_commit", kvp_seq_commit(side->cache, move->seqs[1], move->n)))
        return;
    if (side->states->n > 0 && move->n % s->config.unit_tokens == 0)
        (void)sim_ok(s, "kvp_seq_checkpoint", kvp_seq_checkpoint(side->cache, move->seqs[1], NULL));
    s->seen[is_here(s, side) ? SIM_moved_here : SIM_moved_there]++;
    s->seen[SIM_moved_requests] += move->is_lent;
    s->seen[SIM_moved_states] += side->states->n > 0;
    (void)sim_ok(s, "kvp_seq_close", kvp_seq_close(side->cache, move->seqs[1], NULL));
    move->seqs[1].bits = 0;
}

static void look(sim *s, sim_move *move)
{
    kvp_transfer_info info;
    for (int is_receiver = 1; is_receiver >= 0 && move->tag != 0; is_receiver--) {
        const sim_side *side = side_of(s, move, is_receiver != 0);
        const uint64_t id = move->ids[is_receiver];
        if (id == 0 || !sim_ok(s, "kvp_transfer_info",
                               is_receiver ? kvp_receiver_info_get(side->receiver, id, &info)
                                           : kvp_sender_info_get(side->sender, id, &info)))
            continue;
        if (info.state == KVP_TRANSFER_FAILED) {
            note_failed(s, move, &info);
        } else if (info.state == KVP_TRANSFER_COMPLETE) {
            if (is_receiver && move->seqs[1].bits != 0)
                receive_all(s, move, &info);
            if (info.owed == 0) /* the peer knows */
                drop_half(s, move, is_receiver != 0);
        }
    }
    if (move->tag != 0 && move->ids[0] == 0 && move->ids[1] == 0)
        drop(s, move);
}

/* -------------------------------------------------------------------------------------- prefill */

/* The steps here that compute it: how many are out. */
static uint32_t steps_of(const sim *s, kvp_seq seq)
{
    uint32_t n = 0;
    for (uint32_t k = 0; k < s->n_out; k++)
        for (uint32_t i = 0; i < s->out[k]->n_items; i++)
            n += s->out[k]->items[i].seq.bits == seq.bits;
    return n;
}

/* A step of its own. Ordered, the next chunk waits for the commit. */
static void prefill_here(sim *s, sim_move *move, uint32_t end)
{
    const uint32_t n_out = steps_of(s, move->seqs[0]);
    kvp_stats stats;
    (void)sim_ok(s, "kvp_cache_stats_get", kvp_cache_stats_get(s->cache, &stats));
    if (s->n_out >= SIM_STEPS - 1 || stats.steps_out >= SIM_STEPS - 1 ||
        (n_out > 0 && s->config.steps == KVP_STEPS_ORDERED))
        return;
    sim_work *work = sim_work_begin(s);
    sim_tell(s, work);
    if (work == NULL ||
        !take_item(s, &s->sides[0], move, (kvp_range){move->n_ordered, end}, &work->items[0]))
        return;
    work->n_items = 1;
    if (s->config.steps == KVP_STEPS_OVERLAPPED) {
        (void)sim_ok(s, "kvp_step_commit",
                     kvp_step_commit(s->cache, work->number, &move->seqs[0], &end, 1));
    }
    s->seen[SIM_chunks_out] += n_out > 0;
    move->n_ordered = end;
}

static void prefill_there(sim *s, sim_move *move, uint32_t end)
{
    static sim_item item;
    if (take_item(s, &s->sides[1], move, (kvp_range){move->n_ordered, end}, &item)) {
        sim_pass(s, &s->peer.memory, &s->peer.states, &item, 1);
        (void)sim_ok(s, "kvp_seq_commit", kvp_seq_commit(s->peer.cache, move->seqs[0], end));
        move->n_ordered = end;
    }
}

static void prefill(sim *s, sim_move *move)
{
    if (!move->is_lent && move->seqs[0].bits != 0 && move->n_ordered < move->n) {
        const uint32_t end = move->n_ordered + 1 + sim_below(s, move->n - move->n_ordered);
        if (move->is_up)
            prefill_here(s, move, end);
        else
            prefill_there(s, move, end);
    }
}

/* ------------------------------------------------------------------------------------ the calls */

static void begin(sim *s, sim_move *move)
{
    kvp_seq_info info;
    draw_move(s, move);
    const uint32_t space = move->space;
    if (s->peer.weights[space] != s->weights[space] && sim_percent(s, 50)) {
        const sim_move drawn = *move;
        move->tag = 0;
        sim_moves_drop(s, space);
        sim_peer_learns(s, space);
        *move = drawn;
    }
    move->salt = sim_salt(space, side_of(s, move, false)->weights[space]);
    if (!(move->is_lent || open_on(s, move, false)) || !open_on(s, move, true) || !agree(s, move)) {
        drop(s, move);
        return;
    }
    (void)sim_ok(s, "kvp_seq_info_get",
                 kvp_seq_info_get(side_of(s, move, false)->cache, move->seqs[0], &info));
    move->n_ordered = info.computed_tokens;
}

/* What is computed, up to the last whole entry: of the next one not all is written. */
static void tell_ready(sim *s, const sim_move *move)
{
    const sim_side *side = side_of(s, move, false);
    kvp_transfer_info transfer;
    kvp_seq_info info;
    if (kvp_seq_info_get(side->cache, move->seqs[0], &info) != KVP_OK ||
        kvp_sender_info_get(side->sender, move->ids[0], &transfer) != KVP_OK ||
        transfer.state == KVP_TRANSFER_COMPLETE || transfer.state == KVP_TRANSFER_FAILED)
        return;
    const uint32_t n = info.computed_tokens - info.computed_tokens % s->entry;
    (void)sim_ok(s, "kvp_sender_ready",
                 kvp_sender_ready(side->sender, move->ids[0], KVP_LAYERS_ALL,
                                  info.computed_tokens >= move->n ? move->n : n));
}

static void progress(sim *s, uint32_t side)
{
    if (side == 0) {
        run_plans(s);
        while (s->config.steps == KVP_STEPS_ORDERED && sim_move_on(s)) {}
    }
    for (uint32_t i = 0; i < SIM_MOVES; i++) {
        const sim_move *move = &s->moves[i];
        if (move->ids[0] != 0 && move->tells_ready && move->is_up == (side == 0))
            tell_ready(s, move);
    }
    (void)sim_ok(s, "kvp_sender_progress", kvp_sender_progress(s->sides[side].sender, NULL));
    (void)sim_ok(s, "kvp_receiver_progress",
                 kvp_receiver_progress(s->sides[side].receiver, sim_below(s, 4), NULL));
}

static void tell_stuck(sim *s, const sim_move *move)
{
    kvp_transfer_info info[2] = {{0}, {0}};
    (void)kvp_sender_info_get(side_of(s, move, false)->sender, move->ids[0], &info[0]);
    (void)kvp_receiver_info_get(side_of(s, move, true)->receiver, move->ids[1], &info[1]);
    verdict_bad(&s->verdict,
                "move %" PRIu64 " does not end: of %" PRIu32 " tokens %" PRIu32
                " are ordered, sender in state %" PRIu32 ", receiver in %" PRIu32,
                move->tag, move->n, move->n_ordered, info[0].state, info[1].state);
}

/* A sequence is closed, and nobody tells the transfer. */
static void abandon(sim *s, sim_move *move)
{
    const bool is_receiver = move->is_lent || sim_percent(s, 50);
    if (move->ids[is_receiver] != 0 && move->seqs[is_receiver].bits != 0) {
        (void)sim_ok(
            s, "kvp_seq_close",
            kvp_seq_close(side_of(s, move, is_receiver)->cache, move->seqs[is_receiver], NULL));
        move->seqs[is_receiver].bits = 0;
        move->is_excused = true;
        s->seen[SIM_moves_abandoned]++;
    }
}

/* It has taken long: what nothing holds up must end now. */
static void insist(sim *s, sim_move *move)
{
    const uint64_t tag = move->tag;
    for (uint32_t i = 0;
         i < ROUNDS && !may_fail(s, move, KVP_OK) && move->tag == tag && !s->verdict.is_bad; i++) {
        prefill(s, move);
        sim_settle(s);
        if (s->work != NULL) /* later steps take effect behind it */
            sim_advance(s);
        progress(s, i % 2);
        look(s, move);
    }
    if (move->tag == tag && !s->verdict.is_bad) {
        if (!may_fail(s, move, KVP_OK))
            tell_stuck(s, move);
        s->seen[SIM_moves_given_up]++;
        drop(s, move);
    }
}

void sim_moves(sim *s)
{
    sim_move *move = &s->moves[sim_below(s, SIM_MOVES)];
    if (move->tag == 0) {
        begin(s, move);
    } else if (s->n_calls - move->begun > PATIENCE) {
        insist(s, move);
    } else if (sim_percent(s, 2)) {
        abandon(s, move);
    } else {
        prefill(s, move);
        progress(s, sim_below(s, 2));
        for (uint32_t i = 0; i < SIM_MOVES && !s->verdict.is_bad; i++)
            if (s->moves[i].tag != 0)
                look(s, &s->moves[i]);
    }
}
