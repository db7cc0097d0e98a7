/* loopback: two links in one process. A ring of messages in each direction.
 *
 *   ring   [n_messages + 1] places of stride bytes: one is lent while n_messages wait
 *
 *          first                 first + n
 *            v                       v
 *     ... | taken | wait | wait | lent | free ...
 */
#include <stdlib.h>

#include <kvpager/transfer.h>

#include "base/sized.h"

struct ring {
    unsigned char *bytes;
    size_t *lengths;
    uint32_t first;
    uint32_t n;
};

struct end {
    struct kvp_loopback *loopback;
    struct ring *in;
    struct ring *out;
    size_t lent; /* bytes; 0: nothing is */
};

struct kvp_loopback {
    size_t max_message;
    size_t stride;
    uint32_t n_messages;
    int is_cut;
    struct ring rings[2];
    struct end ends[2];
};

static unsigned char *message_at(const struct kvp_loopback *loopback, const struct ring *ring,
                                 uint32_t i)
{
    return ring->bytes + (ring->first + i) % (loopback->n_messages + 1) * loopback->stride;
}

static kvp_status lend(void *context, size_t n_bytes, void **out_buffer)
{
    struct end *end = context;
    const struct kvp_loopback *l = end->loopback;
    if (n_bytes == 0 || n_bytes > l->max_message)
        return KVP_E_ARG;
    if (l->is_cut)
        return KVP_E_PEER;
    if (end->out->n == l->n_messages)
        return KVP_E_AGAIN;
    end->lent = n_bytes;
    *out_buffer = message_at(l, end->out, end->out->n);
    return KVP_OK;
}

static kvp_status post(void *context, size_t n_bytes)
{
    struct end *end = context;
    struct ring *ring = end->out;
    if (n_bytes == 0 || n_bytes > end->lent)
        return KVP_E_ARG;
    if (end->loopback->is_cut)
        return KVP_E_PEER;
    ring->lengths[(ring->first + ring->n) % (end->loopback->n_messages + 1)] = n_bytes;
    ring->n++;
    end->lent = 0;
    return KVP_OK;
}

static kvp_status take_posted(void *context, const void **out_bytes, size_t *out_n_bytes)
{
    const struct end *end = context;
    if (end->in->n == 0)
        return end->loopback->is_cut ? KVP_E_PEER : KVP_E_AGAIN;
    *out_bytes = message_at(end->loopback, end->in, 0);
    *out_n_bytes = end->in->lengths[end->in->first];
    return KVP_OK;
}

static void give_back(void *context)
{
    const struct end *end = context;
    struct ring *ring = end->in;
    if (ring->n == 0)
        return;
    ring->first = (ring->first + 1) % (end->loopback->n_messages + 1);
    ring->n--;
}

static void progress(void *context)
{
    (void)context;
}

static const kvp_link LOOPBACK_CALLS = {sizeof LOOPBACK_CALLS, 0,         NULL,    lend, post,
                                        take_posted,           give_back, progress};

kvp_status kvp_loopback_create(size_t max_message, uint32_t n_messages, kvp_loopback **out_loopback,
                               kvp_link *out_ends)
{
    if (max_message < KVP_LINK_MESSAGE_MIN || max_message > INT32_MAX || n_messages < 1 ||
        n_messages > 65536 || !out_loopback || !out_ends)
        return KVP_E_ARG;
    const size_t stride = (max_message + 63) & ~(size_t)63;
    if (stride > SIZE_MAX / (n_messages + 1))
        return KVP_E_TOO_LONG;
    struct kvp_loopback *l = calloc(1, sizeof *l);
    if (!l)
        return KVP_E_NO_MEMORY;
    *l = (struct kvp_loopback){
        .max_message = max_message, .stride = stride, .n_messages = n_messages};
    for (int i = 0; i < 2; i++) {
        l->rings[i].bytes = malloc(stride * (n_messages + 1));
        l->rings[i].lengths = calloc(n_messages + 1, sizeof(size_t));
        l->ends[i] = (struct end){l, &l->rings[i], &l->rings[1 - i], 0};
        if (!l->rings[i].bytes || !l->rings[i].lengths) {
            kvp_loopback_destroy(l);
            return KVP_E_NO_MEMORY;
        }
    }
    for (int i = 0; i < 2; i++) {
        out_ends[i] = LOOPBACK_CALLS;
        out_ends[i].max_message = max_message;
        out_ends[i].context = &l->ends[i];
    }
    *out_loopback = l;
    return KVP_OK;
}

void kvp_loopback_cut(kvp_loopback *loopback)
{
    if (loopback)
        loopback->is_cut = 1;
}

void kvp_loopback_destroy(kvp_loopback *loopback)
{
    if (!loopback)
        return;
    for (int i = 0; i < 2; i++) {
        free(loopback->rings[i].bytes);
        free(loopback->rings[i].lengths);
    }
    free(loopback);
}
