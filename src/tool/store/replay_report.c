/* Owns the keys of the figures of a replay's store, an interface that stays, and their rows. */
#include "tool/store/replay_report.h"

#include "tool/input/escape.h"
#include "tool/tool.h"

int kvpi_store_report_verdict(const kvpi_store_report *report)
{
    if (report->wrong_states > 0)
        return kvpi_tool_fail("replay", "internal error: %llu states are others than theirs",
                              (unsigned long long)report->wrong_states);
    return report->wrong_blocks == 0
               ? TOOL_OK
               : kvpi_tool_fail("replay", "internal error: %llu blocks have other KV than theirs",
                                (unsigned long long)report->wrong_blocks);
}

/* ----------------------------------------------------------------------------------- latencies */

/* The end of the bucket that has the value of this rank. */
static uint64_t latency_at(const uint64_t buckets[KVP_STORE_LATENCIES], uint64_t rank)
{
    uint64_t n = 0;
    for (uint32_t b = 0; b < KVP_STORE_LATENCIES; b++) {
        n += buckets[b];
        if (n >= rank)
            return UINT64_C(1) << (b + 10);
    }
    return 0;
}

static void add_latencies(kvpi_figures *to, const char *key,
                          const uint64_t buckets[KVP_STORE_LATENCIES])
{
    static const struct {
        const char *key;
        uint64_t percent;
    } shown[] = {{"p50_ns", 50}, {"p90_ns", 90}, {"p99_ns", 99}};
    uint64_t n = 0;
    for (uint32_t b = 0; b < KVP_STORE_LATENCIES; b++)
        n += buckets[b];
    kvpi_figures_open(to, key);
    kvpi_figures_integer(to, "n", n);
    for (size_t i = 0; i < sizeof shown / sizeof *shown; i++)
        kvpi_figures_integer_if(to, n > 0, shown[i].key,
                                latency_at(buckets, (n * shown[i].percent + 99) / 100));
    kvpi_figures_close(to);
}

/* --------------------------------------------------------------------------------- the figures */

/* Of a place that is modelled, "url" is its size and rate. */
static void show_url(int is_model, const char *url, char *out, size_t n_bytes)
{
    if (is_model)
        snprintf(out, n_bytes, "%s", url);
    else
        (void)kvp_store_url_show(url, out, n_bytes);
}

static void add_url(kvpi_figures *to, int is_model, const char *url)
{
    char shown[KVPI_STORE_URL_BYTES];
    show_url(is_model, url, shown, sizeof shown);
    kvpi_figures_text(to, "url", shown);
}

static void add_room(kvpi_figures *to, const kvp_store_stats *store)
{
    kvpi_figures_integer(to, "records", store->records);
    kvpi_figures_integer(to, "bytes", store->bytes);
    kvpi_figures_integer(to, "size_bytes", store->size);
}

static void add_gets(kvpi_figures *to, const kvp_store_stats *store)
{
    kvpi_figures_integer(to, "gets", store->gets);
    kvpi_figures_integer(to, "hits", store->hits);
    kvpi_figures_integer(to, "absent", store->absent);
    kvpi_figures_integer(to, "raced", store->raced);
    kvpi_figures_open(to, "bad");
    for (uint32_t i = 0; i < KVP_BAD_REASONS; i++)
        kvpi_figures_integer(to, kvp_bad_name(i), store->bad[i]);
    kvpi_figures_close(to);
    kvpi_figures_integer(to, "reread", store->reread);
    kvpi_figures_integer(to, "read_bytes", store->read_bytes);
    add_latencies(to, "get_latency", store->get_ns);
}

static void add_puts(kvpi_figures *to, const kvp_store_stats *store)
{
    kvpi_figures_integer(to, "puts", store->puts);
    kvpi_figures_integer(to, "stored", store->stored);
    kvpi_figures_integer(to, "known", store->known);
    kvpi_figures_integer(to, "refused", store->refused);
}

static void add_rest(kvpi_figures *to, const kvp_store_stats *store)
{
    kvpi_figures_integer(to, "evicted", store->evicted);
    kvpi_figures_integer(to, "failed", store->failed);
    kvpi_figures_integer(to, "away", store->away);
    kvpi_figures_integer(to, "written_bytes", store->written_bytes);
    add_latencies(to, "put_latency", store->put_ns);
}

static void add_place(kvpi_figures *to, const kvpi_store_report *report)
{
    add_url(to, report->is_model, report->url);
    kvpi_figures_text(to, "engine", report->parts[0].described);
    kvpi_figures_flag(to, "is_model", report->is_model);
    kvpi_figures_integer(to, "record_blocks", report->record_blocks);
    kvpi_figures_text(to, "writes", report->through ? "through" : "second");
    add_room(to, &report->store);
    kvpi_figures_integer(to, "most_queued", report->most_queued);
}

static void add_reads(kvpi_figures *to, const kvpi_store_report *report)
{
    kvpi_figures_integer(to, "hit_tokens", report->spill.store_tokens);
    kvpi_figures_integer(to, "asked", report->spill.asked);
    kvpi_figures_open(to, "answers");
    for (uint32_t i = 0; i < KVP_SPILL_OUTCOMES; i++)
        kvpi_figures_integer(to, kvp_spill_outcome_name(i), report->spill.outcomes[i]);
    kvpi_figures_close(to);
    kvpi_figures_integer(to, "unasked", report->unasked);
    add_gets(to, &report->store);
    kvpi_figures_integer(to, "load_failed", report->spill.load_failed);
    kvpi_figures_integer(to, "checked_blocks", report->checked_blocks);
    kvpi_figures_integer(to, "unchecked_blocks", report->unchecked_blocks);
    kvpi_figures_integer(to, "wrong_blocks", report->wrong_blocks);
    kvpi_figures_integer(to, "states_loaded", report->spill.states_loaded);
    kvpi_figures_integer(to, "checked_states", report->checked_states);
    kvpi_figures_integer(to, "unchecked_states", report->unchecked_states);
    kvpi_figures_integer(to, "wrong_states", report->wrong_states);
}

static uint64_t left_out(const kvpi_store_report *report)
{
    const kvp_spill_stats *spill = &report->spill;
    return spill->over_budget + spill->no_place + spill->no_block + spill->lost;
}

static void add_writes(kvpi_figures *to, const kvpi_store_report *report)
{
    const kvp_spill_stats *spill = &report->spill;
    add_puts(to, &report->store);
    kvpi_figures_integer(to, "states_written", spill->states_written);
    kvpi_figures_integer(to, "states_left_out", spill->states_left_out);
    kvpi_figures_integer(to, "put_failed", spill->put_failed);
    kvpi_figures_integer(to, "left_out", left_out(report));
    kvpi_figures_integer(to, "over_budget", spill->over_budget);
    kvpi_figures_integer(to, "no_place", spill->no_place);
    kvpi_figures_integer(to, "no_block", spill->no_block);
    kvpi_figures_integer(to, "lost", spill->lost);
    kvpi_figures_integer(to, "unfinished", report->unfinished);
    add_rest(to, &report->store);
}

static void add_parts(kvpi_figures *to, const kvpi_store_report *report)
{
    kvpi_figures_open_array(to, "stores");
    for (uint32_t i = 0; i < report->n_parts; i++) {
        const kvpi_store_part *part = &report->parts[i];
        kvpi_figures_open(to, NULL);
        add_url(to, report->is_model, part->url);
        kvpi_figures_text(to, "engine", part->described);
        kvpi_figures_text(to, "trouble", part->trouble[0] != '\0' ? part->trouble : NULL);
        add_room(to, &part->stats);
        add_gets(to, &part->stats);
        add_puts(to, &part->stats);
        add_rest(to, &part->stats);
        kvpi_figures_close(to);
    }
    kvpi_figures_close(to);
}

void kvpi_store_report_add(kvpi_figures *to, const kvpi_store_report *report)
{
    if (report->url == NULL) {
        kvpi_figures_text(to, "store", NULL);
        return;
    }
    kvpi_figures_open(to, "store");
    add_place(to, report);
    add_reads(to, report);
    add_writes(to, report);
    add_parts(to, report);
    kvpi_figures_close(to);
}

/* --------------------------------------------------------------------------------- for people */

static void print_latency(const json_t *store, const char *key, const char *label, FILE *file)
{
    const json_t *figures = json_object_get(store, key);
    const kvpi_figures_row row[] = {
        {true, label, "{n}", "p50 {p50_ns}, p90 {p90_ns}, p99 {p99_ns}, at most"}};
    if (json_integer_value(json_object_get(figures, "n")) > 0)
        kvpi_figures_print_rows(figures, row, 1, file);
}

static void print_trouble(const kvpi_store_part *part, FILE *file)
{
    if (part->trouble[0] != '\0')
        fprintf(file, "  trouble          %s\n", kvpi_escape(part->trouble).of);
}

/* What each of several stores did. */
static void print_parts(const kvpi_store_report *report, const json_t *store, FILE *file)
{
    static const kvpi_figures_row rows[] = {
        {true, "read", "{hits}", "records of {gets} asked for; {absent} absent, {raced} raced"},
        {true, "written", "{stored}", "records; {known} known, {refused} refused"},
        {true, "failed", "{failed}", "operations; {away} while it was left alone"},
    };
    const json_t *parts = json_object_get(store, "stores");
    for (uint32_t i = 0; i < report->n_parts && report->n_parts > 1; i++) {
        char shown[KVPI_STORE_URL_BYTES];
        show_url(report->is_model, report->parts[i].url, shown, sizeof shown);
        fprintf(file, "\nStore %s: %s\n", kvpi_escape(shown).of, report->parts[i].described);
        kvpi_figures_print_rows(json_array_get(parts, i), rows, sizeof rows / sizeof *rows, file);
        print_trouble(&report->parts[i], file);
    }
}

void kvpi_store_report_print(const kvpi_store_report *report, const json_t *figures, FILE *file)
{
    uint64_t n_bad = 0;
    const json_t *store = json_object_get(figures, "store");
    if (report->url == NULL)
        return;
    for (uint32_t i = 0; i < KVP_BAD_REASONS; i++)
        n_bad += report->store.bad[i];
    const kvpi_figures_row rows[] = {
        {true, "store hits", "{hit_tokens}", "tokens that neither device nor host had"},
        {true, "read", "{hits}", "records; {absent} absent, {raced} raced"},
        {true, "checked", "{checked_blocks}", "blocks from the host, {wrong_blocks} wrong"},
        {true, "written", "{stored}",
         report->record_blocks == 1
             ? "records of one block; {known} known, {refused} refused"
             : "records of {record_blocks} blocks; {known} known, {refused} refused"},
        {true, "unfinished", "{unfinished}", "puts, given up in the end"},
        {left_out(report) > 0, "left out", "{left_out}",
         "records: {no_block} no host block, {lost} gone, {no_place} queue full, "
         "{over_budget} over budget"},
        {report->spill.put_failed > 0, "not written", "{put_failed}",
         "records: refused, failed, or behind such a one"},
        {report->spill.load_failed > 0, "not read", "{load_failed}",
         "records: gone, bad or failed"},
        {report->store.failed + report->store.away > 0, "failed", "{failed}",
         "operations; {away} while the store was left alone"},
        {report->has_states, "states loaded", "{states_loaded}",
         "records of these; {checked_states} checked, {wrong_states} wrong"},
        {report->has_states, "states written", "{states_written}",
         "records of these; {states_left_out} left out before"},
    };
    char shown[KVPI_STORE_URL_BYTES];
    show_url(report->is_model, report->url, shown, sizeof shown);
    if (report->n_parts > 1)
        fprintf(file, "\n%u stores, nearest first\n", report->n_parts);
    else
        fprintf(file, "\nStore %s: %s\n", kvpi_escape(shown).of, report->parts[0].described);
    kvpi_figures_print_rows(store, rows, sizeof rows / sizeof *rows, file);
    for (uint32_t i = 0; n_bad > 0 && i < KVP_BAD_REASONS; i++)
        if (report->store.bad[i] > 0)
            fprintf(file, "  bad record       %llu: %s\n", (unsigned long long)report->store.bad[i],
                    kvp_bad_name(i));
    if (report->n_parts == 1)
        print_trouble(&report->parts[0], file);
    print_latency(store, "get_latency", "gets", file);
    print_latency(store, "put_latency", "puts", file);
    print_parts(report, store, file);
}
