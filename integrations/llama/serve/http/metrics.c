/* metrics: one list, name by name. */
#define _POSIX_C_SOURCE 200809L /* open_memstream */

#include "metrics.h"
#include "../engine/state.h"

#include <stdio.h>
#include <stdlib.h>

static void head(FILE *file, const char *name, const char *kind, const char *help)
{
    fprintf(file, "# HELP kvpager_%s %s\n# TYPE kvpager_%s %s\n", name, help, name, kind);
}

static void counter(FILE *file, const char *name, uint64_t value, const char *help)
{
    head(file, name, "counter", help);
    fprintf(file, "kvpager_%s %llu\n", name, (unsigned long long)value);
}

static void gauge(FILE *file, const char *name, uint64_t value, const char *help)
{
    head(file, name, "gauge", help);
    fprintf(file, "kvpager_%s %llu\n", name, (unsigned long long)value);
}

static void write_requests(FILE *file, const kvpi_figures *f)
{
    counter(file, "requests_total", f->jobs, "Requests that were accepted.");
    counter(file, "requests_ended_total", f->over, "Requests whose answer is complete.");
    counter(file, "requests_aborted_total", f->aborted, "Requests whose client went away.");
    counter(file, "requests_failed_total", f->failed, "Requests that the engine could not serve.");
    counter(file, "requests_refused_total", f->refused, "Requests refused as the queue was full.");
    gauge(file, "requests_running", f->sched.running_requests, "Requests with cells.");
    gauge(file, "requests_waiting", f->sched.waiting_requests + f->queued,
          "Requests that wait for cells.");
    counter(file, "preemptions_total", f->sched.preemptions,
            "Times that a request gave its cells up and continued later.");
}

static void write_tokens(FILE *file, const kvpi_figures *f)
{
    counter(file, "prompt_tokens_total", f->prompt_tokens, "Tokens of admitted prompts.");
    counter(file, "cached_tokens_total", f->cached_tokens,
            "Tokens of admitted prompts that were not computed.");
    counter(file, "decoded_tokens_total", f->llama.decoded_tokens, "Tokens run through the model.");
    counter(file, "generated_tokens_total", f->new_tokens, "Tokens that were sampled.");
    head(file, "prompt_tokens_by_reason_total", "counter",
         "Tokens of admitted prompts by why they were computed, in order; hit: they were not.");
    for (uint32_t i = 0; i < KVP_REASONS; i++)
        fprintf(file, "kvpager_prompt_tokens_by_reason_total{reason=\"%s\"} %llu\n",
                kvp_reason_name(i), (unsigned long long)f->reasons.tokens[i]);
    counter(file, "reasons_forgotten_blocks_total", f->reasons.forgotten_units,
            "Blocks once computed that the record of reasons forgot: they count as new.");
    head(file, "hits_ended_total", "counter",
         "Admitted prompts, by why their cached prefix ended where it did.");
    for (unsigned i = 0; i < KVPI_STOP_KINDS; i++)
        fprintf(file, "kvpager_hits_ended_total{reason=\"%s\"} %llu\n", kvpi_state_stop_name(i),
                (unsigned long long)f->stops[i]);
}

/* All zero without --cache-disk. */
static void write_disk(FILE *file, const kvp_llama_disk_stats *disk)
{
    const struct {
        const char *outcome;
        uint64_t n;
    } outcomes[] = {{"loaded", disk->loaded},   {"nothing", disk->nothing}, {"slow", disk->slow},
                    {"no_room", disk->no_room}, {"failed", disk->failed},   {"late", disk->late},
                    {"aborted", disk->aborted}};
    gauge(file, "disk_bytes", disk->store.bytes, "What the disk keeps (--cache-disk).");
    gauge(file, "disk_records", disk->store.records, "Records of KV there.");
    gauge(file, "disk_is_off", disk->is_off,
          "1: llama.cpp refused a record; the disk is not used.");
    head(file, "disk_requests_total", "counter",
         "Requests for which the disk was asked, by what became of it.");
    for (size_t i = 0; i < sizeof outcomes / sizeof outcomes[0]; i++)
        fprintf(file, "kvpager_disk_requests_total{outcome=\"%s\"} %llu\n", outcomes[i].outcome,
                (unsigned long long)outcomes[i].n);
    gauge(file, "disk_requests", disk->asking, "Requests that wait for the disk.");
    counter(file, "disk_loaded_tokens_total", disk->loaded_tokens,
            "Tokens whose KV was read from the disk.");
    counter(file, "disk_read_bytes_total", disk->store.read_bytes, "KV that was read.");
    counter(file, "disk_written_bytes_total", disk->store.written_bytes, "KV that was written.");
    counter(file, "disk_skipped_total", disk->skipped,
            "Records that were not written, because others were being written.");
    counter(file, "disk_failed_total", disk->store.failed + disk->store.away,
            "Operations that the disk failed, or that it was spared because it had failed.");
    uint64_t n_bad = 0;
    for (uint32_t i = 0; i < KVP_BAD_REASONS; i++)
        n_bad += disk->store.bad[i];
    counter(file, "disk_bad_records_total", n_bad, "Records that were damaged, and are dropped.");
    head(file, "disk_load_seconds_total", "counter", "Time from the question to the KV.");
    fprintf(file, "kvpager_disk_load_seconds_total %.6f\n", (double)disk->load_ns / 1e9);
}

static void write_cells(FILE *file, const kvpi_figures *f)
{
    head(file, "blocks", "gauge", "Blocks of cells by state.");
    fprintf(file,
            "kvpager_blocks{state=\"free\"} %llu\nkvpager_blocks{state=\"cached\"} %llu\n"
            "kvpager_blocks{state=\"held\"} %llu\n",
            (unsigned long long)f->cache.free_blocks, (unsigned long long)f->cache.cached_blocks,
            (unsigned long long)f->cache.held_blocks);
    counter(file, "evicted_blocks_total", f->cache.evicted_blocks,
            "Cached blocks that lost their content.");
    gauge(file, "tenants", f->cache.open_namespaces, "Values of cache_salt that have a cache.");
    counter(file, "idle_blocks_total", f->llama.idle_blocks,
            "Cached blocks that were dropped because of --idle-cells.");
    gauge(file, "host_bytes", f->llama.host_bytes, "KV in host memory (--host-memory).");
    gauge(file, "host_dead_bytes", f->llama.host_dead_bytes,
          "Of it, of blocks that are gone: a piece is freed as a whole.");
    counter(file, "host_pieces_out_total", f->llama.stretches_out,
            "Pieces of evicted KV that were copied to host memory.");
    counter(file, "host_pieces_in_total", f->llama.stretches_in, "Pieces that came back.");
    counter(file, "host_slow_blocks_total", f->llama.slow_blocks,
            "Blocks that host memory did not keep, because computing them was measured faster.");
    counter(file, "host_unkept_blocks_total", f->cache.unkept_blocks,
            "Evicted blocks that host memory, or a step's copies, had no room for.");
    counter(file, "host_evicted_blocks_total",
            f->cache.host_evicted_blocks - f->llama.slow_blocks, /* slow ones are dropped there */
            "Blocks in host memory that lost their content to others.");
    write_disk(file, &f->disk);
    counter(file, "short_of_ids_blocks_total", f->llama.dropped_blocks,
            "Cached blocks that were dropped because llama.cpp's sequence ids were short.");
    counter(file, "steps_total", f->sched.steps, "Steps of the engine.");
    counter(file, "failed_decodes_total", f->llama.failed_decodes,
            "Calls of llama_decode that failed.");
    head(file, "step_seconds_total", "counter", "Time in steps, sampling included.");
    fprintf(file, "kvpager_step_seconds_total %.6f\n", (double)f->step_ns / 1e9);
    head(file, "decode_seconds_total", "counter", "Time in llama_decode, and bookkeeping beside.");
    fprintf(file, "kvpager_decode_seconds_total %.6f\n", (double)f->decode_ns / 1e9);
}

char *kvpi_metrics_text(kvpi_loop *loop, kvpi_counts *counts)
{
    char *text = NULL;
    size_t n;
    kvpi_figures figures;
    FILE *file = open_memstream(&text, &n);
    if (file == NULL)
        return NULL;
    kvpi_loop_figures(loop, &figures);
    write_requests(file, &figures);
    write_tokens(file, &figures);
    write_cells(file, &figures);
    head(file, "http_answers_total", "counter", "Answers by status.");
    for (unsigned i = 2; i < 6; i++)
        fprintf(file, "kvpager_http_answers_total{status=\"%uxx\"} %llu\n", i,
                (unsigned long long)atomic_load(&counts->answers[i]));
    counter(file, "http_overloads_total", atomic_load(&counts->overloads),
            "Answers of status 429.");
    gauge(file, "http_connections", atomic_load(&counts->connections), "Open connections.");
    if (fclose(file) == 0)
        return text;
    free(text);
    return NULL;
}
