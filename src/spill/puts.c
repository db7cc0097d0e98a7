/* puts: the queue of records on their way to the store. Puts stand in it in the order of making,
 * each behind the put of the record before. */
#include "spill/spill_state.h"

#include <string.h>

struct kvpi_spill_put *kvpi_puts_free(kvp_spill *spill)
{
    return spill->n_puts == spill->config.max_puts
               ? NULL
               : &spill->puts[spill->put_free[spill->config.max_puts - spill->n_puts - 1]];
}

void kvpi_puts_add(kvp_spill *spill, struct kvpi_spill_put *put)
{
    const uint32_t number = (uint32_t)(put - spill->puts);
    spill->put_bytes += put->bytes;
    spill->put_marks[number] = kvpi_records_mark_of(&put->key);
    spill->put_queue[spill->n_puts++] = number;
}

/* Marks lie together: a walk along the puts themselves would miss the CPU's caches at each. */
struct kvpi_spill_put *kvpi_puts_find(kvp_spill *spill, const kvp_digest *key)
{
    const uint64_t mark = kvpi_records_mark_of(key);
    for (uint32_t i = 0; i < spill->n_puts; i++) {
        const uint32_t number = spill->put_queue[i];
        struct kvpi_spill_put *put = &spill->puts[number];
        if (spill->put_marks[number] == mark && memcmp(&put->key, key, sizeof(*key)) == 0) {
            return put;
        }
    }
    return NULL;
}

void kvpi_puts_end(kvp_spill *spill, struct kvpi_spill_put *put)
{
    kvpi_slots_end(spill, put);
    spill->put_marks[put - spill->puts] = 0;
    spill->put_bytes -= put->bytes;
    put->state = KVPI_PUT_FREE;
}

void kvpi_puts_sweep(kvp_spill *spill)
{
    uint32_t kept = 0;
    uint32_t n_free = spill->config.max_puts - spill->n_puts;
    for (uint32_t i = 0; i < spill->n_puts; i++) {
        const uint32_t number = spill->put_queue[i];
        if (spill->puts[number].state == KVPI_PUT_FREE) {
            spill->put_free[n_free++] = number;
        } else {
            spill->put_queue[kept++] = number;
        }
    }
    spill->n_puts = kept;
}
