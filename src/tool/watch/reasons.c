/* See reasons.h. Owns the sums, the worst requests, and the file of lines. */
#include "tool/watch/reasons.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "tool/tool.h"

const char *const kvpi_reason_names[] = {"hit",  "resident", "evicted", "in_flight",
                                         "grid", "new",      "last"};
const char *const kvpi_tier_names[] = {"unknown", "device", "host", "store"};

int kvpi_reasons_begin(kvpi_reasons *why, const char *path)
{
    *why = (kvpi_reasons){.path = path};
    if (path == NULL)
        return TOOL_OK;
    why->file = kvpi_tool_open("replay", path);
    return why->file != NULL ? TOOL_OK : TOOL_FAILED;
}

const char *kvpi_reasons_unit(const kvpi_reasons *why)
{
    return why->in_ms ? "ms" : "requests";
}

uint32_t kvpi_reasons_again(const kvpi_reasons_line *line)
{
    return line->tokens[KVPI_REASON_RESIDENT] + line->tokens[KVPI_REASON_EVICTED] +
           line->tokens[KVPI_REASON_IN_FLIGHT];
}

/* The first of equal ones stays before. */
static void keep_worst(kvpi_reasons *why, const kvpi_reasons_line *line)
{
    const uint32_t again = kvpi_reasons_again(line);
    size_t at = why->n_worst;
    if (again == 0)
        return;
    if (at == KVPI_REASONS_WORST && again <= kvpi_reasons_again(&why->worst[--at]))
        return;
    why->n_worst = at + 1;
    for (; at > 0 && kvpi_reasons_again(&why->worst[at - 1]) < again; at--)
        why->worst[at] = why->worst[at - 1];
    why->worst[at] = *line;
}

/* A name that is not UTF-8 is left out. */
static void write_file(FILE *file, const char *key, const char *name)
{
    json_t *string = json_string(name);
    if (string == NULL)
        return;
    fprintf(file, ", \"%s\": ", key);
    (void)json_dumpf(string, file, JSON_ENCODE_ANY);
    json_decref(string);
}

static void write_line(kvpi_reasons *why, const kvpi_reasons_line *line)
{
    FILE *file = why->file;
    fprintf(file, "{\"line\": %" PRIu64, line->line);
    if (line->of_line > 0)
        fprintf(file, ", \"request\": %" PRIu32, line->of_line);
    fprintf(file, ", \"input_tokens\": %" PRIu32, line->n_tokens);
    write_file(file, "file", line->file);
    for (size_t i = 0; i < KVPI_REASONS; i++)
        fprintf(file, ", \"%s_tokens\": %" PRIu32, kvpi_reason_names[i], line->tokens[i]);
    for (size_t i = KVPI_TIER_HOST; i < KVPI_TIERS; i++)
        if (line->hit_tokens[i] > 0)
            fprintf(file, ", \"hit_%s_tokens\": %" PRIu32, kvpi_tier_names[i], line->hit_tokens[i]);
    if (line->kept_back != NULL)
        fprintf(file, ", \"resident_why\": \"%s\"", line->kept_back);
    if (line->evicted_from != KVPI_TIER_NONE)
        fprintf(file, ", \"evicted_from\": \"%s\"", kvpi_tier_names[line->evicted_from]);
    if (line->has_age)
        fprintf(file, ", \"evicted_ago_%s\": %" PRIu64, kvpi_reasons_unit(why), line->evicted_ago);
    if (line->enough_blocks > 0)
        fprintf(file, ", \"enough_blocks\": %" PRIu64, line->enough_blocks);
    write_file(file, "known_from_file", line->known_line > 0 ? line->known_file : NULL);
    if (line->known_line > 0)
        fprintf(file, ", \"known_from_line\": %" PRIu64, line->known_line);
    if (line->known_line > 0 && line->known_of_line > 0)
        fprintf(file, ", \"known_from_request\": %" PRIu32, line->known_of_line);
    if (why->model != NULL)
        fprintf(file, ", \"again_seconds\": %.6f", line->again_ns / 1e9);
    fputs("}\n", file);
    if (ferror(file) && why->error == 0)
        why->error = errno; /* the replay goes on, and changes it */
}

/* The words are constants: equal ones have one address, or are counted apart. */
static void count_kept_back(kvpi_reasons *why, const kvpi_reasons_line *line)
{
    size_t i = 0;
    if (line->kept_back == NULL)
        return;
    while (i < why->n_kept_back && strcmp(why->kept_back[i], line->kept_back) != 0)
        i++;
    if (i == KVPI_REASONS_KEPT_BACK)
        return; /* there are not so many */
    why->kept_back[i] = line->kept_back;
    why->kept_back_tokens[i] += line->tokens[KVPI_REASON_RESIDENT];
    why->n_kept_back += i == why->n_kept_back;
}

void kvpi_reasons_kept_by(kvpi_reasons *why, uint32_t blocks, uint32_t n_tokens)
{
    if (blocks >= why->n_kept_by) {
        const size_t n = (size_t)blocks + blocks / 4 + 1;
        uint64_t *grown = realloc(why->kept_by, n * sizeof *grown);
        why->is_short = why->is_short || grown == NULL;
        if (grown == NULL)
            return;
        memset(grown + why->n_kept_by, 0, (n - why->n_kept_by) * sizeof *grown);
        why->kept_by = grown;
        why->n_kept_by = n;
    }
    why->kept_by[blocks] += n_tokens;
}

uint64_t kvpi_reasons_enough(const kvpi_reasons *why, double part)
{
    const double wanted = part * (double)why->tokens[KVPI_REASON_EVICTED];
    uint64_t n = 0;
    for (size_t blocks = 0; blocks < why->n_kept_by && wanted > 0 && !why->is_short; blocks++) {
        n += why->kept_by[blocks];
        if ((double)n >= wanted)
            return blocks;
    }
    return 0;
}

void kvpi_reasons_add(kvpi_reasons *why, kvpi_reasons_line *line)
{
    uint32_t begin = 0, first = KVPI_REASONS;
    line->again_ns = 0;
    for (uint32_t i = 0; i < KVPI_REASONS; i++) {
        const uint32_t end = begin + line->tokens[i];
        const double ns = why->model != NULL ? kvpi_step_prefill_ns(why->model, begin, end) : 0;
        why->tokens[i] += line->tokens[i];
        why->prefill_ns[i] += ns;
        if (i == KVPI_REASON_RESIDENT || i == KVPI_REASON_EVICTED || i == KVPI_REASON_IN_FLIGHT)
            line->again_ns += ns;
        first = first == KVPI_REASONS && i > KVPI_REASON_HIT && line->tokens[i] > 0 ? i : first;
        begin = end;
    }
    if (first < KVPI_REASONS)
        why->requests[first]++;
    for (size_t i = 0; i < KVPI_TIERS; i++)
        why->hit_tokens[i] += line->hit_tokens[i];
    why->evicted_tokens[line->evicted_from] += line->tokens[KVPI_REASON_EVICTED];
    count_kept_back(why, line);
    keep_worst(why, line);
    if (why->file != NULL)
        write_line(why, line);
}

int kvpi_reasons_end(kvpi_reasons *why)
{
    free(why->kept_by);
    why->kept_by = NULL;
    why->n_kept_by = 0;
    if (why->file == NULL)
        return TOOL_OK;
    FILE *file = why->file;
    why->file = NULL;
    return kvpi_tool_close("replay", why->path, file, why->error);
}
