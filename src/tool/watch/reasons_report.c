/* See reasons_report.h. Owns the words for each reason. */
#include "tool/watch/reasons_report.h"

#include <inttypes.h>
#include <string.h>

#include "tool/input/escape.h"
#include "tool/text.h"

static const struct {
    const char *label;
    const char *meaning;
} words[KVPI_REASONS] = {
    {"hit", "found in the cache"},
    {"resident", "there in some tier, and not brought back"},
    {"evicted", "was there before; a larger cache may have it"},
    {"in flight", "another request was computing it"},
    {"grid", "behind the last full unit of a known prompt"},
    {"new", "no request had it before"},
    {"last token", "is always computed"},
};

/* ---------------------------------------------------------------------------------- figures */

static void add_tiers(kvpi_figures *to, const uint64_t tokens[KVPI_TIERS])
{
    for (size_t i = 0; i < KVPI_TIERS; i++) {
        char name[32];
        snprintf(name, sizeof name, "%s_tokens", kvpi_tier_names[i]);
        kvpi_figures_integer(to, name, tokens[i]);
    }
}

static void add_kept_back(kvpi_figures *to, const kvpi_reasons *why)
{
    kvpi_figures_open_array(to, "by_why");
    for (size_t i = 0; i < why->n_kept_back; i++) {
        kvpi_figures_open(to, NULL);
        kvpi_figures_text(to, "why", why->kept_back[i]);
        kvpi_figures_integer(to, "tokens", why->kept_back_tokens[i]);
        kvpi_figures_close(to);
    }
    kvpi_figures_close(to);
}

/* How large a cache would have kept half of what was evicted, and all. */
static void add_enough(kvpi_figures *to, const kvpi_reasons *why)
{
    const uint64_t half = kvpi_reasons_enough(why, 0.5), all = kvpi_reasons_enough(why, 1);
    kvpi_figures_integer_if(to, half > 0, "half_enough_blocks", half);
    kvpi_figures_integer_if(to, all > 0, "enough_blocks", all);
}

static void add_part(kvpi_figures *to, kvpi_reasons *why, size_t i)
{
    kvpi_figures_open(to, kvpi_reason_names[i]);
    kvpi_figures_integer(to, "tokens", why->tokens[i]);
    kvpi_figures_integer(to, "requests", why->requests[i]);
    if (why->model != NULL)
        kvpi_figures_real(to, "prefill_seconds", why->prefill_ns[i] / 1e9);
    if (i == KVPI_REASON_HIT)
        add_tiers(to, why->hit_tokens);
    if (i == KVPI_REASON_RESIDENT)
        add_kept_back(to, why);
    if (i == KVPI_REASON_EVICTED) {
        add_tiers(to, why->evicted_tokens);
        add_enough(to, why);
    }
    kvpi_figures_close(to);
}

static void add_worst(kvpi_figures *to, const kvpi_reasons *why, const kvpi_reasons_line *line)
{
    kvpi_figures_open(to, NULL);
    kvpi_figures_text(to, "file", line->file);
    kvpi_figures_integer(to, "line", line->line);
    kvpi_figures_integer_if(to, line->of_line > 0, "request", line->of_line);
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
                      line->evicted_from == KVPI_TIER_NONE ? NULL
                                                           : kvpi_tier_names[line->evicted_from]);
    kvpi_figures_integer_if(to, line->has_age, "evicted_ago", line->evicted_ago);
    kvpi_figures_integer_if(to, line->enough_blocks > 0, "enough_blocks", line->enough_blocks);
    kvpi_figures_text(to, "known_from_file", line->known_line > 0 ? line->known_file : NULL);
    kvpi_figures_integer_if(to, line->known_line > 0, "known_from_line", line->known_line);
    kvpi_figures_integer_if(to, line->known_line > 0 && line->known_of_line > 0,
                            "known_from_request", line->known_of_line);
    kvpi_figures_close(to);
}

void kvpi_reasons_figures(kvpi_figures *to, kvpi_reasons *why)
{
    if (why == NULL)
        return;
    kvpi_figures_open(to, "why");
    kvpi_figures_text(to, "unit", kvpi_reasons_unit(why));
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
    int n = snprintf(meaning, sizeof meaning, "%s of the admitted input: %s",
                     kvpi_text_percent(why->tokens[i], all).of, words[i].meaning);
    if (why->model != NULL && i != KVPI_REASON_HIT && why->tokens[i] > 0 && n > 0)
        snprintf(meaning + n, sizeof meaning - (size_t)n, "; prefill %s",
                 kvpi_text_duration(why->prefill_ns[i]).of);
    kvpi_text_row(file, words[i].label, kvpi_text_count(why->tokens[i]), meaning);
}

/* By tier, where it is not the device alone. */
static void print_tiers(const uint64_t tokens[KVPI_TIERS], const char *what, uint64_t all,
                        FILE *file)
{
    if (tokens[KVPI_TIER_HOST] + tokens[KVPI_TIER_STORE] == 0)
        return;
    for (size_t i = 0; i < KVPI_TIERS; i++) {
        char label[32], meaning[64];
        snprintf(label, sizeof label, "  %s", kvpi_tier_names[i]);
        snprintf(meaning, sizeof meaning, "%s of these: %s", kvpi_text_percent(tokens[i], all).of,
                 what);
        if (tokens[i] > 0)
            kvpi_text_row(file, label, kvpi_text_count(tokens[i]), meaning);
    }
}

static void print_enough(const kvpi_reasons *why, FILE *file)
{
    const uint64_t half = kvpi_reasons_enough(why, 0.5), all = kvpi_reasons_enough(why, 1);
    char meaning[96];
    snprintf(meaning, sizeof meaning, "blocks would have kept it; %s half of it",
             kvpi_text_count(half).of);
    if (all > 0)
        kvpi_text_row(file, "  enough", kvpi_text_count(all), meaning);
}

static void print_details(kvpi_reasons *why, size_t i, FILE *file)
{
    if (i == KVPI_REASON_HIT)
        print_tiers(why->hit_tokens, "found there", why->tokens[i], file);
    for (size_t k = 0; i == KVPI_REASON_RESIDENT && k < why->n_kept_back; k++)
        kvpi_text_row(file, "  of these", kvpi_text_count(why->kept_back_tokens[k]),
                      why->kept_back[k]);
    if (i == KVPI_REASON_EVICTED) {
        print_tiers(why->evicted_tokens, "left it last", why->tokens[i], file);
        print_enough(why, file);
    }
}

static kvpi_text age_of(const kvpi_reasons *why, const kvpi_reasons_line *line)
{
    if (!line->has_age)
        return (kvpi_text){"-"};
    return why->in_ms ? kvpi_text_span((double)line->evicted_ago * 1e6)
                      : kvpi_text_count(line->evicted_ago);
}

/* "12", or of several requests in the line "12:3". */
static kvpi_text place_of(uint64_t line, uint32_t of_line)
{
    kvpi_text text;
    if (of_line > 0)
        snprintf(text.of, sizeof text.of, "%" PRIu64 ":%" PRIu32, line, of_line);
    else
        snprintf(text.of, sizeof text.of, "%" PRIu64, line);
    return text;
}

/* Of several files, that of the request, and that of what it shares if it is another. */
static void print_files(const kvpi_reasons_line *line, FILE *file)
{
    const char *known = line->known_line > 0 ? line->known_file : NULL;
    if (line->file != NULL)
        fprintf(file, "  %s", kvpi_escape(line->file).of);
    if (known != NULL && known != line->file)
        fprintf(file, ", since %s", kvpi_escape(known).of);
    fputc('\n', file);
}

static void print_worst(const kvpi_reasons *why, FILE *file)
{
    const bool has_sizes = why->n_kept_by > 0;
    fprintf(file, "\nMost tokens computed again%s%s\n",
            why->in_ms ? "" : "; ages are requests since then",
            has_sizes ? "; blocks of a cache that had kept it" : "");
    fprintf(file, "  %9s%12s%12s%12s%12s%12s%14s%s\n", "line", "input", "resident", "evicted",
            "in flight", "evicted ago", "known since", has_sizes ? "      blocks" : "");
    for (size_t i = 0; i < why->n_worst; i++) {
        const kvpi_reasons_line *line = &why->worst[i];
        char since[40] = "-";
        if (line->known_line > 0)
            snprintf(since, sizeof since, "line %s",
                     place_of(line->known_line, line->known_of_line).of);
        fprintf(file, "  %9s%12s%12s%12s%12s%12s%14s", place_of(line->line, line->of_line).of,
                kvpi_text_count(line->n_tokens).of,
                kvpi_text_count(line->tokens[KVPI_REASON_RESIDENT]).of,
                kvpi_text_count(line->tokens[KVPI_REASON_EVICTED]).of,
                kvpi_text_count(line->tokens[KVPI_REASON_IN_FLIGHT]).of, age_of(why, line).of,
                since);
        if (has_sizes)
            fprintf(file, "%12s",
                    line->enough_blocks > 0 ? kvpi_text_count(line->enough_blocks).of : "-");
        print_files(line, file);
    }
}

void kvpi_reasons_print(kvpi_reasons *why, FILE *file)
{
    uint64_t all = 0;
    if (why == NULL)
        return;
    for (size_t i = 0; i < KVPI_REASONS; i++)
        all += why->tokens[i];
    fputs("\nWhy prompts were computed\n", file);
    for (size_t i = 0; i < KVPI_REASONS; i++) {
        print_part(why, i, all, file);
        print_details(why, i, file);
    }
    if (why->n_worst > 0)
        print_worst(why, file);
}
