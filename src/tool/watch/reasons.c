/* See reasons.h. Owns the sums, the worst requests, and the file of lines. */
#include "tool/watch/reasons.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include <kvpager/types.h>

#include "tool/tool.h"

const char *const kvpi_reason_names[] = {"hit",  "resident", "evicted", "in_flight",
                                         "grid", "new",      "last"};

int kvpi_reasons_begin(kvpi_reasons *why, const char *path)
{
    *why = (kvpi_reasons){.unit = "requests", .path = path};
    if (path == NULL)
        return TOOL_OK;
    why->file = fopen(path, "w");
    return why->file != NULL ? TOOL_OK
                             : kvpi_tool_fail("replay", "--why %s: %s", path, strerror(errno));
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

static void write_line(kvpi_reasons *why, const kvpi_reasons_line *line)
{
    FILE *file = why->file;
    fprintf(file, "{\"line\": %" PRIu64 ", \"input_tokens\": %" PRIu32, line->line, line->n_tokens);
    for (size_t i = 0; i < KVPI_REASONS; i++)
        fprintf(file, ", \"%s_tokens\": %" PRIu32, kvpi_reason_names[i], line->tokens[i]);
    if (line->kept_back != NULL)
        fprintf(file, ", \"resident_why\": \"%s\"", line->kept_back);
    if (line->has_age)
        fprintf(file, ", \"evicted_from\": \"%s\", \"evicted_ago_%s\": %" PRIu64,
                line->evicted_from == KVP_HOST ? "host" : "device", why->unit, line->evicted_ago);
    if (line->known_line > 0)
        fprintf(file, ", \"known_from_line\": %" PRIu64, line->known_line);
    if (why->model != NULL)
        fprintf(file, ", \"again_seconds\": %.6f", line->again_ns / 1e9);
    fputs("}\n", file);
    if (ferror(file) && why->error == 0)
        why->error = errno; /* the replay goes on, and changes it */
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
    keep_worst(why, line);
    if (why->file != NULL)
        write_line(why, line);
}

int kvpi_reasons_end(kvpi_reasons *why)
{
    if (why->file == NULL)
        return TOOL_OK;
    if (fclose(why->file) != 0 && why->error == 0)
        why->error = errno;
    why->file = NULL;
    return why->error == 0 ? TOOL_OK
                           : kvpi_tool_fail("replay", "writing --why %s failed: %s", why->path,
                                            strerror(why->error));
}
