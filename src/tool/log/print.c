/* Owns how a call looks to a person: one line, in the manner of strace.
 *
 *     seq_extend(seq=0x100001, tokens=[5 6 7], reserve=2) = KVP_OK
 *
 * Which arguments and results a call has, and their names, is in core/record/calls.def; here is how
 * each kind is written. Arguments that are zero or were not given are left out where that is what
 * most calls have. Long arrays show their first entries and their number.
 */
#include <inttypes.h>
#include <string.h>

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

static void print_group(FILE *out, int *first, const kvp_config *config, uint32_t g)
{
    const kvp_group *group = &config->groups[g];
    print_window(out, first, (kvp_window){group->sink_tokens, group->recent_tokens});
    if (group->block_tokens != 0 && group->block_tokens != config->block_tokens)
        fprintf(out, " in blocks of %" PRIu32, group->block_tokens);
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

/* -------------------------------------------------------------------------- arguments, by kind */

/* The parameter that a value of the table is of: "load->group", "&range"; else the field. */
static const char *name_of(const char *value, const char *field)
{
    const char *arrow = strstr(value, "->");
    if (strchr(value, ' ') != NULL)
        return field;
    return arrow != NULL ? arrow + 2 : value + (value[0] == '&');
}

static void show_u32(FILE *out, int *first, const char *name, uint32_t value)
{
    const bool is_tier = strcmp(name, "tier") == 0;
    if (is_tier && value == KVP_HOST)
        print_flag(out, first, "host");
    else if (is_tier || strcmp(name, "group") == 0 || strcmp(name, "reserve_tokens") == 0)
        print_number(out, first, name, value);
    else
        print_position(out, first, name, value);
}

static void show_u64(FILE *out, int *first, const char *name, uint64_t value)
{
    if (value == 0 && strcmp(name, "tag") == 0)
        return;
    print_separator(out, first);
    fprintf(out, "%s=%" PRIu64, name, value);
}

static void show_i32(FILE *out, int *first, const char *name, int32_t value)
{
    print_separator(out, first);
    fprintf(out, "%s=%" PRId32, name, value);
}

static void show_level(FILE *out, int *first, const char *name, uint32_t value)
{
    show_i32(out, first, name, (int32_t)value);
}

static void show_flag(FILE *out, int *first, const char *name, uint32_t value)
{
    if (value != 0)
        print_flag(out, first, name);
}

static void show_range(FILE *out, int *first, const char *name, kvp_range value)
{
    print_range(out, first, name, value);
}

static void show_window(FILE *out, int *first, const char *name, kvp_window value)
{
    (void)name;
    print_window(out, first, value);
}

static void list_name(FILE *out, int *first, const kvp_call *call)
{
    if (call->op == KVP_CALL_LOAD_DONE)
        print_whole(out, first, call);
    else
        print_name(out, first, call);
}

static void list_values(FILE *out, int *first, const kvp_call *call)
{
    print_tokens(out, first, call);
}

static void list_blocks(FILE *out, int *first, const kvp_call *call)
{
    print_values(out, first, "blocks", call->tokens, call->n_tokens);
}

static void list_seqs(FILE *out, int *first, const kvp_call *call)
{
    print_handles(out, first, call->handles, call->n_seqs);
}

static void list_commits(FILE *out, int *first, const kvp_call *call)
{
    list_seqs(out, first, call);
    print_counts(out, first, "n_tokens", call);
}

static void list_accept(FILE *out, int *first, const kvp_call *call)
{
    list_seqs(out, first, call);
    print_values(out, first, "leaves", call->leaves, call->n_seqs);
    print_position(out, first, "max_moves", call->count);
}

static void list_wanted(FILE *out, int *first, const kvp_call *call)
{
    show_flag(out, first, "with_tokens", call->with_tokens);
    show_flag(out, first, "with_parents", call->with_parents);
}

/* Flags by name, then those that have none. */
static void print_flags(FILE *out, int *first, uint32_t flags, const char *const *names,
                        const uint32_t *bits, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if ((flags & bits[i]) != 0)
            print_flag(out, first, names[i]);
        flags &= ~bits[i];
    }
    print_number(out, first, "flags", flags);
}

static void list_prompt(FILE *out, int *first, const kvp_call *call)
{
    static const char *const names[] = {"NO_MATCH", "DEVICE_ONLY", "RECEIVE"};
    static const uint32_t bits[] = {KVP_OPEN_NO_MATCH, KVP_OPEN_DEVICE_ONLY, KVP_OPEN_RECEIVE};
    print_tokens(out, first, call);
    print_number(out, first, "reserve_tokens", call->reserve_tokens);
    print_number(out, first, "n_hashes", call->n_hashes);
    print_keys(out, first, call);
    print_ranges(out, first, call);
    print_flags(out, first, call->flags, names, bits, sizeof bits / sizeof *bits);
    print_number(out, first, "retention", call->retention);
    print_number(out, first, "tag", call->tag);
}

static void list_batch(FILE *out, int *first, const kvp_call *call)
{
    static const char *const names[] = {"EACH"};
    static const uint32_t bits[] = {KVP_BATCH_EACH};
    list_seqs(out, first, call);
    print_counts(out, first, "counts", call);
    print_tokens(out, first, call);
    print_values(out, first, "parents", call->parents, call->n_tokens);
    print_number(out, first, "reserve_tokens", call->reserve_tokens);
    print_keys(out, first, call);
    print_flags(out, first, call->flags, names, bits, 1);
}

/* The table's lists are statements: NOLINTBEGIN(bugprone-macro-parentheses) */
#define HANDLE(type, value)     print_handle(out, &first, #type, call->handle);
#define ARG(kind, value, field) show_##kind(out, &first, name_of(#value, #field), call->field);
#define ARGS(kind, ...)         list_##kind(out, &first, call);
#define list_tree_batch         list_batch
#define LOG_CALL_BY_HAND(NAME, name, parameters, arguments, results)                               \
    case KVP_CALL_##NAME: arguments break;

void kvpi_trace_print_call(FILE *out, const kvp_call *call)
{
    int first = 1;
    fprintf(out, "%s(", kvp_oplog_call_name(call->op));
    switch (call->op) {
#include "core/record/calls.def"
    default: break;
    }
    fputc(')', out);
}

/* -------------------------------------------------------------------------------------- results */

enum result_type {
#define LOG_STRUCT(type, fields) TYPE_##type,
#include "core/record/calls.def"
    TYPE_u32,
    TYPE_u64
};

/* `name` may be that of a field of a field; the number of a load was printed already. */
static void field_u64(FILE *out, const char *name, uint64_t value)
{
    const char *point = strrchr(name, '.');
    if (strcmp(name, "number") != 0)
        fprintf(out, " %s=%" PRIu64, point != NULL ? point + 1 : name, value);
}

static void field_u32(FILE *out, const char *name, uint32_t value)
{
    if (strcmp(name, "tier") == 0)
        fprintf(out, " tier=%s", tier_name(value));
    else if (value != 0 || strcmp(name, "stop_group") != 0)
        field_u64(out, name, value);
}

static void field_i32(FILE *out, const char *name, int32_t value)
{
    fprintf(out, " %s=%s", name, kvp_status_name((kvp_status)value));
}

static void field_hash(FILE *out, const char *name, kvp_hash value)
{
    fprintf(out, " %s=", name);
    for (size_t i = 0; i < sizeof value.bytes; i++)
        fprintf(out, "%02x", value.bytes[i]);
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

#define FIELD(kind, field) field_##kind(out, #field, value->field);
#define LOG_STRUCT(type, fields)                                                                   \
    case TYPE_##type: {                                                                            \
        const kvp_##type *value = result;                                                          \
        fields break;                                                                              \
    }

/* A result; what print_made says of it is said there. */
static void print_result(FILE *out, enum result_type type, const char *name, const void *result)
{
    switch (type) {
#include "core/record/calls.def"
    case TYPE_u32: field_u32(out, name, *(const uint32_t *)result); break;
    case TYPE_u64: break;
    }
}

#define NEW(type, value)
#define OUT(kind, value, field) print_result(out, TYPE_##kind, #value, &o->field);
#define OUTS(kind, ...)
#define ON_OK(...) __VA_ARGS__
#define LOG_CALL_BY_HAND(NAME, name, parameters, arguments, results)                               \
    case KVP_CALL_##NAME: results break;
/* NOLINTEND(bugprone-macro-parentheses) */

/* Of a call that succeeded. */
static void print_struct(FILE *out, const kvp_call *call, const kvp_outcome *o)
{
    switch (call->op) {
#include "core/record/calls.def"
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
    if (config->retain_tokens == KVP_RETAIN_PROMPTS)
        fputs(" retain_tokens=prompts", out);
    else if (config->retain_tokens != 0)
        fprintf(out, " retain_tokens=%" PRIu32, config->retain_tokens);
    if (has_windows(config)) {
        fprintf(out, " n_groups=%" PRIu32, config->n_groups);
        for (uint32_t i = 0; i < config->n_groups; i++) {
            int first = 1;
            fputc(' ', out);
            print_group(out, &first, config, i);
        }
    }
    fputs(config->quotas != 0 ? " quotas\n" : "\n", out);
}
