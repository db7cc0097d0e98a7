/* stats_text: statistics as Prometheus reads them. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <kvpager/store.h>

#include "base/sized.h"

struct text {
    char *at;
    size_t capacity;
    size_t n; /* of the whole text */
    const char *labels;
};

static void add(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void add(struct text *text, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const size_t left = text->n < text->capacity ? text->capacity - text->n : 0;
    const int n = vsnprintf(left > 0 ? text->at + text->n : NULL, left, format, arguments);
    va_end(arguments);
    text->n += n > 0 ? (size_t)n : 0;
}

static void add_head(struct text *text, const char *name, const char *type, const char *help)
{
    add(text, "# HELP kvp_store_%s %s\n# TYPE kvp_store_%s %s\n", name, help, name, type);
}

/* label: "reason=\"damaged\"", or "". */
static void add_sample(struct text *text, const char *name, const char *label, uint64_t value)
{
    const int both = *text->labels && *label;
    add(text, "kvp_store_%s", name);
    if (*text->labels || *label)
        add(text, "{%s%s%s}", text->labels, both ? "," : "", label);
    add(text, " %" PRIu64 "\n", value);
}

static void add_bad(struct text *text, const kvp_store_stats *stats)
{
    add_head(text, "bad_total", "counter", "Records that were refused and dropped.");
    for (uint32_t reason = 0; reason < KVP_BAD_REASONS; reason++) {
        char label[40];
        snprintf(label, sizeof label, "reason=\"%s\"", kvp_bad_name(reason));
        add_sample(text, "bad_total", label, stats->bad[reason]);
    }
}

/* In seconds. */
static void add_time(struct text *text, const char *name, uint64_t ns)
{
    const uint64_t second = UINT64_C(1000000000);
    add(text, "kvp_store_%s", name);
    if (*text->labels)
        add(text, "{%s}", text->labels);
    add(text, " %" PRIu64 ".%09" PRIu64 "\n", ns / second, ns % second);
}

/* Bucket b counts what took less than 2^(b+10) ns. */
static void add_histogram(struct text *text, const char *name, const char *help,
                          const uint64_t counts[KVP_STORE_LATENCIES], uint64_t sum_ns)
{
    char bucket[64];
    snprintf(bucket, sizeof bucket, "%s_bucket", name);
    add_head(text, name, "histogram", help);
    uint64_t n = 0;
    for (uint32_t b = 0; b < KVP_STORE_LATENCIES; b++) {
        char label[48] = "le=\"+Inf\"";
        n += counts[b];
        if (b + 1 < KVP_STORE_LATENCIES)
            snprintf(label, sizeof label, "le=\"%.9g\"", (double)(UINT64_C(1) << (b + 10)) / 1e9);
        add_sample(text, bucket, label, n);
    }
    snprintf(bucket, sizeof bucket, "%s_sum", name);
    add_time(text, bucket, sum_ns);
    snprintf(bucket, sizeof bucket, "%s_count", name);
    add_sample(text, bucket, "", n);
}

static void add_results(struct text *text, const kvp_store_stats *stats)
{
    const struct {
        const char *name;
        const char *help;
        uint64_t value;
    } counters[] = {
        {"puts_total", "Puts that ended.", stats->puts},
        {"stored_total", "Puts that wrote a record.", stats->stored},
        {"known_total", "Puts of a record that was there.", stats->known},
        {"refused_total", "Puts without parent or room.", stats->refused},
        {"gets_total", "Gets that ended.", stats->gets},
        {"hits_total", "Gets that brought a record.", stats->hits},
        {"absent_total", "Gets of a record that was not there.", stats->absent},
        {"raced_total", "Gets of a record that went meanwhile.", stats->raced},
        {"reread_total", "Records that were right when read again.", stats->reread},
        {"failed_total", "Operations that failed.", stats->failed},
        {"away_total", "Operations while the store was left alone.", stats->away},
        {"evicted_total", "Records dropped to make room.", stats->evicted},
        {"dropped_total", "Records dropped on demand, or because they were bad.", stats->dropped},
        {"expired_total", "Records older than max_age.", stats->expired},
        {"read_bytes_total", "KV of hits.", stats->read_bytes},
        {"written_bytes_total", "KV of records written.", stats->written_bytes},
    };
    for (size_t i = 0; i < sizeof counters / sizeof *counters; i++) {
        add_head(text, counters[i].name, "counter", counters[i].help);
        add_sample(text, counters[i].name, "", counters[i].value);
    }
}

static void write_text(struct text *text, const kvp_store_stats *stats)
{
    const struct {
        const char *name;
        const char *help;
        uint64_t value;
    } gauges[] = {
        {"records", "Records there now.", stats->records},
        {"bytes", "Bytes that they take, headers included.", stats->bytes},
        {"size_bytes", "Limit of bytes.", stats->size},
        {"retired_slots", "Places that failed and are not used any more.", stats->retired},
        {"queued", "Operations accepted and not ended.", stats->queued},
    };
    for (size_t i = 0; i < sizeof gauges / sizeof *gauges; i++) {
        add_head(text, gauges[i].name, "gauge", gauges[i].help);
        add_sample(text, gauges[i].name, "", gauges[i].value);
    }
    add_head(text, "away_seconds", "gauge", "For how long the store is left alone.");
    add_time(text, "away_seconds", stats->away_ns);
    add_results(text, stats);
    add_bad(text, stats);
    add_histogram(text, "get_seconds", "Gets, from accepted to ended.", stats->get_ns,
                  stats->get_sum_ns);
    add_histogram(text, "put_seconds", "Puts, from accepted to ended.", stats->put_ns,
                  stats->put_sum_ns);
}

kvp_status kvp_store_stats_text(const kvp_store_stats *stats, const char *labels, char *out_text,
                                size_t capacity, size_t *out_bytes)
{
    if (!stats || !out_text || capacity == 0)
        return KVP_E_ARG;
    struct text text = {.at = out_text, .capacity = capacity, .labels = labels ? labels : ""};
    write_text(&text, stats);
    if (out_bytes)
        *out_bytes = text.n;
    return text.n < capacity ? KVP_OK : KVP_E_TOO_SMALL;
}
