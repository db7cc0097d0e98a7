/* live: the batch that is made goes to all readers, and is kept for those that miss it. */
#include "publish/publisher_state.h"

#include <string.h>
#include <zmq.h>

void kvpi_publish_batch(kvp_publisher *p)
{
    uint8_t number[8];
    size_t n_bytes;
    const uint8_t *batch = kvpi_out_end(&p->live, p->now_ns, &n_bytes);
    kvpi_kept_add(&p->kept, batch, n_bytes);
    for (unsigned i = 0; i < sizeof(number); i++) {
        number[i] = (uint8_t)(p->kept.newest >> 8 * (sizeof(number) - 1 - i));
    }
    /* A PUB socket never waits: it drops for readers whose queue is full. */
    if (zmq_send(p->pub, p->topic, strlen(p->topic), ZMQ_DONTWAIT | ZMQ_SNDMORE) < 0 ||
        zmq_send(p->pub, number, sizeof(number), ZMQ_DONTWAIT | ZMQ_SNDMORE) < 0 ||
        zmq_send(p->pub, batch, n_bytes, ZMQ_DONTWAIT) < 0) {
        p->stats.failed_sends++;
    }
    p->stats.batches++;
    p->sent_ns = p->now_ns;
    kvpi_out_begin(&p->live);
}
