/* See session.h. */
#include "session.h"
#include "describe.h"
#include "start.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int write_log(void *context, const void *bytes, size_t n_bytes)
{
    session *s = context;

    if (s->options.record_fd >= 0)
        return write(s->options.record_fd, bytes, n_bytes) == (ssize_t)n_bytes ? 0 : 1;
    if (s->log_bytes + n_bytes > s->log_capacity) {
        s->log_capacity = 2 * (s->log_bytes + n_bytes) + 4096;
        s->log = realloc(s->log, s->log_capacity);
        if (!s->log)
            return 1;
    }
    memcpy(s->log + s->log_bytes, bytes, n_bytes);
    s->log_bytes += n_bytes;
    return 0;
}

static kvp_status create_cache(session *s, const kvp_config *config)
{
    size_t n_bytes;
    kvp_status status;

    if (!s->options.own_arena)
        return kvp_cache_create(config, NULL, 0, &s->cache);
    status = kvp_cache_bytes(config, &n_bytes);
    if (status != KVP_OK)
        return status;
    n_bytes = (n_bytes + 63) / 64 * 64;
    s->arena_bytes = n_bytes;
    s->arena = aligned_alloc(64, n_bytes);
    if (!s->arena)
        return KVP_E_NO_MEMORY;
    memset(s->arena, 0xa5, n_bytes); /* "its content does not matter" */
    return kvp_cache_create(config, s->arena, n_bytes, &s->cache);
}

static uint32_t default_copies(const kvp_config *config)
{
    return config->max_seqs + 64 + (config->host_blocks ? config->n_blocks : 0);
}

/* "0 = half of them": at least one. */
static uint32_t half_of(uint32_t host_blocks)
{
    return host_blocks > 3 ? (host_blocks - 1) / 2 : 1;
}

static bool groups_resolved_well(const kvp_config *wanted, const kvp_config *resolved)
{
    for (uint32_t i = 0; i < wanted->n_groups; i++)
        if (resolved->groups[i].sink_tokens != wanted->groups[i].sink_tokens ||
            resolved->groups[i].recent_tokens != wanted->groups[i].recent_tokens ||
            resolved->groups[i].block_tokens != (wanted->groups[i].block_tokens
                                                     ? wanted->groups[i].block_tokens
                                                     : wanted->block_tokens))
            return false;
    return resolved->n_groups == wanted->n_groups && resolved->quotas == wanted->quotas &&
           resolved->max_loads == wanted->max_loads &&
           (wanted->lent_blocks ? resolved->lent_blocks == wanted->lent_blocks
                                : resolved->lent_blocks ==
                                      (wanted->max_loads ? half_of(wanted->host_blocks) : 0)) &&
           resolved->max_tree_tokens == wanted->max_tree_tokens &&
           resolved->state_slots == wanted->state_slots &&
           resolved->host_state_slots == wanted->host_state_slots &&
           resolved->retain_tokens == wanted->retain_tokens;
}

/* The fields of tiers, steps, events, groups and trees. */
static bool tiers_resolved_well(const kvp_config *wanted, const kvp_config *resolved)
{
    return resolved->host_blocks == wanted->host_blocks &&
           resolved->keep_evicted == wanted->keep_evicted && resolved->steps == wanted->steps &&
           resolved->max_steps_out == wanted->max_steps_out &&
           resolved->max_events == wanted->max_events && groups_resolved_well(wanted, resolved);
}

/* Of any group. */
static uint32_t largest_block(const kvp_config *config)
{
    uint32_t most = 0;

    for (uint32_t k = 0; k < config->n_groups; k++) {
        uint32_t S =
            config->groups[k].block_tokens ? config->groups[k].block_tokens : config->block_tokens;

        most = S > most ? S : most;
    }
    return most;
}

/* "Every default resolved", and nothing else changed. */
static bool resolved_well(const kvp_config *given, const kvp_config *resolved)
{
    kvp_config wanted = *given;
    uint32_t units;

    wanted.unit_tokens = given->unit_tokens ? given->unit_tokens : given->block_tokens;
    wanted.max_copies = given->max_copies ? given->max_copies : default_copies(given);
    units = (given->n_blocks - 1 + (given->host_blocks ? given->host_blocks - 1 : 0)) *
            (largest_block(given) / wanted.unit_tokens);
    wanted.n_nodes = given->n_nodes ? given->n_nodes : resolved->n_nodes;
    return resolved->block_tokens == wanted.block_tokens &&
           resolved->unit_tokens == wanted.unit_tokens && resolved->n_blocks == wanted.n_blocks &&
           resolved->max_seqs == wanted.max_seqs &&
           resolved->max_seq_tokens == wanted.max_seq_tokens &&
           resolved->max_namespaces == wanted.max_namespaces &&
           resolved->n_nodes == wanted.n_nodes &&
           resolved->n_nodes >= (given->n_nodes ? 1 : units) &&
           resolved->max_unit_keys == wanted.max_unit_keys &&
           resolved->max_copies == wanted.max_copies &&
           resolved->commit_policy == wanted.commit_policy &&
           resolved->full_hit == wanted.full_hit && resolved->hash_seed == wanted.hash_seed &&
           resolved->prefix_cache == wanted.prefix_cache &&
           resolved->test_hash_bits == wanted.test_hash_bits &&
           tiers_resolved_well(&wanted, resolved) && resolved->watermark >= wanted.watermark &&
           resolved->watermark <= wanted.watermark &&
           resolved->n_uncached_tokens == wanted.n_uncached_tokens &&
           (!wanted.n_uncached_tokens || memcmp(resolved->uncached_tokens, wanted.uncached_tokens,
                                                wanted.n_uncached_tokens * sizeof(int32_t)) == 0);
}

/* A number for a kind of difference, so that shrinking does not wander from one to another. */
static void sign(session *s, uint32_t op, const char *what)
{
    uint32_t hash = op;

    while (*what)
        hash = hash * 31 + (uint8_t)*what++;
    s->signature = 1 + hash % 120;
}

/* Do the events that the call made tell what there is now? */
static bool follow(session *s)
{
    const char *why = view_follow(s->v, s->cache);

    if (!why)
        return true;
    sign(s, 0, why);
    snprintf(s->why, sizeof s->why, "after the call, events: %s", why);
    return false;
}

/* The counters of both go on from a number; the events before it tell of nothing. */
static bool start(session *s)
{
    uint64_t at = start_number(), most = s->o->config.max_events;

    start_cache(s->cache);
    oracle_start(s->o, at);
    s->v->next = at > most ? at - most + 1 : 1;
    return follow(s);
}

session *session_create(const kvp_config *config, const session_options *options)
{
    session *s = calloc(1, sizeof *s);
    kvp_sink sink = {s, write_log};
    kvp_config resolved;
    kvp_status status;

    if (!s)
        return NULL;
    s->options = *options;
    status = create_cache(s, config);
    if (status == KVP_OK) {
        kvp_config_init(&resolved);
        status = kvp_cache_config_get(s->cache, &resolved);
    }
    if (status == KVP_OK && !resolved_well(config, &resolved))
        status = KVP_E_MISMATCH;
    if (status == KVP_OK && (options->record || options->record_fd >= 0)) {
        status = kvp_cache_record_start(s->cache, &sink);
        s->recording = true;
    }
    if (status != KVP_OK) {
        fprintf(stderr, "kvp_model: making the cache gave %s\n", kvp_status_name(status));
        kvp_cache_destroy(s->cache);
        free(s->arena);
        free(s);
        return NULL;
    }
    s->o = oracle_create(&resolved);
    s->v = view_create(s->o);
    if (start_number() && !start(s)) {
        fprintf(stderr, "kvp_model: starting late: %s\n", s->why);
        session_destroy(s);
        return NULL;
    }
    return s;
}

void session_destroy(session *s)
{
    if (!s)
        return;
    kvp_cache_destroy(s->cache);
    oracle_destroy(s->o);
    view_destroy(s->v);
    kvp_outcome_free(&s->seen);
    kvp_outcome_free(&s->audit_seen);
    free(s->arena);
    free(s->log);
    free(s);
}

static bool check(session *s)
{
    int level = s->options.check_level;
    kvp_violation violation;
    kvp_status status;

    if (level > 1 && s->options.check_every > 1 && s->n_calls % s->options.check_every)
        level = 1;
    if (!level)
        return true;
    memset(&violation, 0, sizeof violation);
    status = kvp_cache_check(s->cache, level, &violation);
    s->n_made++;
    if (status == KVP_OK)
        return true;
    sign(s, 0, violation.invariant);
    snprintf(s->why, sizeof s->why,
             "after the call kvp_cache_check says %s: %.7s, object %" PRIu64 ": %s",
             kvp_status_name(status), violation.invariant, violation.object,
             violation.detail ? violation.detail : "");
    return false;
}

/* What may run beside a change is in no log. */
static bool is_recorded(const kvp_call *call)
{
    return call->op != KVP_CALL_SEQ_INFO && call->op != KVP_CALL_EVENTS_READ &&
           (call->op < KVP_CALL_COLD_END || call->op == KVP_CALL_CHECKPOINT ||
            call->op == KVP_CALL_PROMPT_END) &&
           !oracle_lacks_pointers(call);
}

static bool compare(session *s, const kvp_call *call, kvp_outcome *seen, kvp_outcome *foretold)
{
    kvp_status status = kvp_oplog_call_run(s->cache, call, seen);
    const char *difference;

    s->n_made += is_recorded(call);
    if (status != KVP_OK) {
        sign(s, 0, "run");
        snprintf(s->why, sizeof s->why, "kvp_oplog_call_run gave %s", kvp_status_name(status));
        return false;
    }
    oracle_run(s->o, call, foretold);
    oracle_learn(s->o, call, seen, foretold);
    difference = outcome_difference(call, s->o->config.n_groups, seen, foretold);
    if (difference) {
        sign(s, call->op, difference);
        snprintf(s->why, sizeof s->why, "they differ in: %s", difference);
        return false;
    }
    return true;
}

/* "A byte copy of the arena is a cache of its own in the same state": go on with a copy, and make
 * the old one unusable. */
static bool move(session *s)
{
    void *copy = aligned_alloc(64, s->arena_bytes);

    if (!copy)
        return false;
    memcpy(copy, s->arena, s->arena_bytes);
    memset(s->arena, 0xee, s->arena_bytes);
    free(s->arena);
    s->arena = copy;
    s->cache = copy;
    return true;
}

bool session_step(session *s, const kvp_call *call)
{
    s->n_calls++;
    if (s->options.move_every && s->arena && !s->recording &&
        s->n_calls % s->options.move_every == 0 && !move(s))
        return false;
    if (!compare(s, call, &s->seen, &s->foretold) || !check(s) || !follow(s))
        return false;
    if (!s->options.audit_every || s->n_calls % s->options.audit_every)
        return true;
    return session_audit(s);
}

/* One reading call of the audit; when it differs, `why` says which one. */
static bool audit_call(session *s, kvp_call *call)
{
    char text[160];

    if (compare(s, call, &s->audit_seen, &s->audit_foretold))
        return true;
    s->in_audit = true;
    snprintf(text, sizeof text, "%.150s", s->why);
    snprintf(s->why, sizeof s->why,
             "audit, %s (handle %" PRIx64 ", group %" PRIu32 ", tier %" PRIu32 ", block %" PRId32
             "): %.110s",
             kvp_oplog_call_name(call->op), call->handle, call->group, call->tier, call->block,
             text);
    s->audit_call = *call;
    return false;
}

static bool audit_seq(session *s, const oracle_seq *seq)
{
    static const uint32_t ops[] = {KVP_CALL_SEQ_INFO, KVP_CALL_TREE, KVP_CALL_SEQ_TOKENS,
                                   KVP_CALL_STATE_GET};
    static const uint32_t group_ops[] = {KVP_CALL_ROW, KVP_CALL_WINDOW_GET};
    kvp_call call = {.with_tokens = 1, .with_parents = 1};

    call.handle = seq->handle;
    for (uint32_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        call.op = ops[i];
        call.count = ops[i] == KVP_CALL_SEQ_TOKENS ? oracle_kept_tokens(s->o, seq) : seq->n_tree;
        if (!audit_call(s, &call))
            return false;
    }
    for (uint32_t i = 0; i < 2 * s->o->config.n_groups; i++) {
        call.op = group_ops[i % 2];
        call.group = i / 2;
        if (!audit_call(s, &call))
            return false;
    }
    return true;
}

static bool audit_blocks(session *s, uint32_t tier)
{
    kvp_call call = {.tier = tier};

    for (uint32_t b = 0; b < s->o->pools[tier].n; b++) {
        call.block = (int32_t)b;
        call.op = KVP_CALL_BLOCK_INFO;
        if (!audit_call(s, &call))
            return false;
        call.op = KVP_CALL_BLOCK_ORIGIN;
        if (!audit_call(s, &call))
            return false;
    }
    call.op = KVP_CALL_COLD_END;
    call.block = 0;
    call.count = UINT32_MAX;
    return audit_call(s, &call);
}

static bool audit_slots(session *s)
{
    kvp_call call = {.op = KVP_CALL_BLOCK_INFO, .group = s->o->config.n_groups};

    for (call.tier = KVP_DEVICE; call.tier <= KVP_HOST; call.tier++) {
        uint32_t n = call.tier ? s->o->config.host_state_slots : s->o->config.state_slots;

        for (uint32_t slot = 0; slot < n; slot++) {
            call.block = (int32_t)slot;
            if (!audit_call(s, &call))
                return false;
        }
    }
    return true;
}

static bool audit_spaces(session *s)
{
    kvp_call call = {.op = KVP_CALL_NS_INFO};

    for (uint32_t i = 0; i < s->o->config.max_namespaces; i++) {
        call.handle = s->o->namespaces[i].handle;
        if (s->o->namespaces[i].open && !audit_call(s, &call))
            return false;
    }
    return true;
}

/* Two results of one read, and their bytes. */
static bool same_read(session *s, const char *what, kvp_status a, kvp_status b, const void *seen,
                      const void *foretold, size_t n_bytes)
{
    if (a == b && (a != KVP_OK || memcmp(seen, foretold, n_bytes) == 0))
        return true;
    sign(s, 0, what);
    snprintf(s->why, sizeof s->why, "after the call, %s: %s, foretold was %s", what,
             kvp_status_name(a), kvp_status_name(b));
    return false;
}

/* What the policy learned. These calls are in no log. */
static bool audit_policy(session *s)
{
    kvp_policy_info info, wanted;
    kvp_policy_class table, wanted_table;

    if (!same_read(s, "kvp_policy_info_get", kvp_policy_info_get(s->cache, &info),
                   oracle_learned_info(s->o, &wanted), &info, &wanted, sizeof info))
        return false;
    for (uint32_t c = 0; c <= KVP_POLICY_CLASSES; c++)
        if (!same_read(s, "kvp_policy_class_get", kvp_policy_class_get(s->cache, c, &table),
                       oracle_learned_class(s->o, c, &wanted_table), &table, &wanted_table,
                       sizeof table))
            return false;
    return true;
}

bool session_audit(session *s)
{
    static const uint32_t ops[] = {KVP_CALL_STATS, KVP_CALL_EVICTED, KVP_CALL_SHORTAGE,
                                   KVP_CALL_STATE_STATS};
    kvp_call call = {0};

    for (uint32_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        call.op = ops[i];
        if (!audit_call(s, &call))
            return false;
    }
    if (!audit_blocks(s, KVP_DEVICE) || !audit_blocks(s, KVP_HOST) || !audit_spaces(s) ||
        !audit_slots(s) || !audit_policy(s))
        return false;
    for (uint32_t i = 0; i < s->o->config.max_seqs; i++)
        if (s->o->seqs[i].open && !audit_seq(s, &s->o->seqs[i]))
            return false;
    return true;
}

/* Records in the log: one for every call that was made while it ran. */
static kvp_status count_records(kvp_oplog *log, uint64_t wanted)
{
    uint64_t n = 0;
    kvp_record record;
    kvp_status status;
    int end = 0;

    while ((status = kvp_oplog_next(log, &record, &end)) == KVP_OK && !end)
        n++;
    kvp_oplog_rewind(log);
    return status != KVP_OK ? status : n == wanted ? KVP_OK : KVP_E_MISMATCH;
}

bool session_replay_log(session *s)
{
    kvp_oplog *log = NULL;
    uint64_t index = 0;
    kvp_status status = kvp_cache_record_stop(s->cache);

    s->recording = false;
    if (status == KVP_OK)
        status = kvp_oplog_open(s->log, s->log_bytes, &log);
    if (status == KVP_OK)
        status = count_records(log, s->n_made + s->v->n_made);
    if (status == KVP_OK)
        status = kvp_oplog_replay(log, 0, &index);
    kvp_oplog_close(log);
    if (status != KVP_OK)
        snprintf(s->why, sizeof s->why,
                 "replaying the log of %" PRIu64 " calls: %s at record %" PRIu64,
                 s->n_made + s->v->n_made, kvp_status_name(status), index);
    return status == KVP_OK;
}

void session_explain(FILE *file, const session *s, const kvp_call *call)
{
    fprintf(file, "  %s\n  call:   ", s->why);
    call_print(file, s->in_audit ? &s->audit_call : call);
    fprintf(file, "\n  cache:  ");
    outcome_print(file, s->in_audit ? &s->audit_call : call, s->o->config.n_groups,
                  s->in_audit ? &s->audit_seen : &s->seen);
    fprintf(file, "\n  oracle: ");
    outcome_print(file, s->in_audit ? &s->audit_call : call, s->o->config.n_groups,
                  s->in_audit ? &s->audit_foretold : &s->foretold);
    fprintf(file, "\n");
}
