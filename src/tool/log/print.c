/* Owns how a call looks to a person: one line, in the manner of strace.
 *
 *     seq_extend(seq=0x100001, tokens=[5 6 7], reserve=2) = KVP_OK
 *
 * Arguments that are zero or were not given are left out where that is what most calls have. Long
 * arrays show their first entries and their number.
 */
#include <inttypes.h>

#include "tool/log/trace.h"

#define SHOWN 8u

/* ---------------------------------------------------------------------------- arguments, arrays */

static void print_separator(FILE *out, int *first)
{
    if (!*first)
        fputs(", ", out);
    *first = 0;
}

/* A number that is usually 0. */
static void print_number(FILE *out, int *first, const char *name, uint64_t value)
{
    if (value == 0)
        return;
    print_separator(out, first);
    fprintf(out, "%s=%" PRIu64, name, value);
}

static void print_position(FILE *out, int *first, const char *name, uint32_t value)
{
    print_separator(out, first);
    if (value == KVP_END)
        fprintf(out, "%s=END", name);
    else
        fprintf(out, "%s=%" PRIu32, name, value);
}

static void print_handle(FILE *out, int *first, const char *name, uint64_t bits)
{
    print_separator(out, first);
    fprintf(out, "%s=0x%" PRIx64, name, bits);
}

static void print_flag(FILE *out, int *first, const char *name)
{
    print_separator(out, first);
    fputs(name, out);
}

static void end_array(FILE *out, uint32_t n)
{
    if (n > SHOWN)
        fprintf(out, " ...](%" PRIu32 ")", n);
    else
        fputc(']', out);
}

static void print_values(FILE *out, int *first, const char *name, const int32_t *values, uint32_t n)
{
    if (values == NULL)
        return;
    print_separator(out, first);
    fprintf(out, "%s=[", name);
    for (uint32_t i = 0; i < n && i < SHOWN; i++)
        fprintf(out, "%s%" PRId32, i > 0 ? " " : "", values[i]);
    end_array(out, n);
}

/* Token values; or their number, when they are not given. */
static void print_tokens(FILE *out, int *first, const kvp_call *call)
{
    if (call->tokens != NULL) {
        print_values(out, first, "tokens", call->tokens, call->n_tokens);
    } else if (call->n_tokens != 0) {
        print_separator(out, first);
        fprintf(out, "n_tokens=%" PRIu32, call->n_tokens);
    }
}

/* A number that tells something when it is 0, too. */
static void print_u64(FILE *out, int *first, const char *name, uint64_t value)
{
    print_separator(out, first);
    fprintf(out, "%s=%" PRIu64, name, value);
}

static const char *tier_name(uint32_t tier)
{
    return tier == KVP_DEVICE             ? "device"
           : tier == KVP_HOST             ? "host"
           : tier == KVP_STATE_SLOTS      ? "state_slots"
           : tier == KVP_HOST_STATE_SLOTS ? "host_state_slots"
                                          : "?";
}

static void print_counts(FILE *out, int *first, const char *name, const kvp_call *call)
{
    if (call->counts == NULL)
        return;
    print_separator(out, first);
    fprintf(out, "%s=[", name);
    for (uint32_t i = 0; i < call->n_seqs && i < SHOWN; i++)
        fprintf(out, "%s%" PRIu32, i > 0 ? " " : "", call->counts[i]);
    end_array(out, call->n_seqs);
}

static void print_handles(FILE *out, int *first, const uint64_t *handles, uint32_t n)
{
    print_separator(out, first);
    fputs("seqs=[", out);
    for (uint32_t i = 0; i < n && i < SHOWN; i++)
        fprintf(out, "%s0x%" PRIx64, i > 0 ? " " : "", handles[i]);
    end_array(out, n);
}

static void print_keys(FILE *out, int *first, const kvp_call *call)
{
    if (call->keys == NULL)
        return;
    print_separator(out, first);
    fputs("keys=[", out);
    for (uint32_t i = 0; i < call->n_keys && i < SHOWN; i++) {
        const kvp_key *key = &call->keys[i];
        fprintf(out, "%stype %" PRIu32 " at %" PRIu32 "..%" PRIu32 " ", i > 0 ? "; " : "",
                key->type, key->begin, key->end);
        for (uint32_t j = 0; j < key->n_bytes && j < SHOWN; j++)
            fprintf(out, "%02x", ((const uint8_t *)key->bytes)[j]);
        fprintf(out, "(%" PRIu32 " B)", key->n_bytes);
    }
    end_array(out, call->n_keys);
}

static void print_range(FILE *out, int *first, const char *name, kvp_range range)
{
    print_separator(out, first);
    fprintf(out, "%s=%" PRIu32 "..%" PRIu32, name, range.begin, range.end);
}

static void print_ranges(FILE *out, int *first, const kvp_call *call)
{
    for (uint32_t i = 0; i < call->n_ranges && i < SHOWN; i++)
        print_range(out, first, "uncached", call->ranges[i]);
    if (call->n_ranges > SHOWN)
        print_number(out, first, "n_uncached", call->n_ranges);
}

static void print_name(FILE *out, int *first, const kvp_call *call)
{
    print_separator(out, first);
    fputs("name=\"", out);
    for (uint32_t i = 0; i < call->name_bytes && i < 64; i++) {
        uint8_t byte = call->name[i];
        if (byte >= 0x20 && byte < 0x7f && byte != '"' && byte != '\\')
            fputc(byte, out);
        else
            fprintf(out, "\\x%02x", byte);
    }
    fputc('"', out);
    if (call->name_bytes > 64)
        fprintf(out, "...(%" PRIu32 " B)", call->name_bytes);
}

static void print_prompt(FILE *out, int *first, const kvp_call *call)
{
    print_handle(out, first, "ns", call->handle);
    print_tokens(out, first, call);
    print_number(out, first, "reserve", call->reserve_tokens);
    print_number(out, first, "n_hashes", call->n_hashes);
    print_keys(out, first, call);
    print_ranges(out, first, call);
    if ((call->flags & KVP_OPEN_NO_MATCH) != 0)
        print_flag(out, first, "NO_MATCH");
    if ((call->flags & KVP_OPEN_DEVICE_ONLY) != 0)
        print_flag(out, first, "DEVICE_ONLY");
    if ((call->flags & KVP_OPEN_RECEIVE) != 0)
        print_flag(out, first, "RECEIVE");
    print_number(out, first, "flags",
                 call->flags &
                     ~(uint32_t)(KVP_OPEN_NO_MATCH | KVP_OPEN_DEVICE_ONLY | KVP_OPEN_RECEIVE));
    print_number(out, first, "retention", call->retention);
    print_number(out, first, "tag", call->tag);
}

static void print_batch(FILE *out, int *first, const kvp_call *call)
{
    print_handles(out, first, call->handles, call->n_seqs);
    print_counts(out, first, "counts", call);
    print_tokens(out, first, call);
    print_values(out, first, "parents", call->parents, call->n_tokens);
    print_number(out, first, "reserve", call->reserve_tokens);
    print_keys(out, first, call);
    if ((call->flags & KVP_BATCH_EACH) != 0)
        print_flag(out, first, "EACH");
    print_number(out, first, "flags", call->flags & ~(uint32_t)KVP_BATCH_EACH);
}

static void print_window(FILE *out, int *first, kvp_window window)
{
    print_separator(out, first);
    if (window.sink_tokens == 0 && window.recent_tokens == 0)
        fputs("window=full", out);
    else if (window.sink_tokens == KVP_CHUNKED)
        fprintf(out, "window=chunks of %" PRIu32, window.recent_tokens);
    else
        fprintf(out, "window=%" PRIu32 "+%" PRIu32, window.sink_tokens, window.recent_tokens);
}

static void print_report(FILE *out, int *first, const kvp_call *call)
{
    print_number(out, first, "capacity", call->count);
    if (call->no_report != 0)
        print_flag(out, first, "no report");
}

/* Calls on a sequence, after its handle. */
static void print_seq_arguments(FILE *out, int *first, const kvp_call *call)
{
    switch (call->op) {
    case KVP_CALL_EXTEND:
    case KVP_CALL_FILL:
        print_tokens(out, first, call);
        print_number(out, first, "reserve", call->reserve_tokens);
        break;
    case KVP_CALL_COMMIT:
    case KVP_CALL_PROMPT_END:
    case KVP_CALL_TRUNCATE: print_position(out, first, "n_tokens", call->position); break;
    case KVP_CALL_INVALIDATE:
        print_position(out, first, "from", call->position);
        print_report(out, first, call);
        break;
    case KVP_CALL_FORK:
        print_position(out, first, "at", call->position);
        print_number(out, first, "tag", call->tag);
        break;
    case KVP_CALL_SEQ_TOKENS:
    case KVP_CALL_SLOTS:
        print_number(out, first, "group", call->group);
        print_position(out, first, "from", call->position);
        print_position(out, first, "n_tokens", call->count);
        break;
    case KVP_CALL_SEQ_BLOCK_TOKENS: print_position(out, first, "block_idx", call->position); break;
    case KVP_CALL_ROW:
    case KVP_CALL_WINDOW_GET: print_number(out, first, "group", call->group); break;
    case KVP_CALL_WINDOW:
        print_number(out, first, "group", call->group);
        print_window(out, first, call->window);
        break;
    case KVP_CALL_TREE:
        print_position(out, first, "capacity", call->count);
        if (call->with_tokens != 0)
            print_flag(out, first, "tokens");
        if (call->with_parents != 0)
            print_flag(out, first, "parents");
        break;
    case KVP_CALL_RETAIN:
        print_range(out, first, "range", call->range);
        print_position(out, first, "class", call->retention);
        break;
    case KVP_CALL_UNCACHE: print_range(out, first, "range", call->range); break;
    default: break;
    }
}

static void print_tier(FILE *out, int *first, uint32_t tier)
{
    if (tier > KVP_HOST)
        print_number(out, first, "tier", tier);
    else if (tier != KVP_DEVICE)
        print_flag(out, first, tier_name(tier));
}

static void print_block(FILE *out, int *first, const kvp_call *call)
{
    print_number(out, first, "group", call->group);
    print_tier(out, first, call->tier);
    print_separator(out, first);
    fprintf(out, "block=%" PRId32, call->block);
}

/* Calls about tiers, steps and events. */
static void print_tier_arguments(FILE *out, int *first, const kvp_call *call)
{
    switch (call->op) {
    case KVP_CALL_SWAP_OUT:
    case KVP_CALL_SWAP_IN:
    case KVP_CALL_CAN_SWAP_OUT:
    case KVP_CALL_CAN_SWAP_IN:
        print_handles(out, first, call->handles, call->n_seqs);
        print_number(out, first, "reserve", call->reserve_tokens);
        break;
    case KVP_CALL_STEP_COMMIT:
        print_u64(out, first, "step", call->number);
        print_handles(out, first, call->handles, call->n_seqs);
        print_counts(out, first, "n_tokens", call);
        break;
    case KVP_CALL_STEP_DONE: print_u64(out, first, "step", call->number); break;
    case KVP_CALL_STEP_FAILED:
        print_u64(out, first, "step", call->number);
        print_report(out, first, call);
        break;
    default:
        print_position(out, first, "capacity", call->count);
        if (call->with_tokens != 0)
            print_flag(out, first, "tokens");
        break;
    }
}

/* What is whole of a load, as ones and zeros. */
static void print_whole(FILE *out, int *first, const kvp_call *call)
{
    print_separator(out, first);
    fputs("whole=[", out);
    for (uint32_t i = 0; i < call->name_bytes && i < SHOWN; i++)
        fprintf(out, "%s%u", i > 0 ? " " : "", (unsigned)call->name[i]);
    end_array(out, call->name_bytes);
}

/* Calls that name blocks, or loads. */
static void print_block_arguments(FILE *out, int *first, const kvp_call *call)
{
    switch (call->op) {
    case KVP_CALL_PLAN_DONE: print_u64(out, first, "n_plans", call->number); break;
    case KVP_CALL_LOAD_BEGIN:
        print_prompt(out, first, call);
        print_number(out, first, "group", call->group);
        print_range(out, first, "entries", call->range);
        print_number(out, first, "spare", call->count);
        break;
    case KVP_CALL_LOAD_DONE:
        print_u64(out, first, "load", call->number);
        print_whole(out, first, call);
        break;
    case KVP_CALL_LOAD_CANCEL: print_u64(out, first, "load", call->number); break;
    case KVP_CALL_RECLAIM: print_position(out, first, "n_blocks", call->count); break;
    default:
        print_tier(out, first, call->tier);
        print_values(out, first, "blocks", call->tokens, call->n_tokens);
        print_number(out, first, "spare", call->count);
        break;
    }
}

void kvpi_trace_print_call(FILE *out, const kvp_call *call)
{
    int first = 1;
    fprintf(out, "%s(", kvp_call_name(call->op));
    switch (call->op) {
    case KVP_CALL_NS_OPEN: print_name(out, &first, call); break;
    case KVP_CALL_NS_CLOSE:
    case KVP_CALL_NS_FLUSH:
    case KVP_CALL_NS_INFO: print_handle(out, &first, "ns", call->handle); break;
    case KVP_CALL_NS_QUOTA:
        print_handle(out, &first, "ns", call->handle);
        print_tier(out, &first, call->tier);
        print_position(out, &first, "n_blocks", call->count);
        break;
    case KVP_CALL_MATCH:
    case KVP_CALL_OPEN:
    case KVP_CALL_CAN_OPEN: print_prompt(out, &first, call); break;
    case KVP_CALL_EXTEND_MANY:
    case KVP_CALL_FILL_MANY:
    case KVP_CALL_CAN_EXTEND:
    case KVP_CALL_EXTEND_TREE: print_batch(out, &first, call); break;
    case KVP_CALL_ACCEPT:
        print_handles(out, &first, call->handles, call->n_seqs);
        print_values(out, &first, "leaves", call->leaves, call->n_seqs);
        print_position(out, &first, "max_moves", call->count);
        break;
    case KVP_CALL_COMMIT_MANY:
        print_handles(out, &first, call->handles, call->n_seqs);
        print_counts(out, &first, "n_tokens", call);
        break;
    case KVP_CALL_PLAN_TAKE:
    case KVP_CALL_STEP_BEGIN: print_position(out, &first, "capacity", call->count); break;
    case KVP_CALL_BLOCK_INFO:
    case KVP_CALL_BLOCK_TOKENS: print_block(out, &first, call); break;
    case KVP_CALL_SWAP_OUT:
    case KVP_CALL_SWAP_IN:
    case KVP_CALL_CAN_SWAP_OUT:
    case KVP_CALL_CAN_SWAP_IN:
    case KVP_CALL_STEP_COMMIT:
    case KVP_CALL_STEP_DONE:
    case KVP_CALL_STEP_FAILED:
    case KVP_CALL_EVENTS_SNAPSHOT: print_tier_arguments(out, &first, call); break;
    case KVP_CALL_PLAN_DONE:
    case KVP_CALL_MIRROR:
    case KVP_CALL_BLOCKS_LEND:
    case KVP_CALL_BLOCKS_RETURN:
    case KVP_CALL_LOAD_BEGIN:
    case KVP_CALL_LOAD_DONE:
    case KVP_CALL_LOAD_CANCEL:
    case KVP_CALL_DROP:
    case KVP_CALL_RECLAIM: print_block_arguments(out, &first, call); break;
    case KVP_CALL_CHECK:
        print_separator(out, &first);
        fprintf(out, "level=%" PRId32, (int32_t)call->position);
        break;
    case KVP_CALL_EVICTED:
    case KVP_CALL_STATS:
    case KVP_CALL_SHORTAGE:
    case KVP_CALL_RESET:
    case KVP_CALL_CONFIG: break;
    default:
        print_handle(out, &first, "seq", call->handle);
        print_seq_arguments(out, &first, call);
        break;
    }
    fputc(')', out);
}

/* -------------------------------------------------------------------------------------- results */

/* Name and value of each field that a struct result has. */
struct field {
    const char *name;
    uint64_t value;
};

static void print_fields(FILE *out, const struct field *fields, size_t n)
{
    for (size_t i = 0; i < n; i++)
        fprintf(out, " %s=%" PRIu64, fields[i].name, fields[i].value);
}

#define PRINT_FIELDS(out, ...)                                                                     \
    print_fields(out, (const struct field[]){__VA_ARGS__},                                         \
                 sizeof((const struct field[]){__VA_ARGS__}) / sizeof(struct field))

static void print_open_info(FILE *out, const kvp_open_info *info)
{
    PRINT_FIELDS(out, {"cached_tokens", info->cached_tokens}, {"hit_tokens", info->hit_tokens},
                 {"stop", info->stop}, {"host_tokens", info->host_tokens},
                 {"shared_blocks", info->shared_blocks}, {"host_blocks", info->host_blocks},
                 {"cached_blocks", info->cached_blocks}, {"copied_tokens", info->copied_tokens},
                 {"taken_blocks", info->taken_blocks}, {"evicted_blocks", info->evicted_blocks});
    if (info->stop == KVP_STOP_NO_KV)
        PRINT_FIELDS(out, {"stop_group", info->stop_group});
}

static void print_block_info(FILE *out, const kvp_block_info *info)
{
    PRINT_FIELDS(out, {"state", info->state}, {"ref_count", info->ref_count},
                 {"generation", info->generation}, {"retention", info->retention},
                 {"sealed_units", info->sealed_units}, {"sealed_tokens", info->sealed_tokens},
                 {"group", info->group});
    fputs(" hash=", out);
    for (size_t i = 0; i < sizeof info->hash.bytes; i++)
        fprintf(out, "%02x", info->hash.bytes[i]);
}

static void print_shortage(FILE *out, const kvp_shortage *shortage)
{
    fprintf(out, " status=%s", kvp_status_name((kvp_status)shortage->status));
    PRINT_FIELDS(out, {"index", shortage->index}, {"missing_blocks", shortage->missing_blocks});
    fprintf(out, " tier=%s", tier_name(shortage->tier));
}

static void print_swapped(FILE *out, const kvp_swapped *swapped)
{
    PRINT_FIELDS(out, {"copied_blocks", swapped->copied_blocks},
                 {"found_blocks", swapped->found_blocks},
                 {"freed_blocks", swapped->released.freed_blocks},
                 {"cached_blocks", swapped->released.cached_blocks});
}

static void print_window_info(FILE *out, const kvp_window_info *info)
{
    int first = 1;
    fputc(' ', out);
    print_window(out, &first, info->window);
    fprintf(out, " dropped=%" PRIu32 "..%" PRIu32, info->dropped_begin, info->dropped_end);
}

static void print_violation(FILE *out, const kvp_violation *violation)
{
    fprintf(out, " invariant=%.8s object=%" PRIu64, violation->invariant, violation->object);
}

static void print_statuses(FILE *out, const struct kvpi_oplog_results *results)
{
    fputs(" statuses=[", out);
    for (uint32_t i = 0; i < results->outcome.n && i < SHOWN; i++)
        fprintf(out, "%s%d", i > 0 ? " " : "", -(int)results->statuses[i]);
    end_array(out, results->outcome.n);
}

static void print_struct(FILE *out, const kvp_call *call, const kvp_outcome *o)
{
    switch (call->op) {
    case KVP_CALL_OPEN:
    case KVP_CALL_MATCH: print_open_info(out, &o->u.open); break;
    case KVP_CALL_TRUNCATE:
    case KVP_CALL_CLOSE:
    case KVP_CALL_WINDOW:
        PRINT_FIELDS(out, {"freed_blocks", o->u.released.freed_blocks},
                     {"cached_blocks", o->u.released.cached_blocks});
        break;
    case KVP_CALL_SWAP_OUT:
    case KVP_CALL_SWAP_IN: print_swapped(out, &o->u.swapped); break;
    case KVP_CALL_CAN_OPEN:
    case KVP_CALL_CAN_EXTEND:
    case KVP_CALL_CAN_SWAP_OUT:
    case KVP_CALL_CAN_SWAP_IN:
        PRINT_FIELDS(out, {"verdict", o->u.admission.verdict},
                     {"need_blocks", o->u.admission.need_blocks},
                     {"available", o->u.admission.available},
                     {"missing_blocks", o->u.admission.missing_blocks},
                     {"copied_blocks", o->u.admission.copied_blocks});
        break;
    case KVP_CALL_BLOCK_INFO: print_block_info(out, &o->u.block); break;
    case KVP_CALL_SHORTAGE: print_shortage(out, &o->u.shortage); break;
    case KVP_CALL_WINDOW_GET: print_window_info(out, &o->u.window); break;
    case KVP_CALL_NS_INFO:
        PRINT_FIELDS(out, {"openers", o->u.ns.openers}, {"quota", o->u.ns.quota},
                     {"blocks", o->u.ns.blocks}, {"cached_blocks", o->u.ns.cached_blocks},
                     {"host_quota", o->u.ns.host_quota}, {"host_blocks", o->u.ns.host_blocks},
                     {"host_cached_blocks", o->u.ns.host_cached_blocks});
        break;
    case KVP_CALL_MIRROR:
        PRINT_FIELDS(out, {"copied", o->u.mirrored.copied}, {"found", o->u.mirrored.found},
                     {"left_out", o->u.mirrored.left_out});
        break;
    case KVP_CALL_LOAD_BEGIN:
        PRINT_FIELDS(out, {"after", o->u.load.after}, {"n_blocks", o->u.load.n_blocks},
                     {"n_found", o->u.load.n_found}, {"n_elsewhere", o->u.load.n_elsewhere});
        break;
    case KVP_CALL_LOAD_DONE:
        PRINT_FIELDS(out, {"cached", o->u.loaded.cached}, {"dropped", o->u.loaded.dropped},
                     {"failed", o->u.loaded.failed});
        break;
    case KVP_CALL_DROP: PRINT_FIELDS(out, {"n_dropped", o->n}); break;
    case KVP_CALL_RECLAIM: PRINT_FIELDS(out, {"n_reclaimed", o->n}); break;
    case KVP_CALL_CHECKPOINT: PRINT_FIELDS(out, {"outcome", o->n}); break;
    default: break;
    }
}

/* Of calls whose array did not fit, or was not asked for: its length. */
static int tells_how_many(const kvp_call *call, kvp_status status)
{
    if (status != KVP_E_TOO_SMALL && (status != KVP_OK || call->count > 0))
        return 0;
    return call->op == KVP_CALL_PLAN_TAKE || call->op == KVP_CALL_STEP_BEGIN ||
           call->op == KVP_CALL_EVENTS_SNAPSHOT || call->op == KVP_CALL_ACCEPT ||
           call->op == KVP_CALL_TREE ||
           ((call->op == KVP_CALL_INVALIDATE || call->op == KVP_CALL_STEP_FAILED) &&
            call->no_report == 0);
}

static void print_arrays(FILE *out, const kvp_call *call, const struct kvpi_oplog_results *results)
{
    const kvp_outcome *o = &results->outcome;
    int first = 1;
    if (results->statuses != NULL) {
        print_statuses(out, results);
    } else if (results->has_array) {
        fprintf(out, " n=%" PRIu32, o->n);
        if (results->has_digest)
            fprintf(out, " digest=%016" PRIx64, results->digest);
    } else if (o->u64 != NULL) {
        fputc(' ', out);
        print_handles(out, &first, o->u64, o->n);
    } else if (tells_how_many(call, o->status)) {
        fprintf(out, " n=%" PRIu32, o->n);
    }
    if (results->has_tokens)
        fprintf(out, " n_tokens=%" PRIu64, results->n_tokens);
    if (results->has_tokens && results->n_tokens > 0)
        fprintf(out, " token_digest=%016" PRIx64, results->token_digest);
}

/* What the call made, or how far it got: short, and what other calls refer to. */
static void print_made(FILE *out, const kvp_call *call, const kvp_outcome *o)
{
    switch (call->op) {
    case KVP_CALL_NS_OPEN: fprintf(out, " ns=0x%" PRIx64, o->handle); break;
    case KVP_CALL_OPEN:
    case KVP_CALL_FORK: fprintf(out, " seq=0x%" PRIx64, o->handle); break;
    case KVP_CALL_STEP_BEGIN:
        if (call->count > 0)
            fprintf(out, " step=%" PRIu64, o->number);
        break;
    case KVP_CALL_STEP_DONE: fprintf(out, " effective=%" PRIu64, o->number); break;
    case KVP_CALL_LOAD_BEGIN: fprintf(out, " load=%" PRIu64, o->u.load.number); break;
    case KVP_CALL_EVENTS_SNAPSHOT: fprintf(out, " number=%" PRIu64, o->number); break;
    default: break;
    }
}

void kvpi_trace_print_results(FILE *out, const kvp_call *call,
                              const struct kvpi_oplog_results *results, int all)
{
    const kvp_outcome *o = &results->outcome;
    fprintf(out, "= %s", kvp_status_name(o->status));
    if (o->status == KVP_OK ||
        (o->status == KVP_E_TOO_SMALL && call->op == KVP_CALL_EVENTS_SNAPSHOT))
        print_made(out, call, o);
    if (o->status == KVP_E_CORRUPT && call->op == KVP_CALL_CHECK)
        print_violation(out, &o->u.violation);
    if (!all)
        return;
    if (o->status == KVP_OK)
        print_struct(out, call, o);
    print_arrays(out, call, results);
    if (results->has_decisions)
        fprintf(out, " decisions=%08" PRIx32, results->decisions);
}

/* Anything but the one group that attends to all. */
static int has_windows(const kvp_config *config)
{
    return config->n_groups > 1 || config->groups[0].recent_tokens != 0;
}

void kvpi_trace_print_config(FILE *out, const kvp_config *config)
{
    fprintf(out,
            "block_tokens=%" PRIu32 " unit_tokens=%" PRIu32 " n_blocks=%" PRIu32
            " max_seqs=%" PRIu32 " max_seq_tokens=%" PRIu32 " max_namespaces=%" PRIu32
            " n_nodes=%" PRIu32 " max_unit_keys=%" PRIu32 " max_copies=%" PRIu32,
            config->block_tokens, config->unit_tokens, config->n_blocks, config->max_seqs,
            config->max_seq_tokens, config->max_namespaces, config->n_nodes, config->max_unit_keys,
            config->max_copies);
    fprintf(out,
            " commit_policy=%s full_hit=%s prefix_cache=%" PRIu32 " watermark=%g"
            " hash_seed=%" PRIu64 " n_uncached_tokens=%" PRIu32,
            config->commit_policy == KVP_KEEP ? "keep" : "adopt",
            config->full_hit == KVP_FULL_HIT_RECOMPUTE ? "recompute" : "share",
            config->prefix_cache, config->watermark, config->hash_seed, config->n_uncached_tokens);
    if (config->test_hash_bits != 0)
        fprintf(out, " test_hash_bits=%" PRIu32, config->test_hash_bits);
    if (config->host_blocks != 0)
        fprintf(out, " host_blocks=%" PRIu32 " keep_evicted=%" PRIu32, config->host_blocks,
                config->keep_evicted);
    if (config->steps == KVP_STEPS_OVERLAPPED)
        fprintf(out, " steps=overlapped max_steps_out=%" PRIu32, config->max_steps_out);
    if (config->max_events != 0)
        fprintf(out, " max_events=%" PRIu32, config->max_events);
    if (config->max_loads != 0)
        fprintf(out, " max_loads=%" PRIu32 " lent_blocks=%" PRIu32, config->max_loads,
                config->lent_blocks);
    if (config->policy == KVP_POLICY_LEARNED)
        fputs(" policy=learned", out);
    if (config->max_tree_tokens != 0)
        fprintf(out, " max_tree_tokens=%" PRIu32, config->max_tree_tokens);
    if (config->state_slots != 0)
        fprintf(out, " state_slots=%" PRIu32, config->state_slots);
    if (config->host_state_slots != 0)
        fprintf(out, " host_state_slots=%" PRIu32, config->host_state_slots);
    if (has_windows(config)) {
        fprintf(out, " n_groups=%" PRIu32, config->n_groups);
        for (uint32_t i = 0; i < config->n_groups; i++) {
            int first = 1;
            fputc(' ', out);
            print_window(out, &first, config->groups[i]);
        }
    }
    fputs(config->quotas != 0 ? " quotas\n" : "\n", out);
}
