/* copy_cpu: runs plans with the caller's thread and a team.
 *
 * A phase is a list of strips, those of its first copy, then those of its second, and so on. Each
 * thread takes an equal piece of the list: no thread waits for another within a phase, and it is
 * known beforehand who does what. Small phases are not worth waking a thread for.
 */
#include "memory/copy/copy_cpu.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "memory/memory.h"

enum {
    /* From here on a phase goes past the caches: it would fill half of the second one. Below, what
     * is copied is likely to be read or written soon, as a block after copy-on-write is. */
    STREAM_BYTES = 1 << 20,
    /* From here on a phase is shared: waking a thread takes as long as copying some of it. */
    SHARE_BYTES = 256 << 10
};

static struct kvpi_cpu_copier *cpu_of(kvp_copier *copier)
{
    return (struct kvpi_cpu_copier *)(void *)copier;
}

/* ---------------------------------------------------------------------------------------- plans */

struct phase {
    struct kvpi_cpu_copier *cpu;
    const kvp_copy *copies;
    uint32_t n_copies;
    uint64_t n_strips; /* of all copies */
    bool streams;
};

static const struct kvpi_strips *strips_of(const struct kvpi_cpu_copier *cpu, const kvp_copy *copy)
{
    return &cpu->ways[copy->group].strips[copy->src_tier * KVPI_TIERS + copy->dst_tier];
}

static void run_share(void *context, uint32_t index, uint32_t n)
{
    const struct phase *phase = context;
    struct kvpi_chunks *chunks = &phase->cpu->workers[index].chunks;
    uint64_t skip = phase->n_strips * index / n;
    uint64_t left = phase->n_strips * (index + 1) / n - skip;
    kvpi_chunks_begin(chunks, phase->streams ? phase->cpu->stream : NULL);
    for (uint32_t i = 0; i < phase->n_copies && left > 0; i++) {
        const struct kvpi_strips *strips = strips_of(phase->cpu, &phase->copies[i]);
        if (skip >= strips->n) {
            skip -= strips->n;
            continue;
        }
        for (uint32_t s = (uint32_t)skip; s < strips->n && left > 0; s++, left--) {
            kvpi_strips_copy(strips, s, &phase->copies[i], chunks);
        }
        skip = 0;
    }
    kvpi_chunks_end(chunks);
}

static void run_phase(struct kvpi_cpu_copier *cpu, const kvp_copy *copies, uint32_t n_copies)
{
    struct phase phase = {cpu, copies, n_copies, 0, false};
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < n_copies; i++) {
        const kvp_layout *layout =
            &kvpi_copier_memory(&cpu->shared, copies[i].group, KVP_DEVICE)->layout;
        bytes += kvp_layout_block_bytes(layout) * copies[i].n_tokens / layout->block_tokens;
        phase.n_strips += strips_of(cpu, &copies[i])->n;
    }
    phase.streams = bytes >= STREAM_BYTES;
    if (cpu->team && bytes >= SHARE_BYTES) {
        kvpi_team_run(cpu->team, run_share, &phase);
    } else {
        run_share(&phase, 0, 1);
    }
}

static void run(kvp_copier *copier, const kvp_copy *copies, uint32_t n_copies)
{
    uint32_t begin = 0;
    for (uint32_t i = 1; i <= n_copies; i++) {
        if (i == n_copies || copies[i].phase != copies[begin].phase) {
            run_phase(cpu_of(copier), copies + begin, i - begin);
            begin = i;
        }
    }
}

/* ---------------------------------------------------------------------------------------- moves */

struct moves {
    struct kvpi_cpu_copier *cpu;
    uint32_t group;
    uint32_t n;
    const kvp_slot_move *moves;
    uint32_t n_layers;
};

static void move_share(void *context, uint32_t index, uint32_t n)
{
    const struct moves *moves = context;
    kvpi_cpu_move(moves->cpu, moves->group, moves->moves, moves->n, &moves->cpu->workers[index],
                  (uint32_t)((uint64_t)moves->n_layers * index / n),
                  (uint32_t)((uint64_t)moves->n_layers * (index + 1) / n));
}

static void move_slots(kvp_copier *copier, uint32_t group, const kvp_slot_move *moves,
                       uint32_t n_moves)
{
    struct kvpi_cpu_copier *cpu = cpu_of(copier);
    const kvp_layout *layout = &kvpi_copier_memory(copier, group, KVP_DEVICE)->layout;
    struct moves work = {cpu, group, n_moves, moves, layout->n_layers};
    if (cpu->team &&
        kvp_layout_block_bytes(layout) / layout->block_tokens * n_moves >= SHARE_BYTES) {
        kvpi_team_run(cpu->team, move_share, &work);
    } else {
        move_share(&work, 0, 1);
    }
}

static void wait_for(kvp_copier *copier, uint64_t fence)
{
    (void)copier;
    (void)fence; /* done when it was given */
}

/* ----------------------------------------------------------------------------- life of a copier */

static void destroy(kvp_copier *copier)
{
    struct kvpi_cpu_copier *cpu = cpu_of(copier);
    kvpi_team_destroy(cpu->team);
    for (uint32_t i = 0; cpu->workers && i < copier->config.n_threads; i++) {
        free(cpu->workers[i].rows);
        free(cpu->workers[i].scales);
    }
    for (uint32_t g = 0; cpu->ways && g < copier->config.n_groups; g++) {
        for (uint32_t w = 0; w < KVPI_TIERS * KVPI_TIERS; w++) {
            free(cpu->ways[g].strips[w].strips);
        }
    }
    free(cpu->workers);
    free(cpu->ways);
    kvpi_copier_close(copier);
    free(cpu);
}

static const struct kvpi_copier_ops cpu_ops = {run, move_slots, wait_for, destroy};

static kvp_status make_ways(struct kvpi_cpu_copier *cpu)
{
    const struct kvp_copier *copier = &cpu->shared;
    cpu->ways = calloc(copier->config.n_groups, sizeof(*cpu->ways));
    if (!cpu->ways) {
        return KVP_E_NO_MEMORY;
    }
    for (uint32_t i = 0; i < copier->config.n_groups * KVPI_TIERS * KVPI_TIERS; i++) {
        const uint32_t group = i / (KVPI_TIERS * KVPI_TIERS);
        const uint32_t way = i % (KVPI_TIERS * KVPI_TIERS);
        const kvp_memory *src = kvpi_copier_memory(copier, group, way / KVPI_TIERS);
        const kvp_memory *dst = kvpi_copier_memory(copier, group, way % KVPI_TIERS);
        if (!src || !dst) {
            continue;
        }
        struct kvpi_strip *strips = calloc(kvpi_strips_count(&src->layout), sizeof(*strips));
        if (!strips) {
            return KVP_E_NO_MEMORY;
        }
        kvpi_strips_make(src, dst, strips, &cpu->ways[group].strips[way]);
    }
    return KVP_OK;
}

static kvp_status make_workers(struct kvpi_cpu_copier *cpu)
{
    const kvp_copier_config *config = &cpu->shared.config;
    const size_t n_moves = config->max_moves ? config->max_moves : 1;
    const size_t row_bytes = kvpi_cpu_row_bytes(&cpu->shared);
    cpu->workers = calloc(config->n_threads, sizeof(*cpu->workers));
    for (uint32_t i = 0; cpu->workers && i < config->n_threads; i++) {
        struct kvpi_worker *worker = &cpu->workers[i];
        worker->rows = calloc(n_moves, row_bytes);
        worker->scales = calloc(n_moves, sizeof(*worker->scales));
        if (!worker->rows || !worker->scales) {
            return KVP_E_NO_MEMORY;
        }
    }
    return cpu->workers ? KVP_OK : KVP_E_NO_MEMORY;
}

static kvp_status create(const kvp_copier_config *config, kvp_copier **out_copier)
{
    struct kvpi_cpu_copier *cpu = calloc(1, sizeof(*cpu));
    if (!cpu) {
        return KVP_E_NO_MEMORY;
    }
    kvp_status status = kvpi_copier_open(config, &cpu->shared);
    if (status != KVP_OK) {
        free(cpu);
        return status;
    }
    cpu->shared.ops = &cpu_ops;
    cpu->stream = kvpi_stream_best();
    status = make_ways(cpu);
    if (status == KVP_OK) {
        status = make_workers(cpu);
    }
    if (status == KVP_OK && config->n_threads > 1) {
        status = kvpi_team_create(config->n_threads, &cpu->team);
    }
    if (status != KVP_OK) {
        destroy(&cpu->shared);
        return status;
    }
    *out_copier = &cpu->shared;
    return KVP_OK;
}

const struct kvpi_backend kvpi_cpu_backend = {create};
