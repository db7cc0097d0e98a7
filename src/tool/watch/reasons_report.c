/* See reasons_report.h. Owns the words for each reason. */
#include "tool/watch/reasons_report.h"

#include <inttypes.h>
#include <string.h>

#include <kvpager/types.h>

#include "tool/text.h"

static const struct {
    const char *label;
    const char *meaning;
} words[KVPI_REASONS] = {
    {"hit", "found in the cache"},
    {"resident", "on the device or the host, and not brought back"},
    {"evicted", "was there before: a larger cache may have it"},
    {"in flight", "another request was computing it"},
    {"grid", "behind the last full unit of a known prompt"},
    {"new", "no request had it before"},
    {"last token", "is always computed"},
};

/* ---------------------------------------------------------------------------------- figures */

static void add_part(kvpi_figures *to, const kvpi_reasons *why, size_t i)
{
    kvpi_figures_open(to, kvpi_reason_names[i]);
    kvpi_figures_integer(to, "tokens", why->tokens[i]);
    kvpi_figures_integer(to, "requests", why->requests[i]);
    if (why->model != NULL)
        kvpi_figures_real(to, "prefill_seconds", why->prefill_ns[i] / 1e9);
    kvpi_figures_close(to);
}

static void add_worst(kvpi_figures *to, const kvpi_reasons *why, const kvpi_reasons_line *line)
{
    kvpi_figures_open(to, NULL);
    kvpi_figures_integer(to, "line", line->line);
    kvpi_figures_integer(to, "input_tokens", line->n_tokens);
    for (size_t i = 0; i < KVPI_REASONS; i++) {
        char name[32];
        snprintf(name, sizeof name, "%s_tokens", kvpi_reason_names[i]);
        kvpi_figures_integer(to, name, line->tokens[i]);
    }
    kvpi_figures_integer(to, "again_tokens", kvpi_reasons_again(line));
    if (why->model != NULL)
        kvpi_figures_real(to, "again_seconds", line->again_ns / 1e9);
    kvpi_figures_text(to, "resident_why", line->kept_back);
    kvpi_figures_text(to, "evicted_from",
                      !line->has_age                   ? NULL
                      : line->evicted_from == KVP_HOST ? "host"
                                                       : "device");
    kvpi_figures_integer_if(to, line->has_age, "evicted_ago", line->evicted_ago);
    kvpi_figures_integer_if(to, line->known_line > 0, "known_from_line", line->known_line);
    kvpi_figures_close(to);
}

void kvpi_reasons_figures(kvpi_figures *to, const kvpi_reasons *why)
{
    if (why == NULL)
        return;
    kvpi_figures_open(to, "why");
    kvpi_figures_text(to, "unit", why->unit);
    for (size_t i = 0; i < KVPI_REASONS; i++)
        add_part(to, why, i);
    kvpi_figures_open_array(to, "worst");
    for (size_t i = 0; i < why->n_worst; i++)
        add_worst(to, why, &why->worst[i]);
    kvpi_figures_close(to);
    kvpi_figures_close(to);
}

/* -------------------------------------------------------------------------------- for people */

static void print_part(const kvpi_reasons *why, size_t i, uint64_t all, FILE *file)
{
    char meaning[160];
    int n = snprintf(meaning, sizeof meaning, "%s of the input: %s",
                     kvpi_text_percent(why->tokens[i], all).of, words[i].meaning);
    if (why->model != NULL && i != KVPI_REASON_HIT && why->tokens[i] > 0 && n > 0)
        snprintf(meaning + n, sizeof meaning - (size_t)n, "; prefill %s",
                 kvpi_text_duration(why->prefill_ns[i]).of);
    kvpi_text_row(file, words[i].label, kvpi_text_count(why->tokens[i]), meaning);
}

static kvpi_text age_of(const kvpi_reasons *why, const kvpi_reasons_line *line)
{
    if (!line->has_age)
        return (kvpi_text){"-"};
    return strcmp(why->unit, "ms") == 0 ? kvpi_text_span((double)line->evicted_ago * 1e6)
                                        : kvpi_text_count(line->evicted_ago);
}

static void print_worst(const kvpi_reasons *why, FILE *file)
{
    const bool in_time = strcmp(why->unit, "ms") == 0;
    fprintf(file, "\nMost tokens computed again%s\n",
            in_time ? "" : "; ages are requests since then");
    fprintf(file, "  %9s%12s%12s%12s%12s%12s%14s\n", "line", "input", "resident", "evicted",
            "in flight", "evicted ago", "known since");
    for (size_t i = 0; i < why->n_worst; i++) {
        const kvpi_reasons_line *line = &why->worst[i];
        char since[32] = "-";
        if (line->known_line > 0)
            snprintf(since, sizeof since, "line %" PRIu64, line->known_line);
        fprintf(file, "  %9" PRIu64 "%12s%12s%12s%12s%12s%14s\n", line->line,
                kvpi_text_count(line->n_tokens).of,
                kvpi_text_count(line->tokens[KVPI_REASON_RESIDENT]).of,
                kvpi_text_count(line->tokens[KVPI_REASON_EVICTED]).of,
                kvpi_text_count(line->tokens[KVPI_REASON_IN_FLIGHT]).of, age_of(why, line).of,
                since);
    }
}

void kvpi_reasons_print(const kvpi_reasons *why, FILE *file)
{
    uint64_t all = 0;
    if (why == NULL)
        return;
    for (size_t i = 0; i < KVPI_REASONS; i++)
        all += why->tokens[i];
    fputs("\nWhy prompts were computed\n", file);
    for (size_t i = 0; i < KVPI_REASONS; i++)
        print_part(why, i, all, file);
    if (why->n_worst > 0)
        print_worst(why, file);
}
