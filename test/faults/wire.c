/* A scheduler and a worker: any message is lost, comes twice, after the next one, or damaged. The
 * worker refuses what it cannot take, has what it had, and is told everything anew. From then on
 * the scheduler goes another way; after every message both sides must agree. */
#include "faults.h"

#include "wire_drive.h"

#include <string.h>

enum { STEPS = 60 };

typedef struct worker {
    kvp_wire_mirror *mirror;
    uint8_t late[DRIVE_BYTES]; /* [n_late] a message that comes after the next one */
    size_t n_late;
} worker;

static void refuse(worker *w, const void *bytes, size_t n, kvp_status refused)
{
    const uint64_t before = kvp_wire_mirror_digest(w->mirror);
    assert_int_equal(kvp_wire_mirror_apply(w->mirror, bytes, n, NULL), refused);
    assert_true(kvp_wire_mirror_digest(w->mirror) == before);
}

static void take(worker *w, const driver *d)
{
    assert_ok(kvp_wire_mirror_apply(w->mirror, d->bytes, d->n_bytes, NULL));
    assert_true(drive_sum_mirror(w->mirror, &d->config) == drive_sum_cache(d));
    assert_true(kvp_wire_mirror_digest(w->mirror) == kvp_wire_sender_digest(d->sender));
}

/* The worker has missed something: a full message. */
static void tell_all(worker *w, driver *d)
{
    drive_message(d, 1);
    take(w, d);
}

/* A step that comes after one that has not come. */
static void miss(worker *w, driver *d)
{
    drive_message(d, 0);
    refuse(w, d->bytes, d->n_bytes, KVP_E_STATE);
    tell_all(w, d);
}

static void deliver(worker *w, driver *d, uint64_t seed)
{
    if (fault_comes(SEAM_message_lost)) {
        miss(w, d);
    } else if (fault_comes(SEAM_message_damaged)) {
        const size_t at = KVP_WIRE_HEAD_BYTES +
                          draw(&seed, (uint32_t)d->n_bytes) % (d->n_bytes - KVP_WIRE_HEAD_BYTES);
        d->bytes[at] ^= (uint8_t)(1u << draw(&seed, 8));
        refuse(w, d->bytes, d->n_bytes, KVP_E_FORMAT);
        tell_all(w, d);
    } else if (fault_comes(SEAM_message_swapped)) {
        memcpy(w->late, d->bytes, d->n_bytes);
        w->n_late = d->n_bytes;
        miss(w, d);
        refuse(w, w->late, w->n_late, KVP_E_STATE);
    } else {
        take(w, d);
        if (fault_comes(SEAM_message_twice))
            refuse(w, d->bytes, d->n_bytes, KVP_E_STATE);
    }
}

void scene_wire(uint64_t seed)
{
    static driver d;
    static worker w;
    kvp_wire_sender *second = NULL;
    (seed % 3 == 0 ? drive_begin_states : seed % 3 == 1 ? drive_begin : drive_begin_rich)(&d, seed);
    CALL(&d.w, KVP_E_NO_MEMORY, kvp_wire_mirror_create(&d.config, NULL, 0, &w.mirror));
    CALL(&d.w, KVP_E_NO_MEMORY, kvp_wire_sender_create(&d.config, d.w.cache, NULL, 0, &second));
    kvp_wire_sender_destroy(second);
    drive_message(&d, 1);
    take(&w, &d);
    for (uint64_t step = 0; step < STEPS; step++) {
        drive_change(&d);
        drive_message(&d, 0);
        deliver(&w, &d, seed + step);
    }
    kvp_wire_mirror_destroy(w.mirror);
    drive_end(&d);
}
