/* See script.h. */
#include "script.h"
#include "describe.h"
#include "oracle_parts.h"

#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

static void *copy_of(const void *items, size_t n, size_t size)
{
    void *copy;

    if (!items)
        return NULL;
    copy = oracle_allocate(n, size);
    if (n)
        memcpy(copy, items, n * size);
    return copy;
}

script *script_create(const kvp_config *config)
{
    script *p = oracle_allocate(1, sizeof *p);

    p->config = *config;
    p->uncached_tokens = copy_of(config->uncached_tokens, config->n_uncached_tokens,
                                 sizeof *config->uncached_tokens);
    p->config.uncached_tokens = p->uncached_tokens;
    return p;
}

static void free_call(kvp_call *call)
{
    for (uint32_t i = 0; i < call->n_keys; i++)
        free((void *)(uintptr_t)call->keys[i].bytes);
    free((void *)(uintptr_t)call->tokens);
    free((void *)(uintptr_t)call->hashes);
    free((void *)(uintptr_t)call->keys);
    free((void *)(uintptr_t)call->ranges);
    free((void *)(uintptr_t)call->handles);
    free((void *)(uintptr_t)call->counts);
    free((void *)(uintptr_t)call->leaves);
    free((void *)(uintptr_t)call->parents);
    free((void *)(uintptr_t)call->name);
}

void script_destroy(script *p)
{
    if (!p)
        return;
    for (uint32_t i = 0; i < p->n; i++)
        free_call(&p->calls[i]);
    free(p->calls);
    free(p->opened);
    free(p->keep);
    free(p->uncached_tokens);
    free(p);
}

void script_add(script *p, const kvp_call *call, uint64_t opened)
{
    kvp_key *keys = copy_of(call->keys, call->n_keys, sizeof *call->keys);
    kvp_call *copy;

    p->calls = oracle_grow(p->calls, &p->capacity, p->n + 1u, sizeof *p->calls);
    p->opened = oracle_grow(p->opened, &p->opened_capacity, p->n + 1u, sizeof *p->opened);
    p->keep = oracle_grow(p->keep, &p->keep_capacity, p->n + 1u, sizeof *p->keep);
    for (uint32_t i = 0; i < call->n_keys; i++)
        keys[i].bytes = copy_of(call->keys[i].bytes, call->keys[i].n_bytes, 1);
    copy = &p->calls[p->n];
    *copy = *call;
    copy->tokens = copy_of(call->tokens, call->n_tokens, sizeof *call->tokens);
    copy->hashes = copy_of(call->hashes, call->n_hashes, sizeof *call->hashes);
    copy->keys = keys;
    copy->ranges = copy_of(call->ranges, call->n_ranges, sizeof *call->ranges);
    copy->handles = copy_of(call->handles, call->n_seqs, sizeof *call->handles);
    copy->counts = copy_of(call->counts, call->n_seqs, sizeof *call->counts);
    copy->leaves = copy_of(call->leaves, call->n_seqs, sizeof *call->leaves);
    copy->parents = copy_of(call->parents, call->n_tokens, sizeof *call->parents);
    copy->name = copy_of(call->name, call->name_bytes, 1);
    p->opened[p->n] = opened;
    p->keep[p->n++] = true;
}

uint64_t script_opened(const kvp_call *call, const kvp_outcome *outcome)
{
    if (outcome->status != KVP_OK)
        return 0;
    return call->op == KVP_CALL_STEP_BEGIN ? outcome->number : outcome->handle;
}

/* ----------------------------------------------------------------------------------------- logs */

static uint8_t *read_file(const char *path, size_t *out_n_bytes)
{
    FILE *file = fopen(path, "rb");
    uint8_t *bytes = NULL;
    uint32_t capacity = 0;
    size_t n = 0, got;

    if (!file)
        return NULL;
    do {
        bytes = oracle_grow(bytes, &capacity, n + 65536, 1);
        got = fread(bytes + n, 1, 65536, file);
        n += got;
    } while (got);
    fclose(file);
    *out_n_bytes = n;
    return bytes;
}

/* Run the calls, and tell through the pipe what each has opened. */
static void tell_opened(const script *p, int pipe)
{
    kvp_outcome outcome = {0};
    kvp_cache *cache = NULL;

    if (kvp_cache_create(&p->config, NULL, 0, &cache) != KVP_OK)
        return;
    for (uint32_t i = 0; i < p->n; i++) {
        uint64_t opened = 0;

        if (kvp_oplog_call_run(cache, &p->calls[i], &outcome) == KVP_OK)
            opened = script_opened(&p->calls[i], &outcome);
        if (write(pipe, &opened, sizeof opened) != sizeof opened)
            return;
    }
}

/* A log has no handles that its calls gave: run it once to learn them, in a child, as it may be the
 * log of a crash. */
static void learn_opened(script *p)
{
    int ends[2];
    pid_t child;

    fflush(NULL);
    if (pipe(ends) != 0)
        return;
    child = fork();
    if (child == 0) {
        close(ends[0]);
        if (freopen("/dev/null", "w", stderr)) /* of a crash we know */
            tell_opened(p, ends[1]);
        _exit(0);
    }
    close(ends[1]);
    for (uint32_t i = 0; i < p->n; i++) {
        uint64_t opened;

        if (read(ends[0], &opened, sizeof opened) != sizeof opened)
            break;
        p->opened[i] = opened;
    }
    close(ends[0]);
    if (child > 0)
        waitpid(child, NULL, 0);
}

script *script_load(const char *path)
{
    size_t n_bytes = 0;
    uint8_t *bytes = read_file(path, &n_bytes);
    kvp_oplog *log = NULL;
    kvp_record record;
    kvp_config config;
    script *p = NULL;
    int end = 0;
    kvp_status status = bytes ? kvp_oplog_open(bytes, n_bytes, &log) : KVP_E_IO;

    if (status == KVP_OK) {
        kvp_config_init(&config);
        status = kvp_oplog_config(log, &config);
    }
    if (status == KVP_OK) {
        p = script_create(&config);
        while ((status = kvp_oplog_next(log, &record, &end)) == KVP_OK && !end)
            script_add(p, &record.call, 0);
        learn_opened(p);
    }
    if (status != KVP_OK)
        fprintf(stderr, "kvp_model: %s: %s\n", path, kvp_status_text(status));
    kvp_oplog_close(log);
    free(bytes);
    return p;
}

/* ------------------------------------------------------------------------------------------ run */

/* Names of handles and steps, and what they are in this run. */
typedef struct names {
    uint64_t *name;
    uint64_t *now;
    bool *step;
    uint32_t n;
} names;

static uint64_t translate(const names *list, uint64_t handle)
{
    for (uint32_t i = list->n; i-- > 0;)
        if (!list->step[i] && list->name[i] == handle)
            return list->now[i];
    return handle;
}

static bool names_step(const kvp_call *call)
{
    return call->op == KVP_CALL_STEP_COMMIT || call->op == KVP_CALL_STEP_DONE ||
           call->op == KVP_CALL_STEP_FAILED;
}

/* A step that was not begun in this run is one that nobody will begin. */
static uint64_t translate_step(const script *p, const names *list, uint64_t number)
{
    for (uint32_t i = list->n; i-- > 0;)
        if (list->step[i] && list->name[i] == number)
            return list->now[i];
    for (uint32_t i = 0; i < p->n; i++)
        if (p->calls[i].op == KVP_CALL_STEP_BEGIN && p->opened[i] == number)
            return UINT64_MAX;
    return number;
}

static bool step(const script *p, session *s, names *list, uint32_t i, bool verbose)
{
    kvp_call call = p->calls[i];
    uint64_t *handles = copy_of(call.handles, call.n_seqs, sizeof *handles);
    bool good;

    call.handle = translate(list, call.handle);
    for (uint32_t k = 0; k < call.n_seqs; k++)
        handles[k] = translate(list, handles[k]);
    call.handles = handles;
    if (names_step(&call))
        call.number = translate_step(p, list, call.number);
    good = session_step(s, &call);
    if (p->opened[i] && s->seen.status == KVP_OK) {
        list->name[list->n] = p->opened[i];
        list->step[list->n] = call.op == KVP_CALL_STEP_BEGIN;
        list->now[list->n++] = script_opened(&call, &s->seen);
    }
    if (verbose) {
        printf("%6u  ", i);
        call_print(stdout, &call);
        printf("\n        -> ");
        outcome_print(stdout, &call, p->config.n_groups, &s->seen);
        printf("\n");
    }
    if (verbose && !good)
        session_explain(stdout, s, &call);
    free(handles);
    return good;
}

bool script_run(const script *p, const session_options *options, bool verbose, uint32_t *out_index,
                uint32_t *out_signature)
{
    session *s = session_create(&p->config, options);
    names list = {0};
    bool good = s != NULL;
    uint32_t i = 0;

    list.name = oracle_allocate(p->n, sizeof *list.name);
    list.now = oracle_allocate(p->n, sizeof *list.now);
    list.step = oracle_allocate(p->n, sizeof *list.step);
    for (i = 0; i < p->n && good; i++)
        if (p->keep[i])
            good = step(p, s, &list, i, verbose);
    *out_index = good || !s || s->in_audit ? p->n : i - 1;
    if (good) {
        good = session_audit(s);
        if (verbose && !good)
            session_explain(stdout, s, NULL);
    }
    *out_signature = s ? s->signature : 121;
    free(list.name);
    free(list.now);
    free(list.step);
    session_destroy(s);
    return good;
}

void script_print(FILE *file, const script *p)
{
    for (uint32_t i = 0; i < p->n; i++) {
        if (!p->keep[i])
            continue;
        fprintf(file, "%6u  ", i);
        call_print(file, &p->calls[i]);
        if (p->opened[i])
            fprintf(file, "  => %llx", (unsigned long long)p->opened[i]);
        fprintf(file, "\n");
    }
}
