/* shm: links to another process of this machine. Each end lends places of a ring that the peer
 * maps: a message is gathered into the ring, and scattered out of it. Nothing else copies it.
 *
 *   memory of an end, mapped by it to be written, by the peer to be read
 *
 *   0       u64 posted   messages that it has posted, ever
 *   64      u64 taken    messages that it is done with, of the peer's, ever
 *   4096    [n_messages] places of stride bytes
 *             0     u64 n_bytes of the message
 *             48    the message: what follows its first 80 bytes begins at a line of the cache
 *
 *   taken (by the peer) <= posted <= taken + n_messages: places [taken, posted) wait
 *
 * The hello, which goes over the socket with the memory: "kvps", u8 version, 3 zero bytes,
 * u32 max_message, u32 n_messages, u64 bytes of the memory.
 *
 * S1  Only its owner writes to a memory (transfer/share.h). A peer may write anything into its
 *     own, at any time: each number is read once, and checked before use. Who reads a message must
 *     expect that it changes meanwhile (kvpi_side_take).
 * S2  posted is written after the message and its length, taken after the last read of it.
 * S3  The socket says that the peer is gone, and is asked when no message waits. What the peer had
 *     posted is still taken. */
#define _POSIX_C_SOURCE 200809L

#include <stdlib.h>
#include <string.h>

#include <kvpager/transfer.h>

#include "base/bytes.h"
#include "base/sized.h"
#include "base/why.h"
#include "transfer/share.h"
#include "transfer/shm.h"

enum {
    SHM_VERSION = 1,
    HELLO_BYTES = 24,
    PAGE = 4096,
    LINE = 64,
    AT_MESSAGE = 48,
    MOST_MESSAGES = 65536,
    MOST_BYTES = 1 << 30 /* of a message */
};

static const uint8_t SHM_MAGIC[4] = {'k', 'v', 'p', 's'};

struct counters {
    _Alignas(LINE) uint64_t posted;
    _Alignas(LINE) uint64_t taken;
};

struct shm_ring {
    size_t max_message;
    uint64_t n_messages;
    size_t stride;
    size_t bytes; /* of the memory */
};

struct kvp_shm {
    int socket;
    int memory; /* our descriptor, until it is sent; -1 */
    int is_connected;
    int has_taken; /* a message that is not given back */
    kvp_status broken;
    size_t lent; /* bytes; 0: nothing is */
    uint64_t posted;
    uint64_t taken;
    struct shm_ring out;
    struct shm_ring in;
    unsigned char *ours;
    const unsigned char *theirs;
};

/* Lay out a ring; 0: its memory would not fit into an address space. */
static int make_shm_ring(uint64_t max_message, uint64_t n_messages, struct shm_ring *out)
{
    const uint64_t stride = (AT_MESSAGE + max_message + LINE - 1) / LINE * LINE;
    const uint64_t bytes = (PAGE + n_messages * stride + PAGE - 1) / PAGE * PAGE; /* < 2^47 */
    *out = (struct shm_ring){(size_t)max_message, n_messages, (size_t)stride, (size_t)bytes};
    return bytes <= SIZE_MAX / 2;
}

static int fits(uint64_t max_message, uint64_t n_messages)
{
    return max_message >= KVP_LINK_MESSAGE_MIN && max_message <= MOST_BYTES && n_messages >= 1 &&
           n_messages <= MOST_MESSAGES;
}

static size_t shm_place(const struct shm_ring *ring, uint64_t number)
{
    return PAGE + (size_t)(number % ring->n_messages) * ring->stride;
}

/* ---------------------------------------------------------------------------- opening, closing */

static int has_sent_hello(kvp_shm *shm)
{
    uint8_t hello[HELLO_BYTES] = {0};
    memcpy(hello, SHM_MAGIC, sizeof SHM_MAGIC);
    hello[4] = SHM_VERSION;
    kvpi_bytes_store(hello + 8, shm->out.max_message, 4);
    kvpi_bytes_store(hello + 12, shm->out.n_messages, 4);
    kvpi_bytes_store(hello + 16, shm->out.bytes, 8);
    return kvpi_share_send(shm->socket, hello, sizeof hello, shm->memory);
}

static int wrong_for_shm(int socket, size_t max_message, uint32_t n_messages, kvp_why *why)
{
    return kvpi_why_range(why, "max_message", max_message, KVP_LINK_MESSAGE_MIN, MOST_BYTES) ||
           kvpi_why_range(why, "n_messages", n_messages, 1, MOST_MESSAGES) ||
           kvpi_why_if(why, !kvpi_share_is_socket(socket), "socket", NULL,
                       kvpi_share_exists()
                           ? "is no connected Unix stream: shared memory does not reach another "
                             "machine, for which there is kvp_tcp_open"
                           : "this system has no sealed memory: that needs Linux 5.1");
}

kvp_status kvp_shm_open(int socket, size_t max_message, uint32_t n_messages, kvp_shm **out_shm,
                        kvp_why *out_why)
{
    void *ours = NULL;
    kvpi_why_clear(out_why);
    if (kvpi_why_if(out_why, !out_shm, "out_shm", NULL, "is NULL") ||
        wrong_for_shm(socket, max_message, n_messages, out_why))
        return kvpi_share_exists() ? KVP_E_ARG : KVP_E_IO;
    kvp_shm *shm = calloc(1, sizeof *shm);
    if (!shm)
        return KVP_E_NO_MEMORY;
    kvp_status status = KVP_E_NO_MEMORY;
    shm->socket = shm->memory = -1;
    if (make_shm_ring(max_message, n_messages, &shm->out))
        shm->memory = kvpi_share_make(shm->out.bytes, &ours);
    if (kvpi_why_if(out_why, shm->memory < 0, "max_message", NULL,
                    "the system gave no memory for the messages, or cannot seal it"))
        goto fail;
    shm->ours = ours;
    status = KVP_E_IO;
    shm->socket = kvpi_share_keep(socket);
    if (kvpi_why_if(out_why, shm->socket < 0, "socket", NULL, "the system gave no descriptor"))
        goto fail;
    status = KVP_E_PEER;
    if (kvpi_why_if(out_why, !has_sent_hello(shm), "socket", NULL, "the peer has closed it"))
        goto fail;
    kvpi_share_close(shm->memory);
    shm->memory = -1;
    *out_shm = shm;
    return KVP_OK;
fail:
    kvpi_share_unmap(shm->ours, shm->out.bytes);
    kvpi_share_close(shm->memory);
    kvpi_share_close(shm->socket);
    free(shm);
    return status;
}

void kvp_shm_close(kvp_shm *shm)
{
    if (!shm)
        return;
    kvpi_share_leave(shm->socket);
    kvpi_share_close(shm->socket);
    kvpi_share_unmap(shm->ours, shm->out.bytes);
    kvpi_share_unmap(shm->theirs, shm->in.bytes);
    free(shm);
}

/* ---------------------------------------------------------------------------------- as a link */

static struct counters *own_counters(const kvp_shm *shm)
{
    return (struct counters *)(void *)shm->ours;
}

/* S1: a counter of the peer's, which has come to `lowest` before and cannot be above `highest`. */
static uint64_t read_counter(kvp_shm *shm, const uint64_t *counter, uint64_t lowest,
                             uint64_t highest)
{
    const uint64_t n = __atomic_load_n(counter, __ATOMIC_ACQUIRE);
    if (n >= lowest && n <= highest)
        return n;
    if (shm->broken == KVP_OK)
        shm->broken = KVP_E_IO;
    return lowest;
}

static const struct counters *peers_counters(const kvp_shm *shm)
{
    return (const struct counters *)(const void *)shm->theirs;
}

/* Messages of the peer's that it has posted, and we have not given back. */
static uint64_t waiting(kvp_shm *shm)
{
    return read_counter(shm, &peers_counters(shm)->posted, shm->taken,
                        shm->taken + shm->in.n_messages) -
           shm->taken;
}

static int has_room(kvp_shm *shm)
{
    const uint64_t done = shm->posted > shm->out.n_messages ? shm->posted - shm->out.n_messages : 0;
    return shm->posted - read_counter(shm, &peers_counters(shm)->taken, done, shm->posted) <
           shm->out.n_messages;
}

static kvp_status lend_shm(void *context, size_t n_bytes, void **out_buffer)
{
    kvp_shm *shm = context;
    if (n_bytes == 0 || n_bytes > shm->out.max_message)
        return KVP_E_ARG;
    const int room = has_room(shm);
    if (shm->broken != KVP_OK)
        return shm->broken;
    if (!room)
        return KVP_E_AGAIN;
    shm->lent = n_bytes;
    *out_buffer = shm->ours + shm_place(&shm->out, shm->posted) + AT_MESSAGE;
    return KVP_OK;
}

static kvp_status post_shm(void *context, size_t n_bytes)
{
    kvp_shm *shm = context;
    if (n_bytes == 0 || n_bytes > shm->lent)
        return KVP_E_ARG;
    if (shm->broken != KVP_OK)
        return shm->broken;
    const uint64_t length = n_bytes;
    memcpy(shm->ours + shm_place(&shm->out, shm->posted), &length, sizeof length);
    shm->posted++;
    shm->lent = 0;
    __atomic_store_n(&own_counters(shm)->posted, shm->posted, __ATOMIC_RELEASE); /* S2 */
    return KVP_OK;
}

static kvp_status take_shm(void *context, const void **out_bytes, size_t *out_n_bytes)
{
    kvp_shm *shm = context;
    uint64_t n = waiting(shm);
    if (n == 0 && shm->broken == KVP_OK && kvpi_share_is_gone(shm->socket)) {
        shm->broken = KVP_E_PEER;
        n = waiting(shm); /* S3: what came before the end */
    }
    if (shm->broken == KVP_E_IO)
        return KVP_E_IO;
    if (n == 0)
        return shm->broken == KVP_OK ? KVP_E_AGAIN : shm->broken;
    const unsigned char *place = shm->theirs + shm_place(&shm->in, shm->taken);
    const uint64_t length =
        __atomic_load_n((const uint64_t *)(const void *)place, __ATOMIC_RELAXED);
    if (length == 0 || length > shm->in.max_message) {
        shm->broken = KVP_E_IO;
        return KVP_E_IO;
    }
    shm->has_taken = 1;
    *out_bytes = place + AT_MESSAGE;
    *out_n_bytes = (size_t)length;
    return KVP_OK;
}

static void give_back_shm(void *context)
{
    kvp_shm *shm = context;
    if (!shm->has_taken)
        return;
    shm->has_taken = 0;
    shm->taken++;
    __atomic_store_n(&own_counters(shm)->taken, shm->taken, __ATOMIC_RELEASE); /* S2 */
}

static void progress_shm(void *context)
{
    (void)context;
}

static const kvp_link SHM_CALLS = {sizeof SHM_CALLS, 0,        NULL,          lend_shm,
                                   post_shm,         take_shm, give_back_shm, progress_shm};

int kvpi_shm_is_link(const kvp_link *link)
{
    return link->lend == lend_shm;
}

/* --------------------------------------------------------------------------------- connecting */

/* Look at what the peer has sent, and map its memory, which is `memory`. */
static kvp_status meet_peer(kvp_shm *shm, const uint8_t *hello, int memory, kvp_why *why)
{
    const uint64_t max_message = kvpi_bytes_load(hello + 8, 4);
    const uint64_t n_messages = kvpi_bytes_load(hello + 12, 4);
    if (kvpi_why_if(why, memcmp(hello, SHM_MAGIC, sizeof SHM_MAGIC) != 0, "peer", NULL,
                    "sent no hello of a link over shared memory"))
        return KVP_E_FORMAT;
    if (kvpi_why_if(why, hello[4] != SHM_VERSION, "peer", NULL,
                    "has another version of links over shared memory"))
        return KVP_E_VERSION;
    if (kvpi_why_if(why,
                    !fits(max_message, n_messages) ||
                        !make_shm_ring(max_message, n_messages, &shm->in) ||
                        shm->in.bytes != kvpi_bytes_load(hello + 16, 8),
                    "peer", NULL, "has a ring of another form"))
        return KVP_E_FORMAT;
    shm->theirs = kvpi_share_view(memory, shm->in.bytes);
    return kvpi_why_if(why, !shm->theirs, "peer", NULL,
                       "sent memory that is too small or not sealed, or the system does not map it")
               ? KVP_E_FORMAT
               : KVP_OK;
}

static kvp_status receive_hello(kvp_shm *shm, kvp_why *why)
{
    uint8_t hello[HELLO_BYTES];
    int memory;
    const int came = kvpi_share_receive(shm->socket, hello, sizeof hello, &memory);
    if (came == 0)
        return KVP_E_AGAIN;
    if (kvpi_why_if(why, came == -1, "peer", NULL, "is gone"))
        return KVP_E_PEER;
    if (kvpi_why_if(why, came < 0, "peer", NULL, "sent no hello of a link over shared memory"))
        return KVP_E_FORMAT;
    const kvp_status status = meet_peer(shm, hello, memory, why);
    kvpi_share_close(memory);
    return status;
}

kvp_status kvp_shm_connect(kvp_shm *shm, kvp_link *out_end, kvp_why *out_why)
{
    kvpi_why_clear(out_why);
    if (!shm || !out_end)
        return KVP_E_ARG;
    if (shm->is_connected)
        return KVP_E_STATE;
    if (shm->broken != KVP_OK)
        return shm->broken;
    const kvp_status status = receive_hello(shm, out_why);
    if (status == KVP_E_AGAIN)
        return status;
    shm->broken = status;
    if (status != KVP_OK)
        return status;
    shm->is_connected = 1;
    *out_end = SHM_CALLS;
    out_end->max_message = shm->out.max_message;
    out_end->context = shm;
    return KVP_OK;
}
