/* flight: begun, continued, ended. Everything happens on the thread of the store. */
#include "store/file/engine/flight.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "store/file/stage.h"

enum {
    TRIES_MAX = 64,        /* of a transfer that does not move */
    REFUSALS_MAX = 1000,   /* of a queue that has nothing to do: a second, as the worker waits */
    STAGE_BYTES = 4 << 20, /* of all stages, but at least two: half of what memlock often allows */
    STAGES_MIN = 2,
    BATCH_BYTES = 256 << 10 /* that wait make a call of the system worth it before the next reap */
};

/* --------------------------------------------------------------------------------------- places */

static void put_ended(struct kvpi_flight *flight, struct kvpi_store_op *op, int failed)
{
    op->io_failed = failed;
    op->link = flight->ended;
    flight->ended = op;
}

static void leave_place(struct kvpi_flight *flight, uint32_t number)
{
    struct kvpi_flight_place *place = &flight->places[number];
    if (place->stage >= 0)
        flight->free_stages[flight->n_free_stages++] = (uint32_t)place->stage;
    place->op = NULL;
    flight->free_places[flight->n_free++] = number;
}

static void end_place(struct kvpi_flight *flight, uint32_t number, int failed)
{
    struct kvpi_store_op *op = flight->places[number].op;
    leave_place(flight, number);
    put_ended(flight, op, failed);
}

static uint8_t *stage_of(const struct kvpi_flight *flight, const struct kvpi_flight_place *place)
{
    return flight->stages + (uint64_t)place->stage * flight->slabs->slot_bytes;
}

static void add(struct kvpi_flight *flight, uint32_t number)
{
    struct kvpi_flight_place *place = &flight->places[number];
    const uint32_t kind = place->op->kind;
    place->tag = flight->n_tags++ * KVPI_FLIGHT_PLACES + number;
    const struct kvpi_queue_io io = {
        .kind = kind == KVP_STORE_PUT   ? KVPI_QUEUE_WRITE
                : kind == KVP_STORE_GET ? KVPI_QUEUE_READ
                                        : KVPI_QUEUE_SYNC,
        .file = place->extent.slab->file,
        .offset = place->extent.offset,
        .spans = place->spans + place->first_span,
        .n_spans = place->n_spans,
        .fixed = place->stage >= 0 && flight->fixed,
        .tag = place->tag,
    };
    if (!flight->broken)
        flight->system->add(flight->queue, &io);
    flight->added[(flight->added_first + flight->n_added++) % KVPI_FLIGHT_PLACES] = number;
}

/* What moves all of the operation, from its beginning. */
static void aim(struct kvpi_flight *flight, struct kvpi_flight_place *place)
{
    const struct kvpi_store_op *op = place->op;
    place->first_span = 0;
    if (place->stage >= 0) {
        place->left = kvpi_stage_bytes(op->spans, op->n_spans);
        place->spans[0] = (struct iovec){stage_of(flight, place), place->left};
        place->n_spans = 1;
        return;
    }
    place->left = 0;
    place->n_spans = op->n_spans;
    for (uint32_t i = 0; i < op->n_spans; i++) {
        place->spans[i] = (struct iovec){op->spans[i].bytes, op->spans[i].n_bytes};
        place->left += op->spans[i].n_bytes;
    }
}

/* The next slab that has to be synced, or the end. */
static void sync_next(struct kvpi_flight *flight, uint32_t number)
{
    struct kvpi_flight_place *place = &flight->places[number];
    while (place->next_slab < place->slabs->n_slabs) {
        struct kvpi_slab *slab = &place->slabs->slabs[place->next_slab++];
        if (!atomic_exchange_explicit(&slab->dirty, 0, memory_order_acquire))
            continue;
        place->extent = (struct kvpi_extent){.slab = slab};
        place->n_tries = 0;
        add(flight, number);
        return;
    }
    end_place(flight, number, 0);
}

/* ---------------------------------------------------------------------------------------- begun */

/* 0: it has to wait for a stage. */
static int begin(struct kvpi_flight *flight, struct kvpi_store_op *op)
{
    const uint32_t number = flight->free_places[flight->n_free - 1];
    struct kvpi_flight_place *place = &flight->places[number];
    struct kvpi_slabs *slabs = op->place_in ? op->place_in : flight->slabs;
    struct kvpi_extent extent = {0};
    int direct = 0;
    if (op->kind != KVP_STORE_SYNC) {
        if (kvpi_slabs_find(slabs, (uint32_t)op->place.slot, &extent) != 0) {
            put_ended(flight, op, 1);
            return 1;
        }
        direct = atomic_load_explicit(&extent.slab->direct, memory_order_relaxed);
    }
    const int staged = direct && !kvpi_stage_aligned(op->spans, op->n_spans);
    if (staged && flight->n_free_stages == 0)
        return 0;
    flight->n_free--;
    place->op = op;
    place->slabs = slabs;
    place->extent = extent;
    place->direct = direct;
    place->stage = staged ? (int)flight->free_stages[--flight->n_free_stages] : -1;
    place->next_slab = 0;
    place->n_tries = 0;
    if (op->kind == KVP_STORE_SYNC) {
        sync_next(flight, number);
        return 1;
    }
    flight->n_staged += (uint64_t)staged;
    if (staged && op->kind == KVP_STORE_PUT)
        kvpi_stage_gather(op->spans, op->n_spans, stage_of(flight, place));
    aim(flight, place);
    add(flight, number);
    return 1;
}

/* The system takes the first n of what was added, for good. */
static void note_taken(struct kvpi_flight *flight, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        flight->places[flight->added[(flight->added_first + i) % KVPI_FLIGHT_PLACES]].flying = 1;
    flight->added_first = (flight->added_first + n) % KVPI_FLIGHT_PLACES;
    flight->n_added -= n;
    flight->n_flying += n;
    if (n > 0)
        flight->n_refusals = 0;
}

/* EINTR, EAGAIN and EBUSY mean later; with any other error it will never work. */
static void submit_added(struct kvpi_flight *flight)
{
    int error = 0;
    uint32_t n = 1;
    while (flight->n_added > 0 && n > 0 && !error && !flight->broken) {
        n = 0;
        error = flight->system->submit(flight->queue, &n);
        note_taken(flight, n);
    }
    if (error != 0 && error != EINTR && error != EAGAIN && error != EBUSY)
        flight->broken = error;
    else if (flight->n_added > 0 && flight->n_flying == 0 && ++flight->n_refusals >= REFUSALS_MAX)
        flight->broken = error ? error : EAGAIN;
}

static void begin_waiting(struct kvpi_flight *flight)
{
    flight->n_new = 0;
    while (flight->first && flight->n_free > 0 && !flight->broken) {
        struct kvpi_store_op *op = flight->first;
        struct kvpi_store_op *next = op->link; /* its link is used again when it ends */
        if (!begin(flight, op))
            break;
        flight->first = next;
    }
    submit_added(flight);
}

/* ---------------------------------------------------------------------------------------- ended */

/* n bytes of it have moved, not all. */
static void advance(struct kvpi_flight_place *place, uint64_t n)
{
    place->left -= n;
    place->extent.offset += n;
    if (n > 0)
        place->n_tries = 0;
    while (n >= place->spans[place->first_span].iov_len) {
        n -= place->spans[place->first_span++].iov_len;
        place->n_spans--;
    }
    struct iovec *span = &place->spans[place->first_span];
    span->iov_base = (uint8_t *)span->iov_base + n;
    span->iov_len -= n;
}

/* What was cut off at a length that is none of the disk's goes on through the page cache or from
 * the last whole page: past the cache all is moved by 4096. */
static uint64_t whole_part(const struct kvpi_flight_place *place, uint64_t n)
{
    return place->direct ? n - n % KVPI_DIRECT_GRAIN : n;
}

static void end_sync(struct kvpi_flight *flight, uint32_t number, int32_t result)
{
    struct kvpi_flight_place *place = &flight->places[number];
    if (result == 0) {
        sync_next(flight, number);
        return;
    }
    if ((result == -EINTR || result == -EAGAIN) && ++place->n_tries < TRIES_MAX) {
        add(flight, number);
        return;
    }
    kvpi_slab_mark(place->extent.slab);
    end_place(flight, number, 1);
}

static void end_transfer(struct kvpi_flight *flight, uint32_t number)
{
    struct kvpi_flight_place *place = &flight->places[number];
    if (place->op->kind == KVP_STORE_GET && place->stage >= 0)
        kvpi_stage_scatter(stage_of(flight, place), place->op->spans, place->op->n_spans);
    end_place(flight, number, 0);
}

/* 1: the transfer is to be added again. */
static int goes_on(struct kvpi_flight_place *place, int32_t result)
{
    if (result > 0) {
        if ((uint64_t)result > place->left)
            return 0;
        advance(place, whole_part(place, (uint64_t)result));
        return ++place->n_tries < TRIES_MAX;
    }
    if (result == -EINTR || result == -EAGAIN)
        return ++place->n_tries < TRIES_MAX;
    if (result == -EINVAL && kvpi_slabs_buffer(place->slabs, place->extent.slab, place->direct)) {
        place->direct = 0;
        return 1;
    }
    return 0; /* failed, or 0: the file ends here */
}

static void take(struct kvpi_flight *flight, uint32_t tag, int32_t result)
{
    const uint32_t number = tag % KVPI_FLIGHT_PLACES;
    struct kvpi_flight_place *place = &flight->places[number];
    if (!place->flying || place->tag != tag)
        return;
    flight->n_flying--;
    place->flying = 0;
    if (place->op->kind == KVP_STORE_SYNC) {
        end_sync(flight, number, result);
        return;
    }
    if (place->op->kind == KVP_STORE_PUT)
        kvpi_slab_mark(place->extent.slab);
    if ((uint64_t)result == place->left)
        end_transfer(flight, number);
    else if (goes_on(place, result))
        add(flight, number);
    else
        end_place(flight, number, 1);
}

/* ----------------------------------------------------------------------------------- the engine */

int kvpi_flight_open(struct kvpi_flight *flight, const struct kvpi_queue_system *system,
                     struct kvpi_slabs *slabs)
{
    *flight = (struct kvpi_flight){.system = system, .slabs = slabs};
    uint64_t n_stages = STAGE_BYTES / slabs->slot_bytes;
    if (n_stages > KVPI_FLIGHT_STAGES)
        n_stages = KVPI_FLIGHT_STAGES;
    flight->n_stages = n_stages < STAGES_MIN ? STAGES_MIN : (uint32_t)n_stages;
    const int error = system->open(system->context, KVPI_FLIGHT_PLACES, &flight->queue);
    if (error)
        return error;
    flight->places = calloc(KVPI_FLIGHT_PLACES, sizeof *flight->places);
    flight->stages = kvpi_stage_make(flight->n_stages, slabs->slot_bytes);
    if (!flight->places || !flight->stages) {
        kvpi_flight_close(flight);
        return ENOMEM;
    }
    for (; flight->n_free < KVPI_FLIGHT_PLACES; flight->n_free++)
        flight->free_places[flight->n_free] = flight->n_free;
    for (; flight->n_free_stages < flight->n_stages; flight->n_free_stages++)
        flight->free_stages[flight->n_free_stages] = flight->n_free_stages;
    flight->unfixed =
        system->fix(flight->queue, flight->stages, flight->n_stages * slabs->slot_bytes);
    flight->fixed = flight->unfixed == 0;
    return 0;
}

void kvpi_flight_close(struct kvpi_flight *flight)
{
    flight->system->close(flight->queue);
    free(flight->places);
    free(flight->stages);
}

void kvpi_flight_submit(struct kvpi_flight *flight, struct kvpi_store_op *op)
{
    op->link = NULL;
    if (flight->first)
        flight->last->link = op;
    else
        flight->first = op;
    flight->last = op;
    if (++flight->n_new * flight->slabs->slot_bytes >= BATCH_BYTES || flight->n_flying == 0)
        begin_waiting(flight);
}

uint32_t kvpi_flight_reap(struct kvpi_flight *flight, struct kvpi_store_op **out_ops,
                          uint32_t capacity)
{
    uint32_t tag;
    int32_t result;
    while (flight->n_flying > 0 && flight->system->take(flight->queue, &tag, &result))
        take(flight, tag, result);
    begin_waiting(flight);
    uint32_t n = 0;
    for (; flight->ended && n < capacity; flight->ended = out_ops[n++]->link)
        out_ops[n] = flight->ended;
    return n;
}

struct kvpi_store_op *kvpi_flight_salvage(struct kvpi_flight *flight)
{
    struct kvpi_store_op *op = NULL;
    if (flight->n_added > 0) {
        const uint32_t number = flight->added[flight->added_first];
        flight->added_first = (flight->added_first + 1) % KVPI_FLIGHT_PLACES;
        flight->n_added--;
        op = flight->places[number].op;
        if (op->kind == KVP_STORE_SYNC)
            kvpi_slab_mark(flight->places[number].extent.slab);
        leave_place(flight, number);
    } else if (flight->first) {
        op = flight->first;
        flight->first = op->link;
    }
    return op;
}

int kvpi_flight_is_stuck(const struct kvpi_flight *flight)
{
    return flight->n_added > 0;
}
